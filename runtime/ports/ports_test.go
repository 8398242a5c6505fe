package ports

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/runtime/api"
)

var errTest = errors.New("made to fail")

// fake is a sandbox, its carrier and all sandboxes of the daemon.
type fake struct {
	set    Set
	fails  string // the name of what fails
	list   []api.Port
	saved  []api.Port
	notes  []string
	open   bool
	tokens bool // one was in a note
}

func (s *fake) at(name string) error {
	if s.fails == name {
		return errTest
	}
	return nil
}

func (s *fake) Find(ref string) (Sandbox, error) {
	if ref != "sb" {
		return nil, api.Errorf(api.NotFound, "no sandbox %q", ref)
	}
	return s, nil
}
func (s *fake) Living(ref string) (Sandbox, error) { return s.Find(ref) }
func (s *fake) All() []Sandbox                     { return []Sandbox{s} }
func (s *fake) ID() string                         { return "sb" }
func (s *fake) Ports() *Set                        { return &s.set }

func (s *fake) Open() (Carrier, error) {
	if err := s.at("open"); err != nil {
		return nil, err
	}
	s.open = true
	return s2{s}, nil
}

func (s *fake) Save(list []api.Port) error {
	if err := s.at("save"); err != nil {
		return err
	}
	s.saved = list
	return nil
}

func (s *fake) Audit(_ context.Context, kind api.AuditKind, p api.Port) {
	s.notes = append(s.notes, fmt.Sprintf("%s %d", kind, p.Port))
	s.tokens = s.tokens || p.Token != "" || p.URL != ""
}

// s2 is the carrier of a fake.
type s2 struct{ s *fake }

func (c s2) Expose(p api.PortExposeParams, _ *os.File) (api.Port, error) {
	if err := c.s.at("expose"); err != nil {
		return api.Port{}, err
	}
	port := api.Port{Sandbox: "sb", Port: p.Port, Address: fmt.Sprintf("127.0.0.1:%d", 40000+len(c.s.list)),
		Token: "secret",
		URL:   "http://secret", Accepted: 3}
	c.s.list = append(c.s.list, port)
	return port, nil
}

func (c s2) Adopt(p api.Port) error {
	if err := c.s.at("adopt"); err != nil {
		return err
	}
	c.s.list = append(c.s.list, p)
	return nil
}

func (c s2) List() []api.Port { return slices.Clone(c.s.list) }

func (c s2) Unexpose(address string) error {
	c.s.list = slices.DeleteFunc(c.s.list, func(p api.Port) bool { return p.Address == address })
	return c.s.at("unexpose")
}

func (c s2) Close() error { c.s.open = false; return c.s.at("close") }

// noFDs has no fd.
type noFDs struct{}

func (noFDs) Take(int) (*os.File, error) { return nil, errTest }

func expose(t *testing.T, ps *Ports, port int) {
	t.Helper()
	if _, err := ps.Expose(t.Context(), api.PortExposeParams{Sandbox: "sb", Port: port}, nil); err != nil {
		t.Fatal(err)
	}
}

// TestPorts: what is exposed is listed in order, noted for the next daemon without its counts, and closed by its port
// or its address; the audit log hears of it, and never of a token.
func TestPorts(t *testing.T) {
	s := &fake{}
	ps := New(s, slog.New(slog.DiscardHandler))
	for _, port := range []int{443, 80, 80} {
		expose(t, ps, port)
	}
	all, err := ps.List(t.Context(), api.PortListParams{})
	if err != nil || len(all.Ports) != 3 || all.Ports[0].Port != 80 || all.Ports[2].Port != 443 {
		t.Errorf("%+v, %v", all, err)
	}
	if len(s.saved) != 3 || s.saved[0].Accepted != 0 {
		t.Errorf("saved %+v", s.saved)
	}
	one, err := ps.Close(t.Context(), api.PortCloseParams{Sandbox: "sb", Port: 80, Address: all.Ports[1].Address})
	if err != nil || len(one.Ports) != 1 || len(s.saved) != 2 {
		t.Errorf("close by address: %+v, %v", one, err)
	}
	if ended, err := ps.Close(t.Context(), api.PortCloseParams{Sandbox: "sb", Port: 80}); err != nil ||
		len(ended.Ports) != 1 {
		t.Errorf("close by port: %+v, %v", ended, err)
	}
	if _, err := ps.Close(t.Context(),
		api.PortCloseParams{Sandbox: "sb", Port: 80, Address: "127.0.0.1:1"}); api.ErrorCode(
		err) != api.NotFound || !strings.Contains(err.Error(), "127.0.0.1:1") {
		t.Errorf("close what is not open: %v", err)
	}
	s.set.AuditEnd(s)
	want := []string{"port.exposed 443", "port.exposed 80", "port.exposed 80", "port.closed 80", "port.closed 80",
		"port.closed 443"}
	if !slices.Equal(s.notes, want) || s.tokens {
		t.Errorf("audited %v, a token: %v", s.notes, s.tokens)
	}
	settled := 0
	then := func() error { settled++; return errTest }
	if err := s.set.End(then); !errors.Is(err, errTest) || s.open {
		t.Errorf("end: %v", err)
	}
	if err := s.set.End(then); err != nil || settled != 1 {
		t.Errorf("end twice: %v, %d times", err, settled)
	}
	if _, err := ps.Expose(t.Context(), api.PortExposeParams{Sandbox: "sb", Port: 1},
		nil); api.ErrorCode(err) != api.NotFound {
		t.Errorf("expose of one that is removed: %v", err)
	}
	if all, err := ps.List(t.Context(), api.PortListParams{Sandbox: "sb"}); err != nil || len(all.Ports) > 0 {
		t.Errorf("%+v, %v", all, err)
	}
}

