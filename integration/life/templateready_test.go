package life_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/api"
)

// web is a server that says ready only after a while.
const web = `import http.server, time, os
time.sleep(0.3)
open("/tmp/ready", "w").close()
http.server.ThreadingHTTPServer(("127.0.0.1", 8000), http.server.SimpleHTTPRequestHandler).serve_forever()`

// TestTemplateReady: who gets a sandbox finds what its template starts ready, and its ports reached from the host; what
// does not become ready is an error with what it has written, and no sandbox.
func TestTemplateReady(t *testing.T) {
	t.Parallel()
	world.NeedsPython(t)
	w := world.New(t)
	c := w.Connect(t)
	start := &api.TemplateStart{Argv: []string{"python3", "-c", web}, Cwd: "/srv"}
	base := api.TemplateSpec{Image: "host",
		Steps: []api.TemplateStep{{Folder: "/srv"}, {Run: "echo here >/srv/index.html"}}}
	for name, ready := range map[string]api.TemplateReady{
		"port": {Port: 8000}, "command": {Command: "test -e /tmp/ready"},
		"argv": {Argv: []string{"test", "-e", "/tmp/ready"}},
	} {
		spec := base
		spec.Name, spec.Start, spec.Ready = name, start, &ready
		if name == "port" {
			spec.Ports = []api.TemplatePort{{Port: 8000}}
		}
		template(t, w, c, spec)
		sb := of(t, w, c, name)
		w.OK(t, "exec", sb.ID, "--", "test", "-e", "/tmp/ready")
		if sb.Start == "" || sb.PhasesMS["start_up"] < 250 {
			t.Errorf("%s: started %q, after %v", name, sb.Start, sb.PhasesMS)
		}
		if name != "port" {
			w.OK(t, "rm", "-f", sb.ID)
			continue
		}
		page := func() string {
			t.Helper()
			var ports api.Ports
			if err := c.Call(t.Context(), api.MethodPortList, api.PortListParams{Sandbox: sb.ID}, &ports); err != nil ||
				len(ports.Ports) != 1 {
				t.Fatalf("%+v, %v", ports, err)
			}
			r, err := http.Get("http://" + ports.Ports[0].Address + "/index.html")
			if err != nil {
				t.Fatal(err)
			}
			defer r.Body.Close()
			text, _ := io.ReadAll(r.Body)
			return string(text)
		}
		if got := page(); got != "here\n" {
			t.Errorf("%q", got)
		}
		// A stopped one starts it again.
		w.OK(t, "stop", sb.ID)
		w.OK(t, "start", sb.ID)
		if got := page(); got != "here\n" {
			t.Errorf("after a stop: %q", got)
		}
		w.OK(t, "rm", "-f", sb.ID)
	}

	// A try that the end of the check cuts short is not what is reported.
	soon := testenv.Patience(time.Second / 2).Seconds() // enough for a command to say something
	for name, tt := range map[string]struct {
		spec api.TemplateSpec
		code api.Code
		what string
		says string
		exit int
	}{
		"no port": {api.TemplateSpec{Start: &api.TemplateStart{Command: "echo going; exec sleep 1000"},
			Ready: &api.TemplateReady{Port: 9, TimeoutS: soon}}, api.DeadlineExceeded, "ready", "going", 0},
		"no success": {api.TemplateSpec{Ready: &api.TemplateReady{Command: "echo not yet >&2; sleep 0.3; exit 3",
			TimeoutS: soon}}, api.DeadlineExceeded, "ready", "not yet", 3},
		"a dead start": {api.TemplateSpec{Start: &api.TemplateStart{Command: "echo broken >&2; exit 4"},
			Ready: &api.TemplateReady{Port: 9, TimeoutS: 60}}, api.FailedPrecondition, "start", "broken", 4},
		"no start": {api.TemplateSpec{Start: &api.TemplateStart{Argv: []string{"/no/such"}}}, api.NotFound, "",
			"/no/such", 0},
	} {
		spec := tt.spec
		spec.Name, spec.Image = strings.ReplaceAll(name, " ", "-"), "host"
		template(t, w, c, spec)
		_, err := c.CreateSandbox(t.Context(), api.CreateParams{Spec: api.Spec{Template: spec.Name}}, nil, nil)
		var e *api.Error
		if !errors.As(err, &e) || e.Code != tt.code || !strings.Contains(e.Msg, tt.says) ||
			(tt.what != "") != (e.Failed != nil) {
			t.Errorf("%s: %v, %+v", name, err, e)
			continue
		}
		if f := e.Failed; f != nil && (f.What != tt.what || f.ExitCode != tt.exit ||
			!strings.Contains(f.Output, tt.says)) {
			t.Errorf("%s: %+v", name, f)
		}
	}
	w.AwaitNoSandbox(t)
}

