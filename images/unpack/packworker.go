package unpack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/sys"
)

// PackRequest says what a worker packs.
type PackRequest struct {
	Root    string // the absolute path of a folder, in which nothing is mounted
	Options PackOptions
	// Lower, unless empty, are folders relative to Store, top-most first: what is packed is
	// an overlay of them, which the worker mounts on Root.
	Lower []string
	Store string
}

// packReply is what a packing worker writes to its standard error: standard output is
// the layer.
type packReply struct {
	Stats PackStats
	Err   *wireError // nil is success
}

// PackInWorker packs a folder in a process of its own, confined as InWorker's is, with the
// folder read-only: the folder's files are a sandbox's. The layer goes to w, a pipe or a
// file, which stays the caller's. Without the error that it returns a layer may be cut short.
func PackInWorker(ctx context.Context, w *os.File, req PackRequest) (PackStats, error) {
	cmd, err := command(ctx, packerName, req)
	if err != nil {
		return PackStats{}, err
	}
	defer cmd.ExtraFiles[0].Close()
	out := &limitedBuffer{max: 64 << 10}
	cmd.Stdout, cmd.Stderr = w, out
	release, err := sys.StartHeld(cmd.Start)
	if err != nil {
		return PackStats{}, fmt.Errorf("start the packing worker: %w", err)
	}
	defer release()
	waitErr := cmd.Wait()
	if ctx.Err() != nil {
		return PackStats{}, context.Cause(ctx)
	}
	var r packReply
	if err := json.Unmarshal(out.data, &r); err != nil || waitErr != nil {
		return PackStats{}, fmt.Errorf("the packing worker failed: %w: %s", errors.Join(waitErr, err),
			strings.TrimSpace(string(out.data)))
	}
	if r.Err != nil {
		return r.Stats, r.Err.error()
	}
	return r.Stats, nil
}

// packerMain is the packing worker.
func packerMain() int {
	var req PackRequest
	if err := readRequest(&req); err != nil || !filepath.IsAbs(req.Root) {
		fmt.Fprintf(os.Stderr, "%s: bad request for %q: %v\n", packerName, req.Root, err)
		return 2
	}
	if err := req.mount(); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", packerName, err)
		return 1
	}
	root, err := confine(req.Root, unix.MOUNT_ATTR_RDONLY, packing)
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", packerName, err)
		return 1
	}
	var r packReply
	if r.Stats, err = Pack(context.Background(), root, os.Stdout, req.Options); err != nil {
		r.Err = toWire(err)
	}
	if err := json.NewEncoder(os.Stderr).Encode(r); err != nil {
		return 1
	}
	return 0
}

// mount shows several layers as one, in this process's own mount namespace.
func (r *PackRequest) mount() error {
	if len(r.Lower) == 0 {
		return nil
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	options := []sys.FSOption{{Key: "source", Value: "overlay"}}
	for _, l := range r.Lower {
		options = append(options, sys.FSOption{Key: "lowerdir+", Value: l})
	}
	options = append(options, sys.FSOption{Key: "userxattr"})
	return sys.MountOverlay(r.Store, r.Root, options, unix.MOUNT_ATTR_RDONLY|unix.MOUNT_ATTR_NODEV)
}
