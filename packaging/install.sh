#!/bin/sh
# Installs dprobes from this archive, or takes it out again.
#
#   ./install.sh [--prefix DIR]              DIR: /usr/local for root, ~/.local for others
#   ./install.sh --uninstall [--prefix DIR]
#
# What was installed is listed in DIR/share/dprobes/installed. An older version is replaced; a file
# that this script did not install is not.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
fail() {
    echo "install.sh: $1" >&2
    exit 1
}
if [ "$(id -u)" = 0 ]; then prefix=/usr/local; else prefix=${HOME:-}/.local; fi
uninstall=false
while [ $# -gt 0 ]; do
    case $1 in
        --prefix) [ $# -gt 1 ] || fail '--prefix needs a directory'; prefix=$2; shift ;;
        --prefix=*) prefix=${1#--prefix=} ;;
        --uninstall) uninstall=true ;;
        -h | --help) sed -n '2,8s/^# \{0,1\}//p' "$0"; exit 0 ;;
        *) fail "no such option: $1; --prefix DIR and --uninstall are the options" ;;
    esac
    shift
done
case $prefix in
    /.local) fail 'HOME is not set; --prefix DIR says where to install' ;;
    /*) ;;
    *) fail "--prefix needs an absolute path, not $prefix" ;;
esac
list=$prefix/share/dprobes/installed

# Removes what the list has, the last first: files before their directories, which stay if they have
# other files.
remove() {
    sed -n '1!G;h;$p' "$list" | while IFS= read -r path; do
        if [ -d "$path" ] && [ ! -L "$path" ]; then rmdir "$path" 2>/dev/null || true; else rm -f "$path"; fi
    done
}

if $uninstall; then
    [ -f "$list" ] || fail "nothing is installed under $prefix"
    copy=$(mktemp)
    cp "$list" "$copy"
    list=$copy
    remove
    rm -f "$copy"
    echo "dprobes is removed from $prefix"
    exit 0
fi

[ -x "$here/bin/dprobes" ] || fail "$here/bin/dprobes is missing: call install.sh from the unpacked archive"
"$here/bin/dprobes" --version >/dev/null || fail 'the program does not run here: it is for Linux on x86-64'
files=$(cd "$here" && find bin share lib include -type f | LC_ALL=C sort)
# Nothing is changed before everything has been looked at.
for file in $files; do
    path=$prefix/$file
    if [ -e "$path" ] && ! { [ -f "$list" ] && grep -qxF "$path" "$list"; }; then
        fail "$path is there already, and not from this script; remove it, or give another --prefix"
    fi
done
if [ -f "$list" ]; then
    old=$(mktemp)
    cp "$list" "$old"
    list=$old
    remove
    rm -f "$old"
    list=$prefix/share/dprobes/installed
fi
# Directories that this makes are listed, so that they go again.
made=$(mktemp)
directory() {
    if [ ! -d "$1" ]; then
        directory "$(dirname "$1")"
        mkdir "$1"
        echo "$1" >>"$made"
    fi
}
for file in $files; do
    path=$prefix/$file
    directory "$(dirname "$path")"
    case $file in
        bin/*) install -m 755 "$here/$file" "$path" ;;
        lib/systemd/*) sed "s,@bindir@,$prefix/bin,g" "$here/$file" >"$path"; chmod 644 "$path" ;;
        *) install -m 644 "$here/$file" "$path" ;;
    esac
    echo "$path" >>"$made"
done
echo "$list" >>"$made"
install -m 644 "$made" "$list"
rm -f "$made"
echo "$("$prefix/bin/dprobes" --version) is installed under $prefix"
case :$PATH: in *:"$prefix/bin":*) ;; *) echo "$prefix/bin is not in PATH" ;; esac
