package integration_test

import (
	"os"
	"strings"
	"testing"
)

// token makes a client's token, and the line of it for the configuration.
func (w *world) token(t *testing.T, name string) (token, entry string) {
	t.Helper()
	r := w.run(t, "config", "token", name)
	_, line, ok := strings.Cut(r.stderr, "tokens: {")
	if r.code != 0 || !ok {
		t.Fatalf("exit %d: %s", r.code, r.stderr)
	}
	return strings.TrimSpace(r.stdout), strings.TrimSuffix(strings.TrimSpace(line), "}")
}

// showing runs hutch with a variable more.
func (w *world) showing(t *testing.T, variable string, args ...string) result {
	t.Helper()
	old := w.vars
	defer func() { w.vars = old }()
	w.vars = append(append([]string{}, old...), variable)
	return w.run(t, args...)
}

// TestClientTokens: once the configuration names tokens, only clients that show one are served, under their names in the audit
// log; one that is taken out of it ends what its client has open.
func TestClientTokens(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	sb := w.create(t, "host") // before there are any
	ci, ciEntry := w.token(t, "ci")
	me, meEntry := w.token(t, "me")
	w.configure(t, noneAhead+"tokens: {"+ciEntry+", "+meEntry+"}\n")
	w.ok(t, "config", "reload")

	for _, args := range [][]string{{"ps"}, {"exec", sb, "true"}, {"rm", "-f", sb}, {"config", "reload"}, {"rpc", "rpc.discover"}} {
		if r := w.run(t, args...); r.code == 0 || !strings.Contains(r.stderr, "clients with a token only") || !strings.Contains(r.stderr, "HUTCH_TOKEN") {
			t.Errorf("%q: exit %d: %s", args, r.code, r.stderr)
		}
	}
	if r := w.showing(t, "HUTCH_TOKEN="+strings.Repeat("x", 32), "ps"); r.code == 0 || !strings.Contains(r.stderr, "no token of this daemon") {
		t.Errorf("exit %d: %s", r.code, r.stderr)
	}
	if r := w.showing(t, "HUTCH_TOKEN="+ci, "exec", sb, "sh", "-c", "echo in; env"); r.code != 0 || !strings.HasPrefix(r.stdout, "in\n") || strings.Contains(r.stdout, ci) {
		t.Errorf("exit %d: %s %s", r.code, r.stdout, r.stderr)
	}
	if err := os.WriteFile(w.path("token"), []byte(me+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	file := "HUTCH_TOKEN_FILE=" + w.path("token")
	if r := w.showing(t, file, "ps"); r.code != 0 || !strings.Contains(r.stdout, sb) {
		t.Errorf("exit %d: %s", r.code, r.stderr)
	}
	if r := w.showing(t, file, "audit", "--json", sb); r.code != 0 || !strings.Contains(r.stdout, `"client":"ci"`) || strings.Contains(r.stdout, `"client":"me"`) {
		t.Errorf("exit %d: %s %s", r.code, r.stdout, r.stderr)
	}

	// Taken away while a command of its client runs.
	old := w.vars
	w.vars = append(append([]string{}, old...), "HUTCH_TOKEN="+ci)
	c := w.start(t, "exec", sb, "sh", "-c", "echo ready; exec sleep 1000")
	w.vars = old
	w.configure(t, noneAhead+"tokens: {"+meEntry+"}\n")
	if r := w.showing(t, file, "config", "reload"); r.code != 0 {
		t.Fatalf("exit %d: %s", r.code, r.stderr)
	}
	if code := await(t, c.Cmd); code == 0 {
		t.Error("the command of a client without a token went on")
	}
	if r := w.showing(t, "HUTCH_TOKEN="+ci, "ps"); r.code == 0 {
		t.Error("a token that was taken away is good")
	}
	if r := w.showing(t, file, "rm", "-f", sb); r.code != 0 {
		t.Errorf("exit %d: %s", r.code, r.stderr)
	}
	for text, want := range map[string]string{"tokens: {a b: sha256:00}\n": "no name of a client", "tokens: {a: sha256:00}\n": "no digest of a token"} {
		w.configure(t, text)
		if r := w.showing(t, file, "config", "check"); r.code == 0 || !strings.Contains(r.stderr, want) {
			t.Errorf("%s: exit %d: %s", text, r.code, r.stderr)
		}
	}
	// Whoever can write the file needs none.
	w.configure(t, noneAhead)
	if r := w.showing(t, file, "config", "reload"); r.code != 0 {
		t.Errorf("exit %d: %s", r.code, r.stderr)
	}
	w.ok(t, "ps")
}
