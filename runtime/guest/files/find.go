package files

import (
	"cmp"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/fuzzy"
	"github.com/hutch-sh/hutch/runtime/guest/guestapi/filesapi"
)

// find searches a tree for names, fuzzily, and ranks them as fzf does: by score, then the shorter ones first.
func (c *call) find() (*filesapi.Reply, error) {
	var args filesapi.FindArgs
	if err := c.args(&args); err != nil {
		return nil, err
	}
	top, err := openat(unix.AT_FDCWD, c.Path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	f := &finder{max: args.Max, query: fuzzy.New(args.Query)}
	t := &tree{ctx: c.ctx, hidden: args.Hidden, noIgnore: args.NoIgnore, folders: args.Folders}
	t.visit = func(e *found) bool {
		if e.folder || args.Files {
			f.add(e)
		}
		return c.ctx.Err() == nil
	}
	err = t.walk(top, c.Path)
	if err == nil && c.ctx.Err() != nil {
		err = unix.ECANCELED
	}
	if err != nil {
		return nil, err
	}
	f.best()
	reply := &filesapi.Reply{Count: f.total, Skipped: t.skipped, Truncated: f.total > int64(len(f.list)) ||
		t.skipped > 0}
	// A payload of as many of the longest paths would be too large.
	for size, i := 0, 0; i < len(f.list); i++ {
		if size += len(f.list[i].Path) + 64; size > filesapi.MaxMatches {
			f.list, reply.Truncated = f.list[:i], true
		}
	}
	if f.list == nil {
		f.list = []filesapi.Found{}
	}
	_, err = c.result(f.list)
	return reply, err
}

// finder keeps the best of what is found.
type finder struct {
	query *fuzzy.Query
	max   int
	total int64
	list  []filesapi.Found
}

func (f *finder) add(e *found) {
	score, ok := f.query.Score(e.path)
	if !ok {
		return
	}
	f.total++
	f.list = append(f.list, filesapi.Found{Path: []byte(e.path), Folder: e.folder, Score: score})
	if len(f.list) >= 4*f.max+1000 {
		f.best()
	}
}

// best drops all but the best.
func (f *finder) best() {
	slices.SortStableFunc(f.list, func(a, b filesapi.Found) int {
		if c := cmp.Compare(b.Score, a.Score); c != 0 || f.query.Empty() {
			return c // without a query they stay in their order
		}
		return cmp.Compare(len(a.Path), len(b.Path))
	})
	f.list = f.list[:min(len(f.list), f.max)]
}
