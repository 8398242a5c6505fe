package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/hutch-sh/hutch/internal/cli"
	"github.com/hutch-sh/hutch/runtime/api"
)

// specFlags are the flags that say what a new sandbox is like; run, create and
// debug run share them. Values that need parsing are parsed where the flag is
// read, so that the error names the flag.
type specFlags struct {
	spec     api.Spec
	envFiles []string
	env      []string
	labels   []string
	network  netFlags
	guard    []string
	unguard  []string
	guardNew api.GuardNew
	capAdd   []string

	noTimeout bool // --timeout 0
}

// checkTimeout refuses --timeout 0, which a spec cannot say: 0 is the default
// there. unbounded says that the default is none.
func (o *specFlags) checkTimeout(command string, unbounded bool) error {
	if !o.noTimeout || unbounded {
		return nil
	}
	return cli.Usage(command, errors.New("--timeout 0, no timeout, is for commands with -t or -d only"))
}

func (o *specFlags) add(fs *pflag.FlagSet) {
	s := &o.spec
	fs.StringVar(&s.Name, "name", "", "`NAME` that other commands may use instead of the id")
	fs.StringVar(&s.Template, "template", "", "make it by a `TEMPLATE`, instead of an image: hutch template ls")
	fs.Func("scope", "use the sandbox of a scope, `KIND:KEY`, made if there is none; KIND is session, agent or shared",
		func(v string) error {
			scope, err := api.ParseScope(v)
			s.Scope = &scope
			return err
		})
	fs.StringVar(&s.Hostname, "hostname", "", "host `NAME` inside (default: the id)")
	fs.StringVar(&s.StopSignal, "stop-signal", "",
		"`SIGNAL` with which hutch stop asks commands to end (default: the image's, or SIGTERM)")
	fs.StringArrayVarP(&o.labels, "label", "l", nil, "label, `NAME[=VALUE]`; may be repeated")
	fs.StringArrayVarP(&o.env, "env", "e", nil,
		"environment, `NAME[=VALUE]`, your own value without one; may be repeated")
	fs.StringArrayVar(&o.envFiles, "env-file", nil, "`FILE` with a NAME[=VALUE] a line")
	fs.StringVarP(&s.User, "user", "u", "", "`USER[:GROUP]`, names or ids, inside (default: the image's)")
	fs.FuncP("workdir", "w", "working `DIR` inside (default: the image's)", func(v string) error {
		s.Workdir = v
		return cli.SandboxPath("workdir", v)
	})
	fs.FuncP("volume", "v",
		"mount a host folder or file, or a volume by its name, `SRC:DST[:ro|rw|overlay]`; may be repeated",
		func(v string) error {
			m, err := cli.ParseVolume(v)
			s.Mounts = append(s.Mounts, m)
			return err
		})
	fs.Func("mount", "the same in docker's words, `type=TYPE,src=SRC,dst=DST[,readonly]`; TYPE is bind, volume or tmpfs; may be repeated", func(v string) error {
		m, err := cli.ParseMount(v)
		s.Mounts = append(s.Mounts, m)
		return err
	})
	fs.Func("workspace", "host folder to work on, `PATH[:ro|rw|overlay]`, at /workspace, the working directory",
		func(v string) error {
			w, err := cli.ParseWorkspace(v)
			s.Workspace = &w
			return err
		})
	fs.BoolVar(&s.WritableUsr, "writable-usr", false,
		"with the image host: files in /usr can be made and replaced; the host sees nothing of it")
	fs.BoolVar(&s.Undo, "undo", false,
		"keep what the files were before each tool call, for hutch undo; not with folders in mode rw")
	fs.StringArrayVar(&o.guard, "guard", nil,
		"`NAME` in folders in mode rw that the sandbox cannot write, beside those of hutch config guard; may be repeated")
	fs.StringArrayVar(&o.unguard, "unguard", nil,
		"`NAME` of these that it can write, git-new for repositories that it makes, or all; may be repeated")
	fs.StringVar((*string)(&o.guardNew), "guard-new", "",
		"`auto|refuse|tell`: what to do about these names that are not there yet; auto refuses where the kernel has Landlock (default auto)")
	fs.StringVar(&s.Platform, "platform", "", "`OS/ARCH` of the image (default: this machine's)")
	fs.Func("pull", "fetch the image `WHEN`: missing (default), always or never", func(v string) error {
		s.Pull = api.PullPolicy(v)
		switch s.Pull {
		case api.PullMissing, api.PullAlways, api.PullNever:
			return nil
		}
		return fmt.Errorf("%q is not missing, always or never", v)
	})
	o.addInside(fs)
	o.addLimits(fs)
	o.addNetwork(fs)
}

func (o *specFlags) addLimits(fs *pflag.FlagSet) {
	l := &o.spec.Limits
	addGroupLimits(fs, l)
	fs.BoolVar(&l.BestEffort, "best-effort", false, "run with as much of the limits as this host can enforce")
	fs.Func("timeout", "kill a command after `TIME`: seconds, or 1m30s (default 3m; with -t or -d none)",
		func(v string) (err error) {
			l.TimeoutS, err = cli.ParseTimeout(v)
			o.noTimeout = err == nil && l.TimeoutS == 0
			return err
		})
	addExecLimits(fs, l)
	o.addLife(fs)
}

