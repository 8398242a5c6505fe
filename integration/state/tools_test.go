package state_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hutch-sh/hutch/images/imagetest"
	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/api"
	hutch "github.com/hutch-sh/hutch/runtime/client"
)

// toolbox calls tools in one sandbox.
type toolbox struct {
	c       *hutch.Client
	sandbox string
}

// call calls a tool with arguments in JSON.
func (b toolbox) call(t testing.TB, name, arguments string) api.ToolResult {
	t.Helper()
	r, err := b.c.CallTool(t.Context(), api.ToolCallParams{Sandbox: b.sandbox, Name: name,
		Arguments: json.RawMessage(arguments)}, nil)
	if err != nil {
		t.Fatalf("%s %s: %v", name, arguments, err)
	}
	if len(r.Content) == 0 || r.Content[0].Type != "text" ||
		r.IsError != (r.Error != nil || name == api.ToolNameRunCommand && r.IsError) {
		t.Fatalf("%s %s: %+v", name, arguments, r)
	}
	return r
}

// good is a call that works; into gets what is structured.
func (b toolbox) good(t testing.TB, name, arguments string, into any) string {
	t.Helper()
	r := b.call(t, name, arguments)
	if r.IsError {
		t.Fatalf("%s %s: %s", name, arguments, r.Content[0].Text)
	}
	if into != nil {
		if err := json.Unmarshal(r.Structured, into); err != nil {
			t.Fatal(err)
		}
	}
	return r.Content[0].Text
}

// bad is a call that fails, with a code, words and a hint.
func (b toolbox) bad(t testing.TB, name, arguments string, code api.Code, words ...string) {
	t.Helper()
	r := b.call(t, name, arguments)
	if r.Error == nil || r.Error.Code != code || r.Error.Hint == "" {
		t.Errorf("%s %s: %+v %+v, want %s", name, arguments, r, r.Error, code)
		return
	}
	for _, word := range words {
		if !strings.Contains(r.Content[0].Text, word) {
			t.Errorf("%s %s: %q says nothing of %q", name, arguments, r.Content[0].Text, word)
		}
	}
}

// toolsIn makes a sandbox of an image and its tools.
func toolsIn(t testing.TB, w *world.World, args ...string) toolbox {
	t.Helper()
	return toolbox{w.Connect(t), w.Create(t, args...)}
}

