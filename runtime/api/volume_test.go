package api

import (
	"strings"
	"testing"
)

func TestVolumeName(t *testing.T) {
	for _, name := range []string{"a", "9", "pip", "a.b-c_D", strings.Repeat("x", 64)} {
		if err := (VolumeParams{Name: name}).Validate(); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, name := range []string{"", ".", "..", ".a", "-a", "_a", "a/b", "a b", "a\x00", "ä",
		strings.Repeat("x", 65)} {
		if err := (VolumeParams{Name: name}).Validate(); ErrorCode(err) != InvalidArgument {
			t.Errorf("%q: %v", name, err)
		}
	}
}
