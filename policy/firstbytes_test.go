package policy

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"
)

const asked = "api.example.com"

// greeting is what a client of TLS says first.
func greeting(t testing.TB, name string) []byte {
	t.Helper()
	near, far := net.Pipe()
	defer near.Close()
	defer far.Close()
	go func() {
		_ = tls.Client(near, &tls.Config{ServerName: name, InsecureSkipVerify: true}).Handshake()
	}()
	hello := make([]byte, recordHeadBytes)
	if _, err := io.ReadFull(far, hello); err != nil {
		t.Fatal(err)
	}
	hello = append(hello, make([]byte, binary.BigEndian.Uint16(hello[3:]))...)
	if _, err := io.ReadFull(far, hello[recordHeadBytes:]); err != nil {
		t.Fatal(err)
	}
	return hello
}

// inRecords is the same greeting in records of at most this size.
func inRecords(hello []byte, size int) []byte {
	var cut []byte
	for body := hello[recordHeadBytes:]; len(body) > 0; {
		piece := body[:min(size, len(body))]
		cut = append(cut, recordHandshake, 3, 1, byte(len(piece)>>8), byte(len(piece)))
		cut = append(cut, piece...)
		body = body[len(piece):]
	}
	return cut
}

// hello makes a greeting of its parts, with these extensions.
func hello(extensions ...[]byte) []byte {
	body := append([]byte{3, 3}, make([]byte, 32)...)
	body = append(body, 0, 0, 2, 0x13, 1, 1, 0)
	all := bytes.Join(extensions, nil)
	body = append(body, byte(len(all)>>8), byte(len(all)))
	return asRecord(append(body, all...))
}

func asRecord(body []byte) []byte {
	message := append([]byte{helloOfClient, 0, byte(len(body) >> 8), byte(len(body))}, body...)
	return append([]byte{recordHandshake, 3, 1, byte(len(message) >> 8), byte(len(message))}, message...)
}

func extension(kind int, body []byte) []byte {
	return append([]byte{byte(kind >> 8), byte(kind), byte(len(body) >> 8), byte(len(body))}, body...)
}

// names is an extension with names, each after its kind.
func names(entries ...string) []byte {
	var list []byte
	for _, each := range entries {
		list = append(list, each[0], byte(len(each[1:])>>8), byte(len(each[1:])))
		list = append(list, each[1:]...)
	}
	return extension(extensionName, append([]byte{byte(len(list) >> 8), byte(len(list))}, list...))
}

func TestAGreetingTellsTheNameThatItAsksFor(t *testing.T) {
	for _, each := range []struct {
		data []byte
		want FirstBytes
		then Passage
	}{
		{greeting(t, asked), FirstBytes{Kind: BeginsTLS, ServerName: asked}, PassOn},
		{greeting(t, ""), FirstBytes{Kind: BeginsTLS}, Refuse},
		{greeting(t, "evil.example.net"), FirstBytes{Kind: BeginsTLS, ServerName: "evil.example.net"}, Refuse},
		{greeting(t, "x."+asked), FirstBytes{Kind: BeginsTLS, ServerName: "x." + asked}, Refuse},
		{hello(names("\x00API.Example.COM.")), FirstBytes{Kind: BeginsTLS, ServerName: "API.Example.COM."}, PassOn},
		{hello(names("\x00" + asked)), FirstBytes{Kind: BeginsTLS, ServerName: asked}, PassOn},
		{hello(names("\x01x", "\x00"+asked)), FirstBytes{Kind: BeginsTLS, ServerName: asked}, PassOn},
		{hello(names("\x00")), FirstBytes{Kind: BeginsTLS}, Refuse},
		{hello(), FirstBytes{Kind: BeginsTLS}, Refuse},
		{
			hello(names("\x00"+asked), extension(extensionEncrypted, nil)),
			FirstBytes{Kind: BeginsTLS, ServerName: asked, HidesName: true}, LookInto,
		},
		{
			hello(extension(extensionEncrypted, []byte("x")), names("\x00b.x")),
			FirstBytes{Kind: BeginsTLS, ServerName: "b.x", HidesName: true}, LookInto,
		},
	} {
		found := ReadFirstBytes(each.data)
		if found != each.want || found.Passage(asked) != each.then {
			t.Errorf("%q is %+v, then %s, not %+v, then %s", each.data, found, found.Passage(asked), each.want, each.then)
		}
	}
	// Before TLS 1.2 a greeting may end without extensions.
	if found := ReadFirstBytes(asRecord(hello()[9 : 9+41])); found.Kind != BeginsTLS {
		t.Errorf("a greeting without extensions is %+v", found)
	}
}

