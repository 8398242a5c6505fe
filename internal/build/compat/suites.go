package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// suite is one of E2B's suites.
type suite struct {
	Name    string
	Version string // of the package that it tests
	dir     string
	command func(cache, report string) []string
	parse   func(text []byte) (map[string]result, error)
}

// limit bounds one run of a suite.
const limit = 15 * time.Minute

// result is what became of a test in one run.
type result struct {
	Status string // passed, failed or skipped
	Why    string // it failed
}

const (
	passed  = "passed"
	failed  = "failed"
	skipped = "skipped"
)

// suites are those of the checkouts.
func suites(e2b, code string) ([]suite, error) {
	js, py := filepath.Join(e2b, "packages/js-sdk"), filepath.Join(e2b, "packages/python-sdk")
	all := []suite{
		{Name: "e2b-js", dir: js, command: vitest("--project", "unit", "--project", "connectionConfig", "--project",
			"template"), parse: parseVitest},
		{Name: "e2b-python", dir: py, command: pytest, parse: parseJUnit},
	}
	if code != "" {
		js, py := filepath.Join(code, "js"), filepath.Join(code, "python")
		all = append(all, suite{Name: "code-interpreter-js", dir: js, command: vitest(), parse: parseVitest},
			suite{Name: "code-interpreter-python", dir: py, command: pytest, parse: parseJUnit})
	}
	for i := range all {
		var err error
		if all[i].dir, err = filepath.Abs(all[i].dir); err == nil {
			all[i].Version, err = version(all[i].dir)
		}
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

var versionLine = regexp.MustCompile(`(?m)^\s*"?version"?\s*[:=]\s*"([^"]+)"`)

// version is that of the package in a folder.
func version(dir string) (string, error) {
	name := filepath.Join(dir, "pyproject.toml")
	text, err := os.ReadFile(name)
	if errors.Is(err, os.ErrNotExist) {
		name = filepath.Join(dir, "package.json")
		text, err = os.ReadFile(name)
	}
	if err != nil {
		return "", fmt.Errorf("no package of E2B's: %w", err)
	}
	m := versionLine.FindSubmatch(text)
	if m == nil {
		return "", fmt.Errorf("%s: it has no version", name)
	}
	return string(m[1]), nil
}

func vitest(projects ...string) func(string, string) []string {
	return func(_, report string) []string {
		return append([]string{"node_modules/.bin/vitest", "run", "--reporter=json", "--outputFile=" + report},
			projects...)
	}
}

func pytest(cache, report string) []string {
	return []string{filepath.Join(cache, "python/bin/python"), "-m", "pytest", "-q", "-p", "no:cacheprovider",
		"-n", "2", "--timeout", "60", "--junitxml=" + report}
}

// run runs a suite without a server and with one.
func (s *suite) run(ctx context.Context, cache string, srv *server, known reasons) ([]test, error) {
	mocked, err := s.once(ctx, cache, srv)
	if err != nil {
		return nil, err
	}
	served, err := s.once(ctx, cache, srv, "E2B_API_URL="+srv.url, "E2B_SANDBOX_URL="+srv.url)
	if err != nil {
		return nil, err
	}
	return judge(s.Name, mocked, served, known), nil
}

// once runs a suite. That tests of it fail is no error.
func (s *suite) once(ctx context.Context, cache string, srv *server, env ...string) (map[string]result, error) {
	report := filepath.Join(srv.dir, s.Name+".report")
	_ = os.Remove(report) // of the run before
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	args := s.command(cache, report)
	fmt.Println("  RUN      ", s.Name, strings.Join(env, " "))
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir, cmd.WaitDelay = s.dir, time.Second
	cmd.Env = append(env, "PATH="+os.Getenv("PATH"), "HOME="+filepath.Join(srv.dir, "home"), "LANG=C.UTF-8",
		"PYTHONDONTWRITEBYTECODE=1", "E2B_API_KEY="+srv.key)
	if len(env) == 0 {
		cmd.Env = append(cmd.Env, "E2B_CONNECTION_RETRIES=0") // nobody is there
	}
	out, runErr := cmd.CombinedOutput()
	text, err := os.ReadFile(report)
	if err != nil {
		return nil, fmt.Errorf("%s: no report: %w\n%s", strings.Join(args, " "), errors.Join(runErr, err),
			tail(string(out), 4000))
	}
	results, err := s.parse(text)
	if err == nil && len(results) == 0 {
		err = errors.New("it has run no test")
	}
	return results, err
}

// parseVitest reads the report of vitest: by file and full name of each test.
func parseVitest(text []byte) (map[string]result, error) {
	var report struct {
		TestResults []struct {
			Name             string
			Message          string
			AssertionResults []struct {
				FullName, Status string
				FailureMessages  []string
			}
		}
	}
	if err := json.Unmarshal(text, &report); err != nil {
		return nil, fmt.Errorf("the report of vitest: %w", err)
	}
	all := map[string]result{}
	for _, file := range report.TestResults {
		_, name, _ := strings.Cut(file.Name, "/tests/")
		if len(file.AssertionResults) == 0 && file.Message != "" {
			add(all, name+": all of it", result{failed, firstLine(file.Message)})
		}
		for _, t := range file.AssertionResults {
			r := result{Status: t.Status, Why: firstLine(strings.Join(t.FailureMessages, "\n"))}
			if t.Status != passed && t.Status != failed {
				r.Status = skipped
			}
			add(all, name+": "+t.FullName, r)
		}
	}
	return all, nil
}

// parseJUnit reads the report of pytest.
func parseJUnit(text []byte) (map[string]result, error) {
	type failure struct {
		Message string `xml:"message,attr"`
	}
	var report struct {
		Cases []struct {
			Class   string    `xml:"classname,attr"`
			Name    string    `xml:"name,attr"`
			Failure []failure `xml:"failure"`
			Error   []failure `xml:"error"`
			Skipped []failure `xml:"skipped"`
		} `xml:"testsuite>testcase"`
	}
	if err := xml.Unmarshal(text, &report); err != nil {
		return nil, fmt.Errorf("the report of pytest: %w", err)
	}
	all := map[string]result{}
	for _, t := range report.Cases {
		r := result{Status: passed}
		switch bad := append(t.Failure, t.Error...); {
		case len(bad) > 0:
			r = result{Status: failed, Why: firstLine(bad[0].Message)}
		case len(t.Skipped) > 0:
			r.Status = skipped
		}
		file := strings.ReplaceAll(strings.TrimPrefix(t.Class, "tests."), ".", "/")
		add(all, file+".py: "+t.Name, r)
	}
	return all, nil
}

// add adds a result. A name that comes again, as after a failure while it was torn down, is as bad as its worst.
func add(all map[string]result, name string, r result) {
	if old, ok := all[name]; !ok || r.Status == failed || old.Status == skipped {
		all[name] = r
	}
}

// maxWhy bounds what is shown of why a test failed.
const maxWhy = 160

// firstLine is the first line of a message that says something.
func firstLine(text string) string {
	lines := bufio.NewScanner(bytes.NewReader([]byte(text)))
	for lines.Scan() {
		if line := strings.TrimSpace(lines.Text()); line != "" {
			return strings.ToValidUTF8(line[:min(len(line), maxWhy)], "")
		}
	}
	return ""
}
