package files_test

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/testenv"
)

// liar answers each request of a hutch cp: the path that it asks for, TYPE-ARCHIVE, says
// what the worker is to say is there, and what to send.
const liar = seize + `
import array, base64, io, tarfile
def archive(*entries):
    b = io.BytesIO()
    with tarfile.open(fileobj=b, mode="w", format=tarfile.USTAR_FORMAT) as t:
        for name, kind, value in entries:
            i = tarfile.TarInfo(name)
            i.type, i.mode = kind, 0o4755
            if kind == tarfile.REGTYPE: i.size = len(value)
            else: i.linkname = value
            t.addfile(i, io.BytesIO(value.encode()) if kind == tarfile.REGTYPE else None)
    return b.getvalue()
F, D, L, H = tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE
archives = {
    "good": archive(("./", D, ""), (".profile", F, "x"), ("sub/f", F, "x"), ("in", L, "sub/f")),
    "flat": archive((".profile", F, "hostile"), ("report", F, "hostile"), ("victim", L, ".profile")),
    "up": archive(("./", D, ""), ("ok", F, "x"), ("../.profile", F, "hostile")),
    "inner": archive(("a/../../.profile", F, "hostile")),
    "abs": archive((sys.argv[1] + "/abs", F, "hostile")),
    "through": archive(("l", L, ".."), ("l/.profile", F, "hostile")),
    "twice": archive(("d", D, ""), ("d/l", L, "../.."), ("d/l/.profile", F, "hostile"), ("l", L, "d"), ("l/l", F, "hostile")),
    "hard": archive(("h", H, "../.profile")),
    "root": archive((".", F, "hostile")),
    "name": archive(("\x1b]0;x\x07/../y", F, "hostile")),
    "escape": archive(("\x1b[2J", F, "x"), ("\x1b[2J/y", F, "x")),
}
modes = {"file": 0o104755, "folder": 0o40755, "link": 0o120777, "null": 0o20666, "none": 0}
while True:
    m, anc, _, _ = s.recvmsg(1 << 18, socket.CMSG_SPACE(64))
    if not m: break
    req = json.loads(m[4:4 + struct.unpack("<I", m[:4])[0]])
    def reply(**fields):
        head = json.dumps({"id": req.get("id", 0), **fields}).encode()
        s.send(struct.pack("<I", len(head)) + head)
    if req["op"] == "ping":
        reply()
    if req["op"] not in ("stat", "read", "pack"): continue # a ping, or a call is given up
    kind, _, which = os.path.basename(req["path"].rstrip("/.")).partition("-")
    data = archives.get(which, archives["flat"])
    if req["op"] == "stat":
        b64 = lambda t: base64.b64encode(t.encode()).decode()
        reply(entry={"path": b64("../victim"), "mode": modes[kind], "size": 1, "mtime": "2026-01-01T00:00:00Z", "uid": 0, "gid": 0, "target": b64(".profile")})
        continue
    fds = array.array("i")
    fds.frombytes(anc[0][2])
    try: os.write(fds[0], data)
    except BrokenPipeError: pass # it has seen enough
    os.close(fds[0])
    reply(count=1, bytes=len(data), eof=True)
`

