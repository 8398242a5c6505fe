package agent_test

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/probe"
	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/api"
)

// allowHost lets commands run on the host, as a user has to.
func allowHost(t testing.TB, w *world.World, more string) {
	t.Helper()
	world.Write(t, w.Path("home/config.yaml"), "host_execution: allowed\n"+more)
	w.Approve(t, w.Path("home/config.yaml"))
}

// hostRows are the records of the log host: each decision's place, or what is known of an end.
func hostRows(t testing.TB, w *world.World) (rows []string) {
	t.Helper()
	for line := range strings.Lines(w.OK(t, "audit", "host", "--json")) {
		var r struct {
			Kind api.AuditKind
			Data struct {
				Decision string
				Mode     string
				Reported bool
				Code     *int `json:"exit_code"`
			}
		}
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		switch {
		case r.Kind == api.AuditExecDecided:
			rows = append(rows, r.Data.Mode+" "+r.Data.Decision)
		case r.Kind == api.AuditHostExited && r.Data.Reported:
			rows = append(rows, "ended "+strconv.Itoa(*r.Data.Code))
		case r.Kind == api.AuditHostExited:
			rows = append(rows, "unreported")
		}
	}
	return rows
}

// here says whether what a command printed is this process's pid namespace: it was on the host.
func here(t testing.TB, out string) bool {
	t.Helper()
	own, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Contains(out, own)
}

const whereami = "readlink /proc/self/ns/pid"

// TestModeOff: on the host only where the configuration lets it, never without a mark in result, events and audit log.
func TestModeOff(t *testing.T) {
	testenv.Axes(t, testenv.Privilege)
	t.Parallel()
	w := world.New(t)
	command := []string{"--", "sh", "-c", whereami + "; exit 3"}
	for _, mode := range []string{"off", "selective"} {
		r := w.Run(t, append([]string{"run", "--mode", mode}, command...)...).Want(t, 125).
			Says(t, "host_execution: allowed", "which the configuration refuses")
		if r.Stdout != "" {
			t.Errorf("%s: ran: %q", mode, r.Stdout)
		}
	}
	if r := w.Run(t, append([]string{"run", "--mode", "all"}, command...)...).Want(t, 3); here(t, r.Stdout) ||
		strings.Contains(r.Stderr, "HOST") {
		t.Errorf("%+v", r)
	}
	allowHost(t, w, "")
	w.OK(t, "config", "reload")
	if r := w.Run(t, append([]string{"run"}, command...)...).Want(t, 3); here(t, r.Stdout) {
		t.Errorf("without being asked: %+v", r)
	}
	if r := w.Run(t, append([]string{"run", "--mode", "off"}, command...)...).Want(t, 3).
		Says(t, "running on the HOST, not in a sandbox (mode off)"); !here(t, r.Stdout) {
		t.Errorf("%+v", r)
	}
	box := w.Create(t, "host")
	r := w.Run(t, "exec", "--mode", "off", "--json", "-e", "A=b", box, "sh", "-c", "echo $A; "+whereami).Want(t, 0).
		Says(t, "HOST")
	var res struct {
		api.ExecResult
		Where    api.Where
		Decision api.Decision
	}
	if err := json.Unmarshal([]byte(r.Stdout), &res); err != nil || res.Where != api.WhereHost ||
		res.Decision.Mode != api.ExecModeOff || !strings.HasPrefix(res.Stdout, "b\n") || !here(t, res.Stdout) {
		t.Errorf("%s: %v", r.Stdout, err)
	}
	if rows, want := strings.Join(hostRows(t, w), ", "),
		"off refused, selective refused, off host, ended 3, off host, ended 0"; rows != want {
		t.Errorf("audit: %s, want %s", rows, want)
	}
	events := w.OK(t, "events", "--no-follow", "--kind", "exec.decided", "--kind", "exec.host_exited")
	if strings.Count(events, "decision=host") != 2 || strings.Count(events, "decision=refused") != 2 ||
		strings.Count(events, "reported=true") != 2 || !strings.Contains(events, box) {
		t.Errorf("%s", events)
	}
	w.OK(t, "audit", "verify", "host")

	// What only a sandbox keeps is refused, not dropped.
	for _, flags := range [][]string{{"-m", "100m"}, {"--network", "none"}, {"-d"}, {"--workspace", w.Dir + ":overlay"},
		{"--private"}, {"-t"}, {"-w", "/"}} {
		w.Run(t, append(append([]string{"run", "--mode", "off"}, flags...), "--", "true")...).Want(t, 125).
			Says(t, "--mode off runs the command on the host, but")
	}
	w.Run(t, "run", "--mode", "off", "host", "--", "true").Want(t, 125).Says(t, "an image is named")
	w.Run(t, "run", "--mode", "some", "--", "true").Want(t, 125).Says(t, "is no mode")
	w.Run(t, "run", "--mode", "off", "--timeout", "2h", "--", "true").Want(t, 125).Says(t, "exec.max_timeout_s")

	// Ends as in a sandbox.
	for command, code := range map[string]int{"kill -9 $$": 137, "kill -TERM $$": 143, "exec none-such": 127,
		"exit 77": 77} {
		w.Run(t, "run", "--mode", "off", "--", "sh", "-c", command).Want(t, code)
	}
	w.Run(t, "run", "--mode", "off", "--", "none-such").Want(t, 127).Says(t, "none-such")
	w.Run(t, "run", "--mode", "off", "--timeout", "0.3", "--", "sh", "-c", "sleep 1000 & wait").Want(t, 124)
	if r := w.Feed(t, "text", "run", "--mode", "off", "--", "cat"); r.Want(t, 0).Stdout != "text" {
		t.Errorf("%q", r.Stdout)
	}
	w.OK(t, "rm", "-f", box)
}

