package guest_test

import (
	"crypto/sha256"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/sys"
	"github.com/hutch-sh/hutch/runtime/guest/guestapi"
)

func argv(words ...string) guestapi.Request { return guestapi.Request{Argv: words} }

func TestExitStatus(t *testing.T) {
	eachKind(t, func(t *testing.T, s *sandbox) {
		for _, c := range []struct {
			script string
			code   int
			signal syscall.Signal
		}{
			{"exit 0", 0, 0},
			{"exit 7", 7, 0},
			{"exit 255", 255, 0},
			{"kill -TERM $$", -1, syscall.SIGTERM},
			{"kill -KILL $$", -1, syscall.SIGKILL},
			{"kill -SEGV $$", -1, syscall.SIGSEGV},
			{"kill -PIPE $$", -1, syscall.SIGPIPE},
		} {
			r := s.run(argv("sh", "-c", c.script))
			ws := syscall.WaitStatus(r.Status)
			if ws.ExitStatus() != c.code || c.signal != 0 && ws.Signal() != c.signal {
				t.Errorf("%s: status %#x, want code %d signal %d", c.script, r.Status, c.code, c.signal)
			}
		}
		r := s.run(argv("sh", "-c", "i=0; while [ $i -lt 30000 ]; do i=$((i+1)); done"))
		if u := r.Usage; u.UserUS+u.SystemUS <= 0 || u.MaxRSSKB <= 0 {
			t.Errorf("usage %+v", u)
		}
	})
}

func TestWho(t *testing.T) {
	eachKind(t, func(t *testing.T, s *sandbox) {
		got := s.sh(`echo $(id -u) $(id -g) $PPID $HOME $(pwd) $(umask); ps -o sid= -o pgid= -o pid= -p $$`)
		lines := strings.Split(got, "\n")
		if lines[0] != "0 0 1 /root / 0022" {
			t.Errorf("got %q", lines[0])
		}
		if f := strings.Fields(lines[1]); f[0] != f[2] || f[1] != f[2] {
			t.Errorf("sid, pgid, pid: %q: not a session leader", lines[1])
		}
		if got := s.sh("cat /proc/1/comm"); got != "hutch-init" {
			t.Errorf("PID 1 is called %q", got)
		}
		if got := s.sh("cat /proc/self/oom_score_adj"); got != "500" && got != "1000" {
			t.Errorf("oom_score_adj %s", got)
		}
	})
}

// What never runs says why, in the terms of a shell's exit codes.
func TestNotStarted(t *testing.T) {
	eachKind(t, func(t *testing.T, s *sandbox) {
		s.sh(`cd /tmp; mkdir bin dir bin/folder; echo 'exit 3' >plain; printf '\177ELF\0bad' >elf; printf '#!/nope\n' >noshebang
			chmod +x elf noshebang; cp plain bin/blocked; ln -s loop loop; mkfifo bin/fifo; chmod 755 bin/fifo`)
		path := []string{"PATH=/nonexistent:/tmp/bin:/tmp/elf/x:/usr/bin:/bin"}
		for _, c := range []struct {
			argv0  string
			reason guestapi.Reason
			errno  unix.Errno
		}{
			{"nope", guestapi.ReasonNotFound, unix.ENOENT},
			{"", guestapi.ReasonNotFound, unix.ENOENT},
			{"/tmp/nope", guestapi.ReasonNotFound, unix.ENOENT},
			{"/tmp/plain/x", guestapi.ReasonNotFound, unix.ENOTDIR},
			{"/tmp/noshebang", guestapi.ReasonNotFound, unix.ENOENT},
			{strings.Repeat("n", 300), guestapi.ReasonNotExecutable, unix.ENAMETOOLONG},
			{"/tmp/plain", guestapi.ReasonNotExecutable, unix.EACCES},
			{"/tmp/dir", guestapi.ReasonNotExecutable, unix.EACCES},
			{"folder", guestapi.ReasonNotExecutable, unix.EACCES},
			{"blocked", guestapi.ReasonNotExecutable, unix.EACCES},
			{"fifo", guestapi.ReasonNotExecutable, unix.EACCES},
			{"/tmp/elf", guestapi.ReasonNotExecutable, unix.ENOEXEC},
			{"/tmp/loop", guestapi.ReasonNotExecutable, unix.ELOOP},
		} {
			if c.errno == unix.ENAMETOOLONG {
				c.reason = guestapi.ReasonNotFound
			}
			f := s.startFails(guestapi.Request{Argv: []string{c.argv0}, Env: path}, c.reason)
			if f.Errno != int(c.errno) {
				t.Errorf("%q: errno %d, want %d (%s)", c.argv0, f.Errno, c.errno, f.Message)
			}
		}
		f := s.startFails(guestapi.Request{Argv: []string{"true"}, Cwd: "/tmp/nope"}, guestapi.ReasonBadCwd)
		if !strings.Contains(f.Message, "/tmp/nope") {
			t.Errorf("message %q does not name the folder", f.Message)
		}
		if got := s.sh("echo works"); got != "works" {
			t.Errorf("got %q", got)
		}
	})
}

