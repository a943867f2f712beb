// SPDX-License-Identifier: MPL-2.0
// Decimation on tensor cores: rows, then columns. A warp owns some blocks of 8 columns of the small plane and walks
// down.
#ifndef BLUR_TENSOR_DECIMATE_H
#define BLUR_TENSOR_DECIMATE_H
#include "tensor.cuh"
#include "tensor_loader.cuh"

// Blocks of 8 small columns of a warp, by the bytes of a pixel.
OPERAND_FUNCTION int decimate_blocks(int bytes) {
  return bytes == 1   ? BLUR_TENSOR_COLUMNS_C1
         : bytes == 2 ? BLUR_TENSOR_COLUMNS_C2
         : bytes == 3 ? BLUR_TENSOR_COLUMNS_C3
                      : BLUR_TENSOR_COLUMNS_C4;
}
// Neighbouring pixels that a lane loads: four, or eight if the window allows and the copies become wider.
OPERAND_FUNCTION int decimate_pixels(int bytes, int factor) { return factor == 4 && bytes < 4 ? 8 : 4; }
// The window has 8 s pixels per block and 8 s more.
OPERAND_FUNCTION int decimate_window(int blocks, int factor) { return 8 * factor * (blocks + (factor > 1)); }
// Words of 4 pixels of a lane's window before those of block `o`. Without a factor two blocks have one word.
OPERAND_FUNCTION int window_word(int o, int factor) { return o * factor / 2; }

template <class P, int S> using DecimateRows = RowTile<
    P::BYTES, decimate_pixels(P::BYTES, S), decimate_window(decimate_blocks(P::BYTES), S), BLUR_TENSOR_DECIMATE_DEPTH>;

// S is the factor along rows, DOWN that down columns.
template <class P, int S, int DOWN> struct DecimateTile : DecimateRows<P, S> {
  using Rows = DecimateRows<P, S>;
  static constexpr int C = P::C * sizeof(typename P::T);
  static constexpr bool IS_WORD = P::IS_PACKED1010102, IS_WIDENED = sizeof(typename P::T) == 2 && !IS_WORD,
                        IS_YUV422_PART = P::IS_YUV422_PART;
  // How many blocks are computed together: four independent sums hide the latency of the tensor cores.
  static constexpr int BLOCKS = decimate_blocks(P::BYTES), TOGETHER = C == 1 ? (BLOCKS % 4 ? 2 : 4) : C == 2 ? 2 : 1;
  static constexpr OperandOrder ORDER = Rows::PIXELS == 8 ? OperandOrder::octets : OperandOrder::words;
  // Shared memory of a warp: the ring and the taps of the columns.
  static constexpr int WARP_BYTES = Rows::RING_BYTES + DOWN / 2 * 512;
  static_assert(BLOCKS % 2 == 0, "two blocks fill a word of the small plane");
};

