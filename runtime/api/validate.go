package api

import (
	"fmt"
	"maps"
	"math"
	"path"
	"slices"
	"strings"
)

const (
	digits  = "0123456789"
	letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
)

// These are functions and not regular expressions because every process links
// this package: compiling the three cost 0.5 ms of each start of hutch.

// isName reports whether s can name a sandbox.
func isName(s string) bool {
	return s != "" && len(s) <= 63 && strings.Trim(s[:1], letters+digits) == "" &&
		strings.Trim(s, letters+digits+"_.-") == ""
}

// isHostname reports whether s consists of RFC 1123 labels and fits the kernel's
// utsname (64 bytes).
func isHostname(s string) bool {
	for label := range strings.SplitSeq(s, ".") {
		if label == "" || len(label) > 63 || strings.Trim(label, letters+digits+"-") != "" ||
			label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
	}
	return len(s) <= 64
}

// MaxSeconds is the longest life and the longest timeout that make sense: above
// it a duration in nanoseconds overflows.
const MaxSeconds = 100 * 365 * 24 * 3600

// Validate refuses a spec that no machine could run; what depends on the machine
// (images, paths, cgroups) is checked when it is created. The error is an *Error
// with the field at fault.
func (s *Spec) Validate() error {
	checks := []func(*Spec) error{
		checkImage, checkNames, checkSpecEnv, checkWorkdir, checkWorkspace,
		checkMounts, checkHosts, checkCapDrop, checkSpecLimits, checkNetwork, checkLife, checkScope, checkUploads,
		checkSeccomp, checkLandlock, checkIDs, checkGuards, checkAppArmor, checkUndo,
	}
	for _, check := range checks {
		if err := check(s); err != nil {
			return err
		}
	}
	return nil
}

func invalid(field, format string, args ...any) *Error {
	return Errorf(InvalidArgument, "%s: %s", field, fmt.Sprintf(format, args...)).WithField(field)
}

func checkImage(s *Spec) error {
	switch {
	case s.Image == "" && s.Template == "":
		return invalid("image", "missing").WithHint("give an image reference, or \"host\" for the built-in image")
	case s.Image != "" && s.Template != "":
		return invalid("template", "given together with image %q", s.Image).
			WithHint("give exactly one of image and template")
	case s.Template != "" && !isName(s.Template):
		return invalid("template", "%q is no name of a template", s.Template).WithHint("hutch template ls lists them")
	}
	switch s.Pull {
	case "", PullMissing, PullAlways, PullNever:
		return nil
	}
	return invalid("pull", "%q is no pull policy", s.Pull).WithHint("use missing, always or never")
}

func checkNames(s *Spec) error {
	if s.Name != "" && !isName(s.Name) {
		return invalid("name", "%q is not a name", s.Name).
			WithHint("use 1 to 63 of a-z A-Z 0-9 _ . - and start with a letter or digit")
	}
	if strings.HasPrefix(s.Name, "sb_") {
		return invalid("name", "%q looks like an id", s.Name).WithHint("choose a name that does not start with sb_")
	}
	if s.Hostname != "" && !isHostname(s.Hostname) {
		return invalid("hostname", "%q is not a host name", s.Hostname).
			WithHint("use letters, digits, hyphens and dots, at most 64 bytes (RFC 1123)")
	}
	return checkUser("user", s.User)
}

// checkUser allows name|uid[:group|gid]; numbers must fit in 32 bits, and
// 4294967295 is (uid_t)-1, "no change", for the kernel.
func checkUser(field, user string) error {
	if strings.ContainsAny(user, "\x00\n/ ") || strings.Count(user, ":") > 1 {
		return invalid(field, "%q is not a user", user).WithHint("use NAME, UID, NAME:GROUP or UID:GID")
	}
	for part := range strings.SplitSeq(user, ":") {
		if part == "" || strings.Trim(part, "0123456789") != "" {
			continue
		}
		if len(part) > 10 || (len(part) == 10 && part >= "4294967295") {
			return invalid(field, "%s is not a possible id", part).WithHint("ids go from 0 to 4294967294")
		}
	}
	return nil
}

func checkSpecEnv(s *Spec) error { return checkEnv("env", s.Env) }

func checkEnv(field string, env map[string]string) error {
	for _, k := range slices.Sorted(maps.Keys(env)) {
		if k == "" || strings.ContainsAny(k, "=\x00") || strings.ContainsRune(env[k], 0) {
			return invalid(field+"."+k, "not a possible environment variable").
				WithHint("names hold no = and neither holds a NUL byte")
		}
	}
	return nil
}

