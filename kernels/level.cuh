// SPDX-License-Identifier: MPL-2.0
// The levels of the wide form on CUDA cores, for every pixel layout and factor: a pass along rows and one down columns.
// docs/ARITHMETIC.md has the filters.
//
// Only the rows pass knows how samples are stored. A warp loads a strip of a row into shared memory, where each channel is
// an array of 16-bit samples, resamples the arrays, and stores the results, four neighbouring pixels a lane. The columns
// pass is between planes of 16-bit samples, whose channels it need not know.
#ifndef BLUR_LEVEL_H
#define BLUR_LEVEL_H
#include "warp.cuh"

// How four neighbouring pixels are stored. `unpack` and `pack` are between their WORDS words and the samples of channel c,
// 16 bits each, two in a word; `load` and `store` are for single samples.
template <class P> struct PixelGroup;

// The 16-bit samples of bytes 0, 1 and 2, 3 of a word, and back.
__device__ __forceinline__ void widen_bytes(u32 (&samples)[2], u32 bytes) {
  samples[0] = byte_perm(bytes, 0, 0x1404);
  samples[1] = byte_perm(bytes, 0, 0x3424);
}
__device__ __forceinline__ u32 narrow_to_bytes(const u32 (&samples)[2]) {
  return byte_perm(samples[0], samples[1], 0x7531);
}

template <int CHANNELS> struct PixelGroup<Interleaved<u8, CHANNELS>> {
  static constexpr int C = CHANNELS, BYTES = C, WORDS = C;
  template <class Plane> __device__ __forceinline__ explicit PixelGroup(const Plane&) {}
  __device__ __forceinline__ void unpack(u32 (&samples)[2], const u32 (&words)[WORDS], int c) const {
    const int s1 = C + c, s2 = 2 * C + c, s3 = 3 * C + c;  // numbers of the channel's samples, after c itself
    const u32 low = byte_perm(words[c / 4], words[s1 / 4], c % 4 | (4 + s1 % 4) << 4);
    const u32 high = byte_perm(words[s2 / 4], words[s3 / 4], s2 % 4 | (4 + s3 % 4) << 4);
    widen_bytes(samples, byte_perm(low, high, 0x5410));
  }
  __device__ __forceinline__ void pack(u32 (&words)[WORDS], const u32 (&samples)[C][2]) const {
    u32 bytes[C];
#pragma unroll
    for (int c = 0; c < C; c++) bytes[c] = narrow_to_bytes(samples[c]);
#pragma unroll
    for (int i = 0; i < WORDS; i++) {
      const int s0 = 4 * i, s1 = s0 + 1, s2 = s0 + 2, s3 = s0 + 3;  // numbers of the word's samples
      const u32 low = byte_perm(bytes[s0 % C], bytes[s1 % C], s0 / C | (4 + s1 / C) << 4);
      const u32 high = byte_perm(bytes[s2 % C], bytes[s3 % C], s2 / C | (4 + s3 / C) << 4);
      words[i] = byte_perm(low, high, 0x5410);
    }
  }
  __device__ __forceinline__ u32 load(const u8* row, int x, int c) const { return row[x * C + c] << 8; }
  __device__ __forceinline__ void store(u8* row, int x, int c, u32 sample) const {
    row[x * C + c] = static_cast<u8>(sample >> 8);
  }
};

