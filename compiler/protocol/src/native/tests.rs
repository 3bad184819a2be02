// SPDX-License-Identifier: MIT OR Apache-2.0
//! Native binaries that are whole, cut, damaged, of other versions and for other processors.

use super::*;
use crate::{Access, ArgInfo, DebugSection, GlobalInfo, KernelInfo, Reloc, Uneven};

fn module() -> NativeModule {
    let arg = ArgInfo {
        kind: ArgKind::GlobalPointer,
        size: 8,
        align: 8,
        offset: 0,
        name: "p".into(),
        type_name: "int*".into(),
        access: Access::ReadWrite,
        image: None,
    };
    let kernel = KernelInfo {
        name: "k".into(),
        args: vec![arg],
        args_size: 8,
        printf_ring: None,
        checks: None,
        required_group_size: None,
        group_size_hint: None,
        local_static_bytes: 0,
        private_bytes: 0,
        uses_barrier: false,
        uses_system_scope: false,
        may_wait: false,
        full_subgroups: false,
        max_subgroup_size: 16,
        required_subgroup_size: None,
        source_attributes: String::new(),
    };
    let reloc = |offset| Reloc { offset, global: 0, addend: 4 };
    let global = GlobalInfo {
        name: "g".into(),
        size: 16,
        align: 8,
        init: vec![1, 2, 3],
        relocs: vec![reloc(8)],
        constant: false,
        exported: false,
    };
    let places = vec![DebugPlace { offset: 8, wide: true, section: Some(0) }];
    let code = KernelCode {
        blob: (0..200).collect(),
        entry: 16,
        relocs: vec![reloc(192)],
        scratch_bytes_fixed: 0,
        scratch_bytes_per_item: 64,
        local_static_bytes: 0,
        remark: String::new(),
        sites: None,
        debug: vec![DebugSection { name: ".debug_info".into(), bytes: vec![0; 16], places }],
        uneven: Some(Uneven { lanes: 16, least_row: 4, one_row: false, together: true, any: true }),
        axis: 1,
        side_by_side: true,
    };
    let uneven = Some(KernelCode { blob: (0..230).collect(), uneven: None, ..code.clone() });
    let code = NativeCode { usual: code, uneven };
    let info = ModuleInfo { kernels: vec![kernel], globals: vec![global], ..ModuleInfo::default() };
    let target = TargetCpu { name: "x86-64-v3".into(), features: "+avx2,+fma".into() };
    NativeModule { target, info, code: vec![code], inputs: Vec::new(), uuid: [7; 16] }
}

#[test]
fn what_is_written_is_read() {
    let bytes = module().to_bytes().expect("it is small");
    assert_eq!(NativeModule::from_bytes(&bytes), Ok(module()));
}

#[test]
fn no_part_of_a_binary_is_one_and_neither_is_more() {
    let mut bytes = module().to_bytes().expect("it is small");
    for len in 0..bytes.len() {
        assert!(NativeModule::from_bytes(&bytes[..len]).is_err(), "{len} bytes");
    }
    bytes.push(0);
    assert!(matches!(NativeModule::from_bytes(&bytes), Err(NativeError::Length(..))));
    assert_eq!(NativeModule::from_bytes(b"\x7fELF and so on"), Err(NativeError::Foreign));
}

#[test]
fn every_changed_bit_is_noticed() {
    let whole = module().to_bytes().expect("it is small");
    for i in 0..whole.len() * 8 {
        let mut bytes = whole.clone();
        bytes[i / 8] ^= 1 << (i % 8);
        assert!(NativeModule::from_bytes(&bytes).is_err(), "bit {i}");
    }
}

#[test]
fn another_version_is_named() {
    let mut bytes = module().to_bytes().expect("it is small");
    bytes[8] = 99;
    let error = NativeModule::from_bytes(&bytes).expect_err("version 99");
    assert_eq!(error, NativeError::Version(99));
    assert!(error.to_string().contains("version 99"));
}

