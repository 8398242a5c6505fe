package sandbox

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/hutch-sh/hutch/runtime/about"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/spec"
)

// debugOf is what `hutch debug run` shows.
func (f *creation) debugOf() *api.SandboxDebug {
	d := &api.SandboxDebug{Config: f.config, Steps: f.steps}
	if s := f.s.record.Seccomp; s != api.SeccompCustom {
		d.Seccomp, d.SeccompOther = f.m.cfg.Seccomp.Describe(string(s))
	}
	return d
}

// detail says for people what a step has come to.
func (f *creation) detail(step string) string {
	r, h := &f.s.record, &f.m.cfg.Host
	switch step {
	case "image":
		return fmt.Sprintf("%s, layers: %d", strings.TrimSpace(r.Image+" "+r.Digest), len(f.s.root.Lower))
	case "folders":
		return f.s.dir + ", limit of disk space: " + f.s.meter.Disk().Detail()
	case "mounts":
		return bindsDetail(f.binds)
	case "netns":
		if f.s.net == nil {
			return "mode none: a namespace of its own, loopback only"
		}
		_, _, detail := f.s.net.State()
		return fmt.Sprintf("mode %s: %s", r.Network.Effective(), detail)
	case "about":
		return "what the sandbox is told about itself, at " + about.Target
	case "spec":
		return fmt.Sprintf("libcontainer configuration, %d bytes; ids %s", len(f.config), extents(h.UIDs))
	case "launch":
		return fmt.Sprintf("PID 1 is %d of the host's; seccomp profile %s", r.PID, r.Seccomp)
	case "enforce":
		if w := h.EBPFWall(); w.Status != "yes" {
			return "eBPF off: " + w.Detail
		}
		return "the policy is in the kernel (eBPF)"
	case "limits":
		return f.limitsDetail()
	case "guest":
		return "PID 1 answers, and has the commands' seccomp filter"
	case "isolation":
		return fmt.Sprintf("%d walls read back from the kernel", len(r.Isolation.Walls))
	case "record":
		return "on disk: the sandbox outlives hutchd"
	}
	return ""
}

func (f *creation) limitsDetail() string {
	text, err := json.Marshal(f.s.record.Limits)
	if err != nil {
		return err.Error()
	}
	where := f.s.cgroup
	if where == "" {
		where = "no cgroup"
	}
	detail := fmt.Sprintf("%s; cgroup %s", text, where)
	for _, u := range f.s.record.Unenforced {
		detail += fmt.Sprintf("; %s is not in force: %s", u.Limit, u.Why)
	}
	return detail
}

func bindsDetail(binds []spec.Bind) string {
	if len(binds) == 0 {
		return "no folders of the host"
	}
	var list []string
	for _, b := range binds {
		mode := "rw"
		if b.ReadOnly {
			mode = "ro"
		}
		list = append(list, b.Target+" "+mode)
	}
	return strings.Join(list, ", ")
}

func extents(list []spec.Extent) string {
	var parts []string
	for _, e := range list {
		parts = append(parts, fmt.Sprintf("%d+%d", e.Start, e.Count))
	}
	return strings.Join(parts, ", ")
}
