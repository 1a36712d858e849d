package system

import (
	"encoding/asn1"
	"strconv"
)

var (
	oidData        = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 7, 1}
	oidCertBag     = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 12, 10, 1, 3}
	oidCertificate = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 9, 22, 1}
)

type contentInfo struct {
	Type    asn1.ObjectIdentifier
	Content []byte `asn1:"explicit,tag:0"`
}

type pkcs12Store struct {
	Version int
	Safe    contentInfo
	MAC     asn1.RawValue `asn1:"optional"`
}

// The bytes of a value are what its tag wraps.
type safeBag struct {
	Type       asn1.ObjectIdentifier
	Value      asn1.RawValue `asn1:"explicit,tag:0"`
	Attributes asn1.RawValue `asn1:"optional,set"`
}

func pkcs12Entries(store []byte) ([][]byte, error) {
	var outer pkcs12Store
	var safes []contentInfo
	if !parsed(store, &outer) || !outer.Safe.Type.Equal(oidData) || !parsed(outer.Safe.Content, &safes) {
		return nil, errKeystore
	}
	var entries [][]byte
	for _, safe := range safes {
		var bags []safeBag
		if !safe.Type.Equal(oidData) || !parsed(safe.Content, &bags) {
			return nil, errKeystore
		}
		for _, bag := range bags {
			var found contentInfo // a certificate is wrapped like it
			if !bag.Type.Equal(oidCertBag) || !parsed(bag.Value.Bytes, &found) || !found.Type.Equal(oidCertificate) {
				return nil, errKeystore
			}
			alias := otherAlias + strconv.Itoa(len(entries)+1)
			entries = append(entries, jksEntry(alias, found.Content))
		}
	}
	return entries, nil
}

func parsed(raw []byte, into any) bool {
	rest, err := asn1.Unmarshal(raw, into)
	return err == nil && len(rest) == 0
}
