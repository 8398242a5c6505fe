package unpack

import (
	"testing"

	"golang.org/x/sys/unix"
)

// TestRecords: what is kept of a file is found by its number and place, the latest of a number
// counts, and files beyond what memory is given to keep their checksums.
func TestRecords(t *testing.T) {
	r := newRecords()
	stat := func(ino uint64, size int64) *unix.Stat_t {
		return &unix.Stat_t{Ino: ino, Mode: unix.S_IFREG | 0o640, Uid: 1, Gid: 2, Size: size,
			Mtim: unix.Timespec{Sec: -3, Nsec: 999_999_999}}
	}
	for ino := range uint64(300) {
		r.note(ino+1000, stat(ino, int64(ino)), uint32(ino))
	}
	r.note(7, stat(9, 70), 77)
	var got unix.Stat_t
	if !r.known(9, 7, &got) || got != *stat(9, 70) || r.sum(9) != 77 {
		t.Errorf("%+v", got)
	}
	if !r.known(299, 1299, &got) || got != *stat(299, 299) || r.sum(299) != 299 {
		t.Errorf("%+v", got)
	}
	for _, ino := range []uint64{9, 301, 1 << 40} { // another place, and none
		if r.known(ino, ino+1000, &got) {
			t.Errorf("%d is known", ino)
		}
	}
	for i := range uint64(maxPages + 10) { // far from each other
		r.note(i, stat(i*pageFiles+5_000_000, 1), uint32(i))
	}
	last := uint64(maxPages+9)*pageFiles + 5_000_000
	if r.known(last, maxPages+9, &got) || r.sum(last) != maxPages+9 || len(r.pages) != maxPages {
		t.Errorf("%d pages, checksum %d", len(r.pages), r.sum(last))
	}
}
