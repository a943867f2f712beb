// SPDX-License-Identifier: MPL-2.0
// The levels of the wide form on CUDA cores: decimation of rows and columns in one pass over the source, and
// interpolation of columns and rows in one pass over the destination, by 2 or 4 along both axes. docs/ARITHMETIC.md has
// the filters, README.md in this folder the algorithms.
//
// A block is a strip of BLUR_LEVEL_THREADS threads that walks down the plane. A thread owns a few neighbouring pixels
// in all channels. What its neighbours need of a row goes through shared memory; everything along columns stays in its
// registers.
#ifndef BLUR_LEVEL_H
#define BLUR_LEVEL_H
#include "pixels.cuh"

// The plane and the place of a block in it.
struct LevelBlock {
  int plane, strip, segment;

  __device__ __forceinline__ explicit LevelBlock(const LevelArgs& args) {
    plane = 0;
#pragma unroll
    for (int p = 1; p < BLUR_PLANES; p++) plane += blockIdx.x >= args.planes[p].first_block;
    const u32 block = blockIdx.x - args.planes[plane].first_block, strips = args.planes[plane].strips;
    strip = static_cast<int>(block % strips);
    segment = static_cast<int>(block / strips);
  }
};

// Decimation by S of planes of C interleaved samples of type T. A group is four neighbouring pixels; it makes 4 / S
// pixels of the small plane.
template <class T, int C, int S> struct Decimation {
  static constexpr int THREADS = BLUR_LEVEL_THREADS;
  // Groups of a thread. The windows of its outputs reach from LEFT groups before its first group to RIGHT groups behind
  // it and further with each of its groups; the offset between them aligns both its loads and its stores.
  static constexpr int G = S == 4 ? (C == 1 ? 4 : C == 2 ? 2 : 1) : (C == 1 ? 2 : 1);
  static constexpr int LEFT = S == 4 ? 2 : 1, RIGHT = S == 4 ? 4 : 2, WINDOW = LEFT + RIGHT + 1;
  // The first group of the thread that makes the first pixels of the small plane.
  static constexpr int FIRST_GROUP = S == 4 ? -4 : -2;
  // Threads at the ends of a strip that only load.
  static constexpr int LEFT_THREADS = (LEFT + G - 1) / G, RIGHT_THREADS = (RIGHT + G - 1) / G;
  static constexpr int STRIP_THREADS = THREADS - LEFT_THREADS - RIGHT_THREADS;
  // Outputs of a thread in a row of the small plane, in all channels; PER_GROUP of them are neighbours in one channel.
  static constexpr int PER_GROUP = 4 / S, N = G * C * PER_GROUP;
  // Words of a group in one channel, and of all that a thread loads of a row.
  static constexpr int GROUP_WORDS = sizeof(T), WORDS = G * C * GROUP_WORDS;
  static constexpr int FACTOR = S == 4 ? 1 : 0;

  const LevelPlane& plane;
  const u8* src;
  int first_pixel, edge;
  bool vector_loads, partial;

  __device__ __forceinline__ Decimation(const LevelPlane& plane, int strip) : plane(plane), src(plane.src) {
    constexpr int CHUNK = 4 * G;
    const int width = static_cast<int>(plane.width), thread = static_cast<int>(threadIdx.x);
    first_pixel = static_cast<int>(plane.column_begin) * S
                  + 4 * (FIRST_GROUP + (strip * STRIP_THREADS + thread - LEFT_THREADS) * G);
    partial = width % CHUNK != 0;
    // Chunks beyond an edge load the nearest one inside and repeat its edge pixel.
    edge = first_pixel < 0 ? -1 : first_pixel >= width ? 1 : 0;
    vector_loads = (reinterpret_cast<u64>(src) | plane.src_pitch) % 16 == 0 && width >= CHUNK &&
                   !(partial && first_pixel + CHUNK > width);
  }

  // Loads the thread's pixels of a row as they lie in memory.
  __device__ __forceinline__ void load(int y, u32 (&raw)[WORDS]) const {
    const u8* row = src + static_cast<u64>(clamp(y, 0, static_cast<int>(plane.height) - 1)) * plane.src_pitch;
    const int width = static_cast<int>(plane.width);
    if (vector_loads) {
      const u8* chunk = row + clamp(first_pixel, 0, width - 4 * G) * static_cast<int>(C * sizeof(T));
      constexpr int V = WORDS % 4 == 0 ? 4 : WORDS % 2 == 0 ? 2 : 1;
#pragma unroll
      for (int i = 0; i < WORDS; i += V) {
        const auto vector = *offset_ptr<const Words<V>>(chunk, i * 4);
#pragma unroll
        for (int k = 0; k < V; k++) raw[i + k] = vector.word[k];
      }
      return;
    }
#pragma unroll
    for (int i = 0; i < WORDS; i++) {
      u32 word = 0;
#pragma unroll
      for (int b = 0; b < 4; b++) {
        const int byte = 4 * i + b, pixel = byte / static_cast<int>(C * sizeof(T));
        const int x = clamp(first_pixel + pixel, 0, width - 1);
        word |= static_cast<u32>(row[x * static_cast<int>(C * sizeof(T)) + byte % static_cast<int>(C * sizeof(T))])
                << 8 * b;
      }
      raw[i] = word;
    }
  }

  // Stores the loaded pixels deinterleaved and widened: by group and channel, four samples each.
  __device__ __forceinline__ void stage(const u32 (&raw)[WORDS], u32* to) const {
    u32 words[WORDS];
#pragma unroll
    for (int g = 0; g < G; g++)
#pragma unroll
      for (int c = 0; c < C; c++) {
        const u32* in = raw + g * C * GROUP_WORDS;
        u32* out = words + (g * C + c) * GROUP_WORDS;
        const int s0 = c, s1 = C + c, s2 = 2 * C + c, s3 = 3 * C + c;  // numbers of the channel's samples
        if constexpr (sizeof(T) == 1) {
          const u32 low = byte_perm(in[s0 / 4], in[s1 / 4], s0 % 4 | (4 + s1 % 4) << 4);
          const u32 high = byte_perm(in[s2 / 4], in[s3 / 4], s2 % 4 | (4 + s3 % 4) << 4);
          out[0] = byte_perm(low, high, 0x5410);
        } else {
          const u32 widen = 16 - plane.depth - plane.shift, mask = (0xffffu << (16 - plane.depth) & 0xffff) * 0x10001;
          out[0] =
              byte_perm(in[s0 / 2], in[s1 / 2], (s0 % 2 ? 0x32 : 0x10) | (s1 % 2 ? 0x7600 : 0x5400)) << widen & mask;
          out[1] =
              byte_perm(in[s2 / 2], in[s3 / 2], (s2 % 2 ? 0x32 : 0x10) | (s3 % 2 ? 0x7600 : 0x5400)) << widen & mask;
        }
      }
    if (edge != 0 && vector_loads) {
#pragma unroll
      for (int c = 0; c < C; c++) {
        const u32* first = words + c * GROUP_WORDS;
        const u32* last = words + ((G - 1) * C + c) * GROUP_WORDS + GROUP_WORDS - 1;
        const u32 repeated = sizeof(T) == 1 ? byte_perm(edge < 0 ? *first : *last, 0, edge < 0 ? 0 : 0x3333)
                                            : byte_perm(edge < 0 ? *first : *last, 0, edge < 0 ? 0x1010 : 0x3232);
#pragma unroll
        for (int g = 0; g < G; g++)
#pragma unroll
          for (int k = 0; k < GROUP_WORDS; k++) words[(g * C + c) * GROUP_WORDS + k] = repeated;
      }
    }
    constexpr int V = WORDS % 4 == 0 ? 4 : WORDS % 2 == 0 ? 2 : 1;
#pragma unroll
    for (int i = 0; i < WORDS; i += V) {
      Words<V> vector;
#pragma unroll
      for (int k = 0; k < V; k++) vector.word[k] = words[i + k];
      *offset_ptr<Words<V>>(to, i * 4) = vector;
    }
  }

  // The thread's outputs along one staged row, 16 bits each: by group, position in the group and channel. `row` is the
  // thread's own part of it.
  __device__ __forceinline__ void convolve_row(const LevelArgs& args, const u32* row, u32 (&out)[N]) const {
    u32 low[N], high[N];
#pragma unroll
    for (int n = 0; n < N; n++) low[n] = sizeof(T) == 1 ? 128 : 32768, high[n] = 0;
#pragma unroll
    for (int neighbour = -LEFT_THREADS; neighbour <= RIGHT_THREADS; neighbour++) {
      u32 words[WORDS];
      constexpr int V = WORDS % 4 == 0 ? 4 : WORDS % 2 == 0 ? 2 : 1;
#pragma unroll
      for (int i = 0; i < WORDS; i += V) {
        const auto vector = *offset_ptr<const Words<V>>(row + neighbour * WORDS, i * 4);
#pragma unroll
        for (int k = 0; k < V; k++) words[i + k] = vector.word[k];
      }
#pragma unroll
      for (int other = 0; other < G; other++)
#pragma unroll
        for (int g = 0; g < G; g++) {
          const int w = neighbour * G + other - g + LEFT;  // group of the window of output group g
          if (w < 0 || w >= WINDOW) continue;
#pragma unroll
          for (int p = 0; p < PER_GROUP; p++)
#pragma unroll
            for (int c = 0; c < C; c++) {
              const int n = (g * PER_GROUP + p) * C + c;
              const u32* samples = words + (other * C + c) * GROUP_WORDS;
              if constexpr (sizeof(T) == 1) {
                // Only the taps within 7 samples (factor 4) or 4 samples (factor 2) of the centre have a high byte.
                const bool has_high = S == 4 ? w >= 1 && w <= 4 : p == 0 ? w <= 2 : w >= 1;
                low[n] = dot4(low[n], args.byte_taps[FACTOR][0][4 * p + w], samples[0]);
                if (has_high) high[n] = dot4(high[n], args.byte_taps[FACTOR][1][4 * p + w], samples[0]);
              } else {
#pragma unroll
                for (int i = 0; i < 4; i++) {
                  const int k = 4 * w + i - 2 * p;
                  if (k < 0 || k > 6 * S) continue;
                  const u32 sample = i % 2 ? samples[i / 2] >> 16 : samples[i / 2] & 0xffff;
                  low[n] += args.taps[FACTOR][k] * sample;
                }
              }
            }
        }
    }
#pragma unroll
    for (int n = 0; n < N; n++) out[n] = sizeof(T) == 1 ? (low[n] + (high[n] << 8)) >> 8 : low[n] >> 16;
  }

  // Writes the thread's outputs of one row of the small plane.
  __device__ __forceinline__ void store(int strip, int row, const u32 (&sum)[N]) const {
    const int thread = static_cast<int>(threadIdx.x) - LEFT_THREADS;
    const int x = static_cast<int>(plane.column_begin) + (strip * STRIP_THREADS + thread) * G * PER_GROUP,
              end = static_cast<int>(plane.column_end);
    if (thread < 0 || thread >= STRIP_THREADS || x >= end) return;
    u8* to = plane.dst + static_cast<u64>(row) * plane.dst_pitch + x * C * 2;
    if (N % 4 == 0 && x + G * PER_GROUP <= end) {
#pragma unroll
      for (int n = 0; n < N; n += 4) {
        const Words<2> vector = {{byte_perm(sum[n], sum[n + 1], 0x7632), byte_perm(sum[n + 2], sum[n + 3], 0x7632)}};
        *offset_ptr<Words<2>>(to, n * 2) = vector;
      }
      return;
    }
#pragma unroll
    for (int n = 0; n < N; n++)
      if (x + n / C < end) *offset_ptr<u16>(to, n * 2) = static_cast<u16>(sum[n] >> 16);
  }

  // Rows of the small plane from top to bottom, S source rows per step. A source row adds to seven rows of the small
  // plane; sum[a] is that of the row whose window began `a` steps ago.
  static __device__ __forceinline__ void run(
      const LevelArgs& args, const LevelPlane& plane, const LevelBlock& block, u8* shared) {
    const Decimation tile(plane, block.strip);
    const int begin = static_cast<int>(plane.row_begin) + block.segment * static_cast<int>(args.segment_rows);
    const int end = begin + static_cast<int>(args.segment_rows) < static_cast<int>(plane.row_end)
                        ? begin + static_cast<int>(args.segment_rows)
                        : static_cast<int>(plane.row_end);
    constexpr int STEPS = 2 * BLUR_LEVEL_RADIUS;  // of a window, before its last row
    int y = S * (begin - STEPS);
    u32 raw[S][WORDS], sum[STEPS + 1][N];
#pragma unroll
    for (int a = 0; a <= STEPS; a++)
#pragma unroll
      for (int n = 0; n < N; n++) sum[a][n] = 32768;
#pragma unroll
    for (int r = 0; r < S; r++) tile.load(y + r, raw[r]);
    auto* staged = offset_ptr<u32>(shared, 0);
#pragma unroll 1
    for (int row = begin - STEPS; row < end; row++) {
      u32* own = staged + (row & 1) * (S * THREADS * WORDS) + threadIdx.x * WORDS;
#pragma unroll
      for (int r = 0; r < S; r++) tile.stage(raw[r], own + r * THREADS * WORDS);
      y += S;
      if (row + 1 < end) {
#pragma unroll
        for (int r = 0; r < S; r++) tile.load(y + r, raw[r]);
      }
      // The next step uses the other half of the memory, so one barrier per step is enough.
      __syncthreads();
      const int thread = static_cast<int>(threadIdx.x);
      if (thread >= LEFT_THREADS && thread < THREADS - RIGHT_THREADS) {
#pragma unroll
        for (int r = 0; r < S; r++) {
          u32 mid[N];
          tile.convolve_row(args, own + r * THREADS * WORDS, mid);
#pragma unroll
          for (int a = 0; a <= STEPS; a++) {
            if (a == STEPS && r > 0) continue;
#pragma unroll
            for (int n = 0; n < N; n++) sum[a][n] += args.taps[FACTOR][a * S + r] * mid[n];
          }
          if (r == 0 && row >= begin) tile.store(block.strip, row, sum[STEPS]);
        }
#pragma unroll
        for (int a = STEPS; a > 0; a--)
#pragma unroll
          for (int n = 0; n < N; n++) sum[a][n] = sum[a - 1][n];
#pragma unroll
        for (int n = 0; n < N; n++) sum[0][n] = 32768;
      }
    }
  }
};

