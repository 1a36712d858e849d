package policy

import (
	"errors"
	"net/http"
	"slices"
	"strings"
)

var errQueryControl = errors.New("the query has a control character, a space or a fragment")

// Parts are a request as it came.
type Parts struct {
	Scheme string
	Method string
	Target string // the request target as it was written
	Host   string // Host or :authority
	Header http.Header
	Length int64 // of the body; -1: not known
	Body   func() Body
	// The name of a TLS connection to a destination without a name.
	ServerName string
}

// Request is a request in the form in which it is judged and sent.
type Request struct {
	Scheme string
	Method string
	Host   string // canonical
	Send   string // Host as it is sent
	Path   Path
	Query  Query
	Header http.Header
	Length int64

	body func() Body
	read *document
}

// Fault is a refusal of a request under any rules.
type Fault struct {
	Status int
	Reason string
}

// Error is the reason.
func (f *Fault) Error() string { return f.Reason }

// NewRequest checks a request, and brings it into the form for judgement by each of these rules. It removes headers that
// must not be sent.
func NewRequest(parts Parts, to Destination, judges ...Kept) (*Request, error) {
	if err := checkMethod(parts.Method); err != nil {
		return nil, err
	}
	target, authority, err := splitTarget(parts.Target, parts.Scheme)
	if err != nil {
		return nil, err
	}
	request := &Request{
		Scheme: parts.Scheme, Method: parts.Method, Header: parts.Header, Length: parts.Length, body: parts.Body,
	}
	if request.Host, request.Send, err = checkHost(parts, to); err != nil {
		return nil, err
	}
	if authority != "" {
		other := parts
		other.Host = authority
		if _, _, err := checkHost(other, to); err != nil {
			return nil, err
		}
	}
	path, query, _ := strings.Cut(target, "?")
	if request.Path, err = NormalisePath(path); err != nil {
		return nil, &Fault{http.StatusForbidden, err.Error()}
	}
	cleanHeaders(request.Header)
	if slices.ContainsFunc(judges, Kept.namesMethods) {
		for _, name := range methodOverrides {
			query = WithoutParameter(query, name)
			RemoveHeader(request.Header, name)
		}
	}
	if slices.ContainsFunc(judges, Kept.namesPaths) {
		for _, name := range pathOverrides {
			RemoveHeader(request.Header, name)
		}
	}
	if request.Query, err = parseQuery(query); err != nil {
		return nil, &Fault{http.StatusForbidden, err.Error()}
	}
	return request, nil
}

// Headers, and some of them parameters, by which frameworks let a request have another method or another path.
var (
	methodOverrides = []string{"X-Http-Method-Override", "X-Http-Method", "X-Method-Override", "_method"}
	pathOverrides   = []string{"X-Original-Url", "X-Rewrite-Url"}
)

func (k Kept) namesMethods() bool {
	return slices.ContainsFunc(k.Rules, func(rule *Rule) bool { return len(rule.Methods) > 0 })
}

func (k Kept) namesPaths() bool {
	return slices.ContainsFunc(k.Rules, func(rule *Rule) bool { return len(rule.Paths) > 0 })
}

func checkMethod(method string) error {
	if method == http.MethodConnect || method == http.MethodTrace {
		return &Fault{http.StatusForbidden, method + " is never let through"}
	}
	for i := 0; i < len(method); i++ {
		if char := method[i]; (char < 'A' || char > 'Z') && char != '-' && char != '_' && (char < '0' || char > '9') {
			return &Fault{http.StatusForbidden, "the method is not in upper case"}
		}
	}
	return nil
}

