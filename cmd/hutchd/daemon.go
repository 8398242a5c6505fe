package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/cgroups"
	"github.com/hutch-sh/hutch/images"
	"github.com/hutch-sh/hutch/internal/audit"
	"github.com/hutch-sh/hutch/internal/cleanup"
	"github.com/hutch-sh/hutch/internal/config"
	"github.com/hutch-sh/hutch/internal/eventlog"
	"github.com/hutch-sh/hutch/internal/harden"
	"github.com/hutch-sh/hutch/internal/packet"
	"github.com/hutch-sh/hutch/internal/sys"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/ask"
	"github.com/hutch-sh/hutch/runtime/keep/shelf"
	"github.com/hutch-sh/hutch/runtime/launch/launchapi"
	"github.com/hutch-sh/hutch/runtime/mode"
	"github.com/hutch-sh/hutch/runtime/monitor/monitorapi"
	"github.com/hutch-sh/hutch/runtime/sandbox"
	"github.com/hutch-sh/hutch/runtime/scan"
	"github.com/hutch-sh/hutch/runtime/server"
	"github.com/hutch-sh/hutch/runtime/template"
	"github.com/hutch-sh/hutch/runtime/tools"
	"github.com/hutch-sh/hutch/runtime/volume"
)

// defaultIdle is how long a shared daemon stays without sandboxes.
const defaultIdle = 15 * time.Minute

// maxProcesses is RLIMIT_NPROC of commands: as many as the default limit of a
// sandbox's cgroup.
const maxProcesses = 4096

// daemon joins the engines.
type daemon struct {
	cfg      *monitorapi.Config
	log      *slog.Logger
	monitor  *packet.Conn
	started  time.Time
	launched time.Time // hutch-launch was

	home      *home
	events    *eventlog.Log
	audit     *audit.Logs
	store     *images.Store
	manager   *sandbox.Manager
	approvals *ask.Approvals
	volumes   *volume.Store
	shelf     *shelf.Store
	source    *imageSource
	templates *template.Set
	tools     *tools.Set
	scanner   *scan.Scanner
	modes     *mode.Decider
	launcher  *launchapi.Client
	parent    int // hutch-launch
	server    *server.Server
	host      sandbox.Host

	stop      context.CancelCauseFunc
	ending    atomic.Bool // stop was called
	left      bool        // ends without removing its sandboxes: they are the next daemon's
	conns     atomic.Uint64
	connected connections
	busy      atomic.Int64 // pulls under way
	runtimes  atomic.Pointer[config.Runtimes]
	shipped   atomic.Pointer[[]api.TemplateSpec]

	questions *questions // to the monitor
}

// runDaemon is hutchd's role inside its own user and mount namespace.
func runDaemon() (err error) {
	sys.SetComm("hutchd") // started by fd, ps would show its number
	if err := guard(); err != nil {
		return err
	}
	mon, err := inherited(launchapi.DaemonMonitorFD, "monitor")
	if err != nil {
		return err
	}
	launchChannel, err := inherited(launchapi.DaemonLaunchFD, "launcher")
	if err != nil {
		return err
	}
	d := &daemon{log: newLogger(), parent: os.Getppid(), started: time.Now().UTC().Truncate(time.Second)}
	if d.launched, err = startOf(d.parent); err != nil {
		return err
	}
	if d.monitor, err = packet.New(mon); err != nil {
		return err
	}
	d.questions = newQuestions(func(q monitorapi.Message) error { return d.monitor.Send(q) })
	var first monitorapi.Message
	given, err := d.monitor.Recv(&first)
	if err != nil || first.Config == nil || len(given) == 0 {
		packet.CloseAll(given)
		return fmt.Errorf("no config from the monitor: %w", cmp.Or(err, errors.New("it sent something else first")))
	}
	maps := given[1:]
	defer packet.CloseAll(maps)
	d.scanner = scan.New(given[0])
	defer d.scanner.Close()
	d.cfg = first.Config
	serves := false
	defer func() {
		if serves && err != nil && !errors.Is(err, errLeave) {
			d.log.Warn("not all of the daemon could be removed", "err", err)
			err = errors.Join(errNotAll, err)
		}
	}()
	var undo cleanup.Stack
	defer undo.Run(&err)
	if err := d.open(launchChannel, maps, &undo); err != nil {
		d.left = true // what there is belongs to hutch-launch
		_ = d.monitor.Send(monitorapi.Message{Failed: failed(err)})
		return err
	}
	serves = true
	return d.run()
}

