package web

import (
	"bytes"
	"compress/gzip"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

var _ http.Handler = (*handler)(nil)

// script is long enough to be compressed.
const script = "console.log('a');//" // repeated in build

func build() fstest.MapFS {
	long := []byte(strings.Repeat(script, 200))
	return fstest.MapFS{
		"index.html":          {Data: []byte("<!doctype html><title>index</title>")},
		"theme.js":            {Data: []byte("short()")},
		"icon.svg":            {Data: []byte("<svg/>")},
		"assets/index-AB.js":  {Data: long},
		"assets/index-AB.css": {Data: []byte("a{}")},
		"frame/index.html":    {Data: []byte("<!doctype html><title>frame</title>")},
		"frame/frame.js":      {Data: long},
		"frame/frame.css":     {Data: []byte("b{}")},
	}
}

func start(t *testing.T, root fs.FS) *httptest.Server {
	t.Helper()
	h, err := from(root)
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	return srv
}

// fetch asks as a client that unpacks nothing by itself and follows nothing.
func fetch(t *testing.T, method, url string, header ...string) (*http.Response, []byte) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Add(header[i], header[i+1])
	}
	tr := &http.Transport{DisableCompression: true}
	defer tr.CloseIdleConnections()
	res, err := tr.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res, body
}

// Every answer has exactly these headers and no others of their kinds.
func TestHeaders(t *testing.T) {
	srv := start(t, build())
	const (
		page = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; frame-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types vue"
		fr   = "sandbox allow-scripts; default-src 'none'; script-src 'self'; style-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
		bare = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
		ever = "public, max-age=31536000, immutable"
	)
	for _, tc := range []struct {
		path                                          string
		status                                        int
		kind, policy, keep, resource, frames, hasETag string
	}{
		{"/", 200, "text/html; charset=utf-8", page, "no-store", "same-origin", "DENY", "no"},
		{"/chat/c1", 200, "text/html; charset=utf-8", page, "no-store", "same-origin", "DENY", "no"},
		{"/theme.js", 200, "text/javascript; charset=utf-8", bare, "no-cache", "same-origin", "DENY", "yes"},
		{"/icon.svg", 200, "image/svg+xml", bare, "no-cache", "same-origin", "DENY", "yes"},
		{"/assets/index-AB.js", 200, "text/javascript; charset=utf-8", bare, ever, "same-origin", "DENY", "yes"},
		{"/assets/index-AB.css", 200, "text/css; charset=utf-8", bare, ever, "same-origin", "DENY", "yes"},
		{"/frame/", 200, "text/html; charset=utf-8", fr, "no-cache", "same-origin", "SAMEORIGIN", "yes"},
		{"/frame/frame.js", 200, "text/javascript; charset=utf-8", bare, "no-cache", "cross-origin", "DENY", "yes"},
		{"/frame/frame.css", 200, "text/css; charset=utf-8", bare, "no-cache", "cross-origin", "DENY", "yes"},
		{"/none", 404, "text/plain; charset=utf-8", bare, "no-store", "same-origin", "DENY", "no"},
	} {
		res, _ := fetch(t, "GET", srv.URL+tc.path)
		if res.StatusCode != tc.status {
			t.Errorf("%s: status %d, want %d", tc.path, res.StatusCode, tc.status)
		}
		for name, want := range map[string]string{
			"Content-Type": tc.kind, "Content-Security-Policy": tc.policy, "Cache-Control": tc.keep,
			"Cross-Origin-Resource-Policy": tc.resource, "X-Frame-Options": tc.frames, "Cross-Origin-Opener-Policy": "same-origin",
			"Referrer-Policy": "no-referrer", "X-Content-Type-Options": "nosniff", "Permissions-Policy": permissions,
		} {
			if got := res.Header.Values(name); !slices.Equal(got, []string{want}) {
				t.Errorf("%s: %s is %q, want %q", tc.path, name, got, want)
			}
		}
		if reach := res.Header.Get("Connection-Allowlist"); reach != map[bool]string{true: "(response-origin)"}[tc.path == "/frame/"] {
			t.Errorf("%s: Connection-Allowlist is %q", tc.path, reach)
		}
		if has := res.Header.Get("ETag") != ""; has != (tc.hasETag == "yes") {
			t.Errorf("%s: ETag %q", tc.path, res.Header.Get("ETag"))
		}
		for _, name := range []string{"Access-Control-Allow-Origin", "Set-Cookie", "Last-Modified", "Content-Encoding"} {
			if got := res.Header.Values(name); got != nil {
				t.Errorf("%s: %s is %q, want none", tc.path, name, got)
			}
		}
	}
}

