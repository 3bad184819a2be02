// SPDX-License-Identifier: MIT OR Apache-2.0
//! The parser and the checks on damaged, odd or hostile modules: they always return a module or an
//! error, never panic, and the error names the place.

use std::time::Duration;

use tally_compiler::check::check;
use tally_compiler::interp::{Arg, Launch, Memory, run};
use tally_compiler::ir::{ArgKind, KernelArg, Module};
use tally_compiler::parse::parse;

#[path = "support/clang.rs"]
mod clang;

/// All kinds of modules of the test suite.
fn modules() -> Vec<Vec<u8>> {
    let files = ["saxpy.cl", "matmul.cl", "control.cl", "memory.cl", "atomics.cl"];
    files.iter().flat_map(|file| ["-O0", "-O2"].map(|o| clang::compile(file, &[o]))).collect()
}

/// Runs the whole front end; returns whether the module passed.
fn front_end(bytes: &[u8]) -> bool {
    let Ok(mut module) = parse(bytes, &[]) else { return false };
    let passed = check(&mut module).is_ok();
    // Printing a module and looking at its images must work for every module that passes.
    let _ = module.to_string();
    if passed {
        for global in module.globals.ids() {
            let _ = module.global_image(global);
        }
        (0..module.kernels.len()).for_each(|kernel| interpret(&module, kernel));
    }
    passed
}

/// Runs a kernel for a while with one small buffer for all pointers. Its accesses may be wrong, but
/// must not break the interpreter.
fn interpret(module: &Module, kernel: usize) {
    const BUFFER: u64 = 0x1000;
    if module.globals.iter().any(|(_, global)| global.size > 1 << 20) {
        return;
    }
    let kind = |arg: &KernelArg| match arg.kind {
        ArgKind::LocalPointer => Arg::Local(256),
        ArgKind::Value => Arg::Bytes(vec![3; arg.size as usize]),
        _ => Arg::pointer(BUFFER),
    };
    let args: Vec<Arg> = module.kernels[kernel].args.iter().map(kind).collect();
    let group = module.kernels[kernel].required_group_size.unwrap_or([4, 1, 1]);
    let global = group.map(|n| u64::from(n.min(64)));
    let launch =
        Launch { global_size: global, group_size: group, step_limit: 500, ..Launch::linear(4, 4) };
    let mut memory = Memory::new();
    memory.map(BUFFER, vec![1; 4096]).expect("the memory is empty");
    let _ = run(module, kernel, &launch, &args, &mut memory);
}

/// Words as a module in this byte order.
fn bytes(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// Clang's output passes, at every level of optimisation.
#[test]
fn whole_modules_pass() {
    for module in modules() {
        assert!(front_end(&module));
    }
}

/// A module cut off after any word, and inside of one, is an error or a smaller module.
#[test]
fn truncated_modules_do_not_panic() {
    for module in modules() {
        // A whole function may be missing without damage, but never the last word.
        assert!(!front_end(&module[..module.len() - 4]));
        for end in (0..module.len()).step_by(4) {
            front_end(&module[..end]);
        }
        for odd in 1..4 {
            assert!(!front_end(&module[..module.len() - odd]));
        }
    }
}

/// A number sequence that is the same on every run.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        // Marsaglia's xorshift64.
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % n as u64) as usize
    }
}

/// Processor time of this thread, which other load on the machine does not change.
fn own_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: fills the struct.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Flipped bits, exchanged words and repeated instructions give an error or a module, within a time
/// limit.
#[test]
fn damaged_modules_do_not_panic() {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let modules = modules();
    let begin = own_time();
    for _ in 0..4000 {
        let mut module = modules[random.below(modules.len())].clone();
        for _ in 0..=random.below(3) {
            let words = module.len() / 4;
            match random.below(3) {
                0 => {
                    let bit = random.below(module.len() * 8);
                    module[bit / 8] ^= 1 << (bit % 8);
                }
                1 => {
                    // Past the header, where most words are ids: one id for another.
                    let (from, to) = (5 + random.below(words - 5), 5 + random.below(words - 5));
                    let word: [u8; 4] = module[4 * from..4 * from + 4].try_into().unwrap();
                    module[4 * to..4 * to + 4].copy_from_slice(&word);
                }
                _ => {
                    let at = 4 * (5 + random.below(words - 5));
                    module[at..at + 4].copy_from_slice(&(random.below(300) as u32).to_le_bytes());
                }
            }
        }
        front_end(&module);
    }
    // No module of a few kilobytes may keep the front end busy for long.
    assert!(own_time() - begin < Duration::from_secs(300));
}

