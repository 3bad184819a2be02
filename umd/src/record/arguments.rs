// SPDX-License-Identifier: MIT OR Apache-2.0
//! Arguments of calls as values of a recording.

use std::ffi::{CStr, c_void};

use tally_compiler_protocol::ArgKind;
use tally_ze::call::Words;
use tally_ze::*;

use super::memory;
use super::recorder::Recorder;
use crate::api::runtime;
use crate::core::kernel::Kernel;
use crate::handle::{self, RawHandle};
use crate::recording::calls::{Arg, Row, counters, extension_size, is_raised};
use crate::recording::{Bytes, Value};
use crate::space;

/// The most structures that extend a description.
const EXTENSIONS: usize = 64;

/// The arguments of a call, before it is made.
#[derive(Default)]
pub struct Encoded {
    /// What is recorded.
    pub values: Vec<Value>,
    /// The program's own memory that commands read: address, bytes.
    pub reads: Vec<(u64, u64)>,
    /// The same that commands write.
    pub writes: Vec<(u64, u64)>,
    /// Memory that gets times.
    pub clocks: Vec<(u64, u64)>,
    /// Words that are counters of the application's.
    pub counters: Vec<u64>,
    /// Those of them that commands raise.
    pub raised: Vec<u64>,
}

/// The most bytes of an argument.
const MOST: usize = 32 << 20;

/// A copy of what a pointer of the caller's points to; `None`: it is null, or wrong, which the driver will tell.
fn copied(pointer: u64, bytes: usize) -> Option<Vec<u8>> {
    if pointer == 0 || bytes > MOST { None } else { memory::read(pointer, bytes as u64) }
}

/// The 64-bit words behind a pointer.
fn words_at(pointer: u64, count: u64) -> Vec<u64> {
    let bytes = usize::try_from(count).ok().and_then(|count| count.checked_mul(8));
    let bytes = bytes.and_then(|bytes| copied(pointer, bytes)).unwrap_or_default();
    bytes.chunks_exact(8).map(word).collect()
}

fn word(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(0, u64::from_le_bytes)
}

fn word32(bytes: &[u8], i: usize) -> u64 {
    let bytes = bytes.get(4 * i..4 * i + 4).and_then(|it| it.try_into().ok());
    bytes.map_or(0, u32::from_le_bytes).into()
}

/// The object behind a handle of the caller's.
///
/// # Safety
/// No other thread destroys it meanwhile.
pub unsafe fn object<'a, R: RawHandle>(raw: u64) -> Option<&'a R::Object> {
    // SAFETY: as the caller promises.
    unsafe { handle::get(R::from_ptr(space::pointer(raw).cast()), "") }.ok()
}

