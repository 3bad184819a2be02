// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks that the types accept any value that a caller passes, and the sizes of the `zex` types.

use tally_ze::zex::{
    zex_counter_based_event_desc_t, zex_counter_based_event_external_storage_properties_t,
    zex_counter_based_event_external_sync_alloc_properties_t, zex_ipc_counter_based_event_handle_t,
};
use tally_ze::{
    Chained, ze_device_type_t, ze_event_desc_t, ze_event_handle_t, ze_event_scope_flags_t,
    ze_result_t, ze_structure_type_t,
};

#[test]
fn an_enumeration_prints_its_name_or_its_number() {
    assert_eq!(format!("{:?}", ze_result_t(0)), "ZE_RESULT_SUCCESS");
    assert_eq!(format!("{:?}", ze_device_type_t(0xbad)), "ze_device_type_t(0xbad)");
    assert!(!ze_device_type_t(0xbad).is_known());
}

#[test]
fn unknown_flag_bits_survive_and_are_told_apart() {
    let flags = ze_event_scope_flags_t::from_bits_retain(0x8000_0004);
    assert_eq!(flags.bits(), 0x8000_0004);
    assert!(flags.contains(ze_event_scope_flags_t::ZE_EVENT_SCOPE_FLAG_HOST));
    assert!(flags.has_unknown());
    assert!(!ze_event_scope_flags_t::all().has_unknown());
}

#[test]
fn a_default_structure_is_zero_but_for_its_type() {
    let desc = ze_event_desc_t::default();
    assert_eq!(desc.stype, ze_structure_type_t::ZE_STRUCTURE_TYPE_EVENT_DESC);
    assert_eq!(desc.stype, ze_event_desc_t::STYPE);
    assert!(desc.pNext.is_null());
    assert_eq!((desc.index, desc.signal.bits(), desc.wait.bits()), (0, 0, 0));
    assert!(ze_event_handle_t::default().is_null());
}

#[test]
fn zex_structures_have_the_size_of_their_c_declarations() {
    // stype, padding, pNext, then the fields with C's alignment.
    assert_eq!(size_of::<zex_counter_based_event_desc_t>(), 4 + 4 + 8 + 3 * 4 + 4);
    assert_eq!(size_of::<zex_counter_based_event_external_sync_alloc_properties_t>(), 5 * 8);
    assert_eq!(size_of::<zex_counter_based_event_external_storage_properties_t>(), 5 * 8);
    assert_eq!(size_of::<zex_ipc_counter_based_event_handle_t>(), 64);
}