// TestModeConfig: the mode of the configuration goes for all commands but for those that name another, and for what
// only a sandbox has.
func TestModeConfig(t *testing.T) {
	testenv.Axes(t, testenv.Privilege)
	t.Parallel()
	w := world.New(t)
	allowHost(t, w, "mode: off\n")
	if r := w.Run(t, "run", "--", "sh", "-c", whereami).Want(t, 0).Says(t, "HOST"); !here(t, r.Stdout) {
		t.Errorf("%+v", r)
	}
	if r := w.Run(t, "run", "--mode", "all", "--", "sh", "-c", whereami).Want(t, 0); here(t, r.Stdout) ||
		strings.Contains(r.Stderr, "HOST") {
		t.Errorf("%+v", r)
	}
	if r := w.Run(t, "run", "--best-effort", "--", "sh", "-c", whereami).Want(t, 0).
		Says(t, "mode off: in a sandbox: --best-effort is given"); here(t, r.Stdout) {
		t.Errorf("%+v", r)
	}
	box := w.Create(t, "host")
	if r := w.Run(t, "exec", box, "sh", "-c", whereami).Want(t, 0).
		Says(t, "mode off: in a sandbox: the sandbox has files of its own"); here(t, r.Stdout) {
		t.Errorf("%+v", r)
	}
	w.OK(t, "rm", "-f", box)
	info := w.OK(t, "rpc", "system.info")
	if !strings.Contains(info, `"mode": "off"`) || !strings.Contains(info, `"host_execution": "allowed"`) {
		t.Error(info)
	}
	world.Write(t, w.Path("home/config.yaml"), "mode: off\n")
	w.Run(t, "run", "--", "true").Want(t, 125).Says(t, "takes host_execution: allowed")
}

