package node

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"atoll/internal/fault"
	"atoll/internal/fence"
	"atoll/internal/model"
	"atoll/internal/model/local"
)

// Finding is one line of Doctor. Fix says what to do, or what would be better where it is OK; it may have several lines.
type Finding struct {
	Name   string
	OK     bool
	Detail string
	Fix    string
}

// doctorTime bounds each question to the model.
const doctorTime = 60 * time.Second

// Doctor looks at the data directory, the configuration and the peers it names, and asks the configured model to answer
// and to call a tool (B5). With running it leaves the directory alone.
func Doctor(ctx context.Context, dir string, running bool, env []string) []Finding {
	var out []Finding
	add := func(name string, err error, detail, fix string) bool {
		f := Finding{Name: name, OK: err == nil, Detail: detail}
		if err != nil {
			f.Detail, f.Fix = words(err), fix
		}
		out = append(out, f)
		return f.OK
	}
	if st, err := os.Stat(dir); err != nil {
		add("data directory", err, "", "start the node once (atoll serve), or give --data-dir")
		return out
	} else if st.Mode().Perm()&0o077 != 0 {
		add("data directory", fmt.Errorf("%s can be read by others", dir), "", "chmod 700 "+dir)
	} else {
		add("data directory", nil, dir, "")
	}
	if running {
		out = append(out, Finding{Name: "store", OK: true, Detail: "in use by the running node"})
	} else {
		add("store", withStopped(ctx, dir, false, func(s *stopped) error {
			rep, err := s.audit.Verify(ctx, s.key.Public().(ed25519.PublicKey), "")
			if err == nil && !rep.OK {
				err = errors.New("the audit record is broken: run atoll audit verify")
			}
			return err
		}), "accounts and audit record are whole", "restore the file it names from a backup")
	}
	settings, err := LoadSettings(dir, env)
	if !add("configuration", err, "backend "+settings.Assistant.Backend, "correct config.toml or the variable it names") {
		return out
	}
	out = append(out, doctorPeers(ctx, dir, settings)...)
	return append(out, doctorModel(ctx, dir, settings)...)
}

func doctorModel(ctx context.Context, dir string, s Settings) []Finding {
	quiet := slog.New(slog.DiscardHandler)
	sentences, err := local.New(local.Config{Names: func(context.Context) local.Names { return local.Names{} }})
	if err != nil {
		return []Finding{{Name: "model", Detail: words(err)}}
	}
	c, err := buildModel(dir, s, sentences, quiet)
	if err == nil {
		_, err = buildPrices(s, c)
	}
	if err != nil {
		return []Finding{{Name: "model", Detail: words(err), Fix: "see [assistant] in config.toml and the secrets folder"}}
	}
	info := c.Info()
	if info.Host == "" && info.Backend == "local" {
		return []Finding{{Name: "model", OK: true, Detail: "the built-in local backend; it needs no model and no network"}}
	}
	return []Finding{doctorStream(ctx, c, info), doctorCall(ctx, c)}
}

// doctorStream checks that the server is reached, takes the key, and streams.
func doctorStream(ctx context.Context, c model.Client, info model.Info) Finding {
	ctx, cancel := context.WithTimeout(ctx, doctorTime)
	defer cancel()
	f := Finding{Name: "model answers", Fix: "is the server running, the address right, the key valid, the model's name known there?"}
	deltas := 0
	start := time.Now()
	answer, err := c.Stream(ctx, model.Request{System: fence.Ours("You are being tested."), MaxTokens: 200, Now: start,
		Messages: []model.Message{{Role: model.User, Blocks: []model.Block{model.TextBlock(fence.Ours("Count from one to ten in words."))}}}},
		func(string) error { deltas++; return nil })
	switch {
	case err != nil:
		f.Detail = words(err)
	case strings.TrimSpace(answer.Text()) == "":
		f.Detail = "it gave no text"
	default:
		f.OK, f.Fix = true, ""
		place := "on this machine"
		if info.Host != "" {
			place = "at " + info.Host
		}
		f.Detail = fmt.Sprintf("%s %s, %d pieces in %s", info.Model, place, deltas, time.Since(start).Round(time.Millisecond))
		if deltas == 1 {
			f.Detail += "; it does not seem to stream"
		}
	}
	return f
}

// doctorCall checks that the model calls a tool when asked to.
func doctorCall(ctx context.Context, c model.Client) Finding {
	ctx, cancel := context.WithTimeout(ctx, doctorTime)
	defer cancel()
	f := Finding{Name: "model calls tools", Fix: "choose a model that supports tool calling"}
	answer, err := c.Stream(ctx, model.Request{System: fence.Ours("Use the tools to answer."), MaxTokens: 500, Now: time.Now(),
		Tools:    []model.Tool{{Name: "system_disk_status", Description: "Shows how full the disks are.", Schema: []byte(`{"type":"object","properties":{},"additionalProperties":false}`)}},
		Messages: []model.Message{{Role: model.User, Blocks: []model.Block{model.TextBlock(fence.Ours("How full is the disk? Call the tool system_disk_status."))}}}},
		func(string) error { return nil })
	calls := answer.Calls()
	switch {
	case err != nil:
		f.Detail = words(err)
	case len(calls) == 0:
		f.Detail = "it answered with text instead of calling the tool"
	case calls[0].Name != "system_disk_status" || calls[0].Broken != "":
		f.Detail = "its call was malformed"
	default:
		f.OK, f.Fix, f.Detail = true, "", "it called the tool it was asked to call"
	}
	return f
}

// words is an error fit for the person: the public words of a fault, the text of any other error of this package.
func words(err error) string {
	if f := fault.Of(err); f.Code != fault.Failed {
		return f.Public
	}
	return err.Error()
}
