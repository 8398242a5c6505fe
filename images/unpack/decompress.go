package unpack

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/sys"
)

// decompressor is a worker that decompresses a layer, which it reads from one pipe, into
// another one. It has no need of files, so of its folder it only keeps the root.
type decompressor struct {
	cmd     *exec.Cmd
	in      io.WriteCloser
	out     io.ReadCloser
	log     *limitedBuffer
	release func()
}

// decompressRequest is what it is told.
type decompressRequest struct{ Root string }

// decompressReply is what it writes to its standard error.
type decompressReply struct {
	Err *wireError // nil is success
}

func startDecompressor(ctx context.Context, req Request) (*decompressor, error) {
	cmd, err := command(ctx, cmp.Or(req.Workers.Decompressor, decompressorName), decompressRequest{Root: req.Root})
	if err != nil {
		return nil, err
	}
	defer cmd.ExtraFiles[0].Close()
	d := &decompressor{cmd: cmd, log: &limitedBuffer{max: 64 << 10}}
	cmd.Stderr = d.log
	if d.in, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if d.out, err = cmd.StdoutPipe(); err != nil {
		return nil, errors.Join(err, d.in.Close())
	}
	if d.release, err = sys.StartHeld(cmd.Start); err != nil {
		return nil, fmt.Errorf("start the decompressing worker: %w", errors.Join(err, d.in.Close(), d.out.Close()))
	}
	enlarge(d.in)
	enlarge(d.out)
	return d, nil
}

// result waits for the end of the decompressor, behind that of its output.
func (d *decompressor) result() error {
	defer d.release()
	waitErr := d.cmd.Wait()
	var r decompressReply
	if err := json.Unmarshal(d.log.data, &r); err != nil || waitErr != nil {
		return fmt.Errorf("the decompressing worker failed: %w: %s", errors.Join(waitErr, err),
			strings.TrimSpace(string(d.log.data)))
	}
	if r.Err != nil {
		return r.Err.error()
	}
	return nil
}

// decompressorMain is the worker that decompresses.
func decompressorMain() int {
	var req decompressRequest
	root, code := enter(decompressorName, &req, &req.Root, unix.MOUNT_ATTR_RDONLY, nil)
	if code != 0 {
		return code
	}
	_ = root.Close()
	var r decompressReply
	if err := decompressTo(os.Stdout, os.Stdin); err != nil {
		r.Err = toWire(decompressError(err))
	}
	if err := json.NewEncoder(os.Stderr).Encode(r); err != nil {
		return 1
	}
	return 0
}

// decompressTo reads blob to its end, also what a decompressor need not read.
func decompressTo(w io.Writer, blob io.Reader) error {
	plain, err := decompress(blob)
	if err != nil {
		return err
	}
	if _, err := io.Copy(w, plain); err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, blob); err != nil {
		return err
	}
	return plain.Close()
}
