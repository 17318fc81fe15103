package rpc

import (
	"bytes"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"atoll/internal/caller"
	"atoll/internal/fault"
)

type strictParams struct {
	App   string          `json:"app"`
	Lines int64           `json:"lines"`
	Small uint8           `json:"small"`
	On    bool            `json:"on"`
	List  []string        `json:"list"`
	Inner struct{ A int } `json:"inner"`
	Any   jsontext.Value  `json:"any"`
}

// G5: what a decision hangs on is read strictly, and the refusal names the field.
func TestDecodeRefuses(t *testing.T) {
	for _, tc := range []struct{ raw, field string }{
		{`{"app":"safe","app":"photos"}`, "app"},
		{`{"app":"safe","\u0061pp":"photos"}`, "app"},
		{`{"app":"safe","APP":"photos"}`, "APP"},
		{`{"App":"safe"}`, "App"},
		{`{"app ":"x"}`, "app "},
		{`{"ap\u0440":"x"}`, "ap\u0440"},
		{`{"":"x"}`, ""},
		{`{"approved":true}`, "approved"},
		{`{"inner":{"A":1,"B":2}}`, "inner.B"},
		{`{"inner":{"A":1,"A":2}}`, "inner.A"},
		{`{"inner":{"a":1}}`, "inner.a"},
		{`{"any":{"x":1,"x":2}}`, "any.x"},
		{`{"lines":"10"}`, "lines"},
		{`{"lines":1e3}`, "lines"},
		{`{"lines":1.0}`, "lines"},
		{`{"lines":9223372036854775808}`, "lines"},
		{`{"lines":1e400}`, "lines"},
		{`{"small":256}`, "small"},
		{`{"small":-1}`, "small"},
		{`{"app":7}`, "app"},
		{`{"app":["x"]}`, "app"},
		{`{"on":1}`, "on"},
		{`{"on":"true"}`, "on"},
		{`{"list":"x"}`, "list"},
		{`{"list":["x",1]}`, "list.1"},
		{`{"inner":[]}`, "inner"},
		{`[]`, ""}, {`["jellyfin"]`, ""}, {`null`, ""}, {`"x"`, ""}, {`7`, ""}, {`true`, ""},
		{`{`, ""}, {`{"app":"x"`, ""}, {`{"app":"x"} ` + "x", ""}, {`{"app":"x"}{"app":"y"}`, ""}, {`{"app":"x"},`, ""},
		{`{'app':'x'}`, ""}, {`{app:"x"}`, ""}, {`{"app":"x",}`, ""}, {`{"app":"x"}//`, ""}, {`{/**/}`, ""},
		{`{"lines":010}`, ""}, {`{"lines":+1}`, "lines"}, {`{"lines":0x10}`, ""}, {`{"lines":NaN}`, "lines"}, {`{"lines":-}`, "lines"},
		{"{\"app\":\"a\xffb\"}", "app"}, {"{\"app\":\"\xed\xa0\x80\"}", "app"}, {`{"app":"\ud800"}`, "app"}, {"{\"app\":\"a\nb\"}", "app"}, {"\ufeff{}", ""},
		{`{"any":` + strings.Repeat("[", 64) + strings.Repeat("]", 64) + `}`, ""},
		{strings.Repeat(`{"any":`, 100_000), ""},
	} {
		var p strictParams
		err := Decode(jsontext.Value(tc.raw), &p)
		f, ok := errors.AsType[*fault.Error](err)
		if !ok || f.Code != fault.InvalidParams || f.Public == "" || len(f.Public) > 300 {
			t.Errorf("%.80s: %v", tc.raw, err)
			continue
		}
		if tc.field != "" && f.Field != tc.field {
			t.Errorf("%.80s: field %q, want %q", tc.raw, f.Field, tc.field)
		}
	}
}

