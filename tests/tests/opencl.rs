// SPDX-License-Identifier: MIT OR Apache-2.0
//! The OpenCL platform, through OpenCL's stock loader: programs that it compiles run with Level Zero.

use std::ffi::{CStr, CString, c_char, c_void};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::{env, mem, ptr};

use opencl_sys::cl_function_types::*;
use opencl_sys::*;
use tally_tests::check;
use tally_tests::ze::{self, Gpu};
use tally_ze::*;

macro_rules! functions {
    ($($name:ident: $kind:ident,)*) => {
        /// The functions of OpenCL's loader.
        #[allow(non_snake_case)]
        struct Functions { $($name: $kind,)* }

        impl Functions {
            fn of(library: *mut c_void) -> Self {
                let function = |name: &str| {
                    let name = CString::new(name).unwrap();
                    // SAFETY: the library stays open, and the name is terminated.
                    unsafe { libc::dlsym(library, name.as_ptr()) }
                };
                // SAFETY: functions of these names have these types.
                unsafe { Self { $($name: mem::transmute::<*mut c_void, $kind>(function(stringify!($name))),)* } }
            }
        }
    };
}

functions! {
    clBuildProgram: clBuildProgram_t,
    clCompileProgram: clCompileProgram_t,
    clCreateBuffer: clCreateBuffer_t,
    clCreateCommandQueue: clCreateCommandQueue_t,
    clCreateContext: clCreateContext_t,
    clCreateContextFromType: clCreateContextFromType_t,
    clCreateImage: clCreateImage_t,
    clCreateKernel: clCreateKernel_t,
    clCreateKernelsInProgram: clCreateKernelsInProgram_t,
    clCreateProgramWithBinary: clCreateProgramWithBinary_t,
    clCreateProgramWithBuiltInKernels: clCreateProgramWithBuiltInKernels_t,
    clCreateProgramWithIL: clCreateProgramWithIL_t,
    clCreateProgramWithSource: clCreateProgramWithSource_t,
    clCreateSampler: clCreateSampler_t,
    clCreateSubDevices: clCreateSubDevices_t,
    clCreateUserEvent: clCreateUserEvent_t,
    clGetContextInfo: clGetContextInfo_t,
    clGetDeviceIDs: clGetDeviceIDs_t,
    clGetDeviceInfo: clGetDeviceInfo_t,
    clGetHostTimer: clGetHostTimer_t,
    clGetPlatformIDs: clGetPlatformIDs_t,
    clGetPlatformInfo: clGetPlatformInfo_t,
    clGetProgramBuildInfo: clGetProgramBuildInfo_t,
    clGetProgramInfo: clGetProgramInfo_t,
    clGetSupportedImageFormats: clGetSupportedImageFormats_t,
    clLinkProgram: clLinkProgram_t,
    clReleaseContext: clReleaseContext_t,
    clReleaseDevice: clReleaseDevice_t,
    clReleaseProgram: clReleaseProgram_t,
    clRetainContext: clRetainContext_t,
    clRetainDevice: clRetainDevice_t,
    clRetainProgram: clRetainProgram_t,
    clSVMAlloc: clSVMAlloc_t,
    clUnloadPlatformCompiler: clUnloadPlatformCompiler_t,
}

/// Calls a function of OpenCL's loader.
macro_rules! cl {
    ($name:ident($($argument:expr),* $(,)?)) => {{
        let function = loader().$name.expect(stringify!($name));
        // SAFETY: the arguments are good for the call, or bad in a way that the specification has a code for.
        unsafe { function($($argument),*) }
    }};
}

const PLATFORM: &str = "libtally_opencl.so";

fn open(name: &CStr) -> *mut c_void {
    // SAFETY: a library's initialisers may run here.
    unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) }
}

/// OpenCL's loader, with Tally's platform as its only one. It is open to all, as in programs that are linked
/// with it: its functions then take precedence over those of the same name in the platform.
fn loader() -> &'static Functions {
    static LOADER: OnceLock<Functions> = OnceLock::new();
    LOADER.get_or_init(|| {
        let platform =
            ze::beside(PLATFORM).expect("it is not beside the tests: run cargo build first");
        // Both loaders, Khronos' and ocl-icd, know folders with such files.
        let folder = env::temp_dir().join(format!("tally-opencl-list-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a temporary folder can be made");
        std::fs::write(folder.join("tally.icd"), platform.to_str().expect("it is ASCII")).unwrap();
        // SAFETY: each test calls this before anything else, so no other thread reads the environment.
        unsafe { env::set_var("OCL_ICD_VENDORS", &folder) };
        if env::var_os(WITHOUT_LEVEL_ZERO).is_none() {
            ze::driver();
        }
        let library = open(c"libOpenCL.so.1");
        assert!(!library.is_null(), "libOpenCL.so.1 is missing: install ocl-icd-libopencl1");
        let functions = Functions::of(library);
        // The loader reads the list at the first call.
        let first = functions.clGetPlatformIDs.expect("it is there");
        // SAFETY: the place is writable.
        unsafe { first(0, ptr::null_mut(), &mut 0) };
        // If the folder stays, that is no failure.
        let _ = std::fs::remove_dir_all(&folder);
        functions
    })
}

