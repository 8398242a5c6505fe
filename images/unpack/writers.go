package unpack

import (
	"errors"
	"fmt"
	"hash/crc32"
	"hash/maphash"
	"io"
	"sync"

	"golang.org/x/sys/unix"
)

// Small files are most of most layers, and making one is nearly all of its cost. So they are
// read from the stream in batches that a few goroutines write, while everything else is made
// by the goroutine that reads.
//
// What comes out is what one goroutine would make: only plain files whose names the layer has
// not had yet go into a batch, and whatever could meet such a file, which is its name again, a
// folder that is missing, a hard link or a whiteout, waits until all batches are written.
const (
	writerCount = 2
	batchCount  = 6 // being filled, waiting or being written
	batchFiles  = 64
	batchBytes  = 256 << 10
	smallBytes  = 64 << 10 // of the largest file in a batch
	// retiredFolders may be open beside those of the cache, because a batch may name them.
	retiredFolders = 64
)

// smallFile is a file of a batch.
type smallFile struct {
	at    place
	entry string // its name in the stream
	attrs attrs
	end   int // of its content in the batch's buffer
	// What its writer found: what the file is when it is done, and the checksum of the content.
	stat unix.Stat_t
	crc  uint32
}

// batch belongs to the goroutine that got it from a channel.
type batch struct {
	number int // in the order of the stream
	files  []smallFile
	buf    []byte
	err    error // of the first file that could not be made; those after it are not
}

// writers write batches. All methods are the reading goroutine's.
type writers struct {
	u      *unpacker
	free   chan *batch // what is in it is written, and not collected
	work   chan *batch
	wg     sync.WaitGroup
	cur    *batch // being filled; nil is none
	number int
	flying bool // batches may be unwritten
	err    error
	errOf  int // the number of the batch that had err
	// names are the hashes of all names that the layer has had, each with its folder's inode
	// number. One too many costs a wait.
	names map[uint64]struct{}
	seed  maphash.Seed
}

func newWriters(u *unpacker) *writers {
	w := &writers{
		u: u, free: make(chan *batch, batchCount), work: make(chan *batch, batchCount),
		names: make(map[uint64]struct{}), seed: maphash.MakeSeed(),
	}
	for range batchCount {
		w.free <- &batch{}
	}
	for range writerCount {
		w.wg.Go(func() {
			for b := range w.work {
				b.err = u.write(b)
				w.free <- b // never blocks: there are as many places as batches
			}
		})
	}
	return w
}

// settle prepares for making something at a place: if the layer had the name before, what has
// it is there afterwards. Else the place is fresh.
func (w *writers) settle(at *place) error {
	at.key = w.key(at.folder, at.base)
	if _, ok := w.names[at.key]; ok {
		return w.wait()
	}
	w.names[at.key] = struct{}{}
	at.fresh = true
	return nil
}

func (w *writers) key(folder uint64, base string) uint64 {
	return maphash.Comparable(w.seed, struct {
		folder uint64
		base   string
	}{folder, base})
}

// add reads a small file whose place is settled.
func (w *writers) add(at place, entry string, a attrs, size int) error {
	if w.cur != nil && (len(w.cur.files) == batchFiles || len(w.cur.buf)+size > batchBytes) {
		w.send()
	}
	if w.cur == nil {
		w.cur = <-w.free
		w.collect(w.cur)
		if w.err != nil {
			return w.err
		}
	}
	b := w.cur
	start := len(b.buf)
	if b.buf == nil {
		b.buf = make([]byte, 0, batchBytes)
	}
	b.buf = b.buf[:start+size]
	if _, err := io.ReadFull(w.u.tr, b.buf[start:]); err != nil {
		b.buf = b.buf[:start]
		return readError("read its content", noEOF(err))
	}
	b.files = append(b.files, smallFile{at: at, entry: entry, attrs: a, end: len(b.buf)})
	w.flying = true
	return nil
}

func (w *writers) send() {
	w.number++
	w.cur.number = w.number
	w.work <- w.cur
	w.cur = nil
}

// collect takes over what a written batch found, and empties it.
func (w *writers) collect(b *batch) {
	if b.err != nil && (w.err == nil || b.number < w.errOf) {
		w.err, w.errOf = b.err, b.number
	}
	if r := w.u.records; r != nil && b.err == nil {
		for i := range b.files {
			f := &b.files[i]
			r.note(f.at.key, &f.stat, f.crc)
			w.u.names.add(f.at.folder, f.stat.Ino, f.at.base, unix.DT_REG)
		}
	}
	clear(b.files)
	b.files, b.buf, b.err = b.files[:0], b.buf[:0], nil
}

// wait returns when all batches are written. Its error is the stream's first.
func (w *writers) wait() error {
	if !w.flying {
		return w.err // nothing is retired meanwhile
	}
	if w.cur != nil {
		w.send()
	}
	var all [batchCount]*batch
	for i := range all {
		all[i] = <-w.free
		w.collect(all[i])
	}
	for _, b := range all {
		w.free <- b
	}
	w.flying = false
	w.u.parents.closeRetired()
	return w.err
}

// close ends the goroutines, after wait.
func (w *writers) close() {
	close(w.work)
	w.wg.Wait()
}

// write makes the files of a batch, in a goroutine of the writers: of the unpacker it uses
// what does not change.
func (u *unpacker) write(b *batch) error {
	start := 0
	for i := range b.files {
		f := &b.files[i]
		if err := u.writeSmall(f, b.buf[start:f.end]); err != nil {
			return &EntryError{Entry: f.entry, Err: err}
		}
		start = f.end
	}
	return nil
}

func (u *unpacker) writeSmall(f *smallFile, content []byte) error {
	fd, err := unix.Openat(f.at.parent, f.at.base,
		unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, f.attrs.mode&0o777)
	if err != nil {
		return err
	}
	return errors.Join(u.fillSmall(fd, f, content), unix.Close(fd))
}

func (u *unpacker) fillSmall(fd int, f *smallFile, content []byte) error {
	if err := writeAll(fd, content); err != nil {
		return fmt.Errorf("write its content: %w", err)
	}
	if u.records != nil {
		f.crc = crc32.Checksum(content, castagnoli)
	}
	if err := u.setAttrs(fd, f.attrs, f.attrs.mode&0o777); err != nil {
		return err
	}
	if err := unix.Fstat(fd, &f.stat); err != nil {
		return fmt.Errorf("stat it: %w", err)
	}
	if f.stat.Mode&0o7777 == f.attrs.mode {
		return nil
	}
	// An umask or the folder's default ACL took bits away.
	if err := unix.Fchmod(fd, f.attrs.mode); err != nil {
		return fmt.Errorf("set its mode %#o: %w", f.attrs.mode, err)
	}
	return unix.Fstat(fd, &f.stat)
}

// small reports whether a file can be made by the writers, which note no extended
// attributes.
func (u *unpacker) small(size int64, a attrs) bool {
	return size <= smallBytes && len(a.xattrs) == 0 && (!u.single || a.uid == 0 && a.gid == 0)
}