// One product of 16-bit values: 8 sums over 32 values, added to `start`, for columns 2 t and 2 t + 1 of the operand.
__device__ __forceinline__ void decimate_16_bits(
    u32 (&sum)[2], const u32 (&taps)[4], const u32 (&high)[2], const u32 (&low)[2], u32 start0, u32 start1) {
  int of_high[4], of_low[4];
  mma32<true>(of_high, taps[0], taps[1], taps[2], taps[3], high[0], high[1], 0, 0, 0, 0);
  mma32<true>(
      of_low, taps[0], taps[1], taps[2], taps[3], low[0], low[1], static_cast<int>(start0), static_cast<int>(start1), 0,
      0);
#pragma unroll
  for (int i = 0; i < 2; i++) {
    const u32 mixed = static_cast<u32>(of_high[i]) + static_cast<u32>(of_low[i + 2]);
    sum[i] = static_cast<u32>(of_low[i]) + (mixed << 8) + (static_cast<u32>(of_high[i + 2]) << 16);
  }
}
// The sums of S / 2 products, rounded to 16 bits, from word `first` of a window on. Channels `high_byte` and `low_byte` of the
// window have the bytes of the values.
template <int S, class Window> __device__ __forceinline__ u32 decimate_16_bits(
    const u32 (&taps)[S / 2][4], const Window& words, int first, int high_byte, int low_byte) {
  u32 sum[2] = {HALF_OF_16_BITS, HALF_OF_16_BITS};
#pragma unroll
  for (int k = 0; k < S / 2; k++) {
    const u32 high[2] = {words[first + 2 * k][high_byte], words[first + 2 * k + 1][high_byte]},
              low[2] = {words[first + 2 * k][low_byte], words[first + 2 * k + 1][low_byte]};
    decimate_16_bits(sum, taps[k], high, low, sum[0], sum[1]);
  }
  return upper_halves(sum[0], sum[1]);
}
// The values of 16 columns without a decimation, moved to the lanes that hold the results of one: 16 bits of rows 2 t and
// 2 t + 1, of column g of either block.
__device__ __forceinline__ void move_16_bits(u32 (&values)[2], const u32 (&identity)[4], u32 high, u32 low) {
  int of_high[4], of_low[4];
  mma16(of_high, identity[0], identity[1], high, 0, 0, 0, 0);
  mma16(of_low, identity[0], identity[1], low, 0, 0, 0, 0);
#pragma unroll
  for (int i = 0; i < 2; i++)
    values[i] = static_cast<u32>(of_low[2 * i] | of_low[2 * i + 1] << 16)
                | static_cast<u32>(of_high[2 * i] | of_high[2 * i + 1] << 16) << 8;
}

// The source rows of a warp, decimated. CHECKED_WINDOW: of any alignment, and also where the window extends beyond the
// plane.
template <class P, int S, int DOWN, bool CHECKED_WINDOW> struct PixelLoader : RowLoader<DecimateTile<P, S, DOWN>> {
  using Tile = DecimateTile<P, S, DOWN>;
  using Rows = RowLoader<Tile>;
  using Window = typename Rows::Window;
  static constexpr int C = P::C, ACROSS_FACTOR = S, DOWN_FACTOR = DOWN;
  static constexpr bool CHECKED = CHECKED_WINDOW;
  static constexpr OperandOrder ORDER = Tile::ORDER;
  int x0, y0;

  // `x0` is the lane's first pixel, `y0` its row in step 0.
  __device__ __forceinline__ PixelLoader(const TensorPlane& plane, int x0, int y0, Shared ring)
      : Rows(plane, ring), x0(x0), y0(y0) {}

  // Starts to copy a step's rows to byte `slot` of the ring.
  __device__ __forceinline__ void load(int step, int slot) const {
    if constexpr (CHECKED) Rows::load_checked(x0, y0 + 8 * step, slot);
    else Rows::load_inside(x0, y0 + 8 * step, slot);
  }
  __device__ __forceinline__ void read(Window& words, int slot) const {
    Rows::read(words, slot);
    if constexpr (CHECKED) Rows::repeat_edges(words, x0);
  }

  // Decimates the rows of a step: 16 bits of rows 2 t and 2 t + 1.
  __device__ __forceinline__ static void decimate(
      u32 (&values)[Tile::BLOCKS][C], const Window& words, const u32 (&row_taps)[row_products(S)][4]) {
    if constexpr (S == 1) {
#pragma unroll
      for (int o = 0; o < Tile::BLOCKS; o += 2)
#pragma unroll
        for (int c = 0; c < C; c++) {
          u32 two[2];
          // A sample of 8 bits is the upper byte.
          if constexpr (sizeof(typename P::T) == 2)
            move_16_bits(two, row_taps[0], words[window_word(o, S)][2 * c + 1], words[window_word(o, S)][2 * c]);
          else move_16_bits(two, row_taps[0], words[window_word(o, S)][c], 0);
          values[o][c] = two[0];
          values[o + 1][c] = two[1];
        }
    } else if constexpr (sizeof(typename P::T) == 2) {
#pragma unroll
      for (int o = 0; o < Tile::BLOCKS; o++)
#pragma unroll
        for (int c = 0; c < C; c++) values[o][c] = decimate_16_bits<S>(row_taps, words, o * (S / 2), 2 * c + 1, 2 * c);
    } else {
#pragma unroll
      for (int first = 0; first < Tile::BLOCKS; first += Tile::TOGETHER) {
        int sums[Tile::TOGETHER][C][4];
#pragma unroll
        for (int k = 0; k < S / 2; k++)
#pragma unroll
          for (int o = 0; o < Tile::TOGETHER; o++)
#pragma unroll
            for (int c = 0; c < C; c++) {
              int(&sum)[4] = sums[o][c];
              const int word = (first + o) * (S / 2) + 2 * k;
              // A sample is widened by 8 bits and the sum loses 16: 8 bits of the narrow sum are dropped.
              if (k == 0)
                mma32<true>(
                    sum, row_taps[0][0], row_taps[0][1], row_taps[0][2], row_taps[0][3], words[word][c],
                    words[word + 1][c], 128, 128, 0, 0);
              else
                mma32<true>(
                    sum, row_taps[k][0], row_taps[k][1], row_taps[k][2], row_taps[k][3], words[word][c],
                    words[word + 1][c], sum[0], sum[1], sum[2], sum[3]);
            }
#pragma unroll
        for (int o = 0; o < Tile::TOGETHER; o++)
#pragma unroll
          for (int c = 0; c < C; c++) {
            const int(&sum)[4] = sums[o][c];
            const u32 first_sum = static_cast<u32>(sum[0]) + (static_cast<u32>(sum[2]) << 8);
            const u32 second_sum = static_cast<u32>(sum[1]) + (static_cast<u32>(sum[3]) << 8);
            values[first + o][c] = byte_perm(first_sum, second_sum, 0x6521);
          }
      }
    }
  }
};

