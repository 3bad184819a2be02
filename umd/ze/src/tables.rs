// SPDX-License-Identifier: MIT OR Apache-2.0
//! The layout of the function tables that a driver fills for the loader.
//!
//! The caller allocates a table as its own headers declare it, and passes the API version of these
//! headers. So the layout depends on the version: it consists of the entries that this version knew, in the
//! order of today's table. Nearly always that is a prefix of today's table, with two exceptions:
//!
//! - `zesDeviceGetCardPowerDomain` was put into the middle of zesDevice in 1.3, which moved the five
//!   entries behind it. Leaving out what a version did not know gives the old layout too.
//! - Releases 1.18.0 to 1.18.3 of the loader (API 1.11) had other orders of five experimental tables
//!   (zeCommandListExp, zesDeviceExp, zesVFManagementExp, zetMetricExp, zetMetricGroupExp). They
//!   cannot be told from later releases of API 1.11, which have the order that stayed.
//!
//! Some releases claim one API version with tables of different length: 1.15 and 1.16.0 (both 1.8),
//! 1.18 and 1.19 (both 1.11), and more. An entry counts from the first version at which every
//! release has it, so nothing is ever written behind the table of any release since 1.0.12; the
//! longer ones keep the null with which the loader began.

use crate::generated::tables::{ze, zer, zes, zet};

/// The return type of a function, which determines the value that it returns on failure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Returns {
    /// A `ze_result_t`.
    Result,
    /// A handle; null on failure.
    Handle,
    /// An integer that names a device; `u32::MAX` on failure.
    Identifier,
}

/// One function pointer of a table.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// The API version, encoded as in `ze_api_version_t`, from which on the table has this entry.
    pub since: u32,
    /// The function's full name, such as `zeDriverGet`.
    pub name: &'static str,
    /// The function's return type.
    pub returns: Returns,
}

impl Entry {
    pub(crate) const fn returning(self, returns: Returns) -> Self {
        Self { returns, ..self }
    }
}

/// A table and the exported function that fills it.
#[derive(Clone, Copy, Debug)]
pub struct Table {
    /// The exported function's name, such as `zeGetDriverProcAddrTable`.
    pub getter: &'static str,
    /// Every entry that today's table has, in its order.
    pub entries: &'static [Entry],
}

impl Table {
    /// The entries of the table of API version `version`, in table order.
    pub fn entries_at(&self, version: u32) -> impl Iterator<Item = &'static Entry> + use<> {
        self.entries.iter().filter(move |entry| entry.since <= version)
    }
}

/// All tables: ze, zer, zes, zet.
pub fn all() -> impl Iterator<Item = &'static Table> {
    [ze::TABLES, zer::TABLES, zes::TABLES, zet::TABLES].into_iter().flatten()
}

/// The table that `getter` fills.
///
/// # Panics
/// If there is none. Meant for constants, where that is an error of the build.
pub const fn get(getter: &str) -> &'static Table {
    let groups = [ze::TABLES, zer::TABLES, zes::TABLES, zet::TABLES];
    let mut group = 0;
    while group < groups.len() {
        let mut i = 0;
        while i < groups[group].len() {
            if same(groups[group][i].getter.as_bytes(), getter.as_bytes()) {
                return &groups[group][i];
            }
            i += 1;
        }
        group += 1;
    }
    panic!("no table has this getter")
}

/// `==`, which constants cannot use on slices.
const fn same(a: &[u8], b: &[u8]) -> bool {
    let mut i = 0;
    while i < a.len() && i < b.len() && a[i] == b[i] {
        i += 1;
    }
    i == a.len() && i == b.len()
}

pub(crate) const fn entry(major: u16, minor: u16, name: &'static str) -> Entry {
    Entry { since: crate::make_version(major, minor), name, returns: Returns::Result }
}
