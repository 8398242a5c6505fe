package bootstrap

import (
	"bufio"
	"io"
	"math"
	"strconv"
	"strings"
)

// maxExtents bounds the ranges taken from /etc/subuid. The kernel takes 340
// lines in a map (user_namespaces(7)); nobody has more than a few.
const maxExtents = 64

// parseSubIDs returns the ranges that subuid(5) or subgid(5) text grants to the
// user with this name or uid, in file order. Lines that are not of the form
// owner:start:count are skipped, as newuidmap(1) does.
func parseSubIDs(text io.Reader, name string, uid uint32) ([]Range, error) {
	var ranges []Range
	owner := strconv.FormatUint(uint64(uid), 10)
	lines := bufio.NewScanner(text)
	for lines.Scan() && len(ranges) < maxExtents {
		fields := strings.Split(lines.Text(), ":")
		if len(fields) != 3 || (fields[0] != name && fields[0] != owner) || fields[0] == "" {
			continue
		}
		start, err1 := strconv.ParseUint(fields[1], 10, 32)
		count, err2 := strconv.ParseUint(strings.TrimSpace(fields[2]), 10, 32)
		// (uid_t)-1 is no id, so a range must end below it.
		if err1 != nil || err2 != nil || count == 0 || start+count > math.MaxUint32 {
			continue
		}
		ranges = append(ranges, Range{Outside: uint32(start), Count: uint32(count)})
	}
	return ranges, lines.Err()
}
