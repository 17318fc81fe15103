package term

import (
	"bytes"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
)

func TestTable(t *testing.T) {
	rows := []Row{
		{"app": jsontext.Value(`"a\u001b[2J\nb"`), "bytes": jsontext.Value(`9007199254740993`), "on": jsontext.Value(`true`), "list": jsontext.Value(`["x",1]`)},
		{"app": jsontext.Value(`"c"`), "bytes": jsontext.Value(`null`)},
	}
	var out bytes.Buffer
	Table(&out, rows, "None.", Column{Title: "APP", Keys: []string{"name", "app"}}, Column{Title: "N", Keys: []string{"bytes"}}, Column{Title: "ON", Keys: []string{"on"}},
		Column{Title: "LIST", Keys: []string{"list"}}, Column{Title: "NEVER", Keys: []string{"x"}})
	want := "APP  N                 ON   LIST\na b  9007199254740993  yes  x, 1\nc    -                 -    -\n"
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", out.String(), want)
	}
	out.Reset()
	if Table(&out, nil, "None."); out.String() != "None.\n" {
		t.Errorf("%q", out.String())
	}
}

func TestFigures(t *testing.T) {
	for _, tt := range []struct {
		show func(jsontext.Value) string
		in   string
		want string
	}{
		{Bytes, "0", "0 B"}, {Bytes, "1023", "1023 B"}, {Bytes, "5242880", "5.0 MiB"}, {Bytes, `"x"`, "x"},
		{Percent, "12.4", "12%"}, {Percent, `"x"`, "x"}, {Seconds, "3700", "1h1m40s"}, {Text, `"é"`, "é"}, {Text, "false", "no"}, {Text, "1.50", "1.50"},
	} {
		if got := tt.show(jsontext.Value(tt.in)); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.in, got, tt.want)
		}
	}
}

func TestEscapeJSONKeepsTheValue(t *testing.T) {
	in := "[\"a\u202e\u009b\u007fé\U000e0041x\"]"
	out := string(EscapeJSON([]byte(in)))
	if want := `["a\u202e\u009b\u007fé\udb40\udc41x"]`; out != want {
		t.Errorf("got %s, want %s", out, want)
	}
}
