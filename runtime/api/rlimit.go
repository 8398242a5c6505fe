package api

import "math"

// Rlimits are resource limits of each process (setrlimit(2)), named as in
// ulimit(1) and docker's --ulimit. A missing one is the sandbox's. Not here are
// cpu, which is Limits.CPUTimeS, those that Linux ignores, and priorities.
type Rlimits struct {
	AS         *Rlimit `json:"as,omitempty"`         // address space, bytes
	Core       *Rlimit `json:"core,omitempty"`       // core files, bytes; sandboxes write none
	Data       *Rlimit `json:"data,omitempty"`       // data segment and private mappings, bytes
	FSize      *Rlimit `json:"fsize,omitempty"`      // size of a file, bytes
	Memlock    *Rlimit `json:"memlock,omitempty"`    // locked memory, bytes
	Msgqueue   *Rlimit `json:"msgqueue,omitempty"`   // POSIX message queues, bytes
	NoFile     *Rlimit `json:"nofile,omitempty"`     // fds
	NProc      *Rlimit `json:"nproc,omitempty"`      // processes of the user in the sandbox
	Sigpending *Rlimit `json:"sigpending,omitempty"` // queued signals
	Stack      *Rlimit `json:"stack,omitempty"`      // main thread's stack, bytes
}

// Unlimited is the value of an Rlimit that does not limit.
const Unlimited = -1

// Rlimit is one resource limit. A process may raise Soft up to Hard.
type Rlimit struct {
	Soft int64  `json:"soft"`           // Unlimited or more
	Hard *int64 `json:"hard,omitempty"` // default: Soft
}

// Bounds are the kernel's numbers for r; RLIM_INFINITY is the largest.
func (r *Rlimit) Bounds() (soft, hard uint64) {
	soft = kernelLimit(r.Soft)
	if r.Hard == nil {
		return soft, soft
	}
	return soft, kernelLimit(*r.Hard)
}

func kernelLimit(v int64) uint64 {
	if v == Unlimited {
		return math.MaxUint64
	}
	return uint64(v)
}

// RlimitNames are the names of Rlimits, sorted.
var RlimitNames = []string{"as", "core", "data", "fsize", "memlock", "msgqueue", "nofile", "nproc", "sigpending",
	"stack"}

// ByName is the place of a limit in r; nil for a name that there is not.
func (r *Rlimits) ByName(name string) **Rlimit {
	return map[string]**Rlimit{
		"as": &r.AS, "core": &r.Core, "data": &r.Data, "fsize": &r.FSize, "memlock": &r.Memlock,
		"msgqueue": &r.Msgqueue,
		"nofile":   &r.NoFile, "nproc": &r.NProc, "sigpending": &r.Sigpending, "stack": &r.Stack,
	}[name]
}

// validate refuses impossible values; field is the place in the request.
func (r *Rlimits) validate(field string) error {
	for _, name := range RlimitNames {
		l := *r.ByName(name)
		if l == nil {
			continue
		}
		if l.Soft < Unlimited || l.Hard != nil && *l.Hard < Unlimited {
			return invalid(field+"."+name, "negative").WithHint("use 0 or more, %d for no limit", Unlimited)
		}
		if soft, hard := l.Bounds(); soft > hard {
			return invalid(field+"."+name, "the soft limit is above the hard one").WithHint("give soft <= hard")
		}
	}
	return nil
}
