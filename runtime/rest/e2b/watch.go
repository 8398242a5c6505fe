package e2b

import (
	"bytes"
	"context"
	"crypto/rand"
	_ "embed" // for the program that watches
	"encoding/json"
	"errors"
	"io"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/client"
	"github.com/hutch-sh/hutch/runtime/rest"
)

// A folder is watched by a small program in the sandbox, as the user whose rights the request has: it sees no more than
// they do. It needs python3 there. What it says is the sandbox's own word, and only ever shown.
//
//go:embed watch.py
var watchProgram string

// Bounds of what is held of a watch.
const (
	maxLine       = 32 << 10 // bytes of one event: the longest path, escaped
	maxHeldEvents = 10_000   // of a watcher that is not asked
	maxHeldBytes  = 1 << 20  // of names, of the same
	maxWatchers   = 100
	maxOfSandbox  = 20
	watcherIdle   = 10 * time.Minute // that nobody asks
)

// told is a line of the program's.
type told struct {
	Ready bool   `json:"ready"`
	Told  bool   `json:"told"` // all that was before it was asked
	Name  string `json:"name"`
	Type  string `json:"type"`
	Error string `json:"error"`
}

// event is the event of a line.
func (t *told) event() (fileEvent, bool) {
	switch t.Type {
	case "CREATE", "WRITE", "REMOVE", "RENAME", "CHMOD":
		return fileEvent{Name: strings.ToValidUTF8(t.Name, "\uFFFD"), Type: eventType("EVENT_TYPE_" + t.Type)}, true
	}
	return fileEvent{}, false
}

// lines are the lines of output that comes in pieces.
type lines struct{ rest []byte }

// add returns what is whole with a piece more.
func (l *lines) add(piece []byte) (whole []told, err error) {
	l.rest = append(l.rest, piece...)
	for {
		line, rest, ok := bytes.Cut(l.rest, []byte("\n"))
		if !ok {
			break
		}
		var t told
		if len(line) > maxLine || json.Unmarshal(line, &t) != nil {
			return whole, errNonsense
		}
		whole, l.rest = append(whole, t), rest
	}
	l.rest = bytes.Clone(l.rest)
	if len(l.rest) > maxLine {
		return whole, errNonsense
	}
	return whole, nil
}

var errNonsense = api.Errorf(api.Unavailable, "the program that watches in the sandbox has said nonsense")

// watch is a program that watches.
type watch struct {
	exec string
	a    *client.Attachment
	lines
	held []told // that came with the word that it is ready

	c       *call
	folder  api.FileParams
	entries bool // events have the record of their file
}

// eventOf is the event of a line. What is gone again has no record.
func (s envd) eventOf(ctx context.Context, w *watch, t *told) (fileEvent, bool) {
	ev, ok := t.event()
	if !ok || !w.entries || t.Type == "REMOVE" || t.Type == "RENAME" {
		return ev, ok
	}
	p := w.folder
	p.Path = path.Join(p.Path, path.Clean("/"+t.Name)) // below it, whatever the sandbox says
	if found, err := s.look(ctx, w.c, p); err == nil {
		ev.Entry = &found.Entry
	}
	return ev, true
}

// begin starts to watch a folder, and returns when every change from now on will be told.
func (s envd) beginWatch(ctx context.Context, c *call, req *watchRequest) (*watch, error) {
	p := fileOf(c, req.Path)
	st, err := rest.Do(ctx, s.rest, api.CallFSStat, api.FileStatParams{FileParams: p, Follow: true})
	if err == nil && st.Type != api.TypeFolder {
		err = api.Errorf(api.InvalidArgument, "path %s is not a directory", p.Path)
	}
	if err != nil {
		return nil, err
	}
	below := "0"
	if req.Recursive {
		below = "1"
	}
	none := 0.0
	started, err := rest.Do(ctx, s.rest, api.CallExecStart, api.ExecParams{Sandbox: c.sb.ID, User: c.user, Cwd: "/",
		Argv: []string{"python3", "-I", "-S", "-c", watchProgram, p.Path, below,
			filepath.Base(s.folder.Name())}, Background: true, TimeoutS: &none})
	if api.ErrorCode(err) == api.NotFound {
		return nil, api.Errorf(api.Unimplemented, "watching needs python3 in the sandbox: %w", err).
			WithHint("take an image that has it")
	}
	if err != nil {
		return nil, err
	}
	w := &watch{exec: started.Exec, c: &call{sb: c.sb, user: c.user}, folder: p, entries: req.IncludeEntry}
	if w.a, err = s.rest.Attach(ctx, w.exec, api.Offsets{}); err == nil {
		err = w.ready(ctx)
	}
	if err != nil {
		s.endWatch(ctx, w)
		return nil, err
	}
	return w, nil
}

