package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/config"
	"github.com/hutch-sh/hutch/internal/sys"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/monitor/monitorapi"
	"github.com/hutch-sh/hutch/runtime/sandbox"
)

// onlineCPUs is how many CPUs the machine has; hutchd itself may be bound to fewer.
func onlineCPUs() int {
	data, _ := os.ReadFile("/sys/devices/system/cpu/online")
	if n := len(data); n > 1 {
		if highest, ok := api.ParseCPUSet(string(data[:n-1])); ok {
			return highest + 1
		}
	}
	return runtime.NumCPU()
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
	return sandbox.Settings{Exec: s.Exec, Defaults: s.Defaults, Quotas: s.Quotas, Network: s.Network, Ready: s.Ready, Pools: s.Pools}
}

// nameImages takes the names for images from the configuration file.
func (d *daemon) nameImages(s *monitorapi.Settings) {
	r := config.Runtimes(s.Runtimes)
	d.runtimes.Store(&r)
}

// imageName is the reference that a name of an image stands for.
func (d *daemon) imageName(name string) (string, error) { return d.runtimes.Load().Resolve(name) }

// reloaded puts a configuration in force that the monitor has read again.
func (d *daemon) reloaded(msg monitorapi.Message) {
	r := msg.Reloaded
	if r.Settings != nil {
		d.manager.Configure(settings(r.Settings))
		d.nameImages(r.Settings)
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
		select {
		case d.answers <- msg:
		default: // nobody waits any more
		}
	}
}

// Reload reads the configuration file again.
func (b *backend) Reload(ctx context.Context) error {
	a, err := b.d.question(ctx, monitorapi.Message{Reload: &monitorapi.Reload{}})
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
