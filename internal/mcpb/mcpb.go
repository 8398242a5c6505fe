// Package mcpb makes what the Model Context Protocol's clients and registry install a server from: an MCPB bundle, a
// zip archive with hutch's binaries and a manifest, and the server.json that describes the bundle to the registry.
//
// The formats are those of github.com/modelcontextprotocol/mcpb (MANIFEST.md, version 0.3) and of
// github.com/modelcontextprotocol/registry (server.schema.json of 2025-12-11).
package mcpb

import (
	"archive/zip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
)

// Binaries are what a bundle has of hutch.
var Binaries = []string{"hutch", "hutchd", "hutch-launch", "hutch-init", "hutch-netd", "hutch-mcp", "hutch-web",
	"hutch-scan"}

// Config says what a bundle is made of.
type Config struct {
	Version string
	Bin     string // folder of the binaries
	License string // file
	Out     string // folder, which is there; what it has of the same version is replaced
}

const (
	project     = "https://github.com/hutch-sh/hutch"
	schema      = "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json"
	name        = "io.github.hutch-sh/hutch"
	description = "A rootless sandbox on your own Linux machine: commands, code and files, with a network policy"
	// folder is the key of what the user is asked for.
	folder = "workspace"
)

type object = map[string]any

// Make makes the bundle and server.json, and returns their paths. The same binaries make the same bytes.
func Make(cfg Config) (bundle, server string, err error) {
	base := fmt.Sprintf("hutch-mcp-%s-linux-%s.mcpb", cfg.Version, runtime.GOARCH)
	bundle, server = filepath.Join(cfg.Out, base), filepath.Join(cfg.Out, "server.json")
	sum, err := archive(cfg, bundle)
	if err != nil {
		return "", "", fmt.Errorf("make %s: %w", bundle, err)
	}
	text, err := encode(object{
		"$schema": schema, "name": name, "title": "hutch", "description": description, "version": cfg.Version,
		"websiteUrl": project, "repository": object{"url": project, "source": "github"},
		"packages": []object{{
			"registryType": "mcpb", "identifier": project + "/releases/download/v" + cfg.Version + "/" + base,
			"version": cfg.Version, "fileSha256": sum, "transport": object{"type": "stdio"},
		}},
	})
	if err != nil {
		return "", "", err
	}
	return bundle, server, os.WriteFile(server, text, 0o644)
}

// archive writes the bundle and returns its SHA-256.
func archive(cfg Config, path string) (sum string, err error) {
	manifest, err := encode(object{
		"manifest_version": "0.3", "name": "hutch", "display_name": "hutch sandbox", "version": cfg.Version,
		"description": description,
		"author":      object{"name": "hutch", "url": project},
		"repository":  object{"type": "git", "url": project + ".git"},
		"license":     "Apache-2.0",
		"keywords":    []string{"sandbox", "shell", "code", "files"},
		"server": object{
			"type": "binary", "entry_point": "server/hutch",
			"mcp_config": object{
				"command": "${__dirname}/server/hutch",
				"args":    []string{"mcp", "--workspace", "${user_config." + folder + "}:overlay", "host"},
			},
		},
		"tools_generated": true,
		"compatibility":   object{"platforms": []string{"linux"}},
		"user_config": object{folder: object{
			"type": "directory", "title": "Folder to work on", "required": true,
			"description": "The sandbox works on a private copy. hutch workspace diff and apply bring changes back.",
		}},
	})
	if err != nil {
		return "", err
	}
	f, err := os.Create(path)
	if err != nil {
		return "", err
	}
	defer func() {
		if closed := f.Close(); err == nil {
			err = closed
		}
	}()
	hash := sha256.New()
	z := zip.NewWriter(io.MultiWriter(f, hash))
	add := func(name string, mode os.FileMode, from func(io.Writer) error) error {
		h := &zip.FileHeader{Name: name, Method: zip.Deflate} // no time: the same files are the same bundle
		h.SetMode(mode)
		w, err := z.CreateHeader(h)
		if err != nil {
			return err
		}
		return from(w)
	}
	copied := func(path string) func(io.Writer) error {
		return func(w io.Writer) error {
			in, err := os.Open(path)
			if err != nil {
				return err
			}
			defer in.Close()
			_, err = io.Copy(w, in)
			return err
		}
	}
	if err := add("manifest.json", 0o644, func(w io.Writer) error { _, err := w.Write(manifest); return err }); err != nil {
		return "", err
	}
	if err := add("LICENSE", 0o644, copied(cfg.License)); err != nil {
		return "", err
	}
	for _, b := range Binaries {
		if err := add("server/"+b, 0o755, copied(filepath.Join(cfg.Bin, b))); err != nil {
			return "", err
		}
	}
	if err := z.Close(); err != nil {
		return "", err
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}

func encode(v any) ([]byte, error) {
	text, err := json.MarshalIndent(v, "", "  ")
	return append(text, '\n'), err
}
