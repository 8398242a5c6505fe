package names

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/miekg/dns"

	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/netfilter/policy"
	"github.com/hutch-sh/hutch/runtime/api"
)

// TestRecords: records that a sandbox does not get are reported, but for those that are asked for beside others.
func TestRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []Denial
		table, err := Open(filepath.Join(t.TempDir(), "names"), DefaultPrefix, []byte("seed"))
		if err != nil {
			t.Fatal(err)
		}
		rules, err := policy.Compile(api.NetPolicy{Mode: api.NetAllow, Allow: []string{"example.com", "*.wild.test"}})
		if err != nil {
			t.Fatal(err)
		}
		s := NewServer(Config{Table: table, Rules: func() *policy.Rules { return rules },
			Denied: func(d Denial) { told = append(told, d) }})
		ask := func(name string, qtype uint16, rcode int) {
			t.Helper()
			query, err := new(dns.Msg).SetQuestion(name, qtype).Pack()
			if err != nil {
				t.Fatal(err)
			}
			var reply dns.Msg
			if err := reply.Unpack(s.answer(query, true, netip.AddrPort{})); err != nil || reply.Rcode != rcode {
				t.Errorf("%s %s: %v, %v", dns.Type(qtype), name, &reply, err)
			}
		}
		var begun time.Time
		expect := func(want ...string) {
			t.Helper()
			s.Unanswered(begun)
			got := []string{}
			for _, d := range told {
				if got = append(got, d.Type+" "+d.Name); d.Rule != "record type" || d.Answer != "NODATA" ||
					!strings.HasPrefix(d.Why, d.Type+" records") {
					t.Errorf("%+v", d)
				}
			}
			if told = nil; fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("told about %q, want %q", got, want)
			}
		}
		ask("example.com.", dns.TypeTXT, 0)
		ask("_mongodb._tcp.example.com.", dns.TypeSRV, dns.RcodeNameError)
		ask("_mongodb._tcp.db.wild.test.", dns.TypeSRV, 0)
		ask("_http._tcp.example.com.", dns.TypeSRV, dns.RcodeNameError)
		ask("example.com.", dns.TypeHTTPS, 0)
		expect("TXT example.com", "SRV _mongodb._tcp.example.com", "SRV _mongodb._tcp.db.wild.test")
		ask("example.com.", dns.TypeAAAA, 0)
		ask("example.com.", dns.TypeA, 0)
		ask("example.com.", dns.TypeA, 0)
		ask("example.com.", dns.TypeAAAA, 0)
		expect()
		testenv.Elapse(time.Minute)
		ask("example.com.", dns.TypeAAAA, 0)
		expect("AAAA example.com")
		ask("example.com.", dns.TypeAAAA, 0) // of a command before the one that fails
		testenv.Elapse(time.Minute)
		begun = time.Now()
		ask("www.wild.test.", dns.TypeAAAA, 0)
		expect("AAAA www.wild.test")
		for i := range 10 * recent { // is remembered within bounds
			ask(fmt.Sprintf("n%d.wild.test.", i), dns.TypeAAAA, 0)
		}
		if n := len(s.records.six); n > recent {
			t.Errorf("%d names are noted", n)
		}
	})
}
