package program

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cilium/ebpf/asm"

	"github.com/hutch-sh/hutch/internal/testenv"
)

// TestObject: the committed object was made from the committed source, so that building
// takes no compiler of eBPF.
func TestObject(t *testing.T) {
	hashes := must(os.Open("hutch.sha256"))(t)
	defer hashes.Close()
	n := 0
	for lines := bufio.NewScanner(hashes); lines.Scan(); n++ {
		want, file, _ := strings.Cut(lines.Text(), "  ")
		sum := sha256.Sum256(must(os.ReadFile(file))(t))
		if got := hex.EncodeToString(sum[:]); got != want {
			t.Errorf("%s has the hash %s, hutch.sha256 says %s: make generate", file, got, want)
		}
	}
	if n != 2 {
		t.Errorf("hutch.sha256 has %d lines, want 2", n)
	}
}

// TestStack: what the programs write onto the stack are words of eight bytes, aligned. Linux before 6.8
// refuses others to a loader without CAP_PERFMON.
func TestStack(t *testing.T) {
	for name, p := range must(loadHutch())(t).Programs {
		words := 0
		for i, ins := range p.Instructions {
			class := ins.OpCode.Class()
			if !class.IsStore() || ins.Dst != asm.RFP {
				continue
			}
			if words++; ins.OpCode.Size() != asm.DWord || ins.Offset%8 != 0 {
				t.Errorf("%s writes a part of a word of its stack: %d: %v", name, i, ins)
			}
		}
		if words == 0 {
			t.Errorf("%s writes nothing onto its stack: does the test still look for the right thing?", name)
		}
	}
}

// TestCompiler: the pinned compiler makes the same object again.
func TestCompiler(t *testing.T) {
	testenv.Programs(t, "clang-19", "llvm-strip-19")
	testenv.Toolchain(t)
	dir := t.TempDir()
	for _, file := range []string{"hutch.c", "program.go"} {
		if err := os.WriteFile(filepath.Join(dir, file), must(os.ReadFile(file))(t), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	line := ""
	for _, l := range strings.Split(string(must(os.ReadFile("program.go"))(t)), "\n") {
		if rest, ok := strings.CutPrefix(l, "//go:generate go tool bpf2go "); ok {
			line = rest
		}
	}
	cmd := exec.CommandContext(t.Context(), "go",
		append([]string{"tool", "bpf2go", "-output-dir", dir, "-go-package", "program"}, strings.Fields(line)...)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, out)
	}
	for _, file := range []string{"hutch_bpfel.o", "hutch_bpfel.go"} {
		if !bytes.Equal(must(os.ReadFile(filepath.Join(dir, file)))(t), must(os.ReadFile(file))(t)) {
			t.Errorf("%s is not what clang-19 makes of hutch.c: make generate", file)
		}
	}
}