func TestSearch(t *testing.T) {
	eachKind(t, func(t *testing.T, s *sandbox) {
		s.sh(`mkdir /tmp/a /tmp/b; echo 'echo "plain $0 $*"' >/tmp/b/tool; chmod +x /tmp/b/tool
			echo 'echo a' >/tmp/a/tool; : >/tmp/b/empty; chmod +x /tmp/b/empty`)
		for _, c := range []struct {
			req  guestapi.Request
			want string
		}{
			{guestapi.Request{Argv: []string{"tool", "x y", ""}, Env: []string{"PATH=/tmp/a:/tmp/b"}},
				"plain /tmp/b/tool x y \n"},
			{guestapi.Request{Argv: []string{"tool"}, Env: []string{"PATH=/tmp/b", "PATH=/tmp/a"}},
				"plain /tmp/b/tool \n"},
			{guestapi.Request{Argv: []string{"tool"}, Cwd: "/tmp/b", Env: []string{"PATH=:/usr/bin"}}, "plain tool \n"},
			{guestapi.Request{Argv: []string{"tool"}, Cwd: "/tmp/b", Env: []string{"PATH="}}, "plain tool \n"},
			{guestapi.Request{Argv: []string{"b/tool"}, Cwd: "/tmp"}, "plain b/tool \n"},
			{guestapi.Request{Argv: []string{"./tool", "1"}, Cwd: "/tmp/b"}, "plain ./tool 1\n"},
			{guestapi.Request{Argv: []string{"echo", "hi"}, Env: []string{"A=b"}}, "hi\n"},
			{guestapi.Request{Argv: []string{"/tmp/b/empty"}}, ""},
			{guestapi.Request{Command: "echo $0; echo a | tr a b"}, "/bin/bash\nb\n"},
			{guestapi.Request{Argv: []string{"env"}, Env: []string{"PATH=/bin", "X=1", "X=2", "HOME=/h", "odd"}},
				"PATH=/bin\nX=1\nX=2\nHOME=/h\nodd\n"},
		} {
			if r := s.run(c.req); r.out != c.want || r.Status != 0 {
				t.Errorf("%+v: %q (stderr %q, status %#x), want %q", c.req, r.out, r.errOut, r.Status, c.want)
			}
		}
	})
}

