package main

import (
	"context"
	"fmt"
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
			Name: "hutch-create-" + p.name, About: "what the creation of a sandbox takes for a policy " + p.about, Named: true,
			Setup: func(ctx context.Context, h *Host) (*Prepared, error) {
				s, err := h.serve()
				if err != nil {
					return nil, err
				}
				return h.prepareCreation(ctx, p.policy(s))
			},
		})
	}
	return list
}

// prepareCreation measures the phases of a creation that a policy has: its reading, and its
// namespace, which is made ahead.
func (h *Host) prepareCreation(ctx context.Context, p api.NetPolicy) (*Prepared, error) {
	_, c, err := h.networkDaemon(ctx)
	if err != nil {
		return nil, err
	}
	return &Prepared{
		Command: "sandbox.create by the Go client",
		Note:    fmt.Sprintf("phases policy and netns, mode %s, %d entries", p.Mode, len(p.Allow)),
		Run: func(ctx context.Context) (Sample, error) {
			sb, err := c.CreateSandbox(ctx, api.CreateParams{Spec: api.Spec{Image: "host", Network: p}}, nil, nil)
			if err != nil {
				return Sample{}, err
			}
			_, err = c.Remove(ctx, sb.ID)
			ms := sb.PhasesMS["policy"] + sb.PhasesMS["netns"]
			return Sample{Wall: time.Duration(ms * float64(time.Millisecond))}, err
		},
	}, nil
}
