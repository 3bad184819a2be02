// SPDX-License-Identifier: MIT OR Apache-2.0
//! The checks: unsupported features are refused where a kernel reaches them, and the facts about a
//! kernel are right.

use launch::{Run, front_end};
use tally_compiler::check::check;
use tally_compiler::interp::Launch;
use tally_compiler::ir::{ArgKind, Module};
use tally_compiler::parse::parse;

#[path = "support/clang.rs"]
mod clang;
#[path = "support/launch.rs"]
mod launch;

/// The build log of OpenCL C that does not compile.
fn log_of(source: &str, options: &[&str]) -> String {
    let mut module = parse(&clang::compile_text(source, options), &[]).unwrap();
    check(&mut module).expect_err("the module is refused").to_string()
}

/// Each kind of unsupported feature is named, with the kernel.
#[test]
fn unsupported_things_are_named() {
    let cases = [
        (
            "__attribute__((intel_reqd_sub_group_size(4))) kernel void k(global int *p) { p[0] = 1; }",
            "OpEntryPoint requires sub-groups of 4 work-items; 8, 16 and 32 are supported",
        ),
        (
            "int elsewhere(int); kernel void k(global int *p) { p[0] = elsewhere(p[1]); }",
            "OpFunctionCall calls \"elsewhere\", which the module only imports",
        ),
    ];
    for (source, message) in cases {
        let log = log_of(source, &["-O1"]);
        assert!(log.contains(message), "{source}\ngave: {log}\nwanted: {message}");
        assert!(log.contains("kernel \"k\""), "{log}");
        assert!(log.starts_with("word "), "{log}");
    }
}

/// An image of an unsupported kind is named, by the instruction that uses it.
#[test]
fn images_of_unknown_kinds_are_refused_by_name() {
    let module = |image: &str| {
        let text = format!(
            "OpCapability Addresses
             OpCapability Kernel
             OpCapability ImageBasic
             OpMemoryModel Physical64 OpenCL
             OpEntryPoint Kernel %k \"k\"
             OpName %k \"k\"
             %void = OpTypeVoid
             %u32 = OpTypeInt 32 0
             %v2 = OpTypeVector %u32 2
             %image = OpTypeImage %void {image} Unknown ReadOnly
             %fk = OpTypeFunction %void %image
             %k = OpFunction %void None %fk
             %p = OpFunctionParameter %image
             %start = OpLabel
             %samples = OpImageQuerySamples %u32 %p
             %size = OpImageQuerySize %v2 %p
             OpReturn
             OpFunctionEnd"
        );
        parse(&clang::assemble(&text), &[]).expect("it is understood")
    };
    for (image, what) in [("2D 0 0 1 0", "multisampled image"), ("Cube 0 0 0 0", "DimCube")] {
        let log = check(&mut module(image)).expect_err("it is refused").to_string();
        assert!(log.contains(what) && log.contains("kernel \"k\""), "{image}: {log}");
        assert!(log.contains("OpImageQuery"), "{log}");
    }
}

/// Vectors as long as a GPU's registers, which Intel's explicit SIMD uses, are not supported, not even
/// as constants; the kernel that computes with one is refused.
#[test]
fn vectors_of_other_lengths_are_refused_by_name() {
    let module = |body: &str| {
        let ones = "%one ".repeat(32);
        let text = format!(
            "OpCapability Addresses
             OpCapability Kernel
             OpCapability VectorAnyINTEL
             OpExtension \"SPV_INTEL_vector_compute\"
             OpMemoryModel Physical64 OpenCL
             OpEntryPoint Kernel %k \"k\"
             OpName %k \"k\"
             %void = OpTypeVoid
             %u32 = OpTypeInt 32 0
             %v32 = OpTypeVector %u32 32
             %one = OpConstant %u32 1
             %ones = OpConstantComposite %v32 {ones}
             %fk = OpTypeFunction %void
             %k = OpFunction %void None %fk
             %start = OpLabel
             {body}
             OpReturn
             OpFunctionEnd"
        );
        parse(&clang::assemble(&text), &[]).expect("it is understood")
    };
    check(&mut module("")).expect("what no kernel uses may be anything");
    let log = check(&mut module("%sum = OpIAdd %v32 %ones %ones")).expect_err("it is refused");
    let log = log.to_string();
    assert!(log.contains("OpIAdd") && log.contains("vector of 32"), "{log}");
    assert!(log.contains("kernel \"k\""), "{log}");
}