func TestWorkingFolder(t *testing.T) {
	s := newSandbox(t, rangeMap)
	r := s.run(guestapi.Request{Argv: []string{"pwd"}, Cwd: "/home/new/deep", MkCwd: true, User: "dev"})
	if r.out != "/home/new/deep\n" {
		t.Errorf("pwd: %q", r.out)
	}
	got := s.sh(`ln -s /home/new /tmp/link; stat -c '%u:%g %a %n' /home /home/new /home/new/deep`)
	if want := "0:0 755 /home\n1000:1000 755 /home/new\n1000:1000 755 /home/new/deep"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	// Existing folders keep their owner, links are followed.
	r = s.run(guestapi.Request{Argv: []string{"pwd", "-P"}, Cwd: "/tmp/link/deep/../x/", MkCwd: true})
	if r.out != "/home/new/x\n" {
		t.Errorf("pwd: %q", r.out)
	}
	s.sh("mkdir /tmp/closed; chmod 700 /tmp/closed; ln -s nowhere /tmp/dangling; : >/tmp/file")
	for _, dir := range []string{"/tmp/closed", "/tmp/dangling", "/tmp/file", "/tmp/file/x", "/proc/1/root"} {
		s.startFails(guestapi.Request{Argv: []string{"pwd"}, Cwd: dir, MkCwd: true, User: "1000"},
			guestapi.ReasonBadCwd)
	}
}

func TestLargeRequest(t *testing.T) {
	eachKind(t, func(t *testing.T, s *sandbox) {
		env := []string{"PATH=/usr/bin:/bin"}
		size := 0
		for i := 0; size < 1500<<10; i++ {
			kv := fmt.Sprintf("V%d=%s", i, strings.Repeat("x", 100<<10))
			env, size = append(env, kv), size+len(kv)
		}
		r := s.run(guestapi.Request{Argv: []string{"sh", "-c", "env | wc -c"}, Env: env})
		if r.Status != 0 || len(r.out) < 8 {
			t.Errorf("status %#x: %q %q", r.Status, r.out, r.errOut)
		}
		f := s.startFails(guestapi.Request{Argv: []string{"true"}, Env: append(env, env...)}, guestapi.ReasonTooBig)
		if f.Errno != int(unix.E2BIG) || !strings.Contains(f.Message, "2 MiB") {
			t.Errorf("errno %d: %s", f.Errno, f.Message)
		}
		f = s.startFails(guestapi.Request{Argv: []string{"true", strings.Repeat("x", maxArgLen+1)}},
			guestapi.ReasonTooBig)
		if !strings.Contains(f.Message, "argument 1 has 131072 bytes, and an argument can have 131071") {
			t.Error(f.Message)
		}
		// A command is no argument: what a model writes into a here-document has any length.
		const text = "here: $(exit 3) 'x' \\ \"$0\" `no`\n"
		for _, n := range []int{maxArgLen - 40, 3*maxArgLen + 5} {
			body := strings.Repeat(text, n/len(text)+1)
			r := s.run(guestapi.Request{Command: "cat <<'END' | sha256sum\n" + body + "END\necho \"$#\"; exit 7"})
			if want := fmt.Sprintf("%x  -\n0\n", sha256.Sum256([]byte(body))); r.out != want || r.Status>>8 != 7 {
				t.Errorf("a command of %d bytes: status %#x, %q, want %q; %.200q", n, r.Status, r.out, want, r.errOut)
			}
		}
	})
}

// maxArgLen is MAX_ARG_STRLEN without the NUL.
const maxArgLen = 131071

// A command gets stdio and nothing else, default signals and its own filter.
func TestCleanStart(t *testing.T) {
	eachKind(t, func(t *testing.T, s *sandbox) {
		// One more fd is ls's own.
		if got := s.run(argv("ls", "/proc/self/fd")).out; got != "0\n1\n2\n3\n" {
			t.Errorf("fds: %q", got)
		}
		got := s.run(argv("grep", "-E", "^(SigIgn|SigBlk|SigCgt|NoNewPrivs|Seccomp.*):", "/proc/self/status")).out
		for _, want := range []string{"SigIgn:\t0000000000000000", "SigBlk:\t0000000000000000", "NoNewPrivs:\t1",
			"Seccomp_filters:\t2"} {
			if !strings.Contains(got, want+"\n") {
				t.Errorf("status has no %q: %s", want, got)
			}
		}
		r := s.run(argv("/self", "sysinfo"))
		if !strings.Contains(r.errOut, unix.ENOTUNIQ.Error()) {
			t.Errorf("the exec filter is not in force: %q", r.errOut)
		}
		// The twin: it fails by the filter, not by itself.
		var info unix.Sysinfo_t
		if err := unix.Sysinfo(&info); err != nil {
			t.Error(err)
		}
		if got := s.sh("env -i sh -c 'cat /proc/self/environ | tr \\\\0 x'; env | grep SECRET || true"); strings.Contains(got, "SECRET") {
			t.Errorf("the launcher's environment got through: %q", got)
		}
	})
}