/// Set in a process that computes with nothing but OpenCL.
const WITHOUT_LEVEL_ZERO: &str = "TALLY_TEST_WITHOUT_LEVEL_ZERO";

fn platform() -> cl_platform_id {
    let (mut platform, mut count) = (ptr::null_mut(), 0);
    assert_eq!(cl!(clGetPlatformIDs(1, &mut platform, &mut count)), CL_SUCCESS);
    assert_eq!(count, 1);
    platform
}

fn device() -> cl_device_id {
    let (mut device, mut count) = (ptr::null_mut(), 0);
    let answer = cl!(clGetDeviceIDs(platform(), CL_DEVICE_TYPE_GPU, 1, &mut device, &mut count));
    assert_eq!((answer, count), (CL_SUCCESS, 1));
    device
}

/// A context, which the caller releases.
fn context() -> cl_context {
    let mut code = 1;
    let context = cl!(clCreateContext(ptr::null(), 1, &device(), None, ptr::null_mut(), &mut code));
    assert_eq!(code, CL_SUCCESS);
    context
}

fn from_source(context: cl_context, source: &str) -> cl_program {
    let (mut text, len, mut code) = (source.as_ptr().cast::<c_char>(), source.len(), 1);
    let program = cl!(clCreateProgramWithSource(context, 1, &raw mut text, &len, &mut code));
    assert_eq!(code, CL_SUCCESS);
    program
}

fn build(program: cl_program, options: &str) -> cl_int {
    let options = CString::new(options).unwrap();
    cl!(clBuildProgram(program, 1, &device(), options.as_ptr(), None, ptr::null_mut()))
}

/// What a query answers, with the size asked for first.
fn answer(query: impl Fn(usize, *mut c_void, *mut usize) -> cl_int) -> Vec<u8> {
    let mut size = 0;
    assert_eq!(query(0, ptr::null_mut(), &mut size), CL_SUCCESS);
    let mut bytes = vec![0_u8; size];
    assert_eq!(query(size, bytes.as_mut_ptr().cast(), &mut size), CL_SUCCESS);
    assert_eq!(size, bytes.len());
    if size > 0 {
        assert_eq!(query(size - 1, bytes.as_mut_ptr().cast(), ptr::null_mut()), CL_INVALID_VALUE);
    }
    bytes
}

fn number(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(word)
}

/// Spec: "A null terminated string is returned by OpenCL query function calls if the return type of the
/// information being queried is a char[]."
fn string(bytes: &[u8]) -> String {
    CStr::from_bytes_with_nul(bytes).expect("it is terminated").to_str().unwrap().to_owned()
}

fn of_device(name: cl_device_info) -> Vec<u8> {
    let device = device();
    answer(|size, place, all| cl!(clGetDeviceInfo(device, name, size, place, all)))
}

fn of_program(program: cl_program, name: cl_program_info) -> Vec<u8> {
    answer(|size, place, all| cl!(clGetProgramInfo(program, name, size, place, all)))
}

fn of_build(program: cl_program, name: cl_program_build_info) -> Vec<u8> {
    answer(|size, place, all| cl!(clGetProgramBuildInfo(program, device(), name, size, place, all)))
}

fn binary(program: cl_program) -> Vec<u8> {
    let mut bytes = vec![0; number(&of_program(program, CL_PROGRAM_BINARY_SIZES)) as usize];
    let mut place = bytes.as_mut_ptr();
    let (size, all) = (size_of_val(&place), &raw mut place);
    let got =
        cl!(clGetProgramInfo(program, CL_PROGRAM_BINARIES, size, all.cast(), ptr::null_mut()));
    assert_eq!(got, CL_SUCCESS);
    bytes
}

/// A Level Zero module of a program's binary.
fn module(gpu: &Gpu, binary: &[u8]) -> ze_module_handle_t {
    let desc = ze_module_desc_t {
        format: ze_module_format_t::ZE_MODULE_FORMAT_NATIVE,
        inputSize: binary.len(),
        pInputModule: binary.as_ptr(),
        ..Default::default()
    };
    let mut module = ze_module_handle_t::NULL;
    check!(zeModuleCreate(gpu.context, gpu.device, &desc, &raw mut module, ptr::null_mut()));
    module
}

/// The first four numbers that a kernel writes.
fn run(gpu: &Gpu, binary: &[u8], name: &str) -> Vec<u32> {
    let (module, out) = (module(gpu, binary), gpu.host::<u32>(4));
    gpu.run(module, name, [1, 4], &[&out.address().to_ne_bytes()]);
    check!(zeModuleDestroy(module));
    out.to_vec()
}

const SOURCE: &str = "kernel void fill(global uint *out) {
    size_t i = get_global_id(0);
    out[i] = FACTOR * (uint)i + (uint)sqrt((double)(i * i * 4));
}
kernel void swap(global uint *out) {
    out[get_global_id(0)] = intel_sub_group_shuffle_xor((uint)get_global_id(0), 1);
}";

