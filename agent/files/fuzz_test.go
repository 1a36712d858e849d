package files

import (
	"archive/tar"
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"atoll/agent/user"
)

// seeds are archives that try to leave the directory, each in its own way.
func seeds(f *testing.F) [][]byte {
	f.Helper()
	rows := [][]*tar.Header{
		{{Name: "a", Typeflag: tar.TypeReg, Size: 4}},
		{{Name: "../evil", Typeflag: tar.TypeReg, Size: 4}},
		{{Name: "l", Typeflag: tar.TypeSymlink, Linkname: ".."}, {Name: "l/evil", Typeflag: tar.TypeReg, Size: 4}},
		{{Name: "h", Typeflag: tar.TypeLink, Linkname: "../secret"}},
		{{Name: "d/", Typeflag: tar.TypeDir, Mode: 0o7777}, {Name: "d/p", Typeflag: tar.TypeFifo}},
		{{Name: "n", Typeflag: tar.TypeBlock, Devmajor: 8}},
		{{Name: strings.Repeat("x/", 20) + "y", Typeflag: tar.TypeReg, Size: 4, Format: tar.FormatPAX}},
		{{Name: "s", Typeflag: tar.TypeSymlink, Linkname: "/"}, {Name: "s", Typeflag: tar.TypeReg, Size: 4}},
	}
	var made [][]byte
	for _, headers := range rows {
		body := new(bytes.Buffer)
		out := tar.NewWriter(body)
		for _, header := range headers {
			header.Mode |= 0o600
			if err := out.WriteHeader(header); err != nil {
				f.Fatal(err)
			}
			if header.Size > 0 {
				if _, err := out.Write([]byte("evil")); err != nil {
					f.Fatal(err)
				}
			}
		}
		if err := out.Close(); err != nil {
			f.Fatal(err)
		}
		made = append(made, body.Bytes())
	}
	return made
}

func FuzzUnpackedTreesStayInTheirDirectory(f *testing.F) {
	for _, seed := range seeds(f) {
		f.Add(seed)
	}
	w := Work{Account: &user.Account{Name: "me", UID: uint32(os.Geteuid())}, Users: &user.Database{Root: f.TempDir()}}
	f.Fuzz(func(t *testing.T, data []byte) {
		top := t.TempDir()
		secret := filepath.Join(top, "secret")
		if err := os.WriteFile(secret, []byte("secret"), 0o600); err != nil {
			t.Fatal(err)
		}
		// It may well be refused.
		_, _ = w.Unpack(filepath.Join(top, "out"), bytes.NewReader(data), Look{Mode: NoMode})
		entries, err := os.ReadDir(top)
		if err != nil || len(entries) > 2 {
			t.Fatalf("%v, %v", entries, err)
		}
		if text, err := os.ReadFile(secret); err != nil || string(text) != "secret" {
			t.Fatalf("%q, %v", text, err)
		}
	})
}

func FuzzAPathIsAbsoluteAndClean(f *testing.F) {
	for _, path := range []string{"", "a", "../../a", "~", "~/a", "~root/../x", "~nobody/x", "/a//b/..", "a\x00b", "~\xff"} {
		f.Add(path)
	}
	account := &user.Account{Name: "me", Home: "/home/me"}
	users := &user.Database{Root: f.TempDir()}
	f.Fuzz(func(t *testing.T, path string) {
		found, err := Resolve(path, "/base", account, users)
		if err != nil {
			return
		}
		if !filepath.IsAbs(found) || found != filepath.Clean(found) || strings.ContainsRune(found, 0) {
			t.Fatalf("%q became %q", path, found)
		}
	})
}
