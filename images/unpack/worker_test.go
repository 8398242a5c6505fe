package unpack

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/opencontainers/go-digest"
	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/probe"
	"github.com/hutch-sh/hutch/internal/testenv"
)

// attemptsName is the argv[0] under which the test binary makes attempts, in
// the worker's namespaces, confined to its argument if it has one.
const attemptsName = "hutch-unpack-attempts"

func TestMain(m *testing.M) {
	if os.Args[0] == attemptsName {
		makeAttempts(os.Args[1:])
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// attempts are what a worker that was taken over would try. Each works in the
// worker's namespaces alone, which is the twin of its denial.
var attempts = map[string]func() error{
	"make a file in its folder": func() error { return os.WriteFile("made", nil, 0o600) },
	"read the host's files":     func() error { _, err := os.ReadFile("/etc/passwd"); return err },
	"list processes":            func() error { _, err := os.ReadDir("/proc/self/fd"); return err },
	"make a socket": func() error {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		_ = unix.Close(fd)
		return err
	},
	"make a namespace": func() error { return inThread(func() error { return unix.Unshare(unix.CLONE_NEWNET) }) },
	"mount":            func() error { return unix.Mount("tmpfs", ".", "tmpfs", 0, "") },
	"start a program": func() error {
		pid, err := syscall.ForkExec("/proc/self/exe", []string{attemptsName, "/", "none"}, &syscall.ProcAttr{})
		if err == nil {
			_, err = unix.Wait4(pid, nil, 0, nil)
		}
		return err
	},
	"change its root": func() error { return unix.Chroot(".") },
	"use memory files": func() error {
		fd, err := unix.MemfdCreate("x", unix.MFD_CLOEXEC)
		_ = unix.Close(fd)
		return err
	},
	"signal itself by name": func() error { return unix.Kill(os.Getpid(), 0) },
}

func inThread(f func() error) error {
	err := make(chan error)
	go func() { err <- f() }()
	return <-err
}

func makeAttempts(args []string) {
	readers := map[string][]uint32{packerName: packing, decompressorName: nil}
	if calls, ok := readers[strings.Join(args[min(1, len(args)):], "")]; ok {
		if _, err := confine(args[0], unix.MOUNT_ATTR_RDONLY, calls); err != nil {
			fmt.Println("confine:", err)
			os.Exit(1)
		}
	} else if len(args) == 2 {
		return // the program that was started
	}
	if len(args) == 1 {
		if _, err := confine(args[0], 0, unpacking); err != nil {
			fmt.Println("confine:", err)
			os.Exit(1)
		}
	}
	for _, name := range []string{
		"make a file in its folder", "read the host's files", "list processes", "make a socket",
		"signal itself by name", "use memory files",
		"start a program", "mount", "make a namespace", "change its root",
	} {
		var errno syscall.Errno
		err := attempts[name]()
		if err != nil && !errors.As(err, &errno) {
			errno = unix.EIO
		}
		fmt.Printf("%s: %d\n", name, int(errno))
	}
}

func TestWorkerIsConfined(t *testing.T) {
	testenv.Require(t, probe.UserNamespaces(t.Context()))
	run := func(dir string, args ...string) map[string]syscall.Errno {
		attr, err := namespaces()
		must(t, err)
		out, err := (&exec.Cmd{Path: "/proc/self/exe", Args: append([]string{attemptsName}, args...), Dir: dir,
			SysProcAttr: attr}).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		got := make(map[string]syscall.Errno)
		for line := range strings.Lines(string(out)) {
			name, errno, _ := strings.Cut(strings.TrimSpace(line), ": ")
			var n int
			if _, err := fmt.Sscan(errno, &n); err != nil {
				t.Fatalf("%q", line)
			}
			got[name] = syscall.Errno(n)
		}
		return got
	}
	free := run(t.TempDir())
	dir := t.TempDir()
	caged := run(dir, dir)
	packer := run(dir, dir, packerName)
	decompressor := run(dir, dir, decompressorName)
	for name := range attempts {
		if free[name] != 0 {
			t.Errorf("unconfined: %s: %v; the denial would prove nothing", name, free[name])
		}
		want := []syscall.Errno{unix.EPERM}
		switch name {
		case "make a file in its folder":
			want = []syscall.Errno{0}
		case "read the host's files", "list processes":
			want = []syscall.Errno{unix.ENOENT}
		}
		if got, ok := caged[name]; !ok || got != want[0] {
			t.Errorf("confined: %s: %v, want %v", name, got, want[0])
		}
		if want[0] == 0 { // the packing worker reads
			want[0] = unix.EROFS
		}
		if got, ok := packer[name]; !ok || got != want[0] {
			t.Errorf("packing: %s: %v, want %v", name, got, want[0])
		}
		// The decompressing one opens nothing at all.
		if got, ok := decompressor[name]; !ok || got != unix.EPERM {
			t.Errorf("decompressing: %s: %v, want %v", name, got, unix.EPERM)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "made")); err != nil {
		t.Errorf("the confined process works elsewhere: %v", err)
	}
}

// The same layers give the same trees and the same errors in a worker.
func TestInWorker(t *testing.T) {
	testenv.Require(t, probe.UserNamespaces(t.Context()))
	// Enough entries for several collections of garbage.
	entries := []any{dirE("many/")}
	for i := range 8000 {
		entries = append(entries, hardE(fmt.Sprint("many/", i), "many/file"))
	}
	entries = slices.Insert(entries, 1, any(fileE("many/file", "m")))
	good := layer(t, append(entries, dirE("a/"), fileE("a/b", strings.Repeat("x", 300_000)), hardE("c", "a/b"),
		linkE("d", "/a"), fileE("e/.wh.f", ""), fileE("g/.wh..wh..opq", ""))...)
	evil := layer(t, fileE("../x", "x"), fileE("y", strings.Repeat("y", 4<<20)))
	var zipped bytes.Buffer
	w := gzip.NewWriter(&zipped)
	_, err := w.Write(good)
	must(t, err)
	must(t, w.Close())
	opts := Options{SingleUID: os.Geteuid() != 0}
	tests := []struct {
		name string
		blob []byte
		opts Options
		err  error
	}{
		{"plain", good, opts, nil},
		{"gzip", zipped.Bytes(), opts, nil},
		{"hostile", evil, opts, ErrUnsafe},
		{"cut", zipped.Bytes()[:200], opts, ErrDamaged},
		{"no tar", []byte(strings.Repeat("garbage", 300)), opts, ErrDamaged},
		{"limit", good, Options{SingleUID: opts.SingleUID, Limits: Limits{MaxEntries: 2}}, ErrLimit},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := newCage(t)
			stopped := false
			res, err := InWorker(t.Context(), bytes.NewReader(tt.blob), func() { stopped = true },
				Request{Root: c.root, Algorithm: digest.SHA256, Options: tt.opts})
			if !errors.Is(err, tt.err) {
				t.Fatalf("error %v, want %v", err, tt.err)
			}
			if tt.name == "hostile" {
				var e *EntryError
				if !errors.As(err, &e) || e.Entry != "../x" || !stopped {
					t.Errorf("error %v, stopped %v", err, stopped)
				}
			}
			if after := c.outside(t); !maps.Equal(after, c.before) {
				t.Errorf("the world outside changed: %v", after)
			}
			if err != nil {
				return
			}
			if res.DiffID != digest.FromBytes(good) {
				t.Errorf("diffID %s", res.DiffID)
			}
			here := newCage(t)
			stats, err := here.unpack(t, good, tt.opts)
			must(t, err)
			if fmt.Sprint(stats) != fmt.Sprint(res.Stats) {
				t.Errorf("stats %+v, here %+v", res.Stats, stats)
			}
			if got, want := snapshot(t, c.root), snapshot(t, here.root); !maps.Equal(got, want) {
				t.Errorf("the worker made\n%v\nhere\n%v", got, want)
			}
		})
	}
}