/// The program finds its Level Zero device among OpenCL's as oneMKL does: by vendor and clock.
#[test]
fn its_devices_are_those_of_level_zero() {
    loader();
    let mut there = ze_device_properties_t::default();
    check!(zeDeviceGetProperties(ze::device(), &raw mut there));
    assert_eq!(number(&of_device(CL_DEVICE_VENDOR_ID)), there.vendorId.into());
    assert_eq!(number(&of_device(CL_DEVICE_MAX_CLOCK_FREQUENCY)), there.coreClockRate.into());
    assert_eq!(number(&of_device(CL_DEVICE_MAX_MEM_ALLOC_SIZE)), there.maxMemAllocSize);
    let units = there.numSlices * there.numSubslicesPerSlice * there.numEUsPerSubslice;
    assert_eq!(number(&of_device(CL_DEVICE_MAX_COMPUTE_UNITS)), units.into());
    // SAFETY: the driver terminates the name.
    let name = unsafe { CStr::from_ptr(there.name.as_ptr()) }.to_str().unwrap();
    assert_eq!(string(&of_device(CL_DEVICE_NAME)), name);
    assert_eq!(number(&of_device(CL_DEVICE_TYPE)), CL_DEVICE_TYPE_GPU);
    assert_eq!(number(&of_device(CL_DEVICE_PLATFORM)), platform() as u64);
    assert_eq!(of_device(CL_DEVICE_MAX_WORK_ITEM_SIZES).len(), 24);
    assert_ne!(number(&of_device(CL_DEVICE_DOUBLE_FP_CONFIG)) & CL_FP_FMA, 0);
    assert!(string(&of_device(CL_DEVICE_IL_VERSION)).starts_with("SPIR-V_1."));
    // oneDNN finds it by the uuid, and asks for these before it builds.
    assert_eq!(of_device(CL_DEVICE_UUID_KHR), there.uuid.id);
    let mut version = ze_device_ip_version_ext_t::default();
    let mut chained =
        ze_device_properties_t { pNext: (&raw mut version).cast(), ..Default::default() };
    check!(zeDeviceGetProperties(ze::device(), &raw mut chained));
    assert_eq!(number(&of_device(CL_DEVICE_IP_VERSION_INTEL)), version.ipVersion.into());
    assert_eq!(number(&of_device(CL_DEVICE_ID_INTEL)), there.deviceId.into());
    let mut access = ze_device_memory_access_properties_t::default();
    check!(zeDeviceGetMemoryAccessProperties(ze::device(), &raw mut access));
    let system = u64::from(access.sharedSystemAllocCapabilities.bits());
    assert_eq!(number(&of_device(CL_DEVICE_SHARED_SYSTEM_MEM_CAPABILITIES_INTEL)), system);
    let mut atomics = ze_float_atomic_ext_properties_t::default();
    let mut module =
        ze_device_module_properties_t { pNext: (&raw mut atomics).cast(), ..Default::default() };
    check!(zeDeviceGetModuleProperties(ze::device(), &raw mut module));
    for (query, flags) in
        [(0x4231, atomics.fp32Flags), (0x4232, atomics.fp64Flags), (0x4233, atomics.fp16Flags)]
    {
        assert_eq!(number(&of_device(query)), flags.bits().into(), "{query:#x}");
    }
    let parameters = number(&of_device(CL_DEVICE_MAX_PARAMETER_SIZE));
    assert_eq!(parameters, module.maxArgumentsSize.into());
    assert!(number(&of_device(CL_DEVICE_GLOBAL_MEM_CACHE_SIZE)) > 0);
    assert_eq!(string(&of_device(CL_DEVICE_VENDOR)), "Tally");
    // It compiles, and runs nothing.
    assert_eq!(number(&of_device(CL_DEVICE_COMPILER_AVAILABLE)), 1);
    assert_eq!(number(&of_device(CL_DEVICE_AVAILABLE)), 0);
    assert_eq!(number(&of_device(CL_DEVICE_EXECUTION_CAPABILITIES)), 0);
    let mut size = 0;
    let unknown = cl!(clGetDeviceInfo(device(), 0x7777, 0, ptr::null_mut(), &mut size));
    assert_eq!(unknown, CL_INVALID_VALUE);
}

