package tools

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"fmt"

	"github.com/hutch-sh/hutch/runtime/api"
)

// picture is what the head of an image says of it. It is read by hand: the sandbox has written it, and decoders of
// images have no place in hutchd.
type picture struct {
	mimeType      string
	width, height int
}

// image adds the image that a binary file may be. A model's provider refuses a conversation with an image that it does
// not take, and does so at every turn from then on: what is too large, or has no sound head, is left out.
func (c *call) image(ctx context.Context, r *api.ToolFileText) ([]api.ToolContent, error) {
	if !r.Binary || r.Size == 0 {
		return nil, nil
	}
	p := api.FileReadParams{FileParams: c.file(r.Path), Encoding: api.Base64, Limit: api.MaxToolImageBytes}
	if r.Size > p.Limit {
		p.Limit = maxImageHead
	}
	f, err := c.set.cfg.Sandboxes.Files.Read(ctx, p, nil)
	if err != nil {
		return nil, err
	}
	data, err := base64.StdEncoding.DecodeString(f.Data)
	if err != nil {
		return nil, err
	}
	pic, ok := pictureOf(data)
	if !ok {
		return nil, nil
	}
	r.Image = &api.ToolImage{MIMEType: pic.mimeType, Width: pic.width, Height: pic.height, Shown: true}
	switch side := max(pic.width, pic.height); {
	case f.Size > api.MaxToolImageBytes || f.Next < f.Size:
		r.Image.Shown = false
		r.Image.Why = fmt.Sprintf("more than %d bytes", api.MaxToolImageBytes)
	case side > api.MaxToolImageSide:
		r.Image.Shown = false
		r.Image.Why = fmt.Sprintf("more than %d pixels on a side", api.MaxToolImageSide)
	default:
		return []api.ToolContent{{Type: "image", Data: f.Data, MIMEType: pic.mimeType}}, nil
	}
	return nil, nil
}

// maxImageHead is how much of a large file is read to say which image it is.
const maxImageHead = 64 << 10

// pictureOf reads the head of a PNG, JPEG, GIF or WebP image.
func pictureOf(b []byte) (picture, bool) {
	var p picture
	switch {
	case bytes.HasPrefix(b, []byte("\x89PNG\r\n\x1a\n\x00\x00\x00\x0dIHDR")) && len(b) >= 24:
		p = picture{"image/png", int(binary.BigEndian.Uint32(b[16:])), int(binary.BigEndian.Uint32(b[20:]))}
	case (bytes.HasPrefix(b, []byte("GIF87a")) || bytes.HasPrefix(b, []byte("GIF89a"))) && len(b) >= 10:
		p = picture{"image/gif", int(binary.LittleEndian.Uint16(b[6:])), int(binary.LittleEndian.Uint16(b[8:]))}
	case bytes.HasPrefix(b, []byte("\xff\xd8\xff")):
		p = picture{mimeType: "image/jpeg"}
		p.width, p.height = jpegSize(b[2:])
	case bytes.HasPrefix(b, []byte("RIFF")) && len(b) >= 30 && string(b[8:12]) == "WEBP":
		p = picture{mimeType: "image/webp"}
		p.width, p.height = webpSize(string(b[12:16]), b[20:30])
	}
	const most = 1<<31 - 1 // of PNG, which has the largest
	return p, 0 < p.width && p.width <= most && 0 < p.height && p.height <= most
}

// jpegSize looks for the frame header among the segments (ITU T.81, B.1.1.4 and B.2.2); 0 where there is none.
func jpegSize(b []byte) (width, height int) {
	for len(b) >= 4 && b[0] == 0xff {
		marker := b[1]
		if marker == 0xff { // fill bytes
			b = b[1:]
			continue
		}
		length := int(binary.BigEndian.Uint16(b[2:]))
		switch {
		case marker >= 0xc0 && marker <= 0xcf && marker != 0xc4 && marker != 0xc8 && marker != 0xcc:
			if length < 8 || len(b) < 9 {
				return 0, 0
			}
			return int(binary.BigEndian.Uint16(b[7:])), int(binary.BigEndian.Uint16(b[5:]))
		case marker == 0xd8 || marker == 0xd9 || marker == 0xda || length < 2 || len(b) < 2+length:
			return 0, 0
		}
		b = b[2+length:]
	}
	return 0, 0
}

// webpSize reads the first chunk of a WebP file (RFC 9649, 2.5 to 2.7), of which b is the beginning.
func webpSize(chunk string, b []byte) (width, height int) {
	switch {
	case chunk == "VP8 " && b[3] == 0x9d && b[4] == 0x01 && b[5] == 0x2a:
		return int(binary.LittleEndian.Uint16(b[6:]) & 0x3fff), int(binary.LittleEndian.Uint16(b[8:]) & 0x3fff)
	case chunk == "VP8L" && b[0] == 0x2f:
		bits := binary.LittleEndian.Uint32(b[1:])
		return int(bits&0x3fff) + 1, int(bits>>14&0x3fff) + 1
	case chunk == "VP8X":
		three := func(b []byte) int { return int(b[0]) | int(b[1])<<8 | int(b[2])<<16 }
		return three(b[4:]) + 1, three(b[7:]) + 1
	}
	return 0, 0
}
