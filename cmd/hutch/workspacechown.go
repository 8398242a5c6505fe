package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hutch-sh/hutch/internal/cli"
	"github.com/hutch-sh/hutch/runtime/api"
)

// givenBack finds, in the folder that it runs in, what belongs to users of sandboxes, and gives it to root, who is the
// folder's owner. What belongs to somebody who has no id in sandboxes (65534) is not touched, and neither is what is
// mounted below.
const givenBack = `find . -xdev '(' ! -uid 0 -o ! -gid 0 ')' ! -uid 65534 ! -gid 65534 -print0 -exec chown -h 0:0 {} +`

func newWorkspaceChown() *cobra.Command {
	return &cobra.Command{
		Use:   "chown PATH",
		Short: "Make files yours that users of sandboxes have left in a folder",
		Long: `Make files yours that users of sandboxes other than root have left in a folder of yours, in mode rw: on the host they
belong to one of your subordinate ids, and you cannot change or remove them. It is done in a sandbox without a network, whose
root may do it.`,
		Args: wantArgs(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			run := exec.CommandContext(cmd.Context(), "/proc/self/exe", "run", "--workspace", args[0]+":rw",
				"--unguard", "all", "--network", "none",
				"--user", "0", "host", "--", "sh", "-c", givenBack)
			var names, said bytes.Buffer
			run.Stdout, run.Stderr = &names, &said
			err := run.Run()
			if at := bytes.Index(said.Bytes(), []byte(" is in sandbox ")); err != nil && at >= 0 {
				other, _, _ := strings.Cut(said.String()[at+len(" is in sandbox "):], " ")
				return api.Errorf(api.FailedPrecondition, "%s is in sandbox %s, which may write to it meanwhile",
					args[0], other).
					WithOp("workspace chown").WithHint("stop it first: hutch stop %s", other)
			}
			if _, werr := os.Stderr.Write(said.Bytes()); werr != nil {
				return werr
			}
			var ended *exec.ExitError
			switch {
			case errors.As(err, &ended) && ended.ExitCode() >= 125:
				return &cli.Exit{Code: ended.ExitCode()} // it has said why
			case err != nil:
				return api.Errorf(api.FailedPrecondition, "not all of %s could be given back", args[0]).
					WithOp("workspace chown").WithHint("what could not is named above")
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s given back to you\n",
				counted(bytes.Count(names.Bytes(), []byte{0}), "file"))
			return err
		},
	}
}
