// Command hutch-scan looks through one piece of code, which it reads as a request of hutchd's, and ends. It has a binary to itself because its parsers
// are C, and because what they read is hostile.
package main

import (
	"os"

	"github.com/hutch-sh/hutch/runtime/scan/worker"
)

func main() { os.Exit(worker.Main()) }
