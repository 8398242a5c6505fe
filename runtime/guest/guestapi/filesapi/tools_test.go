package filesapi

import (
	"testing"

	"github.com/hutch-sh/hutch/internal/testenv/cost"
)

// FuzzParseLines: whatever a sandbox sends is refused or within its bounds.
func FuzzParseLines(f *testing.F) {
	f.Add([]byte(`{"text":"YQo=","start":1,"end":1,"next":0,"total":1,"size":2,"cut":0,"binary":false}`))
	f.Add([]byte(`{"start":9223372036854775807,"end":-1}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		args := &LinesArgs{Start: 1, Lines: 10, Bytes: 100}
		var l *Lines
		var err error
		cost.Input(t, data, func(data []byte) { l, err = ParseLines(data, args) })
		if err == nil && (len(l.Text) > args.Bytes || l.End-l.Start >= 10 || l.Next < 0) {
			t.Errorf("%+v", l)
		}
	})
}

// FuzzParseFound does the same for what searches and replacements answer.
func FuzzParseFound(f *testing.F) {
	f.Add([]byte(`[{"path":"YQ==","line":1,"text":"YQ==","before":["YQ=="],"score":3}]`))
	f.Add([]byte(`{"files":[{"path":"YQ==","kind":"added"}],"plan":{}}`))
	f.Add([]byte(`{"count":1,"diff":"YQ==","truncated":true}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		cost.Input(t, data, func(data []byte) {
			if list, err := ParseMatches(data, &GrepArgs{Max: 2, Context: 1, LineSize: 4}); err == nil &&
				len(list) > 2 {
				t.Error(list)
			}
			if list, err := ParseFound(data, &FindArgs{Max: 2}); err == nil && len(list) > 2 {
				t.Error(list)
			}
			if list, _, err := ParsePatched(data, &PatchArgs{MaxFiles: 2}); err == nil && len(list) > 2 {
				t.Error(list)
			}
			if r, err := ParseReplaced(data, &ReplaceArgs{MaxDiff: 4}); err == nil && (len(r.Diff) > 4 || r.Count < 1) {
				t.Error(r)
			}
		})
	})
}

// FuzzParseSynced: what a sandbox says is needed is of the files that were asked about.
func FuzzParseSynced(f *testing.F) {
	f.Add([]byte(`{"needed":[0,2],"same":1,"removed":4}`))
	f.Add([]byte(`{"needed":[-1,1,1,9223372036854775807]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var s *Synced
		var err error
		cost.Input(t, data, func(data []byte) { s, err = ParseSynced(data, 3) })
		if err != nil {
			return
		}
		for _, i := range s.Needed {
			if i < 0 || i > 2 || len(s.Needed) > 3 || s.Same < 0 || s.Removed < 0 {
				t.Errorf("%+v", s)
			}
		}
	})
}
