# shellcheck shell=bash
# SPDX-License-Identifier: MIT OR Apache-2.0
#
# Sourced by the scripts that test packages like a user: in a bare Debian 12 or 13 with Python, which
# has no compiler, no LLVM, no Level Zero loader, and nothing of this checkout.
. "$root/scripts/packages.sh"

readonly bare=${TALLY_SCRIPTS_CACHE:-$HOME/.cache/tally}/bare
# Python packages that the programs use besides Tally.
readonly bare_packages=(dpctl==0.22.1 pytest==9.2.0)

# It is unpacked and not installed: only Python is run in it.
unpack_bare() {
    local work
    [ ! -d "$bare/system" ] || return 0
    mkdir -p "$bare"
    work=$(mktemp -d "$bare/system.XXXXXX")
    apt_root "$work/apt" bookworm
    mkdir -p "$work"/usr/{lib,lib64,bin,sbin} "$work"/{proc,dev}
    mkdir -m 1777 "$work/tmp"
    # Packages for a merged /usr expect these links to exist.
    ln -s usr/lib usr/lib64 usr/bin usr/sbin "$work/"
    progress_start "making a bare Debian 12"
    unpack_closure "$work/apt" "$work" python3 python3-venv coreutils dash libstdc++6
    progress_stop
    rm -rf "$work/apt"
    chmod 755 "$work"
    mv -T "$work" "$bare/system"
}

# fetch_wheels PYTHON FOLDER PACKAGE...: fetches what pip installs for these packages in this version of
# Python.
fetch_wheels() {
    local python=$1 folder=$2 venv=$bare/pip-$$
    shift 2
    [ ! -e "$folder/complete" ] || return 0
    python3 -m venv "$venv"
    progress "fetching $*" "$venv/bin/python" -m pip download --quiet --disable-pip-version-check --no-input \
        --only-binary :all: --platform manylinux_2_28_x86_64 --platform manylinux_2_27_x86_64 --platform manylinux2014_x86_64 \
        --platform manylinux1_x86_64 --python-version "$python" --dest "$folder" "$@"
    rm -rf "$venv"
    touch "$folder/complete"
}

# fetch_debs SUITE FOLDER PACKAGE...: fetches what `apt-get install` of these packages fetches in the
# minimal Debian of this suite.
fetch_debs() {
    local suite=$1 folder=$2 names
    shift 2
    [ ! -d "$folder" ] || return 0
    rm -rf "$folder.partial"
    mkdir -p "$folder.partial/files"
    apt_root "$folder.partial/apt" "$suite"
    cp "$bare/$suite/var/lib/dpkg/status" "$folder.partial/apt/status"
    names=$(in_apt_root "$folder.partial/apt" apt-get -o APT::Install-Recommends=true --print-uris install "$@" |
        awk '{ split($2, f, "_"); gsub("%3a", ":", f[2]); print f[1] "=" f[2] }')
    # shellcheck disable=SC2086 # names have no spaces
    (cd "$folder.partial/files" &&
        progress "fetching $*" in_apt_root "$folder.partial/apt" apt-get download $names)
    mv -T "$folder.partial/files" "$folder"
    rm -rf "$folder.partial"
}

# fill_system PYTHON FILE... -- KERNEL...: copies the tests' inputs into the folder `system`: to wheels/
# the packages for pip and these files, to kernel/ these kernels of tests/kernels and a first SYCL
# program.
fill_system() {
    local python=$1 files=() name
    shift
    while [ "$1" != -- ]; do
        files+=("$1")
        shift
    done
    shift
    fetch_wheels "$python" "$bare/wheels-$python" "${bare_packages[@]}" >&2
    for name; do
        compile_kernels "$target/kernels" "$root/tests/kernels/$name.cl"
    done
    rm -rf "$system"/{wheels,kernel}
    mkdir "$system"/{wheels,kernel}
    cp "$bare/wheels-$python"/*.whl "${files[@]}" "$system/wheels/"
    for name; do
        cp "$target/kernels/$name.spv" "$system/kernel/"
    done
    cp "$root/tests/packages/first_kernel.py" "$system/kernel/"
}

# bare_system KERNEL...: sets `system` to the folder of a Debian 12 in which only pip can install
# packages, and fills it; the wheel is in its wheels/.
bare_system() {
    unpack_bare >&2
    system=$bare/system
    fill_system 3.11 "$target"/wheel/tally_level_zero-*.whl -- "$@"
}

# minimal_debian SUITE: sets `system` to the folder of a minimal Debian with Python, in which packages can be
# installed.
minimal_debian() {
    local suite=$1 work
    system=$bare/$suite
    [ ! -d "$system" ] || return 0
    command -v mmdebstrap >/dev/null || install_packages mmdebstrap
    mkdir -p "$bare"
    work=$(mktemp -d "$system.XXXXXX")
    # If a suite gets no more uploads, its index becomes too old.
    progress "making a bare Debian $suite" mmdebstrap --quiet --variant=apt --include=python3-venv \
        --aptopt='Acquire::Check-Valid-Until "false"' --format=directory "$suite" "$work" "$(debian_archive)"
    chmod 755 "$work"
    mv -T "$work" "$system"
}

# bare_debian SUITE FILE... -- KERNEL...: sets `system` to such a Debian (bookworm or trixie), and fills it.
bare_debian() {
    local suite=$1
    shift
    minimal_debian "$suite"
    case $suite in
    bookworm) fill_system 3.11 "$@" ;;
    *) fill_system 3.13 "$@" ;;
    esac
}
