package eventlog

import (
	"bufio"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// lockWait is how long Open waits for a process that is just ending.
const lockWait = 10 * time.Second

// Open opens the log in dir, which it makes. It goes on behind the last whole
// record: a torn one, of a writer that was killed, is cut off.
func Open(dir string, o Options) (_ *Log, err error) {
	if o.SegmentBytes <= 0 {
		o.SegmentBytes = defaultSegment
	}
	if o.Segments <= 0 {
		o.Segments = defaultSegments
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("open the log of events: %w", err)
	}
	l := &Log{dir: dir, opts: o, done: make(chan struct{}), grown: make(chan struct{})}
	l.queue.wake = make(chan struct{}, 1)
	if l.lock, err = lock(filepath.Join(dir, "lock")); err != nil {
		return nil, fmt.Errorf("open the log of events: %w", err)
	}
	defer func() {
		if err != nil {
			_ = l.lock.Close()
		}
	}()
	if err := l.recover(); err != nil {
		return nil, fmt.Errorf("open the log of events in %s: %w", dir, err)
	}
	go l.run()
	return l, nil
}

// lock takes a lock, and gives a holder that is just ending some time.
func lock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	locked, late := make(chan error), make(chan struct{})
	go func() {
		err := flock(f)
		select {
		case locked <- err:
		case <-late: // flock(2) cannot be interrupted; who gets it late gives it back
			_ = f.Close()
		}
	}()
	timer := time.NewTimer(lockWait)
	defer timer.Stop()
	select {
	case err = <-locked:
	case <-timer.C:
		close(late)
		return nil, fmt.Errorf("lock %s: another daemon holds it", path)
	}
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return f, nil
}

func flock(f *os.File) error {
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// recover finds the segments and the end of the last one.
func (l *Log) recover() (err error) {
	if l.id, err = l.identify(); err != nil {
		return err
	}
	if l.segments, err = listSegments(l.dir); err != nil {
		return err
	}
	if len(l.segments) == 0 {
		l.segments = []int64{1}
	}
	last := l.segments[len(l.segments)-1]
	l.file, err = os.OpenFile(l.path(last), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	l.next, l.size, err = endOf(l.file, last)
	if err == nil {
		err = l.file.Truncate(l.size)
	}
	if err != nil {
		_ = l.file.Close()
	}
	return err
}

// identify reads the log's name, or gives it one.
func (l *Log) identify() (string, error) {
	path := filepath.Join(l.dir, "id")
	name, err := os.ReadFile(path)
	if id := strings.TrimSpace(string(name)); err == nil && id != "" {
		return id, nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	id := "log_" + strings.ToLower(rand.Text()[:12])
	// By rename: a name that anybody has read stays.
	if err := os.WriteFile(path+".new", []byte(id+"\n"), 0o600); err != nil {
		return "", err
	}
	return id, os.Rename(path+".new", path)
}

func listSegments(dir string) ([]int64, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var firsts []int64
	for _, e := range entries {
		digits, ok := strings.CutSuffix(e.Name(), ".log")
		first, err := strconv.ParseInt(digits, 10, 64)
		if ok && err == nil && first > 0 && e.Name() == segmentName(first) {
			firsts = append(firsts, first)
		}
	}
	slices.Sort(firsts)
	return firsts, nil
}

// endOf reads a segment that starts with the record first. It returns the number
// behind the last good record, and where that one ends. What is broken before it
// stays where it is, so that no number is given twice: readers see a gap.
func endOf(f *os.File, first int64) (next, size int64, err error) {
	next = first
	r := bufio.NewReaderSize(f, maxRecord)
	for at := int64(0); ; {
		line, err := r.ReadSlice('\n')
		at += int64(len(line))
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue // too long for a record, and so is what follows up to its end
		case errors.Is(err, io.EOF):
			return next, size, nil
		case err != nil:
			return 0, 0, err
		}
		if e, err := parseRecord(line[:len(line)-1]); err == nil && e.Seq >= next {
			next, size = e.Seq+1, at
		}
	}
}
