package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"atoll/internal/cli/client"
	"atoll/internal/cli/term"
	"atoll/internal/fault"
)

func (a *app) meshCommand() *cobra.Command {
	return group("mesh", "Other people's nodes: pair, allow, ask, fetch",
		a.meshStatus(), a.meshInvite(), a.meshAccept(), a.meshAdmit(), a.meshPeers(), a.meshAllow(), a.meshRename(),
		a.meshPeer("block", "Refuse a node every connection, at once", "Blocked"),
		a.meshPeer("remove", "Forget a node; to be known again it needs a new invite", "Forgotten"),
		a.meshPeer("refresh", "Ask a peer again how it is and what it shares", "Asked"),
		a.meshAsk(), a.meshFiles(), a.meshFetch(),
		a.meshCount("uninvite", "Withdraw all open invites", "Invites withdrawn: %d."),
		a.meshCount("resume", "Open the peers' ceilings again after you have looked through them", "The ceilings of %d peers are open again."))
}

func peerColumns() []column {
	return []column{{Title: "PEER", Keys: []string{"label"}}, {Title: "CALLS ITSELF", Keys: []string{"name"}, Show: short}, col("STATE", "state"),
		col("ONLINE", "online"), col("MAY HAVE", "may"), col("SHARES", "files"), col("STATUS", "status"), col("KEY", "key")}
}

// peerRows flattens what a table shows of peers.
func peerRows(raw jsontext.Value) ([]row, error) {
	rows, err := rowsOf(raw, "peers")
	for _, r := range rows {
		var ceiling struct {
			Categories []string `json:"categories"`
			Folders    []string `json:"folders"`
			Asking     bool     `json:"asking"`
		}
		var shares struct {
			Files int64 `json:"files"`
		}
		_ = json.Unmarshal(r["ceiling"], &ceiling) // where it does not read, the column stays empty
		_ = json.Unmarshal(r["shares"], &shares)
		words := strings.Join(ceiling.Categories, " ")
		if len(ceiling.Folders) > 0 {
			words += " (/" + strings.Join(ceiling.Folders, ", /") + ")"
		}
		if ceiling.Asking {
			words += ", may ask for changes"
		}
		r["may"], _ = jsontext.AppendQuote(nil, words)
		if string(r["relayed"]) == "true" {
			r["online"], _ = jsontext.AppendQuote(nil, "by a relay")
		}
		if shares.Files > 0 {
			r["files"], _ = jsontext.AppendQuote(nil, fmt.Sprintf("%d files", shares.Files))
		}
	}
	return rows, err
}

func (a *app) meshStatus() *cobra.Command {
	return a.leaf("status", "Show this node's part in the mesh", "atoll mesh status", cobra.NoArgs, func(ctx context.Context, _ []string) error {
		c, err := a.connect(ctx)
		if err != nil {
			return err
		}
		var raw jsontext.Value
		if err := c.Call(ctx, "mesh.status", nil, &raw); err != nil || a.json {
			return orJSON(a, raw, err)
		}
		var s struct {
			Enabled   bool     `json:"enabled"`
			Key       string   `json:"key"`
			KeyWords  []string `json:"key_words"`
			Addresses []string `json:"addresses"`
			Invites   int      `json:"invites"`
			Note      string   `json:"note"`
		}
		if err := json.Unmarshal(raw, &s); err != nil {
			return otherVersion(err)
		}
		if !s.Enabled {
			a.printf("The mesh is off. To turn it on: [mesh] enabled = true in config.toml, or ATOLL_MESH_ENABLED=1, and start the node again.")
			return nil
		}
		a.printf("Key        %s\nKey words  %s", term.Clean(s.Key), term.Clean(strings.Join(s.KeyWords, " ")))
		for _, addr := range s.Addresses {
			a.printf("Address    %s", term.Clean(addr))
		}
		if s.Invites > 0 {
			a.printf("Invites    %d open", s.Invites)
		}
		if s.Note != "" {
			a.printf("Note       %s", term.Clean(s.Note))
		}
		a.printf("")
		rows, err := peerRows(raw)
		if err == nil {
			a.table(rows, noPeers, peerColumns()...)
		}
		return err
	})
}