func checkWorkdir(s *Spec) error { return checkAbs("workdir", s.Workdir) }

func checkAbs(field, p string) error {
	if p == "" {
		return nil
	}
	if !path.IsAbs(p) || strings.ContainsRune(p, 0) || len(p) > 4095 {
		return invalid(field, "%q is not an absolute path", p).WithHint("start it with /")
	}
	return nil
}

func checkWorkspace(s *Spec) error {
	w := s.Workspace
	if w == nil {
		return nil
	}
	if w.Mode == ModeNone {
		return nil
	}
	if w.Path == "" {
		return invalid("workspace.path", "missing").WithHint("name the host folder, or use mode none")
	}
	if err := checkAbs("workspace.path", w.Path); err != nil {
		return err
	}
	if err := checkMode("workspace.mode", w.Mode); err != nil {
		return err
	}
	return nil
}

func checkMode(field string, m MountMode) error {
	switch m {
	case ModeRO, ModeRW, ModeOverlay:
		return nil
	}
	return invalid(field, "%q is no mode", m).WithHint("use ro, rw or overlay")
}

// kernelPaths are mounted by hutch itself.
var kernelPaths = []string{"/run/hutch", "/proc", "/dev", "/sys"}

// MaxMounts bounds Spec.Mounts.
const MaxMounts = 64

func checkMounts(s *Spec) error {
	if len(s.Mounts) > MaxMounts {
		return invalid("mounts", "%d of them", len(s.Mounts)).
			WithHint("give at most %d; one folder may hold others", MaxMounts)
	}
	seen := map[string]bool{}
	if w := s.Workspace; w != nil && w.Mode != ModeNone {
		seen["/workspace"] = true
	}
	for i, m := range s.Mounts {
		field := fmt.Sprintf("mounts[%d]", i)
		if err := checkSource(field, &m); err != nil {
			return err
		}
		if err := checkAbs(field+".target", m.Target); err != nil {
			return err
		}
		target := path.Clean(m.Target)
		if seen[target] {
			return invalid(field+".target", "%s is mounted twice", target).
				WithHint("choose another target for one of them")
		}
		seen[target] = true
		if target == "/" {
			return invalid(field+".target", "the root cannot be mounted over").WithHint("choose a folder below it")
		}
		for _, k := range kernelPaths {
			if target == k || strings.HasPrefix(target, k+"/") {
				return invalid(field+".target", "%s is hutch's own", m.Target).WithHint("choose a target outside %s", k)
			}
		}
		if m.Mode == ModeTmpfs {
			continue // checkSource has
		}
		if err := checkMode(field+".mode", m.Mode); err != nil {
			return err
		}
	}
	return nil
}

// checkSource wants a folder of the host's or a volume.
func checkSource(field string, m *Mount) error {
	switch {
	case m.Mode == ModeTmpfs:
		return checkTmpfs(field, m)
	case m.SizeBytes != 0 || m.NoExec || m.Permissions != "":
		return invalid(field, "size_bytes, no_exec and permissions are for mode tmpfs").
			WithHint("leave them out, or source and volume")
	case (m.Source == "") == (m.Volume == "") || m.Target == "":
		return invalid(field, "source %q or volume %q, and target %q must be given", m.Source, m.Volume, m.Target).
			WithHint("give a target, and either a folder of the host's or the name of a volume")
	case m.Volume == "":
		return checkAbs(field+".source", m.Source)
	case m.FD != nil:
		return invalid(field+".fd", "a volume is the daemon's own: there is nothing to open")
	}
	return checkVolume(field+".volume", m.Volume)
}

func checkLife(s *Spec) error {
	for field, v := range map[string]float64{"ttl_s": s.TTLS, "idle_s": s.IdleS} {
		if math.IsNaN(v) || v < 0 || v > MaxSeconds {
			return invalid(field, "%g is not possible", v).WithHint("give seconds, 0 for no end")
		}
	}
	for _, a := range []struct {
		field  string
		action LifeAction
		time   float64
	}{{"ttl", s.TTLAction, s.TTLS}, {"idle", s.IdleAction, s.IdleS}} {
		switch {
		case a.action != "" && !slices.Contains(LifeActions, a.action):
			return invalid(a.field+"_action", "%q is no action", a.action).WithHint("use pause, stop, kill or remove")
		case a.action != "" && a.time == 0:
			return invalid(a.field+"_action", "without %s_s it never comes", a.field).
				WithHint("give %s_s as well", a.field)
		}
	}
	return checkOwner(s.Owner)
}

