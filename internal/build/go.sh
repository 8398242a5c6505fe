#!/bin/sh
# go.sh runs the go command, with a toolchain that go.mod accepts:
#
#   new enough   use it
#   older        let it fetch the pinned toolchain into .cache/go, use that
#   none         install the distribution's (deps.sh go), then as above
#
# `go.sh exec COMMAND ARGS...` runs another program (a linter, say) that will call
# that same go.
#
# The toolchain is an ordinary Go module, so the user's GOPROXY, GOFLAGS and
# GOSUMDB settings apply and the checksum database vouches for the bytes. Every
# go since 1.11 can fetch it, also those that know nothing of toolchains.
set -eu

pinned=1.26.11

root=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)
wanted=$(sed -n 's/^go //p' "$root/go.mod")

# What builds here never switches toolchains behind our back.
export GOTOOLCHAIN=local
# A service without a home (cron, CI) still needs a build cache.
export HOME="${HOME:-$root/.cache/home}"

# version_of GO prints GO's version as 1.2.3, or nothing when it does not run.
# It is asked outside the module: old versions reject our go.mod.
version_of() {
	(cd / && "$1" version 2>/dev/null) | sed -n 's/.*go\([0-9][0-9.]*[0-9]\).*/\1/p' | head -n 1
}

# at_least HAVE WANT compares versions number by number.
at_least() {
	awk -v have="$1" -v want="$2" 'BEGIN {
		n = split(want, w, "."); split(have, h, ".")
		for (i = 1; i <= n; i++) {
			if (h[i] + 0 > w[i] + 0) exit 0
			if (h[i] + 0 < w[i] + 0) exit 1
		}
	}'
}

# run GO ARGS... replaces this script. Whoever calls go in turn (a linter, go
# generate, tests) must meet the same one, so its folder leads PATH.
run() {
	go=$1
	shift
	PATH=$(dirname -- "$go"):$PATH
	export PATH
	if [ "${1-}" = exec ]; then
		shift
		exec "$@"
	fi
	exec "$go" "$@"
}

# search FILTER prints the first go on this machine that FILTER accepts.
search() {
	for go in "$(command -v go || true)" /usr/local/go/bin/go /usr/lib/go/bin/go /usr/lib/go-*/bin/go; do
		if [ -x "$go" ] && version=$(version_of "$go") && [ -n "$version" ] && "$1" "$version"; then
			echo "$go"
			return 0
		fi
	done
	return 1
}
new_enough() { at_least "$1" "$wanted"; }
any() { :; }

# fetch GO DEST lets GO download and verify the pinned toolchain. DEST appears
# complete or not at all, so parallel fetches cannot meet half of one.
fetch() {
	case $(uname -m) in
	x86_64) arch=amd64 ;;
	aarch64) arch=arm64 ;;
	*) arch=$(uname -m) ;;
	esac
	module=golang.org/toolchain@v0.0.1-go$pinned.linux-$arch
	echo "go.sh: $1 is go$(version_of "$1"), go.mod needs $wanted: fetching go$pinned into .cache/go" >&2
	mkdir -p "$root/.cache"
	tmp=$(mktemp -d "$root/.cache/go-fetch.XXXXXX")
	trap 'rm -rf "$tmp"' EXIT
	trap 'exit 130' INT TERM
	# A module of its own: old versions cannot even read ours, above it.
	mkdir "$tmp/empty"
	echo 'module empty' >"$tmp/empty/go.mod"
	(cd "$tmp/empty" && GO111MODULE=on GOMODCACHE=$tmp/mod "$1" mod download -modcacherw "$module") >&2
	# Modules carry no mode bits.
	chmod 0755 "$tmp/mod/$module"/bin/* "$tmp/mod/$module"/pkg/tool/*/*
	mkdir -p "$(dirname -- "$2")"
	mv -T "$tmp/mod/$module" "$2" 2>/dev/null || [ -x "$2/bin/go" ]
	rm -rf "$tmp"
	trap - EXIT INT TERM
}

if go=$(search new_enough); then
	run "$go" "$@"
fi
own=$root/.cache/go/$pinned
if [ ! -x "$own/bin/go" ]; then
	if ! go=$(search any); then
		"$root/internal/build/deps.sh" go >&2
		go=$(search any)
	fi
	if version=$(version_of "$go") && new_enough "$version"; then
		run "$go" "$@"
	fi
	fetch "$go" "$own"
fi
export GOROOT="$own"
run "$own/bin/go" "$@"
