// SPDX-License-Identifier: MPL-2.0
// Interpolation on tensor cores: columns, then rows. A warp owns 16 rows and walks to the right.
#ifndef BLUR_TENSOR_INTERPOLATE_H
#define BLUR_TENSOR_INTERPOLATE_H
#include "tensor_loader.cuh"

// S is the factor along rows.
template <class P, int S> struct InterpolateTile {
  static constexpr int C = P::C, BYTES = P::BYTES, N = C % 2 ? 1 : 2, GROUPS = C / N;
  // Small columns of a step, eights of them, and steps behind its own that a step needs. Without a factor a lane gets
  // neighbours from two eights.
  static constexpr int EIGHTS = S == 1 ? 2 : 1, COLUMNS = 8 * EIGHTS, STEPS_BEHIND = S > 1;
  // Pixels of the destination per step; neighbours of them that a lane stores.
  static constexpr int STEP_PIXELS = COLUMNS * S, PIXELS = S == 4 && BYTES < 4 ? 8 : 4;
  static constexpr OperandOrder ORDER = PIXELS == 8 ? OperandOrder::octets : OperandOrder::words;
  // Stores of a lane per row and step, and the words of one.
  static constexpr int STORES = STEP_PIXELS / (4 * PIXELS), STORE_WORDS = PIXELS * BYTES / 4;
  static constexpr int ENTRY = 8 * N, STEP_BYTES = EIGHTS * 32 * ENTRY * GROUPS,
                       WARP_BYTES = BLUR_TENSOR_INTERPOLATE_DEPTH * STEP_BYTES;
};

// The upper bytes of two products with one block of outputs each: byte 3 of a word is from the first, byte 1 from the
// second. [output 2 t, 2 t + 1 of row g, then of row g + 8].
__device__ __forceinline__ void interpolate_two(
    u32 (&out)[4], const u32 (&high0)[2], const u32 (&low0)[2], u32 tap_low0, u32 tap_high0, const u32 (&high1)[2],
    const u32 (&low1)[2], u32 tap_low1, u32 tap_high1) {
  int first_high[4], mixed0[4], mixed1[4], of_low0[4], of_low1[4], both[4];
  mma16(first_high, high0[0], high0[1], tap_high0, 0, 0, 0, 0);
  mma32(mixed0, high0[0], high0[1], low0[0], low0[1], tap_low0, tap_high0, 0, 0, 0, 0);
  mma16(of_low0, low0[0], low0[1], tap_low0, HALF_OF_24_BITS, HALF_OF_24_BITS, HALF_OF_24_BITS, HALF_OF_24_BITS);
  mma32(mixed1, high1[0], high1[1], low1[0], low1[1], tap_low1, tap_high1, 0, 0, 0, 0);
  mma16(of_low1, low1[0], low1[1], tap_low1, HALF_OF_24_BITS, HALF_OF_24_BITS, HALF_OF_24_BITS, HALF_OF_24_BITS);
  // The products of the high bytes count from bit 16 on, and a sum is below 2^32: the upper halves of both sums fit
  // into one word, and the second product is added to the lower half of it.
  int start[4];
#pragma unroll
  for (int i = 0; i < 4; i++)
    start[i] = static_cast<int>(
        byte_perm(combine(of_low1[i], mixed1[i], 0), combine(of_low0[i], mixed0[i], 0), 0x7632)
        + (static_cast<u32>(first_high[i]) << 16));
  mma16(both, high1[0], high1[1], tap_high1, start[0], start[1], start[2], start[3]);
#pragma unroll
  for (int i = 0; i < 4; i++) out[i] = static_cast<u32>(both[i]);
}

// The sums of one product with one block of outputs: [output 2 t, 2 t + 1 of row g, then of row g + 8].
__device__ __forceinline__ void interpolate_sums(
    u32 (&out)[4], const u32 (&high)[2], const u32 (&low)[2], u32 tap_low, u32 tap_high, int half) {
  int of_high[4], mixed[4], of_low[4];
  mma16(of_high, high[0], high[1], tap_high, 0, 0, 0, 0);
  mma32(mixed, high[0], high[1], low[0], low[1], tap_low, tap_high, 0, 0, 0, 0);
  mma16(of_low, low[0], low[1], tap_low, half, half, half, half);
#pragma unroll
  for (int i = 0; i < 4; i++) out[i] = combine(of_low[i], mixed[i], of_high[i]);
}

