package wallet

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"

	"atoll/internal/secret"
)

// passwordFile is where the password of wallet.user stands, in the data directory.
const passwordFile = "secrets/bitcoin-rpc-password"

// cookieUser is the name that the node writes into its cookie file. A file without it is no cookie and is sent nowhere.
const cookieUser = "__cookie__"

// maxCookie bounds the file: Bitcoin Core writes 75 bytes.
const maxCookie = 1 << 10

// access is what a request proves itself with.
type access struct {
	user     string
	password secret.String
}

func (a access) same(b access) bool {
	return a.user == b.user && a.password.Reveal() == b.password.Reveal()
}

// access reads the secret anew: the node writes another cookie at each start, and a person may replace the password.
func (r *Room) access() (access, *problem) {
	if r.cfg.CookieFile != "" {
		return readCookie(r.cfg.CookieFile)
	}
	p, err := r.cfg.Password()
	switch {
	case err != nil:
		return access{}, passwordUnreadable(err)
	case p.Empty():
		return access{}, passwordMissing()
	}
	return access{user: r.cfg.User, password: p}, nil
}

func readCookie(path string) (access, *problem) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a named pipe must not hold the request
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return access{}, cookieMissing(err)
	case errors.Is(err, fs.ErrPermission):
		return access{}, cookieDenied(err)
	case err != nil:
		return access{}, cookieBad(err)
	}
	defer f.Close()
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		return access{}, cookieBad(err)
	}
	raw, err := io.ReadAll(io.LimitReader(f, maxCookie+1))
	if err != nil || len(raw) > maxCookie {
		return access{}, cookieBad(err)
	}
	user, password, ok := strings.Cut(strings.TrimRight(string(raw), "\r\n"), ":")
	if !ok || user != cookieUser || password == "" || !printable(password) {
		return access{}, cookieBad(nil) // also the moment in which the node is writing it
	}
	return access{user: user, password: secret.New(password)}, nil
}

func printable(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' })
}
