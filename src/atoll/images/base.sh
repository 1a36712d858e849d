#!/bin/sh
# Turns a freshly installed Debian into the image "base". Called with its root directory as the only argument.
set -eu
umask 022
root=$1

# Nothing of the machine that it was built on stays.
rm -rf "$root"/etc/resolv.conf "$root"/etc/hostname "$root"/etc/apt/apt.conf.d/99mmdebstrap \
  "$root"/etc/apt/auth.conf "$root"/etc/apt/auth.conf.d/* "$root"/var/lib/dbus/machine-id \
  "$root"/var/cache/debconf/*-old "$root"/var/lib/dpkg/*-old "$root"/etc/passwd- "$root"/etc/shadow- \
  "$root"/etc/group- "$root"/etc/gshadow- "$root"/etc/subuid- "$root"/etc/subgid-
: >"$root/etc/machine-id"
: >"$root/etc/resolv.conf"
echo atoll >"$root/etc/hostname"
printf '127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n' >"$root/etc/hosts"
find "$root/usr/share/doc" "$root/usr/share/man" "$root/usr/share/info" "$root/usr/share/locale" \
  -not -type d -not -name copyright -delete
find "$root/usr/share/doc" "$root/usr/share/man" "$root/usr/share/info" "$root/usr/share/locale" \
  -mindepth 1 -type d -empty -delete
# Packages of Java do not install without it.
mkdir -p "$root/usr/share/man/man1"
rm -f "$root"/usr/lib/python3*/EXTERNALLY-MANAGED

# dpkg and apt inside: the same leanness, and no second user for downloads, which gVisor's root cannot become.
mv "$root/etc/dpkg/dpkg.cfg.d/99mmdebstrap" "$root/etc/dpkg/dpkg.cfg.d/atoll"
cat >"$root/etc/apt/apt.conf.d/90atoll" <<'CONF'
APT::Sandbox::User "root";
Acquire::Languages "none";
CONF
if [ -n "${ATOLL_GUEST_APT_OPTIONS:-}" ]; then
  printf '%s\n' "$ATOLL_GUEST_APT_OPTIONS" >>"$root/etc/apt/apt.conf.d/90atoll"
fi

# One file for the locale instead of twelve: every program that asks for its language starts 1-2 ms sooner.
chroot "$root" localedef --add-to-archive /usr/lib/locale/C.utf8 >/dev/null

# UTC, UTF-8, and one search path for every kind of shell.
ln -sfn /usr/share/zoneinfo/Etc/UTC "$root/etc/localtime"
echo Etc/UTC >"$root/etc/timezone"
path=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
printf 'PATH="%s"\nLANG="C.UTF-8"\n' "$path" >"$root/etc/environment"
echo LANG=C.UTF-8 >"$root/etc/default/locale"
cat >"$root/etc/profile.d/atoll.sh" <<CONF
PATH="\$HOME/.local/bin:$path"
export PATH LANG="\${LANG:-C.UTF-8}"
CONF

# One tenant: whoever owns a repository, git works in it.
cat >"$root/etc/gitconfig" <<'CONF'
[init]
	defaultBranch = main
[safe]
	directory = *
CONF
cat >"$root/etc/pip.conf" <<'CONF'
[global]
disable-pip-version-check = true
root-user-action = ignore
CONF

# The user.
chroot "$root" groupadd --gid 1000 user
chroot "$root" useradd --uid 1000 --gid 1000 --groups sudo --create-home --shell /bin/bash user
echo 'user ALL=(ALL:ALL) NOPASSWD: ALL' >"$root/etc/sudoers.d/user"
chmod 0440 "$root/etc/sudoers.d/user"
mkdir -p "$root/workspace"
chroot "$root" install -d -o user -g user /home/user/.local /home/user/.local/bin
chroot "$root" chown user:user /workspace
rm -f "$root"/etc/passwd- "$root"/etc/shadow- "$root"/etc/group- "$root"/etc/gshadow- \
  "$root"/etc/subuid- "$root"/etc/subgid- "$root"/etc/.pwd.lock
# The package lists and $root/tmp are for mmdebstrap to clear: without what it keeps there, its last apt calls would
# act on the lists of this machine.
find "$root/var/log" "$root/var/tmp" -mindepth 1 -not -type d -delete