const noPeers = "No peers. Make an invite (atoll mesh invite), or accept one (atoll mesh accept)."

func otherVersion(err error) error {
	return fault.Wrap(err, fault.Failed, "the node's answer is not what this version of atoll reads — are both of one version?")
}

// orJSON ends a command whose answer is printed as it came.
func orJSON(a *app, raw jsontext.Value, err error) error {
	if err != nil {
		return err
	}
	return a.printJSON(raw)
}

func (a *app) meshPeers() *cobra.Command {
	return a.leaf("peers", "List the other nodes and what each may have", "atoll mesh peers", cobra.NoArgs, func(ctx context.Context, _ []string) error {
		c, err := a.connect(ctx)
		if err != nil {
			return err
		}
		var raw jsontext.Value
		if err := c.Call(ctx, "mesh.peers", nil, &raw); err != nil || a.json {
			return orJSON(a, raw, err)
		}
		rows, err := peerRows(raw)
		if err == nil {
			a.table(rows, noPeers, peerColumns()...)
		}
		return err
	})
}

func (a *app) meshInvite() *cobra.Command {
	var lasts time.Duration
	var bare bool
	cmd := a.leaf("invite", "Make an invite for one other node", "atoll mesh invite\natoll mesh invite --for 1h --no-addresses", cobra.NoArgs, func(ctx context.Context, _ []string) error {
		c, err := a.connect(ctx)
		if err != nil {
			return err
		}
		var raw jsontext.Value
		if err := c.Call(ctx, "mesh.invite", map[string]any{"for_s": int64(lasts.Seconds()), "addresses": !bare}, &raw); err != nil || a.json {
			return orJSON(a, raw, err)
		}
		var v struct {
			Code     string    `json:"code"`
			Words    []string  `json:"words"`
			QR       []string  `json:"qr"`
			KeyWords []string  `json:"key_words"`
			Expires  time.Time `json:"expires_at"`
		}
		if err := json.Unmarshal(raw, &v); err != nil {
			return otherVersion(err)
		}
		if term.File(a.Stdout) != nil {
			a.printf("%s", halfBlocks(v.QR))
		}
		a.printf("%s\n", term.Clean(v.Code))
		a.printf("The same in words, for the telephone:")
		for i := 0; i < len(v.Words); i += 6 {
			a.printf("%3d  %s", i+1, term.Clean(strings.Join(v.Words[i:min(i+6, len(v.Words))], " ")))
		}
		a.printf("\nYour node's key words, which the other owner should see:  %s", term.Clean(strings.Join(v.KeyWords, " ")))
		a.printf("The invite is for one node and ends at %s. When it is used, a notice tells you; then: atoll mesh admit PEER", v.Expires.Local().Format("15:04:05"))
		return nil
	})
	cmd.Flags().DurationVar(&lasts, "for", 15*time.Minute, "how long the invite can be used, from 1m to 24h")
	cmd.Flags().BoolVar(&bare, "no-addresses", false, "leave this node's addresses out: shorter, for two nodes on one network")
	return cmd
}

// halfBlocks draws a QR code with two rows a line, dark on light, with its quiet zone.
func halfBlocks(rows []string) string {
	const quiet = 4
	width := 2 * quiet
	if len(rows) > 0 {
		width += len(rows[0])
	}
	dark := func(y, x int) bool {
		y, x = y-quiet, x-quiet
		return y >= 0 && y < len(rows) && x >= 0 && x < len(rows[y]) && rows[y][x] == '#'
	}
	var b strings.Builder
	for y := 0; y < len(rows)+2*quiet; y += 2 {
		b.WriteString("\x1b[30;107m")
		for x := range width {
			switch top, low := dark(y, x), dark(y+1, x); {
			case top && low:
				b.WriteString("█")
			case top:
				b.WriteString("▀")
			case low:
				b.WriteString("▄")
			default:
				b.WriteString(" ")
			}
		}
		b.WriteString("\x1b[0m\n")
	}
	return b.String()
}

