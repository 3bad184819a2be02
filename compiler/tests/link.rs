// SPDX-License-Identifier: MIT OR Apache-2.0
//! Modules that import from each other, linked and run in the interpreter.

use std::collections::HashMap;

use launch::Run;
use tally_compiler::check::{check, check_unlinked};
use tally_compiler::ir::Module;
use tally_compiler::link::{Object, link};
use tally_compiler::parse::parse;

#[path = "support/clang.rs"]
mod clang;
#[path = "support/launch.rs"]
#[allow(dead_code, reason = "only part of it is needed here")]
mod launch;

fn module(source: &str) -> Module {
    let spirv = clang::compile_text(source, &["-O1"]);
    parse(&spirv, &[]).unwrap_or_else(|error| panic!("{error}"))
}

fn object(sources: &[&str], links: &[(&str, usize)]) -> Object {
    let links = links.iter().map(|&(name, object)| (name.to_owned(), object));
    Object { modules: sources.iter().map(|text| module(text)).collect(), links: links.collect() }
}

/// Links, checks and runs kernel `k` for four work-items; returns its buffer.
fn run(objects: Vec<Object>) -> Vec<u32> {
    let mut linked = link(objects).unwrap_or_else(|log| panic!("{log}"));
    check(&mut linked).unwrap_or_else(|failure| panic!("{failure}"));
    let mut run = Run::new(&linked, "k");
    let buffer = run.buffer(&[0_u32; 4]);
    run.line(4, 4);
    run.read(buffer)
}

const CALLER: &str = "
    uint weigh(uint x);
    extern constant uint shift[2];
    kernel void k(global uint *p) {
        size_t i = get_global_id(0);
        p[i] = weigh((uint)i) + shift[1];
    }";
const WEIGH: &str = "
    static constant uint table[4] = {5, 6, 7, 8};
    uint mirror(uint x);
    uint weigh(uint x) { return table[mirror(x)]; }";
const MIRROR: &str = "constant uint shift[2] = {0, 100}; uint mirror(uint x) { return 3 - x; }";

/// "Modules may be interdependent, i.e., a module may contain functions and global variables that
/// are used and defined by different modules."
#[test]
fn functions_and_variables_of_other_objects_are_found_by_name() {
    let objects = || {
        vec![
            object(&[CALLER], &[("weigh", 1), ("shift", 2)]),
            object(&[WEIGH], &[("mirror", 2)]),
            object(&[MIRROR], &[]),
        ]
    };
    assert_eq!(run(objects()), [108, 107, 106, 105]);
    let linked = link(objects()).expect("it was linked before");
    assert_eq!(linked.foreign.len(), 2, "two other objects");
    assert_eq!(linked.kernels.len(), 1);
}

/// Several modules of one object see each other's exports without `links`.
#[test]
fn the_modules_of_one_object_are_linked() {
    assert_eq!(run(vec![object(&[CALLER, WEIGH, MIRROR], &[])]), [108, 107, 106, 105]);
    let log = link(vec![object(&[MIRROR, MIRROR], &[])]).map(drop).expect_err("defined twice");
    assert!(log.contains("\"mirror\" is defined twice"), "{log}");
    assert!(log.contains("\"shift\" is defined twice"), "{log}");
}

/// A call of a function with a barrier works across modules, as it does within one.
#[test]
fn barriers_work_across_modules() {
    let caller = "
        uint turn(local uint *mine, uint x);
        kernel void k(global uint *p) {
            local uint mine[4];
            p[get_global_id(0)] = turn(mine, (uint)get_global_id(0));
        }";
    let turn = "
        __attribute__((noinline)) uint turn(local uint *mine, uint x) {
            uint i = (uint)get_local_id(0);
            mine[i] = x * 10;
            barrier(CLK_LOCAL_MEM_FENCE);
            return mine[3 - i];
        }";
    let objects = vec![object(&[caller], &[("turn", 1)]), object(&[turn], &[])];
    assert_eq!(run(objects), [30, 20, 10, 0]);
}

/// Flags of clang for function pointers.
const POINTERS: [&str; 5] = [
    "-O1",
    "-Xclang",
    "-cl-ext=+__cl_clang_function_pointers",
    "-mllvm",
    "--spirv-ext=+SPV_INTEL_function_pointers",
];