// addLife adds the times after which something is done to the sandbox.
func (o *specFlags) addLife(fs *pflag.FlagSet) {
	s := &o.spec
	const actions = "`TIME[:pause|stop|kill|remove]`, by default remove"
	fs.Func("ttl", "end the sandbox's life after "+actions, func(v string) (err error) {
		s.TTLS, s.TTLAction, err = cli.ParseLife(v)
		return err
	})
	fs.Func("idle", "end it when no command has run for "+actions, func(v string) (err error) {
		s.IdleS, s.IdleAction, err = cli.ParseLife(v)
		return err
	})
}

// addGroupLimits adds the limits of a sandbox as a whole, which can change while it runs.
func addGroupLimits(fs *pflag.FlagSet, l *api.Limits) {
	fs.FuncP("memory", "m", "memory limit, `SIZE` such as 512m or 1g, or none", func(v string) (err error) {
		l.MemoryBytes, err = cli.ParseBound(v, cli.ParseSize)
		return err
	})
	fs.Func("memory-swap", "swap on top of the memory, `SIZE` (default: none)", func(v string) (err error) {
		l.SwapBytes, err = cli.ParseBound(v, cli.ParseSize)
		return err
	})
	fs.Func("memory-high", "slow down above this `SIZE` of memory, with cgroup v2", func(v string) (err error) {
		l.MemoryHighBytes, err = cli.ParseSize(v)
		return err
	})
	fs.Func("cpus", "`N` CPUs at most, such as 1.5, or none", func(v string) (err error) {
		l.CPUs, err = cli.ParseBound(v, cli.ParseCPUs)
		return err
	})
	fs.Func("cpu-weight", "share of busy CPUs, `N` from 1 to 10000 (usual: 100)", func(v string) (err error) {
		l.CPUWeight, err = cli.ParseCount(v)
		return err
	})
	fs.StringVar(&l.CPUSet, "cpuset-cpus", "", "`LIST` of CPUs to run on, such as 0-1,3")
	fs.Func("pids-limit", "`N` processes and threads at most, or none", func(v string) (err error) {
		l.PIDs, err = cli.ParseBound(v, cli.ParseCount)
		return err
	})
	fs.Func("io-read", "`SIZE` a second at most from the disk of the state folder, or none",
		func(v string) (err error) {
			l.IOReadBPS, err = cli.ParseBound(v, cli.ParseSize)
			return err
		})
	fs.Func("io-write", "`SIZE` a second at most to it, or none", func(v string) (err error) {
		l.IOWriteBPS, err = cli.ParseBound(v, cli.ParseSize)
		return err
	})
	fs.Func("disk", "what the sandbox may write and keep, `SIZE` such as 500m or 10g, or none",
		func(v string) (err error) {
			l.DiskBytes, err = cli.ParseBound(v, cli.ParseSize)
			return err
		})
	fs.Func("inodes", "`N` files and folders that it may make, or none (default: one for each 4 KiB of --disk)",
		func(v string) (err error) {
			l.Inodes, err = cli.ParseBound(v, cli.ParseCount)
			return err
		})
}

// addExecLimits adds the limits that each command has for itself.
func addExecLimits(fs *pflag.FlagSet, l *api.Limits) {
	fs.Func("cpu-time", "end a command that has used so much CPU `TIME`: seconds, or 1m30s",
		func(v string) (err error) {
			if l.CPUTimeS, err = cli.ParseTimeout(v); err == nil && l.CPUTimeS == 0 {
				err = fmt.Errorf("%q is no time at all", v)
			}
			return err
		})
	fs.Func("ulimit", "limit of each process, `NAME=SOFT[:HARD]` such as nofile=1024; may be repeated",
		func(v string) error {
			return cli.ParseUlimit(v, &l.Rlimits)
		})
	fs.Func("output-limit", "end a command that has written `SIZE`; with --json or -d", func(v string) (err error) {
		l.OutputBytes, err = cli.ParseSize(v)
		return err
	})
}

func (o *specFlags) addNetwork(fs *pflag.FlagSet) {
	o.network.add(fs)
	fs.BoolVar(&o.network.ebpf, "require-ebpf", false,
		"fail unless the kernel itself enforces the network policy, which hutch inspect shows as eBPF")
	fs.Func("seccomp", "which system calls commands may make: `PROFILE` default, strict (computation), build (package installs), browser, or FILE.json", o.setSeccomp)
	fs.StringVar((*string)(&o.spec.AppArmor), "apparmor", "",
		"`auto|on`: a second wall behind namespaces and seccomp; on fails where hutch's profile is not loaded (default auto)")
	fs.StringVar((*string)(&o.spec.IDs), "ids", "",
		"`auto|emulate|real`: without subordinate ids, who answers for users other than root; emulate lets packages be installed (default auto: emulate, where the kernel can)")
	fs.StringVar((*string)(&o.spec.Landlock), "landlock", "",
		"`auto|on|off`: a second wall around files; on fails where the kernel has none (default auto)")
}

