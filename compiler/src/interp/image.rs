// SPDX-License-Identifier: MIT OR Apache-2.0
//! Images: conversion of texels to channels and back, addressing and filtering, as OpenCL C defines
//! them.
//!
//! The run-time library of compiled kernels does the same and is compared with this code. Both compute
//! in `f32` where OpenCL's formulas do, so that their results have the same bits.

use super::Memory;
use super::value::{AccessError, Value};
use crate::ir::eval::{float_bits, float_value};
use crate::ir::{Float, ImageOp};

/// Bytes of a descriptor.
const BYTES: usize = 64;

/// The addressing modes of samplers; `NONE` and `CLAMP` may leave the image.
const CLAMP_TO_EDGE: u64 = 1;
const REPEAT: u64 = 3;
const MIRROR: u64 = 4;
const ADDRESS: u64 = 7;
const NORMALIZED: u64 = 8;
const LINEAR: u64 = 16;

/// Kinds of images with layers, and the number of coordinates in front of the layer for each kind.
const ARRAYS: [u8; 2] = [1, 3];
const DIMENSIONS: [usize; 6] = [1, 1, 2, 2, 3, 1];

/// A swizzle's codes for a channel with the value 1.
const ONE: u8 = 5;
const ONE_INSIDE: u8 = 6;

/// The component that is not encoded with sRGB's curve.
const ALPHA: usize = 3;

/// Formats of components, in the order of the descriptor's numbers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Channel {
    Uint,
    Sint,
    Unorm,
    Snorm,
    Float,
    Srgb,
}

/// A decoded descriptor.
struct Image {
    base: u64,
    pitches: [u64; 3],
    size: [u32; 3],
    kind: u8,
    /// Lowest bit and number of bits of each component.
    fields: Vec<(u32, u32)>,
    channel: Channel,
    swizzle: [u8; 4],
    texel_bytes: usize,
}

/// Executes an operation on an image. The result is a texel; that of a write is not used.
pub fn apply(op: ImageOp, args: &[Value], memory: &mut Memory) -> Result<Value, AccessError> {
    let bits = |i: usize| args.get(i).map_or(0, Value::bits);
    let image = Image::read(bits(0), memory)?;
    let texel = match op {
        ImageOp::Fetch => {
            let at = [2, 3, 4].map(|i| i64::from(bits(i) as i32));
            image.fetch(memory, bits(1), at)?
        }
        ImageOp::Sample => {
            let at = [2, 3, 4].map(|i| f32::from_bits(bits(i) as u32));
            image.sample(memory, bits(1), at)?
        }
        ImageOp::Write => {
            let at = [1, 2, 3].map(|i| i64::from(bits(i) as i32));
            let texel = args.get(4).cloned().unwrap_or(Value::Bits(0));
            let texel = [0, 1, 2, 3].map(|i| texel.part(i).bits() as u32);
            image.write(memory, at, texel)?;
            texel
        }
    };
    Ok(Value::Parts(texel.map(|channel| Value::Bits(channel.into())).to_vec()))
}

