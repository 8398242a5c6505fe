package api

import (
	"fmt"
	"strings"
)

// maxExplained bounds the refusals, and the failed connections, that a text has.
const maxExplained = 10

// Text is a sentence about it, for models.
func (d *Denial) Text() string {
	text := fmt.Sprintf("the sandbox refused %s %s: %s", d.Kind, d.Target, d.Why)
	if d.HowToAllow != "" {
		text += "; to allow it: " + d.HowToAllow
	}
	return text
}

// Explain says, a line each, what was refused and what failed while something ran, for the model that reads its result.
// It is nothing where there was neither. Probes are named where that something has failed, and nothing else says why.
// policy is the Policy of the result.
func Explain(denials []Denial, failures []Failure, policy string, failed bool) (lines []string) {
	var probes []string
	told := 0
	for i := range denials {
		switch d := &denials[i]; {
		case d.Probe:
			probes = append(probes, d.Target)
		case told < maxExplained:
			lines = append(lines, d.Text())
			fallthrough
		default:
			told++
		}
	}
	if told > maxExplained {
		lines = append(lines, fmt.Sprintf("and %d refusals more", told-maxExplained))
	}
	if failed && told == 0 && len(probes) > 0 {
		probes = probes[:min(len(probes), maxExplained)]
		lines = append(lines, "the sandbox refused what programs mostly do as well without: "+strings.Join(probes, ", "))
	}
	for i := range failures[:min(len(failures), maxExplained)] {
		lines = append(lines, failures[i].Text())
	}
	if n := len(failures) - maxExplained; n > 0 {
		lines = append(lines, fmt.Sprintf("and %d failed connections more", n))
	}
	if policy != "" {
		lines = append(lines, "refused again and again, by this policy: "+policy)
	}
	return lines
}
