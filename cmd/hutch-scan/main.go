// Command hutch-scan looks through one piece of code, which it reads from its standard input, and ends: see runtime/scan. hutchd starts it;
// it is of no use to anybody else. It has a binary to itself because the parsers are C, and what they read is hostile.
package main

import (
	"os"

	"github.com/hutch-sh/hutch/runtime/scan/worker"
)

func main() { os.Exit(worker.Main()) }
