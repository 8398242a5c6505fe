package unpack

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// Made by xz -9 and by bzip2 of four times "layer ".
const (
	xzLayers    = "/Td6WFoAAATm1rRGAgAhARwAAAAQz1jM4AAXAA1dADYYS5jpw3YQ4salAAAAAAAAf/iGQkjll1wAASkYlrKsdx+2830BAAAAAARZWg=="
	bzip2Layers = "QlpoOTFBWSZTWYManmgAAAfRgAAQQAAiBBAgIAAxDABVTTGmmkM9kIcLuSKcKEhBjU80AA=="
)

func unbase64(t *testing.T, s string) []byte {
	b, err := base64.StdEncoding.DecodeString(s)
	must(t, err)
	return b
}

// xzOf is xzLayers with another dictionary size, coded as in the header of a block (The .xz File Format, 5.3.1).
func xzOf(t *testing.T, dict byte) []byte {
	const block, size = 12, 8 // behind the stream's header; without its checksum
	b := unbase64(t, xzLayers)
	b[block+4] = dict
	binary.LittleEndian.PutUint32(b[block+size:], crc32.ChecksumIEEE(b[block:block+size]))
	return b
}

// zstdOf is a frame with a window of 2^log bytes and one raw block (RFC 8878, 3.1.1).
func zstdOf(log byte) []byte {
	return []byte{0x28, 0xb5, 0x2f, 0xfd, 0, (log - 10) << 3, 3<<3 | 1, 0, 0, 'a', 'b', 'c'}
}

func TestDecompress(t *testing.T) {
	data := bytes.Repeat([]byte("layer "), 5000)
	var z bytes.Buffer
	w := gzip.NewWriter(&z)
	_, err := w.Write(data)
	must(t, errors.Join(err, w.Close()))
	enc, err := zstd.NewWriter(nil)
	must(t, err)
	zst := enc.EncodeAll(data, nil)
	xz, bz := unbase64(t, xzLayers), unbase64(t, bzip2Layers)
	const layers = "layer layer layer layer\n"
	twice := func(b []byte) []byte { return append(bytes.Clone(b), b...) }
	for name, tt := range map[string]struct {
		blob []byte
		want string
		err  error
	}{
		"plain":           {data, string(data), nil},
		"gzip":            {z.Bytes(), string(data), nil},
		"gzip in members": {twice(z.Bytes()), string(twice(data)), nil},
		"zstd":            {zst, string(data), nil},
		"zstd after a skippable frame": {append([]byte{0x50, 0x2a, 0x4d, 0x18, 2, 0, 0, 0, 1, 2}, zst...),
			string(data), nil},
		"xz":                         {xz, layers, nil},
		"xz in streams":              {twice(xz), layers + layers, nil},
		"bzip2":                      {bz, layers, nil},
		"bzip2 in streams":           {twice(bz), layers + layers, nil},
		"bzip2 of nothing":           {[]byte("BZh9\x17\x72\x45\x38\x50\x90\x00\x00\x00\x00"), "", nil},
		"plain, named as bzip2":      {[]byte("BZh91AX and more"), "BZh91AX and more", nil},
		"empty":                      {nil, "", nil},
		"one byte":                   {[]byte{0x1f}, "\x1f", nil},
		"gzip cut":                   {z.Bytes()[:z.Len()-3], "", ErrDamaged},
		"gzip header":                {[]byte{0x1f, 0x8b, 0xff, 0xff}, "", ErrDamaged},
		"zstd cut":                   {zst[:len(zst)-3], "", ErrDamaged},
		"xz cut":                     {xz[:len(xz)-3], "", ErrDamaged},
		"xz of another content":      {append(append(bytes.Clone(xz[:33]), 'x'), xz[34:]...), "", ErrDamaged},
		"bzip2 cut":                  {bz[:len(bz)-3], "", ErrDamaged},
		"zstd --long":                {zstdOf(27), "abc", nil},
		"zstd --long=28":             {zstdOf(28), "", ErrWindow},
		"zstd, 1 GiB in one segment": {[]byte{0x28, 0xb5, 0x2f, 0xfd, 0xa0, 0, 0, 0, 0x40, 1, 0, 0}, "", ErrWindow},
		"zstd --long=31":             {zstdOf(31), "", ErrWindow},
		"xz, dictionary of 128 MiB":  {xzOf(t, 30), layers, nil},
		"xz, dictionary of 192 MiB":  {xzOf(t, 31), "", ErrWindow},
		"xz, dictionary of 4 GiB":    {xzOf(t, 40), "", ErrWindow},
	} {
		var got bytes.Buffer
		r, err := decompress(bytes.NewReader(tt.blob))
		if err == nil {
			_, err = io.Copy(&got, r)
			err = errors.Join(err, r.Close())
		}
		if err != nil {
			err = toWire(decompressError(err)).error() // as it comes out of the worker
		}
		if !errors.Is(err, tt.err) || tt.err == nil && got.String() != tt.want {
			t.Errorf("%s: %.40q, %v, want %.40q, %v", name, got.String(), err, tt.want, tt.err)
		}
	}
}
