// SPDX-License-Identifier: MPL-2.0
// The direct form on tensor cores: rows, then columns, in one launch. A warp owns 16 columns of pixels, or more where
// pixels have one or two bytes, and walks down, 16 rows an iteration; the intermediate never leaves its registers.
#ifndef BLUR_TENSOR_DIRECT_H
#define BLUR_TENSOR_DIRECT_H
#include "tensor_loader.cuh"
#include "tensor_window.cuh"

// Blocks that a multiprocessor should hold, which bounds the registers, by the largest radius: the most that leave every
// kernel free of spills.
#define TENSOR_DIRECT_SHORT_RESIDENT 3
#define TENSOR_DIRECT_SHORT_RESIDENT_C12 (BLUR_BOUNDING_ARCH < 9999 ? 3 : 2)
#define TENSOR_DIRECT_SHORT_RESIDENT_U16 4
#define TENSOR_DIRECT_SHORT_RESIDENT_PACKED (BLUR_BOUNDING_ARCH < 1200 ? 3 : 2)
#define TENSOR_DIRECT_MEDIUM_RESIDENT_C12 (BLUR_BOUNDING_ARCH < 900 ? 3 : 2)
#define TENSOR_DIRECT_MEDIUM_RESIDENT_C3 (BLUR_BOUNDING_ARCH == 900 ? 4 : 3)
#define TENSOR_DIRECT_MEDIUM_RESIDENT_C4 (BLUR_BOUNDING_ARCH < 1000 ? 4 : 2)
#define TENSOR_DIRECT_MEDIUM_RESIDENT_U16 4
#define TENSOR_DIRECT_MEDIUM_RESIDENT_U16_C4 2
#define TENSOR_DIRECT_MEDIUM_RESIDENT_YUV422 2
#define TENSOR_DIRECT_LONG_RESIDENT 2
#define TENSOR_DIRECT_LONG_RESIDENT_C3 (BLUR_BOUNDING_ARCH < 1200 ? 3 : 2)
#define TENSOR_DIRECT_LONG_RESIDENT_U16 3

// Tiles of 16 rows that a tile of outputs is computed from, for radii up to `radius`, and tiles of 16 columns. Luma and
// chroma of packed 4:2:2 reach half as many pairs of pixels as rows.
OPERAND_FUNCTION int direct_tiles(int radius) { return (radius + 7) / 8 + 1; }
OPERAND_FUNCTION int direct_row_tiles(int tiles, bool is_yuv422) { return is_yuv422 ? tiles / 2 + 1 : tiles; }
// Tiles of 16 columns that a warp computes.
OPERAND_FUNCTION int direct_across(int pixel_bytes) {
  return pixel_bytes == 1 ? BLUR_TENSOR_DIRECT_ACROSS_1 : pixel_bytes == 2 ? BLUR_TENSOR_DIRECT_ACROSS_2 : 1;
}

// The least odd multiple of `unit` from `bytes` on.
OPERAND_FUNCTION int odd_multiple(int bytes, int unit) { return ((bytes + unit - 1) / unit / 2 * 2 + 1) * unit; }

// Steps of the ring.
#ifdef BLUR_TENSOR_DIRECT_TILES
OPERAND_FUNCTION int direct_depth(int, bool) { return BLUR_TENSOR_DIRECT_DEPTH_SHORT; }
#else
OPERAND_FUNCTION int direct_depth(int pixel_bytes, bool is_yuv422) {
  return pixel_bytes == 8 ? BLUR_TENSOR_DIRECT_DEPTH_SHORT
         : is_yuv422     ? BLUR_TENSOR_DIRECT_DEPTH_YUV422
                         : BLUR_TENSOR_DIRECT_DEPTH;
}
#endif

template <class P, int TILES>
using DirectRows = RowTile<P::BYTES, 4, 16 * (direct_across(P::BYTES) + direct_row_tiles(TILES, P::IS_YUV422) - 1),
                           direct_depth(P::BYTES, P::IS_YUV422)>;

