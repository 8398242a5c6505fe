package cli

import (
	"context"
	"errors"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/testenv"
)

// step is one thing that happens: a signal, then time passing.
type step struct {
	sig   unix.Signal // 0: the command starts
	after time.Duration
}

func TestSignals(t *testing.T) {
	const started = 0
	for _, tt := range []struct {
		name    string
		steps   []step
		sent    []string
		resized int
		ended   unix.Signal // 0: the call goes on
		late    bool        // there is no command yet, as it turns out
	}{
		{"interrupt before the command", []step{{unix.SIGINT, 0}}, nil, 0, unix.SIGINT, false},
		{"terminate before the command", []step{{unix.SIGTERM, 0}}, nil, 0, unix.SIGTERM, false},
		{"forwarded", []step{{started, 0}, {unix.SIGINT, 0}}, []string{"SIGINT"}, 0, 0, false},
		{"second interrupt at once", []step{{started, 0}, {unix.SIGINT, time.Second}, {unix.SIGINT, 0}},
			[]string{"SIGINT"}, 0, unix.SIGINT, false},
		{"second interrupt later", []step{{started, 0}, {unix.SIGINT, 3 * time.Second}, {unix.SIGINT, 0}},
			[]string{"SIGINT", "SIGINT"}, 0, 0, false},
		{"interrupt is survived", []step{{started, 0}, {unix.SIGINT, time.Hour}}, []string{"SIGINT"}, 0, 0, false},
		{"terminate is patient", []step{{started, 0}, {unix.SIGTERM, 9 * time.Second}}, []string{"SIGTERM"}, 0,
			0, false},
		{"but not for ever", []step{{started, 0}, {unix.SIGTERM, 11 * time.Second}}, []string{"SIGTERM"}, 0,
			unix.SIGTERM, false},
		{"hangup as terminate", []step{{started, 0}, {unix.SIGHUP, 11 * time.Second}}, []string{"SIGHUP"}, 0,
			unix.SIGHUP, false},
		{"quit is forwarded", []step{{started, 0}, {unix.SIGQUIT, 0}}, []string{"SIGQUIT"}, 0, 0, false},
		{"interrupt just before the command", []step{{started, 0}, {unix.SIGINT, 0}}, []string{"SIGINT"}, 0,
			unix.SIGINT, true},
		{"resize", []step{{started, 0}, {unix.SIGWINCH, 0}, {unix.SIGWINCH, 0}}, nil, 2, 0, false},
		{"resize just before the command is known", []step{{unix.SIGWINCH, 0}, {started, 0}, {started, 0}}, nil, 1,
			0, false},
		{"a closed stdout", []step{{unix.SIGPIPE, 0}, {started, 0}, {unix.SIGPIPE, 0}}, nil, 0, 0, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				events := make(chan os.Signal)
				ctx, s := forward(t.Context(), events, func() {})
				defer s.Stop()
				var sent []string
				resized := 0
				for _, st := range tt.steps {
					if st.sig == started {
						s.Started(Target{
							Signal: func(name string) bool {
								sent = append(sent, name)
								return !tt.late
							},
							Resize: func() { resized++ },
						})
					} else {
						events <- st.sig
					}
					testenv.Elapse(st.after)
				}
				if !slices.Equal(sent, tt.sent) || resized != tt.resized {
					t.Errorf("sent %q, resized %d times, want %q and %d", sent, resized, tt.sent, tt.resized)
				}
				var by *Interrupted
				if errors.As(context.Cause(ctx), &by); by == nil && tt.ended != 0 || by != nil &&
					by.Signal != tt.ended {
					t.Errorf("the call ended by %v, want %v", by, tt.ended)
				}
			})
		})
	}
}

func TestStopTwice(t *testing.T) {
	ctx, s := CatchSignals(t.Context())
	s.Stop()
	s.Stop()
	s.Started(Target{}) // nobody listens any more
	if ctx.Err() == nil {
		t.Error("the context outlives Stop")
	}
}