template <int CHANNELS> struct PixelGroup<Interleaved<u16, CHANNELS>> {
  static constexpr int C = CHANNELS, BYTES = 2 * C, WORDS = 2 * C;
  u32 shift, mask;
  __device__ __forceinline__ PixelGroup(u32 depth, u32 shift)
      : shift(16 - depth - shift), mask((0xffffu << (16 - depth) & 0xffff) * 0x10001) {}
  template <class Plane>
  __device__ __forceinline__ explicit PixelGroup(const Plane& plane) : PixelGroup(plane.depth, plane.shift) {}
  __device__ __forceinline__ void unpack(u32 (&samples)[2], const u32 (&words)[WORDS], int c) const {
#pragma unroll
    for (int i = 0; i < 2; i++) {
      const int s0 = 2 * i * C + c, s1 = s0 + C;
      const u32 two =
          byte_perm(words[s0 / 2], words[s1 / 2], (s0 % 2 ? 0x32 : 0x10) | (s1 % 2 ? 0x7600 : 0x5400));
      samples[i] = two << shift & mask;
    }
  }
  __device__ __forceinline__ void pack(u32 (&words)[WORDS], const u32 (&samples)[C][2]) const {
#pragma unroll
    for (int i = 0; i < WORDS; i++) {
      const int s0 = 2 * i, s1 = s0 + 1;
      const u32 two = byte_perm(
          samples[s0 % C][s0 / C / 2], samples[s1 % C][s1 / C / 2],
          (s0 / C % 2 ? 0x32 : 0x10) | (s1 / C % 2 ? 0x7600 : 0x5400));
      words[i] = (two & mask) >> shift;
    }
  }
  __device__ __forceinline__ u32 load(const u8* row, int x, int c) const {
    const u8* sample = row + 2 * (x * C + c);
    return (sample[0] | sample[1] << 8) << shift & mask & 0xffff;
  }
  __device__ __forceinline__ void store(u8* row, int x, int c, u32 sample) const {
    const u32 stored = (sample & mask) >> shift;
    row[2 * (x * C + c)] = static_cast<u8>(stored);
    row[2 * (x * C + c) + 1] = static_cast<u8>(stored >> 8);
  }
};

template <> struct PixelGroup<Packed1010102> {
  static constexpr int C = 4, BYTES = 4, WORDS = 4;
  template <class Plane> __device__ __forceinline__ explicit PixelGroup(const Plane&) {}
  __device__ __forceinline__ void unpack(u32 (&samples)[2], const u32 (&words)[WORDS], int c) const {
#pragma unroll
    for (int i = 0; i < 2; i++)
      samples[i] = packed1010102_sample(words[2 * i], c) | packed1010102_sample(words[2 * i + 1], c) << 16;
  }
  __device__ __forceinline__ void pack(u32 (&words)[WORDS], const u32 (&samples)[C][2]) const {
#pragma unroll
    for (int i = 0; i < WORDS; i++) {
      words[i] = 0;
#pragma unroll
      for (int c = 0; c < C; c++) words[i] |= (samples[c][i / 2] >> 16 * (i % 2) & 0xffff) >> (c == 3 ? 14 : 6) << 10 * c;
    }
  }
  __device__ __forceinline__ u32 load(const u8* row, int x, int c) const {
    return packed1010102_sample(load_unaligned(row + 4 * x), c);
  }
  // The four samples of a pixel are stored together, from channel 0 on.
  __device__ __forceinline__ void store(u8* row, int x, int c, u32 sample) const {
    u32 word = c == 0 ? 0 : load_unaligned(row + 4 * x);
    word |= (sample & 0xffff) >> (c == 3 ? 14 : 6) << 10 * c;
    for (int i = 0; i < 4; i++) row[4 * x + i] = static_cast<u8>(word >> 8 * i);
  }
};

