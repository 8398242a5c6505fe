#!/bin/sh
# The end-of-file key that was pressed in a terminal before a program began to read keys reaches it as a NUL byte, and not as
# Ctrl-D.
#
# What one expects: whoever feeds a program through a pty writes Ctrl-D (VEOF) where the input ends. A program that reads
# lines gets end of file; one that has switched ICANON off gets the byte 4, which readline and line editors take for the same.
#
# What happens: the line discipline decides when the key is pressed, not when it is read. In canonical mode it puts an end
# of line that stands for nothing into its buffer, __DISABLED_CHAR, '\0' (n_tty_receive_char_special, drivers/tty/n_tty.c).
# When the program then switches to reading keys, that is what it reads. Shells ignore a NUL and wait for ever.
#
# Whom it meets: docker run -t, script(1) and any agent host that gives a program a terminal and a standard input that has
# ended already: bash starts, switches, and never ends. Press the key again when the terminal no longer reads lines:
# tcgetattr(3) on the master shows that, and a prompt is written behind the switch.
#
# Seen with Linux 6.18, bash 5.2.15. Needs python3 and bash.
set -eu
got=$(python3 - <<'P'
import os, pty, select, termios, time
def keys(canonical_first):
    master, slave = pty.openpty()
    if canonical_first:
        os.write(master, b"\x04")
    mode = termios.tcgetattr(slave)
    mode[3] &= ~(termios.ICANON | termios.ECHO)
    termios.tcsetattr(slave, termios.TCSADRAIN, mode)
    if not canonical_first:
        os.write(master, b"\x04")
    return os.read(slave, 8)
print(keys(True), keys(False))
def shell(again):
    pid, master = pty.fork()
    if pid == 0:
        os.environ["PS1"] = "ready> "
        os.execvp("bash", ["bash", "--norc", "-i"])
    os.write(master, b"\x04") # before bash reads keys
    seen, pressed, end = b"", False, time.monotonic() + 5
    while time.monotonic() < end:
        if not select.select([master], [], [], 0.1)[0]:
            continue
        try:
            data = os.read(master, 4096)
        except OSError: # nobody has the terminal any more
            os.waitpid(pid, 0)
            return "ended"
        seen += data
        if again and not pressed and b"ready> " in seen and not termios.tcgetattr(master)[3] & termios.ICANON:
            pressed = True
            os.write(master, b"\x04")
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    return "waits"
print(shell(False), shell(True))
P
)
want="b'\\x00' b'\\x04'
waits ended"
uname -r
bash --version | head -1
printf '%s\n' "$got"
[ "$got" = "$want" ] || { echo "it is no more as this file says" >&2; exit 1; }
