package envd

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"encoding/json"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"atoll/agent/process"
	"atoll/agent/settings"
	"atoll/agent/system"
	accounts "atoll/agent/user"
)

var table = sync.OnceValue(process.NewTable)

func serve(t *testing.T) (server *httptest.Server, api *API) {
	t.Helper()
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	passwd := "me:x:" + me.Uid + ":" + me.Gid + "::" + t.TempDir() + ":/bin/sh\n"
	if err := os.MkdirAll(filepath.Join(root, "etc"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "etc/passwd"), []byte(passwd), 0o644); err != nil {
		t.Fatal(err)
	}
	known := settings.New(&accounts.Database{Root: root})
	name := "me"
	known.Apply(settings.Change{User: &name})
	api = &API{Settings: known, Table: table(), System: &system.System{Root: root}}
	mux := http.NewServeMux()
	api.Register(mux)
	server = httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server, api
}

func call(t *testing.T, request *http.Request) (int, http.Header, string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableCompression: true, DisableKeepAlives: true}}
	answer, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, answer.Header, string(body)
}

func ask(t *testing.T, server *httptest.Server, procedure, body string) (int, string) {
	t.Helper()
	status, _, text := call(t, post(server.URL+procedure, "application/json", body))
	return status, text
}

func post(target, kind, body string) *http.Request {
	request := httptest.NewRequest(http.MethodPost, target, strings.NewReader(body))
	request.RequestURI = ""
	request.Header.Set("Content-Type", kind)
	return request
}

func envelope(text string) string {
	head := make([]byte, 5)
	binary.BigEndian.PutUint32(head[1:], uint32(len(text)))
	return string(head) + text
}

func messages(t *testing.T, text string) []string {
	t.Helper()
	var found []string
	for len(text) > 0 {
		size := int(binary.BigEndian.Uint32([]byte(text[1:5])))
		found = append(found, string('0'+text[0])+text[5:5+size])
		text = text[5+size:]
	}
	return found
}

func run(t *testing.T, server *httptest.Server, line string) []string {
	t.Helper()
	config, _ := json.Marshal(map[string]any{"process": map[string]any{"cmd": "/bin/sh", "args": []string{"-c", line}}})
	_, _, body := call(t, post(server.URL+"/process.Process/Start", streamType, envelope(string(config))))
	return messages(t, body)
}

func TestAProcessIsAStreamOfEvents(t *testing.T) {
	server, _ := serve(t)
	got := run(t, server, "echo hi; exit 3")
	if !strings.HasPrefix(got[0], `0{"event":{"start":{"pid":`) || got[1] != `0{"event":{"data":{"stdout":"aGkK"}}}` ||
		got[2] != `0{"event":{"end":{"exitCode":3,"exited":true,"status":"exit status 3","error":"exit status 3"}}}` ||
		got[3] != `2{}` {
		t.Fatal(got)
	}
}

func TestAFailedStreamEndsWithItsError(t *testing.T) {
	server, _ := serve(t)
	body := envelope(`{"process":{"cmd":"true","cwd":"/no/such"}}`)
	status, _, text := call(t, post(server.URL+"/process.Process/Start", streamType, body))
	if got := messages(t, text); status != http.StatusOK || len(got) != 1 ||
		got[0] != `2{"error":{"code":"invalid_argument","message":"cwd '/no/such' does not exist"}}` {
		t.Fatal(status, got)
	}
}

func TestTheCallsTimeKillsTheProcess(t *testing.T) {
	server, _ := serve(t)
	request := post(server.URL+"/process.Process/Start", streamType, envelope(`{"process":{"cmd":"sleep","args":["600"]}}`))
	request.Header.Set("Connect-Timeout-Ms", "200")
	_, _, text := call(t, request)
	if got := messages(t, text); !strings.Contains(got[len(got)-1], `"deadline_exceeded"`) {
		t.Fatal(got)
	}
}

func TestUnaryErrorsHaveTheirStatusAndCode(t *testing.T) {
	server, _ := serve(t)
	for _, c := range []struct {
		procedure, body, code string
		status                int
	}{
		{"/filesystem.Filesystem/Stat", `{"path":"/no/such"}`, "not_found", 404},
		{"/filesystem.Filesystem/ListDir", `{"path":"/etc/passwd"}`, "invalid_argument", 400},
		{"/filesystem.Filesystem/MakeDir", `{"path":"/tmp"}`, "already_exists", 409},
		{"/filesystem.Filesystem/GetWatcherEvents", `{"watcherId":"x"}`, "not_found", 404},
		{"/process.Process/SendSignal", `{"process":{"pid":1073741824},"signal":"SIGNAL_SIGKILL"}`, "not_found", 404},
		{"/process.Process/SendInput", `{"process":{"pid":"rubbish"}}`, "invalid_argument", 400},
	} {
		status, text := ask(t, server, c.procedure, c.body)
		if status != c.status || !strings.Contains(text, `"code":"`+c.code+`"`) {
			t.Errorf("%s: %d %s", c.procedure, status, text)
		}
	}
	if status, text := ask(t, server, "/filesystem.Filesystem/Remove", `{"path":"/no/such"}`); status != 200 || text != "{}" {
		t.Error(status, text)
	}
}

