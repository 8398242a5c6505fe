package monitor

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/hutch-sh/hutch/internal/paths"
	"github.com/hutch-sh/hutch/netfilter/netd/netdapi"
	"github.com/hutch-sh/hutch/runtime/monitor/monitorapi"
)

// envEBPF set to off keeps eBPF from being used: for tests, and for finding out where a
// fault is.
const envEBPF = "HUTCH_EBPF"

// enforce begins to have hutch-netd put eBPF programs in force around all sandboxes, where that
// can be. It is done here, as it cannot be in the user namespace of hutch-launch, and
// meanwhile that one starts. done must be called before ebpf and maps are used, and before
// there is a sandbox. What has kept it from being done is reported and no error: policies are
// enforced without.
func (m *monitor) enforce() (done func()) {
	var running sync.WaitGroup
	running.Go(func() {
		var err error
		if m.maps, m.ebpf, err = m.attach(); err != nil {
			m.ebpf = monitorapi.EBPF{Reason: err.Error()}
			m.log.Info("network policies are enforced without eBPF", "why", err)
		}
	})
	return running.Wait
}

func (m *monitor) attach() ([]*os.File, monitorapi.EBPF, error) {
	mount := m.tree.Mounts[""]
	switch {
	case os.Getenv(envEBPF) == "off":
		return nil, monitorapi.EBPF{}, errors.New("turned off by " + envEBPF)
	case m.tree.Path == "" || mount == "":
		return nil, monitorapi.EBPF{}, errors.New("there is no cgroup2 folder for sandboxes")
	}
	path := paths.InstalledNetd
	if os.Geteuid() == 0 {
		var err error
		if path, err = paths.Sibling("hutch-netd"); err != nil {
			return nil, monitorapi.EBPF{}, err
		}
	}
	sandboxes, err := os.Open(filepath.Join(mount, m.tree.Path))
	if err != nil {
		return nil, monitorapi.EBPF{}, err
	}
	defer sandboxes.Close()
	a, err := netdapi.Attach(path, sandboxes)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, monitorapi.EBPF{}, errors.New("hutch-netd is not installed: sudo make install-netd")
	case errors.Is(err, fs.ErrPermission) && !isRefusal(err):
		return nil, monitorapi.EBPF{},
			errors.New("hutch-netd is not for this user: sudo usermod -aG hutch USER, and log in again")
	case err != nil:
		return nil, monitorapi.EBPF{}, err
	}
	return a.Maps, monitorapi.EBPF{On: true, Errnos: a.Errnos}, nil
}

func isRefusal(err error) bool {
	var r *netdapi.Refusal
	return errors.As(err, &r)
}

// closeMaps gives up this process's hold; hutch-launch has its own.
func (m *monitor) closeMaps() error {
	var errs []error
	for _, f := range m.maps {
		errs = append(errs, f.Close())
	}
	m.maps = nil
	return errors.Join(errs...)
}
