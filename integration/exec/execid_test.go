package exec_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/api"
)

// TestExecID: of commands that are started with the same id at once one runs, and the
// others harm neither it nor its output. An id whose command could not be started is free.
func TestExecID(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	c := w.Connect(t)
	sb := world.Box(t, c)
	for i := range 10 {
		id := "ex_samesamesam" + string(rune('a'+i))
		if _, err := c.ExecStart(t.Context(), api.ExecParams{Sandbox: sb, Exec: id, Argv: []string{"/no/such/program"}},
			nil); err == nil {
			t.Fatal("a program that is not there was started")
		}
		var mu sync.Mutex
		var wg sync.WaitGroup
		ran := 0
		for range 8 {
			wg.Go(func() {
				res, err := c.ExecRun(t.Context(), api.ExecParams{Sandbox: sb, Exec: id, Command: "echo out"}, nil, nil)
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err == nil && res.Stdout == "out\n" && res.ExitCode == 0:
					ran++
				case !errors.Is(err, &api.Error{Code: api.AlreadyExists}):
					t.Errorf("%+v, %v", res, err)
				}
			})
		}
		wg.Wait()
		if ran == 0 { // more than one where one had ended and was forgotten
			t.Errorf("%s: none ran", id)
		}
	}
}

// TestTerminalInput: a terminal whose command does not read holds up neither who writes
// to it, nor who waits behind him, nor who presses the key for its end; and takes input
// again when the command reads.
func TestTerminalInput(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	c := w.Connect(t)
	sb := world.Box(t, c)
	start, err := c.ExecStart(t.Context(), api.ExecParams{
		Sandbox: sb, Pty: &api.Pty{Rows: 24, Cols: 80},
		Command: "mkfifo /tmp/go; stty raw -echo; echo ready; cat /tmp/go; exec cat >/dev/null",
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := world.Written(t, c, start.Exec); !strings.Contains(got, "ready") {
		t.Fatalf("%q", got)
	}
	// More than a terminal holds. A request that is given up half sent would end the connection,
	// so it is less than what a socket holds.
	big := api.WriteParams{Exec: start.Exec, Data: strings.Repeat("x", 96<<10)}
	piece := api.WriteParams{Exec: start.Exec, Data: big.Data[:4<<10]}
	short := func() context.Context {
		ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience(200*time.Millisecond))
		t.Cleanup(cancel)
		return ctx
	}
	if err := c.ExecWrite(short(), big); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("a terminal that nobody reads took it all: %v", err)
	}
	// On a busy machine it may not be full yet.
	begin := time.Now()
	more := func() bool {
		for c.ExecWrite(short(), piece) == nil {
		}
		return time.Since(begin) < world.Patience
	}
	more()
	writing, cancel := context.WithCancel(t.Context())
	defer cancel()
	wrote := make(chan error, 1)
	go func() { wrote <- c.ExecWrite(writing, big) }()
	for { // it may have been sent before the write was
		err := c.ExecCloseStdin(short(), start.Exec)
		var refused *api.Error // by the daemon, which was the first to give up
		if errors.Is(err, context.DeadlineExceeded) || errors.As(err, &refused) &&
			refused.Code == api.FailedPrecondition {
			break
		}
		if err != nil || !more() {
			t.Fatalf("the key went past what is being written: %v", err)
		}
	}
	cancel()
	if err := <-wrote; !errors.Is(err, context.Canceled) {
		t.Errorf("a write that was given up: %v", err)
	}
	for err = nil; err == nil && more(); {
		err = c.ExecCloseStdin(t.Context(), start.Exec) // the daemon has a time of its own for this
	}
	world.Fails(t, err, api.FailedPrecondition, "takes no input")
	if _, err := c.ExecRun(t.Context(), api.ExecParams{Sandbox: sb, Command: "echo >/tmp/go"}, nil, nil); err != nil {
		t.Fatal(err)
	}
	soon, done := context.WithTimeout(t.Context(), world.Patience)
	defer done()
	if err := c.ExecWrite(soon, big); err != nil {
		world.Fatal(t, fmt.Errorf("the command reads again: %w", err))
	}
}
