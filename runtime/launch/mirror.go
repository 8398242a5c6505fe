package launch

import (
	"io"
	"os"
	"sync"
)

// maxMirrored is how far a terminal may be ahead of its caller, in bytes: so much is
// still shown after a Ctrl-C.
const maxMirrored = 64 << 10

// mirror passes what appears on a spooled terminal on to a caller, who may leave. While
// the caller is there the terminal waits for it, as a local one does; then for nobody.
type mirror struct {
	to io.ReadWriteCloser

	mu    sync.Mutex
	moved *sync.Cond // something below has changed
	ahead []byte     // what the caller has not got
	gone  bool       // the caller has left
	last  bool       // the command has ended: nothing more is for the caller
}

// newMirror owns the caller's file.
func newMirror(to *os.File) (*mirror, error) {
	c, err := interruptible(to)
	if err != nil {
		return nil, err
	}
	m := &mirror{to: c}
	m.moved = sync.NewCond(&m.mu)
	return m, nil
}

// run writes until the caller has left, or has everything.
func (m *mirror) run() {
	defer m.to.Close() // twice is no harm
	for data := m.next(); data != nil; data = m.next() {
		if _, err := m.to.Write(data); err != nil {
			m.leave()
		}
	}
	m.leave()
}

// next waits for what is to be written; nil is the end.
func (m *mirror) next() []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	for len(m.ahead) == 0 && !m.gone && !m.last {
		m.moved.Wait()
	}
	data := m.ahead
	m.ahead = nil
	m.moved.Broadcast()
	return data
}

func (m *mirror) leave() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.gone, m.ahead = true, nil
	m.moved.Broadcast()
}

// add queues what has appeared.
func (m *mirror) add(data []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.gone && !m.last {
		m.ahead = append(m.ahead, data...)
		m.moved.Broadcast()
	}
}

// await waits until the caller is less than so many bytes behind, or has left.
func (m *mirror) await(most int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for !m.gone && !m.last && len(m.ahead) >= most {
		m.moved.Wait()
	}
}

// finish waits until the caller has all that was added, or has left.
func (m *mirror) finish() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.last = true
	m.moved.Broadcast()
	for !m.gone {
		m.moved.Wait()
	}
}

// close ends the mirror, also one whose caller does not read.
func (m *mirror) close() {
	_ = m.to.Close()
	m.leave()
}
