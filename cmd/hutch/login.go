package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hutch-sh/hutch/internal/cli"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/client"
)

// maxPassword bounds what --password-stdin reads, in bytes; the daemon takes as much.
const maxPassword = 64 << 10

// loginFlags are the flags of hutch login.
type loginFlags struct {
	user, password string
	stdin, get     bool
}

func newLogin() *cobra.Command {
	var o loginFlags
	cmd := &cobra.Command{
		Use: "login [flags] [REGISTRY]",
		Long: `Ask a registry whether it knows a user name and password and, if so, store them where pulls
and pushes look: $REGISTRY_AUTH_FILE, else $XDG_RUNTIME_DIR/containers/auth.json, as podman login
does, or the credential helper that is set up for the registry. What podman login and docker
login have stored is used, too. Without a runtime folder, and for root, the file is below
hutch's state folder. A path after REGISTRY limits them to what is below; without REGISTRY it is docker.io.

What is not given is asked for on the terminal.`,
		Example: `  hutch login registry.example.com
  hutch login -u ci --password-stdin registry.example.com:5000 < token`,
		Args: wantArgs(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			args = append(args, "docker.io") // as docker does
			ctx, signals := cli.CatchSignals(cmd.Context())
			defer signals.Stop()
			signals.Listen() // a terminal that shows nothing must not be left so
			return interrupted(ctx, o.run(ctx, cmd, args[0]))
		},
	}
	fs := cmd.Flags()
	fs.StringVarP(&o.user, "username", "u", "", "`NAME` of the account")
	fs.BoolVar(&o.stdin, "password-stdin", false, "read the password from stdin")
	fs.BoolVar(&o.get, "get-login", false, "print as whom pulls from the registry come, and change nothing")
	fs.StringVarP(&o.password, "password", "p", "", "")
	_ = fs.MarkHidden("password") // the flag is there: one line above
	return cmd
}

func (o *loginFlags) run(ctx context.Context, cmd *cobra.Command, registry string) error {
	if cmd.Flags().Changed("password") {
		return cli.Usage(cmd.CommandPath(),
			errors.New("a password among the arguments can be read by everybody on this machine: use --password-stdin"))
	}
	if o.get {
		return withDaemon(ctx, func(c *client.Client) error {
			r, err := c.GetLogin(ctx, registry)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), r.Username)
			return err
		})
	}
	p := api.LoginParams{Registry: registry, Username: o.user}
	if err := o.ask(ctx, &p); err != nil {
		var by *cli.Interrupted
		if errors.As(err, &by) {
			return err
		}
		return cli.Usage(cmd.CommandPath(), err)
	}
	return withDaemon(ctx, func(c *client.Client) error {
		r, err := c.Login(ctx, p)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "logged in to %s as %s; kept in %s\n", r.Registry, r.Username, r.Stored)
		return err
	})
}

// ask completes the params, from the terminal what no flag has said.
func (o *loginFlags) ask(ctx context.Context, p *api.LoginParams) error {
	if o.stdin {
		if p.Username == "" {
			return errors.New("--password-stdin needs --username")
		}
		text, err := io.ReadAll(io.LimitReader(os.Stdin, maxPassword+3))
		if err != nil {
			return fmt.Errorf("read the password: %w", err)
		}
		p.Password = api.Secret(strings.TrimSuffix(strings.TrimSuffix(string(text), "\n"), "\r"))
		return nil
	}
	if !cli.IsTerminal(os.Stdin) {
		return errors.New("stdin is no terminal to ask on: use --username and --password-stdin")
	}
	if p.Username == "" {
		line, err := cli.Ask(ctx, os.Stdin, "User name: ", false)
		if err != nil {
			return err
		}
		p.Username = line
	}
	text, err := cli.Ask(ctx, os.Stdin, "Password: ", true)
	p.Password = api.Secret(text)
	return err
}

func newLogout() *cobra.Command {
	return &cobra.Command{
		Use:     "logout REGISTRY",
		Example: `  hutch logout registry.example.com`,
		Args:    wantArgs(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withDaemon(cmd.Context(), func(c *client.Client) error {
				return c.Logout(cmd.Context(), args[0])
			})
		},
	}
}
