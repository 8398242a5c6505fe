package proxy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hutch-sh/hutch/netfilter/policy"
	"github.com/hutch-sh/hutch/runtime/api"
)

// maxLine bounds the lines between chunks.
const maxLine = 4 << 10

// exchange passes on the requests of one connection, each of which it has checked.
// Responses are copied as they are: nothing in them leads a request elsewhere, except
// that the server agrees to speak another protocol, which is asked for on the first
// request to a server only: one that asks for it behind others goes to a new one.
type exchange struct {
	*flow
	in  *window
	req request // the one that is being passed on
	out []byte  // what is to be sent, in a large buffer; nil when nothing is
}

func (f *flow) carryHTTP(in *window) error {
	x := &exchange{flow: f, in: in}
	defer x.drop()
	for {
		more, err := x.next()
		if err != nil || !more {
			return err
		}
	}
}

// next passes on one request. It says false after the last one.
func (x *exchange) next() (more bool, err error) {
	head, err := x.head()
	if errors.Is(err, io.EOF) && x.in.len() == 0 {
		if err := x.flush(); err != nil || x.server == nil {
			return false, err
		}
		return false, x.server.CloseWrite()
	}
	if err != nil {
		return false, err
	}
	r := &x.req
	if err := r.parse(head); err != nil {
		return false, x.malformed(err)
	}
	if refusal := x.checkHost(r.host); refusal != nil {
		return false, refusal
	}
	if x.server == nil {
		if err := x.dial(); err != nil {
			return false, x.noServer(err)
		}
	}
	upgrade := r.upgrade == "websocket" && r.method == "GET" && r.length == 0 && !r.chunked
	if upgrade = upgrade && (x.down == nil || x.renewable); upgrade && x.down != nil {
		if err := x.renew(); err != nil {
			return false, err
		}
	}
	if r.upgrade != "" && !upgrade && !isDropped(r.upgrade) {
		x.report(x.mismatch(byReset,
			"an HTTP request asks for the protocol %.40q, which was not offered to the server: what follows could not be checked", r.upgrade), byOmission)
	}
	x.requests++
	if err := x.sendHead(r, len(head), upgrade); err != nil {
		return false, err
	}
	x.in.skip(len(head)) // which the request's fields are part of
	if upgrade {
		return x.follow()
	}
	if x.down == nil {
		x.copyDown(nil)
	}
	return true, x.body(r)
}

// isDropped says whether it is a protocol, in lower case, that clients offer to every server, and do without. Of TLS
// there are some versions (RFC 2817).
func isDropped(protocol string) bool {
	return strings.HasPrefix(protocol, "tls/") || slices.Contains([]string{"h2c", "h2", "http/2.0"}, protocol)
}

// renew gives the connection another server, for a request whose response must be told apart from those before: nobody
// knows which that is without reading them all. The one before is told that no more comes, and has said all when it
// ends.
func (x *exchange) renew() error {
	if err := x.flush(); err != nil {
		return err
	}
	before := x.server
	x.renewing.Store(true) // it may have ended already, and the client with it: then that is so
	if err := before.CloseWrite(); err != nil {
		return err
	}
	over := time.AfterFunc(x.p.Limits.HeadTime, func() {
		_ = before.SetReadDeadline(time.Unix(1, 0))
		_ = x.client.SetWriteDeadline(time.Unix(1, 0)) // which may not read
	})
	<-x.down
	if !over.Stop() {
		return x.mismatch(byReset,
			"an HTTP request asks for WebSocket behind others, and the responses to these have not ended after %s",
			x.p.Limits.HeadTime)
	}
	if x.broken != nil { // nothing may follow a response that was cut
		return x.broken
	}
	x.mu.Lock()
	x.server = nil
	x.mu.Unlock()
	_ = before.Close()
	x.down, x.requests = nil, 0
	if err := x.dial(); err != nil {
		return err
	}
	x.renewing.Store(false)
	return nil
}

// head waits for a request and returns its head, which stays in the window.
func (x *exchange) head() ([]byte, error) {
	for seen := 0; ; {
		// An empty line before a request is left over from the body of the one before
		// (RFC 9112, 2.2).
		for bytes.HasPrefix(x.in.bytes(), crlf) {
			x.in.skip(len(crlf))
			seen = 0
		}
		if x.in.len() == 0 && x.requests > 0 {
			// Between requests a connection may be idle for as long as the server likes.
			_ = x.client.SetReadDeadline(noDeadline)
			if err := x.fill(); err != nil {
				return nil, err
			}
			_ = x.client.SetReadDeadline(time.Now().Add(x.p.Limits.HeadTime))
			continue
		}
		end, next, err := headEnd(x.in.bytes(), seen)
		if err != nil {
			return nil, x.malformed(err)
		}
		seen = next
		if end > 0 {
			_ = x.client.SetReadDeadline(noDeadline)
			return x.in.bytes()[:end], nil
		}
		if err := x.fill(); err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return nil, x.unfinished(err, byBadRequest, "the head of an HTTP request")
		}
	}
}

