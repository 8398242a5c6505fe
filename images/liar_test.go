package images

import (
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	it "github.com/hutch-sh/hutch/images/imagetest"
	"github.com/hutch-sh/hutch/images/unpack"
	"github.com/hutch-sh/hutch/internal/probe"
	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/api"
)

// Workers that a layer has taken over: what they do is what the layer wants.
const (
	// lyingDecompressor gives what is no result of decompressing: each byte inverted.
	lyingDecompressor = "hutch-test-lying-decompressor"
	// lyingExtractor makes another file than the stream has, and claims the digest that it
	// finds in the stream, under each name that a reply has ever had for it.
	lyingExtractor = "hutch-test-lying-extractor"
	// sayingExtractor makes a file, and answers what the stream says.
	sayingExtractor = "hutch-test-saying-extractor"
)

const stolen = "of a layer that took its worker over"

// init is before any test, as that of a worker is.
func init() {
	var err error
	switch os.Args[0] {
	case lyingDecompressor:
		err = decompressAndLie()
	case lyingExtractor:
		err = extractAndLie()
	case sayingExtractor:
		err = extractAndSay()
	default:
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func decompressAndLie() error {
	z, err := gzip.NewReader(os.Stdin)
	if err != nil {
		return err
	}
	data, err := io.ReadAll(z)
	if err != nil {
		return err
	}
	if _, err := os.Stdout.Write(invert(data)); err != nil {
		return err
	}
	_, err = io.WriteString(os.Stderr, "{}")
	return err
}

func invert(data []byte) []byte {
	out := make([]byte, len(data))
	for i, b := range data {
		out[i] = ^b
	}
	return out
}

// extract makes a file of a worker's own.
func extract() (stream []byte, err error) {
	var req unpack.Request
	if stream, err = io.ReadAll(os.Stdin); err != nil {
		return nil, err
	}
	if err := json.NewDecoder(os.NewFile(3, "request")).Decode(&req); err != nil {
		return nil, err
	}
	return stream, os.WriteFile(filepath.Join(req.Root, "file"), []byte(stolen), 0o644)
}

func extractAndSay() error {
	stream, err := extract()
	if err != nil {
		return err
	}
	_, err = os.Stdout.Write(stream)
	return err
}

func extractAndLie() error {
	stream, err := extract()
	if err != nil {
		return err
	}
	_, err = fmt.Printf(`{"DiffID":%q,"Result":{"DiffID":%q},"Stats":{"DiffID":%q,"Entries":2,"Bytes":1}}`, stream,
		stream, stream)
	return err
}

// TestLyingWorkers: whatever a layer makes of its workers, it gets under no other layer's
// name: that name is the digest of what hutchd has handed from the one to the other.
func TestLyingWorkers(t *testing.T) {
	testenv.Require(t, probe.UserNamespaces(t.Context()))
	registry := it.StartRegistry(t)
	good := it.Tar(it.Text("file", "of the victim"))
	victim := it.NewLayer(good, it.Gzip)
	evil := it.Tar(it.Text("file", stolen))
	// as is a blob whose image says that its layer is the victim's.
	as := func(data []byte, c it.Compression) it.Layer {
		l := it.NewLayer(data, c)
		l.DiffID = victim.DiffID
		return l
	}
	tests := map[string]struct {
		workers unpack.Workers
		layer   it.Layer
		refused bool
	}{
		"another layer's digest, claimed by the extractor": {unpack.Workers{Extractor: lyingExtractor},
			as([]byte(victim.DiffID), it.None), true},
		"the same, compressed": {unpack.Workers{Extractor: lyingExtractor},
			as([]byte(victim.DiffID), it.Gzip), true},
		"another content, by the decompressor": {unpack.Workers{Decompressor: lyingDecompressor},
			as(invert(evil), it.Gzip), true},
		// A twin of each: nobody is in the way of a liar but the digest.
		"its own digest": {unpack.Workers{Extractor: lyingExtractor},
			it.NewLayer([]byte("mine"), it.Gzip), false},
		"the other layer's content": {unpack.Workers{Decompressor: lyingDecompressor},
			as(invert(good), it.Gzip), false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := openStore(t, Options{})
			s.workers = tt.workers
			img := it.Image{Layers: []it.Layer{tt.layer}}
			got, err := s.Pull(t.Context(), push(t, registry, "liar", img), PullOptions{})
			switch {
			case tt.refused:
				if api.ErrorCode(err) == "" || !errors.Is(err, errDigest) {
					t.Errorf("error %v, want %v", err, errDigest)
				}
				wantClean(t, s, 0)
			case err != nil:
				t.Fatal(err)
			}
			// The victim's layer is what its own image says, whoever was here before.
			s.workers = unpack.Workers{}
			honest, err := s.Pull(t.Context(), push(t, registry, "victim", it.Image{Layers: []it.Layer{victim}}),
				PullOptions{})
			must(t, err)
			if text, err := os.ReadFile(filepath.Join(s.path(honest.Layers[0]), "file")); err != nil ||
				string(text) != "of the victim" {
				t.Errorf("the victim's file: %q, %v", text, err)
			}
			if got != nil && (got.Layers[0] == honest.Layers[0]) != (tt.layer.DiffID == victim.DiffID) {
				t.Errorf("layers %v and %v", got.Layers, honest.Layers)
			}
		})
	}
}

// TestLyingNames: names in a worker's answer that no layer has are refused, before anybody goes by them.
func TestLyingNames(t *testing.T) {
	testenv.Require(t, probe.UserNamespaces(t.Context()))
	registry := it.StartRegistry(t)
	pull := func(says string) (*Image, error) {
		s := openStore(t, Options{})
		s.workers.Extractor = sayingExtractor
		img := it.Image{Layers: []it.Layer{it.NewLayer([]byte(`{"Stats":{}}`), it.None),
			it.NewLayer([]byte(`{"Stats":{`+says+`}}`), it.None)}}
		return s.Pull(t.Context(), push(t, registry, "names", img), PullOptions{})
	}
	fields := []string{`"Implied":["x",%q]`, `"Hollow":[%q]`, `"Links":[{"name":%q,"target":"file"}]`,
		`"Links":[{"name":"x","target":%q}]`}
	for i, bad := range []string{"a//b/c", "a/./b/c", "/etc/x", "../x", "a/../b", "a/", ".", `a\u0000b`} {
		says := strings.Replace(fields[i%len(fields)], "%q", `"`+bad+`"`, 1)
		if _, err := pull(says); !errors.Is(err, unpack.ErrUnsafe) ||
			!strings.Contains(err.Error(), "no name in a layer") {
			t.Errorf("%s: %v", says, err)
		}
	}
	if img, err := pull(`"Implied":["","a","a/b"],"Hollow":["a"],"Links":[{"name":"d","target":"file"}]`); err != nil ||
		len(img.Layers) != 3 {
		t.Errorf("%v, %v", img, err)
	}
}
