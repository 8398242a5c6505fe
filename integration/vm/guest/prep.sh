#!/bin/sh
# Runs as root before the login session: makes the machine what the case names
# (vmtest.case= on the kernel's command line).
set -eu
stty -F /dev/ttyS1 raw -echo
case=$(sed 's/.*vmtest.case=\([^ ]*\).*/\1/' /proc/cmdline)
ln -s "/payload/cases/$case" /run/vmtest-case

# Profiles like Ubuntu's for programs that have none: unconfined but for what user
# namespaces give. A program with a profile of its own changes to that.
apparmor() {
	mountpoint -q /sys/kernel/security || mount -t securityfs securityfs /sys/kernel/security
	rules='/** rwlkm, /** pix, /usr/bin/new{u,g}idmap Ux, /usr/bin/sudo Ux, network, unix, signal, ptrace, dbus, mount, remount, umount, pivot_root, change_profile,'
	apparmor_parser -r <<-END
		abi <abi/4.0>,
		profile vm-ubuntu flags=(attach_disconnected) {
			$rules
			userns,
			audit deny capability,
		}
		profile vm-no-userns flags=(attach_disconnected) {
			$rules
			capability,
		}
	END
}

# A disk with project quotas, for a daemon of root's.
quota() {
	cp --sparse=always /payload/quota.ext4 /var/quota.ext4
	mkdir /quota
	mount -o loop,prjquota /var/quota.ext4 /quota
}

# What make install-netd does, for a user of its group.
netd() {
	groupadd --system hutch
	usermod -aG hutch dev
	install -d /usr/local/libexec/hutch
	install -o root -g hutch -m 0750 /payload/src/bin/hutch-netd /usr/local/libexec/hutch/
	setcap cap_bpf,cap_net_admin=ep /usr/local/libexec/hutch/hutch-netd
}

case $case in
quota) quota ;;
netd*) netd ;;
apparmor) apparmor ;;
single) sed -i '/^dev:/d' /etc/subuid /etc/subgid ;;
delegation) # as older distributions have it
	mkdir -p /etc/systemd/system/user@.service.d
	printf '[Service]\nDelegate=\nDelegate=memory pids\n' >/etc/systemd/system/user@.service.d/00-older.conf
	systemctl daemon-reload
	;;
esac
