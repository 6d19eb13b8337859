#!/usr/bin/env bash
# Puts an Open WebUI and pytest into a virtual environment in the user's cache (about 700 MB), and prints the path of its
# Python: install.sh [VERSION]. Takes one to three minutes the first time, nothing once it is there.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
version="${1:-0.12.4}"
requirements="$here/requirements-openwebui-$version.txt"
if [ ! -f "$requirements" ]; then
  known="$(cd "$here" && ls requirements-openwebui-*.txt | sed 's/requirements-openwebui-//; s/\.txt//' | tr '\n' ' ')"
  echo "There is no list of what Open WebUI $version needs. There is one for: $known" >&2
  exit 2
fi
venv="${XDG_CACHE_HOME:-$HOME/.cache}/toolsieve/openwebui-$version"
stamp="$venv/.installed"
wanted="$version $(sha256sum <"$requirements")"

if [ "$(cat "$stamp" 2>/dev/null)" != "$wanted" ]; then
  mkdir -p "$(dirname "$venv")"
  # Two runs at once must not install into each other.
  exec 9>"$venv.lock"
  if command -v flock >/dev/null; then flock 9; fi
fi
if [ "$(cat "$stamp" 2>/dev/null)" != "$wanted" ]; then
  echo "Installing Open WebUI $version for the end-to-end tests, this takes a few minutes …" >&2
  python=""
  for candidate in python3.11 python3.12 python3; do
    if "$candidate" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 13))' 2>/dev/null; then
      python="$candidate"
      break
    fi
  done
  [ -n "$python" ] || { echo "Open WebUI needs Python 3.11 or 3.12" >&2; exit 1; }
  [ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check -r "$requirements" >&2
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps "open-webui==$version" >&2
  echo "$wanted" >"$stamp"
fi
echo "$venv/bin/python"
