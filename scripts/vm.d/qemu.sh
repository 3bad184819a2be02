# shellcheck shell=bash
# SPDX-License-Identifier: MIT OR Apache-2.0
#
# Sourced by scripts/vm: the machine around the kernel.

# vfio-user-pci, which attaches the virtual GPU, exists from this version on.
readonly qemu_oldest=10.1

# qemu_fetch FOLDER: unpacks QEMU there.
qemu_fetch() {
    local tree=$1 lists packages count apt_tell=yes
    [ ! -d "$tree" ] || return 0
    say "fetching QEMU and what it needs"
    lists=$(newer_packages)
    rm -rf "$tree.partial"
    packages=(-t trixie-backports qemu-system-x86)
    count=$(in_apt_root "$lists" apt-get --print-uris install "${packages[@]}" | wc -l)
    watching "$(mib_of "$lists" install "${packages[@]}")" MiB mib_fetched -- \
        unpack_closure "$lists" "$tree.partial" "${packages[@]}" | counted "$count" packages
    mv "$tree.partial" "$tree"
}

# qemu_prepare: sets the command that starts QEMU (qemu), this machine's if it is new enough.
qemu_prepare() {
    local found tree=$cache/qemu lib
    found=$(qemu-system-x86_64 --version 2>/dev/null | sed -n 's/^QEMU emulator version \([0-9.]*\).*/\1/p') || true
    if [ -n "$found" ] && [ "$(printf '%s\n' "$qemu_oldest" "$found" | sort -V | head -n 1)" = "$qemu_oldest" ]; then
        qemu=(qemu-system-x86_64)
        return
    fi
    [ -d "$tree" ] || alone "$cache/lock" qemu_fetch "$tree"
    lib=$tree/usr/lib/x86_64-linux-gnu
    qemu=("$lib/ld-linux-x86-64.so.2" --library-path "$lib:$lib/pulseaudio" --argv0 qemu-system-x86_64
        "$tree/usr/bin/qemu-system-x86_64" -L "$tree/usr/share/qemu" -L "$tree/usr/share/seabios")
}

# guest_initramfs FILE: packs busybox and guest-init, which finds the rest on the host.
guest_initramfs() {
    local tree
    tree=$(mktemp -d)
    mkdir -p "$tree/bin" "$tree/dev" "$tree/proc" "$tree/sys" "$tree/lower" "$tree/upper" "$tree/guest"
    cp "$(command -v busybox)" "$tree/bin/busybox"
    cp "$here/guest-init" "$tree/init"
    (cd "$tree" && find . | cpio --quiet -o -H newc | gzip -1) >"$1"
    rm -rf "$tree"
}

# share TAG FOLDER [OPTION]: prints QEMU's arguments for a folder of the host.
share() {
    printf '%s\n' -fsdev "local,id=$1,path=$2,security_model=none,multidevs=remap${3:+,$3}"
    device "$1" virtio-9p-pci "fsdev=$1,mount_tag=$1$keeps_state"
}

# device ID DRIVER [PROPERTIES]: prints QEMU's arguments for a device, in a slot of its own.
device() {
    slots=$((slots + 1))
    printf '%s\n' -device "pcie-root-port,id=slot-$1,chassis=$slots" -device "$2,bus=slot-$1${3:+,$3}"
}

# The time that QEMU waits for an answer of the device's process, in ms. After that it gives up the
# device permanently. The default of five seconds is too short for a process that is stopped for a
# while.
readonly device_patience=3600000

# machine RUN_FOLDER: prints the devices, one argument a line. They are in slots, so that the bus can
# report errors of the virtual GPU, and virtio's devices keep their state while the machine sleeps: the
# drivers of 9p and of the ports do not restore it.
machine() {
    local run=$1 stream slots=0 keeps_state=,x-pcie-pm-no-soft-reset=on
    share root / readonly=on
    share target "$target"
    share run "$run"
    [ ! -S "$run/gpu.sock" ] || {
        printf '%s\n' -device pcie-root-port,id=slot-gpu,chassis=9 -device \
            "{\"driver\":\"vfio-user-pci\",\"bus\":\"slot-gpu\",\"x-msg-timeout\":$device_patience,\"socket\":{\"type\":\"unix\",\"path\":\"$run/gpu.sock\"}}"
    }
    printf '%s\n' -chardev "file,id=console,path=$run/console.log"
    device serial virtio-serial-pci "${keeps_state#,}"
    if [ -e "$run/shell" ]; then
        # It is separate from the kernel's console, so that kernel messages do not mix with the output.
        printf '%s\n' -chardev stdio,id=terminal,signal=off -device virtconsole,chardev=terminal
        return
    fi
    printf '%s\n' -chardev "file,id=in,path=/dev/null,input-path=$run/in" -device virtserialport,chardev=in,name=in
    for stream in out err; do
        printf '%s\n' -chardev "file,id=$stream,path=$run/$stream" \
            -device "virtserialport,chardev=$stream,name=$stream"
    done
}

