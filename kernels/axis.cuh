// SPDX-License-Identifier: MPL-2.0
// One axis at a time, on CUDA cores: the direct form with any radius and the levels of the wide form, for every pixel layout and
// factor. docs/ARITHMETIC.md has the filters.
//
// Only the passes along rows know how samples are stored, by StoredChannel. A warp copies a strip of a row into shared memory, makes
// an array of 16-bit samples of each channel, filters the arrays, packs the results and copies them out. The passes down columns
// read planes of 16-bit samples, whose channels they need not know; that of the direct form writes samples as they are stored.
#ifndef BLUR_AXIS_H
#define BLUR_AXIS_H
#include "launch.cuh"
#include "warp.cuh"

// Words that one instruction loads or stores.
template <int N> __device__ __forceinline__ void load_words(u32 (&words)[N], const u8* from) {
  const auto vector = *offset_ptr<const Words<N>>(from, 0);
#pragma unroll
  for (int k = 0; k < N; k++) words[k] = vector.word[k];
}
template <int N> __device__ __forceinline__ void store_words(u8* to, const u32 (&words)[N]) {
  Words<N> vector;
#pragma unroll
  for (int k = 0; k < N; k++) vector.word[k] = words[k];
  *offset_ptr<Words<N>>(to, 0) = vector;
}

