package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/bits"
	"os"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/cgroups"
	"github.com/hutch-sh/hutch/internal/config"
	"github.com/hutch-sh/hutch/internal/probe"
	"github.com/hutch-sh/hutch/internal/sys"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/isolation"
	"github.com/hutch-sh/hutch/runtime/monitor/monitorapi"
	"github.com/hutch-sh/hutch/runtime/sandbox"
	"github.com/hutch-sh/hutch/runtime/spec"
	"github.com/hutch-sh/hutch/runtime/template"
)

// findCPUs finds out which CPUs there are (0 to CPUs-1), which there could be, and which sandboxes may use: hutchd
// itself may be bound to fewer.
func findCPUs(h *sandbox.Host) {
	allowed := unix.CPUSet{}
	_ = unix.SchedGetaffinity(0, &allowed)
	for cpu := range len(allowed) * bits.UintSize {
		if allowed.IsSet(cpu) {
			h.Allowed = append(h.Allowed, cpu)
		}
	}
	if len(h.Allowed) == 0 { // more CPUs than a set has room for
		h.Allowed = cpusUpTo(runtime.NumCPU())
	}
	h.CPUs = h.Allowed[len(h.Allowed)-1] + 1
	if online := readCPUs("online"); len(online) > 0 {
		h.CPUs = online[len(online)-1] + 1
	}
	if h.Possible = readCPUs("possible"); len(h.Possible) == 0 {
		h.Possible = cpusUpTo(h.CPUs)
	}
}

// readCPUs reads one of the kernel's lists of CPUs; none where there is no /sys.
func readCPUs(name string) []int {
	data, _ := os.ReadFile("/sys/devices/system/cpu/" + name)
	cpus, _ := api.ParseCPUSet(strings.TrimSpace(string(data)))
	return cpus
}

func cpusUpTo(n int) []int {
	cpus := make([]int, n)
	for i := range cpus {
		cpus[i] = i
	}
	return cpus
}

// totalMemory is in bytes, 0 when it is not known.
func totalMemory() int64 {
	var si unix.Sysinfo_t
	if unix.Sysinfo(&si) != nil {
		return 0
	}
	return int64(si.Totalram) * int64(si.Unit)
}

// landlock is the kernel's ABI where commands can use it, else 0 and why not.
func landlock() (abi int, reason string) {
	abi, err := sys.LandlockABI()
	switch {
	case err != nil:
		return 0, err.Error()
	case abi < sys.MinLandlock:
		return 0, fmt.Sprintf("ABI %d of this kernel is too old: %d is needed, of Linux 6.2", abi, sys.MinLandlock)
	}
	return abi, ""
}

// settings are what the monitor has read of the configuration file.
func settings(s *monitorapi.Settings) sandbox.Settings {
	return sandbox.Settings{Exec: s.Exec, Defaults: s.Defaults, Quotas: s.Quotas, Network: s.Network, Ready: s.Ready,
		Pools: s.Pools}
}

// nameImages takes the names for images, and the templates, from the configuration file.
func (d *daemon) nameImages(s *monitorapi.Settings) {
	r := config.Runtimes(s.Runtimes)
	d.runtimes.Store(&r)
	t := template.Shipped(s.Templates)
	d.shipped.Store(&t)
}

// imageName is the reference that a name of an image stands for.
func (d *daemon) imageName(name string) (string, error) { return d.runtimes.Load().Resolve(name) }

// reloaded puts a configuration in force that the monitor has read again.
func (d *daemon) reloaded(msg monitorapi.Message) {
	r := msg.Reloaded
	if r.Settings != nil {
		d.server.Authenticate(r.Settings.Tokens) // first: what is to be closed is
		d.manager.Configure(settings(r.Settings))
		d.modes.Configure(modes(r.Settings))
		d.nameImages(r.Settings)
		d.templates.Start()
		if err := d.audit.Configure(r.Settings.Audit); err != nil { // the monitor has checked it
			d.log.Error("configure the audit log", "err", err)
		}
	}
	if r.Again {
		return
	}
	e := api.ConfigEvent{}
	if r.Failed != nil {
		e.Error = r.Failed.Msg
	}
	d.events.Emit(api.EventConfig, "", "", e)
	if r.Asked {
		d.answered(msg)
	}
}

