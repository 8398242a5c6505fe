package changes

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/aymanbagabas/go-udiff"

	"github.com/hutch-sh/hutch/internal/patch"
)

// errNoText says that a file has no hunks.
var errNoText = errors.New("it is no text, or longer than 1 MiB: it is applied as a whole, or not at all")

// partial writes the folder's file with some hunks of the sandbox's to dst.
func (a *applier) partial(dst, src *os.File, parent int, base string, c *Change) error {
	f, err := Open(parent, base)
	if err != nil {
		return err
	}
	defer f.Close()
	old, ok := readText(f)
	new, also := readText(src)
	if err := c.still(src); err != nil {
		return err
	}
	if !ok || !also {
		return errNoText
	}
	text, err := withHunks(old, new, c.Context, c.Hunks)
	if err != nil {
		return err
	}
	_, err = io.WriteString(dst, text)
	return err
}

// withHunks is old with some of the hunks of its diff to new.
func withHunks(old, new string, context int, hunks []int) (string, error) {
	const name = "file"
	text, err := udiff.ToUnified(name, name, old, udiff.Lines(old, new), context)
	if err != nil {
		return "", err
	}
	var files []patch.File
	if text != "" {
		if files, err = patch.Parse(text, 0, 1); err != nil {
			return "", err
		}
	}
	if len(files) == 0 {
		files = []patch.File{{}}
	}
	f := files[0]
	all := f.Hunks
	f.Hunks = nil
	hunks = slices.Compact(slices.Sorted(slices.Values(hunks)))
	for _, n := range hunks {
		if n < 1 || n > len(all) {
			return "", fmt.Errorf("it has no hunk %d: there are %d", n, len(all))
		}
		f.Hunks = append(f.Hunks, all[n-1])
	}
	changed, _, err := f.Apply(old)
	return changed, err
}
