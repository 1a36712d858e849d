package upstream

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
)

const (
	greeted   = "\x05\x00"
	loggedIn  = "\x05\x02\x01\x00"
	connected = "\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00"
)

// tape is a proxy that says everything at once.
type tape struct {
	sent    []byte
	answers []byte
}

func (t *tape) send(data []byte) error {
	t.sent = append(t.sent, data...)
	return nil
}

func (t *tape) exactly(count int) ([]byte, error) {
	if count > len(t.answers) {
		return nil, io.ErrUnexpectedEOF
	}
	taken := t.answers[:count]
	t.answers = t.answers[count:]
	return taken, nil
}

func (t *tape) until(end string, most int) ([]byte, error) {
	at := bytes.Index(t.answers, []byte(end))
	switch {
	case at >= 0 && at+len(end) <= most:
		return t.exactly(at + len(end))
	case len(t.answers) >= most:
		return nil, errTooLong
	}
	return nil, io.EOF
}

func proxy(t testing.TB, text string, addresses ...string) *Proxy {
	t.Helper()
	found := &Proxy{}
	quoted := make([]string, len(addresses))
	for i, each := range addresses {
		quoted[i] = `"` + each + `"`
	}
	written := `{"url":"` + text + `","hosts":[],"addresses":[` + strings.Join(quoted, ",") + `]}`
	if err := found.UnmarshalJSON([]byte(written)); err != nil {
		t.Fatal(err)
	}
	return found
}

const (
	plainHTTP  = "http://proxy.example:3128"
	plainSocks = "socks5://proxy.example:1080"
	annsSocks  = "socks5://ann:s3cr3t@proxy.example:1080"
)

func TestAHandshakeSaysWhereToAndLeavesWhatTheServerSaysFirst(t *testing.T) {
	for _, each := range []struct {
		proxy, host, answers, sent, left string
	}{
		{
			plainHTTP, "a.example", "HTTP/1.1 200 Connection established\r\nX: y\r\n\r\n220 ready",
			"CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:443\r\n\r\n", "220 ready",
		},
		{
			"http://ann:p%C3%BC%3A@proxy.example:3128", "2001:db8::1", "HTTP/1.0 204 \r\n\r\n",
			"CONNECT [2001:db8::1]:443 HTTP/1.1\r\nHost: [2001:db8::1]:443\r\n" +
				"Proxy-Authorization: Basic YW5uOnDDvDo=\r\n\r\n", "",
		},
		{
			plainHTTP, "8.8.8.8", "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 \r\nA: b\r\n\r\nHTTP/1.1 200\r\n\r\nhello",
			"CONNECT 8.8.8.8:443 HTTP/1.1\r\nHost: 8.8.8.8:443\r\n\r\n", "hello",
		},
		{
			plainSocks, "a.example", greeted + connected + "220 ready",
			"\x05\x01\x00" + "\x05\x01\x00\x03\x09a.example\x01\xbb", "220 ready",
		},
		{plainSocks, "8.8.8.8", greeted + connected, "\x05\x01\x00" + "\x05\x01\x00\x01\x08\x08\x08\x08\x01\xbb", ""},
		{
			plainSocks, "2001:db8::1", greeted + connected,
			"\x05\x01\x00" + "\x05\x01\x00\x04\x20\x01\x0d\xb8" + strings.Repeat("\x00", 11) + "\x01\x01\xbb", "",
		},
		{
			annsSocks, "8.8.8.8", loggedIn + connected,
			"\x05\x02\x00\x02" + "\x01\x03ann\x06s3cr3t" + "\x05\x01\x00\x01\x08\x08\x08\x08\x01\xbb", "",
		},
		{annsSocks, "8.8.8.8", greeted + connected, "\x05\x02\x00\x02" + "\x05\x01\x00\x01\x08\x08\x08\x08\x01\xbb", ""},
		{
			"socks5://ann@proxy.example:1080", "8.8.8.8", loggedIn + connected,
			"\x05\x02\x00\x02" + "\x01\x03ann\x00" + "\x05\x01\x00\x01\x08\x08\x08\x08\x01\xbb", "",
		},
	} {
		said := &tape{answers: []byte(each.answers)}
		err := handshake(said, proxy(t, each.proxy), each.host, 443)
		if err != nil || string(said.sent) != each.sent || string(said.answers) != each.left {
			t.Errorf("%s to %s sends %q and leaves %q, %v", each.proxy, each.host, said.sent, said.answers, err)
		}
	}
}

func TestSocksTakesTheWholeAnswerWhateverAddressItNames(t *testing.T) {
	for _, address := range []string{
		"\x01" + strings.Repeat("\x00", 6), "\x03\x03abc\x00\x00", "\x03\x00\x00\x00", "\x04" + strings.Repeat("\x00", 18),
	} {
		said := &tape{answers: []byte(greeted + "\x05\x00\x00" + address + "!")}
		if err := handshake(said, proxy(t, plainSocks), "a.example", 443); err != nil || string(said.answers) != "!" {
			t.Errorf("%q leaves %q, %v", address, said.answers, err)
		}
	}
}

