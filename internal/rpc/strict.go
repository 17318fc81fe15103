package rpc

import (
	"bytes"
	"errors"
	"io"
	"reflect"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"atoll/internal/fault"
)

// MaxDepth bounds nesting of every request (SPEC section 3).
const MaxDepth = 64

// strict refuses unknown names; duplicate names, other case and invalid UTF-8 are refused by the decoder's defaults (G5).
var strict = json.RejectUnknownMembers(true)

// typed is strict, and takes null only where rpc.discover tells of it. The decoder would read null as absent, and absent
// can mean everything: assistant.clear-history without a conversation.
var typed = json.JoinOptions(strict, json.WithUnmarshalers(json.UnmarshalFromFunc(refuseNull)))

func refuseNull(in *jsontext.Decoder, v any) error {
	if in.PeekKind() == 'n' {
		switch reflect.TypeOf(v).Elem().Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Interface:
		default:
			return errNull
		}
	}
	return errors.ErrUnsupported
}

var errNull = errors.New("null is no value of this type")

// Decode reads one JSON object into v, strictly (G5). Absent parameters count as an empty object. The error is
// InvalidParams and names the field.
func Decode(raw jsontext.Value, v any) error {
	if len(raw) == 0 {
		raw = jsontext.Value("{}")
	}
	if raw.Kind() != '{' {
		return fault.New(fault.InvalidParams, "parameters must be an object with names")
	}
	if tooDeep(raw) {
		return fault.New(fault.InvalidParams, "parameters are nested deeper than %d", MaxDepth)
	}
	err := json.Unmarshal(raw, v, typed)
	if err == nil {
		return nil
	}
	if sem, ok := errors.AsType[*json.SemanticError](err); ok {
		field := pointerField(string(sem.JSONPointer))
		switch {
		case errors.Is(sem.Err, json.ErrUnknownName):
			return fault.Wrap(err, fault.InvalidParams, "unknown parameter %q", field).At(field)
		case sem.GoType != nil:
			return fault.Wrap(err, fault.InvalidParams, "parameter %q must be %s", field, kindWord(sem.GoType)).At(field)
		}
		return fault.Wrap(err, fault.InvalidParams, "parameter %q is not acceptable", field).At(field)
	}
	if syn, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		field := pointerField(string(syn.JSONPointer))
		if errors.Is(syn.Err, jsontext.ErrDuplicateName) {
			return fault.Wrap(err, fault.InvalidParams, "parameter %q is given twice", field).At(field)
		}
		return fault.Wrap(err, fault.InvalidParams, "parameters are not valid JSON").At(field)
	}
	return fault.Wrap(err, fault.InvalidParams, "parameters are not acceptable")
}

// pointerField turns a JSON pointer into the dotted form people write.
func pointerField(p string) string {
	p = strings.ReplaceAll(strings.TrimPrefix(p, "/"), "/", ".")
	if len(p) > 64 {
		p = p[:64]
	}
	return strings.ToValidUTF8(p, "?")
}

func kindWord(t reflect.Type) string {
	switch t.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return "a whole number in its range"
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.Map, reflect.Struct:
		return "an object"
	case reflect.Pointer:
		return kindWord(t.Elem())
	}
	return "of another type"
}

// Canonical is the one form of a JSON value that keys are made of: RFC 8785, except that integers keep their digits
// (F-E15) and floats theirs.
func Canonical(raw jsontext.Value) (jsontext.Value, error) {
	v := bytes.Clone(raw)
	c := jsontext.Value(v)
	if tooDeep(raw) {
		return nil, errTooDeep
	}
	if err := c.Canonicalize(jsontext.CanonicalizeRawInts(false), jsontext.CanonicalizeRawFloats(false)); err != nil {
		return nil, err
	}
	return plainZero(c), nil
}

// plainZero writes the integer -0 of canonical JSON as 0: it is the same action.
func plainZero(c jsontext.Value) jsontext.Value {
	if !bytes.Contains(c, []byte("-0")) {
		return c
	}
	out, inString := c[:0], false
	for i := 0; i < len(c); i++ {
		switch {
		case inString && c[i] == '\\':
			out = append(out, c[i])
			i++
		case c[i] == '"':
			inString = !inString
		case !inString && c[i] == '-' && c[i+1] == '0' && (i+2 == len(c) || strings.IndexByte(",]}", c[i+2]) >= 0):
			continue
		}
		out = append(out, c[i])
	}
	return out
}

var errTooDeep = errors.New("nested deeper than " + strconv.Itoa(MaxDepth))

// tooDeep counts nesting without reading the values, before anything recurses into them.
func tooDeep(raw []byte) bool {
	depth, inString := 0, false
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case inString:
			if c == '\\' {
				i++
			} else if c == '"' {
				inString = false
			}
		case c == '"':
			inString = true
		case c == '{' || c == '[':
			if depth++; depth > MaxDepth {
				return true
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return false
}

// Marshal writes v as compact JSON with sorted map keys, the form of every result on the wire.
func Marshal(v any) (jsontext.Value, error) {
	return json.Marshal(v, json.Deterministic(true), json.FormatNilSliceAsNull(false))
}

type requiredField struct {
	index int
	name  string
}

func requiredFields(t reflect.Type) []requiredField {
	var out []requiredField
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Tag.Get("rpc") == "required" {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			out = append(out, requiredField{i, name})
		}
	}
	return out
}

