package user

import (
	"os"
	"path/filepath"
	"testing"
)

// Root of the guest writes these files, and so does whoever made its image.
func FuzzAccountsAreReadFromAnyText(f *testing.F) {
	f.Add("root:x:0:0:root:/root:/bin/sh\n", "root:x:0:\n", "root")
	f.Add("u:x:4294967295:99999999999::::\n:::::::\n", "g:x:-1:u,u,,u\n", "4294967295")
	f.Add("a:x:1:1::/:/bin/sh\x00\na:x:0:0::/:/bin/sh", "a:x:1:a\n#", "a")
	f.Fuzz(func(t *testing.T, passwd, group, name string) {
		root := t.TempDir()
		if err := os.Mkdir(filepath.Join(root, "etc"), 0o755); err != nil {
			t.Fatal(err)
		}
		for file, text := range map[string]string{"passwd": passwd, "group": group} {
			if err := os.WriteFile(filepath.Join(root, "etc", file), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		known := &Database{Root: root}
		if account, err := known.Lookup(name); err == nil && (account.Home == "" || account.Shell == "") {
			t.Fatalf("%+v", account)
		}
		if _, err := known.Lookup("0"); err != nil {
			t.Fatal("there is always root:", err)
		}
		_ = known.OwnerName(7) + known.GroupName(7)
	})
}
