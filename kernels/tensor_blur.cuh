// SPDX-License-Identifier: MPL-2.0
// The blur of small planes on tensor cores: rows, then columns. A warp owns 16 columns of a channel group and walks
// down.
#ifndef BLUR_TENSOR_BLUR_H
#define BLUR_TENSOR_BLUR_H
#include "tensor_window.cuh"

// Tiles of 16 samples that the blur of a tile reads along an axis.
OPERAND_FUNCTION int blur_tiles(int radius) { return 2 * ((radius + 15) / 16) + 1; }

// Shared memory of a warp that reads TILES tiles: the taps, and each lane's words of the columns' operands, which do not
// fit into its registers.
template <int TILES> struct BlurShared : WindowTaps<TILES> {
  static constexpr int WARP_BYTES = WindowTaps<TILES>::BYTES + TILES * 512;
};

// N channels of a group. An output tile is computed from TILES tiles, itself in the middle.
template <int N, int TILES> struct BlurWarp {
  static constexpr int ENTRY = 8 * N, MIDDLE = TILES / 2;
  const u8* in;
  int g, t, tile, tiles, small_rows;
  int word[TILES];  // byte offsets in a row of the lane's entries
  WindowOperands<TILES> row_taps;
  Shared column_operands;
  u32 raw[2][TILES][2 * N];
  // By channel, the rows of the tiles: left, right 8 columns.
  u32 high[N][TILES][2], low[N][TILES][2];

  // Rows y .. y + 15: a lane loads rows y + g and y + 8 + g.
  __device__ __forceinline__ void load(int y) {
#pragma unroll
    for (int eight = 0; eight < 2; eight++) {
      const u8* row = in
                      + static_cast<u64>(static_cast<u32>(clamp(y + 8 * eight + g, 0, small_rows - 1)))
                            * (static_cast<u32>(tiles) * 4 * ENTRY);
#pragma unroll
      for (int i = 0; i < TILES; i++) load_entry(raw[eight][i], row + word[i], 0);
    }
  }

  // Moves the window down by the loaded rows, blurred, and starts to load those from `next` on.
  __device__ __forceinline__ void rows(int next) {
    u32 values[2][N][2];
#pragma unroll
    for (int eight = 0; eight < 2; eight++) {
      // Beyond the plane's ends, the sample at the end repeats: byte 0 of lane 0, byte 3 of lane 3.
#pragma unroll
      for (int i = 0; i < TILES; i++) {
        if (i < MIDDLE && tile + i < MIDDLE)
#pragma unroll
          for (int j = 0; j < 2 * N; j++) raw[eight][i][j] = byte_perm(raw[eight][i][j], 0, 0);
        if (i > MIDDLE && tile + i - MIDDLE >= tiles)
#pragma unroll
          for (int j = 0; j < 2 * N; j++) raw[eight][i][j] = byte_perm(raw[eight][i][j], 0, 0x3333);
      }
#pragma unroll
      for (int c = 0; c < N; c++) {
        u32 of_high[TILES], of_low[TILES];
#pragma unroll
        for (int i = 0; i < TILES; i++) {
          of_high[i] = raw[eight][i][2 * c];
          of_low[i] = raw[eight][i][2 * c + 1];
        }
        WindowSums sums(HALF_OF_16_BITS);
        sums.add(row_taps, of_high, of_low);
        sums.rounded(values[eight][c]);
      }
    }
    load(next);
#pragma unroll
    for (int c = 0; c < N; c++)
#pragma unroll
      for (int half = 0; half < 2; half++) {
#pragma unroll
        for (int i = 0; i + 1 < TILES; i++) {
          high[c][i][half] = high[c][i + 1][half];
          low[c][i][half] = low[c][i + 1][half];
        }
        high[c][TILES - 1][half] = high_bytes(values[0][c][half], values[1][c][half]);
        low[c][TILES - 1][half] = low_bytes(values[0][c][half], values[1][c][half]);
      }
  }

  // Blurs the columns of the window. `out` gets rows 4 t .. 4 t + 3 of columns g and g + 8.
  __device__ __forceinline__ void columns(u32 (&out)[2][2 * N]) const {
    u32 column_high[2][TILES], column_low[2][TILES], words[TILES][4];
#pragma unroll
    for (int i = 0; i < TILES; i++) shared_load(words[i], column_operands + i * 512);
#pragma unroll
    for (int i = 0; i < 2 * TILES; i++) {
      column_high[i / TILES][i % TILES] = words[(2 * TILES + i) / 4][(2 * TILES + i) % 4];
      column_low[i / TILES][i % TILES] = words[i / 4][i % 4];
    }
#pragma unroll
    for (int c = 0; c < N; c++) {
      WindowOperands<TILES> window;
#pragma unroll
      for (int i = 0; i < 2 * TILES; i++) {
        const int tile = i / 2, half = i % 2, high_word = window.index(tile, true) + half,
                  low_word = window.index(tile, false) + half;
        window.word[high_word / 4][high_word % 4] = high[c][tile][half];
        window.word[low_word / 4][low_word % 4] = low[c][tile][half];
      }
      u32 values[2][2];
#pragma unroll
      for (int n = 0; n < 2; n++) {
        WindowSums sums(HALF_OF_16_BITS);
        sums.add(window, column_high[n], column_low[n]);
        sums.rounded(values[n]);
      }
#pragma unroll
      for (int half = 0; half < 2; half++) {
        out[half][2 * c] = high_bytes(values[0][half], values[1][half]);
        out[half][2 * c + 1] = low_bytes(values[0][half], values[1][half]);
      }
    }
  }
};

