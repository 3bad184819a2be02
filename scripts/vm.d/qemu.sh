# shellcheck shell=bash
# SPDX-License-Identifier: MIT OR Apache-2.0
#
# Sourced by scripts/vm: the machine around the kernel.

# vfio-user-pci, which attaches the virtual GPU, is there from this version on.
readonly qemu_oldest=10.1

# qemu_fetch FOLDER: unpacks it there.
qemu_fetch() {
    local tree=$1 lists
    [ ! -d "$tree" ] || return 0
    say "fetching QEMU"
    lists=$(newer_packages)
    rm -rf "$tree.partial"
    unpack_closure "$lists" "$tree.partial" -t trixie-backports qemu-system-x86
    mv "$tree.partial" "$tree"
}

# qemu_prepare: the command that starts QEMU (qemu), of this machine if it is new enough.
qemu_prepare() {
    local found tree=$cache/qemu lib
    found=$(qemu-system-x86_64 --version 2>/dev/null | sed -n 's/^QEMU emulator version \([0-9.]*\).*/\1/p') || true
    if [ -n "$found" ] && [ "$(printf '%s\n' "$qemu_oldest" "$found" | sort -V | head -n 1)" = "$qemu_oldest" ]; then
        qemu=(qemu-system-x86_64)
        return
    fi
    [ -d "$tree" ] || alone qemu_fetch "$tree"
    lib=$tree/usr/lib/x86_64-linux-gnu
    qemu=("$lib/ld-linux-x86-64.so.2" --library-path "$lib:$lib/pulseaudio" --argv0 qemu-system-x86_64
        "$tree/usr/bin/qemu-system-x86_64" -L "$tree/usr/share/qemu" -L "$tree/usr/share/seabios")
}

# guest_initramfs FILE: busybox and guest-init, which finds the rest on the host.
guest_initramfs() {
    local tree
    tree=$(mktemp -d)
    mkdir -p "$tree/bin" "$tree/dev" "$tree/proc" "$tree/sys" "$tree/lower" "$tree/upper" "$tree/guest"
    cp "$(command -v busybox)" "$tree/bin/busybox"
    cp "$here/guest-init" "$tree/init"
    (cd "$tree" && find . | cpio --quiet -o -H newc | gzip -1) >"$1"
    rm -rf "$tree"
}

# share TAG FOLDER [OPTION]: a folder of the host, for QEMU's command line.
share() {
    printf '%s\n' -fsdev "local,id=$1,path=$2,security_model=none,multidevs=remap${3:+,$3}"
    device "$1" virtio-9p-pci "fsdev=$1,mount_tag=$1$keeps_state"
}

# device ID DRIVER [PROPERTIES]: a device, on the debug machine in a slot of its own.
device() {
    local bus=
    [ "$variant" != debug ] || {
        slots=$((slots + 1))
        printf '%s\n' -device "pcie-root-port,id=slot-$1,chassis=$slots"
        bus=,bus=slot-$1
    }
    printf '%s\n' -device "$2$bus${3:+,$3}"
}

# How long QEMU waits for an answer of the device's process, in ms. After that it gives the device up for
# good, by default after five seconds, which a process that stands still for a while may exceed.
readonly device_patience=3600000

