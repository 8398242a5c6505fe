package repair

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/images/unpack"
)

// A hard link of one layer to a file of a lower one (docker and podman with overlayfs refuse it, containerd takes it)
// is made in the layer of repaired folders, by one more link to the lower layer's file: overlayfs shows the two as two
// files anyway.

// lowerLink is unpack.LowerLink of a layer of a stack.
type lowerLink struct {
	layer        int
	name, target string
	// What it is: a file of a layer, from 1, or another link.
	from   int
	source string
	via    *lowerLink
}

type linkName struct {
	layer int
	name  string
}

func (k *Stack) pushLinks(layer int, links []unpack.LowerLink) error {
	for _, l := range links {
		if k.size += unpack.LinkCost + len(l.Name) + len(l.Target); k.size > maxImplied {
			return fmt.Errorf("%w of %d bytes for hard links to lower layers, of which each takes its names and %d, in all layers of an image",
				unpack.ErrLimit, maxImplied, unpack.LinkCost)
		}
		one := &lowerLink{layer: layer, name: l.Name, target: l.Target}
		if k.byName == nil {
			k.byName = make(map[linkName]*lowerLink)
		}
		k.links, k.byName[linkName{layer, l.Name}] = append(k.links, one), one
	}
	return nil
}

// linkFixes lists the links that are seen, with the folders above them. As fixes does it goes through all names in
// their order.
func (k *Stack) linkFixes(ctx context.Context, want func(levels []level)) (list []Folder, err error) {
	slices.SortFunc(k.links, func(a, b *lowerLink) int {
		return cmp.Or(strings.Compare(a.target, b.target), cmp.Compare(a.layer, b.layer))
	})
	for _, c := range k.links {
		at, base, err := k.enterAbove(ctx, c.target)
		if err != nil {
			return nil, err
		}
		if !k.find(c, at, base) {
			return nil, fmt.Errorf("%w: hard link %q to %q, which neither its layer nor a lower one has as a file",
				unpack.ErrUnsafe, c.name, c.target)
		}
	}
	slices.SortFunc(k.links, func(a, b *lowerLink) int {
		return cmp.Or(strings.Compare(a.name, b.name), cmp.Compare(a.layer, b.layer))
	})
	for _, c := range k.links {
		at, base, err := k.enterAbove(ctx, c.name)
		if err != nil {
			return nil, err
		}
		if k.hidden(c, at, base) {
			continue
		}
		want(k.levels)
		is := c
		for is.via != nil { // each of a lower layer
			is = is.via
		}
		list = append(list, Folder{path: c.name, gone: true, from: is.from, source: is.source})
	}
	return list, nil
}

// enterAbove goes to the folder of a name.
func (k *Stack) enterAbove(ctx context.Context, name string) (at *level, base string, err error) {
	if ctx.Err() != nil {
		return nil, "", context.Cause(ctx)
	}
	dir, base := path.Split(name)
	at, err = k.enter(strings.TrimSuffix(dir, "/"))
	if err == nil && !at.open {
		err = k.reopen(at)
	}
	return at, base, err
}

// find looks for what a link means in the layers below its own, at being the folder of its target.
func (k *Stack) find(c *lowerLink, at *level, base string) bool {
	for i := c.layer - 1; i >= 0; i-- {
		if c.via = k.byName[linkName{i, c.target}]; c.via != nil {
			return true
		}
		p := &at.parts[i]
		if p.exists && has(p.fd, base) {
			c.from, c.source = i+1, c.target
			return isNode(p.fd, base)
		}
		if p.barred || p.cut {
			return false
		}
	}
	return false
}

// hidden says that a layer above a link's own has something else in its place, at being its folder.
func (k *Stack) hidden(c *lowerLink, at *level, base string) bool {
	for i := len(at.parts) - 1; i > c.layer; i-- {
		p := &at.parts[i]
		if p.barred || p.cut || p.exists && has(p.fd, base) || k.byName[linkName{i, c.name}] != nil {
			return true
		}
	}
	return !at.parts[c.layer].exists
}

func has(dir int, name string) bool {
	var st unix.Stat_t
	return unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil
}

// under leaves out folders in whose place, or in that of one above, there is a link.
func under(list, links []Folder) []Folder {
	if len(links) == 0 {
		return list
	}
	names := make(map[string]bool, len(links))
	for _, l := range links {
		names[l.path] = true
	}
	return slices.DeleteFunc(list, func(f Folder) bool {
		for p := f.path; p != "" && p != "."; p = path.Dir(p) {
			if names[p] {
				return true
			}
		}
		return false
	})
}
