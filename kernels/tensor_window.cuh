// SPDX-License-Identifier: MPL-2.0
// The direct form on tensor cores: a tile of 16 outputs from the tiles of 16 values around it, for any radius that they
// cover.
#ifndef BLUR_TENSOR_WINDOW_H
#define BLUR_TENSOR_WINDOW_H
#include "tensor.cuh"

// Samples of a window of so many tiles before the first output. The tile of the outputs is in the middle: where the number
// is even, the window starts and ends in the middle of a tile of the outputs' grid.
OPERAND_FUNCTION int window_before(int tiles) { return 8 * (tiles - 1); }

// The taps of both axes in a warp's shared memory, for windows of up to TILES tiles.
template <int TILES> struct WindowTaps {
  static constexpr int LENGTH = 16 * (TILES + 1), CENTRE = LENGTH / 2, BYTES = 2 * LENGTH * 2;
  Shared memory;

  // Stores the taps at every distance of a value from an output. `taps` has those to one side, by axis.
  __device__ __forceinline__ void store(const unsigned short (&taps)[2][BLUR_TENSOR_TAPS]) const {
#pragma unroll
    for (int i = threadIdx.x % 32; i < 2 * LENGTH; i += 32) {
      const int offset = i % LENGTH - CENTRE, distance = offset < 0 ? -offset : offset;
      shared_store_u16(memory + 2 * i, distance < BLUR_TENSOR_TAPS ? taps[i / LENGTH][distance] : 0);
    }
    warp_sync();
  }

#if BLUR_FAR_TAPS
  // Stores those at distances from BLUR_TENSOR_TAPS on, after store(), which stores 0 for them.
  __device__ __forceinline__ void store_far(const unsigned short (&taps)[2][BLUR_TENSOR_TAPS]) const {
    for (int i = threadIdx.x % 32; i < 2 * LENGTH; i += 32) {
      const int offset = i % LENGTH - CENTRE, distance = (offset < 0 ? -offset : offset) - BLUR_TENSOR_TAPS;
      if (distance >= 0 && distance < BLUR_TENSOR_TAPS) shared_store_u16(memory + 2 * i, taps[i / LENGTH][distance]);
    }
    warp_sync();
  }
#endif

  // The low and high bytes of the taps that four values of lane t, in word `half` of 32 values, have for output `out`.
  // `first` is the first of these values; output 0 has the number 0.
  __device__ __forceinline__ void operand(
      u32& low, u32& high, int axis, OperandOrder order, int first, int half, int t, int out) const {
    u32 tap[4];
#pragma unroll
    for (int e = 0; e < 4; e++) {
      const int distance = first + operand_position(order, half, t, e) - out;
      tap[e] = shared_load_u16(memory + 2 * (axis * LENGTH + CENTRE + distance));
    }
    const u32 pairs[2] = {tap[0] | tap[1] << 16, tap[2] | tap[3] << 16};
    low = low_bytes(pairs[0], pairs[1]);
    high = high_bytes(pairs[0], pairs[1]);
  }
};

// A operands of a window of TILES tiles, by their byte planes, as the four words of a product: those of two tiles, low
// bytes first, then high bytes. Where TILES is odd, the last four words are the last tile's high bytes, then its low bytes.
template <int TILES> struct WindowOperands {
  static constexpr int TILE_COUNT = TILES;
  u32 word[TILES][4];

  // The operands' place in `word`: the words of one tile's byte plane, which follow each other.
  static __device__ constexpr int index(int tile, bool is_high) {
    if (TILES % 2 && tile == TILES - 1) return 4 * tile + (is_high ? 0 : 2);
    return 4 * (tile / 2 * 2 + is_high) + tile % 2 * 2;
  }
};

// sums += a * b, for operands of 32 and of 16 values.
__device__ __forceinline__ void add32(int (&sums)[4], const u32 (&a)[4], u32 b, u32 next_b) {
  mma32(sums, a[0], a[1], a[2], a[3], b, next_b, sums[0], sums[1], sums[2], sums[3]);
}
__device__ __forceinline__ void add16(int (&sums)[4], u32 a0, u32 a1, u32 b) {
  mma16(sums, a0, a1, b, sums[0], sums[1], sums[2], sums[3]);
}

// Sums of 16-bit values times 16-bit taps by their bytes, which start at half of what is dropped.
struct WindowSums {
  int of_high[4] = {}, mixed[4] = {}, of_low[4];

  __device__ __forceinline__ explicit WindowSums(int half) : of_low{half, half, half, half} {}

  // Adds the products of the bytes of TILES tiles: A operands times B operands.
  template <int TILES> __device__ __forceinline__ void add(
      const WindowOperands<TILES>& a, const u32 (&b_high)[TILES], const u32 (&b_low)[TILES]) {
#pragma unroll
    for (int i = 0; i + 1 < TILES; i += 2) {
      add32(of_high, a.word[i + 1], b_high[i], b_high[i + 1]);
      add32(mixed, a.word[i + 1], b_low[i], b_low[i + 1]);
      add32(of_low, a.word[i], b_low[i], b_low[i + 1]);
      add32(mixed, a.word[i], b_high[i], b_high[i + 1]);
    }
    if constexpr (TILES % 2) {
      const u32(&last)[4] = a.word[TILES - 1];
      add16(of_high, last[0], last[1], b_high[TILES - 1]);
      add16(of_low, last[2], last[3], b_low[TILES - 1]);
      // The last tile of both byte planes fills one k.
      add32(mixed, last, b_low[TILES - 1], b_high[TILES - 1]);
    }
  }

  // Sum i of 4.
  __device__ __forceinline__ u32 sum(int i) const { return combine(of_low[i], mixed[i], of_high[i]); }

  // The rounded sums, two in a word.
  __device__ __forceinline__ void rounded(u32 (&out)[2]) const {
    out[0] = upper_halves(sum(0), sum(1));
    out[1] = upper_halves(sum(2), sum(3));
  }
};
#endif