// G5, F-E15: integers arrive with their exact digits; what is absent is the zero value.
func TestDecodeExact(t *testing.T) {
	for raw, want := range map[string]int64{`{"lines":9007199254740993}`: 9007199254740993, `{"lines":9223372036854775807}`: math.MaxInt64,
		`{"lines":-9223372036854775808}`: math.MinInt64, `{"lines":0}`: 0, ``: 0, ` { "lines" : 5 } `: 5} {
		var p strictParams
		if err := Decode(jsontext.Value(raw), &p); err != nil || p.Lines != want {
			t.Errorf("%s: %d, %v", raw, p.Lines, err)
		}
	}
	var p strictParams
	raw := `{"any":123456789012345678901234567890,"app":"日\u0000"}`
	if err := Decode(jsontext.Value(raw), &p); err != nil || string(p.Any) != "123456789012345678901234567890" || p.App != "日\x00" {
		t.Errorf("%s, %q, %v", p.Any, p.App, err)
	}
	if err := Decode(jsontext.Value(`{"any":`+strings.Repeat("[", 63)+strings.Repeat("]", 63)+`}`), &p); err != nil {
		t.Errorf("64 deep: %v", err)
	}
}

// A bracket inside a string is text and no depth.
func TestDepthCountsNoText(t *testing.T) {
	var p strictParams
	for _, s := range []string{strings.Repeat("[", 200), strings.Repeat(`\"[`, 100), strings.Repeat(`\\`, 50) + "{{{{"} {
		if err := Decode(jsontext.Value(`{"app":"`+s+`"}`), &p); err != nil {
			t.Errorf("%.20s: %v", s, err)
		}
	}
}

// F-B10, F-E15: equal arguments have one form, different ones never share it.
func TestCanonical(t *testing.T) {
	for want, same := range map[string][]string{
		`{"app":"jellyfin","lines":5}`:  {`{"lines":5,"app":"jellyfin"}`, " {\t\"app\" :\n\"jellyfin\" , \"lines\":5 } ", `{"\u0061pp":"jelly\u0066in","lines":5}`},
		`{"a":9007199254740993}`:        {`{"a":9007199254740993}`},
		`{"a":"<é/\u0000>"}`:            {`{"a":"\u003c\u00e9\/\u0000\u003e"}`},
		`{"€":1,"\r":2,"1":3}`:          nil,
		`[]`:                            {` [ ] `},
		`0`:                             {`0`, ` 0 `, `-0`},
		`[0,-1,{"-0":0,"a\"-0,":"-0"}]`: {`[-0,-1,{"-0":-0,"a\"-0,":"-0"}]`},
	} {
		for _, raw := range same {
			got, err := Canonical(jsontext.Value(raw))
			if err != nil || string(got) != want {
				t.Errorf("%s is %s, %v; want %s", raw, got, err, want)
			}
		}
	}
	forms := map[string]string{}
	for _, raw := range []string{`9007199254740993`, `9007199254740992`, `"5"`, `5`, `""`, `null`, `{}`, `[]`, `{"a":null}`, `{"a":""}`, `"é"`, `"e\u0301"`,
		`[1,2]`, `[2,1]`, `[[1],2]`, `["a\",\"b"]`, `["a","b"]`, `{"a":"b"}`, `true`, `"true"`, `0`, `-1`, `1`, `18446744073709551616`, `18446744073709551617`} {
		got, err := Canonical(jsontext.Value(raw))
		if err != nil || forms[string(got)] != "" {
			t.Errorf("%s and %s are both %s, %v", raw, forms[string(got)], got, err)
		}
		forms[string(got)] = raw
	}
	raw := jsontext.Value(` {"b":1,"a":2} `)
	if _, err := Canonical(raw); err != nil || string(raw) != ` {"b":1,"a":2} ` {
		t.Errorf("the given bytes were changed to %s, %v", raw, err)
	}
	for _, bad := range []string{``, ` `, `{"a":1,"a":1}`, `{"a":1}{}`, `{`, "\"\xff\"", strings.Repeat("[", 65) + strings.Repeat("]", 65), strings.Repeat("[", 1_000_000)} {
		if got, err := Canonical(jsontext.Value(bad)); err == nil {
			t.Errorf("%.40q is %s", bad, got)
		}
	}
}

