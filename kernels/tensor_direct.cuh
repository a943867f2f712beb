// SPDX-License-Identifier: MPL-2.0
// The direct form on tensor cores, from bytes to bytes: rows, then columns, in one launch. A warp owns 16 columns of
// pixels, or 64 of one channel and 32 of two, and walks down, 16 rows an iteration; the intermediate never leaves its
// registers.
#ifndef BLUR_TENSOR_DIRECT_H
#define BLUR_TENSOR_DIRECT_H
#include "tensor_loader.cuh"
#include "tensor_window.cuh"

// Blocks that a multiprocessor should hold, which bounds the registers, by the largest radius: the most that leave every
// kernel free of spills.
#define TENSOR_DIRECT_SHORT_RESIDENT 3
#define TENSOR_DIRECT_SHORT_RESIDENT_C12 (__CUDA_ARCH__ == 1030 ? 2 : 3)
#define TENSOR_DIRECT_MEDIUM_RESIDENT_C12 (__CUDA_ARCH__ < 900 ? 3 : 2)
#define TENSOR_DIRECT_MEDIUM_RESIDENT_C3 (__CUDA_ARCH__ < 1200 ? 4 : 3)
#define TENSOR_DIRECT_MEDIUM_RESIDENT_C4 (__CUDA_ARCH__ < 1000 ? 4 : 2)
#define TENSOR_DIRECT_LONG_RESIDENT_C3 (__CUDA_ARCH__ < 1200 ? 3 : 2)
#define TENSOR_DIRECT_LONG_RESIDENT 2

// Tiles of 16 values that a tile of outputs is computed from, for radii up to `radius`.
OPERAND_FUNCTION int direct_tiles(int radius) { return (radius + 7) / 8 + 1; }
// Tiles of 16 columns that a warp computes: as many samples for every number of channels, but for three.
OPERAND_FUNCTION int direct_across(int channels) {
  return channels == 1 ? BLUR_TENSOR_DIRECT_ACROSS_C1 : channels == 2 ? BLUR_TENSOR_DIRECT_ACROSS_C2 : 1;
}

// The least odd multiple of `unit` from `bytes` on.
OPERAND_FUNCTION int odd_multiple(int bytes, int unit) { return ((bytes + unit - 1) / unit / 2 * 2 + 1) * unit; }

// C samples a pixel, windows of TILES tiles. A step of the ring has 8 rows as they are in the plane, which the lanes copy
// 16 bytes at a time.
template <int C, int TILES>
struct DirectTile : RowTile<C, 4, 16 * (direct_across(C) + TILES - 1), BLUR_TENSOR_DIRECT_DEPTH> {
  using Rows = RowTile<C, 4, 16 * (direct_across(C) + TILES - 1), BLUR_TENSOR_DIRECT_DEPTH>;
  // Chunks of four pixels are those that the lane itself reads.
  static constexpr bool SHARES_COPIES = C != 4;
  static constexpr int ACROSS = direct_across(C), CHUNK = 16;
  // Bytes between the first chunk, which is aligned, and the window; chunks of a row.
  static constexpr int LEAD = WindowTaps<TILES>::BEFORE * C % CHUNK,
                       CHUNKS = (LEAD + 16 * (ACROSS + TILES - 1) * C + CHUNK - 1) / CHUNK;
  // From row to row, so that the lanes read from different banks.
  static constexpr int ROW_BYTES = odd_multiple(CHUNKS * CHUNK, C == 4 ? 64 : C == 2 ? 32 : 16);
  static constexpr int STEP_BYTES = 8 * ROW_BYTES, RING_BYTES = Rows::DEPTH * STEP_BYTES;
  static constexpr int COPY_STRIDE = Rows::COPY, LOAD_STRIDE = 16 * C;
  static __device__ constexpr int lane_offset(int lane) { return lane / 4 * ROW_BYTES + LEAD + lane % 4 * 4 * C; }

  // A lane has four pixels of a tile. Where these are not 16 bytes, the lanes exchange their results in shared memory and
  // store 16 bytes each, because the device writes 32 bytes or reads them first.
  static constexpr int CHUNKS_OUT = ACROSS * C, OUT_ROW_BYTES = odd_multiple(CHUNKS_OUT * CHUNK, 16);
  static constexpr bool EXCHANGES = C != 4;

