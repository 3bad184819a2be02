// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names of functions in reports.

/// A name as written in the source.
pub(super) fn demangled(name: &str) -> String {
    let text = cpp_demangle::Symbol::new(name).ok().and_then(|symbol| symbol.demangle().ok());
    let text = text.unwrap_or_else(|| name.to_owned());
    // SYCL's kernels are named after types.
    text.strip_prefix("typeinfo name for ").map_or(text.clone(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_as_in_the_source() {
        assert_eq!(demangled("_ZN5tally4stepEPfj"), "tally::step(float*, unsigned int)");
        assert_eq!(demangled("_ZTS4Name"), "Name");
        assert_eq!(demangled("main"), "main");
    }
}
