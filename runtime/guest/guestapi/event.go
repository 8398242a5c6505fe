package guestapi

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"unicode"
)

// maxName bounds names in what is told about a refused call, in bytes.
const maxName = 128

// reasons are the ones that hutch-init knows.
var reasons = []Reason{ReasonNotFound, ReasonNotExecutable, ReasonBadUser, ReasonBadCwd,
	ReasonTooBig, ReasonNoProcess, ReasonInternal}

// parseEvent parses a packet from a sandbox and makes it safe to pass on: its
// size is bounded, its text printable, its reason known, its status one that a
// process can end with. An error means that this is not hutch-init any more.
func parseEvent(packet []byte) (*Event, error) {
	if len(packet) > MaxPacket {
		return nil, fmt.Errorf("packet over %d bytes", MaxPacket)
	}
	ev := &Event{}
	if err := json.Unmarshal(packet, ev); err != nil {
		return nil, fmt.Errorf("packet of %d bytes: %w", len(packet), err)
	}
	switch ev.Ev {
	case EvReady:
		if err := ev.checkReady(); err != nil {
			return nil, err
		}
	case EvStarted, EvPending, EvListed, EvListen:
	case EvFailed:
		if !slices.Contains(reasons, ev.Reason) {
			return nil, fmt.Errorf("unknown reason %.32q", ev.Reason)
		}
		if ev.Errno < 0 || ev.Errno > 4095 { // MAX_ERRNO of linux/err.h
			return nil, fmt.Errorf("errno %d", ev.Errno)
		}
	case EvExited:
		ws := syscall.WaitStatus(ev.Status)
		if ev.Status != ev.Status&0xffff || !ws.Exited() && !ws.Signaled() {
			return nil, fmt.Errorf("wait status %#x", ev.Status)
		}
		if len(ev.Killed) > MaxKilled {
			return nil, fmt.Errorf("%d killed processes", len(ev.Killed))
		}
	case EvRefused:
		r := ev.Refused
		if r == nil || r.Errno < 0 || r.Errno > 4095 || r.Count < 1 || r.Count > 1<<40 || r.PID < 0 || r.Session < 0 ||
			len(r.Cgroup) > maxName || len(r.Command) > maxName {
			return nil, fmt.Errorf("refused call %+v", r)
		}
		if made := r.File != nil && r.File.Op == FileRepository; made != (r.Errno == 0) {
			return nil, fmt.Errorf("refused call %+v", r)
		}
		r.Command = printable(r.Command)
		if f := r.File; f != nil {
			if !slices.Contains(FileOps, f.Op) || len(f.Path) > MaxPath || len(f.At.Path) > MaxPath ||
				f.Path == "" || f.Path[0] != '/' {
				return nil, fmt.Errorf("refused file %.32q %.64q", f.Op, f.Path)
			}
			f.Path, f.At.Path = printable(f.Path), printable(f.At.Path)
		}
	default:
		return nil, fmt.Errorf("unknown event %.32q", ev.Ev)
	}
	if ev.Usage == nil {
		ev.Usage = &Usage{}
	}
	ev.Message = printable(ev.Message)
	return ev, nil
}

// checkReady checks what an answer names, and makes it printable.
func (ev *Event) checkReady() error {
	if len(ev.Made) > MaxMade || len(ev.Moving) > MaxPath {
		return fmt.Errorf("%d repositories, a folder with a name of %d bytes", len(ev.Made), len(ev.Moving))
	}
	for i, p := range ev.Made {
		if len(p) > MaxPath || p == "" || p[0] != '/' {
			return fmt.Errorf("repository %.64q", p)
		}
		ev.Made[i] = printable(p)
	}
	ev.Moving = printable(ev.Moving)
	return nil
}

// printable bounds text and takes the control characters out of it, which would
// be commands to the terminal that shows it.
func printable(text string) string {
	if len(text) > MaxMessage {
		text = text[:MaxMessage]
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, text)
}
