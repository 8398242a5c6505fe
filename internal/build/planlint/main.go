// Planlint checks what stands beside the tests and in .ci: see testplan.Lint. `make lint` runs it.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/hutch-sh/hutch/internal/build/testplan"
	"github.com/hutch-sh/hutch/internal/testenv"
)

func main() {
	root, err := testenv.ModuleRoot()
	if err == nil {
		err = testplan.Lint(context.Background(), root)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