// ready waits until the program watches.
func (w *watch) ready(ctx context.Context) error {
	for {
		all, err := w.next(ctx)
		if err != nil {
			return err
		}
		if len(all) > 0 { // the first line is that
			w.held = all[1:]
			return nil
		}
	}
}

// next waits for a piece of output and returns the events in it.
func (w *watch) next(ctx context.Context) ([]told, error) {
	if held := w.held; len(held) > 0 {
		w.held = nil
		return held, nil
	}
	o, err := w.a.Next(ctx)
	if errors.Is(err, io.EOF) {
		return nil, api.Errorf(api.NotFound, "the folder is not watched any more")
	}
	if err != nil {
		return nil, err
	}
	if o.Stream == api.Stderr || o.Dropped > 0 {
		return nil, nil
	}
	all, err := w.add(o.Data)
	for _, t := range all {
		if t.Error != "" {
			return nil, api.Errorf(api.FailedPrecondition, "the folder cannot be watched: %.200s", t.Error)
		}
	}
	return all, err
}

// endWatch ends a program.
func (s envd) endWatch(ctx context.Context, w *watch) {
	if w.a != nil {
		_ = w.a.Close() // of a connection that may be lost
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastCalls)
	defer cancel()
	_, _ = rest.Do(ctx, s.rest, api.CallExecKill, api.ExecRef{Exec: w.exec}) // it may have ended
}

// watchDir sends the changes in a folder as they happen.
func (s envd) watchDir(ctx context.Context, c *call, req *watchRequest, send func(*watchResponse) error) error {
	w, err := s.beginWatch(ctx, c, req)
	if err != nil {
		return err
	}
	defer s.endWatch(ctx, w)
	if err := send(&watchResponse{Start: &empty{}}); err != nil {
		return err
	}
	for {
		quiet, cancel := context.WithTimeout(ctx, c.ping)
		all, err := w.next(quiet)
		cancel()
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
			err = send(&watchResponse{Keepalive: &empty{}})
		}
		if err != nil {
			return err
		}
		for i := range all {
			if ev, ok := s.eventOf(ctx, w, &all[i]); ok {
				if err := send(&watchResponse{Filesystem: &ev}); err != nil {
					return err
				}
			}
		}
	}
}

// Why watchers end.
var (
	errUnasked = errors.New("nobody has asked for changes for long")
	errRemoved = errors.New("the watcher was removed")
)

// watchers are those that are asked for what has happened since. They end when they are removed, when nobody has asked
// for long, and with this process.
type watchers struct {
	mu      sync.Mutex
	all     map[string]*watcher
	running sync.WaitGroup // what collects for them
}

type watcher struct {
	sandbox, exec string
	stop          context.CancelCauseFunc
	idle          *time.Timer

	asking sync.Mutex    // held by who waits for told
	told   chan struct{} // of one place: the program has told all that was before it was asked
	over   chan struct{} // closed when nothing is collected any more

	mu     sync.Mutex
	events []fileEvent
	bytes  int // of their names
}

// askTime is how long a program in a sandbox may take to say that it has told all.
const askTime = 5 * time.Second

// ask has the program tell of all that has happened by now: a change that a client has made before it asks is among the
// events that it gets. A program that is slow, or made so, is not waited for for long.
func (x *watcher) ask(ctx context.Context, s envd) {
	x.asking.Lock()
	defer x.asking.Unlock()
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	select {
	case <-x.told: // of one that was late
	default:
	}
	if _, err := rest.Do(ctx, s.rest, api.CallExecSignal, api.SignalParams{Exec: x.exec, Signal: "SIGUSR1"}); err != nil {
		return // it has ended
	}
	select {
	case <-x.told:
	case <-x.over:
	case <-ctx.Done():
	}
}