impl Recorder {
    /// The arguments of a call. `None`: it is about an object that is not known.
    ///
    /// # Safety
    /// The words are arguments as the specification wants them.
    pub(super) unsafe fn encode(&mut self, row: &Row, words: &Words) -> Option<Encoded> {
        let words = words.as_slice();
        let mut encoded = Encoded::default();
        for (i, (&arg, &raw)) in row.args.iter().zip(words).enumerate() {
            let count = |of: usize| words.get(of).copied().unwrap_or_default();
            // SAFETY: the program passes pointers to what the specification says, as the caller promises.
            let value = unsafe {
                match arg {
                    Arg::Word | Arg::Address | Arg::New => Value::Word(raw),
                    Arg::Driver => Value::Driver,
                    Arg::Device => device(raw),
                    Arg::Object => self.object(raw),
                    Arg::Subject => match self.object(raw) {
                        Value::Null => return None,
                        known => known,
                    },
                    Arg::Event => self.event(raw),
                    // What a null pointer means differs from what no element means.
                    Arg::Objects(_)
                    | Arg::Events(_)
                    | Arg::Devices(_)
                    | Arg::Words(_)
                    | Arg::Ranges(_)
                        if raw == 0 =>
                    {
                        Value::Null
                    }
                    Arg::Desc(size) => self.chain(raw, size, &mut encoded),
                    Arg::Next => self.chain(raw, 0, &mut encoded),
                    Arg::Value(size) => {
                        copied(raw, size).map_or(Value::Null, |it| Value::Bytes(Bytes(it)))
                    }
                    Arg::Bytes(of) => {
                        let bytes = copied(raw, count(of) as usize);
                        bytes.map_or(Value::Null, |it| Value::Bytes(Bytes(it)))
                    }
                    Arg::Objects(of) => {
                        let all = words_at(raw, count(of) & u64::from(u32::MAX));
                        Value::List(all.into_iter().map(|it| self.object(it)).collect())
                    }
                    Arg::Events(of) => {
                        let all = words_at(raw, count(of) & u64::from(u32::MAX));
                        let known = all.into_iter().map(|it| self.event(it));
                        Value::List(known.filter(|it| *it != Value::Null).collect())
                    }
                    Arg::Devices(of) => {
                        let all = words_at(raw, count(of) & u64::from(u32::MAX));
                        Value::List(all.into_iter().map(device).collect())
                    }
                    Arg::Words(of) | Arg::Ranges(of) => {
                        let all = words_at(raw, count(of) & u64::from(u32::MAX));
                        Value::List(all.into_iter().map(Value::Word).collect())
                    }
                    Arg::Read(of) | Arg::Written(of) => {
                        let bytes = match of {
                            0 => self.bytes(row.name, words, i),
                            of => count(of),
                        };
                        // What lies between rows stays, and is compared, too.
                        if of == 0 && raw != 0 && !self.is_reserved(raw) {
                            encoded.reads.push((raw, bytes));
                        }
                        self.memory(arg, raw, bytes, &mut encoded)
                    }
                    Arg::Out => {
                        if raw == 0 {
                            Value::Null
                        } else {
                            Value::Out
                        }
                    }
                    Arg::Special => self.special(row.name, words, i),
                }
            };
            encoded.values.push(value);
        }
        if row.name.contains("Timestamp") {
            let times = |it: &Value| match *it {
                Value::Memory(address, bytes) => Some((address, bytes)),
                _ => None,
            };
            encoded.clocks = encoded.values.iter().filter_map(times).collect();
        }
        Some(encoded)
    }

    /// A handle of an object; null if there is none, or it is not known.
    fn object(&self, raw: u64) -> Value {
        if let Some(&number) = self.objects.get(&raw) {
            return Value::Object(number);
        }
        // SAFETY: contexts are not destroyed while a call uses them.
        match unsafe { object::<ze_context_handle_t>(raw) } {
            Some(_) => Value::DefaultContext,
            None => Value::Null,
        }
    }

    fn event(&mut self, raw: u64) -> Value {
        let known = self.object(raw);
        if known == Value::Null && raw != 0 {
            self.not_kept("events of other processes: waits for them are left out".into());
        }
        known
    }

    /// A description of `size` bytes and what extends it, or only the latter.
    fn chain(&mut self, raw: u64, size: usize, encoded: &mut Encoded) -> Value {
        const NEXT: usize = 8;
        let mut links = Vec::new();
        let mut next = raw;
        let mut size = Some(size).filter(|&size| size != 0);
        while next != 0 && links.len() < EXTENSIONS {
            let Some(head) = copied(next, 16) else { break };
            let stype = ze_structure_type_t(word32(&head, 0) as u32);
            match size.take().or_else(|| extension_size(stype)) {
                Some(bytes) => {
                    let Some(link) = copied(next, bytes) else { break };
                    for &at in counters(stype) {
                        let counter = word(&link[at..at + 8]);
                        encoded.counters.push(counter);
                        if is_raised(stype) {
                            encoded.raised.push(counter);
                        }
                    }
                    links.push(Bytes(link));
                }
                None => {
                    let name =
                        stype.name().map_or_else(|| format!("{:#x}", stype.0), str::to_owned);
                    self.not_kept(format!("the extension of a description: {name}"));
                }
            }
            next = word(&head[NEXT..]);
        }
        if links.is_empty() { Value::Null } else { Value::Chain(links) }
    }

    /// Memory of a command.
    fn memory(&mut self, arg: Arg, address: u64, bytes: u64, encoded: &mut Encoded) -> Value {
        if address == 0 {
            return Value::Null;
        }
        if !self.is_reserved(address) {
            match arg {
                Arg::Read(_) => encoded.reads.push((address, bytes)),
                _ => encoded.writes.push((address, bytes)),
            }
        }
        Value::Memory(address, bytes)
    }

