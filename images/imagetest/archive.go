package imagetest

import (
	"archive/tar"
	"encoding/json"
	"strings"
)

// Entry is one file of an archive of images, in the order it is written.
type Entry struct {
	Name string
	Data []byte
	Link string // instead of data: a symbolic link
}

// OCILayout is the files of an OCI image layout with one image, called name unless
// that is "".
func OCILayout(name string, img Image) []Entry {
	return OCILayoutOf(map[string]Image{name: img})
}

// OCILayoutOf is the files of an OCI image layout with several images.
func OCILayoutOf(imgs map[string]Image) []Entry {
	entries := []Entry{{Name: "oci-layout", Data: []byte(`{"imageLayoutVersion":"1.0.0"}`)}}
	var index []map[string]any
	for name, img := range imgs {
		manifest, config := img.blobs()
		blobs := []Blob{manifest, config}
		for _, l := range img.Layers {
			blobs = append(blobs, l.Blob)
		}
		for _, b := range blobs {
			entries = append(entries, Entry{Name: BlobFile(b), Data: b.Data})
		}
		d := map[string]any{"mediaType": manifest.MediaType, "digest": manifest.Digest, "size": len(manifest.Data)}
		if name != "" {
			d["annotations"] = map[string]string{"org.opencontainers.image.ref.name": name}
		}
		index = append(index, d)
	}
	return append(entries,
		Entry{Name: "index.json", Data: toJSON(map[string]any{"schemaVersion": 2, "manifests": index})})
}

// BlobFile is where a layout keeps a blob.
func BlobFile(b Blob) string { return "blobs/" + strings.Replace(b.Digest, ":", "/", 1) }

// DockerArchive is the files of an archive as docker save wrote it for years: layers in
// folders of their own, the list of images at the end.
func DockerArchive(img Image, tags ...string) []Entry {
	img.Docker = true
	_, config := img.blobs()
	hex := strings.TrimPrefix(config.Digest, "sha256:")
	entries := []Entry{{Name: hex + ".json", Data: config.Data}}
	var layers []string
	for _, l := range img.Layers {
		name := strings.TrimPrefix(l.DiffID, "sha256:") + "/layer.tar"
		layers = append(layers, name)
		entries = append(entries, Entry{Name: name, Data: l.Data})
	}
	list := []map[string]any{{"Config": hex + ".json", "RepoTags": tags, "Layers": layers}}
	return append(entries, Entry{Name: "manifest.json", Data: toJSON(list)})
}

// Archive writes entries as tar.
func Archive(entries []Entry) []byte {
	var files []File
	for _, e := range entries {
		f := Text(e.Name, string(e.Data))
		if e.Link != "" {
			f = File{Name: e.Name, Type: tar.TypeSymlink, Link: e.Link}
		}
		files = append(files, f)
	}
	return Tar(files...)
}

// Edit changes the JSON of one entry: fn gets it decoded, and gives what is to be
// there.
func Edit[T any](entries []Entry, name string, fn func(T) any) []Entry {
	out := append([]Entry(nil), entries...)
	for i, e := range out {
		if e.Name == name {
			var v T
			check(json.Unmarshal(e.Data, &v))
			out[i].Data = toJSON(fn(v))
		}
	}
	return out
}
