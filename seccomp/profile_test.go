package seccomp

import (
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/runtime/api"
)

func TestByName(t *testing.T) {
	for name := range profiles {
		if p, err := ByName(name); err != nil || p.Name != name {
			t.Errorf("ByName(%q) = %q, %v", name, p.Name, err)
		}
	}
	_, err := ByName("defualt")
	if api.ErrorCode(err) != api.InvalidArgument || !strings.Contains(err.Error(), `"defualt"`) {
		t.Errorf("misspelt profile: %v", err)
	}
}

func TestValidate(t *testing.T) {
	for _, p := range builtin() {
		if err := p.Validate(); err != nil {
			t.Error(err)
		}
	}
	good := Rule{Reason: "r", Syscalls: []string{"read"}}
	with := func(change func(r *Rule)) []Rule {
		r := good
		change(&r)
		return []Rule{r}
	}
	tests := []struct {
		name, want string
		rules      []Rule
	}{
		{"reason", "no reason", with(func(r *Rule) { r.Reason = "" })},
		{"calls", "no system calls", with(func(r *Rule) { r.Syscalls = nil })},
		{"errno", "above 4094", with(func(r *Rule) { r.Errno = 4096 })},
		{"unlisted", "leave it out", with(func(r *Rule) { r.Errno = unix.ENOSYS })},
		{"argument", "a system call has 6", with(func(r *Rule) { r.When = []Cond{{Arg: 6, Mask: 1}} })},
		{"mask", "does not look at it", with(func(r *Rule) { r.When = []Cond{{}} })},
		{"value", "never matches", with(func(r *Rule) { r.When = []Cond{{Mask: 1, Value: 2}} })},
		{"twice", "two conditions", with(func(r *Rule) { r.When = []Cond{{Mask: 1}, {Mask: 2}} })},
		{"duplicate", "already decided by rule 0", []Rule{good, good}},
	}
	for _, tt := range tests {
		err := Profile{Name: "p", Rules: tt.rules}.Validate()
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error %v, want %q", tt.name, err, tt.want)
		}
	}
	if err := (Profile{Rules: []Rule{good}}).Validate(); err == nil {
		t.Error("a profile without a name is valid")
	}
}

func TestDecideFirstMatch(t *testing.T) {
	p := Default()
	for _, tt := range []struct {
		name string
		args [6]uint64
		want unix.Errno
	}{
		{"read", [6]uint64{}, 0},
		{"clone3", [6]uint64{}, unix.ENOSYS},
		{"no_such_call", [6]uint64{}, unix.ENOSYS},
		{"clone", [6]uint64{unix.CLONE_NEWUSER}, unix.EPERM},
		{"socket", [6]uint64{unix.AF_INET, unix.SOCK_STREAM | unix.SOCK_CLOEXEC}, 0},
	} {
		if got := p.Decide(tt.name, tt.args); got != tt.want {
			t.Errorf("Decide(%s, %#x) = %v, want %v", tt.name, tt.args, got, tt.want)
		}
	}
}

func TestBranches(t *testing.T) {
	exact := func(arg uint, v uint64) Cond { return int32Arg(arg, v) }
	c := call{name: "c", rules: []Rule{
		{When: []Cond{exact(0, 2), exact(2, 0)}},
		{When: []Cond{exact(0, 2)}, Errno: unix.EPERM},
		{Errno: unix.EACCES},
	}}
	got, err := c.branches()
	if err != nil {
		t.Fatal(err)
	}
	bit := func(arg uint, v uint64) Cond { return Cond{Arg: arg, Mask: 1, Value: v} }
	want := []branch{
		{when: []Cond{exact(0, 2), exact(2, 0)}},
		{when: []Cond{exact(0, 2), bit(2, 0)}, errno: unix.EPERM},
		{when: []Cond{exact(0, 2), bit(2, 1)}, errno: unix.EPERM},
		{when: []Cond{bit(0, 0)}, errno: unix.EACCES},
		{when: []Cond{bit(0, 1)}, errno: unix.EACCES},
	}
	if !slices.EqualFunc(got, want, func(a, b branch) bool {
		return a.errno == b.errno &&
			slices.Equal(a.when, b.when)
	}) {
		t.Errorf("branches = %+v\nwant %+v", got, want)
	}
	disjoint := call{rules: []Rule{{When: []Cond{{Mask: 1}}}, {When: []Cond{{Mask: 2}}}, {Errno: unix.EPERM}}}
	if _, err := disjoint.branches(); err == nil {
		t.Error("refinements without a common bit are accepted")
	}
}
