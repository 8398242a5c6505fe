package images

import (
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
)

// levels are the variants of amd64 (microarchitecture levels of the x86-64 psABI) with what each adds, in the words of
// /proc/cpuinfo.
var levels = []struct {
	variant string
	flags   []string
}{
	{"v1", nil},
	{"v2", []string{"cx16", "lahf_lm", "popcnt", "sse4_1", "sse4_2", "ssse3"}},
	{"v3", []string{"abm", "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe", "xsave"}},
	{"v4", []string{"avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl"}},
}

// variantsOf are the variants that can be run where there is no image for the plain architecture, the best first; the
// library knows those of arm. What emulates another architecture need not have more than the least.
func variantsOf(arch string) []string {
	switch {
	case arch != "amd64":
		return nil
	case runtime.GOARCH != arch:
		return []string{"v1"}
	}
	return amd64Variants(cpuFlags())
}

func amd64Variants(flags []string) (list []string) {
	for _, l := range levels {
		for _, f := range l.flags {
			if !slices.Contains(flags, f) {
				return list
			}
		}
		list = slices.Insert(list, 0, l.variant)
	}
	return list
}

// cpuFlags are what the first processor has; they are all the same to the kernel.
var cpuFlags = sync.OnceValue(func() []string {
	text, _ := os.ReadFile("/proc/cpuinfo") // without it: the least
	for line := range strings.Lines(string(text)) {
		if name, flags, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "flags" {
			return strings.Fields(flags)
		}
	}
	return nil
})
