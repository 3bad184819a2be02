# shellcheck shell=bash
# SPDX-License-Identifier: MIT OR Apache-2.0
#
# Sourced by the scripts that build something: the driver, and Level Zero programs with their kernels.
. "$(dirname "${BASH_SOURCE[0]}")/setup"

# compile_kernels OUT FILE.cl...: compiles OpenCL C to SPIR-V, one module per file, if it is out of
# date.
compile_kernels() {
    local out=$1 source module
    shift
    mkdir -p "$out"
    for source in "$@"; do
        module=$out/$(basename "$source" .cl).spv
        [ "$module" -nt "$source" ] || {
            "$TALLY_CLANG" --target=spirv64 -cl-std=CL3.0 -O2 -Wall -Wextra -Werror \
                -Xclang -finclude-default-header -c "$source" -o "$module.$$"
            mv "$module.$$" "$module"
        }
    done
}

# compile_program OUT FILE.c...: compiles an ordinary Level Zero program, linked with the stock loader.
compile_program() {
    local out=$1
    shift
    mkdir -p "$(dirname "$out")"
    # The replacement is atomic, since another script may be running the old program.
    gcc -std=gnu11 -O2 -Wall -Wextra -Werror "$@" -o "$out.$$" -lze_loader -lm
    mv "$out.$$" "$out"
}

# compile_opencl OUT FILE.c...: compiles a program that opens OpenCL's library by itself.
compile_opencl() {
    local out=$1
    shift
    mkdir -p "$(dirname "$out")"
    gcc -std=gnu11 -O2 -Wall -Wextra -Werror "$@" -o "$out" -ldl -lpthread
}

# copy_sources FOLDER: copies the present files of the tree, with their times.
copy_sources() {
    (cd "$root" && git ls-files -z --cached --others --exclude-standard |
        while IFS= read -rd '' file; do [ ! -f "$file" ] || printf '%s\0' "$file"; done |
        tar --null -T - -cf -) | tar -C "$1" -xf -
}

# compile_with_kernels OUT NAME: compiles tests/bench/NAME.c for Level Zero.
compile_with_kernels() {
    compile_program "$1" -I "$root/tests/demo" "$root/tests/bench/$2.c" "$root/tests/bench/kernels_ze.c" \
        "$root/tests/demo/gpu.c"
}

# compile_bare_kernels OUT: compiles the same on threads without a driver, and the program that writes
# their code.
compile_bare_kernels() {
    mkdir -p "$(dirname "$1")"
    gcc -std=gnu11 -O2 -Wall -Wextra -Werror "$root"/tests/bench/kernels{,_bare}.c -o "$1" -lpthread
    (cd "$root" && cargo build --release -p tally-compiler --example blobs)
}

# compile_module OUT FILE.cl: compiles OpenCL C with all extensions to SPIR-V.
compile_module() {
    mkdir -p "$(dirname "$1")"
    "$TALLY_CLANG" --target=spirv64 -cl-std=CL3.0 -O2 -Wall -Wextra -Werror \
        -Xclang -finclude-default-header -Xclang -cl-ext=+all -c "$2" -o "$1"
}

# compile_bench_module OUT: compiles the kernels of the benchmarks.
compile_bench_module() {
    compile_module "$1" "$root/tests/kernels/bench.cl"
}

# compile_threads OUT: compiles the benchmark of many threads for Level Zero.
compile_threads() {
    compile_program "$1" -I "$root/tests/demo" "$root/tests/bench/threads.c" "$root/tests/bench/threads_ze.c" \
        "$root/tests/demo/gpu.c" "$root/tests/demo/counter_events.c" -lpthread
}

# Builds what a Level Zero program needs at run time, and tells the stock loader where it is.
build_driver() {
    (cd "$root" && cargo build --release -p tally-umd -p tally-compiler -p tally-opencl)
    export ZE_ENABLE_ALT_DRIVERS=$target/release/libze_tally.so
    [ -f "$ZE_ENABLE_ALT_DRIVERS" ] || die "the build left no $ZE_ENABLE_ALT_DRIVERS"
}
