package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hutch-sh/hutch/internal/build/testreport"
	"github.com/hutch-sh/hutch/internal/testenv/mustrun"
)

// TestTable prints a run of CI from its files.
func TestTable(t *testing.T) {
	root, dir := t.TempDir(), t.TempDir()
	for name, text := range map[string]string{
		filepath.Join(root, ".ci/budget"): "lint every 100\ntest-users every 1500\nslow every 200\nmcp rotating 80\n",
		filepath.Join(dir, "steps"):       "lint 60 101.5 ok\ntest-users 600 1200 FAILED\n",
	} {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	var r testreport.Report
	r.Add(mustrun.Root, []testreport.Outcome{
		{Name: "images.TestPull", Action: "pass", Elapsed: 2 * time.Second},
		{Name: "images.TestPull/x.y/z", Action: "pass", Elapsed: time.Second},
		{Name: "integration/run.TestRun", Action: "fail", Elapsed: 9 * time.Second},
	})
	r.Spent(mustrun.Root, 30*time.Second)
	if err := r.Save(filepath.Join(dir, "test-users.json")); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := table(&out, root, dir); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"lint               60      102      100       0  over its budget\n",
		"test-users        600     1200     1710       3  FAILED\n",
		"all               660     1302     1810       3\n",
		"root                       11       30       3\n",
		"     9.0 s  integration/run.TestRun as root\n     2.0 s  images.TestPull as root\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("does not say %q", want)
		}
	}
	if t.Failed() {
		t.Log(out.String())
	}
}
