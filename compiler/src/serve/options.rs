// SPDX-License-Identifier: MIT OR Apache-2.0
//! Build flags: Level Zero's, and those of OpenCL that programs pass along.
//!
//! | flag | effect |
//! |---|---|
//! | `-ze-opt-disable`, `-ze-opt-level=0`, `-cl-opt-disable`, `-O0` | no optimisation, one work-item at a time |
//! | `-ze-opt-level=1`, `-O1` | little optimisation |
//! | `-ze-opt-level=2`, `-O2`, `-O3` | all of it, as without a flag |
//! | `-g`, but not `-g0` | code comes with debug information |
//! | other flags of the same families | none: they concern register files, buffers beyond 4 GiB and the like, or only permit optimisations that the compiler does not make |
//!
//! If there are several, the last one counts. A flag of no known family gives a warning in the log and
//! changes nothing.

use tally_compiler_protocol::{Object, Source, flags};

use crate::codegen::Options;
use crate::llvm::Level;

impl Options {
    /// The options that the object's flags select.
    pub(super) fn of(source: &Source) -> Self {
        let options = || source.objects.first().into_iter().flat_map(in_use);
        let asked = options().filter_map(level).last().unwrap_or_default();
        let level = match (source.careful, asked) {
            (true, Level::Full) => Level::Little,
            (true, _) => Level::None,
            (false, asked) => asked,
        };
        let debug = options().filter(|flag| flag.starts_with("-g")).last();
        let debug = debug.is_some_and(|flag| flag != "-g0");
        Self { level, debug, checks: source.checks }
    }
}

/// The flags that can have an effect. The others are no part of the key of the driver's cache, so nothing here
/// may look at them.
fn in_use(object: &Object) -> impl Iterator<Item = &str> {
    object.inputs.iter().flat_map(|input| flags::in_use(&input.options))
}

fn level(flag: &str) -> Option<Level> {
    Some(match flag {
        "-ze-opt-disable" | "-cl-opt-disable" | "-ze-opt-level=0" | "-O0" => Level::None,
        "-ze-opt-level=1" | "-O1" => Level::Little,
        "-ze-opt-level=2" | "-ze-opt-level=3" | "-O" | "-O2" | "-O3" => Level::Full,
        _ => return None,
    })
}

/// A warning for each build flag that is not known.
pub(super) fn warnings(object: &Object) -> String {
    let mut text = String::new();
    for flag in in_use(object) {
        if let Some(asked) = flag.strip_prefix("-ze-opt-level")
            && level(flag).is_none()
        {
            let asked = asked.trim_start_matches('=');
            text += &format!("warning: there is no optimisation level {asked:?}; 0, 1 and 2 are\n");
        } else if !flags::is_known(flag) {
            text += &format!("warning: the build flag {flag:?} is not known\n");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use tally_compiler_protocol::{Input, TargetCpu};

    use super::*;

    fn source(options: &str, careful: bool) -> Source {
        let input = Input { options: options.into(), ..Input::default() };
        let objects = vec![Object { inputs: vec![input], links: Vec::new() }];
        let target = TargetCpu { name: String::new(), features: String::new() };
        Source { objects, target, careful, checks: Default::default() }
    }

    /// "0 is no optimizations (equivalent to ze-opt-disable)", "2 is optimize more (default)".
    #[test]
    fn the_last_level_that_is_asked_for_counts() {
        let of = |options| Options::of(&source(options, false)).level;
        assert_eq!(of(""), Level::Full);
        assert_eq!(of("-ze-opt-disable"), Level::None);
        assert_eq!(of("-ze-opt-level=0"), Level::None);
        assert_eq!(of("-ze-opt-level=0 -g -ze-opt-level=1"), Level::Little);
        assert_eq!(of("-ze-opt-level=2"), Level::Full);
        assert_eq!(of("-ze-opt-large-register-file"), Level::Full);
    }

    /// After a limit was hit, a build is repeated with less optimisation.
    #[test]
    fn a_careful_build_optimises_less_than_was_asked_for() {
        let of = |options| Options::of(&source(options, true)).level;
        assert_eq!(of(""), Level::Little);
        assert_eq!(of("-ze-opt-level=1"), Level::None);
    }

    #[test]
    fn debug_information_is_asked_for() {
        let of = |options| Options::of(&source(options, false)).debug;
        assert!(of("-g") && of("-g0 -ze-opt-disable -gline-tables-only"));
        assert!(!of("") && !of("-g -g0") && !of("-cl-std=CL3.0"));
    }

    #[test]
    fn flags_that_are_not_understood_are_named() {
        let of = |options| warnings(&source(options, false).objects[0]);
        assert_eq!(of("-ze-opt-greater-than-4GB-buffer-required -cl-mad-enable -g"), "");
        assert!(of("-ze-opt-level=9").contains("\"9\""));
        assert!(of("-fno-such-thing").contains("-fno-such-thing"));
    }
}
