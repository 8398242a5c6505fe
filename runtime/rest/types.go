package rest

import (
	"time"

	"github.com/hutch-sh/hutch/runtime/api"
)

// NewSandbox asks for a sandbox.
type NewSandbox struct {
	TemplateID string             `json:"templateID,omitempty" doc:"name of a template (GET /templates)"`
	Image      string             `json:"image,omitempty" doc:"instead of templateID: reference of an image, such as python:3.12, or host, the programs of this machine; default host"`
	Name       string             `json:"name,omitempty" doc:"unique among living sandboxes; works where an id does"`
	Timeout    *float64           `json:"timeout,omitempty" doc:"seconds until the sandbox is removed, 0 for no end; default 300" schema:"minimum=0,maximum=3153600000"`
	Idle       *float64           `json:"idle,omitempty" doc:"seconds without a process after which the sandbox is removed, 0 for any; default 0" schema:"minimum=0,maximum=1000000000"`
	OnTimeout  api.LifeAction     `json:"onTimeout,omitempty" doc:"what happens then instead of the removal" enum:"remove|stop|pause"`
	Metadata   map[string]string  `json:"metadata,omitempty" doc:"labels, for lists and for people"`
	Env        map[string]string  `json:"env,omitempty" doc:"variables of every process"`
	Workdir    string             `json:"workdir,omitempty" doc:"absolute; default that of the image"`
	User       string             `json:"user,omitempty" doc:"name or uid, with :group or :gid; default that of the image"`
	Limits     *Limits            `json:"limits,omitempty"`
	Network    *NetworkPolicy     `json:"network,omitempty" doc:"default that of the template, or of the daemon's configuration: none, if that says nothing"`
	Undo       bool               `json:"undo,omitempty" doc:"keep what files were before each tool call and each run of code, so that it can be undone"`
	ReadOnly   bool               `json:"readOnly,omitempty" doc:"files can be changed only in /tmp, /var/tmp, /run and /dev/shm"`
	Seccomp    api.SeccompProfile `json:"seccomp,omitempty" doc:"which system calls processes may make" enum:"default|strict|build|browser"`
	Scope      *Scope             `json:"scope,omitempty" doc:"the sandbox of an agent, session or user: the same one each time"`
	Volumes    []Volume           `json:"volumes,omitempty"`
}

// Scope is whose sandbox it is, so that the same one is there each time.
type Scope struct {
	Kind api.ScopeKind `json:"kind" enum:"session|agent|shared"`
	Key  string        `json:"key" doc:"printable, without spaces" schema:"minLength=1,maxLength=128"`
}

func (s *Scope) scope() *api.Scope {
	if s == nil {
		return nil
	}
	return &api.Scope{Kind: s.Kind, Key: s.Key}
}

// Volume is a named volume in a sandbox, made if there is none.
type Volume struct {
	Name     string `json:"name"`
	Path     string `json:"path" doc:"absolute, in the sandbox"`
	ReadOnly bool   `json:"readOnly,omitempty"`
}

// Limits bound a sandbox. What is missing or 0 is the daemon's default, and -1 is no limit.
type Limits struct {
	CPUs       float64 `json:"cpus,omitempty" doc:"CPU time per wall time: 1.5 is one and a half cores" schema:"minimum=-1,maximum=4096"`
	MemoryMB   int64   `json:"memoryMB,omitempty" doc:"memory of all processes together, in MiB" schema:"minimum=-1,maximum=1000000000"`
	DiskMB     int64   `json:"diskMB,omitempty" doc:"what the sandbox may write and keep, in MiB" schema:"minimum=-1,maximum=1000000000"`
	PIDs       int64   `json:"pids,omitempty" doc:"processes and threads" schema:"minimum=-1,maximum=4194304"`
	BestEffort bool    `json:"bestEffort,omitempty" doc:"go on without limits that this machine cannot enforce, and say so in notes"`
}

// NetworkPolicy is what a sandbox may reach.
type NetworkPolicy struct {
	Mode       api.NetMode `json:"mode,omitempty" doc:"none: nothing; allow: what allow names; open: the public internet but for what block names; learn: as allow, and it is recorded what would be needed. Default allow where something is allowed, else none" enum:"none|allow|open|learn"`
	Allow      []string    `json:"allow,omitempty" doc:"names: example.com, *.example.com, example.com:8443, tcp://db.example.com:5432"`
	Block      []string    `json:"block,omitempty" doc:"names that are refused whatever allow says"`
	AllowCIDRs []string    `json:"allowCIDRs,omitempty" doc:"addresses that may be reached without a name: 10.1.0.0/16"`
	BlockCIDRs []string    `json:"blockCIDRs,omitempty" doc:"addresses that are refused whatever else is allowed"`
}

