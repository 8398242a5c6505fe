package cli

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// How patient hutch is with a command that does not end on a signal.
const (
	secondInterrupt = 2 * time.Second  // a second Ctrl-C within this time ends the call
	terminateGrace  = 10 * time.Second // so does SIGTERM or SIGHUP after this time
)

// listenDelay is how long a call is under way before hutch catches signals, and unlistenDelay
// how long it is over before hutch lets go of them. Each signal costs the runtime two errands
// to its signal thread, all of them more than a connection to a daemon: a call that is over
// before pays nothing.
const (
	listenDelay   = 2 * time.Millisecond
	unlistenDelay = 50 * time.Millisecond
)

// Interrupted is the cause of a context that a signal ended.
type Interrupted struct{ Signal unix.Signal }

func (i *Interrupted) Error() string {
	return fmt.Sprintf("interrupted by %s", unix.SignalName(i.Signal))
}

// Target is a command that may get signals.
type Target struct {
	// Signal reports false where there is no command yet, and the call is to end.
	Signal func(name string) bool
	Resize func() // nil: it has no terminal
}

// Signals forwards signals that hutch gets to the command it runs.
//
//	before Started   SIGINT, SIGTERM, SIGHUP, SIGQUIT end the call
//	after            they go to the command; the call ends on a second SIGINT
//	                 within two seconds, and ten seconds after SIGTERM or SIGHUP.
//	                 SIGINT alone never does: a prompt survives it
type Signals struct {
	events chan os.Signal
	// Listen has signals caught from now on, for who cannot have their default effect: as
	// long as a terminal is raw.
	Listen func()
	cancel context.CancelCauseFunc
	start  chan Target
	quit   chan struct{}
	once   sync.Once
	done   chan struct{}
}

// CatchSignals starts forwarding, soon (listenDelay). Until then a signal has its default
// effect: hutch ends, and with its connection what it has started. The context that it
// returns is done, with an *Interrupted as its cause, when the call is to end. Stop must be
// called.
func CatchSignals(ctx context.Context) (context.Context, *Signals) {
	events := make(chan os.Signal, 16)
	ctx, s := forward(ctx, events, func() { notify(events) })
	return ctx, s
}

func notify(events chan<- os.Signal) {
	// SIGPIPE is caught so that a write to a closed stdout fails instead of
	// ending hutch before it has cleaned up. Ignoring it would be inherited by a
	// daemon that hutch starts.
	signal.Notify(events, unix.SIGTERM, unix.SIGWINCH, unix.SIGPIPE)
	// Whoever ignores these for hutch (nohup, a shell's background job) means the
	// command as well.
	for _, sig := range []os.Signal{unix.SIGINT, unix.SIGHUP, unix.SIGQUIT} {
		if !signal.Ignored(sig) {
			signal.Notify(events, sig)
		}
	}
}

func forward(ctx context.Context, events chan os.Signal, listen func()) (context.Context, *Signals) {
	ctx, cancel := context.WithCancelCause(ctx)
	s := &Signals{
		events: events, Listen: sync.OnceFunc(listen), cancel: cancel,
		start: make(chan Target), quit: make(chan struct{}), done: make(chan struct{}),
	}
	go s.loop()
	return ctx, s
}

// Started names the command that gets the signals from now on. None is lost after it
// has returned.
func (s *Signals) Started(t Target) {
	select {
	case s.start <- t:
	case <-s.quit:
	}
}

// Stop ends forwarding and cancels the context. Signals have their default
// effect again soon after: most callers exit, and need not wait for it.
func (s *Signals) Stop() {
	s.once.Do(func() {
		close(s.quit)
		time.AfterFunc(unlistenDelay, func() { signal.Stop(s.events) })
	})
	<-s.done
	s.cancel(nil)
}

func (s *Signals) loop() {
	defer close(s.done)
	listen := time.NewTimer(listenDelay)
	defer listen.Stop()
	var target Target
	var lastInterrupt time.Time
	var grace <-chan time.Time
	var ending *Interrupted // what grace is about
	resized := false        // before it was known whose terminal that is
	for {
		select {
		case <-s.quit:
			return
		case <-listen.C:
			s.Listen()
		case target = <-s.start:
			if resized && target.Resize != nil {
				resized = false
				target.Resize()
			}
		case <-grace:
			s.cancel(ending)
		case e := <-s.events:
			sig, ok := e.(unix.Signal)
			switch {
			case !ok || sig == unix.SIGPIPE:
			case sig == unix.SIGWINCH:
				if resized = target.Resize == nil; !resized {
					target.Resize()
				}
			case target.Signal == nil,
				sig == unix.SIGINT && time.Since(lastInterrupt) < secondInterrupt,
				!target.Signal(unix.SignalName(sig)):
				s.cancel(&Interrupted{sig})
			default:
				if sig == unix.SIGINT {
					lastInterrupt = time.Now()
				}
				if grace == nil && (sig == unix.SIGTERM || sig == unix.SIGHUP) {
					ending, grace = &Interrupted{sig}, time.After(terminateGrace)
				}
			}
		}
	}
}
