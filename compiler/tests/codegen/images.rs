// SPDX-License-Identifier: MIT OR Apache-2.0
//! Images: compiled code, the interpreter and a plain reference agree about every format, kind,
//! addressing mode and filter.

use tally_compiler::interp::{self, Launch, Memory};
use tally_compiler::ir::{Module, Op};
use tally_compiler::widen::{lanes, widen};
use tally_compiler_protocol::TargetCpu;

use crate::guarded::Guarded;
use crate::harness::{Arg, Grid, Kernel, buffer, clang, module, value, widths};
use crate::reference::{Image, KINDS, LAYOUTS, Rng};

/// Work-items of a run: two whole vectors of any width, and some more.
const ITEMS: usize = 72;

/// Runs a kernel of `images.cl` in the interpreter. `image` is read and written back.
fn interpret(
    module: &Module,
    name: &str,
    image: &mut Image,
    sampler: Option<u64>,
    buffers: [&mut [u32]; 2],
) {
    let (index, _) = module.kernel(name).unwrap_or_else(|| panic!("no kernel {name}"));
    let descriptor = image.descriptor();
    let at = descriptor.as_ptr() as u64;
    let mut memory = Memory::new();
    let map = |memory: &mut Memory, address: u64, bytes: Vec<u8>| {
        memory.map(address, bytes).expect("buffers do not overlap");
    };
    map(&mut memory, at, descriptor.to_vec());
    map(&mut memory, image.bytes.as_ptr() as u64, image.bytes.clone());
    let bytes = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let mut args = vec![interp::Arg::pointer(at)];
    args.extend(sampler.map(|word| interp::Arg::Bytes(word.to_le_bytes().to_vec())));
    for words in &buffers {
        map(&mut memory, words.as_ptr() as u64, bytes(words));
        args.push(interp::Arg::pointer(words.as_ptr() as u64));
    }
    let launch = Launch::linear(ITEMS as u64, 40);
    interp::run(module, index, &launch, &args, &mut memory).unwrap_or_else(|e| panic!("{e}"));
    for words in buffers {
        let bytes = memory.buffer(words.as_ptr() as u64).expect("it is mapped");
        for (word, bytes) in words.iter_mut().zip(bytes.chunks(4)) {
            *word = u32::from_le_bytes(bytes.try_into().expect("four bytes"));
        }
    }
    let bytes = memory.buffer(image.bytes.as_ptr() as u64).expect("it is mapped").to_vec();
    image.bytes.copy_from_slice(&bytes);
}

