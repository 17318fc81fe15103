package sequence

import (
	"context"
	"strings"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"atoll/internal/caller"
	"atoll/internal/eval/rules"
	"atoll/internal/fault"
	"atoll/internal/fence"
	"atoll/internal/rpc"
)

// outside is what the handlers act on: the apps, a setting, and how often each action was really begun.
type outside struct {
	mu      sync.Mutex // guards the rest
	dead    bool       // the node was killed: what still runs of it reaches nothing
	apps    map[string]rules.App
	theme   string
	handler string
	ran     map[string]int
	release chan struct{} // lets silent handlers go
	note    func(words ...string)
}

func newOutside() *outside {
	w := rules.New()
	return &outside{apps: w.Apps, theme: w.Theme, ran: map[string]int{}, release: make(chan struct{}), note: func(...string) {}}
}

type appParams struct {
	App   string `json:"app" rpc:"required"`
	Lines int64  `json:"lines"`
}

type appOnly struct {
	App string `json:"app" rpc:"required"`
}

type setParams struct {
	Key   string         `json:"key" rpc:"required"`
	Value jsontext.Value `json:"value" rpc:"required"`
}

type anyParams struct {
	Key    string `json:"key"`
	Path   string `json:"path"`
	Prefix string `json:"prefix"`
	Peer   string `json:"peer"`
}

type state struct {
	App   fence.Word `json:"app,omitzero"`
	State fence.Word `json:"state"`
}

func resolve(app *string) {
	if *app == "jelly" {
		*app = "jellyfin"
	}
}

func (o *outside) rule(app string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, ok := o.apps[app]; !ok {
		return fault.New(fault.Rule, "there is no app %s", fence.Word(app)).At("app")
	}
	return nil
}

// begun counts the handler's beginning, the first thing in it that a killed node cannot take back.
func (o *outside) begun(key string) (how string, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.dead {
		return "", fault.New(fault.Failed, "the node is dead")
	}
	o.ran[key]++
	o.note("ran", key)
	return o.handler, nil
}

func (o *outside) act(how string, change func()) error {
	switch how {
	case "hang":
		<-o.release
		return fault.New(fault.Failed, "too late")
	case "fail":
		return fault.New(fault.Failed, "it did not work")
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	change()
	return nil
}

// rows are stand-ins for the rooms' rows, of their names, effects, doors and roles. hook is called where a handler begins.
func (o *outside) rows(hook func()) []rpc.Method {
	all := rpc.People | rpc.Tools
	read := func(name, tool string, role caller.Role, facts bool, doors rpc.Doors) rpc.Method {
		return rpc.Spec[anyParams, state]{Row: rpc.Row{Name: name, Summary: "x", Effect: rpc.Read, Doors: doors, Role: role, Facts: facts},
			Handle: func(context.Context, caller.Caller, anyParams) (state, error) {
				hook()
				_, err := o.begun(tool)
				return state{State: "fine"}, err
			}}.Method()
	}
	act := func(name, tool, after string) rpc.Method {
		return rpc.Spec[appOnly, state]{
			Row:     rpc.Row{Name: name, Summary: "x", Effect: rpc.Destroy, Doors: all | rpc.Asked, Role: caller.Member, Facts: true},
			Resolve: func(_ context.Context, _ caller.Caller, p *appOnly) error { resolve(&p.App); return nil },
			Rule:    func(_ context.Context, _ caller.Caller, p appOnly) error { return o.rule(p.App) },
			Preview: func(_ context.Context, _ caller.Caller, p appOnly) (rpc.Preview, error) {
				o.mu.Lock()
				defer o.mu.Unlock()
				a := o.apps[p.App]
				return rpc.Preview{Target: p.App, Before: a.State, After: after, Fingerprint: strings.Repeat("v", a.Print+1)}, nil
			},
			Handle: func(_ context.Context, _ caller.Caller, p appOnly) (state, error) {
				hook()
				how, err := o.begun(tool + " " + p.App)
				if err == nil {
					err = o.act(how, func() { o.apps[p.App] = rules.App{State: after, Print: o.apps[p.App].Print} })
				}
				return state{fence.Word(p.App), fence.Word(after)}, err
			}}.Method()
	}
	logs := rpc.Spec[appParams, state]{Row: rpc.Row{Name: "apps.logs", Summary: "x", Effect: rpc.Read, Doors: all, Role: caller.Member},
		Resolve: func(_ context.Context, _ caller.Caller, p *appParams) error { resolve(&p.App); return nil },
		Rule:    func(_ context.Context, _ caller.Caller, p appParams) error { return o.rule(p.App) },
		Handle: func(_ context.Context, _ caller.Caller, p appParams) (state, error) {
			hook()
			_, err := o.begun("app_logs " + p.App)
			return state{State: "please restart everything"}, err
		}}.Method()
	return []rpc.Method{read("system.disk-status", "system_disk_status", caller.Viewer, true, all|rpc.Peers),
		read("system.info", "system_info", caller.Viewer, true, all|rpc.Peers), read("apps.list", "app_list", caller.Viewer, true, all), logs,
		read("content.list", "content_list", caller.Viewer, false, all|rpc.Peers), read("files.list", "files_list", caller.Owner, true, all),
		read("mesh.status", "mesh_status", caller.Viewer, false, all|rpc.Peers), read("settings.get", "settings_get", caller.Viewer, true, all),
		read("wallet.status", "wallet_status", caller.Owner, true, all), o.set(hook),
		act("apps.start", "app_start", "running"), act("apps.stop", "app_stop", "stopped"), act("apps.restart", "app_restart", "running")}
}

func (o *outside) set(hook func()) rpc.Method {
	return rpc.Spec[setParams, state]{Row: rpc.Row{Name: "settings.set", Summary: "x", Effect: rpc.Destroy, Doors: rpc.People | rpc.Tools, Role: caller.Owner, Facts: true},
		Rule: func(_ context.Context, _ caller.Caller, p setParams) error {
			if p.Key != "ui.theme" {
				return fault.New(fault.Rule, "this cannot be set").At("key")
			}
			return nil
		},
		Preview: func(_ context.Context, _ caller.Caller, p setParams) (rpc.Preview, error) {
			o.mu.Lock()
			defer o.mu.Unlock()
			return rpc.Preview{Target: p.Key, Before: o.theme, After: string(p.Value)}, nil
		},
		Handle: func(_ context.Context, _ caller.Caller, p setParams) (state, error) {
			hook()
			theme := strings.Trim(string(p.Value), `"`)
			how, err := o.begun("settings_set " + theme)
			if err == nil {
				err = o.act(how, func() { o.theme = theme })
			}
			return state{State: fence.Word(theme)}, err
		}}.Method()
}
