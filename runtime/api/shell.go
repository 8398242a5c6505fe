package api

import "strings"

// ShellParams are shell.open's params.
type ShellParams struct {
	Sandbox string            `json:"sandbox"`
	User    string            `json:"user,omitempty"` // default: the sandbox's user
	Cwd     string            `json:"cwd,omitempty"`  // absolute; default: the sandbox's workdir
	Env     map[string]string `json:"env,omitempty"`  // over the sandbox's
}

// Shell is the record of a stateful shell.
type Shell struct {
	Shell   string `json:"shell"`
	Sandbox string `json:"sandbox"`
	// Exec is the exec that the shell is: it can be read, attached to and killed.
	Exec string `json:"exec"`
	PID  int    `json:"pid"` // in the sandbox
	// Runs is the number of the last command that was run in it, 0 before the first.
	Runs uint64 `json:"runs"`
	// Busy says that a command runs in it, Over that the shell has ended.
	Busy bool `json:"busy"`
	Over bool `json:"over"`
}

// Shells is shell.list's result, oldest first.
type Shells struct {
	Shells []Shell `json:"shells"`
}

// ShellRef names one shell.
type ShellRef struct {
	Shell string `json:"shell"`
}

// ShellRunParams are shell.run's params.
type ShellRunParams struct {
	Shell   string `json:"shell"`
	Command string `json:"command"` // one line or many; its stdin is /dev/null
	// Run, when set, is the number of the command: one more than that of the last. The same
	// number and command again wait for that command instead of running another, and give
	// its result: for callers whose call was lost with the daemon.
	Run uint64 `json:"run,omitempty"`
	// TimeoutS is as exec.run's. A command that is killed by it leaves the shell as it
	// was before.
	TimeoutS    *float64 `json:"timeout_s,omitempty"`
	Encoding    Encoding `json:"encoding,omitempty"`     // wanted for the output
	OutputBytes int64    `json:"output_bytes,omitempty"` // as exec.run's
}

// ShellResult is shell.run's result. ExecResult.Exec is the shell's.
type ShellResult struct {
	Shell string `json:"shell"`
	Run   uint64 `json:"run"` // the number of the command
	// Closed says that the shell has ended with the command, by exit say.
	Closed bool `json:"closed"`
	// From and To are where the command's output is in the streams of the exec.
	From Offsets `json:"from"`
	To   Offsets `json:"to"`
	ExecResult
}

// MaxShellCommand bounds a command of shell.run, in bytes.
const MaxShellCommand = 1 << 20

// Validate refuses params that no shell could run.
func (p *ShellRunParams) Validate() error {
	switch {
	case strings.TrimSpace(p.Command) == "":
		return invalid("command", "missing").WithHint("give a shell command")
	case strings.ContainsRune(p.Command, 0):
		return invalid("command", "holds a NUL byte")
	case len(p.Command) > MaxShellCommand:
		return invalid("command", "has %d bytes, at most %d are possible", len(p.Command), MaxShellCommand).
			WithHint("write a file with fs.write, and run that")
	case p.OutputBytes < 0 || p.OutputBytes > MaxOutputBytes:
		return invalid("output_bytes", "%d is not possible", p.OutputBytes).WithHint("use at most %d", MaxOutputBytes)
	case p.TimeoutS != nil && (*p.TimeoutS <= 0 || *p.TimeoutS > MaxSeconds):
		return invalid("timeout_s", "%g is no timeout", *p.TimeoutS).WithHint("give seconds, or leave it out")
	}
	return checkEncoding(p.Encoding)
}
