package files

import (
	"bytes"
	"errors"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/guest/guestapi/filesapi"
)

// attributeSpace is the name space that ordinary users may write.
const attributeSpace = "user."

// mark gives an open file the attributes that a write names.
func (c *call) mark(fd int) error {
	for _, name := range slices.Sorted(maps.Keys(c.Attributes)) {
		err := unix.Fsetxattr(fd, attributeSpace+name, []byte(c.Attributes[name]), 0)
		if errors.Is(err, unix.EOPNOTSUPP) {
			return &problem{unix.EOPNOTSUPP, "is on a file system that keeps no attributes"}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// hasAttributes reports whether a file is of a kind that can have attributes, and that is opened without harm.
func hasAttributes(e *filesapi.Entry) bool {
	kind := e.Mode & unix.S_IFMT
	return kind == unix.S_IFREG || kind == unix.S_IFDIR
}

// attributes are those of a file or folder, as far as this user may read it: none is no error.
func attributes(dir int, name string, follow bool) map[string][]byte {
	flags := unix.O_RDONLY | unix.O_NONBLOCK | unix.O_NOCTTY
	if !follow {
		flags |= unix.O_NOFOLLOW
	}
	fd, err := openat(dir, name, flags, 0)
	if err != nil {
		return nil
	}
	defer unix.Close(fd)
	names := make([]byte, api.MaxAttributesBytes)
	n, err := unix.Flistxattr(fd, names)
	if err != nil {
		return nil // there are none, or more than are told
	}
	all, left := map[string][]byte{}, api.MaxAttributesBytes
	for full := range bytes.SplitSeq(names[:n], []byte{0}) {
		short, ok := strings.CutPrefix(string(full), attributeSpace)
		if !ok || short == "" || api.AttributeReserved(short) || !utf8.ValidString(short) {
			continue
		}
		value := make([]byte, left)
		n, err := unix.Fgetxattr(fd, string(full), value)
		if err == nil && n+len(short) <= left && utf8.Valid(value[:n]) {
			all[short], left = value[:n:n], left-n-len(short)
		}
	}
	return all
}
