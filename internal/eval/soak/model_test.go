package soak

import (
	"math/rand/v2"
	"net/http"
	"regexp"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"atoll/internal/model/modeltest"
)

// brain is the scripted model, over HTTP. What it does with a message stands in the message's mark: [kind:detail id].
type brain struct {
	requests atomic.Int64
	problems atomic.Int64 // requests that a real server would have refused

	mu    sync.Mutex // guards the rest
	tried map[string]bool
	first string // a problem, for the report
}

var mark = regexp.MustCompile(`\[([a-z]+)(?::([a-z0-9]+))? ([a-z0-9-]+)\]`)

// faults are all ways in which the model server fails; a number is a status.
var faults = []string{
	string(modeltest.Abort), string(modeltest.Reset), string(modeltest.Cut), string(modeltest.Overload), string(modeltest.Silence),
	string(modeltest.Pings), string(modeltest.Garbage), string(modeltest.Endless), string(modeltest.LongLine), string(modeltest.HTML),
	string(modeltest.Redirect), "400", "401", "429", "500", "503",
}

// ServeHTTP gives each request a handler of its own, since a handler keeps what it saw.
func (b *brain) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b.requests.Add(1)
	h := modeltest.OpenAI(modeltest.Config{Func: b.reply})
	defer func() { // an aborted answer is a panic
		if p := h.Problems(); len(p) > 0 {
			b.problems.Add(1)
			b.mu.Lock()
			b.first = p[0]
			b.mu.Unlock()
		}
	}()
	h.ServeHTTP(w, r)
}

// answerTo is what the model says to a message; an acknowledged answer is found by it.
func answerTo(id string) string { return "This is the answer to " + id + "." }

func (b *brain) reply(s modeltest.Seen) modeltest.Reply {
	m := mark.FindAllStringSubmatch(s.Last, -1)
	if len(s.Tools) == 0 {
		return modeltest.Reply{Text: []string{"They talked about apps."}, In: 300, Out: 10} // a summary
	}
	if len(m) != 1 {
		return modeltest.Reply{Text: []string{"That ", "is how ", "it is."}, In: 500, Out: 10} // after results
	}
	kind, detail, id := m[0][1], m[0][2], m[0][3]
	good := modeltest.Reply{Text: []string{"This is ", "the answer ", "to " + id + "."}, In: 400, Out: 12}
	call := func(name, args string) {
		good.Calls = append(good.Calls, modeltest.Call{ID: "same", Name: name, Args: args})
	}
	switch kind {
	case "look":
		call("app_list", `{}`)
		call("app_logs", `{"app":"noisy","lines":50}`)
	case "machine":
		call("system_info", `{}`)
		call("system_disk_status", `{}`)
		call("content_list", `{}`)
	case "do":
		call("app_restart", `{"app":"`+detail+`"}`)
	case "weird":
		call("app_delete", `{}`)
		call("app_logs", `{"app":["noisy"],"lines":"many"}`)
		call("App_List ", `{`)
	case "slow":
		good.Wait = after(time.Second + rand.N(2*time.Second))
	case "flaky": // fails once
		if b.again(id) {
			break
		}
		return faulty(detail)
	case "fault":
		return faulty(detail)
	}
	return good
}

func faulty(kind string) modeltest.Reply {
	if status, err := strconv.Atoi(kind); err == nil {
		return modeltest.Reply{Status: status, RetryAfter: "1", Message: "not now"}
	}
	return modeltest.Reply{Text: []string{"Half ", "an "}, Fault: modeltest.Fault(kind)}
}

// again reports whether the message was seen before.
func (b *brain) again(id string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.tried == nil || len(b.tried) > 10000 {
		b.tried = map[string]bool{}
	}
	was := b.tried[id]
	b.tried[id] = true
	return was
}

func after(d time.Duration) <-chan struct{} {
	ch := make(chan struct{})
	time.AfterFunc(d, func() { close(ch) })
	return ch
}