// setSeccomp takes the name of a profile or, with a slash or .json in it, that of a file with one.
func (o *specFlags) setSeccomp(v string) error {
	if !strings.ContainsRune(v, '/') && !strings.HasSuffix(v, ".json") {
		o.spec.Seccomp, o.spec.SeccompProfile = api.SeccompProfile(v), ""
		if o.spec.Seccomp == api.SeccompCustom || !slices.Contains(api.SeccompProfiles, o.spec.Seccomp) {
			return api.Errorf(api.InvalidArgument, "--seccomp %s: no such profile", v).WithOp("run").
				WithHint("use default, strict, build, browser, or the path of a file with a profile as OCI runtimes have it (./my.json)")
		}
		return nil
	}
	text, err := readBounded(v, api.MaxSeccompProfile)
	if err != nil {
		return api.Errorf(api.InvalidArgument, "--seccomp: %w", err).WithOp("run")
	}
	o.spec.Seccomp, o.spec.SeccompProfile = api.SeccompCustom, string(text)
	return nil
}

// build completes the spec from the flags that were given.
func (o *specFlags) build(image string) (_ api.Spec, err error) {
	s := o.spec
	if s.Template != "" && image != "" {
		return s, cli.Usage("hutch",
			fmt.Errorf("image %s does not go with --template %s, which has its own; a command follows --", image,
				s.Template))
	}
	if s.Image = image; image == "" && s.Template == "" {
		if s.Image, err = defaultImage(); err != nil {
			return s, err
		}
	}
	if s.Network, err = o.network.policy("hutch"); err != nil {
		return s, err
	}
	if s.Env, err = cli.Env(o.envFiles, o.env); err != nil {
		return s, api.Errorf(api.InvalidArgument, "%w", err)
	}
	if s.Labels, err = cli.ParseLabels(o.labels); err != nil {
		return s, api.Errorf(api.InvalidArgument, "%w", err)
	}
	o.tellFolders(os.Stderr, &s)
	if err := o.setGuard(&s); err != nil {
		return s, err
	}
	if err := o.setCapabilities(&s); err != nil {
		return s, err
	}
	addRepository(os.Stderr, &s)
	return s, nil
}

// tellFolders tells of what people would want to know of the folders that they give: one that is a link, which a
// sandbox may have put there, and files of this command line that the sandbox can change for the next one.
func (o *specFlags) tellFolders(w io.Writer, s *api.Spec) {
	folders := slices.Clone(s.Mounts)
	if ws := s.Workspace; ws != nil && ws.Mode != api.ModeNone {
		folders = append(folders, api.Mount{Source: ws.Path, Mode: ws.Mode})
	}
	files := slices.Clone(o.envFiles)
	if o.network.file != "" {
		files = append(files, o.network.file)
	}
	for _, m := range folders {
		if m.Source == "" {
			continue
		}
		real, err := filepath.EvalSymlinks(m.Source)
		if err != nil {
			continue // opening it says why
		}
		if st, err := os.Lstat(filepath.Clean(m.Source)); err == nil && st.Mode()&fs.ModeSymlink != 0 {
			fmt.Fprintf(w, "hutch: %s is a link: the sandbox gets %s\n", cli.Line(m.Source), cli.Line(real))
		}
		for _, name := range files {
			at, err := filepath.EvalSymlinks(name)
			if err == nil {
				at, err = filepath.Abs(at)
			}
			if abs, aerr := filepath.Abs(real); err == nil && aerr == nil && m.Mode == api.ModeRW &&
				strings.HasPrefix(at, abs+"/") {
				fmt.Fprintf(w, "hutch: the sandbox can change %s for the next run: keep it outside of folders in mode rw\n", cli.Line(name))
			}
		}
	}
}

// setGuard puts --guard and --unguard into the workspace and the folders that the sandbox may write.
func (o *specFlags) setGuard(s *api.Spec) error {
	if len(o.guard)+len(o.unguard) == 0 && o.guardNew == "" {
		return nil
	}
	var unguarded []string
	for _, name := range o.unguard {
		if name == "all" {
			name = api.AllNames
		}
		unguarded = append(unguarded, name)
	}
	some := s.Workspace != nil
	if w := s.Workspace; w != nil {
		w.Guard, w.GuardNew, w.Unguarded = o.guard, o.guardNew, unguarded
	}
	for i := range s.Mounts {
		if m := &s.Mounts[i]; m.Mode == api.ModeRW && m.OfHost() {
			m.Guard, m.GuardNew, m.Unguarded = o.guard, o.guardNew, unguarded
			some = true
		}
	}
	if !some {
		return cli.Usage("hutch",
			errors.New("--guard, --unguard and --guard-new are about folders that the sandbox may write: --workspace PATH, -v SRC:DST:rw"))
	}
	return nil
}
