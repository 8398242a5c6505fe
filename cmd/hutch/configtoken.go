package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/hutch-sh/hutch/internal/cli"
	"github.com/hutch-sh/hutch/internal/config"
)

func newConfigToken() *cobra.Command {
	return &cobra.Command{
		Use:   "token NAME",
		Short: "Make a token for a client, and print it",
		Long: `Make a token for a client, and print it; on standard error, the line for the configuration file, which
has the token's digest only. With a token in the file the daemon serves nobody who does not show one:
clients have it in HUTCH_TOKEN, or in a file that HUTCH_TOKEN_FILE names and only you can read. Audit logs have the
client's name. A token that is taken out of the file ends the connections of its client.`,
		Example: `  (umask 077; hutch config token ci >ci.token)
  HUTCH_TOKEN_FILE=ci.token hutch ps`,
		Args: wantArgs(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := config.CheckTokenName(args[0]); err != nil {
				return cli.Usage(cmd.CommandPath(), err)
			}
			_, path, err := loadConfig()
			if err != nil {
				return err
			}
			token, entry := config.NewToken()
			if _, err := fmt.Fprintln(cmd.OutOrStdout(), token); err != nil {
				return err
			}
			_, err = fmt.Fprintf(os.Stderr, "add to %s, then hutch config reload:\ntokens: {%s: %s}\n", path,
				args[0], entry)
			return err
		},
	}
}