// Luma is channel 0 and chroma, of which four pixels have two samples, channels 1 and 2.
template <> struct PixelGroup<Yuv422> {
  static constexpr int C = 3, BYTES = 2, WORDS = 2;
  u32 luma;
  template <class Plane> __device__ __forceinline__ explicit PixelGroup(const Plane& plane) : luma(plane.luma) {}
  __device__ __forceinline__ void unpack(u32 (&samples)[2], const u32 (&words)[WORDS], int c) const {
    const u32 first = c == 0 ? luma : 1 - luma;  // byte of a unit
    if (c == 0) {
#pragma unroll
      for (int i = 0; i < 2; i++) samples[i] = byte_perm(words[i], 0, 0x2404 + first * 0x1010);
    } else {
      const u32 byte = first + 2 * (c - 1);
      samples[0] = byte_perm(words[0], words[1], byte << 4 | (byte + 4) << 12) & 0xff00ff00;
    }
  }
  __device__ __forceinline__ void pack(u32 (&words)[WORDS], const u32 (&samples)[C][2]) const {
    const u32 of_luma = narrow_to_bytes(samples[0]), of_chroma = byte_perm(samples[1][0], samples[2][0], 0x7351);
    const u32 even = luma == 0 ? of_luma : of_chroma, odd = luma == 0 ? of_chroma : of_luma;
    words[0] = byte_perm(even, odd, 0x5140);
    words[1] = byte_perm(even, odd, 0x7362);
  }
  __device__ __forceinline__ int offset(int x, int c) const {
    const int first = static_cast<int>(luma);
    return c == 0 ? 2 * x + first : 4 * x + 2 * (c - 1) + 1 - first;
  }
  __device__ __forceinline__ u32 load(const u8* row, int x, int c) const { return row[offset(x, c)] << 8; }
  __device__ __forceinline__ void store(u8* row, int x, int c, u32 sample) const {
    row[offset(x, c)] = static_cast<u8>(sample >> 8);
  }
};

// Loads the words of a group of pixels from an aligned address on.
template <int N> __device__ __forceinline__ void load_words(u32 (&words)[N], const u8* from) {
  constexpr int VECTOR = N % 4 == 0 ? 4 : N % 2 == 0 ? 2 : 1;
#pragma unroll
  for (int i = 0; i < N; i += VECTOR) {
    const auto vector = *offset_ptr<const Words<VECTOR>>(from, i * 4);
#pragma unroll
    for (int k = 0; k < VECTOR; k++) words[i + k] = vector.word[k];
  }
}
template <int N> __device__ __forceinline__ void store_words(u8* to, const u32 (&words)[N]) {
  constexpr int VECTOR = N % 4 == 0 ? 4 : N % 2 == 0 ? 2 : 1;
#pragma unroll
  for (int i = 0; i < N; i += VECTOR) {
    Words<VECTOR> vector;
#pragma unroll
    for (int k = 0; k < VECTOR; k++) vector.word[k] = words[i + k];
    *offset_ptr<Words<VECTOR>>(to, i * 4) = vector;
  }
}
template <int WORDS> __device__ __forceinline__ bool is_aligned(const u8* plane, u64 pitch) {
  constexpr int VECTOR = WORDS % 4 == 0 ? 4 : WORDS % 2 == 0 ? 2 : 1;
  return (reinterpret_cast<u64>(plane) | pitch) % (4 * VECTOR) == 0;
}

// N samples from an aligned position of an array on.
template <int N, int VECTOR> __device__ __forceinline__ void load_samples(u32 (&samples)[N], const u16* from) {
#pragma unroll
  for (int i = 0; i < N; i += 2 * VECTOR) {
    const auto words = *offset_ptr<const Words<VECTOR>>(from, i * 2);
#pragma unroll
    for (int k = 0; k < 2 * VECTOR; k++) samples[i + k] = k % 2 ? words.word[k / 2] >> 16 : words.word[k / 2] & 0xffff;
  }
}
// The upper halves of sums.
template <int N> __device__ __forceinline__ void store_samples(u16* to, const u32 (&sums)[N]) {
  Words<N / 2> words;
#pragma unroll
  for (int i = 0; i < N / 2; i++) words.word[i] = byte_perm(sums[2 * i], sums[2 * i + 1], 0x7632);
  *offset_ptr<Words<N / 2>>(to, 0) = words;
}

template <class Plane, int COUNT> __device__ __forceinline__ const Plane& plane_of_block(const Plane (&planes)[COUNT]) {
  int plane = 0;
#pragma unroll
  for (int p = 1; p < COUNT; p++) plane += blockIdx.x >= planes[p].first_block;
  return planes[plane];
}

