package api

import (
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/internal/testenv/cost"
)

// refused asserts that err is an invalid_argument or unavailable with field and hint.
func refused(t *testing.T, err error, code Code, field string) {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) {
		t.Fatalf("%v: no *Error", err)
	}
	if e.Code != code || !strings.HasPrefix(e.Field, field) || e.Error() == "" {
		t.Errorf("%s at %q (%v), want %s at %q", e.Code, e.Field, err, code, field)
	}
}

func TestSpecValidate(t *testing.T) {
	for _, c := range []struct {
		name, field string
		code        Code
		change      func(*Spec)
	}{
		{"no image", "image", InvalidArgument, func(s *Spec) { s.Image = "" }},
		{"two images", "template", InvalidArgument, func(s *Spec) { s.Template = "x" }},
		{"pull", "pull", InvalidArgument, func(s *Spec) { s.Pull = "sometimes" }},
		{"name", "name", InvalidArgument, func(s *Spec) { s.Name = "../x" }},
		{"name like an id", "name", InvalidArgument, func(s *Spec) { s.Name = "sb_x" }},
		{"hostname", "hostname", InvalidArgument, func(s *Spec) { s.Hostname = "a_b" }},
		{"long hostname", "hostname", InvalidArgument, func(s *Spec) { s.Hostname = strings.Repeat("a", 65) }},
		{"user", "user", InvalidArgument, func(s *Spec) { s.User = "a:b:c" }},
		{"impossible uid", "user", InvalidArgument, func(s *Spec) { s.User = "4294967295" }},
		{"env name", "env", InvalidArgument, func(s *Spec) { s.Env = map[string]string{"a=b": ""} }},
		{"env NUL", "env.A", InvalidArgument, func(s *Spec) { s.Env = map[string]string{"A": "\x00"} }},
		{"workdir", "workdir", InvalidArgument, func(s *Spec) { s.Workdir = "tmp" }},
		{"workspace path", "workspace.path", InvalidArgument,
			func(s *Spec) { s.Workspace = &Workspace{Path: "x", Mode: ModeRW} }},
		{"workspace mode", "workspace.mode", InvalidArgument,
			func(s *Spec) { s.Workspace = &Workspace{Path: "/x", Mode: "rwx"} }},
		{"guard of new names", "workspace.guard_new", InvalidArgument,
			func(s *Spec) { s.Workspace = &Workspace{Path: "/x", Mode: ModeRW, GuardNew: "x"} }},
		{"guard of new names in overlay", "workspace.guard", InvalidArgument,
			func(s *Spec) { s.Workspace = &Workspace{Path: "/x", Mode: ModeOverlay, GuardNew: GuardRefuse} }},
		{"guard of new names without landlock", "workspace.guard_new", InvalidArgument, func(s *Spec) {
			s.Workspace, s.Landlock = &Workspace{Path: "/x", Mode: ModeRW, GuardNew: GuardRefuse}, LandlockOff
		}},
		{"guard of new names with a custom profile", "workspace.guard_new", InvalidArgument, func(s *Spec) {
			s.Workspace, s.Seccomp, s.SeccompProfile = &Workspace{Path: "/x", Mode: ModeRW, GuardNew: GuardRefuse},
				SeccompCustom, "x"
		}},
		{"unguarded", "workspace.unguarded", InvalidArgument,
			func(s *Spec) { s.Workspace = &Workspace{Path: "/x", Mode: ModeRW, Unguarded: []string{"/.git"}} }},
		{"mount over root", "mounts[0].target", InvalidArgument,
			func(s *Spec) { s.Mounts = []Mount{{Source: "/a", Target: "/..", Mode: ModeRO}} }},
		{"mount over proc", "mounts[0].target", InvalidArgument,
			func(s *Spec) { s.Mounts = []Mount{{Source: "/a", Target: "/proc/sys", Mode: ModeRO}} }},
		{"cpus", "limits.cpus", InvalidArgument, func(s *Spec) { s.Limits.CPUs = math.NaN() }},
		{"memory", "limits.memory_bytes", InvalidArgument, func(s *Spec) { s.Limits.MemoryBytes = 1 }},
		{"pids", "limits.pids", InvalidArgument, func(s *Spec) { s.Limits.PIDs = -2 }},
		{"high above the limit", "limits.memory_high_bytes", InvalidArgument,
			func(s *Spec) { s.Limits.MemoryBytes, s.Limits.MemoryHighBytes = 64<<20, 65<<20 }},
		{"swap of no limit", "limits.swap_bytes", InvalidArgument,
			func(s *Spec) { s.Limits.MemoryBytes, s.Limits.SwapBytes = Unlimited, 1<<20 }},
		{"weight", "limits.cpu_weight", InvalidArgument, func(s *Spec) { s.Limits.CPUWeight = 10001 }},
		{"cpuset", "limits.cpuset", InvalidArgument, func(s *Spec) { s.Limits.CPUSet = "0-" }},
		{"io", "limits.io_write_bps", InvalidArgument, func(s *Spec) { s.Limits.IOReadBPS = -2 }},
		{"oom group of a sandbox", "limits.oom_group", InvalidArgument,
			func(s *Spec) { s.Limits.MemoryBytes, s.Limits.OOMGroup = 64<<20, true }},
		{"timeout", "limits.timeout_s", InvalidArgument, func(s *Spec) { s.Limits.TimeoutS = math.Inf(1) }},
		{"ttl", "ttl_s", InvalidArgument, func(s *Spec) { s.TTLS = -1 }},
		{"owner", "owner", InvalidArgument, func(s *Spec) { s.Owner = "me" }},
		{"network mode", "network.mode", InvalidArgument, func(s *Spec) { s.Network.Mode = "some" }},
		{"allow in mode none", "network.mode", InvalidArgument,
			func(s *Spec) { s.Network = NetPolicy{Mode: NetNone, Allow: []string{"example.com"}} }},
		// What this build cannot honour is refused, never ignored.
		{"disk", "limits.disk_bytes", InvalidArgument, func(s *Spec) { s.Limits.DiskBytes = MinDiskBytes - 1 }},
		{"inodes", "limits.inodes", InvalidArgument, func(s *Spec) { s.Limits.Inodes = MinInodes - 1 }},
		{"ask", "network.ask", InvalidArgument, func(s *Spec) { s.Network = NetPolicy{Mode: NetOpen, Ask: true} }},
		{"how long to ask", "network.ask_s", InvalidArgument,
			func(s *Spec) { s.Network = NetPolicy{Mode: NetAllow, Ask: true, AskS: MaxAskS + 1} }},
		{"how long not to ask", "network.ask_s", InvalidArgument,
			func(s *Spec) { s.Network = NetPolicy{Mode: NetAllow, AskS: 1} }},
		{"scope", "scope", InvalidArgument, func(s *Spec) { s.Scope = &Scope{Kind: ScopeAgent} }},
		{"scope's kind", "scope", InvalidArgument, func(s *Spec) { s.Scope = &Scope{Kind: "house", Key: "k"} }},
		{"scope's key", "scope", InvalidArgument, func(s *Spec) { s.Scope = &Scope{Kind: ScopeAgent, Key: "a b"} }},
		{"scope and owner", "owner", InvalidArgument,
			func(s *Spec) { s.Scope, s.Owner = &Scope{Kind: ScopeAgent, Key: "k"}, OwnerConnection }},
		{"seccomp", "seccomp", InvalidArgument, func(s *Spec) { s.Seccomp = "lax" }},
		{"landlock", "landlock", InvalidArgument, func(s *Spec) { s.Landlock = "yes" }},
		{"apparmor", "apparmor", InvalidArgument, func(s *Spec) { s.AppArmor = "off" }},
		{"ids", "ids", InvalidArgument, func(s *Spec) { s.IDs = "fake" }},
		{"custom seccomp without a text", "seccomp_profile", InvalidArgument,
			func(s *Spec) { s.Seccomp = SeccompCustom }},
		{"text without custom seccomp", "seccomp_profile", InvalidArgument, func(s *Spec) { s.SeccompProfile = "{}" }},
		{"long seccomp text", "seccomp_profile", InvalidArgument, func(s *Spec) {
			s.Seccomp, s.SeccompProfile = SeccompCustom, strings.Repeat(" ", MaxSeccompProfile+1)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := Spec{Image: "host"}
			if err := s.Validate(); err != nil {
				t.Fatalf("before the change: %v", err)
			}
			c.change(&s)
			refused(t, s.Validate(), c.code, c.field)
		})
	}
}

