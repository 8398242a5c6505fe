package meter

import "github.com/hutch-sh/hutch/runtime/api"

// Overlay is old with what l sets.
func Overlay(old, l api.Limits) api.Limits {
	n := old
	set(&n.CPUs, l.CPUs)
	set(&n.MemoryBytes, l.MemoryBytes)
	set(&n.PIDs, l.PIDs)
	set(&n.DiskBytes, l.DiskBytes)
	set(&n.Inodes, l.Inodes)
	set(&n.ShmBytes, l.ShmBytes)
	set(&n.SwapBytes, l.SwapBytes)
	set(&n.MemoryHighBytes, l.MemoryHighBytes)
	set(&n.CPUWeight, l.CPUWeight)
	set(&n.CPUSet, l.CPUSet)
	set(&n.IOReadBPS, l.IOReadBPS)
	set(&n.IOWriteBPS, l.IOWriteBPS)
	set(&n.TimeoutS, l.TimeoutS)
	set(&n.CPUTimeS, l.CPUTimeS)
	set(&n.OutputBytes, l.OutputBytes)
	for _, name := range api.RlimitNames {
		if r := *l.Rlimits.ByName(name); r != nil {
			*n.Rlimits.ByName(name) = r
		}
	}
	return InForce(n)
}

func set[T comparable](to *T, v T) {
	var zero T
	if v != zero {
		*to = v
	}
}

// InForce is l as records show it, where no limit is 0.
func InForce(l api.Limits) api.Limits {
	l.CPUs = max(0, l.CPUs)
	for _, n := range []*int64{&l.MemoryBytes, &l.DiskBytes, &l.Inodes, &l.PIDs, &l.IOReadBPS, &l.IOWriteBPS} {
		*n = max(0, *n)
	}
	if l.MemoryBytes == 0 {
		l.SwapBytes = 0
	}
	return l
}

// changed are the limits of l that are a cgroup's, with those of old that the kernel
// takes together with them.
func changed(old, l api.Limits) api.Limits {
	g := OfGroup(l)
	if g.SwapBytes != 0 && g.MemoryBytes == 0 {
		g.MemoryBytes = old.MemoryBytes
	}
	if g.MemoryBytes > 0 && g.SwapBytes == 0 {
		g.SwapBytes = old.SwapBytes
	}
	return g
}

// OfGroup are the limits of l that are a cgroup's.
func OfGroup(l api.Limits) api.Limits {
	return api.Limits{
		CPUs: l.CPUs, MemoryBytes: l.MemoryBytes, PIDs: l.PIDs, SwapBytes: l.SwapBytes,
		MemoryHighBytes: l.MemoryHighBytes,
		CPUWeight:       l.CPUWeight, CPUSet: l.CPUSet, IOReadBPS: l.IOReadBPS, IOWriteBPS: l.IOWriteBPS,
	}
}

// lifted is what undoes l: the limits of old, and none where old has none.
func lifted(l, old api.Limits) api.Limits {
	orNone := func(changed, before int64) int64 {
		if changed != 0 && before == 0 {
			return api.Unlimited
		}
		return before
	}
	b := OfGroup(old)
	if b.CPUs == 0 && l.CPUs != 0 {
		b.CPUs = api.Unlimited
	}
	b.MemoryBytes, b.PIDs = orNone(l.MemoryBytes, b.MemoryBytes), orNone(l.PIDs, b.PIDs)
	b.IOReadBPS, b.IOWriteBPS = orNone(l.IOReadBPS, b.IOReadBPS), orNone(l.IOWriteBPS, b.IOWriteBPS)
	return b
}
