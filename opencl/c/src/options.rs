// SPDX-License-Identifier: MIT OR Apache-2.0
//! OpenCL's build options, as words for a compiler's command line.

/// Beginnings of options that concern how Intel's compilers make code for registers and buffers: they change
/// nothing that SPIR-V says.
const OF_CODE: [&str; 2] = ["-cl-intel-", "-ze-"];

/// The options without those of [`OF_CODE`], which front ends do not know.
pub fn for_front_end(options: &str) -> String {
    let kept = |option: &&str| !OF_CODE.iter().any(|of_code| option.starts_with(of_code));
    options.split_inclusive(|c: char| c.is_ascii_whitespace()).filter(kept).collect()
}

/// Beginnings of options that a compiler of SPIR-V has, too.
const OF_SPIRV: [&str; 4] = ["-ze-", "-cl-", "-g", "-O"];

/// The options that a compiler of SPIR-V has, too; those of the language and its preprocessor are left out.
pub fn for_code(options: &str) -> String {
    let kept = |word: &String| OF_SPIRV.iter().any(|of_spirv| word.starts_with(of_spirv));
    let words = words(options).unwrap_or_default();
    words.into_iter().filter(kept).collect::<Vec<_>>().join(" ")
}

/// Splits options at blanks that are not quoted; a backslash takes the next character as it is.
///
/// # Errors
/// A quote is not closed.
pub fn words(options: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let (mut quoted, mut characters) = (false, options.chars());
    while let Some(c) = characters.next() {
        match c {
            '"' => {
                quoted = !quoted;
                word.get_or_insert_default();
            }
            '\\' => word.get_or_insert_default().extend(characters.next()),
            c if c.is_ascii_whitespace() && !quoted => words.extend(word.take()),
            c => word.get_or_insert_default().push(c),
        }
    }
    if quoted {
        return Err(format!("the build options have a quote that is not closed: {options}"));
    }
    words.extend(word);
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_split_at_blanks_outside_of_quotes() {
        let of = |options| words(options).unwrap();
        assert_eq!(of("  -DA=1\t-cl-std=CL2.0 "), ["-DA=1", "-cl-std=CL2.0"]);
        assert_eq!(of(r#"-DB="a b" -I "my folder""#), ["-DB=a b", "-I", "my folder"]);
        assert_eq!(of(r#"-DC=\"x\" -I a\ b"#), ["-DC=\"x\"", "-I", "a b"]);
        assert_eq!(of(r#"-DD="" """#), ["-DD=", ""]);
        assert!(of(" ").is_empty());
        assert!(words("-DE=\"a b").unwrap_err().contains("quote"));
    }

    #[test]
    fn options_of_the_language_are_not_for_code() {
        let options =
            r#"-D A="-g x" -DB=-O0 -I inc -cl-opt-disable -g -cl-std=CL2.0 -w -ze-opt-level=1"#;
        assert_eq!(for_code(options), "-cl-opt-disable -g -cl-std=CL2.0 -ze-opt-level=1");
        assert_eq!(for_code("-DE=\"a b"), "", "a front end refuses them");
    }

    #[test]
    fn options_of_code_stay_behind() {
        let options = "-DA=1 -cl-intel-256-GRF-per-thread -ze-opt-level=2 -cl-mad-enable";
        assert_eq!(for_front_end(options), "-DA=1 -cl-mad-enable");
        assert_eq!(for_front_end("-cl-mad-enable"), "-cl-mad-enable");
    }
}
