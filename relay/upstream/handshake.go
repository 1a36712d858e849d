package upstream

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"net/netip"
	"regexp"
	"strconv"

	"atoll/policy"
)

// LongestHeadBytes is how much a proxy of HTTP may answer, in all.
const LongestHeadBytes = 16 << 10

// ProxyError says that an upstream proxy does not connect. The text has nothing that the proxy can choose, and no password.
type ProxyError struct{ Reason string }

// Error is the reason.
func (e *ProxyError) Error() string { return e.Reason }

func failed(format string, values ...any) error { return &ProxyError{fmt.Sprintf(format, values...)} }

var errTooLong = &ProxyError{"its answer is too long"}

// wire is the way to a proxy. It takes no byte beyond its calls: the server behind the proxy may speak first, and its data
// belongs to the later owner of the connection.
type wire interface {
	send(data []byte) error
	// exactly takes this many bytes.
	exactly(count int) ([]byte, error)
	// until takes bytes up to an end, with the end. It fails with errTooLong beyond this many bytes.
	until(end string, most int) ([]byte, error)
}

// handshake has a proxy connect to a host, by its plain name or its address.
func handshake(w wire, proxy *Proxy, host string, port int) error {
	if proxy.scheme == http {
		return connect(w, proxy, host, port)
	}
	return socks(w, proxy, host, port)
}

const endOfHead = "\r\n\r\n"

var status = regexp.MustCompile(`^HTTP/1\.[01] ([1-9][0-9]{2})(?: [^\r\n]*)?\r\n`)

// connect says CONNECT of HTTP, as in RFC 9110.
func connect(w wire, proxy *Proxy, host string, port int) error {
	place := policy.JoinHost(host, port)
	request := "CONNECT " + place + " HTTP/1.1\r\nHost: " + place + "\r\n"
	if proxy.login != nil {
		login := base64.StdEncoding.EncodeToString([]byte(proxy.login.user + ":" + proxy.login.password))
		request += "Proxy-Authorization: Basic " + login + "\r\n"
	}
	if err := w.send([]byte(request + "\r\n")); err != nil {
		return err
	}
	for left := LongestHeadBytes; left > 0; {
		head, err := w.until(endOfHead, left)
		if err != nil {
			return err
		}
		left -= len(head)
		found := status.FindSubmatch(head)
		if found == nil {
			return failed("it does not answer as a proxy of HTTP does")
		}
		code, err := strconv.Atoi(string(found[1]))
		switch {
		case err != nil:
			return err
		case 200 <= code && code < 300:
			return nil
		case code == 407:
			return failed("it does not take the user and password (407)")
		case code >= 200 || code == 101:
			return failed("it answers %d", code)
		}
	}
	return errTooLong
}

// What SOCKS5 calls its versions, logins and kinds of addresses.
const (
	versionSocks  = 5
	versionLogin  = 1
	commandJoin   = 1
	loginNone     = 0
	loginPassword = 2
	loginNoneFits = 0xff
	kindV4        = 1
	kindName      = 3
	kindV6        = 4
)

var replies = map[byte]string{
	1: "it has failed",
	2: "its rules do not allow it",
	3: "the network cannot be reached",
	4: "the host cannot be reached",
	5: "the connection was refused",
	6: "it took too long",
	7: "it does not know the command",
	8: "it does not know the kind of address",
}

// socks says what RFC 1928 asks for, with the login of RFC 1929.
func socks(w wire, proxy *Proxy, host string, port int) error {
	if err := greet(w, proxy.login); err != nil {
		return err
	}
	request := append([]byte{versionSocks, commandJoin, 0}, destination(host)...)
	if err := w.send(binary.BigEndian.AppendUint16(request, uint16(port))); err != nil {
		return err
	}
	answer, err := w.exactly(4)
	switch {
	case err != nil:
		return err
	case answer[0] != versionSocks:
		return failed("it does not answer as a proxy of SOCKS5 does")
	case answer[1] != 0:
		if why, ok := replies[answer[1]]; ok {
			return failed("%s", why)
		}
		return failed("it answers %d", answer[1])
	}
	return bound(w, answer[3])
}

// greet agrees with a proxy of SOCKS5 on a login. Nil is none.
func greet(w wire, login *login) error {
	offered := []byte{loginNone}
	if login != nil {
		offered = append(offered, loginPassword)
	}
	if err := w.send(append([]byte{versionSocks, byte(len(offered))}, offered...)); err != nil {
		return err
	}
	answer, err := w.exactly(2)
	switch {
	case err != nil:
		return err
	case answer[0] != versionSocks:
		return failed("it does not answer as a proxy of SOCKS5 does")
	case answer[1] == loginNoneFits:
		return failed("it wants another login than it is given")
	case answer[1] == loginNone:
		return nil
	case answer[1] != loginPassword || login == nil:
		return failed("it chooses a login that was not offered")
	}
	said := append([]byte{versionLogin, byte(len(login.user))}, login.user...)
	said = append(append(said, byte(len(login.password))), login.password...)
	if err := w.send(said); err != nil {
		return err
	}
	if answer, err = w.exactly(2); err == nil && (answer[0] != versionLogin || answer[1] != 0) {
		return failed("it does not take the user and password")
	}
	return err
}

// bound takes the address from which the proxy connects.
func bound(w wire, kind byte) error {
	length := 0
	switch kind {
	case kindV4:
		length = 4
	case kindV6:
		length = 16
	case kindName:
		answer, err := w.exactly(1)
		if err != nil {
			return err
		}
		length = int(answer[0])
	default:
		return failed("it names an address of an unknown kind")
	}
	_, err := w.exactly(length + 2)
	return err
}

func destination(host string) []byte {
	address, err := netip.ParseAddr(host)
	switch {
	case err != nil:
		return append([]byte{kindName, byte(len(host))}, host...)
	case address.Is4():
		return append([]byte{kindV4}, address.AsSlice()...)
	}
	return append([]byte{kindV6}, address.AsSlice()...)
}
