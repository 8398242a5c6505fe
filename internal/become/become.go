// Package become is how the command line becomes another program of hutch's, and tells it what to do: in an environment
// variable, as JSON, which the other one takes out of its environment.
package become

import (
	"encoding/json"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/paths"
	"github.com/hutch-sh/hutch/runtime/api"
)

// Program executes the program name, which lies beside this one, with cfg in a variable. It returns only where that
// fails.
func Program(name, variable string, cfg any) error {
	path, err := paths.Sibling(name)
	if err != nil {
		return err
	}
	text, err := json.Marshal(cfg)
	if err != nil {
		return err
	}
	err = unix.Exec(path, []string{path}, append(os.Environ(), variable+"="+string(text)))
	return api.Errorf(api.Internal, "execute %s: %w", path, err)
}

// Config reads what Program has left in a variable into cfg. command is what a user types to get here.
func Config(variable, command string, cfg any) error {
	text, ok := os.LookupEnv(variable)
	if !ok {
		return fmt.Errorf("%s is not set: this program is started by `%s`", variable, command)
	}
	if err := os.Unsetenv(variable); err != nil {
		return err
	}
	if err := json.Unmarshal([]byte(text), cfg); err != nil {
		return fmt.Errorf("%s: %w", variable, err)
	}
	return nil
}