func TestSpecAllowed(t *testing.T) {
	s := Spec{
		Image: "host", Name: "box-1", Hostname: "a.b-c", User: "nobody:nogroup", Workdir: "/srv",
		Env:       map[string]string{"A": "", "b_c": "x=y"},
		Workspace: &Workspace{Path: "/home/u/p", Mode: ModeOverlay},
		Mounts:    []Mount{{Source: "/a", Target: "/procedure", Mode: ModeRO}},
		Limits:    Limits{CPUs: 0.5, MemoryBytes: 64 << 20, PIDs: 1, TimeoutS: 30},
		Seccomp:   "default", Owner: OwnerConnection, TTLS: 60, Pull: PullNever,
		Network: NetPolicy{Mode: NetNone},
	}
	if err := s.Validate(); err != nil {
		t.Error(err)
	}
}

func TestExecParamsValidate(t *testing.T) {
	zero := 0
	for _, c := range []struct {
		name, field string
		code        Code
		p           ExecParams
	}{
		{"nothing", "argv", InvalidArgument, ExecParams{}},
		{"both", "command", InvalidArgument, ExecParams{Argv: []string{"a"}, Command: "a"}},
		{"id", "exec", InvalidArgument, ExecParams{Exec: "ex_../../x", Argv: []string{"a"}}},
		{"empty name", "argv", InvalidArgument, ExecParams{Argv: []string{""}}},
		{"NUL", "argv[1]", InvalidArgument, ExecParams{Argv: []string{"a", "b\x00"}}},
		{"stdin twice", "stdin", InvalidArgument,
			ExecParams{Argv: []string{"a"}, Stdin: "x", Stdio: &Stdio{Stdin: &zero}}},
		{"timeout 0", "timeout_s", InvalidArgument, ExecParams{Argv: []string{"a"}, TimeoutS: new(float64)}},
		{"disk", "limits.disk_bytes", Unavailable,
			ExecParams{Argv: []string{"a"}, Limits: &Limits{DiskBytes: 1 << 30}}},
		{"cpu time", "limits.cpu_time_s", InvalidArgument,
			ExecParams{Argv: []string{"a"}, Limits: &Limits{CPUTimeS: -1}}},
		{"negative rlimit", "limits.rlimits.nofile", InvalidArgument,
			ExecParams{Argv: []string{"a"}, Limits: &Limits{Rlimits: Rlimits{NoFile: &Rlimit{Soft: -2}}}}},
		{"soft above hard", "limits.rlimits.stack", InvalidArgument,
			ExecParams{Argv: []string{"a"},
				Limits: &Limits{Rlimits: Rlimits{Stack: &Rlimit{Soft: Unlimited, Hard: new(int64)}}}}},
		{"pty without its pipes", "pty", InvalidArgument, ExecParams{Argv: []string{"a"}, Pty: &Pty{Rows: 24, Cols: 80},
			Stdio: &Stdio{Stdin: &zero}}},
		{"nothing to detach from", "detachable", InvalidArgument,
			ExecParams{Argv: []string{"a"}, Pty: &Pty{Rows: 24, Cols: 80}, Detachable: true}},
		{"pty without a size", "pty", InvalidArgument, ExecParams{Argv: []string{"a"}, Pty: &Pty{Cols: 80}}},
		{"pty and stdin", "stdin", InvalidArgument,
			ExecParams{Argv: []string{"a"}, Stdin: "x", Pty: &Pty{Rows: 24, Cols: 80}}},
		{"network", "network.mode", InvalidArgument,
			ExecParams{Argv: []string{"a"}, Network: &NetPolicy{Mode: "some"}}},
		{"output", "output_bytes", InvalidArgument, ExecParams{Argv: []string{"a"}, OutputBytes: MaxOutputBytes + 1}},
		{"encoding", "encoding", InvalidArgument, ExecParams{Argv: []string{"a"}, Encoding: "hex"}},
		{"cwd", "cwd", InvalidArgument, ExecParams{Argv: []string{"a"}, Cwd: "x"}},
	} {
		t.Run(c.name, func(t *testing.T) { refused(t, c.p.Validate(), c.code, c.field) })
	}
	ok := ExecParams{Command: "echo hi | cat", Env: map[string]string{"A": "b"}}
	if err := ok.Validate(); err != nil {
		t.Error(err)
	}
}

