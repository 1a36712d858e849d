package policy

import (
	"errors"
	"net/netip"
	"strconv"
	"strings"

	"golang.org/x/net/idna"
)

// Destination is what a connection goes to: a name, or only an address.
type Destination struct {
	Name    string // canonical; empty: only the address is known
	Address string
	Port    int
}

// Host is the name, or else the address.
func (d Destination) Host() string {
	if d.Name != "" {
		return d.Name
	}
	return d.Address
}

var errHostText = errors.New("the host is not a valid name")

var toASCII = idna.New(idna.MapForLookup(), idna.BidiRule(), idna.CheckJoiners(true), idna.StrictDomainName(false))

// CanonicalHost writes a name in lower case and ASCII, without the trailing dot, and an address in its shortest form.
func CanonicalHost(host string) (string, error) {
	if address, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		return address.WithZone("").Unmap().String(), nil
	}
	host = strings.TrimSuffix(host, ".")
	for i := 0; i < len(host); i++ {
		if host[i] >= 0x80 {
			converted, err := toASCII.ToASCII(host)
			if err != nil {
				return "", errHostText
			}
			host = converted
			break
		}
	}
	host = strings.ToLower(host)
	if host == "" || len(host) > 253 || strings.HasPrefix(host, ".") || strings.HasSuffix(host, ".") || strings.Contains(host, "..") {
		return "", errHostText
	}
	for i := 0; i < len(host); i++ {
		if char := host[i]; char != '.' && char != '-' && char != '_' &&
			(char < '0' || char > '9') && (char < 'a' || char > 'z') {
			return "", errHostText
		}
	}
	return host, nil
}

// splitHost parts what stands in a Host header. The port is 0 when there is none.
func splitHost(text string) (host string, port int, err error) {
	host = text
	if at := strings.LastIndexByte(text, ':'); at >= 0 && strings.IndexByte(text[at:], ']') < 0 {
		port, err = strconv.Atoi(text[at+1:])
		if err != nil || port < 1 || port > 65535 || text[at+1] == '+' || text[at+1] == '0' {
			return "", 0, errHostText
		}
		host = text[:at]
	}
	if strings.ContainsRune(host, ':') && !strings.HasPrefix(host, "[") {
		return "", 0, errHostText
	}
	host, err = CanonicalHost(host)
	return host, port, err
}

func defaultPort(scheme string) int {
	if scheme == "https" {
		return 443
	}
	return 80
}

// JoinHost writes a host as it stands in a Host header. Port 0 is left out.
func JoinHost(host string, port int) string {
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if port == 0 {
		return host
	}
	return host + ":" + strconv.Itoa(port)
}

// MatchesHost tells whether a canonical name is one of those that a pattern means.
func MatchesHost(pattern, name string) bool {
	if pattern == "*" {
		return name != ""
	}
	suffix, wild := strings.CutPrefix(pattern, "*.")
	suffix, err := CanonicalHost(suffix)
	if err != nil || name == "" {
		return false
	}
	if wild {
		return strings.HasSuffix(name, "."+suffix)
	}
	return name == suffix
}