func TestAGreetingIsReadHoweverItIsCut(t *testing.T) {
	whole := greeting(t, asked)
	for _, size := range []int{1, 3, 40, 1000} {
		cut := inRecords(whole, size)
		if found := ReadFirstBytes(cut); found.ServerName != asked {
			t.Errorf("in records of %d bytes it is %+v", size, found)
		}
		reads, has := 1, 1
		for found := ReadFirstBytes(cut[:has]); found.Kind == BeginsUnclear; reads++ {
			if found.Wanted <= has || found.Wanted > len(cut) || found.SendOn {
				t.Fatalf("%d of %d bytes are %+v", has, len(cut), found)
			}
			has = found.Wanted
			found = ReadFirstBytes(cut[:has])
		}
		if reads > 60 {
			t.Errorf("in records of %d bytes it is read %d times", size, reads)
		}
	}
	for end := range whole {
		found := ReadFirstBytes(whole[:end])
		if found.Kind != BeginsUnclear || found.Wanted <= end || found.Wanted > len(whole) {
			t.Fatalf("the first %d bytes are %+v", end, found)
		}
	}
}

func TestABrokenGreetingIsRefused(t *testing.T) {
	whole := greeting(t, asked)
	changed := func(at int, to byte) []byte {
		copied := bytes.Clone(whole)
		copied[at] = to
		return copied
	}
	for what, data := range map[string][]byte{
		"an empty record":         {recordHandshake, 3, 1, 0, 0},
		"another message":         changed(5, 2),
		"a message that is short": changed(8, whole[8]-1),
		"another record inside":   append(inRecords(whole, 40)[:45], 23, 3, 3, 0, 1),
		"an endless message":      {recordHandshake, 3, 1, 0, 4, 1, 1, 0, 0},
		"a message of 64 KiB":     {recordHandshake, 3, 1, 0, 4, 1, 0, 0xff, 0xf3},
		"a long session":          asRecord(append(make([]byte, 34), 200)),
		"long ciphers":            asRecord(append(make([]byte, 35), 0, 9, 1)),
		"no ways to compress":     asRecord(make([]byte, 37)),
		"half an extension":       hello([]byte{0, 0, 0}),
		"an extension too long":   hello([]byte{0, 10, 0, 9, 1}),
		"names too long":          hello(extension(extensionName, []byte{0, 9, 0})),
		"a name too long":         hello(extension(extensionName, []byte{0, 4, 0, 0, 9, 'a'})),
		"two names":               hello(names("\x00"+asked, "\x00b.x")),
		"two extensions":          hello(names("\x00"+asked), names("\x00b.x")),
		"an empty name too":       hello(names("\x00"), names("\x00"+asked)),
		"a name that is no ASCII": hello(names("\x00b\xc3\xbc.x")),
	} {
		if what == "another record inside" && ReadFirstBytes(data).Kind == BeginsUnclear {
			data = append(data, make([]byte, 2000)...)
		}
		found := ReadFirstBytes(data)
		if found.Kind != BeginsInvalid || found.Passage(asked) != Refuse {
			t.Errorf("%s is %+v", what, found)
		}
	}
	if found := ReadFirstBytes([]byte{recordHandshake, 3, 1, 0, 4, 1, 0, 0xff, 0xf2}); found.Wanted > FirstBytesMost {
		t.Errorf("more is wanted than is ever read: %+v", found)
	}
}

// heard is what a server of TLS finds in a greeting; ok is false if it finds none.
func heard(data []byte) (name string, ok bool) {
	stop := errors.New("that is enough")
	config := &tls.Config{GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		name, ok = hello.ServerName, true
		return nil, stop
	}}
	_ = tls.Server(&said{Reader: bytes.NewReader(data)}, config).Handshake()
	return name, ok
}

// said is a connection on which everything has been said.
type said struct {
	net.Conn
	io.Reader
}

func (s *said) Read(into []byte) (int, error)    { return s.Reader.Read(into) }
func (s *said) Write(from []byte) (int, error)   { return len(from), nil }
func (s *said) Close() error                     { return nil }
func (s *said) SetWriteDeadline(time.Time) error { return nil }

