package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/hutch-sh/hutch/internal/sys"
)

// setupCopy is the floor of a snapshot: the files of branchSubjects copied by cp, in the folder that the daemon's state
// is in, to where no file of a tree that was removed is near (sys.Spread), as snapshots are.
func setupCopy(ctx context.Context, h *Host) (*Prepared, error) {
	dir, err := h.mkdir("copies", 0o700)
	if err != nil {
		return nil, err
	}
	if err := sys.Spread(dir); err != nil {
		return nil, err
	}
	from := filepath.Join(dir, "files")
	fill, err := h.newProcess(nil, "sh", "-c", strings.ReplaceAll(fillFiles, "/files", from))
	if err != nil {
		return nil, err
	}
	if _, err := fill.run(ctx); err != nil {
		return nil, fmt.Errorf("write 10 MB: %w", err)
	}
	one := func(ctx context.Context) (time.Duration, error) {
		to := filepath.Join(dir, rand.Text()) // by the name ext4 chooses where on the disk
		cp, err := h.newProcess(nil, "cp", "-a", "--reflink=auto", from, to)
		if err != nil {
			return 0, err
		}
		s, err := cp.run(ctx)
		if err == nil {
			err = os.RemoveAll(to)
		}
		return s.Wall, err
	}
	return &Prepared{
		Command: "cp -a --reflink=auto", Note: "the median of 5 in a row",
		Run: func(ctx context.Context) (Sample, error) {
			times, err := calls(ctx, 5, one)
			if err != nil {
				return Sample{}, err
			}
			return Sample{Wall: times[len(times)/2]}, nil
		},
	}, nil
}
