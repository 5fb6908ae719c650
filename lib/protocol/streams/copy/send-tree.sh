# shellcheck shell=sh
# Argument: the directory. Writes an archive of tar with what it holds. Exits with 3 when all was sent, but something
# has changed meanwhile.
set -u
fail() { printf '%s\n' "$1" >&2; exit 1; }
command -v tar >/dev/null || fail "it has no program tar, which a copy with -r needs"
[ -d "$1" ] || fail "$1 is not a directory; leave -r out"
tar -cf - -C "$1" .
status=$?
if [ "$status" -eq 1 ]; then
  case $(tar --version 2>/dev/null) in *GNU*) exit 3 ;; esac
fi
exit "$status"
