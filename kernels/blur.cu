// SPDX-License-Identifier: MPL-2.0
// The exact separable Gaussian on CUDA cores.
//
// README.md in this folder describes the algorithms, abi.h the entry points and their contract, docs/ARITHMETIC.md the
// result. Sums are integers modulo 2^32 and therefore do not depend on their order, so all kernels give the same bytes.
#include "tile_loader.cuh"

#ifndef BLUR_SPECIALISED_0
#include "alpha.cuh"
#include "cover.cuh"
#include "level.cuh"
#include "soft.cuh"
// Tensor cores multiply bytes in the shape that the kernels use, and copies are asynchronous, from sm_80 on.
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
#define BLUR_HAS_TENSOR_CORES
#endif
#endif

#ifdef BLUR_ON_CPU
#define SHARED_MEMORY blur_shared
#else
extern __shared__ Words<4> blur_shared[];
#define SHARED_MEMORY reinterpret_cast<u8*>(blur_shared)
#endif

// sum + (low half of taps) * (byte 2 * HALF of bytes) + (high half of taps) * (byte 2 * HALF + 1 of bytes).
template <int HALF> __device__ __forceinline__ u32 dot(u32 sum, u32 taps, u32 bytes) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 610
  if (HALF == 0)
    asm("dp2a.lo.u32.u32 %0, %1, %2, %0;" : "+r"(sum) : "r"(taps), "r"(bytes));
  else
    asm("dp2a.hi.u32.u32 %0, %1, %2, %0;" : "+r"(sum) : "r"(taps), "r"(bytes));
  return sum;
#else
  return sum + (taps & 0xffff) * (bytes >> 16 * HALF & 255) + (taps >> 16) * (bytes >> (16 * HALF + 8) & 255);
#endif
}

// Radius sources, the template parameter R below: where a kernel reads its filter slot and radii.

// Generic kernels read both from their parameter.
struct RuntimeRadius {
  static constexpr bool IS_STATIC = false;
  static __device__ __forceinline__ int slot(const BlurPlane& plane) { return static_cast<int>(plane.slot); }
  static __device__ __forceinline__ int radius(const BlurArgs& args, int slot, int axis) {
    return static_cast<int>(args.radius[slot][axis]);
  }
};

// Specialised kernels know both at compile time: the slot, and the radii along rows, down columns and along chroma
// rows. They unroll the loops over taps and omit the multiplications by taps beyond the ends of a window.
template <int SLOT, int ROWS, int COLUMNS, int CHROMA_ROWS> struct StaticRadius {
  static constexpr bool IS_STATIC = true;
  static __device__ __forceinline__ constexpr int slot(const BlurPlane&) { return SLOT; }
  static __device__ __forceinline__ constexpr int radius(const BlurArgs&, int slot, int axis) {
    return axis == 1 ? COLUMNS : slot == SLOT ? ROWS : CHROMA_ROWS;
  }
};

// The tap at a signed distance from the centre; 0 beyond the radius.
template <class R> __device__ __forceinline__ u32 tap(const BlurArgs& args, int slot, int axis, int distance) {
  const int radius = R::radius(args, slot, axis), i = distance < 0 ? -distance : distance;
  if (i > radius) return 0;
  return radius == 0 ? 65536 : args.taps[slot][axis][i];
}

// Pixels beyond a strip, on each side, that its row pass reads. A pixel of packed 4:2:2 is a pair, so its halo is the
// larger of half the luma radius and the chroma radius.
template <class P, class R> __device__ __forceinline__ int row_halo(const BlurArgs& args, int slot) {
  const int rows = R::radius(args, slot, 0);
  if (!P::IS_YUV422) return rows;
  const int luma = (rows + 1) / 2, chroma = R::radius(args, 1, 0);
  return luma > chroma ? luma : chroma;
}

// Row taps in shared memory, expanded to one Words<4> for each four source samples of the window. The window starts at
// the radius, rounded up to a multiple of four, before the first output. For 16-bit samples an element holds four taps.
// For 8-bit samples it holds pairs of taps for `dot`: two pairs (t[i], t[i+1]) with even i for even outputs, and two
// pairs (t[i-1], t[i]) for odd outputs. In packed 4:2:2 the chroma taps follow the luma taps.
struct RowTaps {
  Words<4>* primary;
  int radius, chroma_radius;