// The same for a level below the first, whose factor is 4 down columns, and 4 or 1 along rows: the source is the `decimated`
// plane of the level above, N channels of a group. Its entries are operands as they are.
template <int N, int S> struct SmallLoader {
  static constexpr int C = N, ACROSS_FACTOR = S, DOWN_FACTOR = 4;
  static constexpr bool CHECKED = true;
  static constexpr OperandOrder ORDER = OperandOrder::pairs;
  struct Tile {
    static constexpr int BLOCKS = BLUR_TENSOR_COLUMNS_SMALL, WINDOW_WORDS = decimate_window(BLOCKS, S) / 16, ENTRY = 8 * N;
    static constexpr int STEP_BYTES = WINDOW_WORDS * 32 * ENTRY, RING_BYTES = BLUR_TENSOR_DECIMATE_DEPTH * STEP_BYTES;
    static constexpr int WARP_BYTES = RING_BYTES + DOWN_FACTOR / 2 * 512;
    static_assert(BLOCKS % 2 == 0, "two blocks fill a word of the small plane");
  };
  using Window = u32[Tile::WINDOW_WORDS][2 * N];
  const u8* src;
  int tiles, last_row, tile0, y0, t;
  Shared ring;  // the lane's part

  // `tile0` is the window's first tile of 16 columns, `y0` the lane's row in step 0.
  __device__ __forceinline__ SmallLoader(const TensorPlane& plane, int group, int tile0, int y0, Shared ring)
      : tiles(static_cast<int>(small_tiles(plane.width))), last_row(static_cast<int>(plane.height) - 1), tile0(tile0),
        y0(y0), t(threadIdx.x % 4), ring(ring + threadIdx.x % 32 * Tile::ENTRY) {
    src = plane.src + static_cast<u64>(group) * plane.height * tiles * 4 * Tile::ENTRY;
  }

  __device__ __forceinline__ void load(int step, int slot) const {
    const u8* row =
        src + static_cast<u64>(clamp(y0 + 8 * step, 0, last_row)) * (static_cast<u32>(tiles) * 4 * Tile::ENTRY);
#pragma unroll
    for (int i = 0; i < Tile::WINDOW_WORDS; i++) {
      const int tile = tile0 + i, entry = tile < 0 ? 0 : tile >= tiles ? 4 * tiles - 1 : 4 * tile + t;
      copy_async<Tile::ENTRY>(ring + slot + i * 32 * Tile::ENTRY, row + entry * Tile::ENTRY);
    }
    copy_commit();
  }

  __device__ __forceinline__ void read(Window& words, int slot) const {
    copy_wait<BLUR_TENSOR_DECIMATE_DEPTH - 1>();
#pragma unroll
    for (int i = 0; i < Tile::WINDOW_WORDS; i++) {
      shared_load(words[i], ring + slot + i * 32 * Tile::ENTRY);
      // Beyond the plane's ends, the sample at the end repeats: byte 0 of the first entry, byte 3 of the last.
      const int tile = tile0 + i;
      if (tile < 0 || tile >= tiles)
#pragma unroll
        for (int k = 0; k < 2 * N; k++) words[i][k] = byte_perm(words[i][k], 0, tile < 0 ? 0 : 0x3333);
    }
  }

  __device__ __forceinline__ static void decimate(
      u32 (&values)[Tile::BLOCKS][N], const Window& words, const u32 (&row_taps)[row_products(S)][4]) {
#pragma unroll
    for (int o = 0; o < Tile::BLOCKS; o += 2)
#pragma unroll
      for (int c = 0; c < N; c++) {
        u32 two[2];
        if constexpr (S == 1) {
          move_16_bits(two, row_taps[0], words[window_word(o, S)][2 * c], words[window_word(o, S)][2 * c + 1]);
        } else {
#pragma unroll
          for (int i = 0; i < 2; i++)
            two[i] = decimate_16_bits<S>(row_taps, words, window_word(o + i, S), 2 * c, 2 * c + 1);
        }
        values[o][c] = two[0];
        values[o + 1][c] = two[1];
      }
  }
};

