package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hutch-sh/hutch/internal/cli"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/client"
)

// Connections that somebody is asked about: --ask, and hutch network asks, answer and forget.

// answering runs the command and puts to the terminal what its sandbox wants to connect to. Where the terminal is the
// command's, or there is none, whoever runs hutch network answer is asked.
func (r *runner) answering(ctx context.Context, sb *api.Sandbox, argv []string) error {
	tty, err := r.terminal()
	if err != nil {
		fmt.Fprintf(os.Stderr,
			"hutch: what sandbox %s wants to connect to is asked elsewhere (%v): hutch network asks\n", sb.ID, err)
		return r.exec(ctx, sb, argv)
	}
	return answeringAt(ctx, tty, func() *client.Client { return r.client }, sb.ID,
		func() error { return r.exec(ctx, sb, argv) })
}

// answeringAt puts to tty what a sandbox wants to connect to, until fn returns. It closes tty.
func answeringAt(ctx context.Context, tty *os.File, c func() *client.Client, sandbox string, fn func() error) error {
	defer tty.Close()
	events, err := c().Subscribe(ctx,
		api.SubscribeParams{Sandbox: sandbox, Kinds: []api.EventKind{api.EventNetworkAsk, api.EventNetworkAnswer}})
	if err != nil {
		return err
	}
	defer events.Close()
	asking, stop := context.WithCancelCause(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		a := &asker{tty: tty, answer: func(p api.AnswerParams) error { return c().Answer(asking, p) }}
		a.run(asking, events)
	}()
	err = fn()
	stop(nil)
	_ = tty.Close() // ends a read
	<-ended
	return err
}

// terminal is the one that may be asked.
func (r *runner) terminal() (*os.File, error) {
	if r.flags.tty || r.flags.interactive && cli.IsTerminal(os.Stdin) {
		return nil, errors.New("the terminal is the command's")
	}
	return os.OpenFile("/dev/tty", os.O_RDWR, 0)
}

// asker puts questions to somebody at a terminal, one after the other.
type asker struct {
	tty    io.ReadWriter
	answer func(api.AnswerParams) error
	queue  []api.AskEvent // the first one is asked
	shown  string         // its id, once it is
}

// run asks until ctx or the events end.
func (a *asker) run(ctx context.Context, events *client.Events) {
	happened, lines := make(chan api.Event), make(chan string)
	go func() {
		defer close(happened)
		for e, err := range events.All(ctx) {
			if err != nil {
				return
			}
			select {
			case happened <- e:
			case <-ctx.Done():
				return
			}
		}
	}()
	go func() {
		defer close(lines)
		for in := bufio.NewScanner(a.tty); in.Scan(); {
			select {
			case lines <- in.Text():
			case <-ctx.Done():
				return
			}
		}
	}()
	for {
		a.show()
		select {
		case e, ok := <-happened:
			if !ok {
				return
			}
			a.event(&e)
		case line, ok := <-lines:
			if !ok {
				return // the terminal is gone
			}
			a.line(line)
		case <-ctx.Done():
			return
		}
	}
}

// show asks the first question, unless it has been asked.
func (a *asker) show() {
	if len(a.queue) == 0 || a.shown == a.queue[0].ID {
		return
	}
	q := &a.queue[0]
	a.shown = q.ID
	fmt.Fprintf(a.tty, "hutch: the sandbox wants to connect to %s\n       (o)nce, for this (s)ession or (a)lways by %s, or (d)eny? ", cli.Line(q.Where()), cli.Line(q.HowToAllow))
}

// event takes what happened to a question.
func (a *asker) event(e *api.Event) {
	switch e.Kind {
	case api.EventNetworkAsk:
		var q api.AskEvent
		if json.Unmarshal(e.Data, &q) == nil {
			a.queue = append(a.queue, q)
		}
	case api.EventNetworkAnswer:
		var over api.AnsweredEvent
		if json.Unmarshal(e.Data, &over) != nil {
			return
		}
		if over.ID == a.shown && len(a.queue) > 0 && a.queue[0].ID == over.ID {
			fmt.Fprintln(a.tty, "\nhutch: that is not asked any more")
		}
		a.queue = slices.DeleteFunc(a.queue, func(q api.AskEvent) bool { return q.ID == over.ID })
	}
}

