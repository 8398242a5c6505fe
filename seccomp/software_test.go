//go:build cgo

package seccomp

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/internal/probe"
	"github.com/hutch-sh/hutch/internal/testenv"
)

// everyday are programs that must run under the default profile, each with a
// use that makes unusual calls. Output must contain want.
var everyday = []struct {
	name string
	argv []string
	want string
}{
	{"sh", []string{"sh", "-c", `set -e; d=$(mktemp -d); cd $d; echo a | tee b >c; ln -s b l; cp -a . ../$(basename $d).2
		tar c . | tar t >/dev/null; find . -newer b >/dev/null; ls -laR >/dev/null; (sleep 0 & wait); chmod 600 b
		rm -r $d $d.2; ulimit -n >/dev/null; id; echo 42`}, "42"},
	{"python3", []string{"python3", "-c", `
import asyncio, ctypes, mmap, multiprocessing, os, socket, subprocess, tempfile, threading
ts = [threading.Thread(target=lambda: None) for _ in range(8)]
[t.start() for t in ts]; [t.join() for t in ts]
with multiprocessing.Pool(2) as p: assert p.map(abs, [-1, -2]) == [1, 2]
assert subprocess.check_output(["echo", "x"]) == b"x\n"
async def main():
    s = await asyncio.start_server(lambda r, w: w.close(), "127.0.0.1", 0)
    r, w = await asyncio.open_connection(*s.sockets[0].getsockname())
    assert await r.read() == b""
    p = await asyncio.create_subprocess_exec("true"); assert await p.wait() == 0
    w.close(); s.close()
asyncio.run(main())
socket.getaddrinfo("localhost", 80); socket.socketpair(); socket.if_nameindex()
mmap.mmap(-1, 4096).close(); os.memfd_create("m"); os.sched_getaffinity(0)
with tempfile.TemporaryFile() as f: os.posix_fallocate(f.fileno(), 0, 4096)
print(6*7)`}, "42"},
	{"node", []string{"node", "-e", `
const {Worker} = require("worker_threads"), fs = require("fs"), os = require("os"), http = require("http");
os.networkInterfaces(); fs.readdirSync("/"); require("child_process").execSync("true");
const s = http.createServer((q, r) => r.end("ok")).listen(0, "127.0.0.1", () =>
  http.get({port: s.address().port, host: "127.0.0.1"}, r => { r.resume(); r.on("end", () => { s.close();
    new Worker("require('worker_threads').parentPort.postMessage(6*7)", {eval: true}).on("message", console.log) }) }));`}, "42"},
	{"npm", []string{"npm", "--version"}, "."},
	{"git", []string{"sh", "-c", `set -e; d=$(mktemp -d); cd $d; export HOME=$d GIT_CONFIG_NOSYSTEM=1
		git init -q .; echo x >f; git add f; git -c user.name=n -c user.email=e@x commit -qm m
		git clone -q . copy; git -C copy log --format=%s; git gc -q; rm -rf $d`}, "m"},
	{"gcc", []string{"sh", "-c", `set -e; d=$(mktemp -d); cd $d; cat >t.c <<'E'
#include <pthread.h>
#include <stdio.h>
static void *f(void *p) { return p; }
int main(void) { pthread_t t; void *r; if (pthread_create(&t, 0, f, (void *)42)) return 1; pthread_join(t, &r); printf("%ld\n", (long)r); }
E
		gcc -O1 -pthread t.c -o t; ./t; gcc -static -pthread t.c -o s; ./s; rm -rf $d`}, "42\n42"},
	{"gdb", []string{"gdb", "-q", "-batch", "-ex", "run", "-ex", "print 6*7", "--args", "/bin/true"},
		"exited normally"},
	{"strace", []string{"strace", "-f", "-o", "/dev/null", "sh", "-c", "echo 42"}, "42"},
	{"go", []string{"sh", "-c", `set -e; d=$(mktemp -d); cd $d; export GOFLAGS= GOWORK=off
		printf 'package main\nfunc main() { c := make(chan int); go func() { c <- 42 }(); println(<-c) }\n' >m.go
		go run m.go 2>&1; rm -rf $d`}, "42"},
	{"apt-get", []string{"apt-get", "-s", "-o", "Debug::NoLocking=1", "check"}, ""},
	{"dpkg", []string{"dpkg", "-s", "dpkg"}, "installed"},
	{"java", []string{"java", "-version"}, "version"},
	{"perl", []string{"perl", "-e", `my $p = fork // die; exit 0 unless $p; waitpid $p, 0; print 6*7`}, "42"},
	{"setarch", []string{"setarch", "-R", "echo", "42"}, "42"},
	{"flock", []string{"flock", "/", "echo", "42"}, "42"},
	{"timeout", []string{"timeout", "60", "echo", "42"}, "42"},
}

// installed returns the path of a program. It skips t where there is none: everybody's
// software is more than the tests ask for, hence not testenv.Programs, whose remedy does
// not install it.
func installed(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		testenv.Require(t, probe.Check{Name: name, Status: probe.No, Detail: "not installed", Remedy: "install it"})
	}
	return path
}

// TestEverydaySoftware runs real programs under the default profile.
func TestEverydaySoftware(t *testing.T) {
	prog := mustCompile(t, Default()).BPF
	for _, tt := range everyday {
		t.Run(tt.name, func(t *testing.T) {
			installed(t, tt.name)
			path := installed(t, tt.argv[0])
			out, err := childCommand(prog, "exec", append([]string{path}, tt.argv[1:]...)...).CombinedOutput()
			if err == nil && strings.Contains(string(out), tt.want) {
				return
			}
			// The twin: a program that fails without a filter as well is broken here.
			twin, twinErr := childCommand(nil, "exec", append([]string{path}, tt.argv[1:]...)...).CombinedOutput()
			if twinErr != nil || !strings.Contains(string(twin), tt.want) {
				testenv.Require(t, probe.Check{
					Name: tt.name, Status: probe.Inconclusive,
					Detail: fmt.Sprintf("fails without a filter as well: %v: %s", twinErr, twin),
				})
			}
			t.Errorf("%v: %s", err, out)
		})
	}
}

// TestNamespacesRefused: the same tool is refused a namespace and allowed
// everything else.
func TestNamespacesRefused(t *testing.T) {
	path := installed(t, "unshare")
	for name, p := range map[string]Profile{DefaultName: Default(), InitName: Init()} {
		prog := mustCompile(t, p).BPF
		if out, err := childCommand(prog, "exec", path, "true").CombinedOutput(); err != nil {
			t.Errorf("%s: unshare of nothing: %v: %s", name, err, out)
		}
		for _, flag := range []string{"-U", "-m", "-p", "-n", "-i", "-u", "-C", "-T"} {
			out, err := childCommand(prog, "exec", path, flag, "true").CombinedOutput()
			if err == nil || !strings.Contains(string(out), "Operation not permitted") {
				t.Errorf("%s: unshare %s: %v: %s", name, flag, err, out)
			}
		}
	}
}
