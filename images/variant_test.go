package images

import (
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"

	it "github.com/hutch-sh/hutch/images/imagetest"
	"github.com/hutch-sh/hutch/runtime/api"
)

func TestVariants(t *testing.T) {
	v2 := []string{"cx16", "lahf_lm", "popcnt", "sse4_1", "sse4_2", "ssse3"}
	v3 := append(slices.Clone(v2), "abm", "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe", "xsave")
	v4 := append(slices.Clone(v3), "avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl")
	for want, flags := range map[string][]string{"v1": nil, "v2 v1": v2, "v3 v2 v1": v3, "v4 v3 v2 v1": v4} {
		if got := strings.Join(amd64Variants(flags), " "); got != want {
			t.Errorf("%q: %s, want %s", flags, got, want)
		}
	}
	if got := amd64Variants(v4[1:]); len(got) != 1 { // a level counts on those below
		t.Errorf("without cx16: %q", got)
	}
}

// TestPullVariants: where an index has no image for the plain architecture, the best that this machine runs is taken.
func TestPullVariants(t *testing.T) {
	registry := it.StartRegistry(t)
	s := openStore(t, Options{})
	of := func(arch, variant string) it.Image {
		img := twoLayers()
		img.Arch, img.Variant, img.Config.User = arch, variant, arch+variant
		return img
	}
	best := "v8"
	if list := variantsOf(runtime.GOARCH); len(list) > 0 {
		best = list[0]
	}
	other := "v99"
	for name, tt := range map[string]struct {
		imgs []it.Image
		want string // user; "" is refused
	}{
		"best": {[]it.Image{of(runtime.GOARCH, "v1"), of(runtime.GOARCH, best), of(runtime.GOARCH, other)},
			runtime.GOARCH + best},
		"plain":      {[]it.Image{of(runtime.GOARCH, best), of(runtime.GOARCH, "")}, runtime.GOARCH},
		"impossible": {[]it.Image{of(runtime.GOARCH, other)}, ""},
	} {
		_, err := it.PushIndex(registry, name, "v1", tt.imgs...)
		must(t, err)
		img, err := s.Pull(t.Context(), it.Ref(registry, name, "v1"), PullOptions{})
		var e *api.Error
		switch {
		case tt.want != "" && (err != nil || img.Config.User != tt.want):
			t.Errorf("%s: %+v, %v, want %s", name, img, err, tt.want)
		case tt.want == "" && (!errors.As(err, &e) || e.Code != api.FailedPrecondition ||
			!strings.Contains(e.Msg, other)):
			t.Errorf("%s: %v", name, err)
		}
	}
	// What is in the store is found again, and a variant that is named is that.
	if _, err := s.Pull(t.Context(), it.Ref(registry, "best", "v1"), PullOptions{Policy: PullNever}); err != nil {
		t.Error(err)
	}
	img, err := s.Pull(t.Context(), it.Ref(registry, "best", "v1"), PullOptions{Platform: "linux/" + runtime.GOARCH +
		"/" + other})
	if err != nil || img.Config.User != runtime.GOARCH+other {
		t.Errorf("%+v, %v", img, err)
	}
}
