package history

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// mappedBy says which files processes have mapped so that they can be written to: the kernel notes the time of the
// first such write and not of each. The inode in the list is the overlay's, so names count as well; too many are no
// harm.
func mappedBy(pids []int) func(name string, ino uint64) bool {
	names, inodes, all := map[string]bool{}, map[uint64]bool{}, false
	for _, pid := range pids {
		list, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
		if err != nil {
			all = all || !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ESRCH) // else who knows
			continue
		}
		mappings(list, names, inodes)
	}
	return func(name string, ino uint64) bool { return all || names[name] || inodes[ino] }
}

// mappings adds what of a list of mappings (proc_pid_maps(5)) is shared and can be written to. Names are the sandbox's.
func mappings(list []byte, names map[string]bool, inodes map[uint64]bool) {
	for line := range bytes.Lines(list) {
		// ADDRESSES PERMISSIONS OFFSET DEVICE INODE PATH
		fields := bytes.SplitN(line, []byte(" "), 6)
		if len(fields) < 6 || len(fields[1]) < 4 || fields[1][1] != 'w' || fields[1][3] != 's' {
			continue
		}
		if ino, err := strconv.ParseUint(string(fields[4]), 10, 64); err == nil {
			inodes[ino] = true
		}
		name := strings.Trim(string(fields[5]), " \n")
		// either may be a name, as \012 may
		for _, name := range []string{name, strings.TrimSuffix(name, " (deleted)")} {
			names[path.Base(name)], names[path.Base(strings.ReplaceAll(name, `\012`, "\n"))] = true, true
		}
	}
}
