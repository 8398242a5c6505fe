package state_test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/probe"
	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/api"
	hutch "github.com/hutch-sh/hutch/runtime/client"
)

// showFiles tells of all that is below some folders: names, types, modes, owners, times of the last change of content,
// links and content.
const showFiles = `for d in /w /workspace; do cd $d && find . -printf '%p %y %m %U:%G %s %T@ %n %l\n' | grep -v '^./[^ ]* d ' | sort; find . -type d -printf '%p %m %U:%G %T@\n' | sort
find . -type f -print0 | sort -z | xargs -0 cat | md5sum; done`

// undoBox is a sandbox with checkpoints and its tools.
type undoBox struct {
	toolbox
	t testing.TB
}

func newUndoBox(t testing.TB, w *world.World, c *hutch.Client, args ...string) undoBox {
	t.Helper()
	b := undoBox{toolbox{c, w.Create(t, append([]string{"--undo"}, args...)...)}, t}
	b.files("mkdir -p /w")
	return b
}

// files runs a command that is no call of a tool.
func (b undoBox) files(command string) string {
	b.t.Helper()
	res := world.Ran(b.t, b.c, b.sandbox, command)
	if res.ExitCode != 0 {
		b.t.Fatalf("%s: %+v", command, res)
	}
	return res.Stdout
}

// tool calls one, and returns the call's id.
func (b undoBox) tool(name string, arguments world.Args) string {
	b.t.Helper()
	text, err := json.Marshal(arguments)
	if err != nil {
		b.t.Fatal(err)
	}
	r := b.call(b.t, name, string(text))
	if r.IsError || r.Call == "" {
		b.t.Fatalf("%s %s: %+v", name, text, r)
	}
	if last := r.Content[len(r.Content)-1].Text; r.Undo != strings.Contains(last, r.Call) {
		b.t.Errorf("%+v", r)
	}
	return r.Call
}

func (b undoBox) undo(call string) api.CheckpointRestored {
	b.t.Helper()
	r, err := b.c.RestoreCheckpoint(b.t.Context(), api.CheckpointRestoreParams{Sandbox: b.sandbox, ToCall: call})
	if err != nil {
		b.t.Fatalf("undo %q: %v", call, err)
	}
	if r.ID != b.sandbox || r.State != api.Running || r.Call == "" {
		b.t.Errorf("%+v", r)
	}
	return r
}

func (b undoBox) calls() (list []api.Checkpoint) {
	b.t.Helper()
	r, err := b.c.Checkpoints(b.t.Context(), b.sandbox)
	if err != nil {
		b.t.Fatal(err)
	}
	return r.Checkpoints
}

// different says where two texts differ first.
func different(got, want string) string {
	a, b := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return fmt.Sprintf("line %d of %d: got %q, want %q", i, len(b), a[i], b[i])
		}
	}
	return fmt.Sprintf("%d lines, want %d", len(a), len(b))
}

