package filesapi

import "testing"

// FuzzParseLines: whatever a sandbox sends is refused or within its bounds.
func FuzzParseLines(f *testing.F) {
	f.Add([]byte(`{"text":"YQo=","start":1,"end":1,"next":0,"total":1,"size":2,"cut":0,"binary":false}`))
	f.Add([]byte(`{"start":9223372036854775807,"end":-1}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		args := &LinesArgs{Start: 1, Lines: 10, Bytes: 100}
		l, err := ParseLines(data, args)
		if err == nil && (len(l.Text) > args.Bytes || l.End-l.Start >= 10 || l.Next < 0) {
			t.Errorf("%+v", l)
		}
	})
}
