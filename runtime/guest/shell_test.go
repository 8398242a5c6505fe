package guest

import (
	"os"
	"testing"

	"github.com/hutch-sh/hutch/runtime/guest/guestapi/shellapi"
)

// TestHalfRequest: what a hutchd that was killed has written of a request is passed over.
func TestHalfRequest(t *testing.T) {
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	requests := readRequests(in)
	if _, err := out.WriteString(`{"op":"run","run":2,"command":"rm -r` + "\n" + `{"op":"ask","run":2}` + "\n" +
		`{"op":"ask"`); err != nil {
		t.Fatal(err)
	}
	if req := <-requests; req != (shellapi.Request{Op: shellapi.OpAsk, Run: 2}) {
		t.Errorf("%+v", req)
	}
	_ = out.Close()
	if req, ok := <-requests; ok {
		t.Errorf("%+v", req)
	}
}
