package paths

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// maxLinks is how many symbolic links are followed on a way, as the kernel does (path_resolution(7)).
const maxLinks = 40

// Way follows an absolute path: links are the places of all symbolic links on the way, and real is where it leads.
// Whoever can replace one of them decides what is found at the path. Names that cannot be looked at are kept as they
// are.
func Way(path string) (links []string, real string) {
	done, rest := "/", strings.Split(strings.TrimPrefix(filepath.Clean(path), "/"), "/")
	for len(rest) > 0 {
		name := rest[0]
		rest = rest[1:]
		switch name {
		case "", ".":
			continue
		case "..":
			done = filepath.Dir(done)
			continue
		}
		at := filepath.Join(done, name)
		st, err := os.Lstat(at)
		if err != nil || st.Mode()&fs.ModeSymlink == 0 {
			done = at
			continue
		}
		to, err := os.Readlink(at)
		links = append(links, at)
		if err != nil || len(links) > maxLinks {
			return links, at
		}
		if filepath.IsAbs(to) {
			done = "/"
		}
		rest = append(strings.Split(to, "/"), rest...)
	}
	return links, done
}
