package api

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// GuardNew is what is done about guarded names that are not there when a sandbox is made.
type GuardNew string

// GuardRefuse refuses to make them, by EROFS: PID 1 makes names in the folder in the commands' place, which costs some
// 30 µs for each name that is made, anywhere; programs inside cannot use Landlock themselves; and the kernel needs it
// (Linux 6.2). GuardTell lets them be made, and tells of those at the top of the folder (Unguarded). GuardAuto is
// GuardRefuse where that can be had and GuardTell where it cannot; which of them it is stands in the sandbox's spec and
// among its walls.
const (
	GuardAuto   GuardNew = "auto"
	GuardTell   GuardNew = "tell"
	GuardRefuse GuardNew = "refuse"
)

// AllNames in Unguarded is every name.
const AllNames = "*"

// maxGuarded bounds Guard and Unguarded, in names.
const maxGuarded = 64

// Guards reports whether something is guarded in a folder of the host's: in those that the sandbox may write.
func (m *Mount) Guards() bool {
	return m.Mode == ModeRW && m.Volume == "" && (len(m.Guard) > 0 || !slices.Contains(m.Unguarded, AllNames))
}

// RefusesNew reports whether guarded names that are not there cannot be made, once GuardAuto has been settled.
func (m *Mount) RefusesNew() bool { return m.GuardNew == GuardRefuse && m.Guards() }

// mount is the workspace as a mount.
func (w *Workspace) mount() *Mount {
	return &Mount{Source: w.Path, Mode: w.Mode, FD: w.FD, Guard: w.Guard, Unguarded: w.Unguarded, GuardNew: w.GuardNew}
}

// eachGuard calls f for each folder that may have a guard, with the name of its field.
func (s *Spec) eachGuard(f func(field string, m *Mount) error) error {
	if s.Workspace != nil && s.Workspace.Mode != ModeNone {
		if err := f("workspace", s.Workspace.mount()); err != nil {
			return err
		}
	}
	for i := range s.Mounts {
		if err := f(fmt.Sprintf("mounts[%d]", i), &s.Mounts[i]); err != nil {
			return err
		}
	}
	return nil
}

// checkGuards is about the guard of each folder.
func checkGuards(s *Spec) error {
	return s.eachGuard(func(field string, m *Mount) error {
		if err := checkGuard(field, m); err != nil {
			return err
		}
		switch {
		case !m.RefusesNew():
		case s.Landlock == LandlockOff:
			return invalid(field+".guard_new", "refuse takes a Landlock domain, and landlock is off").
				WithHint("leave landlock out")
		case s.SeccompProfile != "":
			return invalid(field+".guard_new", "refuse takes calls of PID 1 that a custom seccomp profile may refuse").
				WithHint("use a built-in profile, or tell")
		}
		return nil
	})
}

func checkGuard(field string, m *Mount) error {
	switch m.GuardNew {
	case "", GuardAuto, GuardTell, GuardRefuse:
	default:
		return invalid(field+".guard_new", "%q is none of auto, refuse, tell", m.GuardNew)
	}
	asked := len(m.Guard)+len(m.Unguarded) > 0 || m.GuardNew == GuardRefuse
	switch {
	case asked && m.Volume != "":
		return invalid(field+".guard", "a volume is hutch's own: no program of yours obeys what is in it").
			WithHint("leave it out")
	case asked && m.Mode != ModeRW:
		return invalid(field+".guard",
			"only what a sandbox may write is guarded, and mode %s lets it write nothing of the folder's", m.Mode).
			WithHint("leave it out, or use mode rw")
	}
	for of, names := range map[string][]string{field + ".guard": m.Guard, field + ".unguarded": m.Unguarded} {
		if len(names) > maxGuarded {
			return invalid(of, "%d names, at most %d", len(names), maxGuarded)
		}
		for _, name := range names {
			if name == AllNames && strings.HasSuffix(of, ".unguarded") {
				continue
			}
			if name == "" || len(name) > 255 || path.Clean(name) != name || path.IsAbs(name) || name == "." ||
				name == ".." ||
				strings.HasPrefix(name, "../") || strings.ContainsRune(name, 0) {
				return invalid(of, "%q is no path in the folder", name).WithHint("give it as .git/hooks is given")
			}
		}
	}
	return nil
}

// Unguarded is a guarded name that the sandbox can write all the same: it was not there when the sandbox was made.
type Unguarded struct {
	Path string `json:"path"` // inside
	Why  string `json:"why"`
	Hint string `json:"hint"`
}
