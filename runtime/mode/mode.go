// Package mode decides whether a command runs in a sandbox or on the host: exec.decide. It runs nothing itself, and nor
// does the daemon: what is for the host the client runs, as the user that it is. DESIGN.md says what that is worth.
package mode

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hutch-sh/hutch/internal/audit"
	"github.com/hutch-sh/hutch/runtime/api"
)

// Scanner looks through what is to run, in a process of its own. Its errors are about itself: what it cannot read is a
// finding.
type Scanner interface {
	Scan(ctx context.Context, p api.ScanParams) (api.ScanResult, error)
	Command(ctx context.Context, argv []string) (api.ScanResult, error)
}

// Boxes are the sandboxes that callers name.
type Boxes interface {
	// Workspace returns the id of one, and its workspace if it has one.
	Workspace(ref string) (id string, w *api.Workspace, err error)
}

// Events tells subscribers. It does not block.
type Events interface {
	Emit(kind api.EventKind, sandbox, exec string, data any)
}

// Audit is the log of what runs on the host, as *audit.Logs has it.
type Audit interface {
	Note(e audit.Entry)
	Head(ctx context.Context, id string) (api.AuditHead, error)
	Read(ctx context.Context, p api.AuditReadParams) (api.AuditRecords, error)
}

// Settings are of the configuration file.
type Settings struct {
	Mode api.ExecMode
	Host api.HostExecution
	Exec api.ExecBounds
}

// Config is what a Decider works with. All fields are required.
type Config struct {
	Scanner  Scanner
	Boxes    Boxes
	Events   Events
	Audit    Audit
	Settings Settings
}

// Decider decides. It is safe for concurrent use.
type Decider struct {
	cfg      Config
	settings atomic.Pointer[Settings]

	mu   sync.Mutex // guards open
	open map[string]*execution
}

// execution is a command on the host whose end is not known.
type execution struct {
	conn    uint64
	by      *api.AuditCaller
	sandbox string // that the caller has named: its id
	began   time.Time
}

// New makes a Decider.
func New(cfg Config) *Decider {
	d := &Decider{cfg: cfg, open: map[string]*execution{}}
	d.Configure(cfg.Settings)
	return d
}

// Configure puts settings in force, for what is decided from then on.
func (d *Decider) Configure(s Settings) { d.settings.Store(&s) }

// Settings are those in force.
func (d *Decider) Settings() Settings { return *d.settings.Load() }

// Caller is whose connection it is.
type Caller struct {
	Conn    uint64
	Private bool
}

// asked is a question on its way to its answer.
type asked struct {
	who      Caller
	by       *api.AuditCaller
	params   api.DecideParams
	sandbox  string // its id, where one is named
	settings *Settings
	answer   api.Decision
}

// Decide answers where a command is to run. That of one on the host is recorded before it returns, or it is an error.
func (d *Decider) Decide(ctx context.Context, who Caller, p api.DecideParams) (api.Decision, error) {
	a := &asked{who: who, by: audit.Caller(ctx), params: p, settings: d.settings.Load()}
	a.answer = api.Decision{Decision: api.WhereSandbox, Mode: p.Mode, Findings: []api.Finding{}}
	if a.answer.Mode == "" {
		a.answer.Mode = a.settings.Mode
	}
	var workspace *api.Workspace
	if p.Sandbox != "" {
		var err error
		if a.sandbox, workspace, err = d.cfg.Boxes.Workspace(p.Sandbox); err != nil {
			return api.Decision{}, err
		}
	}
	if a.answer.Mode == api.ExecModeAll {
		a.answer.Reason = "mode all: every command runs in a sandbox"
		return a.answer, nil
	}
	if err := d.allowed(a); err != nil {
		a.answer.Decision, a.answer.Reason = api.WhereNowhere, err.Error()
		d.note(a)
		return api.Decision{}, err
	}
	if w := workspace; w != nil && (w.Mode == api.ModeRW || w.Mode == api.ModeRO) {
		a.answer.Cwd = w.Path
	}
	switch {
	case a.answer.Mode == api.ExecModeOff && p.Mode == "" && a.sandbox != "" && a.answer.Cwd == "":
		a.answer.Reason = ownFiles // who names a sandbox, and no mode, means what is in it
	case a.answer.Mode == api.ExecModeOff:
		a.answer.Decision, a.answer.Reason = api.WhereHost, "mode off: every command runs on the host"
	default:
		if err := d.selective(ctx, a); err != nil {
			return api.Decision{}, err
		}
	}
	if a.answer.Decision != api.WhereHost {
		d.note(a)
		return a.answer, nil
	}
	if err := d.begin(ctx, a); err != nil {
		return api.Decision{}, err
	}
	return a.answer, nil
}

