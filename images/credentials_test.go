package images

import (
	"encoding/base64"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	it "github.com/hutch-sh/hutch/images/imagetest"
	"github.com/hutch-sh/hutch/runtime/api"
)

// helpers puts credential helpers, which are scripts, into PATH.
func helpers(t *testing.T, scripts map[string]string) (bin string) {
	t.Helper()
	bin = t.TempDir()
	for name, script := range scripts {
		must(t, os.WriteFile(filepath.Join(bin, "docker-credential-"+name), []byte("#!/bin/sh\n"+script), 0o700))
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	return bin
}

// TestDockerCredentials: what Docker's config.json says of helpers holds for pulls and pushes.
func TestDockerCredentials(t *testing.T) {
	registry := it.StartPrivateRegistry(t, "me")
	push(t, it.AsUser(registry, "me"), "app", twoLayers())
	host, ref := strings.TrimPrefix(registry, "http://"), it.Ref(registry, "app", "v1")
	answer := `read server; if [ "$server" = ` + host + ` ]; then echo '{"ServerURL":"'$server'","Username":"me","Secret":"` + it.Users["me"] + `"}'
else echo "credentials not found in native keychain"; exit 1; fi
`
	helpers(t, map[string]string{
		"knows": answer, "empty": "echo credentials not found in native keychain; exit 1\n",
		"fails": "echo locked; exit 3\n",
	})
	docker := t.TempDir()
	t.Setenv("DOCKER_CONFIG", docker)
	entry := `"auths":{"` + host + `":{"auth":"` + basic("me") + `"}}`
	for name, tt := range map[string]struct {
		config string
		code   api.Code
	}{
		"a store":                             {`{"auths":{"` + host + `":{}},"credsStore":"knows"}`, ""},
		"a helper":                            {`{"credHelpers":{"` + host + `":"knows"}}`, ""},
		"a helper before a store":             {`{"credHelpers":{"` + host + `":"knows"},"credsStore":"fails"}`, ""},
		"another's helper and a store":        {`{"credHelpers":{"x.example":"fails"},"credsStore":"knows"}`, ""},
		"an entry, and a store that has none": {`{` + entry + `,"credsStore":"empty"}`, ""},
		"an entry":                            {`{` + entry + `}`, ""},
		"a user and a password": {`{"auths":{"` + host + `":{"username":"me","password":"` +
			it.Users["me"] + `"}}}`, ""},
		"an entry before a user": {`{"auths":{"` + host + `":{"auth":"` + basic("me") +
			`","username":"x","password":"y"}}}`, ""},
		"auth that is none": {`{"auths":{"` + host + `":{"auth":"bWU="}}}`, api.FailedPrecondition},
		"a token that is not sent": {`{"auths":{"` + host + `":{"registrytoken":"t"}}}`,
			api.FailedPrecondition},
		"another's that is not sent": {`{"auths":{"x.example":{"registrytoken":"t"}}}`, api.PermissionDenied},
		"an empty file":              {"", api.PermissionDenied},
		"nothing":                    {`{}`, api.PermissionDenied},
		"a store that has none":      {`{"credsStore":"empty"}`, api.PermissionDenied},
		"a helper that has none, and an entry": {`{` + entry + `,"credHelpers":{"` + host + `":"empty"}}`,
			api.PermissionDenied},
		"a store that fails":        {`{"credsStore":"fails"}`, api.FailedPrecondition},
		"a store that is not there": {`{"credsStore":"gone"}`, api.FailedPrecondition},
		"a store that is a path":    {`{"credsStore":"x/../../../bin/true"}`, api.FailedPrecondition},
		"no JSON":                   {`{`, api.FailedPrecondition},
	} {
		t.Run(name, func(t *testing.T) {
			must(t, os.WriteFile(filepath.Join(docker, "config.json"), []byte(tt.config), 0o600))
			s := openStore(t, Options{})
			if _, err := s.Pull(t.Context(), ref, PullOptions{}); api.ErrorCode(err) != tt.code &&
				(err != nil || tt.code != "") {
				t.Errorf("pull: %v, want %q", err, tt.code)
			}
			if r, err := s.Registries().LoginOf(t.Context(), host); tt.code == "" && (err != nil || r.Username != "me") {
				t.Errorf("login: %+v, %v", r, err)
			}
			if tt.code != "" {
				return
			}
			if _, err := s.Push(t.Context(), ref, it.Ref(registry, "again", "v1"), nil); err != nil {
				t.Errorf("push: %v", err)
			}
		})
	}
}

// TestEmptyCredentials: a file of nothing keeps nobody from public images, nor from logging in.
func TestEmptyCredentials(t *testing.T) {
	registry, private := it.StartRegistry(t), it.StartPrivateRegistry(t, "me")
	ref := push(t, registry, "app", twoLayers())
	docker, auth := t.TempDir(), writeFile(t, "auth.json", " \n")
	t.Setenv("DOCKER_CONFIG", docker)
	must(t, os.WriteFile(filepath.Join(docker, "config.json"), nil, 0o600))
	if _, err := openStore(t, Options{}).Pull(t.Context(), ref, PullOptions{}); err != nil {
		t.Error(err)
	}
	s, host := openStore(t, Options{AuthFile: auth}), strings.TrimPrefix(private, "http://")
	if err := s.Registries().Logout(t.Context(), host); api.ErrorCode(err) != api.NotFound {
		t.Errorf("logout: %v", err)
	}
	must(t, os.WriteFile(auth, nil, 0o600))
	if _, err := login(t, s, host, "me", it.Users["me"]); err != nil {
		t.Error(err)
	}
	if r, err := s.Registries().LoginOf(t.Context(), host); err != nil || r.Username != "me" {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestHelperHangs: a helper that waits for ever is told by name, and leaves no process.
func TestHelperHangs(t *testing.T) {
	registry := it.StartRegistry(t)
	ref := push(t, registry, "app", twoLayers())
	host, pids := strings.TrimPrefix(registry, "http://"), filepath.Join(t.TempDir(), "pids")
	// A child of its own holds the pipe, too.
	helpers(t, map[string]string{"hangs": "sleep 1000 & echo $$ $! >> " + pids + "; wait\n"})
	conf := writeFile(t, "registries.conf", "credential-helpers = [\"hangs\"]\n")
	mirrored := writeFile(t, "registries.conf", "[[registry]]\nlocation = \""+host+
		"\"\n[[registry.mirror]]\nlocation = \"mirror.example\"\n")
	for name, opts := range map[string]Options{
		"of a file":          {AuthFile: writeFile(t, "auth.json", `{"credHelpers":{"`+host+`":"hangs"}}`)},
		"a store":            {AuthFile: writeFile(t, "auth.json", `{"credsStore":"hangs"}`)},
		"of registries.conf": {RegistriesConf: conf},
		"of a mirror": {RegistriesConf: mirrored,
			AuthFile: writeFile(t, "auth.json", `{"credHelpers":{"mirror.example":"hangs"}}`)},
	} {
		t.Run(name, func(t *testing.T) {
			must(t, os.WriteFile(pids, nil, 0o600))
			opts.Stall = 500 * time.Millisecond
			s := openStore(t, opts)
			_, err := s.Pull(t.Context(), ref, PullOptions{})
			if api.ErrorCode(err) != api.DeadlineExceeded ||
				!strings.Contains(err.Error(), "docker-credential-hangs") || !strings.Contains(err.Error(), "500ms") {
				t.Errorf("pull: %v", err)
			}
			wantClean(t, s, 0)
			if name != "of a mirror" {
				_, err = login(t, s, host, "me", "s3cret-word")
				if api.ErrorCode(err) != api.DeadlineExceeded {
					t.Errorf("login: %v", err)
				}
			}
			wantGone(t, pids)
		})
	}
}

// basic is what a file of credentials keeps of one of it.Users.
func basic(user string) string {
	return base64.StdEncoding.EncodeToString([]byte(user + ":" + it.Users[user]))
}

// wantGone waits for the end of the processes of a file.
func wantGone(t *testing.T, file string) {
	t.Helper()
	data, err := os.ReadFile(file)
	must(t, err)
	for word := range strings.FieldsSeq(string(data)) {
		pid, err := strconv.Atoi(word)
		must(t, err)
		fd, err := unix.PidfdOpen(pid, 0)
		if errors.Is(err, unix.ESRCH) {
			continue
		}
		must(t, err)
		if n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 20_000); n != 1 {
			t.Errorf("process %d still runs: %v", pid, err)
		}
		must(t, unix.Close(fd))
	}
	if len(data) == 0 {
		t.Error("no helper ran")
	}
}