func TestTLSInDisguiseIsRefused(t *testing.T) {
	warned := append([]byte{21, 3, 1, 0, 2, 1, 90}, greeting(t, "b.x")...)
	if name, ok := heard(warned); !ok || name != "b.x" {
		t.Error("a warning is not skipped any more: is this still needed?")
	}
	for _, data := range [][]byte{
		warned,
		append([]byte{21, 3, 0, 0, 2, 1, 90}, greeting(t, asked)...),
		append([]byte{recordHandshake, 0, 1}, greeting(t, asked)[3:]...),
		append([]byte{20, 3, 3, 0, 1, 1}, greeting(t, asked)...),
		append([]byte{0x80, 46, 1, 3, 1, 0, 21, 0, 0, 0, 16}, make([]byte, 37)...),
		append([]byte{0xff, 46, 1, 3, 3, 0, 21, 0, 0, 0, 16}, make([]byte, 37)...),
	} {
		found := ReadFirstBytes(data)
		if found.Kind != BeginsDisguised || found.Passage(asked) != Refuse {
			t.Errorf("%q is %+v", data[:12], found)
		}
		if found := ReadFirstBytes(data[:1]); found.Kind != BeginsUnclear || found.Wanted != 2 {
			t.Errorf("its first byte is %+v", found)
		}
	}
	for _, data := range []string{
		"\x15\x02", "\x15\x03\x00\x00\x01\x00", "\x14\x03\x00\x00\x05", "\x80\x00\x02", "\xc3\xbcber\n",
		"\xff\xfb\x01\xff", "\x17\x03\x03", "\x16\x01\x00\x00\x09\x00",
	} {
		if found := ReadFirstBytes([]byte(data)); found.Passage(asked) != PassOn {
			t.Errorf("%q is %+v", data, found)
		}
	}
}

// The tests of the edge and of the supervisor read the same file.
func TestFirstLines(t *testing.T) {
	text, err := os.ReadFile("testdata/first_lines.json")
	if err != nil {
		t.Fatal(err)
	}
	var lines [][2]string
	if err := json.Unmarshal(text, &lines); err != nil {
		t.Fatal(err)
	}
	then := map[Beginning]Passage{BeginsHTTP: LookInto, BeginsOther: PassOn, BeginsUnclear: Refuse}
	for _, line := range lines {
		found := ReadFirstBytes([]byte(line[0]))
		if found.Kind != Beginning(line[1]) || found.Passage(asked) != then[found.Kind] {
			t.Errorf("%q is %+v, then %s", line[0], found, found.Passage(asked))
		}
		if found.Kind == BeginsUnclear && (!found.SendOn || found.Wanted != len(line[0])+1) {
			t.Errorf("%q is %+v", line[0], found)
		}
		if found.Kind != BeginsHTTP {
			continue
		}
		if found := ReadFirstBytes([]byte(strings.TrimRight(line[0], "\r\n"))); !found.SendOn {
			t.Errorf("without its end, %q is %+v", line[0], found)
		}
		if found := ReadFirstBytes([]byte(strings.TrimRight(line[0], "\r\n\t ") + "\nHost: x\n\n")); found.Kind != BeginsHTTP {
			t.Errorf("with more behind it, %q is %+v", line[0], found)
		}
	}
}

func TestLettersThatAreOthersInUnicodeAreNoPartOfARequest(t *testing.T) {
	for _, line := range []string{"GET \u017f://b.x\n", "GET \u212a://b.x\n", "\u017f / x\n", "GET / HTTP/\u0661\n"} {
		if found := ReadFirstBytes([]byte(line)); found.Kind != BeginsOther {
			t.Errorf("%q is %+v", line, found)
		}
	}
	if found := ReadFirstBytes([]byte("GET /\xff\xfe HTTP/1.1\n")); found.Kind != BeginsHTTP {
		t.Errorf("a path that is no UTF-8 makes it %+v", found)
	}
}

func TestAFirstLineWithoutEndIsRefusedAtLast(t *testing.T) {
	line := []byte("GET " + strings.Repeat("x", FirstLineMost))
	if found := ReadFirstBytes(line[:FirstLineMost]); found.Kind != BeginsUnclear {
		t.Errorf("%+v", found)
	}
	if found := ReadFirstBytes(line); found.Kind != BeginsInvalid || found.Passage(asked) != Refuse {
		t.Errorf("%+v", found)
	}
	if found := ReadFirstBytes(bytes.Repeat([]byte("\r\n"), FirstLineMost)); found.Kind != BeginsInvalid {
		t.Errorf("only empty lines are %+v", found)
	}
	if found := ReadFirstBytes(nil); found.Kind != BeginsUnclear || found.Wanted != 1 {
		t.Errorf("nothing is %+v", found)
	}
}

