// Command mcpb makes the MCPB bundle and server.json, for make package.
package main

import (
	"flag"
	"fmt"
	"os"

	"github.com/hutch-sh/hutch/internal/mcpb"
)

func main() {
	var cfg mcpb.Config
	flag.StringVar(&cfg.Version, "version", "", "of the release")
	flag.StringVar(&cfg.Bin, "bin", "bin", "folder of the binaries")
	flag.StringVar(&cfg.License, "license", "LICENSE", "file")
	flag.StringVar(&cfg.Out, "out", "dist", "folder to write to")
	flag.Parse()
	if _, _, err := mcpb.Make(cfg); err != nil {
		fmt.Fprintln(os.Stderr, "mcpb:", err)
		os.Exit(1)
	}
}
