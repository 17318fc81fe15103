// Package node builds a node from its rooms and runs it: the one package that knows them all. Read New from top to
// bottom to read the product.
package node

import (
	"context"
	"crypto/ed25519"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"strings"
	"time"

	"atoll/internal/account"
	"atoll/internal/app"
	"atoll/internal/app/docker"
	"atoll/internal/app/process"
	"atoll/internal/app/systemd"
	"atoll/internal/assistant"
	"atoll/internal/audit"
	"atoll/internal/caller"
	"atoll/internal/clock"
	"atoll/internal/confirm"
	"atoll/internal/content"
	"atoll/internal/event"
	"atoll/internal/fence"
	"atoll/internal/files"
	"atoll/internal/grant"
	"atoll/internal/history"
	"atoll/internal/httpd"
	"atoll/internal/mesh"
	"atoll/internal/mesh/radio"
	"atoll/internal/model"
	"atoll/internal/model/local"
	"atoll/internal/notice"
	"atoll/internal/rpc"
	"atoll/internal/secret"
	"atoll/internal/setting"
	"atoll/internal/store"
	"atoll/internal/system"
	"atoll/internal/tool"
	"atoll/internal/wallet"
	"atoll/internal/web"
)

// Config is what a node needs.
type Config struct {
	DataDir  string
	Settings Settings
	Version  string
	// Executable is this program, which the sample app's definition names. Process apps are launched by /proc/self/exe,
	// so main must call process.Launch for process.LaunchArg.
	Executable string
	Log        *slog.Logger
	Clock      clock.Clock
	// StopApps stops process apps when the node stops; otherwise they run on and are found again.
	StopApps bool
	// Model replaces the configured backend; for tests.
	Model model.Client
}

// Node is one node on its data directory. Run starts its work; Close lets go of everything.
type Node struct {
	cfg Config
	dir *dataDir
	db  *store.DB
	key ed25519.PrivateKey

	bus        *event.Bus
	audit      *audit.Log
	notices    *notice.Room
	watch      *notice.Watch
	counters   *notice.Counters
	accounts   *account.Room
	settings   *setting.Room
	system     *system.Room
	apps       *app.Room
	processes  *process.Supervisor
	containers *docker.Engine   // nil where switched off
	units      *systemd.Manager // nil where none is listed
	content    *content.Room
	files      *files.Room
	wallet     *wallet.Room
	mesh       *mesh.Room
	radio      *radio.Radio // nil where none is configured
	grants     *grant.Room
	confirms   *confirm.Room
	history    *history.Room
	tools      *tool.Executor
	assistant  *assistant.Assistant
	rooms      *rpc.Gate // the rooms' rows: what tools can reach
	gate       *rpc.Gate // all rows: what people can reach
	server     *httpd.Server
}

// New builds the node. The data directory is locked until Close; a second node on it gets a *HeldError.
func New(ctx context.Context, cfg Config) (*Node, error) {
	n := &Node{cfg: cfg, bus: event.New()}
	for i, step := range []func(context.Context) error{
		n.openData, n.openPeople, n.openRooms, n.openGuard, n.openAssistant, n.openDoor,
		func(context.Context) error { return n.mesh.Start() },
	} {
		if err := step(ctx); err != nil {
			if i > 0 { // openData explains its own; the rooms meet damage that lies deeper in the same file
				err = n.dir.explain(err)
			}
			return nil, errors.Join(owned(cfg.DataDir, err), n.Close())
		}
	}
	return n, nil
}

// openData takes the directory, opens the store and the key, and starts the audit record.
func (n *Node) openData(ctx context.Context) (err error) {
	if n.dir, err = openDir(n.cfg.DataDir); err != nil {
		return err
	}
	if n.db, err = n.dir.openStore(ctx, false); err != nil {
		return err
	}
	if n.key, err = n.dir.openKey(ctx, n.db); err != nil {
		return err
	}
	n.audit, err = audit.New(audit.Config{DB: n.db, Key: n.key, Now: n.cfg.Clock.Now})
	return err
}

// openPeople opens what people are and are told: accounts and notices.
func (n *Node) openPeople(ctx context.Context) (err error) {
	if n.counters, err = notice.NewCounters(notice.CountersConfig{Help: counterHelp()}); err != nil {
		return err
	}
	if n.notices, err = notice.New(notice.Config{DB: n.db, Log: n.cfg.Log, Now: n.cfg.Clock.Now,
		OnNotice: func(v notice.Item) { n.bus.Publish(event.Event{Name: "notice", Owners: true, State: true, Data: v}) }}); err != nil {
		return err
	}
	if n.watch, err = notice.NewWatch(notice.WatchConfig{Raise: n.notices.Raise, Counters: n.counters, Now: n.cfg.Clock.Now}); err != nil {
		return err
	}
	n.accounts, err = account.New(ctx, account.Config{DB: n.db, Now: n.cfg.Clock.Now, Log: n.cfg.Log,
		Record: func(ctx context.Context, tx *sql.Tx, e audit.Entry) error { return n.audit.AppendTx(ctx, tx, e) },
		Altered: func(ctx context.Context, tx *sql.Tx, account int64) error {
			return confirm.EndPermissions(ctx, tx, n.audit, account)
		},
		OnEnded: n.sessionsEnded})
	return err
}

