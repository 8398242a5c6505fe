package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/sys"
	"github.com/hutch-sh/hutch/runtime/api"
)

// setupImageMount does what a creation does for a root file system, in this process.
func setupImageMount(ctx context.Context, h *Host) (*Prepared, error) {
	if h.uid != 0 {
		return nil, &Unavailable{HostKind, "this process mounts, which takes root", "run bench as root"}
	}
	dir, ref, err := h.pullInto("image-mount", false, mixed)
	if err != nil {
		return nil, err
	}
	p, err := hutchPuller(ctx, h, dir, ref)
	if err != nil {
		return nil, err
	}
	if _, err := h.output(ctx, p.env, p.argv...); err != nil {
		return nil, err
	}
	store := filepath.Join(dir, "data", "images")
	records, err := filepath.Glob(filepath.Join(store, "refs", "*.json"))
	if err != nil || len(records) != 1 {
		return nil, errors.Join(fmt.Errorf("there are %d records of images, not one", len(records)), err)
	}
	return &Prepared{Command: "read " + records[0] + ", mkdir, fsopen, fsconfig, fsmount, move_mount",
		Note: fmt.Sprintf("the median of %d in a row", callsPerRun),
		Run: func(ctx context.Context) (Sample, error) {
			n := 0
			times, err := calls(ctx, callsPerRun, func(context.Context) (time.Duration, error) {
				n++
				return mountOnce(store, records[0], fmt.Sprintf("at%d", n))
			})
			if err != nil {
				return Sample{}, err
			}
			return Sample{Wall: times[len(times)/2]}, nil
		}}, nil
}

// mountOnce mounts the layers of a record in new folders below the store.
func mountOnce(store, record, name string) (took time.Duration, err error) {
	at := filepath.Join(store, name)
	defer func() { err = errors.Join(err, removeTree(at)) }()
	start := time.Now()
	options, err := overlayOf(record, name)
	if err != nil {
		return 0, err
	}
	for _, sub := range []string{"", "upper", "work", "root"} {
		if err := os.Mkdir(filepath.Join(at, sub), 0o755); err != nil {
			return 0, err
		}
	}
	if err := sys.MountOverlay(store, filepath.Join(at, "root"), options, unix.MOUNT_ATTR_NODEV); err != nil {
		return 0, err
	}
	took = time.Since(start)
	return took, sys.Detach(filepath.Join(at, "root"))
}

// overlayOf are the options that show the layers of a record.
func overlayOf(record, name string) ([]sys.FSOption, error) {
	text, err := os.ReadFile(record)
	if err != nil {
		return nil, err
	}
	var r struct {
		DiffIDs []string `json:"diff_ids"`
	}
	if err := json.Unmarshal(text, &r); err != nil {
		return nil, err
	}
	options := []sys.FSOption{{Key: "source", Value: "overlay"}}
	for _, id := range slices.Backward(r.DiffIDs) {
		options = append(options, sys.FSOption{Key: "lowerdir+", Value: "layers/" + strings.Replace(id, ":", "-", 1) +
			"/root"})
	}
	return append(options, sys.FSOption{Key: "upperdir", Value: name + "/upper"},
		sys.FSOption{Key: "workdir", Value: name + "/work"},
		sys.FSOption{Key: "userxattr"}), nil
}

// setupPullMemory pulls while it is watched, which costs time.
func setupPullMemory(ctx context.Context, h *Host) (*Prepared, error) {
	if h.uid != 0 || os.Geteuid() != 0 {
		return nil, &Unavailable{HostKind, "the memory of another user's processes is not shown", "run bench as root"}
	}
	dir, ref, err := h.pullInto("pull-memory", false, mixed)
	if err != nil {
		return nil, err
	}
	p, err := hutchPuller(ctx, h, dir, ref)
	if err != nil {
		return nil, err
	}
	c, err := h.dial(ctx, "pull-memory")
	if err != nil {
		return nil, err
	}
	pids, err := createMany(ctx, c, 1, api.NetPolicy{})
	if err != nil {
		return nil, err
	}
	hutchd, err := hutchdOf(pids[0])
	if err != nil {
		return nil, err
	}
	ready, err := p.prepared(ctx, h, dir)
	if err != nil {
		return nil, err
	}
	most, pull := 0, ready.Run
	ready.Run = func(ctx context.Context) (Sample, error) {
		before, err := pssOfTree(hutchd)
		if err != nil {
			return Sample{}, err
		}
		stop := make(chan struct{})
		peak := make(chan int)
		go func() { peak <- watchTree(hutchd, stop) }()
		s, err := pull(ctx)
		close(stop)
		most = max(most, <-peak)
		ready.Note = fmt.Sprintf("peak PSS %.1f MB, before the last %.1f MB", float64(most)/1000, float64(before)/1000)
		return s, err
	}
	return ready, nil
}

// watchTree is the peak of pssOfTree in kB until stop is closed.
func watchTree(pid int, stop <-chan struct{}) (peak int) {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return peak
		case <-tick.C:
			if kb, err := pssOfTree(pid); err == nil {
				peak = max(peak, kb)
			}
		}
	}
}

// pssOfTree sums a process and its children, in kB. Workers have no children.
func pssOfTree(pid int) (int, error) {
	sum, err := pss(pid)
	if err != nil {
		return 0, err
	}
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		return 0, err
	}
	for _, task := range tasks {
		children, _ := os.ReadFile(task) // of a thread that has just ended
		for _, child := range strings.Fields(string(children)) {
			n, err := strconv.Atoi(child)
			if err != nil {
				return 0, err
			}
			if kb, err := pss(n); err == nil { // has not just ended
				sum += kb
			}
		}
	}
	return sum, nil
}
