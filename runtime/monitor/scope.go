package monitor

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"time"

	"github.com/godbus/dbus/v5"

	"github.com/hutch-sh/hutch/internal/probe"
)

// scopeTimeout bounds what the user's systemd may take for a scope.
const scopeTimeout = 20 * time.Second

// The part of systemd's D-Bus interface that is used (org.freedesktop.systemd1(5)).
const (
	systemdName    = "org.freedesktop.systemd1"
	systemdPath    = "/org/freedesktop/systemd1"
	systemdManager = systemdName + ".Manager"
)

// property and unit are systemd's types of the same signature, (sv) and (sa(sv)).
type property struct {
	Name  string
	Value dbus.Variant
}
type unit struct {
	Name       string
	Properties []property
}

// enterScope asks the user's systemd for a scope of this process's own, with a
// delegated cgroup, and returns when this process is in it: an ordinary user's
// session is a cgroup of root's, in which nothing can be made. The scope lasts as
// long as a process is in it, so it outlives a monitor that was killed and goes
// with hutch-launch. It must happen here, outside user namespaces of hutch's making:
// the bus authenticates by uid.
func enterScope(ctx context.Context) error {
	address, ok := probe.UserBus()
	if !ok {
		return errors.New("there is no bus of a systemd user manager")
	}
	ctx, cancel := context.WithTimeoutCause(ctx, scopeTimeout, fmt.Errorf("no answer within %v", scopeTimeout))
	defer cancel()
	// A pid alone may be that of a dead monitor whose sandboxes live on.
	err := startScope(ctx, address, fmt.Sprintf("hutch-%d-%x.scope", os.Getpid(), time.Now().UnixMilli()))
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return fmt.Errorf("ask systemd at %s for a scope: %w", address, err)
	}
	return nil
}

func startScope(ctx context.Context, address, name string) error {
	conn, err := dbus.Connect(address, dbus.WithContext(ctx))
	if err != nil {
		return err
	}
	defer conn.Close()
	// The reply to the call only says that the job is queued. Signals arrive in order,
	// and this one is only for who has subscribed.
	err = conn.AddMatchSignalContext(ctx, dbus.WithMatchSender(systemdName), dbus.WithMatchInterface(systemdManager),
		dbus.WithMatchMember("JobRemoved"))
	if err != nil {
		return err
	}
	signals := make(chan *dbus.Signal, 64)
	conn.Signal(signals)
	manager := conn.Object(systemdName, systemdPath)
	if err := manager.CallWithContext(ctx, systemdManager+".Subscribe", 0).Err; err != nil {
		return err
	}
	properties := []property{
		{"Description", dbus.MakeVariant("hutch sandboxes")},
		{"PIDs", dbus.MakeVariant([]uint32{uint32(os.Getpid())})},
		{"Delegate", dbus.MakeVariant(true)},
		// systemd's default would be one more limit on all sandboxes together, which no
		// result could name.
		{"TasksMax", dbus.MakeVariant(uint64(math.MaxUint64))},
		// Nothing is kept of a scope whose processes failed.
		{"CollectMode", dbus.MakeVariant("inactive-or-failed")},
	}
	var job dbus.ObjectPath
	err = manager.CallWithContext(ctx, systemdManager+".StartTransientUnit", 0, name, "fail", properties, []unit{}).
		Store(&job)
	if err != nil {
		return err
	}
	return awaitJob(ctx, signals, job)
}

// awaitJob waits until a job of systemd's has ended.
func awaitJob(ctx context.Context, signals <-chan *dbus.Signal, job dbus.ObjectPath) error {
	for {
		select {
		case s, open := <-signals:
			if !open {
				return errors.New("the bus hung up")
			}
			// u id, o job, s unit, s result
			if s.Name != systemdManager+".JobRemoved" || len(s.Body) != 4 || s.Body[1] != job {
				continue
			}
			if s.Body[3] != "done" {
				return fmt.Errorf("the job ended: %v", s.Body[3])
			}
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
