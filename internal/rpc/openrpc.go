package rpc

import (
	"reflect"

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
	s, err := jsonschema.ForType(t, &jsonschema.ForOptions{IgnoreInvalidTypes: true})
	if err != nil || s == nil {
		return &jsonschema.Schema{}
	}
	return s
}
