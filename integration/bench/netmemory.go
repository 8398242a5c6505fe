package main

import (
	"context"
	"fmt"
	"os"

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
	// FDs are the file descriptors that those connections take of hutchd, which may have
	// MaxFDs.
	FDs    int    `json:"fds"`
	MaxFDs uint64 `json:"max_fds"`
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
	r, err := h.hutchRoad(ctx, network, 0)
	if err != nil {
		return nil, err
	}
	m := &NetworkMemory{Connections: idleConnections(), MaxFDs: maxFDs()}
	if m.Before, err = rss(r.hutchd); err != nil {
		return nil, err
	}
	open, err := fdsOf(r.hutchd)
	if err != nil {
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
	if m.FDs, err = fdsOf(r.hutchd); err != nil {
		return nil, err
	}
	m.FDs -= open
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
	const others = 1100
	limit := maxFDs()
	if limit > 4*wantedConnections {
		return wantedConnections
	}
	return min(wantedConnections, (int(limit)-others)/2*16/17)
}

// wantedConnections are those that the network's goal is about.
const wantedConnections = 10000

// maxFDs is the hard limit of file descriptors, which hutchd raises its own to.
func maxFDs() uint64 {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 0
	}
	return limit.Max
}

// fdsOf counts the file descriptors of a process.
func fdsOf(pid int) (int, error) {
	list, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	return len(list), err
}

// idle says what the connections take, and what as many as are wanted would.
func (m *NetworkMemory) idle() string {
	each := float64(m.Held-m.Before) / float64(m.Connections)
	s := fmt.Sprintf("%d idle connections of one sandbox: hutchd %.1f MB RSS, %.1f before; %.1f kB and %.1f fds each, of %d that hutchd may have",
		m.Connections, float64(m.Held)/1000, float64(m.Before)/1000, each, float64(m.FDs)/float64(m.Connections),
		m.MaxFDs)
	if m.Connections < wantedConnections {
		s += fmt.Sprintf(" (%d would take %.1f MB, and a limit of %d: a sandbox gets 16 of 17 connections)",
			wantedConnections,
			(float64(m.Before)+each*wantedConnections)/1000, wantedConnections*17/16*2+1024)
	}
	return s
}
