package files_test

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hutch-sh/hutch/images/imagetest"
	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/internal/testenv/mustrun"
	"github.com/hutch-sh/hutch/runtime/api"
	hutch "github.com/hutch-sh/hutch/runtime/client"
)

// fileBox is a sandbox whose files a test uses.
type fileBox struct {
	*hutch.Client
	w  *world.World
	id string
}

func newFileBox(t testing.TB, args ...string) *fileBox {
	t.Helper()
	w := world.New(t)
	if len(args) == 0 {
		args = []string{"host"}
	}
	id := w.Create(t, args...)
	return &fileBox{dialClient(t, w), w, id}
}

// dialClient connects the Go client to a daemon that runs.
func dialClient(t testing.TB, w *world.World) *hutch.Client {
	t.Helper()
	c, err := hutch.Dial(t.Context(), w.Socket())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// at names a file of the sandbox.
func (b *fileBox) at(path string) api.FileParams { return api.FileParams{Sandbox: b.id, Path: path} }

func (b *fileBox) put(t testing.TB, p api.FileWriteParams) api.FileWritten {
	t.Helper()
	r, err := b.WriteFile(t.Context(), p, nil)
	if err != nil {
		t.Fatalf("write %s: %v", p.Path, err)
	}
	return r
}

func (b *fileBox) get(t testing.TB, path string) string {
	t.Helper()
	r, err := b.ReadFile(t.Context(), api.FileReadParams{FileParams: b.at(path)}, nil)
	if err != nil {
		t.Fatalf("read %s: %v", path, err)
	}
	return r.Data
}

// sh runs a command in the sandbox, which must succeed.
func (b *fileBox) sh(t testing.TB, command string) string {
	t.Helper()
	r, err := b.ExecRun(t.Context(), api.ExecParams{Sandbox: b.id, Command: command}, nil, nil)
	if err != nil || r.ExitCode != 0 {
		t.Fatalf("%s: code %d, %v: %s", command, r.ExitCode, err, r.Stderr)
	}
	return strings.TrimSpace(r.Stdout)
}

// TestFilesWrite: each way to write, and what becomes of the file that was there.
func TestFilesWrite(t *testing.T) {
	testenv.Axes(t, testenv.User)
	t.Parallel()
	b := newFileBox(t)
	no, yes := false, true
	two := int64(2)
	type w = api.FileWriteParams
	b.sh(t, "mkdir /tmp/w; cd /tmp/w; echo old >private; chmod 600 private; echo old >a; ln a hard; echo old >target; ln -s target soft; ln -s nowhere dangling; mkfifo fifo; mkdir dir")
	if r := b.put(t, w{FileParams: b.at("/tmp/w/new"), Data: "text\n"}); !r.Created || !r.Atomic || r.Written != 5 ||
		r.Size != 5 {
		t.Errorf("new: %+v", r)
	}
	if r := b.put(t, w{FileParams: b.at("/tmp/w/private"), Data: "secret"}); r.Created || !r.Atomic {
		t.Errorf("private: %+v", r)
	}
	if r := b.put(t, w{FileParams: b.at("/tmp/w/hard"), Data: "both"}); r.Atomic {
		t.Errorf("hard link: %+v", r)
	}
	b.put(t, w{FileParams: b.at("/tmp/w/soft"), Data: "through"})
	b.put(t, w{FileParams: b.at("/tmp/w/dangling"), Data: "made"})
	b.put(t, w{FileParams: b.at("/tmp/w/up/and/up"), Data: "x", Parents: true})
	b.put(t, w{FileParams: b.at("/tmp/w/run"), Data: "#!/bin/sh\necho ran\n", Mode: "0755"})
	b.put(t, w{FileParams: b.at("/tmp/w/run"), Data: "#!/bin/sh\necho again\n"})
	b.put(t, w{FileParams: b.at("/tmp/w/base"), Data: base64.StdEncoding.EncodeToString([]byte{0, 0xff, 1}),
		Encoding: api.Base64})
	b.put(t, w{FileParams: b.at("/tmp/w/log"), Data: "1\n", Append: true})
	if r := b.put(t, w{FileParams: b.at("/tmp/w/log"), Data: "2\n", Append: true}); r.Size != 4 || r.Written != 2 ||
		r.Created {
		t.Errorf("append: %+v", r)
	}
	b.put(t, w{FileParams: b.at("/tmp/w/log"), Data: "X", Offset: &two})
	if r := b.put(t, w{FileParams: b.at("/tmp/w/in"), Data: "x", Exclusive: true, Atomic: &no}); !r.Created ||
		r.Atomic {
		t.Errorf("in place: %+v", r)
	}
	b.put(t, w{FileParams: b.at("/tmp/w/ex"), Data: "x", Exclusive: true})
	got := b.sh(t, `cd /tmp/w; cat new private a target nowhere up/and/up log; ./run; stat -c %a:%h new private run a soft; ls -A | grep -c hutch; true`)
	want := "text\nsecretboththroughmadex1\nX\nagain\n644:1\n600:1\n755:1\n644:2\n777:1\n0"
	if got != want {
		t.Errorf("got %q\nwant %q", got, want)
	}
	for _, c := range []struct {
		p    w
		code api.Code
		says string
	}{
		{w{FileParams: b.at("/tmp/w/new"), Exclusive: true}, api.AlreadyExists, "/tmp/w/new: file exists"},
		{w{FileParams: b.at("/tmp/w/dangling2"), Create: &no}, api.NotFound, "no such file"},
		{w{FileParams: b.at("/tmp/w/none/x")}, api.NotFound, "no such file"},
		{w{FileParams: b.at("/tmp/w/new/x")}, api.FailedPrecondition, "not a directory"},
		{w{FileParams: b.at("/tmp/w/dir")}, api.FailedPrecondition, "is a folder"},
		{w{FileParams: b.at("/tmp/w/nofolder/")}, api.NotFound, ""},
		{w{FileParams: b.at("/tmp/w/fifo")}, api.FailedPrecondition, "is a fifo"},
		{w{FileParams: b.at("/tmp/w/fifo"), Append: true}, api.FailedPrecondition, "is a fifo"},
		{w{FileParams: b.at("/dev/null")}, api.FailedPrecondition, "device"},
		{w{FileParams: b.at("/tmp/w/hard"), Atomic: &yes}, api.FailedPrecondition, "several names"},
		{w{FileParams: b.at("/proc/version")}, api.PermissionDenied, ""},
		{w{FileParams: b.at("/tmp/" + strings.Repeat("n", 300))}, api.InvalidArgument, "name too long"},
		{w{FileParams: b.at("/tmp/x"), Mode: "rw"}, api.InvalidArgument, "mode"},
		{w{FileParams: b.at("")}, api.InvalidArgument, "path"},
		{w{FileParams: b.at("/tmp/a\x00b")}, api.InvalidArgument, "NUL"},
		{w{FileParams: api.FileParams{Sandbox: b.id, Path: "/tmp/x", User: "nobody-at-all"}}, api.InvalidArgument,
			"nobody-at-all"},
		{w{FileParams: api.FileParams{Sandbox: "none", Path: "/tmp/x"}}, api.NotFound, "none"},
	} {
		_, err := b.WriteFile(t.Context(), c.p, nil)
		world.Fails(t, err, c.code, c.says)
	}
}

// TestFilesRead: ranges, encodings, and files that are none.
func TestFilesRead(t *testing.T) {
	t.Parallel()
	b := newFileBox(t, "-w", "/tmp", "host")
	type r = api.FileReadParams
	b.sh(t, `cd /tmp; printf 'a\303\244b\342\202\254c' >runes; printf '\377\000x' >bytes; : >empty; mkfifo fifo; head -c 5000000 /dev/zero >big; mkdir dir; ln -s loop loop`)
	for _, c := range []struct {
		p    r
		want api.FileChunk
	}{
		{r{FileParams: b.at("runes")}, api.FileChunk{Next: 8, Size: 8, Data: "aäb€c", Encoding: api.Text, EOF: true}},
		{r{FileParams: b.at("/tmp/runes"), Limit: 2}, api.FileChunk{Next: 1, Size: 8, Data: "a", Encoding: api.Text}},
		{r{FileParams: b.at("./runes"), Offset: 1, Limit: 5}, api.FileChunk{Offset: 1, Next: 4, Size: 8, Data: "äb",
			Encoding: api.Text}},
		{r{FileParams: b.at("runes"), Offset: -1}, api.FileChunk{Offset: 7, Next: 8, Size: 8, Data: "c",
			Encoding: api.Text, EOF: true}},
		{r{FileParams: b.at("runes"), Offset: -100, Limit: 1},
			api.FileChunk{Next: 1, Size: 8, Data: "a", Encoding: api.Text}},
		{r{FileParams: b.at("runes"), Offset: 100}, api.FileChunk{Offset: 100, Next: 100, Size: 8, Encoding: api.Text,
			EOF: true}},
		{r{FileParams: b.at("runes"), Encoding: api.Base64, Limit: 1}, api.FileChunk{Next: 1, Size: 8, Data: "YQ==",
			Encoding: api.Base64}},
		{r{FileParams: b.at("bytes")}, api.FileChunk{Next: 3, Size: 3, Data: "/wB4", Encoding: api.Base64, EOF: true}},
		{r{FileParams: b.at("empty")}, api.FileChunk{Encoding: api.Text, EOF: true}},
		{r{FileParams: b.at("fifo"), Special: true}, api.FileChunk{Encoding: api.Text, EOF: true}},
		{r{FileParams: b.at("/dev/zero"), Special: true, Limit: 2},
			api.FileChunk{Next: 2, Data: "\x00\x00", Encoding: api.Text}},
	} {
		if got, err := b.ReadFile(t.Context(), c.p, nil); err != nil || got != c.want {
			t.Errorf("%+v: %+v, %v; want %+v", c.p, got, err, c.want)
		}
	}
	big, err := b.ReadFile(t.Context(), r{FileParams: b.at("big"), Limit: api.MaxReadBytes}, nil)
	if err != nil || len(big.Data) != api.MaxReadBytes || big.EOF || big.Size != 5_000_000 {
		t.Errorf("big: %d bytes, %+v, %v", len(big.Data), big.Next, err)
	}
	proc, err := b.ReadFile(t.Context(), r{FileParams: b.at("/proc/self/status")}, nil)
	if err != nil || !proc.EOF || !strings.Contains(proc.Data, "hutch-files") {
		t.Errorf("/proc: %+v, %v", proc, err)
	}
	for path, code := range map[string]api.Code{
		"none": api.NotFound, "dir": api.FailedPrecondition, "fifo": api.FailedPrecondition,
		"/dev/zero": api.FailedPrecondition,
		"loop":      api.FailedPrecondition, "runes/x": api.FailedPrecondition, "/proc/1/mem": api.PermissionDenied,
		strings.Repeat("d/", 2040) + "x": api.NotFound, strings.Repeat("x", 4096): api.InvalidArgument,
	} {
		_, err := b.ReadFile(t.Context(), r{FileParams: b.at(path)}, nil)
		world.Fails(t, err, code)
	}
	_, err = b.ReadFile(t.Context(), r{FileParams: b.at("big"), Limit: api.MaxReadBytes + 1}, nil)
	world.Fails(t, err, api.InvalidArgument, "limit")
}

// TestFilesTree: list, stat, mkdir, remove and move.
func TestFilesTree(t *testing.T) {
	testenv.Axes(t, testenv.User)
	t.Parallel()
	b := newFileBox(t)
	ctx := t.Context()
	b.sh(t, `mkdir -p /tmp/t/a/b/c /tmp/t/dir; cd /tmp/t; echo 12345 >file; ln -s /etc out; ln -s a/b in; mkfifo fifo; echo x >a/b/c/deep; printf x >"$(printf 'odd\377')"; touch -d 2001-02-03T04:05:06Z file; chmod 4711 file`)
	list, err := b.ListFiles(ctx, api.FileListParams{FileParams: b.at("/tmp/t"), Recursive: true})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range list.Entries {
		got = append(got, e.Path+":"+string(e.Type)+":"+e.Target)
		if e.Name == "file" &&
			(e.Size != 6 || e.Mode != "4711" || !e.MTime.Equal(time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC))) {
			t.Errorf("got %+v", e)
		}
		if strings.HasPrefix(e.Name, "odd") && e.PathBase64 != base64.StdEncoding.EncodeToString([]byte("odd\xff")) {
			t.Errorf("got %+v", e)
		}
	}
	want := "a:folder: a/b:folder: a/b/c:folder: a/b/c/deep:file: dir:folder: fifo:fifo: file:file: in:symlink:a/b odd\uFFFD:file: out:symlink:/etc"
	if s := strings.Join(got, " "); s != want || list.Truncated {
		t.Errorf("got  %s\nwant %s", s, want)
	}
	for _, c := range []struct {
		p         api.FileListParams
		n         int
		truncated bool
	}{
		{api.FileListParams{FileParams: b.at("/tmp/t")}, 7, false},
		{api.FileListParams{FileParams: b.at("/tmp/t/in")}, 1, false},
		{api.FileListParams{FileParams: b.at("/tmp/t/dir"), Recursive: true}, 0, false},
		{api.FileListParams{FileParams: b.at("/tmp/t"), Recursive: true, Depth: 2}, 8, false},
		{api.FileListParams{FileParams: b.at("/tmp/t"), Limit: 3}, 3, true},
		{api.FileListParams{FileParams: b.at("/tmp/t"), Recursive: true, Limit: 2}, 2, true},
		{api.FileListParams{FileParams: b.at("/usr"), Recursive: true, Limit: 5000}, 5000, true},
	} {
		list, err := b.ListFiles(ctx, c.p)
		if err != nil || len(list.Entries) != c.n || list.Truncated != c.truncated {
			t.Errorf("%+v: %d entries, truncated %v, %v", c.p, len(list.Entries), list.Truncated, err)
		}
	}
	_, err = b.ListFiles(ctx, api.FileListParams{FileParams: b.at("/tmp/t/file")})
	world.Fails(t, err, api.FailedPrecondition, "not a directory")

	stat := func(path string, follow bool) string {
		f, err := b.StatFile(ctx, api.FileStatParams{FileParams: b.at(path), Follow: follow})
		if err != nil {
			return string(api.ErrorCode(err))
		}
		return fmt.Sprint(f.Name, " ", f.Type, " ", f.Target)
	}
	for path, want := range map[string]string{
		"/tmp/t/in": "in symlink a/b", "/tmp/t/file": "file file ", "/": "/ folder ", "/dev/null": "null char_device ",
		"/tmp/t/nope": "not_found",
	} {
		if got := stat(path, false); got != want {
			t.Errorf("stat %s: %q, want %q", path, got, want)
		}
	}
	if got := stat("/tmp/t/in", true); got != "in folder " {
		t.Errorf("stat of a link's target: %q", got)
	}

	made := func(path string, parents bool, mode string) string {
		r, err := b.MakeFolder(ctx, api.FileMkdirParams{FileParams: b.at(path), Parents: parents, Mode: mode})
		if err != nil {
			return string(api.ErrorCode(err))
		}
		return fmt.Sprint(r.Created)
	}
	if got := []string{made("/tmp/t/m", false, "1777"), made("/tmp/t/m", false, ""), made("/tmp/t/m", true, ""),
		made("/tmp/t/x/y/z/", true, ""),
		made("/tmp/t/p/q", false, ""), made("/tmp/t/file", true, ""),
		made("/tmp/t/file/x", true,
			"")}; fmt.Sprint(got) != "[true already_exists false true not_found already_exists failed_precondition]" {
		t.Errorf("mkdir: %v", got)
	}
	if got := b.sh(t, "stat -c %a /tmp/t/m /tmp/t/x/y"); got != "1777\n755" {
		t.Errorf("modes %q", got)
	}

	// /dev/shm is another mount: the kernel cannot rename from there.
	b.sh(t, "mkdir -p /dev/shm/doc/sub; cd /dev/shm/doc; echo x >sub/file; ln -s sub/file link; ln sub/file hard; chmod 700 sub; mkdir /dev/shm/pipes; mkfifo /dev/shm/pipes/p")
	for _, c := range []struct {
		from, to string
		keep     bool
		want     api.Code
	}{
		{"/tmp/t/file", "/tmp/t/moved", false, ""},
		{"/tmp/t/moved", "/tmp/t/odd-name", true, ""},
		{"/tmp/t/odd-name", "/tmp/t/fifo", true, api.AlreadyExists},
		{"/tmp/t/a", "/var/lib/a", false, ""},
		{"/dev/shm/doc", "/tmp/t/doc", true, ""},
		{"/dev/shm/pipes", "/tmp/t/pipes", true, api.FailedPrecondition},
		{"/usr/share", "/tmp/t/share", true, api.PermissionDenied},
		{"/tmp/t/nope", "/tmp/t/x", false, api.NotFound},
		{"/tmp/t/odd-name", "/tmp/t/none/x", false, api.NotFound},
		{"/tmp/t/x", "/tmp/t/x/y/inside", false, api.InvalidArgument},
		{"/tmp/t/x", "/tmp/t/odd-name", false, api.FailedPrecondition},
		{"/tmp/t/x/", "/tmp/t/z", false, api.InvalidArgument},
	} {
		err := b.MoveFile(ctx, api.FileMoveParams{FileParams: b.at(c.from), To: c.to, NoReplace: c.keep})
		if c.want == "" && err != nil {
			t.Errorf("move %s to %s: %v", c.from, c.to, err)
		} else if c.want != "" {
			world.Fails(t, err, c.want)
		}
	}
	if got := b.sh(t, "cat /var/lib/a/b/c/deep; ls /dev/shm; cd /tmp/t/doc; cat link; stat -c %a:%h sub hard; stat -c %a /tmp/t/odd-name; find /tmp /var/lib -maxdepth 1 -name .hutch-\\*"); got != "x\npipes\nx\n700:2\n644:2\n4711" {
		t.Errorf("moved: %q", got)
	}

	b.sh(t, "mkdir -p /tmp/r/d/e; touch /tmp/r/d/f /tmp/r/keep; ln -s /tmp/r/keep /tmp/r/d/l; ln -s /tmp/r /tmp/r/d/e/up")
	remove := func(path string, recursive, missing bool) string {
		r, err := b.RemoveFile(ctx, api.FileRemoveParams{FileParams: b.at(path), Recursive: recursive,
			MissingOK: missing})
		if err != nil {
			return string(api.ErrorCode(err))
		}
		return fmt.Sprint(r.Removed)
	}
	if got := []string{remove("/tmp/r/d", false, false), remove("/tmp/r/d", true, false),
		remove("/tmp/r/d", true, false), remove("/tmp/r/d", true, true),
		remove("/tmp/r/keep", false, false), remove("/", true, false), remove("/proc/self", true, false),
		remove("/dev/shm", true,
			false)}; fmt.Sprint(got[:6]) != "[failed_precondition 5 not_found 0 1 invalid_argument]" {
		t.Errorf("remove: %v", got)
	}
}