// guard takes from hutchd, and so from its workers, what they do not need. Its memory, which
// passwords of registries pass through, is not for core files.
func guard() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("forbid dumps: %w", err)
	}
	return harden.Process()
}

func failed(err error) *monitorapi.Failed {
	var e *api.Error
	if !errors.As(err, &e) {
		e = &api.Error{Code: api.Internal, Msg: err.Error()}
	}
	return &monitorapi.Failed{Code: e.Code, Msg: err.Error(), Hint: e.Hint}
}

// open brings the engines up. maps are eBPF's, the caller's.
func (d *daemon) open(launchChannel *os.File, maps []*os.File, undo *cleanup.Stack) (err error) {
	d.nameImages(&d.cfg.Settings)
	if err := d.measureHost(); err != nil {
		return err
	}
	// The ends of adopted PID 1s come before there is a manager.
	managed := make(chan struct{})
	exits := func(e launchapi.Exited) {
		if <-managed; d.manager != nil {
			d.manager.Exited(e)
		}
	}
	if d.launcher, err = launchapi.NewClient(launchChannel, exits); err != nil {
		return err
	}
	undo.Add(d.launcher.Close)
	defer close(managed) // before the undo
	held, err := d.launcher.Adopt(context.Background())
	if err != nil {
		return err
	}
	if err := d.openHome(held); err != nil {
		return err
	}
	undo.Add(d.closeHome)
	d.host.InMemory = d.home.inMemory
	if d.events, err = d.openEvents(); err != nil {
		return err
	}
	undo.Add(d.events.Close)
	if d.audit, err = d.openAudit(); err != nil {
		return err
	}
	undo.Add(d.audit.Close)
	if d.store, err = d.openImages(); err != nil {
		return err
	}
	undo.Add(d.store.Close)
	d.source = &imageSource{d: d, views: &hostViews{dir: d.home.dir}, usr: &hostFolders{dir: d.home.dir},
		layers: &layers{
			store: d.store, launcher: d.launcher, log: d.log, users: map[string]int{},
		}}
	if err := errors.Join(d.source.views.adopt(), d.source.usr.adopt()); err != nil {
		return err
	}
	undo.Add(func() error {
		if d.left {
			return nil
		}
		return errors.Join(d.source.views.close(), d.source.usr.close())
	})
	execs, err := cgroups.OpenExecs(d.cfg.Cgroups, d.host.Disk)
	if err != nil {
		return err
	}
	undo.Add(execs.Close)
	if err := d.openApprovals(); err != nil {
		return err
	}
	networks := d.openNetworks(held.Kept)
	undo.Add(networks.Close)
	if err := d.useKernel(networks, maps, held.Kept); err != nil {
		return err
	}
	if d.shelf, err = shelf.Open(d.home.shelf(), d.log); err != nil {
		return err
	}
	if d.volumes, err = volume.Open(filepath.Join(d.cfg.Data, "volumes"), d.log); err != nil {
		return err
	}
	var noTemplates error
	d.manager = sandbox.NewManager(sandbox.Config{
		Templates: func(m *sandbox.Manager) sandbox.Templates { noTemplates = d.openTemplates(m); return d.templates },
		Dir:       d.home.sandboxes(), Host: d.host, Settings: settings(&d.cfg.Settings), Images: d.source,
		Kernel: sandbox.Linux{}, Launcher: d.launcher, Events: d.events, Audit: d.audit, Networks: networks,
		Cgroups: execs, Projects: d.projects(), Logger: d.log,
		Seccomp: profiles{}, Owner: d.cfg.Owner, Volumes: d.volumes, Shelf: d.shelf, Ephemeral: d.cfg.Private ||
			d.home.inMemory,
	})
	if noTemplates != nil {
		return noTemplates
	}
	if err := d.manager.Adopt(context.Background(), held.Sandboxes); err != nil {
		return err
	}
	networks.Adopted()
	d.source.layers.forgetUnused(held.Kept)
	for _, f := range held.Kept {
		_ = f.Close()
	}
	if err := d.templates.Sweep(); err != nil {
		d.log.Warn("remove what builds of templates have left", "err", err)
	}
	d.templates.Start()
	if d.tools, err = tools.New(tools.Config{Sandboxes: d.manager, Events: d.events}); err != nil {
		return err
	}
	undo.Add(func() error { d.tools.Close(); return nil })
	d.modes = mode.New(mode.Config{Scanner: d.scanner, Boxes: d.manager, Events: d.events, Audit: d.audit,
		Settings: modes(&d.cfg.Settings)})
	d.server, err = server.New(server.Config{Methods: d.methods(), Attach: d.attach, Subscribe: d.subscribe,
		Tokens: d.cfg.Settings.Tokens, Logger: d.log})
	return err
}

