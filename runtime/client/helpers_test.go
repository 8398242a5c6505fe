package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/runtime/api"
)

// TestHelpers checks what each helper sends and that it returns what came.
func TestHelpers(t *testing.T) {
	calls := make(chan *fakeCall, 1)
	c := connected(t, func(r *fakeCall) (any, error) {
		calls <- r
		if r.Method == api.MethodInfo {
			return api.Info{PID: 1}, nil // its exec is an object
		}
		if strings.HasPrefix(r.Method, "fs.") {
			return map[string]any{
				"data": "text", "size": 4, "removed": 5, "created": true, "name": "a", "truncated": true, "skipped": 6,
			}, nil
		}
		switch r.Method {
		case api.MethodSandboxRun:
			return api.RunResult{Sandbox: api.Sandbox{ID: "sb_1"}, Exec: api.ExecResult{Exec: "ex_1"}}, nil
		case api.MethodVolumeCreate:
			return api.Volume{Name: "vv"}, nil
		case api.MethodTemplateCreate, api.MethodTemplateInspect:
			return api.Template{TemplateSpec: api.TemplateSpec{Name: "t"}}, nil
		case api.MethodTemplateBuild:
			return api.TemplateBuildResult{Template: api.Template{TemplateSpec: api.TemplateSpec{Name: "t"}}}, nil
		case api.MethodTemplateList:
			return api.Templates{Templates: []api.Template{{TemplateSpec: api.TemplateSpec{Name: "t"}}}}, nil
		case api.MethodTemplateRemove:
			return api.TemplateRemoved{Image: "i"}, nil
		case api.MethodPoolCreate, api.MethodPoolStatus, api.MethodPoolResize:
			return api.Pool{PoolSpec: api.PoolSpec{Name: "p"}}, nil // its sandbox is an object, too
		}
		return map[string]any{
			"address": "127.0.0.1:1", "ports": []any{map[string]any{"address": "127.0.0.1:2"}},
			"pools": []any{map[string]any{"name": "q"}}, "in_use": 8,
			"text": "text", "snapshots": []api.Snapshot{{ID: "sn_1"}}, "volumes": []any{map[string]any{"name": "vv"}},
			"contexts": []any{map[string]any{"context": "cc"}}, "scopes": []any{map[string]any{"key": "k"}},
			"tools": []api.Tool{{Name: "t"}}, "content": []api.ToolContent{{Text: "done"}},
			"digest": "h", "applied": []string{"a"}, "discarded": []string{"a"},
			"bytes": 2, "total_bytes": 2, "id": "sb_1", "exec": "ex_1", "ref": "r", "killed": []int{3},
			"execs": []api.Exec{{Exec: "ex_2"}}, "shell": "sh_1", "shells": []api.Shell{{Shell: "sh_2"}},
			"data": "text", "checks": []api.Check{{Name: "c"}}, "sandboxes": []api.Sandbox{{ID: "sb_2"}},
			"sandbox": "sb_3", "processes": []api.Process{{PID: 7}}, "images": []api.Image{{Ref: "i"}},
			"language": "cs", "decision": "host", "next": 7, "ok": true, "seq": 3, "hash": "h",
			"logs":   []any{map[string]any{"sandbox": "sb_1"}},
			"client": "ci", "pending": []any{map[string]any{"id": "ask_1"}},
			"always":   map[string]any{"allow": []string{"b.test"}},
			"username": "me", "attachment": "at_1", "enforcement": map[string]any{"ebpf": "off"}, "rule": "mode none",
			"subscription": "ev_1", "a later version's field": true,
		}, nil
	})
	ctx := within(t)
	var att *Attachment
	file := api.FileParams{Sandbox: "x", Path: "/f"}
	var ev *Events
	tests := []struct {
		method, params, want string
		call                 func() (any, error)
	}{
		{"system.info", `{}`, "1", func() (any, error) { r, err := c.Info(ctx); return r.PID, err }},
		{"system.authenticate", `{"token":"tt"}`, "ci", func() (any, error) { return c.Authenticate(ctx, "tt") }},
		{"system.doctor", `{}`, "c", func() (any, error) { r, err := c.Doctor(ctx); return r.Checks[0].Name, err }},
		{"system.shutdown", `{"mode":"kill"}`, "ok",
			func() (any, error) { return "ok", c.Shutdown(ctx, api.ShutdownParams{Mode: "kill"}) }},
		{"system.gc", `{}`, "2", func() (any, error) { r, err := c.GC(ctx); return r.Bytes, err }},
		{"sandbox.create", `{"image":"host"}`, "sb_1", func() (any, error) {
			r, err := c.CreateSandbox(ctx, api.CreateParams{Spec: api.Spec{Image: "host"}}, nil, nil)
			return r.ID, err
		}},
		{"sandbox.get", `{"sandbox":"x"}`, "sb_1",
			func() (any, error) { r, err := c.GetSandbox(ctx, "x"); return r.ID, err }},
		{"sandbox.run", `{"sandbox":{"image":"host"},"exec":{"sandbox":"","argv":["true"]}}`, "ex_1 sb_1",
			func() (any, error) {
				r, err := c.RunNew(ctx, api.RunParams{Sandbox: &api.Spec{Image: "host"},
					Exec: api.ExecParams{Argv: []string{"true"}}}, nil, nil, nil)
				b, berr := r.Brief()
				sb, serr := r.Sandbox()
				if b.ID != sb.ID {
					t.Errorf("the brief of %q is about %q", sb.ID, b.ID)
				}
				return r.Exec.Exec + " " + sb.ID, errors.Join(err, berr, serr)
			}},
		{"sandbox.list", `{"labels":{"a":"b"}}`, "sb_2", func() (any, error) {
			r, err := c.ListSandboxes(ctx, map[string]string{"a": "b"})
			return r[0].ID, err
		}},
		{"sandbox.claim", `{"sandbox":"x"}`, "sb_1",
			func() (any, error) { r, err := c.Claim(ctx, "x"); return r.ID, err }},
		{"template.create", `{"name":"t","image":"host"}`, "t", func() (any, error) {
			r, err := c.CreateTemplate(ctx,
				api.TemplateCreateParams{TemplateSpec: api.TemplateSpec{Name: "t", Image: "host"}})
			return r.Name, err
		}},
		{"template.list", `{}`, "t", func() (any, error) { r, err := c.Templates(ctx); return r[0].Name, err }},
		{"template.inspect", `{"template":"t"}`, "t",
			func() (any, error) { r, err := c.Template(ctx, "t"); return r.Name, err }},
		{"template.build", `{"template":"t"}`, "t", func() (any, error) {
			r, err := c.BuildTemplate(ctx, api.TemplateBuildParams{Template: "t"}, nil)
			return r.Template.Name, err
		}},
		{"template.remove", `{"template":"t"}`, "i",
			func() (any, error) { r, err := c.RemoveTemplate(ctx, "t"); return r.Image, err }},
		{"pool.create", `{"name":"p","size":2,"sandbox":{"image":"host"}}`, "p", func() (any, error) {
			r, err := c.CreatePool(ctx, api.PoolSpec{Name: "p", Size: 2, Sandbox: api.Spec{Image: "host"}}, nil)
			return r.Name, err
		}},
		{"pool.acquire", `{"pool":"p","wait_ms":5}`, "sb_1", func() (any, error) {
			r, err := c.Acquire(ctx, api.AcquireParams{Pool: "p", WaitMS: 5})
			return r.ID, err
		}},
		{"pool.release", `{"sandbox":"x"}`, "[3]", func() (any, error) { return c.Release(ctx, "x") }},
		{"pool.status", `{"pool":"p"}`, "p", func() (any, error) { r, err := c.Pool(ctx, "p"); return r.Name, err }},
		{"pool.list", `{}`, "q", func() (any, error) { r, err := c.Pools(ctx); return r[0].Name, err }},
		{"pool.resize", `{"pool":"p","size":3}`, "p",
			func() (any, error) { r, err := c.ResizePool(ctx, "p", 3); return r.Name, err }},
		{"pool.remove", `{"pool":"p"}`, "8",
			func() (any, error) { r, err := c.RemovePool(ctx, "p"); return r.InUse, err }},
		{"workspace.diff", `{"sandbox":"x","unified":true}`, "h", func() (any, error) {
			r, err := c.DiffWorkspace(ctx, api.WorkspaceDiffParams{WorkspaceParams: api.WorkspaceParams{Sandbox: "x"},
				Unified: true})
			return r.Digest, err
		}},
		{"workspace.apply", `{"sandbox":"x","paths":["a"],"force":true}`, "[a]", func() (any, error) {
			r, err := c.ApplyWorkspace(ctx,
				api.WorkspaceApplyParams{WorkspaceParams: api.WorkspaceParams{Sandbox: "x", Paths: []string{"a"}},
					Force: true})
			return r.Applied, err
		}},
		{"workspace.discard", `{"sandbox":"x"}`, "[a]", func() (any, error) {
			r, err := c.DiscardWorkspace(ctx, api.WorkspaceParams{Sandbox: "x"})
			return r.Discarded, err
		}},
		{"fs.sync", `{"sandbox":"x","path":"/f","files":[{"path":"a","type":"folder"}]}`, "5", func() (any, error) {
			r, err := c.SyncFiles(ctx,
				api.FileSyncParams{FileParams: file, Files: []api.SyncFile{{Path: "a", Type: api.TypeFolder}}})
			return r.Removed, err
		}},
		{"scope.list", `{}`, "k", func() (any, error) { r, err := c.Scopes(ctx); return r[0].Key, err }},
		{"scope.reset", `{"kind":"agent","key":"k"}`, "sb_1", func() (any, error) {
			r, err := c.ResetScope(ctx, api.Scope{Kind: api.ScopeAgent, Key: "k"})
			return r.ID, err
		}},
		{"volume.create", `{"name":"v"}`, "vv",
			func() (any, error) { r, err := c.CreateVolume(ctx, "v"); return r.Name, err }},
		{"volume.list", `{"usage":true}`, "vv", func() (any, error) {
			r, err := c.Volumes(ctx, api.VolumeListParams{Usage: true})
			return r[0].Name, err
		}},
		{"volume.remove", `{"name":"v"}`, "<nil>", func() (any, error) { return nil, c.RemoveVolume(ctx, "v") }},
		{"scope.end", `{"kind":"agent","key":"k"}`, "[3]",
			func() (any, error) { return c.EndScope(ctx, api.Scope{Kind: api.ScopeAgent, Key: "k"}) }},
		{"code.run", `{"sandbox":"x","language":"python","code":"1"}`, "text", func() (any, error) {
			r, err := c.RunCode(ctx, api.CodeParams{Sandbox: "x", Language: "python", Code: "1"})
			return r.Text, err
		}},
		{"code.scan", `{"language":"python","code":"1"}`, "cs", func() (any, error) {
			r, err := c.ScanCode(ctx, api.ScanParams{Language: "python", Code: "1"})
			return r.Language, err
		}},
		{"exec.decide", `{"mode":"selective","argv":["ls"]}`, "host", func() (any, error) {
			r, err := c.Decide(ctx, api.DecideParams{Mode: api.ExecModeSelective, Argv: []string{"ls"}})
			return string(r.Decision), err
		}},
		{"exec.record_host", `{"id":"hx_1","exit_code":0,"duration_ms":2}`, "ok", func() (any, error) {
			return "ok", c.HostEnded(ctx, api.HostEndParams{ID: "hx_1", DurationMS: 2})
		}},
		{"code.contexts", `{"sandbox":"x"}`, "cc",
			func() (any, error) { r, err := c.CodeContexts(ctx, "x"); return r[0].Context, err }},
		{"code.end_context", `{"sandbox":"x","language":"python"}`, "ok", func() (any, error) {
			return "ok", c.EndCodeContext(ctx, api.CodeContextParams{Sandbox: "x", Language: "python"})
		}},
		{"tools.list", `{}`, "t", func() (any, error) { r, err := c.Tools(ctx); return r[0].Name, err }},
		{"tools.call", `{"sandbox":"x","name":"t","arguments":{"a":1}}`, "done", func() (any, error) {
			r, err := c.CallTool(ctx,
				api.ToolCallParams{Sandbox: "x", Name: "t", Arguments: json.RawMessage(`{"a":1}`)}, nil)
			return r.Content[0].Text, err
		}},
		{"system.reload", `{}`, "ok", func() (any, error) { return "ok", c.Reload(ctx) }},
		{"sandbox.update", `{"sandbox":"x","limits":{"pids":3}}`, "sb_1", func() (any, error) {
			r, err := c.Update(ctx, api.UpdateParams{Sandbox: "x", Limits: api.Limits{PIDs: 3}})
			return r.ID, err
		}},
		{"sandbox.stats", `{"sandbox":"x"}`, "sb_3",
			func() (any, error) { r, err := c.Stats(ctx, "x"); return r.Sandbox, err }},
		{"sandbox.processes", `{"sandbox":"x"}`, "7",
			func() (any, error) { r, err := c.Processes(ctx, "x"); return r.Processes[0].PID, err }},
		{"sandbox.stop", `{"sandbox":"x"}`, "sb_1", func() (any, error) {
			r, err := c.StopSandbox(ctx, api.StopParams{Sandbox: "x"})
			return r.ID, err
		}},
		{"sandbox.start", `{"sandbox":"x"}`, "sb_1", func() (any, error) {
			r, err := c.StartSandbox(ctx, api.StartParams{Sandbox: "x"})
			return r.ID, err
		}},
		{"sandbox.fork", `{"sandbox":"x"}`, "sb_2", func() (any, error) {
			r, err := c.Fork(ctx, api.ForkParams{Sandbox: "x"})
			return r.Sandboxes[0].ID, err
		}},
		{"snapshot.create", `{"sandbox":"x"}`, "sb_1", func() (any, error) {
			r, err := c.CreateSnapshot(ctx, api.SnapshotCreateParams{Sandbox: "x"})
			return r.ID, err
		}},
		{"snapshot.list", `{}`, "sn_1", func() (any, error) {
			r, err := c.Snapshots(ctx, api.SnapshotListParams{})
			return r[0].ID, err
		}},
		{"snapshot.diff", `{"snapshot":"x"}`, "sb_3", func() (any, error) {
			r, err := c.DiffSnapshot(ctx, api.SnapshotDiffParams{Snapshot: "x"})
			return r.Sandbox, err
		}},
		{"snapshot.restore", `{"snapshot":"x"}`, "sb_1", func() (any, error) {
			r, err := c.RestoreSnapshot(ctx, api.SnapshotRestoreParams{Snapshot: "x"})
			return r.ID, err
		}},
		{"checkpoint.list", `{"sandbox":"x"}`, "2", func() (any, error) {
			r, err := c.Checkpoints(ctx, "x")
			return r.TotalBytes, err
		}},
		{"checkpoint.restore", `{"sandbox":"x","to_call":"tc_1"}`, "sb_1", func() (any, error) {
			r, err := c.RestoreCheckpoint(ctx, api.CheckpointRestoreParams{Sandbox: "x", ToCall: "tc_1"})
			return r.ID, err
		}},
		{"snapshot.remove", `{"snapshot":"x"}`, "<nil>",
			func() (any, error) { return nil, c.RemoveSnapshot(ctx, "x") }},
		{"sandbox.pause", `{"sandbox":"x"}`, "sb_1",
			func() (any, error) { r, err := c.Pause(ctx, "x"); return r.ID, err }},
		{"sandbox.resume", `{"sandbox":"x"}`, "sb_1",
			func() (any, error) { r, err := c.Resume(ctx, "x"); return r.ID, err }},
		{"sandbox.kill", `{"sandbox":"x"}`, "[3]", func() (any, error) { return c.Kill(ctx, "x") }},
		{"sandbox.remove", `{"sandbox":"x"}`, "[3]", func() (any, error) { return c.Remove(ctx, "x") }},
		{"exec.run", `{"sandbox":"x","argv":["true"]}`, "ex_1", func() (any, error) {
			r, err := c.ExecRun(ctx, api.ExecParams{Sandbox: "x", Argv: []string{"true"}}, nil, nil)
			return r.Exec, err
		}},
		{"exec.start", `{"sandbox":"x","command":"true"}`, "ex_1", func() (any, error) {
			r, err := c.ExecStart(ctx, api.ExecParams{Sandbox: "x", Command: "true"}, nil)
			return r.Exec, err
		}},
		{"exec.wait", `{"exec":"e"}`, "ex_1",
			func() (any, error) { r, err := c.ExecWait(ctx, api.WaitParams{Exec: "e"}); return r.Exec, err }},
		{"exec.read", `{"exec":"e","stream":"stdout","offset":-2}`, "text", func() (any, error) {
			r, err := c.ExecRead(ctx, api.ReadParams{Exec: "e", Stream: "stdout", Offset: -2})
			return r.Data, err
		}},
		{"exec.attach", `{"exec":"e","from":{"stdout":3,"stderr":0},"credit_bytes":8,"encoding":"base64"}`, "at_1",
			func() (any, error) {
				var err error
				att, err = c.Attach(ctx, "e", AttachOptions{From: api.Offsets{Stdout: 3}, Window: 8})
				return att.id, err
			}},
		{"exec.credit", `{"exec":"e","attachment":"at_1","bytes":5}`, "ok", func() (any, error) {
			att.held = make([]byte, 5)
			return "ok", att.giveBack(ctx)
		}},
		{"exec.detach", `{"exec":"e","attachment":"at_1"}`, "ok", func() (any, error) { return "ok", att.Close() }},
		{"exec.write", `{"exec":"e","data":"x"}`, "ok",
			func() (any, error) { return "ok", c.ExecWrite(ctx, api.WriteParams{Exec: "e", Data: "x"}) }},
		{"exec.close_stdin", `{"exec":"e"}`, "ok", func() (any, error) { return "ok", c.ExecCloseStdin(ctx, "e") }},
		{"exec.kill", `{"exec":"e"}`, "ex_1",
			func() (any, error) { r, err := c.ExecKill(ctx, "e"); return r.Exec, err }},
		{"exec.list", `{"sandbox":"x"}`, "ex_2",
			func() (any, error) { r, err := c.ListExecs(ctx, "x"); return r[0].Exec, err }},
		{"exec.get", `{"exec":"e"}`, "ex_1", func() (any, error) { r, err := c.GetExec(ctx, "e"); return r.Exec, err }},
		{"exec.signal", `{"exec":"e","signal":"INT"}`, "ok",
			func() (any, error) { return "ok", c.Signal(ctx, "e", "INT") }},
		{"exec.resize", `{"exec":"e","rows":2,"cols":3}`, "ok",
			func() (any, error) { return "ok", c.Resize(ctx, "e", api.Pty{Rows: 2, Cols: 3}) }},
		{"shell.open", `{"sandbox":"x","cwd":"/tmp"}`, "sh_1", func() (any, error) {
			r, err := c.OpenShell(ctx, api.ShellParams{Sandbox: "x", Cwd: "/tmp"})
			return r.Shell, err
		}},
		{"shell.run", `{"shell":"s","command":"cd"}`, "sh_1", func() (any, error) {
			r, err := c.RunShell(ctx, api.ShellRunParams{Shell: "s", Command: "cd"})
			return r.Shell, err
		}},
		{"shell.close", `{"shell":"s"}`, "ex_1",
			func() (any, error) { r, err := c.CloseShell(ctx, "s"); return r.Exec, err }},
		{"shell.list", `{"sandbox":"x"}`, "sh_2",
			func() (any, error) { r, err := c.ListShells(ctx, "x"); return r[0].Shell, err }},
		{"fs.read", `{"sandbox":"x","path":"/f","offset":3}`, "text", func() (any, error) {
			r, err := c.ReadFile(ctx, api.FileReadParams{FileParams: file, Offset: 3}, nil)
			return r.Data, err
		}},
		{"fs.write", `{"sandbox":"x","path":"/f","data":"x"}`, "4", func() (any, error) {
			r, err := c.WriteFile(ctx, api.FileWriteParams{FileParams: file, Data: "x"}, nil)
			return r.Size, err
		}},
		{"fs.list", `{"sandbox":"x","path":"/f","recursive":true}`, "true", func() (any, error) {
			r, err := c.ListFiles(ctx, api.FileListParams{FileParams: file, Recursive: true})
			return r.Truncated, err
		}},
		{"fs.stat", `{"sandbox":"x","path":"/f"}`, "a", func() (any, error) {
			r, err := c.StatFile(ctx, api.FileStatParams{FileParams: file})
			return r.Name, err
		}},
		{"fs.mkdir", `{"sandbox":"x","path":"/f","parents":true}`, "true", func() (any, error) {
			r, err := c.MakeFolder(ctx, api.FileMkdirParams{FileParams: file, Parents: true})
			return r.Created, err
		}},
		{"fs.remove", `{"sandbox":"x","path":"/f"}`, "5", func() (any, error) {
			r, err := c.RemoveFile(ctx, api.FileRemoveParams{FileParams: file})
			return r.Removed, err
		}},
		{"fs.move", `{"sandbox":"x","path":"/f","to":"/g"}`, "ok", func() (any, error) {
			return "ok", c.MoveFile(ctx, api.FileMoveParams{FileParams: file, To: "/g"})
		}},
		{"fs.pack", `{"sandbox":"x","path":"/f","fds":1,"fd":0}`, "6", func() (any, error) {
			r, err := c.PackFiles(ctx, api.FilePackParams{FileParams: file}, os.Stdin)
			return r.Skipped, err
		}},
		{"fs.unpack", `{"sandbox":"x","path":"/f","fds":1,"fd":0}`, "6", func() (any, error) {
			r, err := c.UnpackFiles(ctx, api.FileUnpackParams{FileParams: file}, os.Stdin)
			return r.Skipped, err
		}},
		{"network.get", `{"sandbox":"x"}`, "off",
			func() (any, error) { r, err := c.Network(ctx, "x"); return r.Enforcement.EBPF, err }},
		{"port.expose", `{"sandbox":"x","port":80,"address":"0"}`, "127.0.0.1:1", func() (any, error) {
			r, err := c.ExposePort(ctx, api.PortExposeParams{Sandbox: "x", Port: 80, Address: "0"}, nil)
			return r.Address, err
		}},
		{"port.list", `{"sandbox":"x"}`, "127.0.0.1:2",
			func() (any, error) { r, err := c.Ports(ctx, "x"); return r[0].Address, err }},
		{"port.close", `{"sandbox":"x","port":80}`, "127.0.0.1:2", func() (any, error) {
			r, err := c.ClosePort(ctx, api.PortCloseParams{Sandbox: "x", Port: 80})
			return r[0].Address, err
		}},
		{"network.update", `{"sandbox":"x","add":{"allow":["a.test"]}}`, "off", func() (any, error) {
			r, err := c.UpdateNetwork(ctx,
				api.NetUpdateParams{Sandbox: "x", Add: &api.NetLists{Allow: []string{"a.test"}}})
			return r.Enforcement.EBPF, err
		}},
		{"network.check", `{"sandbox":"x","name":"a.test","port":443}`, "mode none", func() (any, error) {
			r, err := c.CheckNetwork(ctx,
				api.NetCheckParams{Sandbox: "x", NetTarget: api.NetTarget{Name: "a.test", Port: 443}})
			return r.Rule, err
		}},
		{"network.asks", `{}`, "ask_1", func() (any, error) { r, err := c.Asks(ctx); return r.Pending[0].ID, err }},
		{"network.answer", `{"id":"ask_1","answer":"once"}`, "ok", func() (any, error) {
			return "ok", c.Answer(ctx, api.AnswerParams{ID: "ask_1", Answer: api.NetOnce})
		}},
		{"network.forget", `{"entries":["a.test"]}`, "b.test", func() (any, error) {
			r, err := c.ForgetAlways(ctx, []string{"a.test"})
			return r.Always.Allow[0], err
		}},
		{"events.subscribe", `{"from_seq":4,"kinds":["exec.exited"],"credit":512}`, "ev_1", func() (any, error) {
			var err error
			from := int64(4)
			ev, err = c.Subscribe(ctx, api.SubscribeParams{FromSeq: &from, Kinds: []api.EventKind{api.EventExecExited}})
			return ev.sub.Subscription, err
		}},
		{"events.credit", `{"subscription":"ev_1","events":300}`, "end", func() (any, error) {
			ev.owed = 300
			c.eventsEnd(api.EventsEnd{Subscription: "ev_1"})
			if _, err := ev.Next(ctx); err != io.EOF {
				return "", err
			}
			ev.ended = nil
			return "end", nil
		}},
		{"events.unsubscribe", `{"subscription":"ev_1"}`, "ok", func() (any, error) { return "ok", ev.Close() }},
		{"audit.read", `{"sandbox":"x","from_seq":4}`, "7", func() (any, error) {
			r, err := c.ReadAudit(ctx, api.AuditReadParams{Sandbox: "x", FromSeq: 4})
			return r.Next, err
		}},
		{"audit.verify", `{"sandbox":"x","head":{"seq":3,"hash":"h"}}`, "true", func() (any, error) {
			r, err := c.VerifyAudit(ctx, api.AuditVerifyParams{Sandbox: "x", Head: &api.AuditHead{Seq: 3, Hash: "h"}})
			return r.OK, err
		}},
		{"audit.head", `{"sandbox":"x"}`, "3:h", func() (any, error) { return c.AuditHead(ctx, "x") }},
		{"audit.list", `{}`, "sb_1", func() (any, error) { r, err := c.ListAudit(ctx); return r[0].Sandbox, err }},
		{"image.pull", `{"ref":"x","progress":true}`, "r", func() (any, error) {
			r, err := c.PullImage(ctx, api.PullParams{Ref: "x"}, func(api.Progress) {})
			return r.Ref, err
		}},
		{"image.list", `{}`, "i", func() (any, error) { r, err := c.ListImages(ctx); return r[0].Ref, err }},
		{"image.inspect", `{"ref":"x"}`, "r",
			func() (any, error) { r, err := c.InspectImage(ctx, "x"); return r.Ref, err }},
		{"image.import", `{"ref":"x","format":"rootfs","changes":{"cmd":[]},"fd":0,"fds":1}`, "r", func() (any, error) {
			p := api.ImportParams{Ref: "x", Format: api.FormatRootfs, Changes: &api.ConfigChanges{Cmd: []string{}}}
			r, err := c.ImportImage(ctx, p, os.Stdin, nil)
			return r.Ref, err
		}},
		{"image.commit", `{"sandbox":"x","ref":"y"}`, "0", func() (any, error) {
			r, err := c.Commit(ctx, api.CommitParams{Sandbox: "x", Ref: "y"}, nil)
			return r.LeftOut, err
		}},
		{"image.export", `{"ref":"x","format":"rootfs","fd":0,"fds":1}`, "2", func() (any, error) {
			r, err := c.ExportImage(ctx, api.ExportParams{Ref: "x", Format: api.FormatRootfs}, os.Stdin)
			return r.Bytes, err
		}},
		{"image.push", `{"ref":"x","target":"y"}`, "r", func() (any, error) {
			r, err := c.PushImage(ctx, api.PushParams{Ref: "x", Target: "y"}, nil)
			return r.Ref, err
		}},
		{"image.login", `{"registry":"x","username":"me","password":"s"}`, "me", func() (any, error) {
			r, err := c.Login(ctx, api.LoginParams{Registry: "x", Username: "me", Password: "s"})
			return r.Username, err
		}},
		{"image.logout", `{"registry":"x"}`, "ok", func() (any, error) { return "ok", c.Logout(ctx, "x") }},
		{"image.get_login", `{"registry":"x"}`, "me",
			func() (any, error) { r, err := c.GetLogin(ctx, "x"); return r.Username, err }},
		{"image.tag", `{"ref":"x","target":"y"}`, "r", func() (any, error) {
			r, err := c.TagImage(ctx, api.TagParams{Ref: "x", Target: "y"})
			return r.Ref, err
		}},
		{"image.du", `{}`, "2", func() (any, error) { r, err := c.ImageDiskUse(ctx); return r.Bytes, err }},
		{"image.prune", `{"all":true}`, "0", func() (any, error) {
			r, err := c.PruneImages(ctx, api.PruneParams{All: true})
			return len(r.Removed), err
		}},
		{"image.verify", `{"repair":true}`, "0", func() (any, error) {
			r, err := c.VerifyImages(ctx, api.VerifyParams{Repair: true})
			return len(r), err
		}},
		{"image.remove", `{"ref":"x"}`, "ok", func() (any, error) { return "ok", c.RemoveImage(ctx, "x") }},
	}
	called := map[string]bool{api.MethodDiscover: true} // for people, through Call
	for _, tt := range tests {
		called[tt.method] = true
		r, err := tt.call()
		if err != nil || fmt.Sprint(r) != tt.want {
			t.Errorf("%s: %v, %v; want %s", tt.method, r, err, tt.want)
		}
		if got := <-calls; got.Method != tt.method || string(got.Params) != tt.params {
			t.Errorf("%s: sent %s %s, want %s", tt.method, got.Method, got.Params, tt.params)
		}
	}
	for _, m := range api.Methods {
		if !called[m.Name] {
			t.Errorf("no helper for %s is tested", m.Name)
		}
	}
}
