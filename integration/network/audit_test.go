package network_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/runtime/api"
)

// one decodes the data of the only record of a kind that match accepts.
func one[T any](t testing.TB, records []api.AuditRecord, match func(T) bool) (r api.AuditRecord, data T) {
	t.Helper()
	found := 0
	for _, rec := range records {
		var d T
		if err := json.Unmarshal(rec.Data, &d); err != nil {
			t.Fatalf("%s: %v", rec.Data, err)
		}
		if match(d) {
			r, data = rec, d
			found++
		}
	}
	if found != 1 {
		t.Errorf("%d records of %T: %+v", found, data, records)
	}
	return r, data
}

type auditedExit struct {
	api.ExitedEvent
	Stdout, Stderr api.AuditContent
}

type auditedFile struct {
	Path, Error string
	Bytes       int64
	Content     api.AuditContent
}

func digestOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// TestAudit: what was done with a sandbox, and what it did, is found in its audit log, also
// after hutchd was killed and when the sandbox is gone; secrets are not; and whatever is
// changed in the file afterwards is named.
func TestAudit(t *testing.T) {
	t.Parallel()
	world.Needs(t, "curl")
	world.NeedsPython(t)
	config := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(config, []byte("audit: {connections: all, redact: ['cust-[0-9]+']}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	w := newNetWorld(t, []string{"web.test", "other.test"}, "HUTCH_CONFIG="+config)
	port := webServer(t, "hello")
	at := func(name string) string { return fmt.Sprintf("%s:%d", name, port) }
	sb := w.allowing(t, at("web.test"))

	run, err := w.c.ExecRun(t.Context(), api.ExecParams{
		Sandbox: sb, Argv: []string{"sh", "-c", "cat; echo cust-4711 my-secret-value >&2; exit 3", "--password",
			"hunter22"},
		Stdin: "the input", Env: map[string]string{"KEY": "my-secret-value"},
	}, nil, nil)
	if err != nil || run.ExitCode != 3 {
		t.Fatal(run, err)
	}
	file := api.FileParams{Sandbox: sb, Path: "/tmp/f"}
	if _, err := w.c.WriteFile(t.Context(), api.FileWriteParams{FileParams: file, Data: "content"}, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := w.c.ReadFile(t.Context(), api.FileReadParams{FileParams: file}, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := w.c.ReadFile(t.Context(),
		api.FileReadParams{FileParams: api.FileParams{Sandbox: sb, Path: "/tmp/none"}}, nil); err == nil {
		t.Error("read what is not there")
	}
	w.OK(t, "cp", sb+":/tmp/f", w.Path("copied"))
	w.fetches(t, sb, "curl -sS http://"+at("web.test"), "hello")
	no := w.in(t, sb, "curl -sS http://"+at("other.test"))
	if len(no.Denials) == 0 {
		t.Errorf("%+v", no)
	}
	if _, err := w.c.UpdateNetwork(t.Context(),
		api.NetUpdateParams{Sandbox: sb, Add: &api.NetLists{Allow: []string{at("other.test")}}}); err != nil {
		t.Fatal(err)
	}

	sleeper, err := w.c.ExecStart(t.Context(),
		api.ExecParams{Sandbox: sb, Argv: []string{"sh", "-c", "trap '' TERM; sleep 1000"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.c.Signal(t.Context(), sleeper.Exec, "TERM"); err != nil {
		t.Fatal(err)
	}
	if _, err := w.c.ExecKill(t.Context(), sleeper.Exec); err != nil {
		t.Fatal(err)
	}
	w.in(t, sb, "unshare -U true")

	log := w.AuditOf(t, sb)
	if r, _ := one(t, log[api.AuditSignal], func(s api.AuditSent) bool {
		return s.Signal == "SIGTERM" &&
			s.Error == ""
	}); r.Exec != sleeper.Exec || r.By == nil {
		t.Errorf("%+v", r)
	}
	if r, _ := one(t, log[api.AuditKill], func(api.AuditSent) bool { return true }); r.Exec != sleeper.Exec ||
		r.By == nil {
		t.Errorf("%+v", r)
	}
	one(t, log[api.AuditSyscall], func(e api.SyscallEvent) bool {
		return e.Syscall == "unshare" && e.Errno != "" &&
			e.Count == 1
	})
	box, err := w.c.GetSandbox(t.Context(), sb)
	if err != nil {
		t.Fatal(err)
	}
	one(t, log[api.AuditCreated], func(c api.AuditSandbox) bool {
		e := c.Network.Enforcement
		return c.Image == "host" && c.Network.Mode == api.NetAllow && e == box.Network.Enforcement && e.Proxy != "" &&
			(e.EBPF == "on" || e.EBPF == "off" && e.Reason != "")
	})
	started, command := one(t, log[api.AuditExec],
		func(c api.AuditCommand) bool { return slices.Contains(c.Argv, "--password") })
	for _, r := range append(slices.Clone(log[api.AuditExec]), append(log["fs.write"], log[api.AuditPolicy]...)...) {
		if r.By == nil || int(r.By.UID) != os.Getuid() || r.By.PID == 0 {
			t.Errorf("nobody called: %+v", r)
		}
	}
	if want := fmt.Sprintf("by.uid=%d by.pid=%d\n", os.Getuid(), os.Getpid()); !strings.Contains(w.OK(t, "audit", sb,
		"--exec", run.Exec), want) {
		t.Errorf("hutch audit does not say %s", want)
	}
	if started.By.PID != int32(os.Getpid()) {
		t.Errorf("called by %+v, not %d", started.By, os.Getpid())
	}
	if stdin, _ := command.Stdin.(map[string]any); started.Exec != run.Exec || command.PID == 0 ||
		!slices.Equal(command.Env, []string{"KEY"}) || stdin["sha256"] != digestOf("the input") {
		t.Errorf("%s", started.Data)
	}
	one(t, log[api.AuditExecEnd], func(e auditedExit) bool {
		return e.ExitCode == 3 && e.Stdout.Bytes == 9 && e.Stdout.SHA256 == digestOf("the input") &&
			e.Stderr.SHA256 == digestOf("cust-4711 my-secret-value\n")
	})
	one(t, log["fs.write"], func(f auditedFile) bool {
		return f.Path == "/tmp/f" &&
			f.Content.SHA256 == digestOf("content")
	})
	one(t, log["fs.read"], func(f auditedFile) bool { return f.Path == "/tmp/f" && f.Content.Bytes == 7 })
	one(t, log["fs.read"], func(f auditedFile) bool { return f.Path == "/tmp/none" && f.Error != "" })
	// hutch cp: by a pipe
	one(t, log["fs.read"], func(f auditedFile) bool { return f.Path == "/tmp/f" && f.Bytes == 7 })
	one(t, log[api.AuditAllowed], func(c api.AuditConnection) bool {
		return c.Name == "web.test" && c.Port == port && c.Rule == "allow "+at("web.test")
	})
	if d, _ := one(t, log[api.AuditDenied],
		func(d api.DeniedEvent) bool { return d.Name == "other.test" }); d.Exec != no.Exec {
		t.Errorf("%+v", d)
	}
	one(t, log[api.AuditPolicy], func(p api.NetPolicy) bool { return slices.Contains(p.Allow, at("other.test")) })

	head := strings.TrimSpace(w.OK(t, "audit", sb, "--head"))
	world.Kill(t, w.Daemon(t).Hutchd)
	w.c = w.Connect(t)
	w.fetches(t, sb, "echo again", "again")
	w.OK(t, "rm", "-f", sb)
	if out := w.OK(t, "audit", "verify", sb, "--head", head); !strings.HasPrefix(out, "ok: ") {
		t.Error(out)
	}
	log = w.AuditOf(t, sb)
	one(t, log[api.AuditResumed], func(r api.AuditResumption) bool {
		return !r.Clean && !r.HeadLost &&
			r.MissingFrom == 0
	})
	if removed := log[api.AuditRemove]; len(removed) != 1 || removed[0].By == nil ||
		int(removed[0].By.UID) != os.Getuid() {
		t.Errorf("%+v", removed)
	}
	if len(log[api.AuditExec]) < 4 || len(log[api.AuditClosed]) != 1 {
		t.Errorf("%+v", log)
	}
	if out := w.OK(t, "audit", "ls"); !strings.Contains(out, sb) || !strings.Contains(out, "removed") {
		t.Error(out)
	}

	files, err := filepath.Glob(filepath.Join(w.Root(), "*", "audit", sb, "*.jsonl"))
	if err == nil && len(files) == 0 {
		files, err = filepath.Glob(filepath.Join(w.Root(), "audit", sb, "*.jsonl"))
	}
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	text, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{"hunter22", "my-secret-value", "cust-4711"} {
		if strings.Contains(string(text), secret) {
			t.Errorf("%s is in the log", secret)
		}
	}
	copied := w.Path("copy.jsonl")
	if err := os.WriteFile(copied, []byte(w.OK(t, "audit", sb, "--json")), 0o600); err != nil {
		t.Fatal(err)
	}
	w.Run(t, "audit", "verify", "--file", copied, "--head", head).Want(t, 0)
	bad := strings.Replace(string(text), `"exit_code":3`, `"exit_code":0`, 1)
	if err := os.WriteFile(files[0], []byte(bad), 0o600); err != nil {
		t.Fatal(err)
	}
	number := strings.Count(bad[:strings.Index(bad, `"exit_code":0`)], "\n") + 1
	v := w.Run(t, "audit", "verify", sb).Want(t, 125).Says(t, "is not as it was written")
	if want := fmt.Sprintf("record %d: the record was changed", number); !strings.Contains(v.Stdout, want) {
		t.Errorf("%q, want %q", v.Stdout, want)
	}
}

// TestAuditOff: nothing is recorded where the configuration says so.
func TestAuditOff(t *testing.T) {
	t.Parallel()
	config := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(config, []byte("audit: {enabled: false}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	w := world.New(t, "HUTCH_CONFIG="+config)
	w.Approve(t, config)
	sb := w.Create(t, "host")
	w.OK(t, "exec", sb, "true")
	w.Run(t, "audit", sb).Want(t, 125).Says(t, "no audit log")
}
