# SPDX-License-Identifier: MIT OR Apache-2.0
# shellcheck shell=bash
#
# Sourced by scripts/test and scripts/campaign: drivers and tests built with a sanitizer.

# Programs of tests/tests that run under a sanitizer.
readonly sanitized_tests=(cb_event cb_event_appends cb_event_clone cb_event_create cb_event_regular
    cb_event_storage cb_event_wait cooperative copy deadlock_guide event graph graph_execution graph_nested
    host_function image image_copy image_kernel ipc_cb_event ipc_memory ipc_pool launch launch_forms list
    many_threads memory memory_free module_link mutable_list order printf sync timestamp trace)
# The device handles these signals and turns them into errors, so the sanitizer must not.
readonly sanitizer_signals='handle_segv=0 handle_sigbus=0 handle_sigill=0 handle_sigfpe=0 use_sigaltstack=0'

# sanitize address | thread: sets the environment of cargo, and its options in `sanitize_options`. The
# driver uses the run time in the program.
sanitize() {
    export RUSTC_BOOTSTRAP=1
    export RUSTFLAGS="-Zsanitizer=$1 -Cunsafe-allow-abi-mismatch=sanitizer -Clink-args=-rdynamic"
    sanitize_options=(--target x86_64-unknown-linux-gnu --target-dir "$target/$1")
    [ "$1" = thread ] || return 0
    RUSTFLAGS+=" --cfg tsan"
    # Without an instrumented standard library every mutex is unknown and everything is reported as a
    # race.
    [ -d "$(rustc --print sysroot)/lib/rustlib/src/rust/library" ] ||
        die "there is no source of the standard library; with rustup: rustup component add rust-src"
    sanitize_options+=(-Zbuild-std)
}
