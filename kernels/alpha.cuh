// SPDX-License-Identifier: MPL-2.0
// The per-pixel kernels around the blur: premultiply colour by alpha before it; unpremultiply, and copy the channels
// that are not blurred, after it. abi.h has their parameter and contract, docs/ARITHMETIC.md the rounding.
#ifndef BLUR_ALPHA_H
#define BLUR_ALPHA_H
#include "pixels.cuh"

// The coordinates of this thread's pixel; false if they are beyond the end of the row.
__device__ __forceinline__ bool thread_pixel(const AlphaArgs& args, u32& x, u32& y) {
  const u32 blocks_per_row = (args.width + BLUR_ALPHA_THREADS - 1) / BLUR_ALPHA_THREADS;
  y = blockIdx.x / blocks_per_row;
  x = blockIdx.x % blocks_per_row * BLUR_ALPHA_THREADS + threadIdx.x;
  return x < args.width;
}

// Channel c of a source pixel, widened to 16 bits.
__device__ __forceinline__ u32 source_sample(const AlphaArgs& args, const u8* pixel, u32 c) {
  if (args.packed1010102) return packed1010102_sample(load_unaligned(pixel), c);
  if (args.depth == 8) return pixel[c] << 8;
  return widen_sample(pixel[2 * c] | pixel[2 * c + 1] << 8, args.depth, args.shift);
}

__device__ __forceinline__ u32 pixel_bytes(const AlphaArgs& args) {
  return args.packed1010102 ? 4 : args.channels * (args.depth == 8 ? 1 : 2);
}

// The alpha of pixel (x, y) from a separate, possibly finer alpha plane: the mean, rounded half up, of the samples that
// the pixel covers, with the plane's last row and column repeated.
__device__ __forceinline__ u32 mean_alpha(const AlphaArgs& args, u32 x, u32 y) {
  const u32 log2_x = args.alpha_subsampling[0], log2_y = args.alpha_subsampling[1], bytes = args.depth == 8 ? 1 : 2;
  u32 sum = 0;
#pragma unroll 1
  for (u32 i = 0; i < 1u << (log2_x + log2_y); i++) {
    const u32 u = (x << log2_x) + (i & ((1u << log2_x) - 1)), v = (y << log2_y) + (i >> log2_x);
    const u8* row = args.alpha_src + (v < args.alpha_height ? v : args.alpha_height - 1) * args.alpha_pitch;
    const u8* alpha = row + (u < args.alpha_width ? u : args.alpha_width - 1) * bytes;
    sum += bytes == 1 ? alpha[0] << 8 : widen_sample(alpha[0] | alpha[1] << 8, args.depth, args.shift);
  }
  return (sum + ((1u << (log2_x + log2_y)) >> 1)) >> (log2_x + log2_y);
}

__device__ __forceinline__ void premultiply(const AlphaArgs& args) {
  u32 x, y;
  if (!thread_pixel(args, x, y)) return;
  const u8* pixel = args.src + y * args.src_pitch + x * pixel_bytes(args);
  const bool separate_alpha = args.alpha_src != nullptr;
  const u32 alpha = separate_alpha ? mean_alpha(args, x, y) : source_sample(args, pixel, args.alpha_channel);
  u16* premultiplied = offset_ptr<u16>(
      args.premultiplied, y * args.premultiplied_pitch + x * (args.channels + separate_alpha) * 2);
#pragma unroll 1
  for (u32 c = 0; c < args.channels; c++) {
    const u32 sample = source_sample(args, pixel, c);
    premultiplied[c] = static_cast<u16>(c == args.alpha_channel ? alpha : (sample * alpha + 32768) >> 16);
  }
  if (separate_alpha) premultiplied[args.channels] = static_cast<u16>(alpha);
}

// Channel c of a destination pixel, `depth` bits, from the pixel's blurred premultiplied samples. `source` is the
// widened source sample, which replaces a colour whose blurred alpha is 0.
__device__ __forceinline__ u32 unpremultiply_sample(
    const AlphaArgs& args, const u16* premultiplied, u32 c, u32 depth, u32 source) {
  const u32 max = (1u << depth) - 1;
  if (c == args.alpha_channel) {
    const u32 rounded = (premultiplied[c] + (1u << (16 - depth) >> 1)) >> (16 - depth);
    return rounded < max ? rounded : max;
  }
  const u32 alpha = premultiplied[args.alpha_src ? args.channels : args.alpha_channel];
  if (alpha == 0) return source >> (16 - depth);
  const u32 colour = ((static_cast<u32>(premultiplied[c]) << depth) + alpha / 2) / alpha;
  return colour < max ? colour : max;
}

__device__ __forceinline__ void unpremultiply(const AlphaArgs& args) {
  u32 x, y;
  if (!thread_pixel(args, x, y)) return;
  const u8* src = args.src + y * args.src_pitch + x * pixel_bytes(args);
  u8* dst = args.dst + y * args.dst_pitch + x * pixel_bytes(args);
  const u32 premultiplied_channels = args.channels + (args.alpha_src != nullptr);
  const u16* premultiplied = offset_ptr<const u16>(
      args.premultiplied, y * args.premultiplied_pitch + x * premultiplied_channels * 2);
  u32 word = args.packed1010102 ? load_unaligned(dst) : 0;
#pragma unroll 1
  for (u32 c = 0; c < args.channels; c++) {
    const bool passthrough = args.passthrough_mask >> c & 1;
    if (!passthrough && !args.premultiplied) continue;
    const u32 source = source_sample(args, src, c), depth = args.packed1010102 && c == 3 ? 2 : args.depth;
    const u32 value =
        passthrough ? source >> (16 - depth) : unpremultiply_sample(args, premultiplied, c, depth, source);
    if (args.packed1010102) {
      const u32 bit = 10 * c, mask = ((1u << depth) - 1) << bit;
      word = (word & ~mask) | value << bit;
    } else if (depth == 8) {
      dst[c] = static_cast<u8>(value);
    } else {
      const u32 sample = value << args.shift;
      dst[2 * c] = static_cast<u8>(sample);
      dst[2 * c + 1] = static_cast<u8>(sample >> 8);
    }
  }
  if (!args.packed1010102) return;
  for (int i = 0; i < 4; i++) dst[i] = static_cast<u8>(word >> 8 * i);
}
#endif
