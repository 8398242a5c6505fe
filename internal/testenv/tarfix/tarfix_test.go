package tarfix

import (
	"archive/tar"
	"bytes"
	"io"
	"testing"
)

func TestChecksums(t *testing.T) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, name := range []string{"a", "b", "c"} {
		if err := w.WriteHeader(&tar.Header{Name: name, Size: 700, Typeflag: tar.TypeReg, Mode: 0o644}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(bytes.Repeat([]byte(name), 700)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(Checksums(b.Bytes()), b.Bytes()) {
		t.Error("a proper archive was changed")
	}
	bad := bytes.Clone(b.Bytes())
	for _, header := range []int{0, 3, 6} {
		bad[header*block] = 'x'
	}
	before := bytes.Clone(bad)
	r := tar.NewReader(bytes.NewReader(Checksums(bad)))
	for i := range 3 {
		h, err := r.Next()
		if err != nil || h.Name != "x" {
			t.Fatalf("header %d: %+v, %v", i, h, err)
		}
	}
	if _, err := r.Next(); err != io.EOF {
		t.Errorf("at the end: %v", err)
	}
	if !bytes.Equal(bad, before) {
		t.Error("the caller's was changed")
	}
	for _, s := range []string{"", "short", string(bytes.Repeat([]byte{0xff}, 3*block))} {
		if got := Checksums([]byte(s)); len(got) != len(s) {
			t.Errorf("%d bytes became %d", len(s), len(got))
		}
	}
}
