package compose

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"strings"
)

// Group is one app: a project, a service of one, or a lone container.
type Group struct {
	ID      string
	Project string       // empty for a lone container
	Service string       // empty for a project
	Members []*Container // in the order of services, replicas and names
	// services are a project's, in an order in which each comes after those it needs.
	Services []*Group
	Needs    []Need // a service's
	Level    int    // of a service: all that it needs are on lower ones
}

// Top is the id of the whole that the app is or belongs to.
func (g *Group) Top() string { return cmp.Or(g.Project, g.ID) }

// Part finds a service of a project.
func (g *Group) Part(service string) *Group {
	for _, s := range g.Services {
		if s.Service == service {
			return s
		}
	}
	return nil
}

// Levels are the services of a project, each level above those that it needs; any other app is one level of itself.
func (g *Group) Levels() [][]*Group {
	if len(g.Services) == 0 {
		return [][]*Group{{g}}
	}
	var out [][]*Group
	for _, s := range g.Services { // they are in this order
		for len(out) <= s.Level {
			out = append(out, nil)
		}
		out[s.Level] = append(out[s.Level], s)
	}
	return out
}

// Each goes through the containers of some groups.
func Each(groups []*Group) iter.Seq2[*Container, *Group] {
	return func(yield func(*Container, *Group) bool) {
		for _, g := range groups {
			for _, c := range g.Members {
				if !yield(c, g) {
					return
				}
			}
		}
	}
}

// Index is the containers as apps.
type Index struct {
	Tops  []*Group          // sorted by id
	ByID  map[string]*Group // every id that is understood
	TopOf map[string]string // by container
}

// Arrange groups the containers. Of two lone ones with the same name, which an engine has only for a moment, the newer
// counts.
func Arrange(all map[string]*Container) *Index {
	x := &Index{ByID: map[string]*Group{}, TopOf: map[string]string{}}
	projects := map[string][]*Container{}
	lone := map[string]*Container{}
	for _, b := range all {
		if !b.Lone() {
			projects[b.Project] = append(projects[b.Project], b)
		} else if old := lone[b.Name]; old == nil || newer(b, old) {
			lone[b.Name] = b
		}
	}
	for name, boxes := range projects {
		p := newProject(name, boxes)
		x.add(p)
		for _, s := range p.Services {
			x.ByID[s.ID] = s
		}
	}
	for name, b := range lone {
		g := &Group{ID: name, Members: []*Container{b}}
		if x.ByID[name] != nil || strings.HasPrefix(name, "/") {
			g.ID = "/" + name
		}
		x.add(g)
		x.ByID["/"+name] = g
	}
	slices.SortFunc(x.Tops, func(a, b *Group) int { return strings.Compare(a.ID, b.ID) })
	return x
}

func newer(a, b *Container) bool {
	return cmp.Or(a.Created.Compare(b.Created), strings.Compare(a.ID, b.ID)) > 0
}

func (x *Index) add(g *Group) {
	x.Tops = append(x.Tops, g)
	x.ByID[g.ID] = g
	for _, b := range g.Members {
		x.TopOf[b.ID] = g.ID
	}
}

func newProject(name string, boxes []*Container) *Group {
	p := &Group{ID: name, Project: name}
	byName := map[string]*Group{}
	for _, b := range boxes {
		s := byName[b.Service]
		if s == nil {
			s = &Group{ID: name + "/" + b.Service, Project: name, Service: b.Service}
			byName[b.Service] = s
		}
		s.Members = append(s.Members, b)
		for _, n := range b.Needs {
			if !slices.Contains(s.Needs, n) {
				s.Needs = append(s.Needs, n)
			}
		}
	}
	p.Services = slices.Collect(maps.Values(byName))
	levels(byName)
	jobs := map[string]bool{}
	for _, s := range p.Services {
		for _, n := range s.Needs {
			jobs[n.Service] = jobs[n.Service] || n.Condition == UntilCompleted
		}
	}
	slices.SortFunc(p.Services, func(a, b *Group) int {
		return cmp.Or(cmp.Compare(a.Level, b.Level), strings.Compare(a.Service, b.Service))
	})
	for _, s := range p.Services {
		for i, b := range s.Members {
			if jobs[s.Service] {
				job := *b
				job.Once, s.Members[i] = true, &job
			}
		}
		slices.SortFunc(s.Members, func(a, b *Container) int {
			return cmp.Or(cmp.Compare(a.Number, b.Number), strings.Compare(a.Name, b.Name))
		})
		p.Members = append(p.Members, s.Members...)
	}
	return p
}

// levels puts each service above those it needs. Labels are a stranger's: where they go in a circle, the need that
// closes it is left out.
func levels(services map[string]*Group) {
	const open = -1
	seen := map[string]bool{}
	var visit func(s *Group)
	visit = func(s *Group) {
		seen[s.Service], s.Level = true, open
		level := 0
		s.Needs = slices.DeleteFunc(s.Needs, func(n Need) bool {
			other := services[n.Service]
			if other == nil {
				return true // not made, as with a profile that is off
			}
			if !seen[n.Service] {
				visit(other)
			}
			if other.Level == open {
				return true
			}
			level = max(level, other.Level+1)
			return false
		})
		s.Level = level
	}
	for _, name := range slices.Sorted(maps.Keys(services)) {
		if !seen[name] {
			visit(services[name])
		}
	}
}