/// A module in the other byte order is the same module.
#[test]
fn both_byte_orders_are_read() {
    let little = clang::compile("saxpy.cl", &["-O2"]);
    let big: Vec<u8> = little.chunks(4).flat_map(|w| w.iter().rev().copied()).collect();
    let text = |bytes: &[u8]| parse(bytes, &[]).unwrap().to_string();
    assert_eq!(text(&little), text(&big));
}

/// The header's faults are named with the word they are in.
#[test]
fn headers_are_checked() {
    let refuse = |words: &[u32], message: &str| {
        assert_eq!(parse(&bytes(words), &[]).unwrap_err().to_string(), message);
    };
    const MAGIC: u32 = 0x0723_0203;
    refuse(&[], "word 0: a SPIR-V module is at least 5 words of 4 bytes, this one has 0 bytes");
    refuse(&[1, 2, 3, 4, 5], "word 0: 0x00000001 is not SPIR-V's magic number");
    refuse(&[MAGIC, 0x9_0000, 0, 1, 0], "word 1: SPIR-V 9.0 is not one of 1.0 to 1.6");
    refuse(&[MAGIC, 0x1_0700, 0, 1, 0], "word 1: SPIR-V 1.7 is not one of 1.0 to 1.6");
    refuse(&[MAGIC, 0x1_0000, 0, 0, 0], "word 3: the bound of ids is 0");
    refuse(&[MAGIC, 0x1_0000, 0, 9, 0], "word 5: the module has no OpMemoryModel");
    refuse(&[MAGIC, 0x1_0000, 0, 9, 0, 0], "word 5: OpNop says 0 words long, 1 are left");
    refuse(
        &[MAGIC, 0x1_0000, 0, 9, 0, 0x0003_0011, 1],
        "word 5: OpCapability says 3 words long, 2 are left",
    );
    refuse(
        &[MAGIC, 0x1_0000, 0, 9, 0, 0x0001_ffff],
        "word 5: opcode 65535 is not an opcode of SPIR-V",
    );
}

/// The part of the modules below in front of the functions.
const PRELUDE: &str = "
    OpCapability Addresses
    OpCapability Kernel
    OpCapability Int64
    OpMemoryModel Physical64 OpenCL
    OpEntryPoint Kernel %k \"k\"
    OpName %x \"x\"
    %void = OpTypeVoid
    %bool = OpTypeBool
    %int = OpTypeInt 32 0
    %long = OpTypeInt 64 0
    %float = OpTypeFloat 32
    %gp = OpTypePointer CrossWorkgroup %int
    %fn = OpTypeFunction %void %gp %int
    %one = OpConstant %int 1
    %three = OpConstant %int 3
    %four = OpConstant %int 4
    %lone = OpConstant %long 1
    %fone = OpConstant %float 1
    %true = OpConstantTrue %bool
";

/// A kernel with this body.
fn kernel(body: &str) -> Vec<u8> {
    clang::assemble(&format!(
        "{PRELUDE}
        %k = OpFunction %void None %fn
        %p = OpFunctionParameter %gp
        %n = OpFunctionParameter %int
        {body}
        OpFunctionEnd"
    ))
}

/// The error of a kernel with this body.
fn refusal(body: &str) -> String {
    match parse(&kernel(body), &[]) {
        Err(error) => error.to_string(),
        Ok(mut module) => check(&mut module).expect_err("the module is wrong").to_string(),
    }
}

