package system

import (
	"bytes"
	"crypto/sha1"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"unicode/utf16"

	"atoll/agent/regular"
)

// The stores of Java's authorities: the one that Debian's and Fedora's share, and those of other JVMs.
var keystoreFiles = []string{
	"/etc/ssl/certs/java/cacerts",
	"/etc/pki/ca-trust/extracted/java/cacerts",
	"/usr/lib/jvm/*/lib/security/cacerts",
	"/usr/lib/jvm/*/jre/lib/security/cacerts",
	"/usr/local/openjdk-*/lib/security/cacerts",
	"/usr/local/openjdk-*/jre/lib/security/cacerts",
	"/usr/java/*/lib/security/cacerts",
	"/opt/*/lib/security/cacerts",
	"/opt/*/*/lib/security/cacerts",
	"/root/.sdkman/candidates/java/*/lib/security/cacerts",
	"/home/*/.sdkman/candidates/java/*/lib/security/cacerts",
}

const (
	keystoreMost     = 8 << 20
	keystorePassword = "changeit" // everybody's
	keystoreAlias    = "atoll-"
	otherAlias       = "store-"
	jksMagic         = 0xfeedfeed
	jksTrusted       = 2
)

// keystores adds certificates to the stores of installed JVMs, in the place of those that it added before. A store that
// cannot be read stays as it is: it has another password, or is none.
func (s *System) keystores(certificates [][]byte) error {
	for _, pattern := range keystoreFiles {
		paths, err := filepath.Glob(s.path(pattern))
		if err != nil {
			return err
		}
		for _, path := range paths {
			info, err := os.Lstat(path)
			if err != nil || !info.Mode().IsRegular() || info.Size() > keystoreMost {
				continue // a link leads to another of them
			}
			old, err := regular.Read(path)
			if err != nil {
				continue
			}
			entries, err := keystoreEntries(old)
			if err != nil {
				continue
			}
			if err := write(path, string(keystore(entries, certificates)), info.Mode().Perm()); err != nil {
				return err
			}
		}
	}
	return nil
}

// keystoreEntries are what others put into a store, each as it is written in Java's older format, which every version
// reads. Stores in the newer format, PKCS #12, must be unencrypted, as they come with a JVM.
func keystoreEntries(store []byte) ([][]byte, error) {
	if len(store) > 12 && binary.BigEndian.Uint32(store) == jksMagic {
		return jksEntries(store)
	}
	return pkcs12Entries(store)
}

var errKeystore = errors.New("no store of trusted certificates")

func jksEntries(store []byte) ([][]byte, error) {
	end := len(store) - sha1.Size
	if end < 12 || binary.BigEndian.Uint32(store[4:]) != 2 || !bytes.Equal(jksSum(store[:end]), store[end:]) {
		return nil, errKeystore
	}
	body := &reader{rest: store[12:end]}
	var entries [][]byte
	for len(body.rest) > 0 && !body.short {
		start := body.rest
		tag := body.number(4)
		alias := string(body.take(body.number(2)))
		body.take(8) // when it was made
		if tag != jksTrusted {
			return nil, errKeystore // a key of somebody
		}
		body.take(body.number(2)) // "X.509"
		body.take(body.number(4))
		if !strings.HasPrefix(alias, keystoreAlias) {
			entries = append(entries, start[:len(start)-len(body.rest)])
		}
	}
	if body.short {
		return nil, errKeystore
	}
	return entries, nil
}

func keystore(entries, certificates [][]byte) []byte {
	var body []byte
	body = binary.BigEndian.AppendUint32(body, jksMagic)
	body = binary.BigEndian.AppendUint32(body, 2)
	body = binary.BigEndian.AppendUint32(body, uint32(len(entries)+len(certificates)))
	for _, entry := range entries {
		body = append(body, entry...)
	}
	for index, raw := range certificates {
		body = append(body, jksEntry(keystoreAlias+strconv.Itoa(index+1), raw)...)
	}
	return append(body, jksSum(body)...)
}

func jksEntry(alias string, raw []byte) []byte {
	entry := binary.BigEndian.AppendUint32(nil, jksTrusted)
	entry = jksText(entry, alias)
	entry = binary.BigEndian.AppendUint64(entry, 0)
	entry = jksText(entry, "X.509")
	entry = binary.BigEndian.AppendUint32(entry, uint32(len(raw)))
	return append(entry, raw...)
}

func jksText(to []byte, text string) []byte {
	return append(binary.BigEndian.AppendUint16(to, uint16(len(text))), text...)
}

func jksSum(body []byte) []byte {
	sum := sha1.New()
	for _, unit := range utf16.Encode([]rune(keystorePassword)) {
		sum.Write(binary.BigEndian.AppendUint16(nil, unit))
	}
	sum.Write([]byte("Mighty Aphrodite"))
	sum.Write(body)
	return sum.Sum(nil)
}

// reader takes numbers and bytes from the front; short says that there were too few.
type reader struct {
	rest  []byte
	short bool
}

func (r *reader) take(count int) []byte {
	if count < 0 || count > len(r.rest) {
		r.short, r.rest = true, nil
		return nil
	}
	taken := r.rest[:count]
	r.rest = r.rest[count:]
	return taken
}

func (r *reader) number(size int) int {
	value := 0
	for _, one := range r.take(size) {
		value = value<<8 | int(one)
	}
	return value
}
