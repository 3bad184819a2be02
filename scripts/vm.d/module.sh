# shellcheck shell=bash
# SPDX-License-Identifier: MIT OR Apache-2.0
#
# Sourced by scripts/vm: the module for the kernel that kernel_ensure found, and the virtual GPU.

# Builds tally.ko and sets its path (module). The checkout is not changed. A warning is an error.
module_build() {
    local out=$target/kmd/${kernel_dir##*/}$module_flavour
    mkdir -p "$out"
    [ -f "$root/Kbuild" ] || die "this checkout has no module"
    # Two machines may build it at the same time.
    alone "$out/lock" watching 7 'objects of the module' module_objects "$out" -- module_make "$out" || {
        tail -n 60 "$out/build.log" >&2
        die "the module does not build"
    }
    module=$out/tally.ko
    [ -f "$module" ] || die "the build left no $module"
}

module_make() {
    make -s -C "$kernel_dir/build" M="$root" MO="$1" "${make_flags[@]}" "${module_arguments[@]}" \
        KRUSTFLAGS=-Dwarnings KCFLAGS=-Werror modules >"$1/build.log" 2>&1
}

module_objects() {
    find "$1" -name '*.o' | wc -l
}

# Builds the program of the virtual GPU.
gpu_build() {
    [ -d "$root/device/server" ] || die "this checkout has no tally-gpu"
    (cd "$root" && cargo_counted build --release -p tally-gpu)
}

# gpu_start RUN_FOLDER: starts the device's process (gpu), which listens on gpu.sock.
gpu_start() {
    local run=$1 tries=0
    with_parent "$target/release/tally-gpu" --socket "$run/gpu.sock" "${gpu_arguments[@]}" 2>"$run/gpu.log" &
    gpu=$!
    until [ -S "$run/gpu.sock" ]; do
        kill -0 "$gpu" 2>/dev/null && [ $((tries += 1)) -lt 600 ] || {
            cat "$run/gpu.log" >&2
            die "tally-gpu does not start"
        }
        sleep 0.1
    done
}

# gpu_disturb RUN_FOLDER: while the command runs, stops the device's process for up to two seconds at a
# time, and kills one of its engine processes now and then.
gpu_disturb() {
    local run=$1 engines
    until [ -e "$run/loaded" ]; do sleep 0.3; done
    while [ -d "$run" ] && kill -0 "$gpu"; do
        sleep "0.$((RANDOM % 9 + 1))"
        if [ $((RANDOM % 2)) = 0 ]; then
            kill -STOP "$gpu"
            sleep "$((RANDOM % 2)).$((RANDOM % 9 + 1))"
            kill -CONT "$gpu"
        else
            mapfile -t engines < <(ps --no-headers -o pid --ppid "$gpu")
            [ ${#engines[@]} = 0 ] || kill -KILL $((engines[RANDOM % ${#engines[@]}]))
        fi
    done
}

# gpu_watch RUN_FOLDER: records the device's processes, while it runs.
gpu_watch() {
    local run=$1
    while [ -d "$run" ] && kill -0 "$gpu" 2>/dev/null; do
        ps --no-headers -o pid,rss,args --ppid "$gpu" >"$run.engines" && mv "$run.engines" "$run/engines"
        sleep 0.3
    done
}