// Decimates one warp's columns from small row `first_row` on, 8 small rows an iteration: their window of 16 s source
// rows is the iteration's block of 8 s rows and the one before it.
template <class Loader> __device__ __forceinline__ void decimate_warp(
    const Loader& loader, const TensorPlane& plane, u8* decimated, Shared memory, int first_tile, int first_row) {
  using Tile = typename Loader::Tile;
  constexpr int C = Loader::C, ACROSS = Loader::ACROSS_FACTOR, S = Loader::DOWN_FACTOR, BLOCKS = Tile::BLOCKS,
                N = C % 2 ? 1 : 2;
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const int small_rows = static_cast<int>(small_count(plane.height, S)),
            tiles = static_cast<int>(small_tiles(small_count(plane.width, ACROSS))),
            end_tile = static_cast<int>(small_tiles(plane.column_end));
  const int segment_end = first_row + static_cast<int>(plane.segment_rows);
  const int row_end = segment_end < static_cast<int>(plane.row_end) ? segment_end : static_cast<int>(plane.row_end);
  const int iterations = (row_end - first_row + 7) / 8;
  const auto& operands = decimation_operands<ACROSS>(Loader::ORDER);
  const auto& column_operands = decimation_operands<S>(OperandOrder::pairs);
  // With s = 4, the first 8 rows of a window meet no tap: its first block starts with its second step.
  constexpr int FIRST_STEP = S == 4 ? 1 : 0;
  const int steps = (iterations + 1) * S;
  // The checked loader's code is long.
  [[maybe_unused]] constexpr int UNROLL = Loader::CHECKED ? 1 : BLUR_TENSOR_DECIMATE_DEPTH;
#pragma unroll UNROLL
  for (int i = 0; i < BLUR_TENSOR_DECIMATE_DEPTH; i++) loader.load(FIRST_STEP + i, i * Tile::STEP_BYTES);
  u32 row_taps[row_products(ACROSS)][4];
#pragma unroll
  for (int i = 0; i < row_products(ACROSS); i++)
#pragma unroll
    for (int word = 0; word < 4; word++) row_taps[i][word] = operands.word[i][lane][word];
  const Shared column_taps = memory + Tile::RING_BYTES + lane * 16;
#pragma unroll
  for (int i = 0; i < S / 2; i++) {
    u32 words[4];
#pragma unroll
    for (int word = 0; word < 4; word++) words[word] = column_operands.word[i][lane][word];
    shared_store<4>(column_taps + i * 512, words);
  }

  // What the block before contributes: its sums if s = 4, its values (high, low) if s = 2.
  u32 before[BLOCKS][C][2];
#pragma unroll
  for (int o = 0; o < BLOCKS; o++)
#pragma unroll
    for (int c = 0; c < C; c++) before[o][c][0] = before[o][c][1] = 0;
  int slot = 0;
#pragma unroll 1
  for (int block = 0; block <= iterations; block++) {
    // The block's rows, decimated: words of 4 of 16 rows.
    u32 high[BLOCKS][C][S / 2], low[BLOCKS][C][S / 2];
#pragma unroll
    for (int sixteen = 0; sixteen < S / 2; sixteen++) {
      u32 values[2][BLOCKS][C];  // 16 bits of rows 2 t and 2 t + 1 of 8
#pragma unroll
      for (int eight = 0; eight < 2; eight++) {
        const int step = 2 * sixteen + eight;
        if (step < FIRST_STEP && block == 0) {
#pragma unroll
          for (int o = 0; o < BLOCKS; o++)
#pragma unroll
            for (int c = 0; c < C; c++) values[eight][o][c] = 0;
          continue;
        }
        typename Loader::Window words;
        loader.read(words, slot);
        const int next = block * S + step + BLUR_TENSOR_DECIMATE_DEPTH;
        if (next < steps) loader.load(next, slot);
        else copy_commit();
        slot = slot == Tile::RING_BYTES - Tile::STEP_BYTES ? 0 : slot + Tile::STEP_BYTES;
        loader.decimate(values[eight], words, row_taps);
      }
#pragma unroll
      for (int o = 0; o < BLOCKS; o++)
#pragma unroll
        for (int c = 0; c < C; c++) {
          high[o][c][sixteen] = high_bytes(values[0][o][c], values[1][o][c]);
          low[o][c][sixteen] = low_bytes(values[0][o][c], values[1][o][c]);
        }
    }

    if (block > 0) {
      u32 taps[4];
      shared_load(taps, column_taps + (S == 4 ? 512 : 0));
      const int row = first_row + (block - 1) * 8 + g;
#pragma unroll
      for (int pair = 0; pair < BLOCKS / 2; pair++) {
        u32 out[C][2];  // high and low bytes of four small columns
#pragma unroll
        for (int c = 0; c < C; c++) {
          u32 values[2];
#pragma unroll
          for (int i = 0; i < 2; i++) {
            const int o = 2 * pair + i;
            u32 sum[2];
            if constexpr (S == 4) {
              decimate_16_bits(sum, taps, high[o][c], low[o][c], before[o][c][0], before[o][c][1]);
            } else {
              const u32 window_high[2] = {before[o][c][0], high[o][c][0]},
                        window_low[2] = {before[o][c][1], low[o][c][0]};
              decimate_16_bits(sum, taps, window_high, window_low, HALF_OF_16_BITS, HALF_OF_16_BITS);
            }
            values[i] = upper_halves(sum[0], sum[1]);
          }
          out[c][0] = high_bytes(values[0], values[1]);
          out[c][1] = low_bytes(values[0], values[1]);
        }
        const int out_tile = first_tile + pair;
        if (row < row_end && out_tile < end_tile) {
#pragma unroll
          for (int group = 0; group < C / N; group++) {
            u32 entry[2 * N];
#pragma unroll
            for (int i = 0; i < 2 * N; i++) entry[i] = out[group * N + i / 2][i % 2];
            store_entry(decimated, (static_cast<u64>(group) * small_rows + row) * tiles * 4 + out_tile * 4 + t, entry);
          }
        }
      }
    }
    if constexpr (S == 4) {
      if (block < iterations) {
        u32 taps[4];
        shared_load(taps, column_taps);
#pragma unroll
        for (int o = 0; o < BLOCKS; o++)
#pragma unroll
          for (int c = 0; c < C; c++)
            decimate_16_bits(before[o][c], taps, high[o][c], low[o][c], HALF_OF_16_BITS, HALF_OF_16_BITS);
      }
    } else {
#pragma unroll
      for (int o = 0; o < BLOCKS; o++)
#pragma unroll
        for (int c = 0; c < C; c++) {
          before[o][c][0] = high[o][c][0];
          before[o][c][1] = low[o][c][0];
        }
    }
  }
}

