package image_test

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/testenv"
)

// written is a script that writes all that a layer holds, and show prints it.
const (
	written = `set -e; echo new >/dir/new; echo more >>/dir/b; rm /odd*; rm -r /opaque; mkdir /opaque; echo o >/opaque/fresh
ln /dir/new /hard; ln -s new /dir/soft; mkfifo /pipe; chmod 4711 /dir/new; touch -d "2001-02-03 04:05:06" /dir/b; mkdir -m 1777 /sticky
echo closed >/closed/out; chmod 0 /one; dd if=/dev/zero of=/sparse bs=1 count=1 seek=5000000 2>/dev/null; echo 1 >/tmp/t; echo x >>/etc/hosts; : >/.wh.dir`
	show = `cat /dir/new /dir/b /dir/soft /hard /opaque/* /closed/out /tmp/t; ls / | grep -v tick; ls -A /etc /dir; cat /one
stat -c "%n %a %u:%g %Y" /dir /dir/* /opaque /closed /one /sticky /sparse /etc/passwd; stat -c %a /tmp; stat -c "%F %s %h" /pipe /dir/soft /dir/new /sparse; md5sum /sparse`
)

// TestCommit: what a sandbox has written, running or stopped, is the top layer of an image
// that runs at once and shows the same; the sandbox goes on.
func TestCommit(t *testing.T) {
	testenv.Axes(t, testenv.User)
	t.Parallel()
	w := world.New(t)
	w.ImportTiny(t, "base:1")
	sb := w.Create(t, "-u", "0", "base:1")
	w.OK(t, "exec", sb, "/bin/sh", "-c", written)
	w.OK(t, "exec", sb, "/bin/sh", "-c", "while :; do date +%s%N >/tick; done >/dev/null 2>&1 </dev/null &")
	r := w.Run(t, "commit", "-m", "because", "-e", "A=b", "-l", "x=y", "-w", "/dir", "--cmd",
		`["/bin/sh","-c","pwd; echo $A; cat new"]`, sb, "made:1").Want(t, 0)
	r.Says(t, "left out 1 files", ".wh.dir")
	if r.Stdout != "docker.io/library/made:1\n" {
		t.Errorf("made %q", r.Stdout)
	}
	if state := w.OK(t, "inspect", sb); !strings.Contains(state, `"running"`) {
		t.Errorf("afterwards the sandbox is %s", state)
	}
	w.OK(t, "exec", sb, "/bin/sh", "-c", "rm /.wh.dir") // which the image has not
	want := w.OK(t, "exec", sb, "/bin/sh", "-c", show)
	if got := w.OK(t, "run", "--pull", "never", "-u", "0", "made:1", "/bin/sh", "-c", show); got != want {
		t.Errorf("the image shows\n%s\nthe sandbox\n%s", got, want)
	}
	if got := w.OK(t, "run", "--pull", "never", "made:1"); got != "/dir\nb\nnew\n" {
		t.Errorf("it runs as %q", got)
	}
	var img struct {
		Layers []string
		Config struct {
			User   string
			Labels map[string]string
		}
	}
	inspect := func(name string) {
		t.Helper()
		if err := json.Unmarshal([]byte(w.OK(t, "image", "inspect", name)), &img); err != nil {
			t.Fatal(err)
		}
	}
	inspect("made:1")
	if img.Config.User != "zero" || img.Config.Labels["x"] != "y" {
		t.Errorf("configuration %+v", img.Config)
	}
	// A stopped one, twice: the same layer.
	w.OK(t, "kill", sb)
	w.OK(t, "commit", sb, "stopped:1")
	inspect("stopped:1")
	first := img.Layers
	w.OK(t, "commit", "--cmd", "echo hi", sb, "stopped:2")
	inspect("stopped:2")
	if strings.Join(first, " ") != strings.Join(img.Layers, " ") {
		t.Errorf("layers %q and %q", first, img.Layers)
	}
	// Nothing written: no layer. And one more on top of what was committed.
	sb = w.Create(t, "-u", "0", "stopped:2")
	w.OK(t, "commit", sb, "same:1")
	inspect("same:1")
	if strings.Join(first, " ") != strings.Join(img.Layers, " ") {
		t.Errorf("without a change: layers %q, were %q", img.Layers, first)
	}
	w.OK(t, "exec", sb, "/bin/sh", "-c", "rm -r /dir; echo 2 >/second")
	w.OK(t, "commit", sb, "second:1")
	if got := w.OK(t, "run", "--pull", "never", "second:1", "/bin/sh", "-c",
		"cat /second; test -e /dir || echo gone"); got != "2\ngone\n" {
		t.Errorf("two commits show %q", got)
	}
	if out := w.OK(t, "image", "verify"); !strings.Contains(out, "good") || strings.Contains(out, "damaged") {
		t.Errorf("verify: %s", out)
	}
	w.OK(t, append([]string{"rm", "-f"}, strings.Fields(w.OK(t, "ps", "-a", "-q"))...)...)
	w.RemoveLayers(t)
}

// TestCommitRefused: what cannot be committed says why, and the sandbox goes on.
func TestCommitRefused(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	w.ImportTiny(t, "base:1")
	sb, host := w.Create(t, "base:1"), w.Create(t, "host")
	for words, args := range map[string][]string{
		"no sandbox":     {"nobody", "x:1"},
		"built in":       {sb, "host"},
		"lower case":     {sb, "UPPER"},
		"made of layers": {host, "x:1"},
		"digest":         {sb, "x@sha256:" + strings.Repeat("0", 64)},
		"working_dir":    {"-w", "relative", sb, "x:1"},
		"not NAME=VALUE": {"-e", "NAME", sb, "x:1"},
		"no JSON array":  {"--cmd", "[x", sb, "x:1"},
		"longer than":    {"-m", strings.Repeat("x", 5000), sb, "x:1"},
	} {
		w.Run(t, append([]string{"commit"}, args...)...).Want(t, 125).Says(t, words)
	}
	if list := w.OK(t, "image", "ls", "-q"); list != "docker.io/library/base:1\n" {
		t.Errorf("in the store: %q", list)
	}
	w.OK(t, "exec", sb, "/bin/sh", "-c", ":")
	if left, _ := filepath.Glob(filepath.Join(w.Root(), "data/images/tmp/*")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}
