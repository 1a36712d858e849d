package policy

// What TLS calls its records, messages and extensions.
const (
	recordHandshake    = 22
	versionTLS         = 3 // the first byte of each that is in use
	helloOfClient      = 1
	extensionName      = 0
	extensionEncrypted = 0xfe0d
	recordHeadBytes    = 5
	greetingHeadBytes  = 4
)

// span is a range of bytes, with its ends.
type span struct{ first, last byte }

// No client begins like this, and some servers go on as if it were plain TLS. A guest could have it pass as another protocol,
// and so ask a server for another name than its rules allow.
var disguises = [][]span{
	// A warning, or an empty change of ciphers, before the greeting: Go skips a warning.
	{{20, 21}, {3, 3}, {0, 4}, {0, 0}, {1, 4}, {1, 1}},
	// A greeting in a record of no known version: Go takes it. One of a known version is read before.
	{{recordHandshake, recordHandshake}, {0, 0xff}, {0, 0xff}, {0, 0x48}, {0, 0xff}, {helloOfClient, helloOfClient}},
	// A greeting in the form of SSL 2, which names no server: OpenSSL takes it.
	{{0x80, 0xff}, {0, 0xff}, {1, 1}, {3, 3}},
}

// disguise tells whether a beginning is one of these, or may become one.
func disguise(data []byte) (is, mayBe bool) {
	for _, spans := range disguises {
		count := min(len(data), len(spans))
		fits := true
		for i := range count {
			fits = fits && spans[i].first <= data[i] && data[i] <= spans[i].last
		}
		is = is || fits && count == len(spans)
		mayBe = mayBe || fits
	}
	return is, mayBe
}

// readRecords reads a greeting that may be cut into many records. It has a result only when the last record has come as a
// whole.
func readRecords(data []byte) FirstBytes {
	invalid := FirstBytes{Kind: BeginsInvalid}
	var greeting []byte
	at, missing := 0, greetingHeadBytes
	for missing > 0 {
		head := at + recordHeadBytes
		// For a greeting in tiny records, this asks for all of it at once, and does not read it again at each record.
		least := head + missing
		if at > 0 && least > FirstBytesMost {
			return invalid
		}
		if head > len(data) {
			return wanting(least)
		}
		length := int(data[at+3])<<8 | int(data[at+4])
		end := head + length
		if data[at] != recordHandshake || data[at+1] != versionTLS || length == 0 || end > FirstBytesMost {
			return invalid
		}
		if end > len(data) {
			return wanting(max(end, least))
		}
		greeting = append(greeting, data[head:end]...)
		if greeting[0] != helloOfClient {
			return invalid
		}
		at, missing = end, missingOf(greeting)
	}
	found, ok := readHello(greeting[greetingHeadBytes : len(greeting)+missing])
	if !ok {
		return invalid
	}
	return found
}

func wanting(wanted int) FirstBytes { return FirstBytes{Kind: BeginsUnclear, Wanted: wanted} }

// missingOf says how many bytes a greeting lacks; less than 0 if there are more than it has.
func missingOf(greeting []byte) int {
	if len(greeting) < greetingHeadBytes {
		return greetingHeadBytes - len(greeting)
	}
	length := int(greeting[1])<<16 | int(greeting[2])<<8 | int(greeting[3])
	return greetingHeadBytes + length - len(greeting)
}

// structure reads a structure of TLS. After its end it gives zeros, and is broken.
type structure struct {
	data   []byte
	broken bool
}

func (s *structure) take(count int) []byte {
	if count > len(s.data) {
		s.broken, s.data = true, nil
		return nil
	}
	taken := s.data[:count]
	s.data = s.data[count:]
	return taken
}

func (s *structure) number(size int) int {
	found := 0
	for _, each := range s.take(size) {
		found = found<<8 | int(each)
	}
	return found
}

// block is what follows a length of this many bytes.
func (s *structure) block(size int) structure { return structure{data: s.take(s.number(size))} }

// readHello reads what a client says first. It must name one server at most.
func readHello(data []byte) (FirstBytes, bool) {
	found := FirstBytes{Kind: BeginsTLS}
	hello := structure{data: data}
	hello.take(2 + 32) // version and random bytes
	hello.block(1)     // session
	hello.block(2)     // ciphers
	hello.block(1)     // ways to compress
	if hello.broken || len(hello.data) == 0 {
		return found, !hello.broken
	}
	named := false
	extensions := hello.block(2)
	for len(extensions.data) > 0 {
		kind, body := extensions.number(2), extensions.block(2)
		switch kind {
		case extensionEncrypted:
			found.HidesName = true
		case extensionName:
			names, ok := readNames(body)
			if !ok || named || len(names) > 1 {
				return found, false
			}
			if named = len(names) == 1; named {
				found.ServerName = names[0]
			}
		}
	}
	return found, !hello.broken && !extensions.broken
}

// readNames are the names of hosts in the extension for them.
func readNames(body structure) ([]string, bool) {
	var found []string
	names := body.block(2)
	for len(names.data) > 0 {
		kind, name := names.number(1), names.block(2)
		if kind != 0 {
			continue
		}
		for _, char := range name.data {
			if char >= 0x80 {
				return nil, false
			}
		}
		found = append(found, string(name.data))
	}
	return found, !body.broken && !names.broken
}
