// SPDX-License-Identifier: MPL-2.0
//! The two kernels of a network, each for one row of pixels whose channels lie side by side: a dense one, from all channels of a window
//! to all channels of a pixel, and a depthwise one, from a channel's window to the channel.

use crate::vector::{self, LANES, Vector};

/// The vector instructions that the kernels use. A value proves that the processor has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instructions(Set);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "sets of x86"))]
enum Set {
    /// What every processor of the architecture has: SSE2, NEON.
    Baseline,
    Avx2,
    Avx512,
}

impl Instructions {
    /// All that this processor has, the fastest one last.
    pub fn all() -> Vec<Self> {
        let all = [Set::Baseline].into_iter();
        #[cfg(target_arch = "x86_64")]
        let all = {
            let has_avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
            let has_avx512 = has_avx2 && is_x86_feature_detected!("avx512f");
            all.chain(has_avx2.then_some(Set::Avx2)).chain(has_avx512.then_some(Set::Avx512))
        };
        all.map(Self).collect()
    }

    pub fn name(self) -> &'static str {
        match self.0 {
            Set::Avx512 => "avx512",
            Set::Avx2 => "avx2",
            Set::Baseline if cfg!(target_arch = "x86_64") => "sse2",
            Set::Baseline if cfg!(target_arch = "aarch64") => "neon",
            Set::Baseline => "none",
        }
    }
}

/// Weights of a linear function, in panels of `LANES` outputs. The inputs of a window are ordered by row, pixel and channel.
pub struct Dense {
    inputs: usize,
    outputs: usize,
    /// `[panel][input][LANES]`
    weights: Vec<[f32; LANES]>,
    /// `[panel][LANES]`
    bias: Vec<[f32; LANES]>,
}

impl Dense {
    /// `weight` is called with an output and an input.
    pub fn new(inputs: usize, bias: &[f32], weight: impl Fn(usize, usize) -> f32) -> Self {
        let panels = bias.len().div_ceil(LANES);
        let mut this = Self {
            inputs,
            outputs: bias.len(),
            weights: vec![[0.; LANES]; panels * inputs],
            bias: vec![[0.; LANES]; panels],
        };
        this.bias.as_flattened_mut()[..bias.len()].copy_from_slice(bias);
        for output in 0..bias.len() {
            for input in 0..inputs {
                this.weights[output / LANES * inputs + input][output % LANES] = weight(output, input);
            }
        }
        this
    }

    /// Multiplies each output by a factor and adds an offset. If there are more outputs than factors, both repeat from the start.
    pub fn scale(&mut self, factors: &[f32], offsets: &[f32]) {
        for output in 0..self.outputs {
            let (panel, lane, factor) = (output / LANES, output % LANES, factors[output % factors.len()]);
            self.weights[panel * self.inputs..][..self.inputs].iter_mut().for_each(|weights| weights[lane] *= factor);
            self.bias[panel][lane] = self.bias[panel][lane] * factor + offsets[output % offsets.len()];
        }
    }
}

/// Weights of a 3x3 window of each channel, in groups of `LANES` channels.
pub struct Depthwise {
    /// `[group][3 x 3][LANES]`
    weights: Vec<[[f32; LANES]; 9]>,
    /// `[group][LANES]`
    bias: Vec<[f32; LANES]>,
}

impl Depthwise {
    /// `weights` has the nine weights of a channel side by side. `None` if the number of channels is no multiple of `LANES`.
    pub fn new(bias: &[f32], weights: &[f32]) -> Option<Self> {
        let (bias, []) = bias.as_chunks() else { return None };
        let group = |group| {
            std::array::from_fn(|place| std::array::from_fn(|lane| weights[(group * LANES + lane) * 9 + place]))
        };
        Some(Self { weights: (0..bias.len()).map(group).collect(), bias: bias.to_vec() })
    }
}

/// What a layer computes for each pixel of its output.
pub enum Operation {
    /// Reads a window of `side` x `side` pixels, 1 or 3, which moves by `stride` pixels.
    Dense { weights: Dense, side: usize, stride: usize },
    /// Reads a window of 3x3 pixels of each channel by itself.
    Depthwise { weights: Depthwise, stride: usize },
    /// Makes 2x2 pixels of one. The weights are those of even and of odd rows of the output.
    Double([Dense; 2]),
}

/// A row of a layer's output: the operation, then ReLU, then an addition.
pub struct Row<'a> {
    pub operation: &'a Operation,
    /// The rows of the input above, at and below the window's centre, with a border of one pixel.
    pub inputs: [&'a [f32]; 3],
    pub is_odd: bool,
    pub relu: bool,
    /// Values of the output's size.
    pub add: Option<&'a [f32]>,
}

