package unpack

import (
	"archive/tar"
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"time"
)

// tarStream reads a tar stream as archive/tar does, of which most layers are plain headers: it
// reads those itself, in a tenth of the time, and leaves every other to archive/tar.
// FuzzTarStream compares the two.
type tarStream struct {
	r *bufio.Reader
	// other reads the entry that is the current one, unless it is nil: then of its content
	// left bytes are in r, with padding behind them.
	other     *tar.Reader
	left, pad int64
	header    tar.Header
}

const tarBlock = 512

// Next is tar.Reader.Next. The header is good until the next call; it has no names of owners,
// no device numbers and no format.
func (t *tarStream) Next() (*tar.Header, error) {
	if t.other == nil {
		if err := t.skip(); err != nil {
			return nil, err
		}
		block, err := t.r.Peek(tarBlock)
		if err == nil && t.plain(block) {
			_, err = t.r.Discard(tarBlock)
			return &t.header, err
		}
		t.other = tar.NewReader(t.r)
	}
	h, err := t.other.Next()
	if err != nil {
		return nil, err
	}
	// Content that lies in the stream as it is needs no archive/tar.
	switch h.Typeflag {
	case tar.TypeReg, tar.TypeDir, tar.TypeLink, tar.TypeSymlink:
		if !isSparse(h) {
			t.other = nil
			t.content(h)
		}
	}
	return h, nil
}

// content notes what follows a header.
func (t *tarStream) content(h *tar.Header) {
	t.left = 0
	if h.Typeflag == tar.TypeReg {
		t.left = h.Size
	}
	t.pad = -t.left & (tarBlock - 1)
}

// skip leaves out what of the current entry was not read. The padding of the last one may be
// missing.
func (t *tarStream) skip() error {
	for t.left > 0 {
		n, err := t.r.Discard(int(min(t.left, copyBuffer)))
		t.left -= int64(n)
		if err != nil {
			return noEOF(err)
		}
	}
	_, err := t.r.Discard(int(t.pad))
	t.pad = 0
	return err
}

// Read reads the content of the current entry.
func (t *tarStream) Read(p []byte) (int, error) {
	if t.other != nil {
		return t.other.Read(p)
	}
	if t.left == 0 {
		return 0, io.EOF
	}
	n, err := t.r.Read(p[:min(int64(len(p)), t.left)])
	t.left -= int64(n)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// plain reads a header that needs no other: a file, folder or link in the format of POSIX or
// GNU tar, with numbers as those write them.
func (t *tarStream) plain(b []byte) bool {
	gnu := string(b[257:265]) == "ustar  \x00"
	if !gnu && (string(b[257:265]) != "ustar\x0000" || string(b[508:512]) == "tar\x00") {
		return false
	}
	if gnu && !allZero(b[345:508]) { // times, and of sparse files where their content is
		return false
	}
	h := tar.Header{Typeflag: b[156], Name: cString(b[:100])}
	switch h.Typeflag {
	case tar.TypeReg, tar.TypeDir:
	case tar.TypeLink, tar.TypeSymlink:
		h.Linkname = cString(b[157:257])
	default:
		return false
	}
	var ok [8]bool
	var uid, gid, mtime, sum int64
	h.Mode, ok[0] = octal(b[100:108])
	uid, ok[1] = octal(b[108:116])
	gid, ok[2] = octal(b[116:124])
	h.Size, ok[3] = octal(b[124:136])
	mtime, ok[4] = octal(b[136:148])
	sum, ok[5] = octal(b[148:156])
	_, ok[6] = octal(b[329:337])
	_, ok[7] = octal(b[337:345])
	if ok != [8]bool{true, true, true, true, true, true, true, true} || sum != checksum(b) {
		return false
	}
	h.Uid, h.Gid, h.ModTime = int(uid), int(gid), time.Unix(mtime, 0)
	if !gnu && b[345] != 0 {
		h.Name = cString(b[345:500]) + "/" + h.Name
	}
	t.header = h
	t.content(&t.header)
	return true
}

func cString(b []byte) string {
	if end := bytes.IndexByte(b, 0); end >= 0 {
		b = b[:end]
	}
	return string(b)
}

// octal reads digits that only NULs and spaces follow; none at all are 0.
func octal(b []byte) (n int64, ok bool) {
	i := 0
	for ; i < len(b) && b[i] >= '0' && b[i] <= '7'; i++ {
		n = n<<3 | int64(b[i]-'0')
	}
	for ; i < len(b); i++ {
		if b[i] != 0 && b[i] != ' ' {
			return 0, false
		}
	}
	return n, true
}

// checksum is the sum of a header's bytes, where those of the sum count as spaces. It adds up
// every other byte of eight in lanes of 16 bits, which hold 64 times 255.
func checksum(b []byte) (sum int64) {
	const lanes = 0x00ff00ff00ff00ff
	var even, odd uint64
	for i := 0; i < tarBlock; i += 8 {
		x := binary.LittleEndian.Uint64(b[i:])
		even += x & lanes
		odd += x >> 8 & lanes
	}
	for _, x := range []uint64{even, odd} {
		for ; x > 0; x >>= 16 {
			sum += int64(x & 0xffff)
		}
	}
	for _, c := range b[148:156] {
		sum += ' ' - int64(c)
	}
	return sum
}

func allZero(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}
