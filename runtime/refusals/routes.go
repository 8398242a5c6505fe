package refusals

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/hutch-sh/hutch/runtime/api"
)

// Unrouted reports, after a command, that it wanted to connect to an address without a network n times, or
// somebody who runs beside it. The kernel has answered that by itself and has only counted: where to and by which
// protocol, eBPF alone would know.
func (f *Refusals) Unrouted(sandbox string, n int64) {
	f.Denied(sandbox, api.DeniedEvent{
		Rule: "mode none", Why: "the sandbox has no network", Count: n,
		HowToAllow: "--allow-cidr ADDRESS; which address it was, eBPF would tell (hutch doctor)",
		Refusal:    api.Refusal{By: "route", Errno: "ENETUNREACH"},
	})
}

// Routeless is how often the kernel had no route for what a process in pid's network namespace wanted to send, and how
// often of that by IPv4; 0 where it is gone.
func Routeless(pid int) (all, v4 int64) {
	const most = 64 << 10 // of these files, which have a few kilobytes
	read := func(name string) []byte {
		f, err := os.Open(fmt.Sprintf("/proc/%d/net/%s", pid, name))
		if err != nil {
			return nil // without IPv6 there is one
		}
		defer f.Close()
		text, _ := io.ReadAll(io.LimitReader(f, most)) // what was read counts
		return text
	}
	v4 = noRoutes4(read("snmp"))
	return v4 + noRoutes6(read("snmp6")), v4
}

// noRoutes4 finds the counter in a table with a line of names above one of numbers (proc_pid_net(5)).
func noRoutes4(table []byte) int64 {
	var names [][]byte
	for line := range bytes.Lines(table) {
		fields := bytes.Fields(line)
		if len(fields) == 0 || string(fields[0]) != "Ip:" {
			continue
		}
		if names == nil {
			names = fields
			continue
		}
		for i, name := range names {
			if string(name) == "OutNoRoutes" && i < len(fields) {
				return countOf(fields[i])
			}
		}
	}
	return 0
}

// noRoutes6 finds it in lines of a name and a number.
func noRoutes6(table []byte) int64 {
	for line := range bytes.Lines(table) {
		if f := bytes.Fields(line); len(f) == 2 && string(f[0]) == "Ip6OutNoRoutes" {
			return countOf(f[1])
		}
	}
	return 0
}

func countOf(text []byte) int64 {
	n, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil {
		return 0
	}
	return n
}
