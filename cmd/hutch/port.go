package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/hutch-sh/hutch/internal/cli"
	"github.com/hutch-sh/hutch/internal/listen"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/client"
)

// published are the ports of -p.
type published []api.PortPublish

func (l *published) add(fs *pflag.FlagSet) {
	fs.FuncP("publish", "p",
		"let this host reach a TCP `[[IP:]HOSTPORT:]PORT` inside, or /path/of/socket:PORT; no IP is 127.0.0.1, no HOSTPORT a free one; may be repeated", func(v string) error {
			p, err := api.ParsePublish(v)
			*l = append(*l, p)
			return entryError(err)
		})
}

// expose makes them be reached. What listens is made here, with the rights of the caller, and handed over: on a low
// port, say, or in a folder of theirs, where root's hutchd, which is a stranger, may not. With an error some may be.
func (l published) expose(ctx context.Context, c *client.Client, sandbox string, token bool) (ports []api.Port,
	err error) {
	for _, p := range l {
		port, err := exposeOne(ctx, c, api.PortExposeParams{Sandbox: sandbox, Port: p.Port, Token: token}, p.Address)
		if err != nil {
			return ports, err
		}
		ports = append(ports, port)
	}
	return ports, nil
}

func exposeOne(ctx context.Context, c *client.Client, p api.PortExposeParams, address string) (api.Port, error) {
	at, err := api.ParsePortAddress(address)
	if err != nil {
		return api.Port{}, err
	}
	listener, err := listen.On(at)
	if err != nil {
		return api.Port{}, err
	}
	defer listener.Close()
	p.Address = at.Path
	port, err := c.ExposePort(ctx, p, listener)
	if err != nil && at.Path != "" {
		_ = os.Remove(at.Path)
	}
	return port, err
}

// tell says where ports are whose addresses nobody has chosen.
func (l published) tell(ports []api.Port) {
	for i := range ports {
		if at, err := api.ParsePortAddress(l[i].Address); err == nil && at.Path == "" && at.Port() == 0 {
			fmt.Fprintf(os.Stderr, "hutch: port %d is %s\n", ports[i].Port, orURL(&ports[i]))
		}
	}
}

func orURL(p *api.Port) string {
	if p.Token != "" && p.URL != "" {
		return p.URL
	}
	return p.Address
}

// unlinkSockets removes the Unix sockets of ports that are gone, where hutchd may not: those of root's.
func unlinkSockets(ports []api.Port) {
	for i := range ports {
		unlinkSocket(ports[i].Address)
	}
}

// unlinkClosed is unlinkSockets for a stop.
func unlinkClosed(ports []api.EndedPort) {
	for i := range ports {
		unlinkSocket(ports[i].Address)
	}
}

func unlinkSocket(address string) {
	if at, err := api.ParsePortAddress(address); err == nil && at.Path != "" {
		if st, err := os.Lstat(at.Path); err == nil && st.Mode()&os.ModeSocket != 0 {
			_ = os.Remove(at.Path)
		}
	}
}

func newPort() *cobra.Command {
	cmd := &cobra.Command{
		Use: "port COMMAND",
		Long: `Reach TCP servers in sandboxes from this host, also those that listen on 127.0.0.1 or ::1 there, whatever the
sandbox itself may reach. Only programs of this host can connect, unless an address such as 0.0.0.0 is given; those of
other users can, too, but for Unix sockets, which are yours alone. Ports outlive hutchd and end with their sandbox.`,
		Example: `  hutch port expose web 8080:80
  hutch port expose --token web 3000
  hutch port ls
  hutch port close web 80`,
		RunE: parentOnly,
	}
	cmd.AddCommand(newPortExpose(), newPortLs(), newPortClose())
	return cmd
}

func newPortExpose() *cobra.Command {
	token, asJSON := false, false
	cmd := &cobra.Command{
		Use:     "expose [flags] SANDBOX [[IP:]HOSTPORT:]PORT...",
		Aliases: []string{"open"},
		Short:   "Let this host reach ports in a sandbox, and print where",
		Long: `Let this host reach ports in a sandbox, and print where, a line each. Instead of IP:HOSTPORT there may be the absolute
path of a Unix socket. With --token only HTTP requests pass that have it: the printed address, a link, gives it to a
browser; programs send "Authorization: Bearer TOKEN".`,
		Example: `  hutch port expose web 80
  hutch port expose web 0.0.0.0:8080:80
  hutch port expose db /tmp/db.sock:5432`,
		Args: wantArgs(2, -1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var list published
			for _, arg := range args[1:] {
				p, err := api.ParsePublish(arg)
				if err != nil {
					return cli.Usage(cmd.CommandPath(), entryError(err))
				}
				list = append(list, p)
			}
			return withDaemon(cmd.Context(), func(c *client.Client) error {
				ports, err := list.expose(cmd.Context(), c, args[0], token)
				return errors.Join(printPorts(cmd.OutOrStdout(), ports, asJSON), err)
			})
		},
	}
	cmd.Flags().BoolVar(&token, "token", false, "make a token that HTTP requests must have")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print all that is known, a list")
	return cmd
}

func printPorts(w io.Writer, ports []api.Port, asJSON bool) error {
	if asJSON {
		return printJSON(w, ports)
	}
	for i := range ports {
		if _, err := fmt.Fprintln(w, orURL(&ports[i])); err != nil {
			return err
		}
	}
	return nil
}

func newPortLs() *cobra.Command {
	asJSON := false
	cmd := &cobra.Command{
		Use:     "ls [flags] [SANDBOX]",
		Aliases: []string{"list"},
		Short:   "List the ports that this host reaches",
		Args:    wantArgs(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withDaemon(cmd.Context(), func(c *client.Client) error {
				ports, err := c.Ports(cmd.Context(), append(args, "")[0])
				if err != nil {
					return err
				}
				if asJSON {
					return printJSON(cmd.OutOrStdout(), ports)
				}
				t := cli.Table{Header: []string{"SANDBOX", "PORT", "ADDRESS", "OPEN", "SO FAR"},
					Right: []bool{false, true, false, true, true}}
				for i := range ports {
					p := &ports[i]
					t.Row(p.Sandbox, strconv.Itoa(p.Port), cli.Line(orURL(p)), strconv.Itoa(p.Connections),
						strconv.FormatInt(p.Accepted, 10))
				}
				t.Print(cmd.OutOrStdout(), "", nil)
				return nil
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print all that is known, a list")
	return cmd
}

func newPortClose() *cobra.Command {
	return &cobra.Command{
		Use:     "close SANDBOX PORT [ADDRESS]",
		Aliases: []string{"rm"},
		Short:   "Let this host reach a port in a sandbox no more, and end its connections",
		Args:    wantArgs(2, 3),
		RunE: func(cmd *cobra.Command, args []string) error {
			n, err := strconv.Atoi(args[1])
			if err != nil {
				return cli.Usage(cmd.CommandPath(), fmt.Errorf("%q is no port", args[1]))
			}
			p := api.PortCloseParams{Sandbox: args[0], Port: n}
			if len(args) > 2 {
				p.Address = args[2]
			}
			return withDaemon(cmd.Context(), func(c *client.Client) error {
				closed, err := c.ClosePort(cmd.Context(), p)
				unlinkSockets(closed)
				return err
			})
		},
	}
}
