package sandbox

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/hutch-sh/hutch/runtime/api"
)

// PID 1 moves folders in overlays of folders for commands, a file at a time (guest/DESIGN.md, "Folders that PID 1
// moves"). It goes on while a sandbox stands still. So whoever stops the others waits until none is half moved.

// answerTime is what is left of a limit for PID 1's answer that it has run out.
const answerTime = 200 * time.Millisecond

// movesFolders reports whether PID 1 moves folders for commands of the sandbox.
func (s *Sandbox) movesFolders() bool {
	return slices.ContainsFunc(hostFolders(&s.spec), func(m api.Mount) bool { return m.Mode == api.ModeOverlay })
}

// holdMoves keeps PID 1 from moving folders until releaseMoves, and waits until none is being moved or ctx ends. After
// an error the caller releases as well.
func (m *Manager) holdMoves(ctx context.Context, s *Sandbox) error {
	if !s.movesFolders() {
		return nil
	}
	wait := pausePatience
	if end, ok := ctx.Deadline(); ok {
		wait = time.Until(end) - answerTime
	}
	folder, err := s.guest.Hold(ctx, wait)
	if err == nil && folder != "" {
		err = isMoving(s, folder)
	}
	return err
}

// isMoving is why nobody may look at the files of s.
func isMoving(s *Sandbox, folder string) error {
	return api.Errorf(api.Unavailable,
		"sandbox %s is moving the folder %s, which takes a copy of each file in an overlay: half of it is not to be seen",
		s.id, folder).
		WithHint("try again when that is done, or end the command that moves it")
}

// whyNotStill is why the processes of s did not stop in time: they wait for PID 1 when it moves folders for them.
func (m *Manager) whyNotStill(s *Sandbox, err error) error {
	if !errors.Is(err, context.DeadlineExceeded) || !s.movesFolders() {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if folder, herr := s.guest.Hold(ctx, 0); herr == nil && folder != "" {
		return isMoving(s, folder)
	}
	return err
}

// releaseMoves lets PID 1 move folders again.
func (m *Manager) releaseMoves(ctx context.Context, s *Sandbox) error {
	if !s.movesFolders() {
		return nil
	}
	err := s.guest.Release(ctx)
	if s.guest.Err() != nil { // it has ended, and with it all that waits
		return nil
	}
	return err
}

// whileHeld calls use while no folder is being moved, for a sandbox of which nothing else can write.
func (m *Manager) whileHeld(ctx context.Context, s *Sandbox, use func() error) error {
	err := m.holdMoves(ctx, s)
	if err == nil {
		err = use()
	}
	soon, cancel := context.WithTimeout(context.WithoutCancel(ctx), pausePatience)
	defer cancel()
	return errors.Join(err, m.releaseMoves(soon, s))
}
