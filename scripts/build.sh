# shellcheck shell=bash
# SPDX-License-Identifier: MIT OR Apache-2.0
#
# Sourced by the scripts that build something: the driver, and Level Zero programs with their kernels.
. "$(dirname "${BASH_SOURCE[0]}")/setup"

# compile_kernels OUT FILE.cl...: OpenCL C to SPIR-V, one module a file, only what is out of date.
compile_kernels() {
    local out=$1 source module
    shift
    mkdir -p "$out"
    for source in "$@"; do
        module=$out/$(basename "$source" .cl).spv
        [ "$module" -nt "$source" ] ||
            "$TALLY_CLANG" --target=spirv64 -cl-std=CL3.0 -O2 -Wall -Wextra -Werror \
                -Xclang -finclude-default-header -c "$source" -o "$module"
    done
}

# compile_program OUT FILE.c...: an ordinary Level Zero program, linked with the stock loader.
compile_program() {
    local out=$1
    shift
    mkdir -p "$(dirname "$out")"
    gcc -std=gnu11 -O2 -Wall -Wextra -Werror "$@" -o "$out" -lze_loader -lm
}

# Builds what a Level Zero program needs at run time and says where the stock loader finds it.
build_driver() {
    (cd "$root" && cargo build --release -p tally-umd -p tally-compiler)
    export ZE_ENABLE_ALT_DRIVERS=$target/release/libze_tally.so
    [ -f "$ZE_ENABLE_ALT_DRIVERS" ] || die "the build left no $ZE_ENABLE_ALT_DRIVERS"
}
