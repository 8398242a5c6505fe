package config

import (
	"fmt"
	"io"
	"strings"
)

// Print writes c as a file that Parse reads, each key with its meaning. With comment every
// key is commented out: a file to start from, which says what holds without it.
func Print(w io.Writer, c Config, comment bool) error {
	mark := ""
	if comment {
		mark = "# "
	}
	var b strings.Builder
	write := func(indent, prefix string) {
		for i := range keys {
			k := &keys[i]
			name, ok := strings.CutPrefix(k.path, prefix)
			if !ok || k.alias != "" || strings.Contains(name, ".") {
				continue
			}
			fmt.Fprintf(&b, "%s%s%-24s # %s\n", mark, indent, name+": "+k.show(&c), k.doc)
		}
	}
	write("", "")
	for _, s := range sections {
		fmt.Fprintf(&b, "\n# %s\n%s%s:\n", s.doc, mark, s.name)
		write("  ", s.name+".")
	}
	_, err := io.WriteString(w, b.String())
	return err
}
