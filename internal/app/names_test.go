package app

import (
	"context"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"atoll/internal/fault"
	"atoll/internal/fence"
	"atoll/internal/rpc"
)

// A short name becomes the full id before anything is keyed by it; an ambiguous or unknown one names what there is.
func TestResolve(t *testing.T) {
	a, b := twoRuntimes()
	h := furnish(t, a, b)
	for in, want := range map[string]string{
		"sample":               "sample",
		"process:sample":       "sample",
		"server":               "server", // an exact id comes before a short name
		"docker:immich/server": "docker:immich/server",
		"immich/server":        "docker:immich/server",
		"jellyfin":             "docker:jellyfin/jellyfin",
	} {
		p, err := h.Prepare(t.Context(), member, rpc.People, "apps.restart", jsontext.Value(`{"app":"`+in+`"}`))
		if err != nil {
			t.Errorf("%s: %v", in, err)
			continue
		}
		if got := string(p.Canonical()); got != `{"app":"`+want+`"}` {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
	for in, want := range map[string]string{
		"db":        "docker:immich/db or docker:other/db",
		"jelly":     "there are: docker:immich/db, docker:immich/server, docker:jellyfin/jellyfin, docker:other/db, sample, server",
		"SAMPLE":    "there is no app",
		"lxc:x":     "there is no app",
		":sample":   "there is no app",
		"process:":  "there is no app",
		"a\u202eb":  `\u202e`,
		"samplе":    `\u0435`, // a Cyrillic letter
		"../sample": "there is no app",
	} {
		_, err := h.Prepare(t.Context(), member, rpc.People, "apps.logs", jsontext.Value(`{"app":"`+in+`"}`))
		f := fault.Of(err)
		if f == nil || f.Code != fault.Rule || f.Field != "app" || !strings.Contains(f.Public, want) {
			t.Errorf("%s: %v, want %s", in, err, want)
		}
	}
	none := furnish(t)
	if _, err := none.ask(t, member, "apps.start", `{"app":"x"}`); !strings.Contains(fault.Of(err).Public, "no apps") {
		t.Errorf("%v", err)
	}
	if len(a.did)+len(b.did) > 0 {
		t.Errorf("something ran: %v %v", a.did, b.did)
	}
}

// immich has a project with two services, a lone container, and an app of the owner's own.
func project() (*plain, *plain, *plain) {
	return runtime("process", App{Name: "sample", State: Exited}),
		runtime("docker",
			App{Name: "immich", Foreign: true, State: Running, Services: []App{
				{Name: "immich/db", Foreign: true, State: Running}, {Name: "immich/server", Foreign: true, State: Running}}},
			App{Name: "jellyfin", Foreign: true, State: Running, Services: []App{{Name: "jellyfin/jellyfin", Foreign: true, State: Running}}},
			App{Name: "nginx", Foreign: true, State: Running}),
		runtime("systemd", App{Name: "nginx.service", State: Running}, App{Name: "smbd.service", State: Stopped})
}

// Point 1 of issue 3: an identifier stays the same, and a short name counts where exactly one app fits.
func TestResolveServices(t *testing.T) {
	a, b, c := project()
	h := furnish(t, a, b, c)
	for in, want := range map[string]string{
		"immich":               "docker:immich",
		"docker:immich":        "docker:immich",
		"docker:immich/server": "docker:immich/server",
		"immich/server":        "docker:immich/server",
		"server":               "docker:immich/server",
		"docker:server":        "docker:immich/server",
		"jellyfin":             "docker:jellyfin", // the project, not its service of the same name
		"jellyfin/jellyfin":    "docker:jellyfin/jellyfin",
		"smbd":                 "systemd:smbd.service",
		"smbd.service":         "systemd:smbd.service",
		"systemd:nginx":        "systemd:nginx.service",
		"docker:nginx":         "docker:nginx",
		"nginx.service":        "systemd:nginx.service",
		"process:sample":       "sample",
	} {
		p, err := h.Prepare(t.Context(), member, rpc.People, "apps.restart", jsontext.Value(`{"app":"`+in+`"}`))
		if err != nil || string(p.Canonical()) != `{"app":"`+want+`"}` {
			t.Errorf("%s: %v", in, err)
			continue
		}
	}
	for in, want := range map[string]string{
		"nginx":         `"nginx" can be docker:nginx or systemd:nginx.service; write the full name`,
		"systemd:db":    "there are: docker:immich, docker:jellyfin, docker:nginx, sample, systemd:nginx.service, systemd:smbd.service",
		"docker:":       "there is no app",
		"immich/":       "there is no app",
		"/":             "there is no app",
		"smbd.service.": "there is no app",
	} {
		if _, err := h.ask(t, member, "apps.restart", `{"app":"`+in+`"}`); !fault.Is(err, fault.Rule) || !strings.Contains(fault.Of(err).Public, want) {
			t.Errorf("%s: %v", in, err)
		}
	}
	want := "docker:immich docker:immich/db docker:immich/server docker:jellyfin docker:jellyfin/jellyfin docker:nginx sample systemd:nginx.service systemd:smbd.service"
	for range 5 {
		if got := strings.Join(h.Room.Names(t.Context()), " "); got != want {
			t.Errorf("%s", got)
		}
	}
	if len(a.did)+len(b.did)+len(c.did) > 0 {
		t.Error("something ran")
	}
}

// A runtime that is down does not make its apps unknown in silence.
func TestResolveWithoutRuntime(t *testing.T) {
	a, b, _ := project()
	b.down, b.apps = fault.New(fault.Unavailable, "the engine does not answer"), nil
	h := furnish(t, a, b)
	_, err := h.ask(t, member, "apps.start", `{"app":"immich"}`)
	if !fault.Is(err, fault.Rule) || !strings.Contains(fault.Of(err).Public, "some apps of docker cannot be listed now") {
		t.Errorf("%v", err)
	}
	if _, err := h.ask(t, member, "apps.start", `{"app":"docker:immich"}`); !fault.Is(err, fault.Unavailable) {
		t.Errorf("%v", err)
	}
}

// U1: an error that names a third party's app is outside text, however plain the name looks; one of the owner's own is not.
func TestForeignNamesInErrors(t *testing.T) {
	a, b, c := project()
	b.act = func(_ context.Context, _ *plain, _, app string) error {
		return fault.New(fault.Rule, "%s has none", app)
	}
	h := furnish(t, a, b, c)
	grade := func(method, app string) bool {
		t.Helper()
		_, err := h.ask(t, member, method, `{"app":"`+app+`"}`)
		f := fault.Of(err)
		if f == nil {
			t.Fatalf("%s %s went through", method, app)
		}
		text := fence.Sentence("apps", f.ModelWords(), f.Values()...)
		if f.ModelWords() != f.Public {
			t.Errorf("two texts: %q, %q", f.ModelWords(), f.Public)
		}
		return text.IsOutside()
	}
	for method, app := range map[string]string{"apps.start": "immich", "apps.stop": "db", "apps.restart": "nginx", "apps.logs": "nosuch"} {
		if !grade(method, app) {
			t.Errorf("%s %s passes as a fact", method, app)
		}
	}
	if grade("apps.start", "systemd:nginx") || grade("apps.stop", "sample") {
		t.Error("a name that the owner gave is fenced")
	}
	if err := outside(context.Canceled, true); err != context.Canceled {
		t.Errorf("%v", err)
	}
}

// What is hostile in a name is written out in the words of an error.
func TestHostileNames(t *testing.T) {
	b := runtime("docker", App{Name: "x/\u202egnp", Foreign: true}, App{Name: "y/\u202egnp", Foreign: true}, App{Name: strings.Repeat("z", 9000), Foreign: true})
	_, err := furnish(t, b).ask(t, member, "apps.start", `{"app":"\u202egnp"}`)
	if f := fault.Of(err); f == nil || !strings.Contains(f.Public, `"docker:x/\u202egnp" or "docker:y/\u202egnp"`) {
		t.Errorf("%v", err)
	}
	_, err = furnish(t, b).ask(t, member, "apps.start", `{"app":"\u001b[2J"}`)
	if f := fault.Of(err); f == nil || strings.ContainsAny(f.Public, "\u202e\x1b") || len(f.Public) > 1000 {
		t.Errorf("%v", err)
	}
}
