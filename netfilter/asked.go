package netfilter

import (
	"sync"
	"time"

	"github.com/hutch-sh/hutch/runtime/api"
)

// asked are the questions about a sandbox's connections that are not asked again: what runs in it decides how often it
// tries, and who is asked the same again and again says yes in the end.
type asked struct {
	mu      sync.Mutex
	refused map[api.NetTarget]time.Time // until when; zero is for good
}

const (
	// unanswered is how long nobody is asked again what nobody has answered.
	unanswered = time.Minute
	// maxRefused bounds what is remembered of a sandbox. Beyond that nobody is asked about anything new.
	maxRefused = 1000
)

// begin says whether t may be asked about.
func (a *asked) begin(t api.NetTarget) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	until, known := a.refused[t]
	if !known {
		return len(a.refused) < maxRefused
	}
	return !until.IsZero() && !time.Now().Before(until)
}

// end notes the answer. late is one that did not come in time.
func (a *asked) end(t api.NetTarget, answer Answer, late bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.refused == nil {
		a.refused = map[api.NetTarget]time.Time{}
	}
	switch {
	case answer == Never:
		a.refused[t] = time.Time{}
	case answer == No && late:
		a.refused[t] = time.Now().Add(unanswered)
	case answer != No:
		delete(a.refused, t)
	}
}