// TestUndo: whatever a call of a tool does to files is taken back to the byte; calls that change nothing have no
// checkpoint; undoing is undone; all of it outlives hutchd, a stop and a start, and nothing is left of it in the end.
func TestUndo(t *testing.T) {
	testenv.Axes(t, testenv.User)
	testenv.Suite(t, "slow")
	t.Parallel()
	w := world.New(t)
	c := w.Connect(t)
	dir := w.Sub(t, "project")
	world.Write(t, filepath.Join(dir, "mine"), "mine\n")
	b := newUndoBox(t, w, c, "--name", "box", "--workspace", dir+":overlay", "-e", "A=b", "host")
	b.files(`cd /w; mkdir $(seq 0 19); for i in $(seq 1000); do echo $i >$((i % 20))/$i; done; chmod 4711 1/1; chmod 0 1/21; ln 2/2 2/hard; ln -s /etc/shadow link; ln -s ../../../.. out
mkfifo pipe; truncate -s 8M sparse; touch -d "2001-02-03 04:05:06" 3; chmod 1770 4; printf 'a\nb\n' >text; rm /etc/hosts`)

	steps := []struct {
		tool string
		args world.Args
	}{
		{api.ToolNameWriteFile, world.Args{"path": "/w/new/file", "content": "x"}},
		{api.ToolNameWriteFile, world.Args{"path": "mine", "content": "theirs", "append": true}},
		{api.ToolNameFindReplace, world.Args{"path": "/w/text", "find": "a", "replace": "c"}},
		{api.ToolNameApplyPatch,
			world.Args{"path": "/w",
				"patch": "*** Begin Patch\n*** Update File: text\n@@\n-b\n+d\n*** Add File: added\n+new\n*** End Patch\n"}},
		{api.ToolNameDeleteFile, world.Args{"path": "/w/5", "recursive": true}},
		{api.ToolNameDeleteFile, world.Args{"path": "/workspace/mine"}},
		{api.ToolNameRunCommand, world.Args{"command": `cd /w; rm -r 6 7 link; mv 8 8moved; echo dir >8; find 9 -type f | xargs chmod 600; for i in $(seq 1000); do echo more >>10/$i; done; ln -s 10 link
chmod 777 1/1; echo x >1/1; rm pipe; mkdir pipe; echo y >>sparse; echo z >2/hard; echo late >/workspace/late; echo back >/etc/hosts`}},
		{api.ToolNameRunCommand, world.Args{"command": "rm -r /w/* /workspace/*; false || true"}},
		{api.ToolNameRunCommand, world.Args{"argv": []string{"touch", "/w/last"}}},
		{api.ToolNameWriteFile, world.Args{"path": "/w/last", "content": "last"}},
	}
	var before, calls []string
	for _, s := range steps {
		before = append(before, b.files(showFiles))
		b.tool(api.ToolNameReadFile, world.Args{"path": "/workspace/../etc/passwd"}) // changes nothing
		calls = append(calls, b.tool(s.tool, s.args))
	}
	before = append(before, b.files(showFiles))
	b.tool(api.ToolNameFindReplace, world.Args{"path": "/w/last", "find": "last", "replace": "c", "dry_run": true})
	b.bad(t, api.ToolNameWriteFile, `{"path":"/w/x"}`, api.InvalidArgument)
	list := b.calls()
	if len(list) != len(steps) {
		t.Fatalf("%+v", list)
	}
	for i, k := range list {
		if k.Call != calls[i] || k.Tool != steps[i].tool || k.Undone || k.ID == "" || k.Time.IsZero() {
			t.Errorf("%+v", k)
		}
	}
	if p := list[3].Paths; !slices.Equal(p, []string{"text", "added"}) {
		t.Errorf("%q", p)
	}

	check := func(what string, i int) {
		t.Helper()
		if got := b.files(showFiles); got != before[i] {
			t.Errorf("%s: %s", what, different(got, before[i]))
		}
	}
	r := b.undo("") // the last one
	check("last", len(steps)-1)
	if !slices.Equal(r.Undone, calls[len(steps)-1:]) || r.ToCall != calls[len(steps)-1] {
		t.Errorf("%+v", r)
	}
	again := b.undo("")
	check("the one before", len(steps)-2)
	b.undo(again.Call)
	check("what that has undone", len(steps)-1)
	b.undo(r.Call)
	check("the first undo", len(steps))
	for _, i := range []int{6, 0, 9, 3, 5, 1, 4, 8, 2, 7} {
		b.undo(calls[i])
		check(fmt.Sprint("before ", steps[i].tool, " ", i), i)
		for k, p := range b.calls()[:len(steps)] {
			if p.Undone != (k >= i) {
				t.Errorf("%d: %+v", i, p)
			}
		}
	}
	if got := b.files("echo $A; cat /etc/hosts 2>/dev/null; true"); got != "b\nback\n" {
		t.Errorf("%q", got)
	}

	world.Kill(t, w.Daemon(t).Hutchd)
	c = w.Reconnect(t)
	b.c = c
	b.undo(calls[4])
	check("after the death of hutchd", 4)
	w.OK(t, "stop", "-t", "0", "box")
	if got := len(b.calls()); got < len(steps) {
		t.Errorf("%d", got)
	}
	w.OK(t, "start", "--workspace", dir+":overlay", "box")
	w.OK(t, "undo", "--to", calls[2], "box")
	check("after a stop", 2)
	w.OK(t, "stop", "-t", "0", "box")
	w.OK(t, "undo", "--to", calls[6], "--workspace", dir+":overlay", "box") // of one that is stopped
	check("of a stopped one", 6)
	if got := w.OK(t, "undo", "ls", "-q", "box"); !strings.HasPrefix(got, calls[0]+"\n") {
		t.Errorf("%q", got)
	}
	if got := world.Read(t, filepath.Join(dir, "mine")); got != "mine\n" {
		t.Errorf("%q", got)
	}
	w.Run(t, "undo", "--to", "tc_none", "box").Want(t, 125).Says(t, "hutch undo ls")
	w.OK(t, "rm", "-f", "box")
	w.ShelfEmpty(t)
}

