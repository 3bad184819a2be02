// SPDX-License-Identifier: MIT OR Apache-2.0
//! The CPU that kernels run on, in LLVM's words.

/// Name and features of this CPU.
pub(super) fn detect() -> (String, String) {
    let have = features();
    let name = LEVELS
        .iter()
        .find(|(_, needs)| needs.iter().all(|need| have.contains(need)))
        .map_or("x86-64", |(name, _)| name);
    let features: Vec<String> = have.iter().map(|feature| format!("+{feature}")).collect();
    (name.to_owned(), features.join(","))
}

/// The levels of the x86-64 psABI, best first, each with what it adds to the
/// one below; a CPU with the last ones of a level has the others too.
const LEVELS: &[(&str, &[&str])] = &[
    (
        "x86-64-v4",
        &[
            "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl", "avx2", "bmi", "bmi2",
            "f16c", "fma", "lzcnt", "movbe", "sse4.2", "popcnt", "cx16",
        ],
    ),
    (
        "x86-64-v3",
        &["avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "sse4.2", "popcnt", "cx16"],
    ),
    ("x86-64-v2", &["ssse3", "sse4.1", "sse4.2", "popcnt", "cx16"]),
];

macro_rules! detect {
    ($($rust:tt $llvm:literal),* $(,)?) => {
        fn features() -> Vec<&'static str> {
            let mut have = Vec::new();
            $(if std::is_x86_feature_detected!($rust) { have.push($llvm); })*
            have
        }
    };
}

// What std calls a feature (the operating system saves its registers, too), and
// what LLVM calls it.
detect! {
    "sse3" "sse3",
    "ssse3" "ssse3",
    "sse4.1" "sse4.1",
    "sse4.2" "sse4.2",
    "popcnt" "popcnt",
    "cmpxchg16b" "cx16",
    "movbe" "movbe",
    "lzcnt" "lzcnt",
    "bmi1" "bmi",
    "bmi2" "bmi2",
    "avx" "avx",
    "avx2" "avx2",
    "f16c" "f16c",
    "fma" "fma",
    "aes" "aes",
    "pclmulqdq" "pclmul",
    "sha" "sha",
    "gfni" "gfni",
    "vaes" "vaes",
    "vpclmulqdq" "vpclmulqdq",
    "adx" "adx",
    "avx512f" "avx512f",
    "avx512cd" "avx512cd",
    "avx512bw" "avx512bw",
    "avx512dq" "avx512dq",
    "avx512vl" "avx512vl",
    "avx512ifma" "avx512ifma",
    "avx512vbmi" "avx512vbmi",
    "avx512vbmi2" "avx512vbmi2",
    "avx512vnni" "avx512vnni",
    "avx512bitalg" "avx512bitalg",
    "avx512vpopcntdq" "avx512vpopcntdq",
    "avx512bf16" "avx512bf16",
}

/// Lanes of 32 bits in the widest registers.
pub(super) fn simd_lanes() -> u32 {
    if std::is_x86_feature_detected!("avx512f") {
        16
    } else if std::is_x86_feature_detected!("avx2") {
        8
    } else {
        4
    }
}
