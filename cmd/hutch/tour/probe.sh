# What a program sees from inside of a sandbox: one "key<TAB>value" a line.
# Arguments: the caller's home, a file to write, names that are in that home.
home=$1 mine=$2
shift 2

say() { printf '%s\t%s\n' "$1" "$2"; }

# attempt COMMAND... says whether it succeeds.
attempt() {
	if "$@" >/dev/null 2>&1; then echo allowed; else echo refused; fi
}

say program sh
say uid "$(id -u)"
say ppid "$PPID"
say hostname "$(cat /proc/sys/kernel/hostname)"
read -r inside outside count </proc/self/uid_map
say uid_map "$inside $outside $count"
for ns in user pid net mnt ipc uts cgroup; do
	say "ns_$ns" "$(readlink /proc/self/ns/$ns)"
done
while read -r key value; do
	case $key in
	Seccomp: | NoNewPrivs: | CapEff: | CapBnd:) say "${key%:}" "$value" ;;
	esac
done </proc/self/status
say pid1 "$(cat /proc/1/comm)"

seen=0
for name in "$@"; do
	if [ -e "$home/$name" ] || [ -L "$home/$name" ]; then seen=$((seen + 1)); fi
done
say home_seen "$seen"
if [ -e /etc/shadow ]; then say shadow "$(attempt cat /etc/shadow)"; else say shadow ENOENT; fi

echo 'written in the sandbox' >"$mine"
say wrote "$(cat "$mine")"

interfaces=
while IFS=: read -r name rest; do
	if [ -n "$rest" ]; then interfaces="$interfaces ${name##* }"; fi
done </proc/net/dev
say interfaces "${interfaces# }"
# Without a route there is nowhere to connect to; the first line is a heading.
routes=0
while read -r _; do routes=$((routes + 1)); done </proc/net/route
if [ "$routes" -le 1 ]; then say connect 'no route'; else say connect allowed; fi
# A new user namespace is where most kernel exploits start; a mount is the next
# best try where there is no unshare(1).
if command -v unshare >/dev/null; then
	say unshare "$(attempt unshare -U true)"
else
	say unshare "$(attempt mount -t tmpfs none /tmp)"
fi

primes=0 n=2
while [ $n -lt 1000 ]; do
	d=2 prime=1
	while [ $((d * d)) -le $n ]; do
		if [ $((n % d)) -eq 0 ]; then
			prime=0
			break
		fi
		d=$((d + 1))
	done
	primes=$((primes + prime)) n=$((n + 1))
done
say primes "$primes"
