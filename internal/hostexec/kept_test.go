package hostexec

import (
	"context"
	"encoding/base64"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/hutch-sh/hutch/runtime/api"
)

// keep starts a text of bash's.
func keep(t *testing.T, command string) *Kept {
	t.Helper()
	k, err := Keep(&Command{Argv: Shell(command), Dir: t.TempDir(), Env: Environ(false, nil)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { k.Close() })
	return k
}

// read reads so many bytes.
func read(t *testing.T, k *Kept, stream api.Stream, at *int64, n int) string {
	t.Helper()
	var text strings.Builder
	for text.Len() < n {
		c, err := k.Read(t.Context(), api.ReadParams{Stream: stream, Offset: *at})
		data, derr := base64.StdEncoding.DecodeString(c.Data)
		if err != nil || derr != nil || c.EOF && len(data) == 0 {
			t.Fatalf("%+v, %v, %v behind %q", c, err, derr, text.String())
		}
		text.Write(data)
		*at = c.Next
	}
	return text.String()
}

// TestKept: what is written to it comes back, from both streams, until it is closed with all that it has started.
func TestKept(t *testing.T) {
	k := keep(t, "sleep 1000 & echo $!; while read x; do echo \"got $x\"; echo \"err $x\" >&2; done; exit 3")
	var out, errs int64
	pid := strings.TrimSpace(read(t, k, api.Stdout, &out, 2))
	for _, x := range []string{"a", "b"} {
		if err := k.Write(t.Context(), api.WriteParams{Data: x + "\n"}); err != nil {
			t.Fatal(err)
		}
		if got := read(t, k, api.Stdout, &out, 6) + read(t, k, api.Stderr, &errs, 6); got != "got "+x+"\nerr "+x+"\n" {
			t.Errorf("%q", got)
		}
	}
	if !k.Running() || k.NotRun() != "" {
		t.Error("it does not run")
	}
	waiting, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	time.AfterFunc(10*time.Millisecond, func() { cancel(why) })
	if _, err := k.Read(waiting, api.ReadParams{Stream: api.Stdout, Offset: out}); !errors.Is(err, why) {
		t.Errorf("a read of nothing: %v", err)
	}
	res, err := k.Kill(t.Context(), api.ExecRef{})
	if err != nil || res.Signal != "SIGKILL" || k.Running() {
		t.Errorf("%+v, %v", res, err)
	}
	if _, err := k.Read(t.Context(), api.ReadParams{Stream: api.Stdout, Offset: out}); err != nil {
		t.Errorf("the end: %v", err)
	}
	awaitText(t, pid)
}

// TestKeptFlood: one that writes more than is kept does not stand still, and its end is there.
func TestKeptFlood(t *testing.T) {
	k := keep(t, "head -c 100000000 /dev/zero; echo end; read x")
	var at int64
	for {
		c, err := k.Read(t.Context(), api.ReadParams{Stream: api.Stdout, Offset: at})
		if err != nil {
			t.Fatal(err)
		}
		if at = c.Next; at == 100000004 {
			return
		}
		if c.EOF {
			t.Fatalf("ends at %d", at)
		}
	}
}

// TestKeptNot: what cannot be started says so; what does not read does not hold its writer.
func TestKeptNot(t *testing.T) {
	k, err := Keep(&Command{Argv: []string{"none-such"}, Dir: t.TempDir(), Env: Environ(false, nil)})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(k.NotRun(), "none-such") || k.Running() {
		t.Errorf("%q", k.NotRun())
	}
	if end := k.Close(); end.ExitCode != 127 {
		t.Errorf("%+v", end)
	}
	k = keep(t, "sleep 1000")
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := k.Write(ctx, api.WriteParams{Data: strings.Repeat("x", 1<<20)}); !errors.Is(err,
		context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
}
