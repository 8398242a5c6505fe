package agent_test

import (
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/api"
	hutch "github.com/hutch-sh/hutch/runtime/client"
)

// inScope asks for the sandbox of a scope.
func inScope(t testing.TB, c *hutch.Client, scope string, change ...func(*api.Spec)) (api.Sandbox, error) {
	t.Helper()
	s, err := api.ParseScope(scope)
	if err != nil {
		t.Fatal(err)
	}
	p := api.CreateParams{Spec: api.Spec{Image: "host", Scope: &s, Keep: true}}
	for _, f := range change {
		f(&p.Spec)
	}
	return c.CreateSandbox(t.Context(), p, nil, nil)
}

// TestScope: whoever names a scope gets its sandbox, made once; others have others; it is reset and ended by its name.
func TestScope(t *testing.T) {
	testenv.Axes(t, testenv.Privilege)
	t.Parallel()
	w := world.New(t)
	c := w.Connect(t)
	dir := w.Sub(t, "project")

	t.Run("once", func(t *testing.T) {
		var mu sync.Mutex
		ids, fresh := map[string]bool{}, 0
		var wg sync.WaitGroup
		for range 6 {
			wg.Go(func() {
				sb, err := inScope(t, c, "agent:crowd")
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				if ids[sb.ID] = true; !sb.Existing {
					fresh++
				}
			})
		}
		wg.Wait()
		if len(ids) != 1 || fresh != 1 {
			t.Errorf("%v, %d made", ids, fresh)
		}
		w.OK(t, "scope", "end", "agent:crowd")
		w.Run(t, "scope", "end", "agent:crowd").Want(t, 125).Says(t, "has no sandbox")
	})

	t.Run("persists", func(t *testing.T) {
		run := func(scope, command string) string {
			t.Helper()
			return w.OK(t, "run", "--scope", scope, "--workspace", dir+":overlay", "host", "--", "sh", "-c", command)
		}
		run("agent:a", "echo installed >/opt/lib; echo x >new")
		if got := run("agent:a", "cat /opt/lib new"); got != "installed\nx\n" {
			t.Errorf("%q", got)
		}
		for _, other := range []string{"agent:b", "shared:a"} {
			if got := run(other, "cat /opt/lib 2>/dev/null || echo none"); got != "none\n" {
				t.Errorf("%s: %q", other, got)
			}
		}
		if got := w.OK(t, "scope", "ls", "-q"); got != "agent:a\nagent:b\nshared:a\n" {
			t.Errorf("%q", got)
		}
		old := strings.TrimSpace(w.OK(t, "create", "--scope", "agent:a", "host"))
		fresh := strings.TrimSpace(w.OK(t, "scope", "reset", "agent:a"))
		if got := run("agent:a", "ls /opt/lib new 2>/dev/null; pwd; echo $HOME"); old == fresh ||
			!strings.HasPrefix(got, "/workspace\n") {
			t.Errorf("%q", got)
		}
		if got := run("agent:b", "cat /opt/lib 2>/dev/null || echo none"); got != "none\n" {
			t.Errorf("%q", got)
		}
		w.Run(t, "inspect", old).Want(t, 125)
		if got := strings.TrimSpace(w.OK(t, "create", "--scope", "agent:a", "host")); got != fresh {
			t.Errorf("%s, want %s", got, fresh)
		}
	})

	t.Run("reset with folders", func(t *testing.T) {
		world.Write(t, filepath.Join(dir, "file"), "mine\n")
		run := func(command string) string {
			t.Helper()
			return w.OK(t, "run", "--scope", "agent:f", "--workspace", dir+":rw", "-v", dir+":/ro:ro", "host", "--",
				"sh", "-c", command)
		}
		run("echo theirs >>file; cat /ro/file")
		w.OK(t, "scope", "reset", "agent:f")
		w.OK(t, "scope", "reset", "agent:f")
		if got := run("cat file; cp file copy; touch /ro/x 2>/dev/null || echo refused"); got != "mine\ntheirs\nrefused\n" || world.Read(t, filepath.Join(dir, "copy")) != "mine\ntheirs\n" {
			t.Errorf("%q", got)
		}
	})

	t.Run("another", func(t *testing.T) {
		if _, err := inScope(t, c, "agent:x", func(sp *api.Spec) { sp.Hostname = "one" }); err != nil {
			t.Fatal(err)
		}
		if _, err := inScope(t, c, "agent:x"); err != nil {
			t.Errorf("what is not asked for: %v", err)
		}
		for field, change := range map[string]func(*api.Spec){
			"hostname": func(sp *api.Spec) { sp.Hostname = "two" },
			"image":    func(sp *api.Spec) { sp.Image = "other" },
			"network":  func(sp *api.Spec) { sp.Network.Mode = api.NetOpen },
		} {
			_, err := inScope(t, c, "agent:x", change)
			if api.ErrorCode(err) != api.FailedPrecondition || !strings.Contains(err.Error(), "another "+field) {
				t.Errorf("%s: %v", field, err)
			}
		}
		sb, err := inScope(t, c, "agent:x")
		if err != nil {
			t.Fatal(err)
		}
		w.OK(t, "kill", sb.ID)
		if _, err := inScope(t, c, "agent:x"); api.ErrorCode(err) != api.FailedPrecondition {
			t.Errorf("a dead one: %v", err)
		}
		w.OK(t, "scope", "reset", "agent:x")
		if sb, err = inScope(t, c, "agent:x"); err != nil || sb.State != api.Running || sb.Hostname != "one" {
			t.Errorf("%+v, %v", sb, err)
		}
	})

	t.Run("session", func(t *testing.T) {
		a, b := w.Connect(t), w.Connect(t)
		one, err := inScope(t, a, "session:s")
		if err != nil {
			t.Fatal(err)
		}
		if two, err := inScope(t, b, "session:s"); err != nil || two.ID != one.ID {
			t.Fatalf("%+v, %v", two, err)
		}
		_ = a.Close()
		if got := w.OK(t, "exec", one.ID, "echo", "here"); got != "here\n" {
			t.Errorf("%q", got)
		}
		gone := awaitRemoved(t, c, one.ID)
		_ = b.Close()
		gone()
		if got := w.OK(t, "run", "--scope", "session:r", "host", "--", "echo", "ran"); got != "ran\n" {
			t.Errorf("%q", got)
		}
	})
}

