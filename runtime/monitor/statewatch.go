package monitor

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// watchState ends the daemon when its state folder is removed or moved away, or so much of it as an rm -r comes to:
// nothing that it is asked for can be done then, and what it still has belongs to no folder that anybody knows. Not a
// folder itself says so, which is in use, but the one that its name is in.
func (m *monitor) watchState(done <-chan struct{}) {
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		m.log.Debug("watch the state folder", "err", err) // no instance is left, say: nothing depends on it
		return
	}
	f := os.NewFile(uintptr(fd), "inotify")
	defer f.Close()
	images := filepath.Join(m.dataDir(), "images") // which hutchd has made
	names := map[string]bool{}
	at := images
	for range 3 { // images, data, and the state folder itself
		names[filepath.Base(at)] = true
		if _, err := unix.InotifyAddWatch(fd, filepath.Dir(at),
			unix.IN_DELETE|unix.IN_MOVED_FROM|unix.IN_ONLYDIR); err != nil {
			m.log.Debug("watch the state folder", "folder", filepath.Dir(at), "err", err)
		}
		at = filepath.Dir(at)
	}
	go func() {
		<-done
		_ = f.Close()
	}()
	buf := make([]byte, 4096)
	for {
		n, err := f.Read(buf)
		if err != nil {
			return
		}
		if !namesAny(buf[:n], names) {
			continue
		}
		if _, err := os.Lstat(images); err == nil {
			continue // of another folder, by the same name
		}
		m.log.Error("the state folder was removed or moved: the daemon ends", "folder", m.opts.Paths.State)
		m.stop("its state folder was removed", false)
		return
	}
}

// namesAny reports whether inotify's events (inotify(7)) are about one of the names.
func namesAny(events []byte, names map[string]bool) bool {
	for len(events) >= unix.SizeofInotifyEvent {
		size := int(binary.NativeEndian.Uint32(events[12:]))
		if size > len(events)-unix.SizeofInotifyEvent {
			return false
		}
		name := strings.TrimRight(string(events[unix.SizeofInotifyEvent:unix.SizeofInotifyEvent+size]), "\x00")
		if names[name] {
			return true
		}
		events = events[unix.SizeofInotifyEvent+size:]
	}
	return false
}
