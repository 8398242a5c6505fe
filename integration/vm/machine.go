package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// resultSize is that of the disk on which the guest leaves its last word.
const resultSize = 64 << 10

// machine is one boot.
type machine struct {
	parts   parts
	kernel  string // series
	payload string // disk with the tests
	console string // file for what the kernel says
	append  string // more of the kernel's command line
	limit   time.Duration
}

// run boots, passes what the guest prints to out, and returns when it is off. The
// error says what the guest said last when that is not success.
func (m machine) run(ctx context.Context, out io.Writer) error {
	kernel, err := m.parts.kernel(m.kernel)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "hutch-vm-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	result := filepath.Join(dir, "result")
	if err := os.WriteFile(result, make([]byte, resultSize), 0o600); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, m.limit, fmt.Errorf("the machine was not off after %v", m.limit))
	defer cancel()
	cmd := m.qemu(ctx, kernel, result)
	cmd.Env = []string{"TMPDIR=" + dir, "QEMU_MODULE_DIR=" +
		filepath.Join(m.parts.qemu(), "usr/lib/x86_64-linux-gnu/qemu")}
	cmd.Stdout = out
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return fmt.Errorf("qemu: %w\n%s%s", err, stderr.String(), tail(m.console))
	}
	last, err := os.ReadFile(result)
	if err != nil {
		return err
	}
	switch said := strings.TrimSpace(string(bytes.Trim(last, "\x00"))); said {
	case "success exited 0":
		return nil
	case "":
		return errors.New("the guest wrote no result\n" + tail(m.console))
	default:
		return fmt.Errorf("the guest ended with %q\n%s", said, tail(m.console))
	}
}

// qemu is the command. Every option was measured, or avoids a fault:
//
//   - cx16=off: with several threads TCG miscompiles cmpxchg16b (random double faults);
//   - exactly one NVMe device, since the kernel numbers them in the order in which they
//     answer; the cloud kernels have its driver built in, so there is no initrd;
//   - avx, smap, smep and pku cost emulation and add nothing here; no5lvl, mitigations=off
//     and the rest of the kernel's options likewise;
//   - with erms and fsrm the guest clears and copies pages by "rep stosb" and "rep movsb",
//     which TCG runs byte by byte: a fifth of all CPU time, and init_on_alloc as much again.
//
// QEMU runs by its own libc: the host's may be older.
func (m machine) qemu(ctx context.Context, kernel, result string) *exec.Cmd {
	root := m.parts.qemu()
	lib := filepath.Join(root, "usr/lib/x86_64-linux-gnu")
	return exec.CommandContext(ctx, filepath.Join(lib, "ld-linux-x86-64.so.2"), "--library-path", lib,
		filepath.Join(root, "usr/bin/qemu-system-x86_64"), "-L", filepath.Join(root, "usr/share/qemu"), "-L",
		filepath.Join(root, "usr/share/seabios"),
		"-M", "pc", "-accel", "tcg,thread=multi,tb-size=512",
		"-cpu", "max,cx16=off,erms=off,fsrm=off,avx=off,avx2=off,smap=off,smep=off,pku=off", "-smp", "2", "-m", "3072",
		"-nodefaults", "-display", "none", "-no-reboot", "-nic", "none",
		"-serial", "file:"+m.console, "-chardev", "stdio,id=out,signal=off", "-serial", "chardev:out",
		"-drive", "if=none,id=root,format=raw,snapshot=on,cache=unsafe,file="+m.parts.root(), "-device",
		"nvme,drive=root,serial=root",
		"-drive", "if=virtio,format=raw,readonly=on,file="+m.payload,
		"-drive", "if=virtio,format=raw,file="+result,
		"-kernel", kernel, "-append", strings.Join([]string{
			"root=/dev/nvme0n1 rootfstype=ext4 rw panic=-1 mitigations=off nokaslr no5lvl tsc=reliable no_timer_check",
			"random.trust_cpu=on quiet console=ttyS0 cgroup_no_v1=all audit=0 net.ifnames=0 nowatchdog rcupdate.rcu_expedited=1",
			"init_on_alloc=0 randomize_kstack_offset=off hardened_usercopy=off systemd.show_status=0", m.append,
		}, " "))
}

// tail is the end of the guest's console.
func tail(console string) string {
	text, _ := os.ReadFile(console)
	return string(text[max(0, len(text)-4000):])
}
