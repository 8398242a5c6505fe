package main

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/hutch-sh/hutch/internal/cli"
	"github.com/hutch-sh/hutch/runtime/api"
)

// addInside adds what a sandbox is like inside, in docker's words.
func (o *specFlags) addInside(fs *pflag.FlagSet) {
	s := &o.spec
	fs.Func("shm-size", "`SIZE` of /dev/shm, which is in memory (default: half of --memory)",
		func(v string) (err error) {
			s.Limits.ShmBytes, err = cli.ParseSize(v)
			return err
		})
	fs.Func("tmpfs", "folder in memory, `DST[:size=SIZE]` (default: half of --memory); mode=MODE and noexec as well; may be repeated", func(v string) error {
		m, err := cli.ParseTmpfs(v)
		s.Mounts = append(s.Mounts, m)
		return err
	})
	fs.BoolVar(&s.ReadOnly, "read-only", false,
		"only mounts can be written, and in memory /tmp, /var/tmp, /run and /dev/shm")
	fs.Func("add-host", "line of /etc/hosts, `NAME:ADDRESS`; --allow-cidr lets the sandbox reach it; may be repeated",
		func(v string) error {
			h, err := parseHost(v)
			s.Hosts = append(s.Hosts, h)
			return err
		})
	fs.StringSliceVar(&s.CapDrop, "cap-drop", nil,
		"`CAPABILITY` that root inside does not have, or ALL; may be repeated")
	fs.StringSliceVar(&o.capAdd, "cap-add", nil, "`CAPABILITY` that --cap-drop ALL leaves; may be repeated")
	fs.Func("security-opt", "`no-new-privileges`, which is always so, or seccomp=FILE", o.setSecurity)
	fs.Func("restart", "`no`: hutch starts nothing again by itself", func(v string) error {
		if v != "no" {
			return fmt.Errorf("%q: hutch starts nothing again by itself; run it by a service manager, or in a loop", v)
		}
		return nil
	})
	fs.BoolFunc("init", "the first process in a sandbox always waits for orphans", func(v string) error {
		if v == "false" {
			return fmt.Errorf("the first process in a sandbox is always one that waits for orphans: leave --init=false out")
		}
		return nil
	})
	for _, name := range []string{"cap-add", "security-opt", "restart", "init"} {
		_ = fs.MarkHidden(name) // docker's: they say what is so anyway
	}
}

// parseHost reads the value of --add-host, NAME:ADDRESS or NAME=ADDRESS.
func parseHost(v string) (api.Host, error) {
	name, address, ok := strings.Cut(v, "=")
	if !ok {
		name, address, ok = strings.Cut(v, ":")
	}
	address = strings.TrimSuffix(strings.TrimPrefix(address, "["), "]")
	switch _, err := netip.ParseAddr(address); {
	case !ok || name == "":
		return api.Host{}, fmt.Errorf("%q is not NAME:ADDRESS", v)
	case address == "host-gateway":
		return api.Host{}, fmt.Errorf("%q: this host has the name host in a sandbox: --allow host:PORT lets it reach a server on it", v)
	case err != nil:
		return api.Host{}, fmt.Errorf("%q of %q is no IP address", address, v)
	}
	return api.Host{Name: name, Address: address}, nil
}

// setSecurity takes --security-opt where it says what is so, or asks for more; never where it asks for less.
func (o *specFlags) setSecurity(v string) error {
	key, value, _ := strings.Cut(v, "=")
	if key == v {
		key, value, _ = strings.Cut(v, ":")
	}
	switch {
	case key == "no-new-privileges" && (value == "" || value == "true"):
		return nil
	case v == "label=disable": // hutch sets no label of SELinux's
		return nil
	case key == "label" || key == "mask":
		return fmt.Errorf("%q: hutch sets no labels of SELinux's, and what it masks is the same in each sandbox: leave it out", v)
	case key == "seccomp" && value != "unconfined" && value != "":
		return o.setSeccomp(value)
	case key == "apparmor" && value != "unconfined":
		return fmt.Errorf("%q: a sandbox is under hutch's own profile or none: --apparmor on demands it", v)
	case key == "no-new-privileges" || key == "seccomp" || key == "apparmor" || key == "systempaths" || key == "unmask":
		return fmt.Errorf("%q would take a wall away, and no sandbox is without: leave it out", v)
	}
	return fmt.Errorf("%q is not known: no-new-privileges, or seccomp=FILE", v)
}

// given are capabilities that root inside has, or does not need: low ports are open to everybody.
var given = []string{"CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "SETFCAP", "SYS_CHROOT",
	"NET_BIND_SERVICE"}

// setCapabilities takes what --cap-add leaves out of what --cap-drop ALL drops.
func (o *specFlags) setCapabilities(s *api.Spec) error {
	var added []string
	for _, name := range o.capAdd {
		name = strings.TrimPrefix(strings.ToUpper(name), "CAP_")
		if !slices.Contains(given, name) {
			return hinted(cli.Usage("hutch",
				fmt.Errorf("--cap-add %s: no sandbox has it, it would reach the host's kernel", name)),
				"leave it out; root inside has "+strings.Join(given, ", "))
		}
		added = append(added, name)
	}
	if len(added) == 0 ||
		!slices.ContainsFunc(s.CapDrop,
			func(name string) bool { return strings.EqualFold(name, api.AllCapabilities) }) {
		return nil
	}
	s.CapDrop = slices.DeleteFunc(api.Capabilities(), func(name string) bool { return slices.Contains(added, name) })
	return nil
}