// sessionsEnded takes everything down that lived in sessions that are over (G6).
func (n *Node) sessionsEnded(e account.Ended) {
	n.bus.EndSessions(e.Sessions)
	if n.server != nil {
		n.server.EndSessions(e.Sessions)
	}
	if n.confirms != nil {
		n.confirms.EndSessions(context.Background(), e.Account, e.Sessions, e.Changed)
	}
}

// openRooms opens what is behind the tools and builds the gate that tools are bound to.
func (n *Node) openRooms(ctx context.Context) (err error) {
	s, log := n.cfg.Settings, n.cfg.Log
	if n.settings, err = setting.New(ctx, setting.Config{DB: n.db, Log: log, Name: hostname(), Version: n.cfg.Version,
		Backend: s.Assistant.Backend, Mode: func() string { return string(n.grants.Mode()) },
		OnDamaged: func(key string, _ error) {
			n.raise(ctx, notice.Operation, "setting:"+key, "A stored setting is damaged: "+key+".", "The default is in force; set it again.")
		}}); err != nil {
		return err
	}
	if n.system, err = system.New(system.Config{Log: log, WarnPercent: n.settings.WarnPercent,
		OnFull: func(ctx context.Context, d system.Disk) {
			n.raise(ctx, notice.Operation, "disk:"+string(d.Mount), fmt.Sprintf("The disk at %s is %d %% full.", shown(string(d.Mount)), d.UsedPercent), "Free some space, or raise disk.warn_percent.")
		}}); err != nil {
		return err
	}
	if n.content, err = content.New(ctx, content.Config{DB: n.db, Log: log, Dir: s.Content.Dir, DataDir: n.dir.path,
		Shared: func(peer string) []string { return n.mesh.Folders(peer) }, Catalogue: n.received}); err != nil {
		return err
	}
	if n.files, err = files.New(files.Config{Log: log, Roots: s.Files.Roots, DataDir: n.dir.path}); err != nil {
		return err
	}
	cfg := walletConfig(n.dir.path, s, log)
	cfg.Now = n.cfg.Clock.Now
	if n.wallet, err = wallet.New(cfg); err != nil {
		return err
	}
	if err := n.openMesh(ctx); err != nil {
		return err
	}
	if err := n.openApps(); err != nil { // last: it starts what the others' errors would leave running
		return err
	}
	var rows []rpc.Method
	for _, methods := range [][]rpc.Method{n.settings.Methods(), n.system.Methods(), n.apps.Methods(), n.content.Methods(),
		n.files.Methods(), n.wallet.Methods(), n.mesh.Methods(), n.notices.Methods(), n.accounts.Methods(),
		ownMethods(n.cfg.Version, n.audit, n.key.Public().(ed25519.PublicKey))} {
		rows = append(rows, methods...)
	}
	start := time.Now()
	n.rooms = rpc.NewGate(rpc.Config{Methods: rows, Log: log, OnSoft: n.soft, Record: n.record,
		Now: func() time.Time { return start.Add(n.cfg.Clock.Mono()) }}) // limits count by the clock that cannot be set
	return nil
}

// openGuard opens what stands between the model and the rooms: grants, confirmation, the choke point.
func (n *Node) openGuard(ctx context.Context) (err error) {
	log := n.cfg.Log
	if n.grants, err = grant.New(grant.Config{Path: n.dir.file("assistant", "grants.json"), Clock: n.cfg.Clock, Log: log, Ceiling: n.ceiling,
		Record: func(ctx context.Context, e audit.Entry) error { return n.audit.Append(ctx, store.Durable, e) },
		OnMode: n.modeChanged,
		OnDamaged: func(aside string, _ error) {
			n.raise(ctx, notice.Security, "grants-damaged", "The grants file was damaged and set aside as "+aside+"; every category is closed and the assistant is read-only.", "Set the mode and open again what the assistant may use.")
		}}); err != nil {
		return err
	}
	var left confirm.Leftover
	if n.confirms, left, err = confirm.New(ctx, confirm.Config{DB: n.db, Audit: n.audit, Clock: n.cfg.Clock, Log: log,
		Listening: n.bus.Listening, Asking: n.mesh.Asking,
		Publish: func(name string, account int64, data any) {
			n.bus.Publish(event.Event{Name: name, Account: account, Owners: true, State: true, Data: data})
		},
		OnForeign: func(who caller.Caller) {
			n.raise(context.Background(), notice.Security, "foreign:"+who.Name(), who.String()+" tried to decide an action that somebody else was asked about.", "Nothing ran. Ask them, or look into the audit.")
		}}); err != nil {
		return err
	}
	n.tellLeftover(ctx, left)
	hmacKey, err := actionSecret(n.key)
	if err != nil {
		return err
	}
	n.tools, err = tool.New(tool.Config{Tools: tool.Registry(), Gate: n.rooms, Grants: n.grants, Confirm: n.confirms, Audit: n.audit,
		Clock: n.cfg.Clock, Log: log, Secret: hmacKey, Alive: n.alive,
		Refused: func(c caller.Caller, _ grant.Category, untrusted bool) {
			n.watch.Refused(context.Background(), c.Key(), untrusted)
		},
		Count: n.counters.Count})
	return err
}

