//go:build cgo

package seccomp

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/cbpf"
	"github.com/hutch-sh/hutch/runtime/api"
)

// entry is a rule of a profile: a call, an action, and arguments as "index op value", such as "0 EQ 2".
func entry(call, action string, args ...string) string {
	var list []string
	for _, a := range args {
		var index, value, two uint64
		var op string
		if _, err := fmt.Sscanf(a, "%d %s %v %v", &index, &op, &value, &two); op == "" {
			panic(err)
		}
		list = append(list, fmt.Sprintf(`{"index": %d, "op": "SCMP_CMP_%s", "value": %d, "valueTwo": %d}`, index, op,
			value, two))
	}
	return fmt.Sprintf("{\"names\": [%q], \"action\": \"SCMP_ACT_%s\", \"args\": [%s]}", call, action,
		strings.Join(list, ","))
}

// TestCustomContradictions: rules have no order, so two actions for one call are refused, in either order, with both
// lines; the twin is the same with arguments that exclude each other.
func TestCustomContradictions(t *testing.T) {
	for _, tt := range []struct {
		name string
		a, b string
		ok   bool
	}{
		{"with and without", entry("socket", "KILL", "0 EQ 2"), entry("socket", "ERRNO"), false},
		{"without twice", entry("socket", "KILL"), entry("socket", "ERRNO"), false},
		{"the default's action", entry("socket", "ERRNO"), entry("socket", "ALLOW", "0 EQ 1"), false},
		{"equal arguments", entry("socket", "KILL", "0 EQ 2"), entry("socket", "ERRNO", "0 EQ 2"), false},
		{"two comparisons", entry("socket", "KILL", "0 LT 3"), entry("socket", "ERRNO", "0 GT 1"), false},
		{"different arguments", entry("socket", "KILL", "0 EQ 2"), entry("socket", "ERRNO", "1 EQ 2"), false},
		{"logged", entry("socket", "LOG"), entry("socket", "ERRNO", "1 EQ 2"), false},
		{"alternatives", entry("socket", "KILL", "0 EQ 2", "0 EQ 3"), entry("socket", "ERRNO", "0 EQ 3"), false},
		{"masks", entry("socket", "KILL", "0 MASKED_EQ 12 4"), entry("socket", "ERRNO", "0 MASKED_EQ 3 1"), false},
		{"two kills", entry("socket", "KILL_PROCESS"), entry("socket", "KILL"), false},

		{"one action", entry("socket", "ERRNO", "0 EQ 2"), entry("socket", "ERRNO"), true},
		{"two names of one action", entry("socket", "KILL"), entry("socket", "KILL_THREAD"), true},
		{"other calls", entry("socket", "KILL"), entry("mkdir", "ERRNO"), true},
		{"exclusive", entry("socket", "KILL", "0 EQ 2"), entry("socket", "ERRNO", "0 NE 2"), true},
		{"exclusive ranges", entry("socket", "KILL", "0 LT 2"), entry("socket", "ERRNO", "0 GE 2"), true},
		{"exclusive masks", entry("socket", "KILL", "0 MASKED_EQ 12 4"),
			entry("socket", "ERRNO", "0 MASKED_EQ 6 2"), true},
		{"exclusive in one of two", entry("socket", "KILL", "0 EQ 2", "1 EQ 1"),
			entry("socket", "ERRNO", "0 EQ 2", "1 GT 1"), true},
		{"two errnos", strings.Replace(entry("socket", "ERRNO"), `"args"`, `"errnoRet": 5, "args"`, 1),
			entry("socket", "ERRNO"), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, text := range []string{rules("\n" + tt.a + ",\n" + tt.b), rules("\n" + tt.b + ",\n" + tt.a)} {
				_, err := compileCustom(text)
				if tt.ok && err != nil {
					t.Error(err)
				}
				if !tt.ok && (api.ErrorCode(err) != api.InvalidArgument ||
					!strings.Contains(err.Error(), "line 3: socket: ") ||
					!strings.Contains(err.Error(), " in line 2 ")) {
					t.Errorf("%s: %v", text, err)
				}
			}
		})
	}
}