// TestFails: what fails leaves nothing exposed that is not noted.
func TestFails(t *testing.T) {
	for _, fails := range []string{"open", "expose", "save"} {
		s := &fake{fails: fails}
		ps := New(s, slog.New(slog.DiscardHandler))
		if _, err := ps.Expose(t.Context(), api.PortExposeParams{Sandbox: "sb", Port: 80}, nil); !errors.Is(err,
			errTest) ||
			len(s.list) > 0 {
			t.Errorf("%s: %v, left %v", fails, err, s.list)
		}
	}
	s := &fake{}
	ps := New(s, slog.New(slog.DiscardHandler))
	fd := 0
	if _, err := ps.Expose(t.Context(), api.PortExposeParams{Sandbox: "sb", Port: 80, FDs: 1, Listener: &fd},
		noFDs{}); !errors.Is(err,
		errTest) || len(s.list) > 0 {
		t.Errorf("a listener that is not there: %v", err)
	}
	expose(t, ps, 80)
	s.fails = "save"
	if _, err := ps.Close(t.Context(), api.PortCloseParams{Sandbox: "sb", Port: 80}); !errors.Is(err, errTest) ||
		len(s.list) != 1 {
		t.Errorf("close that is not noted: %v, left %v", err, s.list)
	}
	s.fails = ""
	for range api.MaxPorts - 1 {
		expose(t, ps, 81)
	}
	if _, err := ps.Expose(t.Context(), api.PortExposeParams{Sandbox: "sb", Port: 82}, nil); api.ErrorCode(err) !=
		api.ResourceExhausted {
		t.Errorf("one too many: %v", err)
	}
	for _, err := range []error{
		second(ps.Expose(t.Context(), api.PortExposeParams{Sandbox: "no", Port: 80}, nil)),
		second(ps.List(t.Context(), api.PortListParams{Sandbox: "no"})),
		second(ps.Close(t.Context(), api.PortCloseParams{Sandbox: "no", Port: 80})),
	} {
		if api.ErrorCode(err) != api.NotFound {
			t.Errorf("of no sandbox: %v", err)
		}
	}
	for _, err := range []error{
		second(ps.Expose(t.Context(), api.PortExposeParams{Sandbox: "sb", Port: -1}, nil)),
		second(ps.Close(t.Context(), api.PortCloseParams{Sandbox: "sb", Port: -1})),
	} {
		if api.ErrorCode(err) != api.InvalidArgument {
			t.Errorf("of no port: %v", err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

// TestAdopt: the ports of a daemon before go on, and what is lost of them is logged and no more.
func TestAdopt(t *testing.T) {
	before := []api.Port{{Sandbox: "sb", Port: 80, Address: "127.0.0.1:1"}}
	for _, fails := range []string{"", "open", "adopt"} {
		var log bytes.Buffer
		s := &fake{fails: fails}
		ps := New(s, slog.New(slog.NewTextHandler(&log, nil)))
		ps.Adopt(s, nil)
		if s.open {
			t.Error("opened for nothing")
		}
		ps.Adopt(s, before)
		if lost := fails != ""; lost != (log.Len() > 0) || lost != (len(s.list) == 0) {
			t.Errorf("%q: %v, %s", fails, s.list, &log)
		}
	}
}