# Parameters of every kernel. Without the last one, one in fifty boots on two busy processors never
# ends: before Linux 7.3 has changed to the TSC its clock is a timer's interrupt, and its clocksource
# watchdog waits, with interrupts off, for a time to pass or for a processor that has stopped for just
# that change.
readonly kernel_parameters='console=ttyS0 panic=-1 loglevel=7 tsc=nowatchdog'

# The time in which a kernel has to reach its first process, in seconds. It takes 3 s, the debug kernel
# 80, and many times as long on a busy host.
boot_limit=300

# guest_guard RUN_FOLDER: ends a machine that does not boot in time, with the status `stuck`.
guest_guard() {
    local run=$1 end=$((SECONDS + boot_limit))
    while [ -d "$run" ] && [ ! -e "$run/started" ]; do
        [ "$SECONDS" -lt "$end" ] || {
            echo stuck >"$run/status"
            # A hung process may not react to any other signal.
            kill -KILL "$(cat "$run/pid")"
            return
        }
        sleep 1
    done
}

# boot_tell RUN_FOLDER: shows a waiting user the progress.
boot_tell() {
    local run=$1 step
    while sleep "$progress_every" && [ -d "$run" ] && [ ! -e "$run/loaded" ]; do
        step=0
        [ ! -s "$run/console.log" ] || step=1
        [ ! -e "$run/started" ] || step=2
        [ ! -e "$run/clock" ] || step=3
        say "  booting: $step of 4 steps"
    done
}

# guest_feed RUN_FOLDER: copies the input of the machine's command, once no further boot follows.
guest_feed() {
    local run=$1
    [ ! -e "$run/shell" ] || return 0
    # A background process that reads a terminal is stopped.
    [ ! -t 0 ] || [ "$(ps -o pgid= -p $$)" = "$(ps -o tpgid= -p $$)" ] || return 0
    while [ -d "$run" ] && [ ! -e "$run/loaded" ]; do sleep 0.1; done
    exec cat
}

# with_parent COMMAND...: runs a command that ends when this script does, however that ends.
with_parent() {
    exec setpriv --pdeathsig KILL -- "$@"
}

# guest_stop: ends the machine, if one runs.
machine=
terminal=
guest_stop() {
    [ -z "$machine" ] || {
        kill "$machine" "${guards[@]}" 2>/dev/null || true
        wait "$machine" 2>/dev/null || true
    }
    machine=
    # QEMU restores the terminal only if it ends by itself.
    [ -z "$terminal" ] || stty "$terminal" 2>/dev/null || true
}

# guest_run RUN_FOLDER: boots kernel_dir's kernel and waits for the end of the machine.
#
# The folder holds the guest's task (see guest-init) and receives its answers. The streams of the
# command have ports of their own, so that no kernel messages are between them.
guest_run() {
    local run=$1 devices in out err readers=() status=0
    mkfifo "$run/in" "$run/out" "$run/err"
    # Open for both directions, so that neither side waits for the other to open it.
    exec {in}<>"$run/in" {out}<>"$run/out" {err}<>"$run/err"
    cat "$run/out" {in}<&- {out}<&- {err}<&- &
    readers+=($!)
    cat "$run/err" {in}<&- {out}<&- {err}<&- >&2 &
    readers+=($!)
    [ ! -t 0 ] || terminal=$(stty -g)
    guest_feed "$run" <&0 >&"$in" {in}<&- {out}<&- {err}<&- 2>/dev/null &
    guards=($!)
    [ "$variant" != debug ] || boot_limit=900
    mapfile -t devices < <(machine "$run")
    guest_guard "$run" {in}<&- {out}<&- {err}<&- >/dev/null 2>&1 &
    guards+=($!)
    [ ! -t 2 ] || {
        boot_tell "$run" {in}<&- {out}<&- {err}<&- &
        guards+=($!)
    }
    # In the background, so that this shell handles signals; its standard input is still the shell's
    # terminal.
    with_parent timeout --foreground "$limit" setpriv --pdeathsig KILL -- \
        "${qemu[@]}" -nodefaults -no-user-config -display none -no-reboot \
        -pidfile "$run/pid" -M q35,memory-backend=memory -accel "$accelerator" -cpu max -smp "$cpus" -m "$memory" \
        -object "memory-backend-memfd,id=memory,size=$memory,share=on" \
        -kernel "$kernel_dir/bzImage" -initrd "$run/initramfs" \
        -append "$kernel_parameters tally.target=$target tally.modules=$kernel_dir/modules $append" \
        -serial chardev:console "${devices[@]}" {in}<&- {out}<&- {err}<&- <&0 2>"$run/qemu.log" &
    machine=$!
    # From here on only the feeder has it open for writing, and its end is the end of the input.
    exec {in}<&-
    wait "$machine" || status=$?
    machine=
    exec {out}<&- {err}<&-
    kill "${guards[@]}" 2>/dev/null || true
    wait "${readers[@]}"
    return "$status"
}
