package api

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"
)

// AuditKind says what a record of an audit log is about. The methods fs.* that read or
// change files are kinds as well.
type AuditKind string

// The kinds of records, each with the type of its data.
const (
	AuditOpened  AuditKind = "audit.opened"  // AuditOpening: the first record of a log
	AuditResumed AuditKind = "audit.resumed" // AuditResumption: another daemon goes on
	AuditLeft    AuditKind = "audit.left"    // nothing: the daemon ends, and the sandbox lives on
	AuditClosed  AuditKind = "audit.closed"  // nothing: the last record of a log
	AuditLost    AuditKind = "audit.lost"    // AuditLoss: records that could not be written
	AuditSkipped AuditKind = "audit.skipped" // AuditLoss: connections that came too fast
	AuditDropped AuditKind = "audit.dropped" // AuditDrop: old records are deleted, to make room

	AuditCreated     AuditKind = "sandbox.created"    // AuditSandbox
	AuditAcquired    AuditKind = "pool.acquire"       // AuditAcquisition: a client has taken it out of its pool
	AuditApplied     AuditKind = "workspace.apply"    // AuditWorkspace: what was brought into the user's folder
	AuditDiscarded   AuditKind = "workspace.discard"  // AuditWorkspace
	AuditState       AuditKind = "sandbox.state"      // StateEvent
	AuditKillBox     AuditKind = "sandbox.kill"       // nothing: a client has killed all of it
	AuditRemove      AuditKind = "sandbox.remove"     // nothing: a client has removed it
	AuditStopped     AuditKind = "sandbox.stop"       // nothing: a client has stopped it
	AuditStarted     AuditKind = "sandbox.start"      // nothing: it is started again
	AuditSnapshot    AuditKind = "snapshot.create"    // Snapshot
	AuditRestored    AuditKind = "snapshot.restore"   // Snapshot: whose files it gets
	AuditUndone      AuditKind = "checkpoint.restore" // AuditUndo: what was taken back
	AuditUpdated     AuditKind = "sandbox.updated"    // Limits: those that are in force from then on
	AuditPolicy      AuditKind = "network.updated"    // NetPolicy: the one that is in force from then on
	AuditPortExposed AuditKind = "port.exposed"       // Port, without its token
	AuditPortClosed  AuditKind = "port.closed"        // Port
	AuditDenied      AuditKind = "network.denied"     // DeniedEvent
	AuditFailed      AuditKind = "network.failed"     // FailedEvent
	AuditAnswered    AuditKind = "network.answered"   // AnsweredEvent
	AuditAllowed     AuditKind = "network.allowed"    // AuditConnection
	// SyscallEvent: as often as events tell of it, with what came between
	AuditSyscall    AuditKind = "syscall.denied"
	AuditLimit      AuditKind = "limit.hit"    // LimitEvent
	AuditExec       AuditKind = "exec.started" // AuditCommand
	AuditExecFailed AuditKind = "exec.failed"  // AuditCommand: with the error
	AuditExecEnd    AuditKind = "exec.exited"  // AuditExit
	// AuditDecision, in the log host: where a command runs, by which mode
	AuditExecDecided AuditKind = "exec.decided"
	AuditHostExited  AuditKind = "exec.host_exited" // HostExitedEvent, in the log host
	AuditStdin       AuditKind = "exec.stdin"       // AuditContent: what exec.write has written
	AuditSignal      AuditKind = "exec.signal"      // AuditSent: a client has sent a signal
	AuditKill        AuditKind = "exec.kill"        // AuditSent: a client has ended it
	AuditShell       AuditKind = "shell.run"        // AuditShellRun
	AuditShellEnd    AuditKind = "shell.ended"      // AuditShellRun: with its end
)

