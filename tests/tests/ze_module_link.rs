// SPDX-License-Identifier: MIT OR Apache-2.0
//! Modules that import from each other, through the stock loader: links, their logs, the refused
//! ones, inspection, and modules of several inputs.

use std::ffi::CString;
use std::ptr;

use tally_tests::ze::{self, Gpu, Usm};
use tally_tests::{check, refused};
use tally_ze::*;

/// Imports `weigh` and `shift`.
const CALLER: &str = "
    uint weigh(uint x);
    extern global uint shift[2];
    kernel void k(global uint *p) {
        size_t i = get_global_id(0);
        p[i] = weigh((uint)i) + shift[1];
    }
    kernel void alone(global uint *p) { p[get_global_id(0)] = 3; }";
/// Exports `weigh`, imports `mirror`.
const WEIGH: &str = "
    constant uint table[4] = {5, 6, 7, 8};
    uint mirror(uint x);
    uint weigh(uint x) { return table[mirror(x) & 3]; }";
/// Exports `mirror` and `shift`, and has a kernel that changes the latter.
const MIRROR: &str = "
    global uint shift[2] = {0, 100};
    uint mirror(uint x) { return 3 - x; }
    kernel void move(uint by) { shift[1] += by; }";

struct Modules {
    out: Usm<u32>,
    // The last: a context outlives its memory.
    gpu: Gpu,
}

impl Modules {
    fn new() -> Self {
        let gpu = Gpu::new();
        let out = gpu.host::<u32>(4);
        Self { gpu, out }
    }

    fn build(&self, source: &str) -> ze_module_handle_t {
        self.gpu.module(&ze::spirv_from(source), "").expect("the module is good")
    }

    /// Runs a kernel of one argument for four work-items.
    fn run(&self, module: ze_module_handle_t, name: &str, argument: &[u8]) {
        self.gpu.run(module, name, [1, 4], &[argument]);
    }

    /// The output of kernel `k`.
    fn result(&self, module: ze_module_handle_t) -> Vec<u32> {
        self.run(module, "k", &self.out.address().to_ne_bytes());
        self.out.to_vec()
    }
}

/// Links; returns the result, and the log, which exists in either case.
fn link(modules: &[ze_module_handle_t]) -> (ze_result_t, String) {
    let mut log = ze_module_build_log_handle_t::NULL;
    let mut handles = modules.to_vec();
    let count = handles.len() as u32;
    let answer = tally_tests::call!(zeModuleDynamicLink(count, handles.as_mut_ptr(), &raw mut log));
    (answer, ze::build_log(log))
}

fn destroy(modules: &[ze_module_handle_t]) {
    for &module in modules {
        check!(zeModuleDestroy(module));
    }
}

fn imports(module: ze_module_handle_t) -> bool {
    let mut properties = ze_module_properties_t::default();
    check!(zeModuleGetProperties(module, &raw mut properties));
    properties.flags == ze_module_property_flags_t::ZE_MODULE_PROPERTY_FLAG_IMPORTS
}

const GOOD: ze_result_t = ze_result_t::ZE_RESULT_SUCCESS;
const LINK_FAILURE: ze_result_t = ze_result_t::ZE_RESULT_ERROR_MODULE_LINK_FAILURE;

/// "All the import linkage requirements of a module must be satisfied before a kernel can be created
/// from that module." Functions and variables of other modules work then, in any order of modules.
#[test]
fn linked_modules_use_each_others_functions_and_variables() {
    let gpu = Modules::new();
    for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0]] {
        let modules = [CALLER, WEIGH, MIRROR].map(|source| gpu.build(source));
        let [caller, weigh, mirror] = modules;
        assert!(imports(caller) && imports(weigh) && !imports(mirror));
        let mut kernel = ze_kernel_handle_t::NULL;
        for name in [c"k", c"alone"] {
            let desc = ze_kernel_desc_t { pKernelName: name.as_ptr(), ..Default::default() };
            let text = refused!(
                ZE_RESULT_ERROR_INVALID_MODULE_UNLINKED,
                zeKernelCreate(caller, &raw const desc, &raw mut kernel)
            );
            assert!(text.contains("shift") && text.contains("weigh"), "{text}");
        }
        let (answer, log) = link(&order.map(|i| modules[i]));
        assert_eq!(answer, GOOD, "{log}");
        assert!(imports(caller), "it still is a module that imports");
        assert_eq!(gpu.result(caller), [108, 107, 106, 105]);
        // The variable is one and the same for both modules.
        gpu.run(mirror, "move", &10_u32.to_ne_bytes());
        assert_eq!(gpu.result(caller), [148, 147, 146, 145]);
        // Linked modules stay in memory after their handles are destroyed.
        check!(zeModuleDestroy(mirror));
        check!(zeModuleDestroy(weigh));
        assert_eq!(gpu.result(caller), [148, 147, 146, 145]);
        check!(zeModuleDestroy(caller));
    }
}