/// Runs the compiled kernel.
fn execute(kernel: &Kernel, image: &Image, sampler: Option<u64>, buffers: [&mut [u32]; 2]) {
    let descriptor = image.descriptor();
    let mut args = vec![value(descriptor.as_ptr() as u64)];
    args.extend(sampler.map(value));
    args.extend(buffers.map(buffer).into_iter().collect::<Vec<Arg<'_>>>());
    kernel.run(Grid::line(ITEMS as u64, 40), args);
}

/// A kernel for each processor and width. The library has forms of its own for SSE4.1, and for 8 items.
fn kernels(module: &Module, name: &str) -> Vec<Kernel> {
    let more = [("x86-64-v2", 16), ("x86-64-v2", 8), ("x86-64-v3", 8)];
    let more =
        more.map(|(name, lanes)| (TargetCpu { name: name.into(), features: String::new() }, lanes));
    let all = widths().into_iter().chain(more);
    all.map(|(target, lanes)| Kernel::with_lanes(module, name, &target, lanes)).collect()
}

/// The same bits, or both NaN.
fn same(a: u32, b: u32) -> bool {
    a == b || (f32::from_bits(a).is_nan() && f32::from_bits(b).is_nan())
}

/// OpenCL C, "Image Addressing and Filtering": every format, kind, addressing mode, filter and kind of
/// coordinates. The interpreter and compiled code give the same bits; the reference, which computes
/// with more digits, is close to them.
#[test]
fn sampling_is_what_opencl_says() {
    let module = module(&clang::compile("images.cl", &["-O2"]));
    let mut rng = Rng(1);
    for kind in KINDS.into_iter().filter(|kind| kind.name != "1d_buffer") {
        let names = [format!("sample_{}", kind.name), format!("sample_int_{}", kind.name)];
        let both = names.clone().map(|name| kernels(&module, &name));
        for (number, layout) in LAYOUTS.iter().enumerate() {
            for &channel in layout.channels {
                for sampler in 0..40_u64 {
                    let (address, normalized) = (sampler & 7, sampler & 8 != 0);
                    // Results that OpenCL leaves undefined are not compared: repeated unnormalised
                    // coordinates. Of the other combinations each format tests a part.
                    if address > 4 || (address > 2 && !normalized) || rng.below(5) > 1 {
                        continue;
                    }
                    let mut image = Image::random(&mut rng, kind, layout, channel);
                    let at = image.coordinates(&mut rng, ITEMS, normalized);
                    let integers = usize::from(channel < 2);
                    let mut at: Vec<u32> = at.iter().flatten().map(|c| c.to_bits()).collect();
                    let mut plain = vec![0_u32; 4 * ITEMS];
                    let name = &names[integers];
                    let case =
                        format!("{name}, layout {number}, type {channel}, sampler {sampler}");
                    let kernels = &both[integers];
                    let kernel = &kernels[sampler as usize % kernels.len()];
                    let mut code = vec![0_u32; 4 * ITEMS];
                    execute(kernel, &image, Some(sampler), [&mut at, &mut code]);
                    interpret(&module, name, &mut image, Some(sampler), [&mut at, &mut plain]);
                    for i in 0..ITEMS {
                        let place: Vec<f32> =
                            (0..4).map(|c| f32::from_bits(at[4 * i + c])).collect();
                        let want = image.sample(sampler, [0, 1, 2].map(|c| f64::from(place[c])));
                        for c in 0..4 {
                            let (a, b) = (code[4 * i + c], plain[4 * i + c]);
                            assert!(
                                same(a, b),
                                "{case} at {place:?}: code {a:#x}, interpreter {b:#x}"
                            );
                            image.check(a, want[c]).unwrap_or_else(|why| {
                                panic!("{case} at {place:?}, channel {c}: {why}; {image:?}")
                            });
                        }
                    }
                }
            }
        }
    }
}

/// Out-of-range integers, infinities and NaN as coordinates access no memory outside of the image.
#[test]
fn no_coordinate_leaves_the_image() {
    let module = module(&clang::compile("images.cl", &["-O2"]));
    let mut rng = Rng(2);
    let wild = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 3e38, -3e38, 2147483648.0, -0.5, 1e-40];
    for kind in KINDS.into_iter().filter(|kind| kind.name != "1d_buffer") {
        let name = format!("sample_{}", kind.name);
        for kernel in kernels(&module, &name) {
            for sampler in (0..32_u64).filter(|it| it & 7 < 5) {
                // One component, or four.
                let layout = &LAYOUTS[3 * rng.below(2)];
                let mut image = Image::random(&mut rng, kind, layout, 2);
                let mut at: Vec<u32> =
                    (0..4 * ITEMS).map(|_| wild[rng.below(wild.len())].to_bits()).collect();
                let (mut code, mut plain) = (vec![0_u32; 4 * ITEMS], vec![0_u32; 4 * ITEMS]);
                execute(&kernel, &image, Some(sampler), [&mut at, &mut code]);
                interpret(&module, &name, &mut image, Some(sampler), [&mut at, &mut plain]);
                let agree = code.iter().zip(&plain).all(|(&a, &b)| same(a, b));
                assert!(agree, "{name} with sampler {sampler}");
            }
        }
    }
}