// G5: a call is one strict JSON-RPC 2.0 object, and nothing else is a call.
func TestParseRequest(t *testing.T) {
	for _, body := range []string{`{"jsonrpc":"2.0","id":1,"method":"a.b"}`, `{"jsonrpc":"2.0","id":"x","method":"a.b","params":{}}`,
		" \n{\"method\":\"a.b\",\"id\":-7,\"params\":{\"a\":9007199254740993},\"jsonrpc\":\"2.0\"}\t"} {
		if req, err := ParseRequest([]byte(body)); err != nil || req.Method != "a.b" || len(req.ID) == 0 {
			t.Errorf("%s: %+v, %v", body, req, err)
		}
	}
	for _, body := range []string{``, ` `, `x`, `null`, `7`, `"x"`, `{}`, `[]`, `[{"jsonrpc":"2.0","id":1,"method":"a.b"}]`, ` [1]`,
		`{"jsonrpc":"2.0","method":"a.b"}`, `{"jsonrpc":"2.0","id":null,"method":"a.b"}`, `{"jsonrpc":"2.0","id":{},"method":"a.b"}`,
		`{"jsonrpc":"2.0","id":[1],"method":"a.b"}`, `{"jsonrpc":"2.0","id":true,"method":"a.b"}`, `{"jsonrpc":"1.0","id":1,"method":"a.b"}`,
		`{"jsonrpc":2.0,"id":1,"method":"a.b"}`, `{"id":1,"method":"a.b"}`, `{"jsonrpc":"2.0","id":1}`, `{"jsonrpc":"2.0","id":1,"method":""}`,
		`{"jsonrpc":"2.0","id":1,"method":7}`, `{"jsonrpc":"2.0","id":1,"method":null}`, `{"jsonrpc":"2.0","id":1,"method":"a.b","extra":1}`,
		`{"jsonrpc":"2.0","id":1,"method":"a.b","METHOD":"c.d"}`, `{"jsonrpc":"2.0","id":1,"method":"a.b","method":"c.d"}`,
		`{"jsonrpc":"2.0","id":1,"method":"a.b","params":{"a":1,"a":2}}`, `{"JSONRPC":"2.0","id":1,"method":"a.b"}`,
		`{"jsonrpc":"2.0","id":1,"method":"a.b"}{}`, `{"jsonrpc":"2.0","id":1,"method":"a.b"} x`, `{"jsonrpc":"2.0","id":1,"method":"a.b"`,
		"\ufeff" + `{"jsonrpc":"2.0","id":1,"method":"a.b"}`, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"a\xff\"}",
		`{"jsonrpc":"2.0","id":"` + strings.Repeat("x", 300) + `","method":"a.b"}`, `{"jsonrpc":"2.0","id":1,"method":"a.b","params":` + strings.Repeat("[", 100_000),
		strings.Repeat(`{"a":`, 100_000)} {
		req, err := ParseRequest([]byte(body))
		if !fault.Is(err, fault.BadRequest) || Status(err) != 400 {
			t.Errorf("%.80s: %+v, %v", body, req, err)
		}
		checkWire(t, ErrorBytes(req.ID, err), true)
	}
}

// checkWire holds an answer to JSON-RPC 2.0: one of result and error, and an id that is a short text, a number or null.
func checkWire(t *testing.T, raw []byte, isError bool) {
	t.Helper()
	var got struct {
		Version string         `json:"jsonrpc"`
		ID      jsontext.Value `json:"id"`
		Result  jsontext.Value `json:"result"`
		Error   jsontext.Value `json:"error"`
	}
	if err := json.Unmarshal(raw, &got, json.RejectUnknownMembers(true)); err != nil || got.Version != "2.0" {
		t.Errorf("%s: %v", raw, err)
	}
	if k := got.ID.Kind(); k != 'n' && k != '"' && k != '0' || len(got.ID) > 256 {
		t.Errorf("the answer's id is %.80s", got.ID)
	}
	if (len(got.Error) > 0) != isError || (len(got.Result) > 0) == isError {
		t.Errorf("not one of result and error: %s", raw)
	}
}

