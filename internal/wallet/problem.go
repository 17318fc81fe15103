package wallet

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"atoll/internal/fault"
	"atoll/internal/fence"
)

// Reason is why the node could not be asked, as one word.
type Reason string

// The reasons. The zero Reason is none: the node answered.
const (
	NotConfigured      Reason = "not_configured"
	PasswordMissing    Reason = "password_missing"
	PasswordUnreadable Reason = "password_unreadable"
	CookieMissing      Reason = "cookie_missing"
	CookieDenied       Reason = "cookie_denied"
	CookieBad          Reason = "cookie_bad"
	WrongPassword      Reason = "wrong_password"
	NotAllowed         Reason = "not_allowed"
	NodeDown           Reason = "node_down"
	NoSuchHost         Reason = "no_such_host"
	Unreachable        Reason = "unreachable"
	BrokeOff           Reason = "broke_off"
	NoAnswer           Reason = "no_answer"
	TLS                Reason = "tls"
	Starting           Reason = "starting"
	Busy               Reason = "busy"
	NotBitcoin         Reason = "not_bitcoin"
	TooLarge           Reason = "too_large"
	Refused            Reason = "refused"
	Stopped            Reason = "stopped" // whoever asked has gone
)

// Codes of Bitcoin Core's RPC (src/rpc/protocol.h).
const (
	codeMisc           = -1 // btcd: this server has no wallet, or not this method
	codeWalletNotFound = -18
	codeWalletMany     = -19
	codeStarting       = -28
	codeNoMethod       = -32601
)

// startWait is when it is worth asking a starting or busy node again.
const startWait = 10 * time.Second

// problem is why a question has no answer. Its words never hold the secret, the address or what a file says; what the
// node said stands among the fault's values, so that it reaches a model as a third party's text (U1).
type problem struct {
	reason Reason
	code   int64 // of an error that the node answered with
	err    *fault.Error
}

// fault is the error for one caller, who may add to it.
func (p *problem) fault() *fault.Error {
	e := *p.err
	return &e
}

func problemOf(r Reason, e *fault.Error) *problem { return &problem{reason: r, err: e} }

func passwordMissing() *problem {
	return problemOf(PasswordMissing, fault.New(fault.NotConfigured,
		"wallet.user is set, but there is no password: put it into "+passwordFile+" in the data directory"))
}

func passwordUnreadable(err error) *problem {
	return problemOf(PasswordUnreadable, fault.Wrap(err, fault.NotConfigured,
		passwordFile+" cannot be used: it must be readable by Atoll, and by nobody else (chmod 600)"))
}

func cookieMissing(err error) *problem {
	return problemOf(CookieMissing, fault.Wrap(err, fault.NotConfigured,
		"the file that wallet.cookie_file names is not there: the Bitcoin node is not running, or keeps its .cookie in another place (a chain other than main has its own folder)").At("wallet.cookie_file"))
}

func cookieDenied(err error) *problem {
	return problemOf(CookieDenied, fault.Wrap(err, fault.NotConfigured,
		"Atoll may not read the file that wallet.cookie_file names: set rpccookieperms=group in bitcoin.conf and put Atoll's user into the node's group, or use wallet.user").At("wallet.cookie_file"))
}

func cookieBad(err error) *problem {
	return problemOf(CookieBad, fault.Wrap(err, fault.NotConfigured,
		"the file that wallet.cookie_file names is no cookie of a Bitcoin node: it must be the file .cookie that the running node wrote").At("wallet.cookie_file"))
}

func (r *Room) wrongPassword() *problem {
	if r.cfg.CookieFile != "" {
		return problemOf(WrongPassword, fault.New(fault.NotConfigured,
			"the Bitcoin node refused the cookie: wallet.cookie_file must be the .cookie of the node at wallet.url, and of the chain it runs").At("wallet.cookie_file"))
	}
	return problemOf(WrongPassword, fault.New(fault.NotConfigured,
		"the Bitcoin node refused the user or the password: wallet.user and "+passwordFile+" must match an rpcauth line of its bitcoin.conf").At("wallet.user"))
}

func notAllowed(m method) *problem {
	return problemOf(NotAllowed, fault.New(fault.NotConfigured,
		"the Bitcoin node does not let Atoll ask %s: add it to the user's rpcwhitelist in bitcoin.conf, or this machine to rpcallowip", m.String()))
}

func busy() *problem {
	return problemOf(Busy, fault.New(fault.Unavailable, "the Bitcoin node has too much to do to answer; try again in a moment").After(startWait))
}

