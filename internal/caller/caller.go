// Package caller says who a request runs as. It verifies nobody: account makes callers from live sessions, mesh from
// verified peer keys, and no other package may (a test walks the tree).
package caller

import (
	"fmt"
	"strconv"
)

// Role is what an operator may do. The zero role may do nothing.
type Role uint8

// Roles in rising order: each may do all that the ones before it may.
const (
	Nobody Role = iota
	Viewer
	Member
	Owner
)

var roleNames = [...]string{"nobody", "viewer", "member", "owner"}

func (r Role) String() string {
	if int(r) < len(roleNames) {
		return roleNames[r]
	}
	return "role(" + strconv.Itoa(int(r)) + ")"
}

// ParseRole reads "viewer", "member" or "owner".
func ParseRole(s string) (Role, error) {
	for r := Viewer; r <= Owner; r++ {
		if roleNames[r] == s {
			return r, nil
		}
	}
	return Nobody, fmt.Errorf("role must be owner, member or viewer, not %q", s)
}

// MarshalText writes the role's name.
func (r Role) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText reads the role's name.
func (r *Role) UnmarshalText(b []byte) (err error) { *r, err = ParseRole(string(b)); return err }

type kind uint8

const (
	none kind = iota
	stranger
	operator
	peer
)

// Caller is who asks. It is a value, passed as a parameter; the zero value may do nothing.
type Caller struct {
	kind    kind
	account int64
	name    string
	role    Role
	session string
	address string
	peer    string
}

// Operator makes the caller of one live session. session is the session's public identifier, never its token; address
// is where the request came from, for limits.
func Operator(account int64, name string, role Role, session, address string) Caller {
	return Caller{kind: operator, account: account, name: name, role: role, session: session, address: address}
}

// Peer makes the caller of one verified peer key. name is what the peer calls itself: untrusted text.
func Peer(key, name string) Caller { return Caller{kind: peer, peer: key, name: name} }

// Stranger makes a caller that holds only an address: it may call what is on the unauthenticated list.
func Stranger(address string) Caller { return Caller{kind: stranger, address: address} }

// IsZero reports whether nobody is asking.
func (c Caller) IsZero() bool { return c.kind == none }

// IsOperator reports whether a live session of an operator asks.
func (c Caller) IsOperator() bool { return c.kind == operator }

// IsPeer reports whether another node asks.
func (c Caller) IsPeer() bool { return c.kind == peer }

// Role is the operator's role; a peer, a stranger and nobody have none.
func (c Caller) Role() Role { return c.role }

// May reports whether the caller's role reaches at least r. Nobody is never enough.
func (c Caller) May(r Role) bool { return r > Nobody && c.kind == operator && c.role >= r }

// Account is the operator's account number, zero for others.
func (c Caller) Account() int64 { return c.account }

// Name is the account's name; for a peer its own, untrusted name.
func (c Caller) Name() string { return c.name }

// Session is the public identifier of the operator's session.
func (c Caller) Session() string { return c.session }

// Address is where the request came from, without a port.
func (c Caller) Address() string { return c.address }

// PeerKey is the peer's public key, empty for others.
func (c Caller) PeerKey() string { return c.peer }

// Key names the caller for files and rows of its own (H1): one key an account, one a peer; sessions of one account
// share it.
func (c Caller) Key() string {
	switch c.kind {
	case operator:
		return "operator-" + strconv.FormatInt(c.account, 10)
	case peer:
		return "peer-" + c.peer
	}
	return ""
}

// Narrow returns the caller with a role no higher than r. It can only take away.
func (c Caller) Narrow(r Role) Caller {
	c.role = min(c.role, r)
	return c
}

// String names the caller for the log and the audit.
func (c Caller) String() string {
	switch c.kind {
	case operator:
		return "operator:" + c.name
	case peer:
		return "peer:" + c.peer
	case stranger:
		return "stranger"
	}
	return "nobody"
}