func (s envd) createWatcher(ctx context.Context, c *call, req *watchRequest) (*watcherRef, error) {
	w, err := s.beginWatch(ctx, c, req)
	if err != nil {
		return nil, err
	}
	life, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	x := &watcher{sandbox: c.sb.ID, exec: w.exec, told: make(chan struct{}, 1), over: make(chan struct{}), stop: stop,
		idle: time.AfterFunc(watcherIdle, func() { stop(errUnasked) })}
	id := strings.ToLower(rand.Text())
	if !s.watchers.add(id, x) {
		x.end()
		s.endWatch(ctx, w)
		return nil, api.Errorf(api.ResourceExhausted, "there are %d watchers, or %d of this sandbox", maxWatchers,
			maxOfSandbox).WithHint("stop some: handle.stop()")
	}
	s.watchers.running.Go(func() {
		defer s.endWatch(life, w)
		defer s.watchers.remove(id)
		defer x.end()
		defer close(x.over)
		x.collect(life, s, w)
	})
	return &watcherRef{id}, nil
}

// end has it end.
func (x *watcher) end() {
	x.idle.Stop()
	x.stop(errRemoved)
}

// collect holds what happens until it is asked for.
func (x *watcher) collect(ctx context.Context, s envd, w *watch) {
	for {
		all, err := w.next(ctx)
		for i := range all {
			if all[i].Told {
				select {
				case x.told <- struct{}{}:
				default: // nobody has taken the last one
				}
			}
			if ev, ok := s.eventOf(ctx, w, &all[i]); ok && err == nil {
				err = x.hold(ev)
			}
		}
		if err != nil {
			return
		}
	}
}

// hold keeps an event until it is asked for.
func (x *watcher) hold(ev fileEvent) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.events = append(x.events, ev)
	x.bytes += ev.size()
	if len(x.events) > maxHeldEvents || x.bytes > maxHeldBytes {
		return api.Errorf(api.ResourceExhausted, "%d changes were not asked for", len(x.events))
	}
	return nil
}

// size is what the sandbox decides of how much an event is.
func (ev *fileEvent) size() int {
	n := len(ev.Name)
	if e := ev.Entry; e != nil {
		n += len(e.Name) + len(e.Path)
		if e.SymlinkTarget != nil {
			n += len(*e.SymlinkTarget)
		}
		for key, value := range e.Metadata {
			n += len(key) + len(value)
		}
	}
	return n
}

func (s envd) watcherEvents(ctx context.Context, c *call, req *watcherRef) (*watcherEvents, error) {
	x, err := s.watchers.find(c, req.WatcherID)
	if err != nil {
		return nil, err
	}
	x.idle.Reset(watcherIdle)
	x.ask(ctx, s)
	x.mu.Lock()
	defer x.mu.Unlock()
	res := &watcherEvents{Events: x.events}
	if res.Events == nil {
		res.Events = []fileEvent{}
	}
	x.events, x.bytes = nil, 0
	return res, nil
}

func (s envd) removeWatcher(_ context.Context, c *call, req *watcherRef) (*empty, error) {
	x, err := s.watchers.find(c, req.WatcherID)
	if err == nil {
		x.end()
		s.watchers.remove(req.WatcherID)
	}
	return &empty{}, err
}

// add reports false where there are too many.
func (w *watchers) add(id string, x *watcher) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	same := 0
	for _, other := range w.all {
		if other.sandbox == x.sandbox {
			same++
		}
	}
	if len(w.all) >= maxWatchers || same >= maxOfSandbox {
		return false
	}
	if w.all == nil {
		w.all = map[string]*watcher{}
	}
	w.all[id] = x
	return true
}

func (w *watchers) remove(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.all, id)
}

// find finds a watcher of a sandbox.
func (w *watchers) find(c *call, id string) (*watcher, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	x, ok := w.all[id]
	if !ok || x.sandbox != c.sb.ID {
		return nil, api.Errorf(api.NotFound, "watcher with id %.64s not found", id)
	}
	return x, nil
}

// forget ends the watchers of a sandbox that goes, or with "" all.
func (w *watchers) forget(sandbox string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, x := range w.all {
		if sandbox == "" || x.sandbox == sandbox {
			x.end()
		}
	}
}

// close ends all of them, and waits until their programs have ended.
func (w *watchers) close() {
	w.forget("")
	w.running.Wait()
}
