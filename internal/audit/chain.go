package audit

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/sys"
	"github.com/hutch-sh/hutch/runtime/api"
)

// segments is how many files a log has at most.
const segments = 8

// Connections are the sandbox's own doing: so many of them are recorded at once, and a second.
const (
	burst = 1000
	rate  = 100
)

// chain is one log, of the writer's goroutine alone.
type chain struct {
	l       *Logs
	sandbox string
	dir     string
	head    *os.File // locked

	next    int64  // number of the next record; 0: not open yet
	prev    string // hash of the last one
	segment int64  // the one that is written; 0: none yet
	size    int64  // of it, as far as it is written
	firsts  []int64
	closed  bool
	cut     *api.AuditContent // what recover has cut off

	buf  []byte // records that are not written yet
	lost int64  // since the last record

	tokens  float64
	filled  time.Time
	skipped int64
}

func segmentName(first int64) string { return fmt.Sprintf("%020d.jsonl", first) }

func (c *chain) path(first int64) string { return filepath.Join(c.dir, segmentName(first)) }

// add makes a record of an entry; flush writes it.
func (c *chain) add(s *settings, e *Entry) {
	if e.Kind == api.AuditClosed && c.next == 0 {
		c.closed = true // nothing was ever noted
		return
	}
	switch err := c.open(s); {
	case errors.Is(err, errClosed):
		c.closed = true
		return
	case err != nil:
		c.lost++
		c.l.log.Warn("open an audit log", "sandbox", c.sandbox, "err", err)
		return
	case e.Kind == api.AuditResumed:
		return // that is what open has noted
	}
	if strings.HasPrefix(string(e.Kind), "network.") && e.Kind != api.AuditPolicy && !c.mayTell(e.time) {
		c.skipped++
		return
	}
	if n := c.lost; n > 0 {
		if c.lost = 0; !c.record(s, &Entry{Kind: api.AuditLost, Data: api.AuditLoss{Count: n}, time: e.time}) {
			c.lost = n
		}
	}
	if n := c.skipped; n > 0 {
		if c.skipped = 0; !c.record(s, &Entry{Kind: api.AuditSkipped, Data: api.AuditLoss{Count: n}, time: e.time}) {
			c.skipped = n
		}
	}
	if c.record(s, e); e.Kind == api.AuditClosed {
		c.closed = true
	}
}

func (c *chain) mayTell(now time.Time) bool {
	if c.filled.IsZero() {
		c.tokens, c.filled = burst, now
	}
	c.tokens = min(burst, c.tokens+rate*max(0, now.Sub(c.filled).Seconds()))
	c.filled = now
	if c.tokens < 1 {
		return false
	}
	c.tokens--
	return true
}

// record encodes an entry as the next record. What cannot be is counted as lost.
func (c *chain) record(s *settings, e *Entry) bool {
	r := api.AuditRecord{Seq: c.next, Time: e.time, Kind: e.Kind, Sandbox: c.sandbox, Exec: e.Exec, By: e.By,
		Prev: c.prev}
	var err error
	if e.Data != nil {
		if r.Data, err = s.redact.clean(e.Data, e.Secrets); err == nil && len(r.Data) > maxRecord-1<<10 {
			r.Data, err = json.Marshal(map[string]any{"omitted": api.AuditContent{Bytes: int64(len(r.Data)),
				SHA256: digest(r.Data)}})
		}
	}
	before := len(c.buf)
	if err == nil {
		c.buf, err = appendRecord(c.buf, &r)
	}
	if err == nil && c.size+int64(before) > 0 && c.size+int64(len(c.buf)) > max(1, s.MaxBytes/segments) {
		line := slices.Clone(c.buf[before:])
		if c.buf = c.buf[:before]; before > 0 {
			err = c.flush(s)
		}
		if err == nil && c.size > 0 {
			// Lets the record before which it rotates be the first of the new segment, unless
			// old ones go: that is reported first.
			if c.rotate(); len(c.firsts) >= segments {
				if c.drop(s, e.time) {
					return c.record(s, e)
				}
				c.lost++
				return false
			}
		}
		c.buf = append(c.buf, line...)
	}
	if err != nil {
		c.l.log.Warn("a record cannot be written", "sandbox", c.sandbox, "kind", e.Kind, "err", err)
		c.lost++
		return false
	}
	if c.segment == 0 {
		c.segment = c.next
	}
	c.next, c.prev = r.Seq+1, r.Hash
	return true
}

// rotate makes the next record the first of a segment.
func (c *chain) rotate() { c.segment, c.size = 0, 0 }

// drop notes that the oldest segments go, and removes them.
func (c *chain) drop(s *settings, now time.Time) bool {
	n := len(c.firsts) - segments + 1
	if n >= len(c.firsts) {
		n = len(c.firsts) - 1
	}
	old := c.firsts[:n]
	c.firsts = slices.Clone(c.firsts[n:])
	if !c.record(s, &Entry{Kind: api.AuditDropped, Data: api.AuditDrop{To: c.firsts[0] - 1}, time: now}) ||
		c.flush(s) != nil {
		c.firsts = append(slices.Clone(old), c.firsts...)
		return false
	}
	for _, first := range old {
		if err := os.Remove(c.path(first)); err != nil {
			c.l.log.Warn("drop old records", "sandbox", c.sandbox, "err", err)
		}
	}
	return true
}

