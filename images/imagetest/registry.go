package imagetest

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/internal/probe"
	"github.com/hutch-sh/hutch/internal/testenv"
)

// StartRegistry runs a registry (the docker-registry of the distribution
// project) on a free loopback port with an empty folder of its own, and stops
// it when the test ends. It returns its URL, "http://127.0.0.1:PORT". Where
// the program is not installed the test is skipped.
func StartRegistry(t testing.TB) string {
	t.Helper()
	return startRegistry(t, "")
}

// Users and their passwords that StartPrivateRegistry knows.
var Users = map[string]string{"me": "s3cret-word", "you": "other-word"}

// usersFile is Users as htpasswd -B -C 4 writes them.
const usersFile = `me:$2a$04$yYBvL5yDUErerH/EHTfxFOFmNI4TbsnUpR5Gd5jB3Ab7Sca09uopa
you:$2a$04$0s9A0INhZ/OYuGqC3JCPM.ybbdHNJOZ1SmraBe9WyvSPAns/q.B6S
`

// StartPrivateRegistry is StartRegistry for one of Users alone.
func StartPrivateRegistry(t testing.TB, user string) string {
	t.Helper()
	for line := range strings.Lines(usersFile) {
		if strings.HasPrefix(line, user+":") {
			file := filepath.Join(t.TempDir(), "users")
			if err := os.WriteFile(file, []byte(line), 0o600); err != nil {
				t.Fatal(err)
			}
			return startRegistry(t, fmt.Sprintf("auth: {htpasswd: {realm: test, path: %q}}\n", file))
		}
	}
	t.Fatalf("no user %q", user)
	return ""
}

// AsUser is the URL of a private registry for Push and the like.
func AsUser(registry, user string) string {
	return strings.Replace(registry, "://", "://"+user+":"+Users[user]+"@", 1)
}

func startRegistry(t testing.TB, auth string) string {
	t.Helper()
	url, stop, err := runRegistry(t.TempDir(), auth)
	if err != nil {
		if _, look := exec.LookPath("docker-registry"); look != nil {
			testenv.Require(t, probe.Check{
				Name: "docker_registry", Status: probe.No, Detail: look.Error(),
				Remedy: "apt-get install docker-registry",
			})
		}
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return url
}

// runRegistry starts one that keeps everything in dir; stop ends it and waits. auth is the part of its configuration
// that says who may come.
func runRegistry(dir, auth string) (url string, stop func(), err error) {
	config := filepath.Join(dir, "config.yml")
	text := fmt.Sprintf("version: 0.1\nlog: {level: info, formatter: text}\nstorage: {filesystem: {rootdirectory: %q}, delete: {enabled: true}}\nhttp: {addr: 127.0.0.1:0}\n%s",
		filepath.Join(dir, "data"), auth)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return "", nil, err
	}
	cmd := exec.Command("docker-registry", "serve", config)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "OTEL_TRACES_EXPORTER=none"}
	log, err := cmd.StderrPipe()
	if err != nil {
		return "", nil, err
	}
	if err := cmd.Start(); err != nil {
		return "", nil, err
	}
	addr, err := listening(log)
	drained := make(chan struct{})
	go func() { // ends with the process, which stop waits for
		_, _ = io.Copy(io.Discard, log)
		close(drained)
	}()
	stop = func() {
		_ = cmd.Process.Kill()
		<-drained
		_ = cmd.Wait()
	}
	if err != nil {
		stop()
		return "", nil, err
	}
	return "http://" + addr, stop, nil
}

var listeningRE = regexp.MustCompile(`listening on (127\.0\.0\.1:\d+)`)

// listening reads the log up to the line that tells the address.
func listening(log io.Reader) (string, error) {
	var seen strings.Builder
	lines := bufio.NewScanner(log)
	for lines.Scan() {
		if m := listeningRE.FindStringSubmatch(lines.Text()); m != nil {
			return m[1], nil
		}
		fmt.Fprintln(&seen, lines.Text())
	}
	return "", fmt.Errorf("docker-registry ended: %s", seen.String())
}

// Ref is the reference that pulls name:tag from a registry's URL.
func Ref(registry, name, tag string) string {
	return strings.TrimPrefix(registry, "http://") + "/" + name + ":" + tag
}

// Push pushes an image as name:tag and returns the digest of its manifest.
func Push(registry, name, tag string, img Image) (string, error) {
	manifest, err := pushContent(registry, name, img)
	if err != nil {
		return "", err
	}
	return manifest.Digest, PushManifest(registry, name, tag, manifest)
}

// PushIndex pushes images of several platforms under one name:tag and returns
// the digest of the index.
func PushIndex(registry, name, tag string, imgs ...Image) (string, error) {
	var descs []descriptor
	for _, img := range imgs {
		manifest, err := pushContent(registry, name, img)
		if err != nil {
			return "", err
		}
		if err := PushManifest(registry, name, manifest.Digest, manifest); err != nil {
			return "", err
		}
		d := manifest.descriptor()
		osName, arch := img.platform()
		d.Platform = map[string]any{"os": osName, "architecture": arch}
		if img.Variant != "" {
			d.Platform["variant"] = img.Variant
		}
		descs = append(descs, d)
	}
	index := NewBlob("application/vnd.oci.image.index.v1+json", toJSON(map[string]any{
		"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": descs,
	}))
	return index.Digest, PushManifest(registry, name, tag, index)
}

// pushContent pushes the layers and the configuration of an image.
func pushContent(registry, name string, img Image) (manifest Blob, err error) {
	manifest, config := img.blobs()
	pushed := make(map[string]bool)
	for _, l := range img.Layers {
		if pushed[l.Digest] {
			continue
		}
		pushed[l.Digest] = true
		if err := PushBlob(registry, name, l.Blob); err != nil {
			return Blob{}, err
		}
	}
	return manifest, PushBlob(registry, name, config)
}

// PushBlob uploads a blob in one piece (OCI distribution specification, "POST
// then PUT").
func PushBlob(registry, name string, b Blob) error {
	resp, err := do(http.MethodPost, registry+"/v2/"+name+"/blobs/uploads/", "", nil, http.StatusAccepted)
	if err != nil {
		return err
	}
	base, err := url.Parse(registry)
	if err != nil {
		return err
	}
	to, err := base.Parse(resp.Header.Get("Location"))
	if err != nil {
		return err
	}
	to.User = base.User
	q := to.Query()
	q.Set("digest", b.Digest)
	to.RawQuery = q.Encode()
	_, err = do(http.MethodPut, to.String(), "application/octet-stream", b.Data, http.StatusCreated)
	return err
}

// PushManifest puts a manifest or an index under a tag or digest.
func PushManifest(registry, name, tag string, manifest Blob) error {
	_, err := do(http.MethodPut, registry+"/v2/"+name+"/manifests/"+tag, manifest.MediaType, manifest.Data,
		http.StatusCreated)
	return err
}

// do sends one request and reads the answer to its end.
func do(method, target, contentType string, body []byte, want int) (*http.Response, error) {
	req, err := http.NewRequest(method, target, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != want {
		return nil, fmt.Errorf("%s %s: %s: %s", method, target, resp.Status, answer)
	}
	return resp, nil
}
