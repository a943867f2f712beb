// SPDX-License-Identifier: MPL-2.0
// What goes pixel by pixel, before and after the blur of a plane in which alpha weighs colour, or channels are kept.
// Parameters and launches are in shared.h; the rule is docs/ARCHITECTURE.md's.
#ifndef BLUR_ALPHA_H
#define BLUR_ALPHA_H
#include "pixels.h"

// The pixel of this thread; false if there is none.
__device__ __forceinline__ bool own_pixel(const AlphaArgs& args, u32& x, u32& y) {
  const u32 across = (args.width + BLUR_ALPHA_THREADS - 1) / BLUR_ALPHA_THREADS;
  y = blockIdx.x / across;
  x = blockIdx.x % across * BLUR_ALPHA_THREADS + threadIdx.x;
  return x < args.width;
}

// Channel c of a pixel of the source, in the upper bits of 16.
__device__ __forceinline__ u32 source_sample(const AlphaArgs& args, const u8* pixel, u32 c) {
  if (args.ten) return ten_sample(load_word(pixel), c);
  if (args.depth == 8) return pixel[c] << 8;
  return wide_sample(pixel[2 * c] | pixel[2 * c + 1] << 8, args.depth, args.low);
}

__device__ __forceinline__ u32 pixel_bytes(const AlphaArgs& args) {
  return args.ten ? 4 : args.channels * (args.depth == 8 ? 1 : 2);
}

// The alpha over a place of the plane: the mean, halves up, of what it covers of the plane of alpha, within that.
__device__ __forceinline__ u32 alpha_over(const AlphaArgs& args, u32 x, u32 y) {
  const u32 across = args.alpha_shift[0], down = args.alpha_shift[1], bytes = args.depth == 8 ? 1 : 2;
  u32 sum = 0;
#pragma unroll 1
  for (u32 i = 0; i < 1u << (across + down); i++) {
    const u32 u = (x << across) + (i & ((1u << across) - 1)), v = (y << down) + (i >> across);
    const u8* row = args.alpha_src + (v < args.alpha_height ? v : args.alpha_height - 1) * args.alpha_pitch;
    const u8* alpha = row + (u < args.alpha_width ? u : args.alpha_width - 1) * bytes;
    sum += bytes == 1 ? alpha[0] << 8 : wide_sample(alpha[0] | alpha[1] << 8, args.depth, args.low);
  }
  return (sum + ((1u << (across + down)) >> 1)) >> (across + down);
}

__device__ __forceinline__ void multiply(const AlphaArgs& args) {
  u32 x, y;
  if (!own_pixel(args, x, y)) return;
  const u8* pixel = args.src + y * args.src_pitch + x * pixel_bytes(args);
  const bool apart = args.alpha_src != nullptr;
  const u32 alpha = apart ? alpha_over(args, x, y) : source_sample(args, pixel, args.alpha_channel);
  u16* product = at<u16>(args.product, y * args.product_pitch + x * (args.channels + apart) * 2);
#pragma unroll 1
  for (u32 c = 0; c < args.channels; c++) {
    const u32 sample = source_sample(args, pixel, c);
    product[c] = static_cast<u16>(c == args.alpha_channel ? alpha : (sample * alpha + 32768) >> 16);
  }
  if (apart) product[args.channels] = static_cast<u16>(alpha);
}

// A sample of the destination, `depth` bits, from the blurred product.
__device__ __forceinline__ u32 finished(const AlphaArgs& args, const u16* product, u32 c, u32 depth, u32 source) {
  const u32 most = (1u << depth) - 1;
  if (c == args.alpha_channel) {
    const u32 rounded = (product[c] + (1u << (16 - depth) >> 1)) >> (16 - depth);
    return rounded < most ? rounded : most;
  }
  const u32 alpha = product[args.alpha_src ? args.channels : args.alpha_channel];
  if (alpha == 0) return source >> (16 - depth);
  const u32 colour = ((static_cast<u32>(product[c]) << depth) + alpha / 2) / alpha;
  return colour < most ? colour : most;
}

__device__ __forceinline__ void finish(const AlphaArgs& args) {
  u32 x, y;
  if (!own_pixel(args, x, y)) return;
  const u8* from = args.src + y * args.src_pitch + x * pixel_bytes(args);
  u8* to = args.dst + y * args.dst_pitch + x * pixel_bytes(args);
  const u32 products = args.channels + (args.alpha_src != nullptr);
  const u16* product = at<const u16>(args.product, y * args.product_pitch + x * products * 2);
  u32 word = args.ten ? load_word(to) : 0;
#pragma unroll 1
  for (u32 c = 0; c < args.channels; c++) {
    const bool keep = args.keep >> c & 1;
    if (!keep && !args.product) continue;
    const u32 source = source_sample(args, from, c), depth = args.ten && c == 3 ? 2 : args.depth;
    const u32 value = keep ? source >> (16 - depth) : finished(args, product, c, depth, source);
    if (args.ten) {
      const u32 place = 10 * c, mask = ((1u << depth) - 1) << place;
      word = (word & ~mask) | value << place;
    } else if (depth == 8) {
      to[c] = static_cast<u8>(value);
    } else {
      const u32 sample = value << args.low;
      to[2 * c] = static_cast<u8>(sample);
      to[2 * c + 1] = static_cast<u8>(sample >> 8);
    }
  }
  if (!args.ten) return;
  for (int i = 0; i < 4; i++) to[i] = static_cast<u8>(word >> 8 * i);
}
#endif
