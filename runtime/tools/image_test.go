package tools

import (
	"bytes"
	"image"
	"image/gif"
	"image/jpeg"
	"image/png"
	"io"
	"testing"

	"github.com/hutch-sh/hutch/internal/testenv/cost"
)

// heads are images of 300 x 200 pixels, made by Go's own encoders; of WebP, for which there is none, the heads that
// RFC 9649 describes.
func heads(t testing.TB) map[string][]byte {
	t.Helper()
	made := map[string][]byte{}
	grey := image.NewPaletted(image.Rect(0, 0, 300, 200), nil)
	grey.Palette = append(grey.Palette, image.Black.C)
	for name, encode := range map[string]func(io.Writer) error{
		"image/png":  func(w io.Writer) error { return png.Encode(w, grey) },
		"image/jpeg": func(w io.Writer) error { return jpeg.Encode(w, grey, nil) },
		"image/gif":  func(w io.Writer) error { return gif.Encode(w, grey, nil) },
	} {
		var b bytes.Buffer
		if err := encode(&b); err != nil {
			t.Fatal(err)
		}
		made[name] = b.Bytes()
	}
	return made
}

var webps = []string{
	"RIFF\x00\x00\x00\x00WEBPVP8 \x00\x00\x00\x00\x00\x00\x00\x9d\x01\x2a\x2c\x01\xc8\x00",
	"RIFF\x00\x00\x00\x00WEBPVP8L\x00\x00\x00\x00\x2f\x2b\xc1\x31\x00\x00\x00\x00\x00\x00",
	"RIFF\x00\x00\x00\x00WEBPVP8X\x00\x00\x00\x00\x00\x00\x00\x00\x2b\x01\x00\xc7\x00\x00",
}

// TestPicture: what a head says of an image, and what has none: a model's provider would refuse it.
func TestPicture(t *testing.T) {
	for mimeType, b := range heads(t) {
		if p, ok := pictureOf(b); !ok || p != (picture{mimeType, 300, 200}) {
			t.Errorf("%s: %+v, %v", mimeType, p, ok)
		}
		for n := range min(len(b), 24) { // any shorter, and nothing is known of it
			if p, ok := pictureOf(b[:n]); ok && mimeType != "image/gif" {
				t.Errorf("%s of %d bytes: %+v", mimeType, n, p)
			}
		}
	}
	for _, b := range webps {
		if p, ok := pictureOf([]byte(b)); !ok || p != (picture{"image/webp", 300, 200}) {
			t.Errorf("%q: %+v, %v", b, p, ok)
		}
	}
	for _, b := range []string{
		"", "text", "\xff\xd8\xff", "\xff\xd8\xff\xd9\x00\x02\x00\x00", "\xff\xd8\xff\xe0\x00\x00\xff\xc0",
		"GIF89a\x00\x00\x01\x00", "\x89PNG\r\n\x1a\n\x00\x00\x00\x0dIHDR\xff\xff\xff\xff\x00\x00\x00\x01",
		"RIFF\x00\x00\x00\x00WAVEVP8X\x00\x00\x00\x00\x00\x00\x00\x00\x2b\x01\x00\xc7\x00\x00",
	} {
		if p, ok := pictureOf([]byte(b)); ok {
			t.Errorf("%q: %+v", b, p)
		}
	}
}

func FuzzPicture(f *testing.F) {
	for _, b := range heads(f) {
		f.Add(b)
	}
	for _, b := range webps {
		f.Add([]byte(b))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		cost.Input(t, data, func(data []byte) {
			if p, ok := pictureOf(data); ok && (p.width <= 0 || p.height <= 0 || p.mimeType == "") {
				t.Errorf("%+v", p)
			}
		})
	})
}
