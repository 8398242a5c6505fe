package files

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/gitignore"
	"github.com/hutch-sh/hutch/internal/lines"
	"github.com/hutch-sh/hutch/runtime/guest/guestapi/filesapi"
)

const (
	// grepBatch is how many files of a folder are searched by one goroutine in a row.
	grepBatch = 64
	// grepAhead is how many batches may be searched before their turn: it bounds the memory of what they found.
	grepAhead = 16
	// grepWorkers is how many search at the same time.
	grepWorkers = 4
)

// grep searches files. One goroutine walks the tree, some search, and what they find is taken in the order of the walk,
// so that the same search gives the same answer and an offset means something.
func (c *call) grep() (*filesapi.Reply, error) {
	var args filesapi.GrepArgs
	if err := c.args(&args); err != nil {
		return nil, err
	}
	m, err := lines.New(args.Pattern, args.Literal, args.IgnoreCase)
	if err != nil {
		return nil, &problem{unix.EINVAL, err.Error()}
	}
	g := &grepper{args: &args, skip: args.Offset, reply: &filesapi.Reply{}}
	var cancel context.CancelCauseFunc
	g.ctx, cancel = context.WithCancelCause(c.ctx)
	defer cancel(nil)
	top, err := openat(unix.AT_FDCWD, c.Path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0)
	switch {
	case errors.Is(err, unix.ENOTDIR):
		err = g.one(c.Path, newSearcher(g, m))
	case err == nil:
		err = g.tree(top, c.Path, m, cancel)
	}
	if err == nil && c.ctx.Err() != nil {
		err = unix.ECANCELED
	}
	if err != nil {
		return nil, err
	}
	if g.matches == nil {
		g.matches = []filesapi.Match{}
	}
	if _, err := c.result(g.matches); err != nil {
		return nil, err
	}
	g.reply.Skipped += g.skipped.Load()
	return g.reply, nil
}

type grepper struct {
	ctx     context.Context
	args    *filesapi.GrepArgs
	skipped atomic.Int64 // files

	// Of the goroutine that takes what was found.
	skip    int
	matches []filesapi.Match
	bytes   int
	reply   *filesapi.Reply
}

// batch are some files of one folder.
type batch struct {
	files []*found
	found []fileMatches
	done  chan struct{}
}

// fileMatches is what was found in one file.
type fileMatches struct {
	file  *found
	count int              // of matches, up to what may be asked for
	list  []filesapi.Match // of the first of them
}

// one searches the file that was asked for.
func (g *grepper) one(path string, s *searcher) error {
	fd, _, err := openRegular(path, false)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	g.reply.Count = 1
	count, list, err := s.search(fd, "", g.skip, grepBudget)
	if err != nil {
		return err
	}
	g.skip = 0
	for i := range list {
		if !g.add(&list[i]) {
			return nil
		}
	}
	g.reply.Truncated = count-g.args.Offset > len(list)
	return nil
}

// grepBudget bounds the texts that are kept of a batch, in bytes: no answer has more.
const grepBudget = filesapi.MaxMatches

// tree searches a tree.
func (g *grepper) tree(top int, path string, m *lines.Matcher, cancel context.CancelCauseFunc) error {
	work, order := make(chan *batch), make(chan *batch, grepAhead)
	var group sync.WaitGroup
	for range grepWorkers {
		s := newSearcher(g, m.Clone())
		group.Go(func() {
			for b := range work {
				s.batch(b)
				close(b.done)
			}
		})
	}
	t := &tree{ctx: g.ctx, hidden: g.args.Hidden, noIgnore: g.args.NoIgnore}
	if len(g.args.Globs) > 0 {
		t.globs = gitignore.Globs(g.args.Globs)
	}
	walked := make(chan error, 1)
	go func() {
		b := &batch{}
		send := func() bool {
			if len(b.files) == 0 {
				return true
			}
			b.done = make(chan struct{})
			order <- b // is read until it is closed
			work <- b
			b = &batch{}
			return g.ctx.Err() == nil
		}
		t.visit = func(f *found) bool {
			if len(b.files) > 0 && (b.files[0].dir != f.dir || len(b.files) == grepBatch) && !send() {
				return false
			}
			f.dir.keep()
			b.files = append(b.files, f)
			return true
		}
		err := t.walk(top, path)
		send()
		close(order)
		close(work)
		walked <- err
	}()
	enough := false
	again := newSearcher(g, m.Clone())
	for b := range order {
		<-b.done
		if !enough && !g.take(b, again) {
			enough = true
			cancel(nil)
		}
		for _, f := range b.files {
			f.dir.release()
		}
	}
	err := <-walked
	group.Wait()
	g.reply.Skipped = t.skipped
	if enough && errors.Is(err, unix.ECANCELED) {
		return nil
	}
	return err
}