  static __device__ __forceinline__ int length(int radius) { return (radius + 3) / 4 * 2 + 1; }
  __device__ __forceinline__ Words<4>* chroma() const { return primary + length(radius); }
};

template <class T, class R>
__device__ __forceinline__ void expand_taps(const BlurArgs& args, int slot, Words<4>* to, int threads) {
  const int radius = R::radius(args, slot, 0), halo = (radius + 3) / 4 * 4;
#pragma unroll 1
  for (int k = threadIdx.x; k < RowTaps::length(radius); k += threads) {
    const int i = 4 * k - halo;
    if constexpr (sizeof(T) == 1) {
      // The single tap 65536 of radius 0 becomes 0 here; convolve_rows adds its product.
      u32 t[5];
#pragma unroll
      for (int n = 0; n < 5; n++) t[n] = tap<R>(args, slot, 0, i - 1 + n) & 0xffff;
      to[k] = {{t[1] | t[2] << 16, t[0] | t[1] << 16, t[3] | t[4] << 16, t[2] | t[3] << 16}};
    } else {
      u32 t[4];
#pragma unroll
      for (int n = 0; n < 4; n++) t[n] = tap<R>(args, slot, 0, i + n);
      to[k] = {{t[0], t[1], t[2], t[3]}};
    }
  }
}

// Expands a plane's row taps to `memory` and returns the end of what it has written.
template <class P, class R>
__device__ __forceinline__ u8* expand_row_taps(const BlurArgs& args, int slot, u8* memory, int threads, RowTaps& taps) {
  taps = {offset_ptr<Words<4>>(memory, 0), R::radius(args, slot, 0), P::IS_YUV422 ? R::radius(args, 1, 0) : 0};
  expand_taps<typename P::T, R>(args, slot, taps.primary, threads);
  if (!P::IS_YUV422) return offset_ptr<u8>(taps.chroma(), 0);
  expand_taps<typename P::T, R>(args, 1, taps.chroma(), threads);
  return offset_ptr<u8>(taps.chroma() + RowTaps::length(taps.chroma_radius), 0);
}

// Expands a plane's column taps, with zeros on both ends: element ROWS + k is the tap of row k of a thread's window in
// the first of the thread's ROWS output rows.
template <class R, int ROWS, int CHUNK>
__device__ __forceinline__ void expand_column_taps(const BlurArgs& args, int slot, u32* to, int threads) {
  const int radius = R::radius(args, slot, 1), length = ROWS + (2 * radius + ROWS + CHUNK - 1) / CHUNK * CHUNK;
#pragma unroll 1
  for (int k = threadIdx.x; k < length; k += threads) to[k] = tap<R>(args, slot, 1, k - ROWS - radius);
}

