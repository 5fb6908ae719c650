# shellcheck shell=sh
# Argument: the path. Writes the mode (octal) and the bytes as a line, and then that many bytes of the file.
set -u
fail() { printf '%s\n' "$1" >&2; exit 1; }
[ ! -d "$1" ] || fail "$1 is a directory; copy it with -r"
[ -e "$1" ] || fail "there is no file $1"
[ -f "$1" ] || fail "$1 is neither a file nor a directory"
[ -r "$1" ] || fail "$1 cannot be read"
exec 3<"$1" || exit 1
facts=$(stat -L -c '%a %s' /proc/self/fd/3) || exit 1
echo "$facts"
exec head -c "${facts#* }" <&3