/// The last texel may end where its page does, and the next page be inaccessible: no more than the texel is read.
#[test]
fn texels_end_where_pages_do() {
    let module = module(&clang::compile("images.cl", &["-O2"]));
    let mut rng = Rng(5);
    for kind in KINDS.into_iter().filter(|kind| kind.name == "2d" || kind.name == "3d") {
        let all =
            ["sample", "sample_int"].map(|it| kernels(&module, &format!("{it}_{}", kind.name)));
        for (number, layout) in LAYOUTS.iter().enumerate() {
            for &channel in layout.channels {
                // To the edge, with and without a filter.
                for sampler in [1, 17] {
                    let image = Image::random(&mut rng, kind, layout, channel);
                    let at = image.coordinates(&mut rng, ITEMS, false);
                    let mut at: Vec<u32> = at.iter().flatten().map(|c| c.to_bits()).collect();
                    let kernels = &all[usize::from(channel < 2)];
                    let kernel = &kernels[rng.below(kernels.len())];
                    let (mut want, mut got) = (vec![0_u32; 4 * ITEMS], vec![1_u32; 4 * ITEMS]);
                    execute(kernel, &image, Some(sampler), [&mut at, &mut want]);
                    let mut pages = Guarded::new(image.extent());
                    let texels = pages.last(image.extent());
                    texels.copy_from_slice(&image.bytes[..image.extent()]);
                    let mut descriptor = image.descriptor();
                    descriptor[..8].copy_from_slice(&(texels.as_ptr() as u64).to_le_bytes());
                    let args = vec![value(descriptor.as_ptr() as u64), value(sampler)];
                    let buffers = [&mut at[..], &mut got[..]].map(buffer);
                    kernel.run(
                        Grid::line(ITEMS as u64, 40),
                        args.into_iter().chain(buffers).collect(),
                    );
                    let agree = want.iter().zip(&got).all(|(&a, &b)| same(a, b));
                    assert!(agree, "layout {number}, type {channel}, sampler {sampler}");
                }
            }
        }
    }
}

/// The accesses to images of a widened kernel: for all items at once, and for one.
fn accesses(text: &str) -> [usize; 2] {
    let module = module(&clang::compile_text(text, &["-O2", "-w", "-cl-std=CL2.0"]));
    let kernel = &module.kernels[0];
    let widened = widen(&module, kernel, lanes(kernel)).expect("a plain kernel");
    let function = &widened.module.functions[widened.function];
    let insts = || function.blocks.iter().flat_map(|(_, block)| &block.insts);
    [
        insts().filter(|inst| matches!(inst.op, Op::Images(..))).count(),
        insts().filter(|inst| matches!(inst.op, Op::Image(..))).count(),
    ]
}

/// One call reads or writes for all items if these have one image and one sampler; what is the same for all is read once.
#[test]
fn items_share_calls() {
    let kernel = |args: &str, body: &str| {
        accesses(&format!(
            "kernel void k(global float4 *out, read_only image2d_t a, read_only image2d_t b, {args}) {{
               int i = get_global_id(0);
               {body}
             }}"
        ))
    };
    let sampled = |body: &str| kernel("sampler_t s, global const float2 *at", body);
    assert_eq!(sampled("out[i] = read_imagef(a, s, at[i]);"), [1, 0]);
    assert_eq!(
        sampled(
            "if (at[i].x > 0) out[i] = read_imagef(a, (int2)(i, 3)) + read_imagef(b, s, at[i]);"
        ),
        [2, 0]
    );
    assert_eq!(sampled("out[i] = at[i].x * read_imagef(a, s, at[7]);"), [0, 1]);
    let written = |body: &str| kernel("write_only image2d_t c, global const float4 *in", body);
    assert_eq!(written("write_imagef(c, (int2)(i, 0), in[i]);"), [1, 0]);
    assert_eq!(written("write_imagef(c, (int2)(3, 0), in[i]);"), [1, 0]);
}

