package alone_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/api"
)

// attackMemory is how much hutchd may take whatever one sandbox or client does, in MB.
const attackMemory = 300

// TestAttacksBounded: what one sandbox or one client makes hutchd look at costs it no more memory than there is, and
// others are served meanwhile.
func TestAttacksBounded(t *testing.T) {
	testenv.Axes(t, testenv.Privilege)
	testenv.Suite(t, "many")
	w := world.New(t)
	world.NeedsPython(t)
	c := w.Connect(t)
	neighbour := w.Create(t, "host")
	project := w.Sub(t, "project")
	for name, attack := range map[string]func(t *testing.T){
		// Each name takes more memory than it takes the sandbox to make it.
		"names of a diff": func(t *testing.T) {
			sb := w.Create(t, "--workspace", project+":overlay", "host")
			res := world.Ran(t, c, sb,
				"python3 -c 'import os\nfor i in range(40000): open(\"%05d\" % i + \"n\" * 240, \"w\").close()'")
			if res.ExitCode != 0 {
				t.Fatalf("%+v", res)
			}
			after := ""
			for names := 0; ; {
				d, err := c.DiffWorkspace(t.Context(), api.WorkspaceDiffParams{
					WorkspaceParams: api.WorkspaceParams{Sandbox: sb}, Unified: after == "", After: after})
				if err != nil {
					t.Fatal(err)
				}
				if names, after = names+len(d.Changes), d.Next; after == "" {
					if names != 40000 {
						t.Errorf("%d names", names)
					}
					break
				}
			}
			w.OK(t, "rm", "-f", sb)
		},
		"text of a diff": func(t *testing.T) {
			sb := w.Create(t, "--workspace", project+":overlay", "host")
			res := world.Ran(t, c, sb, "for i in $(seq 60); do seq 1 20000 >$i; done")
			if res.ExitCode != 0 {
				t.Fatalf("%+v", res)
			}
			d, err := c.DiffWorkspace(t.Context(), api.WorkspaceDiffParams{
				WorkspaceParams: api.WorkspaceParams{Sandbox: sb}, Unified: true})
			if err != nil || !d.Truncated || len(d.Diff) > 2*api.DefaultDiffBytes {
				t.Errorf("%v, truncated %v, %d bytes", err, d.Truncated, len(d.Diff))
			}
			w.OK(t, "rm", "-f", sb)
		},
		"requests without an end": func(t *testing.T) {
			line := []byte(`{"jsonrpc":"2.0","id":1,"method":"` + strings.Repeat("x", 4<<20))
			var conns []net.Conn
			for range 300 {
				conn, err := net.Dial("unix", w.Socket())
				if err != nil {
					break // as many as it takes
				}
				conns = append(conns, conn)
				_ = conn.(*net.UnixConn).SetWriteBuffer(1 << 20)
				go func() { _, _ = conn.Write(line) }()
			}
			if got := w.OK(t, "exec", neighbour, "--", "echo", "served"); got != "served\n" {
				t.Errorf("the neighbour: %q", got)
			}
			for _, conn := range conns {
				_ = conn.Close()
			}
		},
		"output that nobody reads": func(t *testing.T) {
			for range 8 {
				res := world.Ran(t, c, neighbour, "head -c 60000000 /dev/zero | tr '\\0' y")
				if !res.Truncated {
					t.Errorf("%d bytes, whole", len(res.Stdout))
				}
			}
		},
		"a file of holes": func(t *testing.T) {
			sb := w.Create(t, "--workspace", project+":overlay", "host")
			res := world.Ran(t, c, sb, "truncate -s 3G holes")
			if res.ExitCode != 0 {
				t.Fatalf("%+v", res)
			}
			w.Run(t, "workspace", "diff", sb)
			w.Run(t, "workspace", "apply", sb, "holes")
			if st, err := os.Stat(filepath.Join(project, "holes")); err == nil {
				if size := st.Sys().(*syscall.Stat_t).Blocks * 512; size > 1<<20 {
					t.Errorf("the file takes %d bytes outside", size)
				}
				_ = os.Remove(filepath.Join(project, "holes"))
			}
			w.OK(t, "rm", "-f", sb)
		},
	} {
		hutchd := w.Daemon(t).Hutchd
		// From here on the peak counts anew (proc_pid_clear_refs(5)).
		if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", hutchd), []byte("5"), 0); err != nil &&
			os.Geteuid() == 0 {
			t.Fatal(err)
		}
		t.Run(name, attack)
		if d := w.Daemon(t).Hutchd; d != hutchd {
			t.Errorf("%s: hutchd %d was replaced by %d", name, hutchd, d)
			continue
		}
		peak := world.Memory(t, hutchd, "VmHWM")
		t.Logf("%s: %d MB", name, peak)
		if peak > attackMemory {
			t.Errorf("%s: hutchd took %d MB, more than %d", name, peak, attackMemory)
		}
		if got := w.OK(t, "exec", neighbour, "--", "echo", "served"); got != "served\n" {
			t.Errorf("the neighbour after %s: %q", name, got)
		}
	}
	w.OK(t, "rm", "-f", neighbour)
}
