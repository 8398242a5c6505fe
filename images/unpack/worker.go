package unpack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/opencontainers/go-digest"
	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/sys"
)

// Request says what a worker unpacks.
type Request struct {
	// Root is the absolute path of an empty folder that nobody else can reach.
	Root string
	// Algorithm is that of the diffID, such as "sha256".
	Algorithm digest.Algorithm
	Options   Options
	// Manifest, unless nil, is an empty file for the layer's manifest, Attributes then one
	// for what of it is about attributes. They stay the caller's; the worker writes to
	// copies of the fds.
	Manifest, Attributes *os.File `json:"-"`
	// Recorded says that there is one.
	Recorded bool
}

// The worker's copies of Request.Manifest and Request.Attributes.
const (
	manifestFD   = 3
	attributesFD = 4
)

// Result of a worker.
type Result struct {
	Stats  Stats
	DiffID digest.Digest // of the uncompressed stream, read to its end
}

// workerName is the argv[0] under which a binary that links this package is a
// worker.
const workerName = "hutch-unpack"

// init runs the worker's side. Whatever binary links this package can be its
// own worker, tests included; others pay one comparison of strings.
func init() {
	if len(os.Args) == 0 {
		return
	}
	switch os.Args[0] {
	case workerName:
		os.Exit(workerMain(os.Args[1:]))
	case packerName:
		os.Exit(packerMain(os.Args[1:]))
	}
}

// maxReply bounds what a worker may answer: it is not trusted. Implied folders
// make the most of it.
const maxReply = 64 << 20

// reply is what a worker writes to its standard output.
type reply struct {
	Result Result
	Err    *wireError // nil is success
}

// InWorker unpacks a layer, compressed or not, in a process of its own: with
// the layer's folder as its only file system, without network, and with the few
// system calls that unpacking takes (confine.go). Decompressing, parsing and
// writing happen there, so a mistake in them ends in that folder.
//
// blob is read to its end. If the worker ends before, stop is called and must
// make a Read of blob that is under way fail soon; the end of ctx must too, and
// kills the worker.
func InWorker(ctx context.Context, blob io.Reader, stop func(), req Request) (Result, error) {
	req.Recorded = req.Manifest != nil
	arg, err := json.Marshal(req)
	if err != nil {
		return Result{}, err
	}
	cmd := exec.CommandContext(ctx, "/proc/self/exe")
	cmd.Args = []string{workerName, string(arg)}
	cmd.Env = []string{"GOMAXPROCS=2"}
	if req.Recorded {
		cmd.ExtraFiles = []*os.File{req.Manifest, req.Attributes}
	}
	if cmd.SysProcAttr, err = namespaces(); err != nil {
		return Result{}, err
	}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return Result{}, err
	}
	out, log := &limitedBuffer{max: maxReply}, &limitedBuffer{max: 4096}
	cmd.Stdout, cmd.Stderr = out, log
	release, err := sys.StartHeld(cmd.Start)
	if err != nil {
		_ = stdin.Close()
		return Result{}, fmt.Errorf("start the unpacking worker: %w", err)
	}
	defer release()
	readErr := feed(stdin, blob, stop)
	waitErr := cmd.Wait()
	switch {
	case ctx.Err() != nil:
		return Result{}, context.Cause(ctx)
	case readErr != nil: // the worker only saw the end of its input
		return Result{}, readErr
	}
	var r reply
	if err := json.Unmarshal(out.data, &r); err != nil || waitErr != nil {
		return Result{}, fmt.Errorf("the unpacking worker failed: %w: %s", errors.Join(waitErr, err), strings.TrimSpace(string(log.data)))
	}
	if r.Err != nil {
		return r.Result, r.Err.error()
	}
	return r.Result, nil
}

