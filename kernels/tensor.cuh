// SPDX-License-Identifier: MPL-2.0
// Int8 tensor cores, sm_75 and later: what the kernels share. The direct form is one kernel (tensor_direct.cuh). One level
// of the wide form is three: the decimation (tensor_decimate.cuh), the blur of the small plane (tensor_blur.cuh) and the
// interpolation (tensor_interpolate.cuh).
//
// What keeps a pass's result in registers until the next pass has used it:
// - A sum does not depend on the order of its terms. A lane that computed neighbours 2 t, 2 t + 1 of two blocks of 8
//   holds the four values of its next operand, provided that the taps are in the same order: OperandOrder::pairs.
// - A 16-bit value is two byte planes, as is a tap. Where the rows of an operand are enough, rows 0..7 are the low
//   bytes and rows 8..15 the high bytes of the taps of the same 8 outputs (decimation), so both products of an output
//   are in one lane. Where k is long enough, its halves are the two byte planes (interpolation), so one product sums
//   high * low + low * high.
// - The small planes are stored as the next kernel's operands.
#ifndef BLUR_TENSOR_H
#define BLUR_TENSOR_H
#include "tensor_taps.cuh"
#include "warp.cuh"

// Blocks that a multiprocessor should hold, which bounds the registers. From sm_100 on the compiler needs more
// registers for the same code and would spill.
#if defined(BLUR_BOUNDING_ARCH) && BLUR_BOUNDING_ARCH >= 1000
#define TENSOR_DECIMATE_RESIDENT 4
#define TENSOR_BLUR_SHORT_RESIDENT 2
#define TENSOR_BLUR_LONG_RESIDENT 2
#define TENSOR_INTERPOLATE_RESIDENT 3
#else
#define TENSOR_DECIMATE_RESIDENT 6
#define TENSOR_BLUR_SHORT_RESIDENT 3
#define TENSOR_BLUR_LONG_RESIDENT 2
#define TENSOR_INTERPOLATE_RESIDENT 4
#endif

// Small planes have a layout of their own. A small plane has `small_count(larger, factor)` samples on an axis. Channels
// are stored in groups of channel_group(channels), one group after the other; an entry holds four samples of each
// channel of a group: for each channel a word of the samples' high bytes, then a word of their low bytes.
//
//   decimated   [group][row][tile of 16 columns][t = 0..3]: the entry's samples are the columns 2t, 2t+1, 2t+8, 2t+9 of
//               the tile. The last tile is complete; the columns behind the plane hold the repeated edge.
//   blurred     [group][block of 4 rows][column]: the entry's samples are the rows of the block. A row of entries has
//               blurred_pitch() columns; those behind the plane are unspecified.
//
// src/cuda/kernels/tensor_wide.rs computes their sizes.
OPERAND_FUNCTION u32 channel_group(u32 channels) { return channels % 2 ? 1 : 2; }
OPERAND_FUNCTION u32 small_count(u32 larger, u32 factor) {
  return factor == 1 ? larger : (larger - 1 + factor - 1) / factor + 1 + 2 * BLUR_LEVEL_RADIUS;
}
OPERAND_FUNCTION u32 small_tiles(u32 columns) { return (columns + 15) / 16; }
// The interpolation reads up to 9 columns behind the plane.
OPERAND_FUNCTION u32 blurred_pitch(u32 columns) { return (columns + 9 + 15) / 16 * 16; }

// Low and high bytes of four 16-bit values.
__device__ __forceinline__ u32 low_bytes(u32 first, u32 second) { return byte_perm(first, second, 0x6420); }
__device__ __forceinline__ u32 high_bytes(u32 first, u32 second) { return byte_perm(first, second, 0x7531); }
// The upper halves of two sums: two rounded 16-bit values.
__device__ __forceinline__ u32 upper_halves(u32 first, u32 second) { return byte_perm(first, second, 0x7632); }

// Rounds half up: a sum starts at half of what is dropped.
constexpr int HALF_OF_16_BITS = 1 << 15, HALF_OF_24_BITS = 1 << 23, HALF_OF_30_BITS = 1 << 29;

// A sum from the products of byte planes, modulo 2^32: it is below 2^32.
__device__ __forceinline__ u32 combine(int low, int mixed, int high) {
  return static_cast<u32>(low) + (static_cast<u32>(mixed) << 8) + (static_cast<u32>(high) << 16);
}

// The entry that a block works on.
__device__ __forceinline__ const TensorPlane& tensor_plane(const TensorArgs& args) {
  int plane = 0;
#pragma unroll
  for (int p = 0; p + 1 < BLUR_PLANES; p++) plane += blockIdx.x >= args.block_end[p];
  return args.planes[plane];
}

// N words of a small plane's entry: high and low bytes of N / 2 channels.
template <int N> __device__ __forceinline__ void load_entry(u32 (&words)[N], const u8* base, u64 entry) {
  const auto value = *offset_ptr<const Words<N>>(base, entry * sizeof(Words<N>));
#pragma unroll
  for (int i = 0; i < N; i++) words[i] = value.word[i];
}
template <int N> __device__ __forceinline__ void store_entry(u8* base, u64 entry, const u32 (&words)[N]) {
  Words<N> value;
#pragma unroll
  for (int i = 0; i < N; i++) value.word[i] = words[i];
  *offset_ptr<Words<N>>(base, entry * sizeof(Words<N>)) = value;
}

// Loads the first `pixels` (at most PIXELS) of a lane's neighbouring pixels. `alignment` has the low bits of the address and
// the pitch.
template <int C, int PIXELS> __device__ __forceinline__ void load_pixels(
    u32 (&words)[4], const u8* from, int pixels, u32 alignment) {
  constexpr int WORDS = PIXELS * C / 4;
  if (alignment % (4 * WORDS) == 0 && pixels >= PIXELS) {
    const auto value = *offset_ptr<const Words<WORDS>>(from, 0);
#pragma unroll
    for (int i = 0; i < WORDS; i++) words[i] = value.word[i];
  } else {
#pragma unroll
    for (int i = 0; i < WORDS; i++) {
      words[i] = 0;
#pragma unroll
      for (int e = 0; e < 4; e++)
        if (4 * i + e < pixels * C) words[i] |= static_cast<u32>(from[4 * i + e]) << 8 * e;
    }
  }
}
// Stores the first `pixels` (at most PIXELS) of a lane's neighbouring pixels. `alignment` has the low bits of the
// destination's address and pitch.
template <int C, int PIXELS> __device__ __forceinline__ void store_pixels(
    u8* to, const u32 (&words)[PIXELS * C / 4], int pixels, u32 alignment) {
  // A store is one instruction of 4, 8 or 16 bytes; three of them if a pixel has three samples, and two of 32 bytes.
  constexpr int WORDS = PIXELS * C / 4, VECTOR = C == 3 ? PIXELS / 4 : WORDS == 8 ? 4 : WORDS;
  if (alignment % (4 * VECTOR) == 0 && pixels >= PIXELS) {
#pragma unroll
    for (int i = 0; i < WORDS; i += VECTOR) store_streaming<VECTOR>(to + 4 * i, words + i);
  } else {
#pragma unroll
    for (int i = 0; i < WORDS; i++) {
      if (alignment % 4 == 0 && 4 * i + 4 <= pixels * C) {
        store_streaming<1>(to + 4 * i, words + i);
      } else {
#pragma unroll
        for (int e = 0; e < 4; e++)
          if (4 * i + e < pixels * C) to[4 * i + e] = static_cast<u8>(words[i] >> 8 * e);
      }
    }
  }
}
#endif
