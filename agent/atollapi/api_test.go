package atollapi

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"atoll/agent/hooks"
	"atoll/agent/process"
	"atoll/agent/settings"
	"atoll/agent/system"
	accounts "atoll/agent/user"
)

var table = sync.OnceValue(process.NewTable)

func serve(t *testing.T) (url, home string) {
	t.Helper()
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	root, home := t.TempDir(), t.TempDir()
	passwd := "me:x:" + me.Uid + ":" + me.Gid + "::" + home + ":/bin/sh\n"
	if err := os.MkdirAll(filepath.Join(root, "etc"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "etc/passwd"), []byte(passwd), 0o644); err != nil {
		t.Fatal(err)
	}
	known := settings.New(&accounts.Database{Root: root})
	api := &API{
		Settings: known, Table: table(), System: &system.System{Root: root}, Logins: settings.NewLogins(known, table()),
		Hooks: &hooks.Runner{Root: root, Table: table(), Settings: known},
	}
	mux := http.NewServeMux()
	api.Register(mux)
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	if status, text := call(t, "POST", server.URL+"/atoll/init", `{"user":"me","generation":7,"env":{"TIDE":"high"}}`); status != 200 {
		t.Fatal(text)
	}
	return server.URL, home
}

func call(t *testing.T, method, url, body string) (int, string) {
	t.Helper()
	request, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(text)
}

// texts joins the payloads of each type of frame.
func texts(t *testing.T, body string) map[string]string {
	t.Helper()
	found := map[string]string{}
	for len(body) > 0 {
		size := int(binary.BigEndian.Uint32([]byte(body[1:5])))
		found[body[:1]] += body[5 : 5+size]
		body = body[5+size:]
	}
	return found
}

func TestALineRunsInTheHomeWithTheEnvironmentOfTheLogin(t *testing.T) {
	url, home := serve(t)
	profile := "export FROM_PROFILE=yes TIDE=low\necho noise\n"
	if err := os.WriteFile(filepath.Join(home, ".profile"), []byte(profile), 0o600); err != nil {
		t.Fatal(err)
	}
	_, body := call(t, "POST", url+"/atoll/processes", `{"line":"echo $FROM_PROFILE $TIDE $MOON; pwd; cat; exit 5","env":{"MOON":"full"}}`)
	got := texts(t, body)
	if got["o"] != "yes high full\n"+home+"\n" || !strings.Contains(got["x"], `"exit_code":5`) {
		t.Fatal(got)
	}
}

func TestAProcessIsFollowedFedAndSignalled(t *testing.T) {
	url, _ := serve(t)
	request, err := http.NewRequest("POST", url+"/atoll/processes", strings.NewReader(`{"argv":["cat"],"stdin":true,"tag":"t"}`))
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	head := make([]byte, 5)
	if _, err := io.ReadFull(answer.Body, head); err != nil {
		t.Fatal(err)
	}
	start := make([]byte, binary.BigEndian.Uint32(head[1:]))
	if _, err := io.ReadFull(answer.Body, start); err != nil {
		t.Fatal(err)
	}
	var started struct{ PID json.Number }
	if err := json.Unmarshal(start, &started); err != nil {
		t.Fatal(err)
	}
	route := url + "/atoll/processes/" + started.PID.String()
	if _, text := call(t, "GET", url+"/atoll/processes", ""); !strings.Contains(text, `"argv":["cat"]`) || !strings.Contains(text, `"tag":"t"`) {
		t.Error(text)
	}
	if status, text := call(t, "POST", route+"/stdin?eof=1", "hello"); status != 204 {
		t.Error(status, text)
	}
	rest, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	if got := texts(t, string(rest)); got["o"] != "hello" || !strings.Contains(got["x"], `"exit_code":0`) {
		t.Error(got)
	}
	if _, body := call(t, "GET", route+"/output", ""); texts(t, body)["o"] != "hello" || texts(t, body)["x"] == "" {
		t.Error("an ended process has no output any more")
	} else if got := texts(t, body)["s"]; !strings.HasSuffix(got, `"kept":5}`) || strings.Contains(string(start), "kept") {
		t.Error("what was written before is not told:", got, string(start))
	}
	if status, text := call(t, "POST", route+"/signal", `{"signal":15}`); status != 404 || !strings.Contains(text, "process_not_found") {
		t.Error(status, text)
	}
}

func TestManyMegabytesPassWhole(t *testing.T) {
	url, _ := serve(t)
	const size = 64 << 20
	request, err := http.NewRequest("POST", url+"/atoll/processes", strings.NewReader(`{"argv":["head","-c","67108864","/dev/zero"]}`))
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	total, head := 0, make([]byte, 5)
	for {
		if _, err := io.ReadFull(answer.Body, head); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		payload := int64(binary.BigEndian.Uint32(head[1:]))
		if _, err := io.CopyN(io.Discard, answer.Body, payload); err != nil {
			t.Fatal(err)
		}
		if head[0] == 'o' {
			total += int(payload)
		}
	}
	if total != size {
		t.Fatalf("%d bytes", total)
	}
}

