package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/sys"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/guard"
	"github.com/hutch-sh/hutch/runtime/meter"
	"github.com/hutch-sh/hutch/runtime/spec"
	"github.com/hutch-sh/hutch/runtime/workspace"
)

// aboutTarget is where a sandbox finds what it may do: policy.json for programs and
// policy.txt, a paragraph, for a model. It is a mount, read-only inside: what a program that ran before
// has written there would be believed by the model that runs next.
const aboutTarget = "/run/hutch"

// aboutBytes bounds the file system of it. A policy has at most 2 MiB (a request), there are
// two of them for a moment when it changes, and what is not used takes no memory.
const aboutBytes = 8 << 20

func (f *creation) about(context.Context) error {
	err := diskError("make a mount point", os.Mkdir(filepath.Join(f.s.dir, aboutFolder), 0o700))
	if err != nil {
		return err
	}
	if err := f.mountAbout(); err != nil {
		return err
	}
	f.bindAbout()
	return f.m.tellNew(f.s)
}

// claimAbout is about for one that has the file system, empty.
func (f *creation) claimAbout(context.Context) error {
	f.bindAbout()
	return f.m.tellNew(f.s)
}

// tellNew is tell for a sandbox in which nothing runs that could read half of it.
func (m *Manager) tellNew(s *Sandbox) error {
	return m.tellBy(s, func(path string, text []byte) error { return os.WriteFile(path, text, 0o644) })
}

// aboutFolder is the file system below a sandbox's folder that it has as two mounts, read-only inside: toldFolder at
// aboutTarget, and sysFolder at /sys.
const (
	aboutFolder = "about"
	toldFolder  = "hutch"
	sysFolder   = "sys"
)

// mountAbout mounts what the sandbox is told about itself. It is empty but for what is the same in each.
func (f *creation) mountAbout() error {
	at := filepath.Join(f.s.dir, aboutFolder)
	mnt, err := f.m.cfg.Kernel.Tmpfs([]sys.FSOption{
		{Key: "source", Value: "hutch"}, {Key: "size", Value: fmt.Sprint(aboutBytes)},
		{Key: "nr_inodes", Value: strconv.Itoa(64 + meter.MaxCPUFolders)}, {Key: "mode", Value: "755"},
	}, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC)
	if err != nil {
		return err
	}
	defer mnt.Close()
	if err := f.m.cfg.Kernel.Attach(mnt, at); err != nil {
		return err
	}
	f.undo.Add(func() error { return unmount(f.m.cfg.Kernel, at) })
	for _, name := range []string{toldFolder, sysFolder} {
		if err := os.Mkdir(filepath.Join(at, name), 0o755); err != nil {
			return err
		}
	}
	return f.m.Meters.Furnish(filepath.Join(at, sysFolder))
}

// bindAbout is first of the binds, so that its mount point is never made in a folder of the caller's; but for one in
// memory that would hide it.
func (f *creation) bindAbout() {
	first := 0
	for _, m := range workspace.Of(&f.req.Spec) {
		if below(aboutTarget, m.Target) && m.Mode == api.ModeTmpfs {
			first = 1 + slices.IndexFunc(f.binds,
				func(b spec.Bind) bool { return b.Target == filepath.Clean(m.Target) })
		}
	}
	from := filepath.Join(f.s.dir, aboutFolder, toldFolder)
	f.binds = slices.Insert(f.binds, first, spec.Bind{Source: from, Target: aboutTarget, ReadOnly: true})
}

