package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/paths"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/monitor"
)

// serve is the monitor's role.
func serve(args []string) error {
	flags := flag.NewFlagSet("hutchd serve", flag.ContinueOnError)
	privateFD := flags.Int("private-fd", -1, "connected socket of the one client; the daemon ends with it")
	readyFD := flags.Int("ready-fd", -1, "gets one line of JSON when the daemon serves or could not start")
	onStop := flags.String("on-stop", "kill",
		"what SIGTERM and SIGINT do with the sandboxes: kill, or keep them for the next daemon")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *onStop != "kill" && *onStop != "keep" {
		return api.Errorf(api.InvalidArgument, "--on-stop: %q is neither keep nor kill", *onStop)
	}
	if err := closeStray(*privateFD, *readyFD); err != nil {
		return err
	}
	logger := newLogger()
	ready, err := readyFunc(*readyFD)
	if err != nil {
		return err
	}
	p, err := paths.Resolve(os.Getenv, os.Geteuid())
	if err != nil {
		ready(err)
		return err
	}
	opts := monitor.Options{Paths: p, Keep: *onStop == "keep", Ready: ready, Logger: logger}
	if *privateFD >= 0 {
		if opts.Private, err = inherited(*privateFD, "private"); err != nil {
			ready(err)
			return err
		}
	}
	// A daemon that a terminal's hang-up would end could not outlive the shell
	// that happened to start it. It reads its configuration again, as daemons do.
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, unix.SIGHUP)
	opts.Reload = hup
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
	defer stop()
	return monitor.Run(ctx, opts)
}

// readyFunc writes the outcome of the start to fd and closes it.
func readyFunc(fd int) (func(error), error) {
	if fd < 0 {
		return func(error) {}, nil
	}
	f, err := inherited(fd, "ready")
	if err != nil {
		return nil, err
	}
	return func(err error) {
		defer f.Close()
		line := map[string]any{"ready": true, "pid": os.Getpid()}
		if err != nil {
			var e *api.Error
			if !errors.As(err, &e) {
				e = &api.Error{Code: api.Internal, Msg: err.Error()}
			}
			line = map[string]any{"error": map[string]any{"code": e.Code, "op": e.Op, "msg": withoutOp(e),
				"hint": e.Hint}}
		}
		_ = json.NewEncoder(f).Encode(line) // nobody left to tell
	}, nil
}

// withoutOp is e's text without its operation, which travels on its own.
func withoutOp(e *api.Error) string {
	c := *e
	c.Op = ""
	return c.Error()
}

// closeStray closes what the process that started the first client happened to
// have open: a daemon would hold its locks and keep its pipes from ending for as
// long as it lives. This process's own files are close-on-exec; those are not.
func closeStray(keep ...int) error {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return fmt.Errorf("look for stray fds: %w", err)
	}
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		if err != nil || fd <= 2 || slices.Contains(keep, fd) {
			continue
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			_ = unix.Close(fd)
		}
	}
	return nil
}

// inherited takes over an fd that the parent left open.
func inherited(fd int, name string) (*os.File, error) {
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, unix.FD_CLOEXEC); err != nil {
		return nil, fmt.Errorf("inherited fd %d (%s): %w", fd, name, err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

func newLogger() *slog.Logger {
	var level slog.Level
	if err := level.UnmarshalText([]byte(os.Getenv("HUTCH_LOG"))); err != nil {
		level = slog.LevelInfo
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
}
