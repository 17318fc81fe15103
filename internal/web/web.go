package web

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"
)

//go:embed all:dist
var built embed.FS

// The policies. There is no inline script or style and nothing of another origin. The pages' own scripts turn strings
// into HTML only through Vue, which does it for its compiled templates.
//
// The frame holds what the model wrote. It is an origin of its own wherever it is opened, can reach no network, and only
// this interface may show it; the pages may show nothing else, since every other answer of the node forbids to be framed.
// frame-src does not name the frame's path: 'self' cannot bear one, and a host can neither be an IPv6 address in that
// grammar, nor any IPv4 address but 127.0.0.1 by its rules of matching, nor be known here behind a proxy that renames it.
const (
	pagePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; frame-src 'self'; " +
		"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types vue"
	framePolicy = "sandbox allow-scripts; default-src 'none'; script-src 'self'; style-src 'self'; " +
		"base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
	// What the policy leaves open to the frame (WebRTC, looking up names) a browser that knows this header closes too.
	frameReach = "(response-origin)"
	filePolicy = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

	permissions = "accelerometer=(), autoplay=(), browsing-topics=(), camera=(), clipboard-read=(), clipboard-write=(self), " +
		"display-capture=(), fullscreen=(), geolocation=(), gyroscope=(), hid=(), magnetometer=(), microphone=(), midi=(), " +
		"payment=(), publickey-credentials-get=(), screen-wake-lock=(), serial=(), usb=(), xr-spatial-tracking=()"
)

// How long a browser keeps an answer: the page not at all, since it names the files of one build; a file whose name tells
// its content for ever; others are asked for again.
const (
	keepNot   = "no-store"
	keepAsk   = "no-cache"
	keepAlong = "public, max-age=31536000, immutable"
)

// minGzip is the size in bytes below which compressing gains nothing.
const minGzip = 1024

// writeTime bounds one answer to a slow client.
const writeTime = time.Minute

// kinds are the content types of what a build holds; any other file is an error of New.
func kinds() map[string]string {
	return map[string]string{
		".html":  "text/html; charset=utf-8",
		".js":    "text/javascript; charset=utf-8",
		".css":   "text/css; charset=utf-8",
		".svg":   "image/svg+xml",
		".woff2": "font/woff2",
	}
}

// places are the first parts of the addresses that are the interface's own pages; web/src/router.ts has the same list.
// Those that are true have pages below them.
func places() map[string]bool {
	return map[string]bool{
		"": false, "setup": false, "login": false, "chat": true, "apps": true, "files": false, "mesh": false, "notices": false,
		"access": false, "audit": false, "settings": false, "accounts": false, "account": false,
	}
}

// file is one answer. Its content is read when it is first asked for: most starts of a node are followed by no visit.
type file struct {
	content func() (content, error)
	kind    string
	keep    string
	policy  string
	foreign bool // may be loaded by a document of another origin: the frame is one
	framed  bool // may be shown in a frame of this origin
}

type content struct {
	body   []byte
	packed []byte // gzipped; nil where that gains nothing
	etag   string // without quotes; empty for what is not kept
}

// handler serves the files of one build by their exact addresses. There is no listing, and no path is ever opened.
type handler struct {
	files  map[string]*file
	index  *file
	places map[string]bool
}

// New reads the embedded build. It fails only where that is not whole.
func New() (http.Handler, error) {
	root, err := fs.Sub(built, "dist")
	if err != nil {
		return nil, fmt.Errorf("web: %w", err)
	}
	return from(root)
}

func from(root fs.FS) (*handler, error) {
	h := &handler{files: map[string]*file{}, places: places()}
	known := kinds()
	err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		kind, ok := known[path.Ext(name)]
		if !ok {
			return fmt.Errorf("%s is of no known kind", name)
		}
		f := about(name, kind)
		f.content = sync.OnceValues(func() (content, error) { return read(root, name, f) })
		switch name {
		case "index.html":
			h.index = f
		case "frame/index.html":
			h.files["/frame/"] = f
		default:
			h.files["/"+name] = f
		}
		return nil
	})
	if err == nil && h.index == nil {
		err = errors.New("the build has no index.html; run scripts/web")
	}
	if err != nil {
		return nil, fmt.Errorf("web: %w", err)
	}
	return h, nil
}

// about decides everything about a file but its content.
func about(name, kind string) *file {
	f := &file{kind: kind, keep: keepAsk, policy: filePolicy}
	switch {
	case name == "index.html":
		f.keep, f.policy = keepNot, pagePolicy
	case name == "frame/index.html":
		f.policy, f.framed = framePolicy, true
	case strings.HasPrefix(name, "frame/"):
		f.foreign = true
	case strings.HasPrefix(name, "assets/"):
		f.keep = keepAlong
	}
	return f
}

