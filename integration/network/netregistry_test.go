package network_test

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hutch-sh/hutch/images/imagetest"
	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/probe"
	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/api"
)

// packageClient is a package manager: shell scripts that run in a new folder, their home.
type packageClient struct {
	// program is what it needs, on the host and so in its image; or image is where it is.
	program, image string
	// local makes it use the registry $URL, whose certificates are in /tmp/ca.pem.
	local string
	// install gets $PACKAGE, uses it and says "installed".
	install string
	// public is a package of the registry that everybody has, one that is small.
	public string
	// registry tells the URL of the registry that it uses on this host, and host makes it use
	// $URL, which is that.
	registry, host string
}

// aptSource begins a script that makes a line the only source of packages.
const aptSource = `echo 'Acquire::https::CaInfo "/tmp/ca.pem"; Dir::Etc::sourceparts "-"; Dir::Etc::sourcelist "'$HOME'/list";' >>apt.conf
echo `

// packageClients each have a way of their own to find their registry and its address, to
// connect and to trust it.
var packageClients = map[string]packageClient{
	"pip": {
		program: "/usr/bin/pip",
		local:   "export PIP_INDEX_URL=$URL/pip/ PIP_CERT=/tmp/ca.pem",
		install: `python3 -m pip install -q --target lib --no-deps --no-cache-dir "$PACKAGE" && PYTHONPATH=lib python3 -c "import $PACKAGE" && echo installed`,
		public:  "six", registry: "python3 -m pip config get global.index-url || python3 -c 'from pip._internal.models.index import PyPI; print(PyPI.simple_url)'", host: "export PIP_INDEX_URL=$URL",
	},
	"npm": {
		program: "/usr/bin/npm",
		local:   "export npm_config_registry=$URL/npm/ npm_config_cafile=/tmp/ca.pem",
		install: `npm install --no-audit --no-fund --no-update-notifier --loglevel=error "$PACKAGE" && node -e "require('$PACKAGE')" && echo installed`,
		public:  "is-number", registry: "npm config get registry", host: "export npm_config_registry=$URL",
	},
	"go": {
		program: "/usr/local/go/bin/go",
		local:   "export GOPROXY=$URL/go GOSUMDB=off SSL_CERT_FILE=/tmp/ca.pem PACKAGE=m.test/$PACKAGE",
		install: `go mod init -C . a.test && go get -modcacherw "$PACKAGE" && go list -m "$PACKAGE" && echo installed`,
		public:  "golang.org/x/xerrors", registry: "go env GOPROXY | sed 's/[,|].*//'", host: "export GOPROXY=$URL",
	},
	"cargo": {
		local:   `printf '[source.crates-io]\nreplace-with = "local"\n[source.local]\nregistry = "sparse+%s/cargo/"\n' $URL >$CARGO_HOME/config.toml; export CARGO_HTTP_CAINFO=/tmp/ca.pem`,
		install: `cargo init -q --vcs none --lib --name a . && cargo add -q "$PACKAGE" && cargo fetch -q && ls -d $CARGO_HOME/registry/src/*/$PACKAGE-* && echo installed`,
		// Its folder of what the registry has is named after it.
		public: "itoa", registry: "ls $CARGO_HOME/registry/index | sed -n 's|^\\(.*\\)-[0-9a-f]*$|https://\\1|p'",
	},
	"apt": {
		image:   "debian",
		local:   aptSource + `"deb [trusted=yes] $URL/apt ./" >$HOME/list`,
		install: `apt-get -q update && apt-get -qy install --reinstall "$PACKAGE" && ls $HOME/debs/*.deb && echo installed`,
		// One suite is enough, and of that what needs nothing else.
		registry: `apt-get update --print-uris | grep InRelease | tail -1 | cut -d"'" -f2`,
		host: aptSource + `"deb [trusted=yes] ${URL%/dists/*} $(echo $URL | sed 's|.*/dists/||; s|/InRelease||') main" >$HOME/list
echo 'APT::Get::Download-Only "true";' >>apt.conf
apt-get -q update
PACKAGE=$(apt-cache dumpavail | awk 'BEGIN { RS = ""; FS = "\n" } !/\n(Pre-)?Depends:/ && match($0, /\nSize: [0-9]+/) {
	size = substr($0, RSTART + 7) + 0; if (!least || size < least) { least = size; name = substr($1, 10) }
} END { print name }')`,
	},
}

