// Command hutch-scan looks through one piece of code, which it reads as a request of hutchd's, and ends. It has a
// binary to itself because its parsers are C, and because what they read is hostile. With --rules it reads nothing, and
// prints what it goes by.
package main

import (
	"encoding/json"
	"os"

	"github.com/hutch-sh/hutch/runtime/scan/engine"
	"github.com/hutch-sh/hutch/runtime/scan/worker"
)

func main() {
	if len(os.Args) == 2 && os.Args[1] == "--rules" {
		if json.NewEncoder(os.Stdout).Encode(engine.Rules()) != nil {
			os.Exit(1)
		}
		return
	}
	os.Exit(worker.Main())
}
