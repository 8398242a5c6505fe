package api

import (
	"slices"
	"strings"
)

// ExecMode says where commands run.
type ExecMode string

// The modes, the strictest first.
const (
	ExecModeAll       ExecMode = "all"       // all of them in sandboxes
	ExecModeSelective ExecMode = "selective" // a scan decides: what is risky in a sandbox, the rest on the host
	ExecModeOff       ExecMode = "off"       // all of them on the host
)

// ExecModes are all there are, the strictest first.
var ExecModes = []ExecMode{ExecModeAll, ExecModeSelective, ExecModeOff}

// Weaker says that m holds less than other.
func (m ExecMode) Weaker(other ExecMode) bool {
	return slices.Index(ExecModes, m) > slices.Index(ExecModes, other)
}

// CheckExecMode refuses what is no mode; "" is the configured one.
func CheckExecMode(m ExecMode) error {
	if m != "" && !slices.Contains(ExecModes, m) {
		return invalid("mode", "%.40q is no mode", m).WithHint("use all, selective or off")
	}
	return nil
}

// HostExecution says whether clients are ever told to run a command on the host.
type HostExecution string

// The values of host_execution in the configuration.
const (
	HostRefused HostExecution = "refused" // modes selective and off are errors
	HostAllowed HostExecution = "allowed"
)

// AuditHost is the audit log of what ran on the host, in the place of a sandbox's.
const AuditHost = "host"

// Bounds of what exec.decide looks at, in bytes and entries.
const (
	MaxDecideArgs = 4096
	// MaxHostExecs is how many commands a connection may have on the host at once, as far as they are reported.
	MaxHostExecs = 256
)

// DecideParams are exec.decide's params: a command as exec.run has it, a text for the shell, or code.
type DecideParams struct {
	Mode    ExecMode `json:"mode,omitempty"`    // default: the configuration's
	Sandbox string   `json:"sandbox,omitempty"` // where it runs if not on the host, if there is one already
	Argv    []string `json:"argv,omitempty"`    // exactly one of Argv, Command, and Language with Code
	Command string   `json:"command,omitempty"` // for bash
	// Language and Code are what code.run takes, for an interpreter of its own or one that the caller keeps on the
	// host.
	Language string `json:"language,omitempty"`
	Code     string `json:"code,omitempty"`
	// ReadOnly is the caller's word that on the host it lets the command write nothing, connect to nothing and read no
	// file of the user's but those below its folder. Without it mode selective leaves to the host what has no finding
	// at all.
	ReadOnly bool `json:"read_only,omitempty"`
	// TimeoutS is the wall time after which the caller is to kill it; nil is the configuration's exec.timeout_s, 0
	// none.
	TimeoutS *float64 `json:"timeout_s,omitempty"`
}

// Validate refuses impossible params.
func (p *DecideParams) Validate() error {
	if err := CheckExecMode(p.Mode); err != nil {
		return err
	}
	given := 0
	for _, is := range []bool{len(p.Argv) > 0, p.Command != "", p.Language != "" || p.Code != ""} {
		if is {
			given++
		}
	}
	size := len(p.Command)
	for _, a := range p.Argv {
		size += len(a) + 1
	}
	switch {
	case given != 1:
		return invalid("argv", "%d of argv, command and code are given", given).
			WithHint("give exactly one of argv, command, and language with code")
	case len(p.Argv) > MaxDecideArgs || size > MaxCodeBytes:
		return invalid("argv", "%d arguments with %d bytes", len(p.Argv), size).
			WithHint("give at most %d, with %d bytes", MaxDecideArgs, MaxCodeBytes)
	case slices.ContainsFunc(append(p.Argv, p.Command), func(a string) bool { return strings.ContainsRune(a, 0) }):
		return invalid("argv", "a NUL byte is in it").WithHint("no command line can hold one")
	case p.TimeoutS != nil && !(*p.TimeoutS >= 0 && *p.TimeoutS <= MaxSeconds):
		return invalid("timeout_s", "%g is not possible", *p.TimeoutS).WithHint("use 0 to %d seconds", MaxSeconds)
	}
	if p.Language != "" || p.Code != "" {
		return (&CodeParams{Sandbox: "any", Language: p.Language, Code: p.Code}).Validate()
	}
	return nil
}

