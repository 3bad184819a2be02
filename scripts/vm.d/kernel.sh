# shellcheck shell=bash
# SPDX-License-Identifier: MIT OR Apache-2.0
#
# Sourced by scripts/vm: fetches, builds and keeps the dev kernel.
#
# A kernel lies in a folder named by its version and a digest of all its inputs, so that another config
# or compiler gives another kernel. The files that are kept can boot and build modules; the rest of the
# tree is removed. Modules need the tree at the path where it was built.

# Rust support needs matching tools: clang and the linker by major version, rustc by its real path (a
# shim that chooses a toolchain breaks the build), and the library's source of that very version.
readonly bindgen_version=0.72.1
kernel_lower_suites=(trixie trixie-backports)

need_kernel_tools() {
    local package missing=() installed
    installed=$(dpkg-query -W -f='${db:Status-Status} ${Package}\n' | sed -n 's/^installed //p')
    for package in make flex bison bc cpio rsync kmod xz-utils libelf-dev libssl-dev \
        "lld-$llvm" "llvm-$llvm" "libclang1-$llvm" busybox-static; do
        grep -qx "$package" <<<"$installed" || missing+=("$package")
    done
    install_packages "${missing[@]}"
}

# lists_read FOLDER: how many files of the suites' lists have come since the update began.
lists_read() {
    find "$1/lists" -maxdepth 1 -cnewer "$1/sources.list" \( -name '*_InRelease' -o -name '*_Packages*' \) | wc -l
}