func TestInWorkerIsCanceled(t *testing.T) {
	testenv.Require(t, probe.UserNamespaces(t.Context()))
	c := newCage(t)
	ctx, cancel := context.WithCancel(t.Context())
	r, w := io.Pipe()
	stream := layer(t, fileE("a", "x"))
	go func() {
		_, _ = w.Write(stream[:600])
		cancel()
		_ = w.CloseWithError(context.Canceled)
	}()
	if _, err := InWorker(ctx, r, func() {}, Request{Root: c.root, Algorithm: digest.SHA256,
		Options: Options{SingleUID: true}}); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

// TestInWorkerThreads: threads that end meanwhile take no worker with them, also not the
// one that the worker was started from.
func TestInWorkerThreads(t *testing.T) {
	testenv.Require(t, probe.UserNamespaces(t.Context()))
	c := newCage(t)
	stream := bytes.NewReader(layer(t, fileE("a", "x")))
	blob := readerFunc(func(b []byte) (int, error) {
		if stream.Len() == int(stream.Size()) {
			endThreads(50)
		}
		return stream.Read(b)
	})
	if _, err := InWorker(t.Context(), blob, func() {}, Request{Root: c.root, Algorithm: digest.SHA256,
		Options: Options{SingleUID: os.Geteuid() != 0}}); err != nil {
		t.Error(err)
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }

// endThreads ends n threads, the runtime's idle ones first.
func endThreads(n int) {
	var here, gone sync.WaitGroup
	here.Add(n)
	for range n {
		gone.Go(func() {
			runtime.LockOSThread() // and never unlocks
			here.Done()
			here.Wait()
		})
	}
	gone.Wait()
}

func TestWireKeepsErrors(t *testing.T) {
	for _, err := range []error{
		fmt.Errorf("%w: x", ErrUnsafe), &EntryError{Entry: "e\n", Err: fmt.Errorf("%w of %d", ErrLimit, 3)},
		fmt.Errorf("write: %w", unix.ENOSPC), ErrUnmapped, ErrAttributes,
		fmt.Errorf("%w: %w", ErrDamaged, io.ErrUnexpectedEOF),
	} {
		got := toWire(err).error()
		if got.Error() != err.Error() {
			t.Errorf("%q became %q", err, got)
		}
		for _, s := range []error{ErrUnsafe, ErrLimit, ErrUnmapped, ErrAttributes, ErrDamaged, unix.ENOSPC} {
			if errors.Is(got, s) != errors.Is(err, s) {
				t.Errorf("%v: errors.Is(%v) differs", err, s)
			}
		}
	}
}
