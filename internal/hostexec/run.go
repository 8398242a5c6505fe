package hostexec

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/hutch-sh/hutch/runtime/api"
)

// Path is where a command that a scan has let pass is looked for: folders that no sandbox can write. The scan knows
// commands by their names.
const Path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// keptVars are variables that such a command has of the caller's. Others make programs load or run what they name.
var keptVars = []string{"HOME", "USER", "LOGNAME", "LANG", "LANGUAGE", "TERM", "TZ", "COLUMNS", "LINES"}

// Environ is the environment of a command on the host: the caller's with what is over it, or of one that is ReadOnly
// little of the caller's.
func Environ(readOnly bool, over map[string]string) []string {
	if !readOnly {
		env := os.Environ()
		for _, name := range slices.Sorted(maps.Keys(over)) {
			env = append(env, name+"="+over[name]) // the last one counts
		}
		return env
	}
	env := []string{"PATH=" + Path}
	for _, v := range os.Environ() {
		name, _, _ := strings.Cut(v, "=")
		if slices.Contains(keptVars, name) || strings.HasPrefix(name, "LC_") {
			env = append(env, v)
		}
	}
	return env
}

// Shell is the argv that runs a text as the scan has read it: by bash, whose grammar that is, without files of its own.
// nil where there is no bash.
func Shell(command string) []string {
	for _, path := range []string{"/bin/bash", "/usr/bin/bash"} {
		if _, err := os.Stat(path); err == nil {
			return []string{path, "--noprofile", "--norc", "-c", command}
		}
	}
	return nil
}

// recordTimeout bounds how long the daemon may take to record an end.
const recordTimeout = 10 * time.Second

// ErrNotRecorded is an error of what has run all the same.
var ErrNotRecorded = errors.New("the daemon has not recorded how the command on the host ended")

var errTimeout = errors.New("the command's time is over")

// Run runs what the daemon has decided to be for the host, and has the end recorded. The result is good
// beside ErrNotRecorded.
func (c *Command) Run(ctx context.Context, d *api.Decision, started func(*Process),
	record func(context.Context, api.HostEndParams) error) (res api.ExecResult, err error) {
	begun := time.Now()
	bounded, cancel := ctx, context.CancelFunc(func() {})
	if d.TimeoutS > 0 {
		bounded, cancel = context.WithTimeoutCause(ctx, time.Duration(d.TimeoutS*float64(time.Second)), errTimeout)
	}
	defer cancel()
	var end End
	p, err := Start(c)
	if err != nil {
		end = End{ExitCode: 125, Error: err.Error()}
	} else {
		started(p)
		end = p.Wait(bounded)
	}
	timedOut := end.Signal == "SIGKILL" && errors.Is(context.Cause(bounded), errTimeout)
	res = end.Outcome(timedOut)
	res.Exec, res.DurationMS = d.ID, float64(time.Since(begun).Microseconds())/1e3
	told, stop := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout)
	defer stop()
	rerr := record(told, api.HostEndParams{
		ID: d.ID, ExitCode: end.ExitCode, Signal: end.Signal, TimedOut: timedOut, DurationMS: res.DurationMS,
		Error: clip(end.Error),
	})
	if rerr != nil {
		rerr = fmt.Errorf("%w: %w", ErrNotRecorded, rerr)
	}
	return res, errors.Join(err, rerr)
}

func clip(s string) string { return strings.ToValidUTF8(s[:min(len(s), 4096)], "") }

// Capture keeps the beginning and the end of what is written to a pipe.
type Capture struct {
	W          *os.File // to be closed when the command has it
	r          *os.File
	half       int
	head, tail []byte
	total      int
	done       chan struct{}
}

// NewCapture keeps limit bytes.
func NewCapture(limit int) (*Capture, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("pipe for output: %w", err)
	}
	c := &Capture{W: w, r: r, half: max(limit/2, 1), done: make(chan struct{})}
	go c.read()
	return c, nil
}

func (c *Capture) read() {
	defer close(c.done)
	buf := make([]byte, 64<<10)
	for {
		n, err := c.r.Read(buf)
		c.keep(buf[:n])
		if err != nil {
			return
		}
	}
}

func (c *Capture) keep(data []byte) {
	c.total += len(data)
	n := min(len(data), c.half-len(c.head))
	c.head = append(c.head, data[:n]...)
	c.tail = append(c.tail, data[n:]...)
	if more := len(c.tail) - c.half; more > 0 {
		c.tail = append(c.tail[:0], c.tail[more:]...)
	}
}

// Close waits until nobody can write any more. It returns the beginning, the end, and how many bytes between them are
// not kept.
func (c *Capture) Close() (head, tail []byte, omitted int) {
	_ = c.W.Close() // the command's end of it was another
	<-c.done
	_ = c.r.Close()
	return c.head, c.tail, c.total - len(c.head) - len(c.tail)
}

// Text closes it and returns what is kept as exec.run's result has it.
func (c *Capture) Text() (text string, encoding api.Encoding, truncated bool) {
	head, tail, omitted := c.Close()
	data := append(head, tail...)
	if utf8.Valid(data) {
		return string(data), api.Text, omitted > 0
	}
	return base64.StdEncoding.EncodeToString(data), api.Base64, omitted > 0
}
