package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"atoll/internal/fault"
	"atoll/internal/fence"
)

const (
	maxNamed  = 20  // apps named in an error
	maxQuoted = 200 // bytes of one name in an error
)

// known is an app, or a service of one, that can be named.
type known struct {
	runtime, name string
	id            string
	foreign       bool
	service       bool
}

// knownApps lists all apps with their services, sorted by id, and the runtimes that could not list all of theirs.
func (r *Room) knownApps(ctx context.Context) (all []known, partly []string) {
	for _, rt := range r.cfg.Runtimes {
		apps, problems, err := rt.List(ctx)
		if err != nil || slices.ContainsFunc(problems, func(p Problem) bool { return p.File == "" }) {
			partly = append(partly, rt.Name())
		}
		var add func(apps []App, service bool)
		add = func(apps []App, service bool) {
			for _, a := range apps {
				all = append(all, known{rt.Name(), a.Name, idOf(rt, a.Name), a.Foreign, service})
				add(a.Services, true)
			}
		}
		add(apps, false)
	}
	slices.SortFunc(all, func(a, b known) int { return strings.Compare(a.id, b.id) })
	return all, partly
}

// Names lists the ids of all apps and of their services, sorted. A runtime that cannot be reached adds none.
func (r *Room) Names(ctx context.Context) []string {
	all, _ := r.knownApps(ctx)
	out := make([]string, len(all))
	for i, k := range all {
		out[i] = k.id
	}
	return out
}

// find takes a full id apart. It does not look whether the app exists.
func (r *Room) find(id string) (Runtime, string, error) {
	prefix, name, ok := strings.Cut(id, ":")
	if !ok {
		prefix, name = Bare, id
	}
	rt := r.runtimes[prefix]
	if rt == nil || name == "" {
		return nil, "", fault.New(fault.Rule, "there is no app %s", quoted(id)).At("app")
	}
	return rt, name, nil
}

// resolve turns what the caller wrote into the full id: an id as it is, else the one app that the short name fits.
func (r *Room) resolve(ctx context.Context, id *string) error {
	if rt, name, err := r.find(*id); err == nil {
		a, err := rt.Inspect(ctx, name)
		if err == nil {
			*id = idOf(rt, a.Name) // process:sample is sample
			return nil
		}
		if !fault.Is(err, fault.NotFound) {
			return err
		}
	}
	all, partly := r.knownApps(ctx)
	fit := fitting(all, r.runtimes, *id)
	switch len(fit) {
	case 1:
		*id = fit[0].id
		return nil
	case 0:
		return unknownApp(*id, all, partly)
	}
	return outside(fault.New(fault.Rule, "%s can be %s; write the full name", quoted(*id), listed(fit, " or ")).At("app"), anyForeign(fit))
}

// fitting lists the apps that a short name can mean: their name without the runtime, the part of it after the last
// slash, or a unit's name without .service. A runtime before a colon narrows it to that one. A project goes before the
// service in it that has the same name.
func fitting(all []known, runtimes map[string]Runtime, short string) []known {
	only := ""
	if prefix, rest, ok := strings.Cut(short, ":"); ok && runtimes[prefix] != nil {
		only, short = prefix, rest
	}
	var fit []known
	for _, k := range all {
		last := k.name[strings.LastIndex(k.name, "/")+1:]
		if short != "" && (only == "" || only == k.runtime) && (short == k.name || short == last || short+".service" == k.name) {
			fit = append(fit, k)
		}
	}
	return slices.DeleteFunc(slices.Clone(fit), func(k known) bool {
		return k.service && slices.ContainsFunc(fit, func(p known) bool {
			return p.runtime == k.runtime && p.name+"/"+short == k.name
		})
	})
}

// unknownApp says which apps there are. Services are left out: they are found under their app.
func unknownApp(id string, all []known, partly []string) error {
	apps := slices.DeleteFunc(slices.Clone(all), func(k known) bool { return k.service })
	words := fmt.Sprintf("there is no app %s; there are: %s", quoted(id), listed(apps, ", "))
	if len(apps) == 0 {
		words = fmt.Sprintf("there is no app %s; this node has no apps", quoted(id))
	}
	if len(partly) > 0 {
		words += "; some apps of " + strings.Join(partly, " and ") + " cannot be listed now (apps.list says why)"
	}
	f := fault.New(fault.Rule, "%s", words).At("app")
	return outside(f, anyForeign(apps))
}

func anyForeign(all []known) bool {
	return slices.ContainsFunc(all, func(k known) bool { return k.foreign })
}

// theirs is a value in an error's words that makes the whole of them outside text.
type theirs struct {
	Foreign fence.Foreign
	Text    string
}

func (t theirs) String() string { return t.Text }

// outside marks the words of an error as a third party's where a name in them is (U1), however plain they look.
func outside(err error, foreign bool) error {
	f, ok := errors.AsType[*fault.Error](err)
	if !ok || !foreign {
		return err
	}
	marked := *f
	return marked.ForModel("%s", theirs{true, f.ModelWords()})
}

// told marks what a runtime said about one of its apps: as a third party's, unless the app's name is the owner's.
func (r *Room) told(ctx context.Context, rt Runtime, name string, err error) error {
	if err == nil || rt.Name() == Bare {
		return err
	}
	a, errLook := rt.Inspect(ctx, name)
	return outside(err, errLook != nil || a.Foreign)
}

// quoted makes a stranger's name fit for an error text: bounded, with everything invisible written out.
func quoted(s string) string { return fmt.Sprintf("%+q", s[:min(len(s), maxQuoted)]) }

func listed(all []known, sep string) string {
	var b strings.Builder
	for i, k := range all[:min(len(all), maxNamed)] {
		if i > 0 {
			b.WriteString(sep)
		}
		if q := quoted(k.id); q == `"`+k.id+`"` {
			b.WriteString(k.id)
		} else {
			b.WriteString(q)
		}
	}
	if more := len(all) - maxNamed; more > 0 {
		fmt.Fprintf(&b, " and %d more", more)
	}
	return b.String()
}
