package api

// MaxToolPorts is how many ports of one sandbox sandbox_expose_port makes reached at the same time: the others of
// MaxPorts are left to the user.
const MaxToolPorts = 8

// ToolExposePort are sandbox_expose_port's arguments.
type ToolExposePort struct {
	Port int `json:"port" doc:"TCP port that the server in the sandbox listens on, or is going to."`
}

// Validate refuses impossible arguments.
func (a *ToolExposePort) Validate() error { return checkPort(a.Port) }

// ToolListPorts are sandbox_list_ports' arguments: none.
type ToolListPorts struct{}

// ToolClosePort are sandbox_close_port's arguments.
type ToolClosePort struct {
	Port int `json:"port" doc:"Port that was given to sandbox_expose_port."`
}

// Validate refuses impossible arguments.
func (a *ToolClosePort) Validate() error { return checkPort(a.Port) }

// ToolPort is a port of a sandbox that the host reaches, and sandbox_expose_port's result.
type ToolPort struct {
	Port    int    `json:"port"`
	Address string `json:"address"`       // on the host: "IP:PORT", or the path of a Unix socket
	URL     string `json:"url,omitempty"` // with the token that requests need; of those that a tool has exposed
	Tool    bool   `json:"tool"`          // sandbox_expose_port has exposed it; else the user
}

// ToolPorts is sandbox_list_ports' result, and sandbox_close_port's: what was closed.
type ToolPorts struct {
	Ports []ToolPort `json:"ports"`
}
