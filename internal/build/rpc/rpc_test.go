package rpc

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/runtime/api"
)

var update = flag.Bool("update", false, "write the files")

const root = "../../../"

func sourceOf(t *testing.T) *source {
	t.Helper()
	s, err := read(root + "runtime/api")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// generated compares a file with what it is to be, or writes it.
func generated(t *testing.T, name string, want []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(root+name, want, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if got, err := os.ReadFile(root + name); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s is old (%v): make generate", name, err)
	}
}

// TestMethods: the constants and the table are those of the descriptors.
func TestMethods(t *testing.T) {
	text, err := sourceOf(t).methods()
	if err != nil {
		t.Fatal(err)
	}
	generated(t, "runtime/api/methods_gen.go", text)
}

// TestDocuments: so are the client, rpc.discover and docs/rpc.md.
func TestDocuments(t *testing.T) {
	s := sourceOf(t)
	text, err := s.client(api.Methods)
	if err != nil {
		t.Fatal(err)
	}
	generated(t, "runtime/client/methods_gen.go", text)

	doc, silent, err := s.openRPC(api.Methods)
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(silent)
	if silent = slices.Compact(silent); len(silent) > 0 {
		t.Errorf("%d fields and constants have no comment: %s", len(silent), strings.Join(silent, " "))
	}
	want, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	generatedZip(t, "runtime/server/openrpc.json.gz", want)
	page, err := s.markdown(doc)
	if err != nil {
		t.Fatal(err)
	}
	generated(t, "docs/rpc.md", []byte(page))
}

// generatedZip is generated for a compressed file: compressors differ in how they write the same.
func generatedZip(t *testing.T, name string, want []byte) {
	t.Helper()
	if *update {
		var b bytes.Buffer
		z, _ := gzip.NewWriterLevel(&b, gzip.BestCompression)
		_, err := z.Write(want)
		if err = errors.Join(err, z.Close(), os.WriteFile(root+name, b.Bytes(), 0o644)); err != nil {
			t.Fatal(err)
		}
		return
	}
	f, err := os.Open(root + name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(z); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s is old (%v): make generate", name, err)
	}
}
