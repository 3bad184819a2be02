// SPDX-License-Identifier: MIT OR Apache-2.0
//! Native binaries: a built module as bytes that load again without the compiler.
//!
//! ```text
//!  0   magic      "TallyNat"
//!  8   version    u32, little-endian
//! 12   zero       u32
//! 16   length     u64: bytes of the payload
//! 24   hash       16 bytes, of the payload
//! 40   payload    a [`NativeModule`] in postcard
//! ```
//!
//! A binary that was cut, damaged or written by another version is refused before any of it is used,
//! and a module's description is checked for consistency ([`NativeModule::check`]). The code itself is
//! not checked: a malicious file can do harm, like any program that its user starts.

use std::fmt;

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{ArgKind, DebugPlace, Form, Input, KernelCode, ModuleInfo, TargetCpu, fingerprint};

/// Version of the format, and of the interface between kernels and device. Every change of either needs
/// a new number.
pub const NATIVE_VERSION: u32 = 13;

/// The first bytes of a native binary.
pub const MAGIC: [u8; 8] = *b"TallyNat";

const HEADER: usize = 40;

/// A module with its code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NativeModule {
    /// The processor that the code is for.
    pub target: TargetCpu,
    /// The module's description.
    pub info: ModuleInfo,
    /// The code of each kernel; none if the module has imports, which a link resolves again.
    pub code: Vec<NativeCode>,
    /// The inputs from which it was built, if it may be linked with others, or has forms of code that are not here.
    pub inputs: Vec<Input>,
    /// Identifies the source.
    pub uuid: [u8; 16],
}

/// A kernel's code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NativeCode {
    /// The [usual form](Form::Usual).
    pub usual: KernelCode,
    /// The [form for uneven rows](Form::Uneven), if there is one.
    pub uneven: Option<KernelCode>,
}

impl NativeCode {
    /// The code of a form.
    pub fn form(&self, form: Form) -> Option<&KernelCode> {
        match form {
            Form::Usual => Some(&self.usual),
            Form::Uneven => self.uneven.as_ref(),
            Form::Sized(_) => None,
        }
    }

    fn check(&self, info: &ModuleInfo) -> Result<(), String> {
        [Some(&self.usual), self.uneven.as_ref()]
            .into_iter()
            .flatten()
            .try_for_each(|it| it.check(info))
    }
}

/// The reason why bytes are no usable native binary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NativeError {
    /// They do not begin with [`MAGIC`].
    Foreign,
    /// Another version of the format; its number.
    Version(u32),
    /// Bytes are missing, or there are too many: the number of bytes, and the number expected.
    Length(u64, u64),
    /// The hash differs from that of the contents.
    Damaged,
    /// The contents are inconsistent.
    Malformed(String),
}

impl fmt::Display for NativeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Foreign => f.write_str("it is no native binary of this driver"),
            Self::Version(version) => {
                write!(f, "it has version {version}, this driver reads {NATIVE_VERSION}")
            }
            Self::Length(is, must) => write!(f, "it has {is} bytes of contents instead of {must}"),
            Self::Damaged => f.write_str("it is damaged: the hash does not fit the contents"),
            Self::Malformed(why) => write!(f, "it contradicts itself: {why}"),
        }
    }
}

impl std::error::Error for NativeError {}

/// Wraps contents in a header with their length and hash. `None` if they can't be serialised, which
/// does not happen for messages of this crate.
pub fn seal(contents: &impl Serialize) -> Option<Vec<u8>> {
    let mut bytes = postcard::to_extend(contents, vec![0; HEADER]).ok()?;
    let (header, payload) = bytes.split_at_mut(HEADER);
    header[..8].copy_from_slice(&MAGIC);
    header[8..12].copy_from_slice(&NATIVE_VERSION.to_le_bytes());
    header[16..24].copy_from_slice(&(payload.len() as u64).to_le_bytes());
    header[24..].copy_from_slice(&fingerprint([&*payload]));
    Some(bytes)
}

/// Reads what [`seal`] has written.
///
/// # Errors
/// See [`NativeError`].
pub fn open<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, NativeError> {
    let Some((magic, rest)) = bytes.split_first_chunk::<8>() else {
        return Err(NativeError::Foreign);
    };
    if *magic != MAGIC {
        return Err(NativeError::Foreign);
    }
    let missing = || NativeError::Length(bytes.len() as u64, HEADER as u64);
    let (version, rest) = rest.split_first_chunk::<4>().ok_or_else(missing)?;
    let version = u32::from_le_bytes(*version);
    if version != NATIVE_VERSION {
        return Err(NativeError::Version(version));
    }
    let (zero, rest) = rest.split_first_chunk::<4>().ok_or_else(missing)?;
    let (length, rest) = rest.split_first_chunk::<8>().ok_or_else(missing)?;
    let (hash, payload) = rest.split_first_chunk::<16>().ok_or_else(missing)?;
    let length = u64::from_le_bytes(*length);
    if payload.len() as u64 != length {
        return Err(NativeError::Length(payload.len() as u64, length));
    }
    if *zero != [0; 4] || *hash != fingerprint([payload]) {
        return Err(NativeError::Damaged);
    }
    let malformed = |error: postcard::Error| NativeError::Malformed(error.to_string());
    let (contents, rest) = postcard::take_from_bytes(payload).map_err(malformed)?;
    if rest.is_empty() {
        Ok(contents)
    } else {
        Err(NativeError::Malformed("bytes follow the contents".into()))
    }
}

