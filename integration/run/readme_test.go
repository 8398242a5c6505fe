package run_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/images/imagetest"
	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/testenv"
)

// readmeInstead is what is run in the place of a part of a line of the README and the tutorial, and why. What is in
// neither is an error.
var readmeInstead = []struct{ part, instead, why string }{
	{"make run ", "make -n run NO_INSTALL=1 ", "it builds what is being tested"},
	{"make test ", "make -n test NO_INSTALL=1 ", "this is a part of it"},
	{"hutch run -it host", "echo exit | hutch run -it host", "nobody sits at a terminal"},
	{"workspace apply -i fix", "workspace apply fix", "nobody sits at a terminal"},
	{"git ls-remote https://github.com/golang/go HEAD", "true", "tests do not use the network"},
	{"pip download requests", "true", "tests do not use the network"},
	{"--mode selective -- ls", "--mode all -- ls", "whose machine it is has to allow it"},
	{"-p 8080:3000 --workspace . -- npm run dev", "-p 3000 --workspace . -- true",
		"the port may be in use; npm may not be there"},
	{"why SANDBOX", "why fix", "a name of one"},
	{"audit SANDBOX", "audit fix", "a name of one"},
	{"events --since 1 ", "events --since 1 --no-follow ", "it goes on for ever"},
	{"hutch mcp install claude", "hutch mcp install --yes claude", "it asks"},
	{"-m 512m --pids-limit 64", "-m 512m --pids-limit 64 --best-effort", "not every user has cgroups"},
}

// readme is the repository's, with what it sends a reader to first.
func readme(t *testing.T) (root, text string) {
	root, err := testenv.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"README.md", "docs/tutorial.md", "docs/settings.md"} {
		text += world.Read(t, filepath.Join(root, name))
	}
	return root, text
}

// blocks are the texts between ```kind and ```.
func blocks(text, kind string) (all []string) {
	for _, rest := range strings.Split(text, "\n```"+kind+"\n")[1:] {
		block, _, _ := strings.Cut(rest, "\n```")
		all = append(all, block)
	}
	return all
}

// TestReadme types each command of the README and the tutorial, in their order, in a folder outside of the repository.
func TestReadme(t *testing.T) {
	testenv.Axes(t, testenv.User, testenv.Privilege)
	t.Parallel()
	world.NeedsPython(t)
	testenv.Programs(t, "git", "make")
	root, text := readme(t)
	w := world.New(t)
	for _, ref := range []string{"docker.io/library/debian:13", "docker.io/library/python:3.12-slim"} {
		layout := filepath.Join(w.Sub(t, "images"), filepath.Base(ref)+".tar")
		world.Write(t, layout, string(imagetest.Archive(imagetest.OCILayout(ref, readmeImage(t)))))
		w.OK(t, "image", "import", "oci-archive:"+layout, ref)
	}
	project := readmeProject(t, w)
	used := map[string]bool{}
	for _, block := range blocks(text, "console") {
		lines := strings.Split(block, "\n")
		for i := 0; i < len(lines); i++ {
			line, command := strings.CutPrefix(lines[i], "$ ")
			if !command {
				t.Errorf("neither a command nor its output: %q", lines[i])
				continue
			}
			output := []string{}
			for i+1 < len(lines) && !strings.HasPrefix(lines[i+1], "$ ") {
				i++
				output = append(output, lines[i])
			}
			if file, ok := strings.CutPrefix(line, "cat "); ok { // what it shows is what there is
				world.Write(t, filepath.Join(project, file), strings.Join(output, "\n")+"\n")
				output = nil
			}
			typed := line + " "
			for _, r := range readmeInstead {
				if strings.Contains(typed, r.part) {
					typed, used[r.part] = strings.Replace(typed, r.part, r.instead, 1), true
				}
			}
			dir := project
			if strings.HasPrefix(line, "make ") {
				dir = root
			}
			res := typeIn(t, w, dir, typed)
			if res.Code != 0 {
				t.Errorf("$ %s\nexit %d: %s", typed, res.Code, res.Stderr)
			}
			if want := strings.Join(output, "\n"); want != "" && strings.TrimSpace(res.Stdout) != want {
				t.Errorf("$ %s\n%q, want %q", typed, res.Stdout, want)
			}
		}
	}
	for _, r := range readmeInstead {
		if !used[r.part] {
			t.Errorf("no line of the README or the tutorial has %q", r.part)
		}
	}
	w.OK(t, append([]string{"rm", "-f"}, strings.Fields(w.OK(t, "ps", "-aq"))...)...)
}

// typeIn runs a line of bash in a folder, with hutch in PATH.
func typeIn(t *testing.T, w *world.World, dir, line string) world.Result {
	t.Helper()
	cmd := exec.Command("bash", "-c", line)
	cmd.Env, cmd.Dir = append(w.Vars, "PATH="+w.Bin+":"+os.Getenv("PATH")), dir
	return w.Finish(t, cmd)
}

