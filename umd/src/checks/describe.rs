// SPDX-License-Identifier: MIT OR Apache-2.0
//! Makes reports from the records of kernels.

use std::fs;

use tally_compiler_protocol::checks::{ACCESSIBLE, Site, SiteKind, texel};

use super::Checks;
use super::history::{self, Found, Kind};
use super::kernels::{Record, Watched};
use super::names::demangled;
use super::report::{Allocation, Item, Memory, Place, Report, Rule};

/// Addresses below this are null pointers with an offset.
pub(super) const NULL_END: u64 = 1 << 16;

impl Checks {
    /// The report of a mistake that a kernel has recorded.
    pub(super) fn describe(&self, record: &Record) -> Option<Report> {
        let site = record.place();
        if site.kind == SiteKind::Reach {
            return self.describe_reach(record);
        }
        match site.kind {
            SiteKind::Touch { .. } => return self.describe_race(record, site),
            SiteKind::Barrier => return Some(self.describe_barrier(record, site)),
            _ => {}
        }
        Some(self.describe_mistake(record, site))
    }

    fn describe_mistake(&self, record: &Record, site: &Site) -> Report {
        let bytes = bytes(site.size.into());
        let (rule, message, memory) = match site.kind {
            SiteKind::Read
            | SiteKind::Write
            | SiteKind::Update
            | SiteKind::Reach
            | SiteKind::Touch { .. }
            | SiteKind::Barrier
            | SiteKind::End
            | SiteKind::Doubles
            | SiteKind::Exchanges
            | SiteKind::Waits => self.access(record, site),
            SiteKind::Align => (
                Rule::MisalignedAtomic,
                format!("accesses {bytes} atomically at an address that is no multiple of that"),
                self.place(record.address, site.size.into(), record.epoch).0,
            ),
            SiteKind::Use => (
                Rule::UninitialisedRead,
                "uses a value that it has read from memory that nothing has written".to_owned(),
                None,
            ),
            SiteKind::ReadVariable { size } | SiteKind::WriteVariable { size } => {
                variable(record, site, size)
            }
            SiteKind::ReadOutside | SiteKind::WriteOutside => outside(record, site),
            SiteKind::ReadTexel => {
                let (memory, place) = self.place(record.address, 1, record.epoch);
                let memory = memory.map(|it| Memory { object: site.object.clone(), ..it });
                let message = format!("reads a texel that nothing has written, {place}");
                (Rule::UninitialisedRead, message, memory)
            }
            SiteKind::ReadUnwritten { size } => unwritten(record, site, size),
            SiteKind::ReadLocal | SiteKind::WriteLocal => local_argument(record, site),
        };
        let kernel = demangled(&record.watched.kernel);
        Report {
            check: rule.check(),
            rule,
            message: format!("kernel '{kernel}' {message}"),
            kernel: Some(kernel),
            place: Some(place(&record.watched, site)),
            item: Some(Item::of(record)),
            memory,
            call: self.launches.get(record.launch).map(|(call, _)| call),
            other: None,
            host: None,
            notes: Vec::new(),
            ..Report::of_call(rule, String::new())
        }
    }

    /// The report of an access that has stopped the device.
    pub(super) fn describe_fault(&self, record: &Record, address: u64) -> Report {
        let report = self.describe_mistake(record, record.place());
        let null = address < NULL_END;
        let rule = if null { Rule::NullPointer } else { Rule::NoMemory };
        Report {
            rule,
            notes: vec!["the device has stopped: all later commands fail".to_owned()],
            ..report
        }
    }

    fn access(&self, record: &Record, site: &Site) -> (Rule, String, Option<Memory>) {
        let verb = match site.kind {
            SiteKind::Read => "reads",
            SiteKind::Write => "writes",
            _ => "updates",
        };
        let size = u64::from(site.size);
        let what = format!("{verb} {}", bytes(size));
        let (memory, place) = self.place(record.address, size, record.epoch);
        let memory = memory.map(|memory| Memory { object: site.object.clone(), ..memory });
        let states = &record.states[..record.states.len().min(size as usize)];
        let accessible = states.iter().all(|state| state & ACCESSIBLE != 0);
        let rule = match self.history.find(record.address, record.epoch) {
            found if accessible && !matches!(found, Found::Inside(..)) => {
                let message = format!("{what} of local memory that its group has not written");
                let memory = memory.map(|memory| Memory { allocation: None, ..memory });
                return (Rule::UninitialisedRead, message, memory);
            }
            Found::Inside(it, offset) if offset + size <= it.size => {
                if accessible {
                    let message = format!("{what} that nothing has written, {place}");
                    return (Rule::UninitialisedRead, message, memory);
                }
                // The memory was allocated a moment after the access, or the states were damaged.
                Rule::OutOfBounds
            }
            found => rule_of(&found),
        };
        (rule, format!("{what} {place}"), memory)
    }

    /// The memory of an access of `size` bytes at an address, and the position in it.
    pub(super) fn place(&self, address: u64, size: u64, epoch: u64) -> (Option<Memory>, String) {
        let (it, place) = match self.history.find(address, epoch) {
            Found::Inside(it, offset) if offset + size > it.size => {
                let beyond = bytes(offset + size - it.size);
                let place =
                    format!("at offset {offset} of {}, {beyond} beyond its end", name(&it.kind));
                (it, place)
            }
            Found::Inside(it, offset) => {
                let place = format!("at offset {offset} of {}", name(&it.kind));
                (it, place)
            }
            Found::Freed(it, offset) => {
                let place = format!("at offset {offset} of {} that was freed", name(&it.kind));
                (it, place)
            }
            Found::Behind(it, 0) => {
                let place = format!("right behind the end of {}", name(&it.kind));
                (it, place)
            }
            Found::Behind(it, far) => {
                let place = format!("{} behind the end of {}", bytes(far), name(&it.kind));
                (it, place)
            }
            Found::Before(it, far) => {
                let place = format!("{} in front of {}", bytes(far), name(&it.kind));
                (it, place)
            }
            Found::Nowhere => {
                let place = match address {
                    ..NULL_END => "through a null pointer",
                    _ => "where no memory is allocated",
                };
                let object = String::new();
                let memory = Memory { address, size, object, allocation: None };
                return (Some(memory), place.to_owned());
            }
        };
        (Some(memory_of(it, address, size, place.clone())), place)
    }
}

