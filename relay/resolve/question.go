// Package resolve asks the host's nameservers.
package resolve

import (
	"bytes"
	"encoding/binary"

	"github.com/miekg/dns"
)

const (
	headerBytes = 12
	nameMost    = 255
	labelMost   = 63
	response    = 0x8000
	truncated   = 0x0200
	codeMask    = 0x000f
)

// Question gives the bytes of the first question of a message: its name, type and class. It is nil if there is none that ends
// in the message. A name that points elsewhere is none.
//
// Messages are passed on as they came, so they are not unpacked: what the library makes of one need not be what it was.
func Question(message []byte) []byte {
	at := headerBytes
	for at < len(message) && message[at] != 0 {
		if message[at] > labelMost {
			return nil
		}
		at += 1 + int(message[at])
	}
	end := at + 5
	if end > len(message) || at+1-headerBytes > nameMost {
		return nil
	}
	return message[headerBytes:end]
}

// answers tells whether a reply has the id and the question of a query.
func answers(query, reply []byte) bool {
	if len(reply) < headerBytes || !bytes.Equal(query[:2], reply[:2]) || flags(reply)&response == 0 {
		return false
	}
	if binary.BigEndian.Uint16(reply[4:]) == 0 {
		return flags(reply)&codeMask != 0
	}
	asked, answered := Question(query), Question(reply)
	return asked != nil && answered != nil && isSame(asked, answered)
}

// isSame compares names in any case of ASCII letters. That type and class are lowered too does no harm.
func isSame(one, other []byte) bool {
	if len(one) != len(other) {
		return false
	}
	for i := range one {
		if lowered(one[i]) != lowered(other[i]) {
			return false
		}
	}
	return true
}

func lowered(char byte) byte {
	if 'A' <= char && char <= 'Z' {
		return char + 'a' - 'A'
	}
	return char
}

// isUnwilling tells whether another nameserver may know better.
func isUnwilling(reply []byte) bool {
	switch flags(reply) & codeMask {
	case dns.RcodeServerFailure, dns.RcodeNotImplemented, dns.RcodeRefused:
		return true
	}
	return false
}

func flags(message []byte) uint16 { return binary.BigEndian.Uint16(message[2:]) }
