package server

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/jsonrpc"
	"github.com/hutch-sh/hutch/internal/leak"
	"github.com/hutch-sh/hutch/runtime/api"
)

func TestMain(m *testing.M) { os.Exit(leak.Main(m)) }

// engines are the engines of a test. Methods whose hook is nil answer at once.
type engines struct {
	info   func(ctx context.Context, who Actor) (api.Info, error)
	create func(ctx context.Context, p api.CreateParams, fds *jsonrpc.FDs,
		progress func(api.Progress)) (api.Sandbox, error)
	run func(ctx context.Context, p api.ExecParams, fds *jsonrpc.FDs,
		started func(string, int)) (api.ExecResult, error)
	pull   func(ctx context.Context, p api.PullParams, progress func(api.Progress)) (api.Image, error)
	get    func(ref string) (api.Sandbox, error)
	events func(p api.SubscribeParams) (EventCursor, api.Subscribed, error)
	attach func(p api.AttachParams) (Output, error)
}

func (e *engines) Info(ctx context.Context, who Actor) (api.Info, error) {
	if e.info != nil {
		return e.info(ctx, who)
	}
	return api.Info{PID: 42}, nil
}
func (e *engines) Doctor(context.Context) (api.Doctor, error) {
	return api.Doctor{Checks: []api.Check{{Name: "user namespaces"}}}, nil
}
func (e *engines) Shutdown(_ context.Context, p api.ShutdownParams) error {
	if p.Mode == "keep" {
		return api.Errorf(api.FailedPrecondition, "2 sandboxes")
	}
	return nil
}
func (e *engines) GC(context.Context) (api.GCResult, error) { return api.GCResult{Bytes: 7}, nil }

func (e *engines) Reload(context.Context) error { return nil }

type fakeSandboxes struct{ *engines }

func (f fakeSandboxes) Create(ctx context.Context, _ Actor, p api.CreateParams, fds *jsonrpc.FDs,
	progress func(api.Progress)) (api.Sandbox, error) {
	if f.create != nil {
		return f.create(ctx, p, fds, progress)
	}
	return api.Sandbox{ID: "sb_1", Image: p.Image}, nil
}
func (fakeSandboxes) Scopes() []api.ScopeInfo { return nil }
func (fakeSandboxes) ResetScope(_ context.Context, _ Actor, s api.Scope) (api.Sandbox, error) {
	return api.Sandbox{ID: "sb_1", Scope: &s}, nil
}
func (fakeSandboxes) EndScope(context.Context, Actor, api.Scope) (api.KillResult, error) {
	return api.KillResult{}, nil
}
func (f fakeSandboxes) Get(ref string) (api.Sandbox, error) {
	if f.get != nil {
		return f.get(ref)
	}
	return api.Sandbox{ID: ref}, nil
}
func (f fakeSandboxes) List(p api.ListParams) []api.Sandbox {
	if len(p.Labels) > 0 {
		return nil
	}
	return []api.Sandbox{{ID: "sb_1"}}
}
func (f fakeSandboxes) Claim(_ Actor, ref string) (api.Sandbox, error) {
	return api.Sandbox{ID: ref}, nil
}

func (f fakeSandboxes) Pause(_ context.Context, ref string) (api.Sandbox, error) {
	return api.Sandbox{ID: ref, State: api.Paused}, nil
}

func (f fakeSandboxes) Resume(_ context.Context, ref string) (api.Sandbox, error) {
	return api.Sandbox{ID: ref, State: api.Running}, nil
}

func (f fakeSandboxes) StopSandbox(_ context.Context, p api.StopParams) (api.StopResult, error) {
	return api.StopResult{Sandbox: api.Sandbox{ID: p.Sandbox, State: api.Stopped}}, p.Validate()
}

func (f fakeSandboxes) StartSandbox(_ context.Context, _ Actor, p api.StartParams, _ *jsonrpc.FDs) (api.Sandbox,
	error) {
	return api.Sandbox{ID: p.Sandbox, State: api.Running}, nil
}

