// Package upstream connects through upstream proxies, which are not trusted: their answers are bounded, and so is their time.
package upstream

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"atoll/policy"
)

const (
	// A user or a password has at most so many bytes.
	wordMost = 255
	portLast = 65535
	// What a password begins with that is stored. It is of no use before the supervisor has opened it.
	sealed = "atoll-sealed."
)

type scheme string

const (
	http   scheme = "http" // CONNECT
	socks5 scheme = "socks5"
)

var written = regexp.MustCompile(
	`^(?P<scheme>http|socks5)://(?:(?P<user>[^\s/@:]+)(?P<login>:(?P<password>[^\s/@]*))?@)?` +
		`(?P<host>\[[0-9a-fA-F:.]+\]|[^\s/@:\[\]]+):(?P<port>[0-9]{1,5})/?$`,
)

// Proxy is a proxy between the host and the outside, as a policy has it.
type Proxy struct {
	scheme scheme
	host   string // a plain name, or an address
	port   int
	opened []netip.Prefix // ranges, not public, in which the proxy itself may be
	login  *login         // nil: it wants none. Behind a pointer, so that no log shows it with the rest.
}

type login struct {
	user, password string
	isSealed       bool
}

// UnmarshalJSON reads a proxy as the supervisor's policy has it: its url, with names in ASCII, and its addresses, as ranges.
// Which names are reached through it, is said there too (hosts) and not kept: policy.Gatekeeper knows them.
//
// No error shows the url, because it may have a password.
func (p *Proxy) UnmarshalJSON(text []byte) error {
	var read struct {
		URL       string   `json:"url"`
		Hosts     []string `json:"hosts"`
		Addresses []string `json:"addresses"`
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&read); err != nil {
		return errors.New("the proxy is not one of a policy")
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return errors.New("there is text after the proxy")
	}
	found, err := parse(read.URL)
	if err != nil {
		return fmt.Errorf("the proxy's address is invalid: %w", err)
	}
	for _, each := range read.Addresses {
		within, err := policy.ParseRange(each)
		if err != nil || within != within.Masked() {
			return fmt.Errorf("the proxy has %.80q, which is no range of addresses", each)
		}
		found.opened = append(found.opened, within)
	}
	*p = *found
	return nil
}

// parse reads the url of a proxy.
func parse(text string) (*Proxy, error) {
	parts := written.FindStringSubmatch(text)
	if parts == nil {
		return nil, errors.New("it is no URL of a proxy")
	}
	part := func(name string) string { return parts[written.SubexpIndex(name)] }
	port, err := strconv.Atoi(part("port"))
	if err != nil || port < 1 || port > portLast {
		return nil, errors.New("its port is invalid")
	}
	found := &Proxy{scheme: scheme(part("scheme")), port: port}
	if found.host = policy.PlainHost(part("host")); found.host == "" {
		address, ok := policy.PlainAddress(strings.Trim(part("host"), "[]"))
		if !ok {
			return nil, fmt.Errorf("%.80q is no name and no address", part("host"))
		}
		found.host = address.String()
	}
	if part("user") == "" {
		return found, nil
	}
	found.login = &login{isSealed: strings.HasPrefix(part("password"), sealed)}
	if found.login.user, err = word(part("user")); err != nil {
		return nil, err
	}
	if found.scheme == http && strings.Contains(found.login.user, ":") {
		return nil, errors.New("its user has a colon")
	}
	if found.login.isSealed { // it is longer than what it becomes
		found.login.password = part("password")
		return found, nil
	}
	found.login.password, err = word(part("password"))
	return found, err
}

// word reads a user or a password as it stands in a URL.
func word(text string) (string, error) {
	found, err := url.PathUnescape(text)
	switch {
	case err != nil:
		return "", errors.New("its user or password has a % that begins no %XX")
	case !utf8.ValidString(found):
		return "", errors.New("its user or password is no UTF-8")
	case len(found) > wordMost || strings.ContainsFunc(found, isUnprintable):
		return "", fmt.Errorf("its user or password has more than %d bytes, or a control character", wordMost)
	}
	return found, nil
}

func isUnprintable(char rune) bool { return !unicode.IsPrint(char) }

// Equal tells whether another proxy is the same, used in the same way. Nil is none.
func (p *Proxy) Equal(other *Proxy) bool {
	if p == nil || other == nil {
		return p == other
	}
	return p.scheme == other.scheme && p.host == other.host && p.port == other.port && slices.Equal(p.opened, other.opened) &&
		p.login.equal(other.login)
}

func (l *login) equal(other *login) bool {
	if l == nil || other == nil {
		return l == other
	}
	return *l == *other
}

// isSealed tells whether the password could not be opened.
func (p *Proxy) isSealed() bool { return p.login != nil && p.login.isSealed }
