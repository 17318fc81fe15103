package eval

import (
	"testing"

	"atoll/internal/confirm"
	"atoll/internal/model"
	"atoll/internal/node"
	"atoll/internal/secret"
)

// C11, A4: an action that may pass for a time asks again once the mode was changed, also where it was changed back, and
// once its account's role or password was.
func TestPermissionEndsInTheNode(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(owner *Person){
		"mode": func(owner *Person) {
			owner.Call("assistant.mode-set", map[string]any{"mode": "read-only"})
			owner.Call("assistant.mode-set", map[string]any{"mode": "confirm"})
		},
		"password, while the node is stopped": nil,
		"role": func(owner *Person) {
			owner.Call("users.set-role", map[string]any{"username": "mia", "role": "viewer"})
			owner.Call("users.set-role", map[string]any{"username": "mia", "role": "member"})
		},
	} {
		restart := []model.Call{ask("app_restart", `{"app":"sample"}`)}
		h := Open(t, Options{Model: steps(t, restart, nil, restart, nil, restart)})
		owner := h.Owner()
		owner.Grant("apps")
		mia := owner.add("mia", "member")
		owner.app("exited")
		events := owner.Listen() // an owner sees a member's questions too
		reply := mia.talk("", "restart it")
		q := owner.Asked(events)
		h.Advance(confirm.Inert)
		if r := owner.Decide(q, "approve", map[string]any{"allow_for_s": 3600}); r.Code != "" {
			t.Fatal(r.Message)
		}
		<-reply
		if a := mia.Chat("", "once more"); a.Codes() != "done" {
			t.Fatalf("%s: with the permission: %s", name, a.Codes())
		}
		if end != nil {
			end(owner)
		} else {
			h.Close()
			if err := node.UserPasswd(t.Context(), h.Dir, "mia", secret.New(Password)); err != nil {
				t.Fatal(err)
			}
			h = Open(t, Options{Dir: h.Dir, Model: steps(t, restart)})
			owner = owner.On(h)
			events = owner.Listen()
		}
		mia = h.Login("mia")
		reply = mia.talk("", "and again")
		select {
		case r := <-reply:
			t.Errorf("%s: without a question: %+v", name, r)
		case q = <-asked(events):
			owner.Decide(q, "decline", nil)
			<-reply
		}
		h.Close()
	}
}