// TestCustomNewer: with a default that refuses, calls newer than the profile do not exist, as with runc: libc falls
// back. The others get what the profile says, whatever it says about the newest.
func TestCustomNewer(t *testing.T) {
	const allowed = `"syscalls": [{"names": ["execve", "exit_group", "close", "close_range"], "action": "SCMP_ACT_ALLOW"}]}`
	for action, refused := range map[string]uint32{
		`"SCMP_ACT_ERRNO"`:                          unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM),
		`"SCMP_ACT_ERRNO", "defaultErrnoRet": 5`:    unix.SECCOMP_RET_ERRNO | uint32(unix.EIO),
		`"SCMP_ACT_KILL_PROCESS"`:                   unix.SECCOMP_RET_KILL_PROCESS,
		`"SCMP_ACT_ALLOW", "architectures": null`:   unix.SECCOMP_RET_ALLOW,
		`"SCMP_ACT_LOG", "flags": []`:               unix.SECCOMP_RET_LOG,
		`"SCMP_ACT_ERRNO", "defaultErrnoRet": 4094`: unix.SECCOMP_RET_ERRNO | 4094,
	} {
		prog, err := compileCustom(`{"defaultAction": ` + action + ", " + allowed)
		if err != nil {
			t.Fatalf("%s: %v", action, err)
		}
		enosys := unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)
		newer := enosys
		if refused == unix.SECCOMP_RET_ALLOW || refused == unix.SECCOMP_RET_LOG {
			newer = refused
		}
		for nr, want := range map[uint32]uint32{
			unix.SYS_CLOSE: unix.SECCOMP_RET_ALLOW, unix.SYS_CLOSE_RANGE: unix.SECCOMP_RET_ALLOW,
			unix.SYS_MOUNT:   refused,
			unix.SYS_OPENAT2: newer, unix.SYS_FUTEX_WAITV: newer, lastNumber: newer,
		} {
			got, err := cbpf.Run(prog.BPF, &cbpf.Data{NR: nr, Arch: archCodes[runtime.GOARCH]})
			if err != nil || got != want {
				t.Errorf("%s: call %d: %#x (%v), want %#x", action, nr, got, err, want)
			}
		}
	}
}

// TestCustomGivesNoClone3: what PID 1's filter allows to PID 1 alone is not there for commands, whose flags no filter
// sees; a profile that kills for it kills.
func TestCustomGivesNoClone3(t *testing.T) {
	for text, want := range map[string]uint32{
		rules(""):                                        unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS),
		rules(entry("clone3", "LOG")):                    unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS),
		rules(entry("clone3", "ERRNO")):                  unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM),
		rules(entry("clone3", "KILL")):                   unix.SECCOMP_RET_KILL_THREAD,
		rules(entry("mkdir", "ALLOW")):                   unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS),
		rules(entry("clone3", "KILL_PROCESS", "0 EQ 1")): unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS),
	} {
		prog, err := compileCustom(text)
		if err != nil {
			t.Fatal(err)
		}
		for nr, want := range map[uint32]uint32{unix.SYS_CLONE3: want, unix.SYS_CLONE: unix.SECCOMP_RET_ALLOW} {
			if got, err := cbpf.Run(prog.BPF, &cbpf.Data{NR: nr, Arch: archCodes[runtime.GOARCH]}); err != nil ||
				got != want {
				t.Errorf("%s: call %d: %#x (%v), want %#x", text, nr, got, err, want)
			}
		}
	}
}

// TestOverlap compares what is found of two comparisons with trying all small values.
func TestOverlap(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	random := func() customArg {
		a := customArg{Op: customOps[r.IntN(len(customOps))], Value: r.Uint64N(16)}
		switch a.Op {
		case "SCMP_CMP_MASKED_EQ":
			a.ValueTwo = r.Uint64N(16) & a.Value
			a.Value |= ^uint64(0) << (4 + r.IntN(3)) // with free bits above, or none
		case "SCMP_CMP_LT":
			a.Value++
		}
		return a
	}
	for range 50_000 {
		a, b := random(), random()
		found := false
		for v := range uint64(256) {
			found = found || a.matches(v) && b.matches(v)
		}
		v, ok := both(a, b)
		if ok && (!a.matches(v) || !b.matches(v)) || !ok && found {
			t.Fatalf("%+v and %+v: %d, %v; by trying: %v", a, b, v, ok, found)
		}
	}
}

// TestCustomKnowsAllCalls: each call that this architecture has can be in a profile, also one newer than libseccomp.
func TestCustomKnowsAllCalls(t *testing.T) {
	var list []string
	for _, name := range names() {
		list = append(list, strconv.Quote(name))
	}
	if _, err := compileCustom(rules(`{"action": "SCMP_ACT_LOG", "names": [` + strings.Join(list, ",") +
		`]}`)); err != nil {
		t.Error(err)
	}
}