  // Shared memory of a warp: the ring, the taps, each lane's words of the operands of both axes, which do not fit into
  // its registers, and 16 rows of results.
  static constexpr int TAPS = RING_BYTES, OPERANDS = TAPS + WindowTaps<TILES>::BYTES, EXCHANGE = OPERANDS + 2 * TILES * 512,
                       WARP_BYTES = EXCHANGE + (EXCHANGES ? 16 * OUT_ROW_BYTES : 0);
};

template <class DirectTile> struct DirectLoader : RowLoader<DirectTile> {
  using Tile = DirectTile;
  using Rows = RowLoader<Tile>;
  Shared chunks;  // the lane's first chunk

  __device__ __forceinline__ DirectLoader(const TensorPlane& plane, Shared memory)
      : Rows(plane, memory), chunks(memory + threadIdx.x % 32 / 4 * Tile::ROW_BYTES + threadIdx.x % 4 * Tile::CHUNK) {}

  // RowLoader::load_inside() by chunks: `offset` is the byte of the lane's first chunk in its row.
  __device__ __forceinline__ void load_inside(int offset, int y, int slot) const {
    const u8* from = this->row(y) + offset;
#pragma unroll
    for (int i = 0; i < Tile::CHUNKS; i += 4)
      if (i + 4 <= Tile::CHUNKS || threadIdx.x % 4 < Tile::CHUNKS - i)
        copy_async_cached<Tile::CHUNK>(chunks + slot + i * Tile::CHUNK, from + i * Tile::CHUNK);
    copy_commit();
  }
};