func checkOwner(owner string) error {
	switch owner {
	case "", OwnerConnection:
		return nil
	}
	return invalid("owner", "%q is no owner", owner).WithHint("use \"connection\" or leave it out")
}

func checkNetwork(s *Spec) error { return s.Network.Validate("network") }

func checkScope(s *Spec) error {
	switch {
	case s.Scope == nil:
		return nil
	case s.Owner != "":
		return invalid("owner", "given together with a scope, which decides").
			WithHint("leave it out; scopes of kind session end with their connections")
	}
	return s.Scope.Validate()
}

func checkSeccomp(s *Spec) error {
	switch {
	case s.Seccomp != "" && !slices.Contains(SeccompProfiles, s.Seccomp):
		return invalid("seccomp", "%q is no profile", s.Seccomp).
			WithHint("use default, strict, build, browser or custom")
	case s.Seccomp == SeccompCustom && s.SeccompProfile == "":
		return invalid("seccomp_profile", "missing").WithHint("give the text of the custom profile")
	case s.Seccomp != SeccompCustom && s.SeccompProfile != "":
		return invalid("seccomp_profile", "given without seccomp \"custom\"").
			WithHint("set seccomp to custom, or leave the text out")
	case len(s.SeccompProfile) > MaxSeccompProfile:
		return invalid("seccomp_profile", "it has %d bytes", len(s.SeccompProfile)).
			WithHint("use at most %d", MaxSeccompProfile)
	}
	return nil
}

func checkLandlock(s *Spec) error {
	switch s.Landlock {
	case "", LandlockAuto, LandlockOn, LandlockOff:
		return nil
	}
	return invalid("landlock", "%q is none of auto, on, off", s.Landlock).
		WithHint("leave it out: auto is on where the kernel has it")
}

func checkIDs(s *Spec) error {
	switch s.IDs {
	case "", IDsAuto, IDsEmulate, IDsReal:
		return nil
	}
	return invalid("ids", "%q is none of auto, emulate, real", s.IDs).
		WithHint("leave it out: auto emulates ids where there is only one")
}

func checkAppArmor(s *Spec) error {
	switch s.AppArmor {
	case "", AppArmorAuto, AppArmorOn:
		return nil
	}
	return invalid("apparmor", "%q is none of auto, on", s.AppArmor).
		WithHint("leave it out: auto is on where the profile is loaded")
}

// isExecID says what a caller may choose as an exec's id. (To compile a regular expression
// takes each hutch command 0.1 ms.)
func isExecID(id string) bool {
	random, ok := strings.CutPrefix(id, "ex_")
	return ok && len(random) >= 12 && len(random) <= 32 &&
		strings.Trim(random, "abcdefghijklmnopqrstuvwxyz0123456789") == ""
}

// Validate refuses params that no sandbox could run.
func (p *ExecParams) Validate() error {
	switch {
	case p.Exec != "" && !isExecID(p.Exec):
		return invalid("exec", "%q is no id", p.Exec).
			WithHint(`leave it out, or use "ex_" and 12 to 32 random lower-case letters and digits`)
	case len(p.Argv) == 0 && p.Command == "":
		return invalid("argv", "missing").WithHint("give argv, or command for a shell line")
	case len(p.Argv) > 0 && p.Command != "":
		return invalid("command", "given together with argv").WithHint("give exactly one of argv and command")
	case len(p.Argv) > 0 && p.Argv[0] == "":
		return invalid("argv", "the command's name is empty")
	case p.Stdin != "" && p.Stdio != nil:
		return invalid("stdin", "given together with stdio").WithHint("give the data or the fds")
	case p.Pty != nil && p.Stdio != nil && (p.Stdio.Stdin == nil || p.Stdio.Stdout == nil):
		return invalid("pty", "with stdio it needs stdin and stdout, the pipes that carry the terminal")
	case p.Detachable && (p.Pty == nil || p.Stdio == nil):
		return invalid("detachable", "without pty and stdio there is nothing to detach from").WithHint("leave it out")
	case p.Pty != nil && p.Stdin != "":
		return invalid("stdin", "a terminal has none").WithHint("start it with exec.start and type with exec.write")
	case p.Pty != nil && (p.Pty.Rows == 0 || p.Pty.Cols == 0):
		return invalid("pty", "%d rows and %d columns are no size", p.Pty.Rows, p.Pty.Cols).
			WithHint(`give both, as in {"rows": 24, "cols": 80}`)
	case p.OutputBytes < 0 || p.OutputBytes > MaxOutputBytes:
		return invalid("output_bytes", "%d is not possible", p.OutputBytes).WithHint("use at most %d", MaxOutputBytes)
	}
	for i, a := range p.Argv {
		if strings.ContainsRune(a, 0) {
			return invalid(fmt.Sprintf("argv[%d]", i), "holds a NUL byte")
		}
	}
	if strings.ContainsRune(p.Command, 0) {
		return invalid("command", "holds a NUL byte")
	}
	if p.Network != nil {
		if err := p.Network.Validate("network"); err != nil {
			return err
		}
	}
	if err := p.checkTimeout(); err != nil {
		return err
	}
	if err := p.checkLimits(); err != nil {
		return err
	}
	if err := checkEncoding(p.Encoding); err != nil {
		return err
	}
	if err := checkAbs("cwd", p.Cwd); err != nil {
		return err
	}
	if err := checkUser("user", p.User); err != nil {
		return err
	}
	return checkEnv("env", p.Env)
}

