# shellcheck shell=bash
# SPDX-License-Identifier: MIT OR Apache-2.0
#
# Sourced by the scripts that make packages. The files of a package must run on machines without the
# build's dependencies: LLVM and the C++ library are inside the compiler, and no file names a folder of
# this machine or needs a C library newer than glibc 2.34 (Debian 12, Ubuntu 22.04, RHEL 9).
more_packages=(g++ cmake make zlib1g-dev libzstd-dev)
. "$(dirname "${BASH_SOURCE[0]}")/build.sh"
. "$root/scripts/packages.sh"

readonly newest_glibc=2.34
readonly cache=${TALLY_SCRIPTS_CACHE:-$HOME/.cache/tally}
# A separate folder, since everything is compiled with other options there.
readonly packaged=$target/packaged

# The times of files in packages, for the same bytes from each build.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -C "$root" log -1 --format=%ct)}
export SOURCE_DATE_EPOCH

# static_llvm: sets `archives` to the folder of LLVM's archives. They are unpacked and not installed:
# their package depends on 400 MB of other packages, for the development of programs with LLVM.
static_llvm() {
    local version folder work
    version=$(dpkg-query -W -f='${Version}' "libllvm$llvm")
    folder=$cache/llvm-$llvm-dev/${version#*:}
    if [ ! -d "$folder" ]; then
        mkdir -p "$(dirname "$folder")"
        work=$(mktemp -d "$folder.XXXXXX")
        progress_start "fetching LLVM's archives"
        # The library's version: the packages contain the version that the tests have used.
        (cd "$work" && apt-get -qq -o APT::Sandbox::User=root download "llvm-$llvm-dev=$version" &&
            dpkg-deb --fsys-tarfile llvm-*.deb | tar -xf - --wildcards "./usr/lib/llvm-$llvm/lib/*.a" &&
            rm llvm-*.deb) >&2 || die "llvm-$llvm-dev $version cannot be had"
        progress_stop
        chmod 755 "$work"
        # Another run may have finished first.
        mv -T "$work" "$folder" 2>/dev/null || rm -rf "$work"
    fi
    archives=$folder/usr/lib/llvm-$llvm/lib
}

# build_packaged: builds driver, tools, compiler and GPU for the packages, in $packaged/release. It is
# one build, since together with other crates Cargo builds the driver with other features.
build_packaged() {
    local archives
    static_llvm
    # If two prefixes match, the later one counts.
    (cd "$root" && TALLY_STATIC_LLVM=$archives CARGO_TARGET_DIR=$packaged CARGO_PROFILE_RELEASE_STRIP=symbols \
        RUSTFLAGS="--remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=/cargo --remap-path-prefix=$root=/tally --remap-path-prefix=$packaged=/build" \
        cargo build --locked --release -p tally-umd -p tally-compiler -p tally-opencl -p tally-gpu)
}

# The loader that packages carry, in the checkout: distributions keep a release's source only as long as they
# offer that release, and a build of packages needs nothing else that is not a package (packaged.d/README.md).
readonly loader_source=$root/scripts/packaged.d/level-zero_1.32.0.orig.tar.gz
readonly loader_sum=b658d3be89b2ea3c5e6b3214592acb58a4875e738184b1a4cc7e9cf878b5f7b9

# build_loader: builds the loader and its layers, in $packaged/loader/lib; their headers and licence are
# in $packaged/loader/source. The C++ library is inside, and its symbols are hidden.
build_loader() {
    local folder=$packaged/loader
    if [ "$(cat "$folder/built" 2>/dev/null)" = "$loader_sum" ]; then
        return
    fi
    sha256sum --status -c <<<"$loader_sum  $loader_source" || die "$loader_source is not whole"
    rm -rf "$folder"
    mkdir -p "$folder/source"
    tar -xf "$loader_source" -C "$folder/source" --strip-components=1
    # Without Git, since the loader would take the checkout around it for its own.
    cmake -S "$folder/source" -B "$folder/build" -Wno-dev -DCMAKE_BUILD_TYPE=Release \
        -DCMAKE_DISABLE_FIND_PACKAGE_Git=ON -DCMAKE_LIBRARY_OUTPUT_DIRECTORY="$folder/lib" \
        -DCMAKE_CXX_FLAGS="-ffile-prefix-map=$folder=/level-zero -O2" \
        -DCMAKE_SHARED_LINKER_FLAGS='-static-libstdc++ -Wl,--exclude-libs,ALL -Wl,--gc-sections -Wl,--as-needed -s' >&2
    cmake --build "$folder/build" --target ze_loader ze_validation_layer ze_tracing_layer >&2
    echo "$loader_sum" >"$folder/built"
}

# check_needs FILE...: fails if a file needs more than every supported machine has.
check_needs() {
    python3 "$root/scripts/check-needs" "$newest_glibc" "$@"
}