func (f fakeSandboxes) Kill(context.Context, string) (api.KillResult, error) {
	return api.KillResult{Killed: []int{1, 2}}, nil
}
func (f fakeSandboxes) Remove(context.Context, string) (api.KillResult, error) {
	return api.KillResult{}, nil
}

func (f fakeSandboxes) Update(_ context.Context, p api.UpdateParams) (api.Sandbox, error) {
	return api.Sandbox{ID: p.Sandbox, Limits: p.Limits}, nil
}
func (f fakeSandboxes) Stats(ref string) (api.Stats, error)     { return api.Stats{Sandbox: ref}, nil }
func (f fakeSandboxes) Processes(string) (api.Processes, error) { return api.Processes{}, nil }

type fakeExecs struct{ *engines }

func (f fakeExecs) Run(ctx context.Context, _ Actor, p api.ExecParams, fds *jsonrpc.FDs, started func(string, int),
	_ func(func())) (api.ExecResult, error) {
	if f.run != nil {
		return f.run(ctx, p, fds, started)
	}
	return api.ExecResult{Exec: "ex_1"}, nil
}
func (f fakeExecs) Signal(_ context.Context, p api.SignalParams) error {
	if p.Exec != "ex_1" {
		return api.Errorf(api.NotFound, "no exec %q", p.Exec)
	}
	return nil
}
func (f fakeExecs) Resize(api.ResizeParams) error { return nil }
func (f fakeExecs) Start(context.Context, Actor, api.ExecParams, *jsonrpc.FDs) (api.StartResult, error) {
	return api.StartResult{Exec: "ex_1", PID: 2}, nil
}
func (f fakeExecs) Wait(context.Context, api.WaitParams) (api.ExecResult, error) {
	return api.ExecResult{Exec: "ex_1"}, nil
}
func (f fakeExecs) Read(_ context.Context, p api.ReadParams) (api.Chunk, error) {
	return api.Chunk{Offset: p.Offset, Next: p.Offset}, nil
}
func (f fakeExecs) Attach(p api.AttachParams) (Output, error) {
	if f.attach != nil {
		return f.attach(p)
	}
	return &fakeOutput{}, nil
}
func (f fakeExecs) Write(context.Context, api.WriteParams) error  { return nil }
func (f fakeExecs) CloseStdin(context.Context, api.ExecRef) error { return nil }
func (f fakeExecs) KillExec(context.Context, api.ExecRef) (api.ExecResult, error) {
	return api.ExecResult{Exec: "ex_1"}, nil
}
func (f fakeExecs) Execs(string) ([]api.Exec, error)     { return nil, nil }
func (f fakeExecs) Exec(p api.ExecRef) (api.Exec, error) { return api.Exec{Exec: p.Exec}, nil }

type fakeShells struct{ *engines }

func (fakeShells) OpenShell(context.Context, api.ShellParams) (api.Shell, error) {
	return api.Shell{Shell: "sh_1"}, nil
}
func (fakeShells) RunShell(_ context.Context, p api.ShellRunParams) (api.ShellResult, error) {
	return api.ShellResult{Shell: p.Shell}, nil
}
func (fakeShells) CloseShell(context.Context, api.ShellRef) (api.ExecResult, error) {
	return api.ExecResult{}, nil
}
func (fakeShells) Shells(string) ([]api.Shell, error) { return nil, nil }

type fakeCode struct{}

func (fakeCode) RunCode(context.Context, Actor, api.CodeParams, func(api.Progress)) (api.CodeResult, error) {
	return api.CodeResult{Artifacts: []api.Artifact{}}, nil
}
func (fakeFiles) SyncFiles(context.Context, api.FileSyncParams) (api.FileSynced, error) {
	return api.FileSynced{}, nil
}
func (fakeCode) ScanCode(_ context.Context, p api.ScanParams) (api.ScanResult, error) {
	return api.ScanResult{Language: p.Language, Findings: []api.Finding{}, Imports: []api.ScanImport{}}, nil
}
func (fakeCode) CodeContexts(string) ([]api.CodeContext, error)              { return nil, nil }
func (fakeCode) EndCodeContext(context.Context, api.CodeContextParams) error { return nil }

