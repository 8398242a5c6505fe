package agent_test

import (
	"context"
	"encoding/base64"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/api"
	hutch "github.com/hutch-sh/hutch/runtime/client"
)

// notebook runs code in one sandbox.
type notebook struct {
	c       *hutch.Client
	sandbox string
}

// run runs code that is to end as err says: the name of an error, or "".
func (n notebook) run(t testing.TB, language, code, err string, change ...func(*api.CodeParams)) api.CodeResult {
	t.Helper()
	p := api.CodeParams{Sandbox: n.sandbox, Language: language, Code: code}
	for _, f := range change {
		f(&p)
	}
	r, rerr := n.c.RunCode(t.Context(), p)
	if rerr != nil {
		t.Fatalf("%s: %v", code, rerr)
	}
	got := ""
	if r.Error != nil {
		got = r.Error.Name
	}
	if got != err || (err == "") != (r.Verdict == api.VerdictOK) {
		t.Fatalf("%s: %+v %+v, want error %q", code, r, r.Error, err)
	}
	return r
}

// refused is code that is not run, with a hint.
func (n notebook) refused(t testing.TB, code api.Code, p api.CodeParams) {
	t.Helper()
	var e *api.Error
	if _, err := n.c.RunCode(t.Context(), p); !errors.As(err, &e) || e.Code != code || e.Hint == "" {
		t.Errorf("%+v: %v, want %s", p, err, code)
	}
}

