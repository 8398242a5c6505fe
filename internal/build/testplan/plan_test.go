package testplan

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/internal/testenv/mustrun"
)

// TestReadTests reads declarations at the head of tests, and refuses them elsewhere.
func TestReadTests(t *testing.T) {
	root := t.TempDir()
	write(t, filepath.Join(root, "go.mod"), "module m\n")
	write(t, filepath.Join(root, "a", "a_test.go"), `package a
import (
	"testing"
	te "github.com/hutch-sh/hutch/internal/testenv"
)
var _ = te.PackageAxes(te.User)
func TestOne(t *testing.T) { te.Axes(t, te.Kernel, te.Cgroup); te.Suite(t, "mcp"); t.Log() }
func TestNone(t *testing.T) { te.Axes(t) }
func TestPackage(t *testing.T) { t.Log() }
func TestVM(t *testing.T) { te.Machine(t, "single", "none") }
func FuzzIt(f *testing.F) {}
func Example() {}
func Testhelper(t *testing.T) {}
func helper(t *testing.T) {}
func TestMain(m *testing.M) {}
`)
	write(t, filepath.Join(root, "a", "testdata", "x_test.go"), "package broken {\n")
	write(t, filepath.Join(root, "other", "go.mod"), "module other\n")
	write(t, filepath.Join(root, "other", "x_test.go"), "package broken {\n")
	got, err := ReadTests(root)
	if err != nil {
		t.Fatal(err)
	}
	user := []testenv.Axis{testenv.User}
	want := []Test{
		{Pkg: "a", Name: "Example", Axes: user}, {Pkg: "a", Name: "FuzzIt", Axes: user},
		{Pkg: "a", Name: "TestNone", Axes: []testenv.Axis{}},
		{Pkg: "a", Name: "TestOne", Axes: []testenv.Axis{testenv.Kernel, testenv.Cgroup}, Suite: "mcp"},
		{Pkg: "a", Name: "TestPackage", Axes: user},
		{Pkg: "a", Name: "TestVM", Axes: user, Machines: []string{"single", "none"}},
	}
	if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
		t.Errorf("read\n%+v, want\n%+v", got, want)
	}
	for body, wrong := range map[string]string{
		"t.Log(); testenv.Axes(t, testenv.User)":      "must be among the first statements",
		"if true { testenv.Axes(t, testenv.User) }":   "must be among the first statements",
		"testenv.Axes(t, testenv.Users)":              "no axis Users",
		"x := testenv.User; testenv.Axes(t, x)":       "must be among the first statements",
		"testenv.Axes(t, append(nil, testenv.User))":  "an axis is testenv.User",
		"name := `a`; testenv.Machine(t, name)":       "",
		"testenv.Suite(t, fmt.Sprint(`a`))":           "write a string literal",
		"t.Run(``, func() { testenv.Suite(t, `b`) })": "must be among the first statements",
	} {
		write(t, filepath.Join(root, "a", "a_test.go"),
			"package a\nimport \"github.com/hutch-sh/hutch/internal/testenv\"\nfunc TestX(t *testing.T) {"+body+"}\n")
		if _, err := ReadTests(root); (wrong == "") != (err == nil) || err != nil &&
			!strings.Contains(err.Error(), wrong) {
			t.Errorf("%s: %v, want %q", body, err, wrong)
		}
	}
}

func TestParseBudget(t *testing.T) {
	b, err := ParseBudget(strings.NewReader("# why\nlint every 100\nmcp rotating 81\nagents changed 300 cmd/hutch-mcp runtime\nsdks compat 3000 sdk\n"))
	if err != nil {
		t.Fatal(err)
	}
	if every, rotating := b.Cost(); every != 100 || rotating != 11 {
		t.Errorf("cost %d and %d, want 100 and 11", every, rotating)
	}
	for in, want := range map[string]string{
		"lint every":              "want NAME TIER CPU-SECONDS",
		"lint weekly 3":           `unknown tier "weekly"`,
		"lint every -3":           "no positive number",
		"agents changed 3":        "names the folders",
		"a every 1\na rotating 2": "a second suite a",
	} {
		if _, err := ParseBudget(strings.NewReader(in)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", in, err, want)
		}
	}
}