// run serves until the monitor, a shutdown call or idleness ends it, then removes
// every sandbox.
func (d *daemon) run() error {
	ctx, stop := context.WithCancelCause(context.Background())
	var once sync.Once
	d.stop = func(cause error) {
		once.Do(func() {
			// Before anybody is told that it ends: where this process does not get that far, the monitor does.
			_ = d.monitor.Send(monitorapi.Message{Ending: &monitorapi.Ending{Keep: errors.Is(cause, errLeave)}})
			stop(cause)
		})
	}
	var wg sync.WaitGroup
	wg.Go(func() { d.receive(ctx, &wg) })
	wg.Go(func() {
		select {
		case <-d.launcher.Done():
			d.lose()
		case <-ctx.Done():
		}
	})
	if !d.cfg.Private {
		wg.Go(func() { d.watchIdle(ctx) })
	}
	if err := d.monitor.Send(monitorapi.Message{Ready: &monitorapi.Ready{}}); err != nil {
		d.end(true, err.Error())
	}
	<-ctx.Done()
	d.log.Debug("ending", "why", context.Cause(ctx))

	var err error
	if d.left = errors.Is(context.Cause(ctx), errLeave); !d.left {
		err = d.removeAll()
	}
	bounded, cancel := context.WithTimeout(context.Background(), endTime)
	defer cancel()
	drain, cancelDrain := d.drain(bounded)
	defer cancelDrain()
	if serr := d.server.Shutdown(drain); serr != nil && !errors.Is(serr, context.DeadlineExceeded) {
		err = errors.Join(err, serr)
	}
	if d.left {
		d.manager.Settle(drain)
	}
	_ = d.monitor.Close() // ends receive
	if !ended(bounded, &wg) {
		d.log.Error("not every connection ended in time")
		d.log.Info("what there is", "goroutines", goroutines())
	}
	if d.left {
		return errors.Join(errLeave, err)
	}
	return err
}

// What the end of hutchd may take; the monitor kills one that takes longer than removeTime and some seconds
// (runtime/monitor, stopTimeout).
const (
	removeTime = 25 * time.Second // the removal of all sandboxes
	endTime    = 20 * time.Second // the rest, which takes a second or two
)

// removeAll removes the sandboxes. What is not through in time the removal of the daemon's folder goes on with.
func (d *daemon) removeAll() error {
	ctx, cancel := context.WithTimeout(context.Background(), removeTime)
	defer cancel()
	err := d.manager.Close(ctx)
	if ctx.Err() != nil {
		d.log.Error("not every sandbox was removed in time", "err", err)
		d.log.Info("what there is", "goroutines", goroutines())
	}
	return err
}

// ended waits for wg until ctx ends; a client's connection must never keep the
// daemon alive.
func ended(ctx context.Context, wg *sync.WaitGroup) bool {
	done := make(chan struct{})
	go func() {
		wg.Wait()
		close(done)
	}()
	select {
	case <-done:
		return true
	case <-ctx.Done():
		return false
	}
}

// goroutines is where each goroutine is: what the log needs when one hangs.
func goroutines() string {
	text := make([]byte, 1<<20)
	return string(text[:runtime.Stack(text, true)])
}

var errEnded = errors.New("the monitor ended")

// errLeave ends hutchd without its sandboxes.
var errLeave = errors.New("the sandboxes are left to the next daemon")

// errNotAll ends hutchd as it was asked to, but for what the errors behind it say.
var errNotAll = errors.New("the daemon ended, but not all of it could be removed")