/// Code that no kernel reaches is not checked; a fault in a function that is reached through another
/// names the kernel.
#[test]
fn only_what_is_reached_counts() {
    let helper = "uint elsewhere(void);
        __attribute__((noinline)) uint odd(void) { return elsewhere(); }";
    let fine = format!("{helper} kernel void k(global uint *p) {{ p[0] = 1; }}");
    let module = front_end(&clang::compile_text(&fine, &["-O0"]));
    assert_eq!(module.kernels.len(), 1);
    let wrong = format!("{helper} kernel void k(global uint *p) {{ p[0] = odd(); }}");
    let log = log_of(&wrong, &["-O0"]);
    assert!(log.contains("in function \"odd\", reached by kernel \"k\": OpFunctionCall"), "{log}");
}

/// Attributes, argument offsets and memory of a kernel agree with the source.
#[test]
fn kernels_are_described() {
    let source = "
        typedef struct { char c; double d; } S;
        __attribute__((reqd_work_group_size(8, 2, 1))) __attribute__((vec_type_hint(float4)))
        kernel void k(global const float *x, char c, float3 v, local int *l, S s, constant int *t) {
            local short a[5];
            local double b[2];
            a[get_local_id(0) % 5] = c;
            b[get_local_id(1)] = v.x + s.d;
            barrier(CLK_LOCAL_MEM_FENCE);
            l[0] = a[0] + b[1] + x[0] + t[0];
        }
        __attribute__((work_group_size_hint(4, 1, 1))) kernel void plain(void) {}";
    let module = front_end(&clang::compile_text(source, &["-O2", "-cl-kernel-arg-info"]));
    let (number, kernel) = module.kernel("k").unwrap();
    assert_eq!(number, 0);
    let args: Vec<_> = kernel.args.iter().map(|a| (a.kind, a.offset, a.size)).collect();
    assert_eq!(
        args,
        [
            (ArgKind::GlobalPointer, 0, 8),
            (ArgKind::Value, 8, 1),
            (ArgKind::Value, 16, 16),
            (ArgKind::LocalPointer, 32, 8),
            (ArgKind::Value, 40, 16),
            (ArgKind::ConstantPointer, 56, 8),
        ]
    );
    assert_eq!(kernel.args_size, 64);
    assert_eq!(kernel.required_group_size, Some([8, 2, 1]));
    assert!(
        kernel.source_attributes.starts_with("reqd_work_group_size(8,2,1)"),
        "{}",
        kernel.source_attributes
    );
    assert!(kernel.facts.uses_barrier);
    let mut locals: Vec<_> =
        kernel.facts.locals.iter().map(|&(id, offset)| (module.globals[id].size, offset)).collect();
    locals.sort();
    assert_eq!(locals.iter().map(|&(size, _)| size).collect::<Vec<_>>(), [10, 16]);
    let end = locals.iter().map(|(size, offset)| size + offset).max().unwrap();
    assert_eq!(kernel.facts.local_static_bytes, end);
    assert!(locals.iter().all(|&(size, offset)| size == 10 || offset % 8 == 0));
    let (_, plain) = module.kernel("plain").unwrap();
    assert!(plain.facts.locals.is_empty() && !plain.facts.uses_barrier);
    assert_eq!(plain.group_size_hint, Some([4, 1, 1]));
    assert_eq!(plain.source_attributes, "work_group_size_hint(4,1,1)");
}

