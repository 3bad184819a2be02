// SPDX-License-Identifier: MIT OR Apache-2.0
//! Images and samplers.
//!
//! In the IR an image is the address of its descriptor and a sampler is a number (`device/SPEC.md`,
//! chapter "Images and samplers"), so a query of an image is a load. A sampled image is both, as a
//! structure.

use rspirv::spirv::{
    AccessQualifier, Dim, ImageOperands, Op as Spv, SamplerAddressingMode, SamplerFilterMode,
};

use super::body::Body;
use super::builder::{Builder, SpvKind};
use super::controls::Rounding;
use super::error::Result;
use super::memory::plain_access;
use super::words::Instruction;
use crate::ir::{
    AddressSpace, ConstKind, ConvertOp, Float, ImageArg, ImageKind, ImageOp, Op, Operand, Type,
    TypeId,
};

/// Offsets in a descriptor.
const WIDTH: i64 = 24;
const HEIGHT: i64 = 28;
const DEPTH: i64 = 32;
const ORDER: i64 = 45;
const DATA_TYPE: i64 = 46;
const SAMPLER: i64 = 48;

/// Bits of a sampler.
const NORMALIZED_SHIFT: u32 = 3;
const LINEAR_SHIFT: u32 = 4;

/// The IR's type of an image, or the name of its kind if that is not supported.
pub fn image_type(inst: &Instruction<'_>) -> Result<std::result::Result<(Type, ImageArg), String>> {
    let (dim, arrayed, samples) = (inst.arg(1)?, inst.arg(3)? != 0, inst.arg(4)?);
    if samples != 0 {
        return Ok(Err("multisampled image".into()));
    }
    let kind = match (Dim::from_u32(dim), arrayed) {
        (Some(Dim::Dim1D), false) => ImageKind::D1,
        (Some(Dim::Dim1D), true) => ImageKind::D1Array,
        (Some(Dim::Dim2D), false) => ImageKind::D2,
        (Some(Dim::Dim2D), true) => ImageKind::D2Array,
        (Some(Dim::Dim3D), false) => ImageKind::D3,
        (Some(Dim::DimBuffer), false) => ImageKind::Buffer,
        (Some(dim), false) => return Ok(Err(format!("image of dimension {dim:?}"))),
        (Some(dim), true) => return Ok(Err(format!("array of images of dimension {dim:?}"))),
        (None, _) => return Ok(Err("image of an unknown dimension".into())),
    };
    let access = inst.arg(7).ok().and_then(AccessQualifier::from_u32);
    let access = access.unwrap_or(AccessQualifier::ReadOnly);
    let image = ImageArg {
        kind,
        read: access != AccessQualifier::WriteOnly,
        write: access != AccessQualifier::ReadOnly,
    };
    Ok(Ok((Type::Pointer(AddressSpace::Constant), image)))
}

/// The number of an `OpConstantSampler`.
pub fn constant_sampler(inst: &Instruction<'_>) -> Result<u64> {
    let (mode, normalized, filter) = (inst.arg(0)?, inst.arg(1)?, inst.arg(2)?);
    if SamplerAddressingMode::from_u32(mode).is_none() || normalized > 1 {
        return Err(inst.error("has an addressing mode that does not exist".into()));
    }
    if SamplerFilterMode::from_u32(filter).is_none() {
        return Err(inst.error("has a filter mode that does not exist".into()));
    }
    Ok((mode | normalized << NORMALIZED_SHIFT | filter << LINEAR_SHIFT).into())
}

