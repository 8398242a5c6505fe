package cli

import (
	"bytes"
	"fmt"
	"strings"
	"time"
)

// DefaultDetachKeys are docker's and podman's.
const DefaultDetachKeys = "ctrl-p,ctrl-q"

// DetachKeys finds the keys with which a caller leaves a terminal among those that are
// typed.
type DetachKeys struct {
	seq    []byte
	have   int // keys of seq that were typed last, and are held back
	pushed func()

	twice       func() // see OnTwice; nil
	interrupted time.Time
}

// ctrlC is the key.
const ctrlC = 0x03

// OnTwice returns keys that also call fn when Ctrl-C is typed a second time within two seconds. It is passed on both
// times. d may be nil.
func (d *DetachKeys) OnTwice(fn func()) *DetachKeys {
	if d == nil {
		d = &DetachKeys{}
	}
	d.twice = fn
	return d
}

// interrupts notes those Ctrl-C that were typed.
func (d *DetachKeys) interrupts(typed []byte) {
	for _, key := range typed {
		if key != ctrlC {
			continue
		}
		if now := time.Now(); now.Sub(d.interrupted) < secondInterrupt {
			d.interrupted = time.Time{}
			d.twice()
		} else {
			d.interrupted = now
		}
	}
}

// ParseDetachKeys parses keys as docker writes them: letters and ctrl-X, with commas
// between. None is nil. pushed is called each time when they were typed.
func ParseDetachKeys(text string, pushed func()) (*DetachKeys, error) {
	if text == "" {
		return nil, nil
	}
	d := &DetachKeys{pushed: pushed}
	for key := range strings.SplitSeq(text, ",") {
		name, ctrl := strings.CutPrefix(key, "ctrl-")
		switch {
		case len(name) != 1 || name[0] < ' ' || name[0] > '~':
			return nil, fmt.Errorf("%q is no key: use one character, or ctrl- and one of a-z @ [ \\ ] ^ _", key)
		case !ctrl:
			d.seq = append(d.seq, name[0])
		case strings.ToUpper(name)[0] >= '@' && strings.ToUpper(name)[0] <= '_':
			d.seq = append(d.seq, strings.ToUpper(name)[0]&0x1f)
		default:
			return nil, fmt.Errorf("%q is no key: ctrl- goes with a-z @ [ \\ ] ^ _", key)
		}
	}
	return d, nil
}

// filter returns what is to be passed on of the keys typed. The first keys of a sequence
// are held back until it is clear that they are none.
func (d *DetachKeys) filter(typed []byte) []byte {
	if d == nil {
		return typed
	}
	if d.twice != nil {
		d.interrupts(typed)
	}
	if len(d.seq) == 0 {
		return typed
	}
	var out []byte
	for _, key := range typed {
		for d.have > 0 && key != d.seq[d.have] {
			out = append(out, d.fallBack()...)
		}
		if key != d.seq[d.have] {
			out = append(out, key)
			continue
		}
		if d.have++; d.have == len(d.seq) {
			d.have = 0
			d.pushed()
		}
	}
	return out
}

// fallBack gives up the longest beginning that cannot be the start of the sequence any
// more: after two first keys the second may be.
func (d *DetachKeys) fallBack() []byte {
	held := d.seq[:d.have]
	for n := 1; ; n++ {
		if bytes.HasPrefix(d.seq, held[n:]) {
			d.have -= n
			return held[:n]
		}
	}
}