/// The rule that an access outside of an allocation breaks.
pub(super) fn rule_of(found: &Found) -> Rule {
    match found {
        Found::Freed(..) => Rule::UseAfterFree,
        Found::Nowhere => Rule::NoMemory,
        _ => Rule::OutOfBounds,
    }
}

/// Memory of an allocation, in the form of reports.
pub(super) fn memory_of(it: history::Allocation, address: u64, size: u64, place: String) -> Memory {
    let allocation = Allocation {
        kind: name(&it.kind),
        base: it.base,
        size: it.size,
        place,
        made: Some(it.made),
        freed: it.freed,
    };
    Memory { address, size, object: String::new(), allocation: Some(allocation) }
}

/// A mistake with a variable that has no address of its own.
fn variable(record: &Record, site: &Site, size: u64) -> (Rule, String, Option<Memory>) {
    let writes = matches!(site.kind, SiteKind::WriteVariable { .. });
    let verb = if writes { "writes" } else { "reads" };
    let what = bytes(site.size.into());
    let object = if site.object.is_empty() { "a private variable" } else { &site.object };
    let offset = record.address as i64;
    let place = match offset {
        ..0 => format!("{} in front of {object}", bytes(offset.unsigned_abs())),
        _ if record.address >= size => match record.address - size {
            0 => format!("right behind the end of {object}"),
            far => format!("{} behind the end of {object}", bytes(far)),
        },
        _ => format!("that reach beyond the end of {object}"),
    };
    let memory = Memory {
        address: record.address,
        size: site.size.into(),
        object: object.to_owned(),
        allocation: None,
    };
    let message = format!("{verb} {what} {place}, which has {}", bytes(size));
    (Rule::OutOfBounds, message, Some(memory))
}

/// A read of a private variable that nothing has written.
fn unwritten(record: &Record, site: &Site, size: u64) -> (Rule, String, Option<Memory>) {
    let object = if site.object.is_empty() { "a private variable" } else { &site.object };
    let (address, bytes_read) = (record.address, u64::from(site.size));
    let what = bytes(bytes_read);
    let place = match bytes_read == size {
        true => format!("reads {object} that nothing has written"),
        false => format!("reads {what} that nothing has written, at offset {address} of {object}"),
    };
    let memory = Memory { address, size: bytes_read, object: object.to_owned(), allocation: None };
    (Rule::UninitialisedRead, place, Some(memory))
}

/// An access to a texel outside of an image.
fn outside(record: &Record, site: &Site) -> (Rule, String, Option<Memory>) {
    let verb = if site.kind == SiteKind::WriteOutside { "writes" } else { "reads" };
    let [x, y, z] = texel::outside(record.address);
    let image = match site.object.as_str() {
        "" => "an image".to_owned(),
        object => format!("the image that is {object}"),
    };
    (Rule::OutOfBounds, format!("{verb} texel ({x}, {y}, {z}), outside of {image}"), None)
}

/// A mistake with an argument that is local memory.
fn local_argument(record: &Record, site: &Site) -> (Rule, String, Option<Memory>) {
    let verb = if site.kind == SiteKind::WriteLocal { "writes" } else { "reads" };
    let size = u64::from(site.size);
    let (what, object) = (bytes(size), &site.object);
    let place = match record.address as i64 {
        0 => format!("right behind the end of {object}"),
        far @ 1.. => format!("{} behind the end of {object}", bytes(far.unsigned_abs())),
        far if far.unsigned_abs() < size => format!("that reach beyond the end of {object}"),
        _ => format!("in front of {object}"),
    };
    let memory = Memory { address: record.address, size, object: object.clone(), allocation: None };
    (Rule::OutOfBounds, format!("{verb} {what} {place}, which is local memory"), Some(memory))
}

/// "1 byte", "4 bytes".
pub(super) fn bytes(count: u64) -> String {
    if count == 1 { "1 byte".to_owned() } else { format!("{count} bytes") }
}

pub(super) fn name(kind: &Kind) -> String {
    match kind {
        Kind::Device => "device memory".to_owned(),
        Kind::Host => "host memory".to_owned(),
        Kind::Shared => "shared memory".to_owned(),
        Kind::Image => "image memory".to_owned(),
        Kind::Mapped => "mapped physical memory".to_owned(),
        Kind::Variable(name) => format!("the module's variable '{}'", demangled(name)),
    }
}

/// The place in a kernel.
pub(super) fn place(watched: &Watched, site: &Site) -> Place {
    let files = &watched.sites.files;
    let file = site.file.and_then(|file| files.get(file as usize)).cloned();
    let text = file.as_deref().and_then(|file| line_of(file, site.line));
    let &Site { line, column, word, .. } = site;
    Place { function: demangled(&site.function), file, line, column, text, word }
}

/// A line of a source file, if it can be read.
fn line_of(file: &str, line: u32) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    Some(text.lines().nth(line.checked_sub(1)? as usize)?.to_owned())
}
