package netfilter

import (
	"net"
	"net/url"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/netfilter/netns"
	"github.com/hutch-sh/hutch/netfilter/policy"
	"github.com/hutch-sh/hutch/netfilter/proxy"
	"github.com/hutch-sh/hutch/runtime/api"
)

// ask puts a question to the resolver of mode none.
func ask(t *testing.T, in *insider, name string, qtype uint16) *dns.Msg {
	t.Helper()
	c, err := in.dialBy("udp4", net.JoinHostPort(netns.Refuser.String(), "53"))
	if err != nil {
		t.Fatal(err)
	}
	conn := &dns.Conn{Conn: c}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	m := new(dns.Msg).SetQuestion(name, qtype)
	m.SetEdns0(1232, false)
	if err := conn.WriteMsg(m); err != nil {
		t.Fatal(err)
	}
	r, err := conn.ReadMsg()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestPlain: a lookup without a network has an answer that ends it, and is told with the flag that would have allowed
// it, before the answer is there; by the daemon that adopts the sandbox, too. What would need none is answered.
func TestPlain(t *testing.T) {
	var mu sync.Mutex
	var heard []api.DeniedEvent
	k := &keeper{}
	before := openFDs(t)
	e := newEngine(t, k)
	e.cfg.Denied = func(id string, d api.DeniedEvent) {
		if id != "sb_1" {
			t.Errorf("told about %s", id)
		}
		mu.Lock()
		defer mu.Unlock()
		heard = append(heard, d)
	}
	check := func(p *Plain) {
		t.Helper()
		in := newInsider(t, p.File())
		for _, tt := range []struct {
			name  string
			qtype uint16
			flag  string // "" where nothing is told
			rcode int
		}{
			{"example.com.", dns.TypeA, "--allow example.com", dns.RcodeNameError},
			{"example.com.", dns.TypeAAAA, "", dns.RcodeNameError}, // of the same attempt
			{"EXAMPLE.com.", dns.TypeA, "--allow example.com", dns.RcodeNameError},
			{"_http._tcp.deb.debian.org.", dns.TypeSRV, "--allow deb.debian.org", dns.RcodeNameError},
			{"localhost.", dns.TypeA, "", dns.RcodeSuccess},
			{"7.0.0.127.in-addr.arpa.", dns.TypePTR, "", dns.RcodeSuccess},
			{"9.9.9.9.in-addr.arpa.", dns.TypePTR, "", dns.RcodeNameError},
		} {
			mu.Lock()
			heard = nil
			mu.Unlock()
			if r := ask(t, in, tt.name, tt.qtype); r.Rcode != tt.rcode {
				t.Errorf("%s %s: %v", dns.Type(tt.qtype), tt.name, r)
			}
			mu.Lock()
			told := heard
			mu.Unlock()
			switch {
			case tt.flag == "" && len(told) > 0:
				t.Errorf("%s: told %+v", tt.name, told)
			case tt.flag != "" && (len(told) != 1 || told[0].HowToAllow != tt.flag || told[0].Rule != "mode none" ||
				told[0].By != "names"):
				t.Errorf("%s: told %+v, want %s", tt.name, told, tt.flag)
			}
		}
	}
	p, err := e.Plain("sb_1")
	if err != nil {
		t.Fatal(err)
	}
	check(p)
	ns, err := unix.FcntlInt(p.File().Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if p, err = e.AdoptPlain("sb_1", os.NewFile(uintptr(ns), "netns")); err != nil {
		t.Fatal(err)
	}
	check(p)
	for range 2 {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
	if after := openFDs(t); after != before {
		t.Errorf("%d fds are open, %d were before", after, before)
	}
}

// TestRemedy: who failed for want of a proxy is told the flags for that one, without its password.
func TestRemedy(t *testing.T) {
	e := New(Config{}, nil)
	through := ""
	e.cfg.Outside = func(u *url.URL) *url.URL {
		to, err := url.Parse(through)
		if err != nil || u.Hostname() == "direct.test" || through == "" {
			return nil
		}
		return to
	}
	for _, tt := range []struct{ proxy, name, want string }{
		{"http://me:secret@proxy.corp:3128", "a.test",
			"--allow tcp://proxy.corp:3128 -e HTTPS_PROXY=http://proxy.corp:3128"},
		{"http://10.1.2.3:8080", "a.test", "--allow-cidr 10.1.2.3 -e HTTPS_PROXY=http://10.1.2.3:8080"},
		{"http://127.0.0.1:3128", "a.test", "--allow host:3128 -e HTTPS_PROXY=http://host:3128"},
		{"http://proxy.corp", "a.test", "--allow tcp://proxy.corp:80 -e HTTPS_PROXY=http://proxy.corp:80"},
		{"http://proxy.corp:3128", "direct.test", "check the port, and that the server runs"},
		{"", "a.test", "check the port, and that the server runs"},
		{"", api.HostName, "start the service; it must listen on 127.0.0.1 or ::1 of this machine"},
	} {
		through = tt.proxy
		got := e.remedy(&proxy.Failure{Proto: policy.TCP, Name: tt.name, Port: 443, Err: unix.ECONNREFUSED})
		if len(got) < len(tt.want) || got[len(got)-len(tt.want):] != tt.want {
			t.Errorf("%+v: %q", tt, got)
		}
	}
}
