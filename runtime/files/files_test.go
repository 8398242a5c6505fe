package files

import (
	"archive/tar"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/runtime/api"
)

var zero = 0

// TestCalls: each method of fs.*, by one worker.
func TestCalls(t *testing.T) {
	f, b := newBox(t)
	ctx := t.Context()
	w, err := f.Write(ctx, api.FileWriteParams{FileParams: b.file("a/b.txt"), Data: "hello\n", Parents: true,
		Mode: "0640"}, nil)
	if err != nil || w.Written != 6 || !w.Created {
		t.Fatalf("write: %+v, %v", w, err)
	}
	at := int64(1)
	if _, err := f.Write(ctx, api.FileWriteParams{FileParams: b.file("a/b.txt"), Data: "E", Offset: &at},
		nil); err != nil {
		t.Error(err)
	}
	if r, err := f.Read(ctx, api.FileReadParams{FileParams: b.file("a/b.txt")}, nil); err != nil ||
		r.Data != "hEllo\n" || !r.EOF {
		t.Errorf("read: %+v, %v", r, err)
	}
	if r, err := f.Read(ctx, api.FileReadParams{FileParams: b.file("a/b.txt"), Limit: 2, Offset: 1}, nil); err != nil ||
		r.Data != "El" || r.Next != 3 || r.EOF {
		t.Errorf("read a piece: %+v, %v", r, err)
	}
	if st, err := f.Stat(ctx, api.FileStatParams{FileParams: b.file("a/b.txt")}); err != nil || st.Size != 6 ||
		st.Mode != "0640" || st.Type != api.TypeFile {
		t.Errorf("stat: %+v, %v", st, err)
	}
	if made, err := f.MakeFolder(ctx, api.FileMkdirParams{FileParams: b.file("c"), Mode: "0700"}); err != nil ||
		!made.Created {
		t.Errorf("mkdir: %+v, %v", made, err)
	}
	if err := f.Move(ctx, api.FileMoveParams{FileParams: b.file("a/b.txt"), To: "c/d.txt"}); err != nil {
		t.Error(err)
	}
	list, err := f.List(ctx, api.FileListParams{FileParams: b.file("."), Recursive: true})
	var names []string
	for _, e := range list.Entries {
		names = append(names, e.Path)
	}
	slices.Sort(names)
	if err != nil || !slices.Equal(names, []string{"a", "c", "c/d.txt"}) {
		t.Errorf("list: %v, %v", names, err)
	}
	if first, err := f.List(ctx, api.FileListParams{FileParams: b.file("."), Limit: 1, Offset: &zero}); err != nil ||
		len(first.Entries) != 1 || !first.Truncated {
		t.Errorf("first page: %+v, %v", first, err)
	}
	if r, err := f.Remove(ctx, api.FileRemoveParams{FileParams: b.file("c"), Recursive: true}); err != nil ||
		r.Removed != 2 {
		t.Errorf("remove: %+v, %v", r, err)
	}
	if r, err := f.Remove(ctx, api.FileRemoveParams{FileParams: b.file("c"), MissingOK: true}); err != nil ||
		r.Removed != 0 {
		t.Errorf("remove what is not there: %+v, %v", r, err)
	}
	if n := b.workers(); n != 1 {
		t.Errorf("%d workers for one user", n)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.notes) < 6 || b.notes[0].Path != b.at("a/b.txt") || b.notes[0].Content == nil {
		t.Errorf("notes for the audit log: %+v", b.notes)
	}
}

// TestErrors: what fails inside says what to do.
func TestErrors(t *testing.T) {
	f, b := newBox(t)
	ctx := t.Context()
	for name, tt := range map[string]struct {
		err  error
		code api.Code
	}{
		"missing":  {second(f.Read(ctx, api.FileReadParams{FileParams: b.file("no")}, nil)), api.NotFound},
		"a folder": {second(f.Read(ctx, api.FileReadParams{FileParams: b.file(".")}, nil)), api.FailedPrecondition},
		"no sandbox": {second(f.Read(ctx, api.FileReadParams{FileParams: api.FileParams{Sandbox: "x"}}, nil)),
			api.NotFound},
		"mode": {second(f.Write(ctx, api.FileWriteParams{FileParams: b.file("x"), Mode: "9"}, nil)),
			api.InvalidArgument},
		"not base64": {second(f.Write(ctx, api.FileWriteParams{FileParams: b.file("x"), Data: "?",
			Encoding: api.Base64}, nil)), api.InvalidArgument},
		"too much": {second(f.Write(ctx,
			api.FileWriteParams{FileParams: b.file("x"), Data: strings.Repeat("x", api.MaxWriteBytes+1)}, nil)),
			api.InvalidArgument},
		"a long name": {second(f.Stat(ctx, api.FileStatParams{FileParams: b.file(strings.Repeat("x", 300))})),
			api.InvalidArgument},
	} {
		var e *api.Error
		if !errors.As(tt.err, &e) || e.Code != tt.code {
			t.Errorf("%s: %v, want %s", name, tt.err, tt.code)
		} else if e.Hint == "" && name != "no sandbox" {
			t.Errorf("%s has no hint: %v", name, tt.err)
		}
	}
	b.ended = api.Errorf(api.Unavailable, "it was paused")
	if _, err := f.Stat(ctx, api.FileStatParams{FileParams: b.file("no")}); api.ErrorCode(err) != api.Unavailable {
		t.Errorf("in a sandbox that was paused: %v", err)
	}
	b.ended, b.over = nil, true
	if _, err := f.Write(ctx, api.FileWriteParams{FileParams: b.file("x"), Data: "x"},
		nil); api.ErrorCode(err) != api.ResourceExhausted {
		t.Errorf("write over the limit: %v", err)
	}
	if _, err := f.List(ctx, api.FileListParams{FileParams: b.file(".")}); err != nil {
		t.Errorf("list over the limit: %v", err)
	}
}

