package main

import (
	"context"
	"encoding/json"
	"errors"
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
		{Name: "hutch-net-denied", About: "a thousand refused connect(2) in a sandbox, by the median of 51",
			Named: true, Setup: setupDenied("hutch-net", openHutch)},
		{Name: "hutch-net-denied-rules", About: "the same where the policy has 10,000 entries more", Named: true,
			Setup: setupDenied("hutch-net-rules", openHutchRules)},
		{Name: "hutch-net-denied-event", About: "from before such a call to its network.denied at a subscriber",
			Named: true, Setup: setupDeniedEvent},
	}
}

// denials is a road out of a sandbox that eBPF enforces.
func (h *Host) denials(ctx context.Context, name string, open func(context.Context, *Host) (*road, error)) (*road,
	error) {
	way, err := h.road(ctx, name, open)
	if err != nil {
		return nil, err
	}
	_, c, err := h.networkDaemon(ctx, network)
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

func setupDenied(name string, open func(context.Context, *Host) (*road, error)) func(context.Context, *Host) (*Prepared,
	error) {
	return func(ctx context.Context, h *Host) (*Prepared, error) {
		way, err := h.denials(ctx, name, open)
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
}

func setupDeniedEvent(ctx context.Context, h *Host) (*Prepared, error) {
	way, err := h.denials(ctx, "hutch-net", openHutch)
	if err != nil {
		return nil, err
	}
	_, c, err := h.networkDaemon(ctx, network)
	if err != nil {
		return nil, err
	}
	sub, err := c.Subscribe(ctx, api.SubscribeParams{Kinds: []api.EventKind{api.EventNetworkDenied}})
	if err != nil {
		return nil, err
	}
	h.undo.Add(sub.Close)
	// Read all the time: that a command's answer is still on its way is not the event's fault.
	type came struct {
		port uint16
		at   time.Duration
		err  error
	}
	events := make(chan came, 16)
	go func() {
		for {
			event, err := sub.Next(context.WithoutCancel(ctx)) // until it is closed
			var now unix.Timespec
			err = errors.Join(err, unix.ClockGettime(unix.CLOCK_MONOTONIC, &now))
			var d api.DeniedEvent
			if err == nil {
				err = json.Unmarshal(event.Data, &d)
			}
			events <- came{d.Port, time.Duration(now.Nano()), err}
			if err != nil {
				return
			}
		}
	}()
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
			select {
			case e := <-events:
				if e.err != nil || e.port == port {
					return e.at - began, e.err
				}
			case <-ctx.Done():
				return 0, fmt.Errorf("network.denied of port %d: %w", port, ctx.Err())
			}
		}
	}
	return &Prepared{
		Command: way.command + ": denied-at " + nowhere, Version: way.version,
		Note: "one event, because a sandbox that is refused a lot is reported less often",
		Run: func(ctx context.Context) (Sample, error) {
			took, err := told(ctx)
			return Sample{Wall: took}, err
		},
	}, nil
}
