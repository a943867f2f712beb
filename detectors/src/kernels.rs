// SPDX-License-Identifier: MPL-2.0
//! The two operations of a network, each on one row of pixels whose channels lie side by side.

use crate::vector::{self, LANES, Vector};

/// The vector instructions that the kernels use. A value proves that the processor has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instructions(Set);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Set {
    /// What every processor of the architecture has: SSE2, NEON.
    Baseline,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Instructions {
    /// All that this processor has; the last one is the fastest.
    pub fn all() -> Vec<Self> {
        let mut all = vec![Self(Set::Baseline)];
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            all.push(Self(Set::Avx2));
            if is_x86_feature_detected!("avx512f") {
                all.push(Self(Set::Avx512));
            }
        }
        all
    }

    pub fn name(self) -> &'static str {
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            Set::Avx2 => "avx2",
            #[cfg(target_arch = "x86_64")]
            Set::Avx512 => "avx512",
            Set::Baseline if cfg!(target_arch = "x86_64") => "sse2",
            Set::Baseline if cfg!(target_arch = "aarch64") => "neon",
            Set::Baseline => "baseline",
        }
    }
}

/// A linear function of the channels of a pixel, or of a window of pixels whose rows are contiguous.
pub struct Dense {
    pub inputs: usize,
    pub outputs: usize,
    /// [panel][input][LANES]
    weights: Vec<f32>,
    /// [panel][LANES]
    bias: Vec<f32>,
}

impl Dense {
    /// `weight` is called with an output and an input.
    pub fn new(inputs: usize, bias: &[f32], weight: impl Fn(usize, usize) -> f32) -> Self {
        let outputs = bias.len();
        let panels = outputs.div_ceil(LANES);
        let mut weights = vec![0.; panels * inputs * LANES];
        for output in 0..outputs {
            for input in 0..inputs {
                weights[(output / LANES * inputs + input) * LANES + output % LANES] = weight(output, input);
            }
        }
        let mut padded = bias.to_vec();
        padded.resize(panels * LANES, 0.);
        Self { inputs, outputs, weights, bias: padded }
    }
}

/// A 3x3 window of each channel by itself. The number of channels is a multiple of `LANES`.
pub struct Depthwise {
    /// [channels / LANES][3 x 3][LANES]
    weights: Vec<f32>,
    bias: Vec<f32>,
}

impl Depthwise {
    /// `weight` is called with a channel and a place of the window, 0 to 8.
    pub fn new(bias: &[f32], weight: impl Fn(usize, usize) -> f32) -> Self {
        assert_eq!(bias.len() % LANES, 0);
        let places = 9 * LANES;
        let weights = (0..bias.len() * 9).map(|i| weight(i / places * LANES + i % LANES, i % places / LANES)).collect();
        Self { weights, bias: bias.to_vec() }
    }

    pub fn channels(&self) -> usize {
        self.bias.len()
    }
}

/// What becomes of the sums of a row.
#[derive(Clone, Copy)]
pub struct Then<'a> {
    pub relu: bool,
    /// Values of the output's size that are added at last.
    pub add: Option<&'a [f32]>,
}

/// The rows that a kernel reads, each from its first window on.
#[derive(Clone, Copy)]
pub struct Rows<'a, const N: usize> {
    pub rows: [&'a [f32]; N],
    /// Values from one window to the next.
    pub step: usize,
}

/// `P` panels of `M` pixels, `first` and those after it.
#[inline(always)]
unsafe fn tile<V: Vector, const M: usize, const P: usize, const N: usize>(
    dense: &Dense,
    panel: usize,
    from: Rows<N>,
    first: usize,
    output: &mut [f32],
    then: Then,
) {
    let (share, step) = (dense.inputs / N, from.step);
    let biases: [_; P] = std::array::from_fn(|p| &dense.bias.as_chunks().0[panel + p]);
    let panels: [_; P] =
        std::array::from_fn(|p| &dense.weights.as_chunks::<LANES>().0[(panel + p) * dense.inputs..][..N * share]);
    // SAFETY: the caller vouches for the instructions, here and below.
    let mut sums: [[V; P]; M] = [std::array::from_fn(|p| unsafe { V::load(biases[p]) }); M];
    for (n, row) in from.rows.iter().enumerate() {
        let row = &row[first * step..][..(M - 1) * step + share];
        for i in 0..share {
            // SAFETY: the slices have `N * share` values each.
            let weights: [V; P] = std::array::from_fn(|p| unsafe { V::load(panels[p].get_unchecked(n * share + i)) });
            for m in 0..M {
                // SAFETY: m is less than `M` and i than `share`, of which the length of `row` was made.
                let value = unsafe { V::splat(*row.get_unchecked(m * step + i)) };
                for p in 0..P {
                    // SAFETY: the instructions are there.
                    sums[m][p] = unsafe { sums[m][p].plus_product(value, weights[p]) };
                }
            }
        }
    }
    let start = panel * LANES;
    for (m, sums) in sums.into_iter().enumerate() {
        let place = (first + m) * dense.outputs + start;
        let width = (dense.outputs - start).min(P * LANES);
        // SAFETY: the instructions are there.
        unsafe { finish(sums, place, width, output, then) };
    }
}

