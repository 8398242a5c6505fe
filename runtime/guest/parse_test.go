package guest

import (
	"slices"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/internal/passwd"
	"github.com/hutch-sh/hutch/internal/testenv/cost"
	"github.com/hutch-sh/hutch/runtime/guest/guestapi"
)

func FuzzAccounts(f *testing.F) {
	f.Add("root:x:0:0:root:/root:/bin/sh\ndev:x:1000:1000::/home/dev:\n", "video:x:44:dev,x\n", "dev:video",
		"0 100000 65536\n")
	f.Add(":::::::", "::::", ":", "0 0 4294967295\n")
	f.Fuzz(func(t *testing.T, users, group, spec, maps string) {
		var m idMap
		var err error
		cost.Input(t, maps, func(maps string) { m, err = parseIDMap(maps) })
		if err != nil {
			return
		}
		a := &accounts{userNamespace{uids: m, gids: m}, &passwd.Files{Passwd: users, Group: group}}
		var c *credentials
		cost.Input(t, group, func(group string) {
			a.Group = group
			c, err = a.resolve(spec)
		})
		cost.Input(t, users, func(users string) {
			a.Passwd = users
			c, err = a.resolve(spec)
		})
		if err != nil {
			return
		}
		if !m.contains(c.uid) || !m.contains(c.gid) || len(c.groups) > passwd.MaxGroups ||
			strings.Contains(c.home, "\x00") {
			t.Errorf("%q in %q gives %+v", spec, users, c)
		}
	})
}

func FuzzRequest(f *testing.F) {
	f.Add([]byte(`{"op":"exec","exec":1,"argv":["true"],"rlimits":[{"resource":7,"soft":1,"hard":2}]}`), 3)
	f.Add([]byte(`{"op":"signal","exec":1,"signal":15}`), 0)
	f.Add([]byte(`{"op":"setup","cgroups":true}`), 2)
	f.Add([]byte(`{"op":"exec","exec":1,"argv":["true"],"cgroup":"../x"}`), 3)
	f.Add([]byte(`{"op":"exec","exec":1,"argv":["true"],"cgroup":"ex_1"}`), 3)
	f.Fuzz(func(t *testing.T, packet []byte, fds int) {
		var req *guestapi.Request
		var err error
		cost.Input(t, packet, func(packet []byte) {
			if req, err = parseRequest(packet); err == nil {
				err = check(req, fds)
			}
		})
		if err != nil {
			return
		}
		if strings.Contains(req.Cgroup, "/") || req.Cgroup == ".." {
			t.Errorf("cgroup %q", req.Cgroup)
		}
		if req.Op == guestapi.OpExec {
			// Whatever passes must be fit for the stub.
			c := stubConfig{cred: &credentials{}, argv: req.Argv, env: req.Env, cwd: req.Cwd, rlimits: req.Rlimits}
			data, err := c.encode()
			if err != nil {
				t.Fatal(err)
			}
			if _, back := decodeConfig(t, data); !slices.Equal(back.argv, req.Argv) ||
				!slices.Equal(back.env, req.Env) {
				t.Errorf("%q came back as %+v", packet, back)
			}
		}
	})
}

func FuzzStat(f *testing.F) {
	f.Add([]byte("7 (a) b (c)) S 1 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 12345 1 1 1\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		cost.Input(t, data, func(data []byte) {
			if p, err := parseStat(data); err == nil && p.state == 0 {
				t.Errorf("%q gives %+v", data, p)
			}
		})
	})
}

func TestParseStat(t *testing.T) {
	p, err := parseStat([]byte("7 (a) S (c)) Z 3 7 5 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 12345 1 1 1\n"))
	if want := (process{pid: 7, ppid: 3, pgrp: 7, sid: 5, state: 'Z', start: 12345}); err != nil || p != want {
		t.Errorf("%+v, %v, want %+v", p, err, want)
	}
	for _, bad := range []string{"", "7", "7 a S", ") (", "x (a) S 1 1 1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 1"} {
		if p, err := parseStat([]byte(bad)); err == nil {
			t.Errorf("%q gives %+v", bad, p)
		}
	}
}

// The exec is 10, born at 100; p makes a process by pid, ppid, session and start.
func TestMembers(t *testing.T) {
	p := func(pid, ppid, sid int, start uint64) process { return process{pid, ppid, sid, sid, 'S', start} }
	self := p(1, 0, 0, 1)
	leader := p(10, 1, 10, 100)
	for name, c := range map[string]struct {
		f     family
		procs []process
		want  []int
	}{
		"children": {family{}, []process{self, leader, p(11, 10, 10, 101), p(12, 11, 10, 101)},
			[]int{10, 11, 12}},
		"child's session": {family{}, []process{self, leader, p(11, 10, 11, 101), p(13, 1, 11, 102)},
			[]int{10, 11, 13}},
		"orphan in session": {family{}, []process{self, leader, p(12, 1, 10, 101)}, []int{10, 12}},
		"lone daemon": {family{}, []process{self, leader, p(12, 1, 12, 101), p(13, 12, 13, 101)},
			[]int{10, 12, 13}},
		"older daemon":     {family{}, []process{self, p(5, 1, 5, 99), leader}, []int{10}},
		"same tick, older": {family{}, []process{self, p(5, 1, 5, 100), leader}, []int{10}},
		"same tick, wrapped": {family{origin: origin{32000, 100}},
			[]process{self, p(32000, 1, 32000, 100), p(5, 1, 5, 100)}, []int{5, 32000}},
		"daemon of two": {family{others: []origin{{20, 100}}},
			[]process{self, leader, p(20, 1, 20, 100), p(22, 1, 22, 101)}, []int{10}},
		"daemon before other": {family{others: []origin{{20, 105}}},
			[]process{self, leader, p(20, 1, 20, 105), p(12, 1, 12, 101)}, []int{10, 12}},
		"other's child": {family{others: []origin{{20, 105}}},
			[]process{self, leader, p(20, 1, 20, 105), p(21, 20, 20, 106)}, []int{10}},
		"left behind": {family{over: true}, []process{self, p(11, 1, 10, 101)}, []int{11}},
		"pid reused":  {family{over: true}, []process{self, p(10, 4, 10, 900), p(11, 10, 10, 901)}, nil},
	} {
		if c.f.leader == 0 {
			c.f.origin = origin{10, 100}
		}
		var got []int
		for _, p := range c.f.members(c.procs) {
			got = append(got, p.pid)
		}
		slices.Sort(got)
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	dead := process{10, 1, 10, 10, 'Z', 100}
	if got := (family{origin: origin{10, 100}}).members([]process{self, dead}); len(got) != 0 {
		t.Errorf("a zombie is a member: %v", got)
	}
}

func TestIDMap(t *testing.T) {
	m, err := parseIDMap("         0       1000          1\n         1     100000      65535\n")
	if err != nil || !m.contains(0) || !m.contains(65535) || m.contains(65536) || m.String() != "0, 1-65535" {
		t.Errorf("%v, %v", m, err)
	}
	full, err := parseIDMap("0 0 4294967295\n")
	if err != nil || !full.contains(passwd.MaxID) {
		t.Errorf("%v, %v", full, err)
	}
	for _, bad := range []string{"0 1\n", "a b c\n", "0 0 4294967296\n"} {
		if _, err := parseIDMap(bad); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}
