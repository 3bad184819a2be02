# SPDX-License-Identifier: MIT OR Apache-2.0
"""Uses SYCL through dpctl, like an application that does not know Tally.

usage: dpctl_client.py FOLDER      FOLDER holds the SPIR-V of tests/kernels

One line per check, with "ok" or what went wrong, and an exit status of 1 if any failed. Every check
compares results on the host.
"""

import ctypes
import os
import sys
import threading
import traceback
from pathlib import Path

import dpctl
import dpctl.memory as usm
import dpctl.program
import numpy as np

IN_ORDER, OUT_OF_ORDER = "in_order", None
KINDS = (usm.MemoryUSMDevice, usm.MemoryUSMShared, usm.MemoryUSMHost)


class Client:
    """The device, and modules that are built once per context."""

    def __init__(self, folder):
        self.folder = folder
        self.device = dpctl.select_gpu_device()
        self.context = dpctl.SyclContext(self.device)
        self.programs = {}

    def queue(self, *properties):
        given = [it for it in properties if it]
        return dpctl.SyclQueue(self.context, self.device, property=given)

    def kernel(self, file, name):
        if file not in self.programs:
            code = (self.folder / f"{file}.spv").read_bytes()
            self.programs[file] = dpctl.program.create_program_from_spirv(self.queue(), code)
        return self.programs[file].get_sycl_kernel(name)


def filled(kind, queue, array):
    """USM of `kind` that holds the bytes of `array`."""
    memory = kind(array.nbytes, queue=queue)
    memory.copy_from_host(array.view(np.uint8).reshape(-1))
    return memory


def contents(memory, dtype):
    return np.frombuffer(memory.copy_to_host(), dtype=dtype)


def equal(found, expected):
    np.testing.assert_array_equal(found, expected)


def device_is_listed(c):
    listed = dpctl.get_devices(backend="level_zero", device_type="gpu")
    assert [it.name for it in listed] == ["Tally virtual GPU"], listed
    d = c.device
    assert d.has_aspect_gpu and d.has_aspect_fp16 and d.has_aspect_fp64 and d.has_aspect_atomic64
    assert d.has_aspect_usm_device_allocations and d.has_aspect_usm_host_allocations
    assert d.has_aspect_usm_shared_allocations and d.has_aspect_queue_profiling
    # The driver does not claim what it lacks: kernels reach memory of malloc's only where they run in
    # this process.
    assert not d.has_aspect_image
    assert d.has_aspect_usm_system_allocations == (os.environ.get("TALLY_LANE") != "drm")
    assert d.partition_max_sub_devices == 0
    assert d.max_compute_units > 0 and d.max_work_group_size >= 256
    assert d.local_mem_size >= 32768 and 0 < d.max_mem_alloc_size <= d.global_mem_size


def kernels_say_what_they_need(c):
    kernel = c.kernel("saxpy", "saxpy")
    assert kernel.num_args == 4, kernel.num_args
    assert 1 <= kernel.work_group_size <= c.device.max_work_group_size
    assert kernel.preferred_work_group_size_multiple >= 1
    assert c.kernel("matmul", "matmul").num_args == 4


def saxpy(c, kind, order):
    n = 100_000
    queue = c.queue(order)
    x = np.arange(n, dtype=np.float32)
    y = np.full(n, 0.5, dtype=np.float32)
    on_x, on_y = filled(kind, queue, x), filled(kind, queue, y)
    args = [ctypes.c_float(2.0), on_x, on_y, ctypes.c_uint32(n)]
    queue.submit_async(c.kernel("saxpy", "saxpy"), args, [n]).wait()
    equal(contents(on_y, np.float32), 2 * x + y)


def a_local_size_may_be_given_or_left_out(c):
    queue, n = c.queue(IN_ORDER), 4096
    for local in (None, [1], [64], [256], [1024]):
        y = filled(usm.MemoryUSMShared, queue, np.zeros(n, dtype=np.float32))
        x = filled(usm.MemoryUSMShared, queue, np.ones(n, dtype=np.float32))
        args = [ctypes.c_float(3.0), x, y, ctypes.c_uint32(n)]
        queue.submit(c.kernel("saxpy", "saxpy"), args, [n], local)
        equal(contents(y, np.float32), np.full(n, 3, dtype=np.float32))