// script is a shell script of the client in a folder of its own, with a registry at url
// that it gets to know of by setup. What is meant to fail is not tried again.
func (c packageClient) script(setup, url, pkg string, patient bool) string {
	b := strings.Builder{}
	b.WriteString(`set -e
HOME=$(mktemp -d)
cd "$HOME"
mkdir -p .cargo project debs/partial
echo 'APT::Sandbox::User "root"; APT::Install-Recommends "false"; Dir::Cache::archives "'$HOME'/debs";' >apt.conf
export HOME LC_ALL=C.UTF-8 CARGO_HOME=$HOME/.cargo GOPATH=$HOME/go GOCACHE=$HOME/cache GOTOOLCHAIN=local GOFLAGS= APT_CONFIG=$HOME/apt.conf
`)
	fmt.Fprintf(&b, "export PATH=%s/bin:/usr/local/go/bin:$PATH URL=%q PACKAGE=%s\n", rust, url, pkg)
	if !patient {
		b.WriteString(`export PIP_RETRIES=0 npm_config_fetch_retries=0 CARGO_NET_RETRY=0; echo 'Acquire::Retries "0";' >>apt.conf` + "\n")
	}
	return b.String() + setup + "\ncd project\n" + c.install + " || exit\n"
}

// rust is where the host's Rust is in sandboxes.
const rust = "/opt/rust"

// hostRust is the folder of the host's Rust: rustup's programs stand for some in the
// user's home, which no sandbox sees.
func hostRust(t *testing.T) string {
	t.Helper()
	world.Needs(t, "rustc")
	out, err := exec.Command("rustc", "--print", "sysroot").Output()
	if err != nil {
		testenv.Require(t, probe.Check{Name: "rustc", Status: probe.No, Detail: fmt.Sprintf("rustc --print sysroot: %v",
			err), Remedy: "rustup default stable"})
	}
	return strings.TrimSpace(string(out))
}

// sandbox is what a sandbox with the client is created with, but for its policy. It skips t
// where there is no such client.
func (c packageClient) sandbox(t *testing.T, w *netWorld) []string {
	t.Helper()
	switch {
	case c.image == "debian":
		img := imagetest.Image{Layers: []imagetest.Layer{world.DebianLayer(t)},
			Config: imagetest.Config{Env: []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}}}
		ref := world.Push(t, imagetest.StartRegistry(t), "debian", img)
		return []string{ref}
	case c.program == "":
		return []string{"-v", hostRust(t) + ":" + rust + ":ro", "host"}
	}
	world.NeedsInside(t, c.program)
	return []string{"host"}
}

// TestNetworkPackages: package managers install from a registry that is allowed, and from
// none that is not, also where the server of both is the same.
func TestNetworkPackages(t *testing.T) {
	testenv.Suite(t, "slow")
	t.Parallel()
	w := newNetWorld(t, []string{"pkg.test", "files.test", "evil.test"})
	var files string
	port, ca := tlsServer(t, registries(t, &files), "pkg.test", "files.test", "evil.test")
	at := func(name string) string { return fmt.Sprintf("%s:%d", name, port) }
	files = "https://" + at("files.test")
	for name, c := range packageClients {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sb := w.Create(t, append([]string{"--allow", at("pkg.test"), "--allow-cidr", loopback[0]},
				c.sandbox(t, w)...)...)
			w.trust(t, sb, ca)
			script := func(name string, patient bool) string {
				return c.script(c.local, "https://"+at(name), packaged, patient)
			}
			if name == "pip" { // whose files are elsewhere
				w.denied(t, sb, script("pkg.test", false), "", byName("files.test", "mode allow"))
				if _, err := w.c.UpdateNetwork(t.Context(),
					api.NetUpdateParams{Sandbox: sb,
						Add: &api.NetLists{Allow: []string{at("files.test")}}}); err != nil {
					t.Fatal(err)
				}
			}
			w.fetches(t, sb, script("pkg.test", true), "installed")
			w.denied(t, sb, script("evil.test", false), "", byName("evil.test", "mode allow"))
			w.OK(t, "rm", "-f", sb)
		})
	}
}