/// Quotients by 2^n - 1 are products with a reciprocal in two parts: of all integers they are those of a division.
#[test]
fn all_integers_become_the_nearest_floats() {
    let module = module(&clang::compile("images.cl", &["-O2"]));
    for (layout, bits) in [(&LAYOUTS[0], 8), (&LAYOUTS[4], 16)] {
        let count = 1_usize << bits;
        let bytes: Vec<u8> =
            (0..count).flat_map(|i| i.to_le_bytes()[..bits / 8].to_vec()).collect();
        for channel in [2, 3] {
            let image = Image::row(layout, channel, bytes.clone());
            let most = (count >> usize::from(channel == 3)) as f64 - 1.0;
            for kernel in kernels(&module, "fetch_2d") {
                let mut at: Vec<u32> = (0..count as u32).flat_map(|i| [i, 0, 0, 0]).collect();
                let mut found = vec![0_u32; 4 * count];
                let descriptor = image.descriptor();
                let mut args = vec![value(descriptor.as_ptr() as u64)];
                args.extend([&mut at[..], &mut found[..]].map(buffer));
                kernel.run(Grid::line(count as u64, 64), args);
                for (i, texel) in found.chunks(4).enumerate() {
                    let unused = 64 - bits as u32;
                    let number =
                        if channel == 2 { i as i64 } else { (i as i64) << unused >> unused };
                    let want = ((number as f64 / most).max(-1.0)) as f32;
                    assert_eq!(texel[0], want.to_bits(), "{bits} bits, type {channel}: {i}");
                }
            }
        }
    }
}

/// Reads without a sampler return the texel itself, of buffers too, and only in the items that read.
#[test]
fn fetches_take_texels() {
    let module = module(&clang::compile("images.cl", &["-O2"]));
    let mut rng = Rng(3);
    for kind in KINDS {
        let name = format!("fetch_{}", kind.name);
        let kernels = kernels(&module, &name);
        for (number, layout) in LAYOUTS.iter().enumerate() {
            for &channel in layout.channels {
                let mut image = Image::random(&mut rng, kind, layout, channel);
                let mut at = image.places(&mut rng, ITEMS, 0);
                for (i, kernel) in kernels.iter().enumerate() {
                    let (mut code, mut plain) = (vec![7_u32; 4 * ITEMS], vec![7_u32; 4 * ITEMS]);
                    execute(kernel, &image, None, [&mut at, &mut code]);
                    if i == 0 {
                        interpret(&module, &name, &mut image, None, [&mut at, &mut plain]);
                        let agree = code.iter().zip(&plain).all(|(&a, &b)| same(a, b));
                        assert!(agree, "{name}, layout {number}, type {channel}");
                    }
                    for (at, found) in at.chunks(4).zip(code.chunks(4)) {
                        if at[3] == 7 {
                            assert_eq!(found, [7; 4], "{name}: an item that does not read");
                            continue;
                        }
                        let want = image.texel([0, 1, 2].map(|c| i64::from(at[c] as i32)));
                        for c in 0..4 {
                            image.check(found[c], want[c]).unwrap_or_else(|why| {
                                panic!("{name}, layout {number}, type {channel}: {why}")
                            });
                        }
                    }
                }
            }
        }
    }
}

