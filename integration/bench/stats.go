package main

import (
	"math"
	"slices"
)

// Summary describes a set of numbers in their own unit.
type Summary struct {
	N      int     `json:"n"`
	Min    float64 `json:"min"`
	Median float64 `json:"median"`
	P90    float64 `json:"p90"`
	P99    float64 `json:"p99"`
	Max    float64 `json:"max"`
}

// Summarize describes values, which it leaves as they are. No values give the
// zero Summary.
func Summarize(values []float64) Summary {
	if len(values) == 0 {
		return Summary{}
	}
	sorted := slices.Sorted(slices.Values(values))
	return Summary{
		N:      len(sorted),
		Min:    sorted[0],
		Median: median(sorted),
		P90:    percentile(sorted, 90),
		P99:    percentile(sorted, 99),
		Max:    sorted[len(sorted)-1],
	}
}

// median of sorted values is the middle one, or the mean of the middle two.
func median(sorted []float64) float64 {
	mid := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[mid]
	}
	return (sorted[mid-1] + sorted[mid]) / 2
}

// percentile of sorted values is the nearest rank: the smallest value that p
// percent of them do not exceed. It is always a value that was measured.
func percentile(sorted []float64, p float64) float64 {
	rank := int(math.Ceil(p / 100 * float64(len(sorted))))
	return sorted[max(rank, 1)-1]
}

// Ratio compares a subject with the baseline.
type Ratio struct {
	// Median is the median over the rounds of one subject's time by the
	// baseline's of the same round. Load that lasts longer than a round slows
	// both and cancels out, which it does not in a ratio of two medians.
	Median float64 `json:"median"`
	// Low and High are the 10th and 90th percentile of the same ratios: how far
	// single rounds disagree.
	Low  float64 `json:"p10"`
	High float64 `json:"p90"`
}

// PairedRatio compares values with base, round by round. Rounds that only one
// of the two has, at the end, are left out. ok is false when there are none.
func PairedRatio(values, base []float64) (r Ratio, ok bool) {
	n := min(len(values), len(base))
	ratios := make([]float64, 0, n)
	for i := range n {
		if base[i] > 0 {
			ratios = append(ratios, values[i]/base[i])
		}
	}
	if len(ratios) == 0 {
		return Ratio{}, false
	}
	slices.Sort(ratios)
	return Ratio{Median: median(ratios), Low: percentile(ratios, 10), High: percentile(ratios, 90)}, true
}
