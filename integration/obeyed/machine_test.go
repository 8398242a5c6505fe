package obeyed_test

import (
	"os"
	"os/exec"
	"strings"
)

// accounts are programs that run for users with an account only.
func accounts() []program {
	screen := atHome("screen", "GNU Screen 4.9.0", ".screenrc", "screen touch MARK\n",
		func(u *user) {
			if err := os.MkdirAll(u.home+".screens", 0o700); err != nil {
				u.t.Fatal(err)
			}
			u.do("screen", "-D", "-m", "true")
		})
	screen.account, screen.env, screen.version = true, []string{"SCREENDIR=HERE.screens"}, []string{"screen", "-v"}
	screen.needs = []string{"screen"}
	return []program{screen}
}

// machine are programs that a machine may have, and that nothing installs for the tests. Those of Rust lie in the home
// folder of the user who called make.
func machine() []program {
	home := os.Getenv("HOME")
	rust := []string{"CARGO_HOME=" + home + "/.cargo", "RUSTUP_HOME=" + home + "/.rustup", "RUSTUP_TOOLCHAIN="}
	const manifest = "[package]\nname = \"x\"\nversion = \"1.0.0\"\n"
	cargo := func(name, row string) program {
		return program{name: name, seen: "cargo 1.95.0", rows: []string{row}, needs: []string{"cargo"},
			version: []string{"cargo", "--version"},
			made:    map[string]string{row: "[build]\nrustc-wrapper = \"HERE/tool\"\n"},
			beside:  map[string]string{"tool": shell + "exec \"$@\"\n"}, env: rust,
			before: map[string]string{"Cargo.toml": manifest, "src/lib.rs": ""},
			run: runs("cargo", "metadata", "--offline", "--format-version", "1", "--filter-platform",
				"x86_64-unknown-linux-gnu")}
	}
	rustup := func(name, row string) program {
		return program{name: name, seen: "rustup 1.29.0", rows: []string{row}, needs: []string{"rustup", "rustc"},
			version: []string{"rustup", "--version"},
			made:    map[string]string{row: "[toolchain]\npath = \"HERE/tools\"\n"},
			beside:  map[string]string{"tools/bin/rustc": shell}, env: rust, run: runs("rustc", "--version")}
	}
	docker := program{name: "docker", seen: "docker 28.2.2", rows: []string{".docker"}, needs: []string{"docker"},
		version: []string{"docker", "--version"}, home: true,
		made: map[string]string{".docker/cli-plugins/docker-hello": shell}, run: runs("docker", "help")}
	kubectl := program{name: "kubectl", seen: "kubectl 1.32.4", rows: []string{".kube"}, needs: []string{"kubectl"},
		version: []string{"kubectl", "version", "--client"}, home: true,
		made: map[string]string{".kube/config": kubeConfig},
		run:  runs("kubectl", "get", "pods", "--request-timeout=2s")}
	maven := program{name: "maven", seen: "Apache Maven 3.8.7", rows: []string{".mvn"}, needs: []string{"mvn"},
		version: []string{"mvn", "--version"}, made: map[string]string{".mvn/jvm.config": "-Xlog:gc:file=MARK\n"},
		before: map[string]string{"pom.xml": "<project/>\n"}, run: runs("mvn", "--version")}
	return []program{
		docker, kubectl, maven,
		cargo("cargo", ".cargo/config.toml"), cargo("cargo-config", ".cargo/config"),
		rustup("rust-toolchain.toml", "rust-toolchain.toml"), rustup("rust-toolchain", "rust-toolchain"),
	}
}

// toolchain is that with which hutch is built. Root has it.
func toolchain() []program {
	return []program{
		{name: "go-work", seen: "go 1.26.8", rows: []string{"go.work"}, needs: []string{"go"},
			version: []string{"go", "version"}, setup: goCaches, made: map[string]string{
				"go.work": "go 1.24\n\nuse .\n\nreplace example.com/tool => ./other-tool\n"},
			beside: map[string]string{"other-tool/go.mod": "module example.com/tool\n\ngo 1.24\n",
				"other-tool/main.go": "package main\n\nimport \"syscall\"\n\nfunc main() { syscall.Mkdir(\"MARK\", 0o755) }\n"},
			before: map[string]string{
				"go.mod":       "module example.com/x\n\ngo 1.24\n\nrequire example.com/tool v1.0.0\n\nreplace example.com/tool => ./tool\n",
				"tool/go.mod":  "module example.com/tool\n\ngo 1.24\n",
				"tool/main.go": "package main\n\nfunc main() {}\n"},
			run: runs("go", "run", "-trimpath", "example.com/tool")},
		{name: "go-env", seen: "go 1.26.8", rows: []string{".config/go"}, needs: []string{"go"}, setup: goCaches,
			home: true, made: map[string]string{".config/go/env": "GOFLAGS=-toolexec=HERE/tool\n"},
			beside: map[string]string{"tool": shell + "exit 1\n"}, before: map[string]string{"x.go": "package x\n"},
			run: runs("go", "vet", "x.go")},
	}
}

// goCaches has go take the caches of the user who runs the tests: what it compiled once is there.
func goCaches(u *user) {
	u.t.Helper()
	u.env = append(u.env, "GOTOOLCHAIN=local", "GOPROXY=off", "CGO_ENABLED=0")
	for _, name := range []string{"GOCACHE", "GOMODCACHE"} {
		out, err := exec.Command("go", "env", name).Output()
		if err != nil {
			u.t.Fatal(err)
		}
		u.env = append(u.env, name+"="+strings.TrimSpace(string(out)))
	}
}

const kubeConfig = `apiVersion: v1
kind: Config
clusters: [{name: x, cluster: {server: "https://127.0.0.1:9"}}]
users: [{name: x, user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: touch, args: [MARK], interactiveMode: Never}}}]
contexts: [{name: x, context: {cluster: x, user: x}}]
current-context: x
`
