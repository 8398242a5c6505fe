package about

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/guard"
	"github.com/hutch-sh/hutch/runtime/meter"
	"github.com/hutch-sh/hutch/runtime/spec"
	"github.com/hutch-sh/hutch/runtime/workspace"
)

// Of is what a sandbox is told about itself. No path of the host is in it.
func Of(r api.Sandbox, sp *api.Spec) api.About {
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
	sentences = append(sentences, folders(&a)...)
	sentences = append(sentences, network(&a.Network), limits(&a))
	a.Text = strings.Join(append(sentences,
		"What is refused is so by this policy and not by a fault of your program: do not try to get around it, say what you need. "+Target+"/policy.json has all of it."), " ")
	return a
}

// maxParagraph bounds a paragraph in bytes: names of the policy can be long.
const maxParagraph = 1000

// Paragraph is what the text says about what a kind of denials is of, "" if it says nothing about that.
func Paragraph(r api.Sandbox, sp *api.Spec, kind string) string {
	a, text := Of(r, sp), ""
	switch kind {
	case api.KindNet:
		text = network(&a.Network)
	case api.KindFile:
		text = strings.Join(folders(&a), " ")
	case api.KindSyscall:
		text = "System calls that change namespaces, mounts or the kernel are refused to every program here, root's " +
			"as well: the sandbox is what keeps them apart."
	default:
		return ""
	}
	if text = strings.TrimSpace(text); len(text) > maxParagraph {
		text = strings.ToValidUTF8(text[:maxParagraph], "") + "..."
	}
	return text + " Do not try again: go on without, or tell your user what you need."
}

func folders(a *api.About) []string {
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

// maxNames is how many names the text lists: more are a matter for programs.
const maxNames = 20

func network(n *api.AboutNetwork) string {
	list := func(what string, names []string) string {
		switch {
		case len(names) == 0:
			return ""
		case len(names) > maxNames:
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

func limits(a *api.About) string {
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
