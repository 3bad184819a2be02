// SPDX-License-Identifier: MIT OR Apache-2.0
//! A mistake as a value, and as text for users. JSON has the fields of these types under their names;
//! addresses are strings in hexadecimal.

use std::fmt::Write as _;

use serde::Serialize;

use super::calls::{self, Call, Host, Stack};
use super::kernels::Record;

/// A mistake.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The check that found it.
    pub check: Check,
    /// The rule that it breaks.
    pub rule: Rule,
    /// One sentence.
    pub message: String,
    /// The kernel's name, if a kernel made the mistake.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
    /// The place in the kernel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<Place>,
    /// The first work-item that made it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub item: Option<Item>,
    /// The other access of a race, or the other item at a divergent barrier.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub second: Option<Second>,
    /// The memory that was accessed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Memory>,
    /// The call that appended the kernel, or the call that is the mistake itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call: Option<Call>,
    /// The call that appended the other command, if a mistake needs two.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub other: Option<Call>,
    /// The place where the program itself has accessed memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<Host>,
    /// Further facts, in sentences.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Number of times that the mistake was made, by work-items or by calls.
    pub count: u64,
}

/// A check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, strum::IntoStaticStr)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Check {
    /// Accesses stay inside of allocations that exist.
    Memory,
    /// Memory is written before it is read.
    Init,
    /// Memory is freed, and objects are destroyed, before the process ends.
    Leaks,
    /// The program runs on other devices as well.
    Portable,
    /// Accesses to the same memory are ordered.
    Races,
    /// Events, barriers and waits are used as they must be.
    Sync,
}

/// A rule.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum Rule {
    /// An access is outside of an allocation.
    OutOfBounds,
    /// An access is in memory that was freed.
    UseAfterFree,
    /// An access has a null pointer.
    NullPointer,
    /// An access is to an address at which there is no memory.
    NoMemory,
    /// An atomic access is not aligned to its size.
    MisalignedAtomic,
    /// Memory is freed a second time.
    DoubleFree,
    /// A freed address is not the start of an allocation.
    BadFree,
    /// Memory is freed while a command that uses it is not complete.
    FreeInUse,
    /// A command has stopped the device.
    DeviceFault,
    /// Memory is read that nothing has written.
    UninitialisedRead,
    /// Memory is not freed.
    NotFreed,
    /// An object is not destroyed.
    NotDestroyed,
    /// The host accesses device memory.
    DeviceMemoryOnHost,
    /// The host reads results that nothing has made visible to it.
    NoHostScope,
    /// The host uses an event that is not visible to it.
    HostVisible,
    /// A kernel reaches memory that is neither an argument, resident nor allowed by a flag.
    IndirectAccess,
    /// A kernel accesses memory that the program did not allocate with Level Zero.
    SystemMemory,
    /// Groups are larger than on common devices.
    GroupSize,
    /// A kernel relies on a sub-group size.
    SubGroupSize,
    /// A kernel needs doubles.
    Doubles,
    /// A kernel waits for other groups.
    WaitsForGroups,
    /// Two commands access the same memory, at least one of them writes, and nothing orders them.
    CommandRace,
    /// An event is reset while something waits for it.
    ResetInUse,
    /// Two signals of one event have no order.
    SignalRace,
    /// Nothing is going to signal what is waited for.
    NeverSignalled,
    /// Two work-items access the same memory, at least one of them writes, and nothing orders them.
    Race,
    /// Two work-items store the same value at the same place, and nothing orders them.
    SameValueRace,
    /// The host and a command access the same memory, at least one of them writes, and nothing orders them.
    HostRace,
    /// Not all work-items of a group reach a barrier.
    DivergentBarrier,
}

