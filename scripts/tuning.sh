# SPDX-License-Identifier: MIT OR Apache-2.0
# shellcheck shell=bash
#
# Sourced by scripts/bench and scripts/campaign: drivers in which one mechanism of device/src/tuning.rs is
# switched off.

# The name of each mechanism, and the values that switch it off.
readonly mechanisms=(
    "idle-spin IDLE_SPIN=Duration::ZERO"
    "empty-spin EMPTY_SPIN=Duration::ZERO"
    "told-every TOLD_EVERY=1"
    "inline-series INLINE_SERIES=1"
    "quick QUICK_TICKS=0"
    "run-by-starter QUICK_TICKS=0 FEW_BLOCKS=0 FEW_FILL_BLOCKS=0"
    "few-blocks FEW_BLOCKS=0"
    "few-fill-blocks FEW_FILL_BLOCKS=0"
    "worth-a-wake WORTH_A_WAKE=1"
    "claim CLAIM_TICKS=1"
    "quiet QUIET_TICKS=1"
    "elision ELISION_TURNS=u32::MAX"
    "misses-double ELISION_MOST_TURNS=4"
)

# set_number FILE NAME=VALUE
set_number() {
    local name=${2%%=*} value=${2#*=}
    grep -q "const $name: " "$1" || die "device/src/tuning.rs has no $name"
    sed -i -E "s/^(pub.* const $name: [^=]+ = ).*;/\\1$value;/" "$1"
}

# build_mechanisms FOLDER: builds FOLDER/NAME.so for each mechanism, and FOLDER/all.so with all of them
# off.
build_mechanisms() {
    local into=$1 tree=$target/tuning/tree numbers mechanism name number
    rm -rf "$tree" "$into"
    mkdir -p "$tree" "$into"
    copy_sources "$tree"
    numbers=$tree/device/src/tuning.rs
    for mechanism in all "${mechanisms[@]}"; do
        name=${mechanism%% *}
        cp "$root/device/src/tuning.rs" "$numbers"
        for number in ${mechanism#"$name"}; do
            set_number "$numbers" "$number"
        done
        (cd "$tree" && cargo build --quiet --release -p tally-umd --lib --target-dir "$target/tuning/build")
        strip --strip-debug "$target/tuning/build/release/libze_tally.so" -o "$into/$name.so"
    done
}
