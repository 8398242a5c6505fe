package run_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/images/imagetest"
	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/testenv"
)

// dockerLines are typed as by somebody who knows docker or podman, in this order, in bash, with hutch in the place of
// docker. says is what the answer to one that is refused names, and then a line that it has led to, which works.
var dockerLines = []struct{ line, out, says, then string }{
	{line: "--version", out: "hutch "},
	{line: "info", out: "user namespaces"},
	{line: "pull REGISTRY/app:1"},
	{line: "images", out: "/app"},
	{line: "image ls -q", out: "/app:1"},
	{line: "run --rm REGISTRY/app:1 echo hi", out: "hi\n"},
	{line: "run -it REGISTRY/app:1 sh <<<exit"},
	{line: "run --rm -i REGISTRY/app:1 cat < envf", out: "A=file\n"},
	{line: "run -d --name web -p 80 --label a=b REGISTRY/app:1 sh -c 'echo started; sleep 1000'", out: "sb_"},
	{line: "ps", out: "web"},
	{line: "ps -aq --filter name=web", out: "sb_"},
	{line: "ps --format '{{.Name}} {{.State}}' -f label=a=b", out: "web running\n"},
	{line: "container ls", out: "web"},
	{line: "logs web", out: "started\n"},
	{line: "logs --tail 10 web", out: "started\n"},
	{line: "logs --since 10m web", says: "-n LINES", then: "logs -n 1 web"},
	{line: "logs -t web", says: "hutch events", then: "events -n --since 10m"},
	{line: "exec web ls /", out: "bin\n"},
	{line: "exec -it web sh <<<exit"},
	{line: "exec -u root -w /tmp -e A=1 web sh -c 'echo $A $PWD'", out: "1 /tmp\n"},
	{line: "exec -d web true", out: "ex_"},
	{line: "container exec web ls /", out: "bin\n"},
	{line: "inspect web", out: `"web"`},
	{line: "inspect -f '{{.State.Status}}' web", out: "running\n"},
	{line: "top web -n", out: "sleep 1000"},
	{line: "stats --no-stream", out: "web"},
	{line: "port web", out: "80"},
	{line: "cp web:/etc/passwd .", out: ""},
	{line: "cp envf web:/tmp/"},
	{line: "exec web cat /tmp/envf", out: "A=file\n"},
	{line: "commit web img:2", out: "img:2"},
	{line: "diff web", says: "hutch snapshot diff", then: "snapshot create web"},
	{line: "export web", says: "hutch cp SANDBOX:/ -", then: "cp web:/etc - | tar t"},
	{line: "kill -s HUP web", out: "web"},
	{line: "stop -t 1 web", out: "web"},
	{line: "ps -a --filter status=exited -q", out: "sb_"},
	{line: "start web", out: "web"},
	{line: "restart web", says: "hutch stop SANDBOX && hutch start SANDBOX", then: "stop -t 1 web && hutch start web"},
	{line: "rm web", says: "hutch rm -f web", then: "rm -fv web"},
	{line: "rm -f web", out: ""},
	{line: "run -v $PWD:/src -w /src REGISTRY/app:1 ls", out: "envf\n"},
	{line: `run --rm -v "$PWD":/src:ro,Z REGISTRY/app:1 ls /src`, out: "envf\n"},
	{line: "run --mount type=bind,source=$PWD,target=/src,readonly REGISTRY/app:1 ls /src", out: "envf\n"},
	{line: "run --mount type=tmpfs,destination=/t,tmpfs-size=1m REGISTRY/app:1 df /t", out: "1024"},
	{line: "run -v /data REGISTRY/app:1 true", says: "leave it out", then: "run REGISTRY/app:1 mkdir /data"},
	{line: "run -e A=1 --env-file envf REGISTRY/app:1 sh -c 'echo $A'", out: "1\n"},
	{line: "run -m 64m --cpus 1 --pids-limit 50 --best-effort REGISTRY/app:1 true"},
	{line: "run -u 1000:1000 REGISTRY/app:1 id -u", out: "1000\n"},
	{line: "run -u app REGISTRY/app:1 id -u", out: "1000\n"},
	{line: "run --network none REGISTRY/app:1 true"},
	{line: "run --network=host REGISTRY/app:1 true", says: "open reaches everything",
		then: "run --network=open REGISTRY/app:1 true"},
	{line: "run --net bridge REGISTRY/app:1 true", says: "--allow NAME",
		then: "run --allow example.com REGISTRY/app:1 true"},
	{line: "run --hostname x REGISTRY/app:1 hostname", out: "x\n"},
	{line: "run --entrypoint sh REGISTRY/app:1 -c 'echo hi'", out: "hi\n"},
	{line: "run --read-only --tmpfs /tmp REGISTRY/app:1 sh -c 'echo x > /tmp/x && cat /tmp/x'", out: "x\n"},
	{line: "run --cap-drop=ALL --security-opt=no-new-privileges:true REGISTRY/app:1 true"},
	{line: "run --security-opt seccomp=unconfined REGISTRY/app:1 true", says: "leave it out",
		then: "run REGISTRY/app:1 true"},
	{line: "run --cap-add SYS_ADMIN REGISTRY/app:1 true", says: "leave it out",
		then: "run --cap-add CHOWN REGISTRY/app:1 true"},
	{line: "run --privileged REGISTRY/app:1 true", says: "root unless", then: "run REGISTRY/app:1 true"},
	{line: "run --init --rm REGISTRY/app:1 true"},
	{line: "run --stop-signal SIGINT REGISTRY/app:1 true"},
	{line: "run --shm-size=128m REGISTRY/app:1 df /dev/shm", out: "131072"},
	{line: "run --ulimit nofile=100:200 REGISTRY/app:1 sh -c 'ulimit -n'", out: "100\n"},
	{line: "run --restart unless-stopped REGISTRY/app:1 true", says: "starts nothing again",
		then: "run --restart no REGISTRY/app:1 true"},
	{line: "run --gpus all REGISTRY/app:1 true", says: "no devices", then: "run REGISTRY/app:1 true"},
	{line: "run --add-host db:10.0.0.1 REGISTRY/app:1 grep db /etc/hosts", out: "10.0.0.1\tdb\n"},
	{line: "run --dns 1.1.1.1 REGISTRY/app:1 true", says: "--allow",
		then: "run --allow example.com REGISTRY/app:1 true"},
	{line: "run -P REGISTRY/app:1 true", says: "-p PORT", then: "run -p 80 REGISTRY/app:1 true"},
	{line: "run --pull=never --platform linux/amd64 REGISTRY/app:1 true"},
	{line: "run --userns=keep-id REGISTRY/app:1 true", says: "--ids", then: "run --ids auto REGISTRY/app:1 true"},
	{line: "tag REGISTRY/app:1 app:2"},
	{line: "save -o f.tar app:2"},
	{line: "rmi -f app:2", out: "app:2"},
	{line: "load -i f.tar", out: "app:2"},
	{line: "rmi app:2", out: "app:2"},
	{line: "load < f.tar", out: "app:2"},
	{line: "image import f.tar app:3", says: "hutch load -i FILE", then: "load --input f.tar"},
	{line: "history REGISTRY/app:1", says: "hutch image inspect", then: "image inspect REGISTRY/app:1"},
	{line: "image prune -f"},
	{line: "system df", out: "/app:1"},
	{line: "system prune -f", says: "hutch gc", then: "gc"},
	{line: "volume create v", out: "v\n"},
	{line: "run -v v:/data REGISTRY/app:1 sh -c 'echo kept > /data/x'"},
	{line: "run --rm -v v:/data REGISTRY/app:1 cat /data/x", out: "kept\n"},
	{line: "volume inspect v", says: "hutch volume ls --json", then: "volume ls --json"},
	{line: "volume rm v"},
	{line: "network ls", says: "hutch network get", then: "create --name net REGISTRY/app:1 && hutch network get net"},
	{line: "build -t x .", says: "hutch template create --dockerfile", then: "template create --help"},
	{line: "create --name c REGISTRY/app:1", out: "sb_"},
	{line: "pause c"},
	{line: "unpause c"},
	{line: "rm -f c net"},
	{line: "events --since 10m --until 0s", out: "sandbox."},
	{line: "exec nope true", says: "hutch ps", then: "ps"},
	{line: "compose up", says: "hutch run -d", then: "run -d --rm REGISTRY/app:1 true"},
}