// TestTools: what the tools do to files and with commands, what they say where they cannot, and what events tell of it.
func TestTools(t *testing.T) {
	testenv.Axes(t, testenv.Privilege)
	t.Parallel()
	w := world.New(t)
	b := toolsIn(t, w, "-w", "/srv", "host")
	listed, err := b.c.Tools(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(listed) != 13 {
		t.Errorf("%d tools", len(listed))
	}
	for _, tool := range listed {
		var in, out struct {
			Type       string
			Properties map[string]struct{ Description string }
		}
		if json.Unmarshal(tool.InputSchema, &in) != nil || json.Unmarshal(tool.OutputSchema, &out) != nil ||
			in.Type != "object" || out.Type != "object" || tool.Description == "" || tool.Title == "" {
			t.Errorf("%+v", tool)
		}
		for name, p := range in.Properties {
			if p.Description == "" {
				t.Errorf("%s: %s is not described", tool.Name, name)
			}
		}
	}

	t.Run("files", func(t *testing.T) {
		var written api.ToolWritten
		b.good(t, api.ToolNameWriteFile, `{"path":"a/b.txt","content":"one\n"}`, &written)
		if written != (api.ToolWritten{Path: "a/b.txt", Bytes: 4, Size: 4, Created: true}) {
			t.Errorf("%+v", written)
		}
		b.good(t, api.ToolNameWriteFile,
			`{"path":"/srv/a/b.txt","content":"dHdvCg==","encoding":"base64","append":true,"mode":"0755"}`, &written)
		if got := w.OK(t, "exec", b.sandbox, "sh", "-c", "cat a/b.txt; stat -c %a a/b.txt"); got != "one\ntwo\n755\n" ||
			written.Created || written.Size != 8 {
			t.Errorf("%q %+v", got, written)
		}
		w.OK(t, "exec", b.sandbox, "sh", "-c",
			"mkdir many; cd many; for i in 1 2 3 4 5 6 7 8 9; do echo x >f$i; done; ln -s /etc l")
		var all []string
		for next, calls := 0, 0; calls == 0 || next > 0; calls++ {
			var d api.ToolDirectory
			b.good(t, api.ToolNameListDirectory, fmt.Sprintf(`{"path":"many","limit":4,"offset":%d}`, next), &d)
			for _, e := range d.Entries {
				all = append(all, e.Path+e.Target)
			}
			if next = d.NextOffset; calls > 5 {
				t.Fatal("no end")
			}
		}
		if want := []string{"f1", "f2", "f3", "f4", "f5", "f6", "f7", "f8", "f9", "l/etc"}; !slices.Equal(all, want) {
			t.Errorf("%q", all)
		}
		b.bad(t, api.ToolNameDeleteFile, `{"path":"many"}`, api.FailedPrecondition, "not empty", "recursive")
		var gone api.ToolDeleted
		if b.good(t, api.ToolNameDeleteFile, `{"path":"many","recursive":true}`, &gone); gone.Removed != 11 {
			t.Errorf("%+v", gone)
		}
		w.OK(t, "exec", b.sandbox, "test", "-e", "/etc/passwd")
		b.bad(t, api.ToolNameDeleteFile, `{"path":"many"}`, api.NotFound, "many")
		b.bad(t, api.ToolNameWriteFile, `{"path":"x"}`, api.InvalidArgument)
		b.bad(t, api.ToolNameWriteFile, `{"path":"x","contents":"x"}`, api.InvalidArgument, "contents", "content")
		b.bad(t, api.ToolNameListDirectory, `{"path":7}`, api.InvalidArgument, "path", "string")
		b.bad(t, api.ToolNameWriteFile, `{"path":"/etc/passwd/x","content":"x"}`, api.FailedPrecondition)
	})

	t.Run("search and edit", func(t *testing.T) {
		w.OK(t, "exec", b.sandbox, "sh", "-euc", `mkdir -p p/src p/vendor p/.git; cd p; echo vendor/ >.gitignore; printf 'package main\n\nfunc Old() {}\n// Old is old\n' >src/main.go
echo 'Old one' >vendor/v.go; printf 'a\0Old' >bin; echo 'Old' >.hidden; seq 1 3000 >long; printf 'no end' >short; head -c 100000 /dev/zero | tr '\0' x >wide; ln -s / root`)
		var file api.ToolFileText
		if text := b.good(t, api.ToolNameReadFile, `{"path":"p/src/main.go","start_line":3}`,
			&file); text != "     3\tfunc Old() {}\n     4\t// Old is old\n" || file.TotalLines != 4 ||
			file.NextLine != 0 {
			t.Errorf("%q %+v", text, file)
		}
		if text := b.good(t, api.ToolNameReadFile, `{"path":"p/long"}`, &file); file.NextLine != 2001 ||
			file.TotalLines != 3000 ||
			!strings.HasSuffix(text, "\n  2000\t2000\n[3000 lines in all: start_line 2001 goes on]") {
			t.Errorf("%+v", file)
		}
		if text := b.good(t, api.ToolNameReadFile, `{"path":"p/long","start_line":-2}`,
			nil); text != "  2999\t2999\n  3000\t3000\n" {
			t.Errorf("%q", text)
		}
		if text := b.good(t, api.ToolNameReadFile, `{"path":"p/bin"}`, &file); !file.Binary ||
			!strings.Contains(text, "binary") {
			t.Errorf("%q", text)
		}
		if b.good(t, api.ToolNameReadFile, `{"path":"p/wide"}`, &file); file.CutLines != 1 || len(file.Text) > 5000 {
			t.Errorf("%d bytes, %+v", len(file.Text), file.CutLines)
		}
		b.bad(t, api.ToolNameReadFile, `{"path":"p"}`, api.FailedPrecondition, "sandbox_list_directory")
		b.bad(t, api.ToolNameReadFile, `{"path":"p/none"}`, api.NotFound)
		b.bad(t, api.ToolNameReadFile, `{"path":"p/long","start_line":5,"end_line":4}`, api.InvalidArgument)

		if text := b.good(t, api.ToolNameGrepFiles, `{"path":"p","pattern":"\\bOld\\b"}`,
			nil); text != "src/main.go:3:func Old() {}\nsrc/main.go:4:// Old is old\n" {
			t.Errorf("%q", text)
		}
		if text := b.good(t, api.ToolNameGrepFiles,
			`{"path":"p","pattern":"old","ignore_case":true,"hidden":true,"no_ignore":true,"files_only":true,"globs":["!*.md"]}`, nil); text != ".hidden\nsrc/main.go\nvendor/v.go\n" {
			t.Errorf("%q", text)
		}
		if text := b.good(t, api.ToolNameGrepFiles,
			`{"path":"p","pattern":"^29.9$","max_matches":3,"offset":2,"context":1}`,
			nil); text != "long-2928-2928\nlong:2929:2929\nlong-2930-2930\n--\nlong-2938-2938\nlong:2939:2939\nlong-2940-2940\n--\nlong-2948-2948\nlong:2949:2949\nlong-2950-2950\n[more: offset 5 goes on]" {
			t.Errorf("%q", text)
		}
		b.bad(t, api.ToolNameGrepFiles, `{"path":"p","pattern":"a(b"}`, api.InvalidArgument, "regular expression")
		b.good(t, api.ToolNameGrepFiles, `{"path":"p","pattern":"(x+x+)+y"}`, nil)
		if text := b.good(t, api.ToolNameFindFiles, `{"path":"p","query":"srmain"}`, nil); text != "src/main.go\n" {
			t.Errorf("%q", text)
		}

		var done api.ToolReplaced
		b.bad(t, api.ToolNameFindReplace, `{"path":"p/src/main.go","find":"Old","replace":"New"}`,
			api.InvalidArgument, "2")
		if b.good(t, api.ToolNameFindReplace, `{"path":"p/src/main.go","find":"Old()","replace":"New()"}`,
			&done); done.Replacements != 1 || !strings.Contains(done.Diff, "-func Old() {}\n+func New() {}\n") {
			t.Errorf("%+v", done)
		}
		b.bad(t, api.ToolNameFindReplace, `{"path":"p/src/main.go","find":"Gone","replace":"New"}`, api.InvalidArgument)
		if b.good(t, api.ToolNameFindReplace,
			`{"path":"p/src/main.go","find":"(\\w+) is old","replace":"$1 was","regex":true,"dry_run":true}`,
			&done); !done.DryRun {
			t.Errorf("%+v", done)
		}
		if got := w.OK(t, "exec", b.sandbox, "cat",
			"p/src/main.go"); got != "package main\n\nfunc New() {}\n// Old is old\n" {
			t.Errorf("%q", got)
		}
	})

	t.Run("patch", func(t *testing.T) {
		w.OK(t, "exec", b.sandbox, "sh", "-euc",
			`mkdir -p q/sub; cd q; seq 1 20 >nums; echo old >sub/gone; printf 'a\nb\nc\n' >abc; chmod 755 abc; ln -s /etc out`)
		before := w.OK(t, "exec", b.sandbox, "sh", "-c", "cd q; ls -lR --time-style=full-iso; cat nums abc sub/gone")
		for words, patch := range map[string]string{
			"nums":       "--- a/nums\n+++ b/nums\n@@ -1,2 +1,2 @@\n-1\n+one\n 2\n--- a/abc\n+++ b/abc\n@@ -1,3 +1,3 @@\n a\n-x\n+y\n c\n",
			"../":        "--- a/../outside\n+++ b/../outside\n@@ -0,0 +1 @@\n+x\n",
			"out/passwd": "*** Begin Patch\n*** Update File: out/passwd\n@@\n-root\n+toor\n*** End Patch\n",
			"none":       "*** Begin Patch\n*** Delete File: none\n*** End Patch\n",
		} {
			arguments, _ := json.Marshal(map[string]any{"path": "q", "patch": patch})
			r := b.call(t, api.ToolNameApplyPatch, string(arguments))
			if words == "nums" {
				words = "abc"
			}
			if r.Error == nil || r.Error.Hint == "" || !strings.Contains(r.Content[0].Text, words) {
				t.Errorf("%s: %+v %+v", patch, r, r.Error)
			}
		}
		if after := w.OK(t, "exec", b.sandbox, "sh", "-c",
			"cd q; ls -lR --time-style=full-iso; cat nums abc sub/gone"); after != before {
			t.Errorf("changed by patches that do not fit:\n%s\n%s", before, after)
		}
		var done api.ToolPatched
		for _, patch := range []string{
			"diff --git a/nums b/nums\n--- a/nums\n+++ b/nums\n@@ -1,3 +1,3 @@\n-1\n+one\n 2\n 3\n@@ -18,3 +18,4 @@\n 18\n 19\n 20\n+21\ndiff --git a/sub/gone b/sub/gone\ndeleted file mode 100644\n--- a/sub/gone\n+++ /dev/null\n@@ -1 +0,0 @@\n-old\n",
			"*** Begin Patch\n*** Add File: new/file\n+made\n*** Update File: abc\n@@\n a\n-b\n+B\n c\n*** End Patch\n",
		} {
			arguments, _ := json.Marshal(map[string]any{"path": "q", "patch": patch})
			if b.good(t, api.ToolNameApplyPatch, string(arguments), &done); len(done.Files) != 2 {
				t.Errorf("%+v", done)
			}
		}
		if got := w.OK(t, "exec", b.sandbox, "sh", "-c",
			"cd q; head -2 nums; tail -1 nums; cat abc new/file; stat -c %a abc; ls sub"); got != "one\n2\n21\na\nB\nc\nmade\n755\n" {
			t.Errorf("%q", got)
		}
	})

	t.Run("commands", func(t *testing.T) {
		var r api.ToolCommand
		text := b.good(t, api.ToolNameRunCommand,
			`{"command":"read x; echo $x $V; echo e >&2; pwd","stdin":"in\n","env":{"V":"v"},"cwd":"/etc"}`, &r)
		if r.Stdout != "in v\n/etc\n" || r.Stderr != "e\n" || r.Running || r.Verdict != api.VerdictOK ||
			!strings.HasPrefix(text, "in v\n/etc\n[stderr]\ne\n[exit code 0, ") {
			t.Errorf("%q %+v", text, r)
		}
		res := b.call(t, api.ToolNameRunCommand, `{"argv":["sh","-c","printf 'no\\377'; exit 3"]}`)
		if err := json.Unmarshal(res.Structured, &r); err != nil || !res.IsError || r.ExitCode != 3 ||
			r.Stdout != "no\uFFFD" {
			t.Errorf("%v %+v %+v", err, res, r)
		}
		res = b.call(t, api.ToolNameRunCommand, `{"argv":["/no/such/program"]}`)
		if !res.IsError || !strings.Contains(res.Content[0].Text, "no such file") {
			t.Errorf("%+v", res)
		}
		res = b.call(t, api.ToolNameRunCommand, `{"command":"echo early; sleep 60","timeout_s":0.3}`)
		if err := json.Unmarshal(res.Structured, &r); err != nil || !res.IsError || !r.TimedOut ||
			r.Stdout != "early\n" {
			t.Errorf("%v %+v %+v", err, res, r)
		}
		b.bad(t, api.ToolNameRunCommand, `{"command":"true","timeout_s":1801}`, api.InvalidArgument, "1800")
		b.bad(t, api.ToolNameRunCommand, `{"command":"true","argv":["true"]}`, api.InvalidArgument)
		b.bad(t, api.ToolNameRunCommand, `{}`, api.InvalidArgument, "command")
	})

	t.Run("long output", func(t *testing.T) {
		var r api.ToolCommand
		b.good(t, api.ToolNameRunCommand, `{"command":"seq 1 30000","output_bytes":1000}`, &r)
		var want strings.Builder
		for i := range 30000 {
			fmt.Fprintln(&want, i+1)
		}
		whole := want.String()
		if !r.Truncated || !strings.HasPrefix(r.Stdout, whole[:r.NextStdout]) ||
			!strings.HasSuffix(r.Stdout, "\n29999\n30000\n") || len(r.Stdout) > 1200 {
			t.Fatalf("%+v", r)
		}
		got := whole[:r.NextStdout]
		for calls := 0; len(got) < len(whole) && calls < 10; calls++ {
			b.good(t, api.ToolNameRunCommand, fmt.Sprintf(`{"exec":%q,"stdout_offset":%d,"output_bytes":65536}`, r.Exec,
				r.NextStdout), &r)
			got += r.Stdout
		}
		if got != whole {
			t.Errorf("%d bytes, want %d", len(got), len(whole))
		}
	})

	t.Run("background", func(t *testing.T) {
		var r api.ToolCommand
		b.good(t, api.ToolNameRunCommand,
			`{"command":"echo up; while [ ! -e /srv/go ]; do sleep 0.05; done; echo down; sleep 100","background":true}`, &r)
		if !r.Running {
			t.Errorf("%+v", r)
		}
		exec, next := r.Exec, int64(0)
		see := func(line string) {
			t.Helper()
			for deadline := time.Now().Add(world.AWhile()); ; {
				b.good(t, api.ToolNameRunCommand, fmt.Sprintf(`{"exec":%q,"stdout_offset":%d,"wait_s":0.1}`, exec,
					next), &r)
				if next = r.NextStdout; r.Stdout == line {
					return
				}
				if !r.Running || r.Stdout != "" {
					t.Fatalf("%+v", r)
				}
				if time.Now().After(deadline) {
					testenv.Late(t, "no %q: %+v", line, r)
				}
			}
		}
		see("up\n")
		b.good(t, api.ToolNameWriteFile, `{"path":"go","content":""}`, nil)
		see("down\n")
		res := b.call(t, api.ToolNameRunCommand, fmt.Sprintf(`{"exec":%q,"kill":true}`, exec))
		if err := json.Unmarshal(res.Structured, &r); err != nil || r.Running || r.Verdict != api.VerdictKilled {
			t.Errorf("%v %+v", err, r)
		}
		other := toolsIn(t, w, "host")
		other.bad(t, api.ToolNameRunCommand, fmt.Sprintf(`{"exec":%q}`, exec), api.NotFound)
	})

	t.Run("cancel", func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		_, err := b.c.CallTool(ctx, api.ToolCallParams{Sandbox: b.sandbox, Name: api.ToolNameRunCommand,
			Arguments: json.RawMessage(`{"command":"sleep 1000 & sleep 1000"}`)}, func(p api.Progress) {
			if p.Exec != "" {
				cancel(errors.New("enough"))
			}
		})
		if err == nil {
			t.Error("no error")
		}
		var r api.ToolCommand
		for deadline := time.Now().Add(world.AWhile()); ; {
			b.good(t, api.ToolNameRunCommand, `{"command":"ps -e -o comm= | grep -c '^sleep$' || true"}`, &r)
			if r.Stdout == "0\n" || time.Now().After(deadline) {
				break
			}
		}
		if r.Stdout != "0\n" {
			t.Errorf("sleeps left: %q", r.Stdout)
		}
	})

	t.Run("events", func(t *testing.T) {
		b.bad(t, api.ToolNameWriteFile, `{"path":"/proc/nothing","content":"secret"}`, api.NotFound)
		out := w.OK(t, "events", "-n", "--since", "1", "--json")
		if !strings.Contains(out,
			`"tool":"sandbox_write_file","arguments":{"content":"6 bytes","path":"/proc/nothing"}`) ||
			strings.Contains(out, "secret") {
			t.Errorf("%s", out)
		}
		calls, ends := strings.Count(out, `"kind":"tool.call"`), strings.Count(out, `"kind":"tool.message"`)
		if calls == 0 || calls != ends || !strings.Contains(out, `"status":"error","error":"`) {
			t.Errorf("%d calls, %d ends", calls, ends)
		}
	})

	t.Run("callers", func(t *testing.T) {
		for _, p := range []api.ToolCallParams{
			{Sandbox: b.sandbox, Name: "sandbox_fly"}, {Sandbox: "nothing", Name: api.ToolNameListDirectory},
			{Sandbox: b.sandbox},
		} {
			var e *api.Error
			if _, err := b.c.CallTool(t.Context(), p, nil); !errors.As(err, &e) || e.Hint == "" {
				t.Errorf("%+v: %v", p, err)
			}
		}
		w.OK(t, "kill", b.sandbox)
		b.bad(t, api.ToolNameListDirectory, `{}`, api.FailedPrecondition)
	})
}

// TestToolsBare: an image in which there is nothing has all tools that run no program of it.
func TestToolsBare(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	file := filepath.Join(w.Sub(t, "images"), "bare.tar")
	world.Write(t, file,
		string(imagetest.NewLayer(imagetest.Tar(imagetest.Dir("etc"), imagetest.Text("etc/motd", "hello\n")),
			imagetest.None).Data))
	w.OK(t, "image", "import", file, "bare")
	b := toolsIn(t, w, "bare")
	b.good(t, api.ToolNameWriteFile, `{"path":"d/e","content":"x"}`, nil)
	if text := b.good(t, api.ToolNameListDirectory, `{"path":"d"}`, nil); text != "e\t1\n" {
		t.Errorf("%q", text)
	}
	b.good(t, api.ToolNameDeleteFile, `{"path":"d","recursive":true}`, nil)
	if r := b.call(t, api.ToolNameRunCommand, `{"command":"true"}`); !r.IsError ||
		!strings.Contains(r.Content[0].Text, "/bin/sh") {
		t.Errorf("%+v", r)
	}
}
