package main

import (
	"os"

	"github.com/hutch-sh/hutch/internal/config"
	"github.com/hutch-sh/hutch/internal/paths"
)

// defaultImage is the configured image. The file is read only when a command
// line leaves the image out, because every start of hutch would pay for it.
func defaultImage() (string, error) {
	places, err := paths.Resolve(os.Getenv, os.Getuid())
	if err != nil {
		return "", err
	}
	c, err := config.Load(places.Config)
	return c.Image, err
}
