package registry

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/docker/docker-credential-helpers/client"
	"github.com/docker/docker-credential-helpers/credentials"
	"go.podman.io/image/v5/docker/reference"
	"go.podman.io/image/v5/pkg/sysregistriesv2"
	"go.podman.io/image/v5/types"
	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/runtime/api"
)

// Credential helpers are programs that people choose, and some wait for somebody to unlock a
// key ring. The library waits for them for ever, and knows no credsStore. So helpers are run
// here, in the library's order, and what it is told is the result. The entries of the files
// it reads itself, one file at a time.

// Authenticate finds the credentials for an image's registry, so that the library asks no helper.
// For mirrors on other hosts, which it does ask for, it makes sure that they answer.
func (c *Config) Authenticate(ctx context.Context, sys *types.SystemContext, named reference.Named) error {
	domain := reference.Domain(named)
	creds, err := c.credentials(ctx, sys, named.Name())
	if err != nil {
		return err
	}
	known, err := sysregistriesv2.FindRegistry(sys, named.Name())
	if err != nil {
		return fmt.Errorf("read registries.conf: %w", err)
	}
	if known != nil {
		sources, err := known.PullSourcesFromReference(named)
		if err != nil {
			return err
		}
		for _, other := range sources {
			if reference.Domain(other.Reference) == domain {
				continue
			}
			if _, err := c.credentials(ctx, sys, other.Reference.Name()); err != nil {
				return err
			}
		}
	}
	sys.DockerAuthConfig = &creds
	return nil
}

// credentials are those for key, a registry that a path may follow; empty ones when nobody
// has any.
func (c *Config) credentials(ctx context.Context, sys *types.SystemContext,
	key string) (types.DockerAuthConfig, error) {
	helpers, err := sysregistriesv2.CredentialHelpers(sys)
	if err != nil {
		return types.DockerAuthConfig{}, fmt.Errorf("read registries.conf: %w", err)
	}
	registry, _, _ := strings.Cut(key, "/")
	var failed []error
	for _, helper := range helpers {
		var creds types.DockerAuthConfig
		if helper == sysregistriesv2.AuthenticationFileHelper {
			creds, err = c.credentialsOfFiles(ctx, sys, key, registry)
		} else {
			creds, err = c.askHelper(ctx, helper, registry)
		}
		var e *api.Error
		switch {
		case errors.As(err, &e): // it hangs: the next one would be waited for, too
			return types.DockerAuthConfig{}, err
		case err != nil:
			failed = append(failed, err)
		case creds != types.DockerAuthConfig{}:
			return creds, nil
		}
	}
	if len(failed) > 0 {
		return types.DockerAuthConfig{}, notStored(errors.Join(failed...), "", "they cannot be found for "+registry)
	}
	return types.DockerAuthConfig{}, nil
}

// nowhere is a folder that no system has.
const nowhere = "/nonexistent"

// authFile is a file of credentials.
type authFile struct {
	path   string
	legacy bool // Docker's before 2015, which names no helpers
}

// authFiles are those of containers-auth.json(5), in order.
func authFiles(sys *types.SystemContext) []authFile {
	if sys.AuthFilePath != "" {
		return []authFile{{path: sys.AuthFilePath}}
	}
	home, err := os.UserHomeDir()
	if err != nil {
		home = nowhere
	}
	or := func(variable, folder string) string {
		if v := os.Getenv(variable); v != "" {
			return v
		}
		return folder
	}
	return []authFile{
		{path: filepath.Join(or("XDG_RUNTIME_DIR", fmt.Sprint("/run/containers/", os.Getuid())),
			"containers/auth.json")},
		{path: filepath.Join(or("XDG_CONFIG_HOME", filepath.Join(home, ".config")), "containers/auth.json")},
		{path: filepath.Join(or("DOCKER_CONFIG", filepath.Join(home, ".docker")), "config.json")},
		{path: filepath.Join(home, ".dockercfg"), legacy: true},
	}
}

