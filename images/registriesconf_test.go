package images

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	it "github.com/hutch-sh/hutch/images/imagetest"
	"github.com/hutch-sh/hutch/runtime/api"
)

// TestAliases: an alias of registries.conf is what a short name means, with its tag or
// digest, wherever an image is named; a name with a registry and others have none.
func TestAliases(t *testing.T) {
	registry := it.StartRegistry(t)
	full := push(t, registry, "team/tools", twoLayers())
	name, _ := strings.CutSuffix(full, ":v1")
	conf := "unqualified-search-registries = [\"" + strings.TrimPrefix(registry, "http://") + "\"]\n" +
		"[aliases]\n\"tools\" = \"" + name + "\"\n\"my/tools\" = \"" + name + "\"\n\"reset\" = \"\"\n"
	s := openStore(t, Options{RegistriesConf: writeFile(t, "registries.conf", conf)})
	img, err := s.Pull(t.Context(), "tools:v1", PullOptions{})
	must(t, err)
	if img.Ref != full {
		t.Errorf("tools:v1 is %s, want %s", img.Ref, full)
	}
	for _, ref := range []string{"my/tools:v1", "tools@" + img.Digest, "tools:other@" + img.Digest, full} {
		if again, err := s.Pull(t.Context(), ref, PullOptions{Policy: PullAlways}); err != nil ||
			again.Digest != img.Digest {
			t.Errorf("pull %s: %+v, %v", ref, again, err)
		}
		if got, err := s.Get(ref); err != nil || got.ID != img.ID {
			t.Errorf("get %s: %+v, %v", ref, got, err)
		}
	}
	_, err = s.Tag("tools:v1", "tools:v2")
	must(t, err)
	if got, err := s.Get(name + ":v2"); err != nil || got.ID != img.ID {
		t.Errorf("tagged: %+v, %v", got, err)
	}
	for ref, want := range map[string]string{
		"team/tools:v1": "docker.io/team/tools:v1", // a search would find it
		"reset:v1":      "docker.io/library/reset:v1", "docker.io/library/tools:v1": "docker.io/library/tools:v1",
		"localhost/tools": "localhost/tools:latest", "tools": name + ":latest",
	} {
		if got, err := s.registries.Parse(ref); err != nil || got.String() != want {
			t.Errorf("%s is %v, %v, want %s", ref, got, err, want)
		}
	}
	bad := openStoreAt(t, s.Dir(),
		Options{SingleUID: s.opts.SingleUID, RegistriesConf: writeFile(t, "registries.conf",
			"[aliases]\n\"tools\" = \"no/registry\"\n")})
	if _, err := bad.Get("tools:v1"); api.ErrorCode(err) != api.FailedPrecondition {
		t.Errorf("with a damaged alias: %v", err)
	}
	if _, err := bad.Get(full); err != nil {
		t.Errorf("a full name needs no alias: %v", err)
	}
}

// TestDigestPins: name@digest and name:tag@digest are that content whatever the tag has
// become, and a registry that has other content for a digest is refused.
func TestDigestPins(t *testing.T) {
	registry := it.StartRegistry(t)
	old := it.Image{Layers: []it.Layer{it.NewLayer(it.Tar(it.Text("f", "old")), it.Gzip)}}
	pinned, err := it.Push(registry, "app", "v1", old)
	must(t, err)
	moved, err := it.Push(registry, "app", "v1", twoLayers())
	must(t, err)
	name, _ := strings.CutSuffix(it.Ref(registry, "app", "v1"), ":v1")
	for ref, want := range map[string]string{name + "@" + pinned: pinned, name + ":v1@" + pinned: pinned, name +
		":gone@" + pinned: pinned, name + ":v1": moved} {
		s := openStore(t, Options{})
		if img, err := s.Pull(t.Context(), ref, PullOptions{}); err != nil || img.Digest != want {
			t.Errorf("%s: %+v, %v, want %s", ref, img, err, want)
		}
	}
	s := openStore(t, Options{})
	if _, err := s.Pull(t.Context(), name+"@sha256:"+strings.Repeat("0", 64),
		PullOptions{}); api.ErrorCode(err) != api.NotFound {
		t.Errorf("a digest that is not there: %v", err)
	}
	for _, ref := range []string{name + "@sha256:12", name + "@md5:" + strings.Repeat("0", 32), name + "@sha256:" +
		strings.Repeat("G", 64)} {
		if _, err := s.Pull(t.Context(), ref, PullOptions{}); api.ErrorCode(err) != api.InvalidArgument {
			t.Errorf("%s: %v", ref, err)
		}
	}
	liar := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, registry+strings.Replace(r.URL.Path, pinned, moved, 1), http.StatusTemporaryRedirect)
	}))
	defer liar.Close()
	name, _ = strings.CutSuffix(it.Ref(liar.URL, "app", "v1"), ":v1")
	if _, err := s.Pull(t.Context(), name+"@"+pinned, PullOptions{}); err == nil ||
		!strings.Contains(err.Error(), "digest") {
		t.Errorf("a manifest with another digest: %v", err)
	} else {
		t.Log(api.ErrorCode(err), err)
	}
	wantClean(t, s, 0)
}