func TestAProxyThatRefusesOrLiesIsToldAsThat(t *testing.T) {
	const liesHTTP, liesSocks = "it does not answer as a proxy of HTTP does", "it does not answer as a proxy of SOCKS5 does"
	for _, each := range []struct{ proxy, answers, want string }{
		{plainHTTP, "HTTP/1.1 407 Who are you\r\n\r\n", "it does not take the user and password (407)"},
		{plainHTTP, "HTTP/1.1 403 <script>\r\n\r\n", "it answers 403"},
		{plainHTTP, "HTTP/1.1 302 Found\r\nLocation: http://evil\r\n\r\n", "it answers 302"},
		{plainHTTP, "HTTP/1.1 101 Switching\r\n\r\n", "it answers 101"},
		{plainHTTP, "HTTP/2 200 OK\r\n\r\n", liesHTTP},
		{plainHTTP, "HTTP/1.1 0200 OK\r\n\r\n", liesHTTP},
		{plainHTTP, "HTTP/1.1 200 OK\nX: y\r\n\r\n", liesHTTP},
		{plainHTTP, "HTTP/1.1 \u0662\u0660\u0660 OK\r\n\r\n", liesHTTP},
		{plainHTTP, "SSH-2.0-x\r\n\r\n", liesHTTP},
		{plainHTTP, "\r\n\r\n", liesHTTP},
		{plainHTTP, strings.Repeat("x", LongestHeadBytes), "its answer is too long"},
		{plainHTTP, strings.Repeat("HTTP/1.1 100 \r\n\r\n", 2000), "its answer is too long"},
		{plainHTTP, strings.Repeat("HTTP/1.1 100\r\n\r\n", 1024), "its answer is too long"},
		{annsSocks, "\x04\x00", liesSocks},
		{annsSocks, "HT", liesSocks},
		{annsSocks, "\x05\xff", "it wants another login than it is given"},
		{annsSocks, "\x05\x01", "it chooses a login that was not offered"},
		{plainSocks, "\x05\x02", "it chooses a login that was not offered"},
		{annsSocks, "\x05\x02\x01\x01", "it does not take the user and password"},
		{annsSocks, "\x05\x02\x05\x00", "it does not take the user and password"},
		{annsSocks, greeted + "\x04\x00\x00\x01", liesSocks},
		{annsSocks, greeted + "\x05\x00\x00\x02", "it names an address of an unknown kind"},
		{annsSocks, greeted + "\x05\x02\x00\x01\x00\x00\x00\x00\x00\x00", "its rules do not allow it"},
		{annsSocks, greeted + "\x05\x05\x00\x01\x00\x00\x00\x00\x00\x00", "the connection was refused"},
		{annsSocks, greeted + "\x05\xee\x00\x01\x00\x00\x00\x00\x00\x00", "it answers 238"},
	} {
		said := &tape{answers: []byte(each.answers)}
		err := handshake(said, proxy(t, each.proxy), "a.example", 443)
		var refused *ProxyError
		if !errors.As(err, &refused) || refused.Reason != each.want {
			t.Errorf("%s that answers %.40q is told as %v", each.proxy, each.answers, err)
		}
		if each.proxy == plainSocks && strings.Contains(string(said.sent), "s3cr3t") {
			t.Errorf("a login that was not offered is sent")
		}
	}
}

func TestAProxyThatSaysTooLittleHasEndedTheConnection(t *testing.T) {
	whole := loggedIn + "\x05\x00\x00\x03\x03abc\x00\x00"
	for end := range whole {
		err := handshake(&tape{answers: []byte(whole[:end])}, proxy(t, annsSocks), "a.example", 443)
		var refused *ProxyError
		if err == nil || errors.As(err, &refused) {
			t.Errorf("%q is told as %v", whole[:end], err)
		}
	}
}

func FuzzHandshake(f *testing.F) {
	proxies := []string{plainHTTP, plainSocks, annsSocks}
	for i := range proxies {
		for _, answers := range []string{
			"", "HTTP/1.1 200\r\n\r\nx", "HTTP/1.1 1\r\n\r\n", greeted, greeted + connected, loggedIn + "\x05\x00\x00\x03\xff",
		} {
			f.Add(i, []byte(answers))
		}
	}
	f.Fuzz(func(t *testing.T, which int, answers []byte) {
		if which < 0 || which >= len(proxies) {
			return
		}
		said := &tape{answers: slices.Clone(answers)}
		err := handshake(said, proxy(t, proxies[which]), "a.example", 443)
		if err == nil && !bytes.HasSuffix(answers, said.answers) {
			t.Errorf("%q leaves %q", answers, said.answers)
		}
		var refused *ProxyError
		if errors.As(err, &refused) && len(refused.Reason) > 60 {
			t.Errorf("the proxy has chosen the text %q", refused.Reason)
		}
	})
}
