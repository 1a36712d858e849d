package serve

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"atoll/edge/control"
	"atoll/policy"
)

// What an ask shows at most. The digest is of everything.
const (
	shownHeaders      = 100
	shownHeadersBytes = 16 << 10
	shownValueBytes   = 2 << 10
	shownPathBytes    = 8 << 10
	shownMethodBytes  = 64
)

// Headers whose values a person need not see.
var veiledHeaders = []string{"Authorization", "Proxy-Authorization", "Cookie"}

// pathOf is the path and query as they are sent.
func pathOf(request *policy.Request) string {
	if request.Query.Send == "" {
		return request.Path.Send
	}
	return request.Path.Send + "?" + request.Query.Send
}

// grantedBy is what an approval for some time would let pass.
func (x *exchange) grantedBy(rule *policy.Rule) granted {
	return granted{
		rule: rule.Key, scheme: x.request.Scheme, method: x.request.Method, host: x.connection.host(), sent: x.request.Send,
		port: x.connection.to.Port, path: pathOf(x.request),
	}
}

// card is the ask about the current request, whose body is held.
func (x *exchange) card(rule *policy.Rule, now time.Time) *ask {
	what := x.grantedBy(rule)
	body := x.body.held
	digest := digestOf(&what, x.came, body, x.in.Trailer)
	at := float64(now.UnixMilli()) / 1000
	made := &ask{same: sameness{digest, rule.Key}, granted: what, card: control.Ask{
		Op: "ask", Sandbox: x.connection.sandbox.id, At: at, Deadline: at + rule.Deadline().Seconds(),
		Digest: digest, Scheme: what.scheme, Method: what.method, Host: what.host, Port: what.port,
		Path: strings.ToValidUTF8(what.path, "\uFFFD"), BodyBytes: len(body),
	}}
	made.card.Headers, made.card.HeadersLeftOut = shown(what.sent, x.came, x.in.Trailer)
	return made
}

// digestOf is SHA-256 of everything that the guest says. Each part comes after its length, so that no two requests are
// written alike.
func digestOf(what *granted, header http.Header, body []byte, trailer http.Header) string {
	sum := sha256.New()
	for _, each := range []string{
		"atoll ask 1", what.scheme, what.method, what.host, what.sent, strconv.Itoa(what.port), what.path,
	} {
		write(sum, each)
	}
	writeHeader(sum, header)
	write(sum, string(body))
	writeHeader(sum, trailer)
	return hex.EncodeToString(sum.Sum(nil))
}

func write(sum hash.Hash, part string) {
	var length [8]byte
	binary.BigEndian.PutUint64(length[:], uint64(len(part)))
	sum.Write(length[:])
	sum.Write([]byte(part))
}

func writeHeader(sum hash.Hash, header http.Header) {
	write(sum, strconv.Itoa(len(header)))
	for _, name := range slices.Sorted(maps.Keys(header)) {
		write(sum, name)
		write(sum, strconv.Itoa(len(header[name])))
		for _, value := range header[name] {
			write(sum, value)
		}
	}
}

// shown are the headers for a person, and how many more there are.
func shown(host string, header, trailer http.Header) (pairs [][2]string, leftOut int) {
	pairs = [][2]string{{"Host", host}}
	size := 0
	for _, each := range []http.Header{header, trailer} {
		for _, name := range slices.Sorted(maps.Keys(each)) {
			for _, value := range each[name] {
				pair := [2]string{name, shownValue(name, value)}
				long := len(pair[0]) + len(pair[1])
				if len(pairs) >= shownHeaders || size+long > shownHeadersBytes {
					leftOut++
					continue
				}
				size += long
				pairs = append(pairs, pair)
			}
		}
	}
	return pairs, leftOut
}

func shownValue(name, value string) string {
	if slices.ContainsFunc(veiledHeaders, func(each string) bool { return policy.SameHeader(each, name) }) {
		return "***"
	}
	if len(value) > shownValueBytes {
		return strings.ToValidUTF8(value[:shownValueBytes], "\uFFFD") + "…"
	}
	return strings.ToValidUTF8(value, "\uFFFD")
}