/// Calls through pointers find the functions of all linked modules, whichever module took the address:
/// `apply` calls the function whose address `k`'s module has taken, and `k` one of `offer`'s.
#[test]
fn function_pointers_mean_the_same_in_all_linked_modules() {
    let unary = "
        #pragma OPENCL EXTENSION __cl_clang_function_pointers : enable
        typedef uint (*unary)(uint);";
    let caller = "
        uint apply(ulong f, uint x);
        ulong offer(void);
        __attribute__((noinline)) uint twice(uint x) { return 2 * x; }
        kernel void k(global uint *p) {
            size_t i = get_global_id(0);
            ulong f = i & 1 ? offer() : (ulong)twice;
            p[i] = apply(f, (uint)i) + 10 * ((unary)f)((uint)i);
        }";
    let library = "
        uint plus(uint x) { return x + 1; }
        uint apply(ulong f, uint x) { return ((unary)f)(x); }
        ulong offer(void) { return (ulong)plus; }";
    let module = |source: &str| {
        let spirv = clang::compile_text(&format!("{unary}{source}"), &POINTERS);
        parse(&spirv, &[]).unwrap_or_else(|error| panic!("{error}"))
    };
    let objects = |apart: bool| {
        let links = ["apply", "offer"].map(|name| (name.to_owned(), 1)).into();
        let mut first = Object { modules: vec![module(caller)], links };
        let second = Object { modules: vec![module(library)], links: HashMap::new() };
        if apart {
            return vec![first, second];
        }
        first.modules.extend(second.modules);
        vec![first]
    };
    assert_eq!(run(objects(true)), [0, 22, 44, 44]);
    assert_eq!(run(objects(false)), [0, 22, 44, 44]);
}

/// A declaration whose types differ from the definition's is refused by name.
#[test]
fn an_import_of_another_type_than_its_definition_is_refused() {
    let log = |definition: &str, name: &str| {
        let objects = vec![object(&[CALLER], &[(name, 1)]), object(&[definition], &[])];
        link(objects).map(drop).expect_err("the types differ")
    };
    let log_of_weigh = log("float weigh(uint x) { return x; }", "weigh");
    assert!(log_of_weigh.contains("\"weigh\" is imported as another type"), "{log_of_weigh}");
    let short = "constant uint shift[1] = {9}; uint first(void) { return shift[0]; }";
    let log_of_shift = log(short, "shift");
    assert!(log_of_shift.contains("\"shift\" is imported as another type"), "{log_of_shift}");
}

/// A name that no object defines stays an import: it is listed with its users, and refused by the full
/// check.
#[test]
fn what_is_not_found_is_listed() {
    let both = format!("{CALLER}\nuint far(uint); uint near(uint x) {{ return far(x); }}");
    let mut linked = link(vec![object(&[&both], &[])]).expect("imports may stay open");
    let unlinked = check_unlinked(&mut linked).expect("nothing else is wrong");
    let imports: HashMap<&str, bool> =
        unlinked.imports.iter().map(|(name, &by)| (name.as_str(), by)).collect();
    assert_eq!(imports, HashMap::from([("weigh", true), ("shift", true), ("far", false)]));
    let failure = check(&mut linked).expect_err("a kernel needs them").to_string();
    assert!(failure.contains("calls \"weigh\", which the module only imports"), "{failure}");
    assert!(failure.contains("\"shift\", which the module only imports"), "{failure}");
}

/// SPV_KHR_linkonce_odr: modules may define the same function identically; one definition is used.
#[test]
fn link_once_definitions_are_not_ambiguous() {
    let once = |value: u32| {
        let text = format!(
            "OpCapability Addresses
             OpCapability Kernel
             OpCapability Linkage
             OpExtension \"SPV_KHR_linkonce_odr\"
             OpMemoryModel Physical64 OpenCL
             OpDecorate %f LinkageAttributes \"weigh\" LinkOnceODR
             %u32 = OpTypeInt 32 0
             %c = OpConstant %u32 {value}
             %type = OpTypeFunction %u32 %u32
             %f = OpFunction %u32 None %type
             %x = OpFunctionParameter %u32
             %entry = OpLabel
             OpReturnValue %c
             OpFunctionEnd"
        );
        parse(&clang::assemble(&text), &[]).unwrap_or_else(|error| panic!("{error}"))
    };
    let with = |others: Vec<Module>| {
        let mut modules = vec![module(CALLER), module(MIRROR)];
        modules.extend(others);
        run(vec![Object { modules, links: HashMap::new() }])
    };
    assert_eq!(with(vec![once(7), once(7)]), [107; 4]);
    // An ordinary definition takes precedence over those.
    assert_eq!(with(vec![once(7), module(WEIGH)]), [108, 107, 106, 105]);
    assert_eq!(with(vec![module(WEIGH), once(7)]), [108, 107, 106, 105]);
}