func tooLarge() *problem {
	return problemOf(TooLarge, fault.New(fault.Unavailable,
		"what answers at wallet.url sends more than any Bitcoin node would: check the address").At("wallet.url"))
}

func wantsTLS() *problem {
	return problemOf(TLS, fault.New(fault.NotConfigured, "the server at wallet.url wants TLS: write https:// in wallet.url").At("wallet.url"))
}

func notBitcoin(err error) *problem {
	return problemOf(NotBitcoin, fault.Wrap(err, fault.Unavailable,
		"what answers at wallet.url is not the RPC port of a Bitcoin node: check address and port (8332 on the main chain)").At("wallet.url"))
}

func notBitcoinStatus(status int) *problem {
	if status == http.StatusOK {
		return notBitcoin(nil)
	}
	return problemOf(NotBitcoin, fault.New(fault.Unavailable,
		"what answers at wallet.url (HTTP status %d) is not the RPC port of a Bitcoin node: check address and port (8332 on the main chain)", status).At("wallet.url"))
}

// refusedBy is an error that the node itself answered with.
func refusedBy(e *wireError) *problem {
	p := problemOf(Refused, fault.New(fault.Unavailable, "the Bitcoin node answered with an error: %s (code %d)", shown(e.Message, maxMessage), e.Code))
	if e.Code == codeStarting {
		p = problemOf(Starting, fault.New(fault.Unavailable, "the Bitcoin node is starting and cannot answer yet; it says: %s", shown(e.Message, maxMessage)).After(startWait))
	}
	p.code = e.Code
	return p
}

// transport is a failure of the network. The cause is kept without the request's address.
func transport(ctx context.Context, err error) *problem {
	if outer, ok := errors.AsType[*url.Error](err); ok {
		err = outer.Err // without the address
	}
	var timeout net.Error
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return problemOf(Stopped, fault.Wrap(err, fault.Cancelled, "cancelled"))
	case ctx.Err() != nil, errors.As(err, &timeout) && timeout.Timeout():
		return noAnswer(err)
	case isTLS(err):
		return problemOf(TLS, fault.Wrap(err, fault.Unavailable,
			"the connection to wallet.url could not be secured: the server must speak TLS with a certificate that this machine trusts; Bitcoin Core itself speaks only http://").At("wallet.url"))
	}
	if _, ok := errors.AsType[*net.DNSError](err); ok {
		return problemOf(NoSuchHost, fault.Wrap(err, fault.Unavailable, "the host in wallet.url is not known: check its name").At("wallet.url"))
	}
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return problemOf(NodeDown, fault.Wrap(err, fault.Unavailable,
			"nothing listens at wallet.url: the Bitcoin node is not running, or its RPC server is off (server=1 in bitcoin.conf), or listens elsewhere").At("wallet.url"))
	case strings.Contains(err.Error(), "malformed HTTP"): // net/http has no type for it,
		return notBitcoin(nil)
	case strings.Contains(err.Error(), "response headers exceeded"): // nor for this
		return tooLarge()
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE),
		strings.Contains(err.Error(), "server closed idle connection"): // before the question was sent; no type for it either
		return problemOf(BrokeOff, fault.Wrap(err, fault.Unavailable, "the Bitcoin node broke the connection off: it may be stopping; try again in a moment"))
	}
	return problemOf(Unreachable, fault.Wrap(err, fault.Unavailable, "the machine in wallet.url cannot be reached: check address and network").At("wallet.url"))
}

func noAnswer(err error) *problem {
	return problemOf(NoAnswer, fault.Wrap(err, fault.Unavailable,
		"the Bitcoin node did not answer in time: it may be busy reading its database; try again, and look at its log if this stays"))
}

func isTLS(err error) bool {
	_, verification := errors.AsType[*tls.CertificateVerificationError](err)
	_, record := errors.AsType[tls.RecordHeaderError](err)
	_, alert := errors.AsType[tls.AlertError](err)
	_, host := errors.AsType[x509.HostnameError](err)
	return verification || record || alert || host || errors.Is(err, http.ErrSchemeMismatch)
}

// noText stands for a message that says nothing.
const noText = "(no text)"

// shown is a node's text, cut and made harmless: one line without what could not be seen.
func shown(text string, limit int) string {
	if len(text) > limit*4 { // before the work, as no more than that could be kept
		text = text[:limit*4]
	}
	text = strings.Join(strings.Fields(fence.Strip(strings.ToValidUTF8(text, "\uFFFD"))), " ")
	if len(text) > limit {
		text = text[:limit]
		for !utf8.ValidString(text) {
			text = text[:len(text)-1]
		}
		text += "…"
	}
	if text == "" {
		return noText
	}
	return text
}
