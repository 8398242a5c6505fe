package proxy

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
)

const (
	// maxHello bounds a ClientHello. With post-quantum keys they have two thousand
	// bytes, with large session tickets ten, with several of both more than a record. With its records it fits in a
	// large buffer.
	maxHello = 60 << 10
	// maxRecord is what a record may hold (RFC 8446, 5.1).
	maxRecord = 1 << 14

	recordHandshake    = 22
	messageClientHello = 1
	extServerName      = 0
	extECH             = 0xfe0d // draft-ietf-tls-esni, RFC 9849
	nameTypeHost       = 0
)

// errMore says that a ClientHello is not complete.
var errMore = errors.New("the ClientHello goes on")

// clientHello is what a proxy needs to know of one.
type clientHello struct {
	serverName string // as sent, "" without one
	ech        bool   // the server name may not be the one that the server will take
}

// helloReader reads a ClientHello in as many records as it comes. It is strict: what two
// readers could understand in two ways is an error.
type helloReader struct {
	next    int    // where in the stream the next record begins
	message []byte // what the records before it held
}

// read is called with the stream from its beginning, each time with more of it, until it
// says something else than errMore. It looks at each byte once.
func (h *helloReader) read(stream []byte) (clientHello, error) {
	for {
		body, err := h.record(stream)
		if err != nil {
			return clientHello{}, err
		}
		message := body // all of it, nearly always
		if h.message != nil {
			h.message = append(h.message, body...)
			message = h.message
		}
		if message, err = whole(message); err == nil {
			return parseMessage(message)
		}
		if !errors.Is(err, errMore) {
			return clientHello{}, err
		}
		if h.message == nil {
			h.message = bytes.Clone(body) // the stream may be elsewhere in the next call
		}
	}
}

// record is what the next record holds.
func (h *helloReader) record(stream []byte) ([]byte, error) {
	const header = 5 // type, version, length
	r := stream[h.next:]
	if len(r) < header {
		return nil, errMore
	}
	length := int(binary.BigEndian.Uint16(r[3:]))
	switch {
	case r[0] != recordHandshake:
		return nil, fmt.Errorf("record of type %d within the ClientHello", r[0])
	case r[1] != 3:
		return nil, fmt.Errorf("record of version %d.%d", r[1], r[2])
	case length == 0 || length > maxRecord:
		return nil, fmt.Errorf("record of %d bytes", length)
	case len(r) < header+length:
		return nil, errMore
	}
	h.next += header + length
	return r[header : header+length], nil
}

// whole is the body of the message m, once that is complete.
func whole(m []byte) ([]byte, error) {
	const header = 4 // type, 24 bits of length
	if len(m) < header {
		return nil, errMore
	}
	if m[0] != messageClientHello {
		return nil, fmt.Errorf("handshake message %d instead of a ClientHello", m[0])
	}
	length := int(m[1])<<16 | int(binary.BigEndian.Uint16(m[2:]))
	if length > maxHello {
		return nil, fmt.Errorf("%w: a ClientHello of %d bytes, of which %d are read", errTooLong, length, maxHello)
	}
	if len(m) < header+length {
		return nil, errMore
	}
	return m[header : header+length], nil
}

func parseMessage(message []byte) (clientHello, error) {
	var h clientHello
	b := reader{b: message}
	b.skip(2 + 32) // version, random
	b.vector(1)    // session id
	b.vector(2)    // cipher suites
	b.vector(1)    // compression methods
	if b.empty() { // TLS 1.2 without extensions
		return h, b.err
	}
	extensions := b.vector(2)
	if b.err == nil && !b.empty() {
		return h, errors.New("bytes behind the extensions")
	}
	seen := map[uint16]bool{}
	for e := (reader{b: extensions}); b.err == nil && !e.empty(); {
		kind, body := e.uint16(), e.vector(2)
		if e.err != nil {
			return h, e.err
		}
		if seen[kind] {
			return h, fmt.Errorf("extension %d twice", kind)
		}
		seen[kind] = true
		switch kind {
		case extServerName:
			name, err := parseServerName(body)
			if err != nil {
				return h, err
			}
			h.serverName = name
		case extECH:
			h.ech = true
		}
	}
	return h, b.err
}

// parseServerName reads a server_name extension (RFC 6066): a list with one host name.
func parseServerName(body []byte) (string, error) {
	b := reader{b: body}
	list := reader{b: b.vector(2)}
	kind, name := list.uint8(), list.vector(2)
	switch {
	case b.err != nil || list.err != nil:
		return "", errors.New("a server name that is cut off")
	case !b.empty() || !list.empty():
		return "", errors.New("more than one server name")
	case kind != nameTypeHost || len(name) == 0:
		return "", errors.New("a server name that is no host name")
	}
	return string(name), nil
}

// reader reads the fields of a TLS message. Behind the end it has err and empty fields.
type reader struct {
	b   []byte
	err error
}

func (r *reader) empty() bool { return len(r.b) == 0 || r.err != nil }

func (r *reader) skip(n int) []byte {
	if r.err != nil || n > len(r.b) {
		r.err = errors.New("a ClientHello that is cut off")
		return nil
	}
	field := r.b[:n]
	r.b = r.b[n:]
	return field
}

func (r *reader) uint8() uint8 {
	if f := r.skip(1); f != nil {
		return f[0]
	}
	return 0
}

func (r *reader) uint16() uint16 {
	if f := r.skip(2); f != nil {
		return binary.BigEndian.Uint16(f)
	}
	return 0
}

// vector is a field with its length before it, in that many bytes (1 or 2).
func (r *reader) vector(lengthBytes int) []byte {
	if lengthBytes == 1 {
		return r.skip(int(r.uint8()))
	}
	return r.skip(int(r.uint16()))
}