/// "clGetDeviceIDs may return all or a subset of the actual physical devices present in the platform and that
/// match device_type": who asks for all devices wants to compute on them, as SYCL does.
#[test]
fn only_who_asks_for_gpus_finds_them() {
    let platform = platform();
    let find = |kind, room, place| {
        let mut count = 77;
        (cl!(clGetDeviceIDs(platform, kind, room, place, &mut count)), count)
    };
    let none = ptr::null_mut();
    assert_eq!(find(CL_DEVICE_TYPE_GPU, 0, none), (CL_SUCCESS, 1));
    for kind in
        [CL_DEVICE_TYPE_ALL, CL_DEVICE_TYPE_DEFAULT, CL_DEVICE_TYPE_CPU, CL_DEVICE_TYPE_ACCELERATOR]
    {
        assert_eq!(find(kind, 0, none), (CL_DEVICE_NOT_FOUND, 0), "{kind:#x}");
    }
    assert_eq!(find(0, 0, none), (CL_INVALID_DEVICE_TYPE, 77));
    assert_eq!(find(1 << 20, 0, none), (CL_INVALID_DEVICE_TYPE, 77));
    // "CL_INVALID_VALUE if num_entries is equal to zero and devices is not NULL or if both num_devices and devices
    // are NULL."
    assert_eq!(find(CL_DEVICE_TYPE_GPU, 0, &mut ptr::null_mut()), (CL_INVALID_VALUE, 77));
    let nothing = cl!(clGetDeviceIDs(platform, CL_DEVICE_TYPE_GPU, 0, none, ptr::null_mut()));
    assert_eq!(nothing, CL_INVALID_VALUE);
    let mut code = 1;
    let made = cl!(clCreateContextFromType(
        ptr::null(),
        CL_DEVICE_TYPE_ALL,
        None,
        ptr::null_mut(),
        &mut code
    ));
    assert!(made.is_null() && code == CL_DEVICE_NOT_FOUND);
    let made = cl!(clCreateContextFromType(
        ptr::null(),
        CL_DEVICE_TYPE_GPU,
        None,
        ptr::null_mut(),
        &mut code
    ));
    assert_eq!(code, CL_SUCCESS);
    assert_eq!(cl!(clReleaseContext(made)), CL_SUCCESS);
    let text = |name| {
        string(&answer(|size, place, all| cl!(clGetPlatformInfo(platform, name, size, place, all))))
    };
    assert_eq!(text(CL_PLATFORM_NAME), "Tally");
    assert!(text(CL_PLATFORM_VERSION).starts_with("OpenCL 3.0 "));
    assert!(text(CL_PLATFORM_EXTENSIONS).split(' ').any(|it| it == "cl_khr_icd"));
}

#[test]
fn a_program_is_compiled_here_and_runs_with_level_zero() {
    let (context, gpu) = (context(), Gpu::new());
    let program = from_source(context, SOURCE);
    assert_eq!(number(&of_build(program, CL_PROGRAM_BUILD_STATUS)) as i32, CL_BUILD_NONE);
    assert_eq!(build(program, "-DFACTOR=3 -cl-std=CL2.0"), CL_SUCCESS);
    assert_eq!(number(&of_build(program, CL_PROGRAM_BUILD_STATUS)) as i32, CL_BUILD_SUCCESS);
    assert_eq!(string(&of_build(program, CL_PROGRAM_BUILD_OPTIONS)), "-DFACTOR=3 -cl-std=CL2.0");
    let kind = number(&of_build(program, CL_PROGRAM_BINARY_TYPE)) as cl_uint;
    assert_eq!(kind, CL_PROGRAM_BINARY_TYPE_EXECUTABLE);
    assert_eq!(run(&gpu, &binary(program), "fill"), [0, 5, 10, 15]);
    assert_eq!(run(&gpu, &binary(program), "swap"), [1, 0, 3, 2], "as oneMKL's kernels do");
    // A program may be built again, with other options.
    assert_eq!(build(program, "-D FACTOR=10 -cl-intel-256-GRF-per-thread"), CL_SUCCESS);
    assert_eq!(run(&gpu, &binary(program), "fill"), [0, 12, 24, 36]);
    // "clCreateProgramWithSource [...] OpenCL source code": what it was made of can be asked for.
    assert_eq!(string(&of_program(program, CL_PROGRAM_SOURCE)), SOURCE);
    assert_eq!(number(&of_program(program, CL_PROGRAM_NUM_DEVICES)), 1);
    assert_eq!(number(&of_program(program, CL_PROGRAM_DEVICES)), device() as u64);
    assert_eq!(cl!(clReleaseProgram(program)), CL_SUCCESS);
    assert_eq!(cl!(clReleaseContext(context)), CL_SUCCESS);
}