// TestImportParams: each impossible import names the field at fault.
func TestImportParams(t *testing.T) {
	fd := new(int)
	for field, p := range map[string]ImportParams{
		"format":              {Ref: "x", Format: "zip", FD: fd},
		"fd":                  {Ref: "x", Format: FormatRootfs},
		"ref":                 {Format: FormatRootfs, FD: fd},
		"image":               {Ref: "x", Format: FormatRootfs, Image: "y", FD: fd},
		"changes":             {Format: FormatOCIArchive, FD: fd, Changes: &ConfigChanges{User: "x"}},
		"changes.user":        {Ref: "x", Format: FormatRootfs, FD: fd, Changes: &ConfigChanges{User: "a b"}},
		"changes.working_dir": {Ref: "x", Format: FormatRootfs, FD: fd, Changes: &ConfigChanges{WorkingDir: "a"}},
		"changes.volumes": {Ref: "x", Format: FormatRootfs, FD: fd,
			Changes: &ConfigChanges{Volumes: []string{"/.."}}},
		"changes.cmd": {Ref: "x", Format: FormatRootfs, FD: fd,
			Changes: &ConfigChanges{Cmd: []string{"a\x00"}}},
		"changes.env.A=": {Ref: "x", Format: FormatRootfs, FD: fd,
			Changes: &ConfigChanges{Env: map[string]string{"A=": "x"}}},
	} {
		var e *Error
		if err := p.Validate(); !errors.As(err, &e) || e.Field != field {
			t.Errorf("%+v: %v, want field %s", p, err, field)
		}
	}
	for _, p := range []ImportParams{{Format: FormatDockerArchive, FD: fd},
		{Ref: "x", Format: FormatRootfs, FD: fd, Changes: &ConfigChanges{Cmd: []string{}}}} {
		if err := p.Validate(); err != nil {
			t.Error(err)
		}
	}
}

