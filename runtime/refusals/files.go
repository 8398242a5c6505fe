package refusals

import (
	"fmt"
	"io/fs"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/guard"
	"github.com/hutch-sh/hutch/runtime/guest/guestapi"
)

// file records what PID 1 reports of a file that a process is refused.
func (f *Refusals) file(s Sandbox, r *guestapi.Refused) {
	if r.File.Op == guestapi.FileRepository {
		s.Guards().MadeRepository(r.File.Path)
		return
	}
	x := explainFile(s, r.File, unix.Errno(r.Errno))
	e := api.FileEvent{
		Op: r.File.Op, Path: r.File.Path, Rule: x.Rule, Why: x.Why, HowToAllow: x.How, Count: r.Count,
		Refusal: refused(x.By, r),
	}
	d := api.Denial{
		Kind: api.KindFile, Target: e.Op + " " + e.Path, Rule: e.Rule, Why: e.Why, HowToAllow: e.HowToAllow,
		Count: e.Count, Time: now(), Refusal: e.Refusal,
	}
	d.Exec = s.Caller(d, r)
	s.Ledger().Enter(d, 0, func(count, untold int64) {
		e.Count, e.Untold = count, untold
		f.cfg.Events.Emit(api.EventFileDenied, s.ID(), d.Exec, e)
	})
}

// kernelFolders are no files on a disk.
var kernelFolders = []string{"/proc", "/sys"}

// explainFile says by what a file is refused, and what to do about it.
func explainFile(s Sandbox, f *guestapi.RefusedFile, errno unix.Errno) guard.Reason {
	if errno == unix.EROFS || errno == unix.EBUSY {
		return explainMount(s, f.Path, errno)
	}
	if errno == unix.EXDEV {
		return guard.Reason{
			By: "mount", Rule: "overlay of a folder",
			Why: "it is a folder of the host's below the overlay, which is moved by a copy, and it is too large for that, or holds what the process may not copy",
			How: "mv, which copies it; or mode rw",
		}
	}
	at, subject := &f.At, "it"
	if at.Path != "" {
		subject = "the folder " + at.Path
	}
	mode, how := fs.FileMode(at.Mode&0o777), asUser(at.UID, at.FSUID)
	for _, p := range kernelFolders {
		if below(f.Path, p) { // whose modes nobody inside can change
			how = ""
		}
	}
	if errno == unix.EPERM {
		x := guard.Reason{By: "mode", Rule: fmt.Sprintf("owner %d, mode %04o", at.UID, at.Mode&0o7777)}
		x.Why = fmt.Sprintf("%s belongs to uid %d, and the process is uid %d", subject, at.UID, at.FSUID)
		x.How = how
		if at.Path != "" && at.Mode&unix.S_ISVTX != 0 {
			x.Why = fmt.Sprintf("%s is sticky (mode %04o): only who owns a file may take it away, and the process is uid %d", subject, at.Mode&0o7777, at.FSUID)
			x.How = "run the command as the owner of the file, or as root: --user root"
		}
		return x
	}
	return guard.Reason{
		By: "mode", Rule: fmt.Sprintf("owner %d:%d, mode %04o", at.UID, at.GID, at.Mode&0o7777),
		Why: fmt.Sprintf("%s is %s of uid %d, gid %d; the process is uid %d, gid %d", subject, mode, at.UID, at.GID,
			at.FSUID, at.FSGID),
		How: how,
	}
}

// asUser says how to come to the rights of an owner.
func asUser(owner, process uint32) string {
	const nobody = 65534 // whom the sandbox has no id for
	switch {
	case owner == nobody:
		return "it belongs to a user whom the sandbox does not have: change its mode on the host"
	case owner == process:
		return "chmod: the process owns it"
	case process == 0:
		return "change its mode or owner"
	}
	return fmt.Sprintf("--user %d, or another mode or owner", owner)
}

// explainMount says which mount keeps a name from being written.
func explainMount(s Sandbox, name string, errno unix.Errno) guard.Reason {
	if x, ok := s.Guards().Explain(name, errno); ok {
		return x
	}
	if errno == unix.EBUSY {
		return guard.Reason{By: "mount", Rule: "mount point", Why: "something of the sandbox's is mounted there"}
	}
	best := ReadOnly{Rule: "read-only mount", Why: "it is on a mount that the sandbox gets read-only"}
	for _, m := range s.ReadOnly() {
		if below(name, m.Target) && len(m.Target) > len(best.Target) {
			best = m
		}
	}
	return guard.Reason{By: "mount", Rule: best.Rule, Why: best.Why, How: best.How}
}

// below reports whether name is dir or lies below it.
func below(name, dir string) bool {
	name, dir = path.Clean(name), path.Clean(dir)
	return name == dir || strings.HasPrefix(name, strings.TrimSuffix(dir, "/")+"/")
}