// TestModeSelective: what a scan finds risky, cannot read or does not know runs in a sandbox; the rest, by the same
// programs, on the host.
func TestModeSelective(t *testing.T) {
	testenv.Axes(t, testenv.Privilege)
	t.Parallel()
	w := world.New(t)
	allowHost(t, w, "")
	dir := w.Sub(t, "project")
	world.Write(t, filepath.Join(dir, "own"), "own\n")
	world.Write(t, filepath.Join(dir, "ls"), "#!/bin/sh\necho evil\n")
	if err := os.Chmod(filepath.Join(dir, "ls"), 0o755); err != nil {
		t.Fatal(err)
	}
	confines := probe.Landlock().Status == "yes"
	run := func(command ...string) (where api.Where, d api.Decision, out string) {
		t.Helper()
		cmd := w.Command(append([]string{"run", "--mode", "selective", "--json", "--workspace", dir + ":rw", "--"},
			command...)...)
		cmd.Dir = dir
		cmd.Env = append(cmd.Env, "PATH=.:"+dir+":"+os.Getenv("PATH")+":"+w.Bin)
		r := w.Finish(t, cmd)
		var res struct {
			api.ExecResult
			Where    api.Where
			Decision api.Decision
		}
		if err := json.Unmarshal([]byte(r.Stdout), &res); err != nil {
			t.Fatalf("%q: %v: %+v", command, err, r)
		}
		if (res.Where == api.WhereHost) != strings.Contains(r.Stderr, "HOST") {
			t.Errorf("%q: %s: %q", command, res.Where, r.Stderr)
		}
		return res.Where, res.Decision, res.Stdout
	}
	for _, tt := range []struct {
		command []string
		want    api.Where
		rule    string
	}{
		{[]string{"echo", "$(rm x)"}, api.WhereHost, ""},
		{[]string{"expr", "6", "*", "7"}, api.WhereHost, ""},
		{[]string{"cat", "own"}, api.WhereHost, "shell.read"},
		{[]string{"cat", "/etc/passwd"}, api.WhereSandbox, "shell.read_elsewhere"},
		{[]string{"ls"}, api.WhereHost, "shell.read"},
		{[]string{"./ls"}, api.WhereSandbox, "shell.command_unknown"},
		{[]string{"sort", "own"}, api.WhereHost, "shell.read"},
		{[]string{"sort", "-o", "own", "own"}, api.WhereSandbox, "shell.write"},
		{[]string{"find", "."}, api.WhereHost, "shell.read"},
		{[]string{"find", ".", "-delete"}, api.WhereSandbox, "shell.find"},
		{[]string{"rm", "own"}, api.WhereSandbox, "shell.delete"},
		{[]string{"unheard-of"}, api.WhereSandbox, "shell.command_unknown"},
		{[]string{"sh", "-c", "echo hi"}, api.WhereSandbox, "shell.interpreter_code"},
		{[]string{"python3", "-c", "import os; os.system('id')"}, api.WhereSandbox, "python.command"},
		{[]string{"env", "PATH=.", "ls"}, api.WhereSandbox, "shell.variable"},
		{[]string{"timeout", "1", "curl", "example.com"}, api.WhereSandbox, "shell.http"},
	} {
		if !confines && tt.want == api.WhereHost && tt.rule != "" { // nothing would keep it to what the scan has seen
			tt.want = api.WhereSandbox
		}
		where, d, out := run(tt.command...)
		found := tt.rule == ""
		for _, f := range d.Findings {
			found = found || f.Rule == tt.rule
		}
		if where != tt.want || !found || d.Reason == "" || strings.Contains(out, "evil") && tt.command[0] == "ls" {
			t.Errorf("%q: %s, want %s with %s: %+v, %q", tt.command, where, tt.want, tt.rule, d, out)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "own")); err == nil {
		t.Error("rm in the sandbox has not removed what is in a workspace that it may write")
	}

	// A link that a sandbox has made leads nowhere on the host.
	world.Write(t, w.Path("secret"), "key\n")
	w.OK(t, "run", "--workspace", dir+":rw", "--", "ln", "-s", w.Path("secret"), "link")
	if where, d, out := run("cat", "link"); strings.Contains(out, "key") || confines != (where == api.WhereHost) {
		t.Errorf("%s %+v: %q", where, d, out)
	}

	// In a sandbox with files of its own nothing runs on the host: it would see others.
	box := w.Create(t, "host")
	w.Run(t, "exec", "--mode", "selective", box, "echo", "hi").Want(t, 0).
		Says(t, "in a sandbox: the sandbox has files of its own")
	w.Run(t, "run", "--mode", "selective", "-e", "LD_PRELOAD=./x.so", "--", "echo", "hi").Want(t, 0).
		Says(t, "in a sandbox: --env is given")
	w.OK(t, "rm", "-f", box)
	rows := strings.Join(hostRows(t, w), ", ")
	if !strings.HasPrefix(rows, "selective host, ended 0, selective host, ended 0, ") ||
		strings.Contains(rows, "unreported") {
		t.Error(rows)
	}
}

