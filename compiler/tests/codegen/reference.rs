// SPDX-License-Identifier: MIT OR Apache-2.0
//! A reference for OpenCL C's formulas for images, in plain Rust with more digits than needed.

/// A small generator of random numbers (SplitMix64).
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }
}

/// A kind of image.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    pub name: &'static str,
    /// Its number in descriptors.
    number: u8,
    /// The number of filtered coordinates; a layer may follow.
    dimensions: usize,
    layers: bool,
}

const fn kind(name: &'static str, number: u8, dimensions: usize, layers: bool) -> Kind {
    Kind { name, number, dimensions, layers }
}

pub const KINDS: [Kind; 6] = [
    kind("1d", 0, 1, false),
    kind("1d_array", 1, 1, true),
    kind("2d", 2, 2, false),
    kind("2d_array", 3, 2, true),
    kind("3d", 4, 3, false),
    kind("1d_buffer", 5, 1, false),
];

/// The components of a texel by their bits.
#[derive(Debug)]
pub struct Layout {
    number: u8,
    components: usize,
    bits: [u32; 4],
    bytes: usize,
    /// UINT, SINT, UNORM, SNORM, FLOAT, SRGB: 0 to 5.
    pub channels: &'static [u8],
}

const fn whole(number: u8, components: usize, bits: u32, channels: &'static [u8]) -> Layout {
    Layout { number, components, bits: [bits; 4], bytes: components * bits as usize / 8, channels }
}

const ALL: &[u8] = &[0, 1, 2, 3, 4];
const UNORM: &[u8] = &[2];
const BYTES: &[u8] = &[0, 1, 2, 3, 5];

/// Every layout of the format table.
pub const LAYOUTS: [Layout; 17] = [
    whole(0, 1, 8, BYTES),
    whole(0, 2, 8, BYTES),
    whole(0, 3, 8, BYTES),
    whole(0, 4, 8, BYTES),
    whole(1, 1, 16, ALL),
    whole(1, 2, 16, ALL),
    whole(1, 3, 16, ALL),
    whole(1, 4, 16, ALL),
    whole(2, 1, 32, ALL),
    whole(2, 2, 32, ALL),
    whole(2, 3, 32, ALL),
    whole(2, 4, 32, ALL),
    Layout { number: 3, components: 4, bits: [10, 10, 10, 2], bytes: 4, channels: ALL },
    Layout { number: 4, components: 3, bits: [11, 11, 10, 0], bytes: 4, channels: &[4] },
    Layout { number: 5, components: 3, bits: [5, 6, 5, 0], bytes: 2, channels: UNORM },
    Layout { number: 6, components: 4, bits: [5, 5, 5, 1], bytes: 2, channels: UNORM },
    Layout { number: 7, components: 4, bits: [4, 4, 4, 4], bytes: 2, channels: UNORM },
];

/// An image in host memory.
#[derive(Clone, Debug)]
pub struct Image {
    kind: Kind,
    layout: &'static Layout,
    channel: u8,
    swizzle: [u8; 4],
    size: [usize; 3],
    pitches: [usize; 3],
    /// The texels; the bytes between rows belong to no texel.
    pub bytes: Vec<u8>,
}

