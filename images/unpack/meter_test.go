package unpack

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// TestMeter: a layer whose names cost the kernel more than their bytes are worth is given up, and one that has as many
// names is not. What they are worth here is a tenth: a fast processor walks the long way within all of it.
func TestMeter(t *testing.T) {
	const links, names = 39, 1500 // the kernel follows 40 (MAXSYMLINKS)
	layer := func(through string) *bytes.Buffer {
		var out bytes.Buffer
		w := tar.NewWriter(&out)
		write := func(h tar.Header) {
			if err := w.WriteHeader(&h); err != nil {
				t.Fatal(err)
			}
		}
		write(tar.Header{Typeflag: tar.TypeDir, Name: "d", Mode: 0o755})
		write(tar.Header{Typeflag: tar.TypeReg, Name: "d/t", Mode: 0o644})
		target := "d"
		for i := range links { // each leads a long way, to the next one
			name := fmt.Sprintf("l%d", i)
			write(tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: strings.Repeat("d/../", 780) + target})
			target = name
		}
		for i := range names {
			write(tar.Header{Typeflag: tar.TypeLink, Name: fmt.Sprintf("h%d", i),
				Linkname: strings.ReplaceAll(through, "LAST", target) + "/t"})
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return &out
	}
	for name, tt := range map[string]struct {
		through string
		want    error
	}{"the long way": {"LAST", ErrLimit}, "at once": {"d", nil}} {
		t.Run(name, func(t *testing.T) {
			dir, err := os.Open(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			defer dir.Close()
			if _, err := Unpack(dir, layer(tt.through),
				Options{SingleUID: os.Geteuid() != 0, cpu: 100 * time.Millisecond,
					perByte: cpuPerByte / 10}); !errors.Is(err, tt.want) {
				t.Errorf("%v, want %v", err, tt.want)
			}
		})
	}
}
