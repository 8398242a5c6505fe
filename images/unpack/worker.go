package unpack

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/opencontainers/go-digest"
	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/sys"
)

// Request says what is unpacked, and where.
type Request struct {
	// Root is the absolute path of an empty folder that nobody else can reach.
	Root    string
	Options Options
	// Algorithm is that of the diffID, such as "sha256".
	Algorithm digest.Algorithm `json:"-"`
	// Manifest, unless nil, is an empty file for the layer's manifest, Attributes then one
	// for what of it is about attributes. They stay the caller's; the worker writes to
	// copies of the fds.
	Manifest, Attributes *os.File `json:"-"`
	// Recorded says that there is one.
	Recorded bool
	// Workers are the argv[0] of both workers where a test puts others in their places.
	Workers Workers `json:"-"`
}

// Workers are names of worker processes; an empty one means this package's own.
type Workers struct{ Decompressor, Extractor string }

// A worker's files: its request, and its copies of Request.Manifest and Request.Attributes.
const (
	requestFD    = 3
	manifestFD   = 4
	attributesFD = 5
)

// Result of InWorker.
type Result struct {
	Stats Stats // the extractor's word
	// DiffID is that of the uncompressed stream, digested in this process on its way from
	// the worker that decompresses to the one that unpacks.
	DiffID digest.Digest
}

// Names, as argv[0], under which a binary that links this package is a worker.
const (
	extractorName    = "hutch-unpack"
	decompressorName = "hutch-decompress"
	packerName       = "hutch-pack"
)

// init runs the workers' side. Whatever binary links this package can be its
// own worker, tests included; others pay three comparisons of strings.
func init() {
	if len(os.Args) == 0 {
		return
	}
	switch os.Args[0] {
	case extractorName:
		os.Exit(extractorMain())
	case decompressorName:
		os.Exit(decompressorMain())
	case packerName:
		os.Exit(packerMain())
	}
}

// maxReply bounds what a worker may answer: it is not trusted. Implied folders
// make the most of it.
const maxReply = 64 << 20

// reply is what an extractor writes to its standard output.
type reply struct {
	Stats Stats
	Err   *wireError // nil is success
}

// InWorker unpacks a layer, compressed or not, in processes of their own: with the
// layer's folder as their only file system, without network, and with the few system
// calls that it takes (confine.go). One decompresses, where there is something to
// decompress, and another one parses and writes, so a mistake in either ends in that
// folder. Neither has a say in the diffID: what the one gives is digested here and
// handed on to the other, byte by byte.
//
// blob is read to its end. If a worker ends before, stop is called and must
// make a Read of blob that is under way fail soon; the end of ctx must too, and
// kills the workers.
func InWorker(ctx context.Context, blob io.Reader, stop func(), req Request) (Result, error) {
	if !req.Algorithm.Available() {
		return Result{}, fmt.Errorf("%w: digest algorithm %q", ErrUnsafe, req.Algorithm)
	}
	x, err := startExtractor(ctx, req)
	if err != nil {
		return Result{}, err
	}
	to := &digested{w: x.in, sum: req.Algorithm.Digester()}
	readErr, damage := x.feed(ctx, to, readAhead(blob), stop, req)
	stats, err := x.result()
	switch {
	case ctx.Err() != nil:
		return Result{}, context.Cause(ctx)
	case to.err == nil && readErr != nil: // the workers only saw the end of their input
		return Result{}, readErr
	case to.err == nil && damage != nil && (err == nil || errors.Is(err, ErrDamaged)): // so did the extractor
		return Result{Stats: stats}, damage
	case err != nil:
		return Result{Stats: stats}, err
	case to.err != nil:
		return Result{}, fmt.Errorf("the unpacking worker ended before the layer did: %w", to.err)
	}
	return Result{Stats: stats, DiffID: to.sum.Digest()}, nil
}

// digested digests what a worker takes.
type digested struct {
	w   io.WriteCloser
	sum digest.Digester
	err error // why it takes no more
}

func (d *digested) Write(p []byte) (n int, err error) {
	n, d.err = d.w.Write(p)
	_, _ = d.sum.Hash().Write(p[:n])
	return n, d.err
}

func (d *digested) Close() error { return d.w.Close() }

// extractor is the worker that parses and writes.
type extractor struct {
	cmd      *exec.Cmd
	in       io.WriteCloser
	out, log *limitedBuffer
	release  func()
}

func startExtractor(ctx context.Context, req Request) (*extractor, error) {
	req.Recorded = req.Manifest != nil
	cmd, err := command(ctx, cmp.Or(req.Workers.Extractor, extractorName), req)
	if err != nil {
		return nil, err
	}
	if req.Recorded {
		cmd.ExtraFiles = append(cmd.ExtraFiles, req.Manifest, req.Attributes)
	}
	x := &extractor{cmd: cmd, out: &limitedBuffer{max: maxReply}, log: &limitedBuffer{max: 4096}}
	cmd.Stdout, cmd.Stderr = x.out, x.log
	defer cmd.ExtraFiles[0].Close()
	if x.in, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if x.release, err = sys.StartHeld(cmd.Start); err != nil {
		_ = x.in.Close()
		return nil, fmt.Errorf("start the unpacking worker: %w", err)
	}
	enlarge(x.in)
	return x, nil
}

