package rpc

import (
	"encoding"
	"reflect"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/jsonschema-go/jsonschema"
)

// Document is the OpenRPC description of the gate's methods, as rpc.discover returns it.
type Document struct {
	OpenRPC string           `json:"openrpc"`
	Info    DocumentInfo     `json:"info"`
	Methods []DocumentMethod `json:"methods"`
}

// DocumentInfo names the product and its version.
type DocumentInfo struct {
	Title   string `json:"title"`
	Version string `json:"version"`
}

// DocumentMethod describes one method; x- members say what the gate enforces.
type DocumentMethod struct {
	Name           string            `json:"name"`
	Summary        string            `json:"summary"`
	ParamStructure string            `json:"paramStructure"`
	Params         []DocumentContent `json:"params"`
	Result         DocumentContent   `json:"result"`
	Effect         string            `json:"x-effect"`
	Role           string            `json:"x-role"`
	Streams        bool              `json:"x-streams,omitzero"`
}

// DocumentContent is a named schema.
type DocumentContent struct {
	Name     string             `json:"name"`
	Required bool               `json:"required,omitzero"`
	Schema   *jsonschema.Schema `json:"schema"`
}

// Describe writes the OpenRPC document of the whole table.
func (g *Gate) Describe(version string) Document {
	doc := Document{OpenRPC: "1.3.2", Info: DocumentInfo{Title: "Atoll", Version: version}}
	for _, name := range g.names {
		e := g.entries[name]
		m := DocumentMethod{Name: name, Summary: e.Summary, ParamStructure: "by-name", Params: []DocumentContent{},
			Result: DocumentContent{Name: "result", Schema: schemaOf(e.result)},
			Effect: e.Effect.String(), Role: e.Role.String(), Streams: e.streams}
		required := map[string]bool{}
		for _, f := range requiredFields(e.params) {
			required[f.name] = true
		}
		params := schemaOf(e.params)
		for _, field := range params.PropertyOrder {
			m.Params = append(m.Params, DocumentContent{Name: field, Required: required[field], Schema: params.Properties[field]})
		}
		doc.Methods = append(doc.Methods, m)
	}
	return doc
}

// schemaOf infers a type's schema; a type it cannot express is described as anything.
func schemaOf(t reflect.Type) *jsonschema.Schema {
	own := map[reflect.Type]*jsonschema.Schema{}
	ownForms(t, own, map[reflect.Type]bool{})
	s, err := jsonschema.ForType(t, &jsonschema.ForOptions{IgnoreInvalidTypes: true, TypeSchemas: own})
	if err != nil || s == nil {
		return &jsonschema.Schema{}
	}
	return s
}

// ownForms finds the types under t that are not written as they are built: an address is a string and no struct, JSON as
// it came is anything and no list of bytes.
func ownForms(t reflect.Type, own map[reflect.Type]*jsonschema.Schema, seen map[reflect.Type]bool) {
	if seen[t] || t == reflect.TypeFor[time.Time]() { // which the library knows
		return
	}
	seen[t] = true
	switch {
	case writes[json.MarshalerTo](t), writes[json.Marshaler](t):
		own[t] = &jsonschema.Schema{Types: []string{"null", "boolean", "number", "string", "array", "object"}}
		return
	case writes[encoding.TextAppender](t), writes[encoding.TextMarshaler](t):
		own[t] = &jsonschema.Schema{Type: "string"}
		return
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8:
		own[t] = &jsonschema.Schema{Type: "string", ContentEncoding: "base64"}
		return
	}
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
		ownForms(t.Elem(), own, seen)
	case reflect.Struct:
		for _, f := range reflect.VisibleFields(t) {
			ownForms(f.Type, own, seen)
		}
	}
}

// writes reports whether values of t, which is no pointer, have the method set I.
func writes[I any](t reflect.Type) bool {
	return t.Kind() != reflect.Pointer && t.Kind() != reflect.Interface && reflect.PointerTo(t).Implements(reflect.TypeFor[I]())
}