// Pixels P, windows of TILES tiles down. A step of the ring has 8 rows as they are in the plane, which the lanes copy 16
// bytes at a time.
template <class P, int TILES> struct DirectTile : DirectRows<P, TILES> {
  static constexpr int BYTES = P::BYTES, C = P::C * sizeof(typename P::T), ACROSS = direct_across(BYTES), CHUNK = 16,
                       ROW_TILES = direct_row_tiles(TILES, P::IS_YUV422);
  static constexpr bool IS_WORD = P::IS_PACKED1010102, IS_YUV422 = P::IS_YUV422,
                        IS_WIDENED = sizeof(typename P::T) == 2 && !IS_WORD;
  using Rows = DirectRows<P, TILES>;
  // Chunks of four pixels are those that the lane itself reads.
  static constexpr bool SHARES_COPIES = BYTES != 4;
  // Pixels of the window before the first output. Bytes between the first chunk, which is aligned, and the window; chunks
  // of a row.
  static constexpr int BEFORE = window_before(ROW_TILES), LEAD = BEFORE * BYTES % CHUNK,
                       CHUNKS = (LEAD + 16 * (ACROSS + ROW_TILES - 1) * BYTES + CHUNK - 1) / CHUNK;
  // From row to row, so that the lanes read from different banks.
  static constexpr int ROW_BYTES = odd_multiple(CHUNKS * CHUNK, BYTES == 4 ? 64 : BYTES == 2 ? 32 : 16);
  static constexpr int STEP_BYTES = 8 * ROW_BYTES, RING_BYTES = Rows::DEPTH * STEP_BYTES;
  static constexpr int COPY_STRIDE = Rows::COPY, LOAD_STRIDE = 16 * BYTES;
  static __device__ constexpr int lane_offset(int lane) { return lane / 4 * ROW_BYTES + LEAD + lane % 4 * 4 * BYTES; }

  // A lane has four pixels of a tile. Where these are not whole chunks, the lanes exchange their results in shared memory
  // and store a chunk each, because the device writes 32 bytes or reads them first.
  static constexpr bool EXCHANGES = BYTES % 4 != 0;
  static constexpr int CHUNKS_OUT = ACROSS * BYTES, OUT_ROW_BYTES = odd_multiple(CHUNKS_OUT * CHUNK, 16),
                       LANE_CHUNKS = EXCHANGES ? 1 : BYTES / 4;

  // The taps; those of luma have 32 values to a tile, and 32 outputs.
  using Taps = WindowTaps<IS_YUV422 ? 2 * ROW_TILES + 1 : TILES>;
  // Each lane's words of the operands, which do not fit into its registers, by 4: those of rows, of columns, of luma.
  static constexpr int ROWS = 0, COLUMNS = ROW_TILES, LUMA = COLUMNS + TILES,
                       WORDS = LUMA + (IS_YUV422 ? 4 * ROW_TILES : 0);

  // Shared memory of a warp: the ring, the taps, the operands, and 16 rows of results.
  static constexpr int TAPS = RING_BYTES, OPERANDS = TAPS + Taps::BYTES, EXCHANGE = OPERANDS + WORDS * 512,
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

template <class P, int TILES> struct DirectWarp {
  using Tile = DirectTile<P, TILES>;
  using Loader = DirectLoader<Tile>;
  static constexpr int C = P::C, BYTES = P::BYTES, ACROSS = Tile::ACROSS, ROW_TILES = Tile::ROW_TILES;
  using RowOperands = WindowOperands<ROW_TILES>;
  using ColumnOperands = WindowOperands<TILES>;
  using LumaOperands = WindowOperands<2 * ROW_TILES>;
  Shared operands, exchange;
  PixelPacker<P> packer;
  const TensorPlane& plane;
  // The intermediate of the windows, by tile, channel and block of 8 columns: high and low bytes of 16 rows a word. In
  // packed 4:2:2 the first two channels are luma.
  u32 high[ACROSS][C][2][TILES], low[ACROSS][C][2][TILES];

  __device__ __forceinline__ DirectWarp(const TensorArgs& args, const TensorPlane& plane, Shared memory)
      : operands(memory + Tile::OPERANDS + threadIdx.x % 32 * 16), exchange(memory + Tile::EXCHANGE),
        packer(plane), plane(plane) {
    const int g = threadIdx.x % 32 / 4;
    const typename Tile::Taps taps{memory + Tile::TAPS};
    taps.store(args.taps[Tile::IS_YUV422 ? 0 : plane.slot]);
#if BLUR_FAR_TAPS
    taps.store_far(args.far_taps[Tile::IS_YUV422 ? 0 : plane.slot]);
#endif
#pragma unroll 1
    for (int tile = 0; tile < TILES; tile++)
      store_operands<ColumnOperands>(
          Tile::COLUMNS, tile, taps, 1, OperandOrder::pairs, 16 * tile - window_before(TILES), 0, {g, 8 + g});
    if constexpr (Tile::IS_YUV422) {
      // 32 outputs, two at a time from four blocks, so that a lane gets eight neighbours.
#pragma unroll 1
      for (int i = 0; i < 4 * ROW_TILES; i++) {
        const int two = i / (2 * ROW_TILES), word = i % (2 * ROW_TILES), out = g / 2 * 8 + 4 * two + g % 2;
        store_operands<LumaOperands>(
            Tile::LUMA + 2 * ROW_TILES * two, word, taps, 0, OperandOrder::octets, word / 2 * 32 - 2 * Tile::BEFORE,
            word % 2, {out, out + 2});
      }
      warp_sync();
      taps.store(args.taps[1]);
#if BLUR_FAR_TAPS
      taps.store_far(args.far_taps[1]);
#endif
    }
    // Outputs two at a time from either block, so that a lane gets four neighbouring pixels.
    const int out = g / 2 * 4 + g % 2;
#pragma unroll 1
    for (int tile = 0; tile < ROW_TILES; tile++)
      store_operands<RowOperands>(
          Tile::ROWS, tile, taps, 0, OperandOrder::words, 16 * tile - Tile::BEFORE, 0, {out, out + 2});
  }

  // The address of a word of the operands that start at number `base` of WORDS.
  __device__ __forceinline__ Shared operand(int base, int word) const {
    return operands + (base + word / 4) * 512 + word % 4 * 4;
  }

  // Stores the lane's words of tile `tile` of the operands: see WindowTaps::operand(). `outs` has the outputs of rows g and
  // g + 8.
  template <class Operands> __device__ __forceinline__ void store_operands(
      int base, int tile, const typename Tile::Taps& taps, int axis, OperandOrder order, int first, int half,
      const int (&outs)[2]) const {
    u32 low_words[2], high_words[2];
#pragma unroll
    for (int n = 0; n < 2; n++)
      taps.operand(low_words[n], high_words[n], axis, order, first, half, threadIdx.x % 4, outs[n]);
    shared_store<2>(operand(base, Operands::index(tile, false)), low_words);
    shared_store<2>(operand(base, Operands::index(tile, true)), high_words);
  }

  template <class Operands> __device__ __forceinline__ void load_operands(Operands& result, int base) const {
#pragma unroll
    for (int i = 0; i < Operands::TILE_COUNT; i++) shared_load(result.word[i], operand(base, 4 * i));
  }

  // Sums of bytes times taps, by the bytes of these: a sample is widened by 8 bits and the sum loses 16, so 8 bits of the
  // sum are dropped.
  struct ByteSums {
    int of_low[4] = {128, 128, 128, 128}, of_high[4] = {};

    // 16 bits of rows 2 t and 2 t + 1, of column g of either block.
    __device__ __forceinline__ void rounded(u32 (&out)[2]) const {
      u32 sum[4];
#pragma unroll
      for (int i = 0; i < 4; i++) sum[i] = static_cast<u32>(of_low[i]) + (static_cast<u32>(of_high[i]) << 8);
      out[0] = byte_perm(sum[0], sum[1], 0x6521);
      out[1] = byte_perm(sum[2], sum[3], 0x6521);
    }
  };

  // Blurs 8 rows of a tile, whose window is `words`.
  __device__ __forceinline__ void rows(u32 (&values)[C][2], const u32 (*words)[Tile::C], const RowOperands& taps) const {
    if constexpr (Tile::IS_YUV422) {
#pragma unroll
      for (int two = 0; two < 2; two++) {
        ByteSums sums;
#pragma unroll
        for (int i = 0; i < ROW_TILES; i++) {
          const int base = Tile::LUMA + 2 * (ROW_TILES * two + i);
          u32 of_taps[2][4];
          shared_load(of_taps[0], operand(base, 0));
          shared_load(of_taps[1], operand(base, 4));
          add32(sums.of_low, of_taps[0], words[i][0], words[i][1]);
          add32(sums.of_high, of_taps[1], words[i][0], words[i][1]);
        }
        sums.rounded(values[two]);
      }
    }
#pragma unroll
    for (int c = Tile::IS_YUV422 ? 2 : 0; c < C; c++) {
      if (sizeof(typename P::T) == 2 && !(Tile::IS_WORD && c == 3)) {
        u32 of_low[ROW_TILES], of_high[ROW_TILES];
#pragma unroll
        for (int i = 0; i < ROW_TILES; i++) {
          of_low[i] = words[i][2 * c];
          of_high[i] = words[i][2 * c + 1];
        }
        WindowSums sums(HALF_OF_16_BITS);
        sums.add(taps, of_high, of_low);
        sums.rounded(values[c]);
      } else {
        const int byte = Tile::IS_WORD ? 7 : c;
        ByteSums sums;
#pragma unroll
        for (int i = 0; i + 1 < ROW_TILES; i += 2) {
          add32(sums.of_low, taps.word[i], words[i][byte], words[i + 1][byte]);
          add32(sums.of_high, taps.word[i + 1], words[i][byte], words[i + 1][byte]);
        }
        if constexpr (ROW_TILES % 2) {
          const u32(&last)[4] = taps.word[ROW_TILES - 1];
          add16(sums.of_high, last[0], last[1], words[ROW_TILES - 1][byte]);
          add16(sums.of_low, last[2], last[3], words[ROW_TILES - 1][byte]);
        }
        sums.rounded(values[c]);
      }
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

  // Sample of a lane's four pixels, or pairs of pixels, that column 2 t + e of block n of a channel is.
  __device__ __forceinline__ static constexpr int sample(int c, int n, int e) {
    if (!Tile::IS_YUV422) return (2 * n + e) * C + c;
    return c < 2 ? 4 * (2 * c + n) + 2 * e : 4 * (2 * n + e) + 2 * c - 3;
  }

  // Blurs the columns of a tile's window: four neighbouring pixels of rows g and g + 8, which are rows y and y + 8 of the
  // plane, from column x on, as the destination's words.
  __device__ __forceinline__ void columns(u32 (&out)[2][BYTES], int tile, const ColumnOperands& taps, int x, int y) const {
    u32 sums[2][4 * C];
#pragma unroll
    for (int c = 0; c < C; c++)
#pragma unroll
      for (int n = 0; n < 2; n++) {
        WindowSums window(packer.half(c));
        window.add(taps, high[tile][c][n], low[tile][c][n]);
#pragma unroll
        for (int i = 0; i < 4; i++) sums[i / 2][sample(c, n, i % 2)] = window.sum(i);
      }
    // The samples of packed 4:2:2 are luma first; where chroma is first, they change places.
    const u32 order = Tile::IS_YUV422 && plane.yuv422 & 1 ? 0x4501 : 0x5410;
#pragma unroll
    for (int row = 0; row < 2; row++)
      packer.pack(out[row], sums[row], [&](int i) { return source_word(plane, x + i, y + 8 * row); }, order);
  }

  // Blurs the columns of all tiles: chunks of rows g and g + 8, for the first lanes of a row, which has CHUNKS_OUT.
  __device__ __forceinline__ void results(
      u32 (&out)[2][4 * Tile::LANE_CHUNKS], const ColumnOperands& taps, int x, int y) const {
    if constexpr (!Tile::EXCHANGES) {
      columns(out, 0, taps, x, y);
    } else {
      const int lane = threadIdx.x % 32, t = lane % 4;
      const Shared row = exchange + lane / 4 * Tile::OUT_ROW_BYTES;
#pragma unroll
      for (int tile = 0; tile < ACROSS; tile++) {
        u32 four[2][BYTES];
        columns(four, tile, taps, x, y);
#pragma unroll
        for (int i = 0; i < 2; i++) {
          const Shared at = row + 8 * i * Tile::OUT_ROW_BYTES + (16 * tile + 4 * t) * BYTES;
          if constexpr (BYTES == 2) shared_store<2>(at, four[i]);
          else
#pragma unroll
            for (int word = 0; word < BYTES; word++) shared_store<1>(at + 4 * word, {four[i][word]});
        }
      }
      warp_sync();
#pragma unroll
      for (int i = 0; i < 2; i++)
        if (t < Tile::CHUNKS_OUT) shared_load(out[i], row + 8 * i * Tile::OUT_ROW_BYTES + t * Tile::CHUNK);
    }
  }
};

template <class P, int TILES>
__device__ __forceinline__ void direct_plane(const TensorPlane& plane, const TensorArgs& args) {
  using Warp = DirectWarp<P, TILES>;
  using Tile = typename Warp::Tile;
  constexpr int C = P::C, BYTES = P::BYTES, ACROSS = Tile::ACROSS, ROWS_BEFORE = window_before(TILES);
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4, width = static_cast<int>(plane.width);
  const u32 strips = (plane.column_end - plane.column_begin + 16 * ACROSS - 1) / (16 * ACROSS);
  const u32 unit = (blockIdx.x - plane.first_block) * BLUR_TENSOR_DIRECT_WARPS + threadIdx.x / 32,
            segment = unit / strips;
  const int x0 = static_cast<int>(plane.column_begin + (unit - segment * strips) * (16 * ACROSS));
  const int first_row = static_cast<int>(plane.row_begin + segment * plane.segment_rows),
            row_end = clamp(first_row + static_cast<int>(plane.segment_rows), 0, static_cast<int>(plane.row_end));
  if (first_row >= row_end) return;

  const Shared memory = shared_memory() + threadIdx.x / 32 * Tile::WARP_BYTES;
  const typename Warp::Loader loader(plane, memory);
  const int window_x = x0 - Tile::BEFORE + 4 * t, first_byte = (x0 - Tile::BEFORE) * BYTES - Tile::LEAD;
  // The last pair of a row of packed 4:2:2 of odd width has a sample that is not read.
  const int complete = Tile::IS_YUV422 ? width - static_cast<int>(plane.yuv422 >> 1) : width;
  const bool is_inside = first_byte >= 0 && first_byte + Tile::CHUNKS * Tile::CHUNK <= complete * BYTES
                         && (reinterpret_cast<u64>(plane.src) | plane.src_pitch) % Tile::CHUNK == 0;
  // Loads rows y .. y + 7 if they are needed. The first iterations fill the window.
  const int load_end = first_row + ROWS_BEFORE + (row_end - first_row + 15) / 16 * 16;
  const auto load = [&](int y, int slot) {
    if (y >= load_end) copy_commit();
    else if (is_inside) loader.load_inside(first_byte + t * Tile::CHUNK, y + g, slot);
    else loader.load_checked(recomputed(window_x), y + g, slot);
  };
  wait_for_previous_kernel();
#pragma unroll 1
  for (int i = 0; i < Tile::DEPTH; i++) load(first_row - ROWS_BEFORE + 8 * i, i * Tile::STEP_BYTES);
  Warp warp(args, plane, memory);

  const u32 alignment = static_cast<u32>((reinterpret_cast<u64>(plane.dst) | plane.dst_pitch) % 16);
  const int lane_byte = t * Tile::LANE_CHUNKS * Tile::CHUNK;
  int slot = 0;
  // Those of a short window fit into registers.
  constexpr bool STAY_IN_REGISTERS = TILES == 2;
  typename Warp::RowOperands row_taps;
  typename Warp::ColumnOperands column_taps;
  if constexpr (STAY_IN_REGISTERS) {
    warp.load_operands(row_taps, Tile::ROWS);
    warp.load_operands(column_taps, Tile::COLUMNS);
  }
  // Both halves of a step at once, if the registers of as many blocks suffice.
  constexpr int HALVES = C == 4 && TILES == 3 && !Tile::IS_YUV422 ? 1 : 2;
  u32 upper[ACROSS][C][2], lower[ACROSS][C][2] = {};
#pragma unroll 1
  for (int y = first_row - 16 * (TILES - 1); y < row_end; y += 16) {
    if constexpr (!STAY_IN_REGISTERS) warp.load_operands(row_taps, Tile::ROWS);
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
      load(y + ROWS_BEFORE + 8 * (eight + Tile::DEPTH), slot);
      slot = slot == Tile::RING_BYTES - Tile::STEP_BYTES ? 0 : slot + Tile::STEP_BYTES;
#pragma unroll
      for (int tile = 0; tile < ACROSS; tile++) warp.rows(lower[tile], words + tile, row_taps);
    }
#pragma unroll
    for (int tile = 0; tile < ACROSS; tile++) warp.push(tile, upper[tile], lower[tile]);
    if (y < first_row) continue;
    if constexpr (!STAY_IN_REGISTERS) warp.load_operands(column_taps, Tile::COLUMNS);
    const int left = recomputed((width - x0) * BYTES - lane_byte);
    u8* to = plane.dst + static_cast<u64>(static_cast<u32>(y + g)) * plane.dst_pitch + static_cast<u64>(x0) * BYTES
             + lane_byte;
    u32 out[2][4 * Tile::LANE_CHUNKS];
    warp.results(out, column_taps, x0 + 4 * t, y + g);
#pragma unroll
    for (int row = 0; row < 2; row++)
      if (t < Tile::CHUNKS_OUT && y + g + 8 * row < row_end)
        store_pixels<1, Tile::CHUNK * Tile::LANE_CHUNKS>(to + 8 * row * plane.dst_pitch, out[row], left, alignment);
  }
}

// Planes of one and of two channels, several to a launch.
template <class T, int TILES> __device__ __forceinline__ void direct_planes(const TensorArgs& args) {
  const TensorPlane& plane = tensor_plane(args);
#ifdef BLUR_TENSOR_DIRECT_CHANNELS
  direct_plane<Interleaved<T, BLUR_TENSOR_DIRECT_CHANNELS>, TILES>(plane, args);
#else
  if (plane.channels == 1) direct_plane<Interleaved<T, 1>, TILES>(plane, args);
  else direct_plane<Interleaved<T, 2>, TILES>(plane, args);
#endif
}
#endif