/// Errors of structure and of types name the word, the kernel, the instruction and the rule.
#[test]
fn errors_say_where_and_what() {
    let cases = [
        ("%l = OpLabel\n%x = OpIAdd %int %y %n\n%y = OpIAdd %int %n %n\nOpReturn", "OpIAdd uses %"),
        (
            "%l = OpLabel\n%x = OpIAdd %int %n %fone\nOpReturn",
            "OpIAdd does not fit its types: i32 from (i32, f32)",
        ),
        (
            "%l = OpLabel\n%x = OpIAdd %long %n %n\nOpReturn",
            "OpIAdd does not fit its types: i64 from (i32, i32)",
        ),
        ("%l = OpLabel\nOpStore %n %n\nOpReturn", "OpStore does not fit its types"),
        ("%l = OpLabel\nOpBranch %l", "has a first block that is branched to"),
        ("%l = OpLabel\n%x = OpIAdd %int %n %n", "OpFunction has a last block without an end"),
        ("%l = OpLabel\nOpReturn\n%x = OpIAdd %int %n %n", "OpIAdd stands outside of a block"),
        ("%l = OpLabel\nOpReturnValue %n", "OpReturnValue does not fit its types"),
        (
            "%l = OpLabel\n%x = OpLoad %int %p Aligned 3\nOpReturn",
            "OpLoad asks for an alignment of 3 bytes",
        ),
        (
            "%l = OpLabel\n%v = OpVariable %gp CrossWorkgroup\nOpReturn",
            "OpVariable of a module stands in a function",
        ),
        (
            "%l = OpLabel\nOpBranchConditional %true %a %b\n%a = OpLabel\n%x = OpIAdd %int %n %n\nOpBranch %c\n\
             %b = OpLabel\nOpBranch %c\n%c = OpLabel\n%y = OpIAdd %int %x %n\nOpReturn",
            "OpIAdd uses \"x\" on a path where it is not defined",
        ),
        (
            "%l = OpLabel\nOpBranchConditional %true %a %c\n%a = OpLabel\nOpBranch %c\n\
             %c = OpLabel\n%y = OpPhi %int %n %a\nOpReturn",
            "OpPhi does not name each block that leads to its block once",
        ),
        (
            "%l = OpLabel\nOpBranch %c\n%c = OpLabel\n%x = OpIAdd %int %n %n\n%y = OpPhi %int %n %l\nOpReturn",
            "OpPhi does not stand at the start of its block",
        ),
        (
            "%l = OpLabel\nOpSwitch %n %a 1 %a 1 %b\n%a = OpLabel\nOpReturn\n%b = OpLabel\nOpReturn",
            "OpSwitch has case 1 twice",
        ),
        (
            "%l = OpLabel\n%x = OpFunctionCall %void %k %p %n\nOpReturn",
            "OpFunctionCall calls \"k\", which is recursion",
        ),
        ("%l = OpLabel\n%x = OpFunctionCall %void %one\nOpReturn", "OpFunctionCall calls %"),
        ("%l = OpLabel\nOpKill", "OpKill is not supported"),
        (
            "%l = OpLabel\nOpControlBarrier %four %three %three\nOpReturn",
            "OpControlBarrier at work_item scope is not supported",
        ),
    ];
    for (body, message) in cases {
        let error = refusal(body);
        assert!(error.contains(message), "{body}\ngave: {error}\nwanted: {message}");
        assert!(error.starts_with("word "), "{error}");
        assert!(error.contains("kernel \"k\""), "{error}");
    }
}

/// LLVM's translator writes a phi's arm once for each case of a switch; arms that differ are refused.
#[test]
fn a_phi_may_repeat_an_arm() {
    let body = |second: &str| {
        format!(
            "%l = OpLabel\nOpSwitch %n %a 1 %b 2 %b\n%a = OpLabel\nOpBranch %b\n\
             %b = OpLabel\n%x = OpPhi %int %one %l {second} %l %n %a\nOpReturn"
        )
    };
    let mut module = parse(&kernel(&body("%one")), &[]).expect("it is well formed");
    check(&mut module).expect("the arms are equal");
    assert!(
        refusal(&body("%three"))
            .contains("OpPhi does not name each block that leads to its block once")
    );
}