/// Stores the first `width` sums at `place`.
#[inline(always)]
unsafe fn finish<V: Vector, const P: usize>(sums: [V; P], place: usize, width: usize, output: &mut [f32], then: Then) {
    let output = &mut output[place..][..width];
    let add = then.add.map_or(&[][..], |add| &add[place..][..width]);
    // SAFETY: the caller vouches for the instructions, here and below.
    let floor = unsafe { V::splat(if then.relu { 0. } else { f32::NEG_INFINITY }) };
    let (mut outputs, mut adds) = (output.as_chunks_mut::<LANES>(), add.as_chunks::<LANES>());
    for (p, sum) in sums.into_iter().enumerate() {
        // SAFETY: the instructions are there.
        let mut sum = unsafe { sum.at_least(floor) };
        if let Some(output) = outputs.0.get_mut(p) {
            if let Some(add) = adds.0.get(p) {
                // SAFETY: the instructions are there.
                sum = unsafe { sum.plus(V::load(add)) };
            }
            // SAFETY: the instructions are there.
            unsafe { sum.store(output) };
        } else {
            let mut last = [0.; LANES];
            // SAFETY: the instructions are there.
            unsafe { sum.store(&mut last) };
            last.iter_mut().zip(adds.1).for_each(|(value, add)| *value += add);
            outputs.1.copy_from_slice(&last[..outputs.1.len()]);
            (outputs.1, adds.1) = (&mut [], &[]);
        }
    }
}

/// Tiles of at most `M` pixels and at most `P` panels.
#[inline(always)]
unsafe fn dense_body<V: Vector, const M: usize, const P: usize, const N: usize>(
    dense: &Dense,
    from: Rows<N>,
    pixels: usize,
    output: &mut [f32],
    then: Then,
) {
    let (panels, tiles) = (dense.outputs.div_ceil(LANES), pixels.div_ceil(M));
    let mut panel = 0;
    while panel < panels {
        let wide = if panels - panel >= P { P } else { 1 };
        for number in 0..tiles {
            // Tiles of about the same size: a small one takes as long as a full one.
            let (first, end) = (number * pixels / tiles, (number + 1) * pixels / tiles);
            macro_rules! sizes {
                ($($size:literal)*) => {
                    match end - first {
                        // SAFETY: the caller vouches for the instructions.
                        $($size if $size <= M && wide == P => unsafe { tile::<V, $size, P, N>(dense, panel, from, first, output, then) },
                        $size if $size <= M => unsafe { tile::<V, $size, 1, N>(dense, panel, from, first, output, then) },)*
                        _ => unreachable!(),
                    }
                };
            }
            sizes!(12 11 10 9 8 7 6 5 4 3 2 1);
        }
        panel += wide;
    }
}

/// `M` pixels, `first` and those after it, of `LANES` channels from `channel` on.
#[inline(always)]
unsafe fn depthwise_tile<V: Vector, const M: usize, const STRIDE: usize>(
    weights: &[V; 9],
    bias: V,
    from: Rows<3>,
    channels: usize,
    channel: usize,
    first: usize,
    output: &mut [f32],
    then: Then,
) {
    let mut sums = [bias; M];
    for y in 0..3 {
        for (m, sum) in sums.iter_mut().enumerate() {
            for x in 0..3 {
                let start = ((first + m) * STRIDE + x) * channels + channel;
                // SAFETY: `depthwise_body` asserts that the rows are long enough.
                let values: &[f32; LANES] =
                    unsafe { from.rows[y].get_unchecked(start..start + LANES) }.try_into().unwrap();
                // SAFETY: the caller vouches for the instructions.
                *sum = unsafe { sum.plus_product(V::load(values), weights[y * 3 + x]) };
            }
        }
    }
    for (m, sum) in sums.into_iter().enumerate() {
        // SAFETY: the caller vouches for the instructions.
        unsafe { finish([sum], (first + m) * channels + channel, LANES, output, then) };
    }
}

