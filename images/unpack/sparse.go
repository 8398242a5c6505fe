package unpack

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// archive/tar reads sparse files and writes none. So that a file of a terabyte without
// content does not become one, sparse files are written here, in the PAX format 1.0 of GNU
// tar (its manual, "Storing Sparse Files"): extended header, header, list of the parts that
// are no holes, those parts.

// part is a piece of a file that is no hole.
type part struct{ off, n int64 }

// maxParts bounds the list: what reads it has bounds, too (archive/tar: 1 MiB).
const maxParts = 10000

// dataOf lists the parts of a file that are not zero, in units of sparseBlock, so that the
// result does not depend on where the file system keeps holes. A file in too many parts is
// taken as one.
func dataOf(f *os.File, size int64, buf []byte) (parts []part, holes bool, err error) {
	for off := int64(0); off < size; {
		start, err := unix.Seek(int(f.Fd()), off, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			break
		}
		if err != nil {
			return nil, false, fmt.Errorf("look for its holes: %w", err)
		}
		off = start / sparseBlock * sparseBlock
		b := buf[:min(size-off, int64(len(buf)))]
		if len(b) == 0 {
			break
		}
		n, err := f.ReadAt(b, off)
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, false, err
		}
		clear(b[n:])
		parts = addParts(parts, b, off)
		off += int64(len(b))
	}
	if k := len(parts); k > maxParts {
		last := parts[k-1]
		parts = []part{{parts[0].off, last.off + last.n - parts[0].off}}
	}
	whole := len(parts) == 1 && parts[0] == part{0, size}
	return parts, !whole, nil
}

// addParts adds the blocks of b, which are at off in the file, that are not zero.
func addParts(parts []part, b []byte, off int64) []part {
	for len(b) > 0 {
		n := min(len(b), sparseBlock)
		if !bytes.Equal(b[:n], zeros[:n]) {
			if k := len(parts); k > 0 && parts[k-1].off+parts[k-1].n == off {
				parts[k-1].n += int64(n)
			} else {
				parts = append(parts, part{off, int64(n)})
			}
		}
		b, off = b[n:], off+int64(n)
	}
	return parts
}

// sparse packs a file that has holes.
func (p *layerPacker) sparse(f *os.File, h *tar.Header, parts []part) error {
	if err := p.folderAbove(h.Name); err != nil {
		return err
	}
	if err := p.tw.Flush(); err != nil { // the padding of the entry before
		return err
	}
	p.stats.Entries++
	list, size := sparseList(parts, h.Size)
	size += int64(len(list))
	records := map[string]string{
		"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.name": h.Name,
		"GNU.sparse.realsize": strconv.FormatInt(h.Size, 10),
		"mtime":               paxTime(h.ModTime.Unix(), h.ModTime.Nanosecond()),
		"uid":                 strconv.Itoa(h.Uid), "gid": strconv.Itoa(h.Gid), "size": strconv.FormatInt(size, 10),
	}
	maps.Copy(records, h.PAXRecords)
	var ext []byte
	for _, k := range slices.Sorted(maps.Keys(records)) {
		ext = append(ext, paxRecord(k, records[k])...)
	}
	for _, b := range [][]byte{
		ustar("PaxHeaders.0/sparse", tar.TypeXHeader, 0o644, int64(len(ext))), padded(ext),
		ustar("GNUSparseFile.0/sparse", tar.TypeReg, h.Mode, size), list,
	} {
		if _, err := p.out.Write(b); err != nil {
			return err
		}
	}
	for _, of := range parts {
		if err := p.content(p.out, f, of); err != nil {
			return err
		}
	}
	_, err := p.out.Write(make([]byte, -size&511))
	return err
}

// sparseList is the list of a file's parts, and their sum. A part of no bytes says where
// the file ends.
func sparseList(parts []part, size int64) (list []byte, sum int64) {
	all := append(slices.Clone(parts), part{size, 0})
	list = fmt.Appendf(nil, "%d\n", len(all))
	for _, of := range all {
		list = fmt.Appendf(list, "%d\n%d\n", of.off, of.n)
		sum += of.n
	}
	return padded(list), sum
}

func padded(b []byte) []byte { return append(b, make([]byte, -len(b)&511)...) }

// paxTime is a time in seconds with a fraction, which counts away from zero as the
// seconds do (pax(1)).
func paxTime(sec int64, nsec int) string {
	sign := ""
	if sec < 0 {
		if nsec > 0 {
			sec, nsec = sec+1, 1e9-nsec
		}
		sec, sign = -sec, "-"
	}
	if nsec == 0 {
		return sign + strconv.FormatInt(sec, 10)
	}
	return strings.TrimRight(fmt.Sprintf("%s%d.%09d", sign, sec, nsec), "0")
}

// paxRecord is "LENGTH KEY=VALUE\n", where LENGTH counts itself.
func paxRecord(key, value string) string {
	rest := len(key) + len(value) + 3
	size := rest + len(strconv.Itoa(rest))
	if len(strconv.Itoa(size))+rest != size {
		size++
	}
	return fmt.Sprintf("%d %s=%s\n", size, key, value)
}

// ustar is a header block; what has no place in it is in the extended header.
func ustar(name string, kind byte, mode, size int64) []byte {
	b := make([]byte, 512)
	copy(b, name)
	octal := func(at, n int, v int64) {
		if v >= 1<<(3*(n-1)) {
			v = 0
		}
		copy(b[at:], fmt.Sprintf("%0*o\x00", n-1, v))
	}
	octal(100, 8, mode)
	octal(108, 8, 0)
	octal(116, 8, 0)
	octal(124, 12, size)
	octal(136, 12, 0)
	copy(b[148:], "        ")
	b[156] = kind
	copy(b[257:], "ustar\x0000")
	sum := int64(0)
	for _, c := range b {
		sum += int64(c)
	}
	copy(b[148:], fmt.Sprintf("%06o\x00 ", sum))
	return b
}
