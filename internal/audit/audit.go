// Package audit keeps, of each sandbox, what was done with it and what it did: a log of
// JSON lines each of which has the hash of the one before. DESIGN.md says what that proves.
//
//	DIR/SANDBOX/00000000000000000001.jsonl  records 1 and on, one a line
//	DIR/SANDBOX/00000000000000013244.jsonl  records 13244 and on: the segment that is written
//	DIR/SANDBOX/head                        number and hash of the last record; locked by
//	                                        the daemon that writes, gone when the log is closed
package audit

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hutch-sh/hutch/runtime/api"
)

// Bounds of what waits to be written, should the disk stall.
const (
	maxWaiting      = 1 << 16
	maxWaitingBytes = 64 << 20
)

// Entry is a record to be.
type Entry struct {
	Kind    api.AuditKind
	Sandbox string
	Exec    string
	By      *api.AuditCaller // nil: nobody's call
	Data    any              // encoded later, by another goroutine: it must not change
	// Secrets are values, by name, that must not be in the record.
	Secrets []map[string]string
	Size    int64 // bytes that Data holds on to, about

	time time.Time
}

// Logs are the logs of one daemon's sandboxes. It is safe for concurrent use.
type Logs struct {
	dir      string
	log      *slog.Logger
	settings atomic.Pointer[settings]
	done     chan struct{} // closed when the writer has ended

	queue struct {
		sync.Mutex
		entries []Entry
		bytes   int64
		lost    map[string]int64 // by sandbox: what found no room
		synced  []chan struct{}  // to be closed when what waits has been written
		closing bool
		wake    chan struct{} // capacity 1
		hurry   chan struct{} // capacity 1: somebody waits for what is in line
	}

	// Of the writer.
	chains map[string]*chain
	swept  time.Time
	made   bool // dir is there

	mu    sync.Mutex
	ends  map[string]end // of the logs that are open
	grown chan struct{}  // closed, and made anew, when something was written

	sweeping sync.Mutex // one sweep at a time
}

// end is how far a log that is open may be read.
type end struct {
	head    api.AuditHead
	segment int64 // the last
	size    int64 // of it
}

type settings struct {
	api.AuditSettings
	redact *redactor
}

// Open starts to write logs below dir, which it makes when there is something to write.
func Open(dir string, s api.AuditSettings, log *slog.Logger) (*Logs, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	l := &Logs{
		dir: dir, log: log, done: make(chan struct{}), grown: make(chan struct{}),
		chains: map[string]*chain{}, ends: map[string]end{},
	}
	l.queue.wake, l.queue.hurry, l.queue.lost = make(chan struct{}, 1), make(chan struct{}, 1), map[string]int64{}
	if err := l.Configure(s); err != nil {
		return nil, err
	}
	go l.run()
	return l, nil
}

// Configure puts settings in force, for what is noted from now on.
func (l *Logs) Configure(s api.AuditSettings) error {
	r, err := newRedactor(s.Redact)
	if err == nil {
		l.settings.Store(&settings{s, r})
	}
	return err
}

// Wants says whether records of this kind are written at all, and Full whether contents
// are, beside their digests.
func (l *Logs) Wants(k api.AuditKind) bool {
	s := l.settings.Load()
	return s.Enabled && (k != api.AuditAllowed || s.Connections == "all")
}

// Full says whether records hold the beginning of what was written and read.
func (l *Logs) Full() bool { return l.settings.Load().Content == "full" }

// Note puts an entry in line. It takes about a microsecond and never waits for the disk.
func (l *Logs) Note(e Entry) {
	if !l.Wants(e.Kind) {
		return
	}
	e.time = time.Now().UTC()
	q := &l.queue
	q.Lock()
	switch {
	case q.closing:
	case len(q.entries) >= maxWaiting || q.bytes+e.Size > maxWaitingBytes:
		q.lost[e.Sandbox]++
	default:
		q.entries, q.bytes = append(q.entries, e), q.bytes+e.Size
	}
	urgent := len(q.entries) >= maxGathered
	q.Unlock()
	signal(l.queue.wake)
	if urgent {
		signal(l.queue.hurry)
	}
}

