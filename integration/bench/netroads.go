package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/client"
)

func openDirect(ctx context.Context, h *Host) (*road, error) {
	bin, err := h.netload(ctx)
	if err != nil {
		return nil, err
	}
	l, _, err := h.loadBy(nil, 0, bin)
	return &road{command: "netload", load: l, address: "127.0.0.1"}, err
}

// loadBy starts a netload by a command, in these new namespaces. In a new user namespace
// it is root: pasta will not be the host's, and the tap device opens for its owner only.
func (h *Host) loadBy(more []*os.File, namespaces uintptr, argv ...string) (*load, *os.Process, error) {
	attr := &os.ProcAttr{Dir: h.dir, Env: h.environ(), Sys: h.sysProcAttr()}
	if attr.Sys.Cloneflags = namespaces; namespaces&syscall.CLONE_NEWUSER != 0 {
		attr.Sys.UidMappings = []syscall.SysProcIDMap{{HostID: h.uid, Size: 1}}
		attr.Sys.GidMappings = []syscall.SysProcIDMap{{HostID: h.gid, Size: 1}}
	}
	var proc *os.Process
	l, err := h.startLoad(func(stdin, stdout, stderr *os.File) (wait func() error, err error) {
		attr.Files = append([]*os.File{stdin, stdout, stderr}, more...)
		proc, err = os.StartProcess(argv[0], argv, attr)
		return func() error {
			state, err := proc.Wait()
			if err == nil && !state.Success() {
				err = errors.New(state.String())
			}
			return err
		}, err
	})
	if err == nil {
		l.kill = func() { _ = unix.Kill(-proc.Pid, unix.SIGKILL) } // it may have ended
	}
	return l, proc, err
}

// The daemons whose sandboxes connect to the servers, by the name of their state folder.
const (
	network   = "network"
	noEBPF    = "no-ebpf"   // policies are the proxy's alone
	audited   = "audited"   // each connection is recorded, not only refused ones
	unaudited = "unaudited" // nothing is recorded
)

// networkDaemon is one of them, and a connection to it.
func (h *Host) networkDaemon(ctx context.Context, state string) (*daemon, *client.Client, error) {
	if err := h.needOwnDaemon(); err != nil {
		return nil, nil, err
	}
	if h.netDaemons[state] == nil {
		s, err := h.serve()
		if err != nil {
			return nil, nil, err
		}
		vars := []string{"HUTCH_NETWORK_RESOLVER=" + s.dns}
		config := map[string]string{audited: "audit: {connections: all}\n",
			unaudited: "audit: {enabled: false}\n"}[state]
		switch {
		case state == noEBPF:
			vars = append(vars, "HUTCH_EBPF=off")
		case config != "":
			file, err := h.write(state+".yaml", []byte(config))
			if err != nil {
				return nil, nil, err
			}
			if err := h.approve(file, state); err != nil {
				return nil, nil, err
			}
			vars = append(vars, "HUTCH_CONFIG="+file)
		}
		d, err := h.startDaemon(ctx, state, vars...)
		if err != nil {
			return nil, nil, err
		}
		if h.netDaemons == nil {
			h.netDaemons = map[string]*daemon{}
		}
		h.netDaemons[state] = d
	}
	c, err := h.dial(ctx, state)
	return h.netDaemons[state], c, err
}

// dial connects to the daemon with a state folder of that name, until the end.
func (h *Host) dial(ctx context.Context, state string) (*client.Client, error) {
	if err := h.needOwnDaemon(); err != nil {
		return nil, err
	}
	c, err := client.Dial(ctx, h.path("run", state+".sock"))
	if err != nil {
		return nil, err
	}
	h.undo.Add(c.Close)
	return c, nil
}

// needOwnDaemon finds out whether this process can be a daemon's client.
func (h *Host) needOwnDaemon() error {
	if h.uid != os.Geteuid() {
		return &Unavailable{HostKind, "the client is this process, and the daemon another user's",
			"run bench as that user"}
	}
	return nil
}