// TestCopyOutHostile: whatever a files worker that the sandbox has taken over says is
// there, and whatever it sends, hutch cp changes nothing but the one destination.
func TestCopyOutHostile(t *testing.T) {
	testenv.Axes(t, testenv.User)
	t.Parallel()
	world.NeedsPython(t)
	b := newFileBox(t)
	b.sh(t, "echo x >/tmp/file")
	b.get(t, "/tmp/file")
	outer := b.w.Path("outer")
	b.await(t, b.start(t, "/usr/bin/python3", "-c", liar, outer), "taken")
	for _, c := range []struct {
		flag, src, dst string
		code           int
		says           string
		dest           string // beneath the folder "here", nothing else may change
		made           string // must be there
	}{
		// The allowed twins: a file, and a folder with dot files and inner links.
		{"", "/file-flat", "new", 0, "", "new", "new"},
		{"", "/file-flat", ".", 0, "", "file-flat", "file-flat"},
		{"-L", "/file-flat", "report", 0, "", "report", "report"},
		{"", "/folder-good", "new", 0, "", "new", "new/in"},
		{"", "/folder-good/", "folder/", 0, "", "folder/folder-good", "folder/folder-good/sub/f"},
		{"", "/folder-good/.", "folder", 0, "", "folder", "folder/.profile"},

		// What was asked for is said to be a link, or nothing that is copied.
		{"", "/link-flat", ".", 125, "-L", "", ""},
		{"", "/link-flat", "new", 125, "-L", "", ""},
		{"", "/link-flat", "report", 125, "-L", "", ""},
		{"", "/report/../link-flat", "folder", 125, "-L", "", ""},
		{"-L", "/link-flat", "new", 125, "symbolic link", "", ""},
		{"", "/link-flat/.", "new", 125, "no contents", "", ""},
		{"", "/file-flat/.", "folder", 125, "no contents", "", ""},
		{"", "/file-flat/..", "folder", 125, "no contents", "", ""},
		{"", "/null-flat", "new", 125, "neither", "", ""},
		{"", "/none-flat", "new", 125, "neither", "", ""},

		// Another kind than the destination is for.
		{"", "/folder-good", "report", 125, "is a file", "", ""},
		{"", "/folder-good", "dangling", 125, "is no folder", "", ""},
		{"", "/folder-good", "missing/new", 125, "no such", "", ""},
		{"", "/folder-good", "", 125, "names nothing", "", ""},
		{"", "/file-flat", "", 125, "names nothing", "", ""},
		{"", "/file-flat", "new/", 125, "no such folder", "", ""},
		{"", "/file-flat", "missing/..", 125, "names nothing", "", ""},

		// Names in a folder that may be the sandbox's: a link there is not followed.
		{"", "/file-soft", ".", 0, "", "file-soft", "file-soft"},
		{"", "/file-flat", "dangling", 0, "", "dangling", "dangling"},
		{"", "/folder-soft", ".", 125, "a link to one", "", ""},
		{"", "/file-fifo", ".", 125, "is no file", "", ""},
		{"", "/file-folder", ".", 125, "is no file", "", ""},
		// But the user's own name for the destination is.
		{"", "/folder-good/.", "folder-soft", 0, "", "folder", "folder/sub/f"},
		{"", "/file-flat", "file-soft", 0, "", ".profile", ".profile"},

		// Archives that lead elsewhere.
		{"", "/folder-up", "new", 125, "leads out", "new", ""},
		{"", "/folder-up/.", "folder", 125, "leads out", "folder", ""},
		{"", "/folder-inner", ".", 125, "leads out", "folder-inner", ""},
		{"", "/folder-abs", "new", 125, "absolute", "new", ""},
		{"", "/folder-through", "new", 0, "left out", "new", ""},
		{"", "/folder-twice", "new", 125, "", "new", ""},
		{"", "/folder-hard", "new", 125, "leads out", "new", ""},
		{"", "/folder-root", "new", 125, "directory", "new", ""},
		{"", "/folder-name", "new", 125, "leads out", "new", ""},
		{"", "/folder-escape", "new", 125, "not a directory", "new", ""},
	} {
		name := strings.TrimSpace(c.flag + " " + c.src + " to " + c.dst)
		before := remake(t, outer)
		args := append(strings.Fields("cp "+c.flag), b.id+":"+c.src, c.dst)
		cmd := b.w.Command(args...)
		cmd.Dir = filepath.Join(outer, "here")
		r := b.w.Finish(t, cmd)
		if r.Code != c.code || !strings.Contains(r.Stderr, c.says) || r.Code != 0 &&
			!strings.Contains(r.Stderr, "try:") {
			t.Errorf("%s: code %d, want %d, saying %q: %s", name, r.Code, c.code, c.says, r.Stderr)
		}
		if strings.ContainsAny(r.Stdout+r.Stderr, "\x1b\x07") {
			t.Errorf("%s: can do something to a terminal: %q", name, r.Stderr)
		}
		after := snapshot(t, outer)
		for path := range before {
			if _, ok := after[path]; !ok {
				t.Errorf("%s: %s is gone", name, path)
			}
		}
		for _, path := range slices.Sorted(maps.Keys(after)) {
			rel := strings.TrimPrefix(path, "here/")
			if after[path] != before[path] && (c.dest == "" || rel != c.dest && !strings.HasPrefix(rel, c.dest+"/")) {
				t.Errorf("%s: %s was %q and is %q", name, path, before[path], after[path])
			}
			if strings.HasPrefix(after[path], "u") {
				t.Errorf("%s: %s is setuid", name, path)
			}
		}
		if got := after["here/"+c.made]; c.made != "" && (got == "" || got == before["here/"+c.made]) {
			t.Errorf("%s: %s is %q", name, c.made, got)
		}
	}
}

// remake makes the folder of a user: outer holds what is the user's, and the folder
// here, from which files are copied to.
func remake(t testing.TB, outer string) map[string]string {
	t.Helper()
	here := filepath.Join(outer, "here")
	err := os.RemoveAll(outer)
	for _, dir := range []string{"folder", "file-folder"} {
		err = errors.Join(err, os.MkdirAll(filepath.Join(here, dir), 0o755))
	}
	for _, name := range []string{"../.profile", ".profile", "report", "victim"} {
		err = errors.Join(err, os.WriteFile(filepath.Join(here, name), []byte("mine"), 0o644))
	}
	for name, to := range map[string]string{"dangling": "nowhere", "file-soft": ".profile", "folder-soft": "folder"} {
		err = errors.Join(err, os.Symlink(to, filepath.Join(here, name)))
	}
	if err := errors.Join(err, unix.Mkfifo(filepath.Join(here, "file-fifo"), 0o600)); err != nil {
		t.Fatal(err)
	}
	return snapshot(t, outer)
}

// snapshot is everything below a folder: mode, and content or target.
func snapshot(t testing.TB, root string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		st, err := d.Info()
		if err != nil {
			return err
		}
		var what []byte
		switch {
		case st.Mode().IsRegular():
			what, err = os.ReadFile(path)
		case st.Mode()&fs.ModeSymlink != 0:
			var to string
			to, err = os.Readlink(path)
			what = []byte(to)
		}
		rel, rerr := filepath.Rel(root, path)
		all[rel] = fmt.Sprint(st.Mode(), " ", string(what))
		return errors.Join(err, rerr)
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}