// Copies vectors of WORDS words from one aligned address to another. All lanes of a warp take part.
template <int WORDS> __device__ __forceinline__ void copy_vectors(u8* to, const u8* from, int count) {
  constexpr int AT_ONCE = 4;
#pragma unroll 1
  for (int first = threadIdx.x % 32; first < count; first += 32 * AT_ONCE) {
    u32 words[AT_ONCE][WORDS];
#pragma unroll
    for (int k = 0; k < AT_ONCE; k++)
      if (first + 32 * k < count) load_words(words[k], from + (first + 32 * k) * 4 * WORDS);
#pragma unroll
    for (int k = 0; k < AT_ONCE; k++)
      if (first + 32 * k < count) store_words(to + (first + 32 * k) * 4 * WORDS, words[k]);
  }
}
// The same for bytes `begin` to `end`, as many at a time as both addresses allow.
__device__ __forceinline__ void copy_bytes(u8* to, const u8* from, int begin, int end) {
  to += begin;
  from += begin;
  const u64 alignment = reinterpret_cast<u64>(to) | reinterpret_cast<u64>(from);
  const int bytes = end - begin, vector = alignment % 16 == 0 ? 16 : alignment % 4 == 0 ? 4 : 0;
  int copied = 0;
  if (vector == 16) copy_vectors<4>(to, from, bytes / 16);
  else if (vector == 4) copy_vectors<1>(to, from, bytes / 4);
  if (vector > 0) copied = bytes / vector * vector;
#pragma unroll 1
  for (int i = copied + threadIdx.x % 32; i < bytes; i += 32) to[i] = from[i];
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

// The tap at a signed distance from the centre; 0 beyond the radius.
__device__ __forceinline__ u32 tap_at(const u16 (&taps)[BLUR_TAPS], int radius, int distance) {
  const int i = distance < 0 ? -distance : distance;
  return i > radius ? 0 : radius == 0 ? 65536 : taps[i];
}

// Taps of the direct form in shared memory, from `first` on: element n is the tap at the distance first + n.
__device__ __forceinline__ void expand_taps(
    u32* to, const u16 (&taps)[BLUR_TAPS], int radius, int first, int count, int threads) {
#pragma unroll 1
  for (int n = threadIdx.x; n < count; n += threads) to[n] = tap_at(taps, radius, first + n);
}

// The samples around an output that the rows kernel processes on each side, eight at a time, and the length of its taps.
__device__ __forceinline__ constexpr int row_halo(int radius) { return (radius + 7) / 8 * 8; }
__device__ __forceinline__ int row_taps_length(int radius) { return 2 * row_halo(radius) + 16; }

enum class RowsStep { DIRECT, DECIMATE, INTERPOLATE };

// What a warp processes: a strip of one row or two. Part 1 is the chroma of packed 4:2:2, all else is part 0.
template <RowsStep STEP> struct RowsStrip {
  static constexpr bool DIRECT = STEP == RowsStep::DIRECT, INTERPOLATE = STEP == RowsStep::INTERPOLATE;
  static constexpr int ROWS = DIRECT ? 1 : BLUR_LEVEL_WARP_ROWS;
  const RowsPlane& plane;
  // Pixels of the larger plane: those of the strip, those in front of it that are read too, all of an array, and the first of the
  // strip.
  const int pixels, lead, window, x0;
  const u32 y;
  u8* const memory;

  // `block_memory` is that of all warps of the block.
  __device__ __forceinline__ RowsStrip(const RowsPlane& plane, int strip, u32 y, u8* block_memory, u32 warp)
      : plane(plane), pixels(DIRECT ? BLUR_ROWS_STRIP : BLUR_LEVEL_WINDOW - (plane.pairs ? 64 : 32)),
        lead(DIRECT ? static_cast<int>(plane.lead) : INTERPOLATE ? 0 : BLUR_LEVEL_WINDOW - pixels),
        window(DIRECT ? pixels + 2 * lead : BLUR_LEVEL_WINDOW),
        x0((INTERPOLATE ? static_cast<int>(plane.column_begin) : 0) + strip * pixels), y(y),
        memory(block_memory + warp * (ROWS * 2 * plane.channels * (2 * window))) {}

  // The samples of channel c of row r of the strip. While one of both arrays is not in use, bytes as they are in memory take
  // its place: those of the larger plane the place of `small`, and the other way round.
  __device__ __forceinline__ u16* larger(int r, int c) const {
    return offset_ptr<u16>(memory, (r * 2 * plane.channels + c) * (2 * window));
  }
  __device__ __forceinline__ u16* small(int r, int c) const { return larger(r, plane.channels + c); }

  // Samples of a part for `pixels` pixels.
  static __device__ __forceinline__ int samples(int part, int pixels) { return part ? pixels / 2 : pixels; }

  // Whether a part is processed, and its channels, the first of which has the part's number.
  __device__ __forceinline__ bool has_part(u32 part) const { return part <= plane.pairs && plane.parts[part].samples; }
  __device__ __forceinline__ int channels(int part) const {
    return part ? 2 : plane.pairs ? 1 : static_cast<int>(plane.channels);
  }

  // Widens an even number of samples from words of WORD bytes. Sample i is that of word i, or of the nearest one from `low` to
  // `high`.
  template <int WORD> static __device__ __forceinline__ void unpack_words(
      u16* to, const u8* from, const StoredChannel& channel, int count, int low, int high) {
    const u32 bits = channel.bits, left = (WORD == 4 ? 32 : 16) - channel.shift - bits, step = channel.step,
              mask = (0xffffu << (16 - bits) & 0xffff) * 0x10001;
    from += channel.offset;
#pragma unroll 2
    for (int i = threadIdx.x % 32 * 2; i < count; i += 64) {
      u32 two[2];
#pragma unroll
      for (int e = 0; e < 2; e++) {
        const u8* word = from + static_cast<u32>(clamp(i + e, low, high)) * step;
        two[e] = WORD == 1 ? *word : WORD == 2 ? *offset_ptr<const u16>(word, 0) : *offset_ptr<const u32>(word, 0) << left;
      }
      // The second byte of a loaded byte is 0.
      *offset_ptr<u32>(to, 2 * i) = WORD == 1   ? byte_perm(two[0], two[1], 0x4101)
                                    : WORD == 2 ? byte_perm(two[0], two[1], 0x5410) << left & mask
                                                : byte_perm(two[0], two[1], 0x7632) & mask;
    }
  }
  __device__ __forceinline__ void unpack(
      u16* to, const u8* from, const StoredChannel& channel, int count, int low, int high) const {
    if (plane.word_bytes == 1) unpack_words<1>(to, from, channel, count, low, high);
    else if (plane.word_bytes == 2) unpack_words<2>(to, from, channel, count, low, high);
    else unpack_words<4>(to, from, channel, count, low, high);
  }

  // Packs the first samples into words of WORD bytes, or into words that have other channels already.
  template <int WORD> static __device__ __forceinline__ void pack_words(
      u8* to, const u16* from, const StoredChannel& channel, int count, bool joins) {
    const u32 bits = channel.bits, right = 16 - bits, mask = (0xffffu << right & 0xffff) * 0x10001, step = channel.step;
    to += channel.offset;
    // A row of the frame may begin at any byte.
    [[maybe_unused]] const bool is_aligned = reinterpret_cast<u64>(to) % 2 == 0;
#pragma unroll 2
    for (int i = threadIdx.x % 32 * 2; i < count; i += 64) {
      const u32 samples = *offset_ptr<const u32>(from, 2 * i);
      const u32 two = WORD == 1 ? samples >> 8 : (samples & mask) >> right << (WORD == 2 ? channel.shift : 0);
#pragma unroll
      for (int e = 0; e < 2; e++) {
        if (e == 1 && i + 1 >= count) continue;
        u8* word = to + static_cast<u32>(i + e) * step;
        const u32 value = two >> 16 * e;
        if (WORD == 1) {
          *word = static_cast<u8>(value);
        } else if (WORD == 2) {
          if (is_aligned) {
            *offset_ptr<u16>(word, 0) = static_cast<u16>(value);
          } else {
            word[0] = static_cast<u8>(value);
            word[1] = static_cast<u8>(value >> 8);
          }
        } else {
          const u32 others = joins ? *offset_ptr<u32>(word, 0) : 0;
          *offset_ptr<u32>(word, 0) = others | (value & 0xffff) << channel.shift;
        }
      }
    }
  }
  __device__ __forceinline__ void pack(u8* to, const u16* from, const StoredChannel& channel, int count, bool joins) const {
    if (plane.word_bytes == 1) pack_words<1>(to, from, channel, count, joins);
    else if (plane.word_bytes == 2) pack_words<2>(to, from, channel, count, joins);
    else pack_words<4>(to, from, channel, count, joins);
  }
  // Channel c of `count` in a row of 16-bit samples.
  static __device__ __forceinline__ StoredChannel small_channel(int c, int count) {
    return {static_cast<u16>(2 * c), static_cast<u16>(2 * count), 0, 16};
  }

  // Loads the pixels that a decimation or the direct form reads. Beyond its ends the nearest sample of the row repeats.
  __device__ __forceinline__ void load_larger() const {
    const int width = static_cast<int>(plane.width), first = x0 - lead, bytes = static_cast<int>(plane.pixel_bytes),
              row_bytes = (plane.pairs ? (width + 1) / 2 * 2 : width) * bytes, end = (first + window) * bytes;
#pragma unroll 1
    for (int r = 0; r < ROWS; r++)
      copy_bytes(offset_ptr<u8>(small(r, 0), 0) - first * bytes, larger_row(r), first < 0 ? 0 : first * bytes,
                 end < row_bytes ? end : row_bytes);
    warp_sync();
#pragma unroll 1
    for (int part = 0; part < 2; part++) {
      if (!has_part(part)) continue;
      const int count = channels(part);
      const int before = samples(part, first), last = (part ? (width + 1) / 2 : width) - 1 - before;
#pragma unroll 1
      for (int i = 0; i < ROWS * count; i++) {
        const int r = i % ROWS, c = part + i / ROWS;
        unpack(larger(r, c), offset_ptr<u8>(small(r, 0), 0), plane.layout[c], samples(part, window),
               before < 0 ? -before : 0, last);
      }
    }
  }
  // Row r; the first once more if there is no second one.
  __device__ __forceinline__ u8* larger_row(int r) const {
    return plane.larger + (y + r < plane.row_end ? y + r : y) * plane.pitch;
  }
  __device__ __forceinline__ u8* small_row(const RowsPart& part, int r) const {
    return part.samples + (y + r < plane.row_end ? y + r : y) * part.pitch;
  }

  // Writes the pixels of the strip that are in the rectangle.
  __device__ __forceinline__ void store_larger() const {
    const int bytes = static_cast<int>(plane.pixel_bytes), column_end = static_cast<int>(plane.column_end),
              end = x0 + pixels < column_end ? x0 + pixels : column_end;
    // Whole rows, unless only the luma or only the chroma of packed 4:2:2 is written.
    const bool is_whole = !plane.pairs || (plane.parts[0].samples && plane.parts[1].samples);
#pragma unroll 1
    for (int part = 0; part < 2; part++) {
      if (!has_part(part)) continue;
      const int count = channels(part);
#pragma unroll 1
      for (int i = 0; i < ROWS * count; i++) {
        const int r = i % ROWS, c = part + i / ROWS;
        if (y + r >= plane.row_end) continue;
        u8* const to = is_whole ? offset_ptr<u8>(small(r, 0), 0) : larger_row(r) + x0 * bytes;
        pack(to, larger(r, c), plane.layout[c], samples(part, end - x0), c > 0);
      }
    }
    if (!is_whole) return;
    warp_sync();
#pragma unroll 1
    for (int r = 0; r < ROWS; r++)
      if (y + r < plane.row_end)
        copy_bytes(larger_row(r), offset_ptr<u8>(small(r, 0), 0) - x0 * bytes, x0 * bytes, end * bytes);
  }

  // The samples of a small plane that an interpolation reads.
  __device__ __forceinline__ void load_small() const {
#pragma unroll 1
    for (int part = 0; part < 2; part++) {
      if (!has_part(part)) continue;
      const int count = channels(part);
      const RowsPart& of = plane.parts[part];
      const int bytes = 2 * count, first = samples(part, x0) >> of.factor_log2, last = static_cast<int>(of.end) - 1,
                length = (samples(part, pixels) >> of.factor_log2) + (of.factor_log2 ? 8 : 0);
      // The bytes of a single channel are its array, if no sample has to be repeated.
      const bool is_array = count == 1 && first + length <= last + 1;
#pragma unroll 1
      for (int r = 0; r < ROWS; r++)
        copy_bytes(offset_ptr<u8>(is_array ? small(r, part) : larger(r, part), 0) - first * bytes, small_row(of, r),
                   first * bytes, (first + length <= last ? first + length : last + 1) * bytes);
      warp_sync();
#pragma unroll 1
      for (int i = 0; i < ROWS * count && !is_array; i++) {
        const int r = i % ROWS, c = i / ROWS;
        unpack_words<2>(small(r, part + c), offset_ptr<u8>(larger(r, part), 0), small_channel(c, count), length, 0,
                        last - first);
      }
    }
  }
  // The samples that a decimation or the direct form has computed.
  __device__ __forceinline__ void store_small() const {
#pragma unroll 1
    for (int part = 0; part < 2; part++) {
      if (!has_part(part)) continue;
      const int count = channels(part);
      const RowsPart& of = plane.parts[part];
      const int bytes = 2 * count, first = samples(part, x0) >> of.factor_log2,
                end = first + (samples(part, pixels) >> of.factor_log2), part_begin = static_cast<int>(of.begin),
                part_end = static_cast<int>(of.end);
#pragma unroll 1
      for (int i = 0; i < ROWS * count && count > 1; i++) {
        const int r = i % ROWS, c = i / ROWS;
        pack_words<2>(
            offset_ptr<u8>(larger(r, part), 0), small(r, part + c), small_channel(c, count), end - first, false);
      }
      warp_sync();
#pragma unroll 1
      for (int r = 0; r < ROWS; r++)
        if (y + r < plane.row_end)
          copy_bytes(
              small_row(of, r), offset_ptr<u8>(count == 1 ? small(r, part) : larger(r, part), 0) - first * bytes,
              (first > part_begin ? first : part_begin) * bytes, (end < part_end ? end : part_end) * bytes);
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

  // Eight neighbours, by taps of any radius; `expanded` has them at all distances from -row_halo - 8 on.
  static __device__ __forceinline__ void convolve(const u16* from, u16* to, int radius, const u32* expanded) {
    const int halo = row_halo(radius);
    u32 sums[8], window[8], window_taps[16];
#pragma unroll
    for (int i = 0; i < 8; i++) sums[i] = 1 << 15;
    auto load_taps = [&](int to, int at) {
#pragma unroll
      for (int i = 0; i < 8; i += 4) {
        const auto vector = *offset_ptr<const Words<4>>(expanded, (at + i) * 4);
#pragma unroll
        for (int k = 0; k < 4; k++) window_taps[to + i + k] = vector.word[k];
      }
    };
    load_taps(0, 0);
#pragma unroll 2
    for (int k = -halo; k <= halo; k += 8) {
      load_samples<8, 4>(window, from + k);
      load_taps(8, k + halo + 8);
#pragma unroll
      for (int s = 0; s < 8; s++)
#pragma unroll
        for (int i = 0; i < 8; i++) sums[i] += window_taps[8 + s - i] * window[s];
#pragma unroll
      for (int i = 0; i < 8; i++) window_taps[i] = window_taps[8 + i];
    }
    store_samples(to, sums);
  }

  // From one kind of array to the other. A factor of one leaves the samples of a level as they are.
  __device__ __forceinline__ void filter(const RowsArgs& args, int part, const u32* expanded) const {
    const RowsPart& of = plane.parts[part];
    const u32 factor_log2 = of.factor_log2, next_row = 2 * plane.channels * window;
    const int eights = samples(part, pixels) / 8, count = channels(part);
#pragma unroll 1
    for (int i = threadIdx.x % 32; i < eights * count; i += 32) {
      const int channel = (i >= eights) + (i >= 2 * eights) + (i >= 3 * eights), c = part + channel,
                eight = i - channel * eights;
      u16* const of_larger = larger(0, c) + samples(part, lead) + 8 * eight;
      u16* const of_small = small(0, c) + (8 * eight >> factor_log2);
      if constexpr (DIRECT) {
        convolve(of_larger, of_small, static_cast<int>(args.radius[of.slot]), expanded);
      } else {
#pragma unroll
        for (int row = 0; row < ROWS; row++) {
          const u32 r = row * next_row;
          if (factor_log2 == 0) {
            *offset_ptr<Words<4>>((INTERPOLATE ? of_larger : of_small) + r, 0) =
                *offset_ptr<const Words<4>>((INTERPOLATE ? of_small : of_larger) + r, 0);
          } else if constexpr (INTERPOLATE) {
            const u32 start = 1u << (31 - plane.layout[c].bits);
            if (factor_log2 == 2) interpolate<4>(of_small + r, of_larger + r, start, args.level_taps[1]);
            else interpolate<2>(of_small + r, of_larger + r, start, args.level_taps[0]);
          } else {
            const u16* const window = of_larger - (2 * BLUR_LEVEL_RADIUS << factor_log2) + r;
            if (factor_log2 == 2) decimate<4>(window, of_small + r, args.tap_bytes[1]);
            else decimate<2>(window, of_small + r, args.tap_bytes[0]);
          }
        }
      }
    }
  }
  __device__ __forceinline__ void process(const RowsArgs& args, const u32* expanded) const {
    if constexpr (INTERPOLATE) load_small();
    else load_larger();
    warp_sync();
#pragma unroll 1
    for (int part = 0; part < 2; part++) {
      if (!has_part(part)) continue;
      filter(args, part, expanded);
      if (DIRECT) expanded += row_taps_length(static_cast<int>(args.radius[plane.parts[part].slot]));
    }
    warp_sync();
    if constexpr (INTERPOLATE) store_larger();
    else store_small();
  }
};

template <RowsStep STEP> __device__ __forceinline__ void filter_rows(const RowsArgs& args, u8* memory) {
  using Strip = RowsStrip<STEP>;
  constexpr int WARPS = Strip::DIRECT ? BLUR_ROWS_WARPS : BLUR_LEVEL_WARPS;
  const RowsPlane& plane = item_of_block(args.planes);
  const auto* expanded = offset_ptr<const u32>(memory, 0);
  if constexpr (Strip::DIRECT) {
    // The taps of each part.
#pragma unroll 1
    for (u32 part = 0; part <= plane.pairs; part++) {
      const u32 slot = plane.parts[part].slot;
      const int radius = static_cast<int>(args.radius[slot]), length = row_taps_length(radius);
      expand_taps(offset_ptr<u32>(memory, 0), args.taps[slot], radius, -row_halo(radius) - 8, length, 32 * WARPS);
      memory += length * 4;
    }
    __syncthreads();
  }
  const u32 block = blockIdx.x - plane.first_block, rows = block / plane.strips, warp = threadIdx.x / 32,
            y = plane.row_begin + (rows * WARPS + warp) * Strip::ROWS;
  if (y >= plane.row_end) return;
  const int strip = static_cast<int>(plane.first_strip + block - rows * plane.strips);
  Strip(plane, strip, y, memory, warp).process(args, expanded);
}

// Four neighbouring samples of BLUR_LEVEL_DECIMATE_ROWS rows of the small plane of a level, or of four rows of the larger one.
template <int S, bool INTERPOLATE>
__device__ __forceinline__ void level_columns(
    const ColumnsPlane& plane, int x, int first_row, const u32 (&taps)[BLUR_LEVEL_TAPS]) {
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

// Rounds four samples to the depth and stores those in front of the end of the row as they are stored in the plane. Two bits are
// what the fourth has in words of 10, 10, 10 and 2.
__device__ __forceinline__ void store_four(const ColumnsPlane& plane, u8* to, const u32 (&sums)[4], int left) {
  const u32 size = plane.word_bytes == 2 ? 2 : 1, step = plane.step, down = 32 - plane.depth;
  // Two samples of two bytes in a word, or four bytes in the first.
  u32 first, second = 0;
  if (plane.word_bytes == 4) {
    first = sums[0] >> 22 | sums[1] >> 22 << 10 | sums[2] >> 22 << 20 | sums[3] >> 30 << 30;
  } else if (size == 1) {
    first = byte_perm(byte_perm(sums[0], sums[1], 0x73), byte_perm(sums[2], sums[3], 0x73), 0x5410);
  } else {
    first = (sums[0] >> down | sums[1] >> down << 16) << plane.shift;
    second = (sums[2] >> down | sums[3] >> down << 16) << plane.shift;
  }
  if (step == size && left >= 4 && reinterpret_cast<u64>(to) % (4 * size) == 0) {
    if (size == 1) *offset_ptr<u32>(to, 0) = first;
    else *offset_ptr<Words<2>>(to, 0) = {{first, second}};
    return;
  }
  const bool is_even = size == 2 && (reinterpret_cast<u64>(to) | step) % 2 == 0;
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const u32 value = size == 1 ? first >> 8 * i : (i < 2 ? first : second) >> 16 * (i % 2);
    if (i < left && is_even) {
      *offset_ptr<u16>(to, 0) = static_cast<u16>(value);
    } else if (i < left) {
      to[0] = static_cast<u8>(value);
      if (size == 2) to[1] = static_cast<u8>(value >> 8);
    }
    to += step;
  }
}

// Four neighbouring samples of BLUR_COLUMNS_ROWS rows. `expanded` has the taps at all distances from -radius - BLUR_COLUMNS_ROWS
// on.
__device__ __forceinline__ void convolve_columns(
    const ColumnsPlane& plane, int x, int first_row, int radius, const u32* expanded) {
  constexpr int ROWS = BLUR_COLUMNS_ROWS;
  const int rows = static_cast<int>(plane.src_rows), read_end = static_cast<int>(plane.row_end) + radius,
            last = (read_end < rows ? read_end : rows) - 1, left = static_cast<int>(plane.sample_end) - x;
  const u8* const column = plane.src + 2 * x;
  u32 sums[ROWS][4];
#pragma unroll
  for (int n = 0; n < ROWS; n++)
#pragma unroll
    for (int j = 0; j < 4; j++) sums[n][j] = 1u << (31 - (plane.word_bytes == 4 && j == 3 ? 2 : plane.depth));
#pragma unroll 1
  for (int k = 0; k < 2 * radius + ROWS; k += 4) {
    u32 window_taps[ROWS + 4];
#pragma unroll
    for (int i = 0; i < ROWS + 4; i += 4) {
      const auto vector = *offset_ptr<const Words<4>>(expanded, (k + i) * 4);
#pragma unroll
      for (int n = 0; n < 4; n++) window_taps[i + n] = vector.word[n];
    }
    u32 samples[4][4];
#pragma unroll
    for (int row = 0; row < 4; row++) {
      // Beyond the ends of a column the nearest row repeats. Rows behind the last window count for nothing.
      const int y = clamp(first_row - radius + k + row, 0, last);
      load_samples<4, 2>(samples[row], offset_ptr<const u16>(column, static_cast<u64>(y) * plane.src_pitch));
    }
#pragma unroll
    for (int row = 0; row < 4; row++)
#pragma unroll
      for (int n = 0; n < ROWS; n++) {
        const u32 tap = window_taps[ROWS + row - n];
#pragma unroll
        for (int j = 0; j < 4; j++) sums[n][j] += tap * samples[row][j];
      }
  }
#pragma unroll
  for (int n = 0; n < ROWS; n++) {
    const u32 y = static_cast<u32>(first_row + n);
    if (y < plane.row_end)
      store_four(plane, plane.dst + y * plane.dst_pitch + static_cast<u32>(x) * plane.step, sums[n], left);
  }
}

// What a thread of a pass down columns computes: four samples from x on, in ROWS rows from first_row on.
template <int ROWS, int WARPS> struct ColumnsItem {
  const ColumnsPlane& plane;
  int x;
  u32 first_row;

  // `first` is the first row of the first block.
  __device__ __forceinline__ ColumnsItem(const ColumnsPlane& plane, u32 first) : plane(plane) {
    const u32 block = blockIdx.x - plane.first_block, rows = block / plane.strips;
    x = static_cast<int>(
        plane.sample_begin + (block - rows * plane.strips) * BLUR_COLUMNS_SAMPLES + threadIdx.x % 32 * 4);
    first_row = first + (rows * WARPS + threadIdx.x / 32) * ROWS;
  }
  __device__ __forceinline__ bool exists() const {
    return x < static_cast<int>(plane.sample_end) && first_row < plane.row_end;
  }
};

__device__ __forceinline__ void direct_columns(const ColumnsArgs& args, u8* memory) {
  constexpr int ROWS = BLUR_COLUMNS_ROWS;
  const ColumnsPlane& plane = item_of_block(args.planes);
  const int radius = static_cast<int>(args.radius[plane.slot]);
  auto* expanded = offset_ptr<u32>(memory, 0);
  expand_taps(expanded, args.taps[plane.slot], radius, -radius - ROWS, ROWS + (2 * radius + ROWS + 3) / 4 * 4,
              32 * BLUR_COLUMNS_WARPS);
  __syncthreads();
  const ColumnsItem<ROWS, BLUR_COLUMNS_WARPS> item(plane, plane.row_begin);
  if (!item.exists()) return;
  const int first_row = static_cast<int>(item.first_row);
  convolve_columns(plane, item.x, first_row, radius, expanded);
}

template <bool INTERPOLATE> __device__ __forceinline__ void level_columns(const ColumnsArgs& args) {
  const ColumnsPlane& plane = item_of_block(args.planes);
  const ColumnsItem<INTERPOLATE ? 4 : BLUR_LEVEL_DECIMATE_ROWS, BLUR_LEVEL_WARPS> item(
      plane, INTERPOLATE ? plane.row_begin / 4 * 4 : plane.row_begin);
  if (!item.exists()) return;
  const int first_row = static_cast<int>(item.first_row);
  if (plane.factor_log2 == 2) level_columns<4, INTERPOLATE>(plane, item.x, first_row, args.level_taps[1]);
  else level_columns<2, INTERPOLATE>(plane, item.x, first_row, args.level_taps[0]);
}
#endif