// TestDockerLines: what hands type that know docker works, or its answer names what does.
func TestDockerLines(t *testing.T) {
	testenv.Axes(t, testenv.User, testenv.Privilege)
	t.Parallel()
	busybox := world.StaticShell(t)
	w := world.New(t)
	files := []imagetest.File{
		imagetest.Dir("etc"),
		imagetest.Text("etc/passwd", "root:x:0:0::/root:/bin/sh\napp:x:1000:1000::/home/app:/bin/sh\n"),
		imagetest.Dir("bin"), imagetest.Exec("bin/sh", busybox),
	}
	for _, name := range strings.Fields("ls cat echo sleep true id df hostname grep mkdir") {
		files = append(files, imagetest.Hardlink("bin/"+name, "bin/sh"))
	}
	registry := imagetest.StartRegistry(t)
	ref := world.Push(t, registry, "app", imagetest.Image{
		Layers: []imagetest.Layer{imagetest.NewLayer(imagetest.Tar(files...), imagetest.Gzip)},
		Config: imagetest.Config{Cmd: []string{"sh"}},
	})
	project := w.Sub(t, "project")
	world.Write(t, filepath.Join(project, "envf"), "A=file\n")
	bash := func(line string) world.Result {
		return typeIn(t, w, project, "hutch "+strings.ReplaceAll(line, "REGISTRY/app:1", ref))
	}
	for _, l := range dockerLines {
		res := bash(l.line)
		if l.says == "" {
			if res.Code != 0 || !strings.Contains(res.Stdout, l.out) {
				t.Errorf("$ hutch %s\nexit %d, %q; %s", l.line, res.Code, res.Stdout, res.Stderr)
			}
			continue
		}
		if res.Code == 0 || !strings.Contains(res.Stderr, l.says) {
			t.Errorf("$ hutch %s\nexit %d, %q does not name %q", l.line, res.Code, res.Stderr, l.says)
		}
		if res := bash(l.then); res.Code != 0 {
			t.Errorf("$ hutch %s\nwhich the answer to %q has led to: exit %d; %s", l.then, l.line, res.Code, res.Stderr)
		}
	}
	w.AwaitNoSandbox(t)
}