// Interpolation by S to planes of C interleaved samples of type T.
template <class T, int C, int S> struct Interpolation {
  static constexpr int THREADS = BLUR_LEVEL_THREADS, TAPS = BLUR_PHASE_TAPS;
  // Pixels of the small plane that a thread owns, their samples, and the words of these. Its outputs need the pixels of
  // the next six too.
  static constexpr int G = C == 1 ? 4 : C == 2 ? 2 : 1, N = G * C, WORDS = 2;
  static constexpr int NEXT_THREADS = (TAPS - 1 + G - 1) / G, STRIP_THREADS = THREADS - NEXT_THREADS;
  static constexpr int FACTOR = S == 4 ? 1 : 0;
  // Output samples of a thread in a row, and their words.
  static constexpr int OUT = S * N, OUT_WORDS = OUT * static_cast<int>(sizeof(T)) / 4;

  const LevelPlane& plane;
  int x;  // first pixel of the small plane

  __device__ __forceinline__ Interpolation(const LevelPlane& plane, int strip)
      : plane(plane),
        x(static_cast<int>(plane.column_begin) / S + (strip * STRIP_THREADS + static_cast<int>(threadIdx.x)) * G) {}

  __device__ __forceinline__ void load(int row, u32 (&out)[N]) const {
    const int rows = static_cast<int>(plane.small_height), width = static_cast<int>(plane.small_width);
    const u8* from = plane.src + static_cast<u64>(row < rows ? row : rows - 1) * plane.src_pitch + x * C * 2;
    if (N == 4 && x + G <= width) {
      const auto pairs = *offset_ptr<const Words<2>>(from, 0);
#pragma unroll
      for (int n = 0; n < N; n++) out[n] = n % 2 ? pairs.word[n / 2] >> 16 : pairs.word[n / 2] & 0xffff;
      return;
    }
#pragma unroll
    for (int n = 0; n < N; n++) out[n] = x + n / C < width ? *offset_ptr<const u16>(from, n * 2) : 0;
  }

  // The thread's outputs of one row, from the interpolated columns of the row. `row` is the thread's own part of them.
  __device__ __forceinline__ void convolve_row(const LevelArgs& args, const u32* row, u32 (&sum)[OUT]) const {
    u32 mid[(NEXT_THREADS + 1) * N];
#pragma unroll
    for (int neighbour = 0; neighbour <= NEXT_THREADS; neighbour++) {
      const auto pairs = *offset_ptr<const Words<2>>(row + neighbour * WORDS, 0);
#pragma unroll
      for (int n = 0; n < N; n++)
        mid[neighbour * N + n] = n % 2 ? pairs.word[n / 2] >> 16 : pairs.word[n / 2] & 0xffff;
    }
#pragma unroll
    for (int g = 0; g < G; g++)
#pragma unroll
      for (int p = 0; p < S; p++)
#pragma unroll
        for (int c = 0; c < C; c++) {
          u32& out = sum[(g * S + p) * C + c];
          out = 1u << (31 - plane.depth);
          // The first tap belongs to phase 0 alone.
#pragma unroll
          for (int k = 0; k < TAPS; k++)
            if (k > 0 || p == 0) out += args.taps[FACTOR][p * TAPS + k] * mid[(g + k) * C + c];
        }
  }

  __device__ __forceinline__ void store(int y, const u32 (&sum)[OUT]) const {
    constexpr int BYTES = OUT * static_cast<int>(sizeof(T)), V = OUT_WORDS % 4 == 0 ? 4 : OUT_WORDS % 2 == 0 ? 2 : 1;
    const int pixels = static_cast<int>(plane.column_end) - x * S;
    if (pixels <= 0) return;
    u8* to = plane.dst + static_cast<u64>(y) * plane.dst_pitch + static_cast<u64>(x) * (S * C * sizeof(T));
    if constexpr (BYTES % 4 == 0) {
      u32 words[OUT_WORDS];
#pragma unroll
      for (int i = 0; i < OUT_WORDS; i++) {
        if constexpr (sizeof(T) == 1) {
          words[i] = byte_perm(
              byte_perm(sum[4 * i], sum[4 * i + 1], 0x73), byte_perm(sum[4 * i + 2], sum[4 * i + 3], 0x73), 0x5410);
        } else {
          const u32 down = 32 - plane.depth;
          words[i] = (sum[2 * i] >> down | sum[2 * i + 1] >> down << 16) << plane.shift;
        }
      }
      if (pixels >= S * G && (reinterpret_cast<u64>(plane.dst) | plane.dst_pitch) % (V * 4) == 0) {
#pragma unroll
        for (int i = 0; i < OUT_WORDS; i += V) {
          Words<V> vector;
#pragma unroll
          for (int k = 0; k < V; k++) vector.word[k] = words[i + k];
          *offset_ptr<Words<V>>(to, i * 4) = vector;
        }
        return;
      }
    }
#pragma unroll
    for (int n = 0; n < OUT; n++) {
      if (n / C >= pixels) continue;
      const u32 value = sum[n] >> (32 - plane.depth) << plane.shift;
      to[n * static_cast<int>(sizeof(T))] = static_cast<u8>(value);
      if (sizeof(T) == 2) to[n * 2 + 1] = static_cast<u8>(value >> 8);
    }
  }

  // Rows of the small plane from top to bottom. The seven rows that S output rows are computed from are in registers.
  static __device__ __forceinline__ void run(
      const LevelArgs& args, const LevelPlane& plane, const LevelBlock& block, u8* shared) {
    const Interpolation tile(plane, block.strip);
    const int row_begin = static_cast<int>(plane.row_begin), row_end = static_cast<int>(plane.row_end);
    const int begin = row_begin / S + block.segment * static_cast<int>(args.segment_rows);
    const int last = (row_end + S - 1) / S;
    const int end =
        begin + static_cast<int>(args.segment_rows) < last ? begin + static_cast<int>(args.segment_rows) : last;
    u32 window[TAPS][N], next[N];
#pragma unroll
    for (int k = 1; k < TAPS; k++) tile.load(begin + k - 1, window[k]);
    tile.load(begin + TAPS - 1, next);
    auto* staged = offset_ptr<u32>(shared, 0);
#pragma unroll 1
    for (int row = begin; row < end; row++) {
#pragma unroll
      for (int k = 0; k + 1 < TAPS; k++)
#pragma unroll
        for (int n = 0; n < N; n++) window[k][n] = window[k + 1][n];
#pragma unroll
      for (int n = 0; n < N; n++) window[TAPS - 1][n] = next[n];
      if (row + 1 < end) tile.load(row + TAPS, next);
      u32* own = staged + (row & 1) * (S * THREADS * WORDS) + threadIdx.x * WORDS;
#pragma unroll
      for (int p = 0; p < S; p++) {
        u32 mid[4] = {};
#pragma unroll
        for (int n = 0; n < N; n++) {
          mid[n] = 32768;
#pragma unroll
          for (int k = 0; k < TAPS; k++)
            if (k > 0 || p == 0) mid[n] += args.taps[FACTOR][p * TAPS + k] * window[k][n];
        }
        *offset_ptr<Words<2>>(
            own + p * THREADS * WORDS, 0) = {{byte_perm(mid[0], mid[1], 0x7632), byte_perm(mid[2], mid[3], 0x7632)}};
      }
      // The next row uses the other half of the memory, so one barrier per row is enough.
      __syncthreads();
      if (static_cast<int>(threadIdx.x) < STRIP_THREADS) {
#pragma unroll
        for (int p = 0; p < S; p++) {
          const int y = row * S + p;
          if (y < row_begin || y >= row_end) continue;
          u32 sum[OUT];
          tile.convolve_row(args, own + p * THREADS * WORDS, sum);
          tile.store(y, sum);
        }
      }
    }
  }
};

template <class T, int C> __device__ __forceinline__ void decimate(
    const LevelArgs& args, const LevelPlane& plane, const LevelBlock& block, u8* shared) {
  if (plane.factor == 4)
    Decimation<T, C, 4>::run(args, plane, block, shared);
  else
    Decimation<T, C, 2>::run(args, plane, block, shared);
}

template <class T, int C> __device__ __forceinline__ void interpolate(
    const LevelArgs& args, const LevelPlane& plane, const LevelBlock& block, u8* shared) {
  if (plane.factor == 4)
    Interpolation<T, C, 4>::run(args, plane, block, shared);
  else
    Interpolation<T, C, 2>::run(args, plane, block, shared);
}
#endif