// TestDue has each tier decide.
func TestDue(t *testing.T) {
	changed := Suite{Tier: Changed, Folders: []string{"cmd/hutch-mcp", "go.mod"}}
	for file, want := range map[string]bool{"cmd/hutch-mcp/main.go": true, "cmd/hutch-mcp2/x": false, "go.mod": true,
		"docs/a.md": false} {
		if got := changed.Due("integration/agent.TestX", Now{Changed: []string{file}}); got != want {
			t.Errorf("%s: due %v, want %v", file, got, want)
		}
	}
	// Over many commits each test of a rotating suite runs an eighth of the time.
	rotating := Suite{Tier: Rotating}
	n := 0
	for i := range 8000 {
		if rotating.Due("integration/agent.TestX", Now{Commit: fmt.Sprintf("%040x", i*7919)}) {
			n++
		}
	}
	if n < 850 || n > 1150 {
		t.Errorf("due in %d of 8000 commits, want about 1000", n)
	}
	if (Suite{Tier: Compat}).Due("x", Now{}) || !(Suite{Tier: Every}).Due("x", Now{}) {
		t.Error("compat is due, or every is not")
	}
}

// TestMachineDue: a machine that the budget names runs smoke tests alone while nothing changed that it is about, and
// nothing else must run there then.
func TestMachineDue(t *testing.T) {
	list, err := mustrun.Parse(strings.NewReader("^a\\.TestSmoke$ root vm-6.1\n^a\\.TestKernel/sub root vm-6.1 vm-6.12\n^a\\.TestKernel$ vm-6.1\n^a\\.TestGone$ vm-6.1\n^a\\.TestAny$\n"))
	if err != nil {
		t.Fatal(err)
	}
	kernel := []testenv.Axis{testenv.Kernel}
	p := Plan{
		List:   list,
		Budget: Budget{{Name: "vm-6.1", Tier: Changed, Folders: []string{"netfilter"}}},
		Tests: []Test{{Pkg: "a", Name: "TestSmoke", Axes: kernel, Smoke: true},
			{Pkg: "a", Name: "TestKernel", Axes: kernel}, {Pkg: "a", Name: "TestAny"}},
	}
	for file, want := range map[string]string{
		"docs/x":      "[root vm-6.1] [root vm-6.12] [vm-6.1] []", // TestGone is missing, whatever is due
		"netfilter/x": "[root vm-6.1] [root vm-6.1 vm-6.12] [vm-6.1] [vm-6.1] []",
	} {
		p.Now.Changed = []string{file}
		var got []string
		for _, r := range p.Due() {
			got = append(got, fmt.Sprint(r.Kinds))
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s changed: must run %s, want %s", file, got, want)
		}
		if runs := p.Runs(p.Tests[1], "vm-6.1"); runs != (file == "netfilter/x") || !p.Runs(p.Tests[0], "vm-6.1") ||
			!p.Runs(p.Tests[1], "vm-6.12") {
			t.Errorf("%s changed: runs in 6.1 %v", file, runs)
		}
	}
}

// TestShared: two machines with the same tests on two kernels share them when both are due, and one that is due alone
// runs all.
func TestShared(t *testing.T) {
	test := Test{Pkg: "integration/a", Name: "TestX", Axes: []testenv.Axis{testenv.Kernel}}
	p := Plan{Budget: Budget{
		{Name: "vm-6.1", Tier: Changed, Folders: []string{"netfilter", "seccomp"}},
		{Name: "vm-newest", Tier: Changed, Folders: []string{"netfilter"}},
	}}
	first := 0
	for i := range 100 {
		p.Now = Now{Commit: fmt.Sprintf("%040x", i*7919), Changed: []string{"netfilter/x"}}
		old, newest := p.Runs(test, "vm-6.1"), p.Runs(test, "vm-newest")
		if old == newest || !p.Runs(test, "vm-6.12") {
			t.Fatalf("runs in 6.1 %v, newest %v", old, newest)
		}
		if old {
			first++
		}
		if p.Now.Changed = []string{"seccomp/x"}; !p.Runs(test, "vm-6.1") || p.Runs(test, "vm-newest") {
			t.Fatal("what is due alone does not run all")
		}
		p.Now.Changed = nil
		smoke := test
		smoke.Smoke = true
		if old, newest := p.Runs(smoke, "vm-6.1"), p.Runs(smoke, "vm-newest"); old == newest {
			t.Fatalf("nothing is due: the smoke test runs in 6.1 %v, newest %v", old, newest)
		}
		if p.Runs(test, "vm-6.1") || p.Runs(test, "vm-newest") {
			t.Fatal("nothing is due: more than smoke tests run")
		}
		if p.Now.All = true; !p.Runs(test, "vm-6.1") || !p.Runs(test, "vm-newest") || !p.Runs(smoke, "vm-6.1") {
			t.Fatal("not all machines run all when asked to")
		}
	}
	if first < 30 || first > 70 {
		t.Errorf("6.1 runs a test in %d of 100 commits", first)
	}
}

