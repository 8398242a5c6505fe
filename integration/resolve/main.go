// Resolve looks a name up and says hello to a web server there, as Go programs do that
// link no C library. ../testdata/resolve.c is the same in C. Tests run them inside.
//
//	usage: test-resolve NAME PORT
package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"time"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: test-resolve NAME PORT")
		os.Exit(2)
	}
	if err := run(context.Background(), os.Args[1], os.Args[2]); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

func run(ctx context.Context, name, port string) error {
	resolver := net.Resolver{PreferGo: true}
	start := time.Now()
	addrs, err := resolver.LookupHost(ctx, name)
	fmt.Println("looked up in", time.Since(start).Milliseconds(), "ms")
	if err != nil {
		return err
	}
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(addrs[0], port))
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := fmt.Fprintf(conn, "GET / HTTP/1.0\r\nHost: %s:%s\r\n\r\n", name, port); err != nil {
		return err
	}
	reply := make([]byte, 1000)
	n, err := conn.Read(reply)
	if err != nil {
		return err
	}
	fmt.Printf("reached %s: %s\n", addrs[0], reply[:n])
	return nil
}
