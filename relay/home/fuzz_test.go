package home

import (
	"encoding/json"
	"os"
	"testing"

	"atoll/channel"
	"atoll/relay/control"
)

// FuzzRequest asks a home with a link for anything, with any content. It must refuse or do it, and go on.
func FuzzRequest(f *testing.F) {
	for _, each := range [][2]string{
		{`{"op":"hello","id":1,"protocol":2}`, ``}, {`{"op":"rules","link":"one","sandbox":"s"}`, `{"own":{"rules":[]}}`},
		{`{"op":"settings"}`, `{"nameservers":["::1"],"foreign":["10.0.0.0/8"],"proxy_patience_ms":1}`},
		{`{"op":"take_over","link":"one"}`, `[{"address":"198.18.0.1","name":"a.x"},{"address":"","name":"\u0000"}]`},
		{`{"op":"ask","link":"one","what":"kept"}`, `[{"guest_port":1,"address":"::ffff:1.2.3.4","port":65535}]`},
		{`{"op":"reached","id":1}`, `{}`}, {`{"op":"mend","link":"one"}`, ``}, {`{"op":"link","link":"two"}`, `0`},
		{`{"op":"cut","link":"one"}`, ``}, {`{"op":"edge"}`, `null`}, {`{"op":"ask","link":"one","what":"names"}`, ``},
	} {
		f.Add([]byte(each[0]), []byte(each[1]))
	}
	home, link := fuzzed(f)
	f.Fuzz(func(t *testing.T, request, content []byte) {
		var message control.Message
		if json.Unmarshal(request, &message) != nil || message.Op == "unlink" {
			return
		}
		var files []*os.File
		if json.Valid(content) {
			file, err := channel.Sealed(json.RawMessage(content))
			must(t, err)
			files = append(files, file)
		}
		asker := &peer{home: home}
		if _, err := asker.handle(&message, files); message.Op == "rules" && message.Link == "one" && err != nil {
			if found := link.egress.Bounds().Name("a.example.com"); found.Action == "allow" {
				t.Errorf("rules that fail with %v allow a name", err)
			}
		}
		home.owner = nil
	})
}

// fuzzed is a home with a link that is not served.
func fuzzed(f *testing.F) (*Home, *Link) {
	f.Helper()
	home := New(Parts{Kernel: &fakeKernel{}, User: os.Getuid()})
	f.Cleanup(home.close)
	made := makeLine(f)
	files := made.files(f)
	must(f, home.add("one", files))
	link, err := home.link("one")
	must(f, err)
	return home, link
}