// Computes four neighbouring outputs in each of LINES lines; a line is one channel of one staged row, and
// line_offset(l) the distance in groups from `source` to the start of its window. The sums of 8-bit samples have 24
// bits, those of 16-bit samples 32; the intermediate is their upper 16 bits.
template <class T, class R, int LINES, class LineOffset>
__device__ __forceinline__ void convolve_rows(
    u32 (&sum)[LINES][4], const Words<sizeof(T)>* source, LineOffset line_offset, const Words<4>* taps, int radius) {
  [[maybe_unused]] constexpr int UNROLL = R::IS_STATIC ? 64 : sizeof(T) == 1 ? 2 : 1;
#pragma unroll
  for (int l = 0; l < LINES; l++)
#pragma unroll
    for (int i = 0; i < 4; i++) sum[l][i] = sizeof(T) == 1 ? 128 : 32768;

  const int halo = (radius + 3) / 4 * 4, steps = (radius + 3) / 4 * 2 + 1;
  // Whether any of the `count` samples from number `first` of the window on is within the radius of output i.
  auto in_window = [&](int first, int count, int i) {
    const int centre = i + halo;
    return !R::IS_STATIC || (first + count > centre - radius && first <= centre + radius);
  };
  Words<4> previous = {};
#pragma unroll UNROLL
  for (int k = 0; k < steps; k++) {
    const Words<4> current = taps[k];
#pragma unroll
    for (int l = 0; l < LINES; l++) {
      const auto samples = source[line_offset(l) + k];
      if constexpr (sizeof(T) == 1) {
        const u32 bytes = samples.word[0];
#pragma unroll
        for (int i = 0; i < 4; i++) {
          const u32 low = i < 2 ? current.word[i] : previous.word[i], high = current.word[i < 2 ? i + 2 : i - 2];
          if (in_window(4 * k, 2, i)) sum[l][i] = dot<0>(sum[l][i], low, bytes);
          if (in_window(4 * k + 2, 2, i)) sum[l][i] = dot<1>(sum[l][i], high, bytes);
        }
      } else {
#pragma unroll
        for (int s = 0; s < 4; s++) {
          const u32 sample = s % 2 ? samples.word[s / 2] >> 16 : samples.word[s / 2] & 0xffff;
#pragma unroll
          for (int i = 0; i < 4; i++)
            if (in_window(4 * k + s, 1, i))
              sum[l][i] += (s >= i ? current.word[s - i] : previous.word[4 + s - i]) * sample;
        }
      }
    }
    previous = current;
  }
  if (sizeof(T) == 1 && radius == 0) {
#pragma unroll
    for (int l = 0; l < LINES; l++)
#pragma unroll
      for (int i = 0; i < 4; i++) sum[l][i] += (source[line_offset(l)].word[0] >> 8 * i & 255) << 16;
  }
}

// The row pass of four neighbouring pixels, all channels, in ROWS staged rows from `row` on. Writes the first
// `rows_wanted` rows to `to`, `pitch` bytes apart, as 16-bit samples interleaved like those of the plane.
template <class P, class R, int ROWS>
__device__ __forceinline__ void convolve_group(
    const StagedRows<P>& staged, const BlurPlane& plane, int row, int group, const RowTaps& taps, u8* to, u64 pitch,
    int rows_wanted) {
  using T = typename P::T;
  // Selects the intermediate, the upper 16 bits, of each of two sums.
  constexpr int C = P::C, UPPER_HALVES = sizeof(T) == 1 ? 0x6521 : 0x7632;
  const auto* source = staged.groups + row * staged.row_stride;
  u32 intermediate[ROWS][2 * C];
  if constexpr (P::IS_YUV422) {
    static_assert(ROWS == 1, "a pixel has four channels");
    u32 luma[2][4], chroma[2][4];
    // Both are staged with the larger of their halos; the window of the other starts further inside.
    const int luma_start = (2 * staged.halo - staged_halo(taps.radius)) / 4;
    const int chroma_start = (staged.halo - staged_halo(taps.chroma_radius)) / 4;
    convolve_rows<T, R>(luma, source + 2 * group + luma_start, [](int l) { return l; }, taps.primary, taps.radius);
    convolve_rows<T, R>(chroma, source + 2 * staged.channel_groups + group + chroma_start,
                        [&](int l) { return l * staged.channel_groups; }, taps.chroma(), taps.chroma_radius);
    const u32 selector = plane.yuv422 & 1 ? (UPPER_HALVES & 0xff) << 8 | UPPER_HALVES >> 8 : UPPER_HALVES;
#pragma unroll
    for (int m = 0; m < 2 * C; m++) intermediate[0][m] = byte_perm(luma[m / 4][m % 4], chroma[m % 2][m / 2], selector);
  } else {
    u32 sum[C * ROWS][4];
    auto line_offset = [&](int l) { return l / C * staged.row_stride + l % C * staged.channel_groups; };
    convolve_rows<T, R>(sum, source + group, line_offset, taps.primary, taps.radius);
#pragma unroll
    for (int r = 0; r < ROWS; r++)
#pragma unroll
      for (int m = 0; m < 2 * C; m++) {
        const int a = 2 * m, b = a + 1;
        intermediate[r][m] = byte_perm(sum[r * C + a % C][a / C], sum[r * C + b % C][b / C], UPPER_HALVES);
      }
  }

  constexpr int N = C % 2 == 0 ? 4 : 2;
#pragma unroll
  for (int r = 0; r < ROWS; r++)
#pragma unroll
    for (int m = 0; m < 2 * C; m += N) {
      Words<N> vector;
#pragma unroll
      for (int k = 0; k < N; k++) vector.word[k] = intermediate[r][m + k];
      if (r < rows_wanted) *offset_ptr<Words<N>>(to, r * pitch + m * 4) = vector;
    }
}