// line takes what somebody has typed.
func (a *asker) line(line string) {
	if len(a.queue) == 0 {
		return
	}
	q := a.queue[0]
	answer := answerOf(line)
	if answer == "" {
		a.shown = "" // again
		return
	}
	a.queue = a.queue[1:]
	if err := a.answer(api.AnswerParams{ID: q.ID, Answer: answer}); err != nil && api.ErrorCode(err) != api.NotFound {
		fmt.Fprintf(a.tty, "hutch: %s\n", cli.Line(err.Error()))
	}
}

// answerOf reads an answer or its first letter; "" is none.
func answerOf(line string) api.NetAnswer {
	line = strings.ToLower(strings.TrimSpace(line))
	for _, a := range api.NetAnswers {
		if line != "" && strings.HasPrefix(string(a), line) {
			return a
		}
	}
	return ""
}

func newNetworkAsks() *cobra.Command {
	asJSON := false
	cmd := &cobra.Command{
		Use:   "asks",
		Short: "List the connections that wait for an answer",
		Long: `List the connections that sandboxes with --ask wait to make, and what is always allowed to them.
"hutch events -f --kind network.ask" tells of new ones as they come.`,
		Args: wantArgs(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withDaemon(cmd.Context(), func(c *client.Client) error {
				asks, err := c.Asks(cmd.Context())
				switch {
				case err != nil:
					return err
				case asJSON:
					return printJSON(cmd.OutOrStdout(), asks)
				}
				printAsks(cmd.OutOrStdout(), &asks)
				return nil
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print network.asks' result")
	return cmd
}

func printAsks(w io.Writer, asks *api.Asks) {
	t := cli.Table{Header: []string{"ID", "SANDBOX", "WANTS", "ENTRY", "LEFT"},
		Right: []bool{false, false, false, false, true}}
	for _, q := range asks.Pending {
		t.Row(q.ID, q.Sandbox, q.Where(), q.HowToAllow, time.Until(q.Until).Round(time.Second).String())
	}
	t.Print(w, "", nil)
	if always := append(slices.Clone(asks.Always.Allow), asks.Always.AllowCIDRs...); len(always) > 0 {
		fmt.Fprintf(w, "\nalways allowed: %s\n", cli.Line(strings.Join(always, ", ")))
	}
}

func newNetworkAnswer() *cobra.Command {
	return &cobra.Command{
		Use:   "answer ID once|session|always|deny",
		Short: "Answer whether a connection that waits may be made",
		Long: `Answer whether a connection that waits may be made: once; for the life of the sandbox, by adding
the entry to its policy; always, for all sandboxes that ask; or not, for the life of the sandbox.
The first answer counts.`,
		Example: `  hutch network asks
  hutch network answer ask_4kd6sl2ptq7x session`,
		Args: wantArgs(2, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			p := api.AnswerParams{ID: args[0], Answer: api.NetAnswer(args[1])}
			if err := p.Validate(); err != nil {
				return err
			}
			return withDaemon(cmd.Context(), func(c *client.Client) error { return c.Answer(cmd.Context(), p) })
		},
	}
}

func newNetworkForget() *cobra.Command {
	return &cobra.Command{
		Use:     "forget ENTRY...",
		Short:   "Forget what was to be allowed always",
		Long:    `Forget entries that were answered with always, as "hutch network asks" lists them. Sandboxes that have them in their policies keep them.`,
		Example: `  hutch network forget api.example.com`,
		Args:    wantArgs(1, -1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withDaemon(cmd.Context(), func(c *client.Client) error {
				_, err := c.ForgetAlways(cmd.Context(), args)
				return err
			})
		},
	}
}
