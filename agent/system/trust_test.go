package system

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func certificateOf(t *testing.T, subject pkix.Name) string {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: subject}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, public, private)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw}))
}

func TestAHashOfASubjectIsOpenSSLs(t *testing.T) {
	// As `openssl x509 -subject_hash` of versions 1 and 3 prints them.
	for hash, subject := range map[string]pkix.Name{
		"0761854f": {CommonName: "atoll sandboxes 0a1b2c3d"},
		"3ff06eb5": {CommonName: "  Two   Words ", Organization: []string{"ACME"}, Country: []string{"DE"}},
	} {
		raw := certificatesIn(certificateOf(t, subject))[0]
		if found, err := subjectHash(raw); err != nil || found != hash {
			t.Errorf("%v: %s, %v", subject, found, err)
		}
	}
}

func TestWhatMakesBundlesAnewFindsTheCertificates(t *testing.T) {
	s := &System{Root: t.TempDir()}
	first, second := certificate(t), certificate(t)
	put(t, s.Root, debianBundle, "")
	put(t, s.Root, "/etc/pki/ca-trust/source/anchors/other.crt", "theirs")
	if _, err := s.TrustCA(first + second); err != nil {
		t.Fatal(err)
	}
	for _, directory := range []string{"/usr/local/share/ca-certificates", "/etc/pki/ca-trust/source/anchors"} {
		if read(t, s, directory+"/atoll.crt") != first || read(t, s, directory+"/atoll-host.crt") != second {
			t.Error(directory)
		}
	}
	if read(t, s, ownCA) != first+second {
		t.Error("the file with all of them has others")
	}
	hashed, err := filepath.Glob(s.path("/etc/ssl/certs/*.0"))
	if err != nil || len(hashed) != 1 {
		t.Fatal(hashed, err)
	}
	if target, err := os.Readlink(s.path("/etc/ssl/certs/atoll.pem")); err != nil || target != anchorDirectories[0]+"/atoll.crt" {
		t.Fatal(target, err)
	}
	if _, err := s.TrustCA(""); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{ownCA, anchorDirectories[0] + "/atoll.crt", anchorDirectories[1] + "/atoll.crt", browserPolicies[0]} {
		if _, err := os.Lstat(s.path(path)); !os.IsNotExist(err) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func TestShellsWithoutTheAgentsEnvironmentHaveIt(t *testing.T) {
	s := &System{Root: t.TempDir()}
	put(t, s.Root, environmentFile, "LANG=\"C.UTF-8\"\n")
	put(t, s.Root, "/etc/profile.d/other.sh", "")
	put(t, s.Root, "/etc/sudoers.d/other", "")
	put(t, s.Root, debianBundle, "")
	for range 2 {
		s.trusted = nil
		if _, err := s.TrustCA(certificate(t)); err != nil {
			t.Fatal(err)
		}
	}
	text := read(t, s, environmentFile)
	if !strings.HasPrefix(text, "LANG=\"C.UTF-8\"\n"+caBegin) || strings.Count(text, "AWS_CA_BUNDLE="+debianBundle+"\n") != 1 {
		t.Error(text)
	}
	if text := read(t, s, trustProfile); !strings.Contains(text, "export PIP_CERT=\"${PIP_CERT-"+debianBundle+"}\"\n") {
		t.Error(text)
	}
	if text := read(t, s, trustSudo); !strings.HasPrefix(text, `Defaults env_keep += "AWS_CA_BUNDLE CARGO_`) {
		t.Error(text)
	}
	if _, err := s.TrustCA(""); err != nil || read(t, s, environmentFile) != "LANG=\"C.UTF-8\"\n" {
		t.Error(err)
	}
}

func TestBrowsersAreToldByPolicy(t *testing.T) {
	s := &System{Root: t.TempDir()}
	if _, err := s.TrustCA(certificate(t)); err != nil {
		t.Fatal(err)
	}
	for _, path := range browserPolicies {
		if text := read(t, s, path); !strings.HasPrefix(text, `{"CACertificates":["MI`) {
			t.Errorf("%s: %s", path, text)
		}
	}
}

const jvmStore = "/usr/lib/jvm/java-99/lib/security/cacerts"

func TestAStoreOfJavasKeepsWhatItHas(t *testing.T) {
	theirs := certificatesIn(certificate(t))[0]
	for name, store := range map[string][]byte{
		"JKS":      keystore([][]byte{jksEntry("theirs", theirs)}, nil),
		"PKCS #12": pkcs12(t, theirs),
	} {
		s := &System{Root: t.TempDir()}
		put(t, s.Root, jvmStore, string(store))
		for range 2 {
			if _, err := s.TrustCA(certificate(t)); err != nil {
				t.Fatal(err)
			}
		}
		entries, err := keystoreEntries([]byte(read(t, s, jvmStore)))
		if err != nil || len(entries) != 1 || !bytes.HasSuffix(entries[0], theirs) {
			t.Errorf("%s: %d entries, %v", name, len(entries), err)
		}
		if text := read(t, s, jvmStore); strings.Count(text, keystoreAlias) != 1 {
			t.Errorf("%s: our own certificate is there %d times", name, strings.Count(text, keystoreAlias))
		}
	}
}

func TestAStoreThatCannotBeReadStaysAsItIs(t *testing.T) {
	good := keystore([][]byte{jksEntry("theirs", []byte("der"))}, nil)
	longer := keystore([][]byte{append([]byte{0, 0, 0, 2, 0xff, 0xff}, "x"...)}, nil)
	for _, store := range [][]byte{{}, []byte("rubbish"), good[:len(good)-1], longer, keystore([][]byte{{0, 0, 0, 1}}, nil)} {
		s := &System{Root: t.TempDir()}
		put(t, s.Root, jvmStore, string(store))
		if _, err := s.TrustCA(certificate(t)); err != nil {
			t.Fatal(err)
		}
		if read(t, s, jvmStore) != string(store) {
			t.Errorf("%x changed", store)
		}
	}
}

func FuzzStoresOfJava(f *testing.F) {
	f.Add(keystore([][]byte{jksEntry("theirs", []byte("der"))}, nil))
	f.Add([]byte{0x30, 0x03, 0x02, 0x01, 0x03})
	f.Fuzz(func(t *testing.T, store []byte) {
		entries, err := keystoreEntries(store)
		if err != nil {
			return
		}
		again, err := keystoreEntries(keystore(entries, nil))
		if err != nil || len(again) != len(entries) {
			t.Fatal(len(again), len(entries), err)
		}
	})
}

// pkcs12 is a store as Java has it since version 18: without a password.
func pkcs12(t *testing.T, raw []byte) []byte {
	t.Helper()
	wrapped := func(tag int, inner []byte) asn1.RawValue {
		return asn1.RawValue{Class: asn1.ClassContextSpecific, Tag: tag, IsCompound: true, Bytes: inner}
	}
	encode := func(value any) []byte {
		encoded, err := asn1.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		return encoded
	}
	friendly := encode([]asn1.ObjectIdentifier{{1, 2, 840, 113549, 1, 9, 20}})
	bag := struct {
		Type       asn1.ObjectIdentifier
		Value      asn1.RawValue
		Attributes asn1.RawValue
	}{
		oidCertBag, wrapped(0, encode(contentInfo{oidCertificate, raw})),
		asn1.RawValue{Tag: asn1.TagSet, IsCompound: true, Bytes: friendly},
	}
	safe := encode([]any{contentInfo{oidData, encode([]any{bag})}})
	return encode(struct {
		Version int
		Safe    contentInfo
	}{3, contentInfo{oidData, safe}})
}

func TestAFullDiskIsNotedAndAnythingElseIsAnError(t *testing.T) {
	full := false
	if err := unlessFull(&os.PathError{Op: "write", Err: syscall.ENOSPC}, &full); err != nil || !full {
		t.Fatal(err, full)
	}
	full = false
	if err := unlessFull(os.ErrPermission, &full); err == nil || full {
		t.Fatal(err, full)
	}
}

func TestTrustThatIsThereAlreadyWritesNothing(t *testing.T) {
	root, text := t.TempDir(), certificate(t)
	put(t, root, debianBundle, "")
	if _, err := (&System{Root: root}).TrustCA(text); err != nil {
		t.Fatal(err)
	}
	files := func() map[string]os.FileInfo {
		found := map[string]os.FileInfo{}
		_ = filepath.WalkDir(root, func(path string, entry os.DirEntry, err error) error {
			if err == nil && !entry.IsDir() {
				found[path], _ = entry.Info()
			}
			return err
		})
		return found
	}
	before := files()
	if _, err := (&System{Root: root}).TrustCA(text); err != nil {
		t.Fatal(err)
	}
	after := files()
	if len(before) == 0 || len(after) != len(before) {
		t.Fatal(len(before), len(after))
	}
	for path, info := range before {
		if !os.SameFile(info, after[path]) || !info.ModTime().Equal(after[path].ModTime()) {
			t.Error(path)
		}
	}
}