// Rows that one call of convolve_group computes: four lines, or as many as a pixel has channels.
template <class P> constexpr int GROUP_ROWS = P::C == 1 ? 4 : P::C == 2 ? 2 : 1;

// The row pass of ROWS staged rows by all threads of a block, to rows `pitch` bytes apart from `to` on.
template <class P, class R, int ROWS, int THREADS>
__device__ __forceinline__ void convolve_staged_rows(
    const StagedRows<P>& staged, const BlurPlane& plane, const RowTaps& taps, u8* to, u64 pitch) {
  using Traits = TileTraits<P>;
  constexpr int ITEM_ROWS = GROUP_ROWS<P>, ITEMS = Traits::GROUPS * ROWS / ITEM_ROWS;
  static_assert(ITEMS % THREADS == 0, "all threads have the same number of items");
#pragma unroll 1
  for (int item = threadIdx.x; item < ITEMS; item += THREADS) {
    const int row = item / Traits::GROUPS * ITEM_ROWS, group = item % Traits::GROUPS;
    convolve_group<P, R, ITEM_ROWS>(
        staged, plane, row, group, taps, to + row * pitch + group * (8 * P::C), pitch, ITEM_ROWS);
  }
}

// Accumulates rows k .. k+3 of a thread's window of the intermediate, four samples wide, into its ROWS output rows.
// `expanded_taps` points to the expanded taps of row k. If UNROLLED, k is a compile-time constant and each tap is read
// from the kernel's parameter instead.
template <class R, bool UNROLLED, int ROWS>
__device__ __forceinline__ void accumulate_four_rows(
    const BlurArgs& args, int slot, u32 (&sum)[ROWS][4], const u8* from, u32 pitch, const u32* expanded_taps, int k) {
  u32 taps[ROWS + 4];
#pragma unroll
  for (int i = 0; i < ROWS + 4 && !UNROLLED; i += 4) {
    const auto vector = *offset_ptr<const Words<4>>(expanded_taps, i * 4);
#pragma unroll
    for (int n = 0; n < 4; n++) taps[i + n] = vector.word[n];
  }
#pragma unroll
  for (int row = 0; row < 4; row++) {
    const auto pairs = *offset_ptr<const Words<2>>(from, row * pitch);
    const u32 samples[4] = {pairs.word[0] & 0xffff, pairs.word[0] >> 16, pairs.word[1] & 0xffff, pairs.word[1] >> 16};
#pragma unroll
    for (int n = 0; n < ROWS; n++) {
      const int radius = R::radius(args, slot, 1), distance = k + row - n - radius;
      if (UNROLLED && (distance < -radius || distance > radius)) continue;
      const u32 row_tap = UNROLLED ? tap<R>(args, slot, 1, distance) : taps[ROWS + row - n];
#pragma unroll
      for (int i = 0; i < 4; i++) sum[n][i] += row_tap * samples[i];
    }
  }
}

// Output depth of the i-th of four neighbouring samples.
template <class P> __device__ __forceinline__ u32 sample_depth(const BlurPlane& plane, int i) {
  return P::IS_PACKED1010102 && i == 3 ? 2 : plane.depth;
}

// Sums start at half of an output step, so that dropping their low bits rounds half up.
template <class P, int ROWS>
__device__ __forceinline__ void init_sums(const BlurPlane& plane, u32 (&sum)[ROWS][4]) {
#pragma unroll
  for (int n = 0; n < ROWS; n++)
#pragma unroll
    for (int i = 0; i < 4; i++) sum[n][i] = 1u << (31 - sample_depth<P>(plane, i));
}