// take adds what a batch has found. It says no when the answer is full.
func (g *grepper) take(b *batch, again *searcher) (more bool) {
	if g.ctx.Err() != nil {
		return false
	}
	g.reply.Count += int64(len(b.files))
	for _, f := range b.found {
		if g.skip >= f.count {
			g.skip -= f.count
			continue
		}
		list := f.list
		if g.skip > 0 || len(list) < f.count { // what was not kept is searched for again
			var err error
			if list, err = g.reread(f.file, again); err != nil {
				continue
			}
		}
		rest := f.count - g.skip - len(list)
		g.skip = 0
		for i := range list {
			if !g.add(&list[i]) {
				return false
			}
		}
		if rest > 0 {
			g.reply.Truncated = true
			return false
		}
	}
	return true
}

func (g *grepper) reread(f *found, s *searcher) ([]filesapi.Match, error) {
	fd, err := openat(f.dir.fd, f.name, readFlags, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	_, list, err := s.search(fd, f.path, g.skip, grepBudget)
	return list, err
}

// add takes one match; it says no when that has no place any more.
func (g *grepper) add(m *filesapi.Match) bool {
	if g.bytes += weight(m); len(g.matches) == g.args.Max || g.bytes > filesapi.MaxMatches {
		g.reply.Truncated = true
		return false
	}
	g.matches = append(g.matches, *m)
	return true
}

// weight is what a match takes of an answer, in bytes.
func weight(m *filesapi.Match) int {
	n := 64 + len(m.Path) + len(m.Text)
	for _, l := range m.Before {
		n += len(l) + 8
	}
	for _, l := range m.After {
		n += len(l) + 8
	}
	return n
}

// searcher searches files, one after the other, in a buffer of its own.
type searcher struct {
	g   *grepper
	m   *lines.Matcher
	buf []byte
}

func newSearcher(g *grepper, m *lines.Matcher) *searcher { return &searcher{g: g, m: m} }

const readFlags = unix.O_RDONLY | unix.O_NONBLOCK | unix.O_NOCTTY | unix.O_NOFOLLOW

func (s *searcher) batch(b *batch) {
	budget := grepBudget
	for _, f := range b.files {
		if s.g.ctx.Err() != nil {
			return
		}
		// What is no regular file any more is empty, or has nothing at this moment.
		fd, err := openat(f.dir.fd, f.name, readFlags, 0)
		if err != nil {
			s.g.skipped.Add(1)
			continue
		}
		count, list, err := s.search(fd, f.path, 0, budget)
		_ = unix.Close(fd)
		if err != nil {
			s.g.skipped.Add(1)
		}
		if count > 0 {
			b.found = append(b.found, fileMatches{f, count, list})
			for i := range list {
				budget -= weight(&list[i])
			}
		}
	}
}

const (
	// firstRead is the buffer for a file, which most fit into, and largeRead that for others, in bytes.
	firstRead = 64 << 10
	largeRead = 1 << 20
)

// search searches a file. It leaves out the first skip matches, keeps those that follow as long as they fit into the
// budget, and counts the others as far as somebody may ask for them. Binary files have no matches.
func (s *searcher) search(fd int, path string, skip, budget int) (count int, list []filesapi.Match, err error) {
	r := &reading{s: s, fd: fd, path: path, skip: skip, budget: budget, line: 1}
	if s.buf == nil {
		s.buf = make([]byte, firstRead)
	}
	for {
		more, err := r.fill()
		if err != nil {
			return r.count, r.list, err
		}
		if !r.lines() || !more || s.g.ctx.Err() != nil {
			return r.count, r.list, nil
		}
	}
}

// reading is a file that is being searched. The buffer holds lines [0, next) that were searched and are context, and
// from next on what was not.
type reading struct {
	s            *searcher
	fd           int
	path         string
	skip, budget int

	next, end int
	line      int64 // of next
	eof       bool

	count int
	list  []filesapi.Match
	full  bool // nothing more is kept
}

// fill reads more into the buffer; more is false at the end of the file.
func (r *reading) fill() (more bool, err error) {
	s := r.s
	keep := r.next
	for range s.g.args.Context { // lines before the next one
		if keep > 0 {
			keep = bytes.LastIndexByte(s.buf[:keep-1], '\n') + 1
		}
	}
	if keep < r.next-largeRead/2 {
		keep = r.next
	}
	copy(s.buf, s.buf[keep:r.end])
	r.next, r.end = r.next-keep, r.end-keep
	if r.end > len(s.buf)/2 && len(s.buf) < largeRead {
		s.buf = append(s.buf, make([]byte, largeRead-len(s.buf))...)
	}
	for r.end < len(s.buf) && !r.eof {
		var n int
		err := retry(func() (err error) { n, err = unix.Read(r.fd, s.buf[r.end:]); return err })
		if err != nil || n < 0 {
			return false, err
		}
		if n == 0 {
			r.eof = true
		}
		r.end += n
	}
	return !r.eof, nil
}

// lines searches what the buffer has; it says no when the rest of the file is not of interest.
func (r *reading) lines() (more bool) {
	s := r.s
	buf := s.buf[:r.end]
	if bytes.IndexByte(buf[r.next:], 0) >= 0 {
		return false // binary
	}
	limit := r.end
	if !r.eof { // whole lines, and those that a match shows after it
		limit = bytes.LastIndexByte(buf, '\n') + 1
		for range s.g.args.Context {
			if limit > r.next {
				limit = bytes.LastIndexByte(buf[:limit-1], '\n') + 1
			}
		}
		if limit <= r.next { // a line, or lines, longer than the buffer
			limit = r.end
		}
	}
	at, more := r.next, true
	s.m.Each(buf[r.next:limit], func(begin, end int) bool {
		begin, end = begin+r.next, end+r.next
		r.line += int64(bytes.Count(buf[at:begin], []byte{'\n'}))
		at = begin
		more = r.match(buf, begin, end)
		return more
	})
	if more {
		r.line += int64(bytes.Count(buf[at:limit], []byte{'\n'}))
		r.next = limit
	}
	return more
}

// match takes one match.
func (r *reading) match(buf []byte, begin, end int) (more bool) {
	a := r.s.g.args
	if r.count++; r.count <= r.skip {
		return true
	}
	switch {
	case a.FilesOnly:
		r.list = append(r.list, filesapi.Match{Path: []byte(r.path)})
		return false
	case r.full:
	case len(r.list) == a.Max:
		r.full = true
	default:
		m := filesapi.Match{Path: []byte(r.path), Line: r.line, Text: cut(buf[begin:end], a.LineSize)}
		for from := begin; from > 0 && len(m.Before) < a.Context; {
			start := bytes.LastIndexByte(buf[:from-1], '\n') + 1
			m.Before = append(m.Before, cut(buf[start:from-1], a.LineSize))
			from = start
		}
		for i, j := 0, len(m.Before)-1; i < j; i, j = i+1, j-1 {
			m.Before[i], m.Before[j] = m.Before[j], m.Before[i]
		}
		for from := end + 1; from < len(buf) && len(m.After) < a.Context; {
			to := len(buf)
			if i := bytes.IndexByte(buf[from:], '\n'); i >= 0 {
				to = from + i
			}
			m.After = append(m.After, cut(buf[from:to], a.LineSize))
			from = to + 1
		}
		if r.budget -= weight(&m); r.budget < 0 {
			r.full = true
		} else {
			r.list = append(r.list, m)
		}
	}
	return r.count <= a.Offset+a.Max // more are not reported
}

// cut copies a line, and shortens one that is long.
func cut(line []byte, size int) []byte {
	line = bytes.TrimSuffix(line, []byte{'\r'})
	if len(line) <= size {
		return bytes.Clone(line)
	}
	short := line[:size]
	for i := 0; i < utf8.UTFMax && len(short) > 0; i++ { // no half of a letter
		if r, n := utf8.DecodeLastRune(short); r != utf8.RuneError || n != 1 {
			break
		}
		short = short[:len(short)-1]
	}
	return fmt.Appendf(nil, "%s [%d bytes more]", short, len(line)-len(short))
}