impl Image {
    /// An image with random texels, sizes, pitches and swizzle. A half has rows that begin where words do, and some have
    /// rows of several vectors.
    pub fn random(rng: &mut Rng, kind: Kind, layout: &'static Layout, channel: u8) -> Self {
        let more = if rng.below(3) == 0 { 70 } else { 0 };
        let mut size = [1 + rng.below(9) + more, 1, 1];
        if kind.dimensions > 1 {
            size[1] = 1 + rng.below(7);
        }
        if kind.dimensions > 2 || kind.layers {
            size[2] = 1 + rng.below(4);
        }
        let align = if rng.below(2) == 0 { 4 } else { 1 };
        let row = (size[0] * layout.bytes + rng.below(5)).next_multiple_of(align);
        let slice = (row * size[1] + rng.below(5)).next_multiple_of(align);
        // Zero, one and one inside have the numbers 4 to 6.
        let plain = rng.below(2) == 0;
        let pick = |rng: &mut Rng, own: usize| match (plain, rng.below(7)) {
            (true, _) if own < layout.components => own as u8,
            (true, _) => [4, 5, 6][rng.below(3)],
            (_, n) if n < 4 => (n % layout.components) as u8,
            (_, n) => n as u8,
        };
        let swizzle = match rng.below(4) {
            0 if layout.components == 1 => [0, 4, 4, 5],
            _ => [pick(rng, 0), pick(rng, 1), pick(rng, 2), pick(rng, 3)],
        };
        let len = slice * size[2];
        let bytes = (0..len).map(|_| rng.next() as u8).collect();
        let pitches = [layout.bytes, row, slice];
        let mut image = Self { kind, layout, channel, swizzle, size, pitches, bytes };
        if channel == 4 {
            image.tame(rng);
        }
        image
    }

    /// Makes random bits of floats numbers of moderate size, so that sums are meaningful.
    fn tame(&mut self, rng: &mut Rng) {
        let [w, h, d] = self.size;
        for i in 0..w * h * d {
            let at = [i % w, i / w % h, i / w / h];
            for c in 0..self.layout.components {
                let number = (rng.below(2001) as f64 - 1000.0) / 16.0;
                let raw = match self.layout.bits[c] {
                    32 => (number as f32).to_bits(),
                    16 => half_bits(number),
                    bits @ (10 | 11) => (rng.below(24) << (bits - 5) | rng.below(32)) as u32,
                    _ => rng.below(4) as u32,
                };
                self.put(at, c, raw);
            }
        }
    }

    /// The bytes from the first texel to the end of the last one.
    pub fn extent(&self) -> usize {
        let [w, h, d] = self.size;
        self.pitches[2] * (d - 1) + self.pitches[1] * (h - 1) + self.pitches[0] * w
    }

    /// The descriptor of chapter 16 of the device's manual.
    pub fn descriptor(&self) -> Box<[u8; 64]> {
        let mut bytes = Box::new([0_u8; 64]);
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        put(0, &(self.bytes.as_ptr() as u64).to_le_bytes());
        put(8, &(self.pitches[1] as u64).to_le_bytes());
        put(16, &(self.pitches[2] as u64).to_le_bytes());
        for (i, size) in self.size.into_iter().enumerate() {
            put(24 + 4 * i, &(size as u32).to_le_bytes());
        }
        let (components, texel) = (self.layout.components as u8, self.layout.bytes as u8);
        put(36, &[self.kind.number, self.layout.number, components, self.channel]);
        put(40, &self.swizzle);
        put(44, &[texel]);
        bytes
    }

    /// An image of one row and one component, with given bytes.
    pub fn row(layout: &'static Layout, channel: u8, bytes: Vec<u8>) -> Self {
        let (kind, len) = (KINDS[2], bytes.len());
        let size = [len / layout.bytes, 1, 1];
        Self {
            kind,
            layout,
            channel,
            swizzle: [0, 4, 4, 5],
            size,
            pitches: [layout.bytes, len, len],
            bytes,
        }
    }

    /// Coordinates to sample: in and around the image, in fractions of texels that floats represent
    /// exactly. Sometimes each item's texel is the next one in the row.
    pub fn coordinates(&self, rng: &mut Rng, count: usize, normalized: bool) -> Vec<[f32; 4]> {
        let line = !normalized && rng.below(3) == 0;
        let mut one = |dimension: usize| {
            let n = self.size[dimension] as f32;
            let steps = rng.below(32 * 4) as f32 / 32.0 - 1.5;
            match dimension {
                _ if dimension >= self.kind.dimensions => {
                    (rng.below(40) as f32 - 8.0) / 4.0 + 0.125
                }
                _ if normalized => steps,
                _ => (steps * n * 8.0).floor() / 8.0,
            }
        };
        let first = [one(0), one(1), one(2)];
        (0..count)
            .map(|i| {
                let [x, y, z] = match line {
                    true => [first[0] + i as f32, first[1], first[2]],
                    false => [one(0), one(1), one(2)],
                };
                // A 1D array has its layer second.
                if self.kind.layers && self.kind.dimensions == 1 {
                    [x, z, y, 9.5]
                } else {
                    [x, y, z, 9.5]
                }
            })
            .collect()
    }

