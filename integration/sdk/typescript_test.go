package sdk_test

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/probe"
	"github.com/hutch-sh/hutch/internal/testenv"
)

// Where make deps and make deps-sdk put what npm has.
const (
	compiler = ".cache/typescript/node_modules"
	runtimes = ".cache/sdk-npm/node_modules"
)

// installed is a path below the module's folder. t is skipped where nobody has installed it.
func installed(t *testing.T, path, remedy string) string {
	t.Helper()
	root, err := testenv.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(root, path)
	if _, err := os.Stat(path); err != nil {
		testenv.Require(t, probe.Check{Name: filepath.Base(path), Status: probe.No, Detail: err.Error(),
			Remedy: remedy})
	}
	return path
}

// scripts are a folder of the world's with programs that use the TypeScript package.
type scripts struct {
	*testing.T
	w *world.World
}

// newScripts builds the package.
func newScripts(t *testing.T) *scripts {
	t.Helper()
	testenv.Programs(t, "node")
	installed(t, compiler, "make deps")
	s := &scripts{t, world.New(t)}
	source := installed(t, "sdk/typescript", "")
	s.made("node", filepath.Join(source, "build.mjs"), "package")
	s.made("mkdir", "-p", "node_modules/@hutch-sh")
	s.made("mv", "package", "node_modules/@hutch-sh/sdk")
	world.Write(t, s.w.Path("package.json"), `{"dependencies": {"@hutch-sh/sdk": "*"}}`) // Deno looks there
	return s
}

// compile makes the package's tests, by the types of the package: out/sandbox.test.mjs and out/require.test.cjs.
func (s *scripts) compile() {
	s.Helper()
	tests, modules := installed(s.T, "sdk/typescript/test", ""), installed(s.T, compiler, "make deps")
	s.made("cp", "-r", tests+"/.", ".")
	s.made("node", filepath.Join(modules, "typescript/bin/tsc"), "--strict", "--target", "ES2022",
		"--module", "NodeNext", "--types", "node", "--typeRoots", filepath.Join(modules, "@types"),
		"--outDir", "out", "sandbox.test.mts", "require.test.cts")
}

// command is a program in that folder, with the world's daemon as the user's.
func (s *scripts) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Dir = s.w.Dir
	modules, err := filepath.Abs("../../" + compiler)
	if err != nil {
		s.Fatal(err)
	}
	cmd.Env = append(s.w.Vars[:len(s.w.Vars):len(s.w.Vars)], "HUTCH_BIN="+filepath.Join(s.w.Bin, "hutch"),
		"HUTCH_NODE_MODULES="+modules, "NO_COLOR=1", "DENO_NO_UPDATE_CHECK=1")
	return cmd
}

// made runs a tool that computes and ends, however long that takes on a machine that has others to serve.
func (s *scripts) made(name string, args ...string) {
	s.Helper()
	if out, err := s.command(name, args...).CombinedOutput(); err != nil {
		s.Fatalf("%s %s: %v\n%s", name, args, err, out)
	}
}

// did runs a program that must succeed, and says what it does.
func (s *scripts) did(name string, args ...string) {
	s.Helper()
	cmd := s.command("sh", append([]string{"-c", `exec "$0" "$@" 2>&1`, name}, args...)...)
	if r := s.w.FinishInSteps(s.T, cmd); r.Code != 0 {
		s.Fatalf("%s: exit code %d\n%s", name, r.Code, r.Stdout)
	}
}

// TestTypeScript: the TypeScript package does what its own tests ask of it, against a real daemon.
func TestTypeScript(t *testing.T) {
	testenv.Axes(t, testenv.Privilege)
	t.Parallel()
	world.NeedsPython(t)
	s := newScripts(t)
	s.compile()
	s.did("node", "out/sandbox.test.mjs")
	s.did("node", "out/require.test.cjs")
}

