# The life of a stateful shell: what shell.go starts, in bash, dash and busybox.
#
#   5 6  the stdout and stderr of the commands; its own are /dev/null
#   8    read by the backup alone: the word to go on
#   9    to shell.go and back: a number starts a run, "done" ends it
#
# @FD@ has the fds of two files that shell.go holds open: a command, which is read
# from there so that no quoting and no pipe is between, and the traps, which a
# subshell resets.
#
# Before each run the shell is forked, into a backup with the same state: when the run
# has to be killed, the backup goes on from there. It is the child of a child, which it
# kills, because every other way to fork without waiting (&) changes $! and ignores
# SIGINT.
__hutch_backup() {
	IFS=' ' command read -r __hutch_pid __hutch_x __hutch_x __hutch_parent __hutch_x </proc/self/stat
	command echo "backup $__hutch_pid" >&9
	command kill -KILL "$__hutch_parent"
	command read -r __hutch_x <&8 || command exit
	command . @FD@/@TRAPS@
	__hutch_shell "$@"
	command exit
}
__hutch_shell() {
	command echo up >&9
	while command read -r __hutch_run <&9; do
		__hutch_set=$-
		command set +e
		command trap >|@FD@/@TRAPS@
		(
			(
				case $__hutch_set in *e*) command set -e ;; esac
				__hutch_backup "$@"
			)
			:
		)
		case $__hutch_set in *e*) command set -e ;; esac
		command . @FD@/@COMMAND@ </dev/null >&5 2>&6 5>&- 6>&- 8>&- 9>&-
		command echo "done $__hutch_run $?" >&9
	done
}
__hutch_shell