def two_dimensions_local_memory_and_barriers(c):
    queue, n, tile = c.queue(), 64, 16
    a = np.arange(n * n, dtype=np.float32).reshape(n, n) % 7
    b = np.arange(n * n, dtype=np.float32).reshape(n, n) % 5
    on_a, on_b = (filled(usm.MemoryUSMDevice, queue, it) for it in (a, b))
    on_c = usm.MemoryUSMDevice(a.nbytes, queue=queue)
    args = [on_a, on_b, on_c, ctypes.c_uint32(n)]
    queue.submit(c.kernel("matmul", "matmul"), args, [n, n], [tile, tile])
    equal(contents(on_c, np.float32).reshape(n, n), a @ b)


def local_memory_as_an_argument(c):
    queue, n, group = c.queue(), 10_000, 128
    data = np.arange(n, dtype=np.uint32)
    on_data = filled(usm.MemoryUSMDevice, queue, data)
    total = filled(usm.MemoryUSMShared, queue, np.zeros(1, dtype=np.uint32))
    partial = dpctl.LocalAccessor("u4", (group,))
    size = (n + group - 1) // group * group
    args = [on_data, ctypes.c_uint32(n), total, partial]
    queue.submit(c.kernel("reduce", "reduce"), args, [size], [group])
    equal(contents(total, np.uint32)[0], data.sum(dtype=np.uint32))


def eight_bytes_of_zero_are_a_value(c):
    # SYCL passes a null pointer for them to the driver: it cannot distinguish pointers from integers.
    queue = c.queue()
    flag, outcome = (filled(usm.MemoryUSMShared, queue, np.full(1, it, np.uint32)) for it in (7, 5))
    looks = ctypes.c_uint64(0)
    queue.submit_async(c.kernel("spin", "spin"), [flag, looks, outcome], [1]).wait()
    equal(contents(outcome, np.uint32), [0])


def atomics(c):
    queue, n = c.queue(), 50_000
    data = (np.arange(n) * 7 % 256).astype(np.uint8)
    bins = filled(usm.MemoryUSMShared, queue, np.zeros(256, dtype=np.uint32))
    args = [filled(usm.MemoryUSMDevice, queue, data), ctypes.c_uint32(n), bins]
    queue.submit(c.kernel("atomics", "histogram"), args, [n])
    equal(contents(bins, np.uint32), np.bincount(data, minlength=256))


def chain(c, queue, explicit, links=300):
    """x = x * factor + term repeatedly: any two steps in another order give another result."""
    n = 1000
    expected = np.arange(n, dtype=np.uint32)
    on_data = filled(usm.MemoryUSMDevice, queue, expected)
    kernel, last = c.kernel("chain", "chain"), []
    for i in range(links):
        factor, term = 2 * i + 3, 7 * i + 1
        args = [on_data, ctypes.c_uint32(factor), ctypes.c_uint32(term), ctypes.c_uint32(n)]
        event = queue.submit_async(kernel, args, [n], None, last if explicit else [])
        last = [event]
        expected = expected * np.uint32(factor) + np.uint32(term)
    last[0].wait()
    equal(contents(on_data, np.uint32), expected)


def a_queue_keeps_its_order(c):
    chain(c, c.queue(IN_ORDER), explicit=False)


def events_order_an_out_of_order_queue(c):
    chain(c, c.queue(), explicit=True)


def events_order_commands_of_two_queues(c):
    queues = [c.queue(IN_ORDER), c.queue()]
    n, kernel, last = 500, c.kernel("chain", "chain"), []
    expected = np.arange(n, dtype=np.uint32)
    on_data = filled(usm.MemoryUSMDevice, queues[0], expected)
    for i in range(100):
        args = [on_data, ctypes.c_uint32(i + 2), ctypes.c_uint32(i), ctypes.c_uint32(n)]
        last = [queues[i % 2].submit_async(kernel, args, [n], None, last)]
        expected = expected * np.uint32(i + 2) + np.uint32(i)
    dpctl.SyclEvent.wait_for(last)
    equal(contents(on_data, np.uint32), expected)


