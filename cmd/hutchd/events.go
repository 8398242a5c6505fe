package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/hutch-sh/hutch/images"
	"github.com/hutch-sh/hutch/internal/eventlog"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/sandbox"
	"github.com/hutch-sh/hutch/runtime/server"
)

var _ sandbox.Events = (*eventlog.Log)(nil)

// openEvents opens the log of this daemon and of those before it on its socket. A
// private daemon has no successor: its log goes with its home.
func (d *daemon) openEvents() (*eventlog.Log, error) {
	dir := filepath.Join(d.home.dir, "events")
	if !d.cfg.Private {
		key := sha256.Sum256([]byte(d.cfg.Paths.Socket))
		dir = filepath.Join(d.eventsDir(), hex.EncodeToString(key[:8]))
	}
	return eventlog.Open(dir, eventlog.Options{Logger: d.log})
}

// eventsDir holds the logs of all daemons on this state folder.
func (d *daemon) eventsDir() string { return filepath.Join(d.cfg.Data, "events") }

// keepEvents is how long the log of a socket on which no daemon serves is kept.
const keepEvents = 30 * 24 * time.Hour

// subscribe reads the log from the number asked for, or from now on.
func (d *daemon) subscribe(ctx context.Context, p api.SubscribeParams) (server.EventCursor, api.Subscribed, error) {
	log := d.events
	if err := log.Sync(ctx); err != nil {
		return nil, api.Subscribed{}, err
	}
	first, next := log.Range()
	res := api.Subscribed{Log: log.ID(), FirstSeq: first, NextSeq: next}
	from := next
	if p.FromSeq != nil {
		from = *p.FromSeq
	}
	if from > next {
		return nil, res, api.Errorf(api.FailedPrecondition, "from_seq: no event has the number %d yet; the next is %d",
			from, next).
			WithField("from_seq").
			WithHint("the daemon's state was deleted, or power was lost, since you read that number: start again from 1")
	}
	box := p.Sandbox
	if sb, err := d.manager.Get(box); err == nil {
		box = sb.ID
	} else if box != "" && !strings.HasPrefix(box, "sb_") {
		return nil, res, err // a name means nothing when its sandbox is gone; an id does
	}
	return log.Follow(from, p.Follow == nil || *p.Follow, matcher(box, p.Kinds)), res, nil
}

func matcher(box string, kinds []api.EventKind) func(*api.Event) bool {
	want := map[api.EventKind]bool{}
	for _, k := range kinds {
		want[k] = true
	}
	return func(e *api.Event) bool {
		return (box == "" || e.Sandbox == box) && (len(want) == 0 || want[e.Kind])
	}
}

// pullEvents tells each phase of each layer of a pull, once.
func (d *daemon) pullEvents(ref string, progress func(api.Progress)) func(images.Progress) {
	report := reportTo(progress)
	var mu sync.Mutex
	phases := map[string]images.Phase{}
	return func(p images.Progress) {
		report(p)
		mu.Lock()
		defer mu.Unlock()
		if phases[p.Layer] != p.Phase {
			phases[p.Layer] = p.Phase
			d.events.Emit(api.EventImageProgress, "", "", api.ImageEvent{
				Ref: ref, Layer: p.Layer, Phase: string(p.Phase), Done: p.Done, Total: p.Total,
			})
		}
	}
}