// readmeImage has what the README's commands call, in words of the shell: which programs images have is not hutch's.
func readmeImage(t *testing.T) imagetest.Image {
	files := []imagetest.File{
		imagetest.Dir("etc"), imagetest.Text("etc/os-release", "ID=debian\n"), imagetest.Dir("bin"),
		imagetest.Exec("bin/sh", world.StaticShell(t)),
		imagetest.Exec("bin/python", "#!/bin/sh\necho 42\n"), imagetest.Exec("bin/pip", "#!/bin/sh\n"),
		imagetest.Exec("bin/flask", "#!/bin/sh\nexec httpd -f -p 8000\n"),
		imagetest.Exec("bin/curl", "#!/bin/sh\nexec wget -O- http://localhost:8000/etc/os-release\n"),
	}
	for _, name := range []string{"cat", "httpd", "wget", "true", "mkdir"} {
		files = append(files, imagetest.Hardlink("bin/"+name, "bin/sh"))
	}
	return imagetest.Image{Layers: []imagetest.Layer{imagetest.NewLayer(imagetest.Tar(files...), imagetest.Gzip)}}
}

// readmeProject is the folder that the README's commands work on.
func readmeProject(t *testing.T, w *world.World) string {
	project := w.Sub(t, "project")
	for name, content := range map[string]string{
		"Makefile": "all:\n\tmkdir -p src && date +%s%N > src/built\n", "data.csv": "a,b\n", "setup.py": "print(1)\n",
		"Dockerfile": "FROM python@3.12\nRUN pip install x\n",
	} {
		world.Write(t, filepath.Join(project, name), content)
	}
	for _, name := range []string{"risky", "suspicious", "long-job"} {
		world.Write(t, filepath.Join(project, name), "#!/bin/sh\necho "+name+"\n")
		if err := os.Chmod(filepath.Join(project, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return project
}

// TestReadmeSettings: the README's configurations are taken.
func TestReadmeSettings(t *testing.T) {
	testenv.Axes(t, testenv.User)
	t.Parallel()
	_, text := readme(t)
	for _, block := range blocks(text, "json") {
		if !json.Valid([]byte(block)) {
			t.Errorf("no JSON: %s", block)
		}
	}
	w := world.New(t)
	for _, block := range blocks(text, "yaml") {
		w.Configure(t, block)
		if out := w.Run(t, "run", "--", "echo", "taken"); out.Code != 0 || out.Stdout != "taken\n" {
			t.Errorf("with\n%s\n%+v", block, out)
		}
	}
}

// TestReadmeEmbed: the README's program, as a module of its own, beside hutch as make install puts it.
func TestReadmeEmbed(t *testing.T) {
	testenv.Axes(t)
	testenv.Toolchain(t)
	t.Parallel()
	root, text := readme(t)
	w := world.New(t)
	prefix := w.Sub(t, "prefix")
	for _, dir := range []string{"bin", "libexec/hutch", "module"} {
		if err := os.MkdirAll(filepath.Join(prefix, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"hutch", "hutchd", "hutch-launch", "hutch-init", "hutch-netd", "hutch-mcp",
		"hutch-scan"} {
		dir := "libexec/hutch"
		if name == "hutch" {
			dir = "bin"
		}
		if err := os.Link(filepath.Join(w.Bin, name), filepath.Join(prefix, dir, name)); err != nil {
			world.Write(t, filepath.Join(prefix, dir, name), world.Read(t, filepath.Join(w.Bin, name)))
			_ = os.Chmod(filepath.Join(prefix, dir, name), 0o755)
		}
	}
	body := strings.ReplaceAll(blocks(text, "go")[0], "make test", "echo made")
	module := filepath.Join(prefix, "module")
	world.Write(t, filepath.Join(module, "main.go"), `package main

import (
	"context"
	"fmt"

	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/client"
)

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func main() {
	ctx := context.Background()
	`+strings.ReplaceAll(body, "\n", "\n\tcheck(err)\n\t")+`
	check(err)
	fmt.Print(r.Stdout)
	check(c.Close())
	shared, err := client.Connect(ctx, client.ConnectOptions{})
	check(err)
	fmt.Println(shared.Peer(ctx))
}
`)
	mod := world.Read(t, filepath.Join(root, "go.mod"))
	mod = strings.Replace(mod, "module github.com/hutch-sh/hutch\n",
		"module example.com/agent\n\nrequire github.com/hutch-sh/hutch v0.0.0\n\nreplace github.com/hutch-sh/hutch => "+
			root+"\n", 1)
	world.Write(t, filepath.Join(module, "go.mod"), mod)
	world.Write(t, filepath.Join(module, "go.sum"), world.Read(t, filepath.Join(root, "go.sum")))
	build := exec.Command("go", "build", "-mod=mod", "-o", "agent", ".")
	build.Dir, build.Env = module, append(os.Environ(), "GOFLAGS=", "GOPROXY=off", "GOTOOLCHAIN=local", "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	w.Inside(t, "true") // the shared daemon
	before := w.Daemon(t).Monitor
	for range 2 {
		agent := exec.Command(filepath.Join(module, "agent"))
		agent.Dir, agent.Env = w.Dir, append(w.Vars, "PATH="+filepath.Join(prefix, "bin")+":/usr/bin:/bin")
		if res := w.Finish(t, agent); res.Code != 0 || !strings.HasPrefix(res.Stdout, "made\n") {
			t.Fatalf("%+v", res)
		}
	}
	if now := w.Daemon(t).Monitor; now != before {
		t.Error("a program that imports the client has replaced the user's daemon")
	}
}