// TestRuns has each kind of user and machine run what depends on it, and everything run somewhere.
func TestRuns(t *testing.T) {
	list, err := mustrun.Parse(strings.NewReader("^integration/a\\.TestRooted$ root\n^integration/a\\.TestUsers$ subuid no-subuid\n^integration/a\\.Test[0-9] once\n"))
	if err != nil {
		t.Fatal(err)
	}
	p := Plan{List: list, Budget: Budget{{Name: "never", Tier: Compat}}}
	user, kernel, cgroup, ebpf := testenv.User, testenv.Kernel, testenv.Cgroup, testenv.EBPF
	for _, tt := range []struct {
		test Test
		want string
	}{
		{Test{Name: "TestParse"}, "root"},
		{Test{Name: "TestUser", Axes: []testenv.Axis{user}}, "root subuid no-subuid"},
		{Test{Name: "TestPrivilege", Axes: []testenv.Axis{testenv.Privilege}}, "root no-subuid"},
		{Test{Name: "TestPrivilege2", Axes: []testenv.Axis{testenv.Privilege}}, "root subuid"},
		{Test{Name: "TestKernel", Axes: []testenv.Axis{kernel}}, "root vm-6.12 vm-6.1 vm-newest"},
		{Test{Name: "TestBoth", Axes: []testenv.Axis{user, cgroup}}, "root subuid no-subuid vm-6.12"},
		{Test{Name: "TestNetd", Axes: []testenv.Axis{ebpf}}, "root vm-netd vm-netd-6.1"},
		{Test{Name: "TestVMFull", Machines: []string{"delegation"}}, "vm-delegation"},
		{Test{Pkg: "integration/a", Name: "TestRooted"}, "root"},
		{Test{Name: "TestNever", Suite: "never"}, ""},
	} {
		var got []string
		for _, k := range []mustrun.Kind{"root", "subuid", "no-subuid", "vm-6.12", "vm-6.1", "vm-newest", "vm-netd",
			"vm-netd-6.1", "vm-delegation"} {
			if p.Runs(tt.test, k) {
				got = append(got, string(k))
			}
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("%s runs as %q, want %q", tt.test.Name, got, tt.want)
		}
	}
	if p.Short(Test{Pkg: "images", Name: "TestX", Axes: []testenv.Axis{user}}, mustrun.Root) {
		t.Error("root makes fewer rounds of a unit test")
	}
	// All rounds are made by an eighth of the end-to-end tests, as root, and by none of a brief run.
	n, test := 0, Test{Pkg: "integration/a", Name: "TestX", Axes: []testenv.Axis{user}}
	for i := range 800 {
		p.Now.Commit = fmt.Sprintf("%040x", i*7919)
		if !p.Short(test, mustrun.Root) {
			n++
		}
		brief := p
		brief.Brief = true
		if !p.Short(test, mustrun.SubUID) || !brief.Short(test, mustrun.Root) {
			t.Fatal("an ordinary user or a brief run makes all rounds")
		}
	}
	if n < 60 || n > 140 {
		t.Errorf("a test makes all rounds in %d of 800 commits, want about 100", n)
	}
	// What depends on no user runs once, not always as root.
	kinds := map[mustrun.Kind]int{}
	for i := range 100 {
		test := Test{Pkg: "integration/a", Name: fmt.Sprint("Test", i)}
		kinds[p.once(test)]++
	}
	if kinds[mustrun.Root] < 30 || kinds[mustrun.SubUID] < 30 {
		t.Errorf("tests that run once run as %v", kinds)
	}
	if got := p.once(Test{Pkg: "integration/a", Name: "TestUsers"}); got == mustrun.Root {
		t.Errorf("a test for users alone runs as %s", got)
	}
}

// TestRepository keeps the declarations, the budget and the memory readable: lint and tests go by them.
func TestRepository(t *testing.T) {
	p := repository(t)
	if every, _ := p.Budget.Cost(); every > EveryLimit {
		t.Errorf("the suites of tier every cost %d CPU seconds, at most %d are left to them: move one to another tier, or make it cheaper", every, EveryLimit)
	}
	if !slices.ContainsFunc(p.Tests, func(t Test) bool {
		return t.Pkg == "internal/build/testplan" &&
			t.Name == "TestRepository"
	}) {
		t.Error("this test is not found")
	}
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

var readRepository = sync.OnceValues(func() (Plan, error) { return Read(context.Background(), "../../..") })

// repository is the plan of this repository.
func repository(t *testing.T) Plan {
	t.Helper()
	p, err := readRepository()
	if err != nil {
		t.Fatal(err)
	}
	return p
}