// AuditRecord is one line of an audit log. Hash is the SHA-256, in hex, of the line
// without the member hash, as it is stored; Prev is the hash of the record before, zeros
// in the first.
type AuditRecord struct {
	Seq     int64           `json:"seq"` // from 1, in each sandbox
	Time    time.Time       `json:"time"`
	Kind    AuditKind       `json:"kind"`
	Sandbox string          `json:"sandbox"`
	Exec    string          `json:"exec,omitempty"`
	By      *AuditCaller    `json:"by,omitempty"` // whose call it was; missing where nobody asked for it
	Data    json.RawMessage `json:"data,omitempty"`
	Prev    string          `json:"prev"`
	Hash    string          `json:"hash,omitempty"`
}

// AuditCaller is a client as the kernel has named it when it connected. Its process may have ended since, and its
// pid be another's.
type AuditCaller struct {
	UID uint32 `json:"uid"`
	GID uint32 `json:"gid"`
	PID int32  `json:"pid"`
	// Connection tells the connections to one daemon apart.
	Connection uint64 `json:"connection"`
	Private    bool   `json:"private,omitempty"` // it is a private daemon's owner
	Client     string `json:"client,omitempty"`  // whose token it has shown
}

// AuditSent is the data of exec.signal and exec.kill.
type AuditSent struct {
	Signal string `json:"signal,omitempty"` // of exec.signal
	Error  string `json:"error,omitempty"`
}

// AuditOpening is the data of audit.opened.
type AuditOpening struct {
	Version int `json:"version"` // of the format: 1
}

// AuditResumption is the data of audit.resumed.
type AuditResumption struct {
	// Clean says that the daemon before has written all that it knew. Otherwise it was
	// killed, and what it knew in its last moment may be missing.
	Clean bool `json:"clean"`
	// Torn describes the bytes of half a record, which were cut off.
	Torn *AuditContent `json:"torn,omitempty"`
	// MissingFrom to MissingTo are records that were there and are not: somebody has
	// removed them, or power was lost.
	MissingFrom int64 `json:"missing_from,omitempty"`
	MissingTo   int64 `json:"missing_to,omitempty"`
	// HeadLost says that the file which knows the last record was missing or broken.
	HeadLost bool `json:"head_lost,omitempty"`
}

// AuditLoss counts records that are not there.
type AuditLoss struct {
	Count int64 `json:"count"`
}

// AuditDrop is the data of audit.dropped: records up to this number are deleted.
type AuditDrop struct {
	To int64 `json:"to"`
}

// AuditSandbox is the data of sandbox.created.
type AuditSandbox struct {
	Name      string         `json:"name"`
	Image     string         `json:"image"`
	UID       uint32         `json:"uid"` // of who asked for it
	User      string         `json:"user,omitempty"`
	Env       []string       `json:"env,omitempty"` // names: values may be secrets
	Workspace *Workspace     `json:"workspace,omitempty"`
	Mounts    []Mount        `json:"mounts,omitempty"`
	Limits    Limits         `json:"limits"`
	Network   SandboxNetwork `json:"network"`
	Isolation Isolation      `json:"isolation"`
}

// AuditAcquisition is the data of pool.acquire.
type AuditAcquisition struct {
	Pool string `json:"pool"`
	Name string `json:"name,omitempty"` // that the sandbox was given
}

// AuditUndo is the data of checkpoint.restore.
type AuditUndo struct {
	ToCall string   `json:"to_call"`
	Undone []string `json:"undone,omitempty"`
}

// AuditWorkspace is the data of workspace.apply and workspace.discard.
type AuditWorkspace struct {
	Paths  []string `json:"paths"` // at most 1,000
	Failed int      `json:"failed,omitempty"`
	Force  bool     `json:"force,omitempty"`
}

// AuditContent is what was written or read: its length and its digest, and where the
// configuration says so the beginning of it.
type AuditContent struct {
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256,omitempty"`
	// DigestFrom and DigestBytes say what SHA256 is of where that is not all.
	DigestFrom  int64    `json:"digest_from,omitempty"`
	DigestBytes int64    `json:"digest_bytes,omitempty"`
	Text        string   `json:"text,omitempty"`
	Encoding    Encoding `json:"encoding,omitempty"` // of Text: base64 where it is no text
}