func openHutch(ctx context.Context, h *Host) (*road, error) { return h.hutchRoad(ctx, network, 0) }

func openHutchRules(ctx context.Context, h *Host) (*road, error) {
	return h.hutchRoad(ctx, network, manyRules)
}

// openHutchOf is openHutch with another daemon.
func openHutchOf(state string) func(context.Context, *Host) (*road, error) {
	return func(ctx context.Context, h *Host) (*road, error) { return h.hutchRoad(ctx, state, 0) }
}

// policy lets a sandbox reach the servers by name, and has more entries for other names.
func (s *servers) policy(more int) api.NetPolicy {
	p := api.NetPolicy{Mode: api.NetAllow, AllowCIDRs: []string{"127.0.0.1"},
		Allow: []string{fmt.Sprintf("bench.test:%d", s.http)}}
	for _, port := range []uint16{s.byte, s.source, s.sink} {
		p.Allow = append(p.Allow, fmt.Sprintf("tcp://bench.test:%d", port))
	}
	for i := range more {
		p.Allow = append(p.Allow, fmt.Sprintf("host%d.example%d.test", i, i%100))
	}
	return p
}

// hutchRoad leads out of a sandbox that may reach the servers, with so many entries more.
func (h *Host) hutchRoad(ctx context.Context, state string, more int) (*road, error) {
	bin, err := h.netload(ctx)
	if err != nil {
		return nil, err
	}
	d, c, err := h.networkDaemon(ctx, state)
	if err != nil {
		return nil, err
	}
	s, err := h.serve()
	if err != nil {
		return nil, err
	}
	policy, err := json.Marshal(s.policy(more))
	if err != nil {
		return nil, err
	}
	file, err := h.write(fmt.Sprintf("policy-%d.json", more), policy)
	if err != nil {
		return nil, err
	}
	// By the command, which opens the folder that is mounted.
	id, err := h.output(ctx, d.env, d.hutch, "create", "-v", filepath.Dir(bin)+":/netload:ro", "--policy", file, "host")
	if err != nil {
		return nil, err
	}
	sb, err := c.GetSandbox(ctx, id)
	if err != nil {
		return nil, err
	}
	hutchd, err := hutchdOf(sb.PID)
	if err != nil {
		return nil, err
	}
	res, err := c.ExecRun(ctx, api.ExecParams{Sandbox: id, Argv: []string{"getent", "hosts", "bench.test"}}, nil, nil)
	if err != nil {
		return nil, err
	}
	address, _, ok := strings.Cut(res.Stdout, " ")
	if !ok {
		return nil, fmt.Errorf("getent hosts bench.test in a sandbox: exit code %d, %q", res.ExitCode, res.Stdout+
			res.Stderr)
	}
	l, err := h.loadIn(ctx, c, id)
	return &road{
		command: fmt.Sprintf("hutch create --policy FILE host; hutch exec netload (%d entries)", more+4), load: l,
		address: address, hutchd: hutchd, more: func() (*load, error) { return h.loadIn(ctx, c, id) },
		version: h.version(ctx, d.hutch, "version"), busy: func() (time.Duration, error) { return cpuOf(hutchd) },
	}, err
}

// loadIn starts a netload in a sandbox.
func (h *Host) loadIn(ctx context.Context, c *client.Client, id string, args ...string) (*load, error) {
	return h.startLoad(func(stdin, stdout, stderr *os.File) (func() error, error) {
		long := 900.0
		return func() error {
			res, err := c.ExecRun(context.WithoutCancel(ctx),
				api.ExecParams{Sandbox: id, Argv: append([]string{"/netload/netload"}, args...), TimeoutS: &long},
				&client.Stdio{Stdin: stdin, Stdout: stdout, Stderr: stderr}, nil)
			if err == nil && res.ExitCode != 0 {
				err = fmt.Errorf("exit code %d", res.ExitCode)
			}
			return err
		}, nil
	})
}