// TestRlimitNames: every field has its name, and the list is all of them.
func TestRlimitNames(t *testing.T) {
	fields := reflect.TypeFor[Rlimits]()
	if fields.NumField() != len(RlimitNames) {
		t.Errorf("%d fields, %d names", fields.NumField(), len(RlimitNames))
	}
	for i, name := range RlimitNames {
		var r Rlimits
		p := r.ByName(name)
		if p == nil || any(p) != reflect.ValueOf(&r).Elem().Field(i).Addr().Interface() || fields.Field(i).
			Tag.Get("json") != name+",omitempty" {
			t.Errorf("%s is not field %d, %s", name, i, fields.Field(i).Tag)
		}
	}
}

// TestCodes: every code has its own number, and back.
func TestCodes(t *testing.T) {
	seen := map[int]Code{}
	for c, n := range codeNumbers {
		if other, ok := seen[n]; ok {
			t.Errorf("%s and %s share %d", c, other, n)
		}
		seen[n] = c
		if got, ok := CodeOf(c.Number()); !ok || got != c {
			t.Errorf("%s -> %d -> %s", c, n, got)
		}
	}
}

// TestErrorText: a cause is said once.
func TestErrorText(t *testing.T) {
	cause := errors.New("no space left on device")
	err := Errorf(ResourceExhausted, "write layer: %w", cause).WithOp("pull image")
	if got, want := err.Error(), "pull image: write layer: no space left on device"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if !errors.Is(err, cause) || !errors.Is(err, &Error{Code: ResourceExhausted}) ||
		errors.Is(err, &Error{Code: NotFound}) {
		t.Error("errors.Is misses the cause or the code")
	}
}

func FuzzSpec(f *testing.F) {
	f.Add(`{"image":"host","limits":{"cpus":1.5},"mounts":[{"source":"/a","target":"/b","mode":"ro"}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		var s Spec
		if json.Unmarshal([]byte(text), &s) != nil {
			return
		}
		var err error
		cost.Of(t, len(text), func() { err = s.Validate() })
		var e *Error
		if err != nil && (!errors.As(err, &e) || e.Error() == "") {
			t.Fatalf("%v: no *Error", err)
		}
	})
}

// TestAttributes: names that are not for programs are refused, and more than a file system keeps.
func TestAttributes(t *testing.T) {
	for name, ok := range map[string]bool{"e2b.a": true, "": false, "hutch.owner": false, "overlay.opaque": false,
		"a\x00b": false, "\xff": false, strings.Repeat("n", 251): false} {
		p := FileWriteParams{FileParams: FileParams{Sandbox: "x", Path: "/f"}, Attributes: map[string]string{name: "v"}}
		if err := p.Validate(); (err == nil) != ok {
			t.Errorf("%q: %v", name, err)
		}
	}
	p := FileWriteParams{FileParams: FileParams{Sandbox: "x", Path: "/f"},
		Attributes: map[string]string{"a": strings.Repeat("v", MaxAttributesBytes)}}
	if p.Validate() == nil {
		t.Error("a value that no file system keeps is taken")
	}
}
