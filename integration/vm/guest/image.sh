#!/bin/sh
# Turns a fresh root folder into the guest's: image.sh ROOT KERNELS. What differs
# between runs is not here but on the payload disk.
set -eu
root=$1
kernels=$2

# Debian's cloud kernels have NVMe and ext4 built in; the rest are modules.
mkdir -p "$root/usr/lib/modules"
for modules in "$kernels"/lib/modules/* "$kernels"/usr/lib/modules/*; do
	[ -d "$modules" ] || continue
	cp -a "$modules" "$root/usr/lib/modules/"
	rm -f "$root/usr/lib/modules/$(basename "$modules")/vmlinuz"
	chroot "$root" depmod "$(basename "$modules")"
done

chroot "$root" useradd --create-home --uid 1000 --shell /bin/bash dev
grep -q '^dev:' "$root/etc/subuid"
# A cloud image would make these on first boot, slowly.
echo 0123456789abcdef0123456789abcdef >"$root/etc/machine-id"
echo vm >"$root/etc/hostname"
printf '127.0.0.1 localhost vm\n' >"$root/etc/hosts"
: >"$root/etc/fstab"

# Under emulation each of these costs seconds, and no test is about them.
for unit in apparmor.service systemd-udevd.service systemd-udevd-control.socket systemd-udevd-kernel.socket \
	systemd-udev-trigger.service systemd-udev-settle.service systemd-binfmt.service proc-sys-fs-binfmt_misc.automount \
	systemd-hwdb-update.service systemd-journal-flush.service systemd-update-utmp.service systemd-random-seed.service \
	systemd-timesyncd.service systemd-pcrphase.service systemd-firstboot.service systemd-sysusers.service \
	systemd-modules-load.service systemd-remount-fs.service getty.target timers.target \
	modprobe@drm.service modprobe@efi_pstore.service modprobe@fuse.service modprobe@configfs.service modprobe@dm_mod.service modprobe@loop.service; do
	ln -sfn /dev/null "$root/etc/systemd/system/$unit"
done
mkdir -p "$root/etc/systemd/system-generators" "$root/usr/lib/vmtest"
for generator in "$root"/usr/lib/systemd/system-generators/*; do
	ln -sfn /dev/null "$root/etc/systemd/system-generators/$(basename "$generator")"
done
printf '[Journal]\nStorage=volatile\nRuntimeMaxUse=8M\n' >"$root/etc/systemd/journald.conf"

cat >"$root/usr/lib/vmtest/prep" <<'END'
#!/bin/sh
modprobe -a virtio_pci virtio_blk
mkdir -p /payload && mount -o ro /dev/vda /payload && exec /payload/guest/prep.sh
END
# The last word: an empty result disk means that it was never said.
cat >"$root/usr/lib/vmtest/finish" <<'END'
#!/bin/sh
sync
echo "$SERVICE_RESULT $EXIT_CODE $EXIT_STATUS" | dd of=/dev/vdb conv=notrunc,fsync status=none
END
chmod 0755 "$root"/usr/lib/vmtest/*

cat >"$root/etc/systemd/system/vmtest.target" <<'END'
[Unit]
Requires=basic.target vmtest.service
After=basic.target
AllowIsolate=yes
END
# PAMName makes a true login session, with its scope and the user's own systemd
# and bus, as somebody who comes by ssh has it.
cat >"$root/etc/systemd/system/vmtest.service" <<'END'
[Unit]
Requires=dbus.socket systemd-logind.service
After=dbus.socket systemd-logind.service systemd-user-sessions.service
SuccessAction=poweroff-immediate
FailureAction=poweroff-immediate
[Service]
Type=oneshot
User=dev
PAMName=login
WorkingDirectory=/home/dev
TTYPath=/dev/ttyS1
StandardInput=null
StandardOutput=tty
StandardError=tty
TimeoutStartSec=infinity
ExecStartPre=+/usr/lib/vmtest/prep
ExecStart=/payload/guest/run.sh
ExecStopPost=+/usr/lib/vmtest/finish
END
# The same without a session, as a system service runs.
for unit in target service; do
	sed -e '/^PAMName=/d' -e 's/vmtest.service/vmtest-nosession.service/' "$root/etc/systemd/system/vmtest.$unit" \
		>"$root/etc/systemd/system/vmtest-nosession.$unit"
done
echo 'dev ALL=(ALL) NOPASSWD: ALL' >"$root/etc/sudoers.d/dev"
