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

// Sample x of a channel, widened to 16 bits.
__device__ __forceinline__ u32 widened(const AlphaArgs& args, const StoredChannel& channel, const u8* row, u32 x) {
  return load_channel(channel, args.word_bytes, row, x) << (16 - channel.bits);
}

// The alpha of pixel (x, y) from a separate, possibly finer alpha plane: the mean, rounded half up, of the samples that
// the pixel covers, with the plane's last row and column repeated.
__device__ __forceinline__ u32 mean_alpha(const AlphaArgs& args, u32 x, u32 y) {
  const u32 log2_x = args.alpha_subsampling[0], log2_y = args.alpha_subsampling[1];
  const StoredChannel channel = {0, static_cast<u16>(args.word_bytes), args.layout[0].shift, args.layout[0].bits};
  u32 sum = 0;
#pragma unroll 1
  for (u32 i = 0; i < 1u << (log2_x + log2_y); i++) {
    const u32 u = (x << log2_x) + (i & ((1u << log2_x) - 1)), v = (y << log2_y) + (i >> log2_x);
    const u8* row = args.alpha_src + (v < args.alpha_height ? v : args.alpha_height - 1) * args.alpha_pitch;
    sum += widened(args, channel, row, u < args.alpha_width ? u : args.alpha_width - 1);
  }
  return (sum + ((1u << (log2_x + log2_y)) >> 1)) >> (log2_x + log2_y);
}

__device__ __forceinline__ void premultiply(const AlphaArgs& args) {
  u32 x, y;
  if (!thread_pixel(args, x, y)) return;
  const u8* src = args.src + y * args.src_pitch;
  const bool separate_alpha = args.alpha_src != nullptr;
  const u32 alpha = separate_alpha ? mean_alpha(args, x, y) : widened(args, args.layout[args.alpha_channel], src, x);
  u16* premultiplied = offset_ptr<u16>(
      args.premultiplied, y * args.premultiplied_pitch + x * (args.channels + separate_alpha) * 2);
#pragma unroll 1
  for (u32 c = 0; c < args.channels; c++) {
    const u32 sample = widened(args, args.layout[c], src, x);
    premultiplied[c] = static_cast<u16>(c == args.alpha_channel ? alpha : (sample * alpha + 32768) >> 16);
  }
  if (separate_alpha) premultiplied[args.channels] = static_cast<u16>(alpha);
}

// Channel c of a destination pixel, `depth` bits, from the pixel's blurred premultiplied samples. `source` is the
// source's sample, which replaces a colour whose blurred alpha is 0.
__device__ __forceinline__ u32 unpremultiply_sample(
    const AlphaArgs& args, const u16* premultiplied, u32 c, u32 depth, u32 source) {
  const u32 max = (1u << depth) - 1;
  if (c == args.alpha_channel) {
    const u32 rounded = (premultiplied[c] + (1u << (16 - depth) >> 1)) >> (16 - depth);
    return rounded < max ? rounded : max;
  }
  const u32 alpha = premultiplied[args.alpha_src ? args.channels : args.alpha_channel];
  if (alpha == 0) return source;
  const u32 colour = ((static_cast<u32>(premultiplied[c]) << depth) + alpha / 2) / alpha;
  return colour < max ? colour : max;
}

__device__ __forceinline__ void unpremultiply(const AlphaArgs& args) {
  u32 x, y;
  if (!thread_pixel(args, x, y)) return;
  const u8* src = args.src + y * args.src_pitch;
  u8* dst = args.dst + y * args.dst_pitch;
  const u32 premultiplied_channels = args.channels + (args.alpha_src != nullptr);
  const u16* premultiplied = offset_ptr<const u16>(
      args.premultiplied, y * args.premultiplied_pitch + x * premultiplied_channels * 2);
#pragma unroll 1
  for (u32 c = 0; c < args.channels; c++) {
    const bool passthrough = args.passthrough_mask >> c & 1;
    if (!passthrough && !args.premultiplied) continue;
    const StoredChannel& channel = args.layout[c];
    const u32 source = load_channel(channel, args.word_bytes, src, x);
    const u32 value = passthrough ? source : unpremultiply_sample(args, premultiplied, c, channel.bits, source);
    store_channel(channel, args.word_bytes, dst, x, value << channel.shift);
  }
}
#endif
