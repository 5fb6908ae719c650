/**
 * What `cnapi cp` runs on the server, with sh, cat, tar and wc. Paths are arguments, so nothing in
 * them is read by the shell.
 *
 * A file appears under its name when all of it has arrived, or not at all.
 */

/** Arguments: target, name of the source, mode (octal), bytes. Reads the file. */
export const RECEIVE_FILE = `set -u
target=$1
case $target in
  */) mkdir -p -- "$target" && target=$target$2 ;;
  *) if [ -d "$target" ]; then target=$target/$2; fi ;;
esac || exit 1
if [ -d "$target" ]; then echo "$target is a directory" >&2; exit 1; fi
part=$target.$$.cnapi-part
trap 'rm -f -- "$part"' EXIT
trap 'exit 1' HUP INT TERM
(umask 077; cat >"$part") || exit 1
if [ "$(wc -c <"$part")" -ne "$4" ]; then echo "only a part of the file arrived" >&2; exit 1; fi
chmod -- "$3" "$part" && mv -f -- "$part" "$target"
`;

/** Argument: the path. Writes the mode (octal) and the bytes as a line, and then the file. */
export const SEND_FILE = `set -u
if [ -d "$1" ]; then echo "$1 is a directory; copy it with -r" >&2; exit 1; fi
if [ ! -f "$1" ]; then echo "there is no file $1" >&2; exit 1; fi
stat -c '%a %s' -- "$1" && exec cat -- "$1"
`;

/** Argument: the directory, which is created. Reads an archive of tar. */
export const RECEIVE_TREE = `set -u
mkdir -p -- "$1" && exec tar -xf - -C "$1"
`;

/** Argument: the directory. Writes an archive of tar with what it holds. */
export const SEND_TREE = `set -u
if [ ! -d "$1" ]; then echo "$1 is not a directory; leave -r out" >&2; exit 1; fi
exec tar -cf - -C "$1" .
`;
