#!/bin/sh
# fetch.sh DIRECTORY: makes DIRECTORY with Debian's kernel for virtual machines, for tests that probe a kernel.
#
#   vmlinuz    the kernel, 6.1, as Debian 12 has it
#   modules/   its modules, as in /lib/modules/VERSION/kernel
#   config     how it was configured
#   version    what `uname -r` says there
#   busybox    a shell and the commands it needs, in one static file
#
# apt fetches the packages and dpkg-deb takes them apart. Nothing is installed, and no root is needed.
set -eu
[ $# = 1 ] || { echo "usage: $0 DIRECTORY" >&2; exit 2; }
[ ! -e "$1/version" ] || exit 0
mkdir -p "$(dirname "$1")"
part=$(mktemp -d "$1.XXXXXX")
trap 'rm -rf "$part"' EXIT
chmod 755 "$part"

package=$(apt-cache depends linux-image-cloud-amd64 2>/dev/null | sed -n 's/^ *Depends: \(linux-image-6\.1\.[0-9a-z.-]*\)$/\1/p' | head -n 1)
[ -n "$package" ] || { echo 'apt knows no package linux-image-cloud-amd64 with Linux 6.1' >&2; exit 1; }
# Root, too, may fetch into a directory that apt's own user cannot see.
(cd "$part" && apt-get -qq -o APT::Sandbox::User=root -o Acquire::http::Timeout=30 download "$package" busybox-static) >&2
for file in "$part"/*.deb; do
    dpkg-deb -x "$file" "$part/unpacked"
done
version=${package#linux-image-}
mkdir "$part/done"
mv "$part/unpacked/boot/vmlinuz-$version" "$part/done/vmlinuz"
mv "$part/unpacked/boot/config-$version" "$part/done/config"
mv "$part/unpacked/lib/modules/$version/kernel" "$part/done/modules"
mv "$part/unpacked/bin/busybox" "$part/done/busybox"
echo "$version" >"$part/done/version"
# If another process was faster, its directory stays.
mv -T "$part/done" "$1" 2>/dev/null || [ -e "$1/version" ]
