package files

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/packet"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/guest/guestapi/filesapi"
)

// TestSettle: what a patch has left half done when its worker and hutchd died is taken back before anybody looks.
func TestSettle(t *testing.T) {
	f, b := newBox(t)
	if err := os.WriteFile(b.at("a"), []byte("1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	args := &filesapi.PatchArgs{Patch: "--- a/a\n+++ b/a\n@@ -1 +1 @@\n-1\n+2\n", Strip: -1, MaxFiles: 10,
		MaxSize: 1 << 20}
	out, err := f.patch(t.Context(), On{Sandbox: "sb"}.file("."), args, true)
	if err != nil {
		t.Fatal(err)
	}
	_, plan, err := filesapi.ParsePatched(out, args)
	if err != nil {
		t.Fatal(err)
	}
	for _, done := range []bool{false, true} {
		b.ws.settled = sync.Once{}
		note, err := notePatch(b, &patchNote{User: "me", Path: filepath.Join(b.dir, "files"), Plan: plan})
		if err == nil && done {
			err = os.Rename(note, note+patchDone)
		}
		if err != nil {
			t.Fatal(err)
		}
		f.Settle(b)
		f.Settle(b) // once
		if left := noteFiles(t, b); len(left) > 0 {
			t.Errorf("done %v: notes are left: %v", done, left)
		}
	}
	// A note that cannot be read keeps every worker from starting, and says so.
	if err := os.WriteFile(filepath.Join(b.dir, PatchesDir, "pa_x"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	f.End(&b.ws)
	if _, err := f.Stat(t.Context(), api.FileStatParams{FileParams: b.file("a")}); err == nil ||
		!strings.Contains(err.Error(), "note of a patch") {
		t.Errorf("%v", err)
	}
	f.Settle(b)
}

// TestPatchLost: a worker that is killed between the plan and the end of a patch: nothing of it stays, and the caller
// hears what has become of it.
func TestPatchLost(t *testing.T) {
	f, b := newBox(t)
	if err := os.WriteFile(b.at("a"), []byte("1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	args := &filesapi.PatchArgs{Patch: "--- a/a\n+++ b/a\n@@ -1 +1 @@\n-1\n+2\n", Strip: -1, MaxFiles: 10,
		MaxSize: 1 << 20}
	data, err := json.Marshal(args)
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = f.askBy(t.Context(), api.MethodFSWrite, On{Sandbox: "sb"}.file("."),
		filesapi.Request{Op: filesapi.OpPatch}, data,
		func(s Sandbox, w *worker, req filesapi.Request, _ func()) (*filesapi.Reply, []byte, error) {
			_, out, err := w.client.Call(t.Context(), req, data, filesapi.MaxPatched)
			if err != nil {
				return nil, nil, err
			}
			_, plan, err := filesapi.ParsePatched(out, args)
			if err != nil {
				return nil, nil, err
			}
			if err := w.exec.Kill(); err != nil {
				return nil, nil, err
			}
			<-w.client.Dead()
			return f.patchBy(t.Context(), s, w, req, *args, plan)
		})
	if api.ErrorCode(err) != api.Unavailable || !strings.Contains(err.Error(), "taken back") {
		t.Errorf("%v", err)
	}
	if text, err := os.ReadFile(b.at("a")); err != nil || string(text) != "1\n" {
		t.Errorf("%q, %v", text, err)
	}
	if left := noteFiles(t, b); len(left) > 0 {
		t.Errorf("notes are left: %v", left)
	}
}

// TestWorkers: one for each user, at most so many; another one after one has ended, is paused or could not start.
func TestWorkers(t *testing.T) {
	f, b := newBox(t)
	ctx := t.Context()
	stat := func(user string) error {
		_, err := f.Stat(ctx, api.FileStatParams{FileParams: b.as(user, ".")})
		return err
	}
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if err := stat("me"); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if n := b.workers(); n != 1 || b.ws.Count() != 1 {
		t.Errorf("%d workers for twenty calls", n)
	}
	if err := b.procs[0].Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-b.ws.byUser["me"].client.Dead()
	if err := stat("me"); err != nil {
		t.Errorf("after the worker has died: %v", err)
	}
	f.End(&b.ws)
	if n := b.ws.Count(); n != 0 {
		t.Errorf("%d workers of a sandbox that is paused", n)
	}
	if err := stat("me"); err != nil || b.workers() != 3 {
		t.Errorf("after a pause: %v, %d were started", err, b.workers())
	}
	for i := range maxWorkers - 1 {
		if err := stat(string(rune('a' + i))); err != nil {
			t.Error(err)
		}
	}
	if err := stat("another"); api.ErrorCode(err) != api.ResourceExhausted {
		t.Errorf("one user too many: %v", err)
	}
	f.End(&b.ws)
	b.start = func() error { return errors.New("no") }
	if err := stat("me"); err == nil {
		t.Error("a worker that does not start answers")
	}
	b.start = nil
	if err := stat("me"); err != nil {
		t.Errorf("after one that did not start: %v", err)
	}
	w := b.ws.byUser["me"]
	f.idleWorker(&b.ws, w)
	if b.ws.Count() != 0 {
		t.Error("an idle worker stays")
	}
	canceled, cancel := context.WithCancel(ctx)
	hold := make(chan struct{})
	b.start = func() error { cancel(); <-hold; return nil }
	if _, err := f.Stat(canceled, api.FileStatParams{FileParams: b.file(".")}); !errors.Is(err, context.Canceled) {
		t.Errorf("a caller who gives up: %v", err)
	}
	close(hold)
	b.ws.Close()
	if err := stat("me"); !errors.Is(err, errRemoved) {
		t.Errorf("in a sandbox that is removed: %v", err)
	}
	f.End(&b.ws)
	if err := f.MakeFolderIn(ctx, b, b.at("v")); err == nil {
		t.Error("a folder in a sandbox that is removed")
	}
}

// TestMakeFolderIn: as root of the sandbox, with those above.
func TestMakeFolderIn(t *testing.T) {
	f, b := newBox(t)
	if err := f.MakeFolderIn(t.Context(), b, b.at("v/w")); err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Stat(b.at("v/w"), &st); err != nil || b.ws.byUser["0"] == nil {
		t.Errorf("%v", err)
	}
}

// TestWorkerTooLate: a files worker that comes up while its sandbox is removed is an error, not one without a channel.
func TestWorkerTooLate(t *testing.T) {
	for _, closed := range []bool{false, true} {
		ours, theirs, err := packet.Pair()
		if err != nil {
			t.Fatal(err)
		}
		w := &worker{ready: make(chan struct{}), client: filesapi.NewClient(ours)}
		var ws Workers
		if closed {
			ws.Close()
		}
		err = ws.started(w)
		if closed != (api.ErrorCode(err) == api.FailedPrecondition) || !closed && err != nil {
			t.Errorf("the sandbox is being removed: %v; %v", closed, err)
		}
		select {
		case <-w.client.Dead():
		default:
			if closed {
				t.Error("its channel is open")
			}
			_ = w.client.Close()
		}
		if err := theirs.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
			t.Error(err)
		}
	}
}