/// Operands of types that no instruction takes, the largest and the smallest, are refused.
#[test]
fn absurd_types_are_refused() {
    let text =
        PRELUDE.replacen("OpMemoryModel", "%cl = OpExtInstImport \"OpenCL.std\"\nOpMemoryModel", 1)
            + "
        %size = OpConstant %long 0x10000000000
        %i8 = OpTypeInt 8 0
        %huge = OpTypeArray %i8 %size
        %big = OpTypeStruct %huge
        %none = OpTypeStruct
        %v16 = OpTypeVector %float 16
        %nothing = OpUndef %none
        %much = OpUndef %big
        %k = OpFunction %void None %fn
        %p = OpFunctionParameter %gp
        %n = OpFunctionParameter %int
        %l = OpLabel
        %a = OpExtInst %v16 %cl fmax %much %nothing
        %b = OpExtInst %none %cl frexp %nothing %p
        %c = OpExtInst %big %cl bitselect %much %much %much
        %d = OpExtInst %none %cl length %nothing
        %e = OpExtInst %bool %cl bitselect %true %true %true
        %f = OpExtInst %none %cl s_upsample %nothing %nothing
        OpReturn
        OpFunctionEnd";
    let mut module = parse(&clang::assemble(&text), &[]).unwrap();
    let log = check(&mut module).unwrap_err().to_string();
    assert!(log.lines().count() >= 6, "{log}");
}

/// "A module may have 1,048,576 components in composites that repeat one" (README.md): a few kilobytes
/// do not grow a thousandfold.
#[test]
fn repeated_components_have_a_limit() {
    const COUNT: u32 = 4096;
    // The ids of a type and the first constant; opcodes of both instructions that repeat a component.
    const ARRAY: u32 = 50;
    const PART: u32 = 100;
    let prelude = "
        OpCapability Addresses
        OpCapability Kernel
        OpMemoryModel Physical64 OpenCL
        OpEntryPoint Kernel %1 \"k\"
        %2 = OpTypeVoid
        %3 = OpTypeInt 32 0
        %4 = OpTypeFunction %2
        %5 = OpConstant %3 4096
        %50 = OpTypeArray %3 %5";
    let prelude: Vec<u32> = clang::assemble(prelude)
        .chunks(4)
        .map(|b| u32::from_le_bytes(b.try_into().unwrap()))
        .collect();
    // The number of each: constants, and values in the function.
    let module = |constants: u32, values: u32| {
        let mut words = prelude.clone();
        words[3] = 10_000;
        let mut id = PART;
        for n in 0..constants {
            words.extend([4 << 16 | 43, 3, id, 5000 + n]);
            words.extend([4 << 16 | 4461, ARRAY, id + 1, id]);
            id += 2;
        }
        words.extend([5 << 16 | 54, 2, 1, 0, 4, 2 << 16 | 248, id]);
        for n in 1..=values {
            words.extend([4 << 16 | 4463, ARRAY, id + n, 5]);
        }
        words.extend([1 << 16 | 253, 1 << 16 | 56]);
        bytes(&words)
    };
    let most = (1 << 20) / COUNT;
    for (constants, values) in [(most, 0), (most / 2, most / 2)] {
        assert!(front_end(&module(constants, values)));
    }
    for (constants, values) in [(most + 1, 0), (most / 2, most / 2 + 1), (1, most)] {
        let error = parse(&module(constants, values), &[]).unwrap_err().to_string();
        assert!(error.contains("ReplicateEXT makes it 1052672 components that repeat"), "{error}");
    }
}

