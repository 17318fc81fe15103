package setting

import (
	"context"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"atoll/internal/caller"
	"atoll/internal/fault"
	"atoll/internal/fence"
	"atoll/internal/rpc"
)

type getParams struct {
	Key Key `json:"key"`
}

type getResult struct {
	Settings map[fence.Word]entry `json:"settings"`
}

// entry is one setting on the wire. Value is a string or a whole number.
type entry struct {
	Value    any          `json:"value"`
	Type     fence.Word   `json:"type"`
	Settable bool         `json:"settable"`
	Choices  []fence.Word `json:"choices,omitempty"`
	Min      int64        `json:"min,omitzero"`
	Max      int64        `json:"max,omitzero"`
}

type setParams struct {
	Key   Key            `json:"key" rpc:"required"`
	Value jsontext.Value `json:"value" rpc:"required"`
}

type change struct {
	Key      fence.Word `json:"key"`
	Value    any        `json:"value"`
	Previous any        `json:"previous"`
}

// Methods are the room's rows.
func (r *Room) Methods() []rpc.Method {
	return []rpc.Method{
		rpc.Spec[getParams, getResult]{
			Row: rpc.Row{Name: "settings.get", Summary: "Tells the settings, or one of them.", Effect: rpc.Read,
				Doors: rpc.People | rpc.Tools, Role: caller.Viewer, Facts: true},
			Rule: checkReadable,
			Handle: func(_ context.Context, _ caller.Caller, p getParams) (getResult, error) {
				return getResult{r.entries(p.Key)}, nil
			},
		}.Method(),
		rpc.Spec[setParams, change]{
			Row: rpc.Row{Name: "settings.set", Summary: "Changes one setting.", Effect: rpc.Destroy,
				Doors: rpc.People | rpc.Tools, Role: caller.Owner, Facts: true},
			Rule: func(_ context.Context, _ caller.Caller, p setParams) error {
				_, _, err := accept(p.Key, p.Value)
				return err
			},
			Preview: r.preview,
			Handle: func(ctx context.Context, _ caller.Caller, p setParams) (change, error) {
				return r.set(ctx, p.Key, p.Value)
			},
		}.Method(),
	}
}

func checkReadable(_ context.Context, _ caller.Caller, p getParams) error {
	readable := append(settableKeys(), readOnly()...)
	if p.Key != "" && !slices.Contains(readable, p.Key) {
		return fault.New(fault.Rule, "that setting cannot be read; %s can", names(readable)).At("key")
	}
	return nil
}

// preview says the value now and the value asked for.
func (r *Room) preview(_ context.Context, _ caller.Caller, p setParams) (rpc.Preview, error) {
	s, value, err := accept(p.Key, p.Value)
	if err != nil {
		return rpc.Preview{}, err
	}
	return rpc.Preview{Target: string(s.key), Before: words(r.value(s.key)), After: words(value), Fingerprint: "setting " + string(s.key)}, nil
}

// entries are all that can be read, or the one of key.
func (r *Room) entries(key Key) map[fence.Word]entry {
	out := map[fence.Word]entry{}
	for _, s := range settable() {
		out[fence.Word(s.key)] = entry{Value: r.value(s.key), Type: fence.Word(s.kind), Settable: true, Choices: s.choices, Min: s.min, Max: s.max}
	}
	for _, k := range readOnly() {
		out[fence.Word(k)] = entry{Value: r.fact(k), Type: fence.Word(text)}
	}
	if key == "" {
		return out
	}
	return map[fence.Word]entry{fence.Word(key): out[fence.Word(key)]}
}

func (r *Room) fact(k Key) fence.Word {
	switch k {
	case NodeVersion:
		return fence.Word(r.cfg.Version)
	case AssistantBackend:
		return fence.Word(r.cfg.Backend)
	case AssistantMode:
		return fence.Word(r.cfg.Mode())
	}
	return "" // unreachable unless readOnly has a key without a case
}