/// Translates an instruction on images. `false` if it is another one.
pub fn translate(body: &mut Body<'_, '_>, inst: &Instruction<'_>) -> Result<bool> {
    if let Some(image) = unknown_image(body, inst) {
        let what = format!("{} of a {image}", inst.grammar.name);
        body.unsupported(inst, &what)?;
        return Ok(true);
    }
    match inst.op() {
        Spv::SampledImage => {
            let parts = vec![body.arg(inst, 0)?, body.arg(inst, 1)?];
            let ty = body.result_type(inst)?;
            let both = body.emit(ty, Op::Construct(parts));
            body.set_result(inst, both)?;
        }
        Spv::Image => {
            let both = body.arg(inst, 0)?;
            let ty = body.result_type(inst)?;
            let image = body.extract(both, ty, vec![0]);
            body.set_result(inst, image)?;
        }
        Spv::ImageSampleExplicitLod | Spv::ImageSampleImplicitLod => sample(body, inst)?,
        Spv::ImageRead => read(body, inst)?,
        Spv::ImageWrite => write(body, inst)?,
        Spv::ImageQuerySize | Spv::ImageQuerySizeLod => size(body, inst)?,
        Spv::ImageQueryFormat => byte(body, inst, DATA_TYPE)?,
        Spv::ImageQueryOrder => byte(body, inst, ORDER)?,
        // The handle of a bindless image is the address of its descriptor.
        Spv::ConvertHandleToImageINTEL => {
            let image = bindless(body, inst)?;
            body.set_result(inst, image)?;
        }
        Spv::ConvertHandleToSamplerINTEL => {
            let sampler = body.arg(inst, 0)?;
            body.set_result(inst, sampler)?;
        }
        Spv::ConvertHandleToSampledImageINTEL => {
            let image = bindless(body, inst)?;
            let sampler = own_sampler(body, image);
            let ty = body.result_type(inst)?;
            let both = body.emit(ty, Op::Construct(vec![image, sampler]));
            body.set_result(inst, both)?;
        }
        // There are no mipmaps and no samples.
        Spv::ImageQueryLevels | Spv::ImageQuerySamples => {
            let ty = body.result_type(inst)?;
            let one = body.int(ty, 1);
            body.set_result(inst, one)?;
        }
        _ => return Ok(false),
    }
    Ok(true)
}

/// The kind of a kernel's argument, by its SPIR-V type.
pub fn image_of(
    builder: &Builder<'_>,
    inst: &Instruction<'_>,
    id: u32,
) -> Result<Option<ImageArg>> {
    match builder.spv_type(inst, id)?.kind {
        SpvKind::Image(image) => Ok(Some(image)),
        SpvKind::SampledImage(image) => image_of(builder, inst, image),
        _ => Ok(None),
    }
}

/// The name of the kind of an instruction's image, if that kind is not supported.
fn unknown_image(body: &Body<'_, '_>, inst: &Instruction<'_>) -> Option<String> {
    let takes_image = matches!(
        inst.op(),
        Spv::SampledImage
            | Spv::Image
            | Spv::ImageSampleExplicitLod
            | Spv::ImageSampleImplicitLod
            | Spv::ImageRead
            | Spv::ImageWrite
            | Spv::ImageQuerySize
            | Spv::ImageQuerySizeLod
            | Spv::ImageQueryFormat
            | Spv::ImageQueryOrder
            | Spv::ImageQueryLevels
            | Spv::ImageQuerySamples
    );
    if !takes_image {
        return None;
    }
    let (_, id) = body.value(inst, inst.arg(0).ok()?).ok()?;
    let ty = body.b.spv_type(inst, id).ok()?;
    let image = match ty.kind {
        SpvKind::SampledImage(image) => body.b.spv_type(inst, image).ok()?,
        _ => ty,
    };
    match &body.b.module.types[image.ir] {
        Type::Opaque(name) if name.contains("image") => Some(name.clone()),
        _ => None,
    }
}

/// The image of an operand's type.
fn kind(body: &Body<'_, '_>, inst: &Instruction<'_>, index: usize) -> Result<ImageKind> {
    let (_, ty) = body.value(inst, inst.arg(index)?)?;
    let image = image_of(body.b, inst, ty)?;
    image
        .map(|image| image.kind)
        .ok_or_else(|| inst.error("has an operand that is no image".into()))
}