/// "If pfn_notify is not NULL, clBuildProgram [...] can return immediately": the function is called at the end
/// of a build, also of one that fails.
#[test]
fn wrong_programs_have_a_log() {
    unsafe extern "C" fn note(_: cl_program, told: *mut c_void) {
        // SAFETY: the test's own number.
        unsafe { *told.cast::<u32>() += 1 };
    }
    let context = context();
    let program = from_source(context, "kernel void fill(global uint *out) { out[0] = missing; }");
    let mut told = 0_u32;
    let place = (&raw mut told).cast();
    let built = cl!(clBuildProgram(program, 0, ptr::null(), ptr::null(), Some(note), place));
    assert_eq!((built, told), (CL_BUILD_PROGRAM_FAILURE, 1));
    assert_eq!(number(&of_build(program, CL_PROGRAM_BUILD_STATUS)) as i32, CL_BUILD_ERROR);
    let log = string(&of_build(program, CL_PROGRAM_BUILD_LOG));
    assert!(log.contains("error") && log.contains("missing"), "{log}");
    assert_eq!(binary(program), []);
    // "CL_INVALID_BUILD_OPTIONS if the build options specified by options are invalid."
    for wrong in ["-fno-such-option", "-DA=\"b"] {
        assert_eq!(build(program, wrong), CL_INVALID_BUILD_OPTIONS, "{wrong}");
        let log = string(&of_build(program, CL_PROGRAM_BUILD_LOG));
        assert!(log.contains(wrong), "{log}");
    }
    // "CL_INVALID_VALUE if device_list is NULL and num_devices is greater than zero", "if pfn_notify is NULL but
    // user_data is not NULL".
    let none = ptr::null_mut();
    assert_eq!(
        cl!(clBuildProgram(program, 1, ptr::null(), ptr::null(), None, none)),
        CL_INVALID_VALUE
    );
    let one = device();
    assert_eq!(cl!(clBuildProgram(program, 0, &one, ptr::null(), None, none)), CL_INVALID_VALUE);
    assert_eq!(
        cl!(clBuildProgram(program, 0, ptr::null(), ptr::null(), None, place)),
        CL_INVALID_VALUE
    );
    let other = context as cl_device_id;
    assert_eq!(cl!(clBuildProgram(program, 1, &other, ptr::null(), None, none)), CL_INVALID_DEVICE);
    assert_eq!(cl!(clReleaseProgram(program)), CL_SUCCESS);
    assert_eq!(cl!(clReleaseContext(context)), CL_SUCCESS);
}

/// Sources may come in pieces: "If an element in lengths is zero, its accompanying string is null-terminated."
#[test]
fn sources_are_joined() {
    let (context, gpu) = (context(), Gpu::new());
    let pieces = [c"kernel void fill(global uint", c" *out) { out[3]", c" = 9; }", c"wrong"];
    let mut texts = pieces.map(|piece| piece.as_ptr());
    let (lengths, mut code) = ([0, pieces[1].count_bytes(), 0, 0], 1);
    let create = |count, texts: *mut *const c_char, lengths, code: &mut cl_int| {
        cl!(clCreateProgramWithSource(context, count, texts, lengths, code))
    };
    let program = create(3, texts.as_mut_ptr(), lengths.as_ptr(), &mut code);
    assert_eq!((code, build(program, "")), (CL_SUCCESS, CL_SUCCESS));
    assert_eq!(run(&gpu, &binary(program), "fill"), [0, 0, 0, 9]);
    // "CL_INVALID_VALUE if count is zero or if strings or any entry in strings is NULL."
    assert!(create(0, texts.as_mut_ptr(), ptr::null(), &mut code).is_null());
    assert_eq!(code, CL_INVALID_VALUE);
    assert!(create(1, ptr::null_mut(), ptr::null(), &mut code).is_null());
    assert_eq!(code, CL_INVALID_VALUE);
    texts[1] = ptr::null();
    assert!(create(2, texts.as_mut_ptr(), ptr::null(), &mut code).is_null());
    assert_eq!(code, CL_INVALID_VALUE);
    assert_eq!(cl!(clReleaseProgram(program)), CL_SUCCESS);
    assert_eq!(cl!(clReleaseContext(context)), CL_SUCCESS);
}

#[test]
fn spirv_and_binaries_are_taken() {
    let (context, gpu) = (context(), Gpu::new());
    let spirv = ze::spirv_from("kernel void fill(global uint *out) { out[1] = 8; }");
    let from_il = |bytes: &[u8]| {
        let mut code = 1;
        let program =
            cl!(clCreateProgramWithIL(context, bytes.as_ptr().cast(), bytes.len(), &mut code));
        (program, code)
    };
    let (program, code) = from_il(&spirv);
    assert_eq!((code, build(program, "")), (CL_SUCCESS, CL_SUCCESS));
    assert_eq!(of_program(program, CL_PROGRAM_IL), spirv);
    let bytes = binary(program);
    assert_eq!(run(&gpu, &bytes, "fill"), [0, 8, 0, 0]);
    // CL_INVALID_VALUE "if the length-byte memory pointed to by il does not contain well-formed intermediate
    // language input".
    for wrong in [&spirv[1..], &spirv[..6], b"kernel void fill", &[]] {
        assert_eq!(from_il(wrong), (ptr::null_mut(), CL_INVALID_VALUE));
    }
    let from_binary = |bytes: &[u8]| {
        let (len, mut place, mut status, mut code) = (bytes.len(), bytes.as_ptr(), 1, 1);
        let (device, places) = (device(), &raw mut place);
        let program = cl!(clCreateProgramWithBinary(
            context,
            1,
            &device,
            &len,
            places,
            &mut status,
            &mut code
        ));
        (program, status, code)
    };
    let (again, status, code) = from_binary(&bytes);
    assert_eq!((status, code, build(again, "")), (CL_SUCCESS, CL_SUCCESS, CL_SUCCESS));
    assert_eq!(binary(again), bytes);
    // "CL_INVALID_BINARY if an invalid program binary was encountered for any device. binary_status will return
    // specific status for each device."
    let changed = |at: usize| {
        let mut bytes = bytes.clone();
        bytes[at] ^= 1;
        bytes
    };
    for wrong in [bytes[..bytes.len() - 4].to_vec(), changed(0), changed(40), spirv.clone()] {
        let missing = (ptr::null_mut(), CL_INVALID_BINARY, CL_INVALID_BINARY);
        assert_eq!(from_binary(&wrong), missing);
    }
    assert_eq!(cl!(clReleaseProgram(again)), CL_SUCCESS);
    assert_eq!(cl!(clReleaseProgram(program)), CL_SUCCESS);
    assert_eq!(cl!(clReleaseContext(context)), CL_SUCCESS);
}

