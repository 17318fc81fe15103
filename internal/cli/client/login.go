package client

import (
	"context"
	"net/http"
	"time"

	"atoll/internal/fault"
	"atoll/internal/secret"
)

// Login opens a session with a password. The Client uses it from then on.
func (c *Client) Login(ctx context.Context, username string, password secret.String) (Session, error) {
	return c.open(ctx, "auth.login", map[string]string{"username": username, "password": password.Reveal()})
}

// Setup creates the node's owner with the one-time token and opens the owner's session.
func (c *Client) Setup(ctx context.Context, token secret.String, username string, password secret.String) (Session, error) {
	return c.open(ctx, "auth.setup", map[string]string{"token": token.Reveal(), "username": username, "password": password.Reveal()})
}

func (c *Client) open(ctx context.Context, method string, params map[string]string) (Session, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	c.setSession(Session{})
	resp, err := c.post(ctx, method, params, "application/json")
	if err != nil {
		return Session{}, err
	}
	defer resp.Body.Close()
	var result struct {
		CSRF      string    `json:"csrf"`
		Username  string    `json:"username"`
		Role      string    `json:"role"`
		ExpiresAt time.Time `json:"expires_at"`
	}
	if err := c.readResult(resp, &result); err != nil {
		return Session{}, err
	}
	s := Session{CSRF: secret.New(result.CSRF), Username: result.Username, Role: result.Role, ExpiresAt: result.ExpiresAt}
	for _, cookie := range resp.Cookies() {
		if cookie.Name == cookieName {
			s.Token = secret.New(cookie.Value)
		}
	}
	if s.Token.Empty() || result.CSRF == "" {
		return Session{}, fault.New(fault.Failed, "the node logged in, but gave no session — are both of one version?")
	}
	c.setSession(s)
	return s, nil
}

// Logout ends the session on the node.
func (c *Client) Logout(ctx context.Context) error {
	err := c.Call(ctx, "auth.logout", nil, nil)
	if err == nil {
		c.setSession(Session{})
	}
	return err
}

// Answers reports whether a node answers at the address, without a session.
func (c *Client) Answers(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+"/healthz", nil)
	if err != nil {
		return false
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return false
	}
	return resp.Body.Close() == nil
}
