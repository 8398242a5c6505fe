package main

import (
	"log/slog"
	"os"
	"strings"
	"sync"

	"github.com/hutch-sh/hutch/images"
	"github.com/hutch-sh/hutch/runtime/launch/launchapi"
)

// layers are the leases of sandboxes' layers. hutch-launch holds each as well, so that
// no other daemon of this state root removes a layer while hutchd is replaced.
type layers struct {
	store    *images.Store
	launcher *launchapi.Client
	log      *slog.Logger

	mu    sync.Mutex
	users map[string]int // sandboxes, by layer
}

// layerKey is the key of a layer at hutch-launch.
const layerKey = "layer/"

// lease pins the layers for one sandbox.
func (l *layers) lease(names []string) (release func(), err error) {
	lease, err := l.store.Lease(names)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	var mine []string
	lease.Each(func(name string, lock *os.File) {
		mine = append(mine, name)
		if l.users[name]++; l.users[name] > 1 {
			return
		}
		if err := l.launcher.Keep(layerKey+name, lock); err != nil {
			l.log.Debug("keep a layer", "layer", name, "err", err)
		}
	})
	return sync.OnceFunc(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, name := range mine {
			if l.users[name]--; l.users[name] == 0 {
				delete(l.users, name)
				_ = l.launcher.Unkeep(layerKey + name) // with hutch-launch gone nothing is kept
			}
		}
		lease.Release()
	}), nil
}

// forgetUnused lets go of the layers of a hutchd before that no sandbox has any more.
func (l *layers) forgetUnused(kept map[string]*os.File) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key := range kept {
		if name, ok := strings.CutPrefix(key, layerKey); ok && l.users[name] == 0 {
			_ = l.launcher.Unkeep(key)
		}
	}
}
