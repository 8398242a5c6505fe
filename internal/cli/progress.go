package cli

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/hutch-sh/hutch/runtime/api"
)

// redrawEvery bounds how often a terminal is redrawn.
const redrawEvery = 50 * time.Millisecond

// PullProgress shows the download of an image: on a terminal a line with a bar per layer
// and one for all of them, one line per finished phase otherwise. It is safe for concurrent use.
type PullProgress struct {
	mu     sync.Mutex
	w      io.Writer
	live   bool
	now    func() time.Time
	size   func() (cols, rows int) // of the terminal
	layers []*layerState           // in the order they were first heard of
	drawn  int                     // lines on the screen
	last   time.Time
	closed bool
}

type layerState struct {
	id, phase   string
	done, total int64
}

// NewPullProgress shows on w; live redraws lines in place.
func NewPullProgress(w io.Writer, live bool) *PullProgress {
	return &PullProgress{w: w, live: live, now: time.Now, size: func() (int, int) {
		if f, ok := w.(*os.File); ok {
			if cols, rows, err := term.GetSize(int(f.Fd())); err == nil && cols > 0 && rows > 0 {
				return cols, rows
			}
		}
		return 80, 24
	}}
}

// Update takes one notification. Others than an image's are ignored.
func (p *PullProgress) Update(n api.Progress) {
	if n.Kind != "image.progress" {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	l := p.layer(n.Layer)
	changed := l.phase != n.Phase
	l.phase, l.done, l.total = n.Phase, n.Done, n.Total
	switch {
	case !p.live && changed:
		fmt.Fprintf(p.w, "%s: %s\n", Line(shortLayer(n.Layer)), l.text())
	case p.live && (changed || p.now().Sub(p.last) >= redrawEvery):
		p.draw()
	}
}

// Close takes the bars off the screen, for good: what they were about is done, or an error says so. Call it before
// anything else is written there: it clears what is below the first bar. It may be called again.
func (p *PullProgress) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	p.clear()
}

// Clear takes the bars off the screen until there is more news, for who writes something else there meanwhile.
func (p *PullProgress) Clear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clear()
	p.layers = nil
}

func (p *PullProgress) clear() {
	if p.drawn > 0 {
		fmt.Fprintf(p.w, "\x1b[%dA\x1b[J", p.drawn)
		p.drawn = 0
	}
}

func (p *PullProgress) layer(id string) *layerState {
	for _, l := range p.layers {
		if l.id == id {
			return l
		}
	}
	l := &layerState{id: id}
	p.layers = append(p.layers, l)
	return l
}

// draw writes all lines over the ones that are there: CSI A goes up, CSI K clears the rest of a line, CSI J what is
// below (ECMA-48). A line that wraps, or more of them than the terminal has, would be left behind by the next drawing,
// which goes up by the lines that it knows.
func (p *PullProgress) draw() {
	cols, rows := p.size()
	var b strings.Builder
	if p.drawn > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", p.drawn)
	}
	shown := p.fitting(rows - 1)
	if len(p.layers) > 1 {
		all := p.sum()
		shown = append(slices.Clone(shown), &all)
	}
	for _, l := range shown {
		line := []rune(fmt.Sprintf("  %-12s %s %s", Line(shortLayer(l.id)), l.bar(), l.text()))
		fmt.Fprintf(&b, "%s\x1b[K\n", string(line[:min(len(line), max(cols-1, 0))]))
	}
	if len(shown) < p.drawn {
		fmt.Fprint(&b, "\x1b[J")
	}
	p.drawn, p.last = len(shown), p.now()
	fmt.Fprint(p.w, b.String())
}

// fitting are the layers for which there is room beside their sum: of many, those that are not finished.
func (p *PullProgress) fitting(lines int) []*layerState {
	if len(p.layers) < lines {
		return p.layers
	}
	var open []*layerState
	for _, l := range p.layers {
		if l.total <= 0 || l.done < l.total {
			open = append(open, l)
		}
	}
	return open[:min(len(open), max(lines-1, 0))]
}

// sum is all layers together; how much there is is unknown as long as it is of one layer.
func (p *PullProgress) sum() layerState {
	all := layerState{id: "total"}
	for _, l := range p.layers {
		all.done += l.done
		if l.total <= 0 || all.total < 0 {
			all.total = -1
			continue
		}
		all.total += l.total
	}
	return all
}

func (l *layerState) bar() string {
	const width = 24
	full := 0
	if l.total > 0 {
		full = int(min(l.done, l.total) * width / l.total)
	}
	return strings.Repeat("━", full) + strings.Repeat("─", width-full)
}

func (l *layerState) text() string {
	switch phase := Line(l.phase); {
	case l.total > 0:
		return strings.TrimPrefix(fmt.Sprintf("%s %s / %s", phase, Bytes(l.done), Bytes(l.total)), " ")
	case l.done > 0:
		return strings.TrimPrefix(phase+" "+Bytes(l.done), " ")
	default:
		return phase
	}
}

// shortLayer is enough of a layer's digest to tell it from the others.
func shortLayer(id string) string {
	const hex = 12
	if _, sum, ok := strings.Cut(id, ":"); ok {
		id = sum
	}
	if len(id) > hex {
		id = id[:hex]
	}
	return id
}