// compared has a person compare key words. Without a terminal the words must have been given.
func (a *app) compared(ctx context.Context, given, shown, whose string) (string, error) {
	if given != "" {
		return given, nil
	}
	a.note("%s has the key words:  %s", whose, term.Clean(shown))
	line, err := a.ask(ctx, "Does its owner read you the same words? [y/N] ", false, `compare the words and give --key-words "…"`)
	if err != nil {
		return "", err
	}
	if l := strings.ToLower(strings.TrimSpace(line)); l != "y" && l != "yes" {
		return "", fault.New(fault.Cancelled, "nothing was done")
	}
	return shown, nil
}

func (a *app) meshAccept() *cobra.Command {
	var given, label string
	cmd := a.leaf("accept CODE", "Accept another node's invite", "atoll mesh accept ATOLL1-…\natoll mesh accept --label garden word word word …\natoll mesh accept - < invite.txt", cobra.MinimumNArgs(1), func(ctx context.Context, args []string) error {
		code := strings.Join(args, " ")
		if code == "-" {
			raw, err := io.ReadAll(io.LimitReader(a.Stdin, maxInput))
			if err != nil {
				return fault.Wrap(err, fault.Failed, "standard input cannot be read")
			}
			code = string(raw)
		}
		c, err := a.connect(ctx)
		if err != nil {
			return err
		}
		var offer struct {
			KeyWords []string `json:"key_words"`
		}
		if err := c.Call(ctx, "mesh.read-invite", map[string]string{"code": code}, &offer); err != nil {
			return err
		}
		words, err := a.compared(ctx, given, strings.Join(offer.KeyWords, " "), "The node that invites you")
		if err != nil {
			return err
		}
		var raw jsontext.Value
		if err := c.Call(ctx, "mesh.accept", map[string]string{"code": code, "key_words": words, "label": label}, &raw); err != nil || a.json {
			return orJSON(a, raw, err)
		}
		var r struct {
			State string `json:"state"`
			Peer  row    `json:"peer"`
		}
		if err := json.Unmarshal(raw, &r); err != nil {
			return otherVersion(err)
		}
		if r.State == "asking" {
			a.printf("Accepted. The other owner now sees your node's key words and has to let it in (atoll mesh admit).")
		} else {
			a.printf("Accepted.")
		}
		a.printf("It gets nothing from you until you allow it: atoll mesh allow %s CATEGORY…", field(r.Peer, "label", "key"))
		return nil
	})
	cmd.Flags().StringVar(&given, "key-words", "", "the inviting node's six key words, as you have compared them")
	cmd.Flags().StringVar(&label, "label", "", "your own name for the peer")
	return cmd
}

func (a *app) meshAdmit() *cobra.Command {
	var given string
	cmd := a.leaf("admit PEER", "Let a node in that used your invite", "atoll mesh admit 12D3KooW…", cobra.ExactArgs(1), func(ctx context.Context, args []string) error {
		c, err := a.connect(ctx)
		if err != nil {
			return err
		}
		var peers jsontext.Value
		if err := c.Call(ctx, "mesh.peers", nil, &peers); err != nil {
			return err
		}
		rows, err := rowsOf(peers, "peers")
		if err != nil {
			return err
		}
		for _, r := range rows {
			key, words := field(r, "key"), field(r, "key_words")
			if !strings.HasSuffix(key, args[0]) && field(r, "label") != args[0] || field(r, "state") != "asking" {
				continue
			}
			told, err := a.compared(ctx, given, words, "The node that asks to be let in")
			if err != nil {
				return err
			}
			return a.peerCall(ctx, c, "admit", map[string]any{"peer": key, "key_words": told}, "Let in. It gets nothing until you allow it: atoll mesh allow PEER CATEGORY…")
		}
		return fault.New(fault.NotFound, "no node of that key waits to be let in; atoll mesh peers lists them")
	})
	cmd.Flags().StringVar(&given, "key-words", "", "its six key words, as you have compared them")
	cmd.ValidArgsFunction = a.completePeers
	return cmd
}