impl Row<'_> {
    pub fn compute(&self, instructions: Instructions, output: &mut [f32]) {
        /// Calls a kernel of the instruction set.
        macro_rules! call {
            ($kernel:ident, $($argument:expr),*) => {
                // SAFETY: a value of `Instructions` exists only where the processor has them.
                unsafe {
                    match instructions.0 {
                        #[cfg(target_arch = "x86_64")]
                        Set::Avx512 => avx512::$kernel(self, $($argument),*),
                        #[cfg(target_arch = "x86_64")]
                        Set::Avx2 => avx2::$kernel(self, $($argument),*),
                        _ => baseline::$kernel(self, $($argument),*),
                    }
                }
            };
        }
        let (weights, side, stride) = match self.operation {
            Operation::Dense { weights, side, stride } => (weights, *side, *stride),
            Operation::Double(weights) => (&weights[usize::from(self.is_odd)], 1, 1),
            Operation::Depthwise { weights, stride } => return call!(depthwise, weights, *stride, output),
        };
        assert!(stride == 1 || stride == 2);
        let channels = weights.inputs / (side * side);
        let step = stride * channels;
        if side == 1 {
            call!(dense, weights, [&self.inputs[1][channels..]], step, output);
        } else {
            call!(dense, weights, self.inputs, step, output);
        }
    }
}

