package workspace

import (
	"context"
	"errors"
	"time"

	"github.com/hutch-sh/hutch/runtime/api"
)

// PID1 is the PID 1 of a sandbox, which moves folders in overlays of folders for commands, a file at a time
// (guest/DESIGN.md, "Folders that PID 1 moves"). It goes on while a sandbox stands still. So whoever stops the others
// waits until none is half moved. guestapi.Client is one.
type PID1 interface {
	// Hold keeps it from moving folders until Release, and waits until none is being moved, for so long: then moving is
	// one that is.
	Hold(ctx context.Context, wait time.Duration) (moving string, err error)
	Release(ctx context.Context) error
	// Err is why nothing more can be asked of it; nil while that is so.
	Err() error
}

// Moves is what PID 1 moves in one sandbox. Its methods may be called from any goroutine.
type Moves struct {
	ID   string // the sandbox
	Spec *api.Spec
	PID1 PID1
}

// movePatience bounds what PID 1 may take to move a folder to its end where the caller has no time of its own.
const movePatience = 5 * time.Second

// answerTime is what is left of a limit for PID 1's answer that it has run out.
const answerTime = 200 * time.Millisecond

// Hold keeps PID 1 from moving folders until Release, and waits until none is being moved or ctx ends. After an error
// the caller releases as well.
func (m Moves) Hold(ctx context.Context) error {
	if !HasOverlay(m.Spec) {
		return nil
	}
	wait := movePatience
	if end, ok := ctx.Deadline(); ok {
		wait = time.Until(end) - answerTime
	}
	folder, err := m.PID1.Hold(ctx, wait)
	if err == nil && folder != "" {
		err = m.moving(folder)
	}
	return err
}

// moving is why nobody may look at the files of the sandbox.
func (m Moves) moving(folder string) error {
	return api.Errorf(api.Unavailable,
		"sandbox %s is moving the folder %s, which takes a copy of each file in an overlay: half of it is not to be seen",
		m.ID, folder).
		WithHint("try again when that is done, or end the command that moves it")
}

// Why is why the processes of the sandbox did not stop in time, for err or because they wait for PID 1 when it moves
// folders for them.
func (m Moves) Why(err error) error {
	if !errors.Is(err, context.DeadlineExceeded) || !HasOverlay(m.Spec) {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if folder, herr := m.PID1.Hold(ctx, 0); herr == nil && folder != "" {
		return m.moving(folder)
	}
	return err
}

// Release lets PID 1 move folders again.
func (m Moves) Release(ctx context.Context) error {
	if !HasOverlay(m.Spec) {
		return nil
	}
	err := m.PID1.Release(ctx)
	if m.PID1.Err() != nil { // it has ended, and with it all that waits
		return nil
	}
	return err
}

// While calls use while no folder is being moved, for a sandbox of which nothing else can write.
func (m Moves) While(ctx context.Context, use func() error) error {
	err := m.Hold(ctx)
	if err == nil {
		err = use()
	}
	soon, cancel := context.WithTimeout(context.WithoutCancel(ctx), movePatience)
	defer cancel()
	return errors.Join(err, m.Release(soon))
}