// AuditCommand is the data of exec.started and exec.failed.
type AuditCommand struct {
	Argv       []string `json:"argv,omitempty"`
	Command    string   `json:"command,omitempty"` // for the shell
	Cwd        string   `json:"cwd,omitempty"`
	User       string   `json:"user,omitempty"`
	Env        []string `json:"env,omitempty"` // names
	PID        int      `json:"pid,omitempty"` // in the sandbox
	Background bool     `json:"background,omitempty"`
	TTY        bool     `json:"tty,omitempty"`
	// Passed says that the command has its caller's own stdio, whose bytes hutch does not see.
	Passed bool   `json:"passed,omitempty"`
	Shell  string `json:"shell,omitempty"` // it is a shell
	Stdin  any    `json:"stdin,omitempty"` // AuditContent
	Error  string `json:"error,omitempty"`
}

// AuditExit is the data of exec.exited.
type AuditExit struct {
	ExitedEvent
	Stdout any `json:"stdout,omitempty"` // AuditContent; nil where hutch does not see it
	Stderr any `json:"stderr,omitempty"`
}

// AuditShellRun is the data of shell.run and shell.ended.
type AuditShellRun struct {
	Shell      string  `json:"shell"`
	Run        uint64  `json:"run"`
	Command    string  `json:"command,omitempty"`
	ExitCode   *int    `json:"exit_code,omitempty"`
	Verdict    Verdict `json:"verdict,omitempty"`
	DurationMS float64 `json:"duration_ms,omitempty"`
	Error      string  `json:"error,omitempty"`
}

// AuditFile is the data of the fs.* kinds.
type AuditFile struct {
	Path    string `json:"path"`
	To      string `json:"to,omitempty"`
	User    string `json:"user,omitempty"`
	Bytes   int64  `json:"bytes,omitempty"`   // that went over a pipe
	Entries int64  `json:"entries,omitempty"` // of an archive, or removed
	Content any    `json:"content,omitempty"` // AuditContent
	Error   string `json:"error,omitempty"`
}

// AuditConnection is the data of network.allowed.
type AuditConnection struct {
	NetTarget
	Rule string `json:"rule,omitempty"` // that allows it, as in DeniedEvent
}

// AuditHead names the last record of a log, at some time. Who keeps one elsewhere can
// tell later whether what was before it is still the same.
type AuditHead struct {
	Seq  int64  `json:"seq"`
	Hash string `json:"hash"`
}

// String is a head in one word, as ParseAuditHead reads it.
func (h AuditHead) String() string { return strconv.FormatInt(h.Seq, 10) + ":" + h.Hash }

// ParseAuditHead reads "NUMBER:HASH".
func ParseAuditHead(text string) (AuditHead, error) {
	number, hash, ok := strings.Cut(text, ":")
	seq, err := strconv.ParseInt(number, 10, 64)
	h := AuditHead{Seq: seq, Hash: hash}
	if !ok || err != nil || !h.valid() {
		return AuditHead{}, invalid("head", "%.80q is no head", text).
			WithHint("`hutch audit SANDBOX --head` prints one: a number, a colon and 64 hex digits")
	}
	return h, nil
}

func (h *AuditHead) valid() bool {
	return h.Seq > 0 && len(h.Hash) == 64 && strings.Trim(h.Hash, "0123456789abcdef") == ""
}

// AuditReadParams are audit.read's params.
type AuditReadParams struct {
	Sandbox string      `json:"sandbox"`            // of one that was removed: its id
	FromSeq int64       `json:"from_seq,omitempty"` // 0 is the oldest that is kept
	Since   *time.Time  `json:"since,omitempty"`    // records before are left out
	Kinds   []AuditKind `json:"kinds,omitempty"`    // empty means all
	Exec    string      `json:"exec,omitempty"`
	Limit   int         `json:"limit,omitempty"`  // records, at most 1000, the default
	WaitS   float64     `json:"wait_s,omitempty"` // for the next record, where there is none
}