func checkRequired(v reflect.Value, fields []requiredField) error {
	for _, f := range fields {
		if v.Field(f.index).IsZero() {
			return fault.New(fault.InvalidParams, "parameter %q is required", f.name).At(f.name)
		}
	}
	return nil
}

// Request is one JSON-RPC call.
type Request struct {
	ID     jsontext.Value
	Method string
	Params jsontext.Value
}

// ParseRequest reads a call strictly. A batch, a notification, an unknown member, a repeated name, trailing data or
// another version is BadRequest (G5).
func ParseRequest(body []byte) (Request, error) {
	trimmed := bytes.TrimSpace(body)
	if len(trimmed) > 0 && trimmed[0] == '[' {
		return Request{}, fault.New(fault.BadRequest, "batches are not accepted; send one call a request")
	}
	var wire struct {
		Version string         `json:"jsonrpc"`
		ID      jsontext.Value `json:"id"`
		Method  string         `json:"method"`
		Params  jsontext.Value `json:"params"`
	}
	if tooDeep(body) {
		return Request{}, fault.New(fault.BadRequest, "the request is nested deeper than %d", MaxDepth)
	}
	if err := json.Unmarshal(body, &wire, strict); err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return Request{}, fault.Wrap(err, fault.BadRequest, "the request ends too early to be JSON")
		}
		return Request{}, fault.Wrap(err, fault.BadRequest, "the request is not one strict JSON-RPC 2.0 object")
	}
	req := Request{ID: wire.ID, Method: wire.Method, Params: wire.Params}
	k := wire.ID.Kind()
	badID := len(wire.ID) > 0 && k != '"' && k != '0' || len(wire.ID) > 256
	if badID {
		req.ID = nil // nothing but an id is echoed
	}
	switch {
	case wire.Version != "2.0":
		return req, fault.New(fault.BadRequest, `jsonrpc must be "2.0"`).At("jsonrpc")
	case len(wire.ID) == 0:
		return req, fault.New(fault.BadRequest, "notifications are not accepted; give the call an id").At("id")
	case badID:
		return req, fault.New(fault.BadRequest, "id must be a short string or a number").At("id")
	case wire.Method == "":
		return req, fault.New(fault.BadRequest, "method is missing").At("method")
	}
	return req, nil
}

// response is a JSON-RPC 2.0 answer: exactly one of result and error.
type response struct {
	Version string         `json:"jsonrpc"`
	ID      jsontext.Value `json:"id"`
	Result  jsontext.Value `json:"result,omitzero"`
	Error   *WireError     `json:"error,omitempty"`
}

// WireError is the error object of the wire.
type WireError struct {
	Code    int       `json:"code"`
	Message string    `json:"message"`
	Data    WireFault `json:"data"`
}

// WireFault is the data of a WireError: the text code and, where they help, the field and the wait.
type WireFault struct {
	Code        fault.Code `json:"code"`
	Field       string     `json:"field,omitempty"`
	RetryAfterS int64      `json:"retry_after_s,omitzero"`
}

// ResultBytes is the wire form of a success.
func ResultBytes(id, result jsontext.Value) []byte {
	return mustMarshal(response{Version: "2.0", ID: idOrNull(id), Result: result})
}

// ErrorBytes is the wire form of a refusal or failure.
func ErrorBytes(id jsontext.Value, err error) []byte {
	return mustMarshal(response{Version: "2.0", ID: idOrNull(id), Error: ErrorObject(err)})
}

// ErrorObject converts an error to its wire form. Causes stay behind.
func ErrorObject(err error) *WireError {
	f := fault.Of(err)
	data := WireFault{Code: f.Code, Field: f.Field}
	if f.RetryAfter > 0 {
		data.RetryAfterS = int64((f.RetryAfter + 999_999_999) / 1_000_000_000)
	}
	return &WireError{Code: numericCode(f.Code), Message: f.Public, Data: data}
}

func idOrNull(id jsontext.Value) jsontext.Value {
	if len(id) == 0 {
		return jsontext.Value("null")
	}
	return id
}

func mustMarshal(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // unreachable unless a result is not what Marshal made
	}
	return b
}

// numericCode gives the JSON-RPC number of a code.
func numericCode(c fault.Code) int {
	switch c {
	case fault.BadRequest, fault.TooLarge:
		return -32600
	case fault.UnknownMethod:
		return -32601
	case fault.InvalidParams:
		return -32602
	case fault.Failed:
		return -32603
	}
	return -32000
}

// Status is the HTTP status that mirrors an error (SPEC section 3); application errors travel at 200.
func Status(err error) int {
	if err == nil {
		return 200
	}
	switch fault.Of(err).Code {
	case fault.BadRequest, fault.InvalidParams:
		return 400
	case fault.Unauthenticated:
		return 401
	case fault.CSRF, fault.Forbidden:
		return 403
	case fault.UnknownMethod:
		return 404
	case fault.TooLarge:
		return 413
	case fault.RateLimited:
		return 429
	}
	return 200
}