# lists_update FOLDER: the apt root anew.
lists_update() {
    say "fetching the package lists of ${kernel_lower_suites[*]}"
    watching $((2 * ${#kernel_lower_suites[@]})) files lists_read "$1" -- apt_root "$1" "${kernel_lower_suites[@]}" >&2
}

# The apt root of the newer suites, updated when it is a day old; an old one is better than none.
newer_packages() {
    local lists=$cache/apt
    # Without the lock, which another run may hold for minutes.
    lists_are_new "$lists" || alone "$cache/lock" lists_renew "$lists"
    printf '%s\n' "$lists"
}

lists_are_new() {
    [ -n "$(find "$1/complete" -mmin -1440 2>/dev/null)" ]
}

lists_renew() {
    local lists=$1
    if lists_are_new "$lists"; then
        :
    elif lists_update "$lists"; then
        touch "$lists/complete"
    elif [ -e "$lists/complete" ]; then
        say "the lists of packages cannot be renewed"
    else
        die "the package lists of ${kernel_lower_suites[*]} cannot be fetched: the kernel lane needs the network once"
    fi
}

# The newest 7.x that the suites offer, or the requested one.
kernel_package() {
    local series=${TALLY_KERNEL:-}
    [ -n "$series" ] || series=$(in_apt_root "$1" apt-cache search --names-only '^linux-source-7\.[0-9]+$' |
        sed 's/^linux-source-\([0-9.]*\) .*/\1/' | sort -V | tail -n 1)
    [ -n "$series" ] || die "the suites ${kernel_lower_suites[*]} offer no linux-source-7.*"
    printf 'linux-source-%s\n' "$series"
}

# Arguments of every make, of the kernel and of modules.
kernel_make_flags() {
    local sysroot
    sysroot=$(rustc --print sysroot)
    make_flags=("LLVM=-$llvm" "RUSTC=$sysroot/bin/rustc" "RUSTDOC=$sysroot/bin/rustdoc"
        "RUSTFMT=$sysroot/bin/rustfmt" "CLIPPY_DRIVER=$sysroot/bin/clippy-driver"
        "BINDGEN=$cache/tools/bin/bindgen" "RUST_LIB_SRC=$cache/rust-$rust_version/library")
}

# kernel_prepare VARIANT: sets the kernel's folder (kernel_dir) and the arguments for its tools
# (make_flags).
kernel_prepare() {
    local variant=$1 lists package version digest
    rust_version=$(rustc --version | sed 's/^rustc \([0-9.]*\).*/\1/')
    kernel_make_flags
    kernel_config=("$here/kernel.config")
    [ "$variant" = dev ] || kernel_config+=("$here/$variant.config")
    lists=$(newer_packages)
    package=$(kernel_package "$lists")
    version=$(in_apt_root "$lists" apt-cache show "$package" | sed -n 's/^Version: //p' | sort -V | tail -n 1)
    digest=$({
        cat "${kernel_config[@]}"
        printf '%s\n' "$version" "$(rustc --version)" "$bindgen_version" "$("clang-$llvm" --version | head -n 1)"
    } | sha256sum | cut -c1-12)
    kernel_source=$package
    kernel_dir=$cache/kernel/${version%%[-+]*}-$variant-$digest
}

# mib_of LISTS ARGUMENT...: prints how much apt-get would fetch, in MiB.
mib_of() {
    local lists=$1
    shift
    in_apt_root "$lists" apt-get --print-uris "$@" | awk '{ bytes += $3 } END { print int(bytes / 1048576) + 1 }'
}

# Prints the size of the packages that are fetched already, in MiB.
mib_fetched() {
    du -sm "$cache/apt/packages" | cut -f 1
}

# unpack_watched LISTS FOLDER PACKAGE: calls unpack_packages and reports its progress.
unpack_watched() {
    watching "$(mib_of "$1" download "$3")" MiB mib_fetched -- unpack_packages "$@"
}

# Installs bindgen and the source of Rust's library.
kernel_tools() {
    local lists=$1 version unpacked
    [ -x "$cache/tools/bin/bindgen" ] || {
        say "building bindgen $bindgen_version"
        cargo_counted install --locked --root "$cache/tools" --target-dir "$cache/tools/build" \
            "bindgen-cli@$bindgen_version"
        rm -rf "$cache/tools/build"
    }
    [ -d "$cache/rust-$rust_version" ] || {
        version=$(in_apt_root "$lists" apt-cache madison rust-src | awk '{ print $3 }' | grep "^$rust_version+" | head -n 1) ||
            die "no suite has rust-src $rust_version, the version of this machine's rustc; rustup can give another"
        say "fetching the source of Rust's library $rust_version"
        unpacked=$cache/rust.partial
        rm -rf "$unpacked"
        unpack_watched "$lists" "$unpacked" "rust-src=$version"
        mv "$unpacked/usr/src/rustc-$rust_version" "$cache/rust-$rust_version"
        rm -rf "$unpacked"
    }
}

# Unpacks the build tree and writes its config.
kernel_unpack() {
    local lists=$1 archive bytes
    say "fetching $kernel_source"
    rm -rf "$kernel_dir"
    mkdir -p "$kernel_dir"
    unpack_watched "$lists" "$kernel_dir/package" "$kernel_source"
    archive=("$kernel_dir"/package/usr/src/linux-source-*.tar.xz)
    say "unpacking it"
    mkdir "$kernel_dir/build"
    bytes=$(xz --robot --list "${archive[0]}" | awk '$1 == "totals" { print $5 }')
    # shellcheck disable=SC2016 # the words are for tar's shell
    TALLY_MIB=$((bytes >> 20)) tar -C "$kernel_dir/build" --strip-components=1 \
        --exclude='*/drivers/gpu/drm/amd/include' --checkpoint=25600 \
        --checkpoint-action='exec=printf "%s    %d of %d MiB\n" "$(date +%T)" $((TAR_CHECKPOINT / 102)) "$TALLY_MIB" >&2' \
        -xf "${archive[0]}"
    rm -rf "$kernel_dir/package"
    (
        cd "$kernel_dir/build"
        make -s "${make_flags[@]}" rustavailable
        make -s "${make_flags[@]}" tinyconfig
        scripts/kconfig/merge_config.sh -m .config "${kernel_config[@]}"
        make -s "${make_flags[@]}" olddefconfig
    ) >"$kernel_dir/configure.log" 2>&1 || {
        tail -n 20 "$kernel_dir/configure.log" >&2
        die "the kernel cannot be configured"
    }
    kernel_check_config
    touch "$kernel_dir/unpacked"
}

# If the kernel's own rules removed a symbol, that would only be noticed much later.
kernel_check_config() {
    local line lost=()
    while read -r line; do
        grep -qx "$line" "$kernel_dir/build/.config" || lost+=("$line")
    done < <(cat "${kernel_config[@]}" | grep -h '^CONFIG_.*=[ym]$' |
        awk -F= '{ v[$1] = $2 } END { for (s in v) print s "=" v[s] }')
    [ ${#lost[@]} = 0 ] || say "this kernel does not take ${lost[*]}"
}

# Prints the number of objects that are built.
kernel_objects_made() {
    find "$kernel_dir/build" -name '*.o' 2>/dev/null | wc -l
}

# The approximate number of objects of each variant: the exact number is known only after building.
declare -rA kernel_objects=([dev]=1660 [debug]=1800)

kernel_compile() {
    nice -n 5 make -C "$kernel_dir/build" -j"$(nproc)" "${make_flags[@]}" bzImage modules >"$kernel_dir/build.log" 2>&1
}

# Keeps the files needed to boot and to build modules.
kernel_prune() {
    local list=$kernel_dir/superfluous superfluous=(Documentation block crypto drivers fs init io_uring ipc
        kernel lib mm net samples security sound tools/testing tools/perf virt)
    cd "$kernel_dir/build"
    cp arch/x86/boot/bzImage ../bzImage
    make -s "${make_flags[@]}" INSTALL_MOD_PATH="$kernel_dir/modules" modules_install
    # From here on the tree cannot build a kernel any more: after an interruption it is unpacked again.
    rm ../unpacked
    {
        find . -type f \( -name '*.o' -o -name '*.a' -o -name '*.cmd' -o -name '*.ko' \) \
            ! -path './scripts/*' ! -path './rust/*' ! -path './tools/objtool/*'
        find arch -mindepth 1 -maxdepth 1 ! -name Kconfig ! -name 'x86*' -exec find {} ! -type d \;
        # Not every kernel has all of them.
        find vmlinux vmlinux.* .tmp_vmlinux* "${superfluous[@]}" ! -type d || true
    } 2>/dev/null | sort -u >"$list"
    say "removing what is not needed any more"
    xargs -d '\n' -a "$list" -n 1000 rm -vf | counted "$(wc -l <"$list")" files
    rm -rf "$list" "${superfluous[@]}"
    find arch -type d -empty -delete
}

# alone FILE FUNCTION [ARGUMENT]...: calls it while no other of these scripts holds that lock. $cache/lock is for
# what is fetched, and each kernel and each module has a lock of its own: a run that has what it needs waits for no
# other that builds something else.
alone() {
    local lock status file=$1
    shift
    # This process holds the lock already.
    [[ :${TALLY_VM_LOCKS:-}: != *:"$file":* ]] || {
        "$@"
        return
    }
    local TALLY_VM_LOCKS=${TALLY_VM_LOCKS:-}:$file
    exec {lock}>"$file"
    flock --nonblock "$lock" || {
        say "waiting for another scripts/vm"
        flock "$lock"
    }
    # If the caller tests the result (`alone ... ||`), a failure does not end the script, but must still
    # be returned. No `||` here: with it, no failure in a called function would end the script.
    "$@"
    status=$?
    exec {lock}>&-
    return "$status"
}

# kernel_ensure VARIANT: makes sure that the kernel exists.
kernel_ensure() {
    mkdir -p "$cache"
    kernel_prepare "$1"
    [ -e "$kernel_dir/complete" ] || {
        mkdir -p "${kernel_dir%/*}"
        alone "$kernel_dir.lock" kernel_make "$1"
    }
}

# Fetches what building it needs.
kernel_fetch() {
    local lists
    need_kernel_tools
    lists=$(newer_packages)
    kernel_tools "$lists"
    [ -e "$kernel_dir/unpacked" ] || kernel_unpack "$lists"
}

# kernel_make VARIANT: builds the kernel that kernel_prepare has named.
kernel_make() {
    [ ! -e "$kernel_dir/complete" ] || return 0
    alone "$cache/lock" kernel_fetch
    say "building ${kernel_dir##*/}; on two free cores this takes a quarter of an hour"
    watching "about ${kernel_objects[$1]}" objects kernel_objects_made -- kernel_compile || {
        grep -E 'error|Error' "$kernel_dir/build.log" | tail -n 20 >&2
        die "the kernel does not build; all of it: $kernel_dir/build.log"
    }
    say "installing its modules"
    (kernel_prune) >>"$kernel_dir/build.log"
    touch "$kernel_dir/complete"
    say "kernel ready: $kernel_dir"
}
