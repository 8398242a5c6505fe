package files

import (
	"encoding/json"
	"errors"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/probe"
	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/guest/guestapi/filesapi"
)

// TestAttributes: a new file has those of its write and no others, and what hutch and the kernel keep is not told.
func TestAttributes(t *testing.T) {
	dir := t.TempDir()
	path, c := filepath.Join(dir, "f"), newClient(t)
	put(t, path, "old")
	if err := unix.Setxattr(path, "user.stale", []byte("1"), 0); errors.Is(err, unix.EOPNOTSUPP) {
		testenv.Require(t, probe.Check{Name: "attributes", Status: probe.No,
			Detail: "the file system of " + dir + " keeps none", Remedy: "set TMPDIR to a folder of another"})
	} else if err != nil {
		t.Fatal(err)
	}
	_, _, err := c.Call(t.Context(), filesapi.Request{Op: filesapi.OpWrite, Path: path,
		Attributes: map[string]string{"a.b": "it's", "empty": ""}}, []byte("new"), 0)
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{"user.hutch.owner": "0:0", "user.overlay.x": "y",
		"user.binary": "\xff"} {
		if err := unix.Setxattr(path, name, []byte(value), 0); err != nil {
			t.Fatal(err)
		}
	}
	r, _, err := c.Call(t.Context(), filesapi.Request{Op: filesapi.OpStat, Path: path, Describe: true}, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	checkAttributes(t, r.Entry.Attributes)
	_, data, err := c.Call(t.Context(), filesapi.Request{Op: filesapi.OpList, Path: dir, Limit: 10, Depth: 1,
		Describe: true}, nil, filesapi.MaxList)
	var list []filesapi.Entry
	if err != nil || json.Unmarshal(data, &list) != nil || len(list) != 1 {
		t.Fatalf("%s, %v", data, err)
	}
	checkAttributes(t, list[0].Attributes)
	r, _, err = c.Call(t.Context(), filesapi.Request{Op: filesapi.OpStat, Path: path}, nil, 0)
	if err != nil || len(r.Entry.Attributes) != 0 {
		t.Errorf("unasked: %v, %v", r.Entry, err)
	}
	if err := unix.Setxattr(path, "user.large", make([]byte, api.MaxAttributesBytes-8), 0); err == nil {
		r, _, err = c.Call(t.Context(), filesapi.Request{Op: filesapi.OpStat, Path: path, Describe: true}, nil, 0)
		if err != nil || len(r.Entry.Attributes) == 0 {
			t.Errorf("with a large one: %v, %v", r, err)
		}
	}
}

func checkAttributes(t *testing.T, got map[string][]byte) {
	t.Helper()
	if len(got) != 2 || string(got["a.b"]) != "it's" || string(got["empty"]) != "" {
		t.Errorf("%q", got)
	}
}