// Sandbox is the record of a sandbox.
type Sandbox struct {
	SandboxID  string            `json:"sandboxID"`
	Name       string            `json:"name,omitempty"`
	TemplateID string            `json:"templateID,omitempty"`
	Image      string            `json:"image"`
	State      api.State         `json:"state" enum:"creating|running|paused|waiting|stopped|failed"`
	Reason     string            `json:"reason,omitempty" doc:"why it stopped, failed or is paused"`
	Metadata   map[string]string `json:"metadata,omitempty"`
	StartedAt  time.Time         `json:"startedAt"`
	EndAt      *time.Time        `json:"endAt,omitempty" doc:"when its timeout is over"`
	Workdir    string            `json:"workdir"`
	Limits     Limits            `json:"limits" doc:"those in force"`
	Network    NetworkPolicy     `json:"network"`
	Notes      []string          `json:"notes,omitempty" doc:"what is not as it was asked for"`
	Existing   bool              `json:"existing,omitempty" doc:"it was there before: its scope, or its Idempotency-Key, had it"`
}

// Sandboxes is a list of sandboxes, oldest first.
type Sandboxes struct {
	Sandboxes []Sandbox `json:"sandboxes"`
}

// SandboxUpdate changes a sandbox that runs. What is missing stays.
type SandboxUpdate struct {
	Timeout *float64       `json:"timeout,omitempty" doc:"seconds that it lives from now on, 0 for no end"`
	Limits  *Limits        `json:"limits,omitempty"`
	Network *NetworkPolicy `json:"network,omitempty" doc:"the whole policy, in the place of the one it has"`
}

// NewProcess asks for a process.
type NewProcess struct {
	Cmd        string            `json:"cmd" doc:"a program, with args; without them a command line for the shell" schema:"minLength=1"`
	Args       []string          `json:"args,omitempty"`
	Env        map[string]string `json:"env,omitempty" doc:"over the sandbox's"`
	Cwd        string            `json:"cwd,omitempty" doc:"absolute; default the sandbox's workdir"`
	User       string            `json:"user,omitempty"`
	Timeout    *float64          `json:"timeout,omitempty" doc:"seconds after which it is killed, with all that it started; default that of the sandbox"`
	Stdin      string            `json:"stdin,omitempty" doc:"all that it reads"`
	Background bool              `json:"background,omitempty" doc:"answer when it runs, and not when it has ended; it has no timeout unless one is given"`
	OpenStdin  bool              `json:"openStdin,omitempty" doc:"with background: stdin is open for POST .../stdin, and the timeout is as without background, at most 1800"`
	TTY        *Terminal         `json:"tty,omitempty" doc:"run it in a terminal of this size, for a stream or in background: what appears there is stdout, POST .../stdin types, and it has no timeout unless one is given"`
	OutputMax  int64             `json:"outputMax,omitempty" doc:"bytes of each stream in the answer; default 1 MiB" schema:"minimum=0"`
	Encoding   api.Encoding      `json:"encoding,omitempty" doc:"of stdin, and wanted for output" enum:"utf-8|base64"`
}

// Terminal is the size of one, in characters.
type Terminal struct {
	Cols uint16 `json:"cols" schema:"minimum=1,maximum=65535"`
	Rows uint16 `json:"rows" schema:"minimum=1,maximum=65535"`
}

func (t Terminal) pty() api.Pty { return api.Pty{Rows: t.Rows, Cols: t.Cols} }

// ProcessUpdate changes a process that runs.
type ProcessUpdate struct {
	TTY Terminal `json:"tty" doc:"the size that its terminal has from now on"`
}

// Process is the record of a process.
type Process struct {
	ProcessID   string        `json:"processID"`
	SandboxID   string        `json:"sandboxID"`
	PID         int           `json:"pid" doc:"in the sandbox"`
	Cmd         string        `json:"cmd,omitempty" doc:"a command line of the shell"`
	Args        []string      `json:"args,omitempty" doc:"the program and its arguments, where it is no command line"`
	TTY         bool          `json:"tty,omitempty" doc:"it has a terminal"`
	State       api.ExecState `json:"state" enum:"running|exited"`
	StartedAt   time.Time     `json:"startedAt"`
	StdoutBytes int64         `json:"stdoutBytes"`
	StderrBytes int64         `json:"stderrBytes"`
	ExitCode    *int          `json:"exitCode,omitempty"`
	Verdict     api.Verdict   `json:"verdict,omitempty"`
	DurationMS  float64       `json:"durationMs,omitempty"`
}

// Processes is a list of processes, oldest first.
type Processes struct {
	Processes []Process `json:"processes"`
}