// peerCall calls a method about one peer and says that it was done.
func (a *app) peerCall(ctx context.Context, c *client.Client, verb string, params map[string]any, done string) error {
	var raw jsontext.Value
	if err := c.Call(ctx, "mesh."+verb, params, &raw); err != nil || a.json {
		return orJSON(a, raw, err)
	}
	a.printf("%s", done)
	return nil
}

func (a *app) meshPeer(verb, short, done string) *cobra.Command {
	cmd := a.leaf(verb+" PEER", short, "atoll mesh "+verb+" garden", cobra.ExactArgs(1), func(ctx context.Context, args []string) error {
		c, err := a.connect(ctx)
		if err != nil {
			return err
		}
		return a.peerCall(ctx, c, verb, map[string]any{"peer": args[0]}, done+": "+term.Clean(args[0])+".")
	})
	cmd.ValidArgsFunction = a.completePeers
	return cmd
}

func (a *app) meshCount(verb, short, words string) *cobra.Command {
	return a.leaf(verb, short, "atoll mesh "+verb, cobra.NoArgs, func(ctx context.Context, _ []string) error {
		c, err := a.connect(ctx)
		if err != nil {
			return err
		}
		var r struct {
			Count int `json:"count"`
		}
		if err := c.Call(ctx, "mesh."+verb, nil, &r); err != nil {
			return err
		}
		if a.json {
			return a.printJSON(map[string]int{"count": r.Count})
		}
		a.printf(words, r.Count)
		return nil
	})
}

func (a *app) meshAllow() *cobra.Command {
	var folders []string
	var asking, none bool
	cmd := a.leaf("allow PEER CATEGORY…", "Set the most that a peer may have; what is not named is closed", "atoll mesh allow garden content --folder films\natoll mesh allow garden system content --folder /\natoll mesh allow garden --nothing",
		cobra.MinimumNArgs(1), func(ctx context.Context, args []string) error {
			if len(args) == 1 != none {
				return usage("name the categories, or give --nothing alone to close all")
			}
			c, err := a.connect(ctx)
			if err != nil {
				return err
			}
			return a.peerCall(ctx, c, "allow", map[string]any{"peer": args[0], "categories": args[1:], "folders": append([]string{}, folders...), "asking": asking},
				"Set. Of these, the peer has what your own assistant has too (atoll grants).")
		})
	cmd.Flags().StringSliceVar(&folders, "folder", nil, "a folder of the shared content that the peer may see; / is all of it")
	cmd.Flags().BoolVar(&asking, "asking", false, "ask you about changes that the peer's questions want; otherwise they are refused")
	cmd.Flags().BoolVar(&none, "nothing", false, "close everything to the peer")
	cmd.ValidArgsFunction = a.completePeers
	return cmd
}

func (a *app) meshRename() *cobra.Command {
	cmd := a.leaf("rename PEER LABEL", "Give a peer a name of your own", "atoll mesh rename 12D3KooW… garden", cobra.ExactArgs(2), func(ctx context.Context, args []string) error {
		c, err := a.connect(ctx)
		if err != nil {
			return err
		}
		return a.peerCall(ctx, c, "rename", map[string]any{"peer": args[0], "label": args[1]}, "Renamed.")
	})
	cmd.ValidArgsFunction = a.completePeers
	return cmd
}