// TestUndoCode: code.run is undone, the interpreter that was kept ends and says so; a sandbox without undo, or without
// a call, is an error; folders of the host's that can be written are refused, volumes told.
func TestUndoCode(t *testing.T) {
	testenv.Axes(t, testenv.Privilege)
	t.Parallel()
	w := world.New(t)
	c := w.Connect(t)
	dir := w.Sub(t, "project")
	b := newUndoBox(t, w, c, "-v", "cache:/cache", "host")
	if _, err := c.RestoreCheckpoint(t.Context(),
		api.CheckpointRestoreParams{Sandbox: b.sandbox}); api.ErrorCode(err) != api.NotFound {
		t.Error(err)
	}
	code := func(text string) api.CodeResult {
		t.Helper()
		r, err := c.RunCode(t.Context(), api.CodeParams{Sandbox: b.sandbox, Language: "python", Code: text})
		if err != nil || r.Error != nil {
			t.Fatalf("%s: %v %+v", text, err, r.Error)
		}
		return r
	}
	// What is mapped changes without getting a new time.
	code("import mmap\nopen('/w/map', 'wb').write(b'0' * 4096)\nf = open('/w/map', 'r+b')\nm = mmap.mmap(f.fileno(), 0)\nm[0:1] = b'1'")
	two := code("m[0:1] = b'2'")
	three := code("m[0:1] = b'3'; open('/w/three', 'w'); open('/cache/three', 'w')")
	r := b.undo("")
	if len(r.Ended.Contexts) != 1 || !slices.Equal(r.NotCovered, []string{"/cache"}) || r.ToCall != three.Call {
		t.Errorf("%+v", r)
	}
	if got := b.files("head -c 1 /w/map; ls /w /cache"); got != "2/cache:\nthree\n\n/w:\nmap\n" {
		t.Errorf("%q", got)
	}
	b.undo(two.Call)
	if got := b.files("head -c 1 /w/map"); got != "1" {
		t.Errorf("%q", got)
	}
	b.undo("")
	if got := b.files("ls /w"); got != "" {
		t.Errorf("%q", got)
	}
	if again := code("1"); !again.Begun {
		t.Errorf("%+v", again)
	}

	plain := w.Create(t, "host")
	if r := (toolbox{c, plain}).call(t, api.ToolNameWriteFile, `{"path":"/f","content":"x"}`); r.Undo || r.Call == "" {
		t.Errorf("%+v", r)
	}
	w.Run(t, "undo", plain).Want(t, 125).Says(t, "--undo")
	w.Run(t, "undo", "ls", plain).Want(t, 125).Says(t, "--undo")
	w.Run(t, "create", "--undo", "--workspace", dir, "host").Want(t, 125).Says(t, "mode rw", ":overlay")
	w.Run(t, "create", "--undo", "-v", dir+":/d", "host").Want(t, 125).Says(t, "mode rw", ":overlay")
	// A scope says so too.
	scope := &api.Scope{Kind: api.ScopeAgent, Key: "k", Undo: true}
	sb, err := c.CreateSandbox(t.Context(), api.CreateParams{Spec: api.Spec{Image: "host", Scope: scope}}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if r := (toolbox{c, sb.ID}).call(t, api.ToolNameWriteFile, `{"path":"/f","content":"x"}`); !r.Undo {
		t.Errorf("%+v", r)
	}
	if list, err := c.Scopes(t.Context()); err != nil || len(list) != 1 || !list[0].Undo || list[0].Key != "k" {
		t.Errorf("%+v %v", list, err)
	}
	w.OK(t, "scope", "end", "agent:k")
	w.OK(t, "rm", "-f", plain, b.sandbox)
	w.OK(t, "volume", "rm", "cache")
	w.ShelfEmpty(t)
}

// TestUndoMany: calls at once, beside programs that write, each have a checkpoint of whole files; the oldest go.
func TestUndoMany(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	c := w.Connect(t)
	b := newUndoBox(t, w, c, "host")
	world.StartIn(t, c, b.sandbox,
		`mkdir /busy; i=0; while :; do i=$((i+1)); for f in a b; do yes $i | head -n 2000 >/busy/.$f; mv /busy/.$f /busy/$f; done; done`)
	b.files("until [ -e /busy/b ]; do sleep 0.01; done")
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for k := range 15 {
				if i%2 == 0 {
					b.tool(api.ToolNameWriteFile, world.Args{"path": fmt.Sprintf("/w/%d-%d", i, k), "content": "x"})
				} else {
					b.tool(api.ToolNameRunCommand, world.Args{"command": fmt.Sprintf("echo x >/w/%d-%d", i, k)})
				}
			}
		})
	}
	wg.Wait()
	list := b.calls()
	if len(list) != api.MaxCheckpoints {
		t.Errorf("%d checkpoints", len(list))
	}
	for _, k := range []api.Checkpoint{list[0], list[25], list[49]} {
		b.undo(k.Call)
		if got := b.files("for f in /busy/?; do sort -u $f | wc -l; wc -l <$f; done | sort -u"); got != "1\n2000\n" {
			t.Errorf("%q", got)
		}
	}
	w.OK(t, "rm", "-f", b.sandbox)
	w.ShelfEmpty(t)
}