// checkHost compares a request's Host with the name that the connection is for.
func (x *exchange) checkHost(value string) *refusal {
	host, port, err := splitHost(value)
	switch {
	case err != nil:
		return x.malformed(fmt.Errorf("Host %.80q: %w", value, err))
	case port != 0 && port != x.dst.Port():
		return x.mismatch(byForbidden, "an HTTP request is for port %d (Host: %s) and was sent to port %d", port, value,
			x.dst.Port())
	}
	if x.check == policy.CheckBlock {
		x.showed(byHTTP, "")
		if _, err := netip.ParseAddr(host); err == nil {
			return nil // names nobody
		}
		x.showed(byHTTP, host)
		if d := x.p.Rules().Host(host, policy.TCP, x.dst.Port()); !d.Allow {
			return &refusal{Decision: d, reply: byForbidden}
		}
		return nil
	}
	name, err := api.NetName(host)
	if err != nil {
		return x.mismatch(byForbidden, "an HTTP request is for %q, which is no name", host)
	}
	if name != x.name {
		r := x.mismatch(byForbidden, "an HTTP request is for %s and was sent to the address of %s", name, x.name)
		r.HowToAllow = ""
		if d := x.p.Rules().Connect(name, policy.TCP, x.dst.Port()); !d.Allow {
			r.HowToAllow = d.HowToAllow
		}
		return r
	}
	x.showed(byHTTP, name)
	return nil
}

// splitHost splits a Host header: a name or address, and the port, 0 without one.
func splitHost(value string) (host string, port uint16, err error) {
	if a, err := netip.ParseAddrPort(value); err == nil {
		return a.Addr().String(), a.Port(), nil
	}
	if len(value) > 2 && value[0] == '[' && value[len(value)-1] == ']' {
		a, err := netip.ParseAddr(value[1 : len(value)-1])
		return a.String(), 0, err
	}
	host, digits, hasPort := strings.Cut(value, ":")
	if !hasPort {
		return value, 0, nil
	}
	n, err := strconv.ParseUint(digits, 10, 16)
	if err != nil || n == 0 || digits[0] == '0' {
		return "", 0, fmt.Errorf("port %q", digits)
	}
	return host, uint16(n), nil
}

func (x *exchange) malformed(err error) *refusal {
	return x.mismatch(byBadRequest, "the HTTP request is not well formed: %v", err)
}

// noServer tells the client that its server could not be reached, in HTTP.
func (x *exchange) noServer(err error) error {
	var r *refusal
	if errors.As(err, &r) {
		if r.reply == byReset {
			r.reply = byForbidden
		}
		return err
	}
	if x.ctx.Err() == nil && x.down == nil {
		x.say(errorResponse("502 Bad Gateway", fmt.Sprintf("%s could not be reached: %v", x.name, err), ""))
	}
	return err
}

// body passes on the body of a request.
func (x *exchange) body(r *request) error {
	if !r.chunked {
		return x.bytes(r.length)
	}
	for {
		line, err := x.line()
		if err != nil {
			return err
		}
		n, err := parseChunk(line)
		if err != nil {
			return x.malformed(err)
		}
		if err := x.send(strconv.AppendUint(nil, n, 16), crlf); err != nil {
			return err
		}
		if n == 0 {
			return x.trailers()
		}
		if err := x.bytes(n); err != nil {
			return err
		}
		if line, err = x.line(); err != nil {
			return err
		} else if len(line) > 0 {
			return x.malformed(errors.New("a chunk that is longer than it says"))
		}
		if err := x.send(crlf); err != nil {
			return err
		}
	}
}

// trailers passes on the lines behind the last chunk, and the empty one.
func (x *exchange) trailers() error {
	for {
		line, err := x.line()
		if err != nil {
			return err
		}
		if len(line) == 0 {
			return x.send(crlf)
		}
		f, err := parseField(line)
		if err != nil {
			return x.malformed(err)
		}
		if f.is("Host") || f.is("Content-Length") || f.is("Transfer-Encoding") {
			return x.malformed(fmt.Errorf("trailer %s", f.name))
		}
		if err := x.send(f.name, []byte(": "), f.value, crlf); err != nil {
			return err
		}
	}
}

// line reads a line and returns it without its CRLF. It is good until the next read.
func (x *exchange) line() ([]byte, error) {
	for {
		b := x.in.bytes()
		if i := bytes.IndexByte(b, '\n'); i >= 0 {
			line, ok := bytes.CutSuffix(b[:i+1], crlf)
			if !ok || bytes.IndexByte(line, '\r') >= 0 {
				return nil, x.malformed(errors.New("a line that does not end in CRLF"))
			}
			line = bytes.Clone(line) // the window may let go of its buffer
			x.in.skip(i + 1)
			return line, nil
		}
		if len(b) > maxLine {
			return nil, x.malformed(errors.New("a line that is too long"))
		}
		if err := x.fill(); err != nil {
			return nil, cut(err)
		}
	}
}