template <int N, int TILES>
__device__ __forceinline__ void blur_small_plane(const TensorPlane& plane, const TensorArgs& args) {
  using Warp = BlurWarp<N, TILES>;
  using Memory = BlurShared<TILES>;
  constexpr int MIDDLE = Warp::MIDDLE;
  Warp warp;
  const int warp_number = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const Memory taps{shared_memory() + warp_number * Memory::WARP_BYTES};
  taps.store(args.taps[plane.slot]);
  u32 column_words[TILES][4];
#pragma unroll
  for (int i = 0; i < 2 * TILES; i++) {
    const int n = i / TILES, tile = i % TILES, first = 16 * tile - window_before(TILES);
    const int low_word = warp.row_taps.index(tile, false) + n, high_word = warp.row_taps.index(tile, true) + n;
    taps.operand(
        warp.row_taps.word[low_word / 4][low_word % 4], warp.row_taps.word[high_word / 4][high_word % 4], 0,
        OperandOrder::pairs, first, 0, t, 8 * n + g);
    // Outputs two at a time from either block, so that a lane gets four neighbouring rows.
    taps.operand(
        column_words[i / 4][i % 4], column_words[(2 * TILES + i) / 4][(2 * TILES + i) % 4], 1, OperandOrder::pairs,
        first, 0, t, g / 2 * 4 + 2 * n + g % 2);
  }
  warp.column_operands = taps.memory + Memory::BYTES + lane * 16;
#pragma unroll
  for (int i = 0; i < TILES; i++) shared_store(warp.column_operands + i * 512, column_words[i]);
  wait_for_previous_kernel();

  const int groups = static_cast<int>(plane.channels) / N;
  const int small_columns = static_cast<int>(small_count(plane.width, plane.factor_across));
  warp.g = g;
  warp.t = t;
  warp.tiles = static_cast<int>(small_tiles(small_columns));
  warp.small_rows = static_cast<int>(small_count(plane.height, plane.factor_down));
  const int unit = static_cast<int>(blockIdx.x - plane.first_block) * BLUR_TENSOR_BLUR_WARPS + warp_number;
  const int first_tile = static_cast<int>(plane.column_begin / 16),
            across = static_cast<int>(small_tiles(plane.column_end)) - first_tile;
  const int strip = unit / across, segment = strip / groups, group = strip - segment * groups;
  warp.tile = first_tile + unit - strip * across;
  const int segment_rows = static_cast<int>(plane.segment_rows),
            first_row = static_cast<int>(plane.row_begin) + segment * segment_rows;
  const int row_end = clamp(first_row + segment_rows, 0, static_cast<int>(plane.row_end));
  if (first_row >= row_end) return;
#pragma unroll
  for (int i = 0; i < TILES; i++) {
    // The first or the last entry of the row stands for tiles beyond it.
    const int tile = warp.tile + i - MIDDLE;
    warp.word[i] = (tile < 0 ? 0 : tile < warp.tiles ? 4 * tile + t : 4 * warp.tiles - 1) * Warp::ENTRY;
  }
  warp.in = plane.decimated + static_cast<u64>(group) * warp.small_rows * warp.tiles * sizeof(Words<8 * N>);
  const u32 pitch = blurred_pitch(small_columns), blocks_of_rows = static_cast<u32>(warp.small_rows + 3) / 4;
  warp.load(first_row - 16 * MIDDLE);
  // The first iterations fill the window.
#pragma unroll 1
  for (int y = first_row - 16 * (TILES - 1); y < row_end; y += 16) {
    warp.rows(y + 16 * (MIDDLE + 1));
    if (y < first_row) continue;
    u32 out[2][2 * N];
    warp.columns(out);
    if (y + 4 * t < row_end) {
      const u64 entry = (static_cast<u64>(group) * blocks_of_rows + y / 4 + t) * pitch + warp.tile * 16 + g;
      store_entry(plane.blurred, entry, out[0]);
      store_entry(plane.blurred, entry + 8, out[1]);
    }
  }
}
#endif
