package unpack

import "golang.org/x/sys/unix"

// record is what a file was when it had been made, so that its line of the manifest takes no
// more system calls. Nothing changes a file afterwards but its removal.
type record struct {
	place          uint64 // as writers.key
	size, sec      int64
	nsec           uint32
	mode, uid, gid uint32
	crc            uint32
}

// records are what is known of the files of a layer, by inode number. One that gets the number
// of a file that was removed takes its place. Neighbours are made one after the other and have
// numbers side by side on most file systems, so they are kept side by side, too.
type records struct {
	pages map[uint64]*[pageFiles]record
	sums  map[uint64]uint32 // of files that no page is for
	// The page used last.
	last *[pageFiles]record
	of   uint64
}

const (
	pageFiles = 64
	// maxPages bounds the memory, to 30 MB. Of other files only the checksum is kept, and the
	// manifest asks the file system for the rest.
	maxPages = 8 << 10
)

func newRecords() *records {
	return &records{pages: make(map[uint64]*[pageFiles]record), sums: make(map[uint64]uint32)}
}

// at is where the file with that inode number is kept; nil if there is no page for it.
func (r *records) at(ino uint64) *record {
	of := ino / pageFiles
	if r.last == nil || r.of != of {
		p := r.pages[of]
		if p == nil {
			return nil
		}
		r.last, r.of = p, of
	}
	return &r.last[ino%pageFiles]
}

// note keeps what stat says of a file that is done.
func (r *records) note(place uint64, st *unix.Stat_t, crc uint32) {
	f := r.at(st.Ino)
	if f == nil && len(r.pages) < maxPages {
		r.pages[st.Ino/pageFiles] = new([pageFiles]record)
		f = r.at(st.Ino)
	}
	if f == nil {
		r.sums[st.Ino] = crc
		return
	}
	*f = record{
		place: place, size: st.Size, sec: st.Mtim.Sec, nsec: uint32(st.Mtim.Nsec),
		mode: st.Mode, uid: st.Uid, gid: st.Gid, crc: crc,
	}
}

// known fills in what a stat of the file with that inode number at that place would say. It
// does not know another name of it, for which the file system is asked.
func (r *records) known(ino, place uint64, st *unix.Stat_t) bool {
	f := r.at(ino)
	if f == nil || f.mode == 0 || f.place != place {
		return false
	}
	*st = unix.Stat_t{Ino: ino, Mode: f.mode, Uid: f.uid, Gid: f.gid, Size: f.size,
		Mtim: unix.Timespec{Sec: f.sec, Nsec: int64(f.nsec)}}
	return true
}

// sum is the checksum of a file.
func (r *records) sum(ino uint64) uint32 {
	if f := r.at(ino); f != nil {
		return f.crc
	}
	return r.sums[ino]
}
