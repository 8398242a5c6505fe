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
//	mode|learn|allow|block|allow_cidrs|block_cidrs VALUE...
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
		return r.Dial(strings.Trim(f[1], "-"), netip.MustParseAddr(f[2]), port(f[3]), func(netip.Addr) bool { return len(f) > 4 })
	}
	t.Fatalf("%q is no question", f)
	return Decision{}
}

func show(out *strings.Builder, d Decision) {
	if d.Allow {
		fmt.Fprintf(out, "    yes: %s (check %s): %s\n", d.Rule, d.Check, d.Why)
		return
	}
	fmt.Fprintf(out, "    no: %s: %s\n", d.Rule, d.Why)
	if d.HowToAllow != "" {
		fmt.Fprintf(out, "        %s\n", d.HowToAllow)
	}
}
