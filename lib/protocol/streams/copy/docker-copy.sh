# shellcheck shell=sh
# Arguments: `stat`, `read` or `write`, and the path. Writes a head, which a NUL ends: the mode (hexadecimal, with
# its kind), the bytes and the time of change (seconds) of what is at the path, and in the next line where it leads
# to if it is a link. Then it writes an archive of tar with what is at the path, which is not the root; or reads
# one, with the script that follows, for the directory that is at the path.
set -u
mode=$1 path=$2
refuse() { printf 'not-found %s\n%s\0' "$1" "$2"; exit 1; }
needed='stat readlink'
[ "$mode" = stat ] || needed="$needed tar"
for program in $needed; do
  command -v "$program" >/dev/null || refuse NotSupported "the VM has no program $program, which a copy needs"
done
if [ ! -e "$path" ] && [ ! -h "$path" ]; then
  above=${path%/*}
  until [ -z "$above" ] || [ -e "$above" ]; do above=${above%/*}; done
  [ -z "$above" ] || [ -d "$above" ] || refuse PathNotDirectory "path was not a directory: $path"
  refuse FileNotFound "no such file in container: $path"
fi
facts=$(stat -c '%f %s %Y' "$path") || refuse FileNotFound "no such file in container: $path"
link=
[ ! -h "$path" ] || { link=$(readlink "$path" && echo x) && link=${link%??}; }
if [ "$mode" = write ] && { [ ! -d "$path" ] || [ -h "$path" ]; }; then
  refuse PathNotDirectory "path was not a directory: $path"
fi
printf '%s\n%s\0' "$facts" "$link"
case $mode in
  stat) exit 0 ;;
  read)
    dir=${path%/*}
    tar -cf - -C "${dir:-/}" -- "${path##*/}"
    status=$?
    # Something has changed meanwhile.
    if [ "$status" -eq 1 ]; then
      case $(tar --version 2>/dev/null) in *GNU*) exit 0 ;; esac
    fi
    exit "$status"
    ;;
esac
set -- archive "$path" '' '' ''

