package main

import (
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/seccomp"
)

// profiles joins package seccomp with the sandboxes.
type profiles struct{}

func (profiles) Check(text string) error {
	_, err := seccomp.ParseCustom(text)
	return err
}

func (profiles) Explain(profile string, nr uint32, args [6]uint64) (call, why, howToAllow string, probe bool) {
	r := seccomp.Explain(profile, nr, args)
	return r.Call, r.Why, r.HowToAllow, r.Probe
}

func (profiles) Describe(name string) ([]api.DebugRule, string) {
	rules, other, err := seccomp.Describe(name)
	if err != nil { // validated, so there is none
		return nil, ""
	}
	return rules, other
}