func read(root fs.FS, name string, f *file) (c content, err error) {
	if c.body, err = fs.ReadFile(root, name); err != nil {
		return c, err
	}
	if f.keep != keepNot {
		sum := sha256.Sum256(c.body)
		c.etag = base64.RawURLEncoding.EncodeToString(sum[:18])
	}
	if len(c.body) < minGzip || strings.HasPrefix(f.kind, "font/") {
		return c, nil
	}
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return c, err
	}
	if _, err = z.Write(c.body); err == nil {
		err = z.Close()
	}
	if err == nil && b.Len() < len(c.body)*9/10 {
		c.packed = b.Bytes()
	}
	return c, err
}

// find is the file at an address, or nil.
func (h *handler) find(address string) *file {
	if f := h.files[address]; f != nil {
		return f
	}
	first, rest, below := strings.Cut(strings.TrimPrefix(address, "/"), "/")
	if deep, ok := h.places[first]; ok && strings.HasPrefix(address, "/") && (!below || deep && rest != "") {
		return h.index
	}
	return nil
}

// ServeHTTP answers GET and HEAD.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTime)) // a recorder in a test has none
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		plain(w, r, http.StatusMethodNotAllowed, "only GET and HEAD work here\n")
		return
	}
	f := h.find(r.URL.Path)
	if f == nil {
		plain(w, r, http.StatusNotFound, "there is no such page\n")
		return
	}
	f.serve(w, r)
}

// head sets what is on every answer. The door has set most of it already; here it is complete without the door.
func head(h http.Header, policy string) {
	h.Set("Content-Security-Policy", policy)
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Permissions-Policy", permissions)
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
}

func plain(w http.ResponseWriter, r *http.Request, status int, words string) {
	h := w.Header()
	head(h, filePolicy)
	h.Set("Cache-Control", keepNot)
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("Content-Length", strconv.Itoa(len(words)))
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		_, _ = w.Write([]byte(words)) // a client that is gone is nobody's error
	}
}

func (f *file) serve(w http.ResponseWriter, r *http.Request) {
	c, err := f.content()
	if err != nil { // the build is in the program, or a test's
		plain(w, r, http.StatusInternalServerError, "this page cannot be read\n")
		return
	}
	h := w.Header()
	head(h, f.policy)
	if f.foreign {
		h.Set("Cross-Origin-Resource-Policy", "cross-origin")
	}
	if f.framed {
		h.Set("X-Frame-Options", "SAMEORIGIN")
		h.Set("Connection-Allowlist", frameReach)
	}
	h.Set("Cache-Control", f.keep)
	body, tag := c.body, c.etag
	if c.packed != nil {
		h.Set("Vary", "Accept-Encoding")
		if acceptsGzip(r.Header.Values("Accept-Encoding")) {
			h.Set("Content-Encoding", "gzip")
			body, tag = c.packed, c.etag+"-gz"
		}
	}
	if c.etag != "" {
		h.Set("ETag", `"`+tag+`"`)
		if matches(r.Header.Values("If-None-Match"), tag) {
			h.Del("Content-Encoding")
			w.WriteHeader(http.StatusNotModified)
			return
		}
	}
	h.Set("Content-Type", f.kind)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(http.StatusOK)
	if r.Method != http.MethodHead {
		_, _ = w.Write(body) // a client that is gone is nobody's error
	}
}

// matches reports whether a list of tags names this one. Tags compare weakly, as RFC 9110 has it for this header.
func matches(lists []string, tag string) bool {
	for one := range strings.SplitSeq(strings.Join(lists, ","), ",") {
		one = strings.TrimPrefix(strings.TrimSpace(one), "W/")
		if one == "*" || one == `"`+tag+`"` {
			return true
		}
	}
	return false
}

// acceptsGzip reads Accept-Encoding; the weights among several do not matter, only a zero does.
func acceptsGzip(lists []string) bool {
	found := false
	for one := range strings.SplitSeq(strings.Join(lists, ","), ",") {
		name, params, _ := strings.Cut(strings.TrimSpace(one), ";")
		name = strings.ToLower(strings.TrimSpace(name))
		if name != "gzip" && name != "*" {
			continue
		}
		q, ok := strings.CutPrefix(strings.ReplaceAll(strings.ToLower(params), " ", ""), "q=")
		weight, err := strconv.ParseFloat(q, 64)
		accepted := !ok || err == nil && weight > 0
		if name == "gzip" {
			return accepted
		}
		found = accepted
	}
	return found
}