impl Image {
    fn read(at: u64, memory: &Memory) -> Result<Self, AccessError> {
        let mut bytes = [0_u8; BYTES];
        memory.read(at, &mut bytes)?;
        let word = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|i| bytes[at + i]));
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        let [kind, layout, components, channel] = [36, 37, 38, 39].map(|at| bytes[at]);
        let whole = |bits: u32| (0..u32::from(components)).map(|i| (i * bits, bits)).collect();
        let fields = match layout {
            0 => whole(8),
            1 => whole(16),
            2 => whole(32),
            3 => vec![(0, 10), (10, 10), (20, 10), (30, 2)],
            4 => vec![(0, 11), (11, 11), (22, 10)],
            5 => vec![(11, 5), (5, 6), (0, 5)],
            6 => vec![(10, 5), (5, 5), (0, 5), (15, 1)],
            7 => vec![(8, 4), (4, 4), (0, 4), (12, 4)],
            other => return Err(format!("an image of layout {other}").into()),
        };
        use Channel::{Float, Sint, Snorm, Srgb, Uint, Unorm};
        let channels = [Uint, Sint, Unorm, Snorm, Float, Srgb];
        let channel = channels.get(usize::from(channel));
        let channel = *channel.ok_or_else(|| "an image of an unknown type".to_owned())?;
        if usize::from(kind) >= DIMENSIONS.len() {
            return Err(format!("an image of kind {kind}").into());
        }
        Ok(Self {
            base: long(0),
            pitches: [bytes[44].into(), long(8), long(16)],
            size: [word(24), word(28), word(32)],
            kind,
            fields,
            channel,
            swizzle: [40, 41, 42, 43].map(|at| bytes[at]),
            texel_bytes: bytes[44].into(),
        })
    }

    fn dimensions(&self) -> usize {
        DIMENSIONS[usize::from(self.kind)]
    }

    /// The coordinate that is a layer.
    fn layer(&self) -> Option<usize> {
        ARRAYS.contains(&self.kind).then(|| self.dimensions())
    }

    /// The address of a texel inside of the image.
    fn place(&self, at: [i64; 3]) -> Option<u64> {
        let mut address = self.base;
        for ((index, size), pitch) in at.into_iter().zip(self.size).zip(self.pitches) {
            let index = u64::try_from(index).ok().filter(|&it| it < size.into())?;
            address = address.wrapping_add(index.wrapping_mul(pitch));
        }
        Some(address)
    }

    /// The channels of a texel, or of the border.
    fn texel(&self, memory: &Memory, at: [i64; 3]) -> Result<[u32; 4], AccessError> {
        let place = self.place(at);
        let mut components = [0_u32; 4];
        if let Some(place) = place {
            let mut bytes = [0_u8; 16];
            memory.read(place, &mut bytes[..self.texel_bytes.min(16)])?;
            let all = u128::from_le_bytes(bytes);
            for (i, &(shift, bits)) in self.fields.iter().enumerate() {
                let raw = (all >> shift) as u64 & (u64::MAX >> (64 - bits));
                components[i] = self.decode(i, raw as u32, bits);
            }
        }
        let one = if self.is_float() { 1.0_f32.to_bits() } else { 1 };
        Ok(self.swizzle.map(|from| match from {
            component @ 0..=3 => components[usize::from(component)],
            ONE => one,
            ONE_INSIDE if place.is_some() => one,
            _ => 0,
        }))
    }

    fn is_float(&self) -> bool {
        !matches!(self.channel, Channel::Uint | Channel::Sint)
    }

    fn decode(&self, component: usize, raw: u32, bits: u32) -> u32 {
        let most = u32::MAX >> (32 - bits);
        let signed = ((raw << (32 - bits)) as i32) >> (32 - bits);
        let unorm = || ((f64::from(raw) / f64::from(most)) as f32).to_bits();
        match self.channel {
            Channel::Uint => raw,
            Channel::Sint => signed as u32,
            Channel::Srgb if component < ALPHA => srgb(2 * raw).to_bits(),
            Channel::Unorm | Channel::Srgb => unorm(),
            Channel::Snorm => {
                let quotient = f64::from(signed) / f64::from(most >> 1);
                (quotient.max(-1.0) as f32).to_bits()
            }
            Channel::Float => match bits {
                32 => raw,
                16 => (float_value(Float::F16, raw.into()) as f32).to_bits(),
                10 | 11 => {
                    // A binary16 number without its sign and its last bits.
                    (float_value(Float::F16, u64::from(raw) << (15 - bits)) as f32).to_bits()
                }
                _ => unorm(),
            },
        }
    }

    fn encode(&self, component: usize, channel: u32, bits: u32) -> u32 {
        let most = u32::MAX >> (32 - bits);
        let x = f64::from(f32::from_bits(channel));
        let unorm = || (x * f64::from(most)).clamp(0.0, most.into()).round_ties_even() as u32;
        match self.channel {
            Channel::Uint => channel.min(most),
            Channel::Sint => {
                let high = (most >> 1) as i32;
                (channel as i32).clamp(-high - 1, high) as u32 & most
            }
            Channel::Srgb if component < ALPHA => {
                let light = f32::from_bits(channel);
                (1..=most).take_while(|value| light >= srgb(2 * value - 1)).count() as u32
            }
            Channel::Unorm | Channel::Srgb => unorm(),
            Channel::Snorm => {
                let high = f64::from(most >> 1);
                (x * high).clamp(-high, high).round_ties_even() as i32 as u32 & most
            }
            Channel::Float => match bits {
                32 => channel,
                16 => float_bits(Float::F16, x) as u32,
                10 | 11 => small_float(f32::from_bits(channel), bits - 5),
                _ => unorm(),
            },
        }
    }

    fn fetch(&self, memory: &Memory, sampler: u64, at: [i64; 3]) -> Result<[u32; 4], AccessError> {
        let mut place = [0; 3];
        for i in 0..self.dimensions() {
            place[i] = wrap(at[i], self.size[i], sampler);
        }
        if let Some(layer) = self.layer() {
            place[2] = at[layer].clamp(0, i64::from(self.size[2]) - 1);
        }
        self.texel(memory, place)
    }

    fn sample(&self, memory: &Memory, sampler: u64, at: [f32; 3]) -> Result<[u32; 4], AccessError> {
        let count = self.dimensions();
        let mut place = [0; 3];
        if let Some(layer) = self.layer() {
            let index = at[layer].round_ties_even() as i32;
            place[2] = i64::from(index).clamp(0, i64::from(self.size[2]) - 1);
        }
        if sampler & LINEAR == 0 || !self.is_float() {
            for i in 0..count {
                let index = unwrap(at[i], self.size[i], sampler).floor() as i32;
                place[i] = wrap(index.into(), self.size[i], sampler);
            }
            return self.texel(memory, place);
        }
        let mut neighbours = [(0, 0, 0.0_f32); 3];
        for i in 0..count {
            let u = unwrap(at[i], self.size[i], sampler) - 0.5;
            let low = i64::from(u.floor() as i32);
            let wrapped = |index| wrap(index, self.size[i], sampler);
            neighbours[i] = (wrapped(low), wrapped(low + 1), u - u.floor());
        }
        let mut sum = [0.0_f32; 4];
        for corner in 0..1_usize << count {
            let mut share = 1.0_f32;
            for (i, &(low, high, weight)) in neighbours[..count].iter().enumerate() {
                let upper = corner >> i & 1 != 0;
                place[i] = if upper { high } else { low };
                share *= if upper { weight } else { 1.0 - weight };
            }
            let texel = self.texel(memory, place)?;
            for (sum, channel) in sum.iter_mut().zip(texel) {
                *sum += share * f32::from_bits(channel);
            }
        }
        for (sum, from) in sum.iter_mut().zip(self.swizzle) {
            if from == ONE {
                *sum = 1.0;
            }
        }
        Ok(sum.map(f32::to_bits))
    }

    fn write(&self, memory: &mut Memory, at: [i64; 3], texel: [u32; 4]) -> Result<(), AccessError> {
        let mut place = [0; 3];
        place[..self.dimensions()].copy_from_slice(&at[..self.dimensions()]);
        if let Some(layer) = self.layer() {
            place[2] = at[layer];
        }
        let Some(address) = self.place(place) else { return Ok(()) };
        let mut all = 0_u128;
        for (i, &(shift, bits)) in self.fields.iter().enumerate() {
            let channel = self.swizzle.iter().position(|&from| usize::from(from) == i);
            let channel = channel.map_or(0, |channel| texel[channel]);
            all |= u128::from(self.encode(i, channel, bits)) << shift;
        }
        memory.write(address, &all.to_le_bytes()[..self.texel_bytes.min(16)])?;
        Ok(())
    }
}

