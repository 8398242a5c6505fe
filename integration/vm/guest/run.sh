#!/bin/bash
# Runs as the user, in the login session: the tests of the case.
set -u
case=$(basename "$(readlink /run/vmtest-case)")
export HUTCH_TEST_BIN=/payload/src/bin HUTCH_TEST_SLOW=20 HUTCH_TEST_KIND=vm-${case%-whole} LANG=C.UTF-8
# /tmp is a tmpfs, which does not hold all that a state folder must before Linux 6.6.
export TMPDIR=/var/tmp
export PATH=/payload/src/bin:/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin:/payload/src/.cache/tools/usr/bin

# run PACKAGE ARGS...: its tests, between the lines that the runner looks for.
run() {
	echo "=== VM BEGIN $1"
	cd "/payload/src/$1" || exit 1
	"/payload/tests/${1//\//_}.test" -test.v=test2json -test.paniconexit0 "${@:2}" </dev/null 2>&1
	echo "=== VM END $?"
}
# beside PACKAGE ARGS...: as run, two at a time: each prints in one piece, when it has ended.
beside() {
	while (($(jobs -rp | wc -l) >= 2)); do wait -n; done
	{
		piece=$(mktemp /var/tmp/vmtest-XXXXXX)
		run "$@" >"$piece"
		{ flock 9 && cat "$piece"; } 9>/var/tmp/vmtest-lock
		rm "$piece"
	} &
}
# A test that was late runs again: vmtest.again=PACKAGE:TEST:COUNT on the kernel's command line.
again=$(sed -n 's/.*vmtest\.again=\([^ ]*\).*/\1/p' /proc/cmdline)
if [ -n "$again" ]; then
	IFS=: read -r package test count <<<"$again"
	run "$package" -test.timeout=20m -test.short "-test.run=^$test\$" "-test.count=$count"
	exit 0
fi
# shellcheck source=/dev/null
. /run/vmtest-case
wait