// Rounds four samples of ROWS rows to the output depth and writes them to the destination from row `y`, sample `sample`
// on, except for rows from `y_end` on and samples from `samples` on.
template <class P, int ROWS>
__device__ __forceinline__ void store_rows(
    const BlurPlane& plane, u32 (&sum)[ROWS][4], int y, int y_end, int sample, int samples) {
  // Four samples of SAMPLE_BYTES bytes are SAMPLE_BYTES words.
  constexpr int SAMPLE_BYTES = P::IS_PACKED1010102 ? 1 : sizeof(typename P::T), VECTOR_BYTES = 4 * SAMPLE_BYTES;
  const bool vector_store =
      (reinterpret_cast<u64>(plane.dst) | plane.dst_pitch) % VECTOR_BYTES == 0 && sample + 4 <= samples;
  u8* to = plane.dst + static_cast<u64>(y) * plane.dst_pitch + sample * SAMPLE_BYTES;
  const int bytes = (samples - sample < 4 ? samples - sample : 4) * SAMPLE_BYTES;
  const int rows = y_end - y;
  u32 out[ROWS][SAMPLE_BYTES];
#pragma unroll
  for (int n = 0; n < ROWS; n++) {
    if constexpr (P::IS_PACKED1010102) {
      out[n][0] = sum[n][0] >> 22 | sum[n][1] >> 22 << 10 | sum[n][2] >> 22 << 20 | sum[n][3] >> 30 << 30;
    } else if constexpr (SAMPLE_BYTES == 1) {
      out[n][0] = byte_perm(byte_perm(sum[n][0], sum[n][1], 0x73), byte_perm(sum[n][2], sum[n][3], 0x73), 0x5410);
    } else {
      const u32 down = 32 - plane.depth;
      out[n][0] = (sum[n][0] >> down | sum[n][1] >> down << 16) << plane.shift;
      out[n][1] = (sum[n][2] >> down | sum[n][3] >> down << 16) << plane.shift;
    }
  }
  if (vector_store) {
#pragma unroll
    for (int n = 0; n < ROWS; n++) {
      Words<SAMPLE_BYTES> vector;
#pragma unroll
      for (int k = 0; k < SAMPLE_BYTES; k++) vector.word[k] = out[n][k];
      if (n < rows) *offset_ptr<Words<SAMPLE_BYTES>>(to, 0) = vector;
      to += plane.dst_pitch;
    }
    return;
  }
#pragma unroll 1
  for (int i = 0; i < bytes; i++) {
    u8* column = to + i;
#pragma unroll
    for (int n = 0; n < ROWS; n++) {
      if (n < rows) *column = static_cast<u8>(byte_perm(out[n][0], out[n][SAMPLE_BYTES - 1], i));
      column += plane.dst_pitch;
    }
  }
}

// The tile that a block computes: a plane of the launch, a strip of it, and a segment (a number of rows) of the strip.
struct Block {
  int plane, strip, segment;

  // If the launch has a single plane, its index is a compile-time constant, and so are its fields' offsets in the
  // parameter.
  __device__ __forceinline__ Block(const BlurArgs& args, bool single_plane) {
    const u32 block = blockIdx.x;
    plane = 0;
#pragma unroll
    for (int p = 1; p < BLUR_PLANES && !single_plane; p++) plane += block >= args.planes[p].first_block;
    const u32 plane_block = block - args.planes[plane].first_block, strips = args.planes[plane].strips;
    strip = static_cast<int>(plane_block % strips);
    segment = static_cast<int>(plane_block / strips);
  }
};

// The work of one block of the fused and of the rows kernels, for a pixel layout P and a radius source R.
template <class P, class R> struct TileBlur {
  static __device__ void fused(const BlurArgs& args, const BlurPlane& plane, const Block& block);
  static __device__ void rows(const BlurArgs& args, const BlurPlane& plane, const Block& block);
};