// MaxAuditRead is how many records audit.read returns at most.
const MaxAuditRead = 1000

// Validate refuses impossible params.
func (p *AuditReadParams) Validate() error {
	switch {
	case p.Sandbox == "":
		return invalid("sandbox", "missing").WithHint("audit.list names the logs that are kept")
	case p.FromSeq < 0:
		return invalid("from_seq", "%d: records count from 1", p.FromSeq)
	case p.Limit < 0 || p.Limit > MaxAuditRead:
		return invalid("limit", "%d is not 0 to %d", p.Limit, MaxAuditRead)
	case !(p.WaitS >= 0 && p.WaitS <= MaxSeconds):
		return invalid("wait_s", "%g is not possible", p.WaitS).WithHint("use 0 to %d seconds", MaxSeconds)
	}
	return nil
}

// AuditRecords is audit.read's result. The records are AuditRecords, byte for byte as
// they are stored.
type AuditRecords struct {
	Sandbox string            `json:"sandbox"`          // its id
	Records []json.RawMessage `json:"records"`          // each as it was written
	Next    int64             `json:"next"`             // from_seq of the next call
	More    bool              `json:"more"`             // there are more by now
	Ended   bool              `json:"ended"`            // there will never be more
	Broken  int               `json:"broken,omitempty"` // lines that are no records: audit.verify says which
}

// AuditVerifyParams are audit.verify's params.
type AuditVerifyParams struct {
	Sandbox string     `json:"sandbox"`
	Head    *AuditHead `json:"head,omitempty"` // that the log had at some time
}

// Validate refuses impossible params.
func (p *AuditVerifyParams) Validate() error {
	switch {
	case p.Sandbox == "":
		return invalid("sandbox", "missing").WithHint("audit.list names the logs that are kept")
	case p.Head != nil && !p.Head.valid():
		return invalid("head", "no head").WithHint("audit.head returns one")
	}
	return nil
}

// AuditVerified is audit.verify's result.
type AuditVerified struct {
	Sandbox string     `json:"sandbox,omitempty"`
	OK      bool       `json:"ok"`      // there are no problems
	Records int64      `json:"records"` // that were read
	First   int64      `json:"first"`   // number of the oldest record; those before were dropped
	Head    AuditHead  `json:"head"`
	Closed  bool       `json:"closed"`            // the sandbox was removed
	Resumed int        `json:"resumed,omitempty"` // how often a daemon went on that another was killed of
	Lost    int64      `json:"lost,omitempty"`    // records that say that others could not be written: their sum
	Issues  []AuditBug `json:"problems"`
	Untold  int        `json:"untold,omitempty"` // further problems
}

// AuditBug is something that is wrong with a log.
type AuditBug struct {
	Seq    int64  `json:"seq"`  // of the record
	File   string `json:"file"` // and where it is
	Line   int    `json:"line,omitempty"`
	Detail string `json:"detail"`
}

// AuditLog describes a log that is kept.
type AuditLog struct {
	Sandbox string    `json:"sandbox"`
	Records int64     `json:"records"` // that were ever written
	Bytes   int64     `json:"bytes"`   // on disk
	Written time.Time `json:"written"` // last
	Removed bool      `json:"removed"` // the sandbox is
}

// AuditLogs is audit.list's result.
type AuditLogs struct {
	Logs []AuditLog `json:"logs"`
}

// AuditSettings say what is recorded of sandboxes and how long it is kept.
type AuditSettings struct {
	Enabled     bool     `json:"enabled"`
	Content     string   `json:"content"`     // "digest" or "full"
	Connections string   `json:"connections"` // "denied" or "all"
	Redact      []string `json:"redact,omitempty"`
	MaxBytes    int64    `json:"max_bytes"`   // of one sandbox
	TotalBytes  int64    `json:"total_bytes"` // of all that are removed
	KeepDays    int64    `json:"keep_days"`   // after the removal; Unlimited is for ever
	Sync        bool     `json:"sync,omitempty"`
}