// splitTarget gives the path with query, and the authority of a target in absolute form.
func splitTarget(target, scheme string) (string, string, error) {
	if strings.HasPrefix(target, "/") {
		return target, "", nil
	}
	found, rest, ok := strings.Cut(target, "://")
	if !ok {
		return "", "", &Fault{http.StatusForbidden, "the request target is not a path"}
	}
	if !strings.EqualFold(found, scheme) {
		return "", "", &Fault{
			http.StatusMisdirectedRequest, "the request target's scheme differs from that of the connection",
		}
	}
	end := strings.IndexAny(rest, "/?#")
	if end < 0 {
		end = len(rest)
	}
	if strings.Contains(rest[:end], "@") {
		return "", "", &Fault{http.StatusForbidden, "the request target has a user name"}
	}
	path := rest[end:]
	if !strings.HasPrefix(path, "/") {
		path = "/" + path
	}
	return path, rest[:end], nil
}

func checkHost(parts Parts, to Destination) (canonical, send string, err error) {
	if parts.Host == "" {
		return to.Host(), JoinHost(to.Host(), portUnlessDefault(to.Port, parts.Scheme)), nil
	}
	host, port, err := splitHost(parts.Host)
	if err != nil {
		return "", "", &Fault{http.StatusMisdirectedRequest, "the Host of the request is not a valid name"}
	}
	if port != 0 && port != to.Port {
		return "", "", &Fault{http.StatusMisdirectedRequest, "the Host of the request has another port"}
	}
	switch {
	case to.Name != "":
		if host != to.Name {
			return "", "", misdirected(host, to.Name)
		}
	case parts.ServerName != "" && host != parts.ServerName:
		return "", "", misdirected(host, parts.ServerName)
	case parts.ServerName == "" && parts.Scheme == "https" && host != to.Address:
		return "", "", misdirected(host, to.Address)
	}
	return host, JoinHost(host, port), nil
}

func misdirected(host, name string) error {
	return &Fault{
		http.StatusMisdirectedRequest, "the Host of the request is " + host + ", but the connection is to " + name,
	}
}

func portUnlessDefault(port int, scheme string) int {
	if port == defaultPort(scheme) {
		return 0
	}
	return port
}

// cleanHeaders removes headers that end here: those that Connection names, those of proxies, and upgrades to another HTTP.
func cleanHeaders(header http.Header) {
	upgrades := false
	for _, line := range header["Connection"] {
		for name := range strings.SplitSeq(line, ",") {
			name = http.CanonicalHeaderKey(strings.TrimSpace(name))
			switch name {
			case "Upgrade":
				upgrades = true
			case "Te", "", "Close", "Keep-Alive":
			default:
				header.Del(name)
			}
		}
	}
	for _, name := range []string{"Proxy-Authorization", "Proxy-Connection", "Http2-Settings", "Keep-Alive", "Host"} {
		header.Del(name)
	}
	for name := range header {
		if strings.Contains(name, "_") && slices.Contains(fixedHeaders, strings.ToLower(strings.ReplaceAll(name, "_", "-"))) {
			delete(header, name) // some servers take it for the header that marks the end of a request
		}
	}
	if upgrade := header["Upgrade"]; len(upgrade) != 0 && (!upgrades || len(upgrade) > 1 || isOtherHTTP(upgrade[0])) {
		header.Del("Upgrade")
	}
	header.Del("Connection")
	if header.Get("Upgrade") != "" {
		header.Set("Connection", "Upgrade")
	}
}

// isOtherHTTP tells whether requests would go on behind an upgrade, where nobody judges them.
func isOtherHTTP(upgrade string) bool {
	name, _, _ := strings.Cut(strings.ToLower(strings.TrimSpace(upgrade)), "/")
	return name == "h2c" || name == "h2" || name == "http" || name == "tls" || strings.ContainsAny(upgrade, ", ")
}

// document reads the body when the first condition on it is judged.
func (r *Request) document() document {
	if r.read == nil {
		var found document
		if r.Length == 0 || r.body == nil {
			found = document{absent: true}
		} else {
			found = r.body().document()
		}
		r.read = &found
	}
	return *r.read
}

// Seal ends the time in which the body can be read for a judgement. What was read stays known.
func (r *Request) Seal() {
	if r.read == nil {
		r.read = &document{unclear: "the body was not kept"}
		if r.Length == 0 {
			r.read = &document{absent: true}
		}
	}
}
