// SPDX-License-Identifier: MPL-2.0
//! Computes a layer of a network for one row of pixels, whose channels lie side by side. Two kernels take nearly all of the time.
//! The dense kernel computes all channels of a pixel from all channels of a window. The depthwise kernel computes each channel of
//! a pixel from the window of this channel.

use crate::vector::{self, LANES, Vector};

/// The vector instructions that the kernels use. A value of this type proves that the processor has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instructions(Set);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "sets of x86"))]
enum Set {
    /// The instructions that every processor of the architecture has, such as SSE2 or NEON.
    Baseline,
    Avx2,
    Avx512,
}

impl Instructions {
    /// All instruction sets that this processor has. The fastest one is the last.
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
            Set::Baseline => "portable",
        }
    }
}

/// The weights of a linear function, in panels of `LANES` outputs. The inputs of a window are ordered by row, pixel and channel.
pub struct Dense {
    inputs: usize,
    outputs: usize,
    /// `[panel][input][LANES]`
    weights: Vec<[f32; LANES]>,
    /// `[panel][LANES]`
    bias: Vec<[f32; LANES]>,
}

impl Dense {
    /// Makes the panels. `weight` returns the weight for an output and an input.
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

    /// Multiplies each output by a factor and adds an offset. If there are more outputs than factors, factors and offsets repeat
    /// from the start.
    pub fn scale(&mut self, factors: &[f32], offsets: &[f32]) {
        for output in 0..self.outputs {
            let (panel, lane, factor) = (output / LANES, output % LANES, factors[output % factors.len()]);
            self.weights[panel * self.inputs..][..self.inputs].iter_mut().for_each(|weights| weights[lane] *= factor);
            self.bias[panel][lane] = self.bias[panel][lane] * factor + offsets[output % offsets.len()];
        }
    }
}

/// The weights of a window for each channel, in groups of `LANES` channels.
pub struct Depthwise {
    channels: usize,
    /// `[group][side x side][LANES]`. If the number of channels is not a multiple of `LANES`, the last group overlaps the one
    /// before.
    weights: Vec<[f32; LANES]>,
    /// `[group][LANES]`
    bias: Vec<[f32; LANES]>,
}

impl Depthwise {
    /// Makes the groups. In `weights`, the weights of a channel's window lie side by side. `None` if there are fewer than `LANES`
    /// channels.
    pub fn new(side: usize, bias: &[f32], weights: &[f32]) -> Option<Self> {
        let (channels, area) = (bias.len(), side * side);
        let last = channels.checked_sub(LANES)?;
        let starts = || (0..channels).step_by(LANES).map(|start| start.min(last));
        let place = |start, place| std::array::from_fn(|lane| weights[(start + lane) * area + place]);
        Some(Self {
            channels,
            weights: starts().flat_map(|start| (0..area).map(move |number| place(start, number))).collect(),
            bias: starts().map(|start| std::array::from_fn(|lane| bias[start + lane])).collect(),
        })
    }
}

/// The pixels from which a pixel of the output is computed.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// The number of rows and of columns: 1, 3 or 5.
    pub side: usize,
    /// The distance from one window to the next in pixels, 1 or 2.
    pub stride: usize,
    /// The distance down and right from the first pixel to the centre of the first window, 0 or 1.
    pub shift: usize,
}

/// The operation of a layer for each pixel of its output.
pub enum Operation {
    /// A linear function of all channels in a window of one or three rows.
    Dense { weights: Dense, window: Window },
    /// For each channel, a linear function of this channel in a window of three or five rows.
    Depthwise { weights: Depthwise, window: Window },
    /// Makes 2x2 pixels from each pixel. The first weights are for even rows of the output, the second for odd rows.
    Double([Dense; 2]),
    /// Makes 2x2 pixels from each pixel: bilinear, from centre to centre. Beyond the edges, the outermost pixels repeat.
    Enlarge,
    /// Multiplies each channel by a factor. Without factors, the channels stay unchanged.
    Multiply,
    /// The mean of all pixels.
    Mean,
}

/// The number of zero pixels on each side of a row.
pub const BORDER: usize = 2;