/// Refuses image operands that need features which images here lack. `at` is the mask's index.
fn operands(inst: &Instruction<'_>, at: usize) -> Option<String> {
    let mask = ImageOperands::from_bits_retain(inst.arg(at).unwrap_or(0));
    let known = ImageOperands::BIAS
        | ImageOperands::LOD
        | ImageOperands::GRAD
        | ImageOperands::MIN_LOD
        | ImageOperands::SIGN_EXTEND
        | ImageOperands::ZERO_EXTEND;
    let name = &inst.grammar.name;
    (!mask.difference(known).is_empty()).then(|| format!("{name} with operands {mask:?}"))
}

/// The three coordinates of a call, of one type; unused ones are zero.
fn coordinates(
    body: &mut Body<'_, '_>,
    inst: &Instruction<'_>,
    (image, at): (ImageKind, usize),
    ty: TypeId,
) -> Result<Vec<Operand>> {
    let given = body.arg(inst, at)?;
    let mut all = body.lanes(given);
    if all.len() < image.dimensions() {
        return Err(inst.error(format!(
            "has {} coordinates for a {} image",
            all.len(),
            image.name()
        )));
    }
    all.truncate(image.dimensions());
    let mut result = Vec::with_capacity(3);
    for coordinate in all {
        let from = body.type_of(coordinate);
        result.push(match body.b.module.types[from] {
            Type::Int(_) => body.resize_int(coordinate, ty, true),
            _ => body.float_to_float(coordinate, ty, Rounding::Nearest),
        });
    }
    let zero = body.b.const_operand(ty, ConstKind::Null);
    result.resize(3, zero);
    Ok(result)
}

fn texel_type(body: &mut Body<'_, '_>) -> TypeId {
    let i32_type = body.b.module.types.int(32);
    // Sixteen bytes are below any limit.
    body.b.module.types.intern(Type::Vector(i32_type, 4)).unwrap_or(i32_type)
}

fn sample(body: &mut Body<'_, '_>, inst: &Instruction<'_>) -> Result<()> {
    if let Some(what) = operands(inst, 2) {
        return body.unsupported(inst, &what);
    }
    let both = body.arg(inst, 0)?;
    let image_kind = kind(body, inst, 0)?;
    let pointer = body.b.module.types.pointer(AddressSpace::Constant);
    let i64_type = body.b.module.types.int(64);
    let image = body.extract(both, pointer, vec![0]);
    let sampler = body.extract(both, i64_type, vec![1]);
    fetch(body, inst, (image, image_kind), sampler, 1)
}

/// A read without a sampler neither filters nor leaves the image.
fn read(body: &mut Body<'_, '_>, inst: &Instruction<'_>) -> Result<()> {
    if let Some(what) = operands(inst, 2) {
        return body.unsupported(inst, &what);
    }
    let image = (body.arg(inst, 0)?, kind(body, inst, 0)?);
    let i64_type = body.b.module.types.int(64);
    let sampler = body.int(i64_type, 0);
    fetch(body, inst, image, sampler, 1)
}

/// A call of `read_imageh`, which LLVM's back end leaves unchanged, with a sampler or without.
pub fn read_half(body: &mut Body<'_, '_>, inst: &Instruction<'_>) -> Result<()> {
    // The first operand is the function.
    let image = (body.arg(inst, 1)?, kind(body, inst, 1)?);
    if inst.rest().len() > 3 {
        let sampler = body.arg(inst, 2)?;
        return fetch(body, inst, image, sampler, 3);
    }
    let i64_type = body.b.module.types.int(64);
    let sampler = body.int(i64_type, 0);
    fetch(body, inst, image, sampler, 2)
}

