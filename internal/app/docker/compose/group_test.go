package compose

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
)

func lone(id, name string) *Container { return &Container{ID: id, Name: name} }

func member(id, project, service string, needs ...string) *Container {
	c := &Container{ID: id, Name: project + "-" + service + "-" + id, Project: project, Service: service}
	for _, n := range needs {
		c.Needs = append(c.Needs, Need{n, UntilStarted})
	}
	return c
}

func arranged(all ...*Container) *Index {
	m := map[string]*Container{}
	for _, c := range all {
		m[c.ID] = c
	}
	return Arrange(m)
}

// Issue 3: an id stays the same across recreations and never collides, whatever a container calls itself.
func TestArrangeNames(t *testing.T) {
	old, young := lone("8", "twice"), lone("9", "twice")
	young.Created = time.Unix(5, 0)
	x := arranged(member("1", "immich", "server"), member("2", "immich", "db"), lone("3", "immich"), lone("4", "immich/server"),
		lone("5", "nginx"), lone("6", "/odd"), lone("7", "a\u202eb\n"), old, young)
	var tops []string
	for _, g := range x.Tops {
		tops = append(tops, g.ID)
	}
	want := []string{"//odd", "/immich", "/immich/server", "a\u202eb\n", "immich", "nginx", "twice"}
	if !slices.Equal(tops, want) {
		t.Errorf("%q", tops)
	}
	ids := map[string]string{"immich": "2,1", "immich/server": "1", "immich/db": "2", "/immich": "3", "/immich/server": "4", "nginx": "5", "/nginx": "5",
		"//odd": "6", "a\u202eb\n": "7", "/a\u202eb\n": "7", "twice": "9", "/twice": "9"}
	for id, members := range ids {
		g := x.ByID[id]
		if g == nil {
			t.Errorf("no %q", id)
			continue
		}
		var got []string
		for _, m := range g.Members {
			got = append(got, m.ID)
		}
		if strings.Join(got, ",") != members {
			t.Errorf("%q is %v", id, got)
		}
	}
	if len(x.ByID) != len(ids) {
		t.Errorf("%q", slices.Sorted(maps.Keys(x.ByID)))
	}
	for id, top := range map[string]string{"1": "immich", "2": "immich", "3": "/immich", "4": "/immich/server", "9": "twice"} {
		if x.TopOf[id] != top {
			t.Errorf("%s belongs to %q", id, x.TopOf[id])
		}
	}
}

// TestLevels: each service comes after all it needs; a circle, which only a forged label makes, is no endless one.
func TestLevels(t *testing.T) {
	cases := []struct {
		name string
		in   []*Container
		want string
	}{
		{"order", []*Container{member("1", "p", "web", "api"), member("2", "p", "api", "db", "cache"), member("3", "p", "db"), member("4", "p", "cache")},
			"cache0 db0 api1 web2"},
		{"missing", []*Container{member("1", "p", "web", "profile-off")}, "web0"},
		{"circle", []*Container{member("1", "p", "a", "b"), member("2", "p", "b", "c"), member("3", "p", "c", "a")}, "c0 b1 a2"},
		{"two", []*Container{member("1", "p", "a", "b"), member("2", "p", "b", "a")}, "b0 a1"},
		{"diamond", []*Container{member("1", "p", "d", "b", "c"), member("2", "p", "b", "a"), member("3", "p", "c", "a"), member("4", "p", "a")}, "a0 b1 c1 d2"},
		{"replicas that differ", []*Container{member("1", "p", "a"), member("2", "p", "a", "b"), member("3", "p", "b")}, "b0 a1"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			var got []string
			for _, s := range arranged(c.in...).ByID["p"].Services {
				got = append(got, fmt.Sprint(s.Service, s.Level))
			}
			if strings.Join(got, " ") != c.want {
				t.Errorf("%v", got)
			}
		})
	}
	var chain []*Container
	for i := range 1000 {
		chain = append(chain, member(fmt.Sprint(i), "p", fmt.Sprint("s", i), fmt.Sprint("s", (i+1)%1000)))
	}
	if p := arranged(chain...).ByID["p"]; len(p.Services) != 1000 || p.Services[999].Level != 999 {
		t.Error("a long circle is not in order")
	}
}

// TestOnce: a service that others wait for until it completes is a job, whatever its policy. The containers given are
// left as they were.
func TestOnce(t *testing.T) {
	job, web := member("1", "p", "setup"), member("2", "p", "web")
	web.Needs = []Need{{"setup", UntilCompleted}}
	job.Again, job.Phase, job.Ended = true, Exited, time.Unix(9, 0)
	p := arranged(job, web).ByID["p"]
	if s := p.Part("setup"); !s.Members[0].Done() || s.Top() != "p" || p.Part("web").Members[0].Once || p.Part("nothing") != nil {
		t.Errorf("%+v", s.Members[0])
	}
	if job.Once || job.Done() {
		t.Error("the container itself was changed")
	}
}
