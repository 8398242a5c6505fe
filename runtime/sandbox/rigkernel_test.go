package sandbox

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/sys"
	"github.com/hutch-sh/hutch/runtime/guest/guestapi"
)

// fakeKernel knows the PID 1s that there are, by numbers that no process of Linux has. What is mounted is a mere list,
// and what proc(5) would say is in files.
type fakeKernel struct {
	r *rig

	mu      sync.Mutex
	last    int
	inits   map[int]*fakeInit
	mounted map[string]bool
}

// firstPID is above the highest that Linux gives (PID_MAX_LIMIT).
const firstPID = 1 << 22

func (k *fakeKernel) count() map[string]int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return map[string]int{"mounts": len(k.mounted), "processes": len(k.inits)}
}

// spawn makes a PID 1 in a network namespace, with what proc(5) says of one that has every wall.
func (k *fakeKernel) spawn(id string, netns *os.File) (*fakeInit, error) {
	k.mu.Lock()
	k.last++
	p := &fakeInit{r: k.r, id: id, pid: firstPID + k.last, dead: make(chan struct{}), execs: map[uint64]*command{},
		conn: newChannel()}
	p.conn.init = p
	k.inits[p.pid] = p
	k.mu.Unlock()
	dir := k.Proc(p.pid)
	for _, sub := range []string{"ns", "task/" + strconv.Itoa(p.pid)} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			return nil, err
		}
	}
	for _, ns := range []string{"user", "pid", "mnt", "ipc", "uts", "cgroup"} {
		if err := os.Symlink(fmt.Sprintf("%s:[%d]", ns, p.pid), filepath.Join(dir, "ns", ns)); err != nil {
			return nil, err
		}
	}
	if err := os.Symlink(netns.Name(), filepath.Join(dir, "ns/net")); err != nil {
		return nil, err
	}
	for name, text := range map[string]string{
		"status": "Name:\thutch-init\nCapBnd:\t00000000000000c0\nNoNewPrivs:\t1\nSeccomp:\t2\nSeccomp_filters:\t1\n",
		"task/" + strconv.Itoa(p.pid) + "/children": "",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// reap forgets a PID 1 that is dead.
func (k *fakeKernel) reap(p *fakeInit) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.inits, p.pid)
	_ = os.RemoveAll(k.Proc(p.pid))
}

func (k *fakeKernel) Tmpfs(_ []sys.FSOption, _ int) (*os.File, error) {
	if err := k.r.points.at("Kernel.Tmpfs"); err != nil {
		return nil, err
	}
	return os.Open(filepath.Join(k.r.dir, "mounts"))
}

func (k *fakeKernel) Attach(_ *os.File, at string) error {
	if err := k.r.points.at("Kernel.Attach"); err != nil {
		return err
	}
	if st, err := os.Stat(at); err != nil || !st.IsDir() {
		return fmt.Errorf("attach at %s: %w", at, unix.ENOTDIR)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.mounted[at] {
		return fmt.Errorf("attach at %s: %w", at, unix.EBUSY)
	}
	k.mounted[at] = true
	return nil
}

func (k *fakeKernel) Reconfigure(string, []sys.FSOption) error {
	return k.r.points.at("Kernel.Reconfigure")
}

// Unmount empties the folder, which was the root of a file system of its own.
func (k *fakeKernel) Unmount(at string) error {
	if err := k.r.points.at("Kernel.Unmount"); err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.mounted[at] {
		return unix.EINVAL
	}
	delete(k.mounted, at)
	entries, err := os.ReadDir(at)
	for _, e := range entries {
		_ = os.RemoveAll(filepath.Join(at, e.Name()))
	}
	return err
}

func (k *fakeKernel) Proc(pid int) string { return filepath.Join(k.r.dir, "proc", strconv.Itoa(pid)) }

// byFile is the PID 1 of a pidfd or of an end of a guest channel, which have its number for a name.
func (k *fakeKernel) byFile(f *os.File) (*fakeInit, error) {
	pid, err := strconv.Atoi(f.Name())
	if err != nil {
		return nil, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	p := k.inits[pid]
	if p == nil {
		return nil, unix.ESRCH
	}
	return p, nil
}

func (k *fakeKernel) Channel(conn *os.File) (guestapi.Conn, error) {
	defer conn.Close()
	if err := k.r.points.at("Kernel.Channel"); err != nil {
		return nil, err
	}
	p, err := k.byFile(conn)
	if err != nil {
		return nil, err
	}
	return p.conn, nil
}

func (k *fakeKernel) Kill(pidfd *os.File) error {
	if err := k.r.points.at("Kernel.Kill"); err != nil {
		return err
	}
	if p, err := k.byFile(pidfd); err == nil {
		p.die(int(unix.SIGKILL))
	}
	return nil
}

func (k *fakeKernel) Exited(pidfd *os.File) (bool, error) {
	_, err := k.byFile(pidfd)
	return err != nil, nil
}

func (k *fakeKernel) AwaitExit(pidfd *os.File) {
	if p, err := k.byFile(pidfd); err == nil {
		<-p.dead
	}
}