// Where is where a command runs.
type Where string

// The places. WhereNowhere is in records only: of what was asked for and refused.
const (
	WhereSandbox Where = "sandbox"
	WhereHost    Where = "host"
	WhereNowhere Where = "refused"
)

// Decision is exec.decide's result. Of a command on the host the daemon has recorded that it runs, and waits for
// exec.record_host with its id; the daemon itself runs nothing there.
type Decision struct {
	Decision Where    `json:"decision"` // sandbox or host
	ID       string   `json:"id,omitempty"`
	Mode     ExecMode `json:"mode"`   // in force
	Reason   string   `json:"reason"` // in a sentence
	// Findings are what a scan has found, those that decided first; of mode selective only.
	Findings []Finding `json:"findings"`
	// Cwd is the user's folder that is the sandbox's workspace, where a command on the host is to run; "" where there
	// is none.
	Cwd string `json:"cwd,omitempty"`
	// TimeoutS is the wall time after which the caller is to kill it; 0 is none.
	TimeoutS float64 `json:"timeout_s,omitempty"`
}

// HostEndParams are exec.record_host's params: how a command on the host ended, as its caller says.
type HostEndParams struct {
	ID         string  `json:"id"` // as exec.decide gave it
	ExitCode   int     `json:"exit_code"`
	Signal     string  `json:"signal,omitempty"` // "SIGKILL"; exit_code is then 128+n
	TimedOut   bool    `json:"timed_out,omitempty"`
	DurationMS float64 `json:"duration_ms"`
	Error      string  `json:"error,omitempty"` // why it never ran, or what became of it
}

// Validate refuses impossible params.
func (p *HostEndParams) Validate() error {
	switch {
	case p.ID == "":
		return invalid("id", "missing").WithHint("exec.decide returns one")
	case p.ExitCode < 0 || p.ExitCode > 255:
		return invalid("exit_code", "%d is not 0 to 255", p.ExitCode)
	case len(p.Signal) > 32 || strings.Trim(p.Signal, letters+strings.ToUpper(letters)+digits+"+") != "":
		return invalid("signal", "%.40q is no signal", p.Signal).WithHint("use a name such as SIGKILL")
	case !(p.DurationMS >= 0 && p.DurationMS <= MaxSeconds*1e3):
		return invalid("duration_ms", "%g is not possible", p.DurationMS)
	case len(p.Error) > 4096:
		return invalid("error", "%d bytes", len(p.Error)).WithHint("give at most 4096")
	}
	return nil
}

// DecidedEvent is the data of the event exec.decided. Like exec.started it names the program and not its arguments.
type DecidedEvent struct {
	Decision Where    `json:"decision"`
	Mode     ExecMode `json:"mode"`
	Reason   string   `json:"reason"`
	Program  string   `json:"program,omitempty"`
	Rules    []string `json:"rules,omitempty"` // of the findings
}

// HostExitedEvent is the data of exec.host_exited.
type HostExitedEvent struct {
	// Reported is false where the caller has gone without a word: how the command ended, or whether, nobody knows.
	Reported   bool    `json:"reported"`
	ExitCode   *int    `json:"exit_code,omitempty"` // all that follows is the caller's word
	Signal     string  `json:"signal,omitempty"`
	TimedOut   bool    `json:"timed_out,omitempty"`
	DurationMS float64 `json:"duration_ms,omitempty"` // of one that was not reported: until the caller was gone
	Error      string  `json:"error,omitempty"`
}

// AuditDecision is the data of exec.decided in the log "host".
type AuditDecision struct {
	DecidedEvent
	Sandbox  string    `json:"sandbox,omitempty"` // that the caller has named
	Argv     []string  `json:"argv,omitempty"`
	Command  string    `json:"command,omitempty"`
	Language string    `json:"language,omitempty"`
	Code     any       `json:"code,omitempty"` // AuditContent
	Findings []Finding `json:"findings,omitempty"`
	ReadOnly bool      `json:"read_only,omitempty"` // the caller's word
}
