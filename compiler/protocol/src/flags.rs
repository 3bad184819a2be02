// SPDX-License-Identifier: MIT OR Apache-2.0
//! Build flags, Level Zero's and OpenCL's: which of them can change code or the build's log.

/// Prefixes of the families of flags that the compiler knows.
const KNOWN: [&str; 6] = ["-ze-", "-cl-", "-g", "-O", "-w", "-W"];
/// Prefixes of the known flags that change something.
const IN_USE: [&str; 5] = ["-ze-opt-disable", "-ze-opt-level", "-cl-opt-disable", "-g", "-O"];

fn has(prefixes: &[&str], flag: &str) -> bool {
    prefixes.iter().any(|prefix| flag.starts_with(prefix))
}

/// Whether the flag belongs to a family that the compiler knows.
pub fn is_known(flag: &str) -> bool {
    has(&KNOWN, flag)
}

/// The flags that can change code or the build's log. The others concern register files, buffers beyond 4 GiB
/// and the like, or permit what the compiler does not do. It sees no other flags, so modules that differ in
/// those alone share files of the cache: PoCL builds each program twice, with and without
/// `-ze-opt-greater-than-4GB-buffer-required`.
pub fn in_use(options: &str) -> impl Iterator<Item = &str> {
    options.split_ascii_whitespace().filter(|flag| !is_known(flag) || has(&IN_USE, flag))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_that_change_nothing_are_left_out() {
        let of = |options| in_use(options).collect::<Vec<_>>().join(" ");
        assert_eq!(of(" -ze-opt-greater-than-4GB-buffer-required\t-cl-std=CL3.0 -w -Wall"), "");
        let all = "-O2 -ze-opt-level=7 -g -fno-such-thing -cl-opt-disable -ze-opt-disable -g0";
        assert_eq!(of(&format!("-ze-opt-large-register-file {all} -cl-mad-enable")), all);
    }
}
