package launch

import (
	"fmt"
	"os"

	"github.com/hutch-sh/hutch/internal/packet"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/launch/launchapi"
)

// launcher is a booted hutch-launch.
type launcher struct {
	server   *server
	children *children
	keep     bool                // sandboxes outlive the monitor and hutchd
	monitors <-chan *packet.Conn // those that come later; nil without keep
	// unreachable is closed when no other monitor can come; nil without keep.
	unreachable <-chan struct{}
	held        []*os.File // open for as long as this process lives

	monitor *monitor // nil when it is gone
	daemon  *daemon  // nil when none runs
	session *session // of daemon
}

// hello greets every monitor.
var hello = launchapi.News{Hello: &launchapi.Hello{Version: launchapi.Version}}

// monitor is one monitor and what it says.
type monitor struct {
	conn   *packet.Conn
	orders chan order // closed when it is gone
}

type order struct {
	launchapi.Order
	files []*os.File
}

// listenTo reads a monitor's orders.
func listenTo(conn *packet.Conn) *monitor {
	m := &monitor{conn: conn, orders: make(chan order)}
	go func() {
		defer close(m.orders)
		for {
			var o order
			files, err := conn.Recv(&o.Order)
			if err != nil {
				return
			}
			o.files = files
			m.orders <- o
		}
	}()
	return m
}

// supervise follows the monitors' orders and watches hutchd until one of them wants
// the end, or nobody is left who could want anything. It returns the exit code.
func (l *launcher) supervise(first *packet.Conn) int {
	l.monitor = listenTo(first)
	for {
		var orders chan order
		if l.monitor != nil {
			orders = l.monitor.orders
		}
		var exited chan struct{}
		if l.daemon != nil {
			exited = l.daemon.exited
		}
		select {
		case o, alive := <-orders:
			switch {
			case !alive:
				l.dropMonitor()
				if !l.keep || !l.server.holds() {
					return exitFailed
				}
			case o.End:
				packet.CloseAll(o.files)
				return 0
			default:
				l.start(o)
			}
		case <-l.nobodyCan():
			return exitFailed
		case conn := <-l.monitors:
			l.dropMonitor()
			l.monitor = listenTo(conn)
			l.tell(hello)
		case <-exited:
			status := l.daemon.status
			code := l.daemon.exitCode()
			l.dropDaemon()
			if code == 0 || !l.keep {
				return code
			}
			l.tell(launchapi.News{Ended: &launchapi.Ended{Status: int(status)}})
		}
	}
}

// nobodyCan tells that there is no monitor, and none can come.
func (l *launcher) nobodyCan() <-chan struct{} {
	if l.monitor != nil {
		return nil
	}
	return l.unreachable
}

// dropMonitor makes room for the next monitor. hutchd's channel to this one is of no
// use to it, so hutchd goes as well; it is made to be killed at any time.
func (l *launcher) dropMonitor() {
	if l.monitor == nil {
		return
	}
	_ = l.monitor.conn.Close()
	for o := range l.monitor.orders {
		packet.CloseAll(o.files)
	}
	l.monitor = nil
	l.dropDaemon()
}

// dropDaemon ends hutchd and what is under way for it.
func (l *launcher) dropDaemon() {
	if l.daemon == nil {
		return
	}
	l.daemon.kill()
	<-l.daemon.exited
	l.session.leave()
	_ = l.daemon.pidfd.Close()
	l.daemon, l.session = nil, nil
}

func (l *launcher) tell(n launchapi.News) {
	if l.monitor != nil {
		_ = l.monitor.conn.Send(n) // one that is gone is seen by its orders
	}
}

// start follows an order to start hutchd.
func (l *launcher) start(o order) {
	defer packet.CloseAll(o.files)
	err := l.startDaemon(o)
	if err != nil {
		l.tell(launchapi.News{Error: launchapi.FromError(err)})
		return
	}
	l.tell(launchapi.News{Started: &launchapi.Started{PID: l.daemon.pid}})
}

func (l *launcher) startDaemon(o order) error {
	switch {
	case o.Start == nil || len(o.files) != 2:
		return api.Errorf(api.InvalidArgument, "start hutchd: an order with %d fds that says nothing", len(o.files))
	case l.daemon != nil:
		return api.Errorf(api.AlreadyExists, "start hutchd: it runs")
	}
	ours, theirs, err := packet.Pair()
	if err != nil {
		return err
	}
	defer theirs.Close()
	conn, err := packet.New(ours)
	if err != nil {
		return err
	}
	d, err := startDaemon(l.children, o.files[0], o.Start, theirs, o.files[1])
	if err != nil {
		_ = conn.Close()
		return err
	}
	l.daemon, l.session = d, l.server.open(conn)
	return nil
}

// end stops everything below hutch-launch and returns the exit code. Mounts end
// with the mount namespace, and folders are hutchd's, whose next start sweeps
// them; processes and cgroups would stay.
func (l *launcher) end(code int) int {
	l.dropDaemon()
	if err := l.server.close(); err != nil {
		fmt.Fprintln(os.Stderr, "hutch-launch: end sandboxes:", err)
	}
	if err := l.children.killAll(); err != nil {
		fmt.Fprintln(os.Stderr, "hutch-launch: end processes:", err)
	}
	if l.monitor != nil {
		_ = l.monitor.conn.Close()
	}
	packet.CloseAll(l.held)
	return code
}
