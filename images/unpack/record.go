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

// maxRecords bounds the memory of records, some 100 bytes each. Of files beyond it only the
// checksum is kept, and the manifest asks for the rest.
const maxRecords = 256 << 10

// records are what is known of the files of a layer, by inode number. One that gets the number
// of a file that was removed takes its place.
type records struct {
	files map[uint64]record
	sums  map[uint64]uint32
}

func newRecords() *records {
	return &records{files: make(map[uint64]record), sums: make(map[uint64]uint32)}
}

// note keeps what stat says of a file that is done.
func (r *records) note(place uint64, st *unix.Stat_t, crc uint32) {
	if len(r.files) >= maxRecords {
		delete(r.files, st.Ino)
		r.sums[st.Ino] = crc
		return
	}
	r.files[st.Ino] = record{
		place: place, size: st.Size, sec: st.Mtim.Sec, nsec: uint32(st.Mtim.Nsec),
		mode: st.Mode, uid: st.Uid, gid: st.Gid, crc: crc,
	}
}

// known fills in what a stat of the file with that inode number at that place would say. It
// does not know another name of it, for which the file system is asked.
func (r *records) known(ino, place uint64, st *unix.Stat_t) bool {
	f, ok := r.files[ino]
	if !ok || f.place != place {
		return false
	}
	*st = unix.Stat_t{Ino: ino, Mode: f.mode, Uid: f.uid, Gid: f.gid, Size: f.size, Mtim: unix.Timespec{Sec: f.sec, Nsec: int64(f.nsec)}}
	return true
}

// sum is the checksum of a file.
func (r *records) sum(ino uint64) uint32 {
	if f, ok := r.files[ino]; ok {
		return f.crc
	}
	return r.sums[ino]
}

// known is records.known, for a walk.
func (u *unpacker) known(folder, ino uint64, base string, st *unix.Stat_t) bool {
	return u.records.known(ino, u.writers.key(folder, base), st)
}