// TestFilesPlaces: in an image without a single program, as root and as others,
// with files that only some may touch; and not in a sandbox that has ended.
func TestFilesPlaces(t *testing.T) {
	t.Parallel()
	registry := imagetest.StartRegistry(t)
	ref := world.Push(t, registry, "bare", imagetest.Image{Layers: []imagetest.Layer{imagetest.NewLayer(imagetest.Tar(
		imagetest.Dir("data"), imagetest.Dir("data/sub"), imagetest.Text("data/sub/file", "moved"),
		imagetest.Text("data/file", "from the image\n"), imagetest.File{Name: "data/mine", Content: "x",
			Mode: 0o600},
	), imagetest.Gzip)}})
	b := newFileBox(t, "-w", "/data", ref)
	ctx := t.Context()
	if got := b.get(t, "file"); got != "from the image\n" {
		t.Errorf("got %q", got)
	}
	b.put(t, api.FileWriteParams{FileParams: b.at("file"), Data: "changed"})
	if got := b.get(t, "/data/file"); got != "changed" {
		t.Errorf("got %q", got)
	}
	// A folder of the image's: overlayfs cannot rename it in one step.
	if err := b.MoveFile(ctx, api.FileMoveParams{FileParams: b.at("/data/sub"), To: "/moved"}); err != nil {
		t.Error(err)
	}
	if got := b.get(t, "/moved/file"); got != "moved" {
		t.Errorf("got %q", got)
	}
	if testenv.CurrentKind() == mustrun.NoSubUID {
		_, err := b.StatFile(ctx,
			api.FileStatParams{FileParams: api.FileParams{Sandbox: b.id, Path: "/", User: "70000"}})
		world.Fails(t, err, api.InvalidArgument, "70000")
	} else {
		user := func(path string) api.FileParams { return api.FileParams{Sandbox: b.id, Path: path, User: "1000:1000"} }
		_, err := b.ReadFile(ctx, api.FileReadParams{FileParams: user("/data/mine")}, nil)
		world.Fails(t, err, api.PermissionDenied, "/data/mine", "permission denied")
		_, err = b.WriteFile(ctx, api.FileWriteParams{FileParams: user("/data/file"), Data: "x"}, nil)
		world.Fails(t, err, api.PermissionDenied)
		_, err = b.WriteFile(ctx, api.FileWriteParams{FileParams: user("/data/new"), Data: "x"}, nil)
		world.Fails(t, err, api.PermissionDenied)
		if got := b.get(t, "/data/mine"); got != "x" { // the allowed twin
			t.Errorf("got %q", got)
		}
		if _, err := b.MakeFolder(ctx, api.FileMkdirParams{FileParams: b.at("/open"), Mode: "0777"}); err != nil {
			t.Fatal(err)
		}
		b.put(t, api.FileWriteParams{FileParams: user("/open/theirs"), Data: "x", Mode: "0666"})
		b.put(t, api.FileWriteParams{FileParams: b.at("/open/theirs"), Data: "by root"})
		f, err := b.StatFile(ctx, api.FileStatParams{FileParams: b.at("/open/theirs")})
		if err != nil || f.UID != 1000 || f.GID != 1000 || f.Mode != "0666" {
			t.Errorf("replaced: %+v, %v", f, err)
		}
		// Root's file in a folder of everybody's: written, as a shell would.
		b.put(t, api.FileWriteParams{FileParams: b.at("/open/ours"), Data: "x", Mode: "0666"})
		if r := b.put(t, api.FileWriteParams{FileParams: user("/open/ours"), Data: "in place"}); r.Atomic ||
			b.get(t, "/open/ours") != "in place" {
			t.Errorf("got %+v", r)
		}
	}
	if _, err := b.Kill(ctx, b.id); err != nil {
		t.Fatal(err)
	}
	_, err := b.ReadFile(ctx, api.FileReadParams{FileParams: b.at("file")}, nil)
	world.Fails(t, err, api.FailedPrecondition, "stopped")
	b.w.OK(t, "rm", b.id)
	b.w.RemoveLayers(t)
}
