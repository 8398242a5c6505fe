package api

import "encoding/json"

// Encoding says how bytes travel in JSON.
type Encoding string

// Text is UTF-8, used where the bytes are; Base64 otherwise or when asked for.
const (
	Text   Encoding = "utf-8"
	Base64 Encoding = "base64"
)

// Verdict says how an exec ended.
type Verdict string

// The verdicts.
const (
	VerdictOK          Verdict = "ok"
	VerdictNonzero     Verdict = "nonzero"
	VerdictSignal      Verdict = "signal"
	VerdictTimeoutWall Verdict = "timeout_wall"
	VerdictTimeoutCPU  Verdict = "timeout_cpu"
	VerdictOOM         Verdict = "oom"
	VerdictPIDs        Verdict = "pids"
	VerdictDisk        Verdict = "disk"
	VerdictOutput      Verdict = "output"
	VerdictDenied      Verdict = "denied"
	VerdictKilled      Verdict = "killed"    // by exec.kill or sandbox.kill
	VerdictNotRun      Verdict = "not_run"   // not found, not executable, bad user or folder
	VerdictSandbox     Verdict = "sandbox"   // the sandbox ended first
	VerdictCanceled    Verdict = "cancelled" // the caller went away
)

// ExecParams are exec.run's params.
type ExecParams struct {
	Sandbox  string            `json:"sandbox"`
	Argv     []string          `json:"argv,omitempty"`    // exactly one of Argv and Command
	Command  string            `json:"command,omitempty"` // run by the sandbox's shell
	Env      map[string]string `json:"env,omitempty"`     // over the sandbox's
	Cwd      string            `json:"cwd,omitempty"`     // absolute; default: the sandbox's workdir
	User     string            `json:"user,omitempty"`    // default: the sandbox's user
	Stdin    string            `json:"stdin,omitempty"`
	Encoding Encoding          `json:"encoding,omitempty"` // of Stdin, and wanted for the output
	// TimeoutS is the wall time after which the command and everything it
	// started is killed; nil is the sandbox's default.
	TimeoutS    *float64   `json:"timeout_s,omitempty"`
	Limits      *Limits    `json:"limits,omitempty"`
	Network     *NetPolicy `json:"network,omitempty"`
	OutputBytes int64      `json:"output_bytes,omitempty"` // cap of each captured stream in the reply; default 1 MiB

	// FDs is the number of fds that ride on this request; Stdio are indexes into
	// them. With Stdio nothing is captured.
	FDs   int    `json:"fds,omitempty"`
	Stdio *Stdio `json:"stdio,omitempty"`
	// Pty asks for a terminal in the sandbox; Stdio.Stdin and Stdio.Stdout are
	// then the pipes that carry it, and Stdio.Stderr is unused.
	Pty *Pty `json:"pty,omitempty"`
	// Progress asks for a notification with the exec's id when it has started.
	Progress bool `json:"progress,omitempty"`
}

// Stdio are indexes into the fds of a request. A missing one is /dev/null.
type Stdio struct {
	Stdin  *int `json:"stdin,omitempty"`
	Stdout *int `json:"stdout,omitempty"`
	Stderr *int `json:"stderr,omitempty"`
}

// Pty is a terminal's size in characters.
type Pty struct {
	Rows uint16 `json:"rows"`
	Cols uint16 `json:"cols"`
}

// ExecResult is exec.run's result.
type ExecResult struct {
	Exec           string   `json:"exec"`
	ExitCode       int      `json:"exit_code"`
	Signal         string   `json:"signal,omitempty"` // "SIGKILL"; exit_code is then 128+n
	Verdict        Verdict  `json:"verdict"`
	TimedOut       bool     `json:"timed_out"`
	Stdout         string   `json:"stdout"`
	StdoutEncoding Encoding `json:"stdout_encoding"`
	Stderr         string   `json:"stderr"`
	StderrEncoding Encoding `json:"stderr_encoding"`
	Truncated      bool     `json:"truncated"` // the middle of a stream is missing
	DurationMS     float64  `json:"duration_ms"`
	Peaks          Peaks    `json:"peaks"`
	Killed         []int    `json:"killed"`
	Denials        []Denial `json:"denials"`
	// Error says why a command with the verdict not_run never ran.
	Error string `json:"error,omitempty"`
}

// Peaks are the most that an exec used.
type Peaks struct {
	MemoryBytes int64   `json:"memory_bytes"`
	CPUMS       float64 `json:"cpu_ms"` // user and system time together
}

// Denial is an operation that the sandbox refused.
type Denial struct {
	Kind       string `json:"kind"` // net, fs, syscall, limit
	Target     string `json:"target"`
	Rule       string `json:"rule"`
	Why        string `json:"why"`
	HowToAllow string `json:"how_to_allow"`
}

// ResizeParams are exec.resize's params; Exec also takes the id that exec.run's
// progress notification announced.
type ResizeParams struct {
	Exec string `json:"exec"`
	Pty
}

// SignalParams are exec.signal's params.
type SignalParams struct {
	Exec   string `json:"exec"`
	Signal string `json:"signal"` // "SIGINT", "INT" or "2"
}

// Progress is the params of a `progress` notification: news about a request
// that is still running. A client gets it when it set "progress": true in the
// request's params.
type Progress struct {
	Request json.RawMessage `json:"request"` // the request's id
	Kind    string          `json:"kind"`    // "exec.started", "image.progress"
	Exec    string          `json:"exec,omitempty"`
	PID     int             `json:"pid,omitempty"`
	Layer   string          `json:"layer,omitempty"`
	Phase   string          `json:"phase,omitempty"`
	Done    int64           `json:"done,omitempty"`  // bytes
	Total   int64           `json:"total,omitempty"` // bytes, -1 when unknown
}
