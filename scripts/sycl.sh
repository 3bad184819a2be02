# shellcheck shell=bash
# SPDX-License-Identifier: MIT OR Apache-2.0
#
# Sourced by the scripts that run SYCL programs. Python's package dpctl includes SYCL's run time and
# headers. SYCL needs a newer Level Zero loader than that of Debian 12: the one of Debian unstable
# works.

# A release whose behaviour is known.
readonly dpctl=0.22
readonly cache=${TALLY_SCRIPTS_CACHE:-$HOME/.cache/tally}
readonly venv=$cache/clients/dpctl-$dpctl

# install_venv FOLDER PACKAGE...: installs the missing ones of these packages in an environment of their
# own.
install_venv() {
    local folder=$1
    shift
    python3 -c 'import ensurepip, venv' 2>/dev/null || install_packages python3-venv
    [ -x "$folder/bin/python" ] || python3 -m venv "$folder" || return
    progress "installing $*" "$folder/bin/python" -m pip install --quiet --disable-pip-version-check "$@" >&2
}

# fetch_sycl: installs dpctl in $venv, and a compiler for C++.
fetch_sycl() {
    command -v g++ >/dev/null || install_packages g++
    [ -e "$venv/complete" ] || {
        install_venv "$venv" "dpctl==$dpctl.*" numpy && touch "$venv/complete"
    }
}

fetch_loader() {
    "$root/scripts/loaders" sid /bin/true
}