/// The check finds out whether the host takes part in a kernel's atomic operations, except for loads
/// and stores, whose scope the compiler of OpenCL C loses.
#[test]
fn system_scope_is_seen() {
    let cases = [
        ("atomic_fetch_add_explicit(p, 1, memory_order_relaxed, memory_scope_device)", false),
        (
            "atomic_fetch_add_explicit(p, 1, memory_order_relaxed, memory_scope_all_svm_devices)",
            true,
        ),
        ("atomic_load_explicit(p, memory_order_acquire, memory_scope_all_svm_devices)", true),
        ("atomic_store_explicit(p, 1, memory_order_release, memory_scope_all_svm_devices)", true),
        (
            "atomic_work_item_fence(CLK_GLOBAL_MEM_FENCE, memory_order_acq_rel,
                memory_scope_all_svm_devices)",
            true,
        ),
        ("barrier(CLK_GLOBAL_MEM_FENCE)", false),
    ];
    for (statement, seen) in cases {
        let source = format!("kernel void k(global atomic_uint *p) {{ {statement}; }}");
        let module = front_end(&clang::compile_text(&source, &["-O2"]));
        let (_, kernel) = module.kernel("k").expect("there is one");
        assert_eq!(kernel.facts.uses_system_scope, seen, "{statement}");
    }
}

/// A group waits for another one only if it looks at memory that both reach, time and again.
#[test]
fn waits_for_other_groups_are_seen() {
    let cases = [
        ("*o = 1", false),
        ("atomic_fetch_add(p, 1)", false),
        ("*o = atomic_fetch_add(p, 1)", true),
        ("while (atomic_load_explicit(p, memory_order_acquire, memory_scope_device) == 0);", true),
        ("atomic_store_explicit(p, 1, memory_order_release, memory_scope_device)", false),
        ("uint old = 0; while (!atomic_compare_exchange_strong(p, &old, 1)) old = 0", true),
        ("*o = atomic_cmpxchg((volatile global int *)o, 0, 1)", true),
        ("while (*(volatile global int *)o == 0)", true),
        ("*(volatile global int *)o", false),
        ("while (*o == 0) mem_fence(CLK_GLOBAL_MEM_FENCE)", true),
        ("local int l; l = 0; barrier(CLK_LOCAL_MEM_FENCE); *o = atomic_add(&l, 1)", false),
        ("local atomic_int l; atomic_init(&l, 0); *o = atomic_fetch_add(&l, 1)", false),
        ("local volatile int l; l = 3; while (l != 3); *o = l", false),
        ("*o = looks(p)", true),
        ("barrier(CLK_GLOBAL_MEM_FENCE)", false),
        ("printf(\"%d\", *o)", true),
    ];
    for (statement, seen) in cases {
        let source = format!(
            "__attribute__((noinline)) int looks(global atomic_uint *p) {{ return atomic_load(p); }}
             kernel void k(global atomic_uint *p, global int *o) {{ {statement}; }}"
        );
        let module = front_end(&clang::compile_text(&source, &["-O2", "-w"]));
        let (_, kernel) = module.kernel("k").expect("there is one");
        assert_eq!(kernel.facts.may_wait, seen, "{statement}");
    }
}

/// A module for one kernel that stores the constant `%value` of type uint.
fn constant_module(decorations: &str, constants: &str) -> Vec<u8> {
    clang::assemble(&format!(
        "OpCapability Addresses
        OpCapability Kernel
        OpCapability Int64
        OpMemoryModel Physical64 OpenCL
        OpEntryPoint Kernel %k \"k\"
        {decorations}
        %void = OpTypeVoid
        %bool = OpTypeBool
        %uint = OpTypeInt 32 0
        %ulong = OpTypeInt 64 0
        %float = OpTypeFloat 32
        %v2 = OpTypeVector %uint 2
        %gp = OpTypePointer CrossWorkgroup %uint
        %fn = OpTypeFunction %void %gp
        {constants}
        %k = OpFunction %void None %fn
        %p = OpFunctionParameter %gp
        %l = OpLabel
        OpStore %p %value Aligned 4
        OpReturn
        OpFunctionEnd"
    ))
}

fn stored(module: &Module) -> u32 {
    let mut run = Run::new(module, "k");
    let out = run.buffer(&[0u32]);
    run.launch(&Launch::linear(1, 1)).read::<u32>(out)[0]
}

