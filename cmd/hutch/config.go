package main

import (
	"errors"
	"io"
	"io/fs"
	"os"

	"gopkg.in/yaml.v3"

	"github.com/hutch-sh/hutch/internal/paths"
	"github.com/hutch-sh/hutch/runtime/api"
)

// hostImage is the image that needs no registry: the host's own programs.
const hostImage = "host"

// config is the part of the configuration file that the command line reads.
type config struct {
	// Image is used where a command line names none.
	Image string `yaml:"image"`
}

// defaultImage is the configured image. The file is read only when a command
// line leaves the image out, because every start of hutch would pay for it.
func defaultImage() (string, error) {
	places, err := paths.Resolve(os.Getenv, os.Getuid())
	if err != nil {
		return "", err
	}
	f, err := os.Open(places.Config)
	if errors.Is(err, fs.ErrNotExist) {
		return hostImage, nil
	}
	if err != nil {
		return "", api.Errorf(api.FailedPrecondition, "%w", err).WithOp("read configuration")
	}
	defer f.Close()
	c := config{}
	if err := yaml.NewDecoder(f).Decode(&c); err != nil && !errors.Is(err, io.EOF) {
		return "", api.Errorf(api.InvalidArgument, "%s: %w", places.Config, err).
			WithOp("read configuration").WithHint("image: %s", hostImage)
	}
	if c.Image == "" {
		return hostImage, nil
	}
	return c.Image, nil
}
