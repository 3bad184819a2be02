// SPDX-License-Identifier: MIT OR Apache-2.0
//! Properties of the machine that kernels run on, for QUERY DEVICE and QUERY TARGET.

/// The answer to QUERY TARGET: name and features of this CPU as LLVM calls them,
/// each with a NUL.
pub fn target() -> Vec<u8> {
    let have = features();
    let name = LEVELS
        .iter()
        .find(|(_, needs)| needs.iter().all(|need| have.contains(need)))
        .map_or("x86-64", |(name, _)| name);
    let features: Vec<String> = have.iter().map(|feature| format!("+{feature}")).collect();
    format!("{name}\0{}\0", features.join(",")).into_bytes()
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

// The names of a feature in std, which also checks that the operating system saves its registers, and in
// LLVM.
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
    "avx512fp16" "avx512fp16",
}

/// Vector lanes of 32 bits in the widest registers.
pub fn simd_lanes() -> u32 {
    if std::is_x86_feature_detected!("avx512f") {
        16
    } else if std::is_x86_feature_detected!("avx2") {
        8
    } else {
        4
    }
}

/// A system constant, if it is known and not 0.
pub fn sysconf(name: i32) -> Option<u64> {
    // SAFETY: takes a number.
    let value = unsafe { libc::sysconf(name) };
    u64::try_from(value).ok().filter(|&value| value != 0)
}

/// Bytes of a line of the level-1 data cache.
pub fn cache_line_bytes() -> u32 {
    sysconf(libc::_SC_LEVEL1_DCACHE_LINESIZE).unwrap_or(64) as u32
}

/// Bytes of the first CPU's last-level cache, or 0. Linux's files are read first, because some versions of the C
/// library count the cache of a virtual machine once for each of its CPUs.
pub fn cache_bytes() -> u64 {
    let size = |index: u32| {
        let file = format!("/sys/devices/system/cpu/cpu0/cache/index{index}/size");
        let text = std::fs::read_to_string(file).ok()?;
        text.trim().strip_suffix('K')?.parse::<u64>().ok().map(|kib| kib << 10)
    };
    let library =
        || sysconf(libc::_SC_LEVEL3_CACHE_SIZE).or_else(|| sysconf(libc::_SC_LEVEL2_CACHE_SIZE));
    size(3).or_else(|| size(2)).or_else(library).unwrap_or(0)
}

/// The highest clock of the first CPU in MHz, or its present clock, or 1000.
pub fn core_clock_mhz() -> u32 {
    let khz = std::fs::read_to_string("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq");
    if let Some(khz) = khz.ok().and_then(|text| text.trim().parse::<u32>().ok()) {
        return khz / 1000;
    }
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = info.lines().find_map(|line| line.strip_prefix("cpu MHz"));
    let mhz = line.and_then(|line| line.split(':').nth(1)?.trim().parse::<f64>().ok());
    mhz.map_or(1000, |mhz| mhz as u32)
}
