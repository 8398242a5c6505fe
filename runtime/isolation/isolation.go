// Package isolation knows what stands around the processes of a sandbox on this host: which layers there can be, what
// is refused where somebody insists on one, and, read back from the kernel, which there are.
//
// It holds no state and no lock: Host is found out once, when the daemon starts, and PID 1 is looked at by its folder
// of proc(5).
package isolation

// Host is what the host and the daemon have for all sandboxes.
type Host struct {
	UserMap  string // "range" or "single"
	InMemory bool   // what sandboxes write is kept in memory

	CgroupMode   string // "v2", "v1", "none"
	CgroupReason string // why there are none
	CgroupMount  string // where cgroup2 is, when execs have cgroups there
	Controllers  []string
	EBPF         EBPF

	LandlockABI    int    // of the kernel, where commands can use it; else 0
	LandlockReason string // why they cannot

	AppArmor       string // the profile of sandboxes; "" where they have none of their own
	AppArmorReason string // why; "" where the kernel has no AppArmor
}

// EBPF says whether the kernel itself enforces network policies.
type EBPF struct {
	On     bool
	Errnos bool   // a refused connect fails with EACCES; else EPERM
	Reason string // why it is not on
}

// Network is what enforces the policy of a sandbox.
type Network interface {
	// State says how: api.Isolation.Enforcement, api.NetEnforcement.Proxy, and a detail for people.
	State() (enforcement, proxy, detail string)
}
