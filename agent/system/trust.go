package system

import (
	"encoding/pem"
	"errors"
	"os"
	"strings"
	"syscall"

	"atoll/agent/fault"
	"atoll/agent/regular"
)

const (
	debianBundle = "/etc/ssl/certs/ca-certificates.crt"
	// All that was added, for programs that trust a file besides their own certificates.
	ownCA   = "/usr/local/share/atoll/ca.pem"
	caBegin = "# atoll: begin\n"
	caEnd   = "# atoll: end\n"
)

// otherBundles are where other distributions keep theirs.
var otherBundles = []string{
	"/etc/pki/tls/certs/ca-bundle.crt",
	"/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
	"/etc/ca-certificates/extracted/tls-ca-bundle.pem",
	"/var/lib/ca-certificates/ca-bundle.pem",
	"/etc/ssl/ca-bundle.pem",
	"/etc/ssl/cert.pem",
}

// TrustCA adds certificates to all stores of the guest's programs, in place of those that it added before, and returns the
// environment in which programs with bundles of their own trust them too; nil if the text is that of the last time.
// On a full disk it does as much as it can, and the rest the next time: a guest must start for its disk to be emptied.
func (s *System) TrustCA(text string) (map[string]string, error) {
	text = strings.TrimSpace(text)
	if s.trusted != nil && *s.trusted == text {
		return nil, nil
	}
	certificates := certificatesIn(text)
	if text != "" && len(certificates) == 0 {
		return nil, fault.New(fault.Invalid, "ca_pem holds no certificate")
	}
	full := false
	bundle, err := s.bundles(encoded(certificates))
	if err := unlessFull(err, &full); err != nil {
		return nil, err
	}
	env := map[string]string{}
	if len(certificates) > 0 {
		env = caEnv(bundle)
	}
	for _, step := range []func([][]byte) error{s.anchors, s.hashed, s.keystores, s.browsers} {
		if err := unlessFull(step(certificates), &full); err != nil {
			return nil, err
		}
	}
	if err := unlessFull(s.shells(env), &full); err != nil {
		return nil, err
	}
	if !full {
		s.trusted = &text
	}
	return env, nil
}

// unlessFull returns the error unless it says that the disk is full, which it notes.
func unlessFull(err error, noted *bool) error {
	if isFull(err) {
		*noted = true
		return nil
	}
	return err
}

func isFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

func certificatesIn(text string) [][]byte {
	var found [][]byte
	for rest := []byte(text); ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return found
		}
		if block.Type == "CERTIFICATE" {
			found = append(found, block.Bytes)
		}
	}
}

func encoded(certificates [][]byte) string {
	var text strings.Builder
	for _, raw := range certificates {
		text.Write(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw}))
	}
	return text.String()
}

func caEnv(bundle string) map[string]string {
	env := map[string]string{"NODE_EXTRA_CA_CERTS": ownCA, "DENO_CERT": ownCA}
	for _, name := range []string{
		"SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "PIP_CERT", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "CARGO_HTTP_CAINFO",
		"AWS_CA_BUNDLE", "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
	} {
		env[name] = bundle
	}
	return env
}

// bundles adds a text to every bundle of the system, and returns the one that programs are to use.
func (s *System) bundles(text string) (string, error) {
	bundle := ""
	for _, path := range append([]string{debianBundle}, otherBundles...) {
		found, err := s.addTo(path, text)
		if found && bundle == "" {
			bundle = path
		}
		if err != nil {
			return bundle, err
		}
	}
	if bundle == "" && text != "" {
		bundle = debianBundle
		if err := write(s.path(bundle), caBegin+text+caEnd, 0o644); err != nil {
			return "", err
		}
	}
	return bundle, nil
}

func (s *System) addTo(path, text string) (found bool, err error) {
	path = s.path(path)
	target, err := os.Readlink(path)
	if err == nil && target != "" {
		// It leads to another of the bundles, or nowhere in an image that has none.
		_, err := os.Stat(path)
		return err == nil, nil
	}
	old, err := regular.Read(path)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, os.ErrInvalid) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, write(path, withSection(string(old), text), 0o644)
}

func withSection(old, text string) string {
	if before, rest, found := strings.Cut(old, caBegin); found {
		_, after, _ := strings.Cut(rest, caEnd)
		old = before + after
	}
	if text == "" {
		return old
	}
	if old != "" && !strings.HasSuffix(old, "\n") {
		old += "\n"
	}
	return old + caBegin + text + caEnd
}

// Where the distributions' own programs find certificates when they make the bundles anew: of Debian and Alpine, of
// Fedora, of Arch, of SUSE.
var anchorDirectories = []string{
	"/usr/local/share/ca-certificates",
	"/etc/pki/ca-trust/source/anchors",
	"/etc/ca-certificates/trust-source/anchors",
	"/etc/pki/trust/anchors",
}

// anchors have one certificate a file, as these programs and Java's want it. The first one is the home's own; the
// others, which the host trusts too, can be very many and share a file.
func (s *System) anchors(certificates [][]byte) error {
	if err := s.put(ownCA, encoded(certificates), 0o644); err != nil {
		return err
	}
	for index, directory := range anchorDirectories {
		if index > 0 && !s.has(directory) {
			continue
		}
		first := min(1, len(certificates))
		if err := s.put(directory+"/atoll.crt", encoded(certificates[:first]), 0o644); err != nil {
			return err
		}
		if err := s.put(directory+"/atoll-host.crt", encoded(certificates[first:]), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// put writes a file, or removes it where there is nothing to write.
func (s *System) put(path, text string, mode os.FileMode) error {
	path = s.path(path)
	if text == "" {
		return remove(path)
	}
	if create(path, text, mode) == nil {
		return nil
	}
	// It is there, and perhaps as it is wanted; a full disk may say that before.
	return write(path, text, mode)
}

// create is write for a file that is not there yet, with half the calls: every sandbox waits for them.
func create(path, text string, mode os.FileMode) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	if _, err = file.WriteString(text); err == nil {
		err = file.Chmod(mode)
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return errors.Join(err, os.Remove(path)) // a part of it would mislead
	}
	return nil
}

// has tells whether there is such a directory, and no link in its place.
func (s *System) has(path string) bool {
	info, err := os.Lstat(s.path(path))
	return err == nil && info.IsDir()
}

func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
		return err
	}
	return nil
}

// hashed links the first certificate as OpenSSL looks for it in Debian's directory, where nothing names the bundle.
func (s *System) hashed(certificates [][]byte) error {
	const directory = "/etc/ssl/certs"
	if !s.has(directory) {
		return nil
	}
	link := s.path(directory + "/atoll.pem")
	if len(certificates) == 0 {
		return remove(link) // the link by its hash leads nowhere then
	}
	if err := relink(anchorDirectories[0]+"/atoll.crt", link); err != nil {
		return err
	}
	name, err := subjectHash(certificates[0])
	if err != nil {
		return nil // OpenSSL cannot read it either
	}
	byHash := s.path(directory + "/" + name + ".0")
	if _, err := os.Lstat(byHash); err == nil {
		return nil
	}
	return os.Symlink("atoll.pem", byHash)
}

func relink(target, path string) error {
	if found, err := os.Readlink(path); err == nil && found == target {
		return nil
	}
	if err := remove(path); err != nil {
		return err
	}
	return os.Symlink(target, path)
}