// feed gives the extractor the blob by way of to, through a decompressor if it takes one, and
// closes both. readErr is blob's error, damage the decompressor's.
func (x *extractor) feed(ctx context.Context, to *digested, blob *ahead, stop func(), req Request) (readErr,
	damage error) {
	if !compressed(blob.peek(magicBytes)) {
		return feed(to, blob, stop), nil
	}
	d, err := startDecompressor(ctx, req)
	if err != nil {
		stop()
		return nil, errors.Join(err, blob.Close(), to.Close())
	}
	fed := make(chan error, 1)
	go func() { fed <- feed(d.in, blob, stop) }()
	if _, err := io.CopyBuffer(to, struct{ io.Reader }{d.out}, make([]byte, copyBuffer)); err != nil {
		_ = d.cmd.Process.Kill()
		stop()
	}
	_ = to.Close()
	readErr = <-fed
	return readErr, d.result()
}

// result waits for the end of the extractor.
func (x *extractor) result() (Stats, error) {
	defer x.release()
	waitErr := x.cmd.Wait()
	var r reply
	if err := json.Unmarshal(x.out.data, &r); err != nil || waitErr != nil {
		return Stats{}, fmt.Errorf("the unpacking worker failed: %w: %s", errors.Join(waitErr, err),
			strings.TrimSpace(string(x.log.data)))
	}
	if r.Err != nil {
		return r.Stats, r.Err.error()
	}
	return r.Stats, r.Stats.checkNames()
}

// checkNames refuses names that Unpack does not answer with: a layer may have taken its worker over, and who works with
// them takes each for components between single slashes.
func (s *Stats) checkNames() error {
	check := func(p string) error {
		if p == "." || path.Clean(p) != p || !filepath.IsLocal(p) || len(p) > maxPath || strings.IndexByte(p, 0) >= 0 {
			return fmt.Errorf("%w: the unpacking worker answers with %.100q, which is no name in a layer", ErrUnsafe, p)
		}
		return nil
	}
	for _, p := range slices.Concat(s.Implied, s.Hollow) {
		if p == "" { // the root
			continue
		}
		if err := check(p); err != nil {
			return err
		}
	}
	for _, l := range s.Links {
		if err := cmp.Or(check(l.Name), check(l.Target)); err != nil {
			return err
		}
	}
	return nil
}

// feed copies blob to a worker and closes both. It gives the reader's error; that the worker
// stopped reading is told better by its reply.
func feed(stdin io.WriteCloser, blob *ahead, stop func()) error {
	_, err := io.Copy(stdin, blob)
	_ = stdin.Close()
	if err != nil {
		stop()
	}
	_ = blob.Close()
	if errors.Is(err, unix.EPIPE) {
		return nil
	}
	return err
}

// enlarge makes a pipe large, which saves switches; the default will do where it is refused.
func enlarge(pipe any) {
	if f, ok := pipe.(*os.File); ok {
		if c, err := f.SyscallConn(); err == nil {
			_ = c.Control(func(fd uintptr) { _, _ = unix.FcntlInt(fd, unix.F_SETPIPE_SZ, 1<<20) })
		}
	}
}

// command is a worker, to be started with sys.StartHeld. The end of ctx kills it. Its first extra file is the request,
// which the caller closes: with the names of many folders and links it is longer than an argument may be (execve(2)).
func command(ctx context.Context, name string, request any) (*exec.Cmd, error) {
	text, err := json.Marshal(request)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, "/proc/self/exe")
	cmd.Args = []string{name}
	cmd.Env = []string{"GOMAXPROCS=2"}
	if cmd.SysProcAttr, err = namespaces(); err != nil {
		return nil, err
	}
	file, err := sys.SealedMemfd(name, bytes.NewReader(text), sys.MemfdData)
	if err != nil {
		return nil, fmt.Errorf("hand over the request of the worker: %w", err)
	}
	cmd.ExtraFiles = []*os.File{file}
	return cmd, nil
}

// readRequest is the worker's side.
func readRequest(request any) error {
	f := os.NewFile(requestFD, "request")
	text, err := io.ReadAll(f)
	return errors.Join(err, f.Close(), json.Unmarshal(text, request))
}

// namespaces are a worker's: a user namespace with the same ids as this one,
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

// extractorMain is the worker that unpacks. Its standard input is the uncompressed layer, its
// standard output takes the reply.
func extractorMain() int {
	var req Request
	unix.Umask(0) // files are made with their modes
	root, code := enter(extractorName, &req, &req.Root, 0, unpacking)
	if code != 0 {
		return code
	}
	if req.Recorded {
		req.Options.Manifest = os.NewFile(manifestFD, "manifest")
		req.Options.Attributes = os.NewFile(attributesFD, "attributes")
	}
	req.Options.cpu = cpuBase
	var r reply
	var err error
	if r.Stats, err = Unpack(root, os.Stdin, req.Options); err != nil {
		r.Err = toWire(err)
	}
	if err := json.NewEncoder(os.Stdout).Encode(r); err != nil {
		return 1
	}
	return 0
}

// enter reads a worker's request and confines it to the folder *dir of the request, with those
// attributes of the mount and system calls. code is what to exit with, unless 0.
func enter(name string, req any, dir *string, attr uint64, calls []uint32) (root *os.File, code int) {
	if err := readRequest(req); err != nil || !filepath.IsAbs(*dir) {
		fmt.Fprintf(os.Stderr, "%s: bad request for %q: %v\n", name, *dir, err)
		return nil, 2
	}
	root, err := confine(*dir, attr, calls)
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		return nil, 1
	}
	return root, 0
}
