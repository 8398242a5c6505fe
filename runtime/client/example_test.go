package client_test

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/client"
)

// An agent host runs one command in a sandbox of its own.
func ExampleStart() {
	ctx := context.Background()
	c, err := client.Start(ctx, client.StartOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close() // ends the daemon and its sandboxes
	box, err := c.CreateSandbox(ctx, api.CreateParams{Spec: api.Spec{Image: "host"}}, nil, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	r, err := c.ExecRun(ctx, api.ExecParams{Sandbox: box.ID, Argv: []string{"echo", "hello"}}, nil, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Print(r.Stdout)
}

// A command gets the caller's own pipe as both of its outputs.
func ExampleClient_ExecRun() {
	ctx := context.Background()
	c, err := client.Connect(ctx, client.ConnectOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	r, w, err := os.Pipe()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer r.Close()
	_, err = c.ExecRun(ctx, api.ExecParams{Sandbox: "mine", Command: "make test"},
		&client.Stdio{Stdout: w, Stderr: w}, func(api.Progress) {
			w.Close() // the command has it now
		})
	var e *api.Error
	if errors.As(err, &e) {
		fmt.Println(e.Code, e.Hint)
	}
}
