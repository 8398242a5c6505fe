package bootstrap

import (
	"context"
	"errors"
	"io"
	"os"

	"github.com/hutch-sh/hutch/internal/packet"
	"github.com/hutch-sh/hutch/internal/sys"
	"github.com/hutch-sh/hutch/runtime/launch/launchapi"
)

// Daemon says how to start hutchd. The files stay the caller's.
type Daemon struct {
	Start   launchapi.Start
	Binary  *os.File
	Channel *os.File // becomes hutchd's fd launchapi.DaemonMonitorFD
}

// StartDaemon starts a hutchd, the first or the next, and returns its pid. ctx bounds
// the start only.
func (l *Launcher) StartDaemon(ctx context.Context, d Daemon) (pid int, err error) {
	hutchd, err := l.daemonBinary(d.Binary)
	if err != nil {
		return 0, err
	}
	if hutchd != d.Binary {
		defer hutchd.Close()
	}
	if err := l.conn.Send(launchapi.Order{Start: &d.Start}, hutchd, d.Channel); err != nil {
		return 0, l.died(ctx, err)
	}
	news, err := l.news(ctx)
	switch {
	case err != nil:
		return 0, err
	case news.Error != nil:
		return 0, news.Error.API()
	case news.Started == nil:
		return 0, errors.New("hutch-launch answered something else than that hutchd runs")
	}
	return news.Started.PID, nil
}

// Next waits for the end of hutchd: with an error of io.EOF when hutch-launch is gone as
// well, or is about to.
func (l *Launcher) Next() (launchapi.Ended, error) {
	var news launchapi.News
	files, err := l.conn.Recv(&news)
	packet.CloseAll(files)
	if err != nil {
		return launchapi.Ended{}, err
	}
	if news.Ended == nil {
		return launchapi.Ended{}, errors.New("hutch-launch said something unexpected")
	}
	return *news.Ended, nil
}

// news waits for an answer.
func (l *Launcher) news(ctx context.Context) (launchapi.News, error) {
	stop := context.AfterFunc(ctx, func() { _ = l.conn.Close() })
	defer stop()
	var news launchapi.News
	files, err := l.conn.Recv(&news)
	packet.CloseAll(files)
	if err != nil {
		return news, l.died(ctx, err)
	}
	return news, nil
}

// daemonBinary is the binary that the daemon's uid can execute: f, or a copy of it
// when only root may (a build tree with umask 077).
func (l *Launcher) daemonBinary(f *os.File) (*os.File, error) {
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if l.method != MethodDirect || st.Mode().Perm()&0o001 != 0 {
		return f, nil
	}
	return sys.SealedMemfd("hutchd", io.NewSectionReader(f, 0, st.Size()), sys.MemfdProgram)
}
