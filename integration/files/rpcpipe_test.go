package files_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/runtime/api"
)

// TestRPCPipe: hutch rpc moves the data of a method through its standard input and output, and tells programs an error
// as the daemon did.
func TestRPCPipe(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	sb := w.Create(t, "host")
	params := func(path, more string) string { return fmt.Sprintf(`{"sandbox":%q,"path":%q%s}`, sb, path, more) }
	text := strings.Repeat("0123456789abcdef", 1<<17)
	w.Feed(t, text, "rpc", "--in", "fs.write", params("/tmp/file", fmt.Sprintf(`,"size_bytes":%d`, len(text)))).Want(t, 0)
	r := w.Run(t, "rpc", "--out", "fs.read", params("/tmp/file", "")).Want(t, 0)
	if r.Stdout != text {
		t.Errorf("%d bytes came back of %d", len(r.Stdout), len(text))
	}
	r.Says(t, `"next": 2097152`)
	// What ends too early leaves the file as it was.
	w.Feed(t, "short", "rpc", "--in", "fs.write", params("/tmp/file", `,"size_bytes":6`)).Want(t, 125).
		Says(t, "ended too early")
	if got := w.OK(t, "exec", sb, "--", "wc", "-c", "/tmp/file"); !strings.HasPrefix(got, "2097152 ") {
		t.Errorf("the file has %s", got)
	}
	r = w.Run(t, "rpc", "--out", "--error-json", "fs.read", params("/tmp/none", "")).Want(t, 125)
	var said struct {
		Message string
		Data    api.ErrorData
	}
	if err := json.Unmarshal([]byte(r.Stderr), &said); err != nil || said.Data.Code != api.NotFound ||
		said.Data.Hint == "" || !strings.Contains(said.Message, "/tmp/none") || r.Stdout != "" {
		t.Errorf("%v: %+v", err, r)
	}
	w.Run(t, "rpc", "--in", "system.info").Want(t, 125).Says(t, "takes none")
	w.Run(t, "rpc", "--in", "fs.write", "-").Want(t, 125).Says(t, "as well")
	w.Run(t, "rpc", "--in", "--out", "fs.read", params("/tmp/file", "")).Want(t, 125)
}