// Processes the segment from top to bottom, BLUR_FUSED_STEP rows per step. The ring buffer in shared memory holds the
// intermediate rows that the next output rows need.
template <class P, class R>
__device__ __forceinline__ void TileBlur<P, R>::fused(
    const BlurArgs& args, const BlurPlane& plane, const Block& block) {
  using Traits = TileTraits<P>;
  constexpr int THREADS = BLUR_FUSED_THREADS, STEP = BLUR_FUSED_STEP, ROWS = BLUR_FUSED_THREAD_ROWS;
  constexpr u32 PITCH = Traits::SAMPLES * 2;
  constexpr int THREADS_PER_ROW = Traits::SAMPLES / 4;
  [[maybe_unused]] constexpr int COLUMN_UNROLL = R::IS_STATIC ? 16 : 1;
  static_assert(THREADS_PER_ROW * (STEP / ROWS) <= THREADS, "a step has at most one item of output per thread");
  const int slot = R::slot(plane), radius = R::radius(args, slot, 1);
  const int lag = (2 * radius + STEP - 1) / STEP, ring_rows = (lag + 1) * STEP;

  u8* ring = SHARED_MEMORY;
  RowTaps row_taps;
  u8* row_taps_end = expand_row_taps<P, R>(args, slot, ring + ring_rows * PITCH, THREADS, row_taps);
  auto* column_taps = offset_ptr<u32>(row_taps_end, 0);
  const int column_taps_length = ROWS + (2 * radius + ROWS + 3) / 4 * 4;
  expand_column_taps<R, ROWS, 4>(args, slot, column_taps, THREADS);
  const StagedRows<P> staged(offset_ptr<u8>(column_taps, column_taps_length * 4), row_halo<P, R>(args, slot));

  const int height = static_cast<int>(args.segment_rows);
  const int y_begin = static_cast<int>(plane.row_begin) + block.segment * height;
  const int row_end = static_cast<int>(plane.row_end), y_end = y_begin + height < row_end ? y_begin + height : row_end;
  const int samples = static_cast<int>(plane.column_end) * P::C;
  const int thread_column = threadIdx.x % THREADS_PER_ROW, thread_row = threadIdx.x / THREADS_PER_ROW * ROWS;
  const int sample = static_cast<int>(plane.column_begin) * P::C + block.strip * Traits::SAMPLES + thread_column * 4;

  TileLoader<P, STEP, THREADS> loader(plane, staged, block.strip, y_end + radius);
  int ring_head = 0;
  // Each iteration loads the rows of the next step while it computes this one's; the first only loads. Output starts
  // `lag` steps after the row pass, when the ring holds a whole window.
#pragma unroll 1
  for (int y = y_begin - (lag + 1) * STEP; y < y_end; y += STEP) {
    const int y_next = y + (lag + 1) * STEP - radius;
    const bool has_next = y + STEP < y_end;
    if (has_next) loader.load(y_next);
    if (y >= y_begin - lag * STEP) {
      convolve_staged_rows<P, R, STEP, THREADS>(staged, plane, row_taps, ring + ring_head * PITCH, PITCH);
      __syncthreads();
      ring_head = ring_head + STEP == ring_rows ? 0 : ring_head + STEP;
    }
    // The row at ring_head is now the ring's oldest.
    if (y >= y_begin && thread_row < STEP && sample < samples && y + thread_row < y_end) {
      u32 sum[ROWS][4];
      init_sums<P>(plane, sum);
      int row = ring_head + thread_row;
      if (row >= ring_rows) row -= ring_rows;
      const u8* column = ring + thread_column * 8;
#pragma unroll COLUMN_UNROLL
      for (int k = 0; k < 2 * radius + ROWS; k += 4) {
        accumulate_four_rows<R, R::IS_STATIC>(args, slot, sum, column + row * PITCH, PITCH, column_taps + k, k);
        row = row + 4 == ring_rows ? 0 : row + 4;
      }
      store_rows<P>(plane, sum, y + thread_row, y_end, sample, samples);
    }
    if (has_next) loader.store(y_next);
    __syncthreads();
  }
}