    /// Texels, up to `beyond` outside of the image, sometimes one after the other; mostly one in eight is marked as unused.
    pub fn places(&self, rng: &mut Rng, count: usize, beyond: i32) -> Vec<u32> {
        let mut all = Vec::new();
        let (line, marks) = (rng.below(3) == 0, rng.below(3) != 0);
        let [_, y, z] = self.size.map(|n| rng.below(n) as i32);
        for n in 0..count {
            let mut at = self.size.map(|n| rng.below(n + 2 * beyond as usize) as i32 - beyond);
            if line {
                at = [(n % self.size[0]) as i32, y, z];
            }
            // There is one writer for each texel, so that the order does not matter.
            if beyond != 0 {
                let i = all.len() / 4 % (self.size[0] * self.size[1] * self.size[2] + 3);
                let [w, h, _] = self.size;
                at = [i % w, i / w % h, i / w / h].map(|it| it as i32);
                if all.len() / 4 > i {
                    at[0] = -1;
                }
            }
            if self.kind.layers && self.kind.dimensions == 1 {
                at = [at[0], at[2], at[1]];
            }
            let mark = if marks && rng.below(8) == 0 { 7 } else { 0 };
            all.extend(at.map(|it| it as u32));
            all.push(mark);
        }
        all
    }

    /// Bits of a channel for a write: numbers inside and outside of the format's range.
    pub fn random_channel(&self, rng: &mut Rng) -> u32 {
        match self.channel {
            0 | 1 => (rng.next() as u32) >> rng.below(32),
            2 | 3 => match rng.below(8) {
                0 => f32::NAN.to_bits(),
                1 => (rng.below(7) as f32 - 3.0).to_bits(),
                _ => (rng.below(1 << 20) as f32 / (1 << 19) as f32 - 1.0).to_bits(),
            },
            _ => match rng.below(8) {
                0 => f32::INFINITY.to_bits(),
                1 => (-(rng.below(9) as f32)).to_bits(),
                2 => (rng.below(1 << 20) as f32 * 2_f32.powi(-38)).to_bits(),
                _ => (rng.below(1 << 20) as f32 / 16.0).to_bits(),
            },
        }
    }

    fn at(&self, at: [usize; 3]) -> usize {
        (0..3).map(|i| at[i] * self.pitches[i]).sum()
    }

    /// The lowest bit of a component within the texel.
    fn shift(&self, component: usize) -> u32 {
        let bits = &self.layout.bits;
        match self.layout.number {
            // The first component is the highest, the fourth lies above it.
            5 => [11, 5, 0, 0][component],
            6 => [10, 5, 0, 15][component],
            7 => [8, 4, 0, 12][component],
            _ => bits[..component].iter().sum(),
        }
    }

    fn get(&self, at: [usize; 3], component: usize) -> u32 {
        let start = self.at(at);
        let mut bytes = [0; 16];
        bytes[..self.layout.bytes].copy_from_slice(&self.bytes[start..start + self.layout.bytes]);
        let mask = (1_u128 << self.layout.bits[component]) - 1;
        (u128::from_le_bytes(bytes) >> self.shift(component) & mask) as u32
    }

    fn put(&mut self, at: [usize; 3], component: usize, raw: u32) {
        let (start, len) = (self.at(at), self.layout.bytes);
        let mut bytes = [0; 16];
        bytes[..len].copy_from_slice(&self.bytes[start..start + len]);
        let mask = ((1_u128 << self.layout.bits[component]) - 1) << self.shift(component);
        let all = u128::from_le_bytes(bytes) & !mask | u128::from(raw) << self.shift(component);
        self.bytes[start..start + len].copy_from_slice(&all.to_le_bytes()[..len]);
    }