type fakeModes struct{}

func (fakeModes) Decide(_ context.Context, _ Actor, p api.DecideParams) (api.Decision, error) {
	return api.Decision{Decision: api.WhereSandbox, Mode: p.Mode, Findings: []api.Finding{}}, nil
}
func (fakeModes) EndHost(Actor, api.HostEndParams) error { return nil }

type fakeTools struct{}

func (fakeTools) Tools() []api.Tool { return []api.Tool{{Name: "t"}} }
func (fakeTools) CallTool(context.Context, api.ToolCallParams, func(string, int)) (api.ToolResult, error) {
	return api.ToolResult{Content: []api.ToolContent{}}, nil
}

type fakeWorkspaces struct{}

func (fakeWorkspaces) DiffWorkspace(context.Context, api.WorkspaceDiffParams) (api.WorkspaceDiff, error) {
	return api.WorkspaceDiff{}, nil
}

func (fakeWorkspaces) ApplyWorkspace(context.Context, api.WorkspaceApplyParams, *jsonrpc.FDs) (api.WorkspaceApplied,
	error) {
	return api.WorkspaceApplied{}, nil
}

func (fakeWorkspaces) DiscardWorkspace(context.Context, api.WorkspaceParams) (api.WorkspaceDiscarded, error) {
	return api.WorkspaceDiscarded{}, nil
}

type fakeVolumes struct{}

func (fakeVolumes) CreateVolume(_ Actor, p api.VolumeParams) (api.Volume, error) {
	return api.Volume{Name: p.Name, Sandboxes: []string{}}, nil
}

func (fakeVolumes) ListVolumes(context.Context, Actor, api.VolumeListParams) ([]api.Volume, error) {
	return nil, nil
}
func (fakeVolumes) RemoveVolume(Actor, api.VolumeParams) error { return nil }

type fakePools struct{}

func (fakePools) CreatePool(_ context.Context, _ Actor, p api.PoolSpec, _ func(api.Progress)) (api.Pool, error) {
	return api.Pool{PoolSpec: p}, nil
}

func (fakePools) Acquire(context.Context, Actor, api.AcquireParams) (*api.Sandbox, error) {
	return nil, nil
}

func (fakePools) Release(context.Context, string) (api.KillResult, error) {
	return api.KillResult{}, nil
}
func (fakePools) Pool(string) (api.Pool, error)            { return api.Pool{}, nil }
func (fakePools) Pools() []api.Pool                        { return nil }
func (fakePools) ResizePool(string, int) (api.Pool, error) { return api.Pool{}, nil }
func (fakePools) RemovePool(string) (api.PoolRemoved, error) {
	return api.PoolRemoved{}, nil
}

type fakeFiles struct{ *engines }

func (fakeFiles) ReadFile(context.Context, api.FileReadParams, *jsonrpc.FDs) (api.FileChunk, error) {
	return api.FileChunk{}, nil
}
func (fakeFiles) WriteFile(context.Context, api.FileWriteParams, *jsonrpc.FDs) (api.FileWritten, error) {
	return api.FileWritten{}, nil
}
func (fakeFiles) ListFiles(context.Context, api.FileListParams) (api.FileList, error) {
	return api.FileList{}, nil
}
func (fakeFiles) StatFile(context.Context, api.FileStatParams) (api.File, error) {
	return api.File{}, nil
}
func (fakeFiles) MakeFolder(context.Context, api.FileMkdirParams) (api.FileMade, error) {
	return api.FileMade{}, nil
}
func (fakeFiles) RemoveFile(context.Context, api.FileRemoveParams) (api.FileRemoved, error) {
	return api.FileRemoved{}, nil
}
func (fakeFiles) PackFiles(context.Context, api.FilePackParams, *jsonrpc.FDs) (api.FileArchive, error) {
	return api.FileArchive{}, nil
}
func (fakeFiles) UnpackFiles(context.Context, api.FileUnpackParams, *jsonrpc.FDs) (api.FileArchive, error) {
	return api.FileArchive{}, nil
}
func (fakeFiles) MoveFile(context.Context, api.FileMoveParams) error { return nil }