/// The computation of one row of a layer's output: the operation, then ReLU, then an addition. `Enlarge` ignores both, and
/// `Multiply` ignores ReLU.
pub struct Row<'a> {
    pub operation: &'a Operation,
    /// The number of channels of the input.
    pub channels: usize,
    /// The rows of the input around the centre of the window, with a border of `BORDER` pixels. The third row is the centre.
    pub inputs: [&'a [f32]; 5],
    /// For `Operation::Multiply`: a value for each channel.
    pub factors: Option<&'a [f32]>,
    pub is_odd: bool,
    pub relu: bool,
    /// The values to add, as many as the output has.
    pub add: Option<&'a [f32]>,
}

impl Row<'_> {
    pub fn compute(&self, instructions: Instructions, output: &mut [f32]) {
        /// Calls a kernel for the instruction set.
        macro_rules! call {
            ($kernel:ident $(::<$($constant:literal),*>)?, $($argument:expr),*) => {
                // SAFETY: a value of `Instructions` exists only if the processor has these instructions.
                unsafe {
                    match instructions.0 {
                        #[cfg(target_arch = "x86_64")]
                        Set::Avx512 => avx512::$kernel$(::<$($constant),*>)?(self, $($argument),*),
                        #[cfg(target_arch = "x86_64")]
                        Set::Avx2 => avx2::$kernel$(::<$($constant),*>)?(self, $($argument),*),
                        _ => baseline::$kernel$(::<$($constant),*>)?(self, $($argument),*),
                    }
                }
            };
        }
        let (weights, window) = match self.operation {
            Operation::Dense { weights, window } => (weights, *window),
            Operation::Double(weights) => (&weights[usize::from(self.is_odd)], Window { side: 1, stride: 1, shift: 0 }),
            Operation::Depthwise { weights, window } => {
                let start = window.start() * weights.channels;
                return match (window.side, window.stride) {
                    (3, 1) => call!(depthwise::<3, 1>, weights, start, output),
                    (3, _) => call!(depthwise::<3, 2>, weights, start, output),
                    (_, 1) => call!(depthwise::<5, 1>, weights, start, output),
                    (_, _) => call!(depthwise::<5, 2>, weights, start, output),
                };
            }
            Operation::Enlarge => return self.enlarge(output),
            Operation::Multiply => return self.multiply(output),
            Operation::Mean => unreachable!("it reads all rows"),
        };
        let channels = weights.inputs / (window.side * window.side);
        let (step, start) = (window.stride * channels, window.start() * channels);
        if window.side == 1 {
            call!(dense, weights, [&self.inputs[2][start..]], step, output);
        } else {
            let [_, above, middle, below, _] = self.inputs;
            call!(dense, weights, [above, middle, below].map(|input| &input[start..]), step, output);
        }
    }

    fn enlarge(&self, output: &mut [f32]) {
        let channels = self.channels;
        let near = self.inputs[2];
        let other = self.inputs[if self.is_odd { 3 } else { 1 }];
        let pixels = output.len() / (2 * channels);
        for (x, output) in output.chunks_exact_mut(channels).enumerate() {
            let other_x = if x % 2 == 1 { (x / 2 + 1).min(pixels - 1) } else { (x / 2).saturating_sub(1) };
            let [a, b] = [near, other].map(|row| &row[(x / 2 + BORDER) * channels..][..channels]);
            let [c, d] = [near, other].map(|row| &row[(other_x + BORDER) * channels..][..channels]);
            for ((output, (a, b)), (c, d)) in output.iter_mut().zip(a.iter().zip(b)).zip(c.iter().zip(d)) {
                *output = 0.75 * (0.75 * a + 0.25 * b) + 0.25 * (0.75 * c + 0.25 * d);
            }
        }
    }

    fn multiply(&self, output: &mut [f32]) {
        let channels = self.channels;
        output.copy_from_slice(&self.inputs[2][BORDER * channels..][..output.len()]);
        if let Some(factors) = self.factors {
            for output in output.chunks_exact_mut(channels) {
                output.iter_mut().zip(factors).for_each(|(value, factor)| *value *= factor);
            }
        }
        if let Some(add) = self.add {
            output.iter_mut().zip(add).for_each(|(value, add)| *value += add);
        }
    }
}

