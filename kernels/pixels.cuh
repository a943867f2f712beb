// SPDX-License-Identifier: MPL-2.0
// Integer types, memory access, and the pixel layouts that the kernels for tensor cores are instantiated for.
#ifndef BLUR_PIXELS_H
#define BLUR_PIXELS_H
#include "abi.h"
#include "compat.cuh"

using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;

// N 32-bit words that one instruction loads or stores.
template <int N> struct alignas(4 * N) Words {
#ifdef BLUR_CLANG_CUDA
  // clang copies an array by 64 bits, even from memory to memory.
  typedef u32 Vector __attribute__((ext_vector_type(N)));
  Vector word;
  __device__ __forceinline__ Words& operator=(const Words& other) {
    word = other.word;
    return *this;
  }
#else
  u32 word[N];
#endif
};

// The T that lies `bytes` bytes after `base`.
template <class T> __device__ __forceinline__ T* offset_ptr(const void* base, u64 bytes) {
  return reinterpret_cast<T*>(const_cast<u8*>(static_cast<const u8*>(base)) + bytes);
}

__device__ __forceinline__ int clamp(int value, int low, int high) {
  return value < low ? low : value > high ? high : value;
}

// PTX `prmt`: byte i of the result is the byte of the eight in (high, low) that nibble i of the selector numbers.
__device__ __forceinline__ u32 byte_perm(u32 low, u32 high, u32 selector) {
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

// Pixel layouts. T is the type of a sample: u8, or u16 with the sample in its most significant bits. C is the
// number of samples per pixel, BYTES the size of a pixel in memory.

// C interleaved samples of one byte, or of two bytes with `depth` used bits from bit `shift` on.
template <class SAMPLE, int CHANNELS> struct Interleaved {
  using T = SAMPLE;
  static constexpr int C = CHANNELS, BYTES = CHANNELS * sizeof(T);
  static constexpr bool IS_YUV422 = false, IS_YUV422_PART = false, IS_PACKED1010102 = false;
};

// Packed 4:2:2: two picture pixels in four bytes, either luma, chroma, luma, chroma or chroma, luma, chroma, luma.
struct Yuv422 {
  using T = u8;
  static constexpr int C = 4, BYTES = 4;
  static constexpr bool IS_YUV422 = true, IS_YUV422_PART = false, IS_PACKED1010102 = false;
};

// The luma of packed 4:2:2 as a plane of one channel, every second byte; or its chroma as one of two, in every second byte of
// a pair of pixels.
template <int CHANNELS> struct Yuv422Part {
  using T = u8;
  static constexpr int C = CHANNELS, BYTES = 2 * CHANNELS;
  static constexpr bool IS_YUV422 = false, IS_YUV422_PART = true, IS_PACKED1010102 = false;
};

// 32-bit words of three 10-bit samples and one 2-bit sample, from the least significant bit up.
struct Packed1010102 {
  using T = u16;
  static constexpr int C = 4, BYTES = 4;
  static constexpr bool IS_YUV422 = false, IS_YUV422_PART = false, IS_PACKED1010102 = true;
};

// Little-endian 32-bit word at any alignment.
__device__ __forceinline__ u32 load_unaligned(const u8* bytes) {
  return bytes[0] | bytes[1] << 8 | bytes[2] << 16 | static_cast<u32>(bytes[3]) << 24;
}

// sum + the dot product of four weights and four samples of one byte each.
__device__ __forceinline__ u32 dot4(u32 sum, u32 weights, u32 bytes) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 610
  asm("dp4a.u32.u32 %0, %1, %2, %0;" : "+r"(sum) : "r"(weights), "r"(bytes));
#else
#pragma unroll
  for (int i = 0; i < 4; i++) sum += (weights >> 8 * i & 255) * (bytes >> 8 * i & 255);
#endif
  return sum;
}

// sum + the dot product of two samples of 16 bits and the lower two, or the upper two, of four weights of one byte each.
__device__ __forceinline__ u32 dot2_low(u32 sum, u32 samples, u32 weights) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 610
  asm("dp2a.lo.u32.u32 %0, %1, %2, %0;" : "+r"(sum) : "r"(samples), "r"(weights));
  return sum;
#else
  return sum + (samples & 0xffff) * (weights & 255) + (samples >> 16) * (weights >> 8 & 255);
#endif
}
__device__ __forceinline__ u32 dot2_high(u32 sum, u32 samples, u32 weights) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 610
  asm("dp2a.hi.u32.u32 %0, %1, %2, %0;" : "+r"(sum) : "r"(samples), "r"(weights));
  return sum;
#else
  return dot2_low(sum, samples, weights >> 16);
#endif
}

// The word of a sample, of 1, 2 or 4 bytes, at any alignment.
__device__ __forceinline__ u32 load_word(const u8* word, u32 bytes) {
  if (bytes == 4) return load_unaligned(word);
  return bytes == 2 ? word[0] | word[1] << 8 : word[0];
}
__device__ __forceinline__ void store_word(u8* word, u32 bytes, u32 value) {
  word[0] = static_cast<u8>(value);
  if (bytes > 1) word[1] = static_cast<u8>(value >> 8);
  if (bytes > 2) {
    word[2] = static_cast<u8>(value >> 16);
    word[3] = static_cast<u8>(value >> 24);
  }
}

// Sample x of a channel, as many bits as it has.
__device__ __forceinline__ u32 load_channel(const StoredChannel& channel, u32 word_bytes, const u8* row, u32 x) {
  return load_word(row + channel.offset + x * channel.step, word_bytes) >> channel.shift & ((1u << channel.bits) - 1);
}
// Writes the bits of sample x, which are those of `word`; where no other sample is in the word, its other bits too.
__device__ __forceinline__ void store_channel(const StoredChannel& channel, u32 word_bytes, u8* row, u32 x, u32 word) {
  u8* const to = row + channel.offset + x * channel.step;
  const u32 mask = ((1u << channel.bits) - 1) << channel.shift;
  store_word(to, word_bytes, word_bytes == 4 ? (load_word(to, 4) & ~mask) | (word & mask) : word);
}
#endif
