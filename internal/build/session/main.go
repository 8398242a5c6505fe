// Session records the picture of the README: it types commands on a terminal, in a project of its own, and draws what
// the screen shows as an SVG. It needs hutch in PATH and a pseudo-terminal. `make picture` runs it.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/hinshun/vt10x"
	"golang.org/x/sys/unix"
)

// The screen, in characters.
const (
	columns = 110
	rows    = 40
)

// typed are the commands, in their order.
var typed = []string{
	`hutch run --workspace . -- curl -sS https://example.com`,
	`hutch run --workspace . -- sh -c 'echo evil >.git/hooks/post-commit'`,
	`hutch create --name fix --workspace .:overlay host`,
	`hutch exec fix -- sh -c 'rm -r src; echo "print(6*7)" >answer.py; python3 answer.py'`,
	`hutch workspace diff --stat fix`,
	`ls`,
	`hutch workspace apply fix answer.py`,
	`ls`,
}

func main() {
	out := flag.String("o", "", "the file to write, instead of standard output")
	flag.Parse()
	svg, err := record()
	if err == nil && *out != "" {
		err = os.WriteFile(*out, []byte(svg), 0o644)
	} else if err == nil {
		_, err = io.WriteString(os.Stdout, svg)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// record types the commands in a folder that is removed in the end, with a daemon that ends then, too.
func record() (svg string, err error) {
	dir, err := os.MkdirTemp("", "session-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	env := append(os.Environ(), "TERM=xterm-256color", "HUTCH_ROOT="+filepath.Join(dir, "state"),
		"HUTCH_SOCKET="+filepath.Join(dir, "sock"), "HUTCH_CONFIG="+filepath.Join(dir, "none"))
	project := filepath.Join(dir, "project")
	setup := exec.Command("sh", "-c", `mkdir -p "$0/src" && cd "$0" && git init -q && echo x >src/main.py`, project)
	if text, err := setup.CombinedOutput(); err != nil {
		return "", fmt.Errorf("make the project: %w: %s", err, text)
	}
	shutdown := exec.Command("hutch", "rpc", "system.shutdown", `{"mode": "kill"}`)
	shutdown.Env = env
	defer func() { _ = shutdown.Run() }()
	vt := vt10x.New(vt10x.WithSize(columns, rows))
	for _, line := range typed {
		_, _ = vt.Write([]byte("\x1b[1m$ " + line + "\x1b[0m\r\n"))
		if err := onTerminal(vt, project, env, line); err != nil {
			return "", err
		}
	}
	return draw(vt), nil
}

// onTerminal runs a line of the shell's on a terminal whose output goes to vt.
func onTerminal(vt io.Writer, dir string, env []string, line string) error {
	master, slave, err := openPTY()
	if err != nil {
		return err
	}
	defer master.Close()
	cmd := exec.Command("bash", "-c", line)
	cmd.Dir, cmd.Env = dir, env
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	if err := cmd.Start(); err != nil {
		return err
	}
	_ = slave.Close()
	_, _ = io.Copy(vt, master) // until the last process has closed its end, which reads as EIO
	_ = cmd.Wait()             // some of the commands fail: that is what the picture shows
	return nil
}

// openPTY makes a terminal of the screen's size.
func openPTY() (master, slave *os.File, err error) {
	if master, err = os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0); err != nil {
		return nil, nil, err
	}
	fd := int(master.Fd())
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	err = errors.Join(err, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0),
		unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: columns}))
	if err == nil {
		slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	}
	if err != nil {
		return nil, nil, errors.Join(err, master.Close())
	}
	return master, slave, nil
}

// The looks.
const (
	cell   = 8.4 // pixels, of a character of 14
	height = 19
	margin = 16
)

// palette are the first sixteen colours.
var palette = []string{
	"#22272e", "#f47067", "#57ab5a", "#c69026", "#539bf5", "#b083f0", "#39c5cf", "#adbac7",
	"#636e7b", "#ff938a", "#6bc46d", "#daaa3f", "#6cb6ff", "#dcbdfb", "#56d4dd", "#cdd9e5",
}

func draw(vt vt10x.Terminal) string {
	lines := strings.Split(strings.TrimRight(vt.String(), " \n"), "\n")
	var b strings.Builder
	w, h := int(columns*cell)+2*margin, len(lines)*height+2*margin
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="ui-monospace, `+
		`SFMono-Regular, Menlo, Consolas, monospace" font-size="14">`+"\n", w, h)
	fmt.Fprintf(&b, "<title>A session with hutch</title>\n"+
		`<rect width="%d" height="%d" rx="8" fill="%s"/>`+"\n", w, h, palette[0])
	for y := range lines {
		drawLine(&b, vt, y)
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// drawLine draws runs of characters that look the same.
func drawLine(b *strings.Builder, vt vt10x.Terminal, y int) {
	for x := 0; x < columns; {
		g := vt.Cell(x, y)
		end := x
		var text strings.Builder
		for ; end < columns; end++ {
			next := vt.Cell(end, y)
			if next.FG != g.FG || weight(next) != weight(g) {
				break
			}
			text.WriteRune(orSpace(next.Char))
		}
		if run := strings.TrimRight(text.String(), " "); run != "" {
			fmt.Fprintf(b, `<text x="%.1f" y="%d" fill="%s"%s xml:space="preserve">%s</text>`+"\n",
				margin+float64(x)*cell, margin+y*height+14, colour(g), weight(g), escape(run))
		}
		x = end
	}
}

func orSpace(r rune) rune {
	if r == 0 {
		return ' '
	}
	return r
}

func colour(g vt10x.Glyph) string {
	if int(g.FG) < len(palette) {
		return palette[g.FG]
	}
	return palette[7]
}

// bold is vt10x's attribute, which it does not export.
const bold = 1 << 2

func weight(g vt10x.Glyph) string {
	if g.Mode&bold != 0 {
		return ` font-weight="bold"`
	}
	return ""
}

func escape(s string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(s)
}