template <int C, int TILES> struct DirectWarp {
  using Tile = DirectTile<C, TILES>;
  using Loader = DirectLoader<Tile>;
  static constexpr int ACROSS = Tile::ACROSS;
  using Operands = WindowOperands<TILES>;
  Shared operands, exchange;
  // The intermediate of the windows, by tile, channel and block of 8 columns: high and low bytes of 16 rows a word.
  u32 high[ACROSS][C][2][TILES], low[ACROSS][C][2][TILES];

  __device__ __forceinline__ DirectWarp(const TensorArgs& args, const TensorPlane& plane, Shared memory) {
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const WindowTaps<TILES> taps{memory + Tile::TAPS};
    taps.store(args.taps[plane.slot]);
    operands = memory + Tile::OPERANDS + lane * 16;
    exchange = memory + Tile::EXCHANGE;
#pragma unroll 1
    for (int tile = 0; tile < TILES; tile++) {
      u32 low[2][2], high[2][2];
#pragma unroll
      for (int n = 0; n < 2; n++) {
        // Outputs two at a time from either block, so that a lane gets four neighbouring pixels.
        taps.operand(low[0][n], high[0][n], 0, OperandOrder::words, tile, t, g / 2 * 4 + 2 * n + g % 2);
        taps.operand(low[1][n], high[1][n], 1, OperandOrder::pairs, tile, t, 8 * n + g);
      }
#pragma unroll
      for (int axis = 0; axis < 2; axis++) {
        shared_store<2>(operand(axis, Operands::index(tile, false)), low[axis]);
        shared_store<2>(operand(axis, Operands::index(tile, true)), high[axis]);
      }
    }
  }

  // The address of a word of the operands of an axis.
  __device__ __forceinline__ Shared operand(int axis, int word) const {
    return operands + (axis * TILES + word / 4) * 512 + word % 4 * 4;
  }

  __device__ __forceinline__ Operands load_operands(int axis) const {
    Operands result;
#pragma unroll
    for (int i = 0; i < TILES; i++) shared_load(result.word[i], operand(axis, 4 * i));
    return result;
  }

  // Blurs 8 rows of a tile, whose window is `words`: 16 bits of rows 2 t and 2 t + 1, of column g of either block.
  __device__ __forceinline__ static void rows(
      u32 (&values)[C][2], const u32 (*words)[C], const Operands& taps) {
#pragma unroll
    for (int c = 0; c < C; c++) {
      // A sample is widened by 8 bits and the sum loses 16: 8 bits of the narrow sum are dropped.
      int of_low[4] = {128, 128, 128, 128}, of_high[4] = {};
#pragma unroll
      for (int i = 0; i + 1 < TILES; i += 2) {
        add32(of_low, taps.word[i], words[i][c], words[i + 1][c]);
        add32(of_high, taps.word[i + 1], words[i][c], words[i + 1][c]);
      }
      if constexpr (TILES % 2) {
        const u32(&last)[4] = taps.word[TILES - 1];
        add16(of_high, last[0], last[1], words[TILES - 1][c]);
        add16(of_low, last[2], last[3], words[TILES - 1][c]);
      }
      u32 sum[4];
#pragma unroll
      for (int i = 0; i < 4; i++) sum[i] = static_cast<u32>(of_low[i]) + (static_cast<u32>(of_high[i]) << 8);
      values[c][0] = byte_perm(sum[0], sum[1], 0x6521);
      values[c][1] = byte_perm(sum[2], sum[3], 0x6521);
    }
  }

  // Moves a tile's window down by 16 rows, the last of which are these.
  __device__ __forceinline__ void push(int tile, const u32 (&upper)[C][2], const u32 (&lower)[C][2]) {
#pragma unroll
    for (int c = 0; c < C; c++)
#pragma unroll
      for (int n = 0; n < 2; n++) {
        u32(&window_high)[TILES] = high[tile][c][n];
        u32(&window_low)[TILES] = low[tile][c][n];
#pragma unroll
        for (int i = 0; i + 1 < TILES; i++) {
          window_high[i] = window_high[i + 1];
          window_low[i] = window_low[i + 1];
        }
        window_high[TILES - 1] = high_bytes(upper[c][n], lower[c][n]);
        window_low[TILES - 1] = low_bytes(upper[c][n], lower[c][n]);
      }
  }

  // Blurs the columns of a tile's window: four neighbouring pixels of rows g and g + 8, as the destination's words.
  __device__ __forceinline__ void columns(u32 (&out)[2][C], int tile, const Operands& taps) const {
    // The result is the upper byte of a sum. Sample c of pixel p is byte p C + c of a row.
    u32 sums[2][4 * C];
#pragma unroll
    for (int c = 0; c < C; c++)
#pragma unroll
      for (int n = 0; n < 2; n++) {
        WindowSums<HALF_OF_24_BITS> window;
        window.add(taps, high[tile][c][n], low[tile][c][n]);
#pragma unroll
        for (int i = 0; i < 4; i++) sums[i / 2][(2 * n + i % 2) * C + c] = window.sum(i);
      }
#pragma unroll
    for (int row = 0; row < 2; row++)
#pragma unroll
      for (int word = 0; word < C; word++) {
        const u32* four = sums[row] + 4 * word;
        out[row][word] = byte_perm(byte_perm(four[0], four[1], 0x73), byte_perm(four[2], four[3], 0x73), 0x5410);
      }
  }

  // Blurs the columns of all tiles: a chunk of rows g and g + 8, for the first CHUNKS_OUT lanes of a row.
  __device__ __forceinline__ void results(u32 (&out)[2][4], const Operands& taps) const {
    if constexpr (!Tile::EXCHANGES) {
      columns(out, 0, taps);
    } else {
      const int lane = threadIdx.x % 32, t = lane % 4;
      const Shared row = exchange + lane / 4 * Tile::OUT_ROW_BYTES;
#pragma unroll
      for (int tile = 0; tile < ACROSS; tile++) {
        u32 four[2][C];
        columns(four, tile, taps);
#pragma unroll
        for (int i = 0; i < 2; i++) {
          const Shared at = row + 8 * i * Tile::OUT_ROW_BYTES + (16 * tile + 4 * t) * C;
          if constexpr (C == 2) shared_store<2>(at, four[i]);
          else
#pragma unroll
            for (int word = 0; word < C; word++) shared_store<1>(at + 4 * word, {four[i][word]});
        }
      }
      warp_sync();
#pragma unroll
      for (int i = 0; i < 2; i++)
        if (t < Tile::CHUNKS_OUT) shared_load(out[i], row + 8 * i * Tile::OUT_ROW_BYTES + t * Tile::CHUNK);
    }
  }
};

