package rest

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/hutch-sh/hutch/runtime/api"
)

const oneSnapshot = "/snapshots/{snapshot}"

// moreRoutes are those of snapshots, templates, ports, code and events.
func moreRoutes() []route {
	return []route{
		{method: "POST", path: oneSandbox + "/snapshots", name: "createSnapshot", tag: "snapshots",
			code: http.StatusCreated, body: of[NewSnapshot](), answer: of[Snapshot](),
			summary: "Keeps what the files of a sandbox are now.", notes: "Processes and memory are not in it.",
			serve: asked(func(s *Server, r *http.Request, n *NewSnapshot) (any, error) {
				sn, err := s.Snapshot(r.Context(), ref(r), n)
				return snapshotOf(&sn), err
			})},
		{method: "GET", path: "/snapshots", name: "listSnapshots", tag: "snapshots", answer: of[Snapshots](),
			summary: "Lists the snapshots, oldest first.",
			query:   []parameter{{name: "sandbox", kind: "string", doc: "only those of this sandbox, by id or name"}},
			paged:   true,
			serve: func(s *Server, w http.ResponseWriter, r *http.Request) (any, error) {
				id, err := s.idOf(r)
				if err != nil {
					return nil, err
				}
				own, err := s.Snapshots(r.Context(), id)
				if err != nil {
					return nil, err
				}
				page, err := Paged(w, r, own, true, func(sn *api.Snapshot) (time.Time, string) {
					return sn.Created, sn.ID
				})
				return Snapshots{Snapshots: list(page, snapshotOf)}, err
			}},
		{method: "DELETE", path: oneSnapshot, name: "removeSnapshot", tag: "snapshots", summary: "Removes a snapshot.",
			serve: plain(func(s *Server, r *http.Request) (any, error) {
				_, err := do(r.Context(), s, api.CallSnapRemove, api.SnapshotParams{Snapshot: r.PathValue("snapshot")})
				return nil, err
			})},
		{method: "POST", path: oneSnapshot + "/fork", name: "forkSnapshot", tag: "snapshots", code: http.StatusCreated,
			body: of[Fork](), answer: of[Sandboxes](), headers: []parameter{idempotency},
			summary: "Makes sandboxes that go on from the files of a snapshot.",
			serve: asked(func(s *Server, r *http.Request, f *Fork) (any, error) {
				return s.forked(r, f, api.ForkParams{Snapshot: r.PathValue("snapshot")})
			})},
		{method: "POST", path: oneSnapshot + "/restore", name: "restoreSnapshot", tag: "snapshots",
			answer:  of[Sandbox](),
			summary: "Puts the files of a snapshot in the place of those of its sandbox, which starts anew.",
			serve: plain(func(s *Server, r *http.Request) (any, error) {
				res, err := do(r.Context(), s, api.CallSnapRestore, api.SnapshotRestoreParams{
					Snapshot: r.PathValue("snapshot")})
				return shown(res.Sandbox, err)
			})},
		{method: "GET", path: "/templates", name: "listTemplates", tag: "templates", answer: of[Templates](),
			summary: "Lists the templates by name.",
			serve: plain(func(s *Server, r *http.Request) (any, error) {
				all, err := do(r.Context(), s, api.CallTemplateList, api.Empty{})
				c := clientOf(r.Context())
				all.Templates = slices.DeleteFunc(all.Templates, func(t api.Template) bool {
					return len(c.Templates)+len(c.Images) > 0 && !slices.Contains(c.Templates, t.Name)
				})
				return Templates{Templates: list(all.Templates, func(t *api.Template) Template {
					return Template{TemplateID: t.Name, Description: t.Description, Image: t.Image}
				})}, err
			})},
		{method: "POST", path: oneSandbox + "/ports", name: "openPort", tag: "ports", code: http.StatusCreated,
			body: of[NewPort](), answer: of[Port](),
			summary: "Lets programs of this machine connect to a port in a sandbox.",
			notes:   "It listens on 127.0.0.1. HTTP requests need the token that the answer has; its url has it for browsers.",
			serve: asked(func(s *Server, r *http.Request, n *NewPort) (any, error) {
				p, err := do(r.Context(), s, api.CallPortExpose, api.PortExposeParams{Sandbox: ref(r), Port: n.Port,
					Token: !n.Public})
				return portOf(&p), err
			})},
		{method: "GET", path: oneSandbox + "/ports", name: "listPorts", tag: "ports", answer: of[Ports](),
			summary: "Lists the ports of a sandbox that can be reached.",
			serve: plain(func(s *Server, r *http.Request) (any, error) {
				all, err := do(r.Context(), s, api.CallPortList, api.PortListParams{Sandbox: ref(r)})
				return Ports{Ports: list(all.Ports, portOf)}, err
			})},
		{method: "DELETE", path: oneSandbox + "/ports/{port}", name: "closePort", tag: "ports",
			summary: "Closes a port, with the connections to it.", serve: plain(closePort)},
		{method: "POST", path: oneSandbox + "/code", name: "runCode", tag: "code", body: of[Code](),
			answer: of[api.CodeResult](), media: []string{sse},
			summary: "Runs code in an interpreter that is kept for the next.",
			notes: "Figures, tables and values of the last expression are artifacts of the answer. It is interrupted when " +
				"the client goes. With Accept: text/event-stream output comes as it is written: events stdout, stderr and " +
				"end, which has the answer, or error, which has the problem.",
			serve: runCode},
		{method: "GET", path: "/events", name: "streamEvents", tag: "events", media: []string{sse}, code: http.StatusOK,
			headers: []parameter{lastEventID}, query: []parameter{
				{name: "kinds", kind: "string",
					doc: "only these kinds, joined by commas: sandbox.state, exec.exited, tool.call, tool.message, network.denied, ..."},
				{name: "sandbox", kind: "string", doc: "only those of this sandbox, by id or name"}},
			summary: "Streams what happens, from now on or from the event after Last-Event-ID.",
			notes:   "An event of kind gap stands for those that are lost.", serve: followEvents},
	}
}

// idOf is the id of the sandbox that the query names, "" for none. One that has gone has its snapshots and its events
// still, under its id.
func (s *Server) idOf(r *http.Request) (string, error) {
	name := r.URL.Query().Get("sandbox")
	if name == "" || strings.HasPrefix(name, "sb_") {
		return name, nil
	}
	sb, err := s.Sandbox(r.Context(), name)
	return sb.ID, err
}

func closePort(s *Server, r *http.Request) (any, error) {
	port, err := whole(r.PathValue("port"))
	if err != nil {
		return nil, err
	}
	_, err = do(r.Context(), s, api.CallPortClose, api.PortCloseParams{Sandbox: ref(r), Port: port})
	return nil, err
}