// gather is how long an entry waits for others, when nobody waits for it: a short command's are written with one write,
// and when the command is over.
const gather = 5 * time.Millisecond

// maxGathered is how many entries are written without that.
const maxGathered = 256

func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// wake has what is in line written now.
func (l *Logs) wake() {
	signal(l.queue.hurry)
	signal(l.queue.wake)
}

// Sync waits until what was noted before is in the files, or is lost.
func (l *Logs) Sync(ctx context.Context) error {
	synced := make(chan struct{})
	l.queue.Lock()
	l.queue.synced = append(l.queue.synced, synced)
	l.queue.Unlock()
	l.wake()
	select {
	case <-synced:
	case <-l.done:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

// Close writes what waits. Logs that are not closed say that another daemon may go on.
func (l *Logs) Close() error {
	l.queue.Lock()
	l.queue.closing = true
	l.queue.Unlock()
	l.wake()
	<-l.done
	return nil
}

// run is the writer: one goroutine, so that records and bytes have one order.
func (l *Logs) run() {
	defer close(l.done)
	late := time.NewTimer(gather)
	defer late.Stop()
	for {
		<-l.queue.wake
		late.Reset(gather)
		select {
		case <-late.C:
		case <-l.queue.hurry:
		}
		q := &l.queue
		q.Lock()
		entries, lost, synced, closing := q.entries, q.lost, q.synced, q.closing
		q.entries, q.bytes, q.synced = nil, 0, nil
		if len(lost) > 0 {
			q.lost = map[string]int64{}
		}
		q.Unlock()
		l.write(entries, lost, closing)
		for _, s := range synced {
			close(s)
		}
		if closing {
			return
		}
	}
}

// write appends entries to their logs: one write for each log and batch.
func (l *Logs) write(entries []Entry, lost map[string]int64, closing bool) {
	s := l.settings.Load()
	used := map[string]*chain{}
	at := func(sandbox string) *chain {
		c := l.chains[sandbox]
		if c == nil {
			c = &chain{l: l, sandbox: sandbox}
			l.chains[sandbox] = c
		}
		used[sandbox] = c
		return c
	}
	for i := range entries {
		e := &entries[i]
		if at(e.Sandbox).add(s, e); e.Kind == api.AuditState && isRemoval(e.Data) {
			used[e.Sandbox].add(s, &Entry{Kind: api.AuditClosed, time: e.time})
		}
	}
	for sandbox, n := range lost {
		at(sandbox).lost += n
	}
	if closing {
		for _, c := range l.chains {
			if used[c.sandbox] = c; c.next > 0 && !c.closed {
				c.add(s, &Entry{Kind: api.AuditLeft, time: time.Now().UTC()})
			}
		}
	}
	for _, c := range used {
		if err := c.flush(s); err != nil {
			l.log.Warn("records of the audit log are lost", "sandbox", c.sandbox, "err", err)
		}
		l.publish(c, closing)
	}
	l.mu.Lock()
	close(l.grown)
	l.grown = make(chan struct{})
	l.mu.Unlock()
	if now := time.Now(); len(used) > 0 && now.Sub(l.swept) > sweepPause && !closing {
		l.swept = now
		go func() {
			if _, err := l.Sweep(); err != nil {
				l.log.Warn("sweep audit logs", "err", err)
			}
		}()
	}
}

// sweepPause is how often old logs are looked for, and removed.
const sweepPause = time.Hour

// publish lets readers see what was written, and lets go of a log that is closed.
func (l *Logs) publish(c *chain, closing bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case c.closed, closing:
		c.release()
		delete(l.chains, c.sandbox)
		delete(l.ends, c.sandbox)
		return
	case c.next == 0: // it could not be opened: the next entry tries again
		return
	}
	l.ends[c.sandbox] = end{head: api.AuditHead{Seq: c.next - 1, Hash: c.prev}, segment: c.segment, size: c.size}
}

func isRemoval(data any) bool {
	s, ok := data.(api.StateEvent)
	return ok && s.State == api.StateRemoved
}

// errClosed is for entries of a sandbox that is gone.
var errClosed = errors.New("the log is closed: its sandbox is removed")