/// Asserts the property on which the driver relies when it loads a binary: all offsets are in range.
fn assert_safe(module: &NativeModule) {
    let NativeModule { info, code, .. } = module;
    let inside = |reloc: &Reloc, bytes: usize| {
        let end = reloc.offset.checked_add(8).expect("it is an offset");
        assert!(end <= bytes as u64, "{reloc:?} of {bytes} bytes");
        assert!((reloc.global as usize) < info.globals.len() + info.foreign.len(), "{reloc:?}");
    };
    assert!(code.is_empty() || code.len() == info.kernels.len(), "code of all kernels or none");
    for code in code.iter().flat_map(|it| [Some(&it.usual), it.uneven.as_ref()]).flatten() {
        assert!((code.entry as usize) < code.blob.len(), "it begins in the blob");
        code.relocs.iter().for_each(|reloc| inside(reloc, code.blob.len()));
        for section in &code.debug {
            assert!(section.places.iter().all(|it| it.range().end <= section.bytes.len()));
        }
        // Whatever the sections contain, this gives a file or none.
        let _ = crate::debug::elf([("kernel", code)]);
    }
    for global in &info.globals {
        assert!(global.align.is_power_of_two() && global.init.len() as u64 <= global.size);
        global.relocs.iter().for_each(|reloc| inside(reloc, global.size as usize));
    }
    for kernel in &info.kernels {
        for arg in &kernel.args {
            assert!(u64::from(arg.offset) + u64::from(arg.size) <= kernel.args_size.into());
        }
        let ring = kernel.printf_ring.map_or(0, |at| u64::from(at) + 8);
        assert!(ring <= kernel.args_size.into(), "the ring's address is in the block");
        assert!(!kernel.required_group_size.is_some_and(|size| size.contains(&0)));
    }
}

/// A changed byte with a matching hash: the module is consistent, or is refused.
#[test]
fn contents_that_contradict_themselves_are_refused_though_their_hash_fits() {
    let payload = postcard::to_allocvec(&module()).expect("it is small");
    for i in 0..payload.len() {
        for value in [0, 1, 0x7f, 0x80, 0xff] {
            let mut payload = payload.clone();
            payload[i] = value;
            let mut bytes = vec![0; HEADER];
            bytes[..8].copy_from_slice(&MAGIC);
            bytes[8..12].copy_from_slice(&NATIVE_VERSION.to_le_bytes());
            bytes[16..24].copy_from_slice(&(payload.len() as u64).to_le_bytes());
            bytes[24..].copy_from_slice(&fingerprint([&payload[..]]));
            bytes.extend(payload);
            if let Ok(module) = NativeModule::from_bytes(&bytes) {
                assert_safe(&module);
            }
        }
    }
    let with = |change: fn(&mut NativeModule)| {
        let mut module = module();
        change(&mut module);
        module.check().expect_err("it does not fit together")
    };
    with(|it| it.code.clear());
    with(|it| it.code[0].usual.entry = 200);
    with(|it| it.code[0].usual.axis = 3);
    with(|it| it.code[0].uneven.as_mut().expect("it has one").entry = 230);
    with(|it| it.code[0].usual.relocs[0].offset = 193);
    with(|it| it.code[0].usual.relocs[0].offset = u64::MAX);
    with(|it| it.code[0].usual.relocs[0].global = 1);
    with(|it| it.code[0].usual.debug[0].places[0].offset = 9);
    with(|it| it.code[0].usual.debug[0].places[0].offset = u32::MAX);
    with(|it| it.code[0].usual.debug[0].places[0].section = Some(1));
    with(|it| it.info.globals[0].align = 3);
    with(|it| it.info.globals[0].size = 2);
    with(|it| it.info.kernels[0].args[0].offset = 1);
    with(|it| it.info.kernels[0].args[0].size = 4);
    with(|it| it.info.kernels[0].printf_ring = Some(1));
    with(|it| it.info.kernels[0].required_group_size = Some([1, 0, 1]));
}

#[test]
fn code_runs_only_where_all_that_it_may_use_is_there() {
    let cpu =
        |name: &str, features: &str| TargetCpu { name: name.into(), features: features.into() };
    let code = cpu("x86-64-v3", "+avx2,+fma");
    assert_eq!(code.missing_on(&code), None);
    assert_eq!(code.missing_on(&cpu("x86-64-v4", "+fma,+avx2,+avx512f")), None);
    assert_eq!(code.missing_on(&cpu("x86-64-v3", "+avx2")), Some("fma".into()));
    assert_eq!(code.missing_on(&cpu("x86-64-v2", "+avx2,+fma")), Some("x86-64-v3".into()));
    assert_eq!(code.missing_on(&cpu("armv9", "")), Some("x86-64-v3".into()));
    assert_eq!(cpu("", "").missing_on(&code), None);
}
