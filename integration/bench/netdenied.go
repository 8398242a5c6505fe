package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/runtime/api"
)

const (
	// nowhere is an address for documentation (RFC 5737), which policies refuse.
	nowhere = "192.0.2.1"
	// perThousand makes of a refusal, which takes about a microsecond, what a table of
	// milliseconds can show.
	perThousand = 1000
	// toldLimit bounds the wait for an event.
	toldLimit = 10 * time.Second
)

// denialSubjects measure what the kernel refuses by eBPF.
func denialSubjects() []Subject {
	return []Subject{
		{Name: "hutch-net-denied", About: "a thousand refused connect(2) in a sandbox, by the median of 51", Named: true, Setup: setupDenied},
		{Name: "hutch-net-denied-event", About: "from before such a call to its network.denied at a subscriber", Named: true, Setup: setupDeniedEvent},
	}
}

// denials is a road out of a sandbox that eBPF enforces.
func (h *Host) denials(ctx context.Context) (*road, error) {
	way, err := h.road(ctx, "hutch-net", openHutch)
	if err != nil {
		return nil, err
	}
	_, c, err := h.networkDaemon(ctx)
	if err != nil {
		return nil, err
	}
	doctor, err := c.Doctor(ctx)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(doctor.Checks, func(c api.Check) bool { return c.Name == "network_enforcement" })
	if i < 0 || doctor.Checks[i].Status != "yes" {
		return nil, &Unavailable{HostKind, "policies are enforced without eBPF", "sudo make install-netd"}
	}
	return way, nil
}

func setupDenied(ctx context.Context, h *Host) (*Prepared, error) {
	way, err := h.denials(ctx)
	if err != nil {
		return nil, err
	}
	return &Prepared{
		Command: way.command + ": denied " + nowhere, Version: way.version,
		Note: "the median of 51, times 1000",
		Run: func(context.Context) (Sample, error) {
			took, err := way.load.do("denied", target{nowhere, 443}, 51)
			return Sample{Wall: perThousand * took}, err
		},
	}, nil
}

func setupDeniedEvent(ctx context.Context, h *Host) (*Prepared, error) {
	way, err := h.denials(ctx)
	if err != nil {
		return nil, err
	}
	_, c, err := h.networkDaemon(ctx)
	if err != nil {
		return nil, err
	}
	sub, err := c.Subscribe(ctx, api.SubscribeParams{Kinds: []api.EventKind{api.EventNetworkDenied}})
	if err != nil {
		return nil, err
	}
	h.undo.Add(sub.Close)
	port := uint16(1024)
	told := func(ctx context.Context) (time.Duration, error) {
		ctx, cancel := context.WithTimeout(ctx, toldLimit)
		defer cancel()
		port++ // another destination: another event
		began, err := way.load.do("denied-at", target{nowhere, port}, 1)
		if err != nil {
			return 0, err
		}
		for {
			event, err := sub.Next(ctx)
			if err != nil {
				return 0, fmt.Errorf("network.denied of port %d: %w", port, err)
			}
			var now unix.Timespec
			if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
				return 0, err
			}
			var d api.DeniedEvent
			if err := json.Unmarshal(event.Data, &d); err != nil {
				return 0, err
			}
			if d.Port == port {
				return time.Duration(now.Nano()) - began, nil
			}
		}
	}
	return &Prepared{
		Command: way.command + ": denied-at " + nowhere, Version: way.version,
		Note: "one event, because a sandbox that is refused a lot is told of less often",
		Run: func(ctx context.Context) (Sample, error) {
			took, err := told(ctx)
			return Sample{Wall: took}, err
		},
	}, nil
}
