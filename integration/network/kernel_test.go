package network_test

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/probe"
	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/api"
)

// needsKernel skips tests of eBPF where the daemon may not have programs loaded.
func needsKernel(t testing.TB) { t.Helper(); testenv.Require(t, probe.EBPF()) }

// wall is one of a sandbox's.
func (w *netWorld) wall(t testing.TB, sandbox, name string) api.Wall {
	t.Helper()
	rec, err := w.c.GetSandbox(t.Context(), sandbox)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(rec.Isolation.Walls, func(w api.Wall) bool { return w.Name == name })
	if i < 0 {
		t.Fatalf("no wall %s in %+v", name, rec.Isolation.Walls)
	}
	return rec.Isolation.Walls[i]
}

// literally is a denial of an address that no name led to.
func literally(address string, port uint16, rule string) func(api.Denial) bool {
	return func(d api.Denial) bool {
		return d.Name == "" && d.Address == address && d.Port == port && d.Rule == rule && d.Why != ""
	}
}

// TestKernel: the kernel refuses by itself what the policy does not name, and tells of it;
// what the policy names is reached, before and after it changes.
func TestKernel(t *testing.T) {
	testenv.Axes(t, testenv.EBPF)
	t.Parallel()
	needsKernel(t)
	world.Needs(t, "curl")
	world.NeedsPython(t)
	w := newNetWorld(t, []string{"web.test", "other.test"})
	port := webServer(t, "hello")
	at := func(name string) string { return fmt.Sprintf("%s:%d", name, port) }
	sb := w.box(t, api.NetPolicy{Mode: api.NetAllow, Allow: []string{at("web.test")}, AllowCIDRs: loopback,
		Require: []api.NetRequire{api.RequireEBPF}})
	if wall := w.wall(t, sb, "eBPF"); wall.Status != "yes" {
		t.Errorf("%+v", wall)
	}
	w.fetches(t, sb, "curl -sS http://"+at("web.test"), "hello")
	w.denied(t, sb, connecting("192.0.2.1", 443), "EACCES", literally("192.0.2.1", 443, "reserved address"))
	w.denied(t, sb, connecting("2001:db8::1", 443), "EACCES", literally("2001:db8::1", 443, "reserved address"))
	w.denied(t, sb, connecting("web.test", 1), "EACCES", byName("web.test", "mode allow"))

	for _, p := range []api.NetUpdateParams{
		{Add: &api.NetLists{Allow: []string{at("other.test")}, AllowCIDRs: []string{"192.0.2.0/24"}}},
		{Remove: &api.NetLists{Allow: []string{at("web.test")}, AllowCIDRs: []string{"192.0.2.0/24"}}},
	} {
		p.Sandbox = sb
		if _, err := w.c.UpdateNetwork(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		w.fetches(t, sb, "curl -sS http://"+at("other.test"), "hello")
		if p.Remove != nil {
			w.denied(t, sb, connecting("192.0.2.1", 443), "EACCES", literally("192.0.2.1", 443, "reserved address"))
			w.denied(t, sb, "curl -sS http://"+at("web.test"), "Could not resolve", byName("web.test", "mode allow"))
		}
	}
	n, err := w.c.Network(t.Context(), sb)
	if err != nil || n.Enforcement.EBPF != "on" || n.Enforcement.Errno != "EACCES" || n.Enforcement.Proxy == "" ||
		!slices.ContainsFunc(n.Rules, func(u api.NetUse) bool {
			return u.Rule == "reserved address" &&
				u.Denials == 3
		}) {
		t.Errorf("%+v, %v", n, err)
	}
	w.OK(t, "rm", "-f", sb)
}

// TestKernelNone: without a network nothing but the sandbox's own loopback is reached, by the
// errno that it always had, and what it tries is told.
func TestKernelNone(t *testing.T) {
	testenv.Axes(t, testenv.EBPF)
	t.Parallel()
	needsKernel(t)
	world.NeedsPython(t)
	w := newNetWorld(t, nil)
	sb := strings.TrimSpace(w.OK(t, "create", "host"))
	w.denied(t, sb, connecting("192.0.2.1", 443), "ENETUNREACH", literally("192.0.2.1", 443, "mode none"))
	w.denied(t, sb, connecting("127.0.0.1", 1), "ECONNREFUSED", nil)
	w.OK(t, "rm", "-f", sb)
}

// TestKernelWho: a refusal names the process and its exec, also beside others, and does not
// believe what a process writes into its own command line.
func TestKernelWho(t *testing.T) {
	testenv.Axes(t, testenv.EBPF)
	t.Parallel()
	needsKernel(t)
	world.NeedsPython(t)
	w := newNetWorld(t, nil)
	sb := strings.TrimSpace(w.OK(t, "create", "host"))
	other := w.Launch(t, "exec", "-i", sb, "--", "sh", "-c", "echo begin; read x")
	other.Await(t, "begin")
	// The process lives until its refusal is told: of one that is gone nothing is known.
	events, err := w.c.Subscribe(t.Context(),
		api.SubscribeParams{Sandbox: sb, Kinds: []api.EventKind{api.EventNetworkDenied}})
	if err != nil {
		t.Fatal(err)
	}
	defer events.Close()
	refused := func() (res api.ExecResult, d api.Denial) {
		started, err := w.c.ExecStart(t.Context(),
			api.ExecParams{Sandbox: sb,
				Command: "exec -a \"$(printf 'evil\\033[2Jname')\" python3 -c 'import socket, sys; socket.socket().connect_ex((\"192.0.2.9\", 443)); sys.stdin.read()'"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := events.Next(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := w.c.ExecCloseStdin(t.Context(), started.Exec); err != nil {
			t.Fatal(err)
		}
		res, err = w.c.ExecWait(t.Context(), api.WaitParams{Exec: started.Exec})
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(res.Denials, literally("192.0.2.9", 443, "mode none"))
		if i < 0 {
			t.Fatalf("%+v", res)
		}
		d = res.Denials[i]
		if d.Exec != res.Exec || d.By != "ebpf" || d.Errno != "ENETUNREACH" || d.Process == nil {
			t.Fatalf("%+v of exec %s", d, res.Exec)
		}
		return res, d
	}
	res, d := refused()
	// hutchd looks for 20 ms, which on a machine that is emulated and busy is not always enough.
	for range 5 {
		if d.Process.PID != 0 {
			break
		}
		res, d = refused()
	}
	p := d.Process
	if p.PID <= 1 || p.HostPID <= 1 || p.PID == p.HostPID || len(p.Command) < 3 ||
		p.Command[0] != "evil\uFFFD[2Jname" || p.Command[1] != "-c" {
		t.Errorf("%+v", p)
	}
	if _, err := io.WriteString(other.Stdin, "\n"); err != nil {
		t.Fatal(err)
	}
	_ = world.Await(t, other.Cmd)
	if out := w.OK(t, "why", sb); !strings.Contains(out, res.Exec) || !strings.Contains(out, "192.0.2.9:443") ||
		!strings.Contains(out, "eBPF on") {
		t.Errorf("why: %s", out)
	}
	rec, err := w.c.GetSandbox(t.Context(), sb)
	if want := (api.NetEnforcement{EBPF: "on", Errno: "ENETUNREACH"}); err != nil || rec.Network.Enforcement != want {
		t.Errorf("%+v, %v", rec.Network, err)
	}
	doctor, err := w.c.Doctor(t.Context())
	if err != nil || !slices.ContainsFunc(doctor.Checks,
		func(c api.Check) bool { return c.Name == "network_enforcement" && c.Status == "yes" }) {
		t.Errorf("%+v, %v", doctor, err)
	}
	w.OK(t, "rm", "-f", sb)
}

// TestKernelDeath: with hutchd killed, and then with all but the sandbox's own processes and
// hutch-launch, the kernel goes on refusing and letting pass what it did.
func TestKernelDeath(t *testing.T) {
	testenv.Axes(t, testenv.EBPF)
	needsKernel(t)
	world.Needs(t, "curl")
	world.NeedsPython(t)
	w := newNetWorld(t, []string{"web.test"})
	port := webServer(t, "hello")
	at := fmt.Sprintf("web.test:%d", port)
	sb := w.allowing(t, at)
	fetch := func(sandbox string) { // its other command is refused something all the time
		t.Helper()
		if res := w.in(t, sandbox, "curl -sS http://"+at); !strings.Contains(res.Stdout, "hello") {
			t.Errorf("%+v", res)
		}
	}
	fetch(sb)
	c := w.Launch(t, "exec", "-i", sb, "--", "python3", "-c", `
import errno, socket, select, sys
seen = {}
print("begin", flush=True)
while not select.select([sys.stdin], [], [], 0)[0]:
    s = socket.socket()
    s.settimeout(5)
    try:
        s.connect(("192.0.2.1", 443))
        got = "connected"
    except OSError as e:
        got = errno.errorcode.get(e.errno, str(e))
    s.close()
    seen[got] = seen.get(got, 0) + 1
print("seen=" + ",".join(sorted(seen)) + ".", flush=True)
`)
	c.Await(t, "begin")
	world.Kill(t, w.Daemon(t).Hutchd)
	w.c = w.Connect(t)
	fetch(sb)
	world.Kill(t, w.Daemon(t).Monitor)
	w.c = w.Connect(t)
	fetch(sb)
	if wall := w.wall(t, sb, "eBPF"); wall.Status != "yes" {
		t.Errorf("%+v", wall)
	}
	w.denied(t, sb, connecting("192.0.2.7", 443), "EACCES", literally("192.0.2.7", 443, "reserved address"))
	next := w.box(t, api.NetPolicy{Mode: api.NetAllow, Allow: []string{at}, AllowCIDRs: loopback,
		Require: []api.NetRequire{api.RequireEBPF}})
	fetch(next)
	if _, err := io.WriteString(c.Stdin, "\n"); err != nil {
		t.Fatal(err)
	}
	c.Await(t, "seen=EACCES.")
	_ = world.Await(t, c.Cmd)
	w.OK(t, "rm", "-f", sb, next)
}

// TestKernelOff: where it is not on, that is said, and who asks for it gets nothing.
func TestKernelOff(t *testing.T) {
	testenv.Axes(t, testenv.Privilege, testenv.EBPF)
	t.Parallel()
	w := newNetWorld(t, []string{"web.test"}, "HUTCH_EBPF=off")
	_, err := w.c.CreateSandbox(t.Context(),
		api.CreateParams{Spec: api.Spec{Image: "host",
			Network: api.NetPolicy{Mode: api.NetAllow, Require: []api.NetRequire{api.RequireEBPF}}}}, nil, nil)
	if api.ErrorCode(err) != api.Unavailable || !strings.Contains(err.Error(), "HUTCH_EBPF") {
		t.Errorf("required: %v", err)
	}
	if res := w.Run(t, "run", "--require-ebpf", "host", "true"); res.Code != 125 ||
		!strings.Contains(res.Stderr, "HUTCH_EBPF") {
		t.Errorf("--require-ebpf: %+v", res)
	}
	sb, err := w.c.CreateSandbox(t.Context(),
		api.CreateParams{Spec: api.Spec{Image: "host", Network: api.NetPolicy{Mode: api.NetAllow}}}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if wall := w.wall(t, sb.ID, "eBPF"); wall.Status != "no" || !strings.Contains(wall.Detail, "HUTCH_EBPF") ||
		sb.Isolation.Enforcement != "proxy" {
		t.Errorf("%+v, %q", wall, sb.Isolation.Enforcement)
	}
	if e := sb.Network.Enforcement; e.EBPF != "off" || !strings.Contains(e.Reason, "HUTCH_EBPF") || e.Proxy == "" {
		t.Errorf("%+v", e)
	}
	w.OK(t, "rm", "-f", sb.ID)
}
