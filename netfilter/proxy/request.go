package proxy

import (
	"bytes"
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// request is the head of an HTTP/1 request, read so strictly that every server reads the
// same in it: one Host, one way to find the end of the body, lines that end in CRLF, no
// folding, no space before a colon, no control characters (RFC 9112; what goes beyond it
// has been used to smuggle requests past proxies).
type request struct {
	method, target string
	minor          byte   // of HTTP/1.x, '0' or '1'
	host           string // Host, with its port if it has one
	fields         []field
	length         uint64 // of the body, when it is not chunked
	chunked        bool
	upgrade        string // the protocol that Upgrade asks for, when Connection names it too
}

// field is a header line; the value is without the spaces around it.
type field struct{ name, value []byte }

func (f field) is(name string) bool {
	return len(f.name) == len(name) && strings.EqualFold(string(f.name), name)
}

// headEnd is where the head at the start of b ends, behind its empty line; 0 when it is
// not complete. Lines that end in anything but CRLF are an error at once. seen is where
// to go on looking when more has come: each byte is looked at once.
func headEnd(b []byte, seen int) (end, next int, err error) {
	for at := seen; ; {
		i := bytes.IndexAny(b[at:], "\r\n")
		if i < 0 {
			return 0, len(b), nil
		}
		at += i
		rest := b[at:]
		switch {
		case rest[0] == '\n':
			return 0, 0, errors.New("a line that ends in LF alone")
		case len(rest) > 1 && rest[1] != '\n', len(rest) > 3 && rest[2] == '\r' && rest[3] != '\n':
			return 0, 0, errors.New("a CR that ends no line")
		case len(rest) < 3, len(rest) < 4 && rest[2] == '\r':
			return 0, at, nil // undecided: an empty line may follow
		case rest[2] == '\r':
			return at + len("\r\n\r\n"), 0, nil
		}
		at += len(crlf)
	}
}

// parse reads a head that headEnd found. The fields are parts of it.
func (r *request) parse(head []byte) error {
	*r = request{fields: r.fields[:0]}
	line, rest, _ := bytes.Cut(head, crlf)
	if err := r.parseLine(line); err != nil {
		return err
	}
	for {
		if line, rest, _ = bytes.Cut(rest, crlf); len(line) == 0 {
			break
		}
		f, err := parseField(line)
		if err != nil {
			return err
		}
		r.fields = append(r.fields, f)
	}
	if err := r.frame(); err != nil {
		return err
	}
	return r.origin()
}

var crlf = []byte("\r\n")

func (r *request) parseLine(line []byte) error {
	method, rest, ok1 := bytes.Cut(line, []byte(" "))
	target, version, ok2 := bytes.Cut(rest, []byte(" "))
	switch {
	case bytes.Equal(line, []byte("PRI * HTTP/2.0")):
		return errors.New("HTTP/2 without TLS")
	case !ok1 || !ok2 || len(version) != len("HTTP/1.x") || !bytes.HasPrefix(version, []byte("HTTP/1.")):
		return fmt.Errorf("%.60q is no request of HTTP/1", line)
	case version[7] != '0' && version[7] != '1':
		return fmt.Errorf("version %q", version)
	case !isToken(method):
		return fmt.Errorf("method %.60q", method)
	case len(target) == 0 || bytes.IndexFunc(target, func(c rune) bool { return c <= ' ' || c == 0x7f }) >= 0:
		return fmt.Errorf("target %.60q", target)
	}
	r.method, r.target, r.minor = string(method), string(target), version[7]
	return nil
}

func parseField(line []byte) (field, error) {
	name, value, ok := bytes.Cut(line, []byte(":"))
	if !ok || !isToken(name) {
		return field{}, fmt.Errorf("header %.60q", line)
	}
	for _, c := range value {
		if c < ' ' && c != '\t' || c == 0x7f {
			return field{}, fmt.Errorf("header %s holds the byte %#02x", name, c)
		}
	}
	return field{name, bytes.Trim(value, " \t")}, nil
}

// frame finds the host and the length, and drops what only concerns this connection and
// must not reach the server.
func (r *request) frame() error {
	var hosts, lengths, encodings, upgrades int
	var connection []string
	var upgrade string
	for _, f := range r.fields {
		value := string(f.value)
		switch {
		case f.is("Host"):
			hosts, r.host = hosts+1, value
		case f.is("Content-Length"):
			lengths++
			if !parseDigits(f.value, &r.length) {
				return fmt.Errorf("Content-Length %.40q", value)
			}
		case f.is("Transfer-Encoding"):
			encodings++
			if r.chunked = strings.EqualFold(value, "chunked"); !r.chunked {
				return fmt.Errorf("Transfer-Encoding %.40q", value)
			}
		case f.is("Connection"), f.is("Proxy-Connection"):
			for token := range strings.SplitSeq(strings.ToLower(value), ",") {
				connection = append(connection, strings.TrimSpace(token))
			}
		case f.is("Upgrade"):
			upgrades, upgrade = upgrades+1, strings.ToLower(value)
		}
	}
	switch {
	case hosts != 1:
		return fmt.Errorf("%d Host headers", hosts)
	case lengths > 1 || encodings > 1 || lengths+encodings > 1:
		return errors.New("more than one length: Content-Length and Transfer-Encoding once, and not both")
	case encodings > 0 && r.minor == '0':
		return errors.New("Transfer-Encoding in HTTP/1.0")
	case r.method == "CONNECT":
		return errors.New("CONNECT: this is no proxy that needs to be asked")
	}
	for _, token := range connection {
		switch token {
		case "host", "content-length", "transfer-encoding":
			// Proxies before the server would drop what we have checked.
			return fmt.Errorf("Connection names %s", token)
		case "upgrade":
			if r.upgrade = upgrade; upgrades > 1 { // of which the server could choose another one
				r.upgrade = "several"
			}
		}
	}
	return nil
}

// origin turns an absolute target into the form that servers expect, and makes sure that
// it says the same host.
func (r *request) origin() error {
	switch {
	case strings.HasPrefix(r.target, "/"), r.target == "*" && r.method == "OPTIONS":
		return nil
	}
	u, err := url.Parse(r.target)
	switch {
	case err != nil || u.Scheme != "http" || u.Host == "" || u.User != nil || u.Opaque != "":
		return fmt.Errorf("target %.60q", r.target)
	case !strings.EqualFold(u.Host, r.host):
		return fmt.Errorf("the target is at %.60q, Host says %.60q", u.Host, r.host)
	}
	// What is behind the authority, byte for byte: url would write it in another way.
	rest := r.target[len("http://"):]
	if at := strings.IndexAny(rest, "/?#"); at < 0 {
		r.target = "/"
	} else if r.target = rest[at:]; rest[at] != '/' {
		r.target = "/" + rest[at:]
	}
	return nil
}

// append serialises the request. Fields keep their order and spelling; a protocol is only
// offered when the caller will follow it.
func (r *request) append(b []byte, offerUpgrade bool) []byte {
	b = append(b, r.method...)
	b = append(b, ' ')
	b = append(b, r.target...)
	b = append(b, " HTTP/1."...)
	b = append(b, r.minor, '\r', '\n')
	for _, f := range r.fields {
		value := f.value
		if !offerUpgrade {
			switch {
			case f.is("Upgrade"), f.is("HTTP2-Settings"):
				continue
			case f.is("Connection"):
				if value = withoutUpgrade(value); len(value) == 0 {
					continue
				}
			}
		}
		b = append(b, f.name...)
		b = append(b, ": "...)
		b = append(b, value...)
		b = append(b, '\r', '\n')
	}
	return append(b, '\r', '\n')
}

// withoutUpgrade is a Connection header that offers no other protocol.
func withoutUpgrade(value []byte) []byte {
	if !bytes.Contains(bytes.ToLower(value), []byte("upgrade")) &&
		!bytes.Contains(bytes.ToLower(value), []byte("http2-settings")) {
		return value
	}
	var kept [][]byte
	for token := range bytes.SplitSeq(value, []byte(",")) {
		token = bytes.TrimSpace(token)
		if !bytes.EqualFold(token, []byte("upgrade")) && !bytes.EqualFold(token, []byte("http2-settings")) {
			kept = append(kept, token)
		}
	}
	return bytes.Join(kept, []byte(", "))
}

// isToken: RFC 9110, 5.6.2.
func isToken(b []byte) bool {
	for _, c := range b {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9',
			strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0:
		default:
			return false
		}
	}
	return len(b) > 0
}

