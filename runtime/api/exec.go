package api

import (
	"encoding/json"
	"time"
)

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
	VerdictTimeoutCPU  Verdict = "timeout_cpu" // used up limits.cpu_time_s, whatever it made of that
	// VerdictOOM: it failed, and a process of the sandbox was killed for memory
	// meanwhile. Only where the sandbox has a memory cgroup.
	VerdictOOM Verdict = "oom"
	// VerdictPIDs: it failed, and the sandbox's limit of processes refused a fork
	// meanwhile. Only where the sandbox has a pids cgroup: RLIMIT_NPROC does not tell.
	VerdictPIDs Verdict = "pids"
	// VerdictDisk: the sandbox has reached limits.disk_bytes or inodes, or a file that or
	// limits.rlimits.fsize. A full disk of the host is an errno to the command, which nobody
	// else sees.
	VerdictDisk   Verdict = "disk"
	VerdictOutput Verdict = "output" // wrote more than limits.output_bytes
	// VerdictDenied: it died of SIGSYS, which is what seccomp has for calls by another
	// architecture's entry, and for those that a profile of the caller's own kills or traps (a program
	// can also send it to itself, or have a filter of its own). All other refused calls are an errno to the command.
	VerdictDenied   Verdict = "denied"
	VerdictKilled   Verdict = "killed"    // by exec.kill or sandbox.kill
	VerdictNotRun   Verdict = "not_run"   // not found, not executable, bad user or folder
	VerdictSandbox  Verdict = "sandbox"   // the sandbox ended first
	VerdictCanceled Verdict = "cancelled" // the caller went away
	VerdictLost     Verdict = "lost"      // hutch-launch died, and how the command ended with it
)

// ExecParams are exec.run's params.
type ExecParams struct {
	Sandbox string `json:"sandbox"`
	// Exec is the exec's id when the caller chooses it: "ex_" and 12 to 32 lower-case
	// letters and digits, used once. A caller that loses its connection before it is told
	// the id can then still ask what became of the command.
	Exec     string            `json:"exec,omitempty"`
	Argv     []string          `json:"argv,omitempty"`     // exactly one of Argv and Command
	Command  string            `json:"command,omitempty"`  // run by the sandbox's shell
	Env      map[string]string `json:"env,omitempty"`      // over the sandbox's
	Cwd      string            `json:"cwd,omitempty"`      // absolute; default: the sandbox's workdir
	User     string            `json:"user,omitempty"`     // default: the sandbox's user
	Stdin    string            `json:"stdin,omitempty"`    // all that it reads
	Encoding Encoding          `json:"encoding,omitempty"` // of Stdin, and wanted for the output
	// TimeoutS is the wall time after which the command and everything it
	// started is killed, at most the daemon's exec.max_timeout_s. nil is the
	// sandbox's limits.timeout_s, else the daemon's exec.timeout_s. Background
	// commands and those with a Pty have no timeout unless one is given, no
	// maximum, and 0 is none.
	TimeoutS    *float64   `json:"timeout_s,omitempty"`
	Limits      *Limits    `json:"limits,omitempty"`
	Network     *NetPolicy `json:"network,omitempty"`
	OutputBytes int64      `json:"output_bytes,omitempty"` // cap of each captured stream in the reply; default 1 MiB

	// Background, of exec.start: stdin is empty instead of open for exec.write.
	Background bool `json:"background,omitempty"`

	// FDs is the number of fds that ride on this request; Stdio are indexes into
	// them. With Stdio nothing is captured.
	FDs   int    `json:"fds,omitempty"`
	Stdio *Stdio `json:"stdio,omitempty"`
	// Pty asks for a terminal in the sandbox. With Stdio, its Stdin and Stdout are the
	// pipes, sockets or terminals that carry it, and its Stderr is unused; without, what
	// appears on it is the exec's stdout, and exec.write types.
	Pty *Pty `json:"pty,omitempty"`
	// Detachable, of a Pty with Stdio: the terminal outlives its fds. Their end is not the
	// end of input, what appears is also kept as without Stdio, and exec.write types, too.
	Detachable bool `json:"detachable,omitempty"`
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
	Rows uint16 `json:"rows"` // lines
	Cols uint16 `json:"cols"` // columns
}

// ExecResult is exec.run's result.
type ExecResult struct {
	Exec           string   `json:"exec"`
	ExitCode       int      `json:"exit_code"`
	Signal         string   `json:"signal,omitempty"` // "SIGKILL"; exit_code is then 128+n
	Verdict        Verdict  `json:"verdict"`
	TimedOut       bool     `json:"timed_out"`
	Stdout         string   `json:"stdout"` // as StdoutEncoding says
	StdoutEncoding Encoding `json:"stdout_encoding"`
	Stderr         string   `json:"stderr"` // as StderrEncoding says
	StderrEncoding Encoding `json:"stderr_encoding"`
	Truncated      bool     `json:"truncated"` // the middle of a stream is missing, or what a full disk did not take
	DurationMS     float64  `json:"duration_ms"`
	Peaks          Peaks    `json:"peaks"`
	// Limit is the limit behind the verdict, of memory, processes or disk space.
	Limit   *LimitHit `json:"limit,omitempty"`
	Killed  []int     `json:"killed"`
	Denials []Denial  `json:"denials"`
	// Failures are connections that the policy allows, and that failed outside while the command ran.
	Failures []Failure `json:"failures,omitempty"`
	// Policy is the paragraph of /run/hutch/policy.txt about what was refused now for the third time: the sandbox gets
	// it once of each kind.
	Policy string `json:"policy,omitempty"`
	// Unguarded are names of the workspace's guard that turned up since the command before.
	Unguarded []Unguarded `json:"unguarded,omitempty"`
	// Hint is what to do about a command that failed, where its own message cannot know: who installs something
	// in the image host, or is killed by a rule of the sandbox's own seccomp profile.
	Hint string `json:"hint,omitempty"`
	// Error says why a command with the verdict not_run never ran.
	Error string `json:"error,omitempty"`
}