def barriers_join_and_split(c):
    queue, n, kernel = c.queue(), 2000, c.kernel("chain", "chain")
    arrays = [filled(usm.MemoryUSMDevice, queue, np.arange(n, dtype=np.uint32)) for _ in range(4)]
    for factor in (3, 5, 7):
        for array in arrays:
            args = [array, ctypes.c_uint32(factor), ctypes.c_uint32(1), ctypes.c_uint32(n)]
            queue.submit_async(kernel, args, [n])
        queue.submit_barrier()
    queue.wait()
    expected = ((np.arange(n, dtype=np.uint32) * 3 + 1) * 5 + 1) * 7 + 1
    for array in arrays:
        equal(contents(array, np.uint32), expected)


def copies_between_all_kinds_and_the_host(c):
    queue = c.queue()
    for size in (1, 3, 64, 4095, 1 << 20):
        data = (np.arange(size) * 31 % 251).astype(np.uint8)
        for source in KINDS:
            for target in KINDS:
                on_source = filled(source, queue, data)
                on_target = target(size, queue=queue)
                queue.memcpy(on_target, on_source, size)
                equal(contents(on_target, np.uint8), data)


def copies_wait_for_events(c):
    queue, n = c.queue(), 100_000
    x = filled(usm.MemoryUSMDevice, queue, np.ones(n, dtype=np.float32))
    y = filled(usm.MemoryUSMDevice, queue, np.zeros(n, dtype=np.float32))
    z = usm.MemoryUSMHost(4 * n, queue=queue)
    args = [ctypes.c_float(5.0), x, y, ctypes.c_uint32(n)]
    done = queue.submit_async(c.kernel("saxpy", "saxpy"), args, [n])
    queue.memcpy_async(z, y, 4 * n, [done]).wait()
    equal(contents(z, np.float32), np.full(n, 5, dtype=np.float32))


def fills(c):
    queue = c.queue()
    for kind in KINDS:
        memory = kind(10_001, queue=queue)
        memory.memset(0xA5)
        equal(contents(memory, np.uint8), np.full(10_001, 0xA5, dtype=np.uint8))


def prefetch_and_advice_change_nothing(c):
    queue = c.queue()
    memory = filled(usm.MemoryUSMShared, queue, np.arange(4096, dtype=np.uint32))
    queue.prefetch(memory, memory.nbytes)
    queue.mem_advise(memory, memory.nbytes, 0)
    equal(contents(memory, np.uint32), np.arange(4096, dtype=np.uint32))


def memory_knows_its_kind(c):
    queue = c.queue()
    for kind, name in zip(KINDS, ("device", "shared", "host")):
        memory = kind(64, queue=queue)
        assert memory.get_usm_type() == name, memory.get_usm_type()
    aligned = usm.MemoryUSMShared(64, alignment=4096, queue=queue)
    assert aligned._pointer % 4096 == 0


def the_host_writes_shared_memory_in_place(c):
    queue, n = c.queue(IN_ORDER), 1000
    memory = usm.MemoryUSMShared(4 * n, queue=queue)
    view = np.ndarray(n, dtype=np.uint32, buffer=memory)
    view[:] = np.arange(n)
    args = [memory, ctypes.c_uint32(2), ctypes.c_uint32(1), ctypes.c_uint32(n)]
    queue.submit(c.kernel("chain", "chain"), args, [n])
    equal(view, 2 * np.arange(n, dtype=np.uint32) + 1)


def profiling(c, order):
    queue, n, last_end = c.queue("enable_profiling", order), 1 << 18, 0
    data = filled(usm.MemoryUSMDevice, queue, np.zeros(n, dtype=np.uint32))
    args = [data, ctypes.c_uint32(2), ctypes.c_uint32(1), ctypes.c_uint32(n)]
    for _ in range(20):
        event = queue.submit_async(c.kernel("chain", "chain"), args, [n])
        event.wait()
        submit, start = event.profiling_info_submit, event.profiling_info_start
        end = event.profiling_info_end
        assert 0 < submit <= start < end, (submit, start, end)
        assert last_end <= start, (last_end, start)
        # A quarter of a million additions take more than a microsecond and less than ten seconds.
        assert 1_000 < end - start < 10_000_000_000, end - start
        last_end = end


