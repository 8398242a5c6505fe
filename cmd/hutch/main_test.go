package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/hutch-sh/hutch/internal/cli"
	"github.com/hutch-sh/hutch/internal/testenv/cost"
	"github.com/hutch-sh/hutch/runtime/api"
)

var update = flag.Bool("update", false, "write the goldens instead of comparing with them")

// parseRun parses a command line of run up to the point where it would connect.
func parseRun(t *testing.T, args ...string) (spec api.Spec, o *runFlags, command []string, err error) {
	t.Helper()
	o = &runFlags{}
	cmd := &cobra.Command{
		Use: "run", SilenceErrors: true, SilenceUsage: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			var image string
			image, command = cli.SplitCommand(args, cmd.ArgsLenAtDash())
			if err := o.check(command); err != nil {
				return err
			}
			spec, err = o.build(image)
			return err
		},
	}
	cmd.SetFlagErrorFunc(flagError)
	o.addRun(cmd)
	cmd.SetArgs(args)
	return spec, o, command, cmd.Execute()
}

func TestRunArguments(t *testing.T) {
	t.Setenv("HUTCH_CONFIG", filepath.Join(t.TempDir(), "none.yaml"))
	for _, tt := range []struct {
		args    []string
		image   string
		command []string
	}{
		{[]string{"img"}, "img", nil},
		{[]string{"img", "ls", "-l", "--help"}, "img", []string{"ls", "-l", "--help"}},
		{[]string{"img", "--", "ls"}, "img", []string{"ls"}},
		{[]string{"-i", "img", "--", "--", "ls"}, "img", []string{"--", "ls"}},
		{[]string{"--", "true"}, "host", []string{"true"}},
		{[]string{"-i", "--", "sh", "-c", "exit 3"}, "host", []string{"sh", "-c", "exit 3"}},
		{[]string{"--env", "A=1", "img", "-e", "B=2"}, "img", []string{"-e", "B=2"}},
		{[]string{"-it", "img", "sh"}, "img", []string{"sh"}},
		{[]string{"img", ""}, "img", []string{""}},
	} {
		t.Run(strings.Join(tt.args, " "), func(t *testing.T) {
			spec, _, command, err := parseRun(t, tt.args...)
			if err != nil {
				t.Fatal(err)
			}
			if spec.Image != tt.image || !slices.Equal(command, tt.command) {
				t.Errorf("image %q, command %q, want %q and %q", spec.Image, command, tt.image, tt.command)
			}
		})
	}
}

func TestRunSpec(t *testing.T) {
	spec, _, _, err := parseRun(t, "-e", "A=1", "--env=B=x y", "-u", "1000:1000", "-w", "/src", "-v", "/usr:/u:ro",
		"-v", "/etc:/e",
		"--workspace", ".:overlay", "--hostname", "h", "--name", "n", "-l", "k=v", "--timeout", "1m", "--platform",
		"linux/arm64",
		"--pull", "never", "-m", "512m", "--cpus", "1.5", "--pids-limit", "64", "--network", "none", "--seccomp",
		"default",
		"--cpu-time", "1m", "--ulimit", "nofile=64", "--output-limit", "1k", "img")
	if err != nil {
		t.Fatal(err)
	}
	want := api.Spec{
		Image: "img", Name: "n", Hostname: "h", User: "1000:1000", Workdir: "/src", Platform: "linux/arm64",
		Labels: map[string]string{"k": "v"}, Env: map[string]string{"A": "1", "B": "x y"},
		Workspace: &api.Workspace{Path: ".", Mode: api.ModeOverlay},
		Mounts: []api.Mount{
			{Source: "/usr", Target: "/u", Mode: api.ModeRO},
			{Source: "/etc", Target: "/e", Mode: api.ModeRW},
		},
		Pull: api.PullNever, Network: api.NetPolicy{Mode: api.NetNone}, Seccomp: "default",
		Limits: api.Limits{CPUs: 1.5, MemoryBytes: 512 << 20, PIDs: 64, TimeoutS: 60,
			CPUTimeS: 60, OutputBytes: 1024, Rlimits: api.Rlimits{NoFile: &api.Rlimit{Soft: 64}}},
	}
	if !reflect.DeepEqual(spec, want) {
		t.Errorf("got  %+v\nwant %+v", spec, want)
	}
}