// Result is how a process ended. One that failed is no failed request.
type Result struct {
	ProcessID  string       `json:"processID" doc:"after a plain run nothing is kept under it but events"`
	Stdout     string       `json:"stdout"`
	Stderr     string       `json:"stderr"`
	Encoding   Encodings    `json:"encoding"`
	Truncated  bool         `json:"truncated" doc:"the middle of a stream is missing"`
	ExitCode   int          `json:"exitCode" doc:"128 + n after signal n; 126 and 127 as shells have them"`
	Signal     string       `json:"signal,omitempty" schema:"minLength=1"`
	TimedOut   bool         `json:"timedOut"`
	Verdict    api.Verdict  `json:"verdict" doc:"ok, nonzero, signal, timeout_wall, timeout_cpu, oom, pids, disk, output, denied, killed, not_run, sandbox, cancelled or lost"`
	Error      string       `json:"error,omitempty" doc:"why it could not be run"`
	DurationMS float64      `json:"durationMs"`
	Denials    []api.Denial `json:"denials,omitempty" doc:"what was refused meanwhile, by which rule, and how to allow it"`
	Policy     string       `json:"policy,omitempty" doc:"what the sandbox's policy says about what was refused now for the third time; once for each kind"`
	Hint       string       `json:"hint,omitempty"`
}

// Encodings are those of the two streams: utf-8, or base64 where bytes are no text.
type Encodings struct {
	Stdout api.Encoding `json:"stdout" enum:"utf-8|base64"`
	Stderr api.Encoding `json:"stderr" enum:"utf-8|base64"`
}

// Input is written to the stdin of a process that was started with background.
type Input struct {
	Data     string       `json:"data,omitempty"`
	Encoding api.Encoding `json:"encoding,omitempty" enum:"utf-8|base64"`
	Close    bool         `json:"close,omitempty" doc:"and close it"`
}

// Signal is sent to a process.
type Signal struct {
	Signal string `json:"signal" doc:"SIGINT, INT or 2"`
}

// Written is what became of an upload.
type Written struct {
	Files []WrittenFile `json:"files"`
}

// WrittenFile is a file that was written.
type WrittenFile struct {
	Path    string `json:"path"`
	Size    int64  `json:"size"`
	Created bool   `json:"created" doc:"it did not exist"`
}

// FileChange is something that is done with names.
type FileChange struct {
	Make string `json:"mkdir,omitempty" doc:"make this folder, and those above it"`
	From string `json:"from,omitempty" doc:"rename this"`
	To   string `json:"to,omitempty" doc:"to this"`
	User string `json:"user,omitempty"`
}

// Fork asks for sandboxes that go on from the files of another.
type Fork struct {
	Count    int               `json:"count,omitempty" doc:"how many; default 1" schema:"minimum=0,maximum=100"`
	Name     string            `json:"name,omitempty" doc:"of a single one"`
	Metadata map[string]string `json:"metadata,omitempty" doc:"over that of the sandbox"`
}

// NewSnapshot asks for a snapshot.
type NewSnapshot struct {
	Name     string            `json:"name,omitempty"`
	Metadata map[string]string `json:"metadata,omitempty"`
}

// Snapshots is a list of snapshots, oldest first.
type Snapshots struct {
	Snapshots []Snapshot `json:"snapshots"`
}

// Snapshot is what the files of a sandbox were. Processes and memory are not in it.
type Snapshot struct {
	SnapshotID string            `json:"snapshotID"`
	Name       string            `json:"name,omitempty"`
	Metadata   map[string]string `json:"metadata,omitempty"`
	SandboxID  string            `json:"sandboxID"`
	Image      string            `json:"image"`
	CreatedAt  time.Time         `json:"createdAt"`
	Bytes      int64             `json:"bytes"`
	Note       string            `json:"note"`
}

// NewPort asks for a way to a port in a sandbox.
type NewPort struct {
	Port   int  `json:"port" doc:"TCP, that a server in the sandbox listens on" schema:"minimum=1,maximum=65535"`
	Public bool `json:"public,omitempty" doc:"whoever reaches the address may use it; otherwise a token is needed"`
}

// Port is a port of a sandbox that can be reached.
type Port struct {
	Port    int    `json:"port"`
	Address string `json:"address"`
	URL     string `json:"url,omitempty" doc:"for browsers, with the token"`
	Token   string `json:"token,omitempty" doc:"HTTP requests must have it: Authorization: Bearer TOKEN"`
}

// Ports is a list of ports.
type Ports struct {
	Ports []Port `json:"ports"`
}

// Code is a piece of code to run.
type Code struct {
	Code     string   `json:"code" schema:"minLength=1"`
	Language string   `json:"language,omitempty" doc:"default python" enum:"python|javascript|shell|go|ruby"`
	Context  string   `json:"context,omitempty" doc:"name of the interpreter that runs it, with what earlier runs have defined; default one for each language"`
	Fresh    bool     `json:"fresh,omitempty" doc:"in an interpreter of its own"`
	Timeout  *float64 `json:"timeout,omitempty" doc:"seconds; default 30"`
}