    /// Bytes of memory of a command that has no size.
    ///
    /// # Safety
    /// That of [`Recorder::encode`].
    unsafe fn bytes(&self, name: &str, words: &[u64], i: usize) -> u64 {
        const TIMES: u64 = size_of::<ze_kernel_timestamp_result_t>() as u64;
        // SAFETY: as the caller promises.
        unsafe {
            match name {
                "zeCommandListAppendMemoryCopyRegion" => {
                    let (region, pitch, slice) = (words[i + 1], words[i + 2], words[i + 3]);
                    let region = copied(region, size_of::<ze_copy_region_t>()).unwrap_or_default();
                    let at = |i| word32(&region, i);
                    if at(3) == 0 || at(4) == 0 || at(5) == 0 {
                        return 0;
                    }
                    let rows = (at(1) + at(4) - 1) * (pitch & u64::from(u32::MAX));
                    (at(2) + at(5) - 1) * (slice & u64::from(u32::MAX)) + rows + at(0) + at(3)
                }
                "zeCommandListAppendQueryKernelTimestamps" => {
                    let count = words[1] & u64::from(u32::MAX);
                    match words[4] {
                        0 => count * TIMES,
                        offsets => words_at(offsets, count).into_iter().max().unwrap_or(0) + TIMES,
                    }
                }
                "zeCommandListAppendImageCopyToMemory" => texels(words[2], words[3], [0; 2]),
                "zeCommandListAppendImageCopyToMemoryExt" => {
                    texels(words[2], words[3], [words[4], words[5]])
                }
                "zeCommandListAppendImageCopyFromMemory" => texels(words[1], words[3], [0; 2]),
                "zeCommandListAppendImageCopyFromMemoryExt" => {
                    texels(words[1], words[3], [words[4], words[5]])
                }
                _ => size_of::<u64>() as u64,
            }
        }
    }

    /// Arguments that are like no others.
    ///
    /// # Safety
    /// That of [`Recorder::encode`].
    unsafe fn special(&mut self, name: &str, words: &[u64], i: usize) -> Value {
        let raw = words[i];
        if raw == 0 {
            return Value::Null;
        }
        // SAFETY: as the caller promises.
        unsafe {
            match name {
                "zeKernelCreate" => {
                    let desc = space::pointer(raw).cast::<ze_kernel_desc_t>().read_unaligned();
                    let name = match desc.pKernelName.is_null() {
                        true => Vec::new(),
                        false => CStr::from_ptr(desc.pKernelName).to_bytes().to_vec(),
                    };
                    let flags = Value::Word(desc.flags.bits().into());
                    Value::List(vec![Value::Bytes(Bytes(name)), flags])
                }
                "zeKernelSetArgumentValue" => {
                    let Some(kernel) = object::<ze_kernel_handle_t>(words[0]) else {
                        return Value::Out;
                    };
                    self.argument(kernel, words[1] as u32 as usize, Some(words[2]), raw)
                }
                "zeCommandListAppendLaunchKernelWithArguments" => {
                    let Some(kernel) = object::<ze_kernel_handle_t>(words[1]) else {
                        return Value::Out;
                    };
                    let pointers = words_at(raw, kernel.info().args.len() as u64);
                    let values = pointers.into_iter().enumerate();
                    Value::List(values.map(|(i, at)| self.argument(kernel, i, None, at)).collect())
                }
                "zeCommandListAppendQueryKernelTimestamps" => {
                    let offsets = words_at(raw, words[1] & u64::from(u32::MAX));
                    Value::List(offsets.into_iter().map(Value::Word).collect())
                }
                "zeCommandListUpdateMutableCommandsExp" => self.changes(raw),
                "zeCommandListAppendHostFunction" => {
                    self.functions += 1;
                    Value::Word(self.functions.into())
                }
                _ => Value::Out,
            }
        }
    }

    /// An argument of a kernel at an address; `size` as the caller says, if it says one.
    fn argument(&mut self, kernel: &Kernel, i: usize, size: Option<u64>, at: u64) -> Value {
        let Some(arg) = kernel.info().args.get(i) else { return Value::Out };
        // The value of local memory is its size, if it has one.
        let bytes = match (arg.kind, size) {
            (ArgKind::LocalPointer, Some(_)) => return Value::Null,
            (ArgKind::LocalPointer, None) => 8,
            (_, size) => size.map_or(u64::from(arg.size), |size| size.min(arg.size.into())),
        };
        if at == 0 {
            return Value::Null;
        }
        let Some(value) = copied(at, bytes as usize) else { return Value::Out };
        match arg.kind {
            ArgKind::Image | ArgKind::Sampler if value.len() == 8 => self.object(word(&value)),
            ArgKind::GlobalPointer | ArgKind::ConstantPointer if value.len() == 8 => {
                let address = word(&value);
                if address != 0 && !self.is_reserved(address) {
                    let kernel = kernel.name().to_string_lossy();
                    self.not_kept(format!(
                        "memory of the system: argument {i} of kernel '{kernel}' points there"
                    ));
                }
                Value::Bytes(Bytes(value))
            }
            _ => Value::Bytes(Bytes(value)),
        }
    }

