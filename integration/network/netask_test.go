package network_test

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/runtime/api"
	hutch "github.com/hutch-sh/hutch/runtime/client"
)

// asking reads what is asked and answered about one sandbox.
type asking struct {
	w      *netWorld
	events *hutch.Events
}

func (w *netWorld) askingBox(t testing.TB, p api.NetPolicy) (string, *asking) {
	t.Helper()
	p.Mode, p.Ask = api.NetAllow, true
	sb := w.box(t, p)
	events, err := w.c.Subscribe(t.Context(),
		api.SubscribeParams{Sandbox: sb, Kinds: []api.EventKind{api.EventNetworkAsk, api.EventNetworkAnswer}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = events.Close() })
	return sb, &asking{w, events}
}

func (a *asking) next(t testing.TB, kind api.EventKind, data any) {
	t.Helper()
	e, err := a.events.Next(t.Context())
	if err != nil || e.Kind != kind {
		t.Fatalf("%v, %s %s, want %s", err, e.Kind, e.Data, kind)
	}
	if err := json.Unmarshal(e.Data, data); err != nil {
		t.Fatal(err)
	}
}

// question is the next event, about this target.
func (a *asking) question(t testing.TB, name string, port uint16, entry string) (q api.AskEvent) {
	t.Helper()
	a.next(t, api.EventNetworkAsk, &q)
	if q.Name+q.Address != name || q.Port != port || q.HowToAllow != entry || q.ID == "" || q.Why == "" ||
		q.Until.IsZero() {
		t.Errorf("%+v, want %s:%d by %s", q, name, port, entry)
	}
	return q
}

// over is the next event, the end of a question.
func (a *asking) over(t testing.TB, q api.AskEvent, answer api.NetAnswer) {
	t.Helper()
	var e api.AnsweredEvent
	if a.next(t, api.EventNetworkAnswer, &e); e.ID != q.ID || e.Answer != answer || e.NetTarget != q.NetTarget {
		t.Errorf("%+v, want %q of %+v", e, answer, q)
	}
}

func (a *asking) answer(t testing.TB, q api.AskEvent, answer api.NetAnswer) {
	t.Helper()
	if err := a.w.c.Answer(t.Context(), api.AnswerParams{ID: q.ID, Answer: answer}); err != nil {
		t.Error(err)
	}
	a.over(t, q, answer)
}

// wants starts a program in a sandbox that connects.
func (w *netWorld) wants(t testing.TB, sb, name string, port uint16) *world.Client {
	t.Helper()
	return w.Launch(t, "exec", sb, "--", "sh", "-c", connecting(name, port))
}

// reached fails unless the program reaches the server.
func (w *netWorld) reached(t testing.TB, c *world.Client) {
	t.Helper()
	c.AwaitPart(t, "200 OK")
	if code := world.Await(t, c.Cmd); code != 0 {
		t.Errorf("exit code %d: %s", code, &c.Errs)
	}
}

// notAllowed fails unless the program is told that it is refused.
func notAllowed(t testing.TB, c *world.Client, want string) {
	t.Helper()
	if code := world.Await(t, c.Cmd); code == 0 || !strings.Contains(c.Errs.String(), want) {
		t.Errorf("exit code %d: %s, want %s", code, &c.Errs, want)
	}
}