// allowed refuses what the configuration does not let run on the host. It never makes another mode of the one that was
// asked for.
func (d *Decider) allowed(a *asked) error {
	t, most := a.params.TimeoutS, a.settings.Exec.MaxTimeoutS
	switch {
	case a.settings.Host != api.HostAllowed:
		return api.Errorf(api.PermissionDenied,
			"mode %s runs commands on the host, outside of any sandbox, which the configuration refuses",
			a.answer.Mode).
			WithField("mode").WithHint("use mode all; or, to allow it on this machine, put `host_execution: allowed` into the file that `hutch config path` names, then run `hutch config approve`, which asks you, and `hutch config reload`")
	case a.who.Private:
		return api.Errorf(api.FailedPrecondition,
			"mode %s: a private daemon does not keep the record of what runs on the host", a.answer.Mode).
			WithField("mode").WithHint("use the shared daemon: leave out --private")
	case t != nil && *t > most:
		return api.Errorf(api.InvalidArgument, "timeout_s: %g seconds are more than a command may take here", *t).
			WithField("timeout_s").
			WithHint("ask for at most %g seconds, or raise exec.max_timeout_s in the daemon's configuration file", most)
	}
	if a.answer.TimeoutS = a.settings.Exec.TimeoutS; t != nil {
		a.answer.TimeoutS = *t
	}
	return nil
}

// ownFiles is why a command stays in the sandbox that its caller has named.
const ownFiles = "the sandbox has files of its own, which a command on the host does not see: it has no workspace of mode rw or ro"

// selective decides by a scan. All that is not known to be harmless is for the sandbox.
func (d *Decider) selective(ctx context.Context, a *asked) error {
	if a.sandbox != "" && a.answer.Cwd == "" {
		a.answer.Reason = ownFiles
		return nil
	}
	if l := a.params.Language; l != "" && !slices.Contains(api.ScanLanguages, l) {
		a.answer.Reason = fmt.Sprintf("no scan reads %s", l)
		return nil
	}
	res, err := d.scan(ctx, &a.params)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		a.answer.Reason = fmt.Sprintf("the scan failed: %v", err)
		return nil
	}
	a.answer.Findings = deciding(res.Findings)
	first := func() string {
		if len(a.answer.Findings) == 0 {
			return "the scan says so"
		}
		f := &a.answer.Findings[0]
		return fmt.Sprintf("%s (%s, %s): %s", f.Rule, f.Severity, f.Category, f.Why)
	}
	switch {
	case res.Risky || res.Truncated:
		a.answer.Reason = "risky: " + first()
	case len(res.Findings) > 0 && !a.params.ReadOnly:
		a.answer.Reason = "the caller cannot keep it from more than the scan has seen: " + first()
	default:
		a.answer.Decision, a.answer.Reason = api.WhereHost, "no finding of medium severity or more"
	}
	return nil
}

func (d *Decider) scan(ctx context.Context, p *api.DecideParams) (api.ScanResult, error) {
	switch {
	case len(p.Argv) > 0:
		return d.cfg.Scanner.Command(ctx, p.Argv)
	case p.Command != "":
		return d.cfg.Scanner.Scan(ctx, api.ScanParams{Language: "shell", Code: p.Command})
	}
	return d.cfg.Scanner.Scan(ctx, api.ScanParams{Language: p.Language, Code: p.Code})
}

// maxTold is how many findings an answer and its record have.
const maxTold = 20

// deciding are the findings that weigh most, in the order in which they decide.
func deciding(all []api.Finding) []api.Finding {
	weight := func(f api.Finding) int {
		return slices.Index([]api.Severity{api.SeverityHigh, api.SeverityMedium, api.SeverityLow}, f.Severity)
	}
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(a, b api.Finding) int { return weight(a) - weight(b) })
	return append([]api.Finding{}, all[:min(len(all), maxTold)]...)
}

