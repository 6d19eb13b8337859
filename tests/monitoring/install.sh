#!/usr/bin/env bash
# Prints the folder with the programs prometheus and promtool: those on the PATH, or else those of Debian's package. The package is only
# unpacked, into the cache folder, because its installation would start a service.
set -euo pipefail
if command -v prometheus >/dev/null && command -v promtool >/dev/null; then
  dirname "$(command -v prometheus)"
  exit 0
fi
folder="${XDG_CACHE_HOME:-$HOME/.cache}/toolsieve/prometheus"
if ! [ -e "$folder/unpacked" ]; then
  if ! command -v apt-get >/dev/null || ! command -v dpkg-deb >/dev/null; then
    echo "missing: prometheus and promtool. Install both (a package called prometheus), or run this suite on Debian or Ubuntu." >&2
    exit 1
  fi
  rm -rf "$folder"
  mkdir -p "$folder"
  cd "$folder"
  download() { apt-get -qq -o APT::Sandbox::User=root download prometheus >&2; }
  if ! download 2>/dev/null; then
    apt-get update -qq >&2 && download || {
      echo "Debian's package prometheus can't be downloaded. Install prometheus and promtool in another way." >&2
      exit 1
    }
  fi
  dpkg-deb --extract prometheus_*.deb .
  rm prometheus_*.deb
  touch unpacked
fi
echo "$folder/usr/bin"