// 16 outputs of 8 columns of the operand: the sums of outputs g and g + 8 of columns 2 t and 2 t + 1 each.
__device__ __forceinline__ void interpolate_columns(u32 (&sum)[4], const u32 (&taps)[4], u32 high, u32 low, int half) {
  int of_high[4], mixed[4], of_low[4];
  mma16(of_high, taps[2], taps[3], high, 0, 0, 0, 0);
  mma32(mixed, taps[0], taps[1], taps[2], taps[3], high, low, 0, 0, 0, 0);
  mma16(of_low, taps[0], taps[1], low, half, half, half, half);
#pragma unroll
  for (int i = 0; i < 4; i++) sum[i] = combine(of_low[i], mixed[i], of_high[i]);
}
// The same, 16 bits of two columns a word.
__device__ __forceinline__ void interpolate_16_bits(u32 (&out)[2], const u32 (&taps)[4], u32 high, u32 low) {
  u32 sum[4];
  interpolate_columns(sum, taps, high, low, HALF_OF_16_BITS);
  out[0] = upper_halves(sum[0], sum[1]);
  out[1] = upper_halves(sum[2], sum[3]);
}

template <class P, int S> struct InterpolateWarp {
  using Tile = InterpolateTile<P, S>;
  static constexpr int C = P::C, BYTES = P::BYTES, N = Tile::N;
  PixelPacker<P> packer;
  Shared ring;
  u32 column_taps[4], row_taps[row_products(S)][4];  // [pair of blocks] low, high of the first, of the second
  // The rows of 8 small columns and of the 8 before: 16 bits of columns 2 t, 2 t + 1 of rows g and g + 8.
  u32 before[C][2], current[C][2] = {};

  __device__ __forceinline__ explicit InterpolateWarp(const TensorPlane& plane) : packer(plane) {}

  // Starts to copy the small columns of a step: of eight a lane copies block of rows t, column g; `distance` columns behind it
  // is that of the other eight.
  __device__ __forceinline__ void load(const u8* from, u32 group_bytes, int distance, int slot) const {
    const Shared to = ring + slot * Tile::STEP_BYTES + threadIdx.x % 32 * Tile::ENTRY;
#pragma unroll
    for (int group = 0; group < Tile::GROUPS; group++)
#pragma unroll
      for (int i = 0; i < Tile::EIGHTS; i++)
        copy_async_cached<Tile::ENTRY>(
            to + (group * Tile::EIGHTS + i) * 32 * Tile::ENTRY, from + group * group_bytes + i * distance * Tile::ENTRY);
  }

  // Reads the columns of the oldest copied step: high and low bytes of channel i of a group.
  __device__ __forceinline__ void read(u32 (&entry)[2 * N], int slot, int group, int eight) const {
    const Shared from = ring + slot * Tile::STEP_BYTES + threadIdx.x % 32 * Tile::ENTRY;
    shared_load(entry, from + (group * Tile::EIGHTS + eight) * 32 * Tile::ENTRY);
  }

  // Interpolates the columns of the oldest copied step.
  __device__ __forceinline__ void columns(int slot) {
#pragma unroll
    for (int group = 0; group < Tile::GROUPS; group++) {
      u32 entry[2 * N];
      read(entry, slot, group, 0);
#pragma unroll
      for (int i = 0; i < N; i++) {
        const u32 high = entry[2 * i], low = entry[2 * i + 1];
        interpolate_16_bits(current[group * N + i], column_taps, high, low);
      }
    }
  }

  // Without a factor along rows: the columns of the oldest copied step are pixels, see rows(). Columns 2 t, 2 t + 1 of either
  // eight are neighbours.
  __device__ __forceinline__ void columns_to_pixels(u32 (&out)[2][BYTES], int slot) const {
    u32 sums[2][4 * C];
#pragma unroll
    for (int group = 0; group < Tile::GROUPS; group++)
#pragma unroll
      for (int eight = 0; eight < Tile::EIGHTS; eight++) {
        u32 entry[2 * N];
        read(entry, slot, group, eight);
#pragma unroll
        for (int i = 0; i < N; i++) {
          const int c = group * N + i;
          u32 four[4];
          interpolate_columns(four, column_taps, entry[2 * i], entry[2 * i + 1], packer.half(c));
#pragma unroll
          for (int e = 0; e < 4; e++) sums[e / 2][(2 * eight + e % 2) * C + c] = four[e];
        }
      }
#pragma unroll
    for (int row = 0; row < 2; row++) packer.pack(out[row], sums[row], [](int) { return 0u; });
  }

  // The same to 16 bits: entries of the columns g and g + 8 of 16.
  __device__ __forceinline__ void columns_16_bits(u32 (&out)[2][2 * C], int slot) const {
    u32 entry[2][2 * N];
#pragma unroll
    for (int eight = 0; eight < 2; eight++) read(entry[eight], slot, 0, eight);
#pragma unroll
    for (int c = 0; c < C; c++) {
      u32 values[2][2];  // [rows 4 t and 4 t + 1, or the two behind them][column]
#pragma unroll
      for (int two = 0; two < 2; two++) {
        const u32 high[2] = {entry[0][2 * c], entry[1][2 * c]}, low[2] = {entry[0][2 * c + 1], entry[1][2 * c + 1]};
        u32 sums[4];
        interpolate_sums(sums, high, low, row_taps[0][2 * two], row_taps[0][2 * two + 1], HALF_OF_16_BITS);
#pragma unroll
        for (int column = 0; column < 2; column++) values[two][column] = upper_halves(sums[2 * column], sums[2 * column + 1]);
      }
#pragma unroll
      for (int column = 0; column < 2; column++) {
        out[column][2 * c] = high_bytes(values[0][column], values[1][column]);
        out[column][2 * c + 1] = low_bytes(values[0][column], values[1][column]);
      }
    }
  }

  // Interpolates the rows of the two steps at hand to 16 bits: entries of the columns g and g + 8 of 16. Here the rows
  // are the B operand, so that a lane gets several rows of a column; the order of the columns' outputs makes them
  // neighbours.
  __device__ __forceinline__ void rows_16_bits(
      u32 (&out)[2][2 * C], int sixteen, const u32 (&high)[C][2], const u32 (&low)[C][2]) const {
    const u32(&taps)[4] = row_taps[sixteen];
#pragma unroll
    for (int c = 0; c < C; c++) {
      u32 values[2][2];
#pragma unroll
      for (int half = 0; half < 2; half++) interpolate_16_bits(values[half], taps, high[c][half], low[c][half]);
#pragma unroll
      for (int eight = 0; eight < 2; eight++) {
        out[eight][2 * c] = high_bytes(values[0][eight], values[1][eight]);
        out[eight][2 * c + 1] = low_bytes(values[0][eight], values[1][eight]);
      }
    }
  }

  // Interpolates the rows of the two steps at hand: the pixels of pair of blocks `pair`, rows g and g + 8, as the
  // destination's words. Pixels 2 t, 2 t + 1 of a block are neighbours, and so are those of the pair's two blocks. `source`
  // gives the source's pixel i of row g + 8 row.
  template <class Source> __device__ __forceinline__ void rows(
      u32 (&out)[2][BYTES], int pair, const u32 (&high)[C][2], const u32 (&low)[C][2], Source source) const {
    const u32(&taps)[4] = row_taps[pair];
    if constexpr (PixelPacker<P>::IS_WIDE) {
      u32 sums[2][4 * C];
#pragma unroll
      for (int c = 0; c < C; c++)
#pragma unroll
        for (int block = 0; block < 2; block++) {
          u32 four[4];
          interpolate_sums(four, high[c], low[c], taps[2 * block], taps[2 * block + 1], packer.half(c));
#pragma unroll
          for (int i = 0; i < 4; i++) sums[i / 2][(2 * block + i % 2) * C + c] = four[i];
        }
#pragma unroll
      for (int row = 0; row < 2; row++)
        packer.pack(out[row], sums[row], [&](int i) { return source(row, i); });
    } else if constexpr (C == 1) {
      u32 two[4];
      interpolate_two(two, high[0], low[0], taps[0], taps[1], high[0], low[0], taps[2], taps[3]);
#pragma unroll
      for (int row = 0; row < 2; row++) out[row][0] = byte_perm(two[2 * row], two[2 * row + 1], 0x5173);
    } else {
      u32 first[2][4];  // [block], channels 0 and 1
#pragma unroll
      for (int block = 0; block < 2; block++)
        interpolate_two(
            first[block], high[0], low[0], taps[2 * block], taps[2 * block + 1], high[1], low[1], taps[2 * block],
            taps[2 * block + 1]);
      if constexpr (C == 2) {
#pragma unroll
        for (int row = 0; row < 2; row++)
#pragma unroll
          for (int block = 0; block < 2; block++)
            out[row][block] = byte_perm(first[block][2 * row], first[block][2 * row + 1], 0x5713);
      } else if constexpr (C == 3) {
        u32 third[4];  // channel 2: the first block in byte 3, the second in byte 1
        interpolate_two(third, high[2], low[2], taps[0], taps[1], high[2], low[2], taps[2], taps[3]);
#pragma unroll
        for (int row = 0; row < 2; row++) {
          const u32 p0 = first[0][2 * row], p1 = first[0][2 * row + 1], p2 = first[1][2 * row],
                    p3 = first[1][2 * row + 1];
          const u32 blue0 = third[2 * row], blue1 = third[2 * row + 1];
          // Bytes: p0.0 p0.1 p0.2 p1.0 | p1.1 p1.2 p2.0 p2.1 | p2.2 p3.0 p3.1 p3.2
          out[row][0] = byte_perm(byte_perm(p0, blue0, 0x0713), p1, 0x7210);
          out[row][1] = byte_perm(byte_perm(p1, blue1, 0x0071), p2, 0x5710);
          out[row][2] = byte_perm(byte_perm(blue0, p3, 0x0571), blue1, 0x5210);
        }
      } else {
        u32 second[2][4];  // channels 2 and 3
#pragma unroll
        for (int block = 0; block < 2; block++)
          interpolate_two(
              second[block], high[2], low[2], taps[2 * block], taps[2 * block + 1], high[3], low[3], taps[2 * block],
              taps[2 * block + 1]);
#pragma unroll
        for (int row = 0; row < 2; row++)
#pragma unroll
          for (int pixel = 0; pixel < 4; pixel++)
            out[row][pixel] =
                byte_perm(first[pixel / 2][2 * row + pixel % 2], second[pixel / 2][2 * row + pixel % 2], 0x5713);
      }
    }
  }
};