func (c *Config) credentialsOfFiles(ctx context.Context, sys *types.SystemContext, key,
	registry string) (types.DockerAuthConfig, error) {
	for _, f := range authFiles(sys) {
		h, err := f.helper(registry)
		if err != nil {
			return types.DockerAuthConfig{}, err
		}
		if h.name != "" {
			creds, err := c.askHelper(ctx, h.name, h.server)
			if err != nil || creds != (types.DockerAuthConfig{}) {
				return creds, err
			}
		}
		if h.only {
			continue
		}
		if creds, err := f.entry(key); err != nil || creds != (types.DockerAuthConfig{}) {
			return creds, err
		}
	}
	return types.DockerAuthConfig{}, nil
}

// fileHelper is a helper that a file names, "" is none.
type fileHelper struct {
	name   string
	server string // how it knows the registry
	only   bool   // the file has nothing else for the registry
}

// helper is the one that the file names for a registry.
func (f authFile) helper(registry string) (fileHelper, error) {
	if f.legacy {
		return fileHelper{}, nil
	}
	data, err := f.read()
	if data == nil {
		return fileHelper{}, err
	}
	var c struct {
		CredHelpers map[string]string `json:"credHelpers"`
		CredsStore  string            `json:"credsStore"`
	}
	if err := json.Unmarshal(data, &c); err != nil {
		return fileHelper{}, fmt.Errorf("%s: %w", f.path, err)
	}
	if name, ok := c.CredHelpers[registry]; ok {
		return fileHelper{name, registry, true}, nil
	}
	if registry == "docker.io" { // as docker login calls it
		registry = "https://index.docker.io/v1/"
	}
	return fileHelper{name: c.CredsStore, server: registry}, nil
}

// read reads the file. It returns nil for one that is not there, or is empty: Docker takes that for one that says
// nothing.
func (f authFile) read() ([]byte, error) {
	data, err := os.ReadFile(f.path)
	if errors.Is(err, os.ErrNotExist) || err == nil && len(bytes.TrimSpace(data)) == 0 {
		return nil, nil
	}
	return data, err
}

// authEntry is what Docker's files have for a registry. The library knows Auth and IdentityToken, and
// the latter beside the former only.
type authEntry struct {
	Auth          string `json:"auth"` // base64 of USER:PASSWORD; it goes before the two
	Username      string `json:"username"`
	Password      string `json:"password"`
	IdentityToken string `json:"identitytoken"`
	RegistryToken string `json:"registrytoken"`
}

// entry is what the file itself has for key, an image's name or a part of it: what it has for the longest part,
// or under another way to write the registry's name.
func (f authFile) entry(key string) (types.DockerAuthConfig, error) {
	data, err := f.read()
	if data == nil {
		return types.DockerAuthConfig{}, err
	}
	var c struct {
		Auths map[string]authEntry `json:"auths"`
	}
	into := any(&c)
	if f.legacy {
		into = &c.Auths
	}
	if err := json.Unmarshal(data, into); err != nil {
		return types.DockerAuthConfig{}, fmt.Errorf("%s: %w", f.path, err)
	}
	registry, _, _ := strings.Cut(key, "/")
	keys := []string{registry}
	for !f.legacy && key != registry {
		keys = slices.Insert(keys, len(keys)-1, key)
		key = key[:strings.LastIndexByte(key, '/')]
	}
	for _, other := range slices.Sorted(maps.Keys(c.Auths)) {
		if f.registryOf(other) == hubName(registry) && other != registry {
			keys = append(keys, other)
		}
	}
	for _, k := range keys {
		if creds, err := c.Auths[k].decode(); err != nil {
			return types.DockerAuthConfig{}, fmt.Errorf("%s: the entry of %q: %w", f.path, k, err)
		} else if creds != (types.DockerAuthConfig{}) {
			return creds, nil
		}
	}
	return types.DockerAuthConfig{}, nil
}