// begin records that a command runs on the host, and remembers it.
func (d *Decider) begin(ctx context.Context, a *asked) error {
	id := "hx_" + strings.ToLower(rand.Text()[:12])
	d.mu.Lock()
	n := 0
	for _, e := range d.open {
		if e.conn == a.who.Conn {
			n++
		}
	}
	if n >= api.MaxHostExecs {
		d.mu.Unlock()
		return api.Errorf(api.ResourceExhausted,
			"this connection has %d commands on the host whose end it has not reported", n).
			WithHint("report each with exec.record_host")
	}
	d.open[id] = &execution{conn: a.who.Conn, by: a.by, sandbox: a.sandbox, began: time.Now()}
	d.mu.Unlock()
	a.answer.ID = id
	before, err := d.cfg.Audit.Head(ctx, api.AuditHost)
	if err != nil && api.ErrorCode(err) != api.NotFound {
		d.forget(id)
		return unrecorded(err)
	}
	told := d.record(a)
	// The record is in the log, or was lost: only reading it tells.
	res, err := d.cfg.Audit.Read(ctx, api.AuditReadParams{
		Sandbox: api.AuditHost, FromSeq: before.Seq + 1, Exec: id, Kinds: []api.AuditKind{api.AuditExecDecided},
		Limit: 1,
	})
	if err == nil && len(res.Records) != 1 {
		err = fmt.Errorf("the record is not in the log")
	}
	if err != nil {
		d.forget(id)
		return unrecorded(err)
	}
	d.cfg.Events.Emit(api.EventExecDecided, a.sandbox, id, told)
	return nil
}

func unrecorded(err error) error {
	return api.Errorf(api.Unavailable, "nothing runs on the host that is not recorded: %w", err).
		WithHint("`hutch audit verify host` and the daemon's log say more; perhaps the disk is full, or another daemon has this state folder")
}

func (d *Decider) forget(id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.open, id)
}

// note tells of an answer: the log host, and subscribers.
func (d *Decider) note(a *asked) {
	told := d.record(a)
	d.cfg.Events.Emit(api.EventExecDecided, a.sandbox, a.answer.ID, told)
}

// record notes an answer in the log host, and returns what events tell of it.
func (d *Decider) record(a *asked) api.DecidedEvent {
	p := &a.params
	told := api.DecidedEvent{Decision: a.answer.Decision, Mode: a.answer.Mode, Reason: clip(a.answer.Reason, 1024),
		Program: program(p)}
	for _, f := range a.answer.Findings {
		if !slices.Contains(told.Rules, f.Rule) {
			told.Rules = append(told.Rules, f.Rule)
		}
	}
	rec := api.AuditDecision{
		DecidedEvent: told, Sandbox: a.sandbox, Argv: p.Argv, Command: p.Command, Language: p.Language,
		Findings: a.answer.Findings, ReadOnly: p.ReadOnly,
	}
	size := len(p.Command) + len(p.Code)
	if p.Code != "" {
		rec.Code = audit.Whole([]byte(p.Code), true)
	}
	d.cfg.Audit.Note(audit.Entry{Kind: api.AuditExecDecided, Sandbox: api.AuditHost, Exec: a.answer.ID, By: a.by,
		Data: rec, Size: int64(size)})
	return told
}

// program is what runs, without arguments: they may hold secrets, and events stay on disk.
func program(p *api.DecideParams) string {
	switch {
	case len(p.Argv) > 0:
		return clip(p.Argv[0], 256)
	case p.Command != "":
		return "bash"
	}
	return p.Language
}

func clip(s string, n int) string { return strings.ToValidUTF8(s[:min(len(s), n)], "") }

// Ended records what the caller says of the end of a command on the host.
func (d *Decider) Ended(who Caller, p api.HostEndParams) error {
	d.mu.Lock()
	e := d.open[p.ID]
	if e == nil || e.conn != who.Conn {
		d.mu.Unlock()
		return api.Errorf(api.NotFound, "no command %.64q on the host is this connection's", p.ID).WithField("id").
			WithHint("report on the connection that has asked exec.decide, once; one whose connection was lost is recorded as unreported")
	}
	delete(d.open, p.ID)
	d.mu.Unlock()
	code := p.ExitCode
	d.end(p.ID, e, api.HostExitedEvent{
		Reported: true, ExitCode: &code, Signal: p.Signal, TimedOut: p.TimedOut, DurationMS: p.DurationMS,
		Error: strings.ToValidUTF8(p.Error, "\uFFFD"),
	})
	return nil
}

// Disconnected records what a connection has left unreported.
func (d *Decider) Disconnected(conn uint64) {
	left := map[string]*execution{}
	d.mu.Lock()
	for id, e := range d.open {
		if e.conn == conn {
			left[id] = e
			delete(d.open, id)
		}
	}
	d.mu.Unlock()
	for id, e := range left {
		d.end(id, e, api.HostExitedEvent{DurationMS: float64(time.Since(e.began).Microseconds()) / 1e3,
			Error: "the caller has gone without a word of its end"})
	}
}

func (d *Decider) end(id string, e *execution, data api.HostExitedEvent) {
	d.cfg.Events.Emit(api.EventHostExited, e.sandbox, id, data)
	d.cfg.Audit.Note(audit.Entry{Kind: api.AuditHostExited, Sandbox: api.AuditHost, Exec: id, By: e.by, Data: data})
}