// Warps side by side, with so many blocks of 8 small columns each.
__device__ __forceinline__ u32 decimate_strips(const TensorPlane& plane, u32 blocks) {
  return ((small_tiles(plane.column_end) - plane.column_begin / 16) * 2 + blocks - 1) / blocks;
}

template <class P, int S, int DOWN = S> __device__ __forceinline__ void decimate_plane(const TensorPlane& plane) {
  using Tile = DecimateTile<P, S, DOWN>;
  const int warp = threadIdx.x / 32;
  const Shared memory = shared_memory() + warp * Tile::WARP_BYTES;
  const u32 tiles = decimate_strips(plane, Tile::BLOCKS);
  const u32 unit = (blockIdx.x - plane.first_block) * BLUR_TENSOR_DECIMATE_WARPS + warp, segment = unit / tiles;
  const int tile = static_cast<int>(plane.column_begin / 16 + (unit - segment * tiles) * (Tile::BLOCKS / 2));
  const u32 first_row = plane.row_begin + segment * plane.segment_rows;
  if (first_row >= plane.row_end) return;
  // The window of a block of 8 small columns starts 8 s pixels before the block's own.
  const int x0 = 8 * S * (2 * tile - (S > 1)), lane = threadIdx.x % 32;
  const int lane_x0 = x0 + lane % 4 * Tile::PIXELS, lane_y0 = DOWN * (static_cast<int>(first_row) - 8) + lane / 4;
  const bool inside = x0 >= 0 && x0 + decimate_window(Tile::BLOCKS, S) <= static_cast<int>(plane.width);
  // Pixels of WordSamples take so much code that there is only the checked one, and different factors are rare.
  if (!Tile::IS_WORD && S == DOWN && inside && (reinterpret_cast<u64>(plane.src) | plane.src_pitch) % Tile::COPY == 0)
    decimate_warp(
        PixelLoader<P, S, DOWN, false>(plane, lane_x0, lane_y0, memory), plane, plane.decimated, memory, tile,
        static_cast<int>(first_row));
  else
    decimate_warp(
        PixelLoader<P, S, DOWN, true>(plane, lane_x0, lane_y0, memory), plane, plane.decimated, memory, tile,
        static_cast<int>(first_row));
}