/// Specialization constants have the given values or their defaults, in all operations on them.
#[test]
fn specialization_constants_are_applied() {
    let bytes = constant_module(
        "OpDecorate %a SpecId 3
        OpDecorate %flag SpecId 4
        OpDecorate %wide SpecId 5",
        "%a = OpSpecConstant %uint 10
        %flag = OpSpecConstantTrue %bool
        %wide = OpSpecConstant %ulong 4294967297
        %three = OpConstant %uint 3
        %times = OpSpecConstantOp %uint IMul %a %three
        %narrow = OpSpecConstantOp %uint UConvert %wide
        %sum = OpSpecConstantOp %uint IAdd %times %narrow
        %pair = OpSpecConstantComposite %v2 %sum %three
        %swapped = OpSpecConstantOp %v2 VectorShuffle %pair %pair 1 0
        %second = OpSpecConstantOp %uint CompositeExtract %swapped 1
        %value = OpSpecConstantOp %uint Select %flag %second %three",
    );
    let value = |spec: &[(u32, u64)]| {
        let mut module = parse(&bytes, spec).unwrap();
        check(&mut module).unwrap();
        stored(&module)
    };
    assert_eq!(value(&[]), 31);
    assert_eq!(value(&[(3, 20)]), 61);
    assert_eq!(value(&[(3, 20), (5, (1 << 32) + 7)]), 67);
    assert_eq!(value(&[(4, 0)]), 3);
    assert_eq!(value(&[(99, 5)]), 31);
}

/// The length of an array may be a specialization constant.
#[test]
fn specialization_sizes_local_memory() {
    let bytes = clang::assemble(
        "OpCapability Addresses
        OpCapability Kernel
        OpMemoryModel Physical64 OpenCL
        OpEntryPoint Kernel %k \"k\"
        OpDecorate %n SpecId 0
        %void = OpTypeVoid
        %uint = OpTypeInt 32 0
        %n = OpSpecConstant %uint 4
        %array = OpTypeArray %uint %n
        %lp = OpTypePointer Workgroup %array
        %tile = OpVariable %lp Workgroup
        %fn = OpTypeFunction %void
        %zero = OpConstantNull %array
        %k = OpFunction %void None %fn
        %l = OpLabel
        OpStore %tile %zero
        OpReturn
        OpFunctionEnd",
    );
    for (spec, size) in [(vec![], 16), (vec![(0, 100)], 400)] {
        let mut module = parse(&bytes, &spec).unwrap();
        check(&mut module).unwrap();
        assert_eq!(module.kernels[0].facts.local_static_bytes, size);
    }
    let mut module = parse(&bytes, &[(0, 1 << 24)]).unwrap();
    let log = check(&mut module).unwrap_err().to_string();
    assert!(log.contains("needs 67108864 bytes for its local variables"), "{log}");
}

/// Irreducible control flow is accepted: a loop with two entries.
#[test]
fn irreducible_flow_runs() {
    let bytes = clang::assemble(
        "OpCapability Addresses
        OpCapability Kernel
        OpMemoryModel Physical64 OpenCL
        OpEntryPoint Kernel %k \"k\"
        %void = OpTypeVoid
        %bool = OpTypeBool
        %uint = OpTypeInt 32 0
        %gp = OpTypePointer CrossWorkgroup %uint
        %fn = OpTypeFunction %void %gp %uint
        %zero = OpConstantNull %uint
        %one = OpConstant %uint 1
        %ten = OpConstant %uint 10
        %hundred = OpConstant %uint 100
        %k = OpFunction %void None %fn
        %p = OpFunctionParameter %gp
        %n = OpFunctionParameter %uint
        %entry = OpLabel
        %start = OpIEqual %bool %n %zero
        OpBranchConditional %start %a %b
        %a = OpLabel
        %xa = OpPhi %uint %zero %entry %yb %b
        %ya = OpIAdd %uint %xa %one
        OpBranch %b
        %b = OpLabel
        %xb = OpPhi %uint %hundred %entry %ya %a
        %yb = OpIAdd %uint %xb %ten
        %more = OpULessThan %bool %yb %hundred
        OpBranchConditional %more %a %end
        %end = OpLabel
        OpStore %p %yb Aligned 4
        OpReturn
        OpFunctionEnd",
    );
    let module = front_end(&bytes);
    for (n, expected) in [(0u32, 110u32), (1, 110)] {
        let mut run = Run::new(&module, "k");
        let out = run.buffer(&[0u32]);
        run.value(n);
        run.line(1, 1);
        assert_eq!(run.read::<u32>(out), [expected], "started at {n}");
    }
}

