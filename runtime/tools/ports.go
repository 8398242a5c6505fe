package tools

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/hutch-sh/hutch/runtime/api"
)

// Previews: what `hutch port expose --token` does, for a model. It has no say in where the host listens: on a free port
// of 127.0.0.1, for HTTP requests with a token. It closes what tools have opened, never what the user has.

func exposePort() (*tool, error) {
	return define[api.ToolExposePort, api.ToolPort](api.Tool{
		Name: api.ToolNameExposePort, Title: "Expose port",
		Description: "Makes a link on the user's own machine to a web server in the sandbox, which may listen on 127.0.0.1. " +
			"Give it to the user; it cannot be reached from the sandbox. It is good until sandbox_close_port or the end of the sandbox.",
		Idempotent: true,
	}, fileTimeout, func(ctx context.Context, c *call, a api.ToolExposePort) (answer, error) {
		others, done := c.set.exposing.begin(c.sandbox)
		defer done()
		opened, err := c.opened(ctx)
		if err != nil {
			return answer{}, err
		}
		at := slices.IndexFunc(opened, func(p api.Port) bool { return p.Port == a.Port })
		if at < 0 {
			if len(opened)+others >= api.MaxToolPorts {
				return answer{}, api.Errorf(api.ResourceExhausted,
					"%d ports of the sandbox have links, or are about to, which is the most", len(opened)+others).
					WithHint("close one with sandbox_close_port; sandbox_list_ports lists them")
			}
			p, err := c.set.cfg.Sandboxes.Ports.Expose(ctx, api.PortExposeParams{Sandbox: c.sandbox, Port: a.Port,
				Token: true, Tool: true}, nil)
			if err != nil {
				return answer{}, err
			}
			at, opened = 0, []api.Port{p}
		}
		p := opened[at]
		return answer{
			text:   fmt.Sprintf("%s\n[port %d of the sandbox, for the user's browser]", p.URL, p.Port),
			result: toolPort(&p),
			more: []api.ToolContent{{Type: "link", URI: p.URL, Name: fmt.Sprintf("port %d", p.Port),
				MIMEType: "text/html"}},
		}, nil
	})
}

func listPorts() (*tool, error) {
	return define[api.ToolListPorts, api.ToolPorts](api.Tool{
		Name: api.ToolNameListPorts, Title: "List ports",
		Description: "Lists the ports of the sandbox that the user's machine reaches, with the links that sandbox_expose_port has made.",
		ReadOnly:    true, Idempotent: true,
	}, fileTimeout, func(ctx context.Context, c *call, _ api.ToolListPorts) (answer, error) {
		all, err := c.set.cfg.Sandboxes.Ports.List(ctx, api.PortListParams{Sandbox: c.sandbox})
		if err != nil {
			return answer{}, err
		}
		r := api.ToolPorts{Ports: []api.ToolPort{}}
		var text strings.Builder
		for _, p := range all.Ports {
			shown := toolPort(&p)
			r.Ports = append(r.Ports, shown)
			if shown.Tool {
				fmt.Fprintf(&text, "%d\t%s\n", p.Port, p.URL)
			} else {
				fmt.Fprintf(&text, "%d\t%s\t[exposed by the user]\n", p.Port, p.Address)
			}
		}
		if len(r.Ports) == 0 {
			text.WriteString("[none]")
		}
		return answer{text: text.String(), result: r}, nil
	})
}

func closePort() (*tool, error) {
	return define[api.ToolClosePort, api.ToolPorts](api.Tool{
		Name: api.ToolNameClosePort, Title: "Close port",
		Description: "Ends a link that sandbox_expose_port has made, with its connections. The server in the sandbox goes on.",
		Destructive: true,
	}, fileTimeout, func(ctx context.Context, c *call, a api.ToolClosePort) (answer, error) {
		opened, err := c.opened(ctx)
		if err != nil {
			return answer{}, err
		}
		r := api.ToolPorts{Ports: []api.ToolPort{}}
		for _, p := range opened {
			if p.Port != a.Port {
				continue
			}
			if _, err := c.set.cfg.Sandboxes.Ports.Close(ctx, api.PortCloseParams{Sandbox: c.sandbox, Port: p.Port,
				Address: p.Address}); err != nil {
				return answer{}, err
			}
			r.Ports = append(r.Ports, toolPort(&p))
		}
		if len(r.Ports) == 0 {
			return answer{}, api.Errorf(api.NotFound, "port %d has no link of sandbox_expose_port", a.Port).
				WithField("port").WithHint("sandbox_list_ports lists those that have; what the user has exposed, the user closes")
		}
		return answer{text: fmt.Sprintf("closed the link to port %d", a.Port), result: r}, nil
	})
}

// exposing counts, by sandbox, the calls that may be about to expose a port: what is looked at before a port is exposed
// says nothing of them.
type exposing struct {
	mu sync.Mutex
	n  map[string]int
}

// begin counts one more, until done is called, and returns how many others there are.
func (e *exposing) begin(sandbox string) (others int, done func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.n == nil {
		e.n = map[string]int{}
	}
	others = e.n[sandbox]
	e.n[sandbox]++
	return others, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.n[sandbox]--; e.n[sandbox] == 0 {
			delete(e.n, sandbox)
		}
	}
}

// opened are the ports that tools have exposed.
func (c *call) opened(ctx context.Context) ([]api.Port, error) {
	all, err := c.set.cfg.Sandboxes.Ports.List(ctx, api.PortListParams{Sandbox: c.sandbox})
	return slices.DeleteFunc(all.Ports, func(p api.Port) bool { return !p.Tool }), err
}

// toolPort is what a model sees of a port: no token but those of tools.
func toolPort(p *api.Port) api.ToolPort {
	shown := api.ToolPort{Port: p.Port, Address: p.Address, Tool: p.Tool}
	if p.Tool {
		shown.URL = p.URL
	}
	return shown
}
