package cli

import (
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/hutch-sh/hutch/runtime/api"
)

// StepProgress shows the steps of a build, and what they write, indented. It is safe for concurrent use.
type StepProgress struct {
	mu   sync.Mutex
	w    io.Writer
	line strings.Builder // that has not ended yet
}

// NewStepProgress shows on w.
func NewStepProgress(w io.Writer) *StepProgress { return &StepProgress{w: w} }

// maxLine bounds what is kept of a line.
const maxLine = 4096

// Update takes one notification.
func (p *StepProgress) Update(s api.StepProgress) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s.Text != "" {
		p.flush()
		number := fmt.Sprintf("%d/%d", s.Step, s.Steps)
		if s.Step > s.Steps {
			number = "done"
		}
		fmt.Fprintf(p.w, "%s [%s] %s\n", Line(s.Template), number, Line(s.Text))
	}
	for part := range strings.Lines(s.Output) {
		text, ended := strings.CutSuffix(part, "\n")
		if p.line.WriteString(text); ended || p.line.Len() > maxLine {
			p.flush()
		}
	}
}

// flush writes the line that has begun; what a sandbox writes is no command to the terminal.
func (p *StepProgress) flush() {
	if p.line.Len() > 0 {
		fmt.Fprintf(p.w, "  %s\n", Line(strings.TrimRight(p.line.String(), "\r")))
		p.line.Reset()
	}
}

// Close writes what is left.
func (p *StepProgress) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.flush()
}
