package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// road is a way from where a netload runs to the servers on the host's loopback.
type road struct {
	command, version string
	load             *load
	address          string // of the servers there
	// Out of a sandbox: its hutchd's process, and another netload in it.
	hutchd int
	more   func() (*load, error)
	// busy is the CPU time that what is in between has used; nil when nothing is.
	busy func() (time.Duration, error)
}

// networkSubjects are all roads with all that netload can do on them.
func networkSubjects() []Subject {
	roads := []struct {
		name, about string
		open        func(context.Context, *Host) (*road, error)
	}{
		{"net", "over loopback, with nothing in between", openDirect},
		{"hutch-net", "out of a sandbox whose policy has five entries", openHutch},
		{"hutch-net-rules", "out of a sandbox whose policy has 10,000 entries more", openHutchRules},
		{"hutch-net-noebpf", "out of such a sandbox without eBPF", openHutchOf(noEBPF)},
		{"hutch-net-audited", "out of such a sandbox with a record of each connection", openHutchOf(audited)},
		{"hutch-net-unaudited", "out of such a sandbox without an audit log", openHutchOf(unaudited)},
		{"pasta", "by pasta, to the address of its gateway (TAP)", openPasta},
		{"pasta-local", "by pasta, forwarding a port of the namespace's loopback (-T, splice)", openPastaLocal},
		{"slirp4netns", "by slirp4netns, to the address of its gateway", openSlirp},
	}
	jobs := []struct {
		name, what, about string
		port              func(*servers) uint16
		n                 int
	}{
		{"connect", "connect", "connect and read a byte", func(s *servers) uint16 { return s.byte }, 51},
		{"down", "down", "receive 64 MiB", func(s *servers) uint16 { return s.source }, bulk},
		{"up", "up", "send 64 MiB", func(s *servers) uint16 { return s.sink }, bulk},
		{"http", "http", "500 requests for 1 KiB, 8 at a time", func(s *servers) uint16 { return s.http }, 500},
	}
	var list []Subject
	for _, r := range roads {
		for _, j := range jobs {
			list = append(list, Subject{
				Name: r.name + "-" + j.name, About: j.about + " " + r.about, Named: j.n == bulk ||
					strings.HasPrefix(r.name, "hutch-net-"),
				Setup: func(ctx context.Context, h *Host) (*Prepared, error) {
					s, err := h.serve()
					if err != nil {
						return nil, err
					}
					way, err := h.road(ctx, r.name, r.open)
					if err != nil {
						return nil, err
					}
					return way.prepared(j.what, j.port(s), j.n), nil
				},
			})
		}
	}
	return slices.Concat(list, denialSubjects(), creationSubjects(), portSubjects())
}

// road opens a road once; what it could not be opened for is told each time.
func (h *Host) road(ctx context.Context, name string, open func(context.Context, *Host) (*road, error)) (*road, error) {
	if r := h.roads[name]; r != nil {
		return r, nil
	}
	r, err := open(ctx, h)
	if err != nil {
		return nil, err
	}
	if h.roads == nil {
		h.roads = map[string]*road{}
	}
	h.roads[name] = r
	return r, nil
}

func (r *road) prepared(what string, port uint16, n int) *Prepared {
	p := &Prepared{Command: fmt.Sprintf("%s: %s %s %d %d", r.command, what, r.address, port, n), Version: r.version}
	if r.busy != nil {
		p.Note = "cpu is that of what is in between"
	}
	p.Run = func(context.Context) (s Sample, err error) {
		var before, after time.Duration
		if r.busy != nil {
			if before, err = r.busy(); err != nil {
				return s, err
			}
		}
		if s.Wall, err = r.load.do(what, target{r.address, port}, n); err != nil || r.busy == nil {
			return s, err
		}
		after, err = r.busy()
		s.User = after - before
		return s, err
	}
	return p
}