func TestRlimits(t *testing.T) {
	eachKind(t, func(t *testing.T, s *sandbox) {
		r := s.run(guestapi.Request{Argv: []string{"sh", "-c", "ulimit -n; ulimit -Hn; ulimit -c"},
			Rlimits: []guestapi.Rlimit{
				{Resource: unix.RLIMIT_NOFILE, Soft: 100, Hard: 200}, {Resource: unix.RLIMIT_CORE},
			}})
		if r.out != "100\n200\n0\n" {
			t.Errorf("got %q", r.out)
		}
		f := s.startFails(guestapi.Request{Argv: []string{"true"},
			Rlimits: []guestapi.Rlimit{{Resource: unix.RLIMIT_NOFILE, Soft: 2, Hard: 1}}},
			guestapi.ReasonInternal)
		if f.Errno != int(unix.EINVAL) || !strings.Contains(f.Message, "rlimit") {
			t.Errorf("%+v", f)
		}
	})
}

func TestConcurrent(t *testing.T) {
	eachKind(t, func(t *testing.T, s *sandbox) {
		var wg sync.WaitGroup
		const n = 200
		for i := range n {
			wg.Go(func() {
				_, wait, err := s.start(argv("sh", "-c", fmt.Sprintf("echo %d; exit %d", i, i)))
				if err != nil {
					t.Error(err)
					return
				}
				if r := wait(); r.out != fmt.Sprintf("%d\n", i) || r.code() != i {
					t.Errorf("exec %d: %q, code %d", i, r.out, r.code())
				}
			})
		}
		wg.Wait()
		if got := s.sh("ls /proc/1/task | wc -l; ls /proc/1/fd | wc -l"); t.Failed() {
			t.Log("PID 1's threads and fds:", got)
		}
	})
}

// Large output is between the command and its reader.
func TestLargeOutput(t *testing.T) {
	s := newSandbox(t, singleMap)
	r := s.run(argv("sh", "-c", "head -c 20000000 /dev/zero"))
	if len(r.out) != 20000000 {
		t.Errorf("%d bytes", len(r.out))
	}
}

// A TTY is the command's controlling terminal: Ctrl-C is SIGINT.
func TestTTY(t *testing.T) {
	eachKind(t, func(t *testing.T, s *sandbox) {
		master, slave := pty(t)
		e, err := s.Start(t.Context(), guestapi.Request{
			Argv: []string{"sh", "-c",
				`trap 'echo got INT; exit 5' INT; : </dev/tty && [ -t 0 ] && [ -t 2 ] && echo ready; while :; do sleep 1; done`},
			Env: []string{"PATH=/usr/bin:/bin"}, TTY: true,
		}, []*os.File{slave})
		_ = slave.Close()
		if err != nil {
			t.Fatal(err)
		}
		until(t, master, "ready")
		if _, err := master.Write([]byte{3}); err != nil {
			t.Fatal(err)
		}
		until(t, master, "got INT")
		ev, err := e.Wait(t.Context())
		if err != nil || syscall.WaitStatus(ev.Status).ExitStatus() != 5 {
			t.Errorf("%+v, %v", ev, err)
		}
	})
}

// pty opens a pseudo terminal of the host.
func pty(t *testing.T) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = master.Close() })
	fd := int(master.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	return master, slave
}

func until(t *testing.T, r *os.File, want string) {
	t.Helper()
	var got strings.Builder
	buf := make([]byte, 1024)
	for !strings.Contains(got.String(), want) {
		n, err := sys.ReadMaster(r.Read, buf)
		if err != nil {
			t.Fatalf("read %q, then %v", got.String(), err)
		}
		got.Write(buf[:n])
	}
}
