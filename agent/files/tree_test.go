package files

import (
	"archive/tar"
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"atoll/agent/fault"
	"atoll/agent/user"
)

func mkfifo(path string) error { return syscall.Mkfifo(path, 0o600) }

func archive(t *testing.T, headers ...*tar.Header) *bytes.Buffer {
	t.Helper()
	body := new(bytes.Buffer)
	out := tar.NewWriter(body)
	for _, header := range headers {
		if header.Typeflag == 0 {
			header.Typeflag = tar.TypeReg
		}
		if header.Typeflag == tar.TypeReg {
			header.Size = 4
		}
		header.Mode |= 0o600
		if err := out.WriteHeader(header); err != nil {
			t.Fatal(err)
		}
		if header.Typeflag == tar.TypeReg {
			if _, err := out.Write([]byte("evil")); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	return body
}

func TestATreeComesBackAsItWas(t *testing.T) {
	w, directory := work(t)
	source, target := filepath.Join(directory, "from"), filepath.Join(directory, "to")
	put(t, w, filepath.Join(source, "sub/file"), "hello")
	if err := os.Chmod(filepath.Join(source, "sub/file"), 0o751); err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{
		os.Link(filepath.Join(source, "sub/file"), filepath.Join(source, "twin")),
		os.Symlink("/somewhere/else", filepath.Join(source, "link")),
		os.Mkdir(filepath.Join(source, "empty"), 0o755),
		os.Chmod(filepath.Join(source, "empty"), 0o555),
		mkfifo(filepath.Join(source, "pipe")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	body := new(bytes.Buffer)
	if err := w.Pack(source, body); err != nil {
		t.Fatal(err)
	}
	count, err := w.Unpack(target, body, Look{Mode: NoMode})
	if err != nil || count != 5 {
		t.Fatalf("%d, %v", count, err)
	}
	file, _ := os.Stat(filepath.Join(target, "sub/file"))
	twin, _ := os.Stat(filepath.Join(target, "twin"))
	empty, _ := os.Stat(filepath.Join(target, "empty"))
	link, _ := os.Readlink(filepath.Join(target, "link"))
	if !os.SameFile(file, twin) || file.Mode() != 0o751 || file.Size() != 5 {
		t.Errorf("file %v, twin %v", file, twin)
	}
	if empty.Mode().Perm() != 0o555 || link != "/somewhere/else" {
		t.Errorf("empty %v, link %q", empty.Mode(), link)
	}
	if _, err := os.Lstat(filepath.Join(target, "pipe")); err == nil {
		t.Error("the pipe came along")
	}
}

func TestATreeIsReadThoughPartsOfItAreRemovedMeanwhile(t *testing.T) {
	w, directory := work(t)
	source := filepath.Join(directory, "from")
	put(t, w, filepath.Join(source, "stays"), "hello")
	stop, stopped := make(chan struct{}), make(chan struct{})
	defer func() { close(stop); <-stopped }()
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				_ = os.MkdirAll(filepath.Join(source, "goes/deeper"), 0o755)
				_ = os.Symlink("nowhere", filepath.Join(source, "link"))
				_ = os.Remove(filepath.Join(source, "link"))
				_ = os.RemoveAll(filepath.Join(source, "goes"))
			}
		}
	}()
	for range 3000 {
		body := new(bytes.Buffer)
		if err := w.Pack(source, body); err != nil {
			t.Fatal(err)
		}
	}
}

func TestATreeThatCannotBeReadSaysWhyItEnds(t *testing.T) {
	w, _ := work(t)
	source, err := os.MkdirTemp("", "from")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(source)
	put(t, w, filepath.Join(source, "a"), "hello")
	for path, mode := range map[string]os.FileMode{source: 0o755, filepath.Join(source, "a"): 0} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	if os.Getuid() == 0 { // who may read everything
		w.Account = &user.Account{UID: 65534, GID: 65534, Home: "/"}
	}
	body := new(bytes.Buffer)
	if err := w.Pack(source, body); err == nil {
		t.Fatal("no error")
	}
	if body.Len()%512 != 0 {
		t.Errorf("%d bytes are no whole blocks", body.Len())
	}
	header, err := tar.NewReader(body).Next()
	if err != nil || header.Typeflag != tar.TypeXGlobalHeader {
		t.Fatalf("%v, %v", header, err)
	}
	if told := header.PAXRecords[FaultRecord]; !strings.Contains(told, `"code":"denied"`) {
		t.Errorf("told %q", told)
	}
}

func TestATarCannotReachOutOfItsDirectory(t *testing.T) {
	outside := t.TempDir()
	for name, headers := range map[string][]*tar.Header{
		"dots":     {{Name: "../victim"}},
		"deep":     {{Name: "a/../../victim"}},
		"absolute": {{Name: filepath.Join(outside, "victim")}},
		"symlink":  {{Name: "way", Typeflag: tar.TypeSymlink, Linkname: outside}, {Name: "way/victim"}},
		"relative": {{Name: "way", Typeflag: tar.TypeSymlink, Linkname: ".."}, {Name: "way/victim"}},
		"hardlink": {{Name: "in", Typeflag: tar.TypeLink, Linkname: "../../precious"}},
		"linkabs":  {{Name: "in", Typeflag: tar.TypeLink, Linkname: filepath.Join(outside, "precious")}},
		"through": {
			{Name: "way", Typeflag: tar.TypeSymlink, Linkname: outside},
			{Name: "in", Typeflag: tar.TypeLink, Linkname: "way/precious"},
		},
		"own":    {{Name: "way", Typeflag: tar.TypeSymlink, Linkname: outside}, {Name: "way/", Typeflag: tar.TypeDir}, {Name: "way/victim"}},
		"mkdir":  {{Name: "way", Typeflag: tar.TypeSymlink, Linkname: outside}, {Name: "way/victim/", Typeflag: tar.TypeDir}},
		"device": {{Name: "null", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 3}},
		"fifo":   {{Name: "pipe", Typeflag: tar.TypeFifo}},
		"huge":   {{Name: strings.Repeat("n", 5000)}},
	} {
		w, directory := work(t)
		if err := os.WriteFile(filepath.Join(outside, "precious"), []byte("gold"), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := w.Unpack(filepath.Join(directory, "in/side"), archive(t, headers...), Look{Mode: NoMode})
		if refused := code(err); refused != fault.Invalid && (refused != fault.FileFailed || name != "huge") {
			t.Errorf("%s: %v", name, err)
		}
		for _, path := range []string{filepath.Join(outside, "victim"), filepath.Join(directory, "victim"), filepath.Join(directory, "in/victim")} {
			if _, err := os.Lstat(path); err == nil {
				t.Errorf("%s made %s", name, path)
			}
		}
		if text, _ := os.ReadFile(filepath.Join(outside, "precious")); string(text) != "gold" {
			t.Errorf("%s changed a file outside", name)
		}
	}
}

func TestADirectoryOfATarGoesThroughALinkThatWasThere(t *testing.T) {
	w, directory := work(t)
	elsewhere := t.TempDir()
	put(t, w, filepath.Join(directory, "usr/bin/sh"), "shell")
	for _, err := range []error{
		os.Symlink("usr/bin", filepath.Join(directory, "bin")),
		os.Symlink(elsewhere, filepath.Join(directory, "man")),
		os.Chmod(filepath.Join(directory, "usr/bin"), 0o711),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	body := archive(t,
		&tar.Header{Name: "bin/", Typeflag: tar.TypeDir, Mode: 0o777}, &tar.Header{Name: "bin/tool"},
		&tar.Header{Name: "man/new/", Typeflag: tar.TypeDir, Mode: 0o750}, &tar.Header{Name: "man/new/page"},
		&tar.Header{Name: "twin", Typeflag: tar.TypeLink, Linkname: "man/new/page"},
	)
	if _, err := w.Unpack(directory, body, Look{Mode: NoMode}); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"usr/bin/sh", "usr/bin/tool", "man/new/page", "twin"} {
		if _, err := os.Stat(filepath.Join(directory, path)); err != nil {
			t.Error(err)
		}
	}
	for path, mode := range map[string]os.FileMode{
		filepath.Join(directory, "bin"): os.ModeSymlink, filepath.Join(directory, "man"): os.ModeSymlink,
		filepath.Join(directory, "usr/bin"): os.ModeDir | 0o711, filepath.Join(elsewhere, "new"): os.ModeDir | 0o750,
	} {
		if info, err := os.Lstat(path); err != nil || info.Mode()&^os.FileMode(0o777) != mode&^0o777 ||
			info.IsDir() && info.Mode() != mode {
			t.Errorf("%s is %v, %v", path, info.Mode(), err)
		}
	}
}

func TestATarNeverTurnsADirectoryIntoSomethingElseNorTheOtherWayRound(t *testing.T) {
	for name, header := range map[string]*tar.Header{
		"over a file":         {Name: "file/", Typeflag: tar.TypeDir},
		"below a file":        {Name: "file/below"},
		"over a broken link":  {Name: "broken/", Typeflag: tar.TypeDir},
		"over a link to file": {Name: "link/below"},
		"file over directory": {Name: "empty"},
		"link over directory": {Name: "empty", Typeflag: tar.TypeSymlink, Linkname: "file"},
		"over another's link": {Name: "planted/x"},
	} {
		if name == "over another's link" && os.Geteuid() != 0 {
			continue
		}
		w, directory := work(t)
		put(t, w, filepath.Join(directory, "file"), "kept")
		for _, err := range []error{
			os.Mkdir(filepath.Join(directory, "empty"), 0o755),
			os.Symlink("nowhere", filepath.Join(directory, "broken")),
			os.Symlink("file", filepath.Join(directory, "link")),
			os.Symlink("empty", filepath.Join(directory, "planted")),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		if os.Geteuid() == 0 {
			if err := os.Lchown(filepath.Join(directory, "planted"), 1234, 1234); err != nil {
				t.Fatal(err)
			}
		}
		_, err := w.Unpack(directory, archive(t, header), Look{Mode: NoMode})
		way := filepath.Join(directory, strings.Split(header.Name, "/")[0])
		if err == nil || !strings.Contains(err.Error(), way) {
			t.Errorf("%s: %v does not name %s", name, err, way)
		}
		if text, _ := os.ReadFile(filepath.Join(directory, "file")); string(text) != "kept" {
			t.Errorf("%s: the file is gone", name)
		}
		if left, err := os.ReadDir(filepath.Join(directory, "empty")); err != nil || len(left) > 0 {
			t.Errorf("%s: the directory has %v, %v", name, left, err)
		}
	}
}

func TestATarReplacesALinkInsteadOfFollowingIt(t *testing.T) {
	w, directory := work(t)
	outside := filepath.Join(t.TempDir(), "precious")
	if err := os.WriteFile(outside, []byte("gold"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(directory, "file")); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Unpack(directory, archive(t, &tar.Header{Name: "file"}), Look{Mode: NoMode}); err != nil {
		t.Fatal(err)
	}
	if text, _ := os.ReadFile(outside); string(text) != "gold" {
		t.Fatal("the link was followed")
	}
}

func TestWhatIsNoTarIsRefused(t *testing.T) {
	w, directory := work(t)
	if _, err := w.Unpack(directory, strings.NewReader(strings.Repeat("rubbish", 1000)), Look{Mode: NoMode}); code(err) != fault.Invalid {
		t.Fatal(err)
	}
}

func TestATarIsUnpackedForAnotherOwnerWithAModeOfItsOwn(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root gives files away")
	}
	w, directory := work(t)
	if err := os.Mkdir(filepath.Join(directory, "there"), 0o700); err != nil {
		t.Fatal(err)
	}
	owner := &user.Account{Name: "app", UID: 1234, GID: 4321}
	body := archive(t, &tar.Header{Name: "deep/file"}, &tar.Header{Name: "link", Typeflag: tar.TypeSymlink, Linkname: "x"})
	if _, err := w.Unpack(filepath.Join(directory, "there/new"), body, Look{Owner: owner, Mode: 0o640}); err != nil {
		t.Fatal(err)
	}
	for name, uid := range map[string]uint32{"there": 0, "there/new": 1234, "there/new/deep": 1234, "there/new/deep/file": 1234, "there/new/link": 1234} {
		info, err := os.Lstat(filepath.Join(directory, name))
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Sys().(*syscall.Stat_t).Uid; got != uid {
			t.Errorf("%s belongs to %d, not to %d", name, got, uid)
		}
	}
	if info, err := os.Stat(filepath.Join(directory, "there/new/deep/file")); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("the file's mode is %v, %v", info.Mode(), err)
	}
}

func TestAFileIsPackedUnderAnotherNameAndKeepsItsOwner(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root gives files away")
	}
	w, directory := work(t)
	put(t, w, filepath.Join(directory, "real"), "hello")
	for _, err := range []error{
		os.Chown(filepath.Join(directory, "real"), 1234, 4321),
		os.Chmod(filepath.Join(directory, "real"), 0o4755|os.ModeSetuid),
		os.Symlink("real", filepath.Join(directory, "link")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	body := new(bytes.Buffer)
	if err := w.PackFile(filepath.Join(directory, "link"), "tool", body); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Unpack(filepath.Join(directory, "to"), body, Look{KeepsOwners: true, Mode: NoMode}); err != nil {
		t.Fatal(err)
	}
	info, err := os.Lstat(filepath.Join(directory, "to/tool"))
	if err != nil || info.Mode() != 0o755|os.ModeSetuid || info.Size() != 5 {
		t.Fatalf("%v, %v", info, err)
	}
	if raw := info.Sys().(*syscall.Stat_t); raw.Uid != 1234 || raw.Gid != 4321 {
		t.Errorf("it belongs to %d:%d", raw.Uid, raw.Gid)
	}
	if err := w.CheckFile(directory); code(err) != fault.Invalid && code(err) != fault.IsADirectory {
		t.Errorf("a directory: %v", err)
	}
}

func TestATarThatWasCutOffForAReasonIsRefusedWithIt(t *testing.T) {
	w, directory := work(t)
	body := new(bytes.Buffer)
	out := tar.NewWriter(body)
	records := map[string]string{FaultRecord: "no more"}
	if err := out.WriteHeader(&tar.Header{Typeflag: tar.TypeXGlobalHeader, PAXRecords: records}); err != nil {
		t.Fatal(err)
	}
	_, err := w.Unpack(directory, body, Look{Mode: NoMode})
	if code(err) != fault.Invalid || !strings.Contains(err.Error(), "no more") {
		t.Fatal(err)
	}
}