// Pages of the interface get index.html; what is no page and no file is nothing, however it is written.
func TestFind(t *testing.T) {
	h, err := from(build())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{"/", "/setup", "/login", "/chat", "/chat/abc", "/apps", "/apps/docker:a/b", "/files", "/mesh", "/notices",
		"/access", "/audit", "/settings", "/accounts", "/account"} {
		if h.find(p) != h.index {
			t.Errorf("%s is no page", p)
		}
	}
	for _, p := range []string{"", "chat", "/chat/", "/apps/", "/setup/x", "/login/", "/index.html", "/frame", "/frame/index.html", "/frame/x",
		"/frame/../index.html", "/assets", "/assets/", "/assets/index-XX.js", "/assets/../theme.js", "/../web.go", "/web.go", "/dist/index.html",
		"//chat", "/Chat", "/unknown", "/rpc", "/events", "/session", "/theme.js/", "/assets/index-AB.js.map", "/assets/index-AB.js.gz", "/favicon.ico",
		"/\x00", "/chat\x00", "/%2e%2e/web.go"} {
		if f := h.find(p); f != nil {
			t.Errorf("%q is %s, want nothing", p, f.kind)
		}
	}
}

func TestCompression(t *testing.T) {
	srv := start(t, build())
	want := []byte(strings.Repeat(script, 200))
	for _, tc := range []struct {
		accept string
		packed bool
	}{{"", false}, {"gzip", true}, {"br, GZIP;q=0.5", true}, {"gzip;q=0", false}, {"gzip; q=0.0", false}, {"*", true}, {"*;q=0", false},
		{"gzip;q=0, *", false}, {"identity", false}, {"xgzip", false}, {"gzip;q=x", false}} {
		res, body := fetch(t, "GET", srv.URL+"/assets/index-AB.js", "Accept-Encoding", tc.accept)
		if got := res.Header.Get("Content-Encoding") == "gzip"; got != tc.packed {
			t.Errorf("%q: packed is %v", tc.accept, got)
			continue
		}
		if got := res.Header.Get("Vary"); got != "Accept-Encoding" {
			t.Errorf("%q: Vary is %q", tc.accept, got)
		}
		if tc.packed {
			z, err := gzip.NewReader(bytes.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			if body, err = io.ReadAll(z); err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(body, want) {
			t.Errorf("%q: not the file's bytes", tc.accept)
		}
	}
	if res, _ := fetch(t, "GET", srv.URL+"/theme.js", "Accept-Encoding", "gzip"); res.Header.Get("Content-Encoding") != "" || res.Header.Get("Vary") != "" {
		t.Error("a short file is compressed")
	}
}

func TestETag(t *testing.T) {
	srv := start(t, build())
	url := srv.URL + "/assets/index-AB.js"
	plain, _ := fetch(t, "GET", url)
	packed, _ := fetch(t, "GET", url, "Accept-Encoding", "gzip")
	tag, gz := plain.Header.Get("ETag"), packed.Header.Get("ETag")
	if tag == gz {
		t.Error("two bodies have one tag")
	}
	for _, tc := range []struct {
		match, accept string
		status        int
	}{{tag, "", 304}, {"W/" + tag, "", 304}, {`"x", ` + tag, "", 304}, {"*", "", 304}, {gz, "", 200}, {`"x"`, "", 200}, {strings.Trim(tag, `"`), "", 200},
		{gz, "gzip", 304}, {tag, "gzip", 200}} {
		res, body := fetch(t, "GET", url, "If-None-Match", tc.match, "Accept-Encoding", tc.accept)
		if res.StatusCode != tc.status {
			t.Errorf("If-None-Match %s, accepting %q: status %d, want %d", tc.match, tc.accept, res.StatusCode, tc.status)
		}
		if tc.status == 304 && (len(body) > 0 || res.Header.Get("ETag") == "" || res.Header.Get("Content-Security-Policy") == "") {
			t.Errorf("If-None-Match %s: a body of %d bytes, headers %v", tc.match, len(body), res.Header)
		}
	}
	if res, _ := fetch(t, "GET", srv.URL+"/", "If-None-Match", "*"); res.StatusCode != 200 {
		t.Errorf("the page, which is not kept, is answered with %d", res.StatusCode)
	}
}

func TestMethods(t *testing.T) {
	srv := start(t, build())
	get, body := fetch(t, "GET", srv.URL+"/chat")
	res, none := fetch(t, "HEAD", srv.URL+"/chat")
	if len(none) > 0 || res.StatusCode != 200 || res.ContentLength != int64(len(body)) {
		t.Errorf("HEAD has %d bytes, status %d, length %d", len(none), res.StatusCode, res.ContentLength)
	}
	get.Header.Del("Date")
	res.Header.Del("Date")
	for name := range get.Header {
		if get.Header.Get(name) != res.Header.Get(name) {
			t.Errorf("HEAD has %s %q, GET has %q", name, res.Header.Get(name), get.Header.Get(name))
		}
	}
	for _, m := range []string{"POST", "PUT", "DELETE", "OPTIONS", "TRACE", "BREW"} {
		if res, _ := fetch(t, m, srv.URL+"/"); res.StatusCode != 405 || res.Header.Get("Allow") != "GET, HEAD" {
			t.Errorf("%s: status %d, Allow %q", m, res.StatusCode, res.Header.Get("Allow"))
		}
	}
}

func TestFromRefuses(t *testing.T) {
	for want, change := range map[string]func(fstest.MapFS){
		"no index.html": func(m fstest.MapFS) { delete(m, "index.html") },
		"no known kind": func(m fstest.MapFS) { m["assets/a.js.map"] = &fstest.MapFile{Data: []byte("{}")} },
	} {
		m := build()
		change(m)
		if _, err := from(m); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want %q", err, want)
		}
	}
}

func hold(t *testing.T, f *file) content {
	t.Helper()
	c, err := f.content()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// The build that is in the tree is whole: all that its pages name is there, nothing is inline, and nothing is loaded from
// elsewhere.
func TestBuild(t *testing.T) {
	served, err := New()
	if err != nil {
		t.Fatal(err)
	}
	h := served.(*handler)
	pages := map[string]*file{"index": h.index, "frame": h.files["/frame/"]}
	refs := regexp.MustCompile(`(?:src|href)="([^"]*)"`)
	inline := regexp.MustCompile(`(?i)<script(?:\s+[^>]*)?>[^<]|<style|\sstyle=|\son[a-z]+=|javascript:`)
	for name, p := range pages {
		if p == nil {
			t.Errorf("the build has no %s", name)
			continue
		}
		if found := inline.Find(hold(t, p).body); found != nil {
			t.Errorf("%s has %q inline", name, found)
		}
		all := refs.FindAllSubmatch(hold(t, p).body, -1)
		if len(all) == 0 {
			t.Errorf("%s names no script", name)
		}
		for _, m := range all {
			if f := h.files[string(m[1])]; f == nil && string(m[1]) != "/session" { // the door's
				t.Errorf("%s names %s, which is not there", name, m[1])
			}
		}
	}
	first := 0
	for address, f := range h.files {
		for _, bad := range []string{"@import", "url(http", "url(//", "sourceMappingURL", "eval(", "new Function"} {
			if strings.HasPrefix(f.kind, "text/") && bytes.Contains(hold(t, f).body, []byte(bad)) {
				t.Errorf("%s holds %q", address, bad)
			}
		}
		if home, err := os.UserHomeDir(); err == nil && len(home) > 5 && bytes.Contains(hold(t, f).body, []byte(home)) {
			t.Errorf("%s names a directory of the machine it was built on", address)
		}
	}
	// What the page names is loaded before anything shows.
	for _, m := range refs.FindAllSubmatch(hold(t, h.index).body, -1) {
		if f := h.files[string(m[1])]; f != nil && strings.HasPrefix(f.kind, "text/javascript") {
			first += max(len(hold(t, f).packed), min(len(hold(t, f).body), minGzip))
		}
	}
	if first > 150<<10 {
		t.Errorf("the first load has %d bytes of compressed script", first)
	}
}