func parseDigits(b []byte, n *uint64) bool {
	const most = 18 // digits, which no uint64 can overflow with
	*n = 0
	for _, c := range b {
		if c < '0' || c > '9' {
			return false
		}
		*n = *n*10 + uint64(c-'0')
	}
	return len(b) > 0 && len(b) <= most
}

// parseChunk reads the line before a chunk, without its CRLF. Extensions are dropped:
// nobody uses them, and servers have disagreed about where they end.
func parseChunk(line []byte) (uint64, error) {
	digits, extension, _ := bytes.Cut(line, []byte(";"))
	digits = bytes.TrimRight(digits, " \t")
	if len(digits) == 0 || len(digits) > 15 {
		return 0, fmt.Errorf("chunk of size %.40q", line)
	}
	for _, c := range extension {
		if c < ' ' && c != '\t' || c == 0x7f {
			return 0, fmt.Errorf("chunk extension with the byte %#02x", c)
		}
	}
	var n uint64
	for _, c := range digits {
		switch {
		case '0' <= c && c <= '9':
			n = n<<4 | uint64(c-'0')
		case 'a' <= c|0x20 && c|0x20 <= 'f':
			n = n<<4 | uint64(c|0x20-'a'+10)
		default:
			return 0, fmt.Errorf("chunk of size %.40q", line)
		}
	}
	return n, nil
}

// answer3 says what is known of a stream that has only begun.
type answer3 uint8

const (
	maybe answer3 = iota
	yes
	no
)

// looksLikeHTTP says whether a stream begins as a request line of HTTP does: a method in
// capitals, a target, and the protocol's name. It asks for no more bytes than it takes to
// say no, because other protocols wait for an answer after a few.
func looksLikeHTTP(b []byte) answer3 {
	const longestMethod = 20
	line, _, ended := bytes.Cut(b, []byte("\n"))
	method, rest, ok := bytes.Cut(line, []byte(" "))
	for _, c := range method {
		if c < 'A' || c > 'Z' {
			return no
		}
	}
	switch {
	case len(method) == 0 || len(method) > longestMethod:
		return no
	case !ended:
		return maybe
	case !ok:
		return no
	}
	target, version, ok := bytes.Cut(rest, []byte(" "))
	if !ok || len(target) == 0 || !bytes.HasPrefix(version, []byte("HTTP/")) {
		return no
	}
	return yes
}