/// Reads with coordinates of either type; operand `at` holds them.
fn fetch(
    body: &mut Body<'_, '_>,
    inst: &Instruction<'_>,
    (image, image_kind): (Operand, ImageKind),
    sampler: Operand,
    at: usize,
) -> Result<()> {
    let given = body.arg(inst, at)?;
    let element = body.b.module.types.element(body.type_of(given));
    let (op, ty) = match body.b.module.types[element] {
        Type::Int(_) => (ImageOp::Fetch, body.b.module.types.int(32)),
        _ => (ImageOp::Sample, body.b.module.types.float(Float::F32)),
    };
    let mut args = vec![image, sampler];
    args.extend(coordinates(body, inst, (image_kind, at), ty)?);
    let texel_ty = texel_type(body);
    let texel = body.emit(texel_ty, Op::Image(op, args));
    let ty = body.result_type(inst)?;
    match from_texel(body, texel, ty) {
        Some(value) => body.set_result(inst, value),
        None => {
            let name = body.b.module.types.text(ty).to_string();
            body.unsupported(inst, &format!("{} of type {name}", inst.grammar.name))
        }
    }
}

/// A texel converted to the kernel's type: its first channels.
fn from_texel(body: &mut Body<'_, '_>, texel: Operand, ty: TypeId) -> Option<Operand> {
    let types = &mut body.b.module.types;
    let (lanes, element) = (types.lanes(ty), types.element(ty));
    let f32_type = types.float(Float::F32);
    let four = |body: &mut Body<'_, '_>, element: TypeId| {
        body.b.module.types.intern(Type::Vector(element, 4)).unwrap_or(element)
    };
    let all = match body.b.module.types[element] {
        Type::Int(32) => texel,
        Type::Int(8 | 16) => {
            let ty = four(body, element);
            body.emit(ty, Op::Convert(ConvertOp::Trunc, texel))
        }
        Type::Float(Float::F32 | Float::F16) => {
            let ty = four(body, f32_type);
            let floats = body.bitcast(texel, ty);
            let ty = four(body, element);
            body.float_to_float(floats, ty, Rounding::Nearest)
        }
        _ => return None,
    };
    if lanes > 4 {
        return None;
    }
    let parts = (0..lanes).map(|i| body.extract(all, element, vec![i])).collect::<Vec<_>>();
    Some(match (lanes, parts.as_slice()) {
        (4, _) => all,
        (_, [part]) => *part,
        _ => body.emit(ty, Op::Construct(parts)),
    })
}

fn write(body: &mut Body<'_, '_>, inst: &Instruction<'_>) -> Result<()> {
    if let Some(what) = operands(inst, 3) {
        return body.unsupported(inst, &what);
    }
    let (image, image_kind) = (body.arg(inst, 0)?, kind(body, inst, 0)?);
    let i32_type = body.b.module.types.int(32);
    let mut args = vec![image];
    args.extend(coordinates(body, inst, (image_kind, 1), i32_type)?);
    let mask = ImageOperands::from_bits_retain(inst.arg(3).unwrap_or(0));
    let signed = mask.contains(ImageOperands::SIGN_EXTEND);
    let value = body.arg(inst, 2)?;
    let Some(texel) = to_texel(body, value, signed) else {
        let ty = body.type_of(value);
        let name = body.b.module.types.text(ty).to_string();
        return body.unsupported(inst, &format!("OpImageWrite of type {name}"));
    };
    args.push(texel);
    body.emit_void(Op::Image(ImageOp::Write, args));
    Ok(())
}

/// A texel from a kernel's value; missing channels are zero.
fn to_texel(body: &mut Body<'_, '_>, value: Operand, signed: bool) -> Option<Operand> {
    let i32_type = body.b.module.types.int(32);
    let f32_type = body.b.module.types.float(Float::F32);
    let texel_ty = texel_type(body);
    if body.type_of(value) == texel_ty {
        return Some(value);
    }
    let mut channels = Vec::with_capacity(4);
    for part in body.lanes(value) {
        let ty = body.type_of(part);
        channels.push(match body.b.module.types[ty] {
            Type::Int(8 | 16 | 32) => body.resize_int(part, i32_type, signed),
            Type::Float(Float::F16 | Float::F32) => {
                let float = body.float_to_float(part, f32_type, Rounding::Nearest);
                body.bitcast(float, i32_type)
            }
            _ => return None,
        });
    }
    if channels.len() > 4 {
        return None;
    }
    let zero = body.int(i32_type, 0);
    channels.resize(4, zero);
    Some(body.emit(texel_ty, Op::Construct(channels)))
}

