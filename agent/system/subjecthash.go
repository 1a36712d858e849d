package system

import (
	"bytes"
	"crypto/sha1"
	"crypto/x509"
	"encoding/asn1"
	"encoding/binary"
	"fmt"
	"slices"
)

type attribute struct {
	Type  asn1.ObjectIdentifier
	Value asn1.RawValue
}

// encoding/asn1 takes a type of such a name for a SET.
type attributesSET []attribute

// The kinds of text whose canonical form OpenSSL compares.
var texts = []int{asn1.TagUTF8String, asn1.TagPrintableString, asn1.TagIA5String, asn1.TagT61String, 26}

// subjectHash is the name by which OpenSSL finds a certificate in a directory: a hash of its subject, without regard to
// upper and lower case and the amount of space.
func subjectHash(raw []byte) (string, error) {
	certificate, err := x509.ParseCertificate(raw)
	if err != nil {
		return "", err
	}
	var names []attributesSET
	if _, err := asn1.Unmarshal(certificate.RawSubject, &names); err != nil {
		return "", err
	}
	var canonical []byte
	for _, name := range names {
		for index, one := range name {
			if one.Value.Class == asn1.ClassUniversal && slices.Contains(texts, one.Value.Tag) {
				text := bytes.Join(bytes.Fields(lower(one.Value.Bytes)), []byte(" "))
				name[index].Value = asn1.RawValue{Tag: asn1.TagUTF8String, Bytes: text}
			}
		}
		encoded, err := asn1.Marshal(name)
		if err != nil {
			return "", err
		}
		canonical = append(canonical, encoded...)
	}
	sum := sha1.Sum(canonical)
	return fmt.Sprintf("%08x", binary.LittleEndian.Uint32(sum[:4])), nil
}

func lower(text []byte) []byte {
	lowered := bytes.Clone(text)
	for index, one := range lowered {
		if one >= 'A' && one <= 'Z' {
			lowered[index] = one + 'a' - 'A'
		}
	}
	return lowered
}
