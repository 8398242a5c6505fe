package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/hutch-sh/hutch/internal/config"
	"github.com/hutch-sh/hutch/internal/paths"
	"github.com/hutch-sh/hutch/runtime/client"
)

// defaultImage is the configured image. The file is read only when a command
// line leaves the image out, because every start of hutch would pay for it.
func defaultImage() (string, error) {
	d, err := configDigest()
	return d.Image, err
}

func configDigest() (config.Digest, error) {
	places, err := paths.Resolve(os.Getenv, os.Getuid())
	if err != nil {
		return config.Digest{}, err
	}
	d, err := config.LoadDigest(places.Config, places.Approved(), places.ConfigDigest(), parseYAML)
	tellHeld(d.Held)
	return d, err
}

func loadConfig() (config.Config, string, error) {
	places, err := paths.Resolve(os.Getenv, os.Getuid())
	if err != nil {
		return config.Config{}, "", err
	}
	c, err := config.Load(places.Config, parseYAML)
	return c, places.Config, err
}

func newConfig() *cobra.Command {
	cmd := &cobra.Command{
		Use: "config COMMAND",
		Long: `Show, check and reload the configuration file: the default image, limits of sandboxes
that ask for none, quotas, and tokens of clients. A file to start from:

  hutch config defaults >"$(hutch config path)"`,
		RunE: parentOnly,
	}
	sub := func(use, short string, run func(cmd *cobra.Command) error) {
		cmd.AddCommand(&cobra.Command{Use: use, Short: short, Args: wantArgs(0, 0),
			RunE: func(cmd *cobra.Command, _ []string) error { return run(cmd) }})
	}
	sub("show", "Print the configuration, with the defaults of what the file leaves out",
		func(cmd *cobra.Command) error {
			c, _, err := loadConfig()
			if err != nil {
				return err
			}
			if _, err := configDigest(); err != nil { // which tells what of it is not in force
				return err
			}
			return config.Print(cmd.OutOrStdout(), c, false)
		})
	sub("defaults", "Print all that the file may hold, commented out", func(cmd *cobra.Command) error {
		return config.Print(cmd.OutOrStdout(), config.Default(), true)
	})
	sub("path", "Print where the file is", func(cmd *cobra.Command) error {
		places, err := paths.Resolve(os.Getenv, os.Getuid())
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(cmd.OutOrStdout(), places.Config)
		return err
	})
	sub("check", "Read the file, and say what is wrong with it", func(cmd *cobra.Command) error {
		_, path, err := loadConfig()
		if err != nil {
			return err
		}
		if _, err := os.Stat(path); err != nil {
			path += " does not exist: all defaults"
		}
		_, err = fmt.Fprintln(cmd.OutOrStdout(), path)
		return err
	})
	cmd.AddCommand(newConfigApprove(), newConfigGuard(), newConfigToken())
	sub("reload", "Make the daemon read the file again, as SIGHUP does", func(cmd *cobra.Command) error {
		return withDaemon(cmd.Context(), func(c *client.Client) error { return c.Reload(cmd.Context()) })
	})
	return cmd
}
