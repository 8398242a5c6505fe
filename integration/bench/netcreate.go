package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/hutch-sh/hutch/runtime/api"
)

// manyRules is how many entries a long policy has.
const manyRules = 10000

// creationSubjects measure what a policy adds to the creation of a sandbox.
func creationSubjects() []Subject {
	var list []Subject
	for _, p := range []struct {
		name, about string
		policy      func(*servers) api.NetPolicy
	}{
		{"allow", "of a few names", func(s *servers) api.NetPolicy { return s.policy(0) }},
		{"udp", "of a name and its datagrams", func(*servers) api.NetPolicy {
			return api.NetPolicy{Mode: api.NetAllow, Allow: []string{"bench.test", "udp://bench.test:123"}}
		}},
		{"open", "of mode open", func(*servers) api.NetPolicy { return api.NetPolicy{Mode: api.NetOpen} }},
		{"rules", "of 10,000 names", func(s *servers) api.NetPolicy { return s.policy(manyRules) }},
	} {
		list = append(list, Subject{
			Name: "hutch-create-" + p.name, About: "what the creation of a sandbox takes for a policy " + p.about,
			Named: true,
			Setup: func(ctx context.Context, h *Host) (*Prepared, error) {
				s, err := h.serve()
				if err != nil {
					return nil, err
				}
				return h.prepareCreation(ctx, p.policy(s), 1, "policy", "netns")
			},
		})
	}
	return append(list, Subject{
		Name: "hutch-create-enforce", About: "what putting a policy of a few names in force by eBPF takes, ten times",
		Named: true,
		Setup: func(ctx context.Context, h *Host) (*Prepared, error) {
			if _, err := h.denials(ctx, "hutch-net", openHutch); err != nil {
				return nil, err
			}
			s, err := h.serve()
			if err != nil {
				return nil, err
			}
			return h.prepareCreation(ctx, s.policy(0), perTen, "enforce")
		},
	})
}

// perTen makes of a tenth of a millisecond what a table of milliseconds can show.
const perTen = 10

// prepareCreation measures phases of a creation, so many times. Those that every policy has are its reading, and its
// namespace, which is made ahead.
func (h *Host) prepareCreation(ctx context.Context, p api.NetPolicy, times float64, phases ...string) (*Prepared,
	error) {
	_, c, err := h.networkDaemon(ctx, network)
	if err != nil {
		return nil, err
	}
	return &Prepared{
		Command: "sandbox.create by the Go client",
		Note:    fmt.Sprintf("phases %s, mode %s, %d entries", strings.Join(phases, " and "), p.Mode, len(p.Allow)),
		Run: func(ctx context.Context) (Sample, error) {
			sb, err := c.CreateSandbox(ctx, api.CreateParams{Spec: api.Spec{Image: "host", Network: p}}, nil, nil)
			if err != nil {
				return Sample{}, err
			}
			_, err = c.Remove(ctx, sb.ID)
			ms := 0.0
			for _, phase := range phases {
				ms += sb.PhasesMS[phase]
			}
			return Sample{Wall: time.Duration(times * ms * float64(time.Millisecond))}, err
		},
	}, nil
}