// TestUndoDeath: hutchd is killed at any moment of calls and of undoing them: the files are those of before or after,
// and whatever is listed can be restored.
func TestUndoDeath(t *testing.T) {
	testenv.Axes(t, testenv.User)
	testenv.Suite(t, "slow")
	t.Parallel()
	for _, name := range []string{"call", "undo"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := world.New(t)
			w.Tolerated = append(w.Tolerated, "take over a sandbox; it is removed")
			c := w.Connect(t)
			b := newUndoBox(t, w, c, "host")
			b.files("cd /w; for i in $(seq 300); do echo $i >$i; done; head -c 2000000 /dev/urandom >big; sync /w/big")
			sum := b.files("md5sum </w/big")
			b.tool(api.ToolNameWriteFile, world.Args{"path": "/w/n", "content": "0"})
			world.StartIn(t, c, b.sandbox, "sleep 1000")
			for range 4 { // a daemon whose hutchd dies more often gives up
				ended := make(chan struct{})
				n := b.files("cat /w/n")
				go func() {
					defer close(ended)
					for i := range 20 {
						if name == "undo" {
							_, _ = c.RestoreCheckpoint(t.Context(), api.CheckpointRestoreParams{Sandbox: b.sandbox})
							return
						}
						text := fmt.Sprintf(`{"path":"/w/n","content":"%s%d"}`, n, i)
						if _, err := c.CallTool(t.Context(),
							api.ToolCallParams{Sandbox: b.sandbox, Name: api.ToolNameWriteFile,
								Arguments: json.RawMessage(text)}, nil); err != nil {
							return
						}
					}
				}()
				testenv.RandomMomentOf(ended, 80*time.Millisecond)
				world.Kill(t, w.Daemon(t).Hutchd)
				<-ended
				c = w.Reconnect(t)
				b.c = c
				if _, err := c.StartSandbox(t.Context(), api.StartParams{Sandbox: b.sandbox}); err != nil {
					t.Fatal(err)
				}
				if got := b.files("md5sum </w/big; ls /w | wc -l"); !strings.HasPrefix(got, sum) {
					t.Fatalf("%q, want %q", got, sum)
				}
				for _, k := range b.calls() {
					if k.Tool == api.MethodCheckRestore {
						continue
					}
					b.undo(k.Call)
					if got := b.files("md5sum </w/big; cat /w/300"); got != sum+"300\n" {
						t.Fatalf("%q", got)
					}
					break
				}
				b.tool(api.ToolNameWriteFile, world.Args{"path": "/w/n", "content": "1"})
				b.tool(api.ToolNameWriteFile, world.Args{"path": "/w/n", "content": "2"})
			}
			w.OK(t, "rm", "-f", b.sandbox)
			w.Restart(t)
			w.OK(t, "ps")
			w.ShelfEmpty(t)
		})
	}
}