// LimitHit is a limit that ended a command, or made it fail.
type LimitHit struct {
	Name  string `json:"name"`           // "memory_bytes", "pids", "disk_bytes", "inodes", "rlimits.fsize": as in Limits
	Of    string `json:"of"`             // "sandbox" or "exec"
	Limit int64  `json:"limit"`          // its value
	Peak  int64  `json:"peak,omitempty"` // the most that was in use at once, of the same
	Hint  string `json:"hint"`
}

// Peaks are the most that an exec used.
type Peaks struct {
	MemoryBytes int64   `json:"memory_bytes"` // of all its processes together
	CPUMS       float64 `json:"cpu_ms"`       // user and system time together
	// DiskBytes and Inodes are what the whole sandbox has written and kept, as far as it was
	// seen; only with a limit of it.
	DiskBytes int64 `json:"disk_bytes,omitempty"`
	Inodes    int64 `json:"inodes,omitempty"`
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
	Kind    string          `json:"kind"`    // "exec.started", "image.progress", "image.ready", "debug.break", "template.step", "code.output"
	Exec    string          `json:"exec,omitempty"`
	PID     int             `json:"pid,omitempty"`     // in the sandbox
	Sandbox string          `json:"sandbox,omitempty"` // of kind "exec.started" of sandbox.run, with what is not as it was asked for:
	Note    string          `json:"note,omitempty"`    // see Sandbox
	// Unenforced are limits, see Sandbox.
	Unenforced []Unenforced  `json:"unenforced,omitempty"`
	Layer      string        `json:"layer,omitempty"`  // of an image
	Phase      string        `json:"phase,omitempty"`  // what is done with the layer
	Done       int64         `json:"done,omitempty"`   // bytes
	Total      int64         `json:"total,omitempty"`  // bytes, -1 when unknown
	Break      *BreakPoint   `json:"break,omitempty"`  // of kind "debug.break"
	Step       *StepProgress `json:"step,omitempty"`   // of kind "template.step"
	Stream     Stream        `json:"stream,omitempty"` // of kind "code.output"
	Text       string        `json:"text,omitempty"`   // written to it; bytes that are no text are replaced
}

// Exec is the record of one exec.
type Exec struct {
	Exec       string    `json:"exec"`
	Sandbox    string    `json:"sandbox"`
	State      ExecState `json:"state"`
	Argv       []string  `json:"argv,omitempty"`
	Command    string    `json:"command,omitempty"`
	Background bool      `json:"background"`     // its stdin is empty
	Kept       bool      `json:"kept,omitempty"` // hutch talks to it: the interpreter of a code.run, or a shell
	TTY        bool      `json:"tty"`            // it has a terminal
	PID        int       `json:"pid"`            // in the sandbox
	Started    time.Time `json:"started"`
	// StdoutBytes and StderrBytes are how much there is to read so far.
	StdoutBytes int64 `json:"stdout_bytes"`
	StderrBytes int64 `json:"stderr_bytes"`
	// Of an exec that has ended.
	ExitCode   *int    `json:"exit_code,omitempty"`
	Verdict    Verdict `json:"verdict,omitempty"`
	DurationMS float64 `json:"duration_ms,omitempty"`
}

// ExecState says whether an exec still runs.
type ExecState string

// The states of an exec.
const (
	ExecRunning ExecState = "running"
	ExecExited  ExecState = "exited"
)

// Execs is exec.list's result, oldest first.
type Execs struct {
	Execs []Exec `json:"execs"`
}

// StartResult is exec.start's result.
type StartResult struct {
	Exec string `json:"exec"`
	PID  int    `json:"pid"` // in the sandbox
}

// ExecRef names one exec.
type ExecRef struct {
	Exec string `json:"exec"`
}

// WaitParams are exec.wait's params. Waiting never kills.
type WaitParams struct {
	Exec string `json:"exec"`
	// WaitS is how long to wait, in seconds; without it, until the exec ends. When
	// the time is over the call fails with deadline_exceeded and the exec goes on.
	WaitS       *float64 `json:"wait_s,omitempty"`
	Encoding    Encoding `json:"encoding,omitempty"`
	OutputBytes int64    `json:"output_bytes,omitempty"`
}

// ReadParams are exec.read's params.
type ReadParams struct {
	Exec   string `json:"exec"`
	Stream Stream `json:"stream"`
	Offset int64  `json:"offset"`          // of the first byte wanted; negative: so many bytes before the end
	Limit  int64  `json:"limit,omitempty"` // bytes; default 256 KiB
	// WaitS is how long to wait for a byte at Offset, in seconds, while the exec
	// runs; 0 returns what there is.
	WaitS    float64  `json:"wait_s,omitempty"`
	Encoding Encoding `json:"encoding,omitempty"`
}

// Stream names an output stream.
type Stream string

// The output streams.
const (
	Stdout Stream = "stdout"
	Stderr Stream = "stderr"
)

// Chunk is exec.read's result: the bytes [Offset, Next) of a stream. Offset is
// behind the one asked for when what was between has been dropped.
type Chunk struct {
	Offset   int64    `json:"offset"`
	Next     int64    `json:"next"`
	Data     string   `json:"data"`
	Encoding Encoding `json:"encoding"`
	EOF      bool     `json:"eof"` // the exec has ended and Next is the end
}

// WriteParams are exec.write's params.
type WriteParams struct {
	Exec     string   `json:"exec"`
	Data     string   `json:"data"`
	Encoding Encoding `json:"encoding,omitempty"`
}
