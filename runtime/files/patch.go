package files

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/guest/guestapi/filesapi"
)

// A patch changes several names, and its worker can be killed between two of them. So the worker says first what it is
// going to do, hutchd notes that beside the sandbox's record, where nothing inside reaches it, and only then it is
// done. Whoever finds the note has the next worker take back what was done, or tidy up if all was. hutchd does not look
// into a plan: it comes from a user of the sandbox and goes to a worker of the same user's.

const (
	// PatchesDir is the folder of the notes, in the sandbox's. It goes along with a sandbox that is stopped.
	PatchesDir = "patches"
	// patchDone ends the name of a note whose patch is applied.
	patchDone = ".done"
	// patchTimeout bounds what is not to be cancelled.
	patchTimeout = 30 * time.Second
)

// patchNote is one patch that is being applied.
type patchNote struct {
	User string          `json:"user"`
	Path string          `json:"path"`
	Plan json.RawMessage `json:"plan"`
}

// patch applies a patch below a folder, all of it or nothing.
func (f *Files) patch(ctx context.Context, p *api.FileParams, args *filesapi.PatchArgs, dry bool) ([]byte, error) {
	data, err := json.Marshal(args)
	if err != nil {
		return nil, err
	}
	req := filesapi.Request{Op: filesapi.OpPatch}
	_, out, err := forModel(f.askBy(ctx, api.MethodFSWrite, p, req, data,
		func(s Sandbox, w *worker, req filesapi.Request, leave func()) (*filesapi.Reply, []byte, error) {
			reply, out, err := w.client.Call(ctx, req, data, filesapi.MaxPatched)
			if err != nil || dry {
				return reply, out, err
			}
			_, plan, err := filesapi.ParsePatched(out, args)
			if err != nil {
				return nil, nil, nonsense(api.MethodFSWrite, err)
			}
			return f.patchBy(ctx, s, w, req, *args, plan)
		}))
	return out, err
}

// patchBy applies a patch as planned. The sandbox is not paused meanwhile, nor is a snapshot taken of it.
func (f *Files) patchBy(ctx context.Context, s Sandbox, w *worker, req filesapi.Request, args filesapi.PatchArgs,
	plan json.RawMessage) (*filesapi.Reply, []byte, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, nil, err
	}
	args.Plan = plan
	data, err := json.Marshal(args)
	if err != nil {
		return nil, nil, nonsense(api.MethodFSWrite, err)
	}
	note, err := notePatch(s, &patchNote{User: w.user, Path: req.Path, Plan: plan})
	if err != nil {
		return nil, nil, s.DiskError("note what the patch changes", err)
	}
	// A call that is given up may still be under way inside; so this one is not.
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), patchTimeout,
		api.Errorf(api.DeadlineExceeded, "the patch was not applied within %v", patchTimeout).
			WithHint("the sandbox is overloaded; call again"))
	defer cancel()
	reply, out, err := w.client.Call(ctx, req, data, filesapi.MaxPatched)
	var known *filesapi.Error
	switch {
	case errors.As(err, &known): // the worker has taken it back, and says so if it could not
		return nil, nil, errors.Join(err, os.Remove(note))
	case err != nil:
		return nil, nil, f.patchLost(ctx, s, w, note, err)
	}
	if err := os.Rename(note, note+patchDone); err != nil {
		return nil, nil, f.patchLost(ctx, s, w, note, fmt.Errorf("note that the patch is applied: %w", err))
	}
	left, err := f.settlePatch(ctx, w, note+patchDone)
	if err != nil {
		left, err = f.settleBy(ctx, s, w.user, note+patchDone)
	}
	if left != nil || err != nil { // the old files stay, until the next worker comes
		f.log.Warn("tidy up behind a patch", "sandbox", s.ID(), "err", errors.Join(left, err))
	}
	return reply, out, nil
}

// notePatch keeps a note for whoever comes after this worker, and this hutchd.
func notePatch(s Sandbox, n *patchNote) (name string, err error) {
	dir := filepath.Join(s.Dir(), PatchesDir)
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	data, err := json.Marshal(n)
	if err != nil {
		return "", err
	}
	name = filepath.Join(dir, "pa_"+strings.ToLower(rand.Text()[:12]))
	tmp := name + ".tmp" // half a note is none, and its patch was not begun
	if err := os.WriteFile(tmp, data, 0o600); err != nil {
		return "", errors.Join(err, os.Remove(tmp))
	}
	return name, os.Rename(tmp, name)
}

