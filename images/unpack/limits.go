package unpack

// Limits bound what one layer may make. A zero field means its default.
type Limits struct {
	// MaxBytes bounds the tar stream, and the sizes of all files together.
	MaxBytes int64
	// MaxFileBytes bounds a single file's size, holes included.
	MaxFileBytes int64
	// MaxEntries bounds the entries of the tar stream.
	MaxEntries int64
	// MaxDepth bounds the components of a path.
	MaxDepth int
	// MaxRatio bounds MaxBytes further: a layer of n compressed bytes may
	// become max(RatioFloorBytes, n*MaxRatio) bytes.
	MaxRatio int64
	// RatioFloorBytes is what any layer may become whatever its ratio.
	RatioFloorBytes int64
}

// DefaultLimits are generous: the largest layers in common use (machine
// learning frameworks) reach about 10 GiB, half a million entries, a depth of
// 40 and a ratio of 20.
var DefaultLimits = Limits{
	MaxBytes:        64 << 30,
	MaxFileBytes:    32 << 30,
	MaxEntries:      2 << 20,
	MaxDepth:        2048,
	MaxRatio:        100,
	RatioFloorBytes: 1 << 30,
}

// MaxImplied bounds the names of folders without an entry of their own, in bytes: one entry implies thousands of them,
// and each layer's are kept in full. Archives made by hand have some thousand.
const MaxImplied = 16 << 20

// LinkCost is what a hard link to a lower layer takes of MaxImplied beside its names: whoever keeps it, and makes it,
// does more than that.
const LinkCost = 256

// WithDefaults replaces zero fields.
func (l Limits) WithDefaults() Limits {
	d := DefaultLimits
	for _, f := range []struct{ have, def *int64 }{
		{&l.MaxBytes, &d.MaxBytes},
		{&l.MaxFileBytes, &d.MaxFileBytes},
		{&l.MaxEntries, &d.MaxEntries},
		{&l.MaxRatio, &d.MaxRatio},
		{&l.RatioFloorBytes, &d.RatioFloorBytes},
	} {
		if *f.have == 0 {
			*f.have = *f.def
		}
	}
	if l.MaxDepth == 0 {
		l.MaxDepth = d.MaxDepth
	}
	return l
}

// ForCompressed narrows MaxBytes for a layer of n compressed bytes; n < 0
// means unknown and narrows it to the floor.
func (l Limits) ForCompressed(n int64) Limits {
	allowed := l.RatioFloorBytes
	if n > 0 && n > allowed/l.MaxRatio {
		allowed = l.MaxBytes
		if n < l.MaxBytes/l.MaxRatio {
			allowed = n * l.MaxRatio
		}
	}
	l.MaxBytes = min(l.MaxBytes, allowed)
	return l
}
