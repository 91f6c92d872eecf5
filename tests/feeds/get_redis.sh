#!/bin/sh
# Puts a redis-server for the tests into the folder $1, from Debian's packages: unpacked there, installed nowhere, so that
# no daemon starts and no root is needed. Does nothing if there is one already.
set -eu
folder=$1
command -v redis-server > /dev/null && exit 0
test -x "$folder/usr/bin/redis-server" && exit 0

cannot() {
  echo "******************************************************************************" >&2
  echo "  redis-server is missing and cannot be had here: $1." >&2
  echo "  The tests of the Redis feed WILL FAIL. Install redis-server, then run again." >&2
  echo "******************************************************************************" >&2
  exit 0
}

download() {
  libraries=$(apt-cache depends redis-tools | awk '$1 == "Depends:" && $2 ~ /^lib/ && $2 != "libc6" { print $2 }')
  # shellcheck disable=SC2086 # several words are meant
  apt-get download -qq redis-server redis-tools $libraries > /dev/null 2>&1
}

command -v apt-get > /dev/null || cannot "there is no apt-get"
mkdir -p "$folder"
cd "$folder"
if ! download; then
  if [ "$(id -u)" = 0 ]; then apt-get update -qq > /dev/null 2>&1 || true
  elif sudo -n true 2> /dev/null; then sudo -n apt-get update -qq > /dev/null 2>&1 || true
  fi
  download || cannot "apt-get cannot download it"
fi
for package in *.deb; do dpkg -x "$package" .; done
rm -f ./*.deb
echo "Unpacked redis-server for the tests into $folder"
