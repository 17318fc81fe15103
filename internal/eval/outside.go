package eval

import (
	"context"
	"net/http"
)

// At is a house whose node runs in a process of its own: only its people can be had.
func At(t T, base string) *House { return &House{t: t, Base: base} }

// Events reads the person's event stream until it ends, each says that it is enough, or ctx ends.
func (p *Person) Events(ctx context.Context, each func(Event) bool) error {
	req, err := http.NewRequestWithContext(ctx, "GET", p.h.Base+"/events", nil)
	if err != nil {
		return err
	}
	req.AddCookie(&http.Cookie{Name: "atoll_session", Value: p.cookie})
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	return Stream(res.Body, each)
}
