// Command hutch-netd puts eBPF programs in force in a cgroup of its caller's: see
// netfilter/netd. The monitor starts it; it is of no use to anybody else. Installed, its
// file has CAP_BPF and CAP_NET_ADMIN (make install-netd).
package main

import (
	"os"

	"github.com/hutch-sh/hutch/netfilter/netd"
)

func main() { os.Exit(netd.Main()) }
