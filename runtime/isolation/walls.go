package isolation

import (
	"cmp"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/runtime/api"
)

// Of reads back from the kernel what stands around PID 1, whose folder proc is (Kernel.Proc), and fails when a
// wall that every sandbox has is missing: a launch that silently lost one must
// not become a sandbox. netns is the namespace that the policy is in force in, n what
// enforces it, nil in mode none.
func Of(proc string, h *Host, profile api.SeccompProfile, netns *os.File, n Network) (api.Isolation, error) {
	iso, err := Walls(proc, h, profile)
	if err != nil {
		return iso, err
	}
	return iso, AddNetwork(&iso, proc, netns, n)
}

// Walls is Of without the network: facts of PID 1 that do not change as long as it lives.
func Walls(proc string, h *Host, profile api.SeccompProfile) (api.Isolation, error) {
	iso := api.Isolation{UserMap: h.UserMap, Cgroups: h.CgroupMode, Enforcement: "none"}
	for _, ns := range []struct{ name, file string }{
		{"user namespace", "user"}, {"pid namespace", "pid"}, {"mount namespace", "mnt"},
		{"network namespace", "net"}, {"ipc namespace", "ipc"}, {"uts namespace", "uts"},
		{"cgroup namespace", "cgroup"},
	} {
		inside, err := os.Readlink(proc + "/ns/" + ns.file)
		if err != nil {
			return iso, fmt.Errorf("read back isolation: %w", err)
		}
		outside, err := os.Readlink("/proc/self/ns/" + ns.file)
		if err != nil {
			return iso, fmt.Errorf("read back isolation: %w", err)
		}
		if inside == outside {
			return iso, api.Errorf(api.Internal, "the sandbox shares the host's %s %s", ns.name, outside).
				WithHint("this is a bug in hutch; the sandbox was not started")
		}
		iso.Walls = append(iso.Walls, api.Wall{Name: ns.name, Status: "yes", Detail: inside})
	}
	status, err := os.ReadFile(proc + "/status")
	if err != nil {
		return iso, fmt.Errorf("read back isolation: %w", err)
	}
	if err := addStatus(&iso, string(status), profile); err != nil {
		return iso, err
	}
	iso.Walls = append(iso.Walls, h.filesWall()...)
	iso.Walls = append(iso.Walls, h.limitsWall(), h.execWall(), h.EBPFWall())
	return iso, nil
}

// AddNetwork adds how the network policy is enforced, in the very namespace that it
// is in force in.
func AddNetwork(iso *api.Isolation, proc string, netns *os.File, n Network) error {
	inside, err := os.Stat(proc + "/ns/net")
	if err != nil {
		return fmt.Errorf("read back isolation: %w", err)
	}
	policed, err := netns.Stat()
	if err != nil {
		return fmt.Errorf("read back isolation: %w", err)
	}
	if !os.SameFile(inside, policed) {
		return api.Errorf(api.Internal, "the sandbox is in another network namespace than its policy").
			WithHint("this is a bug in hutch; the sandbox was not started")
	}
	network := api.Wall{Name: "network", Status: "yes",
		Detail: "loopback only: no route; each lookup is refused and told"}
	if n != nil {
		iso.Enforcement, _, network.Detail = n.State()
	}
	iso.Walls = append(iso.Walls, network)
	return nil
}

// Enforcement says how p is enforced; n is nil in mode none.
func (h *Host) Enforcement(p api.NetPolicy, n Network) api.NetEnforcement {
	e := api.NetEnforcement{EBPF: "off", Reason: cmp.Or(h.EBPF.Reason, "not tried"), Errno: "EACCES"}
	if h.EBPF.On {
		e.EBPF, e.Reason = "on", ""
	}
	var mode api.NetMode
	if n != nil {
		_, e.Proxy, _ = n.State()
		mode = p.Effective()
	}
	switch {
	case h.EBPF.On && !h.EBPF.Errnos:
		e.Errno = "EPERM"
	case n == nil:
		e.Errno = "ENETUNREACH"
	case mode == api.NetOpen || p.Ask || mode == api.NetLearn && p.Learn == api.LearnAllow:
		e.Errno = "EHOSTUNREACH" // the proxy's, as any address may be one that is allowed
	}
	return e
}

// EnforcementCheck says for system.doctor what this daemon's policies are enforced by, beside
// what the host would allow.
func (h *Host) EnforcementCheck() api.Check {
	w := h.EBPFWall()
	c := api.Check{Name: "network_enforcement", Status: w.Status, Detail: "eBPF on: " + w.Detail}
	if w.Status == "no" {
		c.Detail = "eBPF off: " + w.Detail + "; policies are enforced by namespaces and the proxy"
	}
	return c
}

