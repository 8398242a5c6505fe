// Package names gives the names that a sandbox may know addresses of its own, and
// answers the sandbox's DNS queries with them.
//
// The addresses are synthetic: they mean something in that sandbox only, stay what they
// are for its whole life, and are turned back into names by the proxy that they lead to.
// So nothing is looked up for a sandbox until it connects, a query carries nothing out,
// and no two names ever share an address.
package names

import (
	"bufio"
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/netip"
	"os"
	"strings"
	"sync"

	"github.com/hutch-sh/hutch/runtime/api"
)

// DefaultPrefix is the range that RFC 2544 sets aside for benchmarks: no network that a
// sandbox should reach has it. Some programs that guard against server-side request
// forgery take it for private, which is why it can be another one.
var DefaultPrefix = netip.MustParsePrefix("198.18.0.0/15")

// reserved are the first addresses of a range, which no name gets: the network's own,
// the resolver's, and some to spare.
const reserved = 16

// MaxNames is how many names a sandbox may learn in its life. It bounds what one that
// invents names costs the daemon: about 200 bytes each.
const MaxNames = 32768

// ErrExhausted says that a sandbox has asked for more names than there are addresses.
// Names that have one keep it; new ones fail.
var ErrExhausted = errors.New("no synthetic addresses left")

// Table is the addresses of one sandbox's names, and the other way round. It may be used
// by any goroutine.
//
// Addresses are drawn by a seed, so that none can be told from a name without it, and kept
// in a file that is only ever appended to: a daemon that restarts gives the
// same ones, and programs in the sandbox may cache them for as long as they like.
type Table struct {
	path   string
	prefix netip.Prefix
	base   uint32
	size   uint32 // addresses of the range that names may get
	seed   []byte

	mu     sync.RWMutex
	byName map[string]netip.Addr
	byAddr map[netip.Addr]string
	end    int64 // of the file: what was written whole
}

// Open reads the table at path, or begins one when there is none. The prefix must be that
// which it was made with.
func Open(path string, prefix netip.Prefix, seed []byte) (*Table, error) {
	if err := checkPrefix(prefix); err != nil {
		return nil, err
	}
	t := &Table{
		path: path, prefix: prefix, seed: bytes.Clone(seed),
		base:   number(prefix.Addr()) + reserved,
		size:   1<<(32-prefix.Bits()) - reserved - 1, // the last one is the broadcast address
		byName: map[string]netip.Addr{}, byAddr: map[netip.Addr]string{},
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return t, nil // the first name makes it: most creations would wait for a file that stays empty
	}
	if err != nil {
		return nil, fmt.Errorf("open the name table: %w", err)
	}
	defer f.Close()
	if err := t.load(f); err != nil {
		return nil, fmt.Errorf("read the name table %s: %w", path, err)
	}
	return t, nil
}

// ErrPrefix says that a range cannot hold synthetic addresses.
var ErrPrefix = errors.New("not a range for synthetic addresses")

func checkPrefix(p netip.Prefix) error {
	const hint = "use an IPv4 range from /8 to /24 that is reached by nobody, such as 198.18.0.0/15"
	switch {
	case !p.IsValid() || !p.Addr().Is4():
		return fmt.Errorf("%w: %s is not IPv4; %s", ErrPrefix, p, hint)
	case p.Bits() < 8 || p.Bits() > 24:
		return fmt.Errorf("%w: %s is too %s; %s", ErrPrefix, p,
			map[bool]string{true: "large", false: "small"}[p.Bits() < 8], hint)
	case p != p.Masked():
		return fmt.Errorf("%w: %s has bits set behind its prefix; %s", ErrPrefix, p, hint)
	}
	return nil
}

// Prefix is the range of the table's addresses.
func (t *Table) Prefix() netip.Prefix { return t.prefix }

// Name is the name that an address was given to.
func (t *Table) Name(a netip.Addr) (string, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	name, ok := t.byAddr[a]
	return name, ok
}

// All are the names that have an address now.
func (t *Table) All() map[string]netip.Addr {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return maps.Clone(t.byName)
}

// Lookup is the address of a name that has one already.
func (t *Table) Lookup(name string) (netip.Addr, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	a, ok := t.byName[name]
	return a, ok
}

