//go:build cgo

package seccomp

import (
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/testenv/cost"
	"github.com/hutch-sh/hutch/runtime/api"
)

func compileCustom(text string) (Program, error) {
	c, err := ParseCustom(text)
	if err != nil {
		return Program{}, err
	}
	return CompileCustom(c)
}

// TestCustomRefuses: each mistake is told with its line.
func TestCustomRefuses(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"nothing", "", "line 1: it ends in the middle"},
		{"no object", "[]", "line 1: the profile begins with ["},
		{"syntax", "{\n \"defaultAction\": \"SCMP_ACT_ALLOW\",\n \"syscalls\": [}\n]}", "line 3: invalid character"},
		{"cut", "{\"defaultAction\": \"SCMP_ACT_ALLOW\",\n \"syscalls\": [", "line 2: it ends in the middle"},
		{"more", "{\"defaultAction\": \"SCMP_ACT_ALLOW\"}\n{}", "line 2: something follows"},
		{"no default", "{\"syscalls\": []}", "line 1: defaultAction is missing"},
		{"default", "{\n\"defaultAction\": \"ALLOW\"}", `line 2: defaultAction "ALLOW" is no action`},
		{"field", "{\n\"listenerPath\": \"/x\"}", `line 2: "listenerPath" is no field`},
		{"twice", "{\"defaultAction\": \"SCMP_ACT_ALLOW\",\n\"defaultAction\": \"SCMP_ACT_ALLOW\"}",
			"line 2: \"defaultAction\" stands here a second time"},
		{"type", "{\"defaultAction\":\n 7}", "line 2: this cannot be a number"},
		{"arch", "{\"defaultAction\": \"SCMP_ACT_ALLOW\",\n\"architectures\": [\"SCMP_ARCH_S390X\"]}",
			"line 2: architectures [SCMP_ARCH_S390X]"},
		{"flag", "{\"defaultAction\": \"SCMP_ACT_ALLOW\",\n\"flags\": [\"SECCOMP_FILTER_FLAG_NEW_LISTENER\"]}",
			"line 2: the flag"},
		{"docker", rules("\n{\"names\": [\"read\"], \"action\": \"SCMP_ACT_ALLOW\", \"includes\": {}}"),
			`line 2: json: unknown field "includes"`},
		{"entry type", rules("\n{\n\"names\": \"read\"}"), "line 3: names cannot be a string"},
		{"no names", rules("\n\n{\"action\": \"SCMP_ACT_ERRNO\"}"), "line 3: an entry without names"},
		{"notify", rules("{\"names\": [\"read\"], \"action\": \"SCMP_ACT_NOTIFY\"}"),
			"line 1: action SCMP_ACT_NOTIFY asks another process"},
		{"errno", rules("{\"names\": [\"read\"], \"action\": \"SCMP_ACT_ERRNO\", \"errnoRet\": 5000}"),
			"errno 5000 is not 1 to 4094"},
		{"errno of none", rules("{\"names\": [\"read\"], \"action\": \"SCMP_ACT_KILL\", \"errnoRet\": 1}"),
			"SCMP_ACT_KILL has no errno"},
		{"index", rules("{\"names\": [\"read\"], \"action\": \"SCMP_ACT_ERRNO\", \"args\": [{\"index\": 6, \"op\": \"SCMP_CMP_EQ\"}]}"), "argument 6"},
		{"op", rules("{\"names\": [\"read\"], \"action\": \"SCMP_ACT_ERRNO\", \"args\": [{\"index\": 1, \"op\": \"==\"}]}"), `"==" is no comparison`},
		{"two", rules("{\"names\": [\"read\"], \"action\": \"SCMP_ACT_ERRNO\", \"args\": [{\"index\": 1, \"valueTwo\": 1, \"op\": \"SCMP_CMP_EQ\"}]}"), "has no valueTwo"},
		{"unknown call", rules("{\"names\": [\"read\"], \"action\": \"SCMP_ACT_ERRNO\"},\n{\"names\": [\"reed\"], \"action\": \"SCMP_ACT_ERRNO\"}"), "line 2: reed: no such system call"},
		{"no exec", rules("{\"names\": [\"execve\"], \"action\": \"SCMP_ACT_ERRNO\"}"), "does not allow execve"},
		{"nothing allowed", `{"defaultAction": "SCMP_ACT_KILL_PROCESS"}`, "does not allow execve"},
		{"errno of libseccomp's", rules("{\"names\": [\"read\"], \"action\": \"SCMP_ACT_ERRNO\", \"errnoRet\": 4095}"),
			"errno 4095 is not 1 to 4094"},
		{"true for nothing", rules(entry("read", "ERRNO", "1 LT 0")), "argument 1: SCMP_CMP_LT 0 is true for no value"},
		{"outside the mask", rules(entry("read", "ERRNO", "1 MASKED_EQ 2 1")),
			"argument 1: valueTwo 0x1 has bits outside the mask"},
		{"many of one call", rules("{\"names\": [\"read\"], \"action\": \"SCMP_ACT_ERRNO\", \"args\": [" +
			strings.Repeat(`{"index": 1, "value": 1, "op": "SCMP_CMP_EQ"},`, 256) +
			`{"index": 1, "value": 1, "op": "SCMP_CMP_EQ"}]}`), "read: more than 256 rules"},
		{"long", `{"defaultAction": "` + strings.Repeat("x", api.MaxSeccompProfile), "more than"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := compileCustom(tt.text)
			if api.ErrorCode(err) != api.InvalidArgument || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %q", err, tt.want)
			}
		})
	}
}