def an_event_tells_its_state(c):
    queue = c.queue()
    release = filled(usm.MemoryUSMShared, queue, np.zeros(1, dtype=np.uint32))
    outcome = filled(usm.MemoryUSMShared, queue, np.zeros(1, dtype=np.uint32))
    args = [release, ctypes.c_uint64(1 << 40), outcome]
    event = queue.submit_async(c.kernel("spin", "spin"), args, [1])
    assert event.execution_status != dpctl.event_status_type.complete
    np.ndarray(1, dtype=np.uint32, buffer=release)[0] = 1
    event.wait()
    assert event.execution_status == dpctl.event_status_type.complete


def threads_with_queues_of_their_own(c):
    kernel, failures = c.kernel("chain", "chain"), []

    def work():
        try:
            chain(c, c.queue(IN_ORDER), explicit=False, links=50)
        except BaseException as error:
            failures.append(error)

    assert kernel
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures


def many_queues_and_events_come_and_go(c):
    kernel, n = c.kernel("chain", "chain"), 16
    for _ in range(200):
        chain(c, c.queue(IN_ORDER), explicit=False, links=3)
    queue = c.queue()
    data = filled(usm.MemoryUSMDevice, queue, np.zeros(n, dtype=np.uint32))
    # Nothing orders them, so none of their items touches the data.
    args = [data, ctypes.c_uint32(1), ctypes.c_uint32(0), ctypes.c_uint32(0)]
    events = [queue.submit_async(kernel, args, [n]) for _ in range(2000)]
    dpctl.SyclEvent.wait_for(events)


def a_bad_module_is_refused_and_nothing_breaks(c):
    for code in (b"no SPIR-V at all", b"\x03\x02\x23\x07" + bytes(40)):
        try:
            dpctl.program.create_program_from_spirv(c.queue(), code)
        except (dpctl.program.SyclProgramCompilationError, ValueError):
            continue
        raise AssertionError(f"{code!r} was accepted")
    saxpy(c, usm.MemoryUSMShared, IN_ORDER)


def bad_ranges_are_refused(c):
    queue, n = c.queue(), 64
    data = filled(usm.MemoryUSMShared, queue, np.zeros(n, dtype=np.uint32))
    args = [data, ctypes.c_uint32(1), ctypes.c_uint32(1), ctypes.c_uint32(n)]
    for size, local in (([n], [48]), ([1 << 16], [1 << 15])):
        try:
            queue.submit(c.kernel("chain", "chain"), args, size, local)
        except (dpctl.SyclKernelSubmitError, ValueError):
            continue
        raise AssertionError(f"{size} in groups of {local} was accepted")
    queue.submit(c.kernel("chain", "chain"), args, [n])
    equal(contents(data, np.uint32), np.ones(n, dtype=np.uint32))


def checks():
    yield device_is_listed
    yield kernels_say_what_they_need
    for kind in KINDS:
        for order, name in ((IN_ORDER, "in-order"), (OUT_OF_ORDER, "out-of-order")):
            def case(c, kind=kind, order=order):
                saxpy(c, kind, order)
            case.__name__ = f"saxpy in {kind.__name__[9:].lower()} memory, {name}"
            yield case
    yield a_local_size_may_be_given_or_left_out
    yield two_dimensions_local_memory_and_barriers
    yield local_memory_as_an_argument
    yield eight_bytes_of_zero_are_a_value
    yield atomics
    yield a_queue_keeps_its_order
    yield events_order_an_out_of_order_queue
    yield events_order_commands_of_two_queues
    yield barriers_join_and_split
    yield copies_between_all_kinds_and_the_host
    yield copies_wait_for_events
    yield fills
    yield prefetch_and_advice_change_nothing
    yield memory_knows_its_kind
    yield the_host_writes_shared_memory_in_place
    for order, name in ((IN_ORDER, "in-order"), (OUT_OF_ORDER, "out-of-order")):
        def case(c, order=order):
            profiling(c, order)
        case.__name__ = f"profiling, {name}"
        yield case
    yield an_event_tells_its_state
    yield threads_with_queues_of_their_own
    yield many_queues_and_events_come_and_go
    yield a_bad_module_is_refused_and_nothing_breaks
    yield bad_ranges_are_refused


def main(folder):
    client, failed = Client(Path(folder)), 0
    for check in checks():
        name = check.__name__.replace("_", " ")
        try:
            check(client)
            verdict = "ok"
        except Exception as error:
            failed += 1
            verdict = "FAILED: " + "".join(traceback.format_exception_only(error)).strip()
        print(f"  {name:<48} {verdict}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1]))