/// Both kernels for an instruction set, each a function of its own, because the compiler keeps the sums in registers only in small
/// functions. A tile of the dense one has at most so many pixels and panels that its sums and a panel's weights fit into the registers.
macro_rules! kernels {
    ($module:ident, $vector:ident, $pixels:literal, $panels:literal $(, $feature:literal)?) => {
        mod $module {
            use super::*;

            /// # Safety
            /// The processor has the instructions.
            $(#[target_feature(enable = $feature)])?
            pub unsafe fn dense<const N: usize>(row: &Row, weights: &Dense, inputs: [&[f32]; N], step: usize, output: &mut [f32]) {
                // SAFETY: the instructions are enabled here.
                unsafe { super::dense::<vector::$vector, $pixels, $panels, N>(row, weights, inputs, step, output) };
            }

            /// # Safety
            /// The processor has the instructions.
            $(#[target_feature(enable = $feature)])?
            pub unsafe fn depthwise(row: &Row, weights: &Depthwise, stride: usize, output: &mut [f32]) {
                // SAFETY: the instructions are enabled here.
                unsafe {
                    match stride {
                        1 => super::depthwise::<vector::$vector, 1>(row, weights, output),
                        _ => super::depthwise::<vector::$vector, 2>(row, weights, output),
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
// SSE2 has sixteen registers of four values; a vector takes four of them. ARM has thirty-two such registers.
#[cfg(target_arch = "x86_64")]
kernels!(baseline, Baseline, 3, 1);
#[cfg(not(target_arch = "x86_64"))]
kernels!(baseline, Baseline, 6, 1);

/// `step`: values from one window to the next.
///
/// # Safety
/// This and all functions below require the instructions of `V`.
#[inline(always)]
unsafe fn dense<V: Vector, const M: usize, const P: usize, const N: usize>(
    row: &Row,
    weights: &Dense,
    inputs: [&[f32]; N],
    step: usize,
    output: &mut [f32],
) {
    let pixels = output.len() / weights.outputs;
    let tiles = pixels.div_ceil(M);
    let mut panel = 0;
    while panel < weights.bias.len() {
        let is_wide = panel + P <= weights.bias.len();
        for number in 0..tiles {
            // Tiles of about the same size: a small one takes as long as a full one.
            let (first, end) = (number * pixels / tiles, (number + 1) * pixels / tiles);
            macro_rules! sizes {
                ($($size:literal)*) => {
                    match end - first {
                        // SAFETY: this is inlined into a function that enables the instructions of `V`.
                        $($size if $size <= M => unsafe {
                            if is_wide {
                                tile::<V, $size, P, N>(row, weights, panel, inputs, step, first, output)
                            } else {
                                tile::<V, $size, 1, N>(row, weights, panel, inputs, step, first, output)
                            }
                        })*
                        _ => unreachable!("a tile has M pixels at most"),
                    }
                };
            }
            sizes!(12 11 10 9 8 7 6 5 4 3 2 1);
        }
        panel += if is_wide { P } else { 1 };
    }
}

/// `P` panels of `M` pixels, `first` and those after it.
#[inline(always)]
unsafe fn tile<V: Vector, const M: usize, const P: usize, const N: usize>(
    row: &Row,
    weights: &Dense,
    panel: usize,
    inputs: [&[f32]; N],
    step: usize,
    first: usize,
    output: &mut [f32],
) {
    let share = weights.inputs / N;
    let panels: [_; P] = std::array::from_fn(|p| &weights.weights[(panel + p) * weights.inputs..][..weights.inputs]);
    // SAFETY: this is inlined into a function that enables the instructions of `V`.
    let mut sums: [[V; P]; M] = [std::array::from_fn(|p| unsafe { V::load(&weights.bias[panel + p]) }); M];
    for (n, input) in inputs.iter().enumerate() {
        let input = &input[first * step..][..(M - 1) * step + share];
        for i in 0..share {
            // SAFETY: a panel has `share` weights for each of `inputs`, and this is inlined into a function that enables the instructions of `V`.
            let weights: [V; P] = std::array::from_fn(|p| unsafe { V::load(panels[p].get_unchecked(n * share + i)) });
            for (m, sums) in sums.iter_mut().enumerate() {
                // SAFETY: `input` was cut so that it ends with value share - 1 of pixel M - 1.
                let value = unsafe { V::splat(*input.get_unchecked(m * step + i)) };
                for (sum, weights) in sums.iter_mut().zip(weights) {
                    // SAFETY: this is inlined into a function that enables the instructions of `V`.
                    *sum = unsafe { sum.plus_product(value, weights) };
                }
            }
        }
    }
    let start = panel * LANES;
    let width = (weights.outputs - start).min(P * LANES);
    for (m, sums) in sums.into_iter().enumerate() {
        // SAFETY: this is inlined into a function that enables the instructions of `V`.
        unsafe { finish(row, sums, (first + m) * weights.outputs + start, width, output) };
    }
}

#[inline(always)]
unsafe fn depthwise<V: Vector, const STRIDE: usize>(row: &Row, weights: &Depthwise, output: &mut [f32]) {
    let channels = weights.bias.len() * LANES;
    let pixels = output.len() / channels;
    assert!(row.inputs.iter().all(|input| input.len() >= ((pixels - 1) * STRIDE + 3) * channels));
    // All channels of so few pixels stay in the first-level cache.
    for start in (0..pixels).step_by(16) {
        let end = pixels.min(start + 16);
        for (group, (weights, bias)) in weights.weights.iter().zip(&weights.bias).enumerate() {
            // SAFETY: this is inlined into a function that enables the instructions of `V`; the lengths of the inputs are asserted above.
            unsafe {
                let (weights, bias) = (weights.each_ref().map(|weights| V::load(weights)), V::load(bias));
                let (mut first, channel) = (start, group * LANES);
                while first + 4 <= end {
                    depthwise_tile::<V, 4, STRIDE>(row, &weights, bias, channels, channel, first, output);
                    first += 4;
                }
                (first..end).for_each(|first| {
                    depthwise_tile::<V, 1, STRIDE>(row, &weights, bias, channels, channel, first, output);
                });
            }
        }
    }
}

/// `LANES` channels, `channel` and those after it, of `M` pixels, `first` and those after it. The caller has checked that each input reaches to the end of the last window.
#[inline(always)]
unsafe fn depthwise_tile<V: Vector, const M: usize, const STRIDE: usize>(
    row: &Row,
    weights: &[V; 9],
    bias: V,
    channels: usize,
    channel: usize,
    first: usize,
    output: &mut [f32],
) {
    let mut sums = [bias; M];
    for (input, weights) in row.inputs.iter().zip(weights.as_chunks::<3>().0) {
        for (m, sum) in sums.iter_mut().enumerate() {
            for (x, weights) in weights.iter().enumerate() {
                let start = ((first + m) * STRIDE + x) * channels + channel;
                // SAFETY: `depthwise` asserts the lengths of the inputs, and this is inlined into a function that enables the instructions of `V`.
                unsafe {
                    let values = input.get_unchecked(start..start + LANES).as_chunks().0.get_unchecked(0);
                    *sum = sum.plus_product(V::load(values), *weights);
                }
            }
        }
    }
    for (m, sum) in sums.into_iter().enumerate() {
        // SAFETY: this is inlined into a function that enables the instructions of `V`.
        unsafe { finish(row, [sum], (first + m) * channels + channel, LANES, output) };
    }
}

/// Stores the first `width` sums at `place`, after ReLU and the addition.
#[inline(always)]
unsafe fn finish<V: Vector, const P: usize>(row: &Row, sums: [V; P], place: usize, width: usize, output: &mut [f32]) {
    let (outputs, last_output) = output[place..][..width].as_chunks_mut::<LANES>();
    let (adds, last_add) = row.add.map_or(&[][..], |add| &add[place..][..width]).as_chunks::<LANES>();
    for (p, sum) in sums.into_iter().enumerate() {
        // SAFETY: this is inlined into a function that enables the instructions of `V`.
        unsafe {
            let mut sum = sum.at_least(V::splat(if row.relu { 0. } else { f32::NEG_INFINITY }));
            if let Some(add) = adds.get(p) {
                sum = sum.plus(V::load(add));
            }
            if let Some(output) = outputs.get_mut(p) {
                sum.store(output);
            } else {
                let mut last = [0.; LANES];
                sum.store(&mut last);
                last.iter_mut().zip(last_add).for_each(|(value, add)| *value += add);
                last_output.copy_from_slice(&last[..last_output.len()]);
            }
        }
    }
}