// rules is a profile with these entries on its first line.
func rules(entries string) string {
	return `{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [` + entries + "]}"
}

// TestCustomInTheKernel: a profile takes away, by number and by arguments, and gives nothing.
func TestCustomInTheKernel(t *testing.T) {
	prog, err := compileCustom(rules(`
		{"names": ["getppid", "s390_pci_mmio_read"], "action": "SCMP_ACT_ERRNO", "errnoRet": 71, "comment": "odd"},
		{"names": ["mount", "bpf"], "action": "SCMP_ACT_LOG"},
		{"names": ["socket"], "action": "SCMP_ACT_ERRNO", "args": [{"index": 0, "value": 2, "op": "SCMP_CMP_EQ"}, {"index": 1, "value": 15, "valueTwo": 1, "op": "SCMP_CMP_MASKED_EQ"}]},
		{"names": ["personality"], "action": "SCMP_ACT_ERRNO", "errnoRet": 5, "args": [{"index": 0, "value": 8, "op": "SCMP_CMP_EQ"}, {"index": 0, "value": 4294967295, "op": "SCMP_CMP_EQ"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	got := runProbes(t, mustCompile(t, Init()).BPF, prog.BPF...)
	for call, want := range map[string]unix.Errno{
		"getppid": 71, "mount": unix.EPERM, "bpf": unix.EPERM, "tcp": unix.EPERM, "udp": 0, "personality": unix.EIO,
		"open":   unix.EFAULT,
		"clone3": unix.ENOSYS,
	} {
		if got[call] != want {
			t.Errorf("%s: %v, want %v", call, got[call], want)
		}
	}
}

// FuzzParseCustom: whatever the text, an error is the caller's fault and names a line.
func FuzzParseCustom(f *testing.F) {
	f.Add(rules(`{"names": ["read"], "action": "SCMP_ACT_ERRNO", "errnoRet": 1, "args": [{"index": 0, "value": 1, "valueTwo": 2, "op": "SCMP_CMP_MASKED_EQ"}]}`))
	f.Add("{\n\"flags\": [], \"architectures\": null, \"defaultErrnoRet\": 3, \"defaultAction\": \"SCMP_ACT_ERRNO\"}")
	f.Fuzz(func(t *testing.T, text string) {
		var err error
		cost.Input(t, text, func(text string) { _, err = ParseCustom(text) })
		if err == nil {
			return
		}
		if api.ErrorCode(err) != api.InvalidArgument || !strings.Contains(err.Error(), "line ") {
			t.Errorf("%v", err)
		}
	})
}

// TestCustomLines: a text of the size that people have is read at once.
func TestCustomLines(t *testing.T) {
	var b strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&b, "{\"names\": [\"call%d\"], \"action\": \"SCMP_ACT_ALLOW\"},\n", i)
	}
	b.WriteString("{\"names\": [\"write\"], \"action\": \"SCMP_ACT_ERR\"}")
	_, err := ParseCustom(rules(b.String()))
	if err == nil || !strings.Contains(err.Error(), "line 1001: ") {
		t.Error(err)
	}
}