// TestModeKilled: a client that is killed leaves nothing on the host, and the daemon records that nobody has told it
// the end.
func TestModeKilled(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	allowHost(t, w, "")
	cmd := w.Command("run", "--mode", "off", "--", "sh", "-c", "setsid sleep 1000 & echo $!; wait")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	if world.Ended(pid, 0) {
		t.Fatalf("%d is not there", pid)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if !world.Ended(pid, world.Patience) {
		t.Error("what the command had started lives on")
	}
	// The daemon has noticed when a record follows.
	follow := w.Command("audit", "host", "-f", "--kind", "exec.host_exited")
	lines, err := follow.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := follow.Start(); err != nil {
		t.Fatal(err)
	}
	said, err := bufio.NewReader(lines).ReadString('\n')
	_ = follow.Process.Kill()
	_ = follow.Wait()
	if err != nil || !strings.Contains(said, "reported=false") || strings.Contains(said, "exit_code") {
		t.Errorf("%q, %v", said, err)
	}
	if rows := strings.Join(hostRows(t, w), ", "); rows != "off host, unreported" {
		t.Error(rows)
	}
}

// TestModeSignal: signals go to the command on the host, too.
func TestModeSignal(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	allowHost(t, w, "")
	cmd := w.Command("run", "--mode", "off", "--", "bash", "-c",
		"trap 'echo got; exit 9' TERM; echo ready; while :; do sleep 1000 & wait $!; done")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	if !lines.Scan() || lines.Text() != "ready" {
		t.Fatal(lines.Text())
	}
	if err := cmd.Process.Signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if !lines.Scan() || lines.Text() != "got" {
		t.Error(lines.Text())
	}
	if code := world.Await(t, cmd); code != 9 {
		t.Errorf("exit code %d", code)
	}
}

// TestModeDaemonDeath: a command on the host does not mind the death of hutchd. The next one knows of no end, and the
// caller says so.
func TestModeDaemonDeath(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	allowHost(t, w, "")
	cmd := w.Command("run", "--mode", "off", "--", "sh", "-c", "echo ready; read x; exit 5")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "ready\n" {
		t.Fatal(line, err)
	}
	world.Kill(t, w.Daemon(t).Hutchd)
	if _, err := in.Write([]byte("\n")); err != nil {
		t.Fatal(err)
	}
	if code := world.Await(t, cmd); code != 5 ||
		!strings.Contains(said.String(), "has not recorded how the command on the host ended") {
		t.Errorf("exit code %d, %q", code, said.String())
	}
	w.Run(t, "run", "--mode", "off", "--", "true").Want(t, 0)
	if rows := strings.Join(hostRows(t, w), ", "); rows != "off host, off host, ended 0" {
		t.Error(rows)
	}
	if resumed := w.OK(t, "audit", "host", "--kind", "audit.resumed"); !strings.Contains(resumed, "clean=false") {
		t.Errorf("%q", resumed)
	}
	w.OK(t, "audit", "verify", "host")
}

// TestModeTerminal: on the host a command has the caller's own terminal, whose keys are its own, also twice Ctrl-C.
func TestModeTerminal(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	allowHost(t, w, "")
	// A trap is run when what the shell waits for has ended, which the signal ends, too: a read would miss one that
	// comes just before it.
	p, cmd := w.Terminal(t, "run", "-it", "--mode", "off", "--", "bash", "--norc", "-c",
		"trap 'echo int $((n=n+1))' INT; tty -s && echo ready; read x; echo got $x; sh -c 'echo one; exec sleep 999'; sh -c 'echo two; exec sleep 999'; read x; echo got $x; exit 6")
	p.Sees("running on the HOST")
	p.Sees("ready")
	p.Write("hello\r")
	p.Sees("got hello")
	for i, child := range []string{"one", "two"} {
		p.Sees(child + "\r\n")
		p.Write("\x03")
		p.Sees("int " + strconv.Itoa(i+1) + "\r\n")
	}
	p.Write("end\r")
	p.Sees("got end")
	if code := world.Await(t, cmd); code != 6 {
		t.Errorf("exit code %d", code)
	}
}
