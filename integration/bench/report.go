package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"
)

// Report is the outcome of one measurement, as -json writes it. Times are in
// milliseconds.
type Report struct {
	Time     time.Time `json:"time"`
	Machine  Machine   `json:"machine"`
	UID      int       `json:"uid"` // of the subjects
	Rounds   int       `json:"rounds"`
	Warmup   int       `json:"warmup_rounds"`
	Baseline string    `json:"baseline"`
	Results  []Result  `json:"results"`
	Memory   *Memory   `json:"memory,omitempty"`
}

// Result is what is known of one subject.
type Result struct {
	Name    string `json:"name"`
	About   string `json:"about"`
	Command string `json:"command,omitempty"`
	Version string `json:"version,omitempty"`
	Note    string `json:"note,omitempty"`

	// Exactly one of the three groups is there.
	Wall *Summary `json:"wall_ms,omitempty"`
	// CPU is user and system time of the process and the descendants it waited
	// for; what a daemon does for it is not in here.
	CPU   *Summary  `json:"cpu_ms,omitempty"`
	Ratio *Ratio    `json:"ratio,omitempty"` // to the baseline, paired by round
	Walls []float64 `json:"walls_ms,omitempty"`

	Unavailable *Unavailable `json:"unavailable,omitempty"`
	Error       string       `json:"error,omitempty"`
}

// results turns entries into results, compared with the baseline named.
func results(entries []*entry, baseline string) []Result {
	var base []float64
	for _, e := range entries {
		if e.subject.Name == baseline && e.runs() {
			base = e.millis(wallTime)
		}
	}
	out := make([]Result, 0, len(entries))
	for _, e := range entries {
		r := Result{Name: e.subject.Name, About: e.subject.About, Unavailable: e.unavailable}
		if e.prepared != nil {
			r.Command, r.Version, r.Note = e.prepared.Command, e.prepared.Version, e.prepared.Note
		}
		switch {
		case e.err != nil:
			r.Error = e.err.Error()
		case len(e.samples) > 0:
			r.Walls = e.millis(wallTime)
			wall, cpu := Summarize(r.Walls), Summarize(e.millis(cpuTime))
			r.Wall, r.CPU = &wall, &cpu
			if ratio, ok := PairedRatio(r.Walls, base); ok {
				r.Ratio = &ratio
			}
		}
		out = append(out, r)
	}
	return out
}

// failed reports whether a subject gave a wrong result.
func (r *Report) failed() bool {
	for _, res := range r.Results {
		if res.Error != "" {
			return true
		}
	}
	return false
}

// json is the report as a file.
func (r *Report) json() ([]byte, error) {
	text, err := json.MarshalIndent(r, "", "  ")
	return append(text, '\n'), err
}

// String is the report for people: machine, table, command lines, and what is
// missing.
func (r *Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", r.Machine)
	fmt.Fprintf(&b, "load %.2f before, %.2f after; uid %d; %d rounds after %d of warm-up\n\n",
		r.Machine.Load1Before, r.Machine.Load1After, r.UID, r.Rounds, r.Warmup)
	r.table(&b)
	b.WriteString("\nms from argv to exit of the process; cpu: median user+sys of it and what it waited for, without daemons\n")
	fmt.Fprintf(&b, "x %s: median of the ratios within each round, and their 10th to 90th percentile\n", r.Baseline)
	if r.Memory != nil {
		fmt.Fprintln(&b, r.Memory)
	}
	r.commands(&b)
	r.missing(&b)
	return b.String()
}

func (r *Report) table(b *strings.Builder) {
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "median\tmin\tp90\tp99\tcpu\tx %s\tspread\t  subject\n", r.Baseline)
	for _, res := range r.Results {
		if res.Wall == nil {
			continue
		}
		ratio, spread := "-", "-"
		if res.Ratio != nil {
			ratio = fmt.Sprintf("%.2f", res.Ratio.Median)
			spread = fmt.Sprintf("%.2f-%.2f", res.Ratio.Low, res.Ratio.High)
		}
		fmt.Fprintf(t, "%.2f\t%.2f\t%.2f\t%.2f\t%.2f\t%s\t%s\t  %s\n",
			res.Wall.Median, res.Wall.Min, res.Wall.P90, res.Wall.P99, res.CPU.Median, ratio, spread, res.Name)
	}
	t.Flush()
}

func (r *Report) commands(b *strings.Builder) {
	for _, res := range r.Results {
		if res.Wall == nil {
			continue
		}
		fmt.Fprintf(b, "\n%s: %s\n    %s\n", res.Name, res.About, res.Command)
		for _, more := range []string{res.Version, res.Note} {
			if more != "" {
				fmt.Fprintf(b, "    (%s)\n", more)
			}
		}
	}
}

func (r *Report) missing(b *strings.Builder) {
	title := "\nnot measured here:\n"
	for _, res := range r.Results {
		if res.Unavailable != nil {
			fmt.Fprintf(b, "%s  %s: %s (%s)\n", title, res.Name, res.Unavailable.Error(), res.Unavailable.Reason)
			title = ""
		}
	}
	title = "\nWRONG RESULTS:\n"
	for _, res := range r.Results {
		if res.Error != "" {
			fmt.Fprintf(b, "%s  %s: %s\n", title, res.Name, res.Error)
			title = ""
		}
	}
}
