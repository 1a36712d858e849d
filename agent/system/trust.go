package system

import (
	"encoding/pem"
	"errors"
	"os"
	"strings"

	"atoll/agent/fault"
)

const (
	debianBundle = "/etc/ssl/certs/ca-certificates.crt"
	ownCA        = "/usr/local/share/ca-certificates/atoll.crt"
	caBegin      = "# atoll: begin\n"
	caEnd        = "# atoll: end\n"
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

// TrustCA adds certificates to the bundles of the system, in the place of those that it added before,
// and returns the environment in which programs with bundles of their own trust them too.
func (s *System) TrustCA(text string) (map[string]string, error) {
	text = strings.TrimSpace(text)
	if text != "" {
		if block, _ := pem.Decode([]byte(text)); block == nil {
			return nil, fault.New(fault.Invalid, "ca_pem holds no certificate")
		}
		text += "\n"
	}
	bundle := ""
	for _, path := range append([]string{debianBundle}, otherBundles...) {
		found, err := s.addTo(path, text)
		if err != nil {
			return nil, err
		}
		if found && bundle == "" {
			bundle = path
		}
	}
	if text == "" {
		return map[string]string{}, remove(s.path(ownCA))
	}
	if bundle == "" {
		bundle = debianBundle
		if err := write(s.path(bundle), caBegin+text+caEnd, 0o644); err != nil {
			return nil, err
		}
	}
	return caEnv(bundle), write(s.path(ownCA), text, 0o644)
}

func caEnv(bundle string) map[string]string {
	return map[string]string{
		"SSL_CERT_FILE": bundle, "REQUESTS_CA_BUNDLE": bundle, "PIP_CERT": bundle, "CURL_CA_BUNDLE": bundle,
		"GIT_SSL_CAINFO": bundle, "NODE_EXTRA_CA_CERTS": ownCA,
	}
}

func (s *System) addTo(path, text string) (found bool, err error) {
	path = s.path(path)
	target, err := os.Readlink(path)
	if err == nil && target != "" {
		// It leads to another of the bundles, or nowhere in an image that has none.
		_, err := os.Stat(path)
		return err == nil, nil
	}
	old, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
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

func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}