    /// A component as a number.
    fn number(&self, at: [usize; 3], component: usize) -> f64 {
        let (raw, bits) = (self.get(at, component), self.layout.bits[component]);
        let most = 2_f64.powi(bits as i32) - 1.0;
        let signed = f64::from(((raw << (32 - bits)) as i32) >> (32 - bits));
        match (self.channel, bits) {
            (0, _) => raw.into(),
            (1, _) => signed,
            (3, _) => (signed / ((most - 1.0) / 2.0)).max(-1.0),
            (4, 32) => f32::from_bits(raw).into(),
            (4, 16) => float(raw & 0x7fff, 10) * if raw >> 15 == 1 { -1.0 } else { 1.0 },
            (4, 10 | 11) => float(raw, bits - 5),
            (5, _) if component < 3 => match f64::from(raw) / most {
                low if low <= 0.04045 => low / 12.92,
                high => ((high + 0.055) / 1.055).powf(2.4),
            },
            _ => f64::from(raw) / most,
        }
    }

    fn place(&self, at: [i64; 3]) -> Option<[usize; 3]> {
        let inside = (0..3).all(|i| (0..self.size[i] as i64).contains(&at[i]));
        inside.then(|| at.map(|it| it as usize))
    }

    /// The channels of a texel, or of the border.
    fn channels(&self, at: [i64; 3]) -> [f64; 4] {
        let place = self.place(at);
        self.swizzle.map(|from| match (from, place) {
            (5, _) | (6, Some(_)) => 1.0,
            (4 | 6, _) | (_, None) => 0.0,
            (component, Some(at)) => self.number(at, component.into()),
        })
    }

    /// Coordinates of a texel in the order of a kernel, with the layer where the image has it.
    fn ordered(&self, at: [i64; 3]) -> [i64; 3] {
        let mut place = [0; 3];
        place[..self.kind.dimensions].copy_from_slice(&at[..self.kind.dimensions]);
        if self.kind.layers {
            place[2] = at[self.kind.dimensions];
        }
        place
    }

    /// The result of a kernel's read at a place without a sampler.
    pub fn texel(&self, at: [i64; 3]) -> [f64; 4] {
        self.channels(self.ordered(at))
    }

    /// The result of sampling at a place.
    pub fn sample(&self, sampler: u64, given: [f64; 3]) -> [f64; 4] {
        let (address, normalized) = (sampler & 7, sampler & 8 != 0);
        let linear = sampler & 16 != 0 && self.channel >= 2;
        // For each dimension, the texels and their weights.
        let mut shares: Vec<Vec<(i64, f64)>> = Vec::new();
        for (&size, &c) in self.size.iter().zip(&given).take(self.kind.dimensions) {
            let n = size as f64;
            let u = match address {
                3 => (c - c.floor()) * n,
                4 => (c - 2.0 * (0.5 * c).round_ties_even()).abs() * n,
                _ if normalized => c * n,
                _ => c,
            };
            let wrap = |index: f64| {
                let index = match address {
                    1 | 4 => index.clamp(0.0, n - 1.0),
                    3 => index.rem_euclid(n),
                    _ => index,
                };
                index as i64
            };
            shares.push(if linear {
                let low = (u - 0.5).floor();
                let part = u - 0.5 - low;
                vec![(wrap(low), 1.0 - part), (wrap(low + 1.0), part)]
            } else {
                vec![(wrap(u.floor()), 1.0)]
            });
        }
        let mut places = vec![([0_i64; 3], 1.0)];
        for (i, parts) in shares.iter().enumerate() {
            let with = |(at, share): ([i64; 3], f64), (index, part): (i64, f64)| {
                let mut at = at;
                at[i] = index;
                (at, share * part)
            };
            places = places.iter().flat_map(|&p| parts.iter().map(move |&q| with(p, q))).collect();
        }
        let layer = self.kind.layers.then(|| {
            let layer = given[self.kind.dimensions].round_ties_even();
            layer.clamp(0.0, self.size[2] as f64 - 1.0) as i64
        });
        let mut sum = [0.0; 4];
        for (mut at, share) in places {
            at[2] = layer.unwrap_or(at[2]);
            for (sum, channel) in sum.iter_mut().zip(self.channels(at)) {
                *sum += share * channel;
            }
        }
        sum
    }