// feed copies blob to the worker. It gives the reader's error; that the worker
// stopped reading is told better by its reply.
func feed(stdin io.WriteCloser, blob io.Reader, stop func()) error {
	if f, ok := stdin.(*os.File); ok {
		// A large pipe saves switches; the default will do where it is refused.
		if c, err := f.SyscallConn(); err == nil {
			_ = c.Control(func(fd uintptr) { _, _ = unix.FcntlInt(fd, unix.F_SETPIPE_SZ, 1<<20) })
		}
	}
	ahead := readAhead(blob)
	_, err := io.Copy(stdin, ahead)
	_ = stdin.Close()
	if err != nil {
		stop()
	}
	_ = ahead.Close()
	if errors.Is(err, unix.EPIPE) {
		return nil
	}
	return err
}

// namespaces are the worker's: a user namespace with the same ids as this one,
// so that it can set owners and nothing else, and one of every other kind.
func namespaces() (*syscall.SysProcAttr, error) {
	attr := &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET |
			unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP,
		Pdeathsig: unix.SIGKILL,
	}
	var err error
	if attr.UidMappings, err = sameIDs("/proc/self/uid_map", os.Geteuid()); err != nil {
		return nil, err
	}
	attr.GidMappings, err = sameIDs("/proc/self/gid_map", os.Getegid())
	return attr, err
}

// sameIDs maps every id of this user namespace to itself, split where its own
// map is split (user_namespaces(7)). An ordinary user may map only itself.
func sameIDs(file string, id int) ([]syscall.SysProcIDMap, error) {
	if os.Geteuid() != 0 {
		return []syscall.SysProcIDMap{{ContainerID: 0, HostID: id, Size: 1}}, nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var all []syscall.SysProcIDMap
	for line := range strings.Lines(string(data)) {
		var inside, outside, n int
		if _, err := fmt.Sscan(line, &inside, &outside, &n); err != nil {
			return nil, fmt.Errorf("%s: %q: %w", file, line, err)
		}
		all = append(all, syscall.SysProcIDMap{ContainerID: inside, HostID: inside, Size: n})
	}
	return all, nil
}

// limitedBuffer keeps the first max bytes and drops the rest.
type limitedBuffer struct {
	data []byte
	max  int
}

func (b *limitedBuffer) Write(p []byte) (int, error) {
	b.data = append(b.data, p[:min(len(p), b.max-len(b.data))]...)
	return len(p), nil
}

// workerMain is the worker. Its standard input is the blob, its standard output
// takes the reply.
func workerMain(args []string) int {
	var req Request
	if len(args) != 1 || json.Unmarshal([]byte(args[0]), &req) != nil || !filepath.IsAbs(req.Root) {
		fmt.Fprintf(os.Stderr, "%s: bad request %q\n", workerName, args)
		return 2
	}
	root, err := confine(req.Root, 0, unpacking)
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", workerName, err)
		return 1
	}
	if req.Recorded {
		req.Options.Manifest = os.NewFile(manifestFD, "manifest")
		req.Options.Attributes = os.NewFile(attributesFD, "attributes")
	}
	var r reply
	if r.Result, err = Blob(root, os.Stdin, req.Algorithm, req.Options); err != nil {
		r.Err = toWire(err)
	}
	if err := json.NewEncoder(os.Stdout).Encode(r); err != nil {
		return 1
	}
	return 0
}

// Blob unpacks a layer that may be compressed and digests the uncompressed
// stream, in this process. Reading ahead of the decompressor and of the
// extractor overlaps the two. It does not wait for a Read of blob that is under
// way when it fails.
func Blob(root *os.File, blob io.Reader, algorithm digest.Algorithm, opts Options) (Result, error) {
	if !algorithm.Available() {
		return Result{}, fmt.Errorf("%w: digest algorithm %q", ErrUnsafe, algorithm)
	}
	plain, err := decompress(blob)
	if err != nil {
		return Result{}, fmt.Errorf("%w: decompress: %w", ErrDamaged, err)
	}
	sum := algorithm.Digester()
	ready := readAhead(io.TeeReader(plain, sum.Hash()))
	stats, err := Unpack(root, ready, opts)
	if err == nil {
		_, err = io.Copy(io.Discard, blob) // what a decompressor need not read
	}
	if err != nil {
		return Result{Stats: stats}, err
	}
	_ = ready.Close()
	return Result{Stats: stats, DiffID: sum.Digest()}, plain.Close()
}