type fakeEvents struct{ *engines }

func (f fakeEvents) Subscribe(_ context.Context, p api.SubscribeParams) (EventCursor, api.Subscribed, error) {
	if f.events != nil {
		return f.events(p)
	}
	return &fakeCursor{}, api.Subscribed{NextSeq: 5}, nil
}

type fakeImages struct{ *engines }

func (f fakeImages) Pull(ctx context.Context, p api.PullParams, progress func(api.Progress)) (api.Image, error) {
	if f.pull != nil {
		return f.pull(ctx, p, progress)
	}
	return api.Image{Ref: p.Ref}, nil
}
func (f fakeImages) List() ([]api.Image, error)                     { return nil, nil }
func (f fakeImages) Inspect(ref string) (api.Image, error)          { return api.Image{Ref: ref}, nil }
func (f fakeImages) Remove(string) error                            { return nil }
func (f fakeImages) Tag(p api.TagParams) (api.Image, error)         { return api.Image{Ref: p.Target}, nil }
func (f fakeImages) DiskUse(context.Context) (api.ImageDisk, error) { return api.ImageDisk{}, nil }
func (f fakeImages) Prune(api.PruneParams) (api.Pruned, error)      { return api.Pruned{Bytes: 3}, nil }
func (f fakeImages) Commit(_ context.Context, p api.CommitParams, _ func(api.Progress)) (api.Committed, error) {
	return api.Committed{Image: api.Image{Ref: p.Ref}}, nil
}
func (f fakeImages) Export(context.Context, api.ExportParams, *jsonrpc.FDs) (api.Exported, error) {
	return api.Exported{Bytes: 7}, nil
}
func (f fakeImages) Push(_ context.Context, p api.PushParams, _ func(api.Progress)) (api.Pushed, error) {
	return api.Pushed{Ref: p.Target}, nil
}
func (f fakeImages) Login(_ context.Context, p api.LoginParams) (api.Login, error) {
	return api.Login{Registry: p.Registry, Username: p.Username, Stored: fmt.Sprintf("%v %+v %#v", p.Password, p, p)},
		nil
}
func (f fakeImages) Logout(context.Context, string) error { return nil }
func (f fakeImages) GetLogin(_ context.Context, registry string) (api.Login, error) {
	return api.Login{Registry: registry, Username: "me"}, nil
}
func (f fakeImages) Verify(context.Context, api.VerifyParams) (api.Verified, error) {
	return api.Verified{}, nil
}
func (f fakeImages) Import(_ context.Context, p api.ImportParams, _ *jsonrpc.FDs, _ func(api.Progress)) (api.Image,
	error) {
	return api.Image{Ref: p.Ref}, nil
}

func newServer(t testing.TB, e *engines) *Server {
	t.Helper()
	s, err := New(Config{System: e, Sandboxes: fakeSandboxes{e}, Execs: fakeExecs{e}, Shells: fakeShells{e},
		Pools: fakePools{}, Volumes: fakeVolumes{}, Templates: fakeTemplates{}, Ports: fakePorts{},
		Snapshots: fakeSnapshots{}, Workspaces: fakeWorkspaces{}, Tools: fakeTools{}, Code: fakeCode{},
		Modes: fakeModes{}, Networks: fakeNetworks{}, Files: fakeFiles{e}, Images: fakeImages{e},
		Events: fakeEvents{e}, Audit: fakeAudit{}})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// peer is a client that does exactly what a test says.
type peer struct {
	t    testing.TB
	conn *net.UnixConn
	r    *jsonrpc.Reader
	done chan struct{} // closed when ServeConn has returned
}

// serve connects a peer to s. The test ends the connection and waits for the
// server's side.
func serve(t testing.TB, s *Server) *peer { return serveAs(t, s, Actor{UID: 7}) }

func serveAs(t testing.TB, s *Server, who Actor) *peer {
	t.Helper()
	return serveIn(context.Background(), t, s, who)
}

func serveIn(ctx context.Context, t testing.TB, s *Server, who Actor) *peer {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var conns [2]*net.UnixConn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "pair")
		c, err := net.FileConn(f)
		_ = f.Close()
		if err != nil {
			t.Fatal(err)
		}
		conns[i] = c.(*net.UnixConn)
	}
	p := &peer{t: t, conn: conns[0], r: jsonrpc.NewReader(conns[0], 64<<20, jsonrpc.LongLines{}),
		done: make(chan struct{})}
	go func() {
		s.ServeConn(ctx, conns[1], who)
		close(p.done)
	}()
	t.Cleanup(func() {
		_ = p.conn.Close()
		<-p.done
	})
	return p
}

