package sandbox

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/meter/procs"
)

// quiesce calls use while nothing of the sandbox writes, for milliseconds: unlike still it tells nobody, and leaves
// files workers alone. changing says of a file that somebody has it mapped, and so may change it without giving it a
// new time. Nothing is stopped where nothing but PID 1 and workers is there, which write when they are asked to.
// PID 1, which moves folders for commands and for workers, finishes the one that it moves before.
func (m *Manager) quiesce(ctx context.Context, s *Sandbox,
	use func(changing func(name string, ino uint64) bool) error) (err error) {
	done, err := s.admission.take(ctx)
	if err != nil {
		return err
	}
	defer done()
	switch s.state() {
	case api.Stopped, api.Failed:
		return use(nil)
	case api.Paused:
		return use(mappedBy(procs.IDs(s.Record().PID)))
	case api.Running:
	default:
		return s.mustRun()
	}
	patient, cancel := context.WithTimeout(ctx, pausePatience)
	defer cancel()
	defer s.openAdmission()
	if err := s.closeAdmission(patient); err != nil {
		return withCause(ctx, err)
	}
	below, known := procs.Descendants(s.Record().PID)
	if known && len(below) <= s.files.Count() {
		return s.moves().While(patient, func() error { return use(nil) })
	}
	// On record before anything stands still: the next hutchd then has it paused, and whoever uses it resumes it.
	s.execs.Clock.Stop(time.Now())
	s.setPause(&api.Pause{Since: time.Now().UTC().Truncate(time.Millisecond), By: s.pauseMeans()})
	err = s.saveAs(api.Paused)
	if err == nil {
		err = m.freeze(patient, s)
	}
	if err == nil {
		if below, known = procs.Descendants(s.Record().PID); !known {
			below = procs.IDs(s.Record().PID)
		}
		err = use(mappedBy(below))
	}
	terr := m.thaw(s)
	s.execs.Clock.GoOn(time.Now())
	s.setPause(nil)
	m.saveEnd(s)
	if err == nil && terr != nil && s.state() == api.Running {
		err = api.Errorf(api.Internal, "let sandbox %s go on: %w", s.id, terr).
			WithHint("hutch resume %s, or remove it: hutch rm %s", s.id, s.id)
	}
	return err
}

// mappedBy says which files processes have mapped so that they can be written to: the kernel notes the time of the
// first such write and not of each. The inode in the list is the overlay's, so names count as well; too many are no
// harm.
func mappedBy(pids []int) func(name string, ino uint64) bool {
	names, inodes, all := map[string]bool{}, map[uint64]bool{}, false
	for _, pid := range pids {
		list, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
		if err != nil {
			all = all || !procs.IsGone(err) // who knows
			continue
		}
		mappings(list, names, inodes)
	}
	return func(name string, ino uint64) bool { return all || names[name] || inodes[ino] }
}

// mappings adds what of a list of mappings (proc_pid_maps(5)) is shared and can be written to. Names are the sandbox's.
func mappings(list []byte, names map[string]bool, inodes map[uint64]bool) {
	for line := range bytes.Lines(list) {
		// ADDRESSES PERMISSIONS OFFSET DEVICE INODE PATH
		fields := bytes.SplitN(line, []byte(" "), 6)
		if len(fields) < 6 || len(fields[1]) < 4 || fields[1][1] != 'w' || fields[1][3] != 's' {
			continue
		}
		if ino, err := strconv.ParseUint(string(fields[4]), 10, 64); err == nil {
			inodes[ino] = true
		}
		name := strings.Trim(string(fields[5]), " \n")
		// either may be a name, as \012 may
		for _, name := range []string{name, strings.TrimSuffix(name, " (deleted)")} {
			names[path.Base(name)], names[path.Base(strings.ReplaceAll(name, `\012`, "\n"))] = true, true
		}
	}
}
