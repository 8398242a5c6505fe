package main

import (
	"bytes"
	"maps"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/internal/cli"
	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/api"
)

// sound is a sandbox as it should be: what a program in it says, and the host.
func sound() (*api.Sandbox, *hostFacts, facts) {
	sb := &api.Sandbox{ID: "sb_x", Hostname: "sb_x", Isolation: api.Isolation{Walls: []api.Wall{
		{Name: "cgroup limits", Status: "no", Detail: "nothing is delegated"},
		{Name: "ebpf", Status: "no", Detail: "no hutch-netd"},
	}}}
	host := &hostFacts{
		hostname: "box", home: "/home/u", homeNames: []string{"a", "b"}, canary: "/hutch-tour-nowhere",
		uidMap:     []idRange{{0, 1000, 1}},
		namespaces: map[string]string{},
	}
	in := facts{
		"program": "python 3", "uid": "0", "ppid": "1", "pid1": "hutch-init", "hostname": "sb_x", "home_seen": "0",
		"shadow": "ENOENT", "wrote": "written in the sandbox", "read_back": "written in the sandbox",
		"interfaces": "lo", "connect": "ENETUNREACH", "unshare": "EPERM", "Seccomp": "2", "NoNewPrivs": "1",
		"CapBnd": "00000000000005fb", "CapEff": "00000000000005fb", "primes": "168",
	}
	for _, ns := range []string{"user", "pid", "net", "mnt", "ipc", "uts", "cgroup"} {
		host.namespaces[ns], in["ns_"+ns] = ns+":[1]", ns+":[2]"
	}
	return sb, host, in
}

func TestClaimsHold(t *testing.T) {
	sb, host, in := sound()
	claims := newClaims(sb, host, in)
	var out bytes.Buffer
	claims.print(&out, cli.Style{})
	if !claims.hold() {
		t.Fatalf("a sound sandbox is doubted:\n%s", out.String())
	}
	for _, want := range []string{"nothing is delegated", "no hutch-netd", "uid 1000 outside"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not said:\n%s", want, out.String())
		}
	}
}

// TestClaimsFail breaks one thing at a time; missing answers count as broken.
func TestClaimsFail(t *testing.T) {
	for _, broken := range []map[string]string{
		{"uid": "1000"}, {"ppid": "7"}, {"hostname": "box"}, {"home_seen": "1"}, {"shadow": "allowed"}, {"shadow": ""},
		{"wrote": ""}, {"read_back": ""}, {"interfaces": "lo eth0"}, {"connect": "allowed"}, {"connect": ""},
		{"unshare": "allowed"}, {"unshare": ""}, {"Seccomp": "0"}, {"NoNewPrivs": "0"},
		{"CapBnd": "000001ffffffffff"}, {"CapBnd": ""}, {"primes": "167"},
		{"ns_user": "user:[1]"}, {"ns_pid": "pid:[1]"}, {"ns_net": ""}, {"ns_mnt": "mnt:[1]"},
	} {
		sb, host, in := sound()
		maps.Copy(in, broken)
		if newClaims(sb, host, in).hold() {
			t.Errorf("%v goes unnoticed", broken)
		}
	}
	sb, host, in := sound()
	host.uidMap = []idRange{{0, 0, 4294967295}}
	if newClaims(sb, host, in).hold() {
		t.Error("the host's own root goes unnoticed")
	}
	sb, host, in = sound()
	host.canary = t.TempDir() // the host has what the sandbox wrote
	if newClaims(sb, host, in).hold() {
		t.Error("a write that reaches the host goes unnoticed")
	}
}

// TestProbesAgree runs both programs on this host: they must say the same, and
// on a host without walls they must not claim any.
func TestProbesAgree(t *testing.T) {
	run := func(argv ...string) facts {
		out, err := exec.Command(argv[0], argv[1:]...).Output()
		if err != nil {
			t.Fatalf("%s: %v", argv[0], err)
		}
		return parseFacts(string(out))
	}
	dir := t.TempDir()
	args := []string{dir, filepath.Join(dir, "mine"), "mine", "other"}
	sh := run(append([]string{"sh", "-c", probeShell, "sh"}, args...)...)
	if sh["primes"] != "168" || sh["home_seen"] != "1" && sh["home_seen"] != "0" ||
		sh["wrote"] != "written in the sandbox" {
		t.Errorf("sh says %v", sh)
	}
	testenv.Programs(t, "python3")
	python := run(append([]string{"python3", "-I", "-c", probePython}, args...)...)
	for _, key := range []string{"uid", "uid_map", "hostname", "ns_user", "ns_pid", "ns_net", "ns_cgroup", "Seccomp",
		"CapBnd", "NoNewPrivs", "wrote", "interfaces", "primes", "pid1"} {
		if sh[key] != python[key] || sh[key] == "" {
			t.Errorf("%s: sh says %q, python %q", key, sh[key], python[key])
		}
	}
}

func TestCgroupLimit(t *testing.T) {
	// The test's own cgroup has no limit or some; it must be readable and sane.
	if _, err := cgroupLimit("", "memory", "memory.max", "memory.limit_in_bytes"); err == nil {
		t.Error("no cgroup at all is not reported")
	}
	if v, err := cgroupLimit("0::/no/such/cgroup\n", "memory", "memory.max", "x"); err != nil || v != 0 {
		t.Errorf("a cgroup that is not there: %d, %v", v, err)
	}
}
