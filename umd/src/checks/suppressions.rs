// SPDX-License-Identifier: MIT OR Apache-2.0
//! Known mistakes that are not reported.
//!
//! A file has a line for each kind: a rule, a check, or `*`, followed by conditions that all have to hold.
//! `*` matches any characters.
//!
//! ```text
//!   # what a library does that we cannot change
//!   out-of-bounds  kernel=dpnp_* file=*/sort.hpp
//!   init           function=reduce
//!   *              object=*'padding'
//! ```

use std::fs;
use std::path::PathBuf;

use super::report::Report;

/// The lines of all files.
#[derive(Default)]
pub struct Suppressions(Vec<Line>);

struct Line {
    /// A rule or a check.
    rule: String,
    conditions: Vec<(Field, String)>,
}

/// The subject of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::EnumString)]
#[strum(serialize_all = "lowercase")]
enum Field {
    Kernel,
    Function,
    File,
    Object,
    Call,
}

impl Suppressions {
    /// Reads files; errors in them are added to `complaints`.
    pub fn read(files: &[PathBuf], complaints: &mut Vec<String>) -> Self {
        let mut all = Self::default();
        for file in files {
            match fs::read_to_string(file) {
                Ok(text) => all.parse(&text, &file.display().to_string(), complaints),
                Err(error) => complaints.push(format!("suppressions: {}: {error}", file.display())),
            }
        }
        all
    }

    fn parse(&mut self, text: &str, file: &str, complaints: &mut Vec<String>) {
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.split('#').next().unwrap_or_default();
            let mut words = line.split_whitespace();
            let Some(rule) = words.next() else { continue };
            let condition = |word: &str| {
                let (field, pattern) = word.split_once('=')?;
                Some((field.parse().ok()?, pattern.to_owned()))
            };
            match words.map(condition).collect() {
                Some(conditions) => self.0.push(Line { rule: rule.to_owned(), conditions }),
                None => complaints.push(format!(
                    "suppressions: {file}:{number}: conditions are kernel=, function=, file=, object= or call="
                )),
            }
        }
    }

    /// Whether a mistake must not be reported.
    pub fn suppress(&self, report: &Report) -> bool {
        self.0.iter().any(|line| line.holds(report))
    }
}

impl Line {
    fn holds(&self, report: &Report) -> bool {
        let (rule, check): (&str, &str) = (report.rule.into(), report.check.into());
        let named = [rule, check].iter().any(|name| matches(&self.rule, name));
        named
            && self.conditions.iter().all(|(field, pattern)| {
                let place = report.place.as_ref();
                let text = match field {
                    Field::Kernel => report.kernel.as_deref(),
                    Field::Function => place.map(|place| place.function.as_str()),
                    Field::File => place.and_then(|place| place.file.as_deref()),
                    Field::Object => report.memory.as_ref().map(|memory| memory.object.as_str()),
                    Field::Call => report.call.as_ref().map(|call| call.function),
                };
                text.is_some_and(|text| matches(pattern, text))
            })
    }
}

/// Whether a text matches a pattern, in which `*` matches any characters.
fn matches(pattern: &str, text: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(mut left) = text.strip_prefix(start) else { return false };
    let mut parts: Vec<&str> = rest.split('*').collect();
    let Some(last) = parts.pop() else { return true };
    for part in parts {
        let Some(at) = left.find(part) else { return false };
        left = &left[at + part.len()..];
    }
    left.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_characters() {
        for (pattern, text) in
            [("*", ""), ("a*", "abc"), ("*c", "abc"), ("a*c", "abc"), ("a*b*c", "aXbYc")]
        {
            assert!(matches(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in
            [("a", "ab"), ("a*", "ba"), ("*b", "abc"), ("ab*ba", "aba"), ("a*b*c", "acb")]
        {
            assert!(!matches(pattern, text), "{pattern} {text}");
        }
    }

    #[test]
    fn lines_that_are_not_understood_are_named() {
        let (mut all, mut complaints) = (Suppressions::default(), Vec::new());
        all.parse("# nothing\n\nmemory kernel=k*  # some\ninit line=3\n", "f", &mut complaints);
        assert_eq!((all.0.len(), complaints.len()), (1, 1));
        assert!(complaints[0].contains("f:4"), "{complaints:?}");
    }
}
