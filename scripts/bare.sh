# shellcheck shell=bash
# SPDX-License-Identifier: MIT OR Apache-2.0
#
# Sourced by the scripts that try the wheel as a user has it: in a bare Debian 12 with Python, which has
# no compiler, no LLVM, no Level Zero loader, and nothing of this checkout.
. "$root/scripts/packages.sh"

readonly bare=${TALLY_SCRIPTS_CACHE:-$HOME/.cache/tally}/bare
# What the programs use besides the wheel, for the Python of Debian 12.
readonly bare_packages=(dpctl==0.22.1 pytest==9.2.0) bare_python=3.11

# It is unpacked and not installed: nothing in it is run but Python.
unpack_bare() {
    local work
    [ ! -d "$bare/system" ] || return 0
    mkdir -p "$bare"
    work=$(mktemp -d "$bare/system.XXXXXX")
    apt_root "$work/apt" bookworm
    mkdir -p "$work"/usr/{lib,lib64,bin,sbin} "$work"/{proc,dev}
    mkdir -m 1777 "$work/tmp"
    # Packages for a merged /usr leave these to whoever installs them.
    ln -s usr/lib usr/lib64 usr/bin usr/sbin "$work/"
    unpack_closure "$work/apt" "$work" python3 python3-venv coreutils dash libstdc++6
    rm -rf "$work/apt"
    chmod 755 "$work"
    mv -T "$work" "$bare/system"
}

fetch_wheels() {
    local venv=$bare/pip
    [ ! -e "$bare/wheels/complete" ] || return 0
    python3 -m venv "$venv"
    "$venv/bin/python" -m pip download --quiet --disable-pip-version-check --no-input --only-binary :all: \
        --platform manylinux_2_28_x86_64 --platform manylinux_2_27_x86_64 --platform manylinux2014_x86_64 \
        --python-version "$bare_python" --dest "$bare/wheels" "${bare_packages[@]}"
    rm -rf "$venv"
    touch "$bare/wheels/complete"
}

# bare_system KERNEL...: sets `system` to the folder of such a system, with the wheel and all that the tests
# install beside it in wheels/, and with these kernels of tests/kernels in kernel/.
bare_system() {
    {
        unpack_bare
        fetch_wheels
    } >&2
    local name
    for name; do
        compile_kernels "$target/kernels" "$root/tests/kernels/$name.cl"
    done
    system=$bare/system
    rm -rf "$system"/{wheels,kernel}
    mkdir "$system"/{wheels,kernel}
    cp "$bare"/wheels/*.whl "$target"/wheel/tally_level_zero-*.whl "$system/wheels/"
    for name; do
        cp "$target/kernels/$name.spv" "$system/kernel/"
    done
}
