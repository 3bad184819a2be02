# shellcheck shell=bash
# SPDX-License-Identifier: MIT OR Apache-2.0
#
# Sourced by scripts/bench: fetches the drivers and run times that Tally is compared with, and prints
# how to run a program on each. Nothing is installed: they are unpacked into folders of
# ${TALLY_SCRIPTS_CACHE:-~/.cache/tally}/peers; remove a folder to fetch it again.
#
# Each function prints the words to put in front of a program, one a line, or fails if there is no such
# peer on this machine.
. "$(dirname "${BASH_SOURCE[0]}")/packages.sh"

readonly peers=${TALLY_SCRIPTS_CACHE:-$HOME/.cache/tally}/peers
# PoCL's own cache on disk.
export POCL_CACHE_DIR=$peers/pocl/cache

# fetch_debian FOLDER SUITE PACKAGE...: fetches packages of a suite with all their dependencies.
fetch_debian() {
    local folder=$peers/$1 suite=$2
    shift 2
    [ ! -d "$folder" ] || return 0
    rm -rf "$folder.partial"
    mkdir -p "$folder.partial"
    {
        apt_root "$folder.partial/apt" "$suite"
        unpack_closure "$folder.partial/apt" "$folder.partial/tree" "$@"
    } >&2 || return 1
    rm -rf "$folder.partial/apt"
    mv "$folder.partial" "$folder"
}

# with_libraries FOLDER: starts a program with the dynamic linker and the libraries of an unpacked root,
# which may need a newer C library than the machine has.
with_libraries() {
    local lib=$peers/$1/tree/usr/lib/x86_64-linux-gnu each
    local path=$lib
    for each in "$peers/$1"/tree/usr/lib/llvm-*/lib; do
        [ ! -d "$each" ] || path=$path:$each
    done
    printf '%s\n' "$lib/ld-linux-x86-64.so.2" --library-path "$path"
}

# Intel's GPU driver for Level Zero, from Debian unstable. It builds command lists for a simulated
# device, which executes nothing.
peer_intel_gpu() {
    fetch_debian intel-gpu sid libze-intel-gpu1 libze1 libigc2 || return 1
    printf '%s\n' env NEOReadDebugKeys=1 UseAubStream=0 SetCommandStreamReceiver=1 \
        ProductFamilyOverride=bmg HardwareInfoOverride=1x4x8 UseBindlessMode=0 \
        ZE_ENABLE_ALT_DRIVERS="$peers/intel-gpu/tree/usr/lib/x86_64-linux-gnu/libze_intel_gpu.so.1"
    with_libraries intel-gpu
}

# Intel's OpenCL run time for CPUs, from the Python package index.
peer_intel_cpu() {
    local folder=$peers/intel-cpu
    if [ ! -d "$folder" ]; then
        rm -rf "$folder.partial"
        {
            python3 -m venv "$folder.partial" &&
                "$folder.partial/bin/python3" -m pip install -q --no-input intel-opencl-rt intel-cmplr-lib-rt
        } >&2 || return 1
        mv "$folder.partial" "$folder"
    fi
    printf '%s\n' env LD_LIBRARY_PATH="$folder/lib" OCL_ICD_FILENAMES="$folder/lib/libintelocl.so"
}

# PoCL, from Debian 13. It starts Debian's translator of SPIR-V by its path in /usr/bin, and the program
# ends if there is none: PoCL then runs in a mount namespace whose /usr/bin has it.
peer_pocl() {
    fetch_debian pocl trixie pocl-opencl-icd ocl-icd-libopencl1 || return 1
    local tree=$peers/pocl/tree enter=$peers/pocl/enter
    if [ ! -x /usr/bin/llvm-spirv-18 ]; then
        mkdir -p "$peers/pocl/bin"
        {
            printf '#!/bin/sh\nexec'
            with_libraries pocl | xargs printf ' %s'
            printf ' %s "$@"\n' "$tree/usr/bin/llvm-spirv-18"
        } >"$peers/pocl/bin/llvm-spirv-18"
        printf '#!/bin/sh\nexec unshare --map-root-user --mount sh -c "%s" sh "$@"\n' \
            "mount -t overlay overlay -o lowerdir='$peers/pocl/bin:/usr/bin' /usr/bin && exec \\\"\\\$@\\\"" >"$enter"
        chmod +x "$peers/pocl/bin/llvm-spirv-18" "$enter"
        "$enter" true 2>/dev/null || {
            echo "PoCL is left out: there is no /usr/bin/llvm-spirv-18, and this machine allows no mounts of one's own" >&2
            return 1
        }
        printf '%s\n' "$enter"
    fi
    printf '%s\n' env POCL_DEVICES=cpu OCL_ICD_VENDORS="$(ls "$tree"/usr/lib/x86_64-linux-gnu/libpocl.so.2)"
    with_libraries pocl
}
