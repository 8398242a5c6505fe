package exec_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/testenv/openrpc"
)

// TestWireDiscover: rpc.discover lists exactly what works.
func TestWireDiscover(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	c := w.Dial(t)
	var doc openrpc.Document
	c.Call(&doc, "rpc.discover", world.Params{})
	var names []string
	for _, m := range doc.Methods {
		names = append(names, m.Name)
		if m.Summary == "" {
			t.Errorf("%s has no summary", m.Name)
		}
		if m.Name == "system.shutdown" {
			continue
		}
		// No method may answer that it does not exist or is not implemented.
		if answer := c.Start(m.Name, world.Params{}).Wait(); answer.Error != nil &&
			(answer.Error.Code == -32601 || answer.Error.Data.Code == "unimplemented") {
			t.Errorf("%s: %s", m.Name, answer.Error)
		}
	}
	for _, want := range []string{
		"system.info", "system.doctor", "system.shutdown", "sandbox.create", "sandbox.get", "sandbox.list",
		"sandbox.kill", "sandbox.remove",
		"exec.run", "image.pull", "image.list", "image.inspect", "image.remove", "rpc.discover",
	} {
		if !slices.Contains(names, want) {
			t.Errorf("%s is missing", want)
		}
	}
	for _, other := range []string{"exec.start", "snapshot.create", "network.update", "shell.open", "rpc.serverInfo",
		"no.such"} {
		if slices.Contains(names, other) {
			continue // built meanwhile
		}
		if e := c.Refused("-32601", other, world.Params{}); !strings.Contains(e.Data.Hint, "rpc.discover") {
			t.Errorf("%s", e)
		}
	}
	runExamples(t, w, c, &doc)
}

// runExamples runs the examples of methods that need nothing but a sandbox called fix, or what the ones before have
// made. What comes back is as the schema says.
func runExamples(t *testing.T, w *world.World, c *world.Conn, doc *openrpc.Document) {
	dir := w.Sub(t, "project")
	for _, name := range []string{"go.mod", "a"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("module x\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	w.Create(t, "--name", "fix", "--workspace", dir+":overlay", "host")
	for _, name := range strings.Fields(`system.info system.authenticate system.doctor system.reload sandbox.run sandbox.get
		sandbox.list sandbox.pause sandbox.resume sandbox.update sandbox.stats sandbox.processes exec.run exec.start exec.list
		exec.decide shell.open shell.list fs.read fs.write fs.list fs.stat fs.mkdir fs.remove fs.move fs.sync workspace.diff
		workspace.discard code.scan code.contexts tools.list tools.call network.get network.check network.asks port.expose
		port.list port.close snapshot.create snapshot.list snapshot.diff snapshot.remove template.list scope.list
		pool.create pool.list pool.status pool.acquire pool.resize pool.remove volume.create volume.list volume.remove
		events.subscribe audit.read audit.verify audit.head audit.list image.list image.inspect image.du image.prune
		sandbox.kill sandbox.remove`) {
		m := &doc.Methods[slices.IndexFunc(doc.Methods, func(m openrpc.Method) bool { return m.Name == name })]
		params, _ := m.Example()
		answer := c.Start(name, params).Wait()
		if answer.Error != nil {
			t.Errorf("%s %v: %s", name, params, answer.Error)
			continue
		}
		var result any
		if err := json.Unmarshal(answer.Result, &result); err != nil {
			t.Errorf("%s: %v", name, err)
		} else if err := doc.Valid(result, m.Result.Schema); err != nil {
			t.Errorf("%s: the result is not as its schema says: %v", name, err)
		}
	}
}