# machine RUN_FOLDER: the devices, one argument a line. On the debug machine they are in slots, so that the
# bus can report errors of the virtual GPU's, and virtio's keep their state while the machine sleeps: that of
# 9p and of the ports is not made anew by their drivers.
machine() {
    local run=$1 stream slots=0 keeps_state= gpu_bus=
    [ "$variant" != debug ] || keeps_state=,x-pcie-pm-no-soft-reset=on
    share root / readonly=on
    share target "$target"
    share run "$run"
    [ ! -S "$run/gpu.sock" ] || {
        [ "$variant" != debug ] || {
            gpu_bus='"bus":"slot-gpu",'
            printf '%s\n' -device pcie-root-port,id=slot-gpu,chassis=9
        }
        printf '%s\n' -device \
            "{\"driver\":\"vfio-user-pci\",$gpu_bus\"x-msg-timeout\":$device_patience,\"socket\":{\"type\":\"unix\",\"path\":\"$run/gpu.sock\"}}"
    }
    if [ -e "$run/shell" ]; then
        printf '%s\n' -chardev stdio,id=console,signal=off
        return
    fi
    printf '%s\n' -chardev "file,id=console,path=$run/console.log"
    device serial virtio-serial-pci "${keeps_state#,}"
    for stream in out err; do
        printf '%s\n' -chardev "file,id=$stream,path=$run/$stream" \
            -device "virtserialport,chardev=$stream,name=$stream"
    done
}

# What every kernel is told. Without the last word one in fifty boots on two busy processors never ends:
# before Linux 7.3 has changed to the TSC its clock is a timer's interrupt, and its clocksource watchdog
# waits, with interrupts off, for a time to pass or a processor that has stopped for just that change.
readonly kernel_parameters='console=ttyS0 panic=-1 loglevel=7 tsc=nowatchdog'

# The time in which a kernel has to reach its first process, in seconds. It takes 3 s, that for debugging
# 80, and on a host that has other things to do many times as long.
boot_limit=300

# guest_guard RUN_FOLDER: ends a machine that does not come up, with the status `stuck`.
guest_guard() {
    local run=$1 end=$((SECONDS + boot_limit))
    while [ -d "$run" ] && [ ! -e "$run/started" ]; do
        [ "$SECONDS" -lt "$end" ] || {
            echo stuck >"$run/status"
            # What hangs may no longer listen to anything milder.
            kill -KILL "$(cat "$run/pid")"
            return
        }
        sleep 1
    done
}

# guest_stop: ends the machine, if one runs.
machine=
guest_stop() {
    [ -z "$machine" ] || {
        kill "$machine" "$guard" 2>/dev/null || true
        wait "$machine" 2>/dev/null || true
    }
    machine=
}

# guest_run RUN_FOLDER: boots kernel_dir's kernel and waits for the end of the machine.
#
# The folder holds what the guest is to do (see guest-init) and receives its answers. The two streams
# of the command come through ports of their own, so that nothing of the kernel's is between them.
guest_run() {
    local run=$1 devices out err readers=() status=0
    mkfifo "$run/out" "$run/err"
    # Open for both directions, so that neither side waits for the other to open it.
    exec {out}<>"$run/out" {err}<>"$run/err"
    cat "$run/out" {out}<&- {err}<&- &
    readers+=($!)
    cat "$run/err" {out}<&- {err}<&- >&2 &
    readers+=($!)
    [ "$variant" != debug ] || boot_limit=900
    mapfile -t devices < <(machine "$run")
    guest_guard "$run" {out}<&- {err}<&- >/dev/null 2>&1 &
    guard=$!
    # In the background, so that this shell hears signals; with the standard input all the same.
    timeout --foreground "$limit" "${qemu[@]}" -nodefaults -no-user-config -display none -no-reboot \
        -pidfile "$run/pid" -M q35,memory-backend=memory -accel "$accelerator" -cpu max -smp "$cpus" -m "$memory" \
        -object "memory-backend-memfd,id=memory,size=$memory,share=on" \
        -kernel "$kernel_dir/bzImage" -initrd "$run/initramfs" \
        -append "$kernel_parameters tally.target=$target tally.modules=$kernel_dir/modules $append" \
        -serial chardev:console "${devices[@]}" {out}<&- {err}<&- <&0 2>"$run/qemu.log" &
    machine=$!
    wait "$machine" || status=$?
    machine=
    exec {out}<&- {err}<&-
    kill "$guard" 2>/dev/null || true
    wait "${readers[@]}"
    return "$status"
}