// TestUndoLimit: checkpoints take as much as the files may and no more, and refuse no call for it; a full disk refuses
// the call, which changes nothing.
func TestUndoLimit(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	c := w.Connect(t)
	b := newUndoBox(t, w, c, "--disk", "16m", "host")
	for i := range 6 {
		b.tool(api.ToolNameRunCommand, world.Args{"command": fmt.Sprintf("head -c 5000000 /dev/urandom >/w/%d", i%2)})
	}
	r, err := c.Checkpoints(t.Context(), b.sandbox)
	if err != nil || r.TotalBytes > 16*world.MiB || len(r.Checkpoints) == 0 || len(r.Checkpoints) > 4 {
		t.Errorf("%+v %v", r, err)
	}
	b.undo("")
	w.OK(t, "rm", "-f", b.sandbox)
	w.ShelfEmpty(t)
}

// TestUndoNoSpace: a call whose checkpoint does not fit on the disk is refused, with what to do, and has changed
// nothing.
func TestUndoNoSpace(t *testing.T) {
	testenv.Root(t)
	w := world.New(t)
	w.Configure(t, world.NoneAhead)
	state := w.Sub(t, "state")
	if err := unix.Mount("tmpfs", state, "tmpfs", 0, "size=24m,mode=700"); err != nil {
		testenv.Require(t, probe.Check{Name: "mount_tmpfs", Status: probe.No, Detail: err.Error()})
	}
	defer func() {
		w.Shutdown()
		w.WaitGone(time.Now().Add(world.Patience))
		if err := unix.Unmount(state, unix.MNT_DETACH); err != nil { // as in TestNoSpace
			t.Error(err)
		}
	}()
	c := w.Connect(t)
	b := newUndoBox(t, w, c, "host")
	b.tool(api.ToolNameWriteFile, world.Args{"path": "/w/f", "content": "one"})
	b.files("head -c 13000000 /dev/urandom >/w/big")
	undoFiles := func() string {
		t.Helper()
		list, err := filepath.Glob(filepath.Join(state, "daemons", "*", "sandboxes", b.sandbox, "undo", "objects", "*"))
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(list, "\n")
	}
	b.bad(t, api.ToolNameWriteFile, `{"path":"/w/f","content":"two"}`, api.ResourceExhausted, "it was not made",
		"hutch exec")
	if got := b.files("cat /w/f"); got != "one" {
		t.Errorf("%q", got)
	}
	if got := undoFiles(); got != "" { // the one before has made room in vain
		t.Errorf("left: %s", got)
	}
	w.OK(t, "exec", b.sandbox, "rm", "/w/big")
	b.tool(api.ToolNameWriteFile, world.Args{"path": "/w/f", "content": "three"})
	b.undo("")
	if got := b.files("cat /w/f"); got != "one" {
		t.Errorf("%q", got)
	}
	// A tmpfs notes no time when something that was read is written to in a mapping.
	b.files("head -c 4096 /dev/zero | tr '\\0' 0 >/w/map; sleep 0.05")
	var calls []string
	for i := range 3 {
		calls = append(calls, b.tool(api.ToolNameRunCommand, world.Args{"argv": []string{"python3", "-c", fmt.Sprintf(`import mmap
f = open("/w/map", "r+b"); m = mmap.mmap(f.fileno(), 0); x = m[0:1]; m[0:1] = b"%d"`, i)}}))
	}
	for i := 2; i >= 1; i-- {
		b.undo(calls[i])
		if got := b.files("head -c 1 /w/map"); got != fmt.Sprint(i-1) {
			t.Errorf("%d: %q", i, got)
		}
	}
	w.OK(t, "rm", "-f", b.sandbox)
}