// EBPFWall tells whether the kernel itself refuses what a policy does not name.
func (h *Host) EBPFWall() api.Wall {
	switch {
	case !h.EBPF.On:
		return api.Wall{Name: "eBPF", Status: "no", Detail: cmp.Or(h.EBPF.Reason, "not tried")}
	case h.EBPF.Errnos:
		return api.Wall{Name: "eBPF", Status: "yes",
			Detail: "the kernel refuses what the policy does not name, by EACCES; without a network, ENETUNREACH"}
	}
	return api.Wall{Name: "eBPF", Status: "yes",
		Detail: "the kernel refuses what the policy does not name, by EPERM (before Linux 6.1)"}
}

// addStatus adds what /proc/PID/status says (proc_pid_status(5)).
func addStatus(iso *api.Isolation, status string, profile api.SeccompProfile) error {
	fields := map[string]string{}
	for line := range strings.Lines(status) {
		if k, v, ok := strings.Cut(line, ":"); ok {
			fields[k] = strings.TrimSpace(v)
		}
	}
	if fields["Seccomp"] != "2" || fields["NoNewPrivs"] != "1" {
		return api.Errorf(api.Internal, "PID 1 runs with Seccomp: %s and NoNewPrivs: %s", fields["Seccomp"],
			fields["NoNewPrivs"]).
			WithHint("this is a bug in hutch; the sandbox was not started")
	}
	bounding, err := strconv.ParseUint(fields["CapBnd"], 16, 64)
	if err != nil {
		return fmt.Errorf("read back capabilities %q: %w", fields["CapBnd"], err)
	}
	for name, c := range map[string]uint{
		"SYS_ADMIN": unix.CAP_SYS_ADMIN, "NET_ADMIN": unix.CAP_NET_ADMIN, "NET_RAW": unix.CAP_NET_RAW,
		"MKNOD": unix.CAP_MKNOD, "SYS_PTRACE": unix.CAP_SYS_PTRACE, "SYS_MODULE": unix.CAP_SYS_MODULE,
	} {
		if bounding&(1<<c) != 0 {
			return api.Errorf(api.Internal, "PID 1's bounding set %s holds CAP_%s", fields["CapBnd"], name).
				WithHint("this is a bug in hutch; the sandbox was not started")
		}
	}
	iso.Walls = append(iso.Walls,
		api.Wall{Name: "seccomp", Status: "yes", Detail: seccompDetail(profile) + fields["Seccomp_filters"] +
			" filter on PID 1, one more on every command"},
		api.Wall{Name: "no_new_privs", Status: "yes", Detail: "setuid files give nothing"},
		api.Wall{Name: "capabilities", Status: "yes", Detail: "bounding set " + fields["CapBnd"]})
	return nil
}

// seccompDetail says which profile commands are under.
func seccompDetail(profile api.SeccompProfile) string {
	if profile == api.SeccompBrowser {
		return "profile browser, a weaker one: commands can make user, pid, network and ipc namespaces of their own; "
	}
	return "profile " + string(profile) + "; "
}

// Isolation is what any sandbox of this daemon gets, before there is one;
// singleReason says why only one id is mapped.
func (h *Host) Isolation(singleReason string) api.Isolation {
	ids := api.Wall{Name: "subordinate ids", Status: "yes", Detail: "users inside are users of their own outside"}
	if h.UserMap == "single" {
		ids.Status, ids.Detail = "no", singleReason
	}
	iso := api.Isolation{
		UserMap: h.UserMap, Cgroups: h.CgroupMode, Enforcement: "none",
		Walls: append([]api.Wall{ids, h.limitsWall(), h.execWall(), h.EBPFWall()}, h.filesWall()...),
	}
	h.AddLandlock(&iso, api.LandlockAuto)
	return iso
}

// filesWall tells what is not usual about where files are.
func (h *Host) filesWall() []api.Wall {
	if !h.InMemory {
		return nil
	}
	return []api.Wall{{Name: "files on disk", Status: "no",
		Detail: "the state folder's file system cannot hold overlays: what sandboxes write is kept in memory"}}
}

// execWall tells how the processes of an exec are found when it is killed.
func (h *Host) execWall() api.Wall {
	if h.CgroupMount == "" {
		return api.Wall{Name: "exec cgroups", Status: "no",
			Detail: "no cgroup v2: a kill looks for a command's processes by parents and sessions"}
	}
	return api.Wall{Name: "exec cgroups", Status: "yes",
		Detail: "a kill reaches all that a command started, whatever that did"}
}

func (h *Host) limitsWall() api.Wall {
	if h.CgroupMode == "none" || len(h.Controllers) == 0 {
		return api.Wall{Name: "cgroup limits", Status: "no", Detail: h.CgroupReason}
	}
	return api.Wall{Name: "cgroup limits", Status: "yes", Detail: h.CgroupMode + ": " +
		strings.Join(h.Controllers, ", ")}
}