/// A variable that several modules of one object define with LinkOnceODR is one variable, so what one
/// module writes the other reads.
#[test]
fn link_once_variables_are_one() {
    let with = |linkage: &str, name: &str, body: &str| {
        let text = format!(
            "OpCapability Addresses
             OpCapability Kernel
             OpCapability Linkage
             OpExtension \"SPV_KHR_linkonce_odr\"
             OpMemoryModel Physical64 OpenCL
             OpDecorate %f LinkageAttributes \"{name}\" Export
             OpDecorate %shared LinkageAttributes \"shared\" {linkage}
             %u32 = OpTypeInt 32 0
             %c = OpConstant %u32 5
             %pglobal = OpTypePointer CrossWorkgroup %u32
             %shared = OpVariable %pglobal CrossWorkgroup %c
             %type = OpTypeFunction %u32 %u32
             %f = OpFunction %u32 None %type
             %x = OpFunctionParameter %u32
             %entry = OpLabel
             {body}
             OpFunctionEnd"
        );
        parse(&clang::assemble(&text), &[]).unwrap_or_else(|error| panic!("{error}"))
    };
    let put = |linkage| with(linkage, "put", "OpStore %shared %x\nOpReturnValue %x");
    let take = |linkage| with(linkage, "take", "%v = OpLoad %u32 %shared\nOpReturnValue %v");
    let kernel = "uint put(uint); uint take(uint);
        kernel void k(global uint *p) {
            size_t i = get_global_id(0);
            put(100 + (uint)i);
            p[i] = take(0);
        }";
    let linkages = [("LinkOnceODR", "LinkOnceODR"), ("Export", "LinkOnceODR")];
    for (first, second) in linkages.into_iter().chain([("LinkOnceODR", "Export")]) {
        let modules = vec![module(kernel), put(first), take(second)];
        let objects = || vec![Object { modules: modules.clone(), links: HashMap::new() }];
        assert_eq!(run(objects()), [100, 101, 102, 103], "{first} and {second}");
        let linked = link(objects()).expect("it was linked before");
        let named = linked.globals.iter().filter(|(_, it)| it.exported && it.name == "shared");
        assert_eq!(named.count(), 1, "one of them has the name");
    }
}

/// An import with a greater alignment than its definition has is refused: code of the importing
/// module relies on it.
#[test]
fn an_import_with_a_greater_alignment_is_refused() {
    let caller = "extern constant uint shift[4] __attribute__((aligned(64)));
        kernel void k(global uint *p) { p[0] = shift[1]; }";
    let linked = |align: u32| {
        let definition = format!(
            "constant uint shift[4] __attribute__((aligned({align}))) = {{1, 2, 3, 4}};
             uint first(void) {{ return shift[0]; }}"
        );
        link(vec![object(&[caller], &[("shift", 1)]), object(&[&definition], &[])]).map(drop)
    };
    assert_eq!(linked(64), Ok(()));
    assert_eq!(linked(128), Ok(()));
    let log = linked(16).expect_err("16 is less than 64");
    assert!(log.contains("\"shift\" is imported with alignment 64"), "{log}");
}

/// Recursion through several modules is recursion.
#[test]
fn a_cycle_of_calls_through_modules_is_refused() {
    let first = "uint b(uint); uint a(uint x) { return x ? b(x - 1) : 1; }
        kernel void k(global uint *p) { p[0] = a(3); }";
    let second = "uint a(uint); uint b(uint x) { return x ? a(x - 1) : 2; }";
    let mut linked =
        link(vec![object(&[first], &[("b", 1)]), object(&[second], &[("a", 0)])]).expect("found");
    let failure = check(&mut linked).expect_err("a cycle").to_string();
    assert!(failure.contains("recursion"), "{failure}");
}

/// "Private variables are not transferrable between linked modules": each module has its own, and
/// each work-item too. LLVM also writes them with the class Function.
#[test]
fn private_variables_of_module_scope_are_each_items_own() {
    let text = "OpCapability Addresses
        OpCapability Kernel
        OpCapability Linkage
        OpMemoryModel Physical64 OpenCL
        OpEntryPoint Kernel %k \"k\" %id
        OpDecorate %id BuiltIn GlobalInvocationId
        OpDecorate %id Constant
        %void = OpTypeVoid
        %u32 = OpTypeInt 32 0
        %u64 = OpTypeInt 64 0
        %v3 = OpTypeVector %u64 3
        %pv3 = OpTypePointer Input %v3
        %id = OpVariable %pv3 Input
        %pprivate = OpTypePointer Private %u32
        %five = OpConstant %u32 5
        %counter = OpVariable %pprivate Private %five
        %pglobal = OpTypePointer CrossWorkgroup %u32
        %fvoid = OpTypeFunction %void %u32
        %fk = OpTypeFunction %void %pglobal
        %bump = OpFunction %void None %fvoid
        %by = OpFunctionParameter %u32
        %b1 = OpLabel
        %old = OpLoad %u32 %counter
        %new = OpIAdd %u32 %old %by
        OpStore %counter %new
        OpReturn
        OpFunctionEnd
        %k = OpFunction %void None %fk
        %p = OpFunctionParameter %pglobal
        %b2 = OpLabel
        %gid = OpLoad %v3 %id
        %x = OpCompositeExtract %u64 %gid 0
        %x32 = OpUConvert %u32 %x
        %c1 = OpFunctionCall %void %bump %x32
        %c2 = OpFunctionCall %void %bump %x32
        %value = OpLoad %u32 %counter
        %at = OpInBoundsPtrAccessChain %pglobal %p %x
        OpStore %at %value
        OpReturn
        OpFunctionEnd";
    for class in ["Private", "Function"] {
        let text = text.replace("Private", class);
        let modules =
            vec![parse(&clang::assemble(&text), &[]).unwrap_or_else(|error| panic!("{error}"))];
        assert_eq!(run(vec![Object { modules, links: HashMap::new() }]), [5, 7, 9, 11], "{class}");
    }
}
