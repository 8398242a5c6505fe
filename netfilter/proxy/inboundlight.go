package proxy

import (
	"errors"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// lighten has the loop carry a connection from now on, whose thread this is.
func (f *inboundFlow) lighten(client, server int) {
	c := &light{loop: f.in.loop, side: [2]side{{fd: client}, {fd: server}}}
	f.mu.Lock()
	if f.over { // the port was closed meanwhile
		f.abandon(c)
		return
	}
	f.light = c
	// A server that was woken by the connection may have run meanwhile, and have answered.
	rest, next := c.greeting(&f.counts)
	var err error
	for i := len(c.side) - 1; i >= 0 && err == nil && next == goesOn; i-- { // what the server says first is waited for
		s := &c.side[i]
		s.id, err = c.loop.add(s.fd, func() { f.ready(c, i) })
	}
	if next == heavy {
		next = f.burden(c, ofServer, rest)
	}
	if err != nil || next == broken {
		f.abandon(c)
		return
	}
	f.mu.Unlock()
}

// abandon ends a connection that did not come to be one; f.mu is held, and given back.
func (f *inboundFlow) abandon(c *light) {
	f.over = true
	c.close(true)
	f.mu.Unlock()
	f.in.remove(f)
}

// ready is the loop's: something came from one side, or it failed.
func (f *inboundFlow) ready(c *light, from int) {
	f.mu.Lock()
	if f.over || f.light != c {
		f.mu.Unlock()
		return
	}
	rest, next := c.move(from, &f.counts)
	if next == heavy {
		next = f.burden(c, from, rest)
	}
	if next == ended || next == broken {
		f.over = true
		f.in.endLater(f, c, next == broken)
	}
	f.mu.Unlock()
}

// burden gives the connection to goroutines, which begin with the rest of what came from one side; f.mu is held.
func (f *inboundFlow) burden(c *light, from int, rest []byte) fate {
	for _, s := range c.side {
		c.loop.remove(s.fd, s.id)
	}
	client, err := asDuplex(c.side[ofClient].fd)
	c.side[ofClient].fd = -1
	if err != nil {
		return broken
	}
	server, err := asConn(c.side[ofServer].fd)
	c.side[ofServer].fd = -1
	if err != nil {
		_ = client.Close()
		return broken
	}
	f.client, f.server, f.light = client, server, nil
	c.loop.started = true
	f.in.wg.Go(func() {
		defer f.end()
		f.carry(c, from, rest)
	})
	return goesOn
}

// asDuplex makes a connection of package net's of a socket, which it takes over.
func asDuplex(fd int) (duplex, error) {
	f := os.NewFile(uintptr(fd), "connection")
	c, err := net.FileConn(f)
	if err = errors.Join(err, f.Close()); err != nil {
		if c != nil {
			_ = c.Close()
		}
		return nil, err
	}
	d, ok := c.(duplex)
	if !ok {
		_ = c.Close()
		return nil, unix.EPROTOTYPE
	}
	return d, nil
}

// cutOffFD closes a socket by a reset, where it has those.
func cutOffFD(fd int) {
	_ = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
	_ = unix.Close(fd)
}