// TestCode: interpreters keep what code defines, tell errors, values and files, stop when their time is over, and go
// on.
func TestCode(t *testing.T) {
	testenv.Axes(t, testenv.Privilege)
	t.Parallel()
	world.Needs(t, "python3")
	w := world.New(t)
	n := notebook{w.Connect(t), w.Create(t, "-w", "/srv", "host")}

	t.Run("python", func(t *testing.T) {
		r := n.run(t, "python", "import os\nx = 41\nprint('out')\nos.system('echo sub; echo e >&2')\nx + 1", "")
		if r.Text != "42" || r.Stdout != "out\nsub\n" || r.Stderr != "e\n" || !r.Begun || r.Context != "default" {
			t.Errorf("%+v", r)
		}
		if r = n.run(t, "python", "x += 1; x", ""); r.Text != "42" || r.Begun {
			t.Errorf("%+v", r)
		}
		if r = n.run(t, "python", "def f():\n  return 1/0\nf()",
			"ZeroDivisionError"); !strings.Contains(r.Error.Traceback, "return 1/0") ||
			strings.Contains(r.Error.Traceback, "_hutch") {
			t.Errorf("%+v", r.Error)
		}
		n.run(t, "python", "x = (", "SyntaxError")
		n.run(t, "python", "import sys; sys.exit(3)", "SystemExit")
		if r = n.run(t, "python", "await __import__('asyncio').sleep(0, 'slept')", ""); r.Text != "'slept'" {
			t.Errorf("%+v", r)
		}
		n.run(t, "python", "raise Exception('\\udcff')", "Exception")
		n.run(t, "python", "x", "NameError", func(p *api.CodeParams) { p.Context = "other" })
		n.run(t, "python", "x", "NameError", func(p *api.CodeParams) { p.Fresh = true })
		if r = n.run(t, "python", "import os\nos.environ['V'], os.getcwd()", "",
			func(p *api.CodeParams) {
				p.Fresh, p.Env, p.Cwd = true, map[string]string{"V": "v"},
					"/etc"
			}); r.Text != "('v', '/etc')" {
			t.Errorf("%+v", r)
		}
		if r = n.run(t, "python", "x", ""); r.Text != "42" {
			t.Errorf("%+v", r)
		}
		n.run(t, "python", "import json, os.path", "",
			func(p *api.CodeParams) { p.AllowedImports = []string{"json", "os.path"} })
		// The scan sees what is written down, the interpreter what is left.
		n.refused(t, api.PermissionDenied, api.CodeParams{Sandbox: n.sandbox, Language: "python",
			Code: "import json\nimport socket", AllowedImports: []string{"json"}})
		n.run(t, "python", "exec(input.__name__.replace('input', 'import socket'))", "ImportError",
			func(p *api.CodeParams) { p.AllowedImports = []string{"json"} })
		n.run(t, "python", "import socket", "")
		if r = n.run(t, "python", "import socket; socket.create_connection(('web.test', 443))",
			"gaierror"); len(r.Denials) != 1 || r.Denials[0].HowToAllow != "--allow web.test" {
			t.Errorf("a lookup without a network: denials %+v", r.Denials)
		}
		if r = n.run(t, "python", "1/0", "ZeroDivisionError"); len(r.Denials) != 0 {
			t.Errorf("denials of the run before: %+v", r.Denials)
		}
	})

	t.Run("time", func(t *testing.T) {
		short := func(p *api.CodeParams) { p.TimeoutS = 0.3 }
		if r := n.run(t, "python", "print('early')\nwhile True: pass", "KeyboardInterrupt", short); !r.TimedOut ||
			r.Verdict != api.VerdictTimeoutWall || r.Stdout != "early\n" {
			t.Errorf("%+v", r)
		}
		if r := n.run(t, "python", "x", ""); r.Text != "42" {
			t.Errorf("%+v", r)
		}
		// Code that does not mind is killed, and its context with it.
		if r := n.run(t, "python", "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass",
			"Timeout", short); !r.TimedOut {
			t.Errorf("%+v", r)
		}
		n.run(t, "python", "x", "NameError")
		ctx, cancel := context.WithTimeoutCause(t.Context(), 300*time.Millisecond, errors.New("enough"))
		defer cancel()
		if _, err := n.c.RunCode(ctx, api.CodeParams{Sandbox: n.sandbox, Language: "python",
			Code: "y = 1\nwhile True: pass"}); err == nil {
			t.Error("no error")
		}
		if r := n.run(t, "python", "y", ""); r.Text != "1" {
			t.Errorf("%+v", r)
		}
	})

	t.Run("artifacts", func(t *testing.T) {
		r := n.run(t, "python", `
class P:
  def _repr_png_(self): return b"\x89PNG"
class T:
  columns = 1
  def head(self, n): return self
  def to_json(self, **k): return '{"columns":["a"]}'
display(T())
open("made.png", "wb").write(b"1234")
open("big.bin", "wb").write(b"x" * 5000)
P()`, "")
		var got []string
		for _, a := range r.Artifacts {
			got = append(got, strings.Join([]string{a.Kind, a.MIMEType, a.Path, a.Data}, " "))
		}
		want := []string{
			`table application/json  {"columns":["a"]}`, "value image/png  " +
				base64.StdEncoding.EncodeToString([]byte("\x89PNG")),
			"file application/octet-stream /srv/big.bin ", "file image/png /srv/made.png " +
				base64.StdEncoding.EncodeToString([]byte("1234")),
		}
		if strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("%q", got)
		}
		if r = n.run(t, "python", "1", ""); len(r.Artifacts) != 0 {
			t.Errorf("%+v", r)
		}
	})

	t.Run("much", func(t *testing.T) {
		r := n.run(t, "python", "import sys\nfor i in range(200000): print(i)\nsys.stderr.write('e' * 3000000)\n'done'",
			"", func(p *api.CodeParams) { p.OutputBytes = 1000 })
		if r.Text != "'done'" || !r.Truncated || !strings.HasPrefix(r.Stdout, "0\n1\n") ||
			!strings.HasSuffix(r.Stdout, "\n199999\n") || len(r.Stdout) > 1200 || len(r.Stderr) > 1200 {
			t.Errorf("%+v", r)
		}
		n.run(t, "python", "x = '"+strings.Repeat("long", 200000)+"'", "")
		if r = n.run(t, "python", "len(x)", ""); r.Text != "800000" {
			t.Errorf("%+v", r)
		}
		var wg sync.WaitGroup
		for range 8 { // one after the other
			wg.Go(func() { n.run(t, "python", "z = globals().get('z', 0) + 1", "") })
		}
		wg.Wait()
		if r = n.run(t, "python", "z", ""); r.Text != "8" {
			t.Errorf("%+v", r)
		}
	})

	t.Run("lies", func(t *testing.T) {
		// An interpreter that is the sandbox's own says what it likes: nothing of it is believed but as its word.
		token := "token = open('/proc/self/cmdline').read().split('\\0')[4]\n"
		n.run(t, "python", token+"import os\nos.write(1, ('\\x1e'+token+'[1]\\n').encode())", "Silent")
		n.run(t, "python", token+
			"import os\nos.write(1, ('\\x1e'+token+'{\"id\":1,\"artifacts\":['+'{},'*1000000+'{}]}\\n').encode())", "")
		n.run(t, "python", "import os; os._exit(7)", "Exit")
		n.run(t, "python", "import os; os.kill(os.getpid(), 9)", "Ended")
		if r := n.run(t, "python", "1", ""); !r.Begun {
			t.Errorf("%+v", r)
		}
	})

	t.Run("paused", func(t *testing.T) {
		n.run(t, "python", "w = 1", "")
		w.OK(t, "pause", n.sandbox)
		if r := n.run(t, "python", "w", ""); r.Text != "1" || r.TimedOut {
			t.Errorf("%+v", r)
		}
	})

	t.Run("idle", func(t *testing.T) {
		// A kept interpreter does not keep its sandbox from being idle, a run does.
		idle := notebook{n.c, w.Create(t, "--idle", "1", "host")}
		gone := awaitRemoved(t, n.c, idle.sandbox)
		idle.run(t, "python", "import time; time.sleep(1.6)", "")
		gone()
	})

	t.Run("shell", func(t *testing.T) {
		if r := n.run(t, "shell", "echo out; pwd; echo e >&2; exit 3", "Exit"); r.Stdout != "out\n/srv\n" ||
			r.Stderr != "e\n" || r.ExitCode != 3 {
			t.Errorf("%+v", r)
		}
		if r := n.run(t, "shell", "sleep 100", "Timeout", func(p *api.CodeParams) { p.TimeoutS = 0.2 }); !r.TimedOut {
			t.Errorf("%+v", r)
		}
		if got := w.OK(t, "exec", n.sandbox, "sh", "-c",
			"ls -d /tmp/hutch-code-* 2>/dev/null || echo none"); got != "none\n" {
			t.Errorf("left: %q", got)
		}
	})

	t.Run("runtime", func(t *testing.T) {
		before := w.OK(t, "ps", "-aq")
		r := n.run(t, "python", "import os; os.getpid() > 1", "", func(p *api.CodeParams) {
			p.Sandbox, p.Runtime = "",
				"host"
		})
		if after := w.OK(t, "ps", "-aq"); r.Text != "True" || after != before {
			t.Errorf("%+v\n%s\n%s", r, before, after)
		}
	})

	t.Run("refused", func(t *testing.T) {
		n.refused(t, api.InvalidArgument, api.CodeParams{Sandbox: n.sandbox, Language: "cobol", Code: "x"})
		n.refused(t, api.InvalidArgument, api.CodeParams{Sandbox: n.sandbox, Language: "python"})
		n.refused(t, api.InvalidArgument, api.CodeParams{Language: "python", Code: "x"})
		n.refused(t, api.InvalidArgument, api.CodeParams{Sandbox: n.sandbox, Language: "shell", Code: "x",
			Context: "c"})
		n.refused(t, api.NotFound, api.CodeParams{Sandbox: "none", Language: "shell", Code: "x"})
		bare := notebook{n.c, w.Create(t, "-e", "PATH=/none", "host")}
		for _, language := range []string{"python", "ruby"} {
			bare.refused(t, api.FailedPrecondition, api.CodeParams{Sandbox: bare.sandbox, Language: language,
				Code: "x"})
		}
	})
}