// What a warp processes: a strip of two rows, in shared memory by row and channel. Part 1 is the chroma of packed 4:2:2.
template <class P, bool INTERPOLATE> struct LevelStrip {
  using Group = PixelGroup<P>;
  static constexpr int C = Group::C, PARTS = P::IS_YUV422 ? 2 : 1, ROWS = BLUR_LEVEL_WARP_ROWS;
  // Pixels of the larger plane: the strip's, and behind those that a decimation also reads in front of it.
  static constexpr int WINDOW = BLUR_LEVEL_WINDOW, LEAD = P::IS_YUV422 ? 64 : 32, PIXELS = WINDOW - LEAD;
  static constexpr int FIRST = INTERPOLATE ? 0 : LEAD;
  // Samples of a channel of the small plane.
  static constexpr int SMALL = WINDOW - 16;
  static_assert(BLUR_LEVEL_CHANNEL_BYTES == 2 * (WINDOW + SMALL), "the host passes the shared memory");
  // Samples from the arrays of a row to those of the next.
  static constexpr int NEXT_ROW = C * (WINDOW + SMALL);
  const LevelRowsPlane& plane;
  const Group group;
  const int lane, x0, width;
  const bool is_wide;
  const u32 y;
  u16 *larger, *small;

  __device__ __forceinline__ LevelStrip(const LevelRowsPlane& plane, int strip, u32 y, u8* memory)
      : plane(plane), group(plane), lane(static_cast<int>(threadIdx.x % 32)),
        x0((INTERPOLATE ? static_cast<int>(plane.column_begin) : 0) + strip * PIXELS),
        width(static_cast<int>(plane.width)), is_wide(is_aligned<Group::WORDS>(plane.larger, plane.pitch)), y(y) {
    larger = reinterpret_cast<u16*>(memory + threadIdx.x / 32 * ROWS * C * BLUR_LEVEL_CHANNEL_BYTES);
    small = larger + C * WINDOW;
  }
  // Bytes from the first row to the second, which may be the first once more.
  __device__ __forceinline__ u64 row_step(u64 pitch) const { return y + 1 < plane.row_end ? pitch : 0; }

  // Samples of channel c for `pixels` pixels.
  static __device__ __forceinline__ constexpr int samples(int c, int pixels) {
    return P::IS_YUV422 && c > 0 ? pixels / 2 : pixels;
  }
  // The same for a row, whose last pair may have one pixel.
  static __device__ __forceinline__ constexpr int count(int c, int pixels) {
    return P::IS_YUV422 && c > 0 ? (pixels + 1) / 2 : pixels;
  }
  // The first sample of the strip in a row of a part's small plane.
  __device__ __forceinline__ int first_small(int part) const {
    return samples(part, x0) >> plane.parts[part].factor_log2;
  }

  // Loads the pixels that a decimation reads.
  __device__ __forceinline__ void load_larger() const {
    const u8* row = plane.larger + y * plane.pitch;
    const u64 step = row_step(plane.pitch);
    u32 words[WINDOW / 128][ROWS][Group::WORDS];
    const auto is_inside = [&](int x) { return is_wide && x >= 0 && x + 4 <= width; };
#pragma unroll
    for (int i = 0; i < WINDOW / 128; i++)
      if (const int x = x0 - LEAD + 4 * lane + 128 * i; is_inside(x))
#pragma unroll
        for (int r = 0; r < ROWS; r++) load_words(words[i][r], row + r * step + x * Group::BYTES);
#pragma unroll
    for (int i = 0; i < WINDOW / 128; i++) {
      const int g = lane + 32 * i, x = x0 - LEAD + 4 * g;
#pragma unroll
      for (int r = 0; r < ROWS; r++) {
        u16* const array = larger + r * NEXT_ROW;
        if (is_inside(x)) {
#pragma unroll
          for (int c = 0; c < C; c++) {
            u32 values[2];
            group.unpack(values, words[i][r], c);
            store_to_array(array + c * WINDOW + samples(c, 4 * g), values, samples(c, 4));
          }
        } else {
          // Beyond its ends the nearest sample of the row repeats. The loads of a channel are under way together.
#pragma unroll 1
          for (int c = 0; c < C; c++) {
            u32 four[4];
#pragma unroll
            for (int k = 0; k < 4; k++)
              four[k] = group.load(row + r * step, clamp(samples(c, x) + k, 0, count(c, width) - 1), c);
            const u32 values[2] = {four[0] | four[1] << 16, four[2] | four[3] << 16};
            store_to_array(array + c * WINDOW + samples(c, 4 * g), values, samples(c, 4));
          }
        }
      }
    }
  }
  static __device__ __forceinline__ void store_to_array(u16* to, const u32 (&values)[2], int count) {
    if (count == 4) *offset_ptr<Words<2>>(to, 0) = {{values[0], values[1]}};
    else *offset_ptr<Words<1>>(to, 0) = {{values[0]}};
  }
  static __device__ __forceinline__ void load_from_array(u32 (&values)[2], const u16* from, int count) {
    if (count == 4) {
      const auto words = *offset_ptr<const Words<2>>(from, 0);
      values[0] = words.word[0];
      values[1] = words.word[1];
    } else {
      values[0] = offset_ptr<const Words<1>>(from, 0)->word[0];
    }
  }

  // Writes the pixels of the strip that are in the rectangle.
  __device__ __forceinline__ void store_larger() const {
    u8* row = plane.larger + y * plane.pitch;
    const int begin = static_cast<int>(plane.column_begin), end = static_cast<int>(plane.column_end);
    const bool is_fast = is_wide && (PARTS == 1 || (plane.parts[0].small && plane.parts[1].small));
#pragma unroll
    for (int g = lane; g < PIXELS / 4; g += 32) {
      const int x = x0 + 4 * g;
      if (x >= end || x + 4 <= begin) continue;
#pragma unroll
      for (int r = 0; r < ROWS; r++) {
        if (y + r >= plane.row_end) continue;
        u8* const to = row + r * plane.pitch;
        const u16* const array = larger + r * NEXT_ROW;
        if (is_fast && x >= begin && x + 4 <= end) {
          u32 values[C][2], words[Group::WORDS];
#pragma unroll
          for (int c = 0; c < C; c++) load_from_array(values[c], array + c * WINDOW + samples(c, 4 * g), samples(c, 4));
          group.pack(words, values);
          store_words(to + x * Group::BYTES, words);
        } else {
#pragma unroll 1
          for (int i = 0; i < 4; i++)
#pragma unroll 1
            for (int c = 0; c < C; c++)
              if (const int at = samples(c, x) + i; i < samples(c, 4) && at >= samples(c, begin) && at < count(c, end)
                                                    && plane.parts[P::IS_YUV422 && c > 0].small)
                group.store(to, at, c, array[c * WINDOW + samples(c, 4 * g) + i]);
        }
      }
    }
  }

  // The rows of a small plane, N channels from channel FIRST_CHANNEL on.
  template <int N, int FIRST_CHANNEL> __device__ __forceinline__ void load_small(const LevelPart& part) const {
    using Small = PixelGroup<Interleaved<u16, N>>;
    const Small pixels(16, 0);
    const u8* row = part.small + y * part.pitch;
    const u64 step = row_step(part.pitch);
    const int first = first_small(FIRST_CHANNEL > 0), last = static_cast<int>(part.end) - 1,
              groups = (samples(FIRST_CHANNEL, PIXELS) >> part.factor_log2 + 2) + (part.factor_log2 ? 2 : 0);
#pragma unroll 1
    for (int g = lane; g < groups; g += 32) {
      const int x = first + 4 * g;
      u32 words[ROWS][Small::WORDS];
      const bool is_inside = x + 3 <= last;
      if (is_inside) {
#pragma unroll
        for (int r = 0; r < ROWS; r++) load_words(words[r], row + r * step + x * Small::BYTES);
      }
#pragma unroll
      for (int r = 0; r < ROWS; r++) {
        u16* const array = small + r * NEXT_ROW + FIRST_CHANNEL * SMALL + 4 * g;
        if (is_inside) {
#pragma unroll
          for (int c = 0; c < N; c++) {
            u32 values[2];
            pixels.unpack(values, words[r], c);
            store_to_array(array + c * SMALL, values, 4);
          }
        } else {
#pragma unroll
          for (int c = 0; c < N; c++) {
            u32 four[4];
#pragma unroll
            for (int i = 0; i < 4; i++) four[i] = pixels.load(row + r * step, clamp(x + i, 0, last), c);
            const u32 values[2] = {four[0] | four[1] << 16, four[2] | four[3] << 16};
            store_to_array(array + c * SMALL, values, 4);
          }
        }
      }
    }
  }
  template <int N, int FIRST_CHANNEL> __device__ __forceinline__ void store_small(const LevelPart& part) const {
    using Small = PixelGroup<Interleaved<u16, N>>;
    const Small pixels(16, 0);
    u8* row = part.small + y * part.pitch;
    const int first = first_small(FIRST_CHANNEL > 0), groups = samples(FIRST_CHANNEL, PIXELS) >> part.factor_log2 + 2,
              begin = static_cast<int>(part.begin), end = static_cast<int>(part.end);
#pragma unroll 1
    for (int g = lane; g < groups; g += 32) {
      const int x = first + 4 * g;
      if (x >= end || x + 4 <= begin) continue;
#pragma unroll
      for (int r = 0; r < ROWS; r++) {
        if (y + r >= plane.row_end) continue;
        u8* const to = row + r * part.pitch;
        const u16* const array = small + r * NEXT_ROW + FIRST_CHANNEL * SMALL + 4 * g;
        if (x >= begin && x + 4 <= end) {
          u32 values[N][2], words[Small::WORDS];
#pragma unroll
          for (int c = 0; c < N; c++) load_from_array(values[c], array + c * SMALL, 4);
          pixels.pack(words, values);
          store_words(to + x * Small::BYTES, words);
        } else {
#pragma unroll 1
          for (int i = 0; i < 4; i++)
#pragma unroll 1
            for (int c = 0; c < N; c++)
              if (x + i >= begin && x + i < end) pixels.store(to, x + i, c, array[c * SMALL + i]);
        }
      }
    }
  }

  // Eight neighbours of the larger plane and what belongs to them of the small plane, 8 / S samples.
  template <int S> static __device__ __forceinline__ void decimate(
      const u16* from, u16* to, const u32 (&tap_bytes)[BLUR_LEVEL_TAP_WORDS]) {
    constexpr int OUTPUTS = 8 / S, PAIRS = BLUR_LEVEL_RADIUS * S + 1, WORDS = S == 4 ? 16 : 10, VECTOR = S == 4 ? 4 : 2;
    u32 window[WORDS], sums[OUTPUTS];
#pragma unroll
    for (int i = 0; i < WORDS; i += VECTOR) {
      const auto words = *offset_ptr<const Words<VECTOR>>(from, i * 4);
#pragma unroll
      for (int k = 0; k < VECTOR; k++) window[i + k] = words.word[k];
    }
#pragma unroll
    for (int i = 0; i < OUTPUTS; i++) {
      u32 low = 1 << 15, high = 0;
#pragma unroll
      for (int k = 0; k < PAIRS; k++) {
        low = dot2_low(low, window[i * S / 2 + k], tap_bytes[k]);
        high = dot2_high(high, window[i * S / 2 + k], tap_bytes[k]);
      }
      sums[i] = low + (high << 8);
    }
    store_samples(to, sums);
  }
  template <int S> static __device__ __forceinline__ void interpolate(
      const u16* from, u16* to, u32 start, const u32 (&taps)[BLUR_LEVEL_TAPS]) {
    constexpr int SAMPLES = S == 4 ? 8 : 12;
    u32 window[SAMPLES], sums[8];
    load_samples<SAMPLES, S == 4 ? 1 : 2>(window, from);
#pragma unroll
    for (int i = 0; i < 8; i++) {
      sums[i] = start;
#pragma unroll
      for (int k = 0; k < BLUR_PHASE_TAPS; k++) sums[i] += taps[i % S * BLUR_PHASE_TAPS + k] * window[i / S + k];
    }
    store_samples(to, sums);
  }

  // From one kind of array to the other. A factor of one leaves the samples as they are.
  template <int N, int FIRST_CHANNEL>
  __device__ __forceinline__ void resample(const LevelRowsArgs& args) const {
    constexpr int GROUPS = samples(FIRST_CHANNEL, PIXELS) / 8;
    const u32 factor_log2 = plane.parts[FIRST_CHANNEL > 0].factor_log2;
#pragma unroll 1
    for (int i = lane; i < GROUPS * N; i += 32) {
      const int c = FIRST_CHANNEL + i / GROUPS, eight = i % GROUPS;
      u16* const of_larger = larger + c * WINDOW + samples(FIRST_CHANNEL, FIRST) + 8 * eight;
      u16* const of_small = small + c * SMALL + (8 * eight >> factor_log2);
#pragma unroll
      for (int r = 0; r < ROWS * NEXT_ROW; r += NEXT_ROW) {
        if (factor_log2 == 0) {
          *offset_ptr<Words<4>>((INTERPOLATE ? of_larger : of_small) + r, 0) =
              *offset_ptr<const Words<4>>((INTERPOLATE ? of_small : of_larger) + r, 0);
        } else if constexpr (INTERPOLATE) {
          const u32 depth = P::IS_PACKED1010102 && c == 3 ? 2 : plane.depth, start = 1u << (31 - depth);
          if (factor_log2 == 2) interpolate<4>(of_small + r, of_larger + r, start, args.taps[1]);
          else interpolate<2>(of_small + r, of_larger + r, start, args.taps[0]);
        } else {
          const u16* const window = of_larger - (2 * BLUR_LEVEL_RADIUS << factor_log2) + r;
          if (factor_log2 == 2) decimate<4>(window, of_small + r, args.tap_bytes[1]);
          else decimate<2>(window, of_small + r, args.tap_bytes[0]);
        }
      }
    }
  }
  __device__ __forceinline__ void process(const LevelRowsArgs& args) const {
    constexpr int N = P::IS_YUV422 ? 1 : C;
    const bool has_luma = !P::IS_YUV422 || plane.parts[0].small, has_chroma = P::IS_YUV422 && plane.parts[1].small;
    if constexpr (INTERPOLATE) {
      if (has_luma) load_small<N, 0>(plane.parts[0]);
      if constexpr (P::IS_YUV422)
        if (has_chroma) load_small<2, 1>(plane.parts[1]);
    } else {
      load_larger();
    }
    warp_sync();
    if (has_luma) resample<N, 0>(args);
    if constexpr (P::IS_YUV422)
      if (has_chroma) resample<2, 1>(args);
    warp_sync();
    if constexpr (INTERPOLATE) {
      store_larger();
    } else {
      if (has_luma) store_small<N, 0>(plane.parts[0]);
      if constexpr (P::IS_YUV422)
        if (has_chroma) store_small<2, 1>(plane.parts[1]);
    }
  }
};