/// "After the context reference count becomes zero and all the objects attached to context [...] are released,
/// the context is deleted."
#[test]
fn objects_live_as_long_as_something_refers_to_them() {
    let context = context();
    let references = || {
        let of = |size, place, all| {
            cl!(clGetContextInfo(context, CL_CONTEXT_REFERENCE_COUNT, size, place, all))
        };
        number(&answer(of))
    };
    assert_eq!(references(), 1);
    let program = from_source(context, SOURCE);
    assert_eq!(cl!(clRetainContext(context)), CL_SUCCESS);
    assert_eq!(references(), 3, "the program has one");
    assert_eq!(cl!(clReleaseContext(context)), CL_SUCCESS);
    assert_eq!(cl!(clReleaseContext(context)), CL_SUCCESS);
    assert_eq!(number(&of_program(program, CL_PROGRAM_CONTEXT)), context as u64);
    assert_eq!(references(), 1);
    assert_eq!(cl!(clRetainProgram(program)), CL_SUCCESS);
    assert_eq!(number(&of_program(program, CL_PROGRAM_REFERENCE_COUNT)), 2);
    assert_eq!(cl!(clReleaseProgram(program)), CL_SUCCESS);
    // Each function takes its own kind.
    assert_eq!(cl!(clRetainContext(program)), CL_INVALID_CONTEXT);
    assert_eq!(cl!(clReleaseContext(device())), CL_INVALID_CONTEXT);
    assert_eq!(cl!(clRetainProgram(context)), CL_INVALID_PROGRAM);
    assert_eq!(cl!(clReleaseDevice(context)), CL_INVALID_DEVICE);
    assert_eq!(cl!(clReleaseProgram(program)), CL_SUCCESS);
    // "If device is a root level device i.e. a cl_device_id returned by clGetDeviceIDs, the device reference count
    // is not changed."
    assert_eq!(cl!(clRetainDevice(device())), CL_SUCCESS);
    assert_eq!(number(&of_device(CL_DEVICE_REFERENCE_COUNT)), 1);
}

#[test]
fn contexts_are_refused_in_the_terms_of_the_specification() {
    let one = device();
    let create = |properties: &[cl_context_properties], count, devices| {
        let mut code = 1;
        let properties = if properties.is_empty() { ptr::null() } else { properties.as_ptr() };
        let made =
            cl!(clCreateContext(properties, count, devices, None, ptr::null_mut(), &mut code));
        (made, code)
    };
    let refused = |code| (ptr::null_mut(), code);
    assert_eq!(create(&[], 0, &one), refused(CL_INVALID_VALUE));
    assert_eq!(create(&[], 1, &platform()), refused(CL_INVALID_DEVICE));
    let name = CL_CONTEXT_PLATFORM as cl_context_properties;
    let own = platform() as cl_context_properties;
    assert_eq!(create(&[name, own, name, own, 0], 1, &one), refused(CL_INVALID_PROPERTY));
    assert_eq!(create(&[0x7777, 1, 0], 1, &one), refused(CL_INVALID_PROPERTY));
    assert_eq!(
        create(&[name, one as cl_context_properties, 0], 1, &one),
        refused(CL_INVALID_PLATFORM)
    );
    let (context, code) = create(&[name, own, 0], 1, &one);
    assert_eq!(code, CL_SUCCESS);
    let of =
        |size, place, all| cl!(clGetContextInfo(context, CL_CONTEXT_PROPERTIES, size, place, all));
    assert_eq!(answer(of).len(), 24);
    assert_eq!(cl!(clReleaseContext(context)), CL_SUCCESS);
}