func (a *app) meshAsk() *cobra.Command {
	var conversation string
	cmd := a.leaf("ask PEER QUESTION", "Ask a peer's assistant", `atoll mesh ask garden is your copy of the archive complete?`, cobra.MinimumNArgs(2), func(ctx context.Context, args []string) error {
		c, err := a.connect(ctx)
		if err != nil {
			return err
		}
		var raw jsontext.Value
		if err := c.Stream(ctx, "mesh.ask", map[string]string{"peer": args[0], "question": strings.Join(args[1:], " "), "conversation": conversation}, &raw, func(client.Frame) {}); err != nil || a.json {
			return orJSON(a, raw, err)
		}
		var r struct {
			Peer         string `json:"peer"`
			Text         string `json:"text"`
			Conversation string `json:"conversation"`
			Truncated    bool   `json:"truncated"`
		}
		if err := json.Unmarshal(raw, &r); err != nil {
			return otherVersion(err)
		}
		screen := term.NewScreen(a.Stdout, nil)
		if f := term.File(a.Stdout); f != nil { // a long line must not go on where the host's words stand
			screen = term.NewScreen(f, func() int { return term.Columns(f) })
		}
		screen.Host(term.Clean(r.Peer) + " says (another node's words):")
		screen.Other(r.Text)
		screen.EndOther()
		if r.Truncated {
			screen.Host("It said more than is taken here.")
		}
		return nil
	})
	cmd.Flags().StringVar(&conversation, "conversation", "", "go on with an earlier conversation on the other node")
	cmd.ValidArgsFunction = a.completePeers
	return cmd
}

func (a *app) meshFiles() *cobra.Command {
	cmd := a.leaf("files PEER [PREFIX]", "List what a peer shares, as it last said", "atoll mesh files garden films/", cobra.RangeArgs(1, 2), func(ctx context.Context, args []string) error {
		params := map[string]string{"peer": args[0]}
		if len(args) == 2 {
			params["prefix"] = args[1]
		}
		return a.listing(ctx, "content.list", params, "items", "It shares no such files, as far as is known here; atoll mesh refresh asks it again.",
			col("PATH", "path"), column{Title: "SIZE", Keys: []string{"size_bytes"}, Show: term.Bytes}, col("CHANGED", "modified"))
	})
	cmd.ValidArgsFunction = a.completePeers
	return cmd
}

func (a *app) meshFetch() *cobra.Command {
	cmd := a.leaf("fetch PEER PATH", "Get a file that a peer shares; it goes on where it broke off", "atoll mesh fetch garden films/one.mkv", cobra.ExactArgs(2), func(ctx context.Context, args []string) error {
		c, err := a.connect(ctx)
		if err != nil {
			return err
		}
		live := term.File(a.Stderr) != nil && !a.json
		var raw jsontext.Value
		err = c.Stream(ctx, "mesh.fetch", map[string]string{"peer": args[0], "path": args[1]}, &raw, func(fr client.Frame) {
			var p struct {
				Done  int64 `json:"done"`
				Total int64 `json:"total"`
			}
			if live && fr.Name == "progress" && json.Unmarshal(fr.Data, &p) == nil && p.Total > 0 {
				fmt.Fprintf(a.Stderr, "\r%3d %%", p.Done*100/p.Total)
			}
		})
		if live {
			fmt.Fprint(a.Stderr, "\r      \r")
		}
		if err != nil || a.json {
			return orJSON(a, raw, err)
		}
		var r row
		if err := json.Unmarshal(raw, &r); err != nil {
			return otherVersion(err)
		}
		a.printf("%s (%s, hash checked)", field(r, "file"), term.Bytes(r["size_bytes"]))
		return nil
	})
	cmd.ValidArgsFunction = a.completePeers
	return cmd
}

// completePeers completes labels and keys from the node; where it does not answer at once there are none.
func (a *app) completePeers(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(cmd.Context(), 2*time.Second)
	defer cancel()
	var result struct {
		Peers []struct {
			Key   string `json:"key"`
			Label string `json:"label"`
		} `json:"peers"`
	}
	var names []string
	if c, err := a.connect(ctx); err == nil && len(args) == 0 && c.Call(ctx, "mesh.peers", nil, &result) == nil {
		for _, p := range result.Peers {
			for _, name := range []string{p.Label, p.Key} {
				if name != "" && strings.HasPrefix(name, prefix) {
					names = append(names, term.Clean(name))
				}
			}
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