// Convolves BLUR_ROWS_STEP rows of the strip into the workspace.
template <class P, class R>
__device__ __forceinline__ void TileBlur<P, R>::rows(const BlurArgs& args, const BlurPlane& plane, const Block& block) {
  using Traits = TileTraits<P>;
  constexpr int THREADS = BLUR_ROWS_THREADS, STEP = BLUR_ROWS_STEP, ITEM_ROWS = GROUP_ROWS<P>;
  static_assert(Traits::GROUPS * STEP / ITEM_ROWS == THREADS, "every thread has one item");
  const int slot = R::slot(plane), y = static_cast<int>(plane.row_begin) + block.segment * STEP;
  const int chroma = P::IS_YUV422 ? RowTaps::length(R::radius(args, 1, 0)) : 0;
  u8* staged_memory = SHARED_MEMORY + (RowTaps::length(R::radius(args, slot, 0)) + chroma) * 16;
  const StagedRows<P> staged(staged_memory, row_halo<P, R>(args, slot));
  TileLoader<P, STEP, THREADS> loader(plane, staged, block.strip, static_cast<int>(plane.row_end));
  loader.load(y);
  RowTaps row_taps;
  expand_row_taps<P, R>(args, slot, SHARED_MEMORY, THREADS, row_taps);
  loader.store(y);
  __syncthreads();

  const int row = threadIdx.x / Traits::GROUPS * ITEM_ROWS, group = threadIdx.x % Traits::GROUPS;
  u8* to = plane.workspace + (y + row) * plane.workspace_pitch + (block.strip * Traits::GROUPS + group) * (8 * P::C);
  convolve_group<P, R, ITEM_ROWS>(
      staged, plane, row, group, row_taps, to, plane.workspace_pitch, static_cast<int>(plane.row_end) - y - row);
}