#[test]
fn what_there_is_not_answers_an_error() {
    let (context, device) = (context(), device());
    let program = from_source(context, SOURCE);
    assert_eq!(build(program, "-DFACTOR=1"), CL_SUCCESS);
    let (none, mut code) = (ptr::null_mut::<c_void>(), 1);
    macro_rules! nothing {
        ($call:expr, $code:expr) => {
            assert!($call.is_null());
            assert_eq!(code, $code, stringify!($call));
        };
    }
    nothing!(cl!(clCreateCommandQueue(context, device, 0, &mut code)), CL_INVALID_OPERATION);
    nothing!(cl!(clCreateBuffer(context, 0, 64, none, &mut code)), CL_INVALID_OPERATION);
    nothing!(
        cl!(clCreateImage(context, 0, ptr::null(), ptr::null(), none, &mut code)),
        CL_INVALID_OPERATION
    );
    nothing!(cl!(clCreateSampler(context, 0, 0, 0, &mut code)), CL_INVALID_OPERATION);
    nothing!(cl!(clCreateUserEvent(context, &mut code)), CL_INVALID_OPERATION);
    nothing!(
        cl!(clCreateKernel(program, c"fill".as_ptr(), &mut code)),
        CL_INVALID_PROGRAM_EXECUTABLE
    );
    nothing!(
        cl!(clCreateProgramWithBuiltInKernels(context, 1, &device, c"fill".as_ptr(), &mut code)),
        CL_INVALID_VALUE
    );
    nothing!(
        cl!(clLinkProgram(
            context,
            0,
            ptr::null(),
            ptr::null(),
            1,
            &program,
            None,
            none,
            &mut code
        )),
        CL_LINKER_NOT_AVAILABLE
    );
    let compiled = cl!(clCompileProgram(
        program,
        0,
        ptr::null(),
        ptr::null(),
        0,
        ptr::null(),
        ptr::null_mut(),
        None,
        none
    ));
    assert_eq!(compiled, CL_INVALID_OPERATION);
    assert!(cl!(clSVMAlloc(context, 0, 64, 0)).is_null());
    let all = cl!(clCreateKernelsInProgram(program, 0, ptr::null_mut(), ptr::null_mut()));
    assert_eq!(all, CL_INVALID_PROGRAM_EXECUTABLE);
    let mut count = 77;
    let formats = cl!(clGetSupportedImageFormats(context, 0, 0, 0, ptr::null_mut(), &mut count));
    assert_eq!((formats, count), (CL_SUCCESS, 0));
    let parts = cl!(clCreateSubDevices(device, ptr::null(), 0, ptr::null_mut(), ptr::null_mut()));
    assert_eq!(parts, CL_INVALID_VALUE);
    // "CL_DEVICE_PARTITION_FAILED if the partition name is supported by the implementation but in_device could not
    // be further partitioned": oneDNN goes on then, and with no other code.
    let next = CL_DEVICE_AFFINITY_DOMAIN_NEXT_PARTITIONABLE as cl_device_partition_property;
    let by = [CL_DEVICE_PARTITION_BY_AFFINITY_DOMAIN, next, 0];
    let parts = cl!(clCreateSubDevices(device, by.as_ptr(), 0, ptr::null_mut(), &mut count));
    assert_eq!(parts, CL_DEVICE_PARTITION_FAILED);
    assert_eq!(cl!(clGetHostTimer(device, &mut 0)), CL_INVALID_OPERATION);
    assert_eq!(cl!(clUnloadPlatformCompiler(platform())), CL_SUCCESS);
    assert_eq!(cl!(clReleaseProgram(program)), CL_SUCCESS);
    assert_eq!(cl!(clReleaseContext(context)), CL_SUCCESS);
}

/// Intel's libraries take devices of platforms with "Intel" in the name only.
#[test]
fn a_device_that_passes_for_intels_is_in_intels_platform() {
    let variables = [("TALLY_DEVICE_AS", "uhd-630")];
    ze::in_child("child_that_passes_for_intels", &variables);
}

#[test]
#[ignore = "runs in a child process"]
fn child_that_passes_for_intels() {
    let platform = platform();
    let text = |name| {
        string(&answer(|size, place, all| cl!(clGetPlatformInfo(platform, name, size, place, all))))
    };
    assert!(text(CL_PLATFORM_NAME).starts_with("Intel(R) OpenCL"));
    assert_eq!(text(CL_PLATFORM_VENDOR), "Intel(R) Corporation");
    assert_eq!(number(&of_device(CL_DEVICE_VENDOR_ID)), 0x8086);
    assert_eq!(number(&of_device(CL_DEVICE_IP_VERSION_INTEL)), 0x0240_4009);
    assert_eq!(string(&of_device(CL_DEVICE_NAME)), "Intel(R) UHD Graphics 630");
}

/// A program that only uses OpenCL gets no platform on which nothing runs.
#[test]
fn without_level_zero_there_is_no_platform() {
    ze::in_child("child_without_level_zero", &[(WITHOUT_LEVEL_ZERO, "1")]);
}

#[test]
#[ignore = "runs in a child process"]
fn child_without_level_zero() {
    let mut count = 77;
    let answer = cl!(clGetPlatformIDs(0, ptr::null_mut(), &mut count));
    assert!(
        count == 0 && [CL_PLATFORM_NOT_FOUND_KHR, CL_SUCCESS].contains(&answer),
        "{answer} {count}"
    );
}

/// "CL_COMPILER_NOT_AVAILABLE if program is created with clCreateProgramWithSource and a compiler is not
/// available"; the log says what to install.
#[test]
fn without_a_compiler_the_log_says_what_to_install() {
    ze::in_child("child_without_a_compiler", &[]);
}

