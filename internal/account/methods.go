package account

import (
	"context"
	"slices"
	"time"

	"atoll/internal/audit"
	"atoll/internal/caller"
	"atoll/internal/fault"
	"atoll/internal/rpc"
)

// hashRate is the rate of what computes a password hash (G4).
func hashRate(by rpc.By) []rpc.Rate { return []rpc.Rate{{Max: 10, Window: 5 * time.Minute, By: by}} }

// hashTimeout leaves room for the longest pause and a queue for the hash.
const hashTimeout = longestPause + 30*time.Second

type passwdParams struct {
	Old string `json:"old" rpc:"required"`
	New string `json:"new" rpc:"required"`
}

type idParams struct {
	ID string `json:"id" rpc:"required"`
}

type addParams struct {
	Username string `json:"username" rpc:"required"`
	Role     string `json:"role" rpc:"required"`
	Password string `json:"password" rpc:"required"`
}

type nameParams struct {
	Username string `json:"username" rpc:"required"`
}

type roleParams struct {
	Username string `json:"username" rpc:"required"`
	Role     string `json:"role" rpc:"required"`
}

type sessionWire struct {
	ID        string    `json:"id"`
	Current   bool      `json:"current"`
	Address   string    `json:"address"`
	CreatedAt time.Time `json:"created_at"`
	LastSeen  time.Time `json:"last_seen"`
	ExpiresAt time.Time `json:"expires_at"`
}

type sessionsResult struct {
	Sessions []sessionWire `json:"sessions"`
}

type revokeResult struct {
	ID      string `json:"id"`
	Revoked bool   `json:"revoked"`
}

type usersResult struct {
	Users []User `json:"users"`
}

type userResult struct {
	Username string `json:"username"`
	Role     string `json:"role,omitzero"`
	Removed  bool   `json:"removed,omitzero"`
}

// Methods are the room's rows. All have people's door only, and all that change something write their own record.
func (r *Room) Methods() []rpc.Method {
	open := func(name, summary string) rpc.Row {
		return rpc.Row{Name: name, Summary: summary, Effect: rpc.Write, Doors: rpc.People, Open: true, Rates: hashRate(rpc.ByAddress),
			Timeout: hashTimeout, Quiet: true}
	}
	own := func(name, summary string, effect rpc.Effect, rates ...rpc.Rate) rpc.Row {
		return rpc.Row{Name: name, Summary: summary, Effect: effect, Doors: rpc.People, Role: caller.Viewer, Rates: rates,
			Timeout: hashTimeout, Quiet: true}
	}
	return append([]rpc.Method{
		rpc.Spec[loginParams, Login]{
			Row:    open("auth.login", "Logs in and sets the session's cookie."),
			Handle: r.login,
		}.Method(),
		rpc.Spec[setupParams, Login]{
			Row:    open("auth.setup", "Creates the first owner of a new node and logs in."),
			Handle: r.setUp,
		}.Method(),
		rpc.Spec[rpc.None, Logout]{
			Row: own("auth.logout", "Ends this session.", rpc.Write),
			Handle: func(ctx context.Context, c caller.Caller, _ rpc.None) (Logout, error) {
				return Logout{LoggedOut: true}, r.Logout(ctx, c)
			},
		}.Method(),
		rpc.Spec[rpc.None, sessionsResult]{
			Row: own("auth.sessions", "Lists your own sessions.", rpc.Read),
			Handle: func(_ context.Context, c caller.Caller, _ rpc.None) (sessionsResult, error) {
				return r.listSessions(c), nil
			},
		}.Method(),
		rpc.Spec[idParams, revokeResult]{
			Row:    own("auth.revoke", "Ends one of your own sessions.", rpc.Write),
			Handle: r.revoke,
		}.Method(),
		rpc.Spec[passwdParams, Login]{
			Row:    own("auth.passwd", "Changes your password; your other sessions end and this one is renewed.", rpc.Write, hashRate(rpc.ByAccount)...),
			Handle: r.changePassword,
		}.Method(),
	}, r.userMethods()...)
}

func (r *Room) userMethods() []rpc.Method {
	row := func(name, summary string, effect rpc.Effect) rpc.Row {
		return rpc.Row{Name: name, Summary: summary, Effect: effect, Doors: rpc.People, Role: caller.Owner, Timeout: hashTimeout, Quiet: true}
	}
	return []rpc.Method{
		rpc.Spec[rpc.None, usersResult]{
			Row: row("users.list", "Lists the accounts.", rpc.Read),
			Handle: func(context.Context, caller.Caller, rpc.None) (usersResult, error) {
				return usersResult{r.Users()}, nil
			},
		}.Method(),
		rpc.Spec[addParams, userResult]{
			Row: row("users.add", "Adds an account.", rpc.Write),
			Handle: func(ctx context.Context, c caller.Caller, in addParams) (userResult, error) {
				role, err := parseRole(in.Role)
				if err != nil {
					return userResult{}, err
				}
				name, _ := fold(in.Username)
				return userResult{Username: name, Role: in.Role}, r.add(ctx, by(c), in.Username, role, in.Password)
			},
		}.Method(),
		rpc.Spec[nameParams, userResult]{
			Row: row("users.remove", "Removes an account and ends its sessions.", rpc.Write),
			Handle: func(ctx context.Context, c caller.Caller, in nameParams) (userResult, error) {
				name, _ := fold(in.Username)
				return userResult{Username: name, Removed: true}, r.remove(ctx, by(c), in.Username)
			},
		}.Method(),
		rpc.Spec[roleParams, userResult]{
			Row: row("users.set-role", "Changes what an account may do and ends its sessions.", rpc.Write),
			Handle: func(ctx context.Context, c caller.Caller, in roleParams) (userResult, error) {
				role, err := parseRole(in.Role)
				if err != nil {
					return userResult{}, err
				}
				name, _ := fold(in.Username)
				return userResult{Username: name, Role: in.Role}, r.setRole(ctx, by(c), in.Username, role)
			},
		}.Method(),
	}
}

// by begins the audit entry of what c does.
func by(c caller.Caller) audit.Entry { return audit.Entry{Caller: c.String(), Session: c.Session()} }

func parseRole(s string) (caller.Role, error) {
	role, err := caller.ParseRole(s)
	if err != nil {
		return role, fault.New(fault.InvalidParams, "role must be owner, member or viewer").At("role")
	}
	return role, nil
}

func (r *Room) listSessions(c caller.Caller) sessionsResult {
	now := r.cfg.Now()
	out := sessionsResult{Sessions: []sessionWire{}}
	for _, s := range r.of(c.Account()) {
		if now.Before(s.expires()) {
			out.Sessions = append(out.Sessions, sessionWire{ID: s.id, Current: s.id == c.Session(), Address: s.address,
				CreatedAt: s.created.UTC(), LastSeen: s.lastSeen().UTC(), ExpiresAt: s.expires().UTC()})
		}
	}
	slices.SortFunc(out.Sessions, func(a, b sessionWire) int { return b.LastSeen.Compare(a.LastSeen) })
	return out
}

func (r *Room) revoke(ctx context.Context, c caller.Caller, in idParams) (revokeResult, error) {
	ok, err := r.end(ctx, c, in.ID, "revoke")
	if err != nil {
		return revokeResult{}, err
	}
	if !ok {
		return revokeResult{}, fault.New(fault.NotFound, "you have no session of that id; auth.sessions lists them").At("id")
	}
	r.told(c.Account(), []string{in.ID}, false)
	return revokeResult{ID: in.ID, Revoked: true}, nil
}
