// Command hutch-mcp serves hutch's tools to language models over the Model Context Protocol, on stdin and stdout.
// `hutch mcp` becomes it. It is one more client of hutchd: every tool is one call.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/hutch-sh/hutch/internal/become"
	"github.com/hutch-sh/hutch/internal/hostexec"
	"github.com/hutch-sh/hutch/internal/mcpapi"
	"github.com/hutch-sh/hutch/runtime/api"
)

func main() {
	if hostexec.IsRunner() { // what --mode has on the host
		os.Exit(hostexec.Main())
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	if err := run(ctx); err != nil && !errors.Is(err, io.EOF) && ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, "hutch-mcp:", text(err))
		os.Exit(1)
	}
}

// endTimeout bounds the removal of what the session had.
const endTimeout = 30 * time.Second

func run(ctx context.Context) (err error) {
	cfg := mcpapi.Config{Mode: api.ExecModeAll}
	if err := become.Config(mcpapi.Variable, "hutch mcp", &cfg); err != nil {
		return err
	}
	if cfg.HTTP != "" {
		return serveHTTP(ctx, cfg)
	}
	b := newBoxes(cfg)
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
		defer cancel()
		err = errors.Join(err, b.end(ctx))
	}()
	tools, err := b.tools(ctx)
	if err != nil {
		return err
	}
	server, err := newServer(&b.cfg, tools, func(mcp.Session) (*boxes, error) { return b, nil })
	if err != nil {
		return err
	}
	return server.Run(ctx, exactStdio())
}
