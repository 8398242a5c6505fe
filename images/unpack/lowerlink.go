package unpack

import (
	"archive/tar"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/sys"
)

// LowerLink is a hard link to a file of a lower layer. A layer is unpacked by itself, so whoever puts layers together
// makes it.
type LowerLink struct {
	Name   string    `json:"name"`
	Target string    `json:"target"`
	Mode   int64     `json:"mode"`
	UID    int       `json:"uid"`
	GID    int       `json:"gid"`
	Time   time.Time `json:"time"`
}

// linkBelow notes a hard link whose target this layer has not. What the layer has under its name goes, as for any later
// entry.
func (u *unpacker) linkBelow(at place, target string, h *tar.Header) error {
	if lower, ok := u.below[target]; ok {
		target = lower.Target
	}
	if !u.isPlain(at.name) || !u.isPlain(target) {
		return fmt.Errorf("%w: hard link to %q, which this layer has not as a file", ErrUnsafe, h.Linkname)
	}
	if u.implied += LinkCost + len(at.name) + len(target); u.implied > MaxImplied {
		return fmt.Errorf("%w of %d bytes for hard links to lower layers, of which each takes its names and %d",
			ErrLimit, MaxImplied, LinkCost)
	}
	if u.kindAt(at) != absent {
		if err := u.replace(at); err != nil {
			return err
		}
	}
	if u.below == nil {
		u.below = make(map[string]LowerLink)
	}
	u.below[at.name] = LowerLink{Name: at.name, Target: target, Mode: h.Mode & 0o7777, UID: h.Uid, GID: h.Gid,
		Time: h.ModTime}
	return nil
}

// isPlain says that no folder of the name is a link in this layer, or something else: in another one the name would
// mean another file.
func (u *unpacker) isPlain(name string) bool {
	dirName, _ := splitName(name)
	fd, err := sys.OpenBeneath(u.root, orDot(dirName), unix.O_PATH|unix.O_DIRECTORY, 0)
	if err == nil {
		_ = unix.Close(fd)
	}
	return err == nil || errors.Is(err, unix.ENOENT)
}

// finishLinks tells which of those links are left: the name may have become something else.
func (u *unpacker) finishLinks() error {
	for _, name := range slices.Sorted(maps.Keys(u.below)) {
		if err := u.meter(); err != nil {
			return &EntryError{Entry: name, Err: err}
		}
		dirName, base := splitName(name)
		fd, err := sys.OpenBeneath(u.root, orDot(dirName), unix.O_PATH|unix.O_DIRECTORY, 0)
		if err != nil {
			continue // removed by a later entry
		}
		if u.kindAt(place{parent: fd, base: base}) == absent {
			u.stats.Links = append(u.stats.Links, u.below[name])
		}
		_ = unix.Close(fd)
	}
	return nil
}

// lowerLinks packs them, behind what is in the layer.
func (p *layerPacker) lowerLinks() error {
	links := slices.SortedFunc(slices.Values(p.o.Links),
		func(a, b LowerLink) int { return strings.Compare(a.Name, b.Name) })
	for _, l := range links {
		err := p.header(&tar.Header{
			Typeflag: tar.TypeLink, Name: l.Name, Linkname: l.Target, Mode: l.Mode, Uid: l.UID, Gid: l.GID,
			ModTime: l.Time, Format: tar.FormatPAX,
		})
		if err != nil {
			return &EntryError{Entry: l.Name, Err: err}
		}
	}
	return nil
}