// flush writes what was recorded, and then the head: a head is never ahead of its log. When
// it fails, the records are lost, and the chain goes on behind the last that is written.
func (c *chain) flush(s *settings) error {
	if len(c.buf) == 0 {
		return nil
	}
	data := c.buf
	c.buf = c.buf[:0]
	err := c.append(data, s.Sync)
	if err != nil {
		last, lerr := c.recover()
		c.next, c.prev = last.Seq+1, last.Hash
		c.lost += int64(strings.Count(string(data), "\n"))
		return errors.Join(err, lerr)
	}
	if !slices.Contains(c.firsts, c.segment) {
		c.firsts = append(c.firsts, c.segment)
	}
	if c.closed {
		return os.Remove(c.head.Name())
	}
	_, err = c.head.WriteAt(headLine(api.AuditHead{Seq: c.next - 1, Hash: c.prev}), 0)
	return err
}

// append writes at the end of the segment.
func (c *chain) append(data []byte, sync bool) error {
	f, err := os.OpenFile(c.path(c.segment), os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(data, c.size)
	if err != nil {
		err = errors.Join(err, f.Truncate(c.size))
	} else if c.size += int64(len(data)); sync {
		err = unix.Fdatasync(int(f.Fd()))
	}
	return errors.Join(err, f.Close())
}

// headLine is the content of a head file: always as long, so that one write replaces it.
func headLine(h api.AuditHead) []byte { return fmt.Appendf(nil, "%020d %s\n", h.Seq, h.Hash) }

func parseHead(data []byte) (h api.AuditHead, ok bool) {
	number, hash, _ := strings.Cut(strings.TrimSuffix(string(data), "\n"), " ")
	seq, err := strconv.ParseInt(number, 10, 64)
	h = api.AuditHead{Seq: seq, Hash: hash}
	return h, err == nil && seq > 0 && len(hash) == len(zeros) && string(headLine(h)) == string(data)
}

// open takes the log over from whoever wrote it before, or begins it.
func (c *chain) open(s *settings) (err error) {
	switch {
	case c.closed:
		return errClosed
	case c.next > 0:
		return nil
	case !validID(c.sandbox):
		return fmt.Errorf("%q is no id of a sandbox", c.sandbox)
	}
	c.dir = filepath.Join(c.l.dir, c.sandbox)
	if err := c.l.makeFolder(); err != nil {
		return err
	}
	if err := os.MkdirAll(c.dir, 0o700); err != nil {
		return err
	}
	if c.firsts, err = listSegments(c.dir); err != nil {
		return err
	}
	begun := len(c.firsts) > 0
	last, err := c.recover()
	if err != nil {
		return err
	}
	if last.Kind == api.AuditClosed {
		return errClosed
	}
	if c.head, err = os.OpenFile(filepath.Join(c.dir, "head"), os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return err
	}
	if err := unix.Flock(int(c.head.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		err = fmt.Errorf("lock %s: %w", c.head.Name(), err)
		c.release()
		return err
	}
	data := make([]byte, 128)
	n, _ := c.head.ReadAt(data, 0) // what cannot be read is no head
	head, ok := parseHead(data[:n])
	c.next, c.prev = last.Seq+1, last.Hash
	now := time.Now().UTC()
	if !begun && !ok {
		c.record(s, &Entry{Kind: api.AuditOpened, Data: api.AuditOpening{Version: 1}, time: now})
		return nil
	}
	res := api.AuditResumption{Clean: last.Kind == api.AuditLeft, HeadLost: !ok, Torn: c.cut}
	if ok && head.Seq > last.Seq {
		res.MissingFrom, res.MissingTo, res.Clean = last.Seq+1, head.Seq, false
		c.next, c.prev = head.Seq+1, head.Hash
		c.rotate() // segments are named after their first record
	}
	c.record(s, &Entry{Kind: api.AuditResumed, Data: res, time: now})
	return nil
}

// makeFolder makes the folder of all logs and, once, tells the file system what it is for.
func (l *Logs) makeFolder() error {
	if l.made {
		return nil
	}
	if err := os.MkdirAll(l.dir, 0o700); err != nil {
		return err
	}
	if err := sys.Spread(l.dir); err != nil {
		l.log.Debug("the file system was not told that logs have nothing to do with each other", "err", err)
	}
	l.made = true
	return nil
}

// release closes what is open.
func (c *chain) release() {
	if c.head != nil {
		_ = c.head.Close()
	}
	c.head, c.next = nil, 0
}

// recover finds the last record, and cuts off what is no record behind it.
func (c *chain) recover() (last api.AuditRecord, err error) {
	last.Hash = zeros
	c.segment, c.size, c.cut = 0, 0, nil
	for i := len(c.firsts) - 1; i >= 0; i-- {
		rec, size, torn, err := lastRecord(c.path(c.firsts[i]))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return last, err
		}
		if len(torn) > 0 {
			content := Whole(torn, false).content()
			c.cut = &content
			if err := os.Truncate(c.path(c.firsts[i]), size); err != nil {
				return last, err
			}
		}
		if rec.Seq > 0 {
			c.segment, c.size = c.firsts[i], size
			return rec, nil
		}
		if err := os.Remove(c.path(c.firsts[i])); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return last, err
		}
		c.firsts = c.firsts[:i]
	}
	return last, nil
}
