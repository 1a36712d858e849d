package nameserver

import (
	"bytes"
	"encoding/binary"
	"strings"

	"atoll/policy"
	"atoll/relay/resolve"
)

const (
	headerBytes        = 12
	response           = 0x8000
	opcode             = 0x7800
	recursionDesired   = 0x0100
	recursionAvailable = 0x0080
)

// isQuery tells whether a message is a standard query with one question. The rest of it is not read.
func isQuery(message []byte) bool {
	return len(message) >= headerBytes && flags(message)&(response|opcode) == 0 && questions(message) == 1 &&
		resolve.Question(message) != nil
}

// modelsLabels is the name of the gateway of models as messages have it.
var modelsLabels = labels(policy.ModelsName)

func labels(name string) []byte {
	var made []byte
	for label := range strings.SplitSeq(name, ".") {
		made = append(append(made, byte(len(label))), label...)
	}
	return append(made, 0)
}

// asksForModels tells whether the question of a query is about the gateway of models.
func asksForModels(message []byte) bool {
	end := headerBytes + len(modelsLabels)
	return len(message) >= end && bytes.EqualFold(message[headerBytes:end], modelsLabels)
}

// failure is a negative answer. It is nil for a message that deserves none: a part of a header, or a response. It is never
// longer than the message, so nobody can use it to amplify traffic.
func failure(message []byte, code uint16) []byte {
	if len(message) < headerBytes || flags(message)&response != 0 {
		return nil
	}
	question := resolve.Question(message)
	reply := make([]byte, headerBytes, headerBytes+len(question))
	copy(reply, message[:2])
	kept := flags(message) & (opcode | recursionDesired)
	binary.BigEndian.PutUint16(reply[2:], response|kept|recursionAvailable|code)
	if question != nil {
		binary.BigEndian.PutUint16(reply[4:], 1)
	}
	return append(reply, question...)
}

func flags(message []byte) uint16     { return binary.BigEndian.Uint16(message[2:]) }
func questions(message []byte) uint16 { return binary.BigEndian.Uint16(message[4:]) }
