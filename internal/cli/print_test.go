package cli

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hutch-sh/hutch/runtime/api"
)

func TestTable(t *testing.T) {
	table := Table{Header: []string{"ID", "NAME", "MS"}, Right: []bool{2: true}}
	table.Row("sb_1", "größe", "1.50")
	table.Row("sb_22", "", "10.00")
	table.Row("evil\x1b[2J\nline", "x")
	var out bytes.Buffer
	table.Print(&out, "  ", nil)
	want := `
  ID              NAME      MS
  sb_1            größe   1.50
  sb_22                  10.00
  evil?[2J; line  x
`
	if got := "\n" + out.String(); got != want {
		t.Errorf("got%s\nwant%s", got, want)
	}
}

func TestAgo(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for d, want := range map[time.Duration]string{
		-time.Second: "just now", 0: "just now", time.Second: "1 second ago", 59 * time.Second: "59 seconds ago",
		time.Minute: "1 minute ago", 3 * time.Hour: "3 hours ago", 49 * time.Hour: "2 days ago",
	} {
		if got := Ago(now, now.Add(-d)); got != want {
			t.Errorf("Ago(%v) = %q, want %q", d, got, want)
		}
	}
}

func TestBytes(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0B", 1023: "1023B", 1024: "1.0K", 10 << 10: "10K", 1000 << 10: "1.0M", 1 << 20: "1.0M",
		4404019: "4.2M", 240 << 20: "240M", 1 << 50: "1.0P",
	} {
		if got := Bytes(n); got != want {
			t.Errorf("Bytes(%d) = %q, want %q", n, got, want)
		}
	}
}

func TestPullProgress(t *testing.T) {
	news := func(layer, phase string, done, total int64) api.Progress {
		return api.Progress{Kind: "image.progress", Layer: layer, Phase: phase, Done: done, Total: total}
	}
	feed := []api.Progress{
		news("sha256:0123456789abcdef", "download", 0, 2048),
		news("sha256:0123456789abcdef", "download", 1024, 2048),
		{Kind: "exec.started"},
		news("sha256:fedcba9876543210", "download", 5, -1),
		news("sha256:0123456789abcdef", "unpack", 0, 0),
	}
	t.Run("lines", func(t *testing.T) {
		var out bytes.Buffer
		p := NewPullProgress(&out, false)
		for _, n := range feed {
			p.Update(n)
		}
		p.Close()
		want := "0123456789ab: download 0B / 2.0K\nfedcba987654: download 5B\n0123456789ab: unpack\n"
		if out.String() != want {
			t.Errorf("got %q, want %q", out.String(), want)
		}
	})
	t.Run("total", func(t *testing.T) {
		var out bytes.Buffer
		p := NewPullProgress(&out, true)
		p.Update(news("sha256:a", "downloading", 1024, 2048))
		p.Update(news("sha256:b", "waiting", 0, 2048))
		if !strings.Contains(out.String(), "total        "+strings.Repeat("━", 6)+strings.Repeat("─", 18)+
			" 1.0K / 4.0K\x1b[K\n") {
			t.Errorf("no quarter in %q", out.String())
		}
	})
	t.Run("small terminal", func(t *testing.T) { // no line wraps, and no more are drawn than there are
		var out bytes.Buffer
		p := NewPullProgress(&out, true)
		p.size = func() (int, int) { return 30, 5 }
		p.now = func() time.Time { return time.Unix(0, 0) }
		for i := range 10 {
			p.Update(news(fmt.Sprintf("sha256:%012d", i), "waiting", 0, 2048))
		}
		for i := range 8 {
			p.Update(news(fmt.Sprintf("sha256:%012d", i), "done", 2048, 2048))
		}
		frames := strings.Split(out.String(), "\x1b[4A")
		last := frames[len(frames)-1]
		if !strings.HasPrefix(last, "  000000000008 ") || !strings.Contains(last, "\n  000000000009 ") ||
			!strings.HasSuffix(last, "\n\x1b[J") || strings.Count(last, "\n") != 3 {
			t.Errorf("the last drawing: %q", last)
		}
		for line := range strings.Lines(out.String()) {
			text := line
			for _, code := range []string{"\x1b[4A", "\x1b[3A", "\x1b[2A", "\x1b[1A", "\x1b[K", "\x1b[J", "\n"} {
				text = strings.ReplaceAll(text, code, "")
			}
			if n := len([]rune(text)); n > 29 {
				t.Errorf("%d columns: %q", n, line)
			}
		}
	})
	t.Run("bars", func(t *testing.T) {
		var out bytes.Buffer
		p := NewPullProgress(&out, true)
		now := time.Unix(0, 0)
		p.now = func() time.Time { now = now.Add(redrawEvery); return now }
		for _, n := range feed {
			p.Update(n)
		}
		p.Close()
		p.Update(feed[0]) // too late to be shown
		last := out.String()
		if !strings.Contains(last, "━━━━━━━━━━━━────────────") {
			t.Errorf("no half bar in %q", last)
		}
		// What all layers have together: how much there is is not known here.
		if !strings.Contains(last, "total        "+strings.Repeat("─", 24)+" 1.0K\x1b[K\n") {
			t.Errorf("no total in %q", last)
		}
		// All lines are cleared at the end.
		if !strings.HasSuffix(last, "\x1b[3A\x1b[J") {
			t.Errorf("the screen is not cleared: %q", last)
		}
	})
}

func TestVisible(t *testing.T) {
	for in, want := range map[string]string{
		"plain\n\tü": "plain\n\tü", "\x1b[2J\r\x7f\u009b": "^[[2J^M^?<U+009B>", "if a\u202e{ b": "if a<U+202E>{ b",
		"👩\u200d💻": "👩\u200d💻",
	} {
		if got := Visible(in); got != want {
			t.Errorf("%q is shown as %q, want %q", in, got, want)
		}
	}
}

func TestPrintable(t *testing.T) {
	for in, want := range map[string]string{
		"plain\n\tü": "plain\n\tü", "\x1b[2J\r\x7f\u009b": "?[2J???", "if a\u202e{\u2066 b": "if a?{? b",
		"\u200f\u061c": "??", "👩\u200d💻": "👩\u200d💻",
	} {
		if got := Printable(in); got != want {
			t.Errorf("%q is shown as %q, want %q", in, got, want)
		}
	}
}
