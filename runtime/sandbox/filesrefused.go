package sandbox

import (
	"cmp"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/guest/guestapi"
	"github.com/hutch-sh/hutch/runtime/workspace"
)

// fileRefused records what PID 1 says of a file that a process is refused, as callRefused does.
func (m *Manager) fileRefused(s *Sandbox, r guestapi.Refused) {
	if r.File.Op == guestapi.FileRepository {
		s.folders.Guards.MadeRepository(r.File.Path)
		return
	}
	x := s.explainFile(r.File, unix.Errno(r.Errno))
	e := api.FileEvent{
		Op: r.File.Op, Path: r.File.Path, Rule: x.rule, Why: x.why, HowToAllow: x.how, Count: r.Count,
		Refusal: api.Refusal{By: x.by, Errno: unix.ErrnoName(unix.Errno(r.Errno)),
			Process: &api.NetProcess{PID: r.PID}},
	}
	if r.Command != "" {
		e.Process.Command = []string{r.Command}
	}
	d := api.Denial{
		Kind: api.KindFile, Target: e.Op + " " + e.Path, Rule: e.Rule, Why: e.Why, HowToAllow: e.HowToAllow,
		Count: e.Count, Time: time.Now().UTC().Truncate(time.Millisecond), Refusal: e.Refusal,
	}
	d.Exec = s.execs.Caller(guestInit{s.guest}, d, &r)
	s.seen.Enter(d, 0, func(count, untold int64) {
		e.Count, e.Untold = count, untold
		m.cfg.Events.Emit(api.EventFileDenied, s.id, d.Exec, e)
	})
}

// kernelFolders are no files on a disk.
var kernelFolders = []string{"/proc", "/sys"}

// fileReason says by what a file is refused, and what to do about it.
type fileReason struct{ by, rule, why, how string }

func (s *Sandbox) explainFile(f *guestapi.RefusedFile, errno unix.Errno) fileReason {
	if errno == unix.EROFS || errno == unix.EBUSY {
		return s.explainMount(f.Path, errno)
	}
	if errno == unix.EXDEV {
		return fileReason{
			by: "mount", rule: "overlay of a folder",
			why: "it is a folder of the host's below the overlay, which is moved by a copy, and it is too large for that, or holds what the process may not copy",
			how: "mv, which copies it; or mode rw",
		}
	}
	at, subject := &f.At, "it"
	if at.Path != "" {
		subject = "the folder " + at.Path
	}
	mode, how := fs.FileMode(at.Mode&0o777), asUser(at.UID, at.FSUID)
	for _, p := range kernelFolders {
		if _, ok := below(f.Path, p); ok { // whose modes nobody inside can change
			how = ""
		}
	}
	if errno == unix.EPERM {
		x := fileReason{by: "mode", rule: fmt.Sprintf("owner %d, mode %04o", at.UID, at.Mode&0o7777)}
		x.why = fmt.Sprintf("%s belongs to uid %d, and the process is uid %d", subject, at.UID, at.FSUID)
		x.how = how
		if at.Path != "" && at.Mode&unix.S_ISVTX != 0 {
			x.why = fmt.Sprintf("%s is sticky (mode %04o): only who owns a file may take it away, and the process is uid %d", subject, at.Mode&0o7777, at.FSUID)
			x.how = "run the command as the owner of the file, or as root: --user root"
		}
		return x
	}
	return fileReason{
		by: "mode", rule: fmt.Sprintf("owner %d:%d, mode %04o", at.UID, at.GID, at.Mode&0o7777),
		why: fmt.Sprintf("%s is %s of uid %d, gid %d; the process is uid %d, gid %d", subject, mode, at.UID, at.GID,
			at.FSUID, at.FSGID),
		how: how,
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

// explainMount says which mount keeps path from being written.
func (s *Sandbox) explainMount(name string, errno unix.Errno) fileReason {
	if x, ok := s.folders.Guards.Explain(name, errno); ok {
		return fileReason{by: x.By, rule: x.Rule, why: x.Why, how: x.How}
	}
	if errno == unix.EBUSY {
		return fileReason{"mount", "mount point", "something of the sandbox's is mounted there", ""}
	}
	best := fileReason{"mount", "read-only mount", "it is on a mount that the sandbox gets read-only", ""}
	length := -1
	try := func(target string, x fileReason) {
		if _, ok := below(name, target); ok && len(target) > length {
			best, length = x, len(target)
		}
	}
	for _, b := range s.root.Binds {
		if b.ReadOnly {
			try(b.Target, fileReason{"mount", b.Target + " read-only", b.Target + " is read-only: it is the host's own",
				"use an image instead of host, whose files are the sandbox's"})
		}
	}
	for _, p := range append([]string{aboutTarget}, kernelFolders...) {
		try(p, fileReason{"mount", p + " read-only", p + " tells the sandbox something, and takes nothing", ""})
	}
	for _, mt := range s.spec.Mounts {
		if mt.Mode == api.ModeRO {
			try(mt.Target, fileReason{"mount", mt.Target + " read-only", mt.Target + " was asked for read-only",
				fmt.Sprintf("-v %s:%s:rw, or :overlay to keep it as it is", cmp.Or(mt.Volume, mt.Source), mt.Target)})
		}
	}
	if w := s.spec.Workspace; w != nil && w.Mode == api.ModeRO {
		try(workspace.Target, fileReason{"mount", "workspace read-only", "the workspace was asked for read-only",
			fmt.Sprintf("--workspace %s:rw, or :overlay to keep the host's as it is", w.Path)})
	}
	return best
}

// below is name relative to dir, when it is dir or lies below it.
func below(name, dir string) (string, bool) {
	name, dir = path.Clean(name), path.Clean(dir)
	if name == dir {
		return ".", true
	}
	return strings.CutPrefix(name, strings.TrimSuffix(dir, "/")+"/")
}
