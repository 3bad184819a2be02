// SPDX-License-Identifier: MIT OR Apache-2.0
//! The files that a cache on disk keeps of a module. They are sealed as native binaries are.

use serde::{Deserialize, Serialize};

use crate::native::{open, seal};
use crate::{KernelCode, ModuleInfo, PROTOCOL_VERSION, Source, fingerprint, flags};

/// Everything that a module's code depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    bytes: Vec<u8>,
    /// A hash different from the name's, for files that do not contain the key itself. Each kernel has
    /// such a file, and the key contains the whole SPIR-V.
    check: [u8; 16],
}

#[derive(Serialize, Deserialize)]
struct StoredInfo {
    key: Vec<u8>,
    info: ModuleInfo,
    log: String,
}

#[derive(Serialize, Deserialize)]
struct StoredCode {
    check: [u8; 16],
    code: KernelCode,
}

impl Key {
    /// The key of a source for a compiler that `compiler` identifies. Build flags without effect are left out.
    pub fn new(mut source: Source, compiler: &[u8]) -> Option<Self> {
        for input in source.objects.iter_mut().flat_map(|object| &mut object.inputs) {
            input.options = flags::in_use(&input.options).collect::<Vec<_>>().join(" ");
        }
        let bytes = postcard::to_allocvec(&(PROTOCOL_VERSION, compiler, source)).ok()?;
        let check = fingerprint([&b"code"[..], &bytes]);
        Some(Self { bytes, check })
    }

    /// A name for files.
    pub fn name(&self) -> String {
        fingerprint([&self.bytes[..]]).iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The file of a module's description and log; `None` if it can't be serialised.
    pub fn store_info(&self, info: &ModuleInfo, log: &str) -> Option<Vec<u8>> {
        seal(&StoredInfo { key: self.bytes.clone(), info: info.clone(), log: log.to_owned() })
    }

    /// The contents of such a file, if it is complete and belongs to this key.
    pub fn load_info(&self, bytes: &[u8]) -> Option<(ModuleInfo, String)> {
        let stored: StoredInfo = open(bytes).ok()?;
        let good = stored.key == self.bytes && stored.info.check().is_ok();
        good.then_some((stored.info, stored.log))
    }

    /// The file of a kernel's code; `None` if it can't be serialised.
    pub fn store_code(&self, code: &KernelCode) -> Option<Vec<u8>> {
        seal(&StoredCode { check: self.check, code: code.clone() })
    }

    /// The contents of such a file, if it is complete, belongs to this key, and fits the module.
    pub fn load_code(&self, bytes: &[u8], info: &ModuleInfo) -> Option<KernelCode> {
        let stored: StoredCode = open(bytes).ok()?;
        let good = stored.check == self.check && stored.code.check(info).is_ok();
        good.then_some(stored.code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Input, Object, TargetCpu};

    fn source(options: &str) -> Source {
        let input = Input { options: options.into(), ..Input::default() };
        let objects = vec![Object { inputs: vec![input], links: Vec::new() }];
        let target = TargetCpu { name: "x86-64".into(), features: String::new() };
        Source { objects, target, careful: false, checks: Default::default() }
    }

    fn code() -> KernelCode {
        KernelCode {
            blob: vec![0xc3; 64],
            entry: 0,
            relocs: Vec::new(),
            scratch_bytes_fixed: 0,
            scratch_bytes_per_item: 0,
            local_static_bytes: 0,
            remark: String::new(),
            sites: None,
            debug: Vec::new(),
            uneven: None,
            axis: 0,
            side_by_side: false,
        }
    }

    #[test]
    fn a_file_is_good_for_its_own_key_only() {
        let key = Key::new(source(""), b"1").expect("it is small");
        let others = [Key::new(source("-g"), b"1"), Key::new(source(""), b"2")];
        let info = ModuleInfo::default();
        let (stored, stored_code) = (key.store_info(&info, "log"), key.store_code(&code()));
        let (stored, stored_code) = (stored.expect("small"), stored_code.expect("small"));
        assert_eq!(key.load_info(&stored), Some((info.clone(), "log".into())));
        assert_eq!(key.load_code(&stored_code, &info), Some(code()));
        for other in others.into_iter().flatten() {
            assert_ne!(other.name(), key.name());
            assert_eq!(other.load_info(&stored), None);
            assert_eq!(other.load_code(&stored_code, &info), None);
        }
    }

    #[test]
    fn flags_without_effect_are_no_part_of_a_key() {
        let key = |options| Key::new(source(options), b"1").expect("it is small");
        assert_eq!(key("-ze-opt-greater-than-4GB-buffer-required  -g"), key("-g"));
        assert_ne!(key("-ze-opt-level=1"), key(""));
        assert_ne!(key("-no-such-flag"), key(""), "the log warns of it");
    }

    #[test]
    fn a_damaged_or_cut_file_holds_nothing() {
        let key = Key::new(source(""), b"1").expect("it is small");
        let info = ModuleInfo::default();
        let whole = key.store_code(&code()).expect("it is small");
        for i in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[i] ^= 0x40;
            assert_eq!(key.load_code(&bytes, &info), None, "byte {i}");
            assert_eq!(key.load_code(&whole[..i], &info), None, "{i} bytes");
        }
    }
}
