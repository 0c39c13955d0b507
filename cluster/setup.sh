#!/usr/bin/env bash
# Installs what headsweep needs from the distribution's packages (cluster/packages.txt).
# usage: cluster/setup.sh [--tests]      --tests: also what ./check needs
# As root it installs what is missing, without asking. Otherwise it prints the command that does, and exits 2.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
groups="build"
case "${1:-}" in
  "") ;;
  --tests) groups="build test" ;;
  *) echo "usage: cluster/setup.sh [--tests]" >&2; exit 2 ;;
esac

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  echo "cluster/setup.sh: this is not a Debian or Ubuntu system; install the libraries named in cluster/packages.txt" >&2
  exit 2
fi

wanted=()
while read -r package group; do
  [[ -z "$package" || "$package" == \#* ]] && continue
  # Ubuntu has Chromium only as a snap; the browser tests skip visibly where there is none.
  if [[ "$package" == chromium ]] && grep -q '^ID=ubuntu' /etc/os-release; then continue; fi
  [[ " $groups " == *" $group "* ]] && wanted+=("$package")
done < "$here/packages.txt"

missing=()
for package in "${wanted[@]}"; do
  status=$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null || true)
  [[ "$status" == installed ]] || missing+=("$package")
done
[[ ${#missing[@]} -eq 0 ]] && exit 0

install="apt-get install -y --no-install-recommends ${missing[*]}"
if [[ $(id -u) -ne 0 ]]; then
  echo "headsweep needs packages that are not installed. As root, run:" >&2
  echo "  apt-get update && $install" >&2
  exit 2
fi
echo "installing: ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
apt-get -o DPkg::Lock::Timeout=300 -qq update
# shellcheck disable=SC2086
apt-get -o DPkg::Lock::Timeout=300 -qq install -y --no-install-recommends "${missing[@]}" >/dev/null