func (p *peer) send(line string, files ...*os.File) {
	p.t.Helper()
	if _, err := jsonrpc.Send(p.conn, []byte(line+"\n"), files); err != nil {
		p.t.Fatal(err)
	}
}

// message is a line from the server.
type message struct {
	ID     json.RawMessage
	Method string
	Params json.RawMessage
	Result json.RawMessage
	Error  *jsonrpc.Error
}

func (p *peer) line() []byte {
	p.t.Helper()
	line, _, err := p.r.ReadLine()
	if err != nil {
		p.t.Fatal(err)
	}
	return line
}

func (p *peer) recv() message {
	p.t.Helper()
	var m message
	line := p.line()
	if err := json.Unmarshal(line, &m); err != nil {
		p.t.Fatalf("%q: %v", line, err)
	}
	return m
}

// recvOK receives the result of the request id.
func (p *peer) recvOK(id string) json.RawMessage {
	p.t.Helper()
	m := p.recv()
	for m.Method == api.NotifyEventsEnd { // comes when it comes
		m = p.recv()
	}
	if m.Error != nil || string(m.ID) != id {
		p.t.Fatalf("got %s %s %v, want the result of %s", m.Method, m.ID, m.Error, id)
	}
	return m.Result
}

// recvErr receives an error and checks what all errors have.
func (p *peer) recvErr(id string, code int) *jsonrpc.Error {
	p.t.Helper()
	m := p.recv()
	if m.Error == nil || m.Error.Code != code || string(m.ID) != id {
		p.t.Fatalf("got %s %s %+v, want error %d of %s", m.ID, m.Result, m.Error, code, id)
	}
	if m.Error.Data.Hint == "" || m.Error.Message == "" {
		p.t.Errorf("error without message or hint: %+v", m.Error)
	}
	return m.Error
}

// alive checks that the connection still answers.
func (p *peer) alive() {
	p.t.Helper()
	p.send(`{"jsonrpc":"2.0","id":"alive","method":"system.info"}`)
	p.recvOK(`"alive"`)
}

func (p *peer) eof() {
	p.t.Helper()
	if line, _, err := p.r.ReadLine(); err != io.EOF {
		p.t.Errorf("got %q, %v; want EOF", line, err)
	}
}

func request(id any, method, params string) string {
	raw, err := json.Marshal(id)
	if err != nil {
		panic(err)
	}
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":%q,"params":%s}`, raw, method, params)
}

// runParams are valid params of exec.run with more members.
func runParams(more string) string {
	if more != "" {
		more = "," + more
	}
	return `{"sandbox":"x","argv":["true"]` + more + `}`
}

// pipe returns a pipe's ends; the test closes what it does not close itself.
func pipe(t testing.TB) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close(); _ = w.Close() })
	return r, w
}

func sameJSON(t testing.TB, got []byte, want string) {
	t.Helper()
	var a, b bytes.Buffer
	if err := json.Compact(&a, got); err != nil {
		t.Fatalf("%q: %v", got, err)
	}
	if err := json.Compact(&b, []byte(want)); err != nil {
		t.Fatal(err)
	}
	if a.String() != b.String() {
		t.Errorf("got  %s\nwant %s", a.String(), b.String())
	}
}