// A unit is STEP_PIXELS pixels of a strip of 16 rows for each warp. A block computes a share of the plane's units, in runs of
// neighbours. TO_SMALL: the destination is the `blurred` plane of the level above, and P has the channels of a group.
template <class P, int S, int DOWN, bool TO_SMALL>
__device__ __forceinline__ void interpolate_plane(const TensorPlane& plane) {
  using Tile = InterpolateTile<P, S>;
  constexpr int C = P::C, BYTES = P::BYTES;
  InterpolateWarp<P, S> warp(plane);
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  warp.ring = shared_memory() + threadIdx.x / 32 * Tile::WARP_BYTES;
  const auto& column_operands = interpolate_columns_operands<DOWN, TO_SMALL>();
  const auto& row_operands = interpolate_rows_operands<S, TO_SMALL>(Tile::ORDER);
#pragma unroll
  for (int word = 0; word < 4; word++) warp.column_taps[word] = column_operands.word[0][lane][word];
#pragma unroll
  for (int i = 0; i < row_products(S); i++)
#pragma unroll
    for (int word = 0; word < 4; word++) warp.row_taps[i][word] = row_operands.word[i][lane][word];
  wait_for_previous_kernel();

  const u32 small_columns = small_count(plane.width, S), pitch = blurred_pitch(small_columns);
  const int blocks_of_rows = static_cast<int>((small_count(plane.height, DOWN) + 3) / 4);
  const u32 group_bytes = static_cast<u32>(blocks_of_rows) * pitch * Tile::ENTRY;
  const u32 first_step = plane.column_begin / Tile::STEP_PIXELS, first_strip = plane.row_begin / 16;
  const u32 across = (plane.column_end + Tile::STEP_PIXELS - 1) / Tile::STEP_PIXELS - first_step;
  // The strips of a block's warps are below each other, because they read the same small rows in part.
  constexpr u32 WARPS = BLUR_TENSOR_INTERPOLATE_WARPS;
  const u32 strips = (plane.row_end + 15) / 16 - first_strip, stacks = (strips + WARPS - 1) / WARPS,
            units = across * stacks * (TO_SMALL ? plane.channels / C : 1);
  const u32 number = blockIdx.x - plane.first_block, share = units / plane.blocks, rest = units - share * plane.blocks;
  u32 unit = number * share + (number < rest ? number : rest);
  const u32 stop = unit + share + (number < rest);
  const u32 alignment = static_cast<u32>((reinterpret_cast<u64>(plane.dst) | plane.dst_pitch) % 16);
  const int row_begin = static_cast<int>(plane.row_begin), row_end = static_cast<int>(plane.row_end);

#pragma unroll 1
  while (unit < stop) {
    const u32 run = unit / across, done = unit - run * across, first = first_step + done,
              group = TO_SMALL ? run / stacks : 0, strip = (run - group * stacks) * WARPS + threadIdx.x / 32;
    const int count = static_cast<int>(stop - unit < across - done ? stop - unit : across - done);
    unit += count;
    if (strip >= strips) continue;
    const int y = static_cast<int>(first_strip + strip) * 16 + g;
    // 16 rows need 16 / s + 6 small rows. Lanes whose block of rows is not needed or beyond the plane meet zero taps
    // only.
    const int first_block_of_rows = static_cast<int>(first_strip + strip) * (16 / DOWN / 4);
    const int block_of_rows = clamp(first_block_of_rows + (DOWN == 4 && t == 3 ? 2 : t), 0, blocks_of_rows - 1);
    // Without a factor along rows, pixels of the frame have their neighbours in the other eight.
    constexpr bool IN_TWOS = S == 1 && !TO_SMALL;
    const int column = IN_TWOS ? g / 2 * 4 + g % 2 : g, distance = IN_TWOS ? 2 : 8;
    const u8* from = plane.blurred + static_cast<u64>(group) * group_bytes
                     + (static_cast<u64>(block_of_rows) * pitch + Tile::COLUMNS * first + column) * Tile::ENTRY;
    const int x = static_cast<int>(first) * Tile::STEP_PIXELS + Tile::PIXELS * t;
    u8* to = TO_SMALL ? nullptr : plane.dst + static_cast<u64>(y) * plane.dst_pitch + static_cast<u64>(x) * BYTES;
    // A small destination gets rows 4 t .. 4 t + 3 of the strip, from column g of each block on.
    const int out_y = static_cast<int>(first_strip + strip) * 16 + 4 * t;
    int out_x = static_cast<int>(first) * Tile::STEP_PIXELS + g;
    const u64 out_row = (static_cast<u64>(group) * ((plane.height + 3) / 4) + out_y / 4) * blurred_pitch(plane.width);
    const bool first_row = y >= row_begin && y < row_end, second_row = y + 8 >= row_begin && y + 8 < row_end;
    // A row of packed 4:2:2 ends with a whole pair.
    const int width = static_cast<int>(plane.width + (C == 1 ? plane.yuv422 >> 1 : 0)), steps = count + Tile::STEPS_BEHIND;
    int left = width - x;
#pragma unroll
    for (int i = 0; i < BLUR_TENSOR_INTERPOLATE_DEPTH; i++) {
      if (i < steps) warp.load(from + i * Tile::COLUMNS * Tile::ENTRY, group_bytes, distance, i);
      copy_commit();
    }
    from += BLUR_TENSOR_INTERPOLATE_DEPTH * Tile::COLUMNS * Tile::ENTRY;
    // Not unrolled: with longer code warps wait for instructions.
#pragma unroll 1
    for (int i = 0; i < steps; i++) {
      const int slot = i % BLUR_TENSOR_INTERPOLATE_DEPTH;
      // Luma is written into the pixels that have chroma.
      [[maybe_unused]] typename PixelPacker<P>::Others others[2];
      if constexpr (P::IS_YUV422_PART && C == 1) {
        static_assert(Tile::STORES == 1);
        if (i > 0 && first_row) load_pixels<BYTES, Tile::PIXELS>(others[0], to, left, alignment);
        if (i > 0 && second_row)
          load_pixels<BYTES, Tile::PIXELS>(others[1], to + 8 * plane.dst_pitch, left, alignment);
      }
      copy_wait<BLUR_TENSOR_INTERPOLATE_DEPTH - 1>();
      [[maybe_unused]] u32 high[C][2], low[C][2], pixels[2][BYTES], out[2][2 * C];
      if constexpr (S == 1 && TO_SMALL) {
        warp.columns_16_bits(out, slot);
      } else if constexpr (S == 1) {
        warp.columns_to_pixels(pixels, slot);
      } else {
#pragma unroll
        for (int c = 0; c < C; c++)
#pragma unroll
          for (int half = 0; half < 2; half++) warp.before[c][half] = warp.current[c][half];
        warp.columns(slot);
      }
      if (i + BLUR_TENSOR_INTERPOLATE_DEPTH < steps) warp.load(from, group_bytes, distance, slot);
      copy_commit();
      from += Tile::COLUMNS * Tile::ENTRY;
      if (i < Tile::STEPS_BEHIND) continue;
#pragma unroll
      for (int c = 0; c < C; c++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
          high[c][half] = high_bytes(warp.before[c][half], warp.current[c][half]);
          low[c][half] = low_bytes(warp.before[c][half], warp.current[c][half]);
        }
      if constexpr (TO_SMALL) {
#pragma unroll
        for (int sixteen = 0; sixteen < Tile::STEP_PIXELS / 16; sixteen++) {
          if constexpr (S > 1) warp.rows_16_bits(out, sixteen, high, low);
#pragma unroll
          for (int half = 0; half < 2; half++) {
            const int column = out_x + 16 * sixteen + 8 * half;
            if (out_y >= row_begin && out_y < row_end && column < static_cast<int>(plane.width))
              store_entry(plane.dst, out_row + column, out[half]);
          }
        }
        out_x += Tile::STEP_PIXELS;
      } else {
#pragma unroll
        for (int store = 0; store < Tile::STORES; store++) {
          u32 words[2][Tile::STORE_WORDS];
#pragma unroll
          for (int half = 0; half < Tile::PIXELS / 4; half++) {
            const int four_x = width - left + 4 * (store * Tile::PIXELS + half);
            if constexpr (S > 1)
              warp.rows(pixels, store * (Tile::PIXELS / 4) + half, high, low, [&](int row, int pixel) {
                return source_word(plane, four_x + pixel, y + 8 * row);
              });
            if constexpr (P::IS_YUV422_PART)
#pragma unroll
              for (int row = 0; row < 2; row++) warp.packer.spread(pixels[row], others[row], half);
#pragma unroll
            for (int row = 0; row < 2; row++)
#pragma unroll
              for (int word = 0; word < BYTES; word++) words[row][half * BYTES + word] = pixels[row][word];
          }
          u8* at = to + store * 4 * Tile::PIXELS * BYTES;
          const int stored = left - store * 4 * Tile::PIXELS;
          if (first_row) store_pixels<BYTES, Tile::PIXELS>(at, words[0], stored, alignment);
          if (second_row) store_pixels<BYTES, Tile::PIXELS>(at + 8 * plane.dst_pitch, words[1], stored, alignment);
        }
        to += Tile::STEP_PIXELS * BYTES;
        left -= Tile::STEP_PIXELS;
      }
    }
  }
}

#endif