// gateway is where the peers' namespaces find the host's loopback.
const gateway = "10.0.2.2"

// openPasta starts pasta, with all servers' ports forwarded as well.
func openPasta(ctx context.Context, h *Host) (*road, error) {
	pasta, err := needTool("pasta", "passt")
	if err != nil {
		return nil, err
	}
	bin, err := h.netload(ctx)
	if err != nil {
		return nil, err
	}
	s, err := h.serve()
	if err != nil {
		return nil, err
	}
	if err := h.needTap(); err != nil {
		return nil, err
	}
	argv := []string{pasta, "--quiet", "--foreground", "--config-net", "--address", "10.0.2.100", "--netmask", "24",
		"--gateway", gateway,
		"--ipv4-only", "-t", "none", "-u", "none", "-U", "none", "-T",
		fmt.Sprintf("%d,%d,%d,%d", s.byte, s.source, s.sink, s.http), "--", bin}
	l, proc, err := h.loadBy(nil, syscall.CLONE_NEWUSER, argv...)
	if err != nil {
		return nil, err
	}
	r := &road{command: shellLine(argv), version: h.version(ctx, pasta, "--version"), load: l, address: gateway,
		busy: func() (time.Duration, error) { return cpuOfGroup(proc.Pid, filepath.Base(bin)) }}
	if _, err := l.do("connect", target{gateway, s.byte}, 1); err != nil {
		return nil, &Unavailable{HostKind, "pasta makes no connection: " + err.Error(), ""}
	}
	return r, nil
}

// openPastaLocal starts another pasta: one whose streams have stalled (Debian 12's does that)
// must not take the other mode with it.
func openPastaLocal(ctx context.Context, h *Host) (*road, error) {
	r, err := openPasta(ctx, h)
	if err != nil {
		return nil, err
	}
	r.address = "127.0.0.1"
	return r, nil
}

// openSlirp starts a netload in a namespace, and slirp4netns for it.
func openSlirp(ctx context.Context, h *Host) (_ *road, err error) {
	slirp, err := needTool("slirp4netns", "slirp4netns")
	if err != nil {
		return nil, err
	}
	bin, err := h.netload(ctx)
	if err != nil {
		return nil, err
	}
	if err := h.needTap(); err != nil {
		return nil, err
	}
	l, holder, err := h.loadBy(nil, syscall.CLONE_NEWUSER|syscall.CLONE_NEWNET, bin)
	if err != nil {
		return nil, err
	}
	ready, say, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer ready.Close()
	ended, end, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer ended.Close()
	argv := []string{slirp, "--configure", "--mtu=65520", "--ready-fd=3", "--exit-fd=4", fmt.Sprint(holder.Pid), "tap0"}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	proc, err := os.StartProcess(slirp, argv, &os.ProcAttr{Dir: h.dir, Env: h.environ(), Sys: h.sysProcAttr(),
		Files: []*os.File{null, null, null, say, ended}})
	err = errors.Join(err, say.Close())
	if err != nil {
		return nil, err
	}
	h.undo.Add(func() error {
		err := end.Close()
		_, gone := proc.Wait()
		return errors.Join(err, gone)
	})
	if _, err := bufio.NewReader(ready).ReadByte(); err != nil {
		return nil, &Unavailable{HostKind, "slirp4netns makes no network: " + shellLine(argv), ""}
	}
	return &road{command: shellLine(argv), version: h.version(ctx, slirp, "--version"), load: l, address: gateway,
		busy: func() (time.Duration, error) { return cpuOfGroup(proc.Pid, "") }}, nil
}

// needTap finds out whether the user may make tap devices.
func (h *Host) needTap() error {
	if h.uid != os.Geteuid() {
		return &Unavailable{HostKind, "its namespaces are this process's user's", "run bench as that user"}
	}
	f, err := os.OpenFile("/dev/net/tun", os.O_RDWR, 0)
	if err != nil {
		return &Unavailable{HostKind, err.Error(), "modprobe tun, and let the user open it"}
	}
	return f.Close()
}
