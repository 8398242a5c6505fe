package unpack

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/sys"
)

// The attributes of a layer are a file beside its manifest: a line for every node that has
// extended attributes, in the order of Walk,
//
//	CHECKSUM QUOTED-PATH
//
// It is a file of its own so that builds that know the manifest only go on reading that.

// AttributesLine is the line of a file or folder, without its end, or "" for one without
// attributes.
func (n *Node) AttributesLine() (string, error) {
	flags := 0
	switch n.Stat.Mode & unix.S_IFMT {
	case unix.S_IFREG:
	case unix.S_IFDIR:
		flags = unix.O_DIRECTORY
	default: // take none of those that count
		return "", nil
	}
	fd, err := sys.OpenBeneath(n.parent, n.base, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|flags, 0)
	if err != nil {
		return "", fmt.Errorf("open %q: %w", n.Path, err)
	}
	f := os.NewFile(uintptr(fd), n.Path)
	defer f.Close()
	sum, some, err := attributesOf(fd)
	if err != nil {
		return "", fmt.Errorf("read the attributes of %q: %w", n.Path, err)
	}
	if !some {
		return "", nil
	}
	return fmt.Sprintf("%08x %s", sum, strconv.Quote(n.Path)), nil
}

// attributesOf sums up the attributes that Unpack sets: those of others, such as labels of
// SELinux, are the machine's.
func attributesOf(fd int) (sum uint32, some bool, err error) {
	size, err := unix.Flistxattr(fd, nil)
	if errors.Is(err, unix.ENOTSUP) || size == 0 && err == nil {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, err
	}
	list := make([]byte, size)
	if size, err = unix.Flistxattr(fd, list); err != nil {
		return 0, false, err
	}
	names := strings.Split(strings.TrimSuffix(string(list[:size]), "\x00"), "\x00")
	slices.Sort(names)
	for _, name := range names {
		if !strings.HasPrefix(name, "user.") && name != capabilityXattr {
			continue
		}
		value, err := attribute(fd, name)
		if err != nil {
			return 0, false, fmt.Errorf("%q: %w", name, err)
		}
		if name == capabilityXattr {
			value = plainCapability(value)
		}
		// Lengths keep what ends one name or value from beginning the next.
		b := binary.LittleEndian.AppendUint32(append([]byte(name), 0), uint32(len(value)))
		sum, some = crc32.Update(crc32.Update(sum, castagnoli, b), castagnoli, value), true
	}
	return sum, some, nil
}

func attribute(fd int, name string) ([]byte, error) {
	size, err := unix.Fgetxattr(fd, name, nil)
	if err != nil || size == 0 {
		return nil, err
	}
	value := make([]byte, size)
	if size, err = unix.Fgetxattr(fd, name, value); err != nil {
		return nil, err
	}
	return value[:size], nil
}

// capabilityXattr holds a file's capabilities.
const capabilityXattr = "security.capability"

// plainCapability makes version 3 of the attribute version 2: which of them the kernel
// shows depends on the user namespace of who looks (capabilities(7)).
func plainCapability(value []byte) []byte {
	const size2, size3, revisions, revision2 = 20, 24, 0xff000000, 0x02000000
	if len(value) != size3 {
		return value
	}
	magic := binary.LittleEndian.Uint32(value)&^revisions | revision2
	return append(binary.LittleEndian.AppendUint32(nil, magic), value[4:size2]...)
}