/// A number of the descriptor.
fn field(body: &mut Body<'_, '_>, image: Operand, offset: i64, ty: TypeId) -> Operand {
    let align = body.b.module.types.align(ty);
    let at = body.address(image, offset, Vec::new(), true);
    body.emit(ty, Op::Load(at, plain_access(align)))
}

fn size(body: &mut Body<'_, '_>, inst: &Instruction<'_>) -> Result<()> {
    let (image, image_kind) = (body.arg(inst, 0)?, kind(body, inst, 0)?);
    let fields: &[i64] = match image_kind {
        ImageKind::D1 | ImageKind::Buffer => &[WIDTH],
        ImageKind::D1Array => &[WIDTH, DEPTH],
        ImageKind::D2 => &[WIDTH, HEIGHT],
        ImageKind::D2Array | ImageKind::D3 => &[WIDTH, HEIGHT, DEPTH],
    };
    let ty = body.result_type(inst)?;
    let types = &mut body.b.module.types;
    let (lanes, element, i32_type) = (types.lanes(ty), types.element(ty), types.int(32));
    if lanes as usize != fields.len() || !matches!(body.b.module.types[element], Type::Int(_)) {
        return Err(inst.error(format!("has a wrong type for a {} image", image_kind.name())));
    }
    let mut parts = Vec::with_capacity(3);
    for &offset in fields {
        let part = field(body, image, offset, i32_type);
        parts.push(body.resize_int(part, element, false));
    }
    let result = match parts.as_slice() {
        [one] => *one,
        _ => body.emit(ty, Op::Construct(parts)),
    };
    body.set_result(inst, result)
}

fn byte(body: &mut Body<'_, '_>, inst: &Instruction<'_>, offset: i64) -> Result<()> {
    let image = body.arg(inst, 0)?;
    kind(body, inst, 0)?;
    let ty = body.result_type(inst)?;
    let value = described(body, image, offset, ty);
    body.set_result(inst, value)
}

fn described(body: &mut Body<'_, '_>, image: Operand, offset: i64, ty: TypeId) -> Operand {
    let i8_type = body.b.module.types.int(8);
    let value = field(body, image, offset, i8_type);
    body.resize_int(value, ty, false)
}

/// OpenCL C's numbers of an image's channels, by the name of the function that queries them: LLVM's
/// back end leaves some of these calls unchanged. `None` for another function.
pub fn channels(
    body: &mut Body<'_, '_>,
    name: &str,
    args: &[Operand],
    ty: TypeId,
) -> Option<Operand> {
    let (offset, first) = match name {
        "get_image_channel_order" => (ORDER, 0x10b0),
        "get_image_channel_data_type" => (DATA_TYPE, 0x10d0),
        _ => return None,
    };
    let &image = args.first()?;
    let number = described(body, image, offset, ty);
    let first = body.int(ty, first);
    Some(body.emit(ty, Op::Binary(crate::ir::BinaryOp::Add, number, first)))
}

fn bindless(body: &mut Body<'_, '_>, inst: &Instruction<'_>) -> Result<Operand> {
    let handle = body.arg(inst, 0)?;
    let i64_type = body.b.module.types.int(64);
    if body.type_of(handle) != i64_type {
        return Err(inst.error("has a handle that has not 64 bits".into()));
    }
    let pointer = body.b.module.types.pointer(AddressSpace::Constant);
    Ok(body.emit(pointer, Op::Convert(ConvertOp::IntToPtr, handle)))
}

/// The sampler that an image's own descriptor names.
fn own_sampler(body: &mut Body<'_, '_>, image: Operand) -> Operand {
    let (i32_type, i64_type) = (body.b.module.types.int(32), body.b.module.types.int(64));
    let word = field(body, image, SAMPLER, i32_type);
    body.resize_int(word, i64_type, false)
}