// bytes passes on n bytes of a body.
func (x *exchange) bytes(n uint64) error {
	x.in.large = n > smallBuffer
	defer func() { x.in.large = false }()
	for n > 0 {
		if x.in.len() == 0 && n > largeBuffer {
			// What is left needs no looking at.
			if err := x.flush(); err != nil {
				return err
			}
			return x.p.buffers.copy(x.server, x.client, &x.counts.up, n)
		}
		if x.in.len() == 0 {
			if err := x.fill(); err != nil {
				return cut(err)
			}
		}
		b := x.in.bytes()
		b = b[:min(uint64(len(b)), n)]
		if err := x.send(b); err != nil {
			return err
		}
		n -= uint64(len(b))
		x.in.skip(len(b))
	}
	return nil
}

// cut is the error for a stream that ended within a request: the server must not take
// what it has got for all of it.
func cut(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// fill reads more from the client. What is to be sent goes first: the client may wait
// for the response to it, or for 100 Continue.
func (x *exchange) fill() error {
	if err := x.flush(); err != nil {
		return err
	}
	return x.in.fill()
}

// sendHead collects a request, that came in a head of size bytes.
func (x *exchange) sendHead(r *request, size int, upgrade bool) error {
	most := size + len(r.fields) + len("http/1.1 / \r\n") // a space behind each colon
	if x.out != nil && cap(x.out)-len(x.out) < most {
		if err := x.flush(); err != nil {
			return err
		}
	}
	if x.out == nil {
		x.out = x.p.buffers.take()[:0]
	}
	if cap(x.out) < most {
		return x.send(r.append(nil, upgrade))
	}
	x.out = r.append(x.out, upgrade)
	return nil
}

// send collects what goes to the server, so that what came in one packet leaves in one.
func (x *exchange) send(parts ...[]byte) error {
	for _, b := range parts {
		for len(b) > 0 {
			if x.out == nil {
				x.out = x.p.buffers.take()[:0]
			}
			n := min(len(b), cap(x.out)-len(x.out))
			x.out = append(x.out, b[:n]...)
			if b = b[n:]; len(x.out) < cap(x.out) {
				continue
			}
			if err := x.flush(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (x *exchange) flush() error {
	if x.out == nil {
		return nil
	}
	x.counts.up.Add(uint64(len(x.out)))
	_, err := x.server.Write(x.out)
	x.drop()
	return err
}

func (x *exchange) drop() {
	if x.out != nil {
		x.p.buffers.put(x.out)
		x.out = nil
	}
}

// follow waits for the server's answer to an offer to speak WebSocket. If it accepts,
// what follows is no HTTP and is copied; otherwise requests go on.
func (x *exchange) follow() (more bool, err error) {
	if err := x.flush(); err != nil {
		return false, err
	}
	answer := &window{conn: x.server, buffers: &x.p.buffers}
	defer answer.release()
	for seen := 0; ; {
		end, next, err := headEnd(answer.bytes(), seen)
		if err != nil {
			break // a server that speaks loosely: not one that switches protocols
		}
		if seen = next; end == 0 {
			if err := answer.fill(); errors.Is(err, errTooLong) || errors.Is(err, errNoRoom) || errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				return false, err
			}
			continue
		}
		status := answer.bytes()[:end]
		switch code := statusCode(status); {
		case code == 101:
			x.copyDown(bytes.Clone(answer.bytes()))
			return false, x.copyUp(x.in)
		case code >= 100 && code < 200:
			if _, err := x.client.Write(status); err != nil {
				return false, err
			}
			x.counts.down.Add(uint64(end))
			answer.skip(end)
			continue
		}
		break
	}
	x.copyDown(bytes.Clone(answer.bytes()))
	return true, nil
}

// statusCode is the status of a response, 0 when it has none.
func statusCode(head []byte) int {
	const at = len("HTTP/1.1 ")
	if len(head) < at+4 || !bytes.HasPrefix(head, []byte("HTTP/1.")) || head[at-1] != ' ' {
		return 0
	}
	n, err := strconv.ParseUint(string(head[at:at+3]), 10, 16)
	if err != nil {
		return 0
	}
	return int(n)
}

// errorResponse is an answer of our own, which people may read.
func errorResponse(status, why, howToAllow string) []byte {
	text := "hutch: " + why + "\n"
	if howToAllow != "" {
		text += "To allow it: " + howToAllow + "\n"
	}
	return fmt.Appendf(nil,
		"HTTP/1.1 %s\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s",
		status, len(text), text)
}
