// SPDX-License-Identifier: MIT OR Apache-2.0
//! Values of a recording as arguments of a call.

use std::ffi::CString;

use tally_ze::*;
use ze_tally::recording::calls::{Arg, Row, counters};
use ze_tally::recording::{Call, Source, Value};

use crate::Result;
use crate::functions;
use crate::memory::Memory;
use crate::player::Objects;

/// Bytes of the place for results that are not used.
const OUT: usize = 4096;

/// The arguments of one call, and the memory that they point to.
#[derive(Default)]
pub struct Decoded {
    /// What is passed.
    pub words: Vec<u64>,
    /// Objects that the call makes: number, and where its handle will be.
    pub new: Vec<(u32, usize)>,
    /// The address that the call has to return, its size, and where it will be.
    pub address: Option<(u64, u64, usize)>,
    /// Memory that arguments point to. Its places stay where they are.
    kept: Vec<Box<[u64]>>,
}

impl Decoded {
    /// A copy of bytes with room for a word behind them; its address.
    fn keep(&mut self, bytes: &[u8]) -> u64 {
        let mut words = vec![0_u64; bytes.len() / 8 + 2].into_boxed_slice();
        for (word, part) in words.iter_mut().zip(bytes.chunks(8)) {
            let mut whole = [0; 8];
            whole[..part.len()].copy_from_slice(part);
            *word = u64::from_le_bytes(whole);
        }
        self.kept.push(words);
        self.address_of(self.kept.len() - 1)
    }

    fn keep_words(&mut self, words: &[u64]) -> u64 {
        let mut words = words.to_vec();
        words.push(0);
        self.kept.push(words.into_boxed_slice());
        self.address_of(self.kept.len() - 1)
    }

    fn address_of(&mut self, place: usize) -> u64 {
        self.kept[place].as_mut_ptr().expose_provenance() as u64
    }

    /// What the call has written to a place.
    pub fn returned(&self, place: usize) -> u64 {
        // SAFETY: the place is kept, and the call may have written it.
        unsafe { self.kept[place].as_ptr().read_volatile() }
    }

    fn out(&mut self) -> u64 {
        self.keep(&[0; OUT])
    }
}

/// What arguments are looked up in.
pub struct Context<'a> {
    /// Handles of objects.
    pub objects: &'a Objects,
    /// Memory.
    pub memory: &'a Memory,
}

