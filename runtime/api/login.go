package api

import (
	"strings"
	"unicode"
)

// Secret is text that is not shown: it prints as something else.
type Secret string

// hidden takes the place of a secret.
const hidden = "[hidden]"

// String hides the secret from fmt.
func (Secret) String() string { return hidden }

// GoString hides the secret from %#v.
func (Secret) GoString() string { return hidden }

// LoginParams are image.login's params.
type LoginParams struct {
	// Registry is HOST[:PORT], such as docker.io; with a path after it, what is below.
	Registry string `json:"registry"`
	Username string `json:"username"`
	Password Secret `json:"password"`
}

// RegistryParams name a registry as LoginParams do.
type RegistryParams struct {
	Registry string `json:"registry"`
}

// Login is what is known of somebody who is logged in.
type Login struct {
	Registry string `json:"registry"`
	Username string `json:"username"`
	// Stored says to people where image.login put the password.
	Stored string `json:"stored,omitempty"`
}

// Validate refuses impossible params. It shows none of them.
func (p *LoginParams) Validate() error {
	switch {
	case p.Registry == "":
		return invalid("registry", "missing").WithHint("give HOST or HOST:PORT, such as docker.io")
	case p.Username == "" || len(p.Username) > maxCredential || strings.ContainsFunc(p.Username, unicode.IsControl):
		return invalid("username", "missing, too long or not one line").WithHint("give the name of the account")
	case strings.Contains(p.Username, ":"):
		return invalid("username", "holds a colon, which ends names in HTTP").WithHint("give the name alone")
	case p.Password == "" || len(p.Password) > maxCredential ||
		strings.ContainsFunc(string(p.Password), unicode.IsControl):
		return invalid("password", "missing, too long or not one line").WithHint("give the password, or a token")
	}
	return nil
}

// maxCredential bounds names and passwords, in bytes. Tokens have some thousands.
const maxCredential = 64 << 10
