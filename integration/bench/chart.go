package main

import (
	"bytes"
	"fmt"
	"html/template"
	"os"
	"path/filepath"
	"strings"
)

// charts are the pictures that a report is drawn as: a title, the file's name, and which subjects are in it, in
// the order of the report.
var charts = []struct {
	file, title string
	subjects    []string
}{
	{"start", "A command in a new sandbox, from argv to exit", []string{
		"floor", "bwrap", "bwrap-seccomp", "crun", "crun-seccomp", "runc", "runc-seccomp", "firejail", "podman-run",
		"hutch-run", "hutch-run-ready", "hutch-run-pool", "hutch-run-private",
	}},
	{"agent", "What agents use", []string{"hutch-call", "tool-write", "tool-list", "tool-command", "code-python",
		"workspace-diff"}},
	{"branch", "Pause, snapshots and forks of 10 MB in 1,000 files",
		[]string{"pause-resume", "snapshot-10mb", "fork-10mb", "hutch-create"}},
	{"exec", "A command in a sandbox that lives", []string{"true", "crun-exec", "runc-exec", "hutch-exec", "hutch-call",
		"hutch-call-passed"}},
	{"create", "Sandboxes over a warm connection", []string{
		"hutch-create", "hutch-acquire", "hutch-acquire-exec", "hutch-create-exec", "hutch-create-exec-pulled",
		"hutch-create-crowd", "hutch-remove", "hutch-sustained",
	}},
	{"pull", "Pull of " + mixed.String() + ", on disk", []string{"hutch-pull", "podman-pull", "skopeo-umoci",
		"crane-tar"}},
	{"pull-tmpfs", "Pull of " + mixed.String() + ", in memory", []string{"hutch-pull-tmpfs", "podman-pull-tmpfs",
		"skopeo-umoci-tmpfs", "crane-tar-tmpfs"}},
	{"pull-100k", "Pull of " + small.String() + ", on disk", []string{"hutch-pull-100k", "podman-pull-100k",
		"skopeo-umoci-100k", "crane-tar-100k"}},
	{"connect", "A connection and its first byte", []string{"net-connect", "hutch-net-connect", "pasta-connect",
		"pasta-local-connect", "slirp4netns-connect"}},
	{"http", "500 requests for 1 KiB, 8 at a time", []string{"net-http", "hutch-net-http", "pasta-http",
		"pasta-local-http", "slirp4netns-http"}},
}

// bar is one subject in a chart; lengths are of the drawing, texts ready to be shown.
type bar struct {
	Name, Value         string
	Y, Width, Low, High float64
	Ours                bool
}

const (
	chartLeft  = 190.0 // where bars begin
	chartWidth = 420.0 // of the longest
	barStep    = 26.0
)

// writeCharts draws the charts of which two subjects at least were measured into a folder.
func (r *Report) writeCharts(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, c := range charts {
		picture, ok, err := r.chart(c.title, c.subjects)
		if err == nil && ok {
			err = os.WriteFile(filepath.Join(dir, c.file+".svg"), picture, 0o644)
		}
		if err != nil {
			return fmt.Errorf("chart %s: %w", c.file, err)
		}
	}
	return nil
}

// chart is the picture of the medians of some subjects, with a line from the 10th to the 90th percentile.
func (r *Report) chart(title string, names []string) (picture []byte, ok bool, err error) {
	var bars []bar
	longest := 0.0
	for _, name := range names {
		for _, res := range r.Results {
			if res.Name == name && res.Wall != nil {
				longest = max(longest, res.Wall.P90)
				bars = append(bars, bar{Name: name, Ours: strings.HasPrefix(name, "hutch"),
					Value: milliseconds(res.Wall.Median),
					Width: res.Wall.Median, Low: res.Wall.Min, High: res.Wall.P90})
			}
		}
	}
	if len(bars) < 2 || longest == 0 {
		return nil, false, nil
	}
	scale := chartWidth / longest
	for i := range bars {
		b := &bars[i]
		b.Y, b.Width, b.Low, b.High = 52+barStep*float64(i), b.Width*scale, chartLeft+b.Low*scale, chartLeft+
			b.High*scale
	}
	foot := []string{
		fmt.Sprintf("median in ms; the line goes from the fastest to the 90th percentile of %d interleaved rounds",
			r.Rounds),
		fmt.Sprintf("Linux %s, %d cores, load %.1f before, uid %d", r.Machine.Kernel, r.Machine.Cores,
			r.Machine.Load1Before, r.UID),
	}
	var b bytes.Buffer
	err = chartTemplate.Execute(&b, map[string]any{
		"Title": title, "Foot": foot, "Bars": bars, "Left": chartLeft, "Width": chartLeft + chartWidth + 90,
		"Height": 52 + barStep*float64(len(bars)) + 48,
	})
	return b.Bytes(), true, err
}

func milliseconds(ms float64) string {
	if ms >= 100 {
		return fmt.Sprintf("%.0f", ms)
	}
	return fmt.Sprintf("%.2f", ms)
}

// chartTemplate is readable on light and dark pages.
var chartTemplate = template.Must(template.New("chart").Parse(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {{.Width}} {{.Height}}" width="{{.Width}}" height="{{.Height}}" role="img" font-family="system-ui, sans-serif" font-size="13">
<title>{{.Title}}</title>
<rect width="100%" height="100%" fill="#ffffff"/>
<text x="16" y="28" font-size="16" font-weight="600" fill="#1f2328">{{.Title}}</text>
{{- $left := .Left}}
{{- range .Bars}}
<g transform="translate(0 {{printf "%.1f" .Y}})">
<text x="{{$left}}" dx="-10" y="13" text-anchor="end" fill="#1f2328">{{.Name}}</text>
<rect x="{{$left}}" y="1" width="{{printf "%.1f" .Width}}" height="17" rx="2" fill="{{if .Ours}}#c2571a{{else}}#9aa4af{{end}}"/>
<line x1="{{printf "%.1f" .Low}}" x2="{{printf "%.1f" .High}}" y1="9.5" y2="9.5" stroke="#1f2328" stroke-width="1.5"/>
<text x="{{printf "%.1f" .High}}" dx="8" y="14" fill="#1f2328">{{.Value}}</text>
</g>
{{- end}}
<g font-size="11" fill="#59636e">
<text x="16" y="{{.Height}}" dy="-25">{{index .Foot 0}}</text>
<text x="16" y="{{.Height}}" dy="-9">{{index .Foot 1}}</text>
</g>
</svg>
`))
