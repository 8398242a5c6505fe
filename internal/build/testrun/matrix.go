package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/hutch-sh/hutch/internal/build/testreport"
	"github.com/hutch-sh/hutch/internal/build/testtree"
	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/internal/testenv/mustrun"
	"github.com/hutch-sh/hutch/internal/testenv/testuser"
)

// runMatrix runs the host-dependent packages as ordinary users, from a copy that
// they can read: the checkout may well lie in root's home.
func runMatrix(ctx context.Context, out io.Writer, root string, o options, total *testreport.Report) (ok bool, err error) {
	pkgs, err := hostPackages(ctx, o)
	if err != nil || len(pkgs) == 0 {
		return err == nil, err
	}
	dir, err := os.MkdirTemp("", "hutch-test-matrix-")
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := testtree.Stage(ctx, root, dir, tags, pkgs); err != nil {
		return false, err
	}
	// Both at once: what one leaves behind the other can not touch, and most tests wait for processes.
	kinds := []mustrun.Kind{mustrun.SubUID, mustrun.NoSubUID}
	said, reports, errs := make([]bytes.Buffer, len(kinds)), make([]*testreport.Reader, len(kinds)), make([]error, len(kinds))
	var wg sync.WaitGroup
	for i, kind := range kinds {
		wg.Go(func() { reports[i], errs[i] = runAs(ctx, &said[i], kind, dir, pkgs, o) })
	}
	wg.Wait()
	ok = true
	for i, kind := range kinds {
		_, err := said[i].WriteTo(out)
		if errs[i] = errors.Join(errs[i], err); errs[i] == nil {
			total.Add(kind, reports[i].Outcomes)
			ok = ok && !reports[i].Failed
		}
	}
	return ok, errors.Join(errs...)
}

// aboutSources are tests of the repository itself: they need the toolchain, and
// say the same to everybody.
var aboutSources = []string{
	module + "/internal/deptest", module + "/internal/build/testrun", module + "/internal/build/testreport", module + "/integration/vm",
}

// hostPackages lists the folders, below the module's root, of the packages whose
// tests depend on the host: those that link testenv.
func hostPackages(ctx context.Context, o options) ([]string, error) {
	cmd := command(ctx, "go", append([]string{"list", "-test", "-json=ImportPath,Deps", "-tags", tags}, o.packages...)...)
	list, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", strings.Join(cmd.Args, " "), err)
	}
	var dirs []string
	for dec := json.NewDecoder(bytes.NewReader(list)); ; {
		var p struct {
			ImportPath string
			Deps       []string
		}
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return dirs, nil
		} else if err != nil {
			return nil, err
		}
		// PACKAGE.test is the compiled test of PACKAGE.
		tested, ok := strings.CutSuffix(p.ImportPath, ".test")
		if ok && !slices.Contains(aboutSources, tested) && slices.ContainsFunc(p.Deps, isTestenv) {
			dirs = append(dirs, strings.TrimPrefix(tested, module+"/"))
		}
	}
}

// isTestenv also knows testenv as go list spells it where a test of something
// below testenv has it compiled anew: "PATH [TEST]".
func isTestenv(dep string) bool {
	path, _, _ := strings.Cut(dep, " ")
	return path == module+"/internal/testenv"
}

// runAs runs every compiled test as one kind of user.
func runAs(ctx context.Context, out io.Writer, kind mustrun.Kind, dir string, pkgs []string, o options) (r *testreport.Reader, err error) {
	u, err := testuser.New(ctx, kind)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, u.Close()) }()
	r = testreport.NewReader(out, module, string(kind))
	for _, pkg := range pkgs {
		if err := runBinary(ctx, out, r, u, dir, pkg, o); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// runBinary runs one compiled test as u and reads its output through test2json,
// as the go command would.
func runBinary(ctx context.Context, out io.Writer, r *testreport.Reader, u *testuser.User, dir, pkg string, o options) error {
	args := []string{"-test.v=test2json", "-test.paniconexit0", "-test.timeout=" + o.timeout.String(), "-test.parallel=" + strconv.Itoa(o.parallel)}
	if o.run != "" {
		args = append(args, "-test.run="+o.run)
	}
	if u.Kind == mustrun.NoSubUID {
		// What only repeats in order to meet a race has met root's and the other user's.
		args = append(args, "-test.short")
	}
	bin := filepath.Join(dir, "src", "bin")
	test := command(ctx, testtree.Binary(dir, pkg), args...)
	test.Dir = filepath.Join(dir, "src", filepath.FromSlash(pkg))
	path := []string{bin, "/usr/local/bin", "/usr/bin", "/bin", "/usr/local/sbin", "/usr/sbin", "/sbin", filepath.Join(dir, "src", testtree.Tools)}
	u.Run(test, "PATH="+strings.Join(path, ":"), testenv.BinVar+"="+bin, testenv.RequireVar+"="+os.Getenv(testenv.RequireVar))

	convert := exec.Command("go", "tool", "test2json", "-t", "-p", module+"/"+pkg)
	convert.Stderr = os.Stderr
	pipe, err := test.StdoutPipe()
	if err != nil {
		return err
	}
	test.Stderr = test.Stdout
	convert.Stdin = pipe
	if err := test.Start(); err != nil {
		return fmt.Errorf("%s as %s: %w", pkg, u.Kind, err)
	}
	streamErr := stream(convert, r)
	if err := test.Wait(); err != nil {
		r.Failed = true
		fmt.Fprintf(out, "FAIL\t%s\t%v\t(%s)\n", module+"/"+pkg, err, u.Kind)
	} else {
		fmt.Fprintf(out, "ok  \t%s\t(%s)\n", module+"/"+pkg, u.Kind)
	}
	return streamErr
}
