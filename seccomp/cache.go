package seccomp

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// A cache file is named by the program's hash and holds
//
//	cacheMagic      17 bytes, the version of this format
//	SHA-256         32 bytes, of what follows
//	program         1 to 4096 struct sock_filter
//
// The checksum finds torn and decayed files. It does not protect from somebody
// who can write the folder: that is the state folder's mode, 0700.
const cacheMagic = "hutch-seccomp-v1\n"

// cacheHeader is the size of everything before the program.
const cacheHeader = len(cacheMagic) + sha256.Size

// encodeCache is the content of the cache file of prog.
func encodeCache(prog []byte) []byte {
	sum := sha256.Sum256(prog)
	out := make([]byte, 0, cacheHeader+len(prog))
	out = append(out, cacheMagic...)
	out = append(out, sum[:]...)
	return append(out, prog...)
}

// decodeCache returns the program in a cache file, aliasing content.
func decodeCache(content []byte) ([]byte, error) {
	if len(content) < cacheHeader || string(content[:len(cacheMagic)]) != cacheMagic {
		return nil, errors.New("not a cached seccomp program")
	}
	prog := content[cacheHeader:]
	if err := checkSize(prog); err != nil {
		return nil, err
	}
	if sha256.Sum256(prog) != [sha256.Size]byte(content[len(cacheMagic):cacheHeader]) {
		return nil, errors.New("checksum of the program does not match")
	}
	return prog, nil
}

// cachePath is where the program with this hash is kept.
func cachePath(dir, hash string) string { return filepath.Join(dir, hash+".bpf") }

// load reads a cached program. ok is false when there is none or it is damaged:
// both mean that it must be made again.
func load(dir, hash string) (prog []byte, ok bool, err error) {
	f, err := os.OpenFile(cachePath(dir, hash), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("open cached seccomp program: %w", err)
	}
	defer f.Close()
	// One byte more than a file may have, so that a longer one is seen as damaged.
	content, err := io.ReadAll(io.LimitReader(f, int64(cacheHeader+maxInsns*insnSize+1)))
	if err != nil {
		return nil, false, fmt.Errorf("read cached seccomp program: %w", err)
	}
	if prog, err = decodeCache(content); err != nil {
		return nil, false, nil
	}
	return prog, true, nil
}

// store writes a program under its final name by rename, so that nobody reads a
// half-written one. It is not synced: after a power cut a damaged file is made
// again.
func store(dir, hash string, prog []byte) (err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make seccomp cache: %w", err)
	}
	f, err := os.CreateTemp(dir, ".new-*")
	if err != nil {
		return fmt.Errorf("make cached seccomp program: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	_, err = f.Write(encodeCache(prog))
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write cached seccomp program: %w", err)
	}
	if err := os.Rename(f.Name(), cachePath(dir, hash)); err != nil {
		return fmt.Errorf("publish cached seccomp program: %w", err)
	}
	return nil
}
