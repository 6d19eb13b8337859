# Functions that put what a suite needs into the cache folder, again only when its list has changed. Suites source this file.
cache="${XDG_CACHE_HOME:-$HOME/.cache}/toolsieve"

npm_packages() { # folder in the cache, package.json, further arguments for npm; prints the path of the folder
  local folder="$cache/$1" list="$2"
  shift 2
  if ! cmp -s "$list" "$folder/installed.json"; then
    # A command substitution goes on after a command that fails.
    rm -rf "$folder"
    mkdir -p "$folder" || return 1
    cp "$list" "$folder/package.json" || return 1
    (cd "$folder" && npm install --silent --no-audit --no-fund "$@" >&2) || return 1
    cp "$list" "$folder/installed.json"
  fi
  echo "$folder"
}

python_packages() { # folder in the cache, file with requirements; prints the path of the virtual environment's Python
  local folder="$cache/$1"
  if ! cmp -s "$2" "$folder/installed"; then
    rm -rf "$folder"
    python3 -m venv "$folder" || return 1
    "$folder/bin/python" -m pip install --quiet --disable-pip-version-check -r "$2" >&2 || return 1
    cp "$2" "$folder/installed"
  fi
  echo "$folder/bin/python"
}

system_package() { # package of Debian and Ubuntu
  command -v apt-get >/dev/null || { echo "missing: $1. Install it, or run this suite on Debian or Ubuntu." >&2; return 1; }
  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "$1" >&2
}

chromium_browser() {
  command -v chromium >/dev/null || system_package chromium
}

postgresql_server() {
  compgen -G "/usr/lib/postgresql/*/bin/postgres" >/dev/null || system_package postgresql
}