template <int N, int S> __device__ __forceinline__ void decimate_small_plane(const TensorPlane& plane) {
  using Loader = SmallLoader<N, S>;
  constexpr int DOWN = Loader::DOWN_FACTOR;
  using Tile = typename Loader::Tile;
  const int warp = threadIdx.x / 32;
  const Shared memory = shared_memory() + warp * Tile::WARP_BYTES;
  const u32 all_tiles = small_tiles(small_count(plane.width, S)), tiles = decimate_strips(plane, Tile::BLOCKS);
  const u32 groups = plane.channels / N, unit = (blockIdx.x - plane.first_block) * BLUR_TENSOR_DECIMATE_WARPS + warp;
  const u32 strip = unit / tiles, segment = strip / groups, group = strip - segment * groups;
  const int tile = static_cast<int>(plane.column_begin / 16 + (unit - strip * tiles) * (Tile::BLOCKS / 2));
  const u32 first_row = plane.row_begin + segment * plane.segment_rows;
  if (first_row >= plane.row_end) return;
  const Loader loader(
      plane, static_cast<int>(group), S == 1 ? tile : S / 2 * (2 * tile - 1),
      DOWN * (static_cast<int>(first_row) - 8) + static_cast<int>(threadIdx.x % 32 / 4), memory);
  u8* decimated =
      plane.decimated + static_cast<u64>(group) * small_count(plane.height, DOWN) * all_tiles * 4 * Tile::ENTRY;
  decimate_warp(loader, plane, decimated, memory, tile, static_cast<int>(first_row));
}

#endif