// TestNetworkAsk: a connection that nothing allows waits for an answer, and the program sees a slower connect. What is
// blocked is not asked about, nor is a no asked again.
func TestNetworkAsk(t *testing.T) {
	t.Parallel()
	world.NeedsPython(t)
	w := newNetWorld(t, []string{"web.test", "other.test", "bad.test", "private.test"})
	w.set("private.test", localhost)
	port := webServer(t, "hello")
	entry := func(name string) string { return fmt.Sprintf("--allow tcp://%s:%d", name, port) }
	sb, a := w.askingBox(t, api.NetPolicy{Block: []string{"bad.test"}, AllowCIDRs: loopback})

	// Once, by whoever is first; who comes later is asked about again.
	c := w.wants(t, sb, "web.test", port)
	q := a.question(t, "web.test", port, entry("web.test"))
	if out := w.OK(t, "network", "asks"); !strings.Contains(out, q.ID) || !strings.Contains(out, sb) ||
		!strings.Contains(out, entry("web.test")) {
		t.Errorf("%s", out)
	}
	w.OK(t, "network", "answer", q.ID, "once")
	a.over(t, q, api.NetOnce)
	w.reached(t, c)
	c = w.wants(t, sb, "web.test", port)
	a.answer(t, a.question(t, "web.test", port, entry("web.test")), api.NetOnce)
	w.reached(t, c)

	// For the sandbox: its policy has the entry, and nobody is asked again.
	c = w.wants(t, sb, "other.test", port)
	q = a.question(t, "other.test", port, entry("other.test"))
	a.answer(t, q, api.NetSession)
	w.reached(t, c)
	w.fetches(t, sb, connecting("other.test", port), "200 OK")
	n, err := w.c.Network(t.Context(), sb)
	if err != nil || !slices.Equal(n.Network.Allow, []string{strings.TrimPrefix(entry("other.test"), "--allow ")}) ||
		!n.Network.Ask {
		t.Errorf("%+v %v", n.Network, err)
	}
	// The first answer counts.
	if err := w.c.Answer(t.Context(),
		api.AnswerParams{ID: q.ID, Answer: api.NetOnce}); api.ErrorCode(err) != api.NotFound {
		t.Errorf("%v", err)
	}

	// No is no for good, and is reported as any refusal.
	c = w.wants(t, sb, "private.test", port)
	a.answer(t, a.question(t, "private.test", port, entry("private.test")), api.NetDeny)
	notAllowed(t, c, w.forbidden(t, sb))
	w.denied(t, sb, connecting("private.test", port), w.forbidden(t, sb), byName("private.test", "mode allow"))
	// What is blocked, this host's services and special addresses are nobody's to ask about.
	w.denied(t, sb, connecting("bad.test", port), "gaierror", byName("bad.test", "block"))
	w.denied(t, sb, connecting("host", port), "gaierror", nil)
	w.denied(t, sb, connecting("169.254.169.254", port), w.forbidden(t, sb), nil)
	// An address without a name.
	c = w.wants(t, sb, "1.1.1.1", port) // nothing is sent there
	q = a.question(t, "1.1.1.1", port, "--allow-cidr 1.1.1.1")
	a.answer(t, q, api.NetDeny)
	notAllowed(t, c, w.forbidden(t, sb))
	w.OK(t, "rm", "-f", sb)
	if asked := w.questions(); slices.Contains(asked, "private.test") || slices.Contains(asked, "bad.test") {
		t.Errorf("names that left the sandbox: %q", asked)
	}
}

// TestNetworkAskAlways: what is to be allowed always is not asked about in other sandboxes, also by the next hutchd,
// until it is forgotten.
func TestNetworkAskAlways(t *testing.T) {
	t.Parallel()
	world.NeedsPython(t)
	w := newNetWorld(t, []string{"web.test"})
	port := webServer(t, "hello")
	entry := fmt.Sprintf("tcp://web.test:%d", port)
	sb, a := w.askingBox(t, api.NetPolicy{AllowCIDRs: loopback})
	c := w.wants(t, sb, "web.test", port)
	a.answer(t, a.question(t, "web.test", port, "--allow "+entry), api.NetAlways)
	w.reached(t, c)
	world.Kill(t, w.Daemon(t).Hutchd)
	w.c = w.Connect(t)
	other, _ := w.askingBox(t, api.NetPolicy{AllowCIDRs: loopback})
	w.fetches(t, other, connecting("web.test", port), "200 OK")
	// A policy that does not ask is as strict as it says.
	w.denied(t, w.allowing(t), connecting("web.test", port), "gaierror", byName("web.test", "mode allow"))

	if out := w.OK(t, "network", "asks"); !strings.Contains(out, "always allowed: "+entry) {
		t.Errorf("%s", out)
	}
	w.OK(t, "network", "forget", entry)
	if r := w.Run(t, "network", "forget", entry); r.Code == 0 || !strings.Contains(r.Stderr, "is not always allowed") {
		t.Errorf("exit %d: %s", r.Code, r.Stderr)
	}
	third, b := w.askingBox(t, api.NetPolicy{AllowCIDRs: loopback})
	c = w.wants(t, third, "web.test", port)
	b.answer(t, b.question(t, "web.test", port, "--allow "+entry), api.NetDeny)
	notAllowed(t, c, w.forbidden(t, third))
}

