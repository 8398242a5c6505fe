package api

import (
	"path"
	"slices"
	"strings"
)

// GuardedNames are what a sandbox can not write in a workspace in mode rw, relative to it: programs
// of the user's run what is in them, or take from them what to run. Folders with all that is in them.
var GuardedNames = []string{
	".git/hooks", ".git/config", ".git/config.worktree", ".git/commondir", ".git/info/attributes", ".git/modules", ".gitmodules", ".gitconfig", // git: hooks, filters, aliases, pagers
	".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".profile", // shells
	".zshrc", ".zshenv", ".zprofile", ".zlogin", ".config/fish",
	".envrc", ".ripgreprc", ".ssh", // direnv; --pre; ProxyCommand
	".vscode", ".idea", ".devcontainer", // editors: tasks, launchers
	".mcp.json", ".claude", ".cursor", // agents: servers to start, hooks
}

// GuardNew is what is done about guarded names that are not there when a sandbox is made.
type GuardNew string

// GuardRefuse refuses to make them, by EROFS: PID 1 makes names in the workspace in the commands' place, which costs some 30 µs
// for each name that is made, anywhere; programs inside can not use Landlock themselves; and the kernel needs it (Linux 6.2).
// GuardTell lets them be made, and tells of them (Unguarded). GuardAuto is GuardRefuse where that can be had and GuardTell where
// it can not; which of them it is stands in the sandbox's spec and among its walls.
const (
	GuardAuto   GuardNew = "auto"
	GuardTell   GuardNew = "tell"
	GuardRefuse GuardNew = "refuse"
)

// RefusesNew reports whether guarded names that are not there can not be made, once GuardAuto has been settled. w may be nil.
func (w *Workspace) RefusesNew() bool { return len(w.Guarded()) > 0 && w.GuardNew == GuardRefuse }

// AllNames in Workspace.Unguarded is every name.
const AllNames = "*"

// maxGuarded bounds Guard and Unguarded, in names.
const maxGuarded = 64

// Guarded are the names, relative to the workspace, that the sandbox can not write; none unless the
// mode is rw. Folders come before what is in them. w may be nil.
func (w *Workspace) Guarded() []string {
	if w == nil || w.Mode != ModeRW {
		return nil
	}
	var names []string
	for _, name := range append(slices.Clone(GuardedNames), w.Guard...) {
		free := func(u string) bool { return u == AllNames || u == name || strings.HasPrefix(name, u+"/") }
		if !slices.ContainsFunc(w.Unguarded, free) {
			names = append(names, name)
		}
	}
	if slices.Contains(w.Unguarded, AllNames) {
		names = slices.Clone(w.Guard)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// DefaultGuarded are Guarded of a workspace for which nothing is said about them.
func DefaultGuarded() []string { return (&Workspace{Mode: ModeRW}).Guarded() }

// checkGuardNew is about what a guard of names that are not there takes.
func checkGuardNew(s *Spec) error {
	const field = "workspace.guard_new"
	switch {
	case !s.Workspace.RefusesNew():
	case s.Landlock == LandlockOff:
		return invalid(field, "refuse takes a Landlock domain, and landlock is off").WithHint("leave landlock out")
	case s.SeccompProfile != "":
		return invalid(field, "refuse takes calls of PID 1 that a custom seccomp profile may refuse").WithHint("use a built-in profile, or tell")
	}
	return nil
}

func checkGuard(w *Workspace) error {
	switch w.GuardNew {
	case "", GuardAuto, GuardTell, GuardRefuse:
	default:
		return invalid("workspace.guard_new", "%q is none of auto, refuse, tell", w.GuardNew)
	}
	if (len(w.Guard)+len(w.Unguarded) > 0 || w.GuardNew == GuardRefuse) && w.Mode != ModeRW {
		return invalid("workspace.guard", "only what a sandbox may write is guarded, and mode %s lets it write nothing of the folder's", w.Mode).
			WithHint("leave it out, or use mode rw")
	}
	for field, names := range map[string][]string{"workspace.guard": w.Guard, "workspace.unguarded": w.Unguarded} {
		if len(names) > maxGuarded {
			return invalid(field, "%d names, at most %d", len(names), maxGuarded)
		}
		for _, name := range names {
			if name == AllNames && field == "workspace.unguarded" {
				continue
			}
			if name == "" || len(name) > 255 || path.Clean(name) != name || path.IsAbs(name) || name == "." || name == ".." ||
				strings.HasPrefix(name, "../") || strings.ContainsRune(name, 0) {
				return invalid(field, "%q is no path in the workspace", name).WithHint("give it as .git/hooks is given")
			}
		}
	}
	for _, name := range w.Unguarded {
		some := func(guarded string) bool { return guarded == name || strings.HasPrefix(guarded, name+"/") }
		if name != AllNames && !slices.ContainsFunc(GuardedNames, some) {
			return invalid("workspace.unguarded", "%q is not guarded", name).WithHint("guarded are %s", strings.Join(GuardedNames, ", "))
		}
	}
	return nil
}

// Unguarded is a name of the workspace's guard that the sandbox can write all the same: it was not
// there when the sandbox was made.
type Unguarded struct {
	Path string `json:"path"` // inside
	Why  string `json:"why"`
	Hint string `json:"hint"`
}
