# shellcheck shell=bash
# SPDX-License-Identifier: MIT OR Apache-2.0
#
# Sourced by scripts with long steps: prints what they do, and their progress.

# say STEP: prints a line with the time.
say() {
    printf '%s  %s\n' "$(date +%T)" "$*" >&2
}

# The interval between reports of a step's progress, in seconds.
readonly progress_every=5

# watching TOTAL UNIT COUNT... -- COMMAND...: runs the command; the command COUNT prints how much is
# done.
watching() {
    local total=$1 unit=$2 count=() watcher status=0
    shift 2
    while [ "$1" != -- ]; do
        count+=("$1")
        shift
    done
    shift
    {
        while sleep "$progress_every"; do
            say "  $("${count[@]}" 2>/dev/null) of $total $unit"
        done
    } &
    watcher=$!
    "$@" || status=$?
    kill "$watcher" 2>/dev/null
    wait "$watcher" 2>/dev/null || true
    return "$status"
}

# counted TOTAL UNIT: reads a line for each finished unit.
counted() {
    local total=$1 unit=$2 done=0 last=$SECONDS
    while read -r _; do
        done=$((done + 1))
        [ $((SECONDS - last)) -lt "$progress_every" ] || {
            last=$SECONDS
            say "  $done of $total $unit"
        }
    done
}

# cargo_counted ARGUMENT...: runs cargo with its progress output for terminals, which counts the crates.
cargo_counted() {
    local status=0 log last=$SECONDS line
    log=$(mktemp)
    CARGO_TERM_PROGRESS_WHEN=always CARGO_TERM_PROGRESS_WIDTH=80 CARGO_TERM_COLOR=never cargo "$@" 2>&1 |
        tr '\r' '\n' | tee "$log" | while read -r line; do
        [[ $line =~ Building.*\ ([0-9]+)/([0-9]+) ]] || continue
        [ $((SECONDS - last)) -lt "$progress_every" ] || {
            last=$SECONDS
            say "  ${BASH_REMATCH[1]} of ${BASH_REMATCH[2]} crates"
        }
    done || status=$?
    [ "$status" = 0 ] || grep -v '^ *Building' "$log" >&2 || true
    rm -f "$log"
    return "$status"
}