func FuzzFirstBytes(f *testing.F) {
	for _, text := range []string{
		"", "GET / HTTP/1.1\r\n", "PRI * HTTP/2.0\r\n", "\r\n\r\nget http://a.x", "SSH-2.0-x\r\n",
		"\x15\x03\x01\x00\x02\x01\x5a\x16\x03", "\x80\x2e\x01\x03\x01\x00\x15", "\x16\x03\x01\x00\xff\x01\x00\x00\xfb",
		"\x16\x03\x01\x00\x04\x01\x00\xff\xf2",
	} {
		f.Add([]byte(text))
	}
	f.Add(greeting(f, asked))
	f.Add(inRecords(greeting(f, asked), 30))
	f.Add(hello(names("\x00"+asked), extension(extensionEncrypted, nil)))
	f.Fuzz(func(t *testing.T, data []byte) {
		whole := ReadFirstBytes(data)
		has := 0
		for {
			found := ReadFirstBytes(data[:has])
			if found.Kind != BeginsUnclear {
				if found.Kind != whole.Kind && has <= FirstLineMost {
					t.Fatalf("%q is %+v, and at once %+v", data, found, whole)
				}
				break
			}
			if found.Wanted <= has || found.Wanted > FirstBytesMost {
				t.Fatalf("after %d bytes of %q: %+v", has, data, found)
			}
			if has = found.Wanted; has > len(data) {
				break
			}
		}
		isAsked := strings.EqualFold(strings.TrimSuffix(whole.ServerName, "."), asked)
		if whole.Passage(asked) == PassOn && whole.Kind == BeginsTLS && !isAsked {
			t.Errorf("%q passes as %+v", data, whole)
		}
		// What a server reads as a greeting is told as one, for the same name, or is refused.
		name, isTLS := heard(data)
		isRefused := whole.Kind == BeginsDisguised || whole.Kind == BeginsInvalid
		if isTLS && !isRefused && (whole.Kind != BeginsTLS || whole.ServerName != name) {
			t.Errorf("a server reads %q as a greeting for %q: %+v", data, name, whole)
		}
	})
}

// The longest line that a guest can have read, and the most records of a greeting.
func BenchmarkFirstBytes(b *testing.B) {
	for name, data := range map[string][]byte{
		"line":    []byte("GET " + strings.Repeat(" HTTP/", FirstBytesMost/6-2) + "\n"),
		"records": inRecords(asRecord(append(make([]byte, 34), make([]byte, 10_000)...)), 1),
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				ReadFirstBytes(data)
			}
		})
	}
}

// The patterns of the supervisor, which take longer.
var (
	methodPattern  = regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,32}([ \t\v\f]|$)")
	requestPattern = regexp.MustCompile(`(?s)^[^ \t\v\f]+[ \t\v\f].*[ \t\v\f](?i:HTTP)/[0-9]`)
	urlPattern     = regexp.MustCompile(`^[^ \t\v\f]+[ \t\v\f]+[A-Za-z][A-Za-z0-9+.-]*://[^ \t\v\f]*[ \t\v\f\r]*$`)
)

func FuzzFirstLine(f *testing.F) {
	for _, text := range []string{
		"GET / HTTP/1.1\r", "GET  HTTP/1", "GET HTTP/1", "GET / HTTP/HTTP/1.1", "GET /HTTP/1 http/2x", "GET http://a.x/ \r\t",
		"a b://", "GET h+t-1.x://\r \r x", "GET ://a", "GET 1a://b", "GET a_b://c",
		" GET / HTTP/1.1", "G\rET / HTTP/1.1", "GET a:/ b://c",
		"\u017f s\u017f://x", "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA / HTTP/1.1", "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		if got := mayBeMethod(line); got != (len(line) == 0 || methodPattern.Match(line)) {
			t.Errorf("%q begins with a method: %v", line, got)
		}
		if got := isRequest(line); got != (requestPattern.Match(line) || urlPattern.Match(line)) {
			t.Errorf("%q is a request: %v", line, got)
		}
	})
}