template <int C, int TILES>
__device__ __forceinline__ void direct_plane(const TensorPlane& plane, const TensorArgs& args) {
  using Warp = DirectWarp<C, TILES>;
  using Tile = typename Warp::Tile;
  constexpr int ACROSS = Tile::ACROSS, BEFORE = WindowTaps<TILES>::BEFORE;
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4, width = static_cast<int>(plane.width);
  const u32 strips = (plane.width + 16 * ACROSS - 1) / (16 * ACROSS);
  const u32 unit = (blockIdx.x - plane.first_block) * BLUR_TENSOR_DIRECT_WARPS + threadIdx.x / 32,
            segment = unit / strips;
  const int x0 = static_cast<int>(unit - segment * strips) * (16 * ACROSS);
  const int first_row = static_cast<int>(plane.row_begin + segment * plane.segment_rows),
            row_end = clamp(first_row + static_cast<int>(plane.segment_rows), 0, static_cast<int>(plane.row_end));
  if (first_row >= row_end) return;

  const Shared memory = shared_memory() + threadIdx.x / 32 * Tile::WARP_BYTES;
  const typename Warp::Loader loader(plane, memory);
  const int window_x = x0 - BEFORE + 4 * t, first_byte = (x0 - BEFORE) * C - Tile::LEAD;
  const bool is_inside = first_byte >= 0 && first_byte + Tile::CHUNKS * Tile::CHUNK <= width * C
                         && (reinterpret_cast<u64>(plane.src) | plane.src_pitch) % Tile::CHUNK == 0;
  // Loads rows y .. y + 7 if they are needed. The first iterations fill the window.
  const int load_end = first_row + BEFORE + (row_end - first_row + 15) / 16 * 16;
  const auto load = [&](int y, int slot) {
    if (y >= load_end) copy_commit();
    else if (is_inside) loader.load_inside(first_byte + t * Tile::CHUNK, y + g, slot);
    else loader.load_checked(recomputed(window_x), y + g, slot);
  };
  wait_for_previous_kernel();
#pragma unroll 1
  for (int i = 0; i < Tile::DEPTH; i++) load(first_row - BEFORE + 8 * i, i * Tile::STEP_BYTES);
  Warp warp(args, plane, memory);

  const u32 alignment = static_cast<u32>((reinterpret_cast<u64>(plane.dst) | plane.dst_pitch) % 16);
  const int lane_byte = t * Tile::CHUNK;
  int slot = 0;
  // Those of a short window fit into registers.
  constexpr bool STAY_IN_REGISTERS = TILES == 2;
  typename Warp::Operands row_taps, column_taps;
  if constexpr (STAY_IN_REGISTERS) {
    row_taps = warp.load_operands(0);
    column_taps = warp.load_operands(1);
  }
  // Both halves of a step at once, if the registers of as many blocks suffice.
  constexpr int HALVES = C == 4 && TILES == 3 ? 1 : 2;
  u32 upper[ACROSS][C][2], lower[ACROSS][C][2] = {};
#pragma unroll 1
  for (int y = first_row - 16 * (TILES - 1); y < row_end; y += 16) {
    if constexpr (!STAY_IN_REGISTERS) row_taps = warp.load_operands(0);
#pragma unroll(HALVES)
    for (int eight = 0; eight < 2; eight++) {
#pragma unroll
      for (int tile = 0; tile < ACROSS; tile++)
#pragma unroll
        for (int c = 0; c < C; c++)
#pragma unroll
          for (int n = 0; n < 2; n++) upper[tile][c][n] = lower[tile][c][n];
      typename Warp::Loader::Window words;
      loader.read(words, slot);
      if constexpr (Tile::SHARES_COPIES) warp_sync();
      if (!is_inside) loader.repeat_edges(words, recomputed(window_x));
      load(y + BEFORE + 8 * (eight + Tile::DEPTH), slot);
      slot = slot == Tile::RING_BYTES - Tile::STEP_BYTES ? 0 : slot + Tile::STEP_BYTES;
#pragma unroll
      for (int tile = 0; tile < ACROSS; tile++) Warp::rows(lower[tile], words + tile, row_taps);
    }
#pragma unroll
    for (int tile = 0; tile < ACROSS; tile++) warp.push(tile, upper[tile], lower[tile]);
    if (y < first_row) continue;
    if constexpr (!STAY_IN_REGISTERS) column_taps = warp.load_operands(1);
    const int left = recomputed((width - x0) * C - lane_byte);
    u8* to = plane.dst + static_cast<u64>(static_cast<u32>(y + g)) * plane.dst_pitch + static_cast<u64>(x0) * C + lane_byte;
    u32 out[2][4];
    warp.results(out, column_taps);
#pragma unroll
    for (int row = 0; row < 2; row++)
      if (t < Tile::CHUNKS_OUT && y + g + 8 * row < row_end)
        store_pixels<1, 16>(to + 8 * row * plane.dst_pitch, out[row], left, alignment);
  }
}

// Planes of one and of two channels, several to a launch.
template <int TILES> __device__ __forceinline__ void direct_planes(const TensorArgs& args) {
  const TensorPlane& plane = tensor_plane(args);
  if (plane.channels == 1) direct_plane<1, TILES>(plane, args);
  else direct_plane<2, TILES>(plane, args);
}
#endif