/// Modules in the form that SYCL compilers write: built-ins as imported variables, read in each way.
#[test]
fn imported_built_in_variables_are_read() {
    let bytes = clang::assemble(
        "OpCapability Addresses
        OpCapability Kernel
        OpCapability Linkage
        OpCapability Int64
        OpCapability GenericPointer
        OpMemoryModel Physical64 OpenCL
        OpEntryPoint Kernel %k \"k\" %gid %size
        OpDecorate %gid LinkageAttributes \"__spirv_BuiltInGlobalInvocationId\" Import
        OpDecorate %gid Constant
        OpDecorate %gid BuiltIn GlobalInvocationId
        OpDecorate %size LinkageAttributes \"__spirv_BuiltInGlobalSize\" Import
        OpDecorate %size Constant
        OpDecorate %size BuiltIn GlobalSize
        OpDecorate %sat LinkageAttributes \"llvm.usub.sat.i64\" Import
        %void = OpTypeVoid
        %ulong = OpTypeInt 64 0
        %uint = OpTypeInt 32 0
        %v3 = OpTypeVector %ulong 3
        %ip = OpTypePointer Input %v3
        %ips = OpTypePointer Input %ulong
        %gp = OpTypePointer CrossWorkgroup %ulong
        %fn = OpTypeFunction %void %gp
        %fsat = OpTypeFunction %ulong %ulong %ulong
        %zero = OpConstant %uint 0
        %two = OpConstant %ulong 2
        %gid = OpVariable %ip Input
        %size = OpVariable %ip Input
        %sat = OpFunction %ulong None %fsat
        %s0 = OpFunctionParameter %ulong
        %s1 = OpFunctionParameter %ulong
        OpFunctionEnd
        %k = OpFunction %void None %fn
        %p = OpFunctionParameter %gp
        %l = OpLabel
        %whole = OpLoad %v3 %gid Aligned 32
        %x = OpCompositeExtract %ulong %whole 0
        %first = OpInBoundsAccessChain %ips %size %zero
        %n = OpLoad %ulong %first Aligned 32
        %d = OpFunctionCall %ulong %sat %x %two
        %sum = OpIAdd %ulong %n %d
        %at = OpInBoundsPtrAccessChain %gp %p %x
        OpStore %at %sum Aligned 8
        OpReturn
        OpFunctionEnd",
    );
    let module = front_end(&bytes);
    let mut run = Run::new(&module, "k");
    let out = run.buffer(&[0u64; 4]);
    run.line(4, 2);
    assert_eq!(run.read::<u64>(out), [4, 4, 4, 5]);
}

/// Initialisers of variables have C's layout in memory, including addresses of other variables.
#[test]
fn initialisers_are_laid_out() {
    let source = "
        typedef struct { char c; int i; constant int *p; short s[3]; } S;
        constant int numbers[4] = {1, -2, 3, 4};
        constant S table[2] = {{5, 6, numbers, {7, 8, 9}}, {0, 0, 0, {0, 0, 10}}};
        kernel void k(global int *out, int i) {
            out[0] = table[i].c * 100 + table[i].i * 10 + table[i].s[2];
            out[1] = table[i].p ? table[i].p[1] : 99;
        }";
    let module = front_end(&clang::compile_text(source, &["-O1"]));
    let table = module.globals.iter().find(|(_, g)| g.name == "table").unwrap().0;
    let image = module.global_image(table);
    assert_eq!(image.bytes.len(), 48);
    assert_eq!(image.bytes[0], 5);
    assert_eq!(image.bytes[4..8], [6, 0, 0, 0]);
    assert_eq!(image.bytes[16..22], [7, 0, 8, 0, 9, 0]);
    assert_eq!(image.bytes[44..46], [10, 0]);
    let [reloc] = image.relocs[..] else { panic!("{:?}", image.relocs) };
    assert_eq!((reloc.offset, reloc.addend), (8, 0));
    assert_eq!(module.globals[reloc.global].name, "numbers");
    for (i, expected) in [(0, [569, -2]), (1, [10, 99])] {
        let mut run = Run::new(&module, "k");
        let out = run.buffer(&[0i32; 2]);
        run.value(i);
        run.line(1, 1);
        assert_eq!(run.read::<i32>(out), expected);
    }
}
