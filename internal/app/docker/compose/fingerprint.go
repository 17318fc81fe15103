package compose

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/moby/moby/api/types/container"
)

// definition marks what a container would run (F-A2, C11): image, command, environment, mounts, labels and all that
// was asked of the engine for it. Its state is not in it, and nor is what the engine derives from the container's id, so
// that one made anew by the same definition has the same mark. It is empty where it cannot be told.
func definition(r container.InspectResponse) string {
	if r.Config == nil || r.HostConfig == nil {
		return ""
	}
	config, host := *r.Config, *r.HostConfig
	short := r.ID[:min(12, len(r.ID))]
	if config.Hostname == short {
		config.Hostname = ""
	}
	config.Env = slices.DeleteFunc(slices.Clone(config.Env), func(s string) bool { return s == "HOSTNAME="+short })
	slices.Sort(config.Env)
	host.ContainerIDFile, host.ConsoleSize = "", [2]uint{}
	for _, list := range []*[]string{&host.Binds, &host.CapAdd, &host.CapDrop, &host.SecurityOpt, &host.GroupAdd} {
		*list = slices.Sorted(slices.Values(*list)) // engines keep no order in these
	}
	mounts := slices.Clone(r.Mounts)
	slices.SortFunc(mounts, func(a, b container.MountPoint) int { return strings.Compare(a.Destination, b.Destination) })
	return digest(struct {
		Image, Path string
		Args        []string
		Config      container.Config
		Host        container.HostConfig
		Mounts      []container.MountPoint
	}{r.Image, r.Path, r.Args, config, host, mounts})
}

// exactly is the form that digests are made of. Made once: what it learns of the types, it keeps.
var exactly = json.JoinOptions(json.Deterministic(true), json.FormatNilMapAsNull(false), jsontext.AllowInvalidUTF8(true),
	json.WithMarshalers(json.MarshalToFunc(func(enc *jsontext.Encoder, d time.Duration) error {
		return enc.WriteToken(jsontext.Int(int64(d)))
	})))

// digest is empty where the value has no form.
func digest(v any) string {
	b, err := json.Marshal(v, exactly)
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// Fingerprint marks what an app would run: its containers by name and service, each with its definition. It is empty where one of them
// cannot be told.
func (g *Group) Fingerprint() string {
	type part struct{ Service, Name, Mark string }
	parts := make([]part, 0, len(g.Members))
	for _, b := range g.Members {
		if b.Mark == "" {
			return ""
		}
		parts = append(parts, part{b.Service, b.Name, b.Mark})
	}
	slices.SortFunc(parts, func(a, b part) int { return strings.Compare(a.Name, b.Name) })
	return digest(parts)
}