    /// Changes of a mutable list's commands: for each its type, then its fields.
    ///
    /// # Safety
    /// It is the address of such a description.
    unsafe fn changes(&mut self, raw: u64) -> Value {
        let at = space::pointer(raw).cast::<ze_mutable_commands_exp_desc_t>();
        let mut changes = Vec::new();
        // SAFETY: each structure is what its type says, as the caller promises.
        unsafe {
            let mut next = at.read_unaligned().pNext.addr() as u64;
            while next != 0 && changes.len() < 4096 {
                let head = copied(next, 16).unwrap_or_default();
                let stype = ze_structure_type_t(word32(&head, 0) as u32);
                let pointer = space::pointer(next).cast::<c_void>();
                let mut fields = vec![Value::Word(stype.0.into())];
                match stype {
                    ze_mutable_kernel_argument_exp_desc_t::STYPE => {
                        let it = pointer
                            .cast::<ze_mutable_kernel_argument_exp_desc_t>()
                            .read_unaligned();
                        fields.extend(
                            [it.commandId, it.argIndex.into(), it.argSize as u64].map(Value::Word),
                        );
                        let value = copied(it.pArgValue.addr() as u64, it.argSize);
                        fields.push(match value {
                            None => Value::Null,
                            Some(value)
                                if value.len() == 8 && self.images.contains(&word(&value)) =>
                            {
                                self.object(word(&value))
                            }
                            Some(value) => Value::Bytes(Bytes(value)),
                        });
                    }
                    ze_mutable_group_count_exp_desc_t::STYPE => {
                        let it =
                            pointer.cast::<ze_mutable_group_count_exp_desc_t>().read_unaligned();
                        fields.push(Value::Word(it.commandId));
                        let count =
                            copied(it.pGroupCount.addr() as u64, size_of::<ze_group_count_t>());
                        fields.push(count.map_or(Value::Null, |it| Value::Bytes(Bytes(it))));
                    }
                    ze_mutable_group_size_exp_desc_t::STYPE
                    | ze_mutable_global_offset_exp_desc_t::STYPE => {
                        let size = size_of::<ze_mutable_group_size_exp_desc_t>();
                        fields.push(Value::Bytes(Bytes(copied(next, size).unwrap_or_default())));
                    }
                    _ => self.not_kept("a change of a mutable list's command".into()),
                }
                changes.push(Value::List(fields));
                next = word(&head[8..]);
            }
        }
        Value::List(changes)
    }
}

/// A device by its identifier.
fn device(raw: u64) -> Value {
    if raw == 0 {
        return Value::Null;
    }
    let raw = ze_device_handle_t::from_ptr(space::pointer(raw).cast());
    // SAFETY: the function checks the handle.
    match unsafe { runtime::zerTranslateDeviceHandleToIdentifier(raw) } {
        u32::MAX => Value::Null,
        identifier => Value::Device(identifier),
    }
}

/// Bytes of a region of an image in memory with these pitches, or without gaps.
///
/// # Safety
/// The image's handle is not destroyed meanwhile; the region is null or one.
unsafe fn texels(image: u64, region: u64, pitches: [u64; 2]) -> u64 {
    // SAFETY: as the caller promises.
    let (image, region) = unsafe {
        let region = space::pointer(region).cast::<ze_image_region_t>().cast_const();
        (object::<ze_image_handle_t>(image), region.as_ref())
    };
    let Some(part) = image.and_then(|image| image.part(region, "").ok()) else { return 0 };
    let [row, rows, slices] = part.size;
    if row == 0 || rows == 0 || slices == 0 {
        return 0;
    }
    let [row_pitch, slice_pitch] = pitches.map(|it| it & u64::from(u32::MAX));
    let row_pitch = if row_pitch == 0 { row } else { row_pitch };
    let slice_pitch = if slice_pitch == 0 { row_pitch * rows } else { slice_pitch };
    (slices - 1) * slice_pitch + (rows - 1) * row_pitch + row
}