/// A coordinate in texels.
fn unwrap(c: f32, n: u32, sampler: u64) -> f32 {
    let size = n as f32;
    let normalized = sampler & NORMALIZED != 0;
    match sampler & ADDRESS {
        REPEAT => {
            let s = if normalized { c } else { c / size };
            (s - s.floor()) * size
        }
        MIRROR => {
            let s = if normalized { c } else { c / size };
            let nearest = 2.0 * (0.5 * s).round_ties_even();
            (s - nearest).abs() * size
        }
        _ if normalized => c * size,
        _ => c,
    }
}

/// The linear intensity of `k` / 510 in sRGB: of the 8-bit value `k` / 2, or of the point half way
/// between two.
fn srgb(k: u32) -> f32 {
    let c = f64::from(k) / 510.0;
    (if c <= 0.04045 { c / 12.92 } else { libm::pow((c + 0.055) / 1.055, 2.4) }) as f32
}

/// The texel that an index addresses.
fn wrap(i: i64, n: u32, sampler: u64) -> i64 {
    let n = i64::from(n);
    match sampler & ADDRESS {
        REPEAT if i < 0 => i + n,
        REPEAT if i >= n => i - n,
        CLAMP_TO_EDGE | MIRROR => i.clamp(0, n - 1),
        _ => i,
    }
}

/// The nearest number with 5 bits of exponent and `mantissa` bits of mantissa, without a sign. A NaN
/// keeps the bits of its fraction that fit.
fn small_float(x: f32, mantissa: u32) -> u32 {
    let infinity = 31 << mantissa;
    if x.is_nan() {
        return infinity | ((x.to_bits() & 0x7f_ffff) >> (23 - mantissa)).max(1);
    }
    let x = f64::from(x);
    if x <= 0.0 || x.is_infinite() {
        return if x > 0.0 { infinity } else { 0 };
    }
    // The exponent of the number's unit in the last place, at least that of the subnormals.
    let exponent = ((x.to_bits() >> 52) as i32 - 1023).max(-14);
    let unit = libm::scalbn(1.0, exponent - mantissa as i32);
    let units = (x / unit).round_ties_even() as u64;
    // Consecutive encodings are a unit apart; each exponent has 2^`mantissa` of them.
    let steps = u64::from((exponent + 14) as u32) << mantissa;
    let bits = steps.saturating_add(units);
    u32::try_from(bits).unwrap_or(u32::MAX).min(infinity - 1)
}
