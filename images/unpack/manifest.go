package unpack

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/sys"
)

// A manifest says what a layer's folder held when it was unpacked: a line a node, in
// the order of Walk,
//
//	KIND MODE UID:GID SIZE SECONDS.NANOSECONDS CHECKSUM|QUOTED-TARGET|- QUOTED-PATH
//
// KIND as ls(1) has it, MODE octal, SIZE 0 but for files, CHECKSUM of eight hexadecimal
// digits. Extended attributes have a file of their own (attrsum.go).
//
// It tells damage from what is whole, not an attacker from the user: who can change the
// files can change it, too. So the checksum is CRC-32C, which file systems use for the
// same purpose: SHA-256 took a quarter of the time that unpacking small files takes.

// castagnoli has an instruction of its own on amd64 and arm64.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// ComparePaths orders paths as Walk visits them.
func ComparePaths(a, b string) int {
	return strings.Compare(orderOf(a), orderOf(b))
}

func orderOf(p string) string {
	if p == "." {
		return ""
	}
	return strings.ReplaceAll(p, "/", "\x00")
}

// Read opens a regular file for reading.
func (n *Node) Read() (*os.File, error) {
	fd, err := sys.OpenBeneath(n.parent, n.base, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open %q: %w", n.Path, err)
	}
	return os.NewFile(uintptr(fd), n.Path), nil
}

// Target is where a symlink leads.
func (n *Node) Target() (string, error) {
	buf := make([]byte, unix.PathMax)
	k, err := unix.Readlinkat(n.parent, n.base, buf)
	if err != nil {
		return "", fmt.Errorf("read link %q: %w", n.Path, err)
	}
	return string(buf[:k]), nil
}

// kinds are the first letters of ls -l.
var kinds = map[uint32]byte{
	unix.S_IFREG: '-', unix.S_IFDIR: 'd', unix.S_IFLNK: 'l', unix.S_IFIFO: 'p', unix.S_IFCHR: 'c', unix.S_IFBLK: 'b',
	unix.S_IFSOCK: 's',
}

// Line is the node's line of a manifest, without its end. content gives the checksum of
// a regular file.
func (n *Node) Line(content func(n *Node) (uint32, error)) (string, error) {
	line, err := n.appendLine(nil, content)
	return string(line), err
}

func (n *Node) appendLine(b []byte, content func(n *Node) (uint32, error)) ([]byte, error) {
	st := &n.Stat
	kind, size := st.Mode&unix.S_IFMT, int64(0)
	if kind == unix.S_IFREG {
		size = st.Size
	}
	b = append(b, kinds[kind], ' ')
	b = strconv.AppendUint(b, uint64(st.Mode&0o7777), 8)
	b = append(b, ' ')
	b = strconv.AppendUint(b, uint64(st.Uid), 10)
	b = append(b, ':')
	b = strconv.AppendUint(b, uint64(st.Gid), 10)
	b = append(b, ' ')
	b = strconv.AppendInt(b, size, 10)
	b = append(b, ' ')
	b = strconv.AppendInt(b, st.Mtim.Sec, 10)
	b = append(b, '.')
	b = strconv.AppendInt(b, st.Mtim.Nsec, 10)
	b = append(b, ' ')
	switch kind {
	case unix.S_IFREG:
		crc, err := content(n)
		if err != nil {
			return nil, err
		}
		b = hex.AppendEncode(b, binary.BigEndian.AppendUint32(nil, crc))
	case unix.S_IFLNK:
		target, err := n.Target()
		if err != nil {
			return nil, err
		}
		b = strconv.AppendQuote(b, target)
	default:
		b = append(b, '-')
	}
	return appendQuote(append(b, ' '), n.Path), nil
}

// appendQuote is strconv.AppendQuote, which takes its time also over what needs no escape.
func appendQuote(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			return strconv.AppendQuote(b, s)
		}
	}
	return append(append(append(b, '"'), s...), '"')
}

// PathOf is the path that a line of a manifest is about.
func PathOf(line string) (string, error) {
	// A quoted string holds no space and no quote that is not escaped or its own.
	for at := len(line) - 2; at > 0; at-- {
		if line[at] == '"' && line[at-1] == ' ' {
			if p, err := strconv.Unquote(line[at:]); err == nil {
				return p, nil
			}
		}
	}
	return "", errors.New("the line has no path")
}

// keptSize is from what size on the checksum of a file with several names is kept: a smaller one costs no more to read
// again, and those of the limits' bytes are not too many.
const keptSize = 4096

// Checksums returns a function that reads the content of a file as it is now; the content of one with several names
// once, for whoever made the layer chose how many there are. The end of ctx ends it.
func Checksums(ctx context.Context) func(n *Node) (uint32, error) {
	known := make(map[inode]uint32)
	buf := make([]byte, copyBuffer)
	return func(n *Node) (uint32, error) {
		id := inode{n.Stat.Dev, n.Stat.Ino}
		if crc, ok := known[id]; ok {
			return crc, nil
		}
		crc, err := readSum(ctx, n, buf)
		if err == nil && n.Stat.Nlink > 1 && n.Stat.Size >= keptSize {
			known[id] = crc
		}
		return crc, err
	}
}

func readSum(ctx context.Context, n *Node, buf []byte) (uint32, error) {
	f, err := n.Read()
	if err != nil {
		return 0, err
	}
	defer f.Close()
	for crc := uint32(0); ; {
		if ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
		k, err := f.Read(buf)
		crc = crc32.Update(crc, castagnoli, buf[:k])
		if errors.Is(err, io.EOF) {
			return crc, nil
		}
		if err != nil {
			return 0, fmt.Errorf("read %q: %w", n.Path, err)
		}
	}
}

// WriteManifest writes the manifest of a layer's folder, and its attributes if that is not
// nil. has says which nodes may have some; nil means all.
func WriteManifest(ctx context.Context, w, attributes io.Writer, root *os.File, content func(n *Node) (uint32, error),
	has func(n *Node) bool) error {
	return writeManifest(ctx, w, attributes, root, nil, content, has)
}

func writeManifest(ctx context.Context, w, attributes io.Writer, root *os.File, mem memory,
	content func(n *Node) (uint32, error), has func(n *Node) bool,
) error {
	out := bufio.NewWriterSize(w, 64<<10)
	if attributes == nil {
		attributes = io.Discard
	}
	more := bufio.NewWriter(attributes)
	var line []byte
	err := walk(ctx, root, mem, func(n *Node) (err error) {
		if line, err = n.appendLine(line[:0], content); err == nil {
			_, err = out.Write(append(line, '\n'))
		}
		if err == nil && (has == nil || has(n)) {
			err = writeAttributes(more, n)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("write the manifest: %w", err)
	}
	return errors.Join(out.Flush(), more.Flush())
}

func writeAttributes(w io.Writer, n *Node) error {
	line, err := n.AttributesLine()
	if err == nil && line != "" {
		_, err = io.WriteString(w, line+"\n")
	}
	return err
}
