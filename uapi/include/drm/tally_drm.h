/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* Written by scripts/gen-header; do not edit. */
#ifndef _UAPI_TALLY_DRM_H_
#define _UAPI_TALLY_DRM_H_

#include "drm.h"

#if defined(__cplusplus)
extern "C" {
#endif

#define DRM_TALLY_QUERY 0x00
#define DRM_TALLY_BO_CREATE 0x01
#define DRM_TALLY_BO_INFO 0x02
#define DRM_TALLY_VM_CREATE 0x03
#define DRM_TALLY_VM_DESTROY 0x04
#define DRM_TALLY_VM_BIND 0x05
#define DRM_TALLY_QUEUE_CREATE 0x06
#define DRM_TALLY_QUEUE_DESTROY 0x07
#define DRM_TALLY_QUEUE_QUERY 0x08
#define DRM_TALLY_QUEUE_KICK 0x09
#define DRM_TALLY_SEM_WAIT 0x0a
#define DRM_TALLY_SEM_WAKE 0x0b
#define DRM_TALLY_VM_ORPHAN 0x0c
#define DRM_TALLY_SEM_NOTIFY 0x0d
#define DRM_TALLY_SEM_FOLLOW 0x0e

#define DRM_IOCTL_TALLY_QUERY \
	DRM_IOWR(DRM_COMMAND_BASE + DRM_TALLY_QUERY, struct drm_tally_query)
#define DRM_IOCTL_TALLY_BO_CREATE \
	DRM_IOWR(DRM_COMMAND_BASE + DRM_TALLY_BO_CREATE, struct drm_tally_bo_create)
#define DRM_IOCTL_TALLY_BO_INFO \
	DRM_IOWR(DRM_COMMAND_BASE + DRM_TALLY_BO_INFO, struct drm_tally_bo_info)
#define DRM_IOCTL_TALLY_VM_CREATE \
	DRM_IOWR(DRM_COMMAND_BASE + DRM_TALLY_VM_CREATE, struct drm_tally_vm_create)
#define DRM_IOCTL_TALLY_VM_DESTROY \
	DRM_IOWR(DRM_COMMAND_BASE + DRM_TALLY_VM_DESTROY, struct drm_tally_vm_destroy)
#define DRM_IOCTL_TALLY_VM_BIND \
	DRM_IOWR(DRM_COMMAND_BASE + DRM_TALLY_VM_BIND, struct drm_tally_vm_bind)
#define DRM_IOCTL_TALLY_QUEUE_CREATE \
	DRM_IOWR(DRM_COMMAND_BASE + DRM_TALLY_QUEUE_CREATE, struct drm_tally_queue_create)
#define DRM_IOCTL_TALLY_QUEUE_DESTROY \
	DRM_IOWR(DRM_COMMAND_BASE + DRM_TALLY_QUEUE_DESTROY, struct drm_tally_queue_destroy)
#define DRM_IOCTL_TALLY_QUEUE_QUERY \
	DRM_IOWR(DRM_COMMAND_BASE + DRM_TALLY_QUEUE_QUERY, struct drm_tally_queue_query)
#define DRM_IOCTL_TALLY_QUEUE_KICK \
	DRM_IOWR(DRM_COMMAND_BASE + DRM_TALLY_QUEUE_KICK, struct drm_tally_queue_kick)
#define DRM_IOCTL_TALLY_SEM_WAIT \
	DRM_IOWR(DRM_COMMAND_BASE + DRM_TALLY_SEM_WAIT, struct drm_tally_sem_wait)
#define DRM_IOCTL_TALLY_SEM_WAKE \
	DRM_IOWR(DRM_COMMAND_BASE + DRM_TALLY_SEM_WAKE, struct drm_tally_sem_wake)
#define DRM_IOCTL_TALLY_VM_ORPHAN \
	DRM_IOWR(DRM_COMMAND_BASE + DRM_TALLY_VM_ORPHAN, struct drm_tally_vm_orphan)
#define DRM_IOCTL_TALLY_SEM_NOTIFY \
	DRM_IOWR(DRM_COMMAND_BASE + DRM_TALLY_SEM_NOTIFY, struct drm_tally_sem_notify)
#define DRM_IOCTL_TALLY_SEM_FOLLOW \
	DRM_IOWR(DRM_COMMAND_BASE + DRM_TALLY_SEM_FOLLOW, struct drm_tally_sem_follow)

/**
 * enum drm_tally_compare - The unsigned comparison of a wait: the cell is
 *    left, its value right.
 */
enum drm_tally_compare {
	/**
	 * @DRM_TALLY_COMPARE_GREATER_EQUAL: cell >= value; the only one for
	 * counters.
	 */
	DRM_TALLY_COMPARE_GREATER_EQUAL = 0,
	/** @DRM_TALLY_COMPARE_GREATER: cell > value */
	DRM_TALLY_COMPARE_GREATER = 1,
	/** @DRM_TALLY_COMPARE_LESS_EQUAL: cell <= value */
	DRM_TALLY_COMPARE_LESS_EQUAL = 2,
	/** @DRM_TALLY_COMPARE_LESS: cell < value */
	DRM_TALLY_COMPARE_LESS = 3,
	/** @DRM_TALLY_COMPARE_EQUAL: cell == value */
	DRM_TALLY_COMPARE_EQUAL = 4,
	/** @DRM_TALLY_COMPARE_NOT_EQUAL: cell != value */
	DRM_TALLY_COMPARE_NOT_EQUAL = 5,
};

/**
 * enum drm_tally_fault_kind - The reason why a queue was stopped.
 */
enum drm_tally_fault_kind {
	/**
	 * @DRM_TALLY_FAULT_KIND_BAD_OPCODE: The packet's opcode is not one
	 * of the engine's.
	 */
	DRM_TALLY_FAULT_KIND_BAD_OPCODE = 1,
	/**
	 * @DRM_TALLY_FAULT_KIND_BAD_FIELD: A reserved bit or field is not
	 * zero, or a field is out of range.
	 */
	DRM_TALLY_FAULT_KIND_BAD_FIELD = 2,
	/**
	 * @DRM_TALLY_FAULT_KIND_BAD_ALIGNMENT: An address does not have the
	 * alignment that its use requires.
	 */
	DRM_TALLY_FAULT_KIND_BAD_ALIGNMENT = 3,
	/**
	 * @DRM_TALLY_FAULT_KIND_BAD_NESTING: CALL or LINK inside a
	 * recording.
	 */
	DRM_TALLY_FAULT_KIND_BAD_NESTING = 4,
	/**
	 * @DRM_TALLY_FAULT_KIND_PAGE_FAULT: The packet or a kernel touched
	 * memory that is not mapped for it.
	 */
	DRM_TALLY_FAULT_KIND_PAGE_FAULT = 5,
	/**
	 * @DRM_TALLY_FAULT_KIND_ILLEGAL_INSTRUCTION: A kernel ran into an
	 * instruction that the EU does not have.
	 */
	DRM_TALLY_FAULT_KIND_ILLEGAL_INSTRUCTION = 6,
	/**
	 * @DRM_TALLY_FAULT_KIND_ARITHMETIC_TRAP: A kernel raised an
	 * arithmetic trap.
	 */
	DRM_TALLY_FAULT_KIND_ARITHMETIC_TRAP = 7,
	/**
	 * @DRM_TALLY_FAULT_KIND_ABORTED: The queue was stopped by a reset
	 * while a kernel was running.
	 */
	DRM_TALLY_FAULT_KIND_ABORTED = 8,
	/**
	 * @DRM_TALLY_FAULT_KIND_ENGINE_LOST: The process that ran the VM's
	 * kernels was stopped: it broke its confinement, or died.
	 */
	DRM_TALLY_FAULT_KIND_ENGINE_LOST = 9,
	/**
	 * @DRM_TALLY_FAULT_KIND_ORPHANED: A wait that is not met, on a cell
	 * whose signallers are gone.
	 */
	DRM_TALLY_FAULT_KIND_ORPHANED = 10,
	/**
	 * @DRM_TALLY_FAULT_KIND_OUT_OF_RESOURCES: The device had no memory
	 * or no threads left for a command.
	 */
	DRM_TALLY_FAULT_KIND_OUT_OF_RESOURCES = 11,
};

/* Major version: changes when an old caller would break. */
#define DRM_TALLY_VERSION_MAJOR 0

/* Minor version: grows when something is added. */
#define DRM_TALLY_VERSION_MINOR 3

/* QUERY: what a struct drm_tally_query asks for. */

/* One struct drm_tally_device_info. */
#define DRM_TALLY_QUERY_DEVICE 0
/* An array of struct drm_tally_engine_info, one an engine class. */
#define DRM_TALLY_QUERY_ENGINES 1
/* The execution units' CPU as LLVM names it: name NUL features NUL. */
#define DRM_TALLY_QUERY_TARGET 2
/* One struct drm_tally_clock_pair, sampled now. */
#define DRM_TALLY_QUERY_CLOCK 3

/**
 * struct drm_tally_query - QUERY: facts of the device.
 */
struct drm_tally_query {
	/** @what: One of DRM_TALLY_QUERY_*. */
	__u32 what;
	/** @size: In: bytes at data. Out: bytes that the answer has. */
	__u32 size;
	/** @data: User address of the answer; 0 asks for size alone. */
	__u64 data;
	/** @reserved: Zero. */
	__u64 reserved;
};

/**
 * struct drm_tally_device_info - The answer to QUERY DEVICE.
 */
struct drm_tally_device_info {
	/**
	 * @uuid: Names the device, the same in all processes and in later
	 * runs.
	 */
	__u8 uuid[16];
	/** @vendor_id: PCI vendor id, or that of the embedded device. */
	__u32 vendor_id;
	/** @device_id: PCI device id, likewise. */
	__u32 device_id;
	/** @execution_units: Execution units. */
	__u32 execution_units;
	/** @simd_lanes: Lanes of 32 bits in an execution unit. */
	__u32 simd_lanes;
	/** @core_clock_mhz: Clock of an execution unit, in MHz. */
	__u32 core_clock_mhz;
	/** @cache_line_bytes: Bytes of a cache line. */
	__u32 cache_line_bytes;
	/** @memory_bytes: Memory that buffers may use in all, in bytes. */
	__u64 memory_bytes;
	/** @cache_bytes: Last-level cache, in bytes. */
	__u64 cache_bytes;
	/** @clock_hz: Device ticks per second. */
	__u64 clock_hz;
	/** @va_start: Lowest VA that a VM may start at. */
	__u64 va_start;
	/** @va_end: First VA beyond those that a VM may hold. */
	__u64 va_end;
	/** @max_vms: Most VMs of a client. */
	__u32 max_vms;
	/** @max_queues: Most queues of a client. */
	__u32 max_queues;
};

/*
 * The capabilities of an engine class: bits of
 * drm_tally_engine_info.capabilities.
 */

/* DISPATCH. */
#define DRM_TALLY_ENGINE_CAPABILITY_COMPUTE (1 << 0)
/* COPY, COPY_REGION and FILL. */
#define DRM_TALLY_ENGINE_CAPABILITY_COPY (1 << 1)

/**
 * struct drm_tally_engine_info - One entry of the answer to QUERY ENGINES.
 *
 * The class is the entry's index.
 */
struct drm_tally_engine_info {
	/** @capabilities: Bits of DRM_TALLY_ENGINE_CAPABILITY_*. */
	__u32 capabilities;
	/** @count: Engines of this class. */
	__u32 count;
};

/**
 * struct drm_tally_clock_pair - The answer to QUERY CLOCK: the same moment
 *    on two clocks.
 */
struct drm_tally_clock_pair {
	/** @host_ns: CLOCK_MONOTONIC, in ns. */
	__u64 host_ns;
	/** @device_ticks: The device's clock, in ticks. */
	__u64 device_ticks;
};

/* BO_CREATE: bits of drm_tally_bo_create.flags. */

/* Clients that import the buffer can read it, not write it. */
#define DRM_TALLY_BO_FLAG_IMPORT_READ_ONLY (1 << 0)

/**
 * struct drm_tally_bo_create - BO_CREATE: a buffer.
 */
struct drm_tally_bo_create {
	/** @size: Bytes, a multiple of the page size, not 0. */
	__u64 size;
	/** @flags: Bits of DRM_TALLY_BO_FLAG_*. */
	__u32 flags;
	/** @handle: Out: the handle. */
	__u32 handle;
};

/**
 * struct drm_tally_bo_info - BO_INFO: a buffer's size, and the offset at
 *    which the render node maps it.
 */
struct drm_tally_bo_info {
	/** @handle: The handle. */
	__u32 handle;
	/** @pad: Zero. */
	__u32 pad;
	/** @size: Out: bytes. */
	__u64 size;
	/** @mmap_offset: Out: offset for mmap of the render node. */
	__u64 mmap_offset;
};

/**
 * struct drm_tally_vm_create - VM_CREATE: a GPU address space.
 */
struct drm_tally_vm_create {
	/** @start: First VA of the window, page-aligned. */
	__u64 start;
	/** @size: Bytes of the window, a multiple of the page size. */
	__u64 size;
	/** @flags: Zero. */
	__u32 flags;
	/** @vm_id: Out: the VM's id, not 0. */
	__u32 vm_id;
};

/**
 * struct drm_tally_vm_destroy - VM_DESTROY: ends a VM and its queues.
 */
struct drm_tally_vm_destroy {
	/** @vm_id: The VM. */
	__u32 vm_id;
	/** @pad: Zero. */
	__u32 pad;
};

/* VM_BIND: what to do with a range of VAs. */

/* Maps a buffer. */
#define DRM_TALLY_BIND_OP_MAP 0
/* Unmaps whatever is mapped. */
#define DRM_TALLY_BIND_OP_UNMAP 1
/* Maps the caller's own memory at the same or another VA. */
#define DRM_TALLY_BIND_OP_MAP_USERPTR 2
/* Maps memory that reads as zero and forgets writes. */
#define DRM_TALLY_BIND_OP_MAP_NULL 3

/* VM_BIND: access of the device to a mapping. */

/* Packets and kernels may read. */
#define DRM_TALLY_BIND_FLAG_READ (1 << 0)
/* Packets and kernels may write. */
#define DRM_TALLY_BIND_FLAG_WRITE (1 << 1)
/* Kernels' code; never together with WRITE. */
#define DRM_TALLY_BIND_FLAG_EXECUTE (1 << 2)

/*
 * VM_BIND: most fences that a change waits for, and most points that are
 * told of it.
 */
#define DRM_TALLY_BIND_MAX_POINTS 16

/**
 * struct drm_tally_bind_point - VM_BIND: a point of a DRM sync object.
 *
 * Since 0.3.
 */
struct drm_tally_bind_point {
	/** @handle: The sync object. */
	__u32 handle;
	/** @pad: Zero. */
	__u32 pad;
	/** @point: The point of a timeline; zero for a binary sync object. */
	__u64 point;
};

/**
 * struct drm_tally_vm_bind - VM_BIND: changes a VM's mappings; without
 *    fences to wait for, done when it returns.
 */
struct drm_tally_vm_bind {
	/** @vm_id: The VM. */
	__u32 vm_id;
	/** @op: One of DRM_TALLY_BIND_OP_*. */
	__u32 op;
	/** @flags: Bits of DRM_TALLY_BIND_FLAG_*; 0 for UNMAP. */
	__u32 flags;
	/** @handle: The buffer of MAP; else 0. */
	__u32 handle;
	/**
	 * @offset: MAP: offset in the buffer. MAP_USERPTR: the caller's
	 * address. Else 0. Page-aligned.
	 */
	__u64 offset;
	/** @address: First VA, page-aligned. */
	__u64 address;
	/** @size: Bytes, a multiple of the page size, not 0. */
	__u64 size;
	/**
	 * @waits: User address of an array of struct drm_tally_bind_point:
	 * the fences that the change waits for. Since 0.3.
	 */
	__u64 waits;
	/**
	 * @signals: User address of an array of struct drm_tally_bind_point:
	 * the points that are told once it is made. Since 0.3.
	 */
	__u64 signals;
	/**
	 * @wait_count: Elements of waits, at most DRM_TALLY_BIND_MAX_POINTS.
	 */
	__u32 wait_count;
	/**
	 * @signal_count: Elements of signals, at most
	 * DRM_TALLY_BIND_MAX_POINTS.
	 */
	__u32 signal_count;
	/**
	 * @status_handle: The buffer of the word that takes the outcome, or
	 * 0.
	 */
	__u32 status_handle;
	/** @pad: Zero. */
	__u32 pad;
	/** @status_offset: Offset of that word, a multiple of 8. */
	__u64 status_offset;
};

/* QUEUE_CREATE: priorities, as drm_tally_queue_create.priority. */

/* Runs before NORMAL. */
#define DRM_TALLY_PRIORITY_HIGH 0
/* The default. */
#define DRM_TALLY_PRIORITY_NORMAL 1
/* Runs when nothing else is runnable. */
#define DRM_TALLY_PRIORITY_LOW 2

/**
 * struct drm_tally_queue_create - QUEUE_CREATE: a ring that an engine reads.
 */
struct drm_tally_queue_create {
	/** @vm_id: The VM whose addresses the packets use. */
	__u32 vm_id;
	/** @engine_class: Engine class: index in QUERY ENGINES. */
	__u32 engine_class;
	/** @engine_index: The index of the engine in its class. */
	__u32 engine_index;
	/** @priority: One of DRM_TALLY_PRIORITY_*. */
	__u32 priority;
	/** @ring: VA of the ring, 64-byte aligned. */
	__u64 ring;
	/** @control: VA of the control page (QueueControl), page-aligned. */
	__u64 control;
	/** @packets: Packets in the ring, a power of two. */
	__u32 packets;
	/** @flags: Zero. */
	__u32 flags;
	/** @queue_id: Out: the queue's id, not 0. */
	__u32 queue_id;
	/** @pad: Zero. */
	__u32 pad;
};

/**
 * struct drm_tally_queue_destroy - QUEUE_DESTROY: stops a queue.
 *
 * What it has not completed is never completed.
 */
struct drm_tally_queue_destroy {
	/** @queue_id: The queue. */
	__u32 queue_id;
	/** @pad: Zero. */
	__u32 pad;
};

/* QUEUE_QUERY: values of drm_tally_queue_query.state. */

/* Nothing to do. */
#define DRM_TALLY_QUEUE_STATE_IDLE 0
/* Runnable or running. */
#define DRM_TALLY_QUEUE_STATE_RUNNING 1
/* Waits for a cell. */
#define DRM_TALLY_QUEUE_STATE_PARKED 2
/* Stopped: it faulted, or its VM is lost. */
#define DRM_TALLY_QUEUE_STATE_STOPPED 3

/**
 * struct drm_tally_queue_query - QUEUE_QUERY: what a queue does.
 */
struct drm_tally_queue_query {
	/** @queue_id: The queue. */
	__u32 queue_id;
	/** @state: Out: one of DRM_TALLY_QUEUE_STATE_*. */
	__u32 state;
	/**
	 * @fault_kind: Out: an enum drm_tally_fault_kind if this queue
	 * faulted, else 0.
	 */
	__u32 fault_kind;
	/** @pad: Zero. */
	__u32 pad;
	/** @fault_address: Out: the address that the fault names. */
	__u64 fault_address;
	/** @fault_packet: Out: index of the ring packet that faulted. */
	__u64 fault_packet;
	/**
	 * @parked_address: Out: VA of the cell that the queue is parked on,
	 * or 0.
	 */
	__u64 parked_address;
	/** @parked_value: Out: the value that it waits for there. */
	__u64 parked_value;
	/** @head: Out: ring packets consumed. */
	__u64 head;
	/** @busy_ns: Out: time on an engine, in ns. */
	__u64 busy_ns;
};

/**
 * struct drm_tally_queue_kick - QUEUE_KICK: the device sleeps and has to
 *    look at the ring.
 */
struct drm_tally_queue_kick {
	/** @queue_id: The queue. */
	__u32 queue_id;
	/** @pad: Zero. */
	__u32 pad;
};

/* SEM_WAIT: bits of drm_tally_sem_wait.flags. */

/* Any entry ends the wait, not all of them. */
#define DRM_TALLY_SEM_WAIT_FLAG_ANY (1 << 0)
/*
 * Does not sleep: makes a file that poll says is readable once the wait is
 * met. Since 0.3.
 */
#define DRM_TALLY_SEM_WAIT_FLAG_FILE (1 << 1)

/* Most entries of a SEM_WAIT. */
#define DRM_TALLY_SEM_WAIT_MAX_ENTRIES 64

/**
 * struct drm_tally_sem_wait - SEM_WAIT: sleeps until cells are met.
 */
struct drm_tally_sem_wait {
	/**
	 * @entries: User address of an array of struct
	 * drm_tally_sem_wait_entry.
	 */
	__u64 entries;
	/** @count: Entries, 1 to DRM_TALLY_SEM_WAIT_MAX_ENTRIES. */
	__u32 count;
	/** @flags: Bits of DRM_TALLY_SEM_WAIT_FLAG_*. */
	__u32 flags;
	/**
	 * @timeout_ns: Absolute CLOCK_MONOTONIC time in ns; 0 or the past
	 * asks only, the largest value never times out. With FILE it is 0.
	 */
	__s64 timeout_ns;
	/** @vm_id: A VM whose loss ends the wait with EIO, or 0. */
	__u32 vm_id;
	/**
	 * @index: Out: the first entry that is met. With FILE the new file
	 * descriptor.
	 */
	__u32 index;
};

/**
 * struct drm_tally_sem_wait_entry - One cell of a SEM_WAIT.
 */
struct drm_tally_sem_wait_entry {
	/** @handle: The buffer that holds the cell. */
	__u32 handle;
	/** @compare: An enum drm_tally_compare. */
	__u32 compare;
	/** @offset: Offset of the cell, a multiple of 8. */
	__u64 offset;
	/** @value: Value to compare with. */
	__u64 value;
};

/* SEM_NOTIFY: the kinds of targets, for drm_tally_sem_notify.kind. */

/* An eventfd, to which 1 is added. */
#define DRM_TALLY_NOTIFY_KIND_EVENTFD 0
/* A DRM sync object, whose point gets a fence that has signalled. */
#define DRM_TALLY_NOTIFY_KIND_SYNCOBJ 1

/**
 * struct drm_tally_sem_notify - SEM_NOTIFY: tells a target once when cells
 *    are met, or will not be.
 *
 * Since 0.3.
 */
struct drm_tally_sem_notify {
	/**
	 * @entries: User address of an array of struct
	 * drm_tally_sem_wait_entry.
	 */
	__u64 entries;
	/** @count: Entries, 1 to DRM_TALLY_SEM_WAIT_MAX_ENTRIES. */
	__u32 count;
	/** @flags: ANY of DRM_TALLY_SEM_WAIT_FLAG_*, or 0. */
	__u32 flags;
	/** @vm_id: A VM whose loss ends the wait, or 0. */
	__u32 vm_id;
	/** @kind: One of DRM_TALLY_NOTIFY_KIND_*. */
	__u32 kind;
	/**
	 * @target: The file descriptor of the eventfd, or the handle of the
	 * sync object.
	 */
	__u32 target;
	/** @pad: Zero. */
	__u32 pad;
	/**
	 * @point: The point of a timeline. Zero for a binary sync object,
	 * and for an eventfd.
	 */
	__u64 point;
};

/* SEM_FOLLOW: the kinds of fences, for drm_tally_sem_follow.kind. */

/* That of a sync file. */
#define DRM_TALLY_FOLLOW_KIND_SYNC_FILE 0
/* That of a DRM sync object, or of one of its points. */
#define DRM_TALLY_FOLLOW_KIND_SYNCOBJ 1

/* SEM_FOLLOW: bits of drm_tally_sem_follow.flags. */

/* The fence's status is stored, too, before the value. */
#define DRM_TALLY_FOLLOW_FLAG_STATUS (1 << 0)

/**
 * struct drm_tally_sem_follow - SEM_FOLLOW: a cell takes a value once a
 *    fence of the kernel has signalled.
 *
 * Since 0.3.
 */
struct drm_tally_sem_follow {
	/** @handle: The buffer that holds the cell. */
	__u32 handle;
	/** @flags: Bits of DRM_TALLY_FOLLOW_FLAG_*. */
	__u32 flags;
	/** @offset: Offset of the cell, a multiple of 8. */
	__u64 offset;
	/**
	 * @value: The value that the cell takes, unless it holds a larger
	 * one.
	 */
	__u64 value;
	/**
	 * @status_offset: With STATUS, the offset of the word that takes the
	 * fence's status, a multiple of 8. Otherwise zero.
	 */
	__u64 status_offset;
	/** @kind: One of DRM_TALLY_FOLLOW_KIND_*. */
	__u32 kind;
	/**
	 * @source: The file descriptor of the sync file, or the handle of
	 * the sync object.
	 */
	__u32 source;
	/**
	 * @point: The point of a timeline. Zero for a binary sync object,
	 * and for a sync file.
	 */
	__u64 point;
};

/**
 * struct drm_tally_sem_wake - SEM_WAKE: the host has written a cell; queues
 *    and hosts that wait for it look again.
 */
struct drm_tally_sem_wake {
	/**
	 * @handle: The buffer that holds the cell, or 0: all foreign cells
	 * are read again.
	 */
	__u32 handle;
	/** @pad: Zero. */
	__u32 pad;
	/** @offset: Offset of the cell, a multiple of 8; 0 without a buffer. */
	__u64 offset;
};

/**
 * struct drm_tally_vm_orphan - VM_ORPHAN: these cells can no longer be
 *    signalled.
 */
struct drm_tally_vm_orphan {
	/** @vm_id: The VM whose queues wait for them. */
	__u32 vm_id;
	/** @pad: Zero. */
	__u32 pad;
	/** @address: VA of the first cell, a multiple of 8. */
	__u64 address;
	/** @size: Bytes, a multiple of 8, not 0. */
	__u64 size;
};

#if defined(__cplusplus)
}
#endif

#endif /* _UAPI_TALLY_DRM_H_ */