/// The error has the line of the source if the module names it.
#[test]
fn errors_name_the_source_line() {
    let text = PRELUDE.replacen("%void =", "%file = OpString \"dir/wrong.cl\"\n%void =", 1)
        + "
        %k = OpFunction %void None %fn
        %p = OpFunctionParameter %gp
        %n = OpFunctionParameter %int
        %l = OpLabel
        OpLine %file 12 5
        %x = OpIAdd %int %n %fone
        OpReturn
        OpFunctionEnd";
    let mut module = parse(&clang::assemble(&text), &[]).unwrap();
    let log = check(&mut module).unwrap_err().to_string();
    assert!(log.contains("in kernel \"k\" (dir/wrong.cl:12:5): OpIAdd does not fit"), "{log}");
}

/// Any instruction on operands of any types, in a function and as an operation on specialization
/// constants, gives an error or a module.
#[test]
fn instructions_on_any_types_do_not_panic() {
    // Ids 1 to 15 are types, 20 to 49 constants of them.
    let prelude = "
        OpCapability Addresses
        OpCapability Kernel
        %60 = OpExtInstImport \"OpenCL.std\"
        OpMemoryModel Physical64 OpenCL
        OpEntryPoint Kernel %61 \"k\"
        OpDecorate %90 SaturatedConversion
        OpDecorate %90 FPRoundingMode RTZ
        %1 = OpTypeVoid
        %2 = OpTypeBool
        %3 = OpTypeInt 8 0
        %4 = OpTypeInt 32 0
        %5 = OpTypeInt 64 0
        %6 = OpTypeFloat 16
        %7 = OpTypeFloat 32
        %8 = OpTypeFloat 64
        %9 = OpTypeVector %7 3
        %10 = OpTypeVector %5 16
        %11 = OpTypeVector %2 3
        %12 = OpTypeStruct %3 %9
        %13 = OpTypeStruct
        %14 = OpTypePointer CrossWorkgroup %12
        %15 = OpTypeEvent
        %16 = OpTypeFunction %1
        %20 = OpConstantTrue %2
        %21 = OpConstant %3 255
        %22 = OpConstant %4 2
        %23 = OpConstant %5 0x8000000000000000
        %24 = OpConstant %6 1.5
        %25 = OpConstant %7 0x1.8p+60
        %26 = OpConstant %8 -2.25
        %27 = OpConstantComposite %9 %25 %25 %25
        %28 = OpConstantNull %10
        %29 = OpConstantNull %11
        %30 = OpConstantNull %12
        %31 = OpConstantNull %13
        %32 = OpConstantNull %14
        %33 = OpUndef %15
        %34 = OpConstant %4 0
        %35 = OpConstant %4 0xffffffff
        %36 = OpVariable %14 CrossWorkgroup %30
        %37 = OpUndef %4";
    let mut prelude: Vec<u32> = clang::assemble(prelude)
        .chunks(4)
        .map(|b| u32::from_le_bytes(b.try_into().unwrap()))
        .collect();
    prelude[3] = 200;
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    let mut passed = 0;
    for _ in 0..60_000 {
        let mut operands = vec![1 + random.below(15) as u32, 90];
        let opcode = if random.below(3) == 0 {
            operands.extend([60, random.below(205) as u32]);
            12
        } else {
            41 + random.below(400) as u32
        };
        for _ in 0..random.below(5) {
            let literal = random.below(8) == 0;
            operands.push(if literal { random.below(4) } else { 20 + random.below(18) } as u32);
        }
        let mut words = prelude.clone();
        let folded = random.below(4) == 0;
        if folded {
            operands.insert(2, opcode);
            words.push((operands.len() as u32 + 1) << 16 | 52);
            words.extend(&operands);
        }
        // OpFunction %1 %61 None %16, OpLabel %62.
        words.extend([5 << 16 | 54, 1, 61, 0, 16, 2 << 16 | 248, 62]);
        if !folded {
            words.push((operands.len() as u32 + 1) << 16 | opcode);
            words.extend(&operands);
        }
        words.extend([1 << 16 | 253, 1 << 16 | 56]);
        passed += usize::from(front_end(&bytes(&words)));
    }
    // The numbers are chosen so that a good part of the modules is valid.
    assert!(passed > 300, "{passed}");
}
