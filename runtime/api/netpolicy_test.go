package api

import (
	"encoding/json"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/internal/testenv/cost"
)

func TestNetPolicyValidate(t *testing.T) {
	for _, c := range []struct {
		name, field string
		p           NetPolicy
	}{
		{"tier", "network.tier", NetPolicy{Tier: "gold"}},
		{"tier and mode", "network.tier", NetPolicy{Tier: TierElevated, Mode: NetOpen}},
		{"restricted, with names", "network.mode", NetPolicy{Tier: TierRestricted, Allow: []string{"a.test"}}},
		{"addresses in mode none", "network.mode", NetPolicy{Mode: NetNone, AllowCIDRs: []string{"10.0.0.0/8"}}},
		{"pattern", "network.allow[1]", NetPolicy{Mode: NetAllow, Allow: []string{"a.test", "a b"}}},
		{"NUL", "network.allow[0]", NetPolicy{Mode: NetAllow, Allow: []string{"a\x00.test"}}},
		{"long label", "network.allow[0]",
			NetPolicy{Mode: NetAllow, Allow: []string{strings.Repeat("a", 64) + ".test"}}},
		{"long name", "network.allow[0]",
			NetPolicy{Mode: NetAllow, Allow: []string{strings.Repeat("a.", 127) + "test"}}},
		{"block", "network.block[0]", NetPolicy{Mode: NetOpen, Block: []string{"1.1.1.1"}}},
		{"range", "network.block_cidrs[0]", NetPolicy{Mode: NetOpen, BlockCIDRs: []string{"10.0.0.0/33"}}},
		{"too many", "network", NetPolicy{Mode: NetAllow, Allow: make([]string, MaxNetRules+1)}},
		{"require", "network.require[1]", NetPolicy{Require: []NetRequire{RequireEBPF, "faith"}}},
		{"learn", "network.learn", NetPolicy{Mode: NetAllow, Learn: LearnDeny}},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := c.p.Validate("network")
			refused(t, err, InvalidArgument, c.field)
			if e, _ := err.(*Error); e != nil && e.Hint == "" {
				t.Errorf("%v has no hint", err)
			}
		})
	}
	for _, p := range []NetPolicy{
		{}, {Mode: NetAllow}, {Tier: TierStandard, Allow: []string{"a.test"}}, {Block: []string{"*"}},
		{Mode: NetLearn, Learn: LearnAllow},
		{Mode: NetAllow, Allow: []string{"*.a.b", "db", "a_b.test.", "TCP://a.test:1", "udp://*.a.test:53"},
			AllowCIDRs: []string{"10.0.0.1", "::1", "::ffff:10.0.0.0/104"}},
	} {
		if err := p.Validate("network"); err != nil {
			t.Errorf("%+v: %v", p, err)
		}
	}
}

func TestParseNetPattern(t *testing.T) {
	for s, want := range map[string]NetPattern{
		"a.test":            {Name: "a.test"},
		"A.Test.:443":       {Name: "a.test", Port: 443},
		"*.a.test":          {Name: "a.test", Below: true},
		"tcp://*.a.test:22": {Name: "a.test", Below: true, Proto: TCP, Port: 22},
		"UDP://a.test:53":   {Name: "a.test", Proto: UDP, Port: 53},
		"*":                 {Below: true},
		"*:25":              {Below: true, Port: 25},
	} {
		if got, err := ParseNetPattern(s); err != nil || got != want {
			t.Errorf("%s: %+v, %v", s, got, err)
		}
	}
}

// TestNetUpdate: changes leave the policy that they change as it is.
func TestNetUpdate(t *testing.T) {
	old := NetPolicy{Mode: NetAllow, Allow: []string{"a.test", "b.test"}, Block: []string{"c.test"}}
	p := NetUpdateParams{Add: &NetLists{Allow: []string{"d.test", "a.test"}, BlockCIDRs: []string{"10.0.0.0/8"}},
		Remove: &NetLists{Allow: []string{"b.test"}}}
	got, err := p.Apply(old)
	want := NetPolicy{Mode: NetAllow, Allow: []string{"a.test", "d.test"}, Block: []string{"c.test"},
		BlockCIDRs: []string{"10.0.0.0/8"}}
	if err != nil || !reflect.DeepEqual(got, want) || len(old.Allow) != 2 || old.Allow[1] != "b.test" {
		t.Errorf("%+v, %v; old %+v", got, err, old)
	}
	_, err = (&NetUpdateParams{Remove: &NetLists{Block: []string{"x.test"}}}).Apply(old)
	refused(t, err, InvalidArgument, "remove.block[0]")
	_, err = (&NetUpdateParams{Add: &NetLists{Allow: []string{"*"}}}).Apply(old)
	refused(t, err, InvalidArgument, "network.allow[2]")
	refused(t, (&NetUpdateParams{}).Validate(), InvalidArgument, "network")
	refused(t, (&NetUpdateParams{Network: &old, Add: &NetLists{}}).Validate(), InvalidArgument, "add")
	if got, err := (&NetUpdateParams{Network: &NetPolicy{Tier: TierElevated}}).Apply(old); err != nil ||
		got.Mode != NetOpen || got.Tier != "" {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestNetCheckParams(t *testing.T) {
	for field, p := range map[string]NetCheckParams{
		"sandbox": {NetTarget: NetTarget{Name: "a.test"}},
		"network": {Sandbox: "x", Network: &NetPolicy{}, NetTarget: NetTarget{Name: "a.test"}},
		"name":    {Sandbox: "x"},
		"proto":   {Sandbox: "x", NetTarget: NetTarget{Name: "a.test", Proto: "icmp"}},
		"address": {Sandbox: "x", NetTarget: NetTarget{Address: "a.test"}},
	} {
		refused(t, p.Validate(), InvalidArgument, field)
	}
	ok := NetCheckParams{Network: &NetPolicy{Mode: NetOpen}, NetTarget: NetTarget{Name: "a.test", Address: "10.0.0.1",
		Port: 1}}
	if err := ok.Validate(); err != nil {
		t.Error(err)
	}
}

// TestDenialJSON: what a denial is about stands beside the rest, as clients expect.
func TestDenialJSON(t *testing.T) {
	d := Denial{Kind: KindNet, NetTarget: NetTarget{Proto: UDP, Address: "::1", Port: 53}, Rule: "UDP", Count: 2}
	d.Target = d.Where()
	b, err := json.Marshal(d)
	want := `{"kind":"net","target":"udp://[::1]:53","rule":"UDP","why":"","how_to_allow":"","proto":"udp","address":"::1","port":53,"count":2}`
	if err != nil || string(b) != want {
		t.Errorf("%s, %v", b, err)
	}
}

func FuzzNetPattern(f *testing.F) {
	for _, s := range []string{"a.test", "*.a.test:443", "tcp://a.test:1", "[::1]:2", "0x7f.1", "a\x00.b", "*",
		"udp://*:53", "ä.test"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		var p NetPattern
		var err error
		cost.Input(t, s, func(s string) { p, err = ParseNetPattern(s) })
		if err != nil {
			return
		}
		if _, err := netip.ParseAddr(p.Name); err == nil {
			t.Fatalf("%q names an address", s)
		}
		if p.Name != "" {
			if again, err := NetName(p.Name); err != nil || again != p.Name {
				t.Fatalf("%q has the name %q, which is read as %q, %v", s, p.Name, again, err)
			}
		} else if !p.Below {
			t.Fatalf("%q names nothing", s)
		}
	})
}
