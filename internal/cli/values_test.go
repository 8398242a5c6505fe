package cli

import (
	"reflect"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/internal/testenv/cost"
	"github.com/hutch-sh/hutch/runtime/api"
)

func TestParseSize(t *testing.T) {
	for _, tt := range []struct {
		in   string
		want int64 // -1: refused
	}{
		{"0", 0}, {"1048576", 1 << 20}, {"512m", 512 << 20}, {"512M", 512 << 20}, {"1g", 1 << 30},
		{"1.5g", 3 << 29}, {"64k", 64 << 10}, {"10b", 10}, {"1GiB", 1 << 30}, {"2kb", 2 << 10}, {"3 m", 3 << 20},
		{"", -1}, {"m", -1}, {"-1", -1}, {"1e3", -1}, {"0x10", -1}, {"1q", -1}, {"1mm", -1}, {"1ib", -1},
		{"nan", -1}, {"inf", -1}, {"1_000", -1}, {"9999999p", -1}, {"1.2.3", -1}, {".", -1},
	} {
		got, err := ParseSize(tt.in)
		if tt.want < 0 {
			if err == nil {
				t.Errorf("ParseSize(%q) = %d, want an error", tt.in, got)
			}
			continue
		}
		if err != nil || got != tt.want {
			t.Errorf("ParseSize(%q) = %d, %v, want %d", tt.in, got, err, tt.want)
		}
	}
}

func FuzzParseSize(f *testing.F) {
	for _, s := range []string{"512m", "1.5GiB", "-1", "", "1e309", "9223372036854775807"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		cost.Input(t, s, func(s string) {
			if v, err := ParseSize(s); err == nil && v < 0 {
				t.Errorf("ParseSize(%q) = %d", s, v)
			}
		})
	})
}

func TestParseTimeout(t *testing.T) {
	for _, tt := range []struct {
		in   string
		want float64 // -1: refused
	}{
		{"30", 30}, {"0.5", 0.5}, {"1m30s", 90}, {"250ms", 0.25}, {"0", 0},
		{"-1", -1}, {"-1s", -1}, {"", -1}, {"soon", -1}, {"1e3", -1}, {"inf", -1},
	} {
		got, err := ParseTimeout(tt.in)
		if (tt.want < 0) != (err != nil) || err == nil && got != tt.want {
			t.Errorf("ParseTimeout(%q) = %v, %v, want %v", tt.in, got, err, tt.want)
		}
	}
}

func TestParseVolume(t *testing.T) {
	for _, tt := range []struct {
		in   string
		want api.Mount
		err  string
	}{
		{"/a:/b", api.Mount{Source: "/a", Target: "/b", Mode: "rw"}, ""},
		{"/a:/b:ro", api.Mount{Source: "/a", Target: "/b", Mode: "ro"}, ""},
		{"./a:/b:overlay", api.Mount{Source: "./a", Target: "/b", Mode: "overlay"}, ""},
		{".:/b/../c/", api.Mount{Source: ".", Target: "/c", Mode: "rw"}, ""},
		{"/with:colon:/b:rw", api.Mount{Source: "/with:colon", Target: "/b", Mode: "rw"}, ""},
		{"/a", api.Mount{}, "SRC:DST"},
		{"/a:b", api.Mount{}, "SRC:DST"},
		{"name:/b", api.Mount{Volume: "name", Target: "/b", Mode: "rw"}, ""},
		{"name.1:/b:ro", api.Mount{Volume: "name.1", Target: "/b", Mode: "ro"}, ""},
		{":/b", api.Mount{}, "names no folder"},
		{"/a:/b:x", api.Mount{}, `unknown mode "x"`},
		{"/a:/b:ro,x", api.Mount{}, `unknown mode "ro,x"`},
		{"/a:/b:Z", api.Mount{Source: "/a", Target: "/b", Mode: "rw"}, ""},
		{"/a:/b:ro,z", api.Mount{Source: "/a", Target: "/b", Mode: "ro"}, ""},
		{"/data", api.Mount{}, "leave it out"},
		{"/a:/", api.Mount{}, "root"},
		{"na,me:/b", api.Mount{}, "name of a volume"},
		{"", api.Mount{}, "SRC:DST"},
	} {
		got, err := ParseVolume(tt.in)
		if tt.err != "" {
			if err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("ParseVolume(%q) = %v, want an error with %q", tt.in, err, tt.err)
			}
			continue
		}
		if err != nil || !reflect.DeepEqual(got, tt.want) {
			t.Errorf("ParseVolume(%q) = %+v, %v, want %+v", tt.in, got, err, tt.want)
		}
	}
}

