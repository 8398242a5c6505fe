package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/spf13/pflag"

	"github.com/hutch-sh/hutch/internal/cli"
	"github.com/hutch-sh/hutch/internal/config"
	"github.com/hutch-sh/hutch/runtime/api"
)

// netFlags say what a sandbox may reach. None of them leaves it to the configuration.
type netFlags struct {
	mode  api.NetMode
	learn api.NetLearning
	file  string
	lists api.NetLists
	ebpf  bool
	ask   bool
}

func (f *netFlags) add(fs *pflag.FlagSet) {
	mode := func(v string) error {
		if f.mode = api.NetMode(v); !slices.Contains(api.NetModes, f.mode) {
			return noMode(v, "none, allow, open or learn")
		}
		return nil
	}
	fs.Func("network", "`MODE`: none (default: loopback only), allow, open (all but what is blocked) or learn", mode)
	fs.Func("net", "the same as --network", mode)
	fs.Lookup("net").Hidden = true
	f.addLists(fs)
	fs.Func("learn", "mode learn, which finds the policy that is needed (hutch network get), and meanwhile `WAY`: deny (its default) or allow", func(v string) error {
		if f.learn = api.NetLearning(v); f.learn != api.LearnDeny && f.learn != api.LearnAllow {
			return fmt.Errorf("%q is not deny or allow", v)
		}
		return nil
	})
	fs.BoolVar(&f.ask, "ask", false,
		"ask about connections that nothing allows and nothing blocks, which wait meanwhile: at this terminal, and hutch network asks")
	fs.StringVar(&f.file, "policy", "", "network policy in a `FILE`, YAML or JSON; the other flags add to it")
}

// addNarrow adds the flags that take away from a sandbox's policy for one command.
func (f *netFlags) addNarrow(fs *pflag.FlagSet) {
	fs.Func("network", "of what the sandbox may reach let this command reach `MODE`: none, allow (what --allow names) or open; takes eBPF", func(v string) error {
		f.mode = api.NetMode(v)
		if f.mode != api.NetNone && f.mode != api.NetAllow && f.mode != api.NetOpen {
			return noMode(v, "none, allow or open")
		}
		return nil
	})
	f.addLists(fs)
}

func (f *netFlags) addLists(fs *pflag.FlagSet) {
	pattern := func(list *[]string) func(string) error {
		return func(v string) error {
			_, err := api.ParseNetPattern(v)
			*list = append(*list, v)
			return entryError(err)
		}
	}
	cidr := func(list *[]string) func(string) error {
		return func(v string) error {
			_, err := api.ParseNetCIDR(v)
			*list = append(*list, v)
			return entryError(err)
		}
	}
	fs.Func("allow", "reach `NAME[:PORT]`, *.NAME for those below it, tcp:// or udp://NAME:PORT for what is neither TLS nor HTTP; may be repeated", pattern(&f.lists.Allow))
	fs.Func("block", "never reach `NAME[:PORT]`; may be repeated", pattern(&f.lists.Block))
	fs.Func("allow-cidr", "reach addresses in `CIDR`, private ones too; may be repeated", cidr(&f.lists.AllowCIDRs))
	fs.Func("block-cidr", "never reach addresses in `CIDR`; may be repeated", cidr(&f.lists.BlockCIDRs))
}

// entryError is what is wrong with an entry, for a message that names the flag.
func entryError(err error) error {
	var e *api.Error
	if errors.As(err, &e) {
		return fmt.Errorf("%s (%s)", e.Msg, e.Hint)
	}
	return err
}

// given reports whether any entry of a list is.
func (f *netFlags) given() bool {
	l := &f.lists
	return len(l.Allow)+len(l.Block)+len(l.AllowCIDRs)+len(l.BlockCIDRs) > 0
}

// policy is what the flags ask for; the zero policy when there are none.
func (f *netFlags) policy(command string) (p api.NetPolicy, err error) {
	if f.file != "" {
		if p, err = readPolicy(f.file); err != nil {
			return p, err
		}
	}
	if f.ebpf && !slices.Contains(p.Require, api.RequireEBPF) {
		p.Require = append(p.Require, api.RequireEBPF)
	}
	p.Allow = append(p.Allow, f.lists.Allow...)
	p.Block = append(p.Block, f.lists.Block...)
	p.AllowCIDRs = append(p.AllowCIDRs, f.lists.AllowCIDRs...)
	p.BlockCIDRs = append(p.BlockCIDRs, f.lists.BlockCIDRs...)
	p.Ask = p.Ask || f.ask
	if f.learn != "" {
		p.Mode, p.Learn = api.NetLearn, f.learn
	}
	switch {
	case f.mode != "" && f.learn != "" && f.mode != api.NetLearn:
		return p, cli.Usage(command, fmt.Errorf("--learn does not go with --network %s", f.mode))
	case f.mode != "":
		p.Mode = f.mode
	case (p.Mode == "" || p.Mode == api.NetNone) && (f.ask || len(f.lists.Allow)+len(f.lists.AllowCIDRs) > 0):
		p.Mode = api.NetAllow
	case p.Mode == "" && len(p.Block)+len(p.BlockCIDRs) > 0:
		return p, cli.Usage(command,
			errors.New("--block and --block-cidr take away from something: --network open, or --allow NAME"))
	}
	return p, p.Validate("network")
}

// maxPolicy bounds a policy file in bytes: it must fit into a request.
const maxPolicy = 2 << 20

func readPolicy(path string) (api.NetPolicy, error) {
	data, err := readBounded(path, maxPolicy)
	if err != nil {
		return api.NetPolicy{}, api.Errorf(api.InvalidArgument, "--policy: %w", err)
	}
	p, err := config.ParsePolicy(data, parseYAML)
	if err != nil {
		return p, api.Errorf(api.InvalidArgument, "--policy: %s: %w", path, err).
			WithHint("it may hold mode, allow, block, allow_cidrs, block_cidrs, learn, ask and ask_s: see docs/network.md")
	}
	return p, nil
}

// readBounded reads a file of at most so many bytes.
func readBounded(path string, most int64) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, most+1))
	if err == nil && int64(len(data)) > most {
		err = fmt.Errorf("%s has more than %d bytes", path, most)
	}
	return data, err
}

// noMode says what there is instead of docker's networks.
func noMode(v, modes string) error {
	switch v {
	case "host":
		return fmt.Errorf("%q: no sandbox has the network of the host: open reaches everything outside, --allow host:PORT a server on this host, and -p publishes one inside", v)
	case "bridge", "default", "slirp4netns", "pasta":
		return fmt.Errorf("%q: open reaches everything outside, and --allow NAME one name; they work in the same way for every user", v)
	}
	return fmt.Errorf("%q is not %s", v, modes)
}
