// Package jsonrpc carries JSON-RPC 2.0 over a Unix stream socket: one JSON value
// a line, and file descriptors beside it.
//
//	Reader   lines and the fds that belong to each     server and client
//	Writer   a bounded queue with a write deadline     server
//	Send     one line with its fds, one sendmsg        client
//	FDs      the fds of one request                    server
//	Channel  a connection and the calls under way      server
//
// # Fds
//
// A stream has no messages, so the kernel says only which read returned some
// fds. It never merges bytes that follow fds into the same read (af_unix.c,
// unix_stream_read_generic: "if (scm.fp) break"), but bytes that precede them may
// come along: the end of one line, and whole lines. Therefore:
//
//   - fds belong to the line that holds the last byte of the read they came with;
//   - a client sends one request per sendmsg;
//   - at most MaxFDs belong to a line, and what nobody takes is closed.
//
// The package knows nothing of hutch's methods.
package jsonrpc

const (
	// MaxLine bounds a request line in bytes, its newline included.
	MaxLine = 4 << 20
	// MaxFDs bounds the fds of one request.
	MaxFDs = 8
)