// TestCodeOutput: what code writes is told while it runs.
func TestCodeOutput(t *testing.T) {
	t.Parallel()
	world.Needs(t, "python3")
	w := world.New(t)
	c := w.Connect(t)
	n := notebook{c, w.Create(t, "host")}
	w.OK(t, "exec", n.sandbox, "--", "mkfifo", "/tmp/go")
	go1 := func() { w.OK(t, "exec", n.sandbox, "--", "sh", "-c", "echo now >/tmp/go") }
	for _, tt := range []struct{ language, code, want string }{
		{"python", "import sys\nprint('before')\nx = open('/tmp/go').read()\nprint('äfter ' + x)\nprint('e', file=sys.stderr)\n6*7",
			"before\n|äfter now\n\n"},
		{"shell", "echo before\nread x </tmp/go\necho after $x\necho e >&2", "before\n|after now\n"},
	} {
		t.Run(tt.language, func(t *testing.T) {
			var told, errs string
			p := api.CodeParams{Sandbox: n.sandbox, Language: tt.language, Code: tt.code, Progress: true}
			r, err := hutch.Do(t.Context(), c, api.CallCodeRun, p, hutch.WithProgress(func(news api.Progress) {
				switch {
				case news.Kind != api.ProgressOutput:
					t.Errorf("%+v", news)
				case news.Stream == api.Stderr:
					errs += news.Text
				default:
					if told += news.Text; told == "before\n" { // the code goes on only when this was told
						told += "|"
						go1()
					}
				}
			}))
			if err != nil || r.Error != nil || told != tt.want || errs != "e\n" ||
				r.Stdout != strings.Replace(tt.want, "|", "", 1) || r.Stderr != "e\n" {
				t.Errorf("%q %q: %+v, %v", told, errs, r, err)
			}
		})
	}
	// What is told is bounded, and the result as without.
	told := 0
	r, err := hutch.Do(t.Context(), c, api.CallCodeRun, api.CodeParams{Sandbox: n.sandbox, Language: "python",
		Code: "print('x' * 100_000)", OutputBytes: 1000, Progress: true},
		hutch.WithProgress(func(news api.Progress) { told += len(news.Text) }))
	if err != nil || told != 1000 || !r.Truncated || len(r.Stdout) > 1100 {
		t.Errorf("%d bytes told; %+v, %v", told, r, err)
	}
}