// Columns kernel: 64 threads side by side and 4 down, each of which computes four samples of 16 rows. The block's
// window passes through shared memory in chunks of 16 rows, double buffered.
__device__ __forceinline__ void columns_tile(const BlurArgs& args, const BlurPlane& plane, const Block& block) {
  using R = RuntimeRadius;
  constexpr int THREADS = BLUR_COLUMNS_THREADS, STEP = BLUR_COLUMNS_STEP, ROWS = BLUR_COLUMNS_THREAD_ROWS;
  constexpr int CHUNK = BLUR_COLUMNS_CHUNK, THREADS_PER_ROW = BLUR_COLUMNS_STRIP_SAMPLES / 4;
  constexpr u32 PITCH = BLUR_COLUMNS_STRIP_SAMPLES * 2;
  static_assert(THREADS_PER_ROW * STEP / ROWS == THREADS && CHUNK == ROWS,
                "the threads cover the block's output, and every thread's window starts at a chunk");
  const int slot = R::slot(plane), radius = R::radius(args, slot, 1);
  u8* chunks = SHARED_MEMORY;
  auto* taps = offset_ptr<u32>(chunks, 2 * CHUNK * PITCH);
  expand_column_taps<R, ROWS, CHUNK>(args, slot, taps, THREADS);

  const int y_begin = static_cast<int>(plane.row_begin) + block.segment * STEP;
  const int row_end = static_cast<int>(plane.row_end), y_end = y_begin + STEP < row_end ? y_begin + STEP : row_end;
  const int samples = static_cast<int>(plane.column_end * plane.channels);
  const int thread_column = threadIdx.x % THREADS_PER_ROW, thread_row = threadIdx.x / THREADS_PER_ROW;
  const int sample = static_cast<int>(plane.column_begin * plane.channels) + block.strip * BLUR_COLUMNS_STRIP_SAMPLES
                     + thread_column * 4;

  // A thread loads 16 bytes of every 8th row. Samples beyond the workspace row do not affect the output, so any address
  // will do for them.
  constexpr int LOADS = CHUNK * PITCH / 16 / THREADS, LOAD_ROWS = CHUNK / LOADS;
  const int load_row = threadIdx.x / (PITCH / 16), load_byte = threadIdx.x % (PITCH / 16) * 16;
  const u64 strip_byte = static_cast<u64>(block.strip) * PITCH + load_byte;
  const u64 pitch = plane.workspace_pitch;
  const u8* column = plane.workspace + (strip_byte < pitch ? strip_byte : 0);
  const int last_row = clamp(y_end + radius, 1, static_cast<int>(plane.height)) - 1;
  u32 regs[LOADS][4];
  auto load = [&](int chunk) {
#pragma unroll
    for (int i = 0; i < LOADS; i++) {
      const int y = clamp(y_begin - radius + chunk * CHUNK + load_row + i * LOAD_ROWS, 0, last_row);
      const auto vector = *offset_ptr<const Words<4>>(column, static_cast<u64>(y) * pitch);
#pragma unroll
      for (int k = 0; k < 4; k++) regs[i][k] = vector.word[k];
    }
  };

  u32 sum[ROWS][4];
  init_sums<Interleaved<u8, 1>>(plane, sum);
  if (plane.packed1010102) init_sums<Packed1010102>(plane, sum);
  const int window_chunks = (2 * radius + ROWS + CHUNK - 1) / CHUNK;
  const int chunk_count = (y_end - y_begin + ROWS - 1) / ROWS - 1 + window_chunks;
  load(0);
#pragma unroll 1
  for (int chunk = 0; chunk < chunk_count; chunk++) {
    u8* buffer = chunks + chunk % 2 * (CHUNK * PITCH);
#pragma unroll
    for (int i = 0; i < LOADS; i++) {
      const u32(&row)[4] = regs[i];
      auto* vector = offset_ptr<Words<4>>(buffer, (load_row + i * LOAD_ROWS) * PITCH + load_byte);
      *vector = {{row[0], row[1], row[2], row[3]}};
    }
    __syncthreads();
    if (chunk + 1 < chunk_count) load(chunk + 1);
    const int window_chunk = chunk - thread_row;
    if (window_chunk >= 0 && window_chunk < window_chunks) {
#pragma unroll 1
      for (int k = 0; k < CHUNK && window_chunk * CHUNK + k < 2 * radius + ROWS; k += 4)
        accumulate_four_rows<R, false>(
            args, slot, sum, buffer + k * PITCH + thread_column * 8, PITCH, taps + window_chunk * CHUNK + k, 0);
    }
  }
  if (sample >= samples) return;
  const int y = y_begin + thread_row * ROWS;
  if (plane.packed1010102)
    store_rows<Packed1010102>(plane, sum, y, y_end, sample, samples);
  else if (plane.depth == 8)
    store_rows<Interleaved<u8, 1>>(plane, sum, y, y_end, sample, samples);
  else
    store_rows<Interleaved<u16, 1>>(plane, sum, y, y_end, sample, samples);
}

#define BLUR_ENTRY(name, threads, min_blocks, single_plane, blur_tile) \
  extern "C" __global__ void __launch_bounds__(threads, min_blocks) name(const BlurArgs args) { \
    const Block block(args, single_plane); \
    const BlurPlane& plane = args.planes[block.plane]; \
    blur_tile(args, plane, block); \
  }

// The host's JIT defines BLUR_SPECIALISED_0, the template arguments of TileBlur (pixel layout and radii) for planes of
// filter slot 0; BLUR_SPECIALISED_1, the same for slot 1, if the launch uses it; and BLUR_SINGLE_PLANE, whether the
// launch has only one plane. Without them the source compiles to the prebuilt kernels.
#ifdef BLUR_SPECIALISED_0
__device__ __forceinline__ void specialised_tile(const BlurArgs& args, const BlurPlane& plane, const Block& block) {
#ifdef BLUR_SPECIALISED_1
  if (plane.slot == 1) return TileBlur<BLUR_SPECIALISED_1>::fused(args, plane, block);
#endif
  TileBlur<BLUR_SPECIALISED_0>::fused(args, plane, block);
}
BLUR_ENTRY(blur_specialised, BLUR_FUSED_THREADS, 4, BLUR_SINGLE_PLANE, specialised_tile)
#else
#include "entries.cuh"
#endif
