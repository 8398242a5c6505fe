package files

import (
	"errors"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/runtime/guest/guestapi/filesapi"
)

// TestVersion: of writers who all write what they have read and one more, each with the version that it read, none
// loses what another has written, whichever worker it is of; and what was not written leaves nothing behind.
func TestVersion(t *testing.T) {
	const writers, each = 6, 20
	dir := t.TempDir()
	path := filepath.Join(dir, "count")
	put(t, path, "10000")
	var wg sync.WaitGroup
	for range 2 {
		c := newClient(t)
		for range writers / 2 {
			wg.Go(func() {
				for done := 0; done < each; {
					err := increment(t, c, path)
					switch {
					case err == nil:
						done++
					case !errors.Is(err, unix.ESTALE):
						t.Error(err)
						return
					}
				}
			})
		}
	}
	wg.Wait()
	if got := get(t, path); got != strconv.Itoa(10000+writers*each) {
		t.Errorf("%s after %d writes", got, writers*each)
	}
	if all, err := filepath.Glob(filepath.Join(dir, ".*")); err != nil || len(all) > 0 {
		t.Errorf("left: %v, %v", all, err)
	}
}

// increment writes one more than a file holds, for the version that was read.
func increment(t *testing.T, c *filesapi.Client, path string) error {
	st, _, err := c.Call(t.Context(), filesapi.Request{Op: filesapi.OpStat, Path: path, Follow: true}, nil, 0)
	if err != nil {
		return err
	}
	_, data, err := c.Call(t.Context(), filesapi.Request{Op: filesapi.OpRead, Path: path, Limit: 100}, nil, 100)
	if err != nil {
		return err
	}
	n, err := strconv.Atoi(string(data))
	if err != nil {
		return err
	}
	_, _, err = c.Call(t.Context(), filesapi.Request{Op: filesapi.OpWrite, Path: path, Version: st.Entry.Version},
		[]byte(strconv.Itoa(n+1)), 0)
	return err
}

// TestVersionRefused: a file that is gone, another one or written since is not replaced, nor is one that has several
// names, into which is written.
func TestVersionRefused(t *testing.T) {
	c := newClient(t)
	dir := t.TempDir()
	path, link := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	version := func() string {
		t.Helper()
		st, _, err := c.Call(t.Context(), filesapi.Request{Op: filesapi.OpStat, Path: path}, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		return st.Entry.Version
	}
	write := func(v string) error {
		_, _, err := c.Call(t.Context(), filesapi.Request{Op: filesapi.OpWrite, Path: path, Version: v}, []byte("new"), 0)
		return err
	}
	put(t, path, "old")
	was := version()
	put(t, path, "other")
	if err := write(was); !errors.Is(err, unix.ESTALE) || get(t, path) != "other" {
		t.Errorf("%v, %s", err, get(t, path))
	}
	if err := unix.Link(path, link); err != nil {
		t.Fatal(err)
	}
	if err := write(was); !errors.Is(err, unix.ESTALE) || get(t, link) != "other" {
		t.Errorf("of two names: %v, %s", err, get(t, link))
	}
	if err := write(version()); err != nil || get(t, link) != "new" {
		t.Errorf("of two names, as it was: %v, %s", err, get(t, link))
	}
	was = version()
	if err := unix.Unlink(path); err != nil {
		t.Fatal(err)
	}
	if err := write(was); !errors.Is(err, unix.ESTALE) {
		t.Errorf("of one that is gone: %v", err)
	}
	if err := unix.Access(path, unix.F_OK); err == nil {
		t.Error("it was made")
	}
}
