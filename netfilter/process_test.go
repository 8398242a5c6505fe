package netfilter

import (
	"os"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/hutch-sh/hutch/internal/testenv/cost"
	"github.com/hutch-sh/hutch/netfilter/bpf"
)

func TestArguments(t *testing.T) {
	t.Parallel()
	for in, want := range map[string][]string{
		"":                                nil,
		"\x00\x00":                        nil,
		"curl\x00-s\x00\x00x\x00":         {"curl", "-s", "", "x"},
		"a\x1b[2J\nb\x00\xff\u202etxt":    {"a\uFFFD[2J\uFFFDb", "\uFFFD\uFFFDtxt"},
		strings.Repeat("x", 2*maxCommand): {strings.Repeat("x", maxCommand)},
	} {
		if got := arguments([]byte(in)); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

// TestProcessOfAnother: a pid whose process is not in the event's cgroup is another's.
func TestProcessOfAnother(t *testing.T) {
	t.Parallel()
	var r reader
	got := r.process("/sys/fs/cgroup", bpf.Event{PID: os.Getpid(), UID: 7, Process: 1 << 60})
	if got == nil || got.PID != 0 || got.Command != nil || got.HostPID != os.Getpid() || got.HostUID != 7 {
		t.Errorf("%+v", got)
	}
	if got := r.process("", bpf.Event{}); got != nil {
		t.Errorf("without a pid: %+v", got)
	}
}

func FuzzArguments(f *testing.F) {
	f.Add([]byte("a\x00b"), "\nNSpid:\t1\t2\n")
	f.Fuzz(func(t *testing.T, line []byte, status string) {
		cost.Input(t, status, func(status string) { _ = pidInside(status) })
		var args []string
		cost.Input(t, line, func(line []byte) { args = arguments(line) })
		for _, s := range args {
			if !utf8.ValidString(s) ||
				strings.ContainsFunc(s, func(r rune) bool {
					return r != unicode.ReplacementChar &&
						!unicode.IsPrint(r)
				}) {
				t.Errorf("%q", s)
			}
		}
	})
}
