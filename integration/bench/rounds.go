package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// entry is a subject during a measurement.
type entry struct {
	subject     Subject
	prepared    *Prepared
	unavailable *Unavailable
	samples     []Sample
	err         error // what ended its measurement
}

// plan bounds a measurement.
type plan struct {
	warmup int       // rounds that are not counted
	rounds int       // rounds that are
	until  time.Time // no round starts after it
}

// prepare sets every subject up and returns them all, those that cannot run too.
func prepare(ctx context.Context, h *Host, chosen []Subject) []*entry {
	entries := make([]*entry, 0, len(chosen))
	for _, s := range chosen {
		e := &entry{subject: s}
		e.prepared, e.err = s.Setup(ctx, h)
		if errors.As(e.err, &e.unavailable) {
			e.err = nil
		}
		entries = append(entries, e)
	}
	return entries
}

// runs reports whether e takes part in the rounds.
func (e *entry) runs() bool { return e.prepared != nil && e.err == nil }

// measure runs the subjects in rounds, each once a round, and returns how many
// rounds were counted. A subject that fails is left out from then on: its samples
// would otherwise lack a round.
//
// Interleaving makes a load of the machine meet all alike. The order changes from
// round to round, by a fixed seed, because a subject that cleans up in the
// background would otherwise always slow the same neighbor.
func measure(ctx context.Context, entries []*entry, p plan) (counted int, err error) {
	var running []*entry
	for _, e := range entries {
		if e.runs() {
			running = append(running, e)
		}
	}
	order := rand.New(rand.NewPCG(1, 2))
	for round := range p.warmup + p.rounds {
		if round > p.warmup && time.Now().After(p.until) {
			break
		}
		for _, i := range order.Perm(len(running)) {
			e := running[i]
			if !e.runs() {
				continue
			}
			s, err := e.prepared.once(ctx)
			if ctx.Err() != nil {
				return counted, context.Cause(ctx)
			}
			if err != nil {
				e.err = fmt.Errorf("round %d: %w", round, err)
				continue
			}
			if round >= p.warmup {
				e.samples = append(e.samples, s)
			}
		}
		if round >= p.warmup {
			counted++
		}
	}
	return counted, nil
}

// once is Run behind Before.
func (p *Prepared) once(ctx context.Context) (Sample, error) {
	if p.Before != nil {
		if err := p.Before(ctx); err != nil {
			return Sample{}, err
		}
	}
	return p.Run(ctx)
}

// millis takes one figure of every sample, in milliseconds.
func (e *entry) millis(of func(Sample) time.Duration) []float64 {
	out := make([]float64, len(e.samples))
	for i, s := range e.samples {
		out[i] = float64(of(s)) / float64(time.Millisecond)
	}
	return out
}

func wallTime(s Sample) time.Duration { return s.Wall }
func cpuTime(s Sample) time.Duration  { return s.User + s.Sys }