// leftOfTemplates lists what is in the folder of templates, and images of theirs.
func leftOfTemplates(t testing.TB, w *world.World) (list []string) {
	t.Helper()
	for _, pattern := range []string{"data/templates/[^.]*", "data/templates/.tmp/*", "data/templates/.built/*",
		"data/*/snapshots/tp_*"} {
		found, err := filepath.Glob(filepath.Join(w.Root(), pattern))
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, found...)
	}
	for _, ref := range strings.Fields(w.OK(t, "image", "ls", "-q")) {
		if strings.Contains(ref, "hutch-template") {
			list = append(list, ref)
		}
	}
	return list
}

// TestTemplateFails: a step that fails says which, how, and what it has written; nothing is kept, and nothing is left.
func TestTemplateFails(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	w.ImportTiny(t, "base:1")
	c := w.Connect(t)
	for _, image := range []string{"host", "base:1"} {
		template(t, w, c, api.TemplateSpec{Name: "fails", Image: image, Steps: []api.TemplateStep{
			{Run: "echo one >/one"},
			{Run: "exec 2>&1; echo out; i=0; while [ $i -lt 5000 ]; do echo filler; i=$((i+1)); done; echo the end >&2; exit 5", Line: 7}, {Run: "echo never >/three"},
		}})
		_, err := c.BuildTemplate(t.Context(), api.TemplateBuildParams{Template: "fails"}, nil)
		var e *api.Error
		if !errors.As(err, &e) || e.Failed == nil {
			t.Fatalf("%s: %v", image, err)
		}
		if f := e.Failed; e.Code != api.FailedPrecondition || f.What != "step" || f.Step != 2 || f.Line != 7 ||
			f.ExitCode != 5 || !strings.HasSuffix(f.Output, "the end") || len(f.Output) > 10<<10 {
			t.Errorf("%s: %v, %+v", image, err, e.Failed)
		}
		if _, err := c.CreateSandbox(t.Context(), api.CreateParams{Spec: api.Spec{Template: "fails"}}, nil,
			nil); err == nil {
			t.Error("a sandbox of what could not be built")
		}
		if tmpl, err := c.Template(t.Context(), "fails"); err != nil || tmpl.Built != nil {
			t.Errorf("%+v, %v", tmpl, err)
		}
		if _, err := c.RemoveTemplate(t.Context(), "fails"); err != nil {
			t.Error(err)
		}
	}
	w.AwaitNoSandbox(t)
	if left := leftOfTemplates(t, w); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
	for _, tt := range []struct {
		spec  api.TemplateSpec
		code  api.Code
		field string
	}{
		{api.TemplateSpec{Name: "a", Template: "a"}, api.InvalidArgument, "template"},
		{api.TemplateSpec{Name: "a", Template: "none"}, api.NotFound, "template"},
		{api.TemplateSpec{Name: "a"}, api.InvalidArgument, "image"},
		{api.TemplateSpec{Name: "../a", Image: "host"}, api.InvalidArgument, "name"},
		{api.TemplateSpec{Name: "a", Image: "host", Steps: []api.TemplateStep{{}}}, api.InvalidArgument, "steps[0]"},
		{api.TemplateSpec{Name: "a", Image: "host", Steps: []api.TemplateStep{{Copy: &api.TemplateCopy{Target: "/x"}}}},
			api.InvalidArgument, "context"},
		{api.TemplateSpec{Name: "a", Image: "host", Ready: &api.TemplateReady{Port: 1, Command: "x"}},
			api.InvalidArgument, "ready"},
		{api.TemplateSpec{Name: "a", Image: "host", PoolSize: 1000}, api.InvalidArgument, "pool_size"},
		{api.TemplateSpec{Name: "a", Image: "host", Build: api.TemplateBuild{Limits: api.Limits{CPUs: -7}}},
			api.InvalidArgument, "build.limits.cpus"},
	} {
		_, err := c.CreateTemplate(t.Context(), api.TemplateCreateParams{TemplateSpec: tt.spec})
		var e *api.Error
		if !errors.As(err, &e) || e.Code != tt.code || e.Field != tt.field {
			t.Errorf("%+v: %v, %+v", tt.spec, err, e)
		}
	}
	// Those that begin with others: not in circles, and none is removed from under another.
	template(t, w, c, api.TemplateSpec{Name: "one", Image: "base:1", Env: map[string]string{"A": "1", "B": "1"},
		Steps: []api.TemplateStep{{Run: "echo one >/chain"}}})
	template(t, w, c, api.TemplateSpec{Name: "two", Template: "one", Env: map[string]string{"B": "2"},
		Steps: []api.TemplateStep{{Run: "echo two >>/chain"}}})
	_, err := c.CreateTemplate(t.Context(),
		api.TemplateCreateParams{Replace: true, TemplateSpec: api.TemplateSpec{Name: "one", Template: "two"}})
	if api.ErrorCode(err) != api.InvalidArgument ||
		!strings.Contains(err.Error(), "circles: one begins with two begins with one") {
		t.Errorf("circles: %v", err)
	}
	sb := of(t, w, c, "two")
	if got := w.OK(t, "exec", sb.ID, "--", "/bin/sh", "-c", "cat /chain; echo $A $B"); got != "one\ntwo\n1 2\n" {
		t.Errorf("%q", got)
	}
	if _, err := c.RemoveTemplate(t.Context(), "one"); api.ErrorCode(err) != api.FailedPrecondition {
		t.Errorf("removed from under another: %v", err)
	}
	w.OK(t, "template", "rm", "two", "one")
	if left := leftOfTemplates(t, w); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// TestTemplateKilled: a hutchd that is killed during a build leaves nothing, and the next build works.
func TestTemplateKilled(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	w.ImportTiny(t, "base:1")
	c := w.Connect(t)
	for round := range world.Rounds(12) {
		image := []string{"base:1", "host"}[round%2]
		name := fmt.Sprintf("killed%d", round)
		template(t, w, c, api.TemplateSpec{Name: name, Image: image, Steps: []api.TemplateStep{{Run: "echo 1 >/one"},
			{Run: "echo started; i=0; while [ $i -lt 300 ]; do echo x >/f$i; i=$((i+1)); done"}}})
		seen := make(chan struct{}, 1)
		failed := make(chan error, 1)
		at := 2 // the step, or the commit
		if round%3 == 2 {
			at = 3
		}
		go func() {
			_, err := c.BuildTemplate(t.Context(), api.TemplateBuildParams{Template: name}, func(p api.Progress) {
				if p.Step != nil && p.Step.Step == at {
					select {
					case seen <- struct{}{}:
					default:
					}
				}
			})
			failed <- err
		}()
		select {
		case <-seen:
		case err := <-failed:
			t.Fatalf("round %d: %v", round, err)
		}
		testenv.RandomMoment(world.RunTime)
		victim := world.Victims[round/2%len(world.Victims)]
		for _, pid := range victim.PIDs(w.Daemon(t)) {
			world.Kill(t, pid)
		}
		<-failed
		// The next daemon, and not what is left of this one: its monitor may still answer.
		got := w.OK(t, "ps", "-aq")
		c = w.Connect(t)
		if got != "" {
			w.AwaitNoSandbox(t)
		}
		left := slices.DeleteFunc(leftOfTemplates(t, w), func(s string) bool {
			return strings.HasSuffix(s, "/"+name) ||
				strings.HasSuffix(s, "/"+name+".json")
		})
		if tmpl, err := c.Template(t.Context(), name); err != nil || tmpl.Built == nil && len(left) > 0 {
			t.Errorf("round %d: left %q, %+v, %v", round, left, tmpl, err)
		}
		built(t, w, c, name)
		if got := w.OK(t, "run", "--template", name, "--", "/bin/sh", "-c",
			"cat /one; test -e /f299 && echo whole"); got != "1\nwhole\n" {
			t.Errorf("round %d: %q", round, got)
		}
		w.OK(t, "template", "rm", name)
	}
	if left := leftOfTemplates(t, w); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}
