package launchapi

// The first message that hutch-launch gets, on BootFD, from the monitor.
//
// The monitor starts hutch-launch from a sealed memfd in a new user and mount
// namespace with every capability ambient, because it can write the id maps
// only while the child exists: until then the child's uid is unmapped and an
// exec would otherwise drop its capabilities (capabilities(7)). hutch-launch
// waits for Boot, which says that the maps are written, and becomes uid 0.

// BootFD is where hutch-launch finds its socket to the monitor.
const BootFD = 3

// Boot tells hutch-launch how to start. Its fds: [0] the hutchd binary, [1] the
// hutch-init binary, both read-only, [2] hutchd's channel to the monitor.
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
	// HutchdArgs is hutchd's argv, its name first. HutchdEnv is its whole
	// environment. Its standard input and output are /dev/null, its standard error
	// is hutch-launch's.
	HutchdArgs []string `json:"hutchd_args"`
	HutchdEnv  []string `json:"hutchd_env"`
}

// Booted is hutch-launch's answer to Boot, and its last word: Error when it
// could not start hutchd, DaemonPID otherwise.
type Booted struct {
	DaemonPID int    `json:"daemon_pid,omitempty"`
	Error     *Error `json:"error,omitempty"`
}

// Fds that hutchd finds open when hutch-launch starts it.
const (
	DaemonLaunchFD  = 3 // launchapi channel to hutch-launch
	DaemonMonitorFD = 4 // channel to the monitor
)