// SPEC section 3: the status mirrors the error, application errors travel at 200, and causes stay behind.
func TestErrorWire(t *testing.T) {
	status := map[fault.Code]int{fault.BadRequest: 400, fault.InvalidParams: 400, fault.Unauthenticated: 401, fault.CSRF: 403, fault.Forbidden: 403,
		fault.UnknownMethod: 404, fault.TooLarge: 413, fault.RateLimited: 429}
	number := map[fault.Code]int{fault.BadRequest: -32600, fault.TooLarge: -32600, fault.UnknownMethod: -32601, fault.InvalidParams: -32602, fault.Failed: -32603}
	for _, e := range fault.Catalogue() {
		err := fault.Wrap(errors.New("canary"), e.Code, "words").At("f").After(1500 * time.Millisecond).ForModel("for the model")
		want, ok := status[e.Code]
		if !ok {
			want = 200
		}
		if got := Status(err); got != want {
			t.Errorf("%s is HTTP %d", e.Code, got)
		}
		code, ok := number[e.Code]
		if !ok {
			code = -32000
		}
		if got := ErrorObject(err); got.Code != code || got.Message != "words" || got.Data != (WireFault{e.Code, "f", 2}) {
			t.Errorf("%s: %+v", e.Code, got)
		}
		raw := ErrorBytes(nil, err)
		checkWire(t, raw, true)
		if bytes.Contains(raw, []byte("canary")) || bytes.Contains(raw, []byte("for the model")) {
			t.Errorf("%s leaks: %s", e.Code, raw)
		}
	}
	if Status(nil) != 200 || Status(errors.New("canary")) != 200 {
		t.Error("what is no refusal has a status of its own")
	}
	if raw := ErrorBytes(jsontext.Value("7"), errors.New("canary")); bytes.Contains(raw, []byte("canary")) || !bytes.Contains(raw, []byte(`"failed"`)) {
		t.Errorf("a stranger's error: %s", raw)
	}
	checkWire(t, ResultBytes(jsontext.Value(`"x"`), jsontext.Value("null")), false)
	checkWire(t, ResultBytes(jsontext.Value("7"), jsontext.Value("{}")), false)
}