// TestComplete: shells complete names of what there is, and nothing is started for that.
func TestComplete(t *testing.T) {
	testenv.Axes(t)
	t.Parallel()
	w := world.New(t)
	complete := func(words ...string) string {
		return w.OK(t, append([]string{"__complete"}, words...)...)
	}
	if out := complete("exec", ""); strings.Contains(out, "sb_") {
		t.Errorf("without a daemon: %q", out)
	}
	if _, err := os.Stat(w.Socket()); err == nil {
		t.Error("a daemon was started")
	}
	w.OK(t, "create", "--name", "box", "host")
	w.OK(t, "volume", "create", "kept")
	for want, words := range map[string][]string{
		"box\tsb_": {"exec", "b"}, "box\t": {"rm", "box", ""}, "host\t": {"run", "h"},
		"claude": {"run", "--template", ""}, "kept\n": {"volume", "rm", ""},
		"always\n": {"run", "--pull", ""}, "docker-archive\n": {"image", "save", "--format", ""},
	} {
		if out := complete(words...); !strings.Contains(out, want) {
			t.Errorf("%q: %q, want %q", words, out, want)
		}
	}
	if out := complete("exec", "box", ""); strings.Contains(out, "box") {
		t.Errorf("a command is no sandbox: %q", out)
	}
	w.OK(t, "rm", "-f", "box")
}
