package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"github.com/hutch-sh/hutch/internal/build/testreport"
)

// guest/run.sh prints these around the output of each package's tests: the folder of
// the package behind the first, the exit code behind the second.
const (
	beginMark = "=== VM BEGIN "
	endMark   = "=== VM END "
)

// read reads what a guest prints: of each package through test2json, as the go command
// would. It returns how many have ended.
func read(in io.Reader, r *testreport.Reader, out io.Writer, label string) (ended int, err error) {
	lines := bufio.NewReader(in)
	var pkg *converted
	for {
		line, readErr := lines.ReadString('\n')
		text := strings.TrimRight(line, "\r\n")
		switch {
		case strings.HasPrefix(text, beginMark):
			if pkg, err = convert(strings.TrimPrefix(text, beginMark), r); err != nil {
				return ended, err
			}
		case strings.Contains(text, endMark) && pkg != nil:
			// Behind what a test printed last, which may have no end of line.
			before, code, _ := strings.Cut(text, endMark)
			err = errors.Join(pkg.write(before), pkg.end())
			if err != nil {
				return ended, err
			}
			ended++
			status, convErr := strconv.Atoi(code)
			if convErr != nil {
				status = -1
			}
			r.Exit(module+"/"+pkg.name, status)
			if code == "0" {
				fmt.Fprintf(out, "ok  \t%s/%s\t(%s)\n", module, pkg.name, label)
			} else {
				r.Failed = true
				fmt.Fprintf(out, "FAIL\t%s/%s\texit status %s\t(%s)\n", module, pkg.name, code, label)
			}
			pkg = nil
		case pkg != nil:
			if err := pkg.write(text + "\n"); err != nil {
				return ended, err
			}
		case text != "":
			fmt.Fprintln(out, text)
		}
		if readErr != nil {
			if pkg != nil { // the machine went off
				err = pkg.end()
				r.CutShort(module + "/" + pkg.name)
			}
			return ended, err
		}
	}
}

// converted is a test2json at work.
type converted struct {
	name string
	in   io.WriteCloser
	done chan error
	cmd  *exec.Cmd
}

func convert(name string, r *testreport.Reader) (*converted, error) {
	cmd := exec.Command("go", "tool", "test2json", "-t", "-p", module+"/"+name)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	events, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	c := &converted{name: name, in: in, done: make(chan error, 1), cmd: cmd}
	go func() { c.done <- r.Read(events) }()
	return c, nil
}

func (c *converted) write(text string) error {
	_, err := io.WriteString(c.in, text)
	return err
}

// end waits until all events are read.
func (c *converted) end() error {
	return errors.Join(c.in.Close(), <-c.done, c.cmd.Wait())
}