impl Rule {
    /// The rule in a sentence.
    pub fn text(self) -> &'static str {
        match self {
            Self::OutOfBounds => "An access stays inside of the allocation that it is meant for.",
            Self::UseAfterFree => "Memory is not used after it was freed.",
            Self::NullPointer => "A null pointer is not followed.",
            Self::NoMemory => "An access is to an address at which there is memory.",
            Self::MisalignedAtomic => "An atomic access is aligned to its size.",
            Self::DoubleFree => "Memory is freed once.",
            Self::BadFree => "What is freed is the start of an allocation.",
            Self::FreeInUse => "Memory is freed when no command uses it any more.",
            Self::DeviceFault => "A command does nothing that stops the device.",
            Self::UninitialisedRead => "What is read was written before.",
            Self::NotFreed => "Memory is freed before the process ends.",
            Self::NotDestroyed => "What was created is destroyed before the process ends.",
            Self::DeviceMemoryOnHost => "The host does not access device memory.",
            Self::NoHostScope => "The host reads results when they are visible to it.",
            Self::HostVisible => "Events that the host uses are visible to it.",
            Self::IndirectAccess => "Memory that kernels reach through pointers is resident.",
            Self::SystemMemory => "Kernels access memory of the driver's.",
            Self::GroupSize => "Groups are not larger than on common devices.",
            Self::SubGroupSize => "A kernel does not rely on a size of sub-groups.",
            Self::Doubles => "A program that needs doubles asks whether a device has them.",
            Self::WaitsForGroups => "Groups that wait for each other are launched together.",
            Self::CommandRace => "Commands that access the same memory are ordered.",
            Self::ResetInUse => "An event is reset when nothing waits for it any more.",
            Self::SignalRace => "Signals of one event are ordered.",
            Self::NeverSignalled => "What is waited for is signalled.",
            Self::Race => "Work-items that access the same memory are ordered.",
            Self::SameValueRace => "Work-items that store at the same place are ordered.",
            Self::HostRace => "The host accesses what a command does when the two are ordered.",
            Self::DivergentBarrier => "All work-items of a group reach its barriers.",
        }
    }

    /// The specification's statement on it, or the difference among devices.
    fn source(self) -> Option<&'static str> {
        Some(match self {
            Self::DeviceMemoryOnHost => {
                "the specification: \"device allocations may only be accessed by the specific device that they are allocated on, or copied to another device or Host allocation\""
            }
            Self::NoHostScope => {
                "the specification: ZE_EVENT_SCOPE_FLAG_HOST: \"cache hierarchies are flushed or invalidated sufficient for device to host access\""
            }
            Self::HostVisible => {
                "the specification: ZE_EVENT_POOL_FLAG_HOST_VISIBLE: \"signals and waits are also visible to host\""
            }
            Self::IndirectAccess => {
                "zeKernelSetIndirectAccess allows it, or zeContextMakeMemoryResident; the specification: \"the driver must ensure that all pages that will be accessed by the kernel are resident\""
            }
            Self::SystemMemory => {
                "only devices with sharedSystemAllocCapabilities in ze_device_memory_access_properties_t can access it"
            }
            Self::GroupSize => {
                "maxTotalGroupSize of ze_device_compute_properties_t is 512 on UHD Graphics 770"
            }
            Self::SubGroupSize => {
                "here they have 16 work-items where the kernel does not say; on other devices they have 8 or 32, too"
            }
            Self::Doubles => {
                "ZE_DEVICE_MODULE_FLAG_FP64 says so; UHD Graphics 770 and Arc A770 do not have it"
            }
            Self::WaitsForGroups => {
                "on other devices a group may begin when others have ended; zeCommandListAppendLaunchCooperativeKernel lets all run together"
            }
            _ => return None,
        })
    }

    /// The check to which the rule belongs.
    pub fn check(self) -> Check {
        match self {
            Self::UninitialisedRead => Check::Init,
            Self::NotFreed | Self::NotDestroyed => Check::Leaks,
            Self::DeviceMemoryOnHost
            | Self::NoHostScope
            | Self::HostVisible
            | Self::IndirectAccess
            | Self::SystemMemory
            | Self::GroupSize
            | Self::SubGroupSize
            | Self::Doubles
            | Self::WaitsForGroups => Check::Portable,
            Self::CommandRace | Self::Race | Self::SameValueRace | Self::HostRace => Check::Races,
            Self::DivergentBarrier => Check::Sync,
            Self::ResetInUse | Self::SignalRace | Self::NeverSignalled => Check::Sync,
            _ => Check::Memory,
        }
    }
}

/// A place in a kernel.
#[derive(Clone, Debug, Serialize)]
pub struct Place {
    /// The function, as the source names it.
    pub function: String,
    /// The source file, if the module names it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Line, from 1; 0 if it is not known.
    pub line: u32,
    /// Column, from 1; 0 if it is not known.
    pub column: u32,
    /// The line's text, if it could be found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Offset of the instruction in the SPIR-V module, in words.
    pub word: u32,
}

/// A work-item.
#[derive(Clone, Debug, Serialize)]
pub struct Item {
    /// Its global id.
    pub global: [u64; 3],
    /// Its id in its work-group.
    pub local: [u64; 3],
    /// The work-group's id.
    pub group: [u64; 3],
    /// Number of work-items, of one vector, that made the mistake together.
    pub together: u32,
}

/// The other part of a mistake that takes two.
#[derive(Clone, Debug, Serialize)]
pub struct Second {
    /// What it is, in words.
    pub what: String,
    /// Its place, if a kernel has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<Place>,
    /// The work-item.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub item: Option<Item>,
}

/// The memory of a mistake.
#[derive(Clone, Debug, Serialize)]
pub struct Memory {
    /// The address, or the offset in a private variable.
    #[serde(serialize_with = "hexadecimal")]
    pub address: u64,
    /// Bytes that are accessed.
    pub size: u64,
    /// The kernel's name for the accessed object: an argument or a variable.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub object: String,
    /// The allocation that contains the address or is near it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocation: Option<Allocation>,
}

/// An allocation.
#[derive(Clone, Debug, Serialize)]
pub struct Allocation {
    /// Its kind, in words.
    pub kind: String,
    /// Its first address.
    #[serde(serialize_with = "hexadecimal")]
    pub base: u64,
    /// Its size in bytes.
    pub size: u64,
    /// The position of the accessed address, in words.
    pub place: String,
    /// The call that made it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub made: Option<Call>,
    /// The call that freed it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub freed: Option<Call>,
}

