// Package units reads sizes and times as people write them, on the command line and in
// the configuration file.
package units

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Size reads a size as docker's flags take it: a number, with an optional fraction, and
// one of the units b, k, m, g, t, p in either case, also written kb or kib; all of them
// powers of 1024. The result is in bytes.
func Size(s string) (int64, error) {
	number := strings.TrimRight(s, "bBiIkKmMgGtTpP ")
	unit := strings.ToLower(strings.TrimSpace(s[len(number):]))
	shift, ok := map[string]int{
		"": 0, "b": 0,
		"k": 10, "kb": 10, "kib": 10, "m": 20, "mb": 20, "mib": 20, "g": 30, "gb": 30, "gib": 30,
		"t": 40, "tb": 40, "tib": 40, "p": 50, "pb": 50, "pib": 50,
	}[unit]
	v, err := Float(number)
	if err != nil || !ok {
		return 0, fmt.Errorf("%q is not a size (examples: 512m, 1.5g, 1048576)", s)
	}
	bytes := v * float64(int64(1)<<shift)
	if bytes < 0 || bytes >= math.MaxInt64 {
		return 0, fmt.Errorf("size %q is out of range", s)
	}
	return int64(bytes), nil
}

// Float is strconv's without the forms that nobody means: hexadecimal, infinities,
// underscores, signs and exponents.
func Float(s string) (float64, error) {
	if s == "" || strings.Trim(s, "0123456789.") != "" {
		return 0, strconv.ErrSyntax
	}
	return strconv.ParseFloat(s, 64)
}

// Seconds reads seconds ("30", "0.5") or a Go duration ("1m30s").
func Seconds(s string) (float64, error) {
	if v, err := Float(s); err == nil {
		return v, nil
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("%q is not a duration (examples: 30, 0.5, 1m30s)", s)
	}
	return d.Seconds(), nil
}