// TestRunRefuses wants a hint and the right class with every refusal, and exit
// code 125.
func TestRunRefuses(t *testing.T) {
	for _, tt := range []struct {
		args []string
		code api.Code
		says string
	}{
		{[]string{"-p", "80:http", "img"}, api.InvalidArgument, `"80:http"`},
		{[]string{"--allow", "example.com:x", "img"}, api.InvalidArgument, "--allow"},
		{[]string{"--allow", "*.com", "img"}, api.InvalidArgument, "network.allow[0]"},
		{[]string{"--block", "x", "img"}, api.InvalidArgument, "--block"},
		{[]string{"--allow-cidr", "10.0.0.1/8", "img"}, api.InvalidArgument, "--allow-cidr"},
		{[]string{"--network", "none", "--allow", "example.com", "img"}, api.InvalidArgument, "network.mode"},
		{[]string{"--network", "open", "--learn", "deny", "img"}, api.InvalidArgument, "--learn"},
		{[]string{"--policy", "/no/such", "img"}, api.InvalidArgument, "/no/such"},
		{[]string{"--seccomp", "unconfined", "img"}, api.InvalidArgument, "--seccomp unconfined"},
		{[]string{"-d", "-t", "img"}, api.InvalidArgument, "-d"},
		{[]string{"-d", "--private", "img"}, api.InvalidArgument, "--private"},
		{[]string{"--keep", "--private", "img"}, api.InvalidArgument, "--keep"},
		{[]string{"--json", "-t", "img"}, api.InvalidArgument, "--json"},
		{[]string{"--timeout", "0", "img"}, api.InvalidArgument, "--timeout 0"},
		{[]string{"--cpu-time", "0", "img"}, api.InvalidArgument, `"0"`},
		{[]string{"--ulimit", "nice=1", "img"}, api.InvalidArgument, `"nice"`},
		{[]string{"--output-limit", "x", "img"}, api.InvalidArgument, `"x"`},
		{[]string{"-m", "much", "img"}, api.InvalidArgument, `"much"`},
		{[]string{"--cpus", "0", "img"}, api.InvalidArgument, `"0"`},
		{[]string{"--timeout", "soon", "img"}, api.InvalidArgument, `"soon"`},
		{[]string{"--pull", "maybe", "img"}, api.InvalidArgument, `"maybe"`},
		{[]string{"--network", "lan", "img"}, api.InvalidArgument, `"lan"`},
		{[]string{"--net", "lan", "img"}, api.InvalidArgument, `"lan"`},
		{[]string{"-w", "rel", "img"}, api.InvalidArgument, `"rel"`},
		{[]string{"-v", "v,l:/x", "img"}, api.InvalidArgument, "name of a volume"},
		{[]string{"-e", "=x", "img"}, api.InvalidArgument, `"=x"`},
		{[]string{"--env-file", "/no/such", "img"}, api.InvalidArgument, "/no/such"},
		{[]string{"-l", "=x", "img"}, api.InvalidArgument, `"=x"`},
		{[]string{"--frob", "img"}, api.InvalidArgument, "--frob"},
	} {
		t.Run(strings.Join(tt.args, " "), func(t *testing.T) {
			_, _, _, err := parseRun(t, tt.args...)
			var known *api.Error
			if !errors.As(err, &known) || known.Code != tt.code || !strings.Contains(err.Error(), tt.says) {
				t.Fatalf("got %v, want %s about %q", err, tt.code, tt.says)
			}
			if cli.ExitCode(err) != cli.ExitHutch {
				t.Errorf("exit code %d", cli.ExitCode(err))
			}
		})
	}
}

func TestArgv(t *testing.T) {
	image := &api.Sandbox{Image: "img", Entry: []string{"/entry"}, Command: []string{"/entry", "default"}}
	bare := &api.Sandbox{Image: "img"}
	str := func(s string) *string { return &s }
	for _, tt := range []struct {
		name    string
		entry   *string
		sb      *api.Sandbox
		command []string
		want    []string // nil: refused
	}{
		{"the image's own", nil, image, nil, []string{"/entry", "default"}},
		{"CMD replaces Cmd only", nil, image, []string{"x"}, []string{"/entry", "x"}},
		{"--entrypoint replaces both", str("sh"), image, nil, []string{"sh"}},
		{"--entrypoint with CMD", str("sh"), image, []string{"-c", "x"}, []string{"sh", "-c", "x"}},
		{"no entrypoint", str(""), image, []string{"x"}, []string{"x"}},
		{"no entrypoint, no command", str(""), image, nil, nil},
		{"nothing", nil, bare, nil, nil},
		{"command only", nil, bare, []string{"x"}, []string{"x"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := &runFlags{entrypoint: tt.entry}
			got, err := o.argv(tt.sb, tt.command)
			if !slices.Equal(got, tt.want) || (err != nil) != (tt.want == nil) {
				t.Errorf("got %q, %v, want %q", got, err, tt.want)
			}
		})
	}
	if len(image.Entry) != 1 || len(image.Command) != 2 {
		t.Error("the record was changed")
	}
}

