package main

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/hutch-sh/hutch/internal/version"
	"github.com/hutch-sh/hutch/runtime/api"
)

func newVersion() *cobra.Command {
	asJSON := false
	cmd := &cobra.Command{
		Use:  "version",
		Args: wantArgs(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			w := cmd.OutOrStdout()
			if asJSON {
				return printJSON(w, struct {
					Version    string `json:"version"`
					BuildID    string `json:"build_id"`
					APIVersion int    `json:"api_version"`
					Platform   string `json:"platform"`
				}{version.Version, version.BuildID, api.Version, runtime.GOOS + "/" + runtime.GOARCH})
			}
			_, err := fmt.Fprintf(w, "hutch %s (build %s, %s/%s)\n", version.Version, version.BuildID, runtime.GOOS,
				runtime.GOARCH)
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print it as JSON")
	return cmd
}
