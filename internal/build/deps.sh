#!/bin/sh
# deps.sh installs what is missing of the named groups: go, build, test, agents,
# obeyed, sdk, e2b, rest, bench, generate.
#
#   usage: deps.sh [--require] GROUP...
#
# As root, or where sudo asks for no password, it prints the command and runs
# it. Otherwise, and with NO_INSTALL=1, it only prints the command. It fails
# when something is missing that the build cannot do without; what only widens
# the id map or the tests is reported, and fatal with --require alone.
set -eu

root=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)
strict=
if [ "${1-}" = --require ]; then
	strict=1
	shift
fi

# Probes: for the thing itself, so that what came by other ways than packages
# counts too. table names them; eval calls them.
# shellcheck disable=SC2317
{
	have_cmd() { command -v "$1" >/dev/null 2>&1; }
	have_cc() { have_cmd "${CC:-gcc}"; }
	have_go() {
		for go in "$(command -v go || true)" "$root"/.cache/go/*/bin/go /usr/local/go/bin/go /usr/lib/go*/bin/go; do
			[ -x "$go" ] && return 0
		done
		return 1
	}
	have_libseccomp() { have_static seccomp && have_cmd pkg-config && pkg-config --exists libseccomp; }
	have_registry() { have_cmd docker-registry || have_cmd registry || [ -x "$root/.cache/tools/usr/bin/docker-registry" ]; }

	# The lock file gets its name there when all of it is installed.
	have_mcp() { cmp -s "$root/integration/agent/testdata/mcp/package-lock.json" "$root/.cache/mcp/package-lock.json"; }

	# The compiler of TypeScript, and what the suite sdk runs: versions of Node, Bun, Deno and packages that use ours.
	have_typescript() { cmp -s "$root/sdk/typescript/package-lock.json" "$root/.cache/typescript/package-lock.json"; }
	have_sdk() { cmp -s "$root/integration/sdk/testdata/npm/package-lock.json" "$root/.cache/sdk-npm/package-lock.json"; }

	have_obeyed() { cmp -s "$root/integration/obeyed/testdata/npm/package-lock.json" "$root/.cache/obeyed/package-lock.json"; }

	# Of the agents of shipped templates there are the packages alone, as registries have them.
	agents=$root/runtime/template/shipped
	# have_agents [TEMPLATE]: of one, or of all.
	have_agents() {
		for lock in "$agents"/${1:-*}/package-lock.json "$agents"/${1:-*}/requirements.txt; do
			[ ! -e "$lock" ] || cmp -s "$lock" "$root/.cache/agents/${lock#"$agents"/}" || return 1
		done
	}

	have_python() { /usr/bin/python3 -c "import $1" 2>/dev/null; }
	have_frameworks() { cmp -s "$root/integration/sdk/testdata/requirements.txt" "$root/.cache/sdk/requirements.txt"; }
	# have_e2b NAME: the SDK that this folder of the tests locks is installed.
	have_e2b() {
		for lock in package-lock.json requirements.txt; do
			cmp -s "$root/integration/e2b/testdata/$1/$lock" "$root/.cache/e2b/$1/$lock" && return 0
		done
		return 1
	}
	have_rest() { cmp -s "$root/integration/web/testdata/requirements.txt" "$root/.cache/rest/requirements.txt"; }
	have_pip() { python3 -m pip --version >/dev/null 2>&1; }

	# have_static NAME: the compiler answers with a path when it has libNAME.a.
	have_static() {
		have_cc || return 1
		case $("${CC:-gcc}" -print-file-name="lib$1.a") in */*) ;; *) return 1 ;; esac
	}
}

# family names the package manager whose names the tables below use.
family() {
	for m in apt-get dnf apk; do
		if have_cmd "$m"; then
			echo "$m"
			return
		fi
	done
	echo none
}
manager=$(family)

# table GROUP prints: need, weight (must or may), probe, and the packages of
# apt-get, dnf and apk, "-" where the distribution has none.
table() {
	case $1 in
	go)
		echo 'go          must have_go               golang-go      golang                go'
		;;
	build)
		echo 'compiler    must have_cc               gcc            gcc                   gcc
libc        must have_static:c         libc6-dev      glibc-static          musl-dev
pkg-config  must have_cmd:pkg-config   pkg-config     pkgconf-pkg-config    pkgconf
libseccomp  must have_libseccomp       libseccomp-dev libseccomp-devel,libseccomp-static libseccomp-dev,libseccomp-static
newuidmap   may  have_cmd:newuidmap    uidmap         shadow-utils          shadow-subids'
		;;
	test)
		echo 'git         may  have_cmd:git          git            git                   git
curl        may  have_cmd:curl         curl           curl                  curl
python3     may  have_cmd:python3      python3        python3               python3
curl        may  have_cmd:curl         curl           curl                  curl
setpriv     may  have_cmd:setpriv      util-linux     util-linux            setpriv
ps          may  have_cmd:ps           procps         procps-ng             procps
setcap      may  have_cmd:setcap       libcap2-bin    libcap                libcap-setcap
busybox     may  have_cmd:busybox      busybox-static busybox               busybox-static
mmdebstrap  may  have_cmd:mmdebstrap   mmdebstrap     -                     -
registry    may  have_registry         docker-registry docker-distribution  docker-registry
passt       may  have_cmd:pasta        passt          passt                 passt
slirp4netns may  have_cmd:slirp4netns  slirp4netns    slirp4netns           slirp4netns
musl-gcc    may  have_cmd:musl-gcc     musl-tools     musl-gcc              -
chromium    may  have_cmd:chromium     chromium       chromium              chromium
bwrap       may  have_cmd:bwrap        bubblewrap     bubblewrap            bubblewrap
stress-ng   may  have_cmd:stress-ng    stress-ng      stress-ng             stress-ng
crun        may  have_cmd:crun         crun           crun                  crun
runc        may  have_cmd:runc         runc           runc                  runc
shellcheck  may  have_cmd:shellcheck   shellcheck     ShellCheck            shellcheck
node        may  have_cmd:node         nodejs         nodejs                nodejs
npm         may  have_cmd:npm          npm            npm                   npm
agent       may  have_agents:claude    -              -                     -
mcp-suite   may  have_mcp              -              -                     -
e2b-js-new  may  have_e2b:js-new       -              -                     -
typescript  may  have_typescript       -              -                     -'
		;;
	agents)
		echo 'pip         may  have_pip              python3-pip    python3-pip           py3-pip
venv        may  have_python:ensurepip python3-venv   python3-libs          python3
agents      may  have_agents           -              -                     -'
		;;
	obeyed)
		# Programs that the suite of that name runs on the host. Each is in the test's own word what it is for.
		echo 'vim         may  have_cmd:vim          vim            vim-enhanced          vim
nvim        may  have_cmd:nvim         neovim         neovim                neovim
emacs       may  have_cmd:emacs        emacs-nox      emacs-nox             emacs-nox
nano        may  have_cmd:nano         nano           nano                  nano
zsh         may  have_cmd:zsh          zsh            zsh                   zsh
tcsh        may  have_cmd:tcsh         tcsh           tcsh                  tcsh
ksh93       may  have_cmd:ksh93        ksh93u+m       ksh                   -
fish        may  have_cmd:fish         fish           fish                  fish
tmux        may  have_cmd:tmux         tmux           tmux                  tmux
screen      may  have_cmd:screen       screen         screen                screen
less        may  have_cmd:less         less           less                  less
rg          may  have_cmd:rg           ripgrep        ripgrep               ripgrep
wget        may  have_cmd:wget         wget           wget                  wget
sqlite3     may  have_cmd:sqlite3      sqlite3        sqlite                sqlite
run-mailcap may  have_cmd:run-mailcap  mailcap        mailcap               -
gpg         may  have_cmd:gpg          gpg            gnupg2                gnupg
gpg-agent   may  have_cmd:gpg-agent    gpg-agent      gnupg2                gnupg
hg          may  have_cmd:hg           mercurial      mercurial             mercurial
pre-commit  may  have_cmd:pre-commit   pre-commit     pre-commit            pre-commit
direnv      may  have_cmd:direnv       direnv         direnv                direnv
gdb         may  have_cmd:gdb          gdb            gdb                   gdb
ansible     may  have_cmd:ansible      ansible-core   ansible-core          ansible-core
irb         may  have_cmd:irb          ruby           ruby                  ruby
bundle      may  have_cmd:bundle       ruby-bundler   rubygem-bundler       ruby-bundler
pry         may  have_cmd:pry          pry            rubygem-pry           -
R           may  have_cmd:R            r-base-core    R-core                R
iex         may  have_cmd:iex          elixir         elixir                elixir
ocaml       may  have_cmd:ocaml        ocaml-interp   ocaml                 ocaml
npm-tools   may  have_obeyed           -              -                     -'
		;;
	sdk)
		# Frameworks that docs/examples/agents is for, and what the images of its sandboxes have.
		echo 'pip         may  have_pip              python3-pip    python3-pip           py3-pip
numpy       may  have_python:numpy     python3-numpy  python3-numpy         py3-numpy
pillow      may  have_python:PIL       python3-pil    python3-pillow        py3-pillow
pypy3       may  have_cmd:pypy3        pypy3          pypy3                 pypy3
frameworks  may  have_frameworks       -              -                     -
runtimes    may  have_sdk              -              -                     -'
		;;
	e2b)
		# E2B's SDKs, of today and of half a year before.
		echo 'pip         may  have_pip              python3-pip    python3-pip           py3-pip
e2b-js-old  may  have_e2b:js-old       -              -                     -
e2b-py-new  may  have_e2b:py-new       -              -                     -
e2b-py-old  may  have_e2b:py-old       -              -                     -'
		;;
	rest)
		# A validator of OpenAPI documents, and a program that makes requests of one.
		echo 'pip         may  have_pip              python3-pip    python3-pip           py3-pip
rest        may  have_rest             -              -                     -'
		;;
	bench)
		# Peers that only the benchmark has. crane is in no distribution: the benchmark says how to get it.
		echo 'podman      may  have_cmd:podman       podman         podman                podman
skopeo      may  have_cmd:skopeo       skopeo         skopeo                skopeo
umoci       may  have_cmd:umoci        umoci          umoci                 umoci
firejail    may  have_cmd:firejail     firejail       firejail              firejail'
		;;
	generate)
		# Pinned: the same compiler makes the same eBPF object.
		echo 'clang-19    must have_cmd:clang-19     clang-19       -                     -
llvm-19     must have_cmd:llvm-strip-19 llvm-19       -                     -'
		;;
	*)
		echo "deps.sh: unknown group $1 (go, build, test, agents, obeyed, sdk, e2b, rest, bench, generate)" >&2
		exit 2
		;;
	esac
}

# missing GROUP... prints "need weight packages" for every probe that fails.
missing() {
	for group in "$@"; do
		table "$group" | while read -r need weight probe apt dnf apk; do
			if ! eval "$(echo "$probe" | tr : ' ')"; then
				case $manager in
				apt-get) echo "$need $weight $apt" ;;
				dnf) echo "$need $weight $dnf" ;;
				apk) echo "$need $weight $apk" ;;
				*) echo "$need $weight $need" ;;
				esac
			fi
		done
	done
}

# packages reads missing's lines and prints the package names. Debian's registry
# package would start a service on port 5000, so that one is only unpacked.
packages() {
	while read -r _ _ names; do
		case $manager:$names in
		*:- | apt-get:docker-registry) ;;
		*) echo "$names" | tr ',' '\n' ;;
		esac
	done | sort -u | tr '\n' ' '
}

# command_for PACKAGES prints the one line that installs them.
command_for() {
	case $manager in
	apt-get) echo "apt-get -q update && DEBIAN_FRONTEND=noninteractive apt-get -qy -o DPkg::Lock::Timeout=300 install --no-install-recommends $1" ;;
	dnf) echo "dnf -y install $1" ;;
	apk) echo "apk add $1" ;;
	esac
}

# install PACKAGES installs them when this user may.
install() {
	line=$(command_for "${1% }")
	sudo=
	if [ "$(id -u)" != 0 ]; then
		sudo='sudo sh -c'
		have_cmd sudo || sudo='su -c'
		line="$sudo '$line'"
	fi
	if [ "$manager" = none ]; then
		echo "deps: no apt-get, dnf or apk here; please install: $1"
	elif [ "${NO_INSTALL-}" = 1 ] || { [ -n "$sudo" ] && ! sudo -n true 2>/dev/null; }; then
		echo "deps: some packages are missing; this installs them:"
		echo "    $line"
	else
		echo "deps: installing what is missing:"
		echo "    $line"
		mkdir -p "$root/.cache"
		log=$root/.cache/deps.log
		if ! sh -c "$line" >"$log" 2>&1 </dev/null; then
			tail -n 20 "$log"
			echo "deps: that failed; the whole output is in .cache/deps.log"
		fi
	fi
}

# unpack_registry gets Debian's registry without installing it; no root needed.
unpack_registry() {
	[ "$manager" = apt-get ] && [ "${NO_INSTALL-}" != 1 ] && have_cmd dpkg-deb || return 0
	echo "deps: unpacking docker-registry into .cache/tools (for the tests)"
	mkdir -p "$root/.cache/tools"
	dir=$(mktemp -d)
	chmod 0755 "$dir"
	# Without package lists an ordinary user gets nothing here: the tests that
	# need the registry then say so.
	(cd "$dir" && apt-get -q download docker-registry && dpkg-deb -x docker-registry_*.deb "$root/.cache/tools") >/dev/null 2>&1 || true
	rm -rf "$dir"
}

# install_npm TITLE FROM TO gets the packages that FROM, a folder of the tests, locks, each by its hash, into TO; no root
# needed, and no package's own script is run.
install_npm() {
	[ "${NO_INSTALL-}" != 1 ] && have_cmd npm || return 0
	echo "deps: installing $1 into $3 (for the tests)"
	from=$root/$2 to=$root/$3
	rm -rf "$to"
	mkdir -p "$to"
	cp "$from/package.json" "$to/"
	cp "$from/package-lock.json" "$to/npm-shrinkwrap.json" # which npm reads as it does the other
	if (cd "$to" && npm ci --ignore-scripts --no-audit --no-fund) >"$to.log" 2>&1 </dev/null; then
		mv "$to/npm-shrinkwrap.json" "$to/package-lock.json"
	else
		tail -n 5 "$to.log"
		echo "deps: that failed; the whole output is in $3.log"
	fi
}

# install_pip is install_npm of Python's packages: FROM has requirements.txt.
install_pip() {
	[ "${NO_INSTALL-}" != 1 ] && have_pip || return 0
	echo "deps: installing $1 into $3 (for the tests)"
	from=$root/$2/requirements.txt to=$root/$3
	rm -rf "$to"
	mkdir -p "$to"
	if python3 -m pip install -q --disable-pip-version-check --require-hashes --only-binary :all: --no-deps --no-compile \
		--target "$to" -r "$from" >"$to.log" 2>&1 </dev/null; then
		cp "$from" "$to/"
	else
		tail -n 5 "$to.log"
		echo "deps: that failed; the whole output is in $3.log"
	fi
}

# fetch_agents gets the packages that the lock files of shipped templates name, each by its hash, as npm's cache and as
# wheels, for a registry on the loopback. A failure of one leaves its test out. fetch_agents [TEMPLATE].
fetch_agents() {
	[ "${NO_INSTALL-}" != 1 ] && have_cmd npm && have_pip || return 0
	echo "deps: fetching the packages of agents into .cache/agents (for the tests)"
	to=$root/.cache/agents
	mkdir -p "$to/wheels"
	for lock in "$agents"/${1:-*}/package-lock.json "$agents"/${1:-*}/requirements.txt; do
		have=$to/${lock#"$agents"/}
		if [ ! -e "$lock" ] || cmp -s "$lock" "$have"; then
			continue
		fi
		dir=$(mktemp -d)
		mkdir -p "$(dirname "$have")"
		if case $lock in
			*.json)
				cp "${lock%/*}/package.json" "$lock" "$dir/"
				npm ci --ignore-scripts --no-audit --no-fund --prefix "$dir" --cache "$to/npm"
				;;
			*)
				/usr/bin/python3 -m pip download -q --disable-pip-version-check --require-hashes --only-binary :all: \
					--no-deps --dest "$to/wheels" -r "$lock"
				;;
			esac >"$to.log" 2>&1 </dev/null; then
			cp "$lock" "$have"
		else
			tail -n 5 "$to.log"
			echo "deps: that failed; the whole output is in .cache/agents.log"
		fi
		rm -rf "$dir"
	done
}

lacking=$(missing "$@")
[ -n "$lacking" ] || exit 0
names=$(echo "$lacking" | packages)
[ -z "$names" ] || install "$names"
case $lacking in *registry*) unpack_registry ;; esac
case $lacking in *mcp-suite*) install_npm 'the conformance suite of MCP' integration/agent/testdata/mcp .cache/mcp ;; esac
case $lacking in *typescript*) install_npm 'the compiler of TypeScript' sdk/typescript .cache/typescript ;; esac
case $lacking in *runtimes*) install_npm 'Node, Bun and Deno' integration/sdk/testdata/npm .cache/sdk-npm ;; esac
case "$*" in
*agents*) have_agents || fetch_agents ;;
*test*) have_agents claude || fetch_agents claude ;;
esac
case $lacking in *npm-tools*) install_npm 'hooks and package managers' integration/obeyed/testdata/npm .cache/obeyed ;; esac
case $lacking in *frameworks*) install_pip 'frameworks of agents' integration/sdk/testdata .cache/sdk ;; esac
case $lacking in *rest*) install_pip 'schemathesis' integration/web/testdata .cache/rest ;; esac
for sdk in js-new js-old; do
	case $lacking in *e2b-$sdk*) install_npm "E2B's SDK $sdk" "integration/e2b/testdata/$sdk" ".cache/e2b/$sdk" ;; esac
done
for sdk in py-new py-old; do
	case $lacking in *e2b-$sdk*) install_pip "E2B's SDK $sdk" "integration/e2b/testdata/$sdk" ".cache/e2b/$sdk" ;; esac
done

# One line for what ends the build and one for what is only less without it.
fatal='' fewer='' single=''
left=$(missing "$@")
while read -r need weight _; do
	if [ -z "$need" ]; then
		continue
	elif [ "$weight" = must ] || [ -n "$strict" ]; then
		fatal="$fatal $need"
	elif [ "$need" = newuidmap ]; then
		single=1
	else
		fewer="$fewer $need"
	fi
done <<END
$left
END
if [ -n "$fatal" ]; then
	echo "deps: cannot go on without$fatal"
	exit 1
fi
[ -z "$single" ] || echo "deps: no newuidmap: going on with a single-uid map (one user inside each sandbox)"
[ -z "$fewer" ] || echo "deps: leaving out what needs$fewer"