// decode returns the entry's credentials, empty ones of an entry that only marks a registry which a helper knows.
func (e authEntry) decode() (types.DockerAuthConfig, error) {
	creds := types.DockerAuthConfig{Username: e.Username, Password: e.Password, IdentityToken: e.IdentityToken}
	if e.Auth != "" {
		text, err := base64.StdEncoding.DecodeString(e.Auth)
		user, password, ok := strings.Cut(string(text), ":")
		if err != nil || !ok {
			// and no word of what it is
			return types.DockerAuthConfig{}, errors.New("auth is not USER:PASSWORD in base64")
		}
		creds.Username, creds.Password = user, strings.Trim(password, "\x00")
	}
	if creds == (types.DockerAuthConfig{}) && e.RegistryToken != "" {
		return creds, errors.New("it has a registrytoken alone, which hutch does not send: give it a username and a password, or log in again")
	}
	return creds, nil
}

// registryOf is the registry that a key of the file names, which may be a URL as Docker wrote it once.
func (f authFile) registryOf(key string) string {
	name := strings.TrimPrefix(strings.TrimPrefix(key, "http://"), "https://")
	if f.legacy || name != key {
		name, _, _ = strings.Cut(name, "/")
	}
	return hubName(name)
}

// hubName is one name for the hosts of Docker Hub.
func hubName(registry string) string {
	switch registry {
	case "index.docker.io", "registry-1.docker.io":
		return "docker.io"
	}
	return registry
}

// askHelper runs a helper for at most as long as a registry may be silent. It returns empty
// credentials when the helper has none.
func (c *Config) askHelper(ctx context.Context, helper, server string) (types.DockerAuthConfig, error) {
	name := "docker-credential-" + helper
	if strings.ContainsRune(helper, '/') {
		return types.DockerAuthConfig{}, fmt.Errorf("the credential helper %q is no name of a program", name)
	}
	limited, cancel := context.WithTimeoutCause(ctx, c.Stall, errHelperHangs)
	defer cancel()
	creds, err := client.Get(func(args ...string) client.Program { return newHelper(limited, name, args) }, server)
	switch {
	case ctx.Err() != nil:
		return types.DockerAuthConfig{}, context.Cause(ctx)
	case errors.Is(context.Cause(limited), errHelperHangs):
		return types.DockerAuthConfig{},
			api.Errorf(api.DeadlineExceeded, "the credential helper %s has not answered for %s within %s", name, server,
				c.Stall).
				WithHint("Unlock the key ring that it asks, if it has one; echo %s | %s get shows what it does. Else take it out of the file of credentials or of registries.conf.", server, name)
	case err != nil && credentials.IsErrCredentialsNotFoundMessage(err.Error()):
		return types.DockerAuthConfig{}, nil
	case err != nil:
		return types.DockerAuthConfig{}, fmt.Errorf("%s: %w", name, err)
	case creds.Username == "<token>": // what the protocol calls an identity token
		return types.DockerAuthConfig{IdentityToken: creds.Secret}, nil
	}
	return types.DockerAuthConfig{Username: creds.Username, Password: creds.Secret}, nil
}

var errHelperHangs = errors.New("the credential helper hangs")

// helperProgram is a helper in a process group of its own: what it has started ends with it.
type helperProgram struct{ cmd *exec.Cmd }

// helperReply bounds what a helper may answer.
const helperReply = 1 << 20

func newHelper(ctx context.Context, name string, args []string) client.Program {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
	cmd.WaitDelay = time.Second // who left the group may hold the pipe
	return helperProgram{cmd}
}

func (h helperProgram) Input(in io.Reader) { h.cmd.Stdin = in }

func (h helperProgram) Output() ([]byte, error) {
	var out bytes.Buffer
	h.cmd.Stdout = &cappedWriter{w: &out, left: helperReply}
	err := h.cmd.Run()
	return out.Bytes(), err
}

// cappedWriter fails when more comes than is left.
type cappedWriter struct {
	w    io.Writer
	left int
}

func (c *cappedWriter) Write(p []byte) (int, error) {
	if c.left -= len(p); c.left < 0 {
		return 0, errors.New("it answers too much")
	}
	return c.w.Write(p)
}
