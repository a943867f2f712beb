// SPDX-License-Identifier: MPL-2.0
// What pixels are in memory: words and bytes, and the kinds of pixels that the kernels are made for.
#ifndef BLUR_PIXELS_H
#define BLUR_PIXELS_H
#include "shared.h"
#include "shim.h"

using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;

// N words that are loaded and stored as one.
template <int N> struct alignas(4 * N) Words {
  u32 word[N];
};

template <class T> __device__ __forceinline__ T* at(const void* base, u64 byte) {
  return reinterpret_cast<T*>(const_cast<u8*>(static_cast<const u8*>(base)) + byte);
}

__device__ __forceinline__ int clamp(int value, int low, int high) {
  return value < low ? low : value > high ? high : value;
}

// Four bytes of the eight in (high, low), chosen by the four nibbles of the selector.
__device__ __forceinline__ u32 permute(u32 low, u32 high, u32 selector) {
#ifdef __CUDA_ARCH__
  u32 result;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(result) : "r"(low), "r"(high), "r"(selector));
  return result;
#else
  const u64 bytes = static_cast<u64>(high) << 32 | low;
  u32 result = 0;
  for (int i = 0; i < 4; i++) result |= static_cast<u32>(bytes >> (selector >> 4 * i & 7) * 8 & 255) << 8 * i;
  return result;
#endif
}

// The kinds of pixels. T is what a sample is while it is staged and weighed: u8, or u16 with all 16 bits in use.
// C samples make a pixel, and BYTES is what a pixel takes in memory.

// C interleaved samples of one byte, or of two bytes with `depth` bits in use from bit `low` on.
template <class SAMPLE, int CHANNELS> struct Plain {
  using T = SAMPLE;
  static constexpr int C = CHANNELS, BYTES = CHANNELS * sizeof(T);
  static constexpr bool IS_YUV422 = false, IS_TEN = false;
};

// Packed 4:2:2: four bytes for two pixels, luma, chroma, luma, chroma or the other way round.
struct Yuv422 {
  using T = u8;
  static constexpr int C = 4, BYTES = 4;
  static constexpr bool IS_YUV422 = true, IS_TEN = false;
};

// Words of three samples of 10 bits and one of 2, from the lowest bit up.
struct Ten {
  using T = u16;
  static constexpr int C = 4, BYTES = 4;
  static constexpr bool IS_YUV422 = false, IS_TEN = true;
};

__device__ __forceinline__ u32 load_word(const u8* bytes) {
  return bytes[0] | bytes[1] << 8 | bytes[2] << 16 | static_cast<u32>(bytes[3]) << 24;
}

// Channel c of a word of 10, 10, 10 and 2 bits, in the upper bits of 16.
__device__ __forceinline__ u32 ten_sample(u32 word, int c) {
  return c == 3 ? word >> 30 << 14 : (word >> 10 * c & 1023) << 6;
}

// A sample of two bytes with `depth` bits from bit `low` on, in the upper bits of 16.
__device__ __forceinline__ u32 wide_sample(u32 sample, u32 depth, u32 low) {
  return sample << (16 - depth - low) & (0xffffu << (16 - depth) & 0xffff);
}
#endif
