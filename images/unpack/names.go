package unpack

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// names are what is in the folders of a layer, so that the manifest need not list them: a name takes getdents(2) about
// as long as everything else that the manifest has to do with it, and tmpfs more than that (since Linux 6.6 a tree
// keeps its order). They are what was made: a folder is in here from its mkdir on, and no more once something in it was
// removed, which is then listed.
type names struct {
	of   map[uint64]*[]byte // by the folder's inode number: entries as getdents(2) has them
	room int                // bytes that may still be kept
	// The folder used last.
	last   uint64
	inLast *[]byte
}

// maxNames bounds the memory for names, in bytes: those of some 400,000 files. Folders that are more are listed.
const maxNames = 16 << 20

func newNames() *names { return &names{of: make(map[uint64]*[]byte), room: maxNames} }

// begin is called for a folder that was just made, with whatever inode number. A nil n keeps nothing.
func (n *names) begin(folder uint64) {
	if n == nil {
		return
	}
	n.forget(folder) // one that had the number before, and was removed
	n.of[folder] = new([]byte)
}

// forget is called for a folder in which something was removed.
func (n *names) forget(folder uint64) {
	if n == nil {
		return
	}
	if all := n.of[folder]; all != nil {
		n.room += len(*all)
		delete(n.of, folder)
	}
	n.inLast = nil
}

// add is called for what was made in a folder. Its kind is DT_REG, with its inode number, or DT_UNKNOWN.
func (n *names) add(folder, ino uint64, base string, kind byte) {
	if n == nil {
		return
	}
	if n.inLast == nil || n.last != folder {
		n.last, n.inLast = folder, n.of[folder]
	}
	if n.inLast == nil {
		return
	}
	size := direntHeader + len(base) + 1
	if n.room < size {
		n.forget(folder)
		return
	}
	n.room -= size
	b := binary.NativeEndian.AppendUint64(*n.inLast, ino)
	b = binary.NativeEndian.AppendUint64(b, 0)
	b = binary.NativeEndian.AppendUint16(b, uint16(size)) // names have at most 255 bytes
	*n.inLast = append(append(append(b, kind), base...), 0)
}

// list returns the entries of a folder, and whether it knows them.
func (n *names) list(folder uint64) ([]byte, bool) {
	all := n.of[folder]
	if all == nil {
		return nil, false
	}
	return *all, true
}

// known is records.known, for a walk.
func (u *unpacker) known(folder, ino uint64, base string, st *unix.Stat_t) bool {
	return u.records.known(ino, u.writers.key(folder, base), st)
}

// list is names.list, for a walk.
func (u *unpacker) list(folder uint64) ([]byte, bool) { return u.names.list(folder) }
