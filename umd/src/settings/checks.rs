// SPDX-License-Identifier: MIT OR Apache-2.0
//! The settings of checks.

use std::ffi::OsString;
use std::path::PathBuf;

/// The mistakes to look for, and the handling of findings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checks {
    /// Accesses outside of allocations.
    pub memory: bool,
    /// Reads of memory that nothing has written.
    pub init: bool,
    /// Memory that is not freed, and objects that are not destroyed.
    pub leaks: bool,
    /// Code that does not run on all devices.
    pub portable: bool,
    /// Accesses to the same memory that nothing orders.
    pub races: bool,
    /// Stores of equal values that nothing orders, too.
    pub same_values: bool,
    /// Mistakes with events, barriers and waits.
    pub sync: bool,
    /// `TALLY_CHECK_REPORT`.
    pub report: Option<PathBuf>,
    /// `TALLY_CHECK_SARIF`.
    pub sarif: Option<PathBuf>,
    /// `TALLY_CHECK_SUPPRESSIONS`.
    pub suppressions: Vec<PathBuf>,
    /// `TALLY_CHECK_EXITCODE`.
    pub exit_code: Option<i32>,
    /// `TALLY_CHECK_LOG`.
    pub log: Option<PathBuf>,
    /// `TALLY_CHECK_STACKS`.
    pub stacks: bool,
}

impl Checks {
    /// Whether there is any check.
    pub fn any(&self) -> bool {
        self.memory || self.init || self.leaks || self.portable || self.races || self.sync
    }

    /// Whether something is kept for each byte that kernels access.
    pub fn follows_accesses(&self) -> bool {
        self.memory || self.init || self.races
    }

    /// Reads the variables that are `present` in the environment; errors are added to `complaints`.
    pub(super) fn read(
        present: impl Fn(&str) -> Option<OsString>,
        complaints: &mut Vec<String>,
    ) -> Self {
        let text = |name| present(name).map(|value| value.to_string_lossy().into_owned());
        let mut checks = Self {
            report: present("TALLY_CHECK_REPORT").map(PathBuf::from),
            sarif: present("TALLY_CHECK_SARIF").map(PathBuf::from),
            suppressions: present("TALLY_CHECK_SUPPRESSIONS")
                .map_or(Vec::new(), |files| std::env::split_paths(&files).collect()),
            log: present("TALLY_CHECK_LOG").map(PathBuf::from),
            stacks: text("TALLY_CHECK_STACKS").is_some_and(|value| value == "1"),
            ..Self::default()
        };
        for name in text("TALLY_CHECK").unwrap_or_default().split(',').map(str::trim) {
            match name {
                "" => {}
                "memory" => checks.memory = true,
                "init" => checks.init = true,
                "leaks" => checks.leaks = true,
                "portable" => checks.portable = true,
                "races" => checks.races = true,
                "same-values" => (checks.races, checks.same_values) = (true, true),
                "sync" => checks.sync = true,
                "1" => (checks.memory, checks.init) = (true, true),
                "all" => {
                    (checks.memory, checks.init) = (true, true);
                    (checks.leaks, checks.portable) = (true, true);
                }
                _ => complaints.push(format!(
                    "TALLY_CHECK: {name:?} is none of memory, init, leaks, portable, races, same-values, sync, all"
                )),
            }
        }
        checks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_are_named_with_commas() {
        let read = |value: &str, complaints: &mut Vec<String>| {
            Checks::read(|name| (name == "TALLY_CHECK").then(|| value.into()), complaints)
        };
        let mut complaints = Vec::new();
        assert!(!read("", &mut complaints).any());
        let memory = read("memory", &mut complaints);
        assert!(memory.memory && !memory.init);
        let both = read("init, memory", &mut complaints);
        assert!(both.memory && both.init && !both.leaks && both == read("1", &mut complaints));
        let all = read("memory,init,leaks,portable", &mut complaints);
        assert!(all.leaks && all.portable && all == read("all", &mut complaints));
        assert!(complaints.is_empty());
        assert!(read("init,sanity", &mut complaints).init);
        assert!(complaints[0].contains("sanity"), "{complaints:?}");
    }
}