// TestMirrors: the first mirror that has the image serves it; one for digests only does not
// serve tags; the registry's own password does not go to a mirror.
func TestMirrors(t *testing.T) {
	registry := it.StartRegistry(t)
	push(t, registry, "mirror/app", twoLayers())
	digest, err := it.Push(registry, "mirror/app", "v1", twoLayers())
	must(t, err)
	var asked, told atomic.Int32
	empty := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if r.Header.Get("Authorization") != "" {
			told.Add(1)
		}
		http.NotFound(w, r)
	}))
	defer empty.Close()
	host := func(url string) string { return strings.TrimPrefix(url, "http://") }
	conf := func(pull string) Options {
		return Options{
			AuthFile: writeFile(t, "auth.json", `{"auths":{"127.0.0.1:1":{"auth":"bWU6c2VjcmV0"}}}`),
			RegistriesConf: writeFile(t, "registries.conf",
				"[[registry]]\nlocation = \"127.0.0.1:1\"\ninsecure = true\n"+
					"[[registry.mirror]]\nlocation = \""+host(empty.URL)+"\"\ninsecure = true\n"+
					"[[registry.mirror]]\nlocation = \""+host(registry)+
					"/mirror\"\ninsecure = true\npull-from-mirror = \""+
					pull+"\"\n"),
		}
	}
	_, err = openStore(t, conf("all")).Pull(t.Context(), "127.0.0.1:1/app:v1", PullOptions{})
	must(t, err)
	if asked.Load() == 0 || told.Load() != 0 {
		t.Errorf("the first mirror was asked %d times, %d times with a password", asked.Load(), told.Load())
	}
	s := openStore(t, conf("digest-only"))
	if _, err := s.Pull(t.Context(), "127.0.0.1:1/app:v1", PullOptions{}); api.ErrorCode(err) != api.Unavailable {
		t.Errorf("a tag, of a mirror for digests: %v", err)
	}
	_, err = s.Pull(t.Context(), "127.0.0.1:1/app@"+digest, PullOptions{})
	must(t, err)
}

// TestInsecure: plain HTTP needs the word of registries.conf, but for loopback; and there
// registries.conf can forbid it.
func TestInsecure(t *testing.T) {
	registry := it.StartRegistry(t)
	ref := push(t, registry, "app", twoLayers())
	for insecure, ok := range map[string]bool{"true": true, "false": false} {
		conf := "[[registry]]\nlocation = \"" + strings.TrimPrefix(registry, "http://") + "\"\ninsecure = " +
			insecure + "\n"
		s := openStore(t, Options{RegistriesConf: writeFile(t, "registries.conf", conf)})
		if _, err := s.Pull(t.Context(), ref, PullOptions{}); (err == nil) != ok || err != nil &&
			api.ErrorCode(err) != api.Unavailable {
			t.Errorf("insecure = %s: %v", insecure, err)
		}
	}
	_, err := openStore(t, Options{}).Pull(t.Context(), ref, PullOptions{})
	must(t, err)
}
