package stdio

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/packet"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/exec/stdio/stdiotest"
	"github.com/hutch-sh/hutch/runtime/launch/launchapi"
)

// files are those of a caller, each of which is taken once.
type files []*os.File

func (f files) Take(index int) (*os.File, error) { return f[index], nil }

// TestFeed: what a command gets as stdin is there to the byte, without anybody who writes it; what a pipe does not take
// is hutch-launch's to pass on.
func TestFeed(t *testing.T) {
	large := strings.Repeat("x", 1<<20)
	for _, tt := range []struct {
		name, stdin string
		open        bool
		roles       []launchapi.Role
	}{
		{"nothing", "", false, []launchapi.Role{launchapi.RoleSpool, launchapi.RoleSpool}},
		{"text", "text", false, []launchapi.Role{launchapi.RoleSpool, launchapi.RoleSpool}},
		{"much", large, false, []launchapi.Role{launchapi.RoleFrom, launchapi.RoleTo, launchapi.RoleSpool,
			launchapi.RoleSpool}},
		{"open", "", true, []launchapi.Role{launchapi.RoleSpool, launchapi.RoleSpool, launchapi.RoleKeep}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, err := New(Request{Params: &api.ExecParams{Stdin: tt.stdin}, Open: tt.open})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Abort()
			if len(c.Give()) != 3 || c.Open() != tt.open || c.IsTerminal() || c.Relayed() {
				t.Errorf("%d files, open %v", len(c.Give()), c.Open())
			}
			if tt.name == "text" {
				if got, err := io.ReadAll(c.Give()[0]); string(got) != "text" || err != nil {
					t.Errorf("%q, %v", got, err)
				}
			}
			var got launchapi.Exec
			err = c.Hold(launchapi.Exec{ID: "ex_1"},
				func(e launchapi.Exec, f ...*os.File) (func() ([]launchapi.Stream, error), error) {
					got = e
					if len(f) != len(e.Roles) {
						t.Errorf("%d files for %v", len(f), e.Roles)
					}
					return func() ([]launchapi.Stream, error) { return nil, nil }, nil
				})
			if err != nil || len(got.Roles) != len(tt.roles) || got.Size != SpoolSize {
				t.Fatalf("%+v, %v", got, err)
			}
			for i, role := range tt.roles {
				if got.Roles[i] != role {
					t.Errorf("%v, want %v", got.Roles, tt.roles)
				}
			}
			if err := errors.Join(c.Held(func(int64) {}), c.Held(nil)); err != nil {
				t.Error(err)
			}
			if tt.open {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				if err := c.Write(ctx, []byte("typed")); err != nil {
					t.Error(err)
				}
				buf := make([]byte, 5)
				if _, err := io.ReadFull(c.Give()[0], buf); err != nil || string(buf) != "typed" {
					t.Errorf("%q, %v", buf, err)
				}
				c.CloseInput()
				if err := c.Write(ctx, []byte("more")); !errors.Is(err, os.ErrClosed) {
					t.Errorf("%v", err)
				}
			}
		})
	}
	if _, err := New(Request{Params: &api.ExecParams{Stdin: "!", Encoding: api.Base64}}); err == nil {
		t.Error("what is no base64 was taken")
	}
}

// TestPassed: the caller's own files cross where they may, one that is given twice keeps its order, and what is left
// out is nothing.
func TestPassed(t *testing.T) {
	zero, one := 0, 1
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer packet.CloseAll([]*os.File{r, w})
	again := func(f *os.File) *os.File {
		fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 3)
		if err != nil {
			t.Fatal(err)
		}
		return os.NewFile(uintptr(fd), f.Name())
	}
	for user, relayed := range map[string]bool{"0": os.Getuid() == overflowID, "1000": true} {
		p := &api.ExecParams{Stdio: &api.Stdio{Stdin: &zero, Stdout: &one, Stderr: &one}}
		c, err := New(Request{Params: p, FDs: files{again(r), again(w)}, User: user})
		if err != nil {
			t.Fatal(err)
		}
		if len(c.Give()) != 3 || c.Relayed() != relayed || len(c.Streams) != 0 {
			t.Errorf("for %s: %d files, relayed %v", user, len(c.Give()), c.Relayed())
		}
		if _, err := c.Give()[1].WriteString("a"); err != nil {
			t.Error(err)
		}
		if _, err := c.Give()[2].WriteString("b"); err != nil {
			t.Error(err)
		}
		c.Abort()
	}
	c, err := New(Request{Params: &api.ExecParams{Stdio: &api.Stdio{}}})
	if err != nil || len(c.Give()) != 3 || c.Give()[0].Name() != os.DevNull {
		t.Fatalf("%v", err)
	}
	c.Started()
	if ok, err := c.Resize(api.Pty{Rows: 1, Cols: 1}); ok || err != nil {
		t.Errorf("%v, %v", ok, err)
	}
	c.Abort()
}

