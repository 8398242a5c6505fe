package policy

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/runtime/api"
)

var update = flag.Bool("update", false, "write the goldens anew")

func compile(t testing.TB, p api.NetPolicy) *Rules {
	t.Helper()
	r, err := Compile(p)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestDecisions runs testdata/*.txt: lines that build a policy, then questions with
// their answers. `go test -update` writes the answers.
//
//	mode|learn|ask|allow|block|allow_cidrs|block_cidrs VALUE...
//	name NAME | connect PROTO NAME PORT | host NAME PORT | literal PROTO ADDRESS PORT | dial NAME ADDRESS PORT [own]
//	    answer
func TestDecisions(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no testdata", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := answers(t, string(b))
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if got != string(b) {
				t.Errorf("other answers than in %s (go test -update writes these):\n%s", file, got)
			}
		})
	}
}

func answers(t *testing.T, text string) string {
	t.Helper()
	var out strings.Builder
	var p api.NetPolicy
	var r *Rules
	for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan(); {
		line := lines.Text()
		if strings.HasPrefix(line, "    ") {
			continue // an old answer
		}
		fmt.Fprintln(&out, line)
		f := strings.Fields(line)
		if len(f) == 0 || strings.HasPrefix(line, "#") {
			continue
		}
		if f[0] == "mode" {
			p, r = api.NetPolicy{}, nil // a new policy
		}
		switch f[0] {
		case "mode":
			p.Mode = api.NetMode(f[1])
		case "learn":
			p.Learn = api.NetLearning(f[1])
		case "ask":
			p.Ask = true
		case "allow":
			p.Allow = append(p.Allow, f[1:]...)
		case "block":
			p.Block = append(p.Block, f[1:]...)
		case "allow_cidrs":
			p.AllowCIDRs = append(p.AllowCIDRs, f[1:]...)
		case "block_cidrs":
			p.BlockCIDRs = append(p.BlockCIDRs, f[1:]...)
		case "refused":
			_, err := Compile(p)
			var e *api.Error
			if !errors.As(err, &e) {
				t.Fatalf("%s: %v is no refusal", line, err)
			}
			fmt.Fprintf(&out, "    %s: %s\n    hint: %s\n", e.Field, e, e.Hint)
		default:
			if r == nil {
				r = compile(t, p)
			}
			show(&out, ask(t, r, f))
		}
	}
	return out.String()
}

func ask(t *testing.T, r *Rules, f []string) Decision {
	t.Helper()
	port := func(s string) (n uint16) {
		if _, err := fmt.Sscan(s, &n); err != nil {
			t.Fatal(f, err)
		}
		return n
	}
	// \x00 in a file is that byte on the wire.
	name := func(s string) string { return strings.ReplaceAll(s, `\x00`, "\x00") }
	switch f[0] {
	case "name":
		return r.Name(name(f[1]))
	case "connect":
		return r.Connect(name(f[2]), Proto(f[1]), port(f[3]))
	case "host":
		return r.Host(name(f[1]), TCP, port(f[2]))
	case "literal":
		return r.Literal(netip.MustParseAddr(f[2]), Proto(f[1]), port(f[3]))
	case "dial":
		return r.Dial(strings.Trim(f[1], "-"), netip.MustParseAddr(f[2]), port(f[3]),
			func(netip.Addr) bool { return len(f) > 4 })
	}
	t.Fatalf("%q is no question", f)
	return Decision{}
}

func show(out *strings.Builder, d Decision) {
	if d.Asks {
		fmt.Fprint(out, "    asks\n")
	}
	if d.Allow {
		fmt.Fprintf(out, "    yes: %s (check %s): %s\n", d.Rule, d.Check, d.Why)
		return
	}
	fmt.Fprintf(out, "    no: %s: %s\n", d.Rule, d.Why)
	if d.HowToAllow != "" {
		fmt.Fprintf(out, "        %s\n", d.HowToAllow)
	}
}

func itoa(n int) string { return fmt.Sprint(n) }

// TestManyRules: a decision takes as many steps with 10,000 rules as with one.
func TestManyRules(t *testing.T) {
	p := api.NetPolicy{Mode: api.NetAllow}
	for i := range 10_000 {
		p.Allow = append(p.Allow, "a.test:"+itoa(i+1), "*.n"+itoa(i)+".test")
	}
	r := compile(t, p)
	if d := r.Connect("a.test", TCP, 9999); !d.Allow || d.Rule != "allow a.test:9999" {
		t.Errorf("%+v", d)
	}
	if d := r.Connect("x.n77.test", TCP, 443); !d.Allow || d.Rule != "allow *.n77.test" {
		t.Errorf("%+v", d)
	}
	if n := testing.AllocsPerRun(100, func() { r.Connect("x.n77.test", TCP, 443) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
	tables := 0
	for range r.tables("a.b.c.n1.test") {
		tables++
	}
	if tables > 6 {
		t.Errorf("%d tables for five labels", tables)
	}
}

// TestLearn: the smallest policy for what was wanted, which allows just that.
func TestLearn(t *testing.T) {
	wanted := []api.NetTarget{
		{Name: "lookup.test"},
		{Proto: TCP, Name: "a.test", Port: 443},
		{Proto: TCP, Name: "b.test", Port: 80},
		{Proto: TCP, Name: "b.test", Port: 443},
		{Proto: TCP, Name: "db.test", Port: 5432},
		{Proto: TCP, Name: "dev.test", Port: 8443},
		{Proto: UDP, Name: "ntp.test", Port: 123},
		{Proto: TCP, Name: "evil.test", Port: 443},
		{Proto: TCP, Name: "inside.test", Address: "10.1.2.3", Port: 443},
		{Proto: TCP, Name: "public.test", Address: "93.184.216.34", Port: 443},
		{Proto: TCP, Address: "93.184.216.34", Port: 22},
		{Proto: TCP, Address: "192.0.2.1", Port: 22},
		{Proto: TCP, Name: "bad\x00.test", Port: 443},
	}
	got := Learn(api.NetPolicy{Mode: api.NetLearn, Block: []string{"evil.test"}, BlockCIDRs: []string{"192.0.2.0/24"}},
		wanted)
	want := "[a.test:443 b.test dev.test:8443 inside.test:443 public.test:443 tcp://db.test:5432 udp://ntp.test:123] [10.1.2.3 93.184.216.34]"
	if s := fmt.Sprint(got.Allow, got.AllowCIDRs); s != want || got.Mode != api.NetAllow || len(got.Block) != 1 {
		t.Errorf("%s\nwant %s", s, want)
	}
	r := compile(t, got)
	for _, w := range wanted {
		if v := r.Verdict(w, isNot); v.Allow != (w.Port != 0 && w.Name != "evil.test" && w.Address != "192.0.2.1" &&
			w.Name != "bad\x00.test") {
			t.Errorf("%+v: %+v", w, v)
		}
	}
}