impl Context<'_> {
    /// The arguments of a call.
    pub fn decode(&self, row: &Row, call: &Call) -> Result<Decoded> {
        let mut decoded = Decoded::default();
        let mut counts = Vec::new();
        for (i, &arg) in row.args.iter().enumerate() {
            let value = call.args.get(i).ok_or("an argument is missing")?;
            let word = match (arg, value) {
                (Arg::Special, value) => self.special(row.name, call, value, &mut decoded)?,
                (Arg::New, &Value::New(number)) => {
                    let at = decoded.keep_words(&[0]);
                    decoded.new.push((number, decoded.kept.len() - 1));
                    at
                }
                (Arg::Address, &Value::Address(address, size)) => {
                    let at = decoded.keep_words(&[0]);
                    decoded.address = Some((address, size, decoded.kept.len() - 1));
                    at
                }
                // A log, which the program may have destroyed: that call is not kept.
                (Arg::Out, Value::Out) if row.name.starts_with("zeModule") => 0,
                // The call failed when it was recorded.
                (Arg::New | Arg::Address, _) | (_, Value::Out) => decoded.out(),
                (_, Value::List(list)) => {
                    let words = self.words(list)?;
                    match arg {
                        Arg::Events(of) => counts.push((of, words.len() as u64)),
                        // The call reads as many as another word says.
                        Arg::Objects(of) | Arg::Devices(of) | Arg::Words(of) | Arg::Ranges(of)
                            if decoded
                                .words
                                .get(of)
                                .is_none_or(|it| *it as u32 as usize != words.len()) =>
                        {
                            return Err("a list has another length than it says".into());
                        }
                        _ => {}
                    }
                    decoded.keep_words(&words)
                }
                (Arg::Value(size), Value::Bytes(bytes)) if bytes.0.len() != size => {
                    return Err("a structure has another size than it has here".into());
                }
                (Arg::Bytes(_), Value::Bytes(bytes)) => {
                    // Room for what another argument says.
                    let mut bytes = bytes.0.clone();
                    bytes.resize(bytes.len().max(OUT), 0);
                    decoded.keep(&bytes)
                }
                (_, Value::Bytes(bytes)) => decoded.keep(&bytes.0),
                (Arg::Desc(size), Value::Chain(links)) => {
                    if links.first().is_none_or(|it| it.0.len() != size) {
                        return Err("a description has another size than it has here".into());
                    }
                    self.chain(links.iter().map(|it| &it.0[..]), &mut decoded)?
                }
                (_, Value::Chain(links)) => {
                    self.chain(links.iter().map(|it| &it.0[..]), &mut decoded)?
                }
                (_, value) => self.word(value)?,
            };
            decoded.words.push(word);
        }
        if let ("zeCommandListAppendHostFunction", Some(&Value::Word(number))) =
            (row.name, call.args.get(1))
        {
            *decoded.words.get_mut(2).ok_or("an argument is missing")? =
                functions::data(number as u32);
        }
        for (of, count) in counts {
            *decoded.words.get_mut(of).ok_or("a count is missing")? = count;
        }
        Ok(decoded)
    }

    fn word(&self, value: &Value) -> Result<u64> {
        Ok(match *value {
            Value::Null => 0,
            Value::Word(word) => word,
            Value::Driver => self.objects.driver,
            Value::Device(identifier) => {
                let device = self.objects.devices.get(identifier as usize);
                *device.ok_or_else(|| format!("there is no device {identifier} here"))?
            }
            Value::DefaultContext => self.objects.default_context,
            Value::Object(number) => {
                let known = self.objects.made.get(&number);
                *known.ok_or_else(|| format!("object {number} does not exist"))?
            }
            Value::Memory(address, bytes) => self.memory.here(address, bytes)?,
            Value::Address(address, _) => address,
            _ => return Err("an argument is of the wrong kind".into()),
        })
    }

    fn words(&self, list: &[Value]) -> Result<Vec<u64>> {
        list.iter().map(|value| self.word(value)).collect()
    }

    /// Structures, each of which points to the next one; the address of the first.
    fn chain<'a>(
        &self,
        links: impl Iterator<Item = &'a [u8]>,
        decoded: &mut Decoded,
    ) -> Result<u64> {
        const NEXT: usize = 1;
        let mut places = Vec::new();
        for link in links {
            if link.len() < 16 {
                return Err("a structure is too short".into());
            }
            let mut link = link.to_vec();
            let stype = u32::from_le_bytes([link[0], link[1], link[2], link[3]]);
            for &at in counters(ze_structure_type_t(stype)) {
                let place = link.get_mut(at..at + 8).ok_or("a structure is too short")?;
                let address = u64::from_le_bytes((&*place).try_into()?);
                if address != 0 {
                    place.copy_from_slice(&self.memory.here(address, 8)?.to_le_bytes());
                }
            }
            decoded.keep(&link);
            places.push(decoded.kept.len() - 1);
        }
        let mut next = 0;
        for &place in places.iter().rev() {
            decoded.kept[place][NEXT] = next;
            next = decoded.address_of(place);
        }
        Ok(next)
    }

    /// Arguments that are like no others.
    fn special(
        &self,
        name: &str,
        call: &Call,
        value: &Value,
        decoded: &mut Decoded,
    ) -> Result<u64> {
        Ok(match (name, value) {
            (_, Value::Null) => 0,
            ("zeModuleCreate", &Value::New(number)) => {
                let at = decoded.keep_words(&[0]);
                decoded.new.push((number, decoded.kept.len() - 1));
                at
            }
            ("zeModuleCreate", Value::Sources(sources)) => module(sources, decoded)?,
            ("zeKernelCreate", Value::List(list)) => {
                let [Value::Bytes(kernel), Value::Word(flags)] = &list[..] else {
                    return Err("a kernel has no name".into());
                };
                let desc = ze_kernel_desc_t::default();
                let mut name = kernel.0.clone();
                name.push(0);
                let name = decoded.keep(&name);
                let words = [desc.stype.0.into(), 0, *flags, name];
                decoded.keep_words(&words)
            }
            ("zeKernelSetArgumentValue", Value::Bytes(bytes)) => {
                // What the program named beyond that was not read.
                *decoded.words.last_mut().ok_or("an argument is missing")? = bytes.0.len() as u64;
                decoded.keep(&bytes.0)
            }
            ("zeKernelSetArgumentValue", object @ Value::Object(_)) => {
                *decoded.words.last_mut().ok_or("an argument is missing")? = 8;
                let handle = self.word(object)?;
                decoded.keep_words(&[handle])
            }
            ("zeCommandListAppendLaunchKernelWithArguments", Value::List(list)) => {
                let mut pointers = Vec::new();
                for value in list {
                    pointers.push(match value {
                        Value::Null => 0,
                        Value::Bytes(bytes) => decoded.keep(&bytes.0),
                        Value::Out => decoded.out(),
                        object => {
                            let handle = self.word(object)?;
                            decoded.keep_words(&[handle])
                        }
                    });
                }
                // A kernel that has more arguments here finds nulls.
                pointers.resize(pointers.len() + 256, 0);
                decoded.keep_words(&pointers)
            }
            ("zeCommandListAppendQueryKernelTimestamps", Value::List(list)) => {
                let words = self.words(list)?;
                if call.args.get(1) != Some(&Value::Word(words.len() as u64)) {
                    return Err("a list has another length than it says".into());
                }
                decoded.keep_words(&words)
            }
            ("zeCommandListUpdateMutableCommandsExp", Value::List(list)) => {
                self.changes(list, decoded)?
            }
            ("zeCommandListAppendHostFunction", _) => functions::callback(),
            _ => return Err("an argument is of the wrong kind".into()),
        })
    }

    /// Changes of a mutable list's commands.
    fn changes(&self, list: &[Value], decoded: &mut Decoded) -> Result<u64> {
        let mut links = vec![bytes_of(&[ze_mutable_commands_exp_desc_t::STYPE.0.into(), 0, 0])];
        for change in list {
            let Value::List(fields) = change else { return Err("a change is no list".into()) };
            let link = match &fields[..] {
                [
                    Value::Word(stype),
                    Value::Word(command),
                    Value::Word(index),
                    Value::Word(size),
                    value,
                ] => {
                    let at = match value {
                        Value::Null => 0,
                        Value::Bytes(bytes) if bytes.0.len() as u64 == *size => {
                            decoded.keep(&bytes.0)
                        }
                        object @ Value::Object(_) => {
                            let handle = self.word(object)?;
                            decoded.keep_words(&[handle])
                        }
                        _ => return Err("a changed argument is of the wrong kind".into()),
                    };
                    bytes_of(&[*stype, 0, *command, *index, *size, at])
                }
                [Value::Word(stype), Value::Word(command), value] => {
                    let at = match value {
                        Value::Bytes(bytes) if bytes.0.len() == 12 => decoded.keep(&bytes.0),
                        _ => 0,
                    };
                    bytes_of(&[*stype, 0, *command, at])
                }
                [Value::Word(_), Value::Bytes(bytes)]
                    if bytes.0.len() == size_of::<ze_mutable_group_size_exp_desc_t>() =>
                {
                    bytes.0.clone()
                }
                _ => continue,
            };
            links.push(link);
        }
        self.chain(links.iter().map(|it| &it[..]), decoded)
    }
}

