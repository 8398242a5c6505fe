// Package webapi is what `hutch web` tells hutch-web, which it becomes.
package webapi

// Variable is the environment variable that holds a Config in JSON.
const Variable = "HUTCH_WEB"

// NoticeVariable holds a Notice: hutch-web posts it, and ends.
const NoticeVariable = "HUTCH_NOTICE"

// Notice is a body to be posted.
type Notice struct {
	URL  string `json:"url"`
	Body []byte `json:"body"`
}

// What --grant takes: see rest.Grant.
const (
	GrantHostPorts = "host-ports"
	GrantSandboxes = "sandboxes"
)

// Grants are all that there are.
var Grants = []string{GrantHostPorts, GrantSandboxes}

// Config is what the server is to do.
type Config struct {
	Listen    string   `json:"listen"`               // IP:PORT, or the absolute path of a Unix socket
	E2B       string   `json:"e2b,omitempty"`        // IP:PORT where E2B's shape is served, too; "" is nowhere
	E2BDomain string   `json:"e2b_domain,omitempty"` // what servers in sandboxes are names below; "" is localhost
	TokenFile string   `json:"token_file,omitempty"` // holds the bearer token; "" makes one
	Tokens    string   `json:"tokens,omitempty"`     // a file with several clients and their bounds, instead
	Hosts     []string `json:"hosts,omitempty"`      // further names that it is reached by
	Grant     []string `json:"grant,omitempty"`      // powers of the user's that clients have, too
	// Registries are those that clients may have images fetched from, beside Docker Hub.
	Registries []string `json:"registries,omitempty"`
	MaxUpload  int64    `json:"max_upload,omitempty"` // bytes of one upload; 0 is the default
	// TLS is with certificates that the server makes, unless there are files with one and its key.
	TLS     bool   `json:"tls,omitempty"`
	TLSCert string `json:"tls_cert,omitempty"`
	TLSKey  string `json:"tls_key,omitempty"`
}