impl Window {
    /// The first pixel of the first window, in a row with its border.
    fn start(self) -> usize {
        assert!(matches!(self.side, 1 | 3 | 5) && matches!(self.stride, 1 | 2));
        BORDER + self.shift - self.side / 2
    }
}

/// Both kernels for one instruction set. Each is a separate function, because the compiler keeps the sums in registers only in
/// small functions. A tile of the dense kernel has at most $pixels pixels and $panels panels, so that its sums and the weights of
/// a panel fit into the registers.
macro_rules! kernels {
    ($module:ident, $vector:ident, $pixels:literal, $panels:literal $(, $feature:literal)?) => {
        mod $module {
            use super::*;

            /// # Safety
            /// The processor has the instructions.
            $(#[target_feature(enable = $feature)])?
            pub unsafe fn dense<const N: usize>(row: &Row, weights: &Dense, inputs: [&[f32]; N], step: usize, output: &mut [f32]) {
                // SAFETY: this function enables the instructions.
                unsafe { super::dense::<vector::$vector, $pixels, $panels, N>(row, weights, inputs, step, output) };
            }

            /// # Safety
            /// The processor has the instructions.
            $(#[target_feature(enable = $feature)])?
            pub unsafe fn depthwise<const SIDE: usize, const STRIDE: usize>(
                row: &Row,
                weights: &Depthwise,
                start: usize,
                output: &mut [f32],
            ) {
                // SAFETY: this function enables the instructions.
                unsafe { super::depthwise::<vector::$vector, SIDE, STRIDE>(row, weights, start, output) };
            }
        }
    };
}
#[cfg(target_arch = "x86_64")]
kernels!(avx512, Avx512, 12, 2, "avx512f");
#[cfg(target_arch = "x86_64")]
kernels!(avx2, Avx2, 6, 1, "avx2,fma");
// SSE2 has sixteen registers of four values, and a vector takes four of them. ARM has thirty-two such registers.
#[cfg(target_arch = "x86_64")]
kernels!(baseline, Baseline, 3, 1);
#[cfg(not(target_arch = "x86_64"))]
kernels!(baseline, Baseline, 6, 1);

/// The dense kernel. `step` is the distance from one window to the next, in values.
///
/// # Safety
/// This function and all functions below require that the processor has the instructions of `V`.
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
            // All tiles have about the same size, because a small one takes as long as a full one.
            let (first, end) = (number * pixels / tiles, (number + 1) * pixels / tiles);
            macro_rules! sizes {
                ($($size:literal)*) => {
                    match end - first {
                        // SAFETY: this code is inlined into a function that enables the instructions of `V`.
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

/// Computes `P` panels, from `panel` on, of `M` pixels, from `first` on.
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
    // SAFETY: this code is inlined into a function that enables the instructions of `V`.
    let mut sums: [[V; P]; M] = [std::array::from_fn(|p| unsafe { V::load(&weights.bias[panel + p]) }); M];
    for (n, input) in inputs.iter().enumerate() {
        let input = &input[first * step..][..(M - 1) * step + share];
        for i in 0..share {
            // SAFETY: a panel has `share` weights for each of `inputs`. This code is inlined into a function that enables the
            // instructions of `V`.
            let weights: [V; P] = std::array::from_fn(|p| unsafe { V::load(panels[p].get_unchecked(n * share + i)) });
            for (m, sums) in sums.iter_mut().enumerate() {
                // SAFETY: `input` was cut to end with value share - 1 of pixel M - 1. This code is inlined into a function that
                // enables the instructions of `V`.
                let value = unsafe { V::splat(*input.get_unchecked(m * step + i)) };
                for (sum, weights) in sums.iter_mut().zip(weights) {
                    // SAFETY: this code is inlined into a function that enables the instructions of `V`.
                    *sum = unsafe { sum.plus_product(value, weights) };
                }
            }
        }
    }
    let start = panel * LANES;
    let width = (weights.outputs - start).min(P * LANES);
    for (m, sums) in sums.into_iter().enumerate() {
        // SAFETY: this code is inlined into a function that enables the instructions of `V`.
        unsafe { finish(row, sums, (first + m) * weights.outputs + start, width, output) };
    }
}

/// The depthwise kernel. `start` is the index of the first value of the first window in a row.
#[inline(always)]
unsafe fn depthwise<V: Vector, const SIDE: usize, const STRIDE: usize>(
    row: &Row,
    weights: &Depthwise,
    start: usize,
    output: &mut [f32],
) {
    let channels = weights.channels;
    let pixels = output.len() / channels;
    let inputs: [_; SIDE] = std::array::from_fn(|y| &row.inputs[(5 - SIDE) / 2 + y][start..]);
    assert!(inputs.iter().all(|input| input.len() >= ((pixels - 1) * STRIDE + SIDE) * channels));
    assert!(weights.weights.len() == weights.bias.len() * SIDE * SIDE && channels >= LANES);
    // All channels of 16 pixels stay in the first-level cache.
    for start in (0..pixels).step_by(16) {
        let end = pixels.min(start + 16);
        for (group, (bias, places)) in weights.bias.iter().zip(weights.weights.chunks_exact(SIDE * SIDE)).enumerate() {
            // SAFETY: this code is inlined into a function that enables the instructions of `V`. The lengths of the inputs and
            // the number of channels are asserted above.
            unsafe {
                let (mut first, channel) = (start, (group * LANES).min(channels - LANES));
                let places = std::array::from_fn(|y| std::array::from_fn(|x| V::load(&places[y * SIDE + x])));
                let (weights, bias) = (places, V::load(bias));
                while first + 4 <= end {
                    depthwise_tile::<V, 4, SIDE, STRIDE>(row, inputs, &weights, bias, channels, channel, first, output);
                    first += 4;
                }
                (first..end).for_each(|first| {
                    depthwise_tile::<V, 1, SIDE, STRIDE>(row, inputs, &weights, bias, channels, channel, first, output);
                });
            }
        }
    }
}

/// Computes `LANES` channels, from `channel` on, of `M` pixels, from `first` on. The caller has checked that each input reaches
/// to the end of the last window.
#[inline(always)]
#[expect(clippy::too_many_arguments, reason = "each is a value of the loop around it")]
unsafe fn depthwise_tile<V: Vector, const M: usize, const SIDE: usize, const STRIDE: usize>(
    row: &Row,
    inputs: [&[f32]; SIDE],
    weights: &[[V; SIDE]; SIDE],
    bias: V,
    channels: usize,
    channel: usize,
    first: usize,
    output: &mut [f32],
) {
    let mut sums = [bias; M];
    for (input, weights) in inputs.iter().zip(weights) {
        for (m, sum) in sums.iter_mut().enumerate() {
            for (x, weights) in weights.iter().enumerate() {
                let start = ((first + m) * STRIDE + x) * channels + channel;
                // SAFETY: `depthwise` asserts the lengths of the inputs. This code is inlined into a function that enables the
                // instructions of `V`.
                unsafe {
                    let values = input.get_unchecked(start..start + LANES).as_chunks().0.get_unchecked(0);
                    *sum = sum.plus_product(V::load(values), *weights);
                }
            }
        }
    }
    for (m, sum) in sums.into_iter().enumerate() {
        // SAFETY: this code is inlined into a function that enables the instructions of `V`.
        unsafe { finish(row, [sum], (first + m) * channels + channel, LANES, output) };
    }
}

/// Applies ReLU and the addition to the first `width` sums, and stores them at `place`.
#[inline(always)]
unsafe fn finish<V: Vector, const P: usize>(row: &Row, sums: [V; P], place: usize, width: usize, output: &mut [f32]) {
    let (outputs, last_output) = output[place..][..width].as_chunks_mut::<LANES>();
    let (adds, last_add) = row.add.map_or(&[][..], |add| &add[place..][..width]).as_chunks::<LANES>();
    for (p, sum) in sums.into_iter().enumerate() {
        // SAFETY: this code is inlined into a function that enables the instructions of `V`.
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