template <class P, bool INTERPOLATE>
__device__ __forceinline__ void level_rows(const LevelRowsArgs& args, const LevelRowsPlane& plane, u8* memory) {
  const u32 block = blockIdx.x - plane.first_block, rows = block / plane.strips,
            y = plane.row_begin + (rows * BLUR_LEVEL_WARPS + threadIdx.x / 32) * BLUR_LEVEL_WARP_ROWS;
  if (y >= plane.row_end) return;
  const int strip = static_cast<int>(plane.first_strip + block - rows * plane.strips);
  LevelStrip<P, INTERPOLATE>(plane, strip, y, memory).process(args);
}

// Four neighbouring samples of rows in planes of 16-bit samples: BLUR_LEVEL_DECIMATE_ROWS rows of the small plane, or four
// rows of the larger one.
template <int S, bool INTERPOLATE>
__device__ __forceinline__ void level_columns(
    const LevelColumnsPlane& plane, int x, int first_row, const u32 (&taps)[BLUR_LEVEL_TAPS]) {
  constexpr int OUTPUTS = INTERPOLATE ? 4 : BLUR_LEVEL_DECIMATE_ROWS,
                TAPS = INTERPOLATE ? BLUR_PHASE_TAPS : 2 * BLUR_LEVEL_RADIUS * S + 1,
                ROWS = TAPS + (INTERPOLATE ? 4 / S - 1 : (OUTPUTS - 1) * S);
  const int first = INTERPOLATE ? first_row / S : (first_row - 2 * BLUR_LEVEL_RADIUS) * S,
            last = static_cast<int>(plane.src_rows) - 1, left = static_cast<int>(plane.sample_end) - x;
  const u8* from = plane.src + static_cast<u32>(clamp(first, 0, last)) * plane.src_pitch + 2 * x;
  u32 sums[OUTPUTS][4];
#pragma unroll
  for (int o = 0; o < OUTPUTS; o++)
#pragma unroll
    for (int j = 0; j < 4; j++) sums[o][j] = 1u << (31 - plane.depth);
#pragma unroll
  for (int i = 0; i < ROWS; i++) {
    u32 samples[4];
    // The blur writes no samples behind a row.
    if (INTERPOLATE && left < 4) {
#pragma unroll
      for (int j = 0; j < 4; j++) samples[j] = j < left ? *offset_ptr<const u16>(from, 2 * j) : 0;
    } else {
      load_samples<4, 2>(samples, reinterpret_cast<const u16*>(from));
    }
    // Beyond the ends of a column the nearest row repeats.
    if (static_cast<u32>(first + i) < static_cast<u32>(last)) from += plane.src_pitch;
#pragma unroll
    for (int o = 0; o < OUTPUTS; o++) {
      const int k = i - (INTERPOLATE ? o / S : o * S), phase = INTERPOLATE ? o % S : 0;
      if (k < 0 || k >= TAPS) continue;
#pragma unroll
      for (int j = 0; j < 4; j++) sums[o][j] += taps[phase * BLUR_PHASE_TAPS + k] * samples[j];
    }
  }
#pragma unroll
  for (int o = 0; o < OUTPUTS; o++) {
    const u32 y = static_cast<u32>(first_row + o);
    if (y >= plane.row_begin && y < plane.row_end)
      store_samples(reinterpret_cast<u16*>(plane.dst + y * plane.dst_pitch) + x, sums[o]);
  }
}

template <bool INTERPOLATE> __device__ __forceinline__ void level_columns(const LevelColumnsArgs& args) {
  constexpr u32 ROWS = INTERPOLATE ? 4 : BLUR_LEVEL_DECIMATE_ROWS;
  const LevelColumnsPlane& plane = plane_of_block(args.planes);
  const u32 block = blockIdx.x - plane.first_block, rows = block / plane.strips;
  const int x = static_cast<int>(
      plane.sample_begin + (block - rows * plane.strips) * BLUR_LEVEL_COLUMNS_SAMPLES + threadIdx.x % 32 * 4);
  const u32 first_row =
      (INTERPOLATE ? plane.row_begin / 4 * 4 : plane.row_begin) + (rows * BLUR_LEVEL_WARPS + threadIdx.x / 32) * ROWS;
  if (x >= static_cast<int>(plane.sample_end) || first_row >= plane.row_end) return;
  if (plane.factor_log2 == 2) level_columns<4, INTERPOLATE>(plane, x, static_cast<int>(first_row), args.taps[1]);
  else level_columns<2, INTERPOLATE>(plane, x, static_cast<int>(first_row), args.taps[0]);
}
#endif
