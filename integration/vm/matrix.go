package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// vmCase is one boot: a kernel, what guest/prep.sh makes of the machine, and tests.
type vmCase struct {
	name   string // of the report; prep.sh decides by it what to do
	kernel string
	// noSession runs the tests in a system service of the user's instead of a login
	// session.
	noSession bool
	tests     []tests
	limit     time.Duration
}

// tests are those of one compiled package.
type tests struct {
	pkg  string
	run  string // -test.run
	args []string
}

// named are the tests that stand for the whole suite on other kernels: what depends on
// mounts, cgroups, namespaces, seccomp, terminals and nftables.
const named = `^Test(Script|VerdictsOfSandbox|ExecLimits|ExecCgroups|KillTree|Mounts|Privileges|Seccomp|NoNesting|NetworkOff|FDs|HostFiles|` +
	`Workspace|ImageTiny|DaemonDeath|Terminal|StdioReopen|FilesTree|Shell|ProcessLimit|Claimed|Pool|WritableUsr|Landlock|EscapeImage|Reclaim|ReclaimMiddle|Network(Allow|Kernel|Restart|Raw))$`

// enforced are the tests of machines where hutch-netd puts eBPF in force.
var enforced = []tests{
	{pkg: "integration", run: `^Test(Kernel.*|ExecPolicy|Network(Allow|UDP|Update|Restart|Kernel|Open|Raw))$`, args: []string{"-test.short"}},
}

// idle is the test that takes longest, beside all others.
const idle = "^TestNetworkIdle$"

// apart are tests that the whole suite does without: that one, and those in which the kernel does nothing that it does not do for others.
const apart = `^Test(NetworkIdle|ToolsMany|Scan|ScanHostile|AgentLoop|FilesSyncMany|Import|Pull(Together|Half)|PushDeath|ImageUpkeep|` +
	`Killed(Port|Commit|Fork|Snapshot|Restore|Stop)|ModeCode(Off)?|NetworkStreams)$`

// matrix is every case, the quick ones first. The whole suite of end-to-end tests, with
// fewer rounds of those that repeat, runs on the kernel that most users have; elsewhere what
// differs.
var matrix = []vmCase{
	{name: "delegation", kernel: "6.12", limit: 8 * time.Minute, tests: []tests{{pkg: "integration", run: "^TestVMFull$"}}},
	{name: "none", kernel: "6.12", noSession: true, limit: 8 * time.Minute, tests: []tests{
		{pkg: "integration", run: "^Test(VerdictsOfSandbox|ExecLimits)$"},
		{pkg: "integration", run: "^TestVMNone$"}, // the last: it changes the machine
	}},
	{name: "single", kernel: "6.12", limit: 8 * time.Minute, tests: []tests{
		{pkg: "integration", run: "^Test(HostFiles|Mounts)$"},
		{pkg: "integration", run: "^TestVMSingle$"},
	}},
	{name: "quota", kernel: "6.12", limit: 10 * time.Minute, tests: []tests{{pkg: "integration", run: "^TestVMQuota$"}}},
	{name: "netd", kernel: "6.12", limit: 10 * time.Minute, tests: enforced},
	{name: "netd-6.1", kernel: "6.1", limit: 10 * time.Minute, tests: enforced},
	{name: "apparmor", kernel: "6.12", limit: 8 * time.Minute, tests: []tests{{pkg: "integration", run: "^TestVMAppArmor$"}}},
	{name: newest, kernel: newest, limit: 18 * time.Minute, tests: []tests{
		{pkg: "integration", run: named, args: []string{"-test.short"}},
	}},
	{name: "6.1", kernel: "6.1", limit: 18 * time.Minute, tests: []tests{
		{pkg: "integration", run: named, args: []string{"-test.short"}},
	}},
	{name: "idle", kernel: "6.12", limit: 12 * time.Minute, tests: []tests{{pkg: "integration", run: idle}}},
	{name: "6.12", kernel: "6.12", limit: 55 * time.Minute, tests: []tests{
		// Half of the tests' time is waiting.
		{pkg: "integration", args: []string{"-test.short", "-test.parallel=3", "-test.skip=" + apart}},
	}},
}

// packages are the folders of the tests of some cases.
func packages(cases []vmCase) []string {
	var all []string
	for _, c := range cases {
		for _, t := range c.tests {
			all = append(all, t.pkg)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// pick returns the cases with these names; all without names.
func pick(names []string) ([]vmCase, error) {
	if len(names) == 0 {
		return matrix, nil
	}
	var cases []vmCase
	for _, name := range names {
		at := slices.IndexFunc(matrix, func(c vmCase) bool { return c.name == name })
		if at < 0 {
			return nil, fmt.Errorf("no case %q", name)
		}
		cases = append(cases, matrix[at])
	}
	return cases, nil
}

// script is the part of guest/run.sh that the case decides.
func (c vmCase) script() string {
	var b strings.Builder
	for _, t := range c.tests {
		args := slices.Clone(t.args)
		if t.run != "" {
			args = append(args, "-test.run="+t.run)
		}
		fmt.Fprintf(&b, "run %s", t.pkg)
		for _, arg := range args {
			fmt.Fprintf(&b, " '%s'", strings.ReplaceAll(arg, "'", `'\''`))
		}
		fmt.Fprintln(&b)
	}
	return b.String()
}

// commandLine is the case's part of the kernel's.
func (c vmCase) commandLine() string {
	target := "vmtest.target"
	if c.noSession {
		target = "vmtest-nosession.target"
	}
	return "systemd.unit=" + target + " vmtest.case=" + c.name
}
