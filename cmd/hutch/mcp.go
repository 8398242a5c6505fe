package main

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/hutch-sh/hutch/internal/become"
	"github.com/hutch-sh/hutch/internal/cli"
	"github.com/hutch-sh/hutch/internal/mcpapi"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/client"
)

func newMCP() *cobra.Command {
	o := &specFlags{}
	cfg := mcpapi.Config{}
	cmd := &cobra.Command{
		Use: "mcp [flags] [IMAGE]",
		Long: `Serve the Model Context Protocol on stdin and stdout: tools to read, write, edit and search files, to run
commands and code. They work in a sandbox that is made when the first tool needs it, as the flags say, and removed
when the client ends, also when it is killed. Nothing of the host is in it but what you name.`,
		Example: `  hutch mcp install claude
  hutch mcp --workspace .:overlay --allow pypi.org python@3.12
  {"mcpServers": {"sandbox": {"command": "hutch", "args": ["mcp", "--workspace", "/home/me/project:overlay"]}}}`,
		Args: wantArgs(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			image := ""
			if len(args) > 0 {
				if image = args[0]; image == "" {
					return cli.Usage(cmd.CommandPath(), errEmptyImage)
				}
			}
			if err := o.checkTimeout(cmd.CommandPath(), false); err != nil {
				return err
			}
			if cfg.Sandbox != "" && image != "" {
				return cli.Usage(cmd.CommandPath(),
					errors.New("an image does not go with --sandbox, which has its own"))
			}
			if cfg.Sandbox != "" && o.spec.Undo {
				return cli.Usage(cmd.CommandPath(),
					errors.New("--undo does not go with --sandbox, which was made with it or without"))
			}
			if cfg.TokenFile != "" && cfg.HTTP == "" {
				return cli.Usage(cmd.CommandPath(), errors.New("--token-file goes with --http"))
			}
			var err error
			if cfg.Spec, err = o.build(image); err != nil {
				return err
			}
			if err := checkMCPMode(cmd.CommandPath(), &cfg); err != nil {
				return err
			}
			return becomeMCP(cmd, cfg)
		},
	}
	cmd.Flags().SetInterspersed(false)
	o.add(cmd.Flags())
	cmd.Flags().StringVar(&cfg.Sandbox, "sandbox", "", "work in this `SANDBOX`, which stays")
	cmd.Flags().BoolVar(&cfg.Keep, "keep", false, "keep the sandboxes when the client ends")
	cmd.Flags().StringArrayVar(&cfg.Registries, "registry", nil,
		"let the model have images of `HOST[:PORT]` fetched, beside the image given here (with a network, also of docker.io); may be repeated")
	cmd.Flags().StringVar(&cfg.HTTP, "http", "",
		"serve over HTTP on `ADDRESS`, such as 127.0.0.1:8000, each session with a sandbox of its own")
	cmd.Flags().StringVar(&cfg.TokenFile, "token-file", "",
		"with --http: `FILE` with the bearer token (default: one is made and printed)")
	cmd.Flags().Func("mode",
		"where sandbox_run_command runs commands, `all|selective|off`: in the sandbox (all); there if a scan finds it risky, else on the host; on the host (default all, whatever the configuration says)", func(v string) error {
			if cfg.Mode = api.ExecMode(v); v == "" {
				return errors.New("no mode is given")
			}
			return api.CheckExecMode(cfg.Mode)
		})
	cmd.Flags().BoolVar(&cfg.Structured, "structured", false,
		"have results carry an object beside the text, for clients that are programs: models read the text")
	cmd.Flags().BoolVar(&cfg.Private, "private", false, "use a daemon of its own")
	cmd.AddCommand(newMCPInstall(), newMCPUninstall())
	return cmd
}

// becomeMCP executes hutch-mcp, once the daemon answers: what is wrong with it is told better here.
func becomeMCP(cmd *cobra.Command, cfg mcpapi.Config) error {
	if !cfg.Private {
		err := withDaemon(cmd.Context(), func(c *client.Client) error {
			if cfg.Folder == "" {
				return nil
			}
			info, err := c.Info(cmd.Context())
			if err == nil && info.HostExecution != api.HostAllowed {
				err = api.Errorf(api.PermissionDenied,
					"--mode %s has commands run on the host, outside of any sandbox, which the configuration refuses",
					cfg.Mode).
					WithOp("mcp").WithHint("leave out --mode; or put `host_execution: allowed` into %s, then run `hutch config approve` and `hutch config reload`", info.Paths.Config)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return become.Program("hutch-mcp", mcpapi.Variable, cfg)
}

// checkMCPMode refuses a mode with which a model would see other files in the sandbox than on the host, and one that
// anybody else could use.
func checkMCPMode(command string, cfg *mcpapi.Config) (err error) {
	if cfg.Mode == "" || cfg.Mode == api.ExecModeAll {
		return nil
	}
	w := cfg.Spec.Workspace
	switch {
	case cfg.Sandbox != "" || cfg.Private || cfg.HTTP != "":
		err = fmt.Errorf("--mode %s goes with neither --sandbox, --private nor --http", cfg.Mode)
	case w == nil || w.Mode != api.ModeRW && (w.Mode != api.ModeRO || cfg.Mode == api.ExecModeOff):
		err = fmt.Errorf("--mode %s takes --workspace PATH:rw: commands on the host and in the sandbox must see the same files", cfg.Mode)
	default:
		cfg.Folder, err = filepath.Abs(w.Path)
		return err
	}
	return cli.Usage(command, err)
}
