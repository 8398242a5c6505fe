package launch

import (
	"bytes"
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/opencontainers/runc/libcontainer/configs"
	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/packet"
	"github.com/hutch-sh/hutch/internal/sys"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/launch/launchapi"
)

// swapELF enters a sandbox and gives it its root: see swap/swap.c.
//
//go:embed swap/swap
var swapELF []byte

// swapProgram is swapELF in a memfd, for the life of the process.
var swapProgram = sync.OnceValues(func() (*os.File, error) {
	return sys.SealedMemfd("hutch-swap", bytes.NewReader(swapELF), sys.MemfdProgram)
})

// staging is where swap.c mounts the new root first: a folder of a generic sandbox's own root,
// which goes with that.
const staging = ".claim"

// maxSwapConfig is less than what swap.c takes, and than a pipe holds.
const maxSwapConfig = 60 << 10

// swapStages are swap.c's.
var swapStages = []string{"", "read the config", "join the user namespace", "copy the mounts", "clone a mount",
	"join the mount namespace", "attach the root", "move a mount", "bind", "pivot_root", "unmount the old root",
	"sethostname"}

// topMounts are the mount points of a config that have no other above them, without the slash
// before them.
func topMounts(c *configs.Config) (tops []string) {
	for _, m := range c.Mounts {
		at := strings.TrimPrefix(path.Clean("/"+m.Destination), "/")
		if !slices.ContainsFunc(tops, func(top string) bool { return at == top || strings.HasPrefix(at, top+"/") }) {
			tops = append(tops, at)
		}
	}
	return tops
}

// claim gives a generic sandbox its root. Nothing is repaired: one whose claim failed is
// destroyed.
func (s *server) claim(sb *sandbox, p *launchapi.Claim) error {
	<-sb.created
	if sb.undo == nil {
		return api.Errorf(api.FailedPrecondition, "claim sandbox %s: its creation has failed", sb.id)
	}
	sb.rooting.Lock()
	err := errGone
	if !sb.gone {
		err = s.giveRoot(sb, p)
	}
	sb.rooting.Unlock()
	if err != nil {
		return errors.Join(failed(sb.id, fmt.Errorf("claim: %w", err)), s.destroy(sb))
	}
	return nil
}

// errGone is a sandbox that was destroyed before its claim began.
var errGone = errors.New("it was destroyed meanwhile")

func (s *server) giveRoot(sb *sandbox, p *launchapi.Claim) error {
	config, err := swapConfig(sb, p)
	if err != nil {
		return err
	}
	// The sandbox's own undo detaches whatever is there.
	if err := sys.Detach(p.Overlay.Target); err != nil {
		return err
	}
	if err := mountOverlay(p.Overlay); err != nil {
		return err
	}
	if err := faultAt(faultClaim); err != nil {
		return err
	}
	if err := s.children.swap(config, sb.pidfd); err != nil {
		return err
	}
	if err := faultAt(faultClaim + 1); err != nil {
		return err
	}
	return checkRoot(sb.pid, p.Overlay.Target)
}

// faultClaim is the first step of a claim for the fault seam, behind those of a create.
const faultClaim = 100

// checkRoot reads back that PID 1 has the root that is mounted on target.
func checkRoot(pid int, target string) error {
	var want, got unix.Stat_t
	root := fmt.Sprintf("/proc/%d/root", pid)
	if err := errors.Join(unix.Stat(target, &want), unix.Stat(root, &got)); err != nil {
		return fmt.Errorf("read back the root of PID 1: %w", err)
	}
	if want.Dev != got.Dev || want.Ino != got.Ino {
		return api.Errorf(api.Internal, "PID 1 has kept its old root").
			WithHint("this is a bug in hutch; the sandbox was not started")
	}
	return nil
}

// swapConfig is what swap.c reads.
func swapConfig(sb *sandbox, p *launchapi.Claim) ([]byte, error) {
	words := []string{p.Overlay.Target, p.Hostname}
	for _, at := range sb.moves {
		words = append(words, "m", at)
	}
	for _, b := range p.Binds {
		flag := "w"
		if b.ReadOnly {
			flag = "r"
		}
		if !filepath.IsAbs(b.Source) {
			return nil, api.Errorf(api.InvalidArgument, "source %q of a bind is not absolute", b.Source)
		}
		words = append(words, "b", flag, b.Source, b.Target)
	}
	for _, w := range words {
		if w == "" || strings.ContainsRune(w, 0) {
			return nil, api.Errorf(api.InvalidArgument, "%q cannot be a name", w)
		}
	}
	config := []byte(strings.Join(words, "\x00") + "\x00")
	if len(config) > maxSwapConfig {
		return nil, api.Errorf(api.ResourceExhausted, "names of %d bytes, at most %d", len(config), maxSwapConfig).
			WithHint("use shorter names, or fewer mounts")
	}
	return config, nil
}

// swap runs swap.c on the sandbox of pidfd and waits for its end.
func (c *children) swap(config []byte, pidfd *os.File) error {
	in, give, err := os.Pipe()
	if err != nil {
		return err
	}
	defer in.Close()
	// It fits into the pipe.
	_, err = give.Write(config)
	if err = errors.Join(err, give.Close()); err != nil {
		return err
	}
	told, out, err := os.Pipe()
	if err != nil {
		return err
	}
	defer told.Close()
	if err := c.runSwap([]*os.File{in, out, os.Stderr, pidfd}); err != nil {
		return errors.Join(err, out.Close())
	}
	_ = out.Close()
	var report struct{ Stage, Errno int32 }
	if err := binary.Read(io.LimitReader(told, 8), binary.NativeEndian, &report); err != nil {
		return fmt.Errorf("the helper has told nothing: %w", err)
	}
	if report.Stage != 0 {
		stage := "unknown stage"
		if int(report.Stage) < len(swapStages) {
			stage = swapStages[report.Stage]
		}
		return fmt.Errorf("%s: %w", stage, unix.Errno(report.Errno))
	}
	return nil
}

// runSwap starts it and waits.
func (c *children) runSwap(files []*os.File) error {
	binary, err := swapProgram()
	if err != nil {
		return err
	}
	program, path, err := sys.ForExec(binary, files)
	if err != nil {
		return err
	}
	defer packet.CloseAll([]*os.File{program})
	return c.run(func() error {
		proc, err := os.StartProcess(path, []string{"hutch-swap"},
			&os.ProcAttr{Dir: "/", Env: []string{}, Files: files})
		if err != nil {
			return fmt.Errorf("start the helper: %w", err)
		}
		_, err = proc.Wait()
		return err
	})
}

// endGeneric destroys the sandboxes that waited for a claim of a hutchd that is gone.
func (s *server) endGeneric() {
	s.mu.Lock()
	var ended []*sandbox
	for _, sb := range s.sandboxes {
		if sb.generic {
			ended = append(ended, sb)
		}
	}
	s.mu.Unlock()
	var wg sync.WaitGroup
	for _, sb := range ended {
		wg.Go(func() {
			if err := s.destroy(sb); err != nil {
				fmt.Fprintf(os.Stderr, "hutch-launch: end %s, which nobody claimed: %v\n", sb.id, err)
			}
		})
	}
	wg.Wait()
}