/// OpenCL C, "Image Read and Write Functions" of cl_khr_fp16: half floats are what floats round to. LLVM's back end leaves
/// these reads as calls.
#[test]
fn half_floats_are_read_from_images() {
    let text = "#pragma OPENCL EXTENSION cl_khr_fp16 : enable
        #define READ(name, kind, ...)                                                               \\
          kernel void name##_h(read_only image##kind##_t image, sampler_t s, global const int4 *at, \\
                               global float4 *out) {                                                \\
            int4 p = at[get_global_id(0)];                                                          \\
            if (p.w != 7)                                                                           \\
              out[get_global_id(0)] = convert_float4(read_imageh(image, __VA_ARGS__));              \\
          }                                                                                         \\
          kernel void name##_f(read_only image##kind##_t image, sampler_t s, global const int4 *at, \\
                               global float4 *out) {                                                \\
            int4 p = at[get_global_id(0)];                                                          \\
            if (p.w != 7)                                                                           \\
              out[get_global_id(0)] =                                                               \\
                  convert_float4(convert_half4(read_imagef(image, __VA_ARGS__)));                   \\
          }
        READ(plain, 2d, p.xy)
        READ(sampled, 2d, s, p.xy)
        READ(between, 2d, s, convert_float2(p.xy))
        READ(array, 2d_array, p)
        READ(row, 1d_buffer, p.x)";
    let module = module(&clang::compile_text(text, &["-O2", "-w"]));
    let mut rng = Rng(4);
    for (name, kind) in [("plain", 2), ("sampled", 2), ("between", 2), ("array", 3), ("row", 5)] {
        let half = kernels(&module, &format!("{name}_h"));
        let float = kernels(&module, &format!("{name}_f"));
        for layout in LAYOUTS.iter() {
            for &channel in layout.channels.iter().filter(|&&channel| channel >= 2) {
                let image = Image::random(&mut rng, KINDS[kind], layout, channel);
                let mut at = image.places(&mut rng, ITEMS, 0);
                for (half, float) in half.iter().zip(&float) {
                    let (mut found, mut want) = (vec![7_u32; 4 * ITEMS], vec![7_u32; 4 * ITEMS]);
                    execute(half, &image, Some(0), [&mut at, &mut found]);
                    execute(float, &image, Some(0), [&mut at, &mut want]);
                    let agree = found.iter().zip(&want).all(|(&a, &b)| same(a, b));
                    assert!(agree, "{name}, {layout:?}, type {channel}");
                }
            }
        }
    }
}

/// Writes store the format's nearest number; outside of the image they store nothing, and items that do
/// not write leave their texels unchanged.
#[test]
fn writes_round_and_saturate() {
    let module = module(&clang::compile("images.cl", &["-O2"]));
    let mut rng = Rng(4);
    for kind in KINDS {
        let names = [format!("write_{}", kind.name), format!("write_int_{}", kind.name)];
        let both = names.clone().map(|name| kernels(&module, &name));
        for (number, layout) in LAYOUTS.iter().enumerate() {
            for &channel in layout.channels {
                let integers = usize::from(channel < 2);
                for kernel in &both[integers] {
                    let image = Image::random(&mut rng, kind, layout, channel);
                    let mut at = image.places(&mut rng, ITEMS, 1);
                    let mut values: Vec<u32> =
                        (0..4 * ITEMS).map(|_| image.random_channel(&mut rng)).collect();
                    let (code, mut plain) = (image.clone(), image.clone());
                    execute(kernel, &code, None, [&mut at, &mut values]);
                    let name = &names[integers];
                    interpret(&module, name, &mut plain, None, [&mut at, &mut values]);
                    assert_eq!(code.bytes, plain.bytes, "{name}, layout {number}, type {channel}");
                    let mut want = image.clone();
                    for (at, value) in at.chunks(4).zip(values.chunks(4)) {
                        if at[3] != 7 {
                            want.write([0, 1, 2].map(|c| i64::from(at[c] as i32)), value);
                        }
                    }
                    assert_eq!(code.bytes, want.bytes, "{name}, layout {number}, type {channel}");
                }
            }
        }
    }
}

/// Texels that kernels store as a whole.
#[repr(align(16))]
struct Texels([f32; 32]);

