package main

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hutch-sh/hutch/cmd/hutch/mcpconf"
	"github.com/hutch-sh/hutch/internal/cli"
	"github.com/hutch-sh/hutch/runtime/api"
)

// installFlags are those of hutch mcp install and uninstall.
type installFlags struct {
	user, yes bool
	name      string
}

func (f *installFlags) add(cmd *cobra.Command) {
	cmd.Flags().SetInterspersed(false)
	cmd.Flags().BoolVar(&f.user, "user", false, "in your home folder, for all projects, and not in this one")
	cmd.Flags().StringVar(&f.name, "name", "sandbox", "`NAME` of the server in the client's file")
	cmd.Flags().BoolVarP(&f.yes, "yes", "y", false, "write it without a question")
}

func newMCPInstall() *cobra.Command {
	f := &installFlags{}
	cmd := &cobra.Command{
		Use:   "install [flags] CLIENT [FLAGS OF hutch mcp] [IMAGE]",
		Short: "Write hutch mcp into the configuration of a client",
		Long: `Write hutch mcp into the configuration of a client, after showing what is written: claude, codex, cursor, gemini,
opencode or vscode. It is that of the project in this folder, but codex has only one for the user. What follows CLIENT
are flags of hutch mcp; without any the sandbox gets the project as an overlay and no network.`,
		Example: `  hutch mcp install claude
  hutch mcp install --user cursor --workspace '${workspaceFolder}:overlay' --allow pypi.org python@3.12`,
		Args:      wantArgs(1, -1),
		ValidArgs: mcpconf.Names(),
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := f.find(args[0])
			if err != nil {
				return err
			}
			flags := args[1:]
			if len(flags) == 0 {
				flags = []string{"--workspace", p.client.Workspace + ":overlay"}
			} else if err := newMCP().ParseFlags(flags); err != nil {
				return cli.Usage("hutch mcp", err)
			}
			program, err := p.hutch(f.user)
			if err != nil {
				return err
			}
			return p.install(cmd.OutOrStdout(), f, append([]string{program, "mcp"}, flags...))
		},
	}
	f.add(cmd)
	return cmd
}

func newMCPUninstall() *cobra.Command {
	f := &installFlags{}
	cmd := &cobra.Command{
		Use:       "uninstall [flags] CLIENT",
		Short:     "Take hutch mcp out of the configuration of a client",
		Example:   `  hutch mcp uninstall claude`,
		Args:      wantArgs(1, 1),
		ValidArgs: mcpconf.Names(),
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := f.find(args[0])
			if err != nil {
				return err
			}
			return p.uninstall(cmd.OutOrStdout(), f)
		},
	}
	f.add(cmd)
	return cmd
}

// serverName is what all clients take, also those that make names of tools of it.
var serverName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// clientFile is the file of a client.
type clientFile struct {
	client mcpconf.Client
	path   string
	old    []byte // what it holds; nil where there is none
	mode   fs.FileMode
	root   string // the folder that path must not leave, whatever links are in it
}

// find finds and reads the file.
func (f *installFlags) find(name string) (*clientFile, error) {
	client, ok := mcpconf.Find(name)
	if !ok {
		return nil, api.Errorf(api.NotFound, "client %q is not known", name).
			WithHint("choose one of %s; docs/agents.md says what others want", strings.Join(mcpconf.Names(), ", "))
	}
	if !serverName.MatchString(f.name) {
		return nil, api.Errorf(api.InvalidArgument, "--name %q: up to 64 letters, digits, _ and - make a name", f.name)
	}
	project, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return nil, err
	}
	p := &clientFile{client: client, root: project, mode: 0o644}
	if p.path, err = client.File(project, home, f.user); err != nil {
		return nil, api.Errorf(api.InvalidArgument, "%w", err).WithHint("give --user: it is for all of your projects")
	}
	if f.user {
		// Dotfiles are often links to where they are kept.
		p.mode = 0o600
		if real, err := filepath.EvalSymlinks(p.path); err == nil {
			p.path = real
		}
		p.root = filepath.Dir(p.path)
		if err := os.MkdirAll(p.root, 0o755); err != nil {
			return nil, err
		}
	}
	p.old, err = p.read()
	return p, err
}

