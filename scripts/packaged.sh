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
        cargo build --locked --release -p tally-umd -p tally-compiler -p tally-gpu)
}

# The loader that packages carry, as Debian's archive of sources has it.
readonly loader_version=1.32.0
readonly loader_tag=https://github.com/oneapi-src/level-zero/archive/refs/tags/v$loader_version.tar.gz
readonly loader_sum=b658d3be89b2ea3c5e6b3214592acb58a4875e738184b1a4cc7e9cf878b5f7b9

# fetch_file URL FILE
fetch_file() {
    python3 - "$1" >"$2.partial" <<'PY' && mv "$2.partial" "$2"
import sys
import urllib.request

try:
    sys.stdout.buffer.write(urllib.request.urlopen(sys.argv[1], timeout=60).read())
except OSError as error:
    sys.exit(f"{sys.argv[1]}: {error}")
PY
}

# loader_source: sets `source` to the archive of the loader's source. Debian's archive keeps it as long as the
# release is in unstable; it is the file of the authors' tag.
loader_source() {
    local name=level-zero_$loader_version.orig.tar.gz work
    source=${TALLY_LOADER_SOURCE:-$cache/sources/$name}
    if [ ! -f "$source" ]; then
        work=$(mktemp -d)
        progress_start "fetching the loader's source"
        fetch_release "$work" sid level-zero "$loader_version" "$cache/sources" >&2 ||
            fetch_file "$loader_tag" "$source" >&2 ||
            die "there is no $name: let TALLY_LOADER_SOURCE name that file, or that of $loader_tag"
        progress_stop
        rm -rf "$work"
    fi
    sha256sum --status -c <<<"$loader_sum  $source" || die "$source is not the release that scripts/packaged.sh names"
}

# build_loader: the loader and its layers, in $packaged/loader/lib; their headers and licence in
# $packaged/loader/source. The C++ library is inside and stays out of the program's sight.
build_loader() {
    local source folder=$packaged/loader
    if [ "$(cat "$folder/built" 2>/dev/null)" = "$loader_sum" ]; then
        return
    fi
    loader_source
    rm -rf "$folder"
    mkdir -p "$folder/source"
    tar -xf "$source" -C "$folder/source" --strip-components=1
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
