package main

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"strings"
	"sync"

	"golang.org/x/net/dns/dnsmessage"
)

// servers are what the network's subjects connect to, on the host's loopback.
type servers struct {
	byte, source, sink, http uint16 // ports
	dns                      string // address of a server to which every name is 127.0.0.1
}

// bulk is what down and up carry.
const bulk = 64 << 20

// serve starts the servers, once.
func (h *Host) serve() (*servers, error) {
	if h.servers != nil {
		return h.servers, nil
	}
	s := &servers{}
	chunk := make([]byte, 1<<20)
	for _, server := range []struct {
		port  *uint16
		serve func(net.Conn) error
	}{
		{&s.byte, func(c net.Conn) error {
			_, err := c.Write([]byte{1})
			_, end := io.Copy(io.Discard, c) // the client closes first, or holds on
			return errors.Join(err, end)
		}},
		{&s.source, func(c net.Conn) error {
			for range bulk / len(chunk) {
				if _, err := c.Write(chunk); err != nil {
					return err
				}
			}
			return nil
		}},
		{&s.sink, func(c net.Conn) error {
			buf := make([]byte, 1<<20)
			_, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{c}, buf)
			_, done := c.Write([]byte{1})
			return errors.Join(err, done)
		}},
		{&s.http, answerHTTP},
	} {
		l, err := net.Listen("tcp4", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		*server.port = uint16(l.Addr().(*net.TCPAddr).Port)
		h.undo.Add(accepting(l, server.serve))
	}
	pc, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s.dns = pc.LocalAddr().String()
	var wg sync.WaitGroup
	wg.Go(func() { answerNames(pc) })
	h.undo.Add(func() error { err := pc.Close(); wg.Wait(); return err })
	h.servers = s
	return s, nil
}

// accepting serves the connections of l until stop, which closes them.
func accepting(l net.Listener, serve func(net.Conn) error) (stop func() error) {
	var mu sync.Mutex
	open := map[net.Conn]bool{}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open[c] = true
			mu.Unlock()
			wg.Go(func() {
				_ = serve(c) // the client says what went wrong
				_ = c.Close()
				mu.Lock()
				delete(open, c)
				mu.Unlock()
			})
		}
	})
	return func() error {
		err := l.Close()
		mu.Lock()
		for c := range open {
			_ = c.Close()
		}
		mu.Unlock()
		wg.Wait()
		return err
	}
}

// answerHTTP answers each request with 1 KiB. It does no more than it must: the client and
// what is in between are measured.
func answerHTTP(c net.Conn) error {
	r := bufio.NewReader(c)
	response := append([]byte("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 1024\r\n\r\n"),
		bytes.Repeat([]byte("x"), 1024)...)
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return err
		}
		if strings.TrimRight(line, "\r\n") != "" {
			continue
		}
		if _, err := c.Write(response); err != nil {
			return err
		}
	}
}

// answerNames answers questions: every name is 127.0.0.1 for a minute, and has no other
// address.
func answerNames(pc net.PacketConn) {
	buf := make([]byte, 1500)
	for {
		n, from, err := pc.ReadFrom(buf)
		if err != nil {
			return
		}
		var m dnsmessage.Message
		if m.Unpack(buf[:n]) != nil || len(m.Questions) != 1 {
			continue
		}
		reply := dnsmessage.Message{Header: dnsmessage.Header{ID: m.ID, Response: true, RecursionAvailable: true},
			Questions: m.Questions}
		q := m.Questions[0]
		about := dnsmessage.ResourceHeader{Name: q.Name, Class: dnsmessage.ClassINET, TTL: 60}
		if q.Type == dnsmessage.TypeA {
			reply.Answers = []dnsmessage.Resource{{Header: about,
				Body: &dnsmessage.AResource{A: [4]byte{127, 0, 0, 1}}}}
		} else {
			reply.Authorities = []dnsmessage.Resource{{Header: about,
				Body: &dnsmessage.SOAResource{NS: q.Name, MBox: q.Name, MinTTL: 60}}}
		}
		if b, err := reply.Pack(); err == nil {
			_, _ = pc.WriteTo(b, from) // who asked asks again
		}
	}
}