/// SPV_INTEL_bindless_images: a number in memory or an argument serves as an image, or as an image with
/// its sampler.
#[test]
fn a_number_stands_for_an_image() {
    const COPY_OBJECT: u32 = 83;
    const TO_IMAGE: u32 = 6529;
    const TO_SAMPLED_IMAGE: u32 = 6531;
    let text = "
        OpCapability Kernel
        OpCapability Addresses
        OpCapability Int64
        OpMemoryModel Physical64 OpenCL
        OpEntryPoint Kernel %k \"k\" %gid
        OpDecorate %gid BuiltIn GlobalInvocationId
        %void = OpTypeVoid
        %ulong = OpTypeInt 64 0
        %uint = OpTypeInt 32 0
        %float = OpTypeFloat 32
        %float4 = OpTypeVector %float 4
        %ulong3 = OpTypeVector %ulong 3
        %uint2 = OpTypeVector %uint 2
        %float2 = OpTypeVector %float 2
        %input = OpTypePointer Input %ulong3
        %global = OpTypePointer CrossWorkgroup %float4
        %image = OpTypeImage %void 2D 0 0 0 0 Unknown ReadOnly
        %sampled = OpTypeSampledImage %image
        %fn = OpTypeFunction %void %ulong %global
        %gid = OpVariable %input Input
        %zero = OpConstant %float 0
        %row = OpConstant %uint 0
        %k = OpFunction %void None %fn
        %handle = OpFunctionParameter %ulong
        %out = OpFunctionParameter %global
        %entry = OpLabel
        %id = OpLoad %ulong3 %gid Aligned 8
        %x = OpCompositeExtract %ulong %id 0
        %column = OpUConvert %uint %x
        %at = OpCompositeConstruct %uint2 %column %row
        %one = OpCopyObject %image %handle
        %texel = OpImageRead %float4 %one %at
        %both = OpCopyObject %sampled %handle
        %u = OpConvertUToF %float %column
        %place = OpCompositeConstruct %float2 %u %zero
        %between = OpImageSampleExplicitLod %float4 %both %place Lod %zero
        %sum = OpFAdd %float4 %texel %between
        %to = OpInBoundsPtrAccessChain %global %out %x
        OpStore %to %sum Aligned 16
        OpReturn
        OpFunctionEnd";
    // An older assembler may not know the extension's instructions, which have the form of this one.
    let mut spirv = clang::assemble(text);
    let mut wanted = [TO_IMAGE, TO_SAMPLED_IMAGE].into_iter();
    for word in spirv.chunks_exact_mut(4) {
        if u32::from_le_bytes([word[0], word[1], word[2], word[3]]) == 4 << 16 | COPY_OBJECT {
            let opcode = wanted.next().expect("two of them");
            word.copy_from_slice(&(4 << 16 | opcode).to_le_bytes());
        }
    }
    let module = module(&spirv);
    let texels: [f32; 8] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0];
    let mut descriptor = [0_u8; 64];
    let mut put = |at: usize, value: &[u8]| descriptor[at..at + value.len()].copy_from_slice(value);
    put(0, &(texels.as_ptr() as u64).to_le_bytes());
    put(8, &32_u64.to_le_bytes());
    put(16, &32_u64.to_le_bytes());
    put(24, &8_u32.to_le_bytes());
    put(28, &1_u32.to_le_bytes());
    put(32, &1_u32.to_le_bytes());
    // 2D, 32 bits, one component, FLOAT; red, zero, zero, one; a sampler: to the edge, linear.
    put(36, &[2, 2, 1, 4, 0, 4, 4, 5, 4]);
    put(48, &17_u32.to_le_bytes());
    for (target, lanes) in widths() {
        let kernel = Kernel::with_lanes(&module, "k", &target, lanes);
        let mut out = Texels([0.0; 32]);
        kernel.run(Grid::line(8, 8), vec![value(descriptor.as_ptr() as u64), buffer(&mut out.0)]);
        for (i, found) in out.0.chunks(4).enumerate() {
            let left = texels[i.saturating_sub(1)];
            assert_eq!(found, [texels[i] + (left + texels[i]) / 2.0, 0.0, 0.0, 2.0], "item {i}");
        }
    }
}
