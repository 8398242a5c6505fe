package config

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hutch-sh/hutch/internal/yamltree"
)

// digestPrefix begins a digest in the file.
const digestPrefix = "sha256:"

// NewToken makes a client's token, and what the file says of it: who can read that cannot make the token of it.
func NewToken() (token, entry string) {
	token = strings.ToLower(rand.Text()) // 26 characters of 5 random bits
	token += strings.ToLower(rand.Text()[:6])
	sum := sha256.Sum256([]byte(token))
	return token, digestPrefix + hex.EncodeToString(sum[:])
}

// CheckTokenName refuses what is no name of a client.
func CheckTokenName(name string) error {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_."
	if name == "" || len(name) > 64 || strings.Trim(name, letters) != "" {
		return fmt.Errorf("%.80q is no name of a client: it has up to 64 letters, digits, dots, hyphens and underscores", name)
	}
	return nil
}

// setTokens reads the section.
func setTokens(c *Config, v *yamltree.Node) error {
	if v.Tag == yamltree.NullTag || v.Kind == yamltree.Mapping && len(v.Content) == 0 {
		return nil
	}
	if v.Kind != yamltree.Mapping {
		return errors.New("expected names with a digest each, as in {ci: sha256:9f86...}")
	}
	c.Tokens = map[string]string{}
	for i := 0; i+1 < len(v.Content); i += 2 {
		name, entry := v.Content[i].Value, v.Content[i+1].Value
		if err := CheckTokenName(name); err != nil {
			return err
		}
		digest, ok := strings.CutPrefix(entry, digestPrefix)
		if b, err := hex.DecodeString(digest); !ok || err != nil || len(b) != sha256.Size ||
			digest != strings.ToLower(digest) {
			return fmt.Errorf("%s: %.20q... is no digest of a token: hutch config token %s makes one", name,
				entry, name)
		}
		if _, twice := c.Tokens[name]; twice {
			return fmt.Errorf("%s is there twice", name)
		}
		c.Tokens[name] = digest
	}
	return nil
}

func showTokens(c *Config) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(c.Tokens)) {
		all = append(all, fmt.Sprintf("%q: %s%s", name, digestPrefix, c.Tokens[name]))
	}
	return "{" + strings.Join(all, ", ") + "}"
}