    /// Stores channels at a place, if it is in the image.
    pub fn write(&mut self, at: [i64; 3], texel: &[u32]) {
        let Some(place) = self.place(self.ordered(at)) else { return };
        for component in 0..self.layout.components {
            let channel = self.swizzle.iter().position(|&from| usize::from(from) == component);
            let raw = channel.map_or(0, |c| self.nearest(component, texel[c]));
            self.put(place, component, raw);
        }
    }

    /// The bits of the component's number nearest to a channel.
    fn nearest(&self, component: usize, channel: u32) -> u32 {
        let bits = self.layout.bits[component];
        let most = 2_f64.powi(bits as i32) - 1.0;
        let x = f64::from(f32::from_bits(channel));
        match (self.channel, bits) {
            (0, _) => u64::from(channel).min((1 << bits) - 1) as u32,
            (1, _) => {
                let half = 1_i64 << (bits - 1);
                i64::from(channel as i32).clamp(-half, half - 1) as u32 & (most as u32)
            }
            (3, _) => {
                let high = (most - 1.0) / 2.0;
                (x.clamp(-1.0, 1.0) * high).round_ties_even() as i32 as u32 & (most as u32)
            }
            (4, 32) => channel,
            (4, 16) => half_bits(x),
            (4, 10 | 11) => nearest_small(x, bits - 5),
            (5, _) if component < 3 => {
                let low = x <= 0.003_130_8;
                let c = if low { 12.92 * x } else { 1.055 * x.powf(1.0 / 2.4) - 0.055 };
                (c.clamp(0.0, 1.0) * most).round_ties_even() as u32
            }
            _ => (x.clamp(0.0, 1.0) * most).round_ties_even() as u32,
        }
    }

    /// Compares a channel's bits with a number: exactly for integers, approximately for others.
    pub fn check(&self, bits: u32, want: f64) -> Result<(), String> {
        let (found, near) = match self.channel {
            0 => (f64::from(bits), 0.0),
            1 => (f64::from(bits as i32), 0.0),
            _ => (f64::from(f32::from_bits(bits)), 1e-4 + want.abs() * 1e-5),
        };
        let right = (found - want).abs() <= near || (found.is_nan() && want.is_nan());
        if right { Ok(()) } else { Err(format!("{found}, not {want}")) }
    }
}

/// A number with 5 bits of exponent and `mantissa` bits of mantissa.
fn float(raw: u32, mantissa: u32) -> f64 {
    let (exponent, fraction) = (raw >> mantissa, f64::from(raw & ((1 << mantissa) - 1)));
    let unit = 2_f64.powi(-(mantissa as i32));
    match exponent {
        0 => fraction * unit * 2_f64.powi(-14),
        31 if fraction == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        _ => (1.0 + fraction * unit) * 2_f64.powi(exponent as i32 - 15),
    }
}

/// The nearest number of the format, the even one of two; the largest if `x` is beyond it.
fn nearest_small(x: f64, mantissa: u32) -> u32 {
    if x == f64::INFINITY {
        return 31 << mantissa;
    }
    let distance = |raw: &u32| ((float(*raw, mantissa) - x).abs(), raw % 2);
    let all = 0..31_u32 << mantissa;
    all.min_by(|a, b| distance(a).partial_cmp(&distance(b)).expect("no NaN")).unwrap_or(0)
}

/// A binary16, by rounding to the nearest.
fn half_bits(x: f64) -> u32 {
    let sign = if x.is_sign_negative() { 0x8000 } else { 0 };
    let x = x.abs();
    if x >= 65520.0 {
        return sign | 0x7c00;
    }
    let exponent = ((x.to_bits() >> 52) as i32 - 1023).max(-14);
    let units = (x * 2_f64.powi(10 - exponent)).round_ties_even() as u32;
    sign | ((((exponent + 14) as u32) << 10) + units)
}