// TestCodeNode: the same for JavaScript.
func TestCodeNode(t *testing.T) {
	t.Parallel()
	world.Needs(t, "node")
	w := world.New(t)
	n := notebook{w.Connect(t), w.Create(t, "host")}
	if r := n.run(t, "javascript", "let y = 5; const z = 1; console.log('log'); console.error('err'); y * 2",
		""); r.Text != "10" || r.Stdout != "log\n" || r.Stderr != "err\n" {
		t.Errorf("%+v", r)
	}
	if r := n.run(t, "javascript", "y += z; require('path').join('a', String(y))", ""); r.Text != "'a/6'" {
		t.Errorf("%+v", r)
	}
	n.run(t, "javascript", "await new Promise((r) => setTimeout(r, 5)); y = 7", "")
	if r := n.run(t, "javascript", "Promise.resolve(y)", ""); r.Text != "7" {
		t.Errorf("%+v", r)
	}
	if r := n.run(t, "javascript", "null.x", "TypeError"); !strings.Contains(r.Error.Traceback, "<code 5>") {
		t.Errorf("%+v", r.Error)
	}
	n.run(t, "javascript", "setTimeout(() => { throw new RangeError('late') }, 1); await new Promise(() => {})",
		"RangeError")
	for _, endless := range []string{"while (true) {}", "await new Promise(() => setInterval(() => {}, 1000))"} {
		if r, err := n.c.RunCode(t.Context(), api.CodeParams{Sandbox: n.sandbox, Language: "javascript", Code: endless,
			TimeoutS: 0.3}); err != nil || !r.TimedOut || r.Error == nil {
			t.Errorf("%s: %+v, %v", endless, r, err)
		}
	}
	if r := n.run(t, "javascript", "y", ""); r.Text != "7" {
		t.Errorf("%+v", r)
	}
	n.run(t, "javascript", "process.exit(2)", "Exit")
}

// TestCodeDeath: kept interpreters outlive hutchd, with what they know.
func TestCodeDeath(t *testing.T) {
	t.Parallel()
	world.Needs(t, "python3")
	w := world.New(t)
	n := notebook{w.Connect(t), w.Create(t, "host")}
	n.run(t, "python", "x = 1", "")
	for range 2 {
		if err := unix.Kill(w.Daemon(t).Hutchd, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		<-n.c.Done()
		n.c = w.Reconnect(t)
		n.run(t, "python", "x += 1", "")
	}
	if r := n.run(t, "python", "print('o'); x", ""); r.Text != "3" || r.Stdout != "o\n" || r.Begun {
		t.Errorf("%+v", r)
	}
	list, err := n.c.CodeContexts(t.Context(), n.sandbox)
	if err != nil || len(list) != 1 || list[0].Language != "python" {
		t.Errorf("%+v, %v", list, err)
	}
	if err := n.c.EndCodeContext(t.Context(),
		api.CodeContextParams{Sandbox: n.sandbox, Language: "python"}); err != nil {
		t.Error(err)
	}
	n.run(t, "python", "x", "NameError")
}
