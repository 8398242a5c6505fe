package sdk

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"testing"
)

var update = flag.Bool("update", false, "write the files")

const root = "../../../"

// TestGenerated: what the packages have of the protocol is what hutchd serves.
func TestGenerated(t *testing.T) {
	doc, err := read(root + "runtime/server/openrpc.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	const typescript = "sdk/typescript/src/"
	generated(t, typescript+"types.ts", []byte(typescriptTypes(doc)))
	generated(t, typescript+"rpc.ts", []byte(typescriptMethods(doc)))
	const python = "sdk/python/src/hutch/"
	generated(t, python+"types.py", []byte(pythonTypes(doc)))
	generated(t, python+"_async/_rpc.py", []byte(pythonMethods(doc)))
	modules, err := filepath.Glob(root + python + "_async/*.py")
	if err != nil {
		t.Fatal(err)
	}
	for _, module := range modules {
		name := filepath.Base(module)
		if name == "_io.py" || name == "__init__.py" { // written by hand, twice
			continue
		}
		text, err := os.ReadFile(module)
		if err != nil {
			t.Fatal(err)
		}
		generated(t, python+"_sync/"+name, []byte(blocking(string(text))))
	}
}

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