// openAssistant opens memory, model and turn, and completes the gate.
func (n *Node) openAssistant(ctx context.Context) (err error) {
	s, log := n.cfg.Settings, n.cfg.Log
	sentences, err := local.New(local.Config{Names: n.names})
	if err != nil {
		return err
	}
	backend := n.cfg.Model
	if backend == nil {
		if backend, err = buildModel(n.dir.path, s, sentences, log); err != nil {
			return err
		}
	}
	memory := history.Config{Dir: n.dir.file("history"), Now: n.cfg.Clock.Now, Log: log,
		OnDamaged: func(who, aside string, _ error) {
			n.raise(context.Background(), notice.Operation, "history:"+aside, "The chat history of "+who+" could not be read and was set aside as "+aside+".", "New conversations work; keep the file if you need what is in it.")
		}}
	if backend.Info().Backend != "local" {
		memory.Summarise = n.summarise
	}
	if n.history, err = history.New(memory); err != nil {
		return err
	}
	prices, err := buildPrices(s, backend)
	if err != nil {
		return err
	}
	var budget *assistant.Budget
	if usd := s.Assistant.DailyBudgetUSD; usd > 0 {
		if budget, err = assistant.NewBudget(ctx, n.db, n.cfg.Clock, int64(usd*1e6)); err != nil {
			return err
		}
	}
	peers, err := n.forPeers(ctx, backend)
	if err != nil {
		return err
	}
	cfg := assistant.Config{Peers: peers, Model: backend, Tools: n.tools, Grants: n.grants, History: n.history, Clock: n.cfg.Clock, Log: log,
		Price: prices.Cost, Budget: budget, Count: n.counters.Add,
		RoundLimit: n.watch.RoundLimit,
		TextCalls: func(ctx context.Context) {
			n.raise(ctx, notice.Configuration, "text-calls", "The model writes tool calls as text instead of calling tools.", "Choose a model that supports tool calling; atoll doctor tests it.")
		}}
	if s.Assistant.LocalFirst && s.Assistant.Backend != "local" {
		cfg.LocalFirst = sentences
	}
	if n.assistant, err = assistant.New(cfg); err != nil {
		return err
	}
	n.gate = n.rooms.Extend(append(append(n.grants.Methods(), n.confirms.Methods()...), n.assistant.Methods()...)...)
	return nil
}

// openDoor builds the HTTP door. Nothing listens yet.
func (n *Node) openDoor(context.Context) (err error) {
	s := n.cfg.Settings
	var proxies []netip.Prefix
	for _, p := range s.TrustedProxies {
		prefix, err := netip.ParsePrefix(p)
		if err != nil {
			return fmt.Errorf("trusted_proxies: %q is no address range like 10.0.0.0/8", p)
		}
		proxies = append(proxies, prefix)
	}
	bearer, err := secretFile(n.dir.path, "metrics-token")
	if err != nil {
		return err
	}
	pages, err := web.New()
	if err != nil {
		return err
	}
	n.server, err = httpd.New(httpd.Config{Interface: pages, Gate: n.gate, Accounts: n.accounts, Bus: n.bus, CurrentState: n.currentState,
		Version: n.cfg.Version, Hosts: append([]string{hostname(), hostname() + ".local"}, s.Hosts...), TLSCert: s.TLSCert, TLSKey: s.TLSKey, Insecure: s.Insecure, TrustedProxies: proxies,
		Health: n.db.Reader().PingContext, Metrics: func(w io.Writer) { _, _ = n.counters.WriteTo(w) }, MetricsToken: secret.New(bearer),
		Log: n.cfg.Log})
	return err
}

// summarise is the assistant's, which is built after the history that calls it.
func (n *Node) summarise(ctx context.Context, _ caller.Caller, earlier fence.Text, turns []history.TurnText) (fence.Text, error) {
	return n.assistant.Summarise(ctx, earlier, turns)
}

// names is what the local backend may know: the settings that can be set, and of each category that is open its names,
// which are the apps, the peers that the owner named, and the folders.
func (n *Node) names(ctx context.Context) local.Names {
	names := local.Names{Settings: n.settings.Keys()}
	open := n.grants.States()
	if open[grant.Apps].Granted {
		names.Apps = n.apps.Names(ctx)
	}
	if open[grant.Mesh].Granted || open[grant.Content].Granted {
		names.Peers = n.mesh.Labels()
	}
	if open[grant.Files].Granted {
		names.Roots = n.cfg.Settings.Files.Roots
	}
	return names
}

func hostname() string {
	name, err := os.Hostname()
	if err != nil {
		return "atoll"
	}
	name, _, _ = strings.Cut(name, ".")
	return name
}

// stopTime bounds the orderly end of a node's parts.
const stopTime = 20 * time.Second
