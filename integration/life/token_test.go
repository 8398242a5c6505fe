package life_test

import (
	"os"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/integration/world"
)

// token makes a client's token, and the line of it for the configuration.
func token(t *testing.T, w *world.World, name string) (token, entry string) {
	t.Helper()
	r := w.Run(t, "config", "token", name)
	_, line, ok := strings.Cut(r.Stderr, "tokens: {")
	if r.Code != 0 || !ok {
		t.Fatalf("exit %d: %s", r.Code, r.Stderr)
	}
	return strings.TrimSpace(r.Stdout), strings.TrimSuffix(strings.TrimSpace(line), "}")
}

// showing runs hutch with a variable more.
func showing(t *testing.T, w *world.World, variable string, args ...string) world.Result {
	t.Helper()
	old := w.Vars
	defer func() { w.Vars = old }()
	w.Vars = append(append([]string{}, old...), variable)
	return w.Run(t, args...)
}

// TestClientTokens: once the configuration names tokens, only clients that show one are served, under their names in
// the audit log; one that is taken out of it ends what its client has open.
func TestClientTokens(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	sb := w.Create(t, "host") // before there are any
	ci, ciEntry := token(t, w, "ci")
	me, meEntry := token(t, w, "me")
	w.Configure(t, world.NoneAhead+"tokens: {"+ciEntry+", "+meEntry+"}\n")
	w.OK(t, "config", "reload")

	for _, args := range [][]string{{"ps"}, {"exec", sb, "true"}, {"rm", "-f", sb}, {"config", "reload"},
		{"rpc", "rpc.discover"}} {
		if r := w.Run(t, args...); r.Code == 0 || !strings.Contains(r.Stderr, "clients with a token only") ||
			!strings.Contains(r.Stderr, "HUTCH_TOKEN") {
			t.Errorf("%q: exit %d: %s", args, r.Code, r.Stderr)
		}
	}
	if r := showing(t, w, "HUTCH_TOKEN="+strings.Repeat("x", 32), "ps"); r.Code == 0 ||
		!strings.Contains(r.Stderr, "no token of this daemon") {
		t.Errorf("exit %d: %s", r.Code, r.Stderr)
	}
	if r := showing(t, w, "HUTCH_TOKEN="+ci, "exec", sb, "sh", "-c", "echo in; env"); r.Code != 0 ||
		!strings.HasPrefix(r.Stdout, "in\n") || strings.Contains(r.Stdout, ci) {
		t.Errorf("exit %d: %s %s", r.Code, r.Stdout, r.Stderr)
	}
	if err := os.WriteFile(w.Path("token"), []byte(me+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(w.Path("open-token"), []byte(me+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if r := showing(t, w, "HUTCH_TOKEN_FILE="+w.Path("open-token"), "ps"); r.Code == 0 ||
		!strings.Contains(r.Stderr, "can be read by others (mode 0644)") || !strings.Contains(r.Stderr, "chmod 600") {
		t.Errorf("exit %d: %s", r.Code, r.Stderr)
	}
	file := "HUTCH_TOKEN_FILE=" + w.Path("token")
	if r := showing(t, w, file, "ps"); r.Code != 0 || !strings.Contains(r.Stdout, sb) {
		t.Errorf("exit %d: %s", r.Code, r.Stderr)
	}
	if r := showing(t, w, file, "audit", "--json", sb); r.Code != 0 || !strings.Contains(r.Stdout, `"client":"ci"`) ||
		strings.Contains(r.Stdout, `"client":"me"`) {
		t.Errorf("exit %d: %s %s", r.Code, r.Stdout, r.Stderr)
	}

	// Taken away while a command of its client runs.
	old := w.Vars
	w.Vars = append(append([]string{}, old...), "HUTCH_TOKEN="+ci)
	c := w.Start(t, "exec", sb, "sh", "-c", "echo ready; exec sleep 1000")
	w.Vars = old
	w.Configure(t, world.NoneAhead+"tokens: {"+meEntry+"}\n")
	if r := showing(t, w, file, "config", "reload"); r.Code != 0 {
		t.Fatalf("exit %d: %s", r.Code, r.Stderr)
	}
	if code := world.Await(t, c.Cmd); code == 0 {
		t.Error("the command of a client without a token went on")
	}
	if r := showing(t, w, "HUTCH_TOKEN="+ci, "ps"); r.Code == 0 {
		t.Error("a token that was taken away is good")
	}
	if r := showing(t, w, file, "rm", "-f", sb); r.Code != 0 {
		t.Errorf("exit %d: %s", r.Code, r.Stderr)
	}
	for text, want := range map[string]string{"tokens: {a b: sha256:00}\n": "no name of a client",
		"tokens: {a: sha256:00}\n": "no digest of a token"} {
		w.Configure(t, text)
		if r := showing(t, w, file, "config", "check"); r.Code == 0 || !strings.Contains(r.Stderr, want) {
			t.Errorf("%s: exit %d: %s", text, r.Code, r.Stderr)
		}
	}
	// Whoever can write the file needs none.
	w.Configure(t, world.NoneAhead)
	if r := showing(t, w, file, "config", "reload"); r.Code != 0 {
		t.Errorf("exit %d: %s", r.Code, r.Stderr)
	}
	w.OK(t, "ps")
}
