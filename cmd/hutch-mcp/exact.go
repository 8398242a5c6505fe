package main

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/hutch-sh/hutch/internal/jsonrpc"
)

// The SDK has ids of requests and progress tokens as float64 (1.8.0): the answer to 9007199254740993 says
// 9007199254740992, and its client waits for ever. Such a message is answered here, with the id as it was.

// maxExact bounds the integers that a float64 has exactly, each of them.
const maxExact = 1 << 53

// exactly is how many digits a number has at least that a float64 may not have exactly.
const exactly = 16

// inexact returns the answer to a message, or batch of them, with an id or a progress token that the SDK would
// change; nil to all others.
func inexact(message []byte) []byte {
	if !longNumber(message) {
		return nil
	}
	type request struct {
		ID     json.RawMessage
		Params struct {
			Meta struct {
				Token json.RawMessage `json:"progressToken"`
			} `json:"_meta"`
		}
	}
	var batch []request
	var one request
	if json.Unmarshal(message, &one) == nil {
		batch = []request{one}
	} else if json.Unmarshal(message, &batch) != nil {
		return nil // the SDK says what is wrong with it
	}
	for _, r := range batch {
		for what, number := range map[string]json.RawMessage{"id": r.ID, "progressToken": r.Params.Meta.Token} {
			if isExact(number) {
				continue
			}
			if len(r.ID) == 0 {
				r.ID = json.RawMessage("null")
			}
			text := fmt.Sprintf("the %s %.40s is a number that JSON does not have exactly everywhere: use an integer up to %d, or a string",
				what, number, maxExact)
			return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32600,"message":%s}}`, r.ID,
				strconv.Quote(text))
		}
	}
	return nil
}

// isExact says whether the SDK leaves a value as it is: text, and integers that are not too large.
func isExact(value json.RawMessage) bool {
	if len(value) == 0 || value[0] != '-' && (value[0] < '0' || value[0] > '9') {
		return true
	}
	n, err := strconv.ParseInt(string(value), 10, 64)
	return err == nil && -maxExact <= n && n <= maxExact
}

// longNumber says whether a number may be in the text that is not exact: few messages have one.
func longNumber(text []byte) bool {
	run := 0
	for _, c := range text {
		if c < '0' || c > '9' {
			run = 0
		} else if run++; run == exactly {
			return true
		}
	}
	return false
}

// exactStdio is stdin and stdout, as mcp.StdioTransport has them, with messages that are not exact answered.
func exactStdio() mcp.Transport {
	out := &lockedWriter{to: os.Stdout}
	return &mcp.IOTransport{Reader: &exactReader{in: bufio.NewReader(os.Stdin), answer: out}, Writer: out}
}

// lockedWriter writes messages one after the other.
type lockedWriter struct {
	mu sync.Mutex // held while a message is written
	to io.Writer
}

func (w *lockedWriter) Write(message []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.to.Write(message)
}

// Close leaves stdout open, as the SDK's does.
func (w *lockedWriter) Close() error { return nil }

// exactReader leaves out lines that it answers itself: also those that are no JSON, or too long, which would end the
// session in the SDK.
type exactReader struct {
	in     *bufio.Reader
	answer io.Writer
	rest   []byte // of a line
	broken []byte // the answer to a line that was too long, of which rest has nothing
	err    error  // after it
}

func (r *exactReader) Read(p []byte) (int, error) {
	for len(r.rest) == 0 {
		if r.err != nil {
			return 0, r.err
		}
		if r.rest, r.err = r.line(); r.err != nil && !errors.Is(r.err, io.EOF) {
			return 0, r.err
		}
		answer := r.broken
		if r.broken = nil; answer == nil {
			answer = malformed(r.rest)
		}
		if answer == nil {
			answer = inexact(r.rest)
		}
		if answer != nil {
			r.rest = nil
			if _, err := r.answer.Write(append(answer, '\n')); err != nil {
				return 0, err
			}
		}
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// line is the next line. Of one that is longer than the SDK takes only the answer is kept.
func (r *exactReader) line() (line []byte, err error) {
	for {
		var part []byte
		part, err = r.in.ReadSlice('\n')
		switch {
		case r.broken != nil:
		case len(line)+len(part) > mcp.DefaultMaxLineLength:
			r.broken = fmt.Appendf(nil,
				`{"jsonrpc":"2.0","id":%s,"error":{"code":-32600,"message":"the message has more than %d bytes"}}`,
				cmp.Or(jsonrpc.HeadID(line[:min(len(line), 256)]), "null"), mcp.DefaultMaxLineLength)
			line = nil
		default:
			line = append(line, part...)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
	}
}

// malformed returns the answer to what is no JSON, or nested deeper than anybody reads it; nil to others.
func malformed(line []byte) []byte {
	if len(bytes.TrimSpace(line)) == 0 || json.Valid(line) {
		return nil
	}
	return []byte(`{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"the line is no JSON, or nested too deeply"}}`)
}

func (r *exactReader) Close() error { return nil }

// exactHTTP answers requests that are not exact.
func exactHTTP(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, mcp.DefaultMaxRequestBodyBytes))
			if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
				http.Error(w, fmt.Sprintf("the body has more than %d bytes", tooLarge.Limit),
					http.StatusRequestEntityTooLarge)
				return
			} else if err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			if answer := inexact(body); answer != nil {
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(http.StatusBadRequest)
				_, _ = w.Write(answer) // to a client that is gone
				return
			}
			r.Body = io.NopCloser(bytes.NewReader(body))
		}
		next.ServeHTTP(w, r)
	})
}
