#!/bin/sh
# buildid.sh prints a hash of everything that goes into the binaries: 12 digits,
# the same in a checkout, a dirty checkout and an unpacked archive of one tree.
set -eu
cd "$(dirname -- "$0")/../.."

# Not what tests, readers and the compiler alone see: a change there must not
# make running daemons look foreign.
find cmd runtime images seccomp cgroups netfilter internal go.mod go.sum \
	\( -name testdata -o -path internal/tools -o -path internal/build \) -prune -o \
	-type f ! -name '*_test.go' ! -name '*.md' ! -path runtime/guest/stub/stub ! -path runtime/launch/swap/swap -print 2>/dev/null |
	LC_ALL=C sort | xargs sha256sum | sha256sum | cut -c 1-12
