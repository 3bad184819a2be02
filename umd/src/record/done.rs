// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a successful call has made and ended.

use std::sync::{Arc, Weak};

use tally_ze::call::Words;
use tally_ze::*;

use super::arguments::object;
use super::recorder::{Recorder, Target};
use super::touches::Touches;
use crate::recording::calls::{Arg, Class, Row};
use crate::recording::{Bytes, Source, Value};
use crate::{settings, space};

/// `ZE_MEMORY_ACCESS_ATTRIBUTE_NONE`.
const NO_ACCESS: u32 = ze_memory_access_attribute_t::ZE_MEMORY_ACCESS_ATTRIBUTE_NONE.0;

impl Recorder {
    /// The number of an object that a call has returned, which some calls do again.
    fn new_object(&mut self, raw: u64) -> u32 {
        let next = self.made + 1;
        let number = *self.objects.entry(raw).or_insert(next);
        self.made = self.made.max(number);
        number
    }

    /// Takes what a successful call has returned and changed.
    ///
    /// # Safety
    /// The words are those of the call, and what it returns is written.
    pub(super) unsafe fn done(
        &mut self,
        row: &Row,
        words: &Words,
        subject: u32,
        values: &mut Vec<Value>,
    ) {
        let words = words.as_slice();
        let returned = |i: usize| -> u64 {
            if words[i] == 0 {
                return 0;
            }
            // SAFETY: the call has checked and filled the place.
            unsafe { space::pointer(words[i]).cast::<u64>().read_unaligned() }
        };
        let mut made = 0;
        for (i, arg) in row.args.iter().enumerate() {
            match arg {
                Arg::New if words[i] != 0 => {
                    made = self.new_object(returned(i));
                    values[i] = Value::New(made);
                }
                Arg::Address => values[i] = Value::Address(returned(i), 0),
                _ => {}
            }
        }
        self.kernels.note(row, subject, values, &self.memory);
        let known = settings::get().chaos.is_some();
        match row.name {
            "zeContextCreate" | "zeContextCreateEx" => {
                let place = if row.name == "zeContextCreate" { 2 } else { 4 };
                // SAFETY: the context is new.
                let context = unsafe { object::<ze_context_handle_t>(returned(place)) };
                self.vm = context.map_or_else(Weak::new, |it| Arc::downgrade(it.vm()));
            }
            "zeMemAllocShared" | "zeMemAllocDevice" | "zeMemAllocHost" => {
                let place = row.args.len() - 1;
                let size = words[if row.name == "zeMemAllocShared" { 3 } else { 2 }];
                let address = returned(place);
                values[place] = Value::Address(address, size);
                self.memory.add(address, size, subject, known);
                self.find_vm(words[0]);
            }
            "zeMemOpenIpcHandle" => {
                self.find_vm(words[0]);
                let address = returned(11);
                let found = self.vm.upgrade().and_then(|vm| vm.find(address));
                let size = found.map_or(0, |found| found.size);
                values[11] = Value::Address(address, size);
                self.memory.add(address, size, subject, false);
                self.not_kept(
                    "when other processes write memory that they share: it counts as the host's"
                        .into(),
                );
            }
            "zeMemCloseIpcHandle" => drop(self.memory.remove(words[1])),
            "zeMemFree" => drop(self.memory.remove(words[1])),
            "zeMemFreeExt" => drop(self.memory.remove(words[2])),
            "zeVirtualMemMap" if words[5] as u32 != NO_ACCESS => {
                self.memory.add(words[1], words[2], subject, false);
            }
            "zeVirtualMemUnmap" | "zeVirtualMemFree" => {
                self.memory.remove_within(words[1], words[2])
            }
            "zeVirtualMemSetAccessAttribute" if words[3] as u32 == NO_ACCESS => {
                self.memory.remove_within(words[1], words[2]);
            }
            "zeModuleCreate" => {
                let raw = returned(3);
                let number = self.new_object(raw);
                values[3] = Value::New(number);
                // SAFETY: the module is new.
                let Some(module) = (unsafe { object::<ze_module_handle_t>(raw) }) else { return };
                let sources = module.sources().iter().map(|it| Source {
                    native: false,
                    code: Bytes(it.spirv.clone()),
                    flags: it.options.clone(),
                    constants: it.spec_constants.clone(),
                });
                let mut sources: Vec<Source> = sources.collect();
                if sources.is_empty() {
                    self.not_kept(
                        "the source of a native binary: a replay needs a processor like this one"
                            .into(),
                    );
                    let code = Bytes(module.native_binary().unwrap_or_default());
                    sources.push(Source {
                        native: true,
                        code,
                        flags: String::new(),
                        constants: Vec::new(),
                    });
                }
                values[2] = Value::Sources(sources);
                values.push(match module.variables() {
                    Some((base, size)) => {
                        self.memory.add_variables(base, size, number);
                        Value::Address(base, size)
                    }
                    None => Value::Null,
                });
                self.find_vm(words[0]);
            }
            "zeImageCreate"
            | "zeImageViewCreateExt"
            | "zeImageViewCreateExp"
            | "zeSamplerCreate" => {
                self.images.insert(returned(row.args.len() - 1));
            }
            "zeCommandListCreate" => _ = self.targets.insert(made, Target::default()),
            "zeCommandListCreateImmediate" | "zeCommandQueueCreate" => {
                // SAFETY: the call has read it, too.
                let desc = unsafe {
                    space::pointer(words[2]).cast::<ze_command_queue_desc_t>().read_unaligned()
                };
                let synchronous =
                    desc.mode == ze_command_queue_mode_t::ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS;
                let immediate = row.name == "zeCommandListCreateImmediate";
                self.targets.insert(made, Target { immediate, synchronous, ..Target::default() });
                self.find_vm(words[0]);
            }
            "zeCommandListCreateCloneExp" => {
                let target = self.targets.get(&subject).cloned().unwrap_or_default();
                self.targets.insert(made, target);
            }
            "zeCommandListReset" => {
                if let Some(target) = self.targets.get_mut(&subject) {
                    (target.reads, target.writes) = (Vec::new(), Vec::new());
                    target.touches = Touches::default();
                }
            }
            name if name.starts_with("zeCommandListUpdateMutable") => {
                if let Some(target) = self.targets.get_mut(&subject) {
                    target.touches.all = true;
                }
            }
            _ if row.class == Class::Ends => {
                let raw = words[if row.name == "zePhysicalMemDestroy" { 1 } else { 0 }];
                if let Some(number) = self.objects.remove(&raw) {
                    self.targets.remove(&number);
                    self.memory.remove_of(number);
                }
                self.images.remove(&raw);
            }
            _ => {}
        }
    }

    /// The VM of a context that the recorder has not seen made.
    fn find_vm(&mut self, context: u64) {
        if self.vm.strong_count() == 0 {
            // SAFETY: the call has used the context.
            let context = unsafe { object::<ze_context_handle_t>(context) };
            self.vm = context.map_or_else(Weak::new, |it| Arc::downgrade(it.vm()));
        }
    }
}