func TestAnUnknownUserIsUnauthenticated(t *testing.T) {
	server, _ := serve(t)
	request := post(server.URL+"/filesystem.Filesystem/Stat", unaryType, `{"path":"/"}`)
	request.SetBasicAuth("ghost", "")
	status, _, text := call(t, request)
	if status != 401 || text != `{"code":"unauthenticated","message":"invalid username: 'ghost'"}` {
		t.Fatal(status, text)
	}
}

func TestAnEntryIsDescribedInProtobufsJSON(t *testing.T) {
	server, _ := serve(t)
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte("12345"), 0o640); err != nil {
		t.Fatal(err)
	}
	_, text := ask(t, server, "/filesystem.Filesystem/Stat", `{"path":"`+path+`","new":1}`)
	for _, wanted := range []string{`"type":"FILE_TYPE_FILE"`, `"size":"5"`, `"mode":416`, `"permissions":"-rw-r-----"`, `"owner":"me"`} {
		if !strings.Contains(text, wanted) {
			t.Errorf("%s lacks %s", text, wanted)
		}
	}
}

func TestBrowsersOfAnyOriginMayAsk(t *testing.T) {
	server, _ := serve(t)
	health := httptest.NewRequest(http.MethodGet, server.URL+"/health", nil)
	health.RequestURI = ""
	if status, header, _ := call(t, health); status != 204 || header.Get("Access-Control-Allow-Origin") != "*" {
		t.Error("health:", status, header)
	}
}

func TestFilesAreUploadedInSeveralParts(t *testing.T) {
	server, _ := serve(t)
	directory := t.TempDir()
	body := new(bytes.Buffer)
	form := multipart.NewWriter(body)
	for _, name := range []string{"a", "sub/b", "a"} {
		part, err := form.CreateFormFile("file", filepath.Join(directory, name))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(part, "in "+name); err != nil {
			t.Fatal(err)
		}
	}
	form.Close()
	status, _, text := call(t, post(server.URL+"/files", form.FormDataContentType(), body.String()))
	if status != 400 || !strings.Contains(text, "you cannot upload multiple files to the same path") {
		t.Error(status, text)
	}
	for _, name := range []string{"a", "sub/b"} {
		if got, _ := os.ReadFile(filepath.Join(directory, name)); string(got) != "in "+name {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestAFileTravelsCompressedBothWays(t *testing.T) {
	server, _ := serve(t)
	path := filepath.Join(t.TempDir(), "file")
	packed := new(bytes.Buffer)
	in := gzip.NewWriter(packed)
	if _, err := io.WriteString(in, "hello"); err != nil {
		t.Fatal(err)
	}
	in.Close()
	target := server.URL + "/files?path=" + url.QueryEscape(path)
	request := post(target, "application/octet-stream", packed.String())
	request.Header.Set("Content-Encoding", "gzip")
	if status, _, text := call(t, request); status != 200 || text != `[{"path":"`+path+`","name":"file","type":"file"}]` {
		t.Fatal(status, text)
	}
	for accept, wanted := range map[string]string{"gzip": "gzip", "gzip, br": "", "identity": "", "": ""} {
		request := httptest.NewRequest(http.MethodGet, target, nil)
		request.RequestURI = ""
		request.Header.Set("Accept-Encoding", accept)
		if _, header, _ := call(t, request); header.Get("Content-Encoding") != wanted {
			t.Errorf("%q: %q", accept, header.Get("Content-Encoding"))
		}
	}
	request = httptest.NewRequest(http.MethodGet, target, nil)
	request.RequestURI = ""
	request.Header.Set("Accept-Encoding", "identity;q=0, br")
	if status, _, _ := call(t, request); status != 406 {
		t.Error(status)
	}
	request.Header.Set("Accept-Encoding", "identity")
	request.Header.Set("Range", "bytes=1-3")
	if status, _, text := call(t, request); status != 206 || text != "ell" {
		t.Error(status, text)
	}
}