// Address is the address of a name, in the form of api.NetName. A new one is on disk
// before it is returned.
func (t *Table) Address(name string) (netip.Addr, error) {
	if a, ok := t.Lookup(name); ok {
		return a, nil
	}
	// A name is a line of the file: one with a line feed would forge another.
	if clean, err := api.NetName(name); err != nil || clean != name {
		return netip.Addr{}, fmt.Errorf("synthetic address: %q is no name in its canonical form", name)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if a, ok := t.byName[name]; ok {
		return a, nil
	}
	a, err := t.draw(name)
	if err != nil {
		return netip.Addr{}, err
	}
	if err := t.append(fmt.Sprintf("%s %s\n", a, name)); err != nil {
		return netip.Addr{}, err
	}
	t.byName[name], t.byAddr[a] = a, name
	return a, nil
}

// draw picks a free address for a name: the one that the seed and the name lead to, or
// the next that is free.
func (t *Table) draw(name string) (netip.Addr, error) {
	if n := len(t.byName); n >= MaxNames || n >= int(t.size) {
		return netip.Addr{}, fmt.Errorf("%w: %d names have one", ErrExhausted, n)
	}
	mac := hmac.New(sha256.New, t.seed)
	mac.Write([]byte(name))
	at := uint32(binary.BigEndian.Uint64(mac.Sum(nil)) % uint64(t.size))
	for {
		a := address(t.base + at)
		if _, taken := t.byAddr[a]; !taken {
			return a, nil
		}
		at = (at + 1) % t.size
	}
}

// append writes a line, whole or not at all. The file is opened each time: names are few,
// and an fd for each sandbox would be more. Nothing is synced: a table is of no use to a
// sandbox that did not survive the machine.
func (t *Table) append(line string) error {
	flags := os.O_WRONLY
	if t.end == 0 {
		flags |= os.O_CREATE
		line = magic + t.prefix.String() + "\n" + line
	}
	f, err := os.OpenFile(t.path, flags, 0o600)
	if err != nil {
		return fmt.Errorf("record a synthetic address: %w", err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte(line), t.end); err != nil {
		// Half a line, on a full disk, is overwritten by the next one; what of it a
		// shorter one leaves must not become a line.
		return errors.Join(fmt.Errorf("record a synthetic address: %w", err), f.Truncate(t.end))
	}
	t.end += int64(len(line))
	return nil
}

// magic is the first line, with the prefix: a table read with another one would give
// addresses that the sandbox has no route for.
const magic = "hutch names 1 "

func (t *Table) load(f *os.File) error {
	r := bufio.NewReader(f)
	first, err := r.ReadString('\n')
	if err == io.EOF {
		return f.Truncate(0) // a daemon was killed while it wrote the first line
	}
	if err != nil {
		return err
	}
	t.end = int64(len(first))
	if got, ok := strings.CutPrefix(strings.TrimSuffix(first, "\n"), magic); !ok {
		return fmt.Errorf("its first line is %.40q: not a name table of this version", first)
	} else if got != t.prefix.String() {
		return fmt.Errorf("it was made with the range %s, not %s: a sandbox keeps its range", got, t.prefix)
	}
	for n := 2; ; n++ {
		line, err := r.ReadString('\n')
		if err == io.EOF {
			// What a daemon that was killed wrote of a line was given to nobody.
			return f.Truncate(t.end)
		}
		if err != nil {
			return err
		}
		if err := t.restore(strings.TrimSuffix(line, "\n")); err != nil {
			return fmt.Errorf("line %d, %.80q: %w", n, line, err)
		}
		t.end += int64(len(line))
	}
}

// restore takes back one assignment. It is strict: an address that became another
// name's would let a connection go where the policy did not mean it.
func (t *Table) restore(line string) error {
	text, name, ok := strings.Cut(line, " ")
	if !ok {
		return fs.ErrInvalid
	}
	a, err := netip.ParseAddr(text)
	if err != nil {
		return err
	}
	if clean, err := api.NetName(name); err != nil || clean != name {
		return fmt.Errorf("%q is no name in its canonical form", name)
	}
	if !a.Is4() || number(a)-t.base >= t.size {
		return fmt.Errorf("%s is not one of the addresses of %s that names get", a, t.prefix)
	}
	if old, ok := t.byAddr[a]; ok {
		return fmt.Errorf("%s is %s's already", a, old)
	}
	if old, ok := t.byName[name]; ok {
		return fmt.Errorf("%s has %s already", name, old)
	}
	t.byName[name], t.byAddr[a] = a, name
	return nil
}

func number(a netip.Addr) uint32 { b := a.As4(); return binary.BigEndian.Uint32(b[:]) }

func address(n uint32) netip.Addr {
	return netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, n)))
}
