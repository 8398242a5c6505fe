package sandbox

import (
	"fmt"
	"os"
	"strings"

	"github.com/hutch-sh/hutch/runtime/api"
)

// addLabel reads back what mandatory access control there is around a sandbox: the label that the kernel has for PID 1,
// which all that it starts inherits. Where a profile was asked for, another label is an error.
func (h *Host) addLabel(iso *api.Isolation, pid int) error {
	if label, err := os.ReadFile(fmt.Sprintf("/proc/%d/attr/apparmor/current", pid)); err == nil {
		w, err := h.appArmorWall(strings.TrimSpace(string(label)))
		if err != nil {
			return err
		}
		iso.Walls = append(iso.Walls, w)
		return nil
	}
	label, err := os.ReadFile(fmt.Sprintf("/proc/%d/attr/current", pid))
	if err != nil || len(label) == 0 { // there is no such module
		return nil
	}
	if w, ok := seLinuxWall(strings.TrimRight(string(label), "\x00\n")); ok {
		iso.Walls = append(iso.Walls, w)
	}
	return nil
}

// appArmorWall is the wall that a label such as "hutch-sandbox (enforce)" is.
func (h *Host) appArmorWall(label string) (api.Wall, error) {
	name, mode, _ := strings.Cut(label, " ")
	w := api.Wall{Name: "AppArmor", Status: "yes", Detail: "profile " + label}
	switch {
	case h.AppArmor != "" && name != h.AppArmor:
		return w, api.Errorf(api.Internal, "PID 1 is under the AppArmor profile %q and not %s", label, h.AppArmor).
			WithHint("this is a bug in hutch; the sandbox was not started")
	case mode != "(enforce)" && mode != "(kill)":
		w.Status = "no"
	}
	if h.AppArmorReason != "" {
		w.Detail += "; " + h.AppArmorReason
	}
	return w, nil
}

// seLinuxWall tells the context of a sandbox. It is the daemon's own, which is not hutch's to choose: a type of
// sandboxes' own would have to come with a policy. It is false of what is no context, but another module's label.
func seLinuxWall(context string) (api.Wall, bool) {
	w := api.Wall{Name: "SELinux", Status: "yes", Detail: "context " + context + ", as the daemon's"}
	f := strings.Split(context, ":") // user:role:type, and a level
	if len(f) < 3 {
		return w, false
	}
	if f[2] == "unconfined_t" || f[2] == "kernel_t" {
		w.Status = "no"
	}
	return w, true
}
