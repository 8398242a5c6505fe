package mcpb

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// made makes a bundle of binaries that say their names.
func made(t *testing.T) (bundle, server string) {
	t.Helper()
	cfg := Config{Version: "1.2.3", Bin: t.TempDir(), Out: t.TempDir()}
	for _, name := range append(slices.Clone(Binaries), "LICENSE") {
		if err := os.WriteFile(filepath.Join(cfg.Bin, name), []byte("this is "+name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cfg.License = filepath.Join(cfg.Bin, "LICENSE")
	bundle, server, err := Make(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return bundle, server
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestMake: a bundle has a manifest first, and binaries that can be run; server.json is what the registry's schema asks
// for and names the bundle's sum; the same binaries make the same bundle.
func TestMake(t *testing.T) {
	bundle, server := made(t)
	data := read(t, bundle)
	if again, _ := made(t); !bytes.Equal(data, read(t, again)) {
		t.Error("the same files make another bundle")
	}
	z, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"manifest.json", "LICENSE"}
	for _, b := range Binaries {
		want = append(want, "server/"+b)
	}
	var manifest struct {
		ManifestVersion string `json:"manifest_version"`
		Name            string
		Version         string
		Description     string
		Author          struct{ Name string }
		Server          struct {
			Type       string
			EntryPoint string `json:"entry_point"`
			MCPConfig  struct {
				Command string
				Args    []string
			} `json:"mcp_config"`
		}
		UserConfig map[string]struct {
			Type, Title, Description string
			Required                 bool
		} `json:"user_config"`
	}
	var got []string
	for _, f := range z.File {
		got = append(got, f.Name)
		if strings.HasPrefix(f.Name, "server/") != (f.Mode().Perm() == 0o755) {
			t.Errorf("%s: %v", f.Name, f.Mode())
		}
		if f.Name == "manifest.json" {
			r, err := f.Open()
			if err != nil {
				t.Fatal(err)
			}
			if err := json.NewDecoder(r).Decode(&manifest); err != nil {
				t.Fatal(err)
			}
			_ = r.Close()
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	m := &manifest
	if m.ManifestVersion != "0.3" || m.Name == "" || m.Version != "1.2.3" || m.Description == "" ||
		m.Author.Name == "" || m.Server.Type != "binary" || !slices.Contains(got, m.Server.EntryPoint) ||
		m.Server.MCPConfig.Command != "${__dirname}/"+m.Server.EntryPoint {
		t.Errorf("%+v", m)
	}
	asked := regexp.MustCompile(`\$\{user_config\.(\w+)\}`).FindAllStringSubmatch(
		strings.Join(m.Server.MCPConfig.Args, " "), -1)
	for _, a := range asked {
		if c := m.UserConfig[a[1]]; c.Type == "" || c.Title == "" || c.Description == "" || !c.Required {
			t.Errorf("%s is used, and is %+v", a[1], c)
		}
	}
	if len(asked) != len(m.UserConfig) {
		t.Errorf("%d of %d things that are asked for are used", len(asked), len(m.UserConfig))
	}

	var s struct {
		Schema      string `json:"$schema"`
		Name        string
		Title       string
		Description string
		Version     string
		Repository  struct{ URL, Source string }
		Packages    []struct {
			RegistryType, Identifier, Version, FileSha256 string
			Transport                                     struct{ Type string }
		}
	}
	if err := json.Unmarshal(read(t, server), &s); err != nil {
		t.Fatal(err)
	}
	if !regexp.MustCompile(`^[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+$`).MatchString(s.Name) || s.Schema == "" ||
		len(s.Description) > 100 || s.Description == "" || len(s.Title) > 100 || s.Version != "1.2.3" ||
		s.Repository.Source != "github" || len(s.Packages) != 1 {
		t.Fatalf("%+v", s)
	}
	sum := sha256.Sum256(data)
	if p := s.Packages[0]; p.RegistryType != "mcpb" || p.FileSha256 != hex.EncodeToString(sum[:]) ||
		!strings.HasSuffix(p.Identifier, "/v1.2.3/"+filepath.Base(bundle)) || p.Transport.Type != "stdio" ||
		!strings.Contains(p.Identifier, "mcp") {
		t.Errorf("%+v", p)
	}
	if _, _, err := Make(Config{Bin: t.TempDir(), License: bundle, Out: t.TempDir()}); err == nil {
		t.Error("made without binaries")
	}
}
