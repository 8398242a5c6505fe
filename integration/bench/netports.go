package main

import (
	"context"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/client"
)

// portSubjects are ways in: from the host to the same server, on the host and in a sandbox.
func portSubjects() []Subject {
	var list []Subject
	for _, way := range []struct {
		name, about string
		open        func(context.Context, *Host) (*inward, error)
	}{
		{"port", "to a server on the host", openPortHere},
		{"hutch-port", "to a server on the loopback of a sandbox without a network, by port.expose", openPortInside},
	} {
		for _, job := range []struct {
			what, about string
			port, n     int
		}{{"connect", "connect and read a byte", 0, 51}, {"down", "receive 64 MiB", 1, bulk}} {
			list = append(list, Subject{Name: way.name + "-" + job.what, About: job.about + " " + way.about,
				Setup: func(ctx context.Context, h *Host) (*Prepared, error) {
					in, err := h.inward(ctx, way.name, way.open)
					if err != nil {
						return nil, err
					}
					return in.prepared(job.what, in.ports[job.port], job.n), nil
				}})
		}
	}
	return list
}

// inward is a road whose servers are a netload's.
type inward struct {
	road
	ports [2]uint16
}

// inward opens one once.
func (h *Host) inward(ctx context.Context, name string, open func(context.Context, *Host) (*inward, error)) (*inward,
	error) {
	if in := h.inwards[name]; in != nil {
		return in, nil
	}
	in, err := open(ctx, h)
	if err != nil {
		return nil, err
	}
	if h.inwards == nil {
		h.inwards = map[string]*inward{}
	}
	h.inwards[name] = in
	bin, err := h.netload(ctx)
	if err != nil {
		return nil, err
	}
	in.address = "127.0.0.1"
	in.load, _, err = h.loadBy(nil, 0, bin)
	return in, err
}

// servesAt reads where a netload that serves listens.
func (l *load) servesAt() (ports [2]uint16, err error) {
	if err := l.out.SetReadDeadline(time.Now().Add(runLimit)); err != nil {
		return ports, err
	}
	for i := range ports {
		line, err := l.lines.ReadString('\n')
		if err != nil {
			return ports, err
		}
		port, err := strconv.ParseUint(strings.TrimSpace(line), 10, 16)
		if err != nil {
			return ports, err
		}
		ports[i] = uint16(port)
	}
	return ports, nil
}

func openPortHere(ctx context.Context, h *Host) (*inward, error) {
	bin, err := h.netload(ctx)
	if err != nil {
		return nil, err
	}
	server, _, err := h.loadBy(nil, 0, bin, "serve")
	if err != nil {
		return nil, err
	}
	ports, err := server.servesAt()
	return &inward{road{command: "netload serve; netload"}, ports}, err
}

func openPortInside(ctx context.Context, h *Host) (*inward, error) {
	bin, err := h.netload(ctx)
	if err != nil {
		return nil, err
	}
	d, c, err := h.networkDaemon(ctx, network)
	if err != nil {
		return nil, err
	}
	id, err := h.output(ctx, d.env, d.hutch, "create", "-v", filepath.Dir(bin)+":/netload:ro", "host")
	if err != nil {
		return nil, err
	}
	server, err := h.loadIn(ctx, c, id, "serve")
	if err != nil {
		return nil, err
	}
	inside, err := server.servesAt()
	if err != nil {
		return nil, err
	}
	in := &inward{road: road{command: "hutch exec netload serve; hutch port expose; netload",
		version: h.version(ctx, d.hutch, "version")}}
	for i, port := range inside {
		if in.ports[i], err = exposed(ctx, c, id, port); err != nil {
			return nil, err
		}
	}
	sb, err := c.GetSandbox(ctx, id)
	if err != nil {
		return nil, err
	}
	hutchd, err := hutchdOf(sb.PID)
	in.busy = func() (time.Duration, error) { return cpuOf(hutchd) }
	return in, err
}

// exposed is where the host reaches a port of a sandbox.
func exposed(ctx context.Context, c *client.Client, id string, port uint16) (uint16, error) {
	p, err := c.ExposePort(ctx, api.PortExposeParams{Sandbox: id, Port: int(port)}, nil)
	if err != nil {
		return 0, err
	}
	at, err := api.ParsePortAddress(p.Address)
	return at.Port(), err
}
