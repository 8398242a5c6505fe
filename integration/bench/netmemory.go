package main

import (
	"context"

	"golang.org/x/sys/unix"
)

// NetworkMemory is what networks take of hutchd while nothing happens, in kB of its
// resident set.
type NetworkMemory struct {
	Hutchd int `json:"hutchd_rss_kb"` // with as many sandboxes as Memory has
	// Before is that of a daemon with one sandbox, and Held while this has Connections that
	// carry nothing: 10,000, or as many as a daemon of so many file descriptors lets one
	// sandbox have.
	Connections int `json:"connections"`
	Before      int `json:"before_rss_kb"`
	Held        int `json:"held_rss_kb"`
}

// eachHolds is how many connections a process in a sandbox holds: they may have fewer fds
// than hutchd.
const eachHolds = 2500

// networkMemory measures the daemon of the network's subjects.
func (h *Host) networkMemory(ctx context.Context) (*NetworkMemory, error) {
	s, err := h.serve()
	if err != nil {
		return nil, err
	}
	r, err := h.hutchRoad(ctx, 0)
	if err != nil {
		return nil, err
	}
	m := &NetworkMemory{Connections: idleConnections()}
	if m.Before, err = rss(r.hutchd); err != nil {
		return nil, err
	}
	for left := m.Connections; left > 0; left -= eachHolds {
		l, err := r.more()
		if err != nil {
			return nil, err
		}
		if _, err := l.do("hold", target{r.address, s.byte}, min(left, eachHolds)); err != nil {
			return nil, err
		}
	}
	if m.Held, err = rss(r.hutchd); err != nil {
		return nil, err
	}
	// Another daemon: what this one has had does not come back at once.
	if _, err := h.startDaemon(ctx, "networks", "HUTCH_NETWORK_RESOLVER="+s.dns); err != nil {
		return nil, err
	}
	c, err := h.dial(ctx, "networks")
	if err != nil {
		return nil, err
	}
	pids, err := createMany(ctx, c, idleSandboxes, s.policy(0))
	if err != nil {
		return nil, err
	}
	hutchd, err := hutchdOf(pids[0])
	if err != nil {
		return nil, err
	}
	m.Hutchd, err = rss(hutchd)
	return m, err
}

// idleConnections are 10,000, or fewer where hutchd has too few file descriptors: a
// connection takes two, and one sandbox gets 16 of 17 (netfilter/proxy).
func idleConnections() int {
	const wanted, others = 10000, 1100
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil || limit.Max > 4*wanted {
		return wanted
	}
	return min(wanted, (int(limit.Max)-others)/2*16/17)
}