impl NativeModule {
    /// The bytes of the binary; `None` as for [`seal`].
    pub fn to_bytes(&self) -> Option<Vec<u8>> {
        seal(self)
    }

    /// Reads a binary.
    ///
    /// # Errors
    /// See [`NativeError`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, NativeError> {
        let module: Self = open(bytes)?;
        module.check().map_err(NativeError::Malformed)?;
        Ok(module)
    }

    /// Whether the parts fit each other.
    ///
    /// # Errors
    /// A part that does not fit.
    pub fn check(&self) -> Result<(), String> {
        self.info.check()?;
        if !self.info.foreign.is_empty() {
            return Err("variables of other modules".into());
        }
        let linkable = !(self.info.imports.is_empty() && self.info.exports.is_empty());
        if linkable && self.inputs.is_empty() {
            return Err("a module to be linked without its source".into());
        }
        let wanted = if self.info.imports.is_empty() { self.info.kernels.len() } else { 0 };
        if self.code.len() != wanted {
            return Err(format!("{} pieces of code for {wanted} kernels", self.code.len()));
        }
        self.code.iter().try_for_each(|code| code.check(&self.info))
    }
}

impl TargetCpu {
    /// The levels of x86-64, ascending.
    pub const LEVELS: [&str; 4] = ["x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4"];

    /// Any processor of one of the [levels](Self::LEVELS), with the features that all of them have.
    pub fn of_level(name: &str) -> Option<Self> {
        Self::LEVELS.contains(&name).then(|| Self { name: name.into(), features: String::new() })
    }

    fn level(&self) -> Option<usize> {
        let name = if self.name.is_empty() { Self::LEVELS[0] } else { &self.name };
        Self::LEVELS.iter().position(|level| *level == name)
    }

    /// The features that code for this processor may use and another one lacks.
    pub fn missing_on(&self, processor: &TargetCpu) -> Option<String> {
        if self == processor {
            return None;
        }
        let fits = match (self.level(), processor.level()) {
            (Some(needs), Some(has)) => needs <= has,
            _ => self.name == processor.name,
        };
        if !fits {
            return Some(self.name.clone());
        }
        let has = |feature: &&str| processor.features.split(',').any(|it| it == *feature);
        let mut needed = self.features.split(',').filter(|it| it.starts_with('+'));
        needed.find(|feature| !has(feature)).map(|feature| feature[1..].to_owned())
    }
}

/// Whether a place of eight bytes lies in so many.
fn holds(size: u64, offset: u64) -> bool {
    offset.checked_add(8).is_some_and(|end| end <= size)
}

impl ModuleInfo {
    /// Whether a module's description is consistent.
    ///
    /// # Errors
    /// A part that does not fit.
    pub fn check(&self) -> Result<(), String> {
        for global in &self.globals {
            let fits = global.align.is_power_of_two()
                && global.init.len() as u64 <= global.size
                && global.relocs.iter().all(|it| holds(global.size, it.offset));
            if !fits || !self.names(&global.relocs) {
                return Err(format!("the variable {:?}", global.name));
            }
        }
        for kernel in &self.kernels {
            let fits = kernel.args.iter().all(|arg| {
                let pointer = !matches!(arg.kind, ArgKind::Value);
                let end = u64::from(arg.offset) + u64::from(arg.size);
                end <= kernel.args_size.into() && (!pointer || arg.size == 8)
            });
            let ring =
                kernel.printf_ring.is_none_or(|at| holds(kernel.args_size.into(), at.into()));
            if !fits || !ring {
                return Err(format!("the arguments of {:?}", kernel.name));
            }
            if kernel.required_group_size.is_some_and(|size| size.contains(&0)) {
                return Err(format!("the group size of {:?}", kernel.name));
            }
        }
        Ok(())
    }

    fn names(&self, relocs: &[crate::Reloc]) -> bool {
        let known = self.globals.len() + self.foreign.len();
        relocs.iter().all(|reloc| (reloc.global as usize) < known)
    }
}

impl KernelCode {
    /// Whether a kernel's code is consistent and fits its module.
    ///
    /// # Errors
    /// A part that does not fit.
    pub fn check(&self, info: &ModuleInfo) -> Result<(), String> {
        let size = self.blob.len() as u64;
        if u64::from(self.entry) >= size {
            return Err("an entry point outside of the code".into());
        }
        if !self.relocs.iter().all(|it| holds(size, it.offset)) || !info.names(&self.relocs) {
            return Err("an address outside of the code, or of no variable".into());
        }
        if self.axis > 2 {
            return Err("vectors in a dimension that there is not".into());
        }
        for section in &self.debug {
            let fits = |place: &DebugPlace| {
                place.range().end <= section.bytes.len()
                    && place.section.is_none_or(|it| (it as usize) < self.debug.len())
            };
            if !section.places.iter().all(fits) {
                return Err(format!("the debug information {:?}", section.name));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