// TestNetworkAskUnanswered: without an answer in time it is no, and the same is not asked again at once; a question
// ends with whoever wanted to know, and with the sandbox.
func TestNetworkAskUnanswered(t *testing.T) {
	t.Parallel()
	world.NeedsPython(t)
	w := newNetWorld(t, []string{"web.test"})
	port := webServer(t, "hello")
	entry := fmt.Sprintf("--allow tcp://web.test:%d", port)
	sb, a := w.askingBox(t, api.NetPolicy{AskS: 0.5, AllowCIDRs: loopback})
	c := w.wants(t, sb, "web.test", port)
	a.over(t, a.question(t, "web.test", port, entry), "")
	notAllowed(t, c, w.forbidden(t, sb))
	w.denied(t, sb, connecting("web.test", port), w.forbidden(t, sb), byName("web.test", "mode allow"))

	gone, b := w.askingBox(t, api.NetPolicy{AllowCIDRs: loopback})
	c = w.Launch(t, "exec", gone, "--", "sh", "-c", strings.Replace(connecting("web.test", port), ", 10)", ", 0.2)", 1))
	q := b.question(t, "web.test", port, entry)
	notAllowed(t, c, "timed out")
	b.over(t, q, "")
	c = w.wants(t, gone, "web.test", port)
	q = b.question(t, "web.test", port, entry) // it was not answered late: nobody was there
	w.OK(t, "rm", "-f", gone)
	b.over(t, q, "")
	_ = world.Await(t, c.Cmd)
	if asks, err := w.c.Asks(t.Context()); err != nil || len(asks.Pending) != 0 {
		t.Errorf("%+v %v", asks, err)
	}
}

// TestNetworkAskClients: each client that listens is asked, the first answer counts, and the others are told that it is
// over.
func TestNetworkAskClients(t *testing.T) {
	t.Parallel()
	world.NeedsPython(t)
	w := newNetWorld(t, []string{"web.test"})
	port := webServer(t, "hello")
	entry := fmt.Sprintf("--allow tcp://web.test:%d", port)
	sb, first := w.askingBox(t, api.NetPolicy{AllowCIDRs: loopback})
	const n = 4
	all, clients := []*asking{first}, []*hutch.Client{w.c}
	for range n - 1 {
		c := w.Connect(t)
		events, err := c.Subscribe(t.Context(),
			api.SubscribeParams{Sandbox: sb, Kinds: []api.EventKind{api.EventNetworkAsk, api.EventNetworkAnswer}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = events.Close() })
		all, clients = append(all, &asking{w, events}), append(clients, c)
	}
	for round := range 6 {
		c := w.wants(t, sb, "web.test", port)
		var q api.AskEvent
		for _, a := range all {
			if got := a.question(t, "web.test", port, entry); q.ID != "" && got.ID != q.ID {
				t.Errorf("round %d: %+v and %+v", round, q, got)
			} else {
				q = got
			}
		}
		errs := make([]error, n)
		var wg sync.WaitGroup
		for i, c := range clients {
			wg.Go(func() { errs[i] = c.Answer(t.Context(), api.AnswerParams{ID: q.ID, Answer: api.NetOnce}) })
		}
		wg.Wait()
		counted := 0
		for _, err := range errs {
			switch {
			case err == nil:
				counted++
			case api.ErrorCode(err) != api.NotFound && api.ErrorCode(err) != api.FailedPrecondition:
				// it was answered, or just is
				t.Errorf("round %d: %v", round, err)
			}
		}
		if counted != 1 {
			t.Errorf("round %d: %d answers counted", round, counted)
		}
		for _, a := range all {
			a.over(t, q, api.NetOnce)
		}
		w.reached(t, c)
	}
	w.OK(t, "rm", "-f", sb)
}

// TestNetworkAskTerminal: hutch run --ask puts it to whoever is at the terminal.
func TestNetworkAskTerminal(t *testing.T) {
	t.Parallel()
	world.NeedsPython(t)
	world.Needs(t, "script")
	w := newNetWorld(t, []string{"web.test"})
	port := webServer(t, "hello")
	cmd := w.Command("run", "--ask", "--allow-cidr", "127.0.0.0/8", "host", "--", "sh", "-c",
		connecting("web.test", port))
	line := make([]string, len(cmd.Args))
	for i, arg := range cmd.Args {
		line[i] = "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
	}
	line[0] = "'" + cmd.Path + "'"
	in := exec.Command("script", "-qec", strings.Join(line, " "), "/dev/null")
	in.Env, in.Dir, in.SysProcAttr = cmd.Env, cmd.Dir, cmd.SysProcAttr
	c := world.Spawn(t, in)
	c.AwaitPart(t, fmt.Sprintf("the sandbox wants to connect to web.test:%d", port))
	if _, err := fmt.Fprint(c.Stdin, "what?\n"); err != nil {
		t.Fatal(err)
	}
	c.AwaitPart(t, fmt.Sprintf("the sandbox wants to connect to web.test:%d", port))
	if _, err := fmt.Fprint(c.Stdin, "o\n"); err != nil {
		t.Fatal(err)
	}
	c.AwaitPart(t, "200 OK")
	if code := world.Await(t, c.Cmd); code != 0 {
		t.Errorf("exit code %d: %s", code, &c.Errs)
	}
}