// TestTypeScriptLost: a sandbox, and a command that runs in it, survive the death of the daemon.
func TestTypeScriptLost(t *testing.T) {
	testenv.Axes(t)
	t.Parallel()
	s := newScripts(t)
	survives(t, s.w, s.command("node", "--input-type=module", "-e", `
import { once } from "node:events";
import { Sandbox } from "@hutch-sh/sdk";
const sandbox = await Sandbox.create();
await sandbox.run("mkfifo /tmp/go", { check: true });
const process_ = sandbox.exec("echo one; read a </tmp/go; echo two $a");
const output = process_[Symbol.asyncIterator]();
const next = async () => (await output.next()).value?.text.trim();
console.log(await next());
await once(process.stdin, "data");
process.stdin.unref();
await sandbox.run("echo x >/tmp/go", { check: true });
console.log(await next(), await next() ?? "[]", (await process_.wait()).verdict);
`))
}

// TestTypeScriptVersions: what is packed does so in other versions of Node, in Bun and in Deno.
func TestTypeScriptVersions(t *testing.T) {
	testenv.Axes(t)
	testenv.Suite(t, "sdk")
	t.Parallel()
	world.NeedsPython(t)
	testenv.Programs(t, "npm")
	s := newScripts(t)
	s.compile()
	s.made("npm", "pack", "--silent", "--pack-destination", ".", "./node_modules/@hutch-sh/sdk")
	s.made("rm", "-r", "node_modules")
	s.made("npm", "install", "--offline", "--no-audit", "--no-fund", "./hutch-sh-sdk-0.1.0.tgz")
	test := func(name, program string, args ...string) {
		t.Run(name, func(t *testing.T) {
			path := installed(t, filepath.Join(runtimes, program), "make deps-sdk")
			(&scripts{t, s.w}).did(path, append(args, "./out/sandbox.test.mjs")...)
		})
	}
	for _, node := range []string{"node18", "node22", "node24"} {
		test(node, node+"/bin/node")
	}
	test("bun", "@oven/bun-linux-x64/bin/bun", "test", "--timeout", "120000")
	test("deno", "@deno/linux-x64-glibc/deno", "test", "-A", "--no-check", "--node-modules-dir=manual")
}

// TestTypeScriptBinaries: who installs the package gets hutch with it.
func TestTypeScriptBinaries(t *testing.T) {
	testenv.Axes(t)
	testenv.Suite(t, "sdk")
	t.Parallel()
	testenv.Programs(t, "npm")
	s := newScripts(t)
	source := installed(t, "sdk/typescript", "")
	s.made("node", filepath.Join(source, "platform.mjs"), "platform", s.w.Bin)
	s.made("npm", "pack", "--silent", "--pack-destination", ".", "./platform", "./node_modules/@hutch-sh/sdk")
	s.made("rm", "-r", "node_modules")
	s.made("sh", "-c", "npm install --offline --no-audit --no-fund ./*.tgz")
	for kind, load := range map[string]string{
		"module":   `const { Sandbox } = await import("@hutch-sh/sdk");`,
		"commonjs": `const { Sandbox } = require("@hutch-sh/sdk");`,
	} {
		s.did("node", "--input-type="+kind, "-e", load+`
			delete process.env.HUTCH_BIN;
			process.env.PATH = "/usr/bin:/bin";
			Sandbox.create().then(async (s) => {
				console.log((await s.run("echo hello")).stdout);
				await s.remove();
			});`)
	}
}

// TestVercelAI: docs/examples/vercel-ai, with the AI SDK itself and a model that follows a script.
func TestVercelAI(t *testing.T) {
	testenv.Axes(t)
	testenv.Suite(t, "sdk")
	t.Parallel()
	world.NeedsPython(t)
	s := newScripts(t)
	modules := installed(t, runtimes, "make deps-sdk")
	for from, to := range map[string]string{
		"../../docs/examples/vercel-ai/tool.mjs": "tool.mjs", "testdata/vercel.mjs": "vercel.mjs",
	} {
		world.Write(t, s.w.Path(to), world.Read(t, from))
	}
	found, err := os.ReadDir(modules)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range found {
		err := os.Symlink(filepath.Join(modules, f.Name()), s.w.Path("node_modules/"+f.Name()))
		if err != nil && !errors.Is(err, fs.ErrExist) {
			t.Fatal(err)
		}
	}
	s.did(filepath.Join(modules, "node24/bin/node"), "vercel.mjs")
}