// unmountAbout unmounts it for a sandbox of a hutchd before, which may have been killed before it made it.
func unmountAbout(k Kernel, dir string) error {
	if err := unmount(k, filepath.Join(dir, aboutFolder)); !errors.Is(err, unix.EINVAL) &&
		!errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// tellBy writes by put what the sandbox may do now, and the limits that its programs look for.
func (m *Manager) tellBy(s *Sandbox, put func(path string, text []byte) error) error {
	a := aboutOf(s.Record(), &s.spec)
	policy, err := json.MarshalIndent(a, "", "  ")
	if err != nil {
		return fmt.Errorf("encode what the sandbox may do: %w", err)
	}
	texts := map[string]string{}
	for name, text := range s.meter.Files() {
		texts[sysFolder+"/"+name] = text
	}
	texts[toldFolder+"/policy.json"], texts[toldFolder+"/policy.txt"] = string(policy), a.Text
	for name, text := range texts {
		if err := put(filepath.Join(s.dir, aboutFolder, name), []byte(text+"\n")); err != nil {
			return fmt.Errorf("write what the sandbox may do: %w", err)
		}
	}
	return nil
}

// tell tells the sandbox what has changed. Readers see the old text or the new. That it is in force does not depend on
// it.
func (m *Manager) tell(s *Sandbox) {
	about := filepath.Join(s.dir, aboutFolder)
	_, err := os.Lstat(filepath.Join(about, toldFolder))
	before := errors.Is(err, fs.ErrNotExist) // made by a build that had it all in one folder, and no /sys
	err = m.tellBy(s, func(path string, text []byte) error {
		if before {
			if filepath.Base(filepath.Dir(path)) != toldFolder {
				return nil
			}
			path = filepath.Join(about, filepath.Base(path))
		}
		if err := os.WriteFile(path+".new", text, 0o644); err != nil {
			return err
		}
		return os.Rename(path+".new", path)
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // by one that told nothing
		m.cfg.Logger.Warn("tell a sandbox what it may do now", "sandbox", s.id, "err", err)
	}
}

// aboutOf is what a sandbox is told about itself. No path of the host is in it.
func aboutOf(r api.Sandbox, sp *api.Spec) api.About {
	a := api.About{
		Version: 1, Sandbox: r.ID, Image: r.Image, WritableUsr: sp.WritableUsr, Limits: r.Limits, Seccomp: r.Seccomp,
		Network: api.AboutNetwork{
			Mode: r.Network.Effective(), Allow: r.Network.Allow, Block: r.Network.Block,
			AllowCIDRs: r.Network.AllowCIDRs, BlockCIDRs: r.Network.BlockCIDRs, Ask: r.Network.Ask,
		},
	}
	given := workspace.Of(sp)
	if w := sp.Workspace; w != nil && w.Mode != api.ModeNone {
		a.Folders = append(a.Folders, api.AboutFolder{Path: workspace.Target, Mode: w.Mode,
			Guarded: guard.Names(given, workspace.Target)})
	}
	for _, m := range sp.Mounts {
		a.Folders = append(a.Folders, api.AboutFolder{Path: filepath.Clean(m.Target), Mode: m.Mode,
			Volume: m.Volume != "", Guarded: guard.Names(given, m.Target)})
	}
	sentences := []string{"You are in a sandbox (hutch), apart from the machine that it runs on."}
	sentences = append(sentences, aboutFolders(&a)...)
	sentences = append(sentences, aboutNetwork(&a.Network), aboutLimits(&a))
	a.Text = strings.Join(append(sentences,
		"What is refused is so by this policy and not by a fault of your program: do not try to get around it, say what you need. "+aboutTarget+"/policy.json has all of it."), " ")
	return a
}

func aboutFolders(a *api.About) []string {
	own := "All files are the sandbox's own"
	var text []string
	for _, d := range a.Folders {
		whose := "a folder of the user's"
		if d.Volume {
			whose = "a volume"
		}
		switch d.Mode {
		case api.ModeRW:
			if d.Volume {
				text = append(text, d.Path+" is "+whose+": what you leave there outlives this sandbox.")
				break
			}
			line := d.Path + " is a folder of the user's: what you change there is changed for real."
			if len(d.Guarded) > 0 {
				line += " What the user's programs take instructions from, such as " + d.Path + "/" + d.Guarded[0] +
					", can only be read; policy.json lists it: make none of it anew."
			}
			text = append(text, line)
		case api.ModeRO:
			text = append(text, d.Path+" is "+whose+", which you can only read.")
		case api.ModeOverlay:
			text = append(text, d.Path+" shows "+whose+": you may change it, and its own files stay as they are.")
		}
	}
	if len(text) > 0 {
		own += " but for the folders named here"
	}
	if a.Image == spec.HostImage && a.WritableUsr {
		own += "; programs (/usr) can be added and replaced, not changed in place, and the host's stay as they are"
	} else if a.Image == spec.HostImage {
		own += ", and programs (/usr) can only be read"
	}
	return append([]string{own + "."}, text...)
}

// aboutNames is how many names the text lists: more are a matter for programs.
const aboutNames = 20

func aboutNetwork(n *api.AboutNetwork) string {
	list := func(what string, names []string) string {
		switch {
		case len(names) == 0:
			return ""
		case len(names) > aboutNames:
			return fmt.Sprintf(" %s %d entries, which policy.json lists.", what, len(names))
		}
		return fmt.Sprintf(" %s %s.", what, strings.Join(names, ", "))
	}
	allow, block := append(append([]string{}, n.Allow...), n.AllowCIDRs...),
		append(append([]string{}, n.Block...), n.BlockCIDRs...)
	switch n.Mode {
	case api.NetAllow:
		if n.Ask {
			return "The network reaches what is named here; about everything else your user is asked, and a connection waits for the answer." + list("Allowed:", allow) + list("Never:", block)
		}
		if len(allow) == 0 {
			return "The network reaches nothing yet."
		}
		return "The network reaches only what is named here; everything else fails at once." + list("Allowed:", allow) +
			list("Of that not:", block)
	case api.NetOpen:
		return "The network reaches the public internet, and neither the machine nor its private networks." +
			list("Not allowed:", block)
	case api.NetLearn:
		return "The network is being learned: what you try to reach is noted." + list("Allowed:", allow) +
			list("Not allowed:", block)
	}
	return "There is no network: nothing can be downloaded."
}

func aboutLimits(a *api.About) string {
	l, parts := &a.Limits, []string{}
	if l.MemoryBytes > 0 {
		parts = append(parts, meter.MiB(l.MemoryBytes)+" of memory")
	}
	if l.CPUs > 0 {
		parts = append(parts, fmt.Sprintf("%g CPUs", l.CPUs))
	}
	if l.PIDs > 0 {
		parts = append(parts, fmt.Sprintf("%d processes", l.PIDs))
	}
	if l.DiskBytes > 0 {
		parts = append(parts, meter.MiB(l.DiskBytes)+" of files")
	}
	text := ""
	if len(parts) > 0 {
		text = "There are " + strings.Join(parts, ", ") + "."
	}
	switch a.Seccomp {
	case api.SeccompStrict:
		text += " System calls are those that computing takes: there are no sockets but local ones."
	case api.SeccompBuild:
		text += " Debuggers do not work."
	case api.SeccompCustom:
		text += " Some system calls are refused."
	}
	return strings.TrimSpace(text)
}
