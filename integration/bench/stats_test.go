package main

import (
	"math"
	"slices"
	"testing"
)

func TestSummarize(t *testing.T) {
	hundred := make([]float64, 100)
	for i := range hundred {
		hundred[i] = float64(100 - i)
	}
	for _, tc := range []struct {
		name   string
		values []float64
		want   Summary
	}{
		{"none", nil, Summary{}},
		{"one", []float64{3}, Summary{N: 1, Min: 3, Median: 3, P90: 3, P99: 3, Max: 3}},
		{"two", []float64{4, 2}, Summary{N: 2, Min: 2, Median: 3, P90: 4, P99: 4, Max: 4}},
		{"odd, unsorted", []float64{9, 1, 5}, Summary{N: 3, Min: 1, Median: 5, P90: 9, P99: 9, Max: 9}},
		{"ten", []float64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, Summary{N: 10, Min: 1, Median: 5.5, P90: 9, P99: 10,
			Max: 10}},
		{"hundred", hundred, Summary{N: 100, Min: 1, Median: 50.5, P90: 90, P99: 99, Max: 100}},
		{"one outlier of many", append(slices.Repeat([]float64{1}, 99), 1000),
			Summary{N: 100, Min: 1, Median: 1, P90: 1, P99: 1, Max: 1000}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			before := slices.Clone(tc.values)
			if got := Summarize(tc.values); got != tc.want {
				t.Errorf("got %+v, want %+v", got, tc.want)
			}
			if !slices.Equal(before, tc.values) {
				t.Errorf("values were reordered: %v", tc.values)
			}
		})
	}
}

func TestPairedRatio(t *testing.T) {
	for _, tc := range []struct {
		name         string
		values, base []float64
		want         Ratio
		ok           bool
	}{
		{"nothing", nil, []float64{1}, Ratio{}, false},
		{"itself", []float64{1, 7, 3}, []float64{1, 7, 3}, Ratio{1, 1, 1}, true},
		// The second round ran on a machine ten times slower: the ratio of each
		// round is 2 all the same.
		{"load", []float64{2, 20, 2}, []float64{1, 10, 1}, Ratio{2, 2, 2}, true},
		{"unequal lengths", []float64{2, 2}, []float64{1, 1, 9}, Ratio{2, 2, 2}, true},
		{"a base of zero", []float64{2, 5}, []float64{1, 0}, Ratio{2, 2, 2}, true},
		{"spread", []float64{1, 2, 3, 4}, []float64{1, 1, 1, 1}, Ratio{2.5, 1, 4}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, ok := PairedRatio(tc.values, tc.base)
			if got != tc.want || ok != tc.ok {
				t.Errorf("got %+v %v, want %+v %v", got, ok, tc.want, tc.ok)
			}
		})
	}
}

// TestPairedRatioLoad: a load that comes and goes moves the medians of two
// subjects apart when it meets them unevenly, but not the paired ratio.
func TestPairedRatioLoad(t *testing.T) {
	var a, b []float64
	for i := range 101 {
		load := 1 + 4*math.Abs(math.Sin(float64(i)/7))
		a = append(a, 3*load)
		b = append(b, load)
	}
	r, ok := PairedRatio(a, b)
	if !ok || math.Abs(r.Median-3) > 1e-9 || math.Abs(r.High-r.Low) > 1e-9 {
		t.Errorf("got %+v %v, want 3 everywhere", r, ok)
	}
}