/// The log names each symbol that is not found, and nothing is linked then.
#[test]
fn a_link_names_every_symbol_that_no_module_defines() {
    let gpu = Modules::new();
    let modules = [CALLER, WEIGH, MIRROR].map(|source| gpu.build(source));
    let (answer, log) = link(&modules[..1]);
    assert_eq!(answer, LINK_FAILURE);
    assert!(log.contains("weigh: no module defines it"), "{log}");
    assert!(log.contains("shift: no module defines it"), "{log}");
    let (answer, log) = link(&modules[..2]);
    assert_eq!(answer, LINK_FAILURE);
    assert!(log.contains("mirror: no") && log.contains("shift: no"), "{log}");
    assert!(!log.contains("weigh"), "it is defined: {log}");
    let (answer, log) = link(&modules);
    assert_eq!(answer, GOOD, "{log}");
    assert_eq!(gpu.result(modules[0]), [108, 107, 106, 105]);
    destroy(&modules);
}

/// "imported functions and global variables must only be defined once in any given set of modules"
#[test]
fn an_import_with_two_definitions_is_refused() {
    let gpu = Modules::new();
    let modules = [CALLER, WEIGH, MIRROR, WEIGH].map(|source| gpu.build(source));
    let (answer, log) = link(&modules);
    assert_eq!(answer, LINK_FAILURE);
    assert!(log.contains("weigh: 2 modules define it"), "{log}");
    // A module that is named twice defines it once.
    let (answer, log) = link(&[modules[0], modules[1], modules[2], modules[1]]);
    assert_eq!(answer, GOOD, "{log}");
    destroy(&modules);
}

/// "Once all the import dependencies of a module have been linked, the use of that fully
/// import-linked module in subsequent calls to zeModuleDynamicLink will not cause the imports of the
/// module to be re-linked."
#[test]
fn a_linked_module_keeps_its_imports() {
    let gpu = Modules::new();
    let other = "uint mirror(uint x) { return x; }";
    let [first, second, weigh, mirror, straight] =
        [CALLER, CALLER, WEIGH, MIRROR, other].map(|source| gpu.build(source));
    assert_eq!(link(&[weigh, mirror]).0, GOOD);
    // Now there are two definitions of mirror, but weigh is linked, and no other module imports it.
    let (answer, log) = link(&[first, weigh, mirror, straight]);
    assert_eq!(answer, GOOD, "{log}");
    assert_eq!(gpu.result(first), [108, 107, 106, 105]);
    let (answer, log) = link(&[second, first, weigh, mirror]);
    assert_eq!(answer, GOOD, "{log}");
    assert_eq!(gpu.result(second), [108, 107, 106, 105]);
    assert_eq!(link(&[first]).0, GOOD, "it has nothing left to link");
    destroy(&[first, second, weigh, mirror, straight]);
}

/// Modules may depend on each other.
#[test]
fn imports_may_go_both_ways() {
    let gpu = Modules::new();
    let a = "uint b1(uint); uint a2(uint x) { return x * 2; }
        kernel void k(global uint *p) { p[get_global_id(0)] = b1((uint)get_global_id(0)); }";
    let b = "uint a2(uint); uint b1(uint x) { return a2(x) + 1; }";
    let modules = [a, b].map(|source| gpu.build(source));
    let (answer, log) = link(&modules);
    assert_eq!(answer, GOOD, "{log}");
    assert_eq!(gpu.result(modules[0]), [1, 3, 5, 7]);
    destroy(&modules);
}

