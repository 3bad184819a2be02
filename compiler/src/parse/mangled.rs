// SPDX-License-Identifier: MIT OR Apache-2.0
//! Mangled names of OpenCL C's functions.

/// The name and the mangled parameters of a function of OpenCL C.
pub fn demangle(name: &str) -> Option<(&str, &str)> {
    let rest = name.strip_prefix("_Z")?;
    let digits = rest.find(|c: char| !c.is_ascii_digit())?;
    let length: usize = rest[..digits].parse().ok()?;
    Some((rest.get(digits..digits + length)?, &rest[digits + length..]))
}

/// The code of the type that the first parameter points to, as in `PU3AS1Vi`.
pub fn pointee_code(params: &str) -> Option<char> {
    let after = |mark: &str| params.find(mark).map(|at| &params[at + mark.len()..]);
    let rest = after("_Atomic").or_else(|| after("V")).or_else(|| {
        let rest = after("AS")?;
        rest.get(1..)
    })?;
    rest.chars().next()
}

#[cfg(test)]
mod tests {
    use super::{demangle, pointee_code};

    /// The pointee's type is found with and without qualifiers.
    #[test]
    fn mangled_names_come_apart() {
        let parts = |name| demangle(name).map(|(name, params)| (name, pointee_code(params)));
        assert_eq!(parts("_Z10atomic_incPU3AS3Vj"), Some(("atomic_inc", Some('j'))));
        assert_eq!(
            parts("_Z25atomic_fetch_max_explicitPU3AS4VU7_Atomicll12memory_order12memory_scope"),
            Some(("atomic_fetch_max_explicit", Some('l')))
        );
        assert_eq!(parts("_Z10atomic_decPU3AS1i"), Some(("atomic_dec", Some('i'))));
        assert_eq!(parts("_Z99short"), None);
        assert_eq!(parts("atomic_inc"), None);
    }
}
