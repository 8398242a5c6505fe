package proxy

import (
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

// loop calls functions when file descriptors are ready, one after the other, in a goroutine
// that is the same for all proxies of the process and lives as long as that. It is for connections that carry
// little: to wake a goroutine for each step of each of them takes longer than the steps.
// What it calls must not wait for anything.
type loop struct {
	epoll int
	// Of whoever is called:
	bytes   [lightBuffer]byte
	started bool     // a goroutine, which waits for this one to sleep or to make room
	chores  []func() // see afterNext

	mu      sync.Mutex
	watched map[int32]watch // by file descriptor
	last    int32
}

// watch is one file descriptor. Its number may be another's soon after it was closed, and
// an event under way then is not meant for that: id tells.
type watch struct {
	id      int32
	ready   func()
	listens bool // comes behind others that are ready at the same time
}

var theLoop struct {
	sync.Mutex
	*loop
}

// sharedLoop returns the process's loop, which runs from the first call on that succeeds.
func sharedLoop() (*loop, error) {
	theLoop.Lock()
	defer theLoop.Unlock()
	if theLoop.loop == nil {
		fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
		if err != nil {
			return nil, fmt.Errorf("epoll_create1: %w", err)
		}
		theLoop.loop = &loop{epoll: fd, watched: map[int32]watch{}}
		go theLoop.run()
	}
	return theLoop.loop, nil
}

func (l *loop) run() {
	runtime.LockOSThread() // a thirtieth faster
	var events [64]unix.EpollEvent
	for {
		patience, due := -1, len(l.chores)
		if due > 0 {
			patience = 0
		}
		n, err := ignoringEINTR(func() (int, error) { return unix.EpollWait(l.epoll, events[:], patience) })
		if err != nil {
			panic(fmt.Errorf("epoll_wait(%d): %w", l.epoll, err)) // nobody else has it
		}
		later := events[:0]
		for _, e := range events[:n] {
			if w := l.watch(e); w.listens {
				later = append(later, e)
			} else if w.ready != nil { // else it was removed meanwhile
				w.ready()
			}
		}
		for _, e := range later {
			if w := l.watch(e); w.ready != nil {
				w.ready()
			}
		}
		due = min(due, 1+due/8) // one, then another look: somebody may be ready by then
		for _, do := range l.chores[:due] {
			do()
		}
		l.chores = slices.Delete(l.chores, 0, due)
		if l.started {
			// The scheduler learns of a thread that sleeps in epoll_wait up to 10 ms later.
			l.started = false
			runtime.Gosched()
		}
	}
}

// watch is who an event is meant for; its ready is nil where that is nobody any more.
func (l *loop) watch(e unix.EpollEvent) watch {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w := l.watched[e.Fd]; w.id == e.Pad {
		return w
	}
	return watch{}
}

// add calls ready from now on, for as long as fd can be read or has failed. The id is for
// what follows.
func (l *loop) add(fd int, ready func()) (id int32, err error) {
	return l.put(fd, watch{ready: ready})
}

// addListener is add for listeners: who connects to a server that serves one after the other waits until that has heard
// of the end of the last.
func (l *loop) addListener(fd int, ready func()) (id int32, err error) {
	return l.put(fd, watch{ready: ready, listens: true})
}

// afterNext has do called some time after those who are ready next, in the order in which it is called: chores of some
// microseconds, one at a time while others are ready all the time. Whoever calls it is called by the loop; do must not
// call it.
func (l *loop) afterNext(do func()) { l.chores = append(l.chores, do) }

func (l *loop) put(fd int, w watch) (id int32, err error) {
	l.mu.Lock()
	l.last++
	id = l.last
	w.id = id
	l.watched[int32(fd)] = w
	l.mu.Unlock()
	if err := unix.EpollCtl(l.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd),
		Pad: id}); err != nil {
		l.remove(fd, id)
		return 0, fmt.Errorf("epoll_ctl(EPOLL_CTL_ADD, %d): %w", fd, err)
	}
	return id, nil
}

// failuresOnly calls only when fd has failed: its stream has come to its end.
func (l *loop) failuresOnly(fd int, id int32) error {
	return unix.EpollCtl(l.epoll, unix.EPOLL_CTL_MOD, fd, &unix.EpollEvent{Fd: int32(fd), Pad: id})
}

// remove ends the calls, but for one that is under way. fd may be closed, and another's.
func (l *loop) remove(fd int, id int32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.watched[int32(fd)].id == id {
		delete(l.watched, int32(fd))
		_ = unix.EpollCtl(l.epoll, unix.EPOLL_CTL_DEL, fd, nil) // fails when it is closed
	}
}

// forget is remove for who closes fd next, which the kernel does the rest of.
func (l *loop) forget(fd int, id int32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.watched[int32(fd)].id == id {
		delete(l.watched, int32(fd))
	}
}

// asConn makes a connection of package net's of a socket, which it takes over.
func asConn(fd int) (*net.TCPConn, error) {
	f := os.NewFile(uintptr(fd), "connection")
	c, err := net.FileConn(f)
	if err = errors.Join(err, f.Close()); err != nil {
		if c != nil {
			_ = c.Close()
		}
		return nil, err
	}
	t, ok := c.(*net.TCPConn)
	if !ok {
		_ = c.Close()
		return nil, unix.EPROTOTYPE
	}
	return t, nil
}