/// A declaration that does not fit the definition is detected when modules are linked.
#[test]
fn an_import_of_another_type_is_refused_by_the_link() {
    let gpu = Modules::new();
    let modules =
        [CALLER, "float weigh(uint x) { return x; }", MIRROR].map(|source| gpu.build(source));
    let (answer, log) = link(&modules);
    assert_eq!(answer, LINK_FAILURE);
    assert!(log.contains("\"weigh\" is imported as another type"), "{log}");
    destroy(&modules);
}

/// The initial value of a variable may be the address of another module's variable.
#[test]
fn initialisers_may_name_variables_of_other_modules() {
    let gpu = Modules::new();
    let user = "extern global uint far[2];
        global uint *where = far;
        kernel void k(global uint *p) { p[get_global_id(0)] = where[1]; }";
    let owner = "global uint far[2] = {7, 100}; kernel void keep(uint x) { far[0] = x; }";
    let modules = [user, owner].map(|source| gpu.build(source));
    let (answer, log) = link(&modules);
    assert_eq!(answer, GOOD, "{log}");
    assert_eq!(gpu.result(modules[0]), [100; 4]);
    destroy(&modules);
}

/// ZE_extension_linkage_inspection lists imports, those without a definition, and exports.
#[test]
fn linkage_can_be_inspected() {
    use ze_linkage_inspection_ext_flags_t as flag;
    let gpu = Modules::new();
    let mut modules = [CALLER, WEIGH].map(|source| gpu.build(source));
    let mut inspect = |flags| {
        let mut desc = ze_linkage_inspection_ext_desc_t { flags, ..Default::default() };
        let mut log = ze_module_build_log_handle_t::NULL;
        check!(zeModuleInspectLinkageExt(&raw mut desc, 2, modules.as_mut_ptr(), &raw mut log));
        ze::build_log(log)
    };
    let all = inspect(flag::ZE_LINKAGE_INSPECTION_EXT_FLAG_IMPORTS);
    assert_eq!(all, "imports:\nmirror\nshift\nweigh\n");
    let open = inspect(flag::ZE_LINKAGE_INSPECTION_EXT_FLAG_UNRESOLVABLE_IMPORTS);
    assert_eq!(open, "unresolvable imports:\nmirror\nshift\n");
    let exports = inspect(flag::ZE_LINKAGE_INSPECTION_EXT_FLAG_EXPORTS);
    assert!(exports.starts_with("exports:\n") && exports.contains("\nweigh\n"), "{exports}");
    destroy(&modules);
}

/// ZE_experimental_module_program: several SPIR-V modules, each with its flags, make one module.
#[test]
fn several_inputs_make_one_module() {
    let gpu = Modules::new();
    let inputs = [CALLER, WEIGH, MIRROR].map(ze::spirv_from);
    let sizes = inputs.each_ref().map(Vec::len);
    let mut modules = inputs.each_ref().map(|it| it.as_ptr());
    let flags = ["-ze-opt-level=2", "-fno-such-flag", ""].map(|it| CString::new(it).unwrap());
    let mut flags = flags.each_ref().map(|it| it.as_ptr());
    let program = ze_module_program_exp_desc_t {
        count: 3,
        inputSizes: sizes.as_ptr(),
        pInputModules: modules.as_mut_ptr(),
        pBuildFlags: flags.as_mut_ptr(),
        ..Default::default()
    };
    let desc = ze_module_desc_t { pNext: (&raw const program).cast(), ..Default::default() };
    let (mut module, mut log) = (ze_module_handle_t::NULL, ze_module_build_log_handle_t::NULL);
    let (context, device) = (gpu.gpu.context, gpu.gpu.device);
    check!(zeModuleCreate(context, device, &raw const desc, &raw mut module, &raw mut log));
    let log = ze::build_log(log);
    assert!(log.contains("-fno-such-flag") && !log.contains("needs"), "{log}");
    assert!(!imports(module));
    assert_eq!(gpu.result(module), [108, 107, 106, 105]);
    gpu.run(module, "move", &1_u32.to_ne_bytes());
    assert_eq!(gpu.result(module), [112, 111, 110, 109]);
    check!(zeModuleDestroy(module));
    let none = ze_module_program_exp_desc_t { count: 0, ..program };
    let desc = ze_module_desc_t { pNext: (&raw const none).cast(), ..Default::default() };
    refused!(
        ZE_RESULT_ERROR_INVALID_SIZE,
        zeModuleCreate(context, device, &raw const desc, &raw mut module, ptr::null_mut())
    );
}