func TestFilesAndTreesGoInAndOut(t *testing.T) {
	url, home := serve(t)
	blob := string(bytes.Repeat([]byte{0, 255, 10}, 100_000))
	if status, text := call(t, "PUT", url+"/atoll/file?path=a/b&mode=600", blob); status != 200 || !strings.Contains(text, `"path":"`+home+`/a/b"`) {
		t.Fatal(status, text)
	}
	if _, text := call(t, "GET", url+"/atoll/file?path=~/a/b", ""); text != blob {
		t.Fatalf("%d bytes came back", len(text))
	}
	if _, text := call(t, "GET", url+"/atoll/file?path=/proc/self/cmdline", ""); text == "" {
		t.Error("a file of /proc is empty")
	}
	_, tree := call(t, "GET", url+"/atoll/tree?path=a", "")
	if status, text := call(t, "PUT", url+"/atoll/tree?path=copy", tree); status != 200 || text != `{"files":1}` {
		t.Fatal(status, text)
	}
	if got, _ := os.ReadFile(filepath.Join(home, "copy/b")); string(got) != blob {
		t.Error("the tree lost its file")
	}
	for body, wanted := range map[string]string{
		`{"op":"stat","path":"none"}`:             `"code":"file_missing"`,
		`{"op":"fly","path":"a"}`:                 `"code":"invalid"`,
		`{"op":"stat","path":"a","user":"ghost"}`: `"code":"user_unknown"`,
		`{"op":"remove","path":"copy"}`:           `{}`,
	} {
		if _, text := call(t, "POST", url+"/atoll/files", body); !strings.Contains(text, wanted) {
			t.Errorf("%s: %s", body, text)
		}
	}
}

func TestAFileThatChangesAllTheTimeIsReadWhole(t *testing.T) {
	url, home := serve(t)
	path := filepath.Join(home, "state")
	texts := []string{"connected", "while you slept"}
	long := strings.Repeat("long", 20<<10)
	for name, change := range map[string]func(turn int) error{
		// Such a file has no bytes for a moment.
		"written anew": func(turn int) error { return os.WriteFile(path, []byte(texts[turn%2]), 0o644) },
		"growing": func(turn int) error {
			if turn == 0 {
				return os.WriteFile(path, []byte(long), 0o644)
			}
			file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
			if err == nil {
				_, err = file.WriteString("more")
				file.Close()
			}
			time.Sleep(100 * time.Microsecond)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			stop, stopped := make(chan struct{}), make(chan struct{})
			defer func() { close(stop); <-stopped }()
			go func() {
				defer close(stopped)
				for turn := 0; ; turn++ {
					select {
					case <-stop:
						return
					default:
						if err := change(turn); err != nil {
							t.Error(err)
							return
						}
					}
				}
			}()
			for range 1000 {
				response, err := http.Get(url + "/atoll/file?path=state")
				if err != nil {
					t.Fatal(err)
				}
				body, err := io.ReadAll(response.Body)
				response.Body.Close()
				if err != nil {
					t.Fatal(err)
				}
				text := string(body)
				if response.StatusCode == 200 && text != "" && !slices.Contains(texts, text) && !strings.HasPrefix(text, long) {
					t.Fatalf("%d bytes", len(text))
				}
			}
		})
	}
}

func TestStatsTellTheGeneration(t *testing.T) {
	url, _ := serve(t)
	if _, text := call(t, "GET", url+"/atoll/stats", ""); !strings.Contains(text, `"generation":7`) {
		t.Fatal(text)
	}
	if status, text := call(t, "GET", url+"/atoll/nothing", ""); status != 404 || !strings.Contains(text, `"code":"invalid"`) {
		t.Fatal(status, text)
	}
}

func TestAllFramesOfAShortProgramComeAtOnceToThePatient(t *testing.T) {
	url, _ := serve(t)
	answer, err := http.Post(url+"/atoll/processes?patience_ms=600000", "application/json", strings.NewReader(`{"argv":["sh","-c","exit 6"]}`))
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	// Only an answer that is written in one piece has a known length.
	if got := texts(t, string(body)); answer.ContentLength != int64(len(body)) || !strings.Contains(got["x"], `"exit_code":6`) {
		t.Fatalf("%d %q", answer.ContentLength, body)
	}
}

func TestTheFirstFrameOfALongProgramComesWhenPatienceEnds(t *testing.T) {
	url, _ := serve(t)
	answer, err := http.Post(url+"/atoll/processes?patience_ms=1", "application/json", strings.NewReader(`{"argv":["sleep","600"]}`))
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	head := make([]byte, 5)
	if _, err := io.ReadFull(answer.Body, head); err != nil || head[0] != 's' {
		t.Fatal(head, err)
	}
	payload := make([]byte, binary.BigEndian.Uint32(head[1:]))
	if _, err := io.ReadFull(answer.Body, payload); err != nil {
		t.Fatal(err)
	}
	var started struct {
		PID int `json:"pid"`
	}
	if err := json.Unmarshal(payload, &started); err != nil {
		t.Fatal(err)
	}
	if status, text := call(t, "POST", url+"/atoll/processes/"+strconv.Itoa(started.PID)+"/signal", `{"signal":9}`); status != 204 {
		t.Fatal(text)
	}
}
