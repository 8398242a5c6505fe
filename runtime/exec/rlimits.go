package exec

import (
	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/runtime/api"
)

// Resources are the kernel's numbers of api.RlimitNames.
var Resources = map[string]int{
	"as": unix.RLIMIT_AS, "core": unix.RLIMIT_CORE, "data": unix.RLIMIT_DATA, "fsize": unix.RLIMIT_FSIZE,
	"memlock": unix.RLIMIT_MEMLOCK, "msgqueue": unix.RLIMIT_MSGQUEUE, "nofile": unix.RLIMIT_NOFILE,
	"nproc": unix.RLIMIT_NPROC, "sigpending": unix.RLIMIT_SIGPENDING, "stack": unix.RLIMIT_STACK,
}

// HardLimits are what no command can go above: PID 1's own hard limits, which are
// hutchd's but for these, which spec.Build sets.
type HardLimits struct{ NoFile, NProc uint64 }

func (h HardLimits) of(name string) uint64 {
	switch name {
	case "nofile":
		return h.NoFile
	case "nproc":
		return h.NProc
	case "core":
		return CoreLimit
	}
	var lim unix.Rlimit
	if unix.Getrlimit(Resources[name], &lim) != nil {
		return 0
	}
	return lim.Max
}

// CoreLimit lets no core file be written and no core_pattern's program be run,
// which 0 would not keep the kernel from (fs/coredump.c).
const CoreLimit = 1

// Check refuses resource limits above those of every sandbox.
func (h HardLimits) Check(field string, r *api.Rlimits) error {
	for _, name := range api.RlimitNames {
		l := *r.ByName(name)
		if l == nil {
			continue
		}
		if _, hard := l.Bounds(); hard > h.of(name) {
			return api.Errorf(api.InvalidArgument, "%s.%s: above the hard limit that a sandbox has here", field, name).
				WithField(field+"."+name).WithHint("ask for at most %d", h.of(name))
		}
	}
	return nil
}
