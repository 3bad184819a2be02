// SPDX-License-Identifier: MIT OR Apache-2.0
//! The experimental `zex` interface to counter-based events, whose functions
//! `zeDriverGetExtensionFunctionAddress` returns by name.
//!
//! SYCL's Level Zero adapter creates its events with `zexCounterBasedEventCreate2`. Names and
//! values are those of `zex_common.h`, `zex_event.h` and `ze_stypes.h` of Intel's driver; the flag
//! bits 4 to 6 differ in meaning from `ze_event_counter_based_flags_t`.

// C names are kept as they are; fields mean what their `ze` counterparts mean.
#![allow(non_camel_case_types, non_snake_case, missing_docs)]

use core::ffi::{c_char, c_void};

use crate::macros::{chained, enumeration, flags, zeroed_default};
use crate::{ZE_MAX_IPC_HANDLE_SIZE, make_version, ze_event_scope_flags_t, ze_structure_type_t};

/// The extension's name in `zeDriverGetExtensionProperties`.
pub const ZEX_COUNTER_BASED_EVENT_EXT_NAME: &str = "ZEX_counter_based_event";

impl ze_structure_type_t {
    /// Spec: `ZEX_STRUCTURE_COUNTER_BASED_EVENT_DESC`.
    pub const ZEX_STRUCTURE_COUNTER_BASED_EVENT_DESC: Self = Self(0x0003_001c);
    /// Spec: `ZEX_STRUCTURE_COUNTER_BASED_EVENT_EXTERNAL_SYNC_ALLOC_PROPERTIES`.
    pub const ZEX_STRUCTURE_COUNTER_BASED_EVENT_EXTERNAL_SYNC_ALLOC_PROPERTIES: Self =
        Self(0x0003_001d);
    /// Spec: `ZEX_STRUCTURE_COUNTER_BASED_EVENT_EXTERNAL_STORAGE_ALLOC_PROPERTIES`.
    pub const ZEX_STRUCTURE_COUNTER_BASED_EVENT_EXTERNAL_STORAGE_ALLOC_PROPERTIES: Self =
        Self(0x0003_0027);
    /// A queue's priority level, chained to a queue description.
    pub const ZE_STRUCTURE_TYPE_QUEUE_PRIORITY_DESC: Self = Self(0x0003_0028);
    /// Spec: `ZE_STRUCTURE_TYPE_SYNCHRONIZED_DISPATCH_EXP_DESC`; the core interface has given the
    /// same value to `ZE_STRUCTURE_TYPE_MUTABLE_GRAPH_ARGUMENT_EXP_DESC`.
    pub const ZE_STRUCTURE_TYPE_SYNCHRONIZED_DISPATCH_EXP_DESC: Self = Self(0x0002_0020);
}

enumeration! {
    /// Spec: `zex_counter_based_event_version_t`.
    zex_counter_based_event_version_t {
        ZEX_COUNTER_BASED_EVENT_VERSION_1_0 = make_version(1, 0),
        ZEX_COUNTER_BASED_EVENT_VERSION_CURRENT = make_version(1, 0),
    }
}

flags! {
    /// Spec: `zex_counter_based_event_exp_flags_t`.
    zex_counter_based_event_exp_flags_t: u32 {
        ZEX_COUNTER_BASED_EVENT_FLAG_IMMEDIATE = 1 << 0,
        ZEX_COUNTER_BASED_EVENT_FLAG_NON_IMMEDIATE = 1 << 1,
        ZEX_COUNTER_BASED_EVENT_FLAG_HOST_VISIBLE = 1 << 2,
        ZEX_COUNTER_BASED_EVENT_FLAG_IPC = 1 << 3,
        ZEX_COUNTER_BASED_EVENT_FLAG_KERNEL_TIMESTAMP = 1 << 4,
        ZEX_COUNTER_BASED_EVENT_FLAG_KERNEL_MAPPED_TIMESTAMP = 1 << 5,
        ZEX_COUNTER_BASED_EVENT_FLAG_EXTERNAL = 1 << 6,
    }
}

/// Spec: `zex_ipc_counter_based_event_handle_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct zex_ipc_counter_based_event_handle_t {
    pub data: [c_char; ZE_MAX_IPC_HANDLE_SIZE],
}

zeroed_default!(zex_ipc_counter_based_event_handle_t);
crate::call::ipc_handles!(zex_ipc_counter_based_event_handle_t);

/// Spec: `zex_counter_based_event_desc_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct zex_counter_based_event_desc_t {
    pub stype: ze_structure_type_t,
    pub pNext: *const c_void,
    pub flags: zex_counter_based_event_exp_flags_t,
    pub signalScope: ze_event_scope_flags_t,
    pub waitScope: ze_event_scope_flags_t,
}

chained!(zex_counter_based_event_desc_t, ZEX_STRUCTURE_COUNTER_BASED_EVENT_DESC);

/// Spec: `zex_counter_based_event_external_sync_alloc_properties_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct zex_counter_based_event_external_sync_alloc_properties_t {
    pub stype: ze_structure_type_t,
    pub pNext: *const c_void,
    pub deviceAddress: *mut u64,
    pub hostAddress: *mut u64,
    pub completionValue: u64,
}

chained!(
    zex_counter_based_event_external_sync_alloc_properties_t,
    ZEX_STRUCTURE_COUNTER_BASED_EVENT_EXTERNAL_SYNC_ALLOC_PROPERTIES
);

/// Spec: `zex_counter_based_event_external_storage_properties_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct zex_counter_based_event_external_storage_properties_t {
    pub stype: ze_structure_type_t,
    pub pNext: *mut c_void,
    pub deviceAddress: *mut u64,
    pub incrementValue: u64,
    pub completionValue: u64,
}

chained!(
    zex_counter_based_event_external_storage_properties_t,
    ZEX_STRUCTURE_COUNTER_BASED_EVENT_EXTERNAL_STORAGE_ALLOC_PROPERTIES
);
