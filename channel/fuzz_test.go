package channel

import (
	"encoding/json"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// message is read with care for what is too big for it.
type message struct {
	Op    string `json:"op"`
	Port  int    `json:"port"`
	Rules []int  `json:"rules"`
	ID    int64  `json:"id"`
}

func FuzzReceive(f *testing.F) {
	for _, text := range []string{
		`{"op":"take","sandbox":"s","version":1,"connection":"c1","name":"a.x","address":"192.0.2.1","port":443,"rules":[0,1]}`,
		`{"op":"rules","rules":[-1,99999999999]}`, `{"op":"dialled","id":1,"error":"x","refused":true}`, `{}`, `[]`, `null`, "", "\xff",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) == 0 || len(data) > messageMost {
			return // an empty message is the end
		}
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		link, err := Open(os.NewFile(uintptr(pair[0]), "channel"))
		if err != nil {
			t.Fatal(err)
		}
		defer link.Close()
		defer unix.Close(pair[1])
		if _, err := unix.Write(pair[1], data); err != nil {
			t.Fatal(err)
		}
		var got, other message
		files, err := link.Receive(&got)
		if files != nil {
			t.Error("there is a descriptor")
		}
		if want := json.Unmarshal(data, &other); (want == nil) != (err == nil) || err == nil && got.Op != other.Op {
			t.Errorf("%q: %v, %v", data, err, want)
		}
	})
}

func FuzzContent(f *testing.F) {
	for _, text := range []string{
		`{"rules":[{"action":"allow"}],"secrets":{"a":"b\ud83d\ude00"},"bound":{"a":["*.x"]},"canaries":["c"],"observe":true}`,
		`{"secrets":{"a":1}}`, `{"canaries":[null]}`, `{"rules":{}}`, "", `"\u`, `{"secrets":{"a":"\u12"}}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		fd, err := unix.MemfdCreate("content", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := unix.Write(fd, data); err != nil {
			t.Fatal(err)
		}
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_WRITE|unix.F_SEAL_SHRINK|unix.F_SEAL_GROW); err != nil {
			t.Fatal(err)
		}
		var policy struct {
			Rules   []json.RawMessage `json:"rules"`
			Secrets map[string]string `json:"secrets"`
			Observe bool              `json:"observe"`
		}
		if err := Content(os.NewFile(uintptr(fd), "content"), &policy); err == nil && !json.Valid(data) {
			t.Errorf("%q was read", data)
		}
	})
}
