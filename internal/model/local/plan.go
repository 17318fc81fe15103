package local

import (
	"path"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"

	"atoll/internal/model"
	"atoll/internal/model/local/sentence"
)

// Figures of the calls.
const (
	logLines   = 100 // the lines asked for where the caller names no number
	fewLines   = 20  // asked again where the result was cut, so that the newest lines are seen
	maxLines   = 500
	findInside = 6 // folders looked into at once for a file
)

// plan carries an intent through the rounds of a turn.
type plan struct {
	sentence.Intent
	done  []done
	req   model.Request
	names sentence.Names
	peer  bool // another node asks
}

// next gives the calls of this round, or the answer where none is needed any more.
func (p plan) next() ([]model.Call, string) {
	switch p.Kind {
	case sentence.Say:
		return nil, p.Text
	case sentence.Help:
		return nil, p.help()
	case sentence.Why:
		return p.why()
	case sentence.Find:
		return p.find()
	case sentence.Report:
		return p.report()
	case sentence.Call:
		return p.single()
	}
	return nil, p.unknown()
}

// together carries several plans through the rounds of a turn: what each still calls for, in order, or all their answers.
// The results of earlier rounds go to the plans that called for them. A call that several plans make is made once.
func together(plans []plan, results []done) ([]model.Call, string) {
	for {
		var calls []model.Call
		var texts []string
		from := make([][]int, len(plans)) // the calls of each plan
		for i, p := range plans {
			own, text := p.next()
			for _, c := range own {
				k := slices.IndexFunc(calls, func(o model.Call) bool { return o.Name == c.Name && string(o.Args) == string(c.Args) })
				if k < 0 {
					k, calls = len(calls), append(calls, c)
				}
				from[i] = append(from[i], k)
			}
			if len(own) == 0 && !slices.Contains(texts, text) {
				texts = append(texts, text)
			}
		}
		if len(calls) == 0 || len(results) < len(calls) {
			return calls, strings.Join(texts, "\n")
		}
		for i := range plans {
			for _, k := range from[i] {
				plans[i].done = append(plans[i].done, results[k])
			}
		}
		results = results[len(calls):]
	}
}

// last is the newest result of a tool, or nil.
func (p plan) last(tool string) *done {
	for i := len(p.done) - 1; i >= 0; i-- {
		if p.done[i].name == tool {
			return &p.done[i]
		}
	}
	return nil
}

func (p plan) single() ([]model.Call, string) {
	d := p.last(p.Tool)
	if d == nil && p.peer && sentence.Changing(p.Tool) && !p.offered(p.Tool) {
		return nil, "I may only answer questions of another node, not change anything for it. Nothing was changed."
	}
	if d == nil {
		return []model.Call{p.call(p.Tool)}, ""
	}
	if p.Tool == "app_logs" && d.cut() && d.args.Lines > fewLines {
		return []model.Call{logCall(d.args.App, fewLines)}, ""
	}
	if d.error {
		return nil, p.refused(*d)
	}
	return nil, p.answer(*d)
}

// call writes the call of a tool from the intent alone.
func (p plan) call(tool string) model.Call {
	args := map[string]any{}
	switch tool {
	case "app_start", "app_stop", "app_restart":
		args["app"] = p.App
	case "app_logs":
		lines := p.Lines
		if lines == 0 {
			lines = logLines
		}
		return logCall(p.App, min(lines, maxLines))
	case "settings_set":
		args["key"], args["value"] = p.Key, p.Value
	case "settings_get":
		if p.Key != "" {
			args["key"] = p.Key
		}
	case "files_list":
		args["path"] = "/"
		if p.Path != "" {
			args["path"] = p.Path
		}
	case "content_list":
		switch p.Focus {
		case "peer", "prefix":
			args[p.Focus] = p.Name
		}
	}
	return makeCall(tool, args)
}

func logCall(app string, lines int) model.Call {
	return makeCall("app_logs", map[string]any{"app": app, "lines": lines})
}

func makeCall(tool string, args map[string]any) model.Call {
	raw, err := json.Marshal(args, json.Deterministic(true))
	if err != nil { // unreachable unless a value is neither text nor a number
		raw = []byte("{}")
	}
	return model.Call{Name: tool, Args: raw}
}

// why looks at the app's state, then at its log.
func (p plan) why() ([]model.Call, string) {
	list := p.last("app_list")
	if list == nil {
		return []model.Call{makeCall("app_list", nil)}, ""
	}
	if list.error {
		return nil, p.refused(*list)
	}
	apps := read[appList](list)
	row, ok := findApp(apps.Apps, p.App)
	if !ok && !list.cut() && !apps.Brief {
		return nil, noSuchApp(p.App, apps.Apps)
	}
	id := p.App
	if ok {
		id = row.App
	}
	log := p.last("app_logs")
	switch {
	case log == nil:
		return []model.Call{logCall(id, logLines)}, ""
	case log.cut() && log.args.Lines > fewLines:
		return []model.Call{logCall(id, fewLines)}, ""
	}
	return nil, p.explain(row, ok, *log)
}

// find lists the roots, then what stands directly in them.
func (p plan) find() ([]model.Call, string) {
	first := p.last("files_list")
	if first == nil {
		return []model.Call{makeCall("files_list", map[string]any{"path": "/"})}, ""
	}
	if len(p.done) > 1 {
		return nil, p.foundFiles()
	}
	if first.error {
		return nil, p.refused(*first)
	}
	var calls []model.Call
	for _, e := range read[fileList](first).Entries {
		if e.Kind == "file" || len(calls) == findInside {
			continue
		}
		inside := e.Name
		if !strings.HasPrefix(inside, "/") {
			inside = path.Join("/", e.Name)
		}
		calls = append(calls, makeCall("files_list", map[string]any{"path": inside}))
	}
	if len(calls) == 0 {
		return nil, p.foundFiles()
	}
	return calls, ""
}

// report reads what is granted of the four; where nothing is, it asks for all, so that the host may offer them.
func (p plan) report() ([]model.Call, string) {
	tools := []string{"system_disk_status", "system_info", "app_list", "mesh_status"}
	if len(p.done) > 0 {
		return nil, p.reported(tools)
	}
	granted := slices.DeleteFunc(slices.Clone(tools), func(t string) bool { return !p.offered(t) })
	if len(granted) == 0 && p.peer { // nobody can open them in this chat
		return nil, p.help()
	}
	if len(granted) == 0 {
		granted = tools[:3]
	}
	calls := make([]model.Call, len(granted))
	for i, t := range granted {
		calls[i] = makeCall(t, nil)
	}
	return calls, ""
}

func (p plan) offered(tool string) bool {
	return slices.ContainsFunc(p.req.Tools, func(t model.Tool) bool { return t.Name == tool })
}