#[test]
#[ignore = "runs in a child process"]
fn child_without_a_compiler() {
    let context = context();
    // SAFETY: there is one thread in this child, and the loader is open.
    unsafe { env::set_var("PATH", "/nonexistent") };
    let program = from_source(context, SOURCE);
    assert_eq!(build(program, "-DFACTOR=1"), CL_COMPILER_NOT_AVAILABLE);
    let log = string(&of_build(program, CL_PROGRAM_BUILD_LOG));
    assert!(log.contains("install intel-opencl-rt") && log.contains("clang"), "{log}");
}

/// The folder of Intel's library, here of a stand-in.
const FOLDER: &str = "TALLY_TEST_CLANG_FOLDER";

/// Intel's front end is taken where it is: beside a library that the process has loaded.
#[test]
fn intels_library_is_used_if_there_is_one() {
    let folder = env::temp_dir().join(format!("tally-opencl-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a temporary folder can be made");
    let library = folder.join("libcommon_clang.so");
    let source = ze::file("tests/opencl/fake_clang.c");
    let gcc = Command::new("gcc")
        .args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o"])
        .args([&library, &source])
        .status();
    assert!(gcc.expect("gcc is there").success());
    ze::in_child("child_with_intels_library", &[(FOLDER, folder.to_str().unwrap())]);
    // If the folder stays, that is no failure.
    let _ = std::fs::remove_dir_all(&folder);
}

#[test]
#[ignore = "runs in a child process"]
fn child_with_intels_library() {
    let context = context();
    let folder = PathBuf::from(env::var_os(FOLDER).expect("the test sets it"));
    let path = CString::new(folder.join("libcommon_clang.so").to_str().unwrap()).unwrap();
    assert!(!open(&path).is_null());
    let outcome = |source: &str, options: &str| {
        let program = from_source(context, source);
        let code = build(program, options);
        let log = string(&of_build(program, CL_PROGRAM_BUILD_LOG));
        let bytes = binary(program);
        assert_eq!(cl!(clReleaseProgram(program)), CL_SUCCESS);
        (code, log, String::from_utf8_lossy(&bytes).into_owned())
    };
    let (code, log, told) = outcome("good", "-DA=1 -cl-intel-no-such -cl-mad-enable");
    assert_eq!((code, &log[..]), (CL_SUCCESS, "a remark"));
    assert!(told.contains("-DA=1 -cl-mad-enable|-emit-spirv "), "{told}");
    assert!(told.contains("|300\0"), "{told}");
    let (code, log, told) = outcome("wrong", "");
    assert_eq!(
        (code, &log[..], &told[..]),
        (CL_BUILD_PROGRAM_FAILURE, "1:1: error: it is wrong", "")
    );
    let (code, log, _) = outcome("options", "-x");
    assert!(code == CL_INVALID_BUILD_OPTIONS && log.contains("-x"), "{code} {log}");
    let (code, log, _) = outcome("none", "");
    assert!(code == CL_BUILD_PROGRAM_FAILURE && log.contains("no SPIR-V"), "{code} {log}");
    // The compiler's end is not the program's.
    let (code, log, _) = outcome("crash", "");
    assert!(code == CL_BUILD_PROGRAM_FAILURE && log.contains("failed"), "{code} {log}");
    assert_eq!(cl!(clReleaseContext(context)), CL_SUCCESS);
}

/// A platform without the rest of Tally beside it has no devices, and no process that compiles.
#[test]
fn a_library_alone_has_no_devices() {
    let folder = env::temp_dir().join(format!("tally-opencl-alone-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a temporary folder can be made");
    let alone = folder.join(PLATFORM);
    std::fs::copy(ze::beside(PLATFORM).unwrap(), &alone).expect("a file can be copied");
    ze::in_child("child_with_the_library_alone", &[(FOLDER, alone.to_str().unwrap())]);
    let _ = std::fs::remove_dir_all(&folder);
}

#[test]
#[ignore = "runs in a child process"]
fn child_with_the_library_alone() {
    ze::driver();
    let alone = env::var_os(FOLDER).expect("the test sets it");
    let alone = CString::new(Path::new(&alone).to_str().unwrap()).unwrap();
    // Without a loader, since the one above has the other library.
    let library = open(&alone);
    assert!(!library.is_null());
    type Ids = unsafe extern "C" fn(cl_uint, *mut cl_platform_id, *mut cl_uint) -> cl_int;
    let mut platform: cl_platform_id = ptr::null_mut();
    // SAFETY: the function of this name has this type; a platform begins with the table of functions.
    let answer = unsafe {
        let ids = libc::dlsym(library, c"clIcdGetPlatformIDsKHR".as_ptr());
        let ids = mem::transmute::<*mut c_void, Ids>(ids);
        assert_eq!(ids(1, &mut platform, ptr::null_mut()), CL_SUCCESS);
        let table = *platform.cast::<*const cl_icd::cl_icd_dispatch>();
        let find = (*table).clGetDeviceIDs.expect("it is there");
        find(platform, CL_DEVICE_TYPE_GPU, 0, ptr::null_mut(), &mut 0)
    };
    assert_eq!(answer, CL_DEVICE_NOT_FOUND);
}
