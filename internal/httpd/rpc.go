package httpd

import (
	"cmp"
	"context"
	"errors"
	"io"
	"math"
	"mime"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"atoll/internal/caller"
	"atoll/internal/fault"
	"atoll/internal/rpc"
)

// maxBody bounds a request's body in bytes (SPEC section 3).
const maxBody = 1 << 20

// discoverMethod is the one method that is not in the table: it describes the table.
const discoverMethod = "rpc.discover"

// serveRPC is POST /rpc.
func (s *Server) serveRPC(q *exchange) {
	if kind, _, err := mime.ParseMediaType(q.r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		q.refuse(http.StatusUnsupportedMediaType, fault.New(fault.BadRequest, "Content-Type must be application/json"))
		return
	}
	body, status, err := q.body()
	if err != nil {
		q.refuse(status, err)
		return
	}
	req, err := rpc.ParseRequest(body)
	if err != nil {
		q.fail(req.ID, err)
		return
	}
	q.method = s.known(req.Method)
	c, err := s.admit(q, req.Method)
	if err != nil {
		q.fail(req.ID, err)
		return
	}
	if req.Method == discoverMethod {
		s.serveDiscover(q, req)
		return
	}
	s.call(q, c, req)
}

// known is a method's name for the log; a stranger's own words do not get there.
func (s *Server) known(method string) string {
	if _, ok := s.cfg.Gate.Row(method); ok || method == discoverMethod {
		return method
	}
	return "unknown"
}

// body reads the request's body within its bounds of size and time.
func (q *exchange) body() ([]byte, int, error) {
	_ = q.control.SetReadDeadline(time.Now().Add(q.times.Body))
	body, err := io.ReadAll(http.MaxBytesReader(q.ResponseWriter, q.r.Body, maxBody))
	if err == nil {
		_ = q.control.SetReadDeadline(time.Time{})
		return body, 0, nil
	}
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, http.StatusRequestEntityTooLarge, fault.New(fault.TooLarge, "a request may have %d bytes at most", maxBody)
	}
	q.Header().Set("Connection", "close") // what is left of the body is not read
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil, http.StatusRequestTimeout, fault.Wrap(err, fault.BadRequest, "the request's body did not arrive within %s", q.times.Body)
	}
	return nil, http.StatusBadRequest, fault.Wrap(err, fault.BadRequest, "the request's body could not be read")
}

// fail answers a call with its error, the status that mirrors it, and Retry-After where there is one.
func (q *exchange) fail(id jsontext.Value, err error) {
	f := fault.Of(err)
	q.code = f.Code
	status := rpc.Status(f)
	if status == http.StatusTooManyRequests {
		wait := max(1, int64(math.Ceil(f.RetryAfter.Seconds())))
		q.Header().Set("Retry-After", strconv.FormatInt(wait, 10))
	}
	q.answer(status, "application/json", rpc.ErrorBytes(id, f))
}

func (s *Server) serveDiscover(q *exchange, req rpc.Request) {
	var none rpc.None
	if err := rpc.Decode(req.Params, &none); err != nil {
		q.fail(req.ID, err)
		return
	}
	doc, err := s.discover()
	if err != nil {
		s.failed(q, err)
		q.fail(req.ID, err)
		return
	}
	q.answer(http.StatusOK, "application/json", rpc.ResultBytes(req.ID, doc))
}

// call takes an admitted request through the gate.
func (s *Server) call(q *exchange, c caller.Caller, req rpc.Request) {
	row, _ := s.cfg.Gate.Row(req.Method)
	ctx, cancel := context.WithTimeout(q.r.Context(), cmp.Or(row.Timeout, rpc.DefaultTimeout))
	defer cancel()
	if c.IsOperator() {
		defer s.running.add(c.Session(), q, cancel)()
		if _, err := s.cfg.Accounts.Alive(ctx, c); err != nil { // it may have ended before the line above
			q.fail(req.ID, err)
			return
		}
	}
	p, err := s.cfg.Gate.Prepare(ctx, c, rpc.People, req.Method, req.Params)
	if err != nil {
		s.failed(q, err)
		q.fail(req.ID, err)
		return
	}
	var out *stream
	var emit rpc.Emit
	switch {
	case p.Streams() && acceptsStream(q.r):
		out = newStream(q, cancel, nil)
		defer out.close()
		emit = func(name string, data any) error {
			if err := ctx.Err(); err != nil {
				return err
			}
			return out.send("", name, data)
		}
	case row.StreamOnly:
		q.fail(req.ID, fault.New(fault.InvalidParams, "%s answers with a stream: send Accept: text/event-stream", req.Method))
		return
	}
	result, err := p.Run(ctx, emit)
	if err != nil {
		s.failed(q, err)
	}
	if out != nil && out.opened() {
		s.finish(q, out, result, err)
		return
	}
	s.reply(q, c, req.ID, result, err)
}

// reply is the ordinary answer.
func (s *Server) reply(q *exchange, c caller.Caller, id jsontext.Value, result any, err error) {
	var body jsontext.Value
	if err == nil {
		if body, err = rpc.Marshal(result); err != nil {
			s.failed(q, err)
		}
	}
	if err != nil {
		q.fail(id, err)
		return
	}
	s.setCookie(q, c, result)
	q.answer(http.StatusOK, "application/json", rpc.ResultBytes(id, body))
}

// finish is the last event of a stream.
func (s *Server) finish(q *exchange, out *stream, result any, err error) {
	if err == nil {
		_ = out.send("", "answer", result) // a client that is gone is nobody's error
		return
	}
	q.code = fault.Of(err).Code
	_ = out.send("", "error", rpc.ErrorObject(err))
}

// failed logs the cause of what was not the client's doing. Causes of other errors may hold what the client sent.
func (s *Server) failed(q *exchange, err error) {
	switch f := fault.Of(err); f.Code {
	case fault.Failed, fault.Unavailable:
		s.cfg.Log.Warn("a call failed", "rpc", q.method, "op", f.Op, "code", string(f.Code), "err", f.Cause)
	}
}

// acceptsStream reports whether the client names server-sent events among what it takes.
func acceptsStream(r *http.Request) bool {
	for _, part := range strings.Split(strings.Join(r.Header.Values("Accept"), ","), ",") {
		kind, params, err := mime.ParseMediaType(part)
		if err == nil && kind == "text/event-stream" && params["q"] != "0" {
			return true
		}
	}
	return false
}
