package network_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/runtime/api"
)

// deniedEvents are the network.denied events of a sandbox so far.
func (w *netWorld) deniedEvents(t testing.TB, sandbox string) map[string]api.Event {
	t.Helper()
	first, follow := int64(1), false
	sub, err := w.c.Subscribe(t.Context(), api.SubscribeParams{
		Sandbox: sandbox, Kinds: []api.EventKind{api.EventNetworkDenied}, FromSeq: &first, Follow: &follow,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Close()
	events := map[string]api.Event{}
	for e, err := range sub.All(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		var d api.DeniedEvent
		if err := json.Unmarshal(e.Data, &d); err != nil || d.Rule == "" || d.Why == "" || d.Count < 1 {
			t.Errorf("event %s: %v", e.Data, err)
		}
		events[d.Where()] = e
	}
	return events
}

// TestNetworkWhy: what was refused is in the result of the command, an event, and the
// answer of hutch why, also when the sandbox is gone.
func TestNetworkWhy(t *testing.T) {
	t.Parallel()
	world.Needs(t, "curl")
	world.NeedsPython(t)
	w := newNetWorld(t, []string{"web.test", "other.test"})
	port := webServer(t, "hello")
	at := func(name string) string { return fmt.Sprintf("%s:%d", name, port) }
	sb := w.allowing(t, at("web.test"))

	ok := w.in(t, sb, "curl -sS http://"+at("web.test"))
	if ok.ExitCode != 0 || len(ok.Denials) > 0 {
		t.Fatalf("%+v", ok)
	}
	no := w.in(t, sb, "curl -sS http://"+at("other.test")+"; "+connecting("web.test", 9))
	want := map[string]string{"other.test": "--allow other.test", "web.test:9": "--allow tcp://web.test:9"}
	if len(no.Denials) != len(want) {
		t.Errorf("denials %+v", no.Denials)
	}
	for _, d := range no.Denials {
		if d.Kind != api.KindNet || d.HowToAllow != want[d.Target] || d.Exec != no.Exec || d.Rule != "mode allow" ||
			d.Count < 1 || d.Time.IsZero() {
			t.Errorf("denial %+v, want %s of %s", d, want[d.Target], no.Exec)
		}
	}
	events := w.deniedEvents(t, sb)
	for target := range want {
		if e, ok := events[target]; !ok || e.Exec != no.Exec {
			t.Errorf("event of %s: %+v", target, e)
		}
	}
	if len(events) != len(want) {
		t.Errorf("events %+v", events)
	}

	// What the hint says, done, makes the same command work.
	if _, err := w.c.UpdateNetwork(t.Context(),
		api.NetUpdateParams{Sandbox: sb, Add: &api.NetLists{Allow: []string{at("other.test")}}}); err != nil {
		t.Fatal(err)
	}
	w.fetches(t, sb, "curl -sS http://"+at("other.test"), "hello")

	for _, then := range []string{"now", "after hutchd's death", "without the sandbox"} {
		switch then {
		case "after hutchd's death":
			world.Kill(t, w.Daemon(t).Hutchd)
			w.c = w.Connect(t)
		case "without the sandbox":
			w.OK(t, "rm", "-f", sb)
		}
		out := w.OK(t, "why", sb)
		for target, how := range want {
			if !strings.Contains(out, target) || !strings.Contains(out, how) {
				t.Errorf("hutch why, %s, misses %s, %s:\n%s", then, target, how, out)
			}
		}
	}
}

// TestNetworkShell: a command in a shell has what was refused during it, and no more.
func TestNetworkShell(t *testing.T) {
	t.Parallel()
	world.NeedsPython(t)
	w := newNetWorld(t, []string{"web.test"})
	sb := w.allowing(t, "web.test")
	sh, err := w.c.OpenShell(t.Context(), api.ShellParams{Sandbox: sb})
	if err != nil {
		t.Fatal(err)
	}
	for command, want := range map[string][]string{
		connecting("a.test", 443): {"a.test"},
		connecting("b.test", 443): {"b.test"},
		"true":                    {},
	} {
		res, err := w.c.RunShell(t.Context(), api.ShellRunParams{Shell: sh.Shell, Command: command})
		if err != nil {
			t.Fatal(err)
		}
		got := []string{}
		for _, d := range res.Denials {
			got = append(got, d.Target)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", command, got, want)
		}
	}
	w.OK(t, "rm", "-f", sb)
}

// TestNetworkHint: hutch run tells behind a command what was refused, also where a script has hidden that, and nothing
// where nothing was.
func TestNetworkHint(t *testing.T) {
	t.Parallel()
	world.Needs(t, "curl")
	w := newNetWorld(t, []string{"web.test"})
	port := webServer(t, "hello")
	at := fmt.Sprintf("web.test:%d", port)
	for _, tt := range []struct {
		command string
		told    bool
	}{
		{"curl -sS http://" + at, false},
		{"curl -sS http://other.test", true},
		{"curl -sS http://other.test || true", true},
		{"exit 3", false},
	} {
		res := w.Run(t, "run", "--allow", at, "--allow-cidr", "127.0.0.0/8", "host", "sh", "-c", tt.command)
		if told := strings.Contains(res.Stderr,
			"hutch: network: other.test was refused: no entry of allow matches other.test (--allow other.test)"); told != tt.told {
			t.Errorf("%s: exit code %d, stderr %s", tt.command, res.Code, res.Stderr)
		}
	}
}

// TestNetworkWhose: of two commands that run at once both have the refusal, and neither
// is said to be the one.
func TestNetworkWhose(t *testing.T) {
	t.Parallel()
	world.NeedsPython(t)
	w := newNetWorld(t, []string{"web.test"})
	sb := w.allowing(t, "web.test")
	other, err := w.c.ExecStart(t.Context(), api.ExecParams{Sandbox: sb, Argv: []string{"sleep", "1000"},
		Background: true}, nil)
	if err != nil {
		t.Fatal(err)
	}
	res := w.in(t, sb, connecting("evil.test", 443))
	if len(res.Denials) != 1 || res.Denials[0].Target != "evil.test" || res.Denials[0].Exec != "" {
		t.Errorf("denials %+v", res.Denials)
	}
	end, err := w.c.ExecKill(t.Context(), other.Exec)
	if err != nil || len(end.Denials) != 1 || end.Denials[0].Target != "evil.test" || end.Denials[0].Exec != "" {
		t.Errorf("the other one: %+v, %v", end.Denials, err)
	}
	if e := w.deniedEvents(t, sb)["evil.test"]; e.Seq == 0 || e.Exec != "" {
		t.Errorf("event %+v", e)
	}
	w.OK(t, "rm", "-f", sb)
}

// TestNetworkLearn: the policy that is learned allows what was done, and no more.
func TestNetworkLearn(t *testing.T) {
	t.Parallel()
	world.Needs(t, "curl")
	world.NeedsPython(t)
	w := newNetWorld(t, []string{"web.test", "db.test", "evil.test", "never.test"})
	web, db := webServer(t, "hello"), webServer(t, "db")
	script := fmt.Sprintf("curl -sS http://web.test:%d; curl -sS http://db.test:%d; curl -sS http://evil.test:%d; true",
		web, db, web)
	entries := []string{fmt.Sprintf("tcp://db.test:%d", db), fmt.Sprintf("tcp://web.test:%d", web)}
	slices.Sort(entries)
	whole := t // what the connection of the next daemon lives as long as
	for _, learn := range []api.NetLearning{api.LearnDeny, api.LearnAllow} {
		t.Run(string(learn), func(t *testing.T) {
			sb := w.box(t, api.NetPolicy{Mode: api.NetLearn, Learn: learn, Block: []string{"evil.test"},
				AllowCIDRs: loopback})
			res := w.in(t, sb, script)
			if got := strings.Count(res.Stdout, "test:"); got != map[api.NetLearning]int{api.LearnDeny: 0,
				api.LearnAllow: 2}[learn] {
				t.Errorf("%d servers were reached: %q, %q", got, res.Stdout, res.Stderr)
			}
			world.Kill(t, w.Daemon(t).Hutchd) // what was learned outlives it
			w.c = w.Connect(whole)
			n, err := w.c.Network(t.Context(), sb)
			if err != nil || n.Learned == nil {
				t.Fatalf("%+v, %v", n, err)
			}
			if p := n.Learned; p.Mode != api.NetAllow || !reflect.DeepEqual(p.Allow, entries) ||
				!reflect.DeepEqual(p.Block, []string{"evil.test"}) {
				t.Errorf("learned %+v, want %q", p, entries)
			}
			file := filepath.Join(t.TempDir(), "policy.json")
			if err := os.WriteFile(file, []byte(w.OK(t, "network", "get", "--learned", sb)), 0o644); err != nil {
				t.Fatal(err)
			}
			w.OK(t, "rm", "-f", sb)
			run := w.Run(t, "run", "--policy", file, "host", "sh", "-c", script+"; curl -sS http://never.test:"+
				fmt.Sprint(web))
			if strings.Count(run.Stdout, "test:") != 2 || !strings.Contains(run.Stderr, "never.test") {
				t.Errorf("with what was learned: %+v", run)
			}
		})
	}
}

// TestNetworkConfig: what the configuration says holds for who asks for nothing.
func TestNetworkConfig(t *testing.T) {
	t.Parallel()
	world.Needs(t, "curl")
	config := filepath.Join(t.TempDir(), "config.yaml")
	port := webServer(t, "hello")
	at := fmt.Sprintf("web.test:%d", port)
	text := fmt.Sprintf("defaults:\n  allowed_domains: [%q]\nnetwork:\n  allow_cidrs: [127.0.0.0/8]\n", at)
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	w := newNetWorld(t, []string{"web.test", "other.test"}, "HUTCH_CONFIG="+config)
	w.Approve(t, config)
	w.OK(t, "config", "reload")
	if out := w.OK(t, "run", "host", "curl", "-sS", "http://"+at); !strings.Contains(out, "hello") {
		t.Error(out)
	}
	for _, args := range [][]string{
		{"run", "host", "curl", "-sS", "http://other.test"},
		{"run", "--network", "none", "host", "curl", "-sS", "http://" + at},
		{"run", "--allow", "other.test", "host", "curl", "-sS", "http://" + at}, // a policy of its own
	} {
		if res := w.Run(t, args...); res.Code != 6 { // curl's for a name without an address
			t.Errorf("%q: %+v", args, res)
		}
	}
	if res := w.Run(t, "network", "check", at); res.Code != 0 {
		t.Errorf("%+v", res)
	}
}

// TestNetworkCounters: what each rule has let pass and refused.
func TestNetworkCounters(t *testing.T) {
	t.Parallel()
	world.Needs(t, "curl")
	w := newNetWorld(t, []string{"web.test"})
	port := webServer(t, "hello")
	at := fmt.Sprintf("web.test:%d", port)
	sb := w.allowing(t, at)
	for range 3 {
		w.fetches(t, sb, "curl -sS http://"+at, "hello")
	}
	w.in(t, sb, connecting("web.test", 9)+"; "+connecting("other.test", 9))
	n, err := w.c.Network(t.Context(), sb)
	if err != nil {
		t.Fatal(err)
	}
	uses := map[string]api.NetUse{}
	for _, u := range n.Rules {
		uses[u.Rule] = u
	}
	if u := uses["allow "+at]; u.Connections != 3 || u.SentBytes == 0 || u.ReceivedBytes == 0 || u.Denials != 0 {
		t.Errorf("%+v", n.Rules)
	}
	if u := uses["mode allow"]; u.Denials != 2 || u.Connections != 0 { // a connection and a lookup
		t.Errorf("%+v", n.Rules)
	}
	if out := w.OK(t, "network", "get", sb); !strings.Contains(out, "allow "+at) ||
		!strings.Contains(out, "hutch why "+sb) {
		t.Error(out)
	}
	w.OK(t, "rm", "-f", sb)
}

// TestNetworkUpdateRefused: a policy that cannot be put in force leaves the one before.
func TestNetworkUpdateRefused(t *testing.T) {
	t.Parallel()
	world.Needs(t, "curl")
	w := newNetWorld(t, []string{"web.test"})
	port := webServer(t, "hello")
	at := fmt.Sprintf("web.test:%d", port)
	sb, bare := w.allowing(t, at), w.OK(t, "create", "host")
	bare = strings.TrimSpace(bare)
	for name, tt := range map[string]struct {
		sandbox string
		p       api.NetUpdateParams
		code    api.Code
	}{
		"a public suffix": {sb, api.NetUpdateParams{Add: &api.NetLists{Allow: []string{"*.co.uk"}}},
			api.InvalidArgument},
		"not there": {sb, api.NetUpdateParams{Remove: &api.NetLists{Allow: []string{"a.test"}}},
			api.InvalidArgument},
		"none that allows": {sb, api.NetUpdateParams{Network: &api.NetPolicy{Mode: api.NetNone, Allow: []string{at}}},
			api.InvalidArgument},
		"nothing": {sb, api.NetUpdateParams{}, api.InvalidArgument},
		"without a network": {bare, api.NetUpdateParams{Network: &api.NetPolicy{Mode: api.NetOpen}},
			api.FailedPrecondition},
		"a name without": {bare, api.NetUpdateParams{Add: &api.NetLists{Allow: []string{"a.test"}}},
			api.FailedPrecondition},
		"nobody": {"sb_gone", api.NetUpdateParams{Add: &api.NetLists{Allow: []string{"a.test"}}},
			api.NotFound},
	} {
		tt.p.Sandbox = tt.sandbox
		if _, err := w.c.UpdateNetwork(t.Context(), tt.p); api.ErrorCode(err) != tt.code {
			t.Errorf("%s: %v, want %s", name, err, tt.code)
		}
	}
	none := api.NetUpdateParams{Sandbox: bare, Network: &api.NetPolicy{Mode: api.NetNone}}
	if _, err := w.c.UpdateNetwork(t.Context(), none); err != nil {
		t.Errorf("none, where it is that: %v", err)
	}
	if res := w.Run(t, "network", "update", "--allow", "a.test", bare); res.Code == 0 ||
		!strings.Contains(res.Stderr, "created with network mode none") ||
		!strings.Contains(res.Stderr, "--network allow") {
		t.Errorf("the command does not tell what to do: %+v", res)
	}
	n, err := w.c.Network(t.Context(), sb)
	if err != nil || !reflect.DeepEqual(n.Network, api.NetPolicy{Mode: api.NetAllow, Allow: []string{at},
		AllowCIDRs: loopback}) {
		t.Errorf("%+v, %v", n.Network, err)
	}
	w.fetches(t, sb, "curl -sS http://"+at, "hello")
	if _, err := w.c.CreateSandbox(t.Context(),
		api.CreateParams{Spec: api.Spec{Image: "host",
			Network: api.NetPolicy{Mode: api.NetAllow, Allow: []string{"*.co.uk"}}}}, nil,
		nil); api.ErrorCode(err) != api.InvalidArgument {
		t.Error(err)
	}
	w.OK(t, "rm", "-f", sb, bare)
}