fn hexadecimal<S: serde::Serializer>(address: &u64, out: S) -> Result<S::Ok, S::Error> {
    out.collect_str(&format_args!("{address:#x}"))
}

impl Report {
    /// A mistake that consists in the current call.
    pub fn of_call(rule: Rule, message: String) -> Self {
        Self {
            check: rule.check(),
            rule,
            message,
            kernel: None,
            place: None,
            item: None,
            second: None,
            memory: None,
            call: Some(calls::current()),
            other: None,
            host: None,
            notes: rule.source().map(str::to_owned).into_iter().collect(),
            count: 1,
        }
    }

    /// The report as text for users, without the count.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let (check, rule): (&str, &str) = (self.check.into(), self.rule.into());
        // Writing to a String does not fail.
        let _ = writeln!(text, "{check}: {} [{rule}]", self.message);
        if let Some(place) = &self.place {
            let _ = writeln!(text, "  at {}", place.words());
            if let Some(line) = &place.text {
                let _ = writeln!(text, "      {}", line.trim());
            }
        }
        if let Some(item) = &self.item {
            let _ = writeln!(text, "  by {}", item.words());
        }
        if let Some(second) = &self.second {
            second.write(&mut text);
        }
        // Of a variable without an address of its own the message says all.
        let is_told = |memory: &Memory| {
            let object = memory.object.as_str();
            memory.allocation.is_none() && !object.is_empty() && self.message.contains(object)
        };
        if let Some(memory) = self.memory.as_ref().filter(|memory| !is_told(memory)) {
            memory.write(&mut text);
        }
        if let Some(call) = &self.call {
            let what = match (&self.kernel, self.rule) {
                (Some(_), _) => "launched by",
                (None, Rule::NotDestroyed) => "made by",
                (None, Rule::HostRace) => "the command was appended by",
                (None, _) => "in",
            };
            write_call(&mut text, what, call);
        }
        if let Some(call) = &self.other {
            write_call(&mut text, "the other one in", call);
        }
        if let Some(Host { thread, stack, .. }) = &self.host {
            let what = if self.rule == Rule::HostRace { "the host in" } else { "in" };
            let _ = writeln!(text, "  {what} thread {thread}");
            write_stack(&mut text, stack);
        }
        for note in &self.notes {
            let _ = writeln!(text, "  {note}");
        }
        text
    }
}

fn write_call(text: &mut String, what: &str, call: &Call) {
    let Call { number, function, thread, stack } = call;
    let _ = writeln!(text, "  {what} call {number}, {function}, in thread {thread}");
    write_stack(text, stack);
}

fn write_stack(text: &mut String, stack: &Stack) {
    for frame in stack.frames() {
        // Writing to a String does not fail.
        let _ = writeln!(text, "      from {frame}");
    }
}

impl Place {
    /// The place in words.
    pub fn words(&self) -> String {
        let Self { function, file, line, column, word, .. } = self;
        match file {
            Some(file) => format!("{file}:{line}:{column}, in {function}"),
            None => format!(
                "word {word} of the SPIR-V module, in {function} (the module says no lines here)"
            ),
        }
    }
}

impl Item {
    /// The work-items of a record.
    pub fn of(record: &Record) -> Self {
        Self {
            global: record.global,
            local: record.local,
            group: record.group,
            together: record.items,
        }
    }

    fn words(&self) -> String {
        let three = |[x, y, z]: [u64; 3]| format!("({x}, {y}, {z})");
        let others = match self.together {
            0 | 1 => String::new(),
            2 => " and another one".to_owned(),
            more => format!(" and {} others", more - 1),
        };
        let Self { global, local, group, .. } = *self;
        format!(
            "work-item {}{others}, local id {} in group {}",
            three(global),
            three(local),
            three(group)
        )
    }
}

impl Second {
    fn write(&self, text: &mut String) {
        let Self { what, place, item } = self;
        // Writing to a String does not fail.
        let _ = writeln!(text, "  {what}");
        if let Some(place) = place {
            let _ = writeln!(text, "  at {}", place.words());
            if let Some(line) = &place.text {
                let _ = writeln!(text, "      {}", line.trim());
            }
        }
        if let Some(item) = item {
            let _ = writeln!(text, "  by {}", item.words());
        }
    }
}

impl Memory {
    fn write(&self, text: &mut String) {
        let through = match self.object.as_str() {
            "" => String::new(),
            object => format!(", through {object}"),
        };
        match &self.allocation {
            Some(it) => {
                let _ = writeln!(text, "  address {:#x}, {}{through}", self.address, it.place);
                let _ = writeln!(text, "  {} of {} bytes at {:#x}", it.kind, it.size, it.base);
                if let Some(call) = &it.made {
                    write_call(text, "made by", call);
                }
                if let Some(call) = &it.freed {
                    write_call(text, "freed by", call);
                }
            }
            None if self.address != 0 || !self.object.is_empty() => {
                let _ = writeln!(text, "  address {:#x}{through}", self.address);
            }
            None => {}
        }
    }
}
