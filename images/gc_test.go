package images

import (
	"errors"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/api"
)

// madeUnit makes a layer's folder that no image has.
func madeUnit(t *testing.T, s *Store, digit string) string {
	t.Helper()
	name := path.Join(layersDir, strings.Repeat(digit, 64))
	must(t, os.MkdirAll(filepath.Join(s.path(name), "root"), 0o700))
	must(t, os.WriteFile(filepath.Join(s.path(name), "root", "file"), []byte("x"), 0o600))
	return name
}

// TestCollectHoldsNobodyUp: while a layer is being deleted nobody has its lock, so that who asks for a lease hears at
// once that it is gone.
func TestCollectHoldsNobodyUp(t *testing.T) {
	s := openStore(t, Options{})
	name := madeUnit(t, s, "a")
	opened, err := openDir(s.path(name)) // by somebody who was just about to lease it
	must(t, err)
	defer opened.Close()
	gone, err := s.withdraw(name)
	must(t, err)
	if gone == nil {
		t.Fatal("the layer stays")
	}
	if err := flockNow(opened, unix.LOCK_SH); err != nil {
		t.Errorf("its lock while it is deleted: %v", err)
	}
	if samePath(opened, s.path(name)) {
		t.Error("it is still there")
	}
	if _, err := s.Lease([]string{name}); api.ErrorCode(err) != api.NotFound {
		t.Errorf("a lease of it: %v", err)
	}
	gone.discard()
	if left, _ := filepath.Glob(filepath.Join(s.Dir(), tmpDir, "*")); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
	// One that is leased stays.
	name = madeUnit(t, s, "b")
	lease, err := s.Lease([]string{name})
	must(t, err)
	if gone, err := s.withdraw(name); gone != nil || err != nil {
		t.Errorf("a leased layer: %v, %v", gone, err)
	}
	lease.Release()
	if freed, err := s.collect(name); freed <= 0 || err != nil {
		t.Errorf("freed %d, %v", freed, err)
	}
}

// TestLeaseWaitsAlone: who waits for a layer that somebody has locked does not keep others from other layers.
func TestLeaseWaitsAlone(t *testing.T) {
	s := openStore(t, Options{})
	locked, free := madeUnit(t, s, "a"), madeUnit(t, s, "b")
	dir, err := openDir(s.path(locked))
	must(t, err)
	t.Cleanup(func() { _ = dir.Close() }) // or nobody could close the store
	must(t, flockNow(dir, unix.LOCK_EX))
	var st unix.Stat_t
	must(t, unix.Fstat(int(dir.Fd()), &st))
	got := make(chan error, 1)
	var lease *Lease
	go func() {
		l, err := s.Lease([]string{locked})
		lease = l
		got <- err
	}()
	testenv.Poll(t, 10*time.Second, "nobody waits for the lock", func() bool {
		locks, err := os.ReadFile("/proc/locks") // proc_locks(5): "->" is one that waits
		must(t, err)
		for line := range strings.Lines(string(locks)) {
			if strings.Contains(line, "->") && strings.Contains(line, ":"+strconv.FormatUint(st.Ino, 10)+" ") {
				return true
			}
		}
		return false
	})
	other := make(chan error, 1)
	go func() {
		l, err := s.Lease([]string{free})
		if err == nil {
			l.Release()
		}
		other <- err
	}()
	must(t, testenv.Within(t, other, 10*time.Second, "a lease of another layer waits as well"))
	must(t, errors.Join(dir.Close(), testenv.Within(t, got, 10*time.Second, "the lease does not come")))
	lease.Release()
	if s.leases.held(locked) || s.leases.held(free) {
		t.Error("still leased")
	}
}