func TestParseWorkspace(t *testing.T) {
	for _, tt := range []struct {
		in, path string
		mode     api.MountMode
	}{
		{".", ".", "rw"}, {"/a:ro", "/a", "ro"}, {"/a:overlay", "/a", "overlay"}, {"/a:b", "/a:b", "rw"},
		{"/a:b:ro", "/a:b", "ro"},
	} {
		got, err := ParseWorkspace(tt.in)
		if err != nil || got.Path != tt.path || got.Mode != tt.mode {
			t.Errorf("ParseWorkspace(%q) = %+v, %v", tt.in, got, err)
		}
	}
	for _, in := range []string{"", ":ro"} {
		if _, err := ParseWorkspace(in); err == nil {
			t.Errorf("ParseWorkspace(%q) is accepted", in)
		}
	}
}

func FuzzParseVolume(f *testing.F) {
	for _, s := range []string{"/a:/b:ro", "a:b:/c", "::/", ":/:/:rw", "00:/0000"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		var m api.Mount
		var err error
		cost.Input(t, s, func(s string) { m, err = ParseVolume(s) })
		if err == nil && ((m.Source == "") == (m.Volume == "") || m.Target[0] != '/' || m.Target == "/") {
			t.Errorf("ParseVolume(%q) = %+v", s, m)
		}
	})
}

func TestSplitCommand(t *testing.T) {
	for _, tt := range []struct {
		args    []string
		dash    int
		name    string
		command []string
	}{
		{nil, -1, "", nil},
		{[]string{"img"}, -1, "img", []string{}},
		{[]string{"img", "ls", "-l"}, -1, "img", []string{"ls", "-l"}},
		{[]string{"img", "--", "ls"}, -1, "img", []string{"ls"}},
		{[]string{"img", "--", "--", "ls"}, -1, "img", []string{"--", "ls"}},
		{[]string{"img", "ls", "--", "x"}, -1, "img", []string{"ls", "--", "x"}},
		{[]string{"true"}, 0, "", []string{"true"}},
		{[]string{"img", "--", "x"}, 0, "", []string{"img", "--", "x"}},
	} {
		name, command := SplitCommand(tt.args, tt.dash)
		if name != tt.name || !reflect.DeepEqual(command, tt.command) {
			t.Errorf("SplitCommand(%q, %d) = %q, %q", tt.args, tt.dash, name, command)
		}
	}
}

func TestParseLabels(t *testing.T) {
	got, err := ParseLabels([]string{"a=1", "b", "c=x=y", "a=2"})
	want := map[string]string{"a": "2", "b": "", "c": "x=y"}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("ParseLabels = %v, %v, want %v", got, err, want)
	}
	if _, err := ParseLabels([]string{"=x"}); err == nil {
		t.Error("a label without a name is accepted")
	}
}

func TestParseUlimit(t *testing.T) {
	hard := int64(2048)
	for _, tt := range []struct {
		in   string
		want api.Rlimits
		err  string
	}{
		{"nofile=1024", api.Rlimits{NoFile: &api.Rlimit{Soft: 1024}}, ""},
		{"nofile=1024:2048", api.Rlimits{NoFile: &api.Rlimit{Soft: 1024, Hard: &hard}}, ""},
		{"stack=unlimited", api.Rlimits{Stack: &api.Rlimit{Soft: api.Unlimited}}, ""},
		{"stack=-1", api.Rlimits{Stack: &api.Rlimit{Soft: api.Unlimited}}, ""},
		{"nofile", api.Rlimits{}, "NAME=SOFT"},
		{"nofile=", api.Rlimits{}, "whole numbers"},
		{"nofile=1:", api.Rlimits{}, "whole numbers"},
		{"nofile=1k", api.Rlimits{}, "whole numbers"},
		{"cpu=3", api.Rlimits{}, "--cpu-time"},
		{"nice=3", api.Rlimits{}, "no resource"},
	} {
		var got api.Rlimits
		err := ParseUlimit(tt.in, &got)
		if !reflect.DeepEqual(got, tt.want) || (err == nil) != (tt.err == "") || err != nil &&
			!strings.Contains(err.Error(), tt.err) {
			t.Errorf("%q: %+v, %v", tt.in, got, err)
		}
	}
}