// reload reads the configuration file again.
func (d *daemon) reload(ctx context.Context, _ api.Empty) error {
	a, err := d.question(ctx, monitorapi.Message{Reload: &monitorapi.Reload{}})
	switch {
	case err != nil:
		return err
	case a.Reloaded == nil:
		return errors.New("the monitor answered something else than a configuration")
	case a.Reloaded.Failed != nil:
		f := a.Reloaded.Failed
		return api.Errorf(f.Code, "%s", f.Msg).WithHint("%s", f.Hint)
	}
	return nil
}

// measureHost finds out what hutchd's own namespaces and limits are.
func (d *daemon) measureHost() error {
	uids, err := readMap("/proc/self/uid_map")
	if err != nil {
		return err
	}
	gids, err := readMap("/proc/self/gid_map")
	if err != nil {
		return err
	}
	var nofile, nproc unix.Rlimit
	if err := errors.Join(unix.Getrlimit(unix.RLIMIT_NOFILE, &nofile),
		unix.Getrlimit(unix.RLIMIT_NPROC, &nproc)); err != nil {
		return fmt.Errorf("read resource limits: %w", err)
	}
	// Connections may not take the fds that sandboxes and execs need.
	d.connected.most = int(min(1024, nofile.Max/4))
	d.host = sandbox.Host{
		UIDs: uids, GIDs: gids,
		Host: isolation.Host{UserMap: "range", CgroupMode: "none", CgroupReason: "no cgroups"},
		// fds in flight are counted per kernel uid, which sandboxes share with
		// hutchd: a sandbox must reach its limit long before hutchd reaches its own.
		NoFileHard:  min(65536, nofile.Max/4),
		NProc:       min(maxProcesses, nproc.Max),
		MemoryBytes: totalMemory(),
		Forbidden:   d.cfg.Forbidden, FoldersMapped: d.cfg.IDBase >= api.FirstIDBase,
	}
	findCPUs(&d.host)
	d.host.LandlockABI, d.host.LandlockReason = landlock()
	d.host.AppArmor, d.host.AppArmorReason = probe.SandboxProfile()
	// Limits of I/O are few people's wish: where the folder is on no disk they are refused.
	d.host.Disk, _ = cgroups.DiskOf(d.cfg.Data)
	if len(uids) == 1 && uids[0].Count == 1 {
		d.host.UserMap = "single"
	}
	if t := d.cfg.Cgroups; t != nil {
		d.host.CgroupMode, d.host.CgroupPath, d.host.CgroupV2 = string(t.Mode), t.Path, t.V2Mount
		d.host.CgroupMount = t.Mounts[""]
		d.host.EBPF = isolation.EBPF(d.cfg.EBPF)
		d.host.Controllers, d.host.CgroupReason, d.host.CgroupRemedy = t.Controllers, t.Reason, t.Remedy
	}
	return nil
}

// readMap reads the inside column and the counts of a uid_map (user_namespaces(7)).
func readMap(path string) ([]spec.Extent, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read own id map: %w", err)
	}
	defer f.Close()
	var extents []spec.Extent
	for sc := bufio.NewScanner(f); sc.Scan(); {
		fields := strings.Fields(sc.Text())
		if len(fields) != 3 {
			return nil, fmt.Errorf("read own id map: unexpected line %q", sc.Text())
		}
		start, err1 := strconv.ParseInt(fields[0], 10, 64)
		count, err2 := strconv.ParseInt(fields[2], 10, 64)
		if err := errors.Join(err1, err2); err != nil {
			return nil, fmt.Errorf("read own id map: %w", err)
		}
		extents = append(extents, spec.Extent{Start: start, Count: count})
	}
	return extents, nil
}