// Template is what sandboxes can be made of.
type Template struct {
	TemplateID  string `json:"templateID"`
	Description string `json:"description,omitempty"`
	Image       string `json:"image"`
}

// Templates is a list of templates.
type Templates struct {
	Templates []Template `json:"templates"`
}

// Health says that the server answers.
type Health struct {
	Status  string `json:"status" enum:"ok"`
	Version string `json:"version"`
}

// list is what is done with each of a list.
func list[A, B any](all []A, f func(*A) B) []B {
	out := make([]B, 0, len(all))
	for i := range all {
		out = append(out, f(&all[i]))
	}
	return out
}

const mib = 1 << 20

// limits are the daemon's.
func (l *Limits) limits() api.Limits {
	if l == nil {
		return api.Limits{}
	}
	bytes := func(mb int64) int64 {
		if mb == api.Unlimited {
			return mb
		}
		return min(max(mb, -2), 1<<40) * mib // out of range stays so
	}
	return api.Limits{CPUs: l.CPUs, MemoryBytes: bytes(l.MemoryMB), DiskBytes: bytes(l.DiskMB), PIDs: l.PIDs,
		BestEffort: l.BestEffort}
}

func limitsOf(l *api.Limits) Limits {
	mb := func(bytes int64) int64 {
		if bytes == api.Unlimited {
			return bytes
		}
		return bytes / mib
	}
	return Limits{CPUs: l.CPUs, MemoryMB: mb(l.MemoryBytes), DiskMB: mb(l.DiskBytes), PIDs: l.PIDs}
}

// policy is the daemon's.
func (n *NetworkPolicy) policy() api.NetPolicy {
	if n == nil {
		return api.NetPolicy{} // that of the template, or of the configuration
	}
	p := api.NetPolicy{Mode: n.Mode, Allow: n.Allow, Block: n.Block, AllowCIDRs: n.AllowCIDRs,
		BlockCIDRs: n.BlockCIDRs}
	p.Mode = p.Effective()
	return p
}

func networkOf(p *api.NetPolicy) NetworkPolicy {
	return NetworkPolicy{Mode: p.Effective(), Allow: p.Allow, Block: p.Block, AllowCIDRs: p.AllowCIDRs,
		BlockCIDRs: p.BlockCIDRs}
}

func sandboxOf(sb *api.Sandbox) Sandbox {
	s := Sandbox{SandboxID: sb.ID, Name: sb.Name, TemplateID: sb.Template, Image: sb.Image, State: sb.State,
		Reason: sb.Reason, Metadata: publicLabels(sb.Labels), StartedAt: sb.Created, EndAt: sb.Expires,
		Workdir: sb.Workdir,
		Limits:  limitsOf(&sb.Limits), Network: networkOf(&sb.Network.NetPolicy), Existing: sb.Existing}
	if sb.Note != "" {
		s.Notes = append(s.Notes, sb.Note)
	}
	for _, u := range sb.Unenforced {
		s.Notes = append(s.Notes, u.Limit+" is not enforced: "+u.Why)
	}
	return s
}

func processOf(e *api.Exec) Process {
	p := Process{ProcessID: e.Exec, SandboxID: e.Sandbox, PID: e.PID, Cmd: e.Command, Args: e.Argv, TTY: e.TTY,
		State:     e.State,
		StartedAt: e.Started, StdoutBytes: e.StdoutBytes, StderrBytes: e.StderrBytes, ExitCode: e.ExitCode,
		Verdict: e.Verdict, DurationMS: e.DurationMS}
	return p
}

func resultOf(r *api.ExecResult) Result {
	return Result{ProcessID: r.Exec, Stdout: r.Stdout, Stderr: r.Stderr,
		Encoding:  Encodings{Stdout: r.StdoutEncoding, Stderr: r.StderrEncoding},
		Truncated: r.Truncated, ExitCode: r.ExitCode, Signal: r.Signal, TimedOut: r.TimedOut, Verdict: r.Verdict,
		Error: r.Error, DurationMS: r.DurationMS, Denials: r.Denials, Policy: r.Policy, Hint: r.Hint}
}

func snapshotOf(s *api.Snapshot) Snapshot {
	return Snapshot{SnapshotID: s.ID, Name: s.Name, Metadata: publicLabels(s.Labels), SandboxID: s.Sandbox,
		Image:     s.Image,
		CreatedAt: s.Created, Bytes: s.Bytes, Note: s.Note}
}

func portOf(p *api.Port) Port {
	return Port{Port: p.Port, Address: p.Address, URL: p.URL, Token: p.Token}
}