// TestNetworkRegistries: the registries that this host's package managers use are reached
// with a policy that names them and nothing else, which mode learn has found; and they are
// not when their name is left out.
func TestNetworkRegistries(t *testing.T) {
	testenv.Suite(t, "slow")
	t.Parallel()
	if list, err := net.Interfaces(); err != nil ||
		!slices.ContainsFunc(list,
			func(i net.Interface) bool { return i.Flags&(net.FlagUp|net.FlagLoopback) == net.FlagUp }) {
		testenv.Require(t, probe.Check{Name: "package_registry", Status: probe.No,
			Detail: fmt.Sprintf("no interface is up but loopback (%v)", err), Remedy: "a network"})
	}
	world := world.New(t)
	w := &netWorld{World: world, c: world.Connect(t)}
	for name, c := range packageClients {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sb := w.Create(t, append([]string{"--network", "learn", "--learn", "allow"}, c.sandbox(t, w)...)...)
			name, url := c.hostRegistry(t, w, sb)
			p := w.learned(t, sb, c.script(c.host, url, c.public, false))
			entry := slices.IndexFunc(p.Allow,
				func(e string) bool { return strings.HasPrefix(strings.TrimPrefix(e, "tcp://")+":", name+":") })
			if entry < 0 {
				t.Fatalf("%s of the client's configuration is not in what was learned: %q", name, p.Allow)
			}
			w.setPolicy(t, sb, p)
			w.fetches(t, sb, c.script(c.host, url, c.public, true), "installed")
			p.Allow[entry] = "other.test"
			w.setPolicy(t, sb, p)
			w.denied(t, sb, c.script(c.host, url, c.public, false), "", byName(name, "mode allow"))
			w.OK(t, "rm", "-f", sb)
		})
	}
}

// hostRegistry is the registry that the client has on this host, or in its image. It skips
// t where the host does not reach it.
func (c packageClient) hostRegistry(t *testing.T, w *netWorld, sandbox string) (name, at string) {
	t.Helper()
	unreachable := func(format string, args ...any) {
		testenv.Require(t, probe.Check{Name: "package_registry", Status: probe.No, Detail: fmt.Sprintf(format, args...),
			Remedy: "a network, and a registry in the client's configuration"})
	}
	for _, v := range []string{"HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"} {
		if os.Getenv(v) != "" {
			unreachable("a proxy of the environment (%s) stands before it", v)
		}
	}
	ask := func(script string) string {
		ctx, cancel := context.WithTimeout(t.Context(), world.Patience)
		defer cancel()
		cmd := exec.CommandContext(ctx, "sh", "-c", script)
		cmd.Env, cmd.Dir = append(os.Environ(), "TMPDIR="+w.Path("tmp"), "PATH="+os.Getenv("PATH")+
			":/usr/local/go/bin"), w.Path("tmp")
		cmd.WaitDelay = time.Second // what it has started may have its stdout
		var errs strings.Builder
		cmd.Stderr = &errs
		out, err := cmd.Output()
		if err != nil {
			unreachable("on the host: %v: %s", err, world.Abridged(errs.String()))
		}
		return string(out)
	}
	switch {
	case c.image != "":
		at = w.in(t, sandbox, c.registry).Stdout
	case c.host == "":
		script := c.script("", "", c.public, false) + c.registry
		at = ask(strings.ReplaceAll(script, rust, hostRust(t)))
		_, at, _ = strings.Cut(at, "installed\n")
	default:
		at = ask(c.registry)
	}
	at = strings.TrimSpace(at)
	u, err := url.Parse(at)
	switch {
	case err != nil || u.Hostname() == "":
		unreachable("the client has %q", at)
	case u.User != nil: // which no test shall show
		unreachable("%s asks for a password", u.Hostname())
	}
	switch {
	case c.image != "": // whose programs the host has not got
		port := map[string]string{"http": "80", "https": "443"}[u.Scheme]
		conn, err := net.DialTimeout("tcp", net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), port)), world.Patience)
		if err != nil {
			unreachable("%v", err)
		}
		_ = conn.Close()
	case c.host != "":
		ask(c.script(c.host, at, c.public, false))
	}
	return u.Hostname(), at
}

// learned is the policy that a command needs, which mode learn tells: it runs once to find
// the names, and again where they lead to addresses that learning alone does not open.
func (w *netWorld) learned(t *testing.T, sandbox, command string) api.NetPolicy {
	t.Helper()
	for range 3 {
		res := w.in(t, sandbox, command)
		n, err := w.c.Network(t.Context(), sandbox)
		if err != nil || n.Learned == nil {
			t.Fatalf("%+v, %v", n, err)
		}
		if res.ExitCode == 0 {
			return *n.Learned
		}
		if len(n.Learned.AllowCIDRs) == len(n.Network.AllowCIDRs) {
			t.Fatalf("in mode learn: %+v", res)
		}
		if _, err := w.c.UpdateNetwork(t.Context(),
			api.NetUpdateParams{Sandbox: sandbox, Add: &api.NetLists{AllowCIDRs: n.Learned.AllowCIDRs}}); err != nil {
			t.Fatal(err)
		}
	}
	t.Fatal("what was learned is never enough")
	return api.NetPolicy{}
}

func (w *netWorld) setPolicy(t *testing.T, sandbox string, p api.NetPolicy) {
	t.Helper()
	if _, err := w.c.UpdateNetwork(t.Context(), api.NetUpdateParams{Sandbox: sandbox, Network: &p}); err != nil {
		t.Fatal(err)
	}
}
