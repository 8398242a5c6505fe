package isolation

import (
	"os"
	"strings"

	"github.com/hutch-sh/hutch/runtime/api"
)

// CheckAppArmor refuses what this host cannot do.
func (h *Host) CheckAppArmor(want api.AppArmor) error {
	if want != api.AppArmorOn || h.AppArmor != "" {
		return nil
	}
	why := h.AppArmorReason
	if why == "" {
		why = "the kernel has no AppArmor"
	}
	return api.Errorf(api.Unavailable, "apparmor: sandboxes are under no profile of their own here: %s", why).
		WithField("apparmor").
		WithHint("hutch doctor says how to load it; with auto, namespaces, mounts and seccomp stand without it")
}

// Labels are what the kernel has for a process, for mandatory access control. It keeps them until it executes
// something.
type Labels struct {
	appArmor string
	known    bool // AppArmor has one
	other    string
}

// LabelsOf are those of PID 1, by what proc(5) has of it, which all that it starts inherits.
func LabelsOf(proc string) Labels {
	if label, err := os.ReadFile(proc + "/attr/apparmor/current"); err == nil {
		return Labels{appArmor: strings.TrimSpace(string(label)), known: true}
	}
	label, err := os.ReadFile(proc + "/attr/current")
	if err != nil { // there is no such module
		return Labels{}
	}
	return Labels{other: strings.TrimRight(string(label), "\x00\n")}
}

// AddLabel adds what mandatory access control there is around a sandbox. Where a profile was asked for, another label
// is an error, and where want insists one that is not enforced.
func (h *Host) AddLabel(iso *api.Isolation, l Labels, want api.AppArmor) error {
	if l.known {
		w, err := h.appArmorWall(l.appArmor)
		if err != nil {
			return err
		}
		if want == api.AppArmorOn && w.Status != "yes" {
			return api.Errorf(api.Unavailable,
				"apparmor: the sandbox was to be under an enforced profile, and is under %q", l.appArmor).
				WithField("apparmor").
				WithHint("load %s in enforce mode: sudo aa-enforce, or apparmor_parser -r with its file", h.AppArmor)
		}
		iso.Walls = append(iso.Walls, w)
		return nil
	}
	if want == api.AppArmorOn {
		return api.Errorf(api.Unavailable, "apparmor: the kernel tells no label of the sandbox's PID 1").
			WithField("apparmor")
	}
	if w, ok := seLinuxWall(l.other); ok && l.other != "" {
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
