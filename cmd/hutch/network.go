package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hutch-sh/hutch/internal/cli"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/client"
)

func newNetwork() *cobra.Command {
	cmd := &cobra.Command{
		Use: "network COMMAND",
		Long: `Show, change and ask what sandboxes may reach. docs/network.md explains policies; "hutch why"
lists what a sandbox was refused.`,
		RunE: parentOnly,
	}
	cmd.AddCommand(newNetworkGet(), newNetworkUpdate(), newNetworkCheck(), newNetworkAsks(), newNetworkAnswer(),
		newNetworkForget())
	return cmd
}

func newNetworkGet() *cobra.Command {
	asJSON, learned := false, false
	cmd := &cobra.Command{
		Use:   "get [flags] SANDBOX",
		Short: "Print a sandbox's policy and what it has let pass",
		Long: `Print a sandbox's policy and what each of its rules has let pass and refused. With --learned,
of a sandbox in mode learn: the smallest policy that would have allowed what it wanted so
far, as a file for --policy.`,
		Example: `  hutch network get web
  hutch network get --learned web >policy.json`,
		Args: wantArgs(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withDaemon(cmd.Context(), func(c *client.Client) error {
				n, err := c.Network(cmd.Context(), args[0])
				out := cmd.OutOrStdout()
				switch {
				case err != nil:
					return err
				case learned && n.Learned == nil:
					return api.Errorf(api.FailedPrecondition, "sandbox %s is in mode %s and learns nothing", args[0],
						n.Network.Mode).
						WithHint("create it with --network learn")
				case learned:
					return printPolicy(out, n.Learned)
				case asJSON:
					return printJSON(out, n)
				}
				return printNetwork(out, &n)
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print network.get's result")
	cmd.Flags().BoolVar(&learned, "learned", false, "print what mode learn has found, as a policy file")
	return cmd
}

// printPolicy writes a policy file: JSON, which YAML's readers take as well.
func printPolicy(w io.Writer, p *api.NetPolicy) error {
	text, err := json.MarshalIndent(p, "", "  ")
	if err == nil {
		_, err = fmt.Fprintf(w, "%s\n", text)
	}
	return err
}

func printNetwork(w io.Writer, n *api.Network) error {
	if err := printPolicy(w, &n.Network); err != nil {
		return err
	}
	fmt.Fprintf(w, "\nenforcement: %s\n", enforcementLine(&n.Enforcement))
	if len(n.Rules) > 0 {
		fmt.Fprintln(w)
		t := cli.Table{
			Header: []string{"RULE", "CONNECTIONS", "SENT", "RECEIVED", "REFUSED"},
			Right:  []bool{false, true, true, true, true},
		}
		for _, r := range n.Rules {
			t.Row(r.Rule, strconv.FormatInt(r.Connections, 10), cli.Bytes(r.SentBytes), cli.Bytes(r.ReceivedBytes),
				strconv.FormatInt(r.Denials, 10))
		}
		t.Print(w, "", nil)
	}
	if len(n.Denials) > 0 {
		fmt.Fprintf(w, "\n%d things were refused: hutch why %s\n", len(n.Denials), n.Sandbox)
	}
	if len(n.Failures) > 0 {
		fmt.Fprintf(w, "\n%d things were allowed and failed: hutch why %s\n", len(n.Failures), n.Sandbox)
	}
	if n.Learned != nil {
		fmt.Fprintf(w, "\nWhat the sandbox wanted so far needs:\n")
		return printPolicy(w, n.Learned)
	}
	return nil
}

// enforcementLine is how a policy is enforced, for people.
func enforcementLine(e *api.NetEnforcement) string {
	line := "eBPF " + e.EBPF
	if e.Reason != "" {
		line += " (" + e.Reason + ")"
	}
	if e.Proxy != "" {
		line += ", proxy by " + e.Proxy
	}
	return cli.Line(line + "; what is not allowed fails with " + e.Errno)
}

func newNetworkUpdate() *cobra.Command {
	f := &netFlags{}
	remove, asJSON := false, false
	cmd := &cobra.Command{
		Use:   "update [flags] SANDBOX...",
		Short: "Change what running sandboxes may reach",
		Long: `Change what running sandboxes may reach. --network and --policy replace the whole policy;
without them entries are added to the one in force, or with --remove taken out of it.
Connections that are not allowed any more are closed.`,
		Example: `  hutch network update --allow '*.example.com' web
  hutch network update --remove --allow example.com web
  hutch network update --network none web`,
		Args: wantArgs(1, -1),
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := f.update(cmd.CommandPath(), remove)
			if err != nil {
				return err
			}
			return eachSandbox(cmd, args, func(ctx context.Context, c *client.Client, name string) error {
				p.Sandbox = name
				n, err := c.UpdateNetwork(ctx, p)
				switch {
				case err != nil:
					return err
				case asJSON:
					return printJSON(cmd.OutOrStdout(), n)
				}
				_, err = fmt.Fprintln(cmd.OutOrStdout(), name)
				return err
			})
		},
	}
	f.add(cmd.Flags())
	cmd.Flags().BoolVar(&remove, "remove", false, "take the entries out instead of adding them")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print network.get's result")
	return cmd
}

// update is what the flags ask for of a sandbox that runs.
func (f *netFlags) update(command string, remove bool) (p api.NetUpdateParams, err error) {
	whole := f.mode != "" || f.file != "" || f.learn != ""
	switch {
	case whole && remove:
		return p, cli.Usage(command,
			errors.New("--remove does not go with --network, --policy and --learn, which replace the whole policy"))
	case whole:
		policy, err := f.policy(command)
		p.Network = &policy
		return p, err
	case !f.given():
		return p, cli.Usage(command,
			errors.New("nothing to change: --allow, --block, --allow-cidr, --block-cidr, --network or --policy"))
	case remove:
		p.Remove = &f.lists
	default:
		p.Add = &f.lists
	}
	return p, nil
}

func newNetworkCheck() *cobra.Command {
	f := &netFlags{}
	asJSON, resolved := false, ""
	cmd := &cobra.Command{
		Use:   "check [flags] [SANDBOX] TARGET",
		Short: "Say what a policy does with a name, an address or a port",
		Long: `Say what would happen if a sandbox, or one with the policy of the flags, wanted to reach
TARGET, and which rule says so. Nothing is looked up or sent.

TARGET is [tcp://|udp://]NAME[:PORT] or ADDRESS[:PORT]; a name without a port is a lookup.
The exit code is 0 when it is allowed, 1 when it is refused, 125 when hutch could not say.`,
		Example: `  hutch network check web example.com:443
  hutch network check --allow '*.example.com' a.example.com:22
  hutch network check --network open --address 10.0.0.1 example.com:443`,
		Args: wantArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			target, err := parseTarget(args[len(args)-1])
			if err != nil {
				return cli.Usage(cmd.CommandPath(), err)
			}
			p := api.NetCheckParams{NetTarget: target}
			if resolved != "" {
				p.Address = resolved
			}
			policy, err := f.policy(cmd.CommandPath())
			switch {
			case err != nil:
				return err
			case len(args) == 2 && !policy.IsZero():
				return cli.Usage(cmd.CommandPath(), fmt.Errorf("%s has a policy: leave out SANDBOX, or the flags",
					args[0]))
			case len(args) == 2:
				p.Sandbox = args[0]
			default:
				p.Network = &policy
			}
			return withDaemon(cmd.Context(), func(c *client.Client) error {
				v, err := c.CheckNetwork(cmd.Context(), p)
				if err != nil {
					return err
				}
				if asJSON {
					err = printJSON(cmd.OutOrStdout(), v)
				} else {
					err = printVerdict(cmd.OutOrStdout(), &v)
				}
				if err == nil && !v.Allow {
					return &cli.Exit{Code: 1}
				}
				return err
			})
		},
	}
	f.add(cmd.Flags())
	cmd.Flags().StringVar(&resolved, "address", "", "what the name resolves to, an `ADDRESS`")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print network.check's result")
	return cmd
}

func printVerdict(w io.Writer, v *api.NetVerdict) error {
	verdict := "refused"
	if v.Allow {
		verdict = "allowed"
	}
	fmt.Fprintf(w, "%s at the %s by %s: %s\n", verdict, v.Step, cli.Line(v.Rule), cli.Line(v.Why))
	if v.Ask {
		fmt.Fprintln(w, "somebody is asked before it is refused")
	}
	if v.HowToAllow != "" {
		fmt.Fprintf(w, "to allow it: %s\n", cli.Line(v.HowToAllow))
	}
	if v.Check != "" && v.Check != "none" {
		fmt.Fprintf(w, "checked in the stream: %s\n", v.Check)
	}
	return nil
}

// parseTarget reads the target of network check.
func parseTarget(s string) (t api.NetTarget, err error) {
	rest := s
	if scheme, after, ok := strings.Cut(s, "://"); ok {
		if t.Proto = api.NetProto(scheme); t.Proto != api.TCP && t.Proto != api.UDP {
			return t, fmt.Errorf("%q: the scheme is neither tcp:// nor udp://", s)
		}
		rest = after
	}
	if a, err := netip.ParseAddr(rest); err == nil {
		t.Address = a.String()
		return t, nil
	}
	host, port, err := net.SplitHostPort(rest)
	if err != nil { // no port
		t.Name = rest
		return t, nil
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return t, fmt.Errorf("%q: %q is no port", s, port)
	}
	t.Port = uint16(n)
	if a, err := netip.ParseAddr(host); err == nil {
		t.Address = a.String()
	} else {
		t.Name = host
	}
	return t, nil
}