func second[T any](_ T, err error) error { return err }

// TestBytes: what is no text comes as base64, and a piece ends between runes.
func TestBytes(t *testing.T) {
	f, b := newBox(t)
	if err := errors.Join(os.WriteFile(b.at("bytes"), []byte{0xff, 0, 1}, 0o644),
		os.WriteFile(b.at("text"), []byte("aä"), 0o644), os.WriteFile(b.at("na\xffme"), nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	if r, err := f.Read(t.Context(), api.FileReadParams{FileParams: b.file("bytes")}, nil); err != nil ||
		r.Encoding != api.Base64 || r.Data != "/wAB" {
		t.Errorf("%+v, %v", r, err)
	}
	if r, err := f.Read(t.Context(), api.FileReadParams{FileParams: b.file("text"), Limit: 2}, nil); err != nil ||
		r.Data != "a" || r.Next != 1 {
		t.Errorf("%+v, %v", r, err)
	}
	list, err := f.List(t.Context(), api.FileListParams{FileParams: b.file(".")})
	if err != nil || len(list.Entries) != 3 || !slices.ContainsFunc(list.Entries, func(e api.File) bool {
		return e.PathBase64 != "" && strings.Contains(e.Name, "\uFFFD")
	}) {
		t.Errorf("%+v, %v", list, err)
	}
}

// TestPipes: files and archives go through pipes, and nothing else crosses.
func TestPipes(t *testing.T) {
	f, b := newBox(t)
	ctx := t.Context()
	r, w := pipe(t)
	if _, err := w.WriteString("piped"); err != nil {
		t.Fatal(err)
	}
	w.Close()
	if got, err := f.Write(ctx, api.FileWriteParams{FileParams: b.file("x"), FD: &zero}, pipes{r}); err != nil ||
		got.Written != 5 {
		t.Fatalf("%+v, %v", got, err)
	}
	r, w = pipe(t)
	if got, err := f.Read(ctx, api.FileReadParams{FileParams: b.file("x"), FD: &zero}, pipes{w}); err != nil ||
		got.Next != 5 {
		t.Errorf("%+v, %v", got, err)
	}
	if data, err := io.ReadAll(r); err != nil || string(data) != "piped" {
		t.Errorf("%q, %v", data, err)
	}
	r, w = pipe(t)
	packed := make(chan error, 1)
	go func() {
		got, err := f.Pack(ctx, api.FilePackParams{FileParams: b.file("x"), FD: &zero, As: "y"}, pipes{w})
		if err == nil && got.Entries != 1 {
			err = errors.New("not one entry")
		}
		packed <- err
	}()
	data, err := io.ReadAll(r)
	if err := errors.Join(err, <-packed); err != nil {
		t.Fatal(err)
	}
	if h, err := tar.NewReader(strings.NewReader(string(data))).Next(); err != nil || h.Name != "y" {
		t.Errorf("%+v, %v", h, err)
	}
	r, w = pipe(t)
	go func() {
		_, _ = w.Write(data)
		w.Close()
	}()
	if got, err := f.Unpack(ctx, api.FileUnpackParams{FileParams: b.file("."), FD: &zero}, pipes{r}); err != nil ||
		got.Entries != 1 {
		t.Errorf("%+v, %v", got, err)
	}
	if text, err := os.ReadFile(b.at("y")); err != nil || string(text) != "piped" {
		t.Errorf("%q, %v", text, err)
	}
	plain, err := os.Open(b.at("x"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Read(ctx, api.FileReadParams{FileParams: b.file("x"), FD: &zero},
		pipes{plain}); api.ErrorCode(err) != api.InvalidArgument {
		t.Errorf("a file in place of a pipe: %v", err)
	}
	r, _ = pipe(t)
	if _, err := f.Read(ctx, api.FileReadParams{FileParams: b.file("x"), FD: &zero},
		pipes{r}); api.ErrorCode(err) != api.InvalidArgument {
		t.Errorf("the wrong end of a pipe: %v", err)
	}
}

// TestSync: the files that a folder lacks are named, and what it has too much goes. Uploads have a folder of their own.
func TestSync(t *testing.T) {
	f, b := newBox(t)
	if err := f.Upload(t.Context(), "sb", []api.Upload{{Name: "data.csv", Data: "1,2\n"}}); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(b.at(uploadsDir + "/data.csv")); err != nil || string(text) != "1,2\n" {
		t.Errorf("%q, %v", text, err)
	}
	if err := f.Upload(t.Context(), "sb", []api.Upload{{Name: "x", Data: "?", Encoding: api.Base64}}); err == nil {
		t.Error("an upload that is not base64 is taken")
	}
	if err := os.MkdirAll(b.at("tree/old"), 0o755); err != nil {
		t.Fatal(err)
	}
	got, err := f.Sync(t.Context(), api.FileSyncParams{FileParams: b.file("tree"), Delete: true,
		Files: []api.SyncFile{{Path: "new.txt", Type: api.TypeFile, Size: 3}}})
	if err != nil || !slices.Equal(got.Needed, []int{0}) || got.Removed != 1 {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestTools: the file side of the tools, with hints for models.
func TestTools(t *testing.T) {
	f, b := newBox(t)
	ctx, on := t.Context(), On{Sandbox: "sb"}
	if err := errors.Join(os.WriteFile(b.at("a.go"), []byte("package a\n\nfunc A() {}\n"), 0o644),
		os.Mkdir(b.at("sub"), 0o755), os.WriteFile(b.at("sub/b.go"), []byte("package b\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	if r, err := f.ReadLines(ctx, on, api.ToolReadFile{Path: "a.go", StartLine: 3}); err != nil ||
		r.Text != "func A() {}\n" ||
		r.TotalLines != 3 {
		t.Errorf("lines: %+v, %v", r, err)
	}
	if r, err := f.Grep(ctx, on, api.ToolGrepFiles{Pattern: "^package"}); err != nil || len(r.Matches) != 2 {
		t.Errorf("grep: %+v, %v", r, err)
	}
	if r, err := f.Grep(ctx, on, api.ToolGrepFiles{Pattern: "func", FilesOnly: true, Path: "a.go"}); err != nil ||
		!slices.Equal(r.Files, []string{"a.go"}) {
		t.Errorf("grep for names: %+v, %v", r, err)
	}
	if r, err := f.Find(ctx, on, api.ToolFindFiles{Query: "b.go"}); err != nil || len(r.Found) != 1 ||
		r.Found[0].Path != "sub/b.go" {
		t.Errorf("find: %+v, %v", r, err)
	}
	if r, err := f.Find(ctx, on, api.ToolFindFiles{Query: "sub", Type: "folder"}); err != nil || len(r.Found) != 1 ||
		r.Found[0].Type != api.TypeFolder {
		t.Errorf("find a folder: %+v, %v", r, err)
	}
	if r, err := f.Replace(ctx, on, api.ToolFindReplace{Path: "a.go", Find: "A()", Replace: "B()"}); err != nil ||
		r.Replacements != 1 {
		t.Errorf("replace: %+v, %v", r, err)
	}
	const diff = "--- a/a.go\n+++ b/a.go\n@@ -3 +3 @@\n-func B() {}\n+func C() {}\n--- /dev/null\n+++ b/n.go\n@@ -0,0 +1 @@\n+package n\n"
	dry, err := f.Patch(ctx, on, api.ToolApplyPatch{Patch: diff, DryRun: true})
	if _, serr := os.Stat(b.at("n.go")); err != nil || len(dry.Files) != 2 || serr == nil {
		t.Errorf("dry run: %+v, %v, %v", dry, err, serr)
	}
	if r, err := f.Patch(ctx, on, api.ToolApplyPatch{Patch: diff}); err != nil || len(r.Files) != 2 {
		t.Errorf("patch: %+v, %v", r, err)
	}
	if text, err := os.ReadFile(b.at("a.go")); err != nil || !strings.Contains(string(text), "func C") {
		t.Errorf("%q, %v", text, err)
	}
	if _, err := f.Patch(ctx, on, api.ToolApplyPatch{Patch: diff}); err == nil {
		t.Error("a patch is applied twice")
	}
	if _, err := f.Patch(ctx, on, api.ToolApplyPatch{Patch: "nonsense"}); api.ErrorCode(err) != api.InvalidArgument {
		t.Errorf("no patch: %v", err)
	}
	var e *api.Error
	if _, err := f.ReadLines(ctx, on, api.ToolReadFile{Path: "no"}); !errors.As(err, &e) ||
		!strings.Contains(e.Hint, "sandbox_list_directory") {
		t.Errorf("hint for a model: %v", err)
	}
	if left := noteFiles(t, b); len(left) > 0 {
		t.Errorf("notes of patches are left: %v", left)
	}
}

func noteFiles(t *testing.T, b *fakeBox) []string {
	t.Helper()
	list, err := patchNotes(b)
	if err != nil {
		t.Fatal(err)
	}
	return list
}