// read reads the file, through no link that leads out of the project: who has sent it may have put that there.
func (p *clientFile) read() ([]byte, error) {
	root, name, err := p.open()
	if err != nil {
		return nil, err
	}
	defer root.Close()
	file, err := root.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, p.cannot(err, "no link may lead out of the project: put the file itself there, or give --user")
	}
	defer file.Close()
	st, err := file.Stat()
	if err != nil {
		return nil, err
	}
	p.mode = st.Mode().Perm()
	const most = 16 << 20
	if !st.Mode().IsRegular() || st.Size() > most {
		return nil, api.Errorf(api.FailedPrecondition, "%s is no regular file of at most %d bytes", p.path, most)
	}
	return io.ReadAll(io.LimitReader(file, most))
}

func (p *clientFile) open() (root *os.Root, name string, err error) {
	if root, err = os.OpenRoot(p.root); err != nil {
		return nil, "", err
	}
	if name, err = filepath.Rel(p.root, p.path); err != nil {
		root.Close()
	}
	return root, name, err
}

// hutch is this program, as the client is to call it: programs with windows have another PATH than shells.
func (p *clientFile) hutch(user bool) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	found, err := exec.LookPath("hutch")
	if err != nil {
		return self, nil
	}
	a, aerr := os.Stat(found)
	b, berr := os.Stat(self)
	switch {
	case aerr != nil || berr != nil || !os.SameFile(a, b):
		return self, nil
	case user:
		return filepath.Abs(found)
	}
	return "hutch", nil // a project's file is for others as well
}

func (p *clientFile) install(out io.Writer, f *installFlags, command []string) error {
	changed, err := p.client.Add(p.old, f.name, command)
	if err != nil {
		return p.cannot(err, "add this by hand: "+p.client.Show(f.name, command))
	}
	if p.old != nil && bytes.Equal(changed, p.old) {
		_, err := fmt.Fprintf(out, "%s: it is there already\n", p.path)
		return err
	}
	fmt.Fprintf(out, "%s, in %s:\n\n%s\n\n", p.client.Title, cli.Line(p.path), p.client.Show(f.name, command))
	if ok, err := agreed(out, f.yes, "Write it?"); err != nil || !ok {
		return err
	}
	if err := p.write(changed); err != nil {
		return err
	}
	flags := ""
	if f.user {
		flags = "--user "
	}
	_, err = fmt.Fprintf(out, "Written. hutch mcp uninstall %s%s takes it out again.\n", flags, p.client.Name)
	return err
}

func (p *clientFile) uninstall(out io.Writer, f *installFlags) error {
	changed, found, err := p.client.Remove(p.old, f.name)
	if err != nil {
		return p.cannot(err, "take the server "+f.name+" out by hand")
	}
	if !found {
		_, err := fmt.Fprintf(out, "%s: there is no server %s\n", p.path, f.name)
		return err
	}
	if ok, err := agreed(out, f.yes, fmt.Sprintf("Take %s out of %s?", f.name, cli.Line(p.path))); err != nil || !ok {
		return err
	}
	if err := p.write(changed); err != nil {
		return err
	}
	_, err = fmt.Fprintln(out, "Taken out.")
	return err
}

func (p *clientFile) cannot(err error, hint string) error {
	return api.Errorf(api.FailedPrecondition, "%s cannot be changed: %w", p.path, err).WithHint("%s", hint)
}

// write puts changed in the place of the file in a single step, unless somebody else has changed it meanwhile.
func (p *clientFile) write(changed []byte) error {
	mode := p.mode
	if now, err := p.read(); err != nil || !bytes.Equal(now, p.old) {
		return p.cannot(errors.Join(err, errors.New("it has changed meanwhile")), "call again")
	}
	root, name, err := p.open()
	if err != nil {
		return err
	}
	defer root.Close()
	if err := root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	temporary := name + ".hutch-" + rand.Text()
	if err := root.WriteFile(temporary, changed, mode); err != nil {
		_ = root.Remove(temporary)
		return err
	}
	if err := errors.Join(root.Chmod(temporary, mode), root.Rename(temporary, name)); err != nil {
		_ = root.Remove(temporary)
		return err
	}
	return nil
}

// agreed asks the user at the terminal.
func agreed(out io.Writer, yes bool, question string) (bool, error) {
	if yes {
		return true, nil
	}
	if !cli.IsTerminal(os.Stdin) {
		return false, api.Errorf(api.FailedPrecondition, "whether to write it is asked at a terminal").
			WithHint("run it in a terminal, or with --yes")
	}
	fmt.Fprintf(out, "%s [y/N] ", question)
	answer, err := bufio.NewReader(os.Stdin).ReadString('\n')
	if a := strings.ToLower(strings.TrimSpace(answer)); err != nil || a != "y" && a != "yes" {
		fmt.Fprintln(out, "Nothing is written.")
		return false, &cli.Exit{Code: 1}
	}
	return true, nil
}