// patchLost takes a patch back of which nobody knows how far it came, and says what has become of it.
func (f *Files) patchLost(ctx context.Context, s Sandbox, w *worker, note string, why error) error {
	// What is called gone may only have been stopped, and would go on.
	_ = w.client.Close()
	err := w.exec.Kill()
	if err == nil {
		_, err = w.exec.Wait(ctx)
	}
	if err != nil {
		f.log.Debug("wait for a files worker", "sandbox", s.ID(), "err", err)
	}
	left, err := f.settleBy(ctx, s, w.user, note)
	switch {
	case err != nil:
		return api.Errorf(api.Unavailable,
			"the patch was interrupted (%w), and what it had changed is not taken back yet: %w", why, err).
			WithHint("the next call for the sandbox's files takes it back first")
	case left != nil:
		return api.Errorf(api.FailedPrecondition, "the patch was interrupted (%w), and taken back, but not whole: %w",
			why, left).
			WithHint("look at these files, and call again")
	}
	return api.Errorf(api.Unavailable, "the patch was interrupted, and all of it was taken back: %w", why).
		WithHint("call again: nothing is changed")
}

// settleBy ends a patch by a worker of its user's, which does so with all of that user's before anything else.
func (f *Files) settleBy(ctx context.Context, s Sandbox, user, note string) (left, err error) {
	w, err := f.worker(ctx, s, user)
	if err != nil {
		return nil, err
	}
	defer f.release(s, w)
	if left, err = f.settlePatch(ctx, w, note); left == nil && len(w.failed) > 0 {
		left = errors.Join(w.failed...)
	}
	return left, err
}

// patchNotes are the notes about a sandbox.
func patchNotes(s Sandbox) (list []string, err error) {
	entries, err := os.ReadDir(filepath.Join(s.Dir(), PatchesDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".tmp") {
			list = append(list, filepath.Join(s.Dir(), PatchesDir, e.Name()))
		}
	}
	return list, err
}

// Settle has ended what a hutchd before, or a stop, has left half done, before anybody looks at the files.
func (f *Files) Settle(s Sandbox) {
	s.Workers().settled.Do(func() {
		notes, err := patchNotes(s)
		if err != nil || len(notes) == 0 {
			return // a worker that is started looks again, and tells
		}
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		for _, note := range notes {
			n, err := readNote(note)
			if err == nil && n != nil {
				_, err = f.settleBy(ctx, s, n.User, note)
			}
			if err != nil {
				f.log.Warn("end a patch", "sandbox", s.ID(), "err", err)
			}
		}
	})
}

// settlePatches ends what earlier workers of this one's user have left half done.
func (f *Files) settlePatches(s Sandbox, w *worker) error {
	notes, err := patchNotes(s)
	if err != nil || len(notes) == 0 {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), patience,
		api.Errorf(api.Unavailable, "a patch that was interrupted was not taken back within %v", patience).
			WithHint("the sandbox is overloaded; try again"))
	defer cancel()
	for _, note := range notes {
		left, err := f.settlePatch(ctx, w, note)
		if err != nil {
			return err
		}
		if left != nil {
			w.failed = append(w.failed, left)
			f.log.Warn("end a patch", "sandbox", s.ID(), "err", left)
		}
	}
	return nil
}

// settlePatch has a worker end a patch, if it is of its user and nobody has. What is left of it no second try would
// end.
func (f *Files) settlePatch(ctx context.Context, w *worker, note string) (left, err error) {
	n, err := readNote(note)
	if err != nil || n == nil || n.User != w.user {
		return nil, err
	}
	args, err := json.Marshal(filesapi.SettleArgs{Plan: n.Plan, Done: strings.HasSuffix(note, patchDone)})
	if err != nil {
		return nil, err
	}
	_, _, err = w.client.Call(ctx, filesapi.Request{Op: filesapi.OpSettle, Path: n.Path}, args, 0)
	var known *filesapi.Error
	if errors.As(err, &known) {
		left, err = known, nil
	}
	if err == nil {
		if err = os.Remove(note); errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	}
	return left, err
}

// readNote reads a note; nil is one that is not there any more.
func readNote(name string) (*patchNote, error) {
	data, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	n := &patchNote{}
	if err == nil {
		err = json.Unmarshal(data, n)
	}
	if err != nil {
		return nil, fmt.Errorf("the note of a patch: %w", err)
	}
	return n, nil
}