// TestPty: a terminal has a size from the start; what it is opened in is refused where it is no folder of terminals.
func TestPty(t *testing.T) {
	pts := func() (*os.File, error) { return os.OpenFile("/dev", unix.O_PATH, 0) }
	if _, err := New(Request{Params: &api.ExecParams{Pty: &api.Pty{Rows: 2, Cols: 3}},
		Pts: func() (*os.File, error) { return os.Open(t.TempDir()) }}); err == nil {
		t.Error("a terminal was opened where there is none")
	}
	dir, err := pts()
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	// The slave is in another folder here: only that it is looked for is seen.
	_, err = New(Request{Params: &api.ExecParams{Pty: &api.Pty{Rows: 2, Cols: 3}}, Pts: pts})
	if err == nil || !strings.Contains(err.Error(), "slave") {
		t.Errorf("%v", err)
	}
}

// TestStream: what is read of a stream is what was written, from any place, and its beginning and end where it is long;
// what it has after its end is saved.
func TestStream(t *testing.T) {
	src, opened := stdiotest.New(t)
	added := int64(0)
	st := Open(opened, stdiotest.Size, func(n int64) { added += n })
	defer st.Close()
	src.Write("0123456789")
	if st.Len() != 10 || added != 10 {
		t.Errorf("%d, %d added", st.Len(), added)
	}
	if data, start, err := st.Read(4, 3); string(data) != "456" || start != 4 || err != nil {
		t.Errorf("%q from %d, %v", data, start, err)
	}
	if x, err := st.Excerpt(4); err != nil || string(x.Head)+string(x.Tail) != "0189" || x.Omitted() != 6 {
		t.Errorf("%+v, %v", x, err)
	}
	if x, err := st.ExcerptOf(2, 5, 10); err != nil || string(x.Head) != "234" {
		t.Errorf("%+v, %v", x, err)
	}
	if a := st.Audited(true); string(a.Data) != "0123456789" || a.Total != 10 || !a.Full {
		t.Errorf("%+v", a)
	}
	c := &IO{Streams: []*Stream{st}, flows: true, roles: []launchapi.Role{launchapi.RoleSpool}}
	if !c.Flows() {
		t.Error("all is stored before its end")
	}
	src.End()
	if c.Flows() {
		t.Error("not all is stored behind its end")
	}
	st.AwaitByte(t.Context(), 3, nil)
	short, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	st.AwaitByte(short, 10, nil)
	dir := t.TempDir()
	if err := c.Save(dir); err != nil {
		t.Fatal(err)
	}
	back, err := Recall(dir)
	if err != nil || len(back.Streams) != 1 || back.Streams[0].Len() != 10 {
		t.Fatalf("%+v, %v", back, err)
	}
	done, ok := back.KeepOutput()
	if !ok {
		t.Fatal("forgotten")
	}
	done()
	back.Forget()
	if _, ok := back.KeepOutput(); ok {
		t.Error("what was forgotten is kept")
	}
	if err := c.Save(filepath.Join(dir, "none")); err == nil {
		t.Error("saved into nothing")
	}
	if err := os.Mkdir(filepath.Join(dir, "1"), 0o700); err != nil {
		t.Fatal(err)
	}
	if back, err := Recall(dir); err == nil {
		back.Forget()
	}
}

// TestAdopt: the files that hutch-launch has kept are what they were.
func TestAdopt(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	_, opened := stdiotest.New(t)
	e := &launchapi.HeldExec{Exec: launchapi.Exec{Roles: []launchapi.Role{launchapi.RoleSpool, launchapi.RoleKeep}},
		Streams: []launchapi.Stream{opened}, Files: []*os.File{w}}
	c := Adopt(e, Kept{Input: true}, func(int64) {})
	if !c.Open() || c.IsTerminal() || c.Channel() != nil || len(c.Streams) != 1 || c.Kept() != (Kept{Input: true}) {
		t.Errorf("%+v", c.Kept())
	}
	c.Release()
	c.Forget()
}