// awaitRemoved returns what waits until a sandbox is removed, counted from now.
func awaitRemoved(t *testing.T, c *hutch.Client, id string) (wait func()) {
	t.Helper()
	ev, err := c.Subscribe(t.Context(), api.SubscribeParams{Sandbox: id, Kinds: []api.EventKind{api.EventSandboxState}})
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		for {
			e, err := ev.Next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			// By its state: one that is stopped in order to be removed says so as its reason, and is still listed.
			if world.Decode[api.StateEvent](t, string(e.Data)).State == api.StateRemoved {
				return
			}
		}
	}
}

// TestScopeDeath: scopes outlive hutchd; a session that nobody comes back to does not.
func TestScopeDeath(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	c := w.Connect(t)
	kept, err := inScope(t, c, "agent:kept")
	if err != nil {
		t.Fatal(err)
	}
	session, err := inScope(t, c, "session:back")
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(w.Daemon(t).Hutchd, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-c.Done()
	c = w.Reconnect(t)
	if sb, err := inScope(t, c, "agent:kept"); err != nil || sb.ID != kept.ID || !sb.Existing {
		t.Errorf("%+v, %v", sb, err)
	}
	if sb, err := inScope(t, c, "session:back"); err != nil || sb.ID != session.ID {
		t.Errorf("%+v, %v", sb, err)
	}
	gone := awaitRemoved(t, w.Connect(t), session.ID)
	_ = c.Close()
	gone()
	w.OK(t, "scope", "end", "agent:kept")
}