// checkTimeout refuses impossible timeouts. How long the daemon lets commands run
// at most is its own affair.
func (p *ExecParams) checkTimeout() error {
	switch t := p.TimeoutS; {
	case t == nil:
		return nil
	case math.IsNaN(*t) || *t < 0 || *t > MaxSeconds:
		return invalid("timeout_s", "%g is not possible", *t)
	case *t == 0 && !p.Unbounded():
		return invalid("timeout_s", "0, no timeout, is for background commands only").
			WithHint("give seconds, or start it in the background: exec.start with background, hutch exec -d")
	}
	return nil
}

// checkLimits refuses limits that only a whole sandbox can have.
func (p *ExecParams) checkLimits() error {
	l := p.Limits
	if l == nil {
		return nil
	}
	if err := l.Validate("limits"); err != nil {
		return err
	}
	for field, set := range map[string]bool{
		"swap_bytes": l.SwapBytes != 0, "memory_high_bytes": l.MemoryHighBytes != 0, "cpu_weight": l.CPUWeight != 0,
		"cpuset":      l.CPUSet != "",
		"io_read_bps": l.IOReadBPS != 0, "io_write_bps": l.IOWriteBPS != 0, "best_effort": l.BestEffort,
		"shm_bytes": l.ShmBytes != 0,
	} {
		if set {
			return invalid("limits."+field, "a single exec cannot have it").
				WithHint("give it to the sandbox: sandbox.create, sandbox.update")
		}
	}
	if l.DiskBytes != 0 || l.Inodes != 0 {
		return Errorf(Unavailable, "limits.disk_bytes and inodes are the sandbox's, not a single exec's").
			WithField("limits.disk_bytes").
			WithHint("set them on the sandbox; limits.rlimits.fsize bounds each file of an exec")
	}
	return nil
}

// Unbounded says that the exec has no timeout unless one is asked for: nobody
// waits for a background command, and who sits at a terminal ends his own.
func (p *ExecParams) Unbounded() bool { return p.Background || p.Pty != nil }

// Validate refuses impossible params.
func (p *ReadParams) Validate() error {
	switch {
	case p.Stream != Stdout && p.Stream != Stderr:
		return invalid("stream", "%q is no stream", p.Stream).WithHint("use stdout or stderr")
	case p.Limit < 0 || p.Limit > MaxReadBytes:
		return invalid("limit", "%d is not possible", p.Limit).
			WithHint("use 1 to %d bytes, 0 for the default", MaxReadBytes)
	case math.IsNaN(p.WaitS) || p.WaitS < 0 || p.WaitS > MaxSeconds:
		return invalid("wait_s", "%g is not possible", p.WaitS)
	}
	return checkEncoding(p.Encoding)
}

func checkEncoding(e Encoding) error {
	switch e {
	case "", Text, Base64:
		return nil
	}
	return invalid("encoding", "%q is no encoding", e).WithHint("use utf-8 or base64")
}

// Caps of one exec.read, in bytes.
const (
	DefaultReadBytes = 256 << 10
	MaxReadBytes     = 2 << 20
)

// Caps of captured output in a reply, bytes per stream.
const (
	DefaultOutputBytes = 1 << 20
	MaxOutputBytes     = 16 << 20
)
