# shellcheck shell=sh
# Arguments: the kind, the target, and for a file its name, mode (octal) and bytes. Reads a `file`; or an archive of
# tar: of a `tree`, with the directory `tree` and, at its end, the file `end`; or any other `archive`, which has been
# looked at before, for a directory that exists.
set -u
kind=$1 target=$2 name=$3 mode=$4 size=$5
nl='
'
fail() { printf '%s\n' "$1" >&2; exit 1; }
needed='cat chmod find id mkdir mktemp mv readlink rm rmdir stat wc'
[ "$kind" = file ] || needed="$needed tar"
for program in $needed; do
  command -v "$program" >/dev/null || fail "it has no program $program, which a copy needs"
done
me=$(id -u)

# Whether nobody but root and this user can put another directory in the place of one that is here and belongs to $1.
is_fixed() {
  holder=$(stat -c '%u %a' .)
  is_ours "${holder% *}" || return 1
  case ${holder#* } in
    [1357]???) is_ours "$1" ;;
    *[2367]?|*[2367]) return 1 ;;
  esac
}
is_ours() { [ "$1" = 0 ] || [ "$1" = "$me" ]; }

rest=$target
case $target in
  /*) ;;
  *)
    here=$(pwd -P && echo x)
    rest=${here%"${nl}x"}/$target
    ;;
esac
# `fixed`: nobody but root and this user can change what the names of `way` lead to.
cd / && way='' fixed=yes missing='' links=0
while [ -n "$rest" ]; do
  part=${rest%%/*}
  case $rest in */*) rest=${rest#*/} ;; *) rest= ;; esac
  case $part in ''|.) continue ;; esac
  if [ -n "$missing" ]; then
    [ "$part" != .. ] || fail "$target: there is no directory before .."
    case $kind:$target in
      tree:*|file:*/) ;;
      *) fail "$target: there is no such directory" ;;
    esac
    missing=$missing/$part
  elif [ "$part" = .. ]; then
    # This directory may have been moved since.
    rest=${way%/*}/$rest
    cd / && way='' fixed=yes
  elif [ -d "./$part" ] && [ -h "./$part" ]; then
    # In a directory that others may write, the link that is read need not be the one whose owner is known. With
    # the sticky bit it can be another name of a link that root has elsewhere.
    [ "$fixed" = yes ] && is_fixed nobody && is_ours "$(stat -c %u "./$part")" ||
      fail "$target: $part is a symbolic link that another user may change"
    link=$(readlink "./$part" && echo x)
    link=${link%"${nl}x"}
    links=$((links + 1))
    [ "$links" -le 40 ] || fail "$target: too many symbolic links"
    rest=$link/$rest
    case $link in /*) cd / && way='' ;; esac
  elif [ -d "./$part" ]; then
    facts=$(stat -c '%d:%i %u' "./$part")
    is_fixed "${facts#* }" || fixed=no
    cd -P "./$part" || exit 1
    [ "$(stat -c '%d:%i %u' .)" = "$facts" ] || fail "$target: $part has changed"
    way=$way/$part
  elif [ -e "./$part" ] || [ -h "./$part" ]; then
    [ "$kind" = file ] && [ "$target" = "${target%/}" ] && [ -z "$rest" ] || fail "$target: $part is not a directory"
    missing=/$part
  else
    missing=/$part
  fi
done
if [ "$kind" = file ]; then
  case $target in */) missing=$missing/$name ;; esac
  [ -n "$missing" ] || missing=/$name
fi
base=$(pwd -P)
base=${base%/}
exec 9<. || exit 1

stage= inside=
cleanup() {
  [ -z "$inside" ] || rm -rf -- ./file ./full ./tree ./end ./new
  [ -z "$stage" ] || rmdir -- "/proc/self/fd/9/$stage" 2>/dev/null
}
trap 'exit 1' HUP INT TERM
trap cleanup EXIT
# A signal to all of them must not end mktemp between the directory and its name.
stage=$(trap '' HUP INT TERM; exec mktemp -d ./.cnapi-cp.XXXXXXXX 2>&1) || {
  said=${stage##*: } stage=
  fail "cannot write into $base/: $said"
}
facts=$(stat -c '%d:%i %u %a' "$stage")
cd -P "$stage" || exit 1
case $(stat -c '%d:%i %u %a' .) in
  "${facts%% *} $me 700"|"${facts%% *} $me 2700") inside=yes ;;
  *) fail "$base/$stage has changed" ;;
esac

if [ "$kind" = file ]; then
  arrived=file
  cat >file || fail "$target was not changed: the file could not be written"
  [ "$(wc -c <file)" -eq "$size" ] || fail "$target was not changed: only a part of the file arrived"
  chmod "$mode" file || exit 1
else
  arrived=tree into=.
  if [ "$kind" = archive ]; then
    mkdir tree && into=tree || exit 1
  fi
  said=$(tar -xpof - -C "$into" 2>&1) || {
    # GNU tar says how much it has written, and not why.
    full=$(printf %9999s x | cat 2>&1 >./full) || said=$full
    fail "$target was not changed: ${said%%"$nl"*}"
  }
  [ "$kind" = archive ] || { [ -f end ] && [ -d tree ]; } || fail "$target was not changed: only a part of the directory arrived"
fi
if [ -z "$missing" ]; then
  mv tree new || exit 1
else
  mkdir -p "new${missing%/*}" && mv "$arrived" "new$missing" || exit 1
fi

# Two mounts may be of one device. mv would copy from one to the other, and follow links.
mount_of_9() {
  while read -r key id; do [ "$key" != mnt_id: ] || echo "$id"; done </proc/self/fdinfo/9
}
device=$(stat -c %d .)
mount=$(mount_of_9)
crossed='is on another file system; copy into it by itself. Nothing was changed'
# Its arguments: check or move, and where it is, to be shown. It ends the shell in which it is run.
merge() {
  for each in ./* ./.[!.]* ./..?*; do
    [ -e "$each" ] || [ -h "$each" ] || continue
    there=/proc/self/fd/9/$each
    shown=$2${each#.}
    if [ -d "$each" ] && [ ! -h "$each" ]; then
      if [ -h "$there" ] || { [ -e "$there" ] && [ ! -d "$there" ]; }; then
        fail "$shown is not a directory; nothing was changed"
      fi
      [ -d "$there" ] || continue
      facts=$(stat -c %d:%i "$there")
      [ "${facts%%:*}" = "$device" ] || fail "$shown $crossed"
      (
        cd "$each" && exec 9<"$there/." || exit 1
        [ "$(stat -L -c %d:%i /proc/self/fd/9)" = "$facts" ] || fail "$shown has changed; the copy is incomplete"
        [ "$(mount_of_9)" = "$mount" ] || fail "$shown $crossed"
        merge "$1" "$shown"
      ) || exit 1
      [ "$1" = check ] || rmdir "$each" || exit 1
    elif [ -d "$there" ] && [ ! -h "$there" ]; then
      fail "$shown is a directory; nothing was changed"
    fi
  done
  [ "$1" = check ] || find . -mindepth 1 -maxdepth 1 -exec sh -c 'exec mv -f -- "$@" /proc/self/fd/9/' mv {} + || exit 1
}
(cd new && merge check "$base") || exit 1
# It is to be completed now, even if nobody waits for it any more.
trap '' HUP INT TERM
(cd new && merge move "$base") || exit 1