// end ends hutchd: with keep, and where there are sandboxes, without them.
func (d *daemon) end(keep bool, why string) {
	switch {
	case !d.hasLauncher():
		d.lose()
	case keep && !d.cfg.Private && !d.manager.CloseEmpty():
		d.manager.Leave()
		d.ending.Store(true)
		d.stop(errLeave)
	default:
		d.ending.Store(true)
		d.stop(errors.New(why))
	}
}

// lose ends hutchd after hutch-launch, and with it every sandbox, has ended.
func (d *daemon) lose() {
	d.manager.Lost()
	d.stop(errors.New("hutch-launch is gone"))
}

// hasLauncher tells whether hutch-launch lives. The monitor closes its channel after
// the death of hutch-launch, too, and hutchd may read of that first; the kernel gives
// hutchd another parent before anybody can have waited for the old one
// (kernel/exit.c, exit_notify).
func (d *daemon) hasLauncher() bool { return os.Getppid() == d.parent }

// receive takes connections and orders from the monitor until it is gone.
func (d *daemon) receive(ctx context.Context, wg *sync.WaitGroup) {
	for {
		var msg monitorapi.Message
		files, err := d.monitor.Recv(&msg)
		if errors.Is(err, packet.ErrFDsLost) {
			d.log.Error("a connection is lost", "err", err)
			continue
		}
		if err != nil {
			if !errors.Is(err, io.EOF) {
				d.log.Error("talk to the monitor", "err", err)
			}
			d.end(true, errEnded.Error())
			return
		}
		switch {
		case msg.Conn != nil && len(files) == 1:
			c := *msg.Conn
			err := d.connected.enter(c.UID)
			if err == nil {
				wg.Go(func() {
					defer d.connected.leave(c.UID)
					d.serveConn(ctx, files[0], c)
				})
				continue
			}
			d.log.Warn("refused a connection", "uid", c.UID, "err", err)
			refuse(files[0], err)
		case msg.Stop != nil:
			d.end(msg.Stop.Keep, msg.Stop.Reason)
		case msg.Reloaded != nil:
			d.reloaded(msg)
		case msg.Swept != nil, msg.Probed != nil, msg.Projected != nil:
			d.answered(msg)
		}
		packet.CloseAll(files)
	}
}

// serveConn serves one client until it is gone.
func (d *daemon) serveConn(ctx context.Context, f *os.File, c monitorapi.Conn) {
	nc, err := net.FileConn(f)
	_ = f.Close()
	if err != nil {
		d.log.Error("take over a connection", "err", err)
		return
	}
	conn, ok := nc.(*net.UnixConn)
	if !ok {
		_ = nc.Close()
		return
	}
	who := server.Actor{UID: c.UID, GID: c.GID, PID: c.PID, Private: c.Private, Conn: d.conns.Add(1)}
	ctx = audit.WithCaller(context.WithoutCancel(ctx), &api.AuditCaller{UID: c.UID, GID: c.GID, PID: c.PID,
		Private: c.Private, Connection: who.Conn})
	d.server.ServeConn(ctx, conn, who)
	d.manager.Disconnected(who.Conn)
	d.modes.Disconnected(who.Conn)
	if c.Private {
		d.stop(errors.New("the owner of this private daemon is gone"))
	}
}

// watchIdle ends a shared daemon that has had nothing to do for long enough, and no client.
func (d *daemon) watchIdle(ctx context.Context) {
	limit := defaultIdle
	if s, err := strconv.ParseFloat(os.Getenv("HUTCH_IDLE_S"), 64); err == nil && s > 0 {
		limit = time.Duration(s * float64(time.Second))
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		sandboxes, execs, since := d.manager.Counts()
		idle := time.Since(since)
		if sandboxes+execs == 0 && d.busy.Load() == 0 && idle >= limit && d.server.EndIdle() {
			d.stop(fmt.Errorf("idle for %s", limit))
			return
		}
		timer.Reset(max(limit-idle, min(limit, time.Minute)))
	}
}

// question asks the monitor something and waits for the answer.
func (d *daemon) question(ctx context.Context, q monitorapi.Message) (monitorapi.Message, error) {
	return d.questions.ask(ctx, q)
}

// answered hands over what the monitor has answered.
func (d *daemon) answered(msg monitorapi.Message) {
	if !d.questions.answer(msg) {
		d.log.Warn("the monitor answered what nobody has asked", "question", msg.Question)
	}
}
