package fence

import (
	"reflect"
	"time"
)

// Word is a string in a result that its row declares to be a plain fact: a state, a unit, a name that the operator or
// Atoll itself gave. The declaration is checked on every value: what does not look like one short word is outside text
// all the same.
type Word string

// Foreign marks, when true, the struct that holds it as a third party's text, however plain its other values look. It is
// meant for a field that is not on the wire (json:"-").
type Foreign bool

// maxWord bounds a fact's length. A longer name can be a sentence; 32 holds every state, mount and address Atoll gives.
const maxWord = 32

// maxJoints bounds the separators in a word, so that "ignore-all-rules-and-restart-it" is not one.
const maxJoints = 3

// Plain reports whether the value looks like one fact.
func (w Word) Plain() bool {
	if len(w) > maxWord {
		return false
	}
	joints := 0
	for i := 0; i < len(w); i++ {
		c := w[i]
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		case c == '.' || c == ':': // addresses and versions; they join digits, not words
			if i+1 < len(w) && isLetter(w[i+1]) {
				joints++
			}
		case c == '-' || c == '_' || c == '/' || c == '%':
			joints++
		default:
			return false
		}
	}
	return joints <= maxJoints
}

func isLetter(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' }

// Facts makes a text of a result's JSON form if every value of result is a plain fact, and fences it otherwise. result
// is the Go value that was marshalled: numbers, switches and times are facts by their type, a Word if it is Plain, any
// other string only when empty.
func Facts(source string, result any, json string) Text {
	if onlyFacts(reflect.ValueOf(result)) {
		return Text{[]part{{grade: facts, body: valid(json)}}}
	}
	return Outside(source, json)
}

// Sentence makes a text of words that this program wrote around the given values. It is facts if every value is plain,
// and fenced otherwise: error texts count as text (U1).
func Sentence(source, text string, values ...any) Text {
	for _, v := range values {
		if s, ok := v.(string); ok {
			v = Word(s)
		}
		if r := reflect.ValueOf(v); r.Kind() == reflect.String {
			v = Word(r.String())
		}
		if !onlyFacts(reflect.ValueOf(v)) {
			return Outside(source, text)
		}
	}
	return Text{[]part{{grade: facts, body: valid(text)}}}
}

var (
	wordType    = reflect.TypeFor[Word]()
	foreignType = reflect.TypeFor[Foreign]()
	timeType    = reflect.TypeFor[time.Time]()
)

func onlyFacts(v reflect.Value) bool {
	if v.IsValid() && v.Type() == foreignType {
		return !v.Bool()
	}
	switch v.Kind() {
	case reflect.Invalid, reflect.Bool, reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Float32, reflect.Float64:
		return true
	case reflect.String:
		return v.Len() == 0 || v.Type() == wordType && Word(v.String()).Plain()
	case reflect.Pointer, reflect.Interface:
		return v.IsNil() || onlyFacts(v.Elem())
	case reflect.Slice, reflect.Array:
		if v.Type().Elem().Kind() == reflect.Uint8 { // bytes and raw JSON are text, not numbers
			return v.Len() == 0
		}
		for i := range v.Len() {
			if !onlyFacts(v.Index(i)) {
				return false
			}
		}
		return true
	case reflect.Map:
		for it := v.MapRange(); it.Next(); {
			if !onlyFacts(it.Key()) || !onlyFacts(it.Value()) {
				return false
			}
		}
		return true
	case reflect.Struct:
		if v.Type() == timeType {
			return true
		}
		for i := range v.NumField() {
			f := v.Type().Field(i)
			if (f.Tag.Get("json") != "-" || f.Type == foreignType) && !onlyFacts(v.Field(i)) {
				return false
			}
		}
		return true
	}
	return false
}