#[inline(always)]
unsafe fn depthwise_body<V: Vector, const STRIDE: usize>(
    depthwise: &Depthwise,
    from: Rows<3>,
    pixels: usize,
    output: &mut [f32],
    then: Then,
) {
    let channels = depthwise.channels();
    assert!(from.rows.iter().all(|row| row.len() >= ((pixels - 1) * STRIDE + 3) * channels));
    // Few enough pixels that all their channels stay in the nearest cache.
    for start in (0..pixels).step_by(16) {
        let parts = depthwise.weights.as_chunks::<LANES>().0.as_chunks::<9>().0;
        for (part, (weights, bias)) in parts.iter().zip(depthwise.bias.as_chunks::<LANES>().0).enumerate() {
            // SAFETY: the caller vouches for the instructions, here and below.
            let (weights, bias) = unsafe { (weights.each_ref().map(|weights| V::load(weights)), V::load(bias)) };
            let (mut first, end, channel) = (start, pixels.min(start + 16), part * LANES);
            while first + 4 <= end {
                // SAFETY: the instructions are there.
                unsafe { depthwise_tile::<V, 4, STRIDE>(&weights, bias, from, channels, channel, first, output, then) };
                first += 4;
            }
            for first in first..end {
                // SAFETY: the instructions are there.
                unsafe { depthwise_tile::<V, 1, STRIDE>(&weights, bias, from, channels, channel, first, output, then) };
            }
        }
    }
}

/// Both kernels for one set of instructions: tiles of at most so many pixels and panels, whose sums fit into the registers with the
/// weights of a panel.
macro_rules! kernels {
    ($module:ident, $vector:ident, $pixels:literal, $panels:literal $(, $feature:literal)?) => {
        mod $module {
            use super::*;

            /// # Safety
            /// The processor has the instructions.
            $(#[target_feature(enable = $feature)])?
            pub unsafe fn dense<const N: usize>(dense: &Dense, from: Rows<N>, pixels: usize, output: &mut [f32], then: Then) {
                // SAFETY: the instructions are enabled here.
                unsafe { dense_body::<vector::$vector, $pixels, $panels, N>(dense, from, pixels, output, then) };
            }

            /// # Safety
            /// The processor has the instructions.
            $(#[target_feature(enable = $feature)])?
            pub unsafe fn depthwise(depthwise: &Depthwise, from: Rows<3>, pixels: usize, output: &mut [f32], then: Then) {
                // SAFETY: the instructions are enabled here.
                unsafe {
                    if from.step == depthwise.channels() {
                        depthwise_body::<vector::$vector, 1>(depthwise, from, pixels, output, then);
                    } else {
                        depthwise_body::<vector::$vector, 2>(depthwise, from, pixels, output, then);
                    }
                }
            }
        }
    };
}
#[cfg(target_arch = "x86_64")]
kernels!(avx512, Avx512, 12, 2, "avx512f");
#[cfg(target_arch = "x86_64")]
kernels!(avx2, Avx2, 6, 1, "avx2,fma");
#[cfg(target_arch = "x86_64")]
kernels!(baseline, Baseline, 3, 1);
#[cfg(not(target_arch = "x86_64"))]
kernels!(baseline, Baseline, 6, 1);

/// Calls a kernel of the instruction set.
macro_rules! call {
    ($set:ident, $kernel:ident, $($argument:expr),*) => {
        // SAFETY: a value of `Instructions` exists only where the processor has them.
        unsafe {
            match $set.0 {
                #[cfg(target_arch = "x86_64")]
                Set::Avx512 => avx512::$kernel($($argument),*),
                #[cfg(target_arch = "x86_64")]
                Set::Avx2 => avx2::$kernel($($argument),*),
                Set::Baseline => baseline::$kernel($($argument),*),
            }
        }
    };
}

/// Writes `pixels` pixels of `output`.
pub fn dense<const N: usize>(
    set: Instructions,
    weights: &Dense,
    from: Rows<N>,
    pixels: usize,
    output: &mut [f32],
    then: Then,
) {
    call!(set, dense, weights, from, pixels, output, then);
}

/// Writes `pixels` pixels of `output`.
pub fn depthwise(set: Instructions, weights: &Depthwise, from: Rows<3>, pixels: usize, output: &mut [f32], then: Then) {
    call!(set, depthwise, weights, from, pixels, output, then);
}
