package launchapi

// The protocol between hutch-launch and the monitor, which starts it, on a
// SOCK_SEQPACKET socket (internal/packet):
//
//	monitor -> hutch-launch                  hutch-launch -> monitor
//	Boot{...}                    fds       News{Hello: {...}} | News{Error}
//	Order{Start: {...}}          fds         News{Started: {...}} | News{Error}
//	                                         News{Ended: {...}}
//	Order{End: true}
//
// The monitor starts hutch-launch from a sealed memfd in a new user and mount
// namespace with every capability ambient, because it can write the id maps
// only while the child exists: until then the child's uid is unmapped and an
// exec would otherwise drop its capabilities (capabilities(7)). hutch-launch
// waits for Boot, which says that the maps are written, and becomes uid 0.
//
// A monitor that finds a hutch-launch whose own monitor has died connects to the
// socket of Boot and is sent News{Hello}; from then on it is the monitor.

// BootFD is where hutch-launch finds its socket to the monitor.
const BootFD = 3

// Boot is the first message, once. Its fds: [0] the hutch-init binary, [1] with
// Keep, a bound SOCK_SEQPACKET socket, on which hutch-launch listens; any others
// are held open for as long as hutch-launch lives.
type Boot struct {
	// StateDir is the state root as the monitor sees it. hutch-launch binds it
	// to Mount in its own mount namespace while it still has the caller's kernel
	// uid, because started by root that is the only uid that may be able to walk
	// the path (a state root below /root).
	StateDir string `json:"state_dir"`
	// Mount is where the daemon and every sandbox launch see the state root: an
	// empty folder in the runtime folder. Short, so that overlay options fit. Once
	// it runs, hutchd's uid (not the caller's, started by root) must be able to
	// walk to it.
	Mount string `json:"mount"`
	// SetGroups is false where the kernel forbids setgroups(2): a single-uid map
	// written without privilege.
	SetGroups bool `json:"set_groups"`
	// Keep says that sandboxes outlive the monitor and hutchd. Without it
	// hutch-launch ends with either of them, and everything with it.
	Keep bool `json:"keep"`
	// Socket is the path of the bound socket. When it is removed, nobody can come any
	// more, and the sandboxes end with the monitor.
	Socket string `json:"socket,omitempty"`
}

// Order is a message from the monitor; exactly one field is set.
type Order struct {
	Start *Start `json:"start,omitempty"`
	// End asks for the end of hutchd, all sandboxes and hutch-launch itself.
	End bool `json:"end,omitempty"`
}

// Start asks for a hutchd, when none runs. Its fds: [0] the hutchd binary,
// read-only, [1] hutchd's channel to the monitor.
type Start struct {
	// Args is hutchd's argv, its name first. Env is its whole environment. Its
	// standard input and output are /dev/null, its standard error is hutch-launch's.
	Args []string `json:"args"`
	Env  []string `json:"env"`
}

// News is a message from hutch-launch; exactly one field is set.
type News struct {
	Hello   *Hello   `json:"hello,omitempty"`
	Started *Started `json:"started,omitempty"`
	Ended   *Ended   `json:"ended,omitempty"`
	// Error says why hutch-launch, which then exits, or hutchd did not start.
	Error *Error `json:"error,omitempty"`
}

// Hello greets a monitor: the first when hutch-launch has booted.
type Hello struct {
	Version int `json:"version"` // of this protocol and hutchd's
}

// Started says that hutchd runs.
type Started struct {
	PID int `json:"pid"` // in the monitor's pid namespace
}

// Ended says that hutchd has ended otherwise than with status 0, upon which
// hutch-launch would have ended, too. With Keep the sandboxes are still there and
// wait for the next Start.
type Ended struct {
	Status int `json:"status"` // wait status, as wait4(2) gives it
}

// Fds that hutchd finds open when hutch-launch starts it.
const (
	DaemonLaunchFD  = 3 // launchapi channel to hutch-launch
	DaemonMonitorFD = 4 // channel to the monitor
)