// Whatever is read strictly reads the same again from its canonical form.
func FuzzDecode(f *testing.F) {
	for _, s := range []string{`{"app":"x","lines":5}`, `{"app":"x","APP":"y"}`, `{"lines":-0}`, `{"any":[1e3,{"x":null}]}`, `{"inner":{"A":1}}`, "{\"app\":\"\xff\"}", `{"a":1,"a":2}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var p, again strictParams
		err := Decode(jsontext.Value(raw), &p)
		if err != nil {
			if fe, ok := errors.AsType[*fault.Error](err); !ok || fe.Code != fault.InvalidParams {
				t.Errorf("%q: %v", raw, err)
			}
			checkWire(t, ErrorBytes(nil, err), true)
			return
		}
		if len(raw) == 0 {
			return
		}
		canonical, err := Canonical(raw)
		if err != nil {
			t.Fatalf("%q was read and has no canonical form: %v", raw, err)
		}
		if err := Decode(canonical, &again); err != nil || again.App != p.App || again.Lines != p.Lines || again.On != p.On || again.Inner != p.Inner {
			t.Errorf("%q read as %+v, its canonical form as %+v, %v", raw, p, again, err)
		}
	})
}

func FuzzCanonical(f *testing.F) {
	for _, p := range [][2]string{{`{"a":1,"b":2}`, `{"b":2,"a":1}`}, {`9007199254740993`, `9007199254740992`}, {`"\u0061"`, `"a"`}, {`-0`, `0`}, {`1e2`, `100`}, {`[1.50]`, `[1.5]`}} {
		f.Add(p[0], p[1])
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		ca, errA := Canonical(jsontext.Value(a))
		cb, errB := Canonical(jsontext.Value(b))
		if errA != nil || errB != nil {
			return
		}
		if again, err := Canonical(ca); err != nil || !bytes.Equal(again, ca) {
			t.Errorf("%q is %q, and that is %q, %v", a, ca, again, err)
		}
		if (sameValue(t, a) == sameValue(t, b)) != bytes.Equal(ca, cb) {
			t.Errorf("%q is %q and %q is %q", a, ca, b, cb)
		}
	})
}

// sameValue writes a value in a form of its own: sorted names, texts unquoted, numbers by their digits.
func sameValue(t *testing.T, raw string) string {
	t.Helper()
	v := jsontext.Value(raw).Clone()
	switch v = jsontext.Value(bytes.TrimSpace(v)); v.Kind() {
	case '{':
		var m map[string]jsontext.Value
		if err := json.Unmarshal(v, &m); err != nil {
			t.Fatal(err)
		}
		for k, e := range m {
			m[k] = jsontext.Value(mustMarshal(sameValue(t, string(e))))
		}
		out, _ := json.Marshal(m, json.Deterministic(true))
		return "o" + string(out)
	case '[':
		var l []jsontext.Value
		if err := json.Unmarshal(v, &l); err != nil {
			t.Fatal(err)
		}
		for i, e := range l {
			l[i] = jsontext.Value(mustMarshal(sameValue(t, string(e))))
		}
		out, _ := json.Marshal(l)
		return "l" + string(out)
	case '"':
		text, _ := jsontext.AppendUnquote(nil, v)
		return "s" + string(text)
	case '0':
		if string(v) == "-0" {
			return "0"
		}
	}
	return string(v)
}

// No bytes of a stranger make the parser panic, and every refusal is a valid answer.
func FuzzParseRequest(f *testing.F) {
	for _, s := range []string{`{"jsonrpc":"2.0","id":1,"method":"a.b","params":{}}`, `[]`, `{"jsonrpc":"2.0","id":{"a":1},"method":"x"}`, `{"jsonrpc":"1.0","id":[1],"method":"x"}`,
		`{"id":1}`, "\xff", `{"jsonrpc":"2.0","id":1,"method":"a.b","params":{"a":1,"a":2}}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		req, err := ParseRequest(body)
		if err == nil {
			if req.Method == "" || len(req.ID) == 0 {
				t.Errorf("%q is a call: %+v", body, req)
			}
			checkWire(t, ResultBytes(req.ID, jsontext.Value("{}")), false)
			return
		}
		if !fault.Is(err, fault.BadRequest) {
			t.Errorf("%q: %v", body, err)
		}
		checkWire(t, ErrorBytes(req.ID, err), true)
	})
}

// G5: null is no string, number, switch, object or table, and so never stands for an absent parameter.
func TestDecodeRefusesNull(t *testing.T) {
	type params struct {
		Text   string            `json:"text"`
		Number int64             `json:"number"`
		Switch bool              `json:"switch"`
		Table  map[string]string `json:"table"`
		Role   caller.Role       `json:"role"`
		Inner  struct {
			Deep string `json:"deep"`
		} `json:"inner"`
		Pointer *int           `json:"pointer"`
		List    []string       `json:"list"`
		Raw     jsontext.Value `json:"raw"`
		Any     any            `json:"any"`
	}
	for raw, field := range map[string]string{
		`{"text":null}`: "text", `{"number":null}`: "number", `{"switch":null}`: "switch", `{"table":null}`: "table", `{"role":null}`: "role",
		`{"inner":null}`: "inner", `{"inner":{"deep": null}}`: "inner.deep", `{"table":{"a":null}}`: "table.a", `{"list":[null]}`: "list.0",
		`{"pointer":null}`: "", `{"list":null}`: "", `{"raw":null}`: "", `{"any":null}`: "", `{"any":{"a":[null]},"text":"null"}`: "",
	} {
		err := Decode(jsontext.Value(raw), new(params))
		if f := fault.Of(err); field == "" && err != nil || field != "" && (err == nil || f.Code != fault.InvalidParams || f.Field != field) {
			t.Errorf("%s: %v", raw, err)
		}
	}
}