// TestHelp compares the help of every verb with testdata/help; -update writes it.
func TestHelp(t *testing.T) {
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		path := strings.ReplaceAll(cmd.CommandPath(), " ", "_")
		t.Run(path, func(t *testing.T) {
			var out bytes.Buffer
			cmd.SetOut(&out)
			cmd.InitDefaultHelpFlag()
			if err := cmd.Help(); err != nil {
				t.Fatal(err)
			}
			golden := filepath.Join("testdata", "help", path+".txt")
			if *update {
				if err := os.WriteFile(golden, out.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if out.String() != string(want) {
				t.Errorf("the help changed (go test ./cmd/hutch -update writes it):\n%s", out.String())
			}
		})
		for _, sub := range cmd.Commands() {
			if sub.IsAvailableCommand() {
				walk(sub)
			}
		}
	}
	walk(newRoot(nil))
}

func TestUsageErrors(t *testing.T) {
	for _, tt := range []struct{ args, says, hint string }{
		{"runn", `there is no command "runn"`, "hutch run"},
		{"run", "neither an image nor a command", "hutch run --help"},
		{"run --frob", "unknown flag: --frob", "hutch run --help"},
		{"debug run --show config", "neither an image nor a command", "hutch debug run --help"},
		{"exec", "no sandbox", "hutch exec --help"},
		{"exec box", "no command", "hutch exec --help"},
		{"exec -- ls", "no sandbox", "hutch exec --help"},
		{"inspect", "an argument is missing", "hutch inspect --help"},
		{"image frob", `there is no command "frob"`, "hutch image --help"},
		{"help workspaces", `there is no command "workspaces"`, "hutch workspace"},
		{"help image frob", `there is no command "frob"`, "hutch image --help"},
		{"ps x", `unexpected argument "x"`, "hutch ps --help"},
		{"rpc m {", "not valid JSON", "hutch rpc --help"},
		{"rpc m []", "not a JSON object", "hutch rpc --help"},
		{"debug run --show x -- true", `"x" is none of config`, "hutch debug run --help"},
	} {
		t.Run(tt.args, func(t *testing.T) {
			root := newRoot(nil)
			root.SetArgs(strings.Fields(tt.args))
			err := root.Execute()
			var known *api.Error
			if !errors.As(err, &known) || !strings.Contains(err.Error(), tt.says) || known.Hint != tt.hint {
				t.Fatalf("got %v, want %q, try %q", err, tt.says, tt.hint)
			}
			if cli.ExitCode(err) != cli.ExitHutch {
				t.Errorf("exit code %d", cli.ExitCode(err))
			}
		})
	}
}

func TestVersionJSON(t *testing.T) {
	root := newRoot(nil)
	var out bytes.Buffer
	root.SetOut(&out)
	root.SetArgs([]string{"version", "--json"})
	if err := root.Execute(); err != nil {
		t.Fatal(err)
	}
	var v map[string]any
	if err := json.Unmarshal(out.Bytes(), &v); err != nil || v["build_id"] == "" || v["version"] == "" {
		t.Errorf("%s: %v", out.String(), err)
	}
}

func TestRPCParams(t *testing.T) {
	for _, tt := range []struct{ arg, stdin, want string }{
		{"{}", "", "{}"},
		{"-", "{ \"a\":\n 1 }\n", `{"a":1}`},
		{"-", "", ""},
		{"null", "", ""},
		{"{} {}", "", ""},
		{"-", `{"a":"` + strings.Repeat("x", maxRequest) + `"}`, ""},
	} {
		got, err := rpcParams(tt.arg, strings.NewReader(tt.stdin))
		if string(got) != tt.want || (err != nil) != (tt.want == "") {
			t.Errorf("%q %.20q: got %.40s, %v", tt.arg, tt.stdin, got, err)
		}
	}
}

func FuzzRPCParams(f *testing.F) {
	for _, s := range []string{"{}", "[1]", `{"a":{"b":[null]}}`, "\n", "-", `{"\ud800":1}`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		var got json.RawMessage
		var err error
		cost.Input(t, s, func(s string) { got, err = rpcParams("-", strings.NewReader(s)) })
		if err == nil && (!json.Valid(got) || got[0] != '{' || bytes.ContainsRune(got, '\n')) {
			t.Errorf("%q gave %q", s, got)
		}
	})
}

// TestUnrecorded: of each profile is said what it refuses without a word.
func TestUnrecorded(t *testing.T) {
	for profile, want := range map[api.SeccompProfile]string{
		api.SeccompDefault: "", api.SeccompBrowser: "", "": "", api.SeccompBuild: "profile build refuses",
		api.SeccompStrict: "profile strict refuses",
		api.SeccompCustom: "a profile of your own refuses",
	} {
		got := unrecorded(profile)
		if !strings.Contains(got, "ENOSYS") || !strings.Contains(got, want) || want == "" &&
			strings.Contains(got, "refuses") {
			t.Errorf("%q: %s", profile, got)
		}
	}
}