fn bytes_of(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// A module's description.
fn module(sources: &[Source], decoded: &mut Decoded) -> Result<u64> {
    let mut sizes = Vec::new();
    let mut code = Vec::new();
    let mut flags = Vec::new();
    let mut constants = Vec::new();
    for source in sources {
        sizes.push(source.code.0.len() as u64);
        code.push(decoded.keep(&source.code.0));
        let text = CString::new(source.flags.as_str())?;
        flags.push(decoded.keep(text.as_bytes_with_nul()));
        let count = source.constants.len();
        let ids: Vec<u8> = source.constants.iter().flat_map(|it| it.0.to_le_bytes()).collect();
        let ids = decoded.keep(&ids);
        let values = source.constants.iter().map(|it| decoded.keep_words(&[it.1]));
        let values: Vec<u64> = values.collect();
        let values = decoded.keep_words(&values);
        constants.push(decoded.keep_words(&[count as u64, ids, values]));
    }
    let stype = ze_module_desc_t::STYPE.0.into();
    if let ([native], true) = (sources, sources.iter().any(|it| it.native)) {
        let format = ze_module_format_t::ZE_MODULE_FORMAT_NATIVE.0.into();
        let size = native.code.0.len() as u64;
        return Ok(decoded.keep_words(&[stype, 0, format, size, code[0], 0, 0]));
    }
    // A description of several modules serves one, too.
    let arrays = [&sizes, &code, &flags, &constants].map(|it| decoded.keep_words(it));
    let program = ze_module_program_exp_desc_t::STYPE.0.into();
    let [sizes, code, flags, constants] = arrays;
    let program =
        decoded.keep_words(&[program, 0, sources.len() as u64, sizes, code, flags, constants]);
    Ok(decoded.keep_words(&[stype, program, 0, 0, 0, 0, 0]))
}

const _: () = {
    assert!(std::mem::offset_of!(ze_kernel_desc_t, flags) == 16);
    assert!(std::mem::offset_of!(ze_kernel_desc_t, pKernelName) == 24);
    assert!(std::mem::offset_of!(ze_module_desc_t, format) == 16);
    assert!(std::mem::offset_of!(ze_module_desc_t, inputSize) == 24);
    assert!(std::mem::offset_of!(ze_module_desc_t, pInputModule) == 32);
    assert!(size_of::<ze_module_desc_t>() == 56);
    assert!(std::mem::offset_of!(ze_module_program_exp_desc_t, count) == 16);
    assert!(std::mem::offset_of!(ze_module_program_exp_desc_t, inputSizes) == 24);
    assert!(std::mem::offset_of!(ze_module_program_exp_desc_t, pInputModules) == 32);
    assert!(std::mem::offset_of!(ze_module_program_exp_desc_t, pBuildFlags) == 40);
    assert!(std::mem::offset_of!(ze_module_program_exp_desc_t, pConstants) == 48);
    assert!(std::mem::offset_of!(ze_module_constants_t, pConstantIds) == 8);
    assert!(std::mem::offset_of!(ze_module_constants_t, pConstantValues) == 16);
    assert!(std::mem::offset_of!(ze_mutable_kernel_argument_exp_desc_t, argIndex) == 24);
    assert!(std::mem::offset_of!(ze_mutable_kernel_argument_exp_desc_t, argSize) == 32);
    assert!(std::mem::offset_of!(ze_mutable_kernel_argument_exp_desc_t, pArgValue) == 40);
    assert!(std::mem::offset_of!(ze_mutable_group_count_exp_desc_t, pGroupCount) == 24);
};
