package network_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/api"
)

// TestExecPolicy: a command with a policy of its own reaches what that and the sandbox's allow; the kernel refuses
// it the rest, and tells whose policy it was. Others of the sandbox are as they were, and what a
// command leaves behind stays under its policy, also when hutchd was killed.
func TestExecPolicy(t *testing.T) {
	testenv.Axes(t, testenv.EBPF)
	needsKernel(t)
	world.Needs(t, "curl")
	world.NeedsPython(t)
	w := newNetWorld(t, []string{"web.test", "other.test"})
	port := webServer(t, "hello")
	at := func(name string) string { return fmt.Sprintf("%s:%d", name, port) }
	sb := w.box(t, api.NetPolicy{Mode: api.NetAllow, Allow: []string{at("web.test"), at("other.test")},
		AllowCIDRs: append([]string{"192.0.2.0/24"}, loopback...)})
	under := func(p *api.NetPolicy, command string) api.ExecResult {
		t.Helper()
		res, err := w.c.ExecRun(t.Context(), api.ExecParams{Sandbox: sb, Command: command, Network: p}, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	web := &api.NetPolicy{Mode: api.NetAllow, Allow: []string{at("web.test")}}
	fetches := func(p *api.NetPolicy, name string) {
		t.Helper()
		if res := under(p, "curl -sS http://"+at(name)); !strings.Contains(res.Stdout, "hello") ||
			len(res.Denials) != 0 {
			t.Errorf("%s under %+v: %+v", name, p, res)
		}
	}
	refused := func(p *api.NetPolicy, host string, port uint16, errno, rule string) {
		t.Helper()
		res := under(p, connecting(host, port))
		i := slices.IndexFunc(res.Denials, func(d api.Denial) bool {
			return (d.Name == host || d.Address == host) && d.Port == port && d.Rule == rule && d.By == "ebpf" &&
				d.Errno == errno && d.Exec == res.Exec
		})
		if !strings.Contains(res.Stderr, errno) || i < 0 {
			t.Errorf("%s:%d under %+v: %+v", host, port, p, res)
		}
	}
	fetches(nil, "web.test")
	fetches(nil, "other.test")
	fetches(web, "web.test")
	refused(web, "other.test", port, "EACCES", "exec: mode allow")
	refused(web, "web.test", 1, "EACCES", "mode allow") // the sandbox's own
	none := &api.NetPolicy{Mode: api.NetNone}
	refused(none, "web.test", port, "EACCES", "exec: mode none")
	refused(none, "192.0.2.1", 443, "EACCES", "exec: mode none")
	if res := under(&api.NetPolicy{Mode: api.NetAllow, AllowCIDRs: []string{"192.0.2.0/28"}},
		connecting("192.0.2.1", 443)); len(res.Denials) != 0 {
		t.Errorf("a part of a range: %+v", res)
	}
	refused(&api.NetPolicy{Mode: api.NetAllow, AllowCIDRs: []string{"192.0.2.0/28"}}, "192.0.2.99", 443, "EACCES",
		"exec: reserved address")
	fetches(nil, "other.test")

	// A name that gets its address while the exec runs is there for it.
	w.OK(t, "network", "update", "--allow", at("late.test"), sb)

	// What is wider is refused, and nothing is started.
	for _, wide := range []api.NetPolicy{
		{Mode: api.NetOpen}, {Mode: api.NetLearn}, {Mode: api.NetAllow, Allow: []string{at("third.test")}},
		{Mode: api.NetAllow, Allow: []string{"web.test:1"}},
		{Mode: api.NetAllow, Allow: []string{"*.web.test"}}, {Mode: api.NetAllow, AllowCIDRs: []string{"192.0.0.0/16"}},
	} {
		_, err := w.c.ExecRun(t.Context(), api.ExecParams{Sandbox: sb, Command: "true", Network: &wide}, nil, nil)
		if api.ErrorCode(err) != api.InvalidArgument {
			t.Errorf("%+v: %v", wide, err)
		}
	}

	// The sandbox's policy changes: the exec's stays within it.
	c := w.Launch(t, "exec", "-i", "--allow", at("web.test"), sb, "--", "sh", "-c",
		fmt.Sprintf("echo begin; for name in web other; do read x; curl -sS -o /dev/null http://$name.test:%d && echo $name=reached || echo $name=refused; done", port))
	c.Await(t, "begin")
	world.Kill(t, w.Daemon(t).Hutchd)
	w.c = w.Connect(t)
	if _, err := fmt.Fprintln(c.Stdin); err != nil {
		t.Fatal(err)
	}
	c.Await(t, "web=reached")
	if _, err := fmt.Fprintln(c.Stdin); err != nil {
		t.Fatal(err)
	}
	c.Await(t, "other=refused")
	_ = world.Await(t, c.Cmd)

	// What is left behind, with curl's exit code for a connection that failed.
	res := under(none, "mkfifo /tmp/go /tmp/code; (read x </tmp/go; curl -sS -o /dev/null http://"+at("web.test")+
		"; echo $? >/tmp/code) >/dev/null 2>&1 & echo left")
	if !strings.Contains(res.Stdout, "left") {
		t.Fatalf("%+v", res)
	}
	world.Kill(t, w.Daemon(t).Hutchd)
	w.c = w.Connect(t)
	if res := under(nil, "echo >/tmp/go; cat /tmp/code"); res.Stdout != "7\n" {
		t.Errorf("what an exec has left behind: %+v", res)
	}
	fetches(nil, "web.test")
	w.OK(t, "rm", "-f", sb)
}

// TestExecPolicyOff: without eBPF nobody can hold one exec to less, and that is said.
func TestExecPolicyOff(t *testing.T) {
	testenv.Axes(t, testenv.Privilege)
	t.Parallel()
	w := newNetWorld(t, []string{"web.test"}, "HUTCH_EBPF=off")
	sb := strings.TrimSpace(w.OK(t, "create", "host"))
	if r := w.Run(t, "exec", "--network", "none", sb, "--", "true"); r.Code != 125 ||
		!strings.Contains(r.Stderr, "takes eBPF") {
		t.Errorf("exit %d: %s", r.Code, r.Stderr)
	}
	w.OK(t, "exec", sb, "--", "true")
}
