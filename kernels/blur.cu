// SPDX-License-Identifier: MPL-2.0
// The exact separable Gaussian on CUDA cores: up to four planes of a frame in a launch.
//
// README.md beside this says how the kernels work, shared.h what a launch needs. Sums are integers modulo 2^32, so
// their order is free, and every kernel here gives the bytes of the arithmetic contract.
#include "alpha.h"
#include "stage.h"

#ifdef BLUR_ON_CPU
#define SHARED_MEMORY blur_shared
#else
extern __shared__ Words<4> blur_shared[];
#define SHARED_MEMORY reinterpret_cast<u8*>(blur_shared)
#endif

// sum + taps.low * byte 2*HALF + taps.high * byte 2*HALF+1.
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

// Where a kernel takes its radii from. The general build reads them from the parameter. A special build is for planes of
// one kind or two, Fixed<kind, radius along rows, down columns, of chroma along rows>: it unrolls what the general
// build loops over, and leaves out the multiplications with taps beyond the ends of a window.
struct Any {
  static constexpr bool KNOWN = false;
  static __device__ __forceinline__ int kind(const BlurPlane& plane) { return static_cast<int>(plane.kind); }
  static __device__ __forceinline__ int radius(const BlurArgs& args, int kind, int axis) {
    return static_cast<int>(args.radius[kind][axis]);
  }
};
template <int KIND, int ROWS, int COLUMNS, int CHROMA_ROWS> struct Fixed {
  static constexpr bool KNOWN = true;
  static __device__ __forceinline__ constexpr int kind(const BlurPlane&) { return KIND; }
  static __device__ __forceinline__ constexpr int radius(const BlurArgs&, int kind, int axis) {
    return axis == 1 ? COLUMNS : kind == KIND ? ROWS : CHROMA_ROWS;
  }
};

// The weight at a signed distance from the centre.
template <class R> __device__ __forceinline__ u32 tap(const BlurArgs& args, int kind, int axis, int distance) {
  const int radius = R::radius(args, kind, axis), i = distance < 0 ? -distance : distance;
  if (i > radius) return 0;
  return radius == 0 ? 65536 : args.taps[kind][axis][i];
}

// Source pixels to each side that a plane's rows reach: of packed 4:2:2 the pairs that luma and chroma reach.
template <class P, class R> __device__ __forceinline__ int rows_reach(const BlurArgs& args, int kind) {
  const int rows = R::radius(args, kind, 0);
  if (!P::IS_YUV422) return rows;
  const int luma = (rows + 1) / 2, chroma = R::radius(args, 1, 0);
  return luma > chroma ? luma : chroma;
}

// Row taps in shared memory, one Words<4> for each four source samples of the window, which starts up(radius, 4)
// samples before the first output. Element k of 16-bit samples: the four taps themselves. Of 8-bit samples: two pairs
// (t[i], t[i+1]) at even i and the two pairs (t[i-1], t[i]), for outputs at even and at odd positions. Packed 4:2:2
// has those of chroma behind them.
struct RowTaps {
  Words<4>* own;
  int radius, chroma_radius;

  static __device__ __forceinline__ int length(int radius) { return (radius + 3) / 4 * 2 + 1; }
  __device__ __forceinline__ Words<4>* chroma() const { return own + length(radius); }
};

template <class T, class R>
__device__ __forceinline__ void expand(const BlurArgs& args, int kind, Words<4>* to, int threads) {
  const int radius = R::radius(args, kind, 0), reach = (radius + 3) / 4 * 4;
#pragma unroll 1
  for (int k = threadIdx.x; k < RowTaps::length(radius); k += threads) {
    const int i = 4 * k - reach;
    if constexpr (sizeof(T) == 1) {
      // A lone tap of 65536 becomes 0 here; weigh_rows knows it.
      u32 t[5];
#pragma unroll
      for (int n = 0; n < 5; n++) t[n] = tap<R>(args, kind, 0, i - 1 + n) & 0xffff;
      to[k] = {{t[1] | t[2] << 16, t[0] | t[1] << 16, t[3] | t[4] << 16, t[2] | t[3] << 16}};
    } else {
      u32 t[4];
#pragma unroll
      for (int n = 0; n < 4; n++) t[n] = tap<R>(args, kind, 0, i + n);
      to[k] = {{t[0], t[1], t[2], t[3]}};
    }
  }
}

// Expands a plane's row taps to `memory`; gives where they end.
template <class P, class R>
__device__ __forceinline__ u8* expand_row_taps(const BlurArgs& args, int kind, u8* memory, int threads, RowTaps& taps) {
  taps = {at<Words<4>>(memory, 0), R::radius(args, kind, 0), P::IS_YUV422 ? R::radius(args, 1, 0) : 0};
  expand<typename P::T, R>(args, kind, taps.own, threads);
  if (!P::IS_YUV422) return at<u8>(taps.chroma(), 0);
  expand<typename P::T, R>(args, 1, taps.chroma(), threads);
  return at<u8>(taps.chroma() + RowTaps::length(taps.chroma_radius), 0);
}

// Column taps, zeros on both ends: element ROWS + k weighs ring row k of a thread's window in its output row 0.
template <class R, int ROWS, int CHUNK>
__device__ __forceinline__ void expand_column_taps(const BlurArgs& args, int kind, u32* to, int threads) {
  const int radius = R::radius(args, kind, 1), length = ROWS + (2 * radius + ROWS + CHUNK - 1) / CHUNK * CHUNK;
#pragma unroll 1
  for (int k = threadIdx.x; k < length; k += threads) to[k] = tap<R>(args, kind, 1, k - ROWS - radius);
}

// Weighs the windows of four neighbouring outputs of PLANES runs of samples; plane_at(p) is where the run p begins,
// from `source` on. Sums of 8-bit samples have 24 bits, of 16-bit samples 32; the intermediate is the upper 16 of them.
template <class T, class R, int PLANES, class At>
__device__ __forceinline__ void weigh_rows(
    u32 (&sum)[PLANES][4], const Words<sizeof(T)>* source, At plane_at, const Words<4>* taps, int radius) {
  [[maybe_unused]] constexpr int UNROLL = R::KNOWN ? 64 : sizeof(T) == 1 ? 2 : 1;
#pragma unroll
  for (int p = 0; p < PLANES; p++)
#pragma unroll
    for (int i = 0; i < 4; i++) sum[p][i] = sizeof(T) == 1 ? 128 : 32768;

  const int reach = (radius + 3) / 4 * 4, steps = (radius + 3) / 4 * 2 + 1;
  // Whether any of `count` samples of the window, from `first` on, has a tap for output i.
  auto counts = [&](int first, int count, int i) {
    const int centre = i + reach;
    return !R::KNOWN || (first + count > centre - radius && first <= centre + radius);
  };
  Words<4> before = {};
#pragma unroll UNROLL
  for (int k = 0; k < steps; k++) {
    const Words<4> now = taps[k];
#pragma unroll
    for (int p = 0; p < PLANES; p++) {
      const auto samples = source[plane_at(p) + k];
      if constexpr (sizeof(T) == 1) {
        const u32 four = samples.word[0];
#pragma unroll
        for (int i = 0; i < 4; i++) {
          const u32 low = i < 2 ? now.word[i] : before.word[i], high = now.word[i < 2 ? i + 2 : i - 2];
          if (counts(4 * k, 2, i)) sum[p][i] = dot<0>(sum[p][i], low, four);
          if (counts(4 * k + 2, 2, i)) sum[p][i] = dot<1>(sum[p][i], high, four);
        }
      } else {
#pragma unroll
        for (int s = 0; s < 4; s++) {
          const u32 sample = s % 2 ? samples.word[s / 2] >> 16 : samples.word[s / 2] & 0xffff;
#pragma unroll
          for (int i = 0; i < 4; i++)
            if (counts(4 * k + s, 1, i)) sum[p][i] += (s >= i ? now.word[s - i] : before.word[4 + s - i]) * sample;
        }
      }
    }
    before = now;
  }
  if (sizeof(T) == 1 && radius == 0) {
#pragma unroll
    for (int p = 0; p < PLANES; p++)
#pragma unroll
      for (int i = 0; i < 4; i++) sum[p][i] += (source[plane_at(p)].word[0] >> 8 * i & 255) << 16;
  }
}

// One item of the rows pass: four output pixels of all channels in LINES rows, which are `stage.row` apart. `to` takes
// the pixels of the first `lines` rows as they lie in the plane, 16 bits a sample, rows `pitch` bytes apart.
template <class P, class R, int LINES>
__device__ __forceinline__ void rows_pass(
    const Stage<P>& stage, const BlurPlane& plane, int row, int group, const RowTaps& taps, u8* to, u64 pitch,
    int lines) {
  using T = typename P::T;
  constexpr int C = P::C, HIGHS = sizeof(T) == 1 ? 0x6521 : 0x7632;
  const auto* source = stage.groups + row * stage.row;
  u32 mid[LINES][2 * C];
  if constexpr (P::IS_YUV422) {
    static_assert(LINES == 1, "as wide as four channels");
    u32 luma[2][4], chroma[2][4];
    // The stage reaches as far as both need, the windows as far as each needs.
    const int luma_start = (2 * stage.reach - staged_reach(taps.radius)) / 4;
    const int chroma_start = (stage.reach - staged_reach(taps.chroma_radius)) / 4;
    weigh_rows<T, R>(luma, source + 2 * group + luma_start, [](int p) { return p; }, taps.own, taps.radius);
    weigh_rows<T, R>(chroma, source + 2 * stage.plane + group + chroma_start, [&](int p) { return p * stage.plane; },
                     taps.chroma(), taps.chroma_radius);
    const u32 order = plane.luma & 1 ? (HIGHS & 0xff) << 8 | HIGHS >> 8 : HIGHS;
#pragma unroll
    for (int m = 0; m < 2 * C; m++) mid[0][m] = permute(luma[m / 4][m % 4], chroma[m % 2][m / 2], order);
  } else {
    u32 sum[C * LINES][4];
    auto plane_at = [&](int p) { return p / C * stage.row + p % C * stage.plane; };
    weigh_rows<T, R>(sum, source + group, plane_at, taps.own, taps.radius);
#pragma unroll
    for (int line = 0; line < LINES; line++)
#pragma unroll
      for (int m = 0; m < 2 * C; m++) {
        const int a = 2 * m, b = a + 1;
        mid[line][m] = permute(sum[line * C + a % C][a / C], sum[line * C + b % C][b / C], HIGHS);
      }
  }

  constexpr int N = C % 2 == 0 ? 4 : 2;
#pragma unroll
  for (int line = 0; line < LINES; line++)
#pragma unroll
    for (int m = 0; m < 2 * C; m += N) {
      Words<N> vector;
#pragma unroll
      for (int k = 0; k < N; k++) vector.word[k] = mid[line][m + k];
      if (line < lines) *at<Words<N>>(to, line * pitch + m * 4) = vector;
    }
}

// Rows that one item of the rows pass makes.
template <class P> constexpr int ITEM_LINES = P::C == 1 ? 4 : P::C == 2 ? 2 : 1;

// All items of ROWS staged rows, to rows `pitch` bytes apart from `to` on.
template <class P, class R, int ROWS, int THREADS>
__device__ __forceinline__ void all_rows(
    const Stage<P>& stage, const BlurPlane& plane, const RowTaps& taps, u8* to, u64 pitch) {
  using S = Shape<P>;
  constexpr int LINES = ITEM_LINES<P>, ITEMS = S::GROUPS * ROWS / LINES;
  static_assert(ITEMS % THREADS == 0, "no thread is idle");
#pragma unroll 1
  for (int item = threadIdx.x; item < ITEMS; item += THREADS) {
    const int row = item / S::GROUPS * LINES, group = item % S::GROUPS;
    rows_pass<P, R, LINES>(stage, plane, row, group, taps, to + row * pitch + group * (8 * P::C), pitch, LINES);
  }
}

// Adds rows k .. k+3 of a thread's window of the intermediate, four samples wide, to its ROWS output rows. `taps` are
// the expanded ones that belong to row k. With k known when compiled (UNROLLED) each tap comes from the parameter.
template <class R, bool UNROLLED, int ROWS>
__device__ __forceinline__ void add_four_rows(
    const BlurArgs& args, int kind, u32 (&sum)[ROWS][4], const u8* from, u32 pitch, const u32* taps, int k) {
  u32 weight[ROWS + 4];
#pragma unroll
  for (int i = 0; i < ROWS + 4 && !UNROLLED; i += 4) {
    const auto four = *at<const Words<4>>(taps, i * 4);
#pragma unroll
    for (int n = 0; n < 4; n++) weight[i + n] = four.word[n];
  }
#pragma unroll
  for (int row = 0; row < 4; row++) {
    const auto pairs = *at<const Words<2>>(from, row * pitch);
    const u32 mid[4] = {pairs.word[0] & 0xffff, pairs.word[0] >> 16, pairs.word[1] & 0xffff, pairs.word[1] >> 16};
#pragma unroll
    for (int n = 0; n < ROWS; n++) {
      const int radius = R::radius(args, kind, 1), distance = k + row - n - radius;
      if (UNROLLED && (distance < -radius || distance > radius)) continue;
      const u32 w = UNROLLED ? tap<R>(args, kind, 1, distance) : weight[ROWS + row - n];
#pragma unroll
      for (int i = 0; i < 4; i++) sum[n][i] += w * mid[i];
    }
  }
}

// Bits of the i-th of four neighbouring samples.
template <class P> __device__ __forceinline__ u32 depth_of(const BlurPlane& plane, int i) {
  return P::IS_TEN && i == 3 ? 2 : plane.depth;
}

template <class P, int ROWS>
__device__ __forceinline__ void start_sums(const BlurPlane& plane, u32 (&sum)[ROWS][4]) {
#pragma unroll
  for (int n = 0; n < ROWS; n++)
#pragma unroll
    for (int i = 0; i < 4; i++) sum[n][i] = 1u << (31 - depth_of<P>(plane, i));
}

// Writes four samples of up to ROWS rows from `y` on, to column `sample`, both within the plane's bounds.
template <class P, int ROWS>
__device__ __forceinline__ void write_out(
    const BlurPlane& plane, u32 (&sum)[ROWS][4], int y, int y_end, int sample, int samples) {
  constexpr int EACH = P::IS_TEN ? 1 : sizeof(typename P::T), BYTES = 4 * EACH;
  const bool words = (reinterpret_cast<u64>(plane.dst) | plane.dst_pitch) % BYTES == 0 && sample + 4 <= samples;
  u8* to = plane.dst + static_cast<u64>(y) * plane.dst_pitch + sample * EACH;
  const int bytes = (samples - sample < 4 ? samples - sample : 4) * EACH;
  const int rows = y_end - y;
  u32 out[ROWS][EACH];
#pragma unroll
  for (int n = 0; n < ROWS; n++) {
    if constexpr (P::IS_TEN) {
      out[n][0] = sum[n][0] >> 22 | sum[n][1] >> 22 << 10 | sum[n][2] >> 22 << 20 | sum[n][3] >> 30 << 30;
    } else if constexpr (EACH == 1) {
      out[n][0] = permute(permute(sum[n][0], sum[n][1], 0x73), permute(sum[n][2], sum[n][3], 0x73), 0x5410);
    } else {
      const u32 down = 32 - plane.depth;
      out[n][0] = (sum[n][0] >> down | sum[n][1] >> down << 16) << plane.low;
      out[n][1] = (sum[n][2] >> down | sum[n][3] >> down << 16) << plane.low;
    }
  }
  if (words) {
#pragma unroll
    for (int n = 0; n < ROWS; n++) {
      Words<EACH> vector;
#pragma unroll
      for (int k = 0; k < EACH; k++) vector.word[k] = out[n][k];
      if (n < rows) *at<Words<EACH>>(to, 0) = vector;
      to += plane.dst_pitch;
    }
    return;
  }
#pragma unroll 1
  for (int i = 0; i < bytes; i++) {
    u8* line = to + i;
#pragma unroll
    for (int n = 0; n < ROWS; n++) {
      if (n < rows) *line = static_cast<u8>(permute(out[n][0], out[n][EACH - 1], i));
      line += plane.dst_pitch;
    }
  }
}

// Which part of which plane a block makes: strips across, steps down.
struct Block {
  int plane, strip, step;

  // Of a launch that has but one plane that is known when compiled, and so is where its fields are in the parameter.
  __device__ __forceinline__ Block(const BlurArgs& args, bool alone) {
    const u32 block = blockIdx.x;
    plane = 0;
#pragma unroll
    for (int p = 1; p < BLUR_PLANES && !alone; p++) plane += block >= args.planes[p].first_block;
    const u32 own = block - args.planes[plane].first_block, strips = args.planes[plane].strips;
    strip = static_cast<int>(own % strips);
    step = static_cast<int>(own / strips);
  }
};

// A block walks down its strip BLUR_FUSED_STEP rows at a time. The ring holds the intermediate of the rows that the
// next output rows reach.
template <class P, class R>
__device__ __forceinline__ void blur_fused(const BlurArgs& args, const BlurPlane& plane, const Block& block) {
  using S = Shape<P>;
  constexpr int THREADS = BLUR_FUSED_THREADS, STEP = BLUR_FUSED_STEP, ROWS = BLUR_FUSED_THREAD_ROWS;
  constexpr u32 PITCH = S::SAMPLES * 2;
  constexpr int ACROSS = S::SAMPLES / 4;
  [[maybe_unused]] constexpr int COLUMN_UNROLL = R::KNOWN ? 16 : 1;
  static_assert(ACROSS * (STEP / ROWS) <= THREADS, "one step's output rows are one item per thread");
  const int kind = R::kind(plane), radius = R::radius(args, kind, 1);
  const int lag = (2 * radius + STEP - 1) / STEP, ring_rows = (lag + 1) * STEP;

  u8* ring = SHARED_MEMORY;
  RowTaps row_taps;
  u8* behind = expand_row_taps<P, R>(args, kind, ring + ring_rows * PITCH, THREADS, row_taps);
  auto* column_taps = at<u32>(behind, 0);
  const int column_taps_length = ROWS + (2 * radius + ROWS + 3) / 4 * 4;
  expand_column_taps<R, ROWS, 4>(args, kind, column_taps, THREADS);
  const Stage<P> stage(at<u8>(column_taps, column_taps_length * 4), rows_reach<P, R>(args, kind));

  const int height = static_cast<int>(args.segment_rows);
  const int y_begin = static_cast<int>(plane.row_begin) + block.step * height;
  const int y_last = static_cast<int>(plane.row_end), y_end = y_begin + height < y_last ? y_begin + height : y_last;
  const int samples = static_cast<int>(plane.width) * P::C;
  const int across = threadIdx.x % ACROSS, down = threadIdx.x / ACROSS * ROWS;
  const int sample = block.strip * S::SAMPLES + across * 4;

  Loader<P, STEP, THREADS> loader(plane, stage, block.strip, y_end + radius);
  int fill = 0;
  // In each turn the next step's rows are on their way while this step's are worked on; the first turn has no work.
#pragma unroll 1
  for (int y = y_begin - (lag + 1) * STEP; y < y_end; y += STEP) {
    const int y_next = y + (lag + 1) * STEP - radius;
    const bool more = y + STEP < y_end;
    if (more) loader.load(y_next);
    if (y >= y_begin - lag * STEP) {
      all_rows<P, R, STEP, THREADS>(stage, plane, row_taps, ring + fill * PITCH, PITCH);
      __syncthreads();
      fill = fill + STEP == ring_rows ? 0 : fill + STEP;
    }
    // The oldest row of the ring is now at `fill`.
    if (y >= y_begin && down < STEP && sample < samples && y + down < y_end) {
      u32 sum[ROWS][4];
      start_sums<P>(plane, sum);
      int row = fill + down;
      if (row >= ring_rows) row -= ring_rows;
      const u8* column = ring + across * 8;
#pragma unroll COLUMN_UNROLL
      for (int k = 0; k < 2 * radius + ROWS; k += 4) {
        add_four_rows<R, R::KNOWN>(args, kind, sum, column + row * PITCH, PITCH, column_taps + k, k);
        row = row + 4 == ring_rows ? 0 : row + 4;
      }
      write_out<P>(plane, sum, y + down, y_end, sample, samples);
    }
    if (more) loader.store(y_next);
    __syncthreads();
  }
}

template <class P>
__device__ __forceinline__ void blur_rows(const BlurArgs& args, const BlurPlane& plane, const Block& block) {
  using S = Shape<P>;
  constexpr int THREADS = BLUR_ROWS_THREADS, STEP = BLUR_ROWS_STEP, LINES = ITEM_LINES<P>;
  static_assert(S::GROUPS * STEP / LINES == THREADS, "one item per thread");
  const int kind = Any::kind(plane), y = static_cast<int>(plane.row_begin) + block.step * STEP;
  const int chroma = P::IS_YUV422 ? RowTaps::length(Any::radius(args, 1, 0)) : 0;
  u8* staged = SHARED_MEMORY + (RowTaps::length(Any::radius(args, kind, 0)) + chroma) * 16;
  const Stage<P> stage(staged, rows_reach<P, Any>(args, kind));
  Loader<P, STEP, THREADS> loader(plane, stage, block.strip, static_cast<int>(plane.row_end));
  loader.load(y);
  RowTaps row_taps;
  expand_row_taps<P, Any>(args, kind, SHARED_MEMORY, THREADS, row_taps);
  loader.store(y);
  __syncthreads();

  const int row = threadIdx.x / S::GROUPS * LINES, group = threadIdx.x % S::GROUPS;
  u8* to = plane.scratch + (y + row) * plane.scratch_pitch + (block.strip * S::GROUPS + group) * (8 * P::C);
  rows_pass<P, Any, LINES>(stage, plane, row, group, row_taps, to, plane.scratch_pitch,
                           static_cast<int>(plane.row_end) - y - row);
}

// Threads go 64 across and 4 down; each makes four samples of 16 rows. The block's window comes through shared memory
// in chunks of 16 rows, two in turn.
__device__ __forceinline__ void columns(const BlurArgs& args, const BlurPlane& plane, const Block& block) {
  constexpr int THREADS = BLUR_COLUMNS_THREADS, STEP = BLUR_COLUMNS_STEP, ROWS = BLUR_COLUMNS_THREAD_ROWS;
  constexpr int CHUNK = BLUR_COLUMNS_CHUNK, ACROSS = BLUR_COLUMNS_STRIP_SAMPLES / 4;
  constexpr u32 PITCH = BLUR_COLUMNS_STRIP_SAMPLES * 2;
  static_assert(ACROSS * STEP / ROWS == THREADS && CHUNK == ROWS, "threads cover the block, windows start on chunks");
  const int kind = Any::kind(plane), radius = Any::radius(args, kind, 1);
  u8* chunks = SHARED_MEMORY;
  auto* taps = at<u32>(chunks, 2 * CHUNK * PITCH);
  expand_column_taps<Any, ROWS, CHUNK>(args, kind, taps, THREADS);

  const int y_begin = static_cast<int>(plane.row_begin) + block.step * STEP, y_last = static_cast<int>(plane.row_end);
  const int y_end = y_begin + STEP < y_last ? y_begin + STEP : y_last;
  const int samples = static_cast<int>(plane.width * plane.channels);
  const int across = threadIdx.x % ACROSS, down = threadIdx.x / ACROSS;
  const int sample = block.strip * BLUR_COLUMNS_STRIP_SAMPLES + across * 4;

  // A thread loads 16 bytes, of every 8th row. What lies beyond the scratch is not used: any bytes do.
  constexpr int LOADS = CHUNK * PITCH / 16 / THREADS, ROWS_APART = CHUNK / LOADS;
  const int load_row = threadIdx.x / (PITCH / 16), load_byte = threadIdx.x % (PITCH / 16) * 16;
  const u64 strip_byte = static_cast<u64>(block.strip) * PITCH + load_byte;
  const u64 pitch = plane.scratch_pitch;
  const u8* column = plane.scratch + (strip_byte < pitch ? strip_byte : 0);
  const int last_row = clamp(y_end + radius, 1, static_cast<int>(plane.height)) - 1;
  u32 held[LOADS][4];
  auto load = [&](int chunk) {
#pragma unroll
    for (int i = 0; i < LOADS; i++) {
      const int y = clamp(y_begin - radius + chunk * CHUNK + load_row + i * ROWS_APART, 0, last_row);
      const auto vector = *at<const Words<4>>(column, static_cast<u64>(y) * pitch);
#pragma unroll
      for (int k = 0; k < 4; k++) held[i][k] = vector.word[k];
    }
  };

  u32 sum[ROWS][4];
  start_sums<Plain<u8, 1>>(plane, sum);
  if (plane.ten) start_sums<Ten>(plane, sum);
  const int window = (2 * radius + ROWS + CHUNK - 1) / CHUNK;
  const int last = (y_end - y_begin + ROWS - 1) / ROWS - 1 + window;
  load(0);
#pragma unroll 1
  for (int chunk = 0; chunk < last; chunk++) {
    u8* slot = chunks + chunk % 2 * (CHUNK * PITCH);
#pragma unroll
    for (int i = 0; i < LOADS; i++) {
      const u32(&row)[4] = held[i];
      *at<Words<4>>(slot, (load_row + i * ROWS_APART) * PITCH + load_byte) = {{row[0], row[1], row[2], row[3]}};
    }
    __syncthreads();
    if (chunk + 1 < last) load(chunk + 1);
    const int mine = chunk - down;
    if (mine >= 0 && mine < window) {
#pragma unroll 1
      for (int k = 0; k < CHUNK && mine * CHUNK + k < 2 * radius + ROWS; k += 4)
        add_four_rows<Any, false>(args, kind, sum, slot + k * PITCH + across * 8, PITCH, taps + mine * CHUNK + k, 0);
    }
  }
  if (sample >= samples) return;
  const int y = y_begin + down * ROWS;
  if (plane.ten)
    write_out<Ten>(plane, sum, y, y_end, sample, samples);
  else if (plane.depth == 8)
    write_out<Plain<u8, 1>>(plane, sum, y, y_end, sample, samples);
  else
    write_out<Plain<u16, 1>>(plane, sum, y, y_end, sample, samples);
}

// Blocks per multiprocessor that the kernels leave registers for. The portable PTX takes fewer: what becomes of it on
// older and on later chips needs more registers, and would spill.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 750
#define FUSED_BLOCKS(T) (sizeof(T) == 1 ? 5 : 4)
#define FUSED_BLOCKS_YUV422 4
#define FUSED_BLOCKS_C12(T) (__CUDA_ARCH__ >= 1200 ? 3 : FUSED_BLOCKS(T))
#define COLUMNS_BLOCKS 2
#else
#define FUSED_BLOCKS(T) 3
#define FUSED_BLOCKS_YUV422 3
#define FUSED_BLOCKS_C12(T) 3
#define COLUMNS_BLOCKS 1
#endif
#define BLUR_ENTRY(name, threads, blocks, alone, call) \
  extern "C" __global__ void __launch_bounds__(threads, blocks) name(const BlurArgs args) { \
    const Block block(args, alone); \
    const BlurPlane& plane = args.planes[block.plane]; \
    call(args, plane, block); \
  }
#define BLUR_PIXELS(name, blocks, alone, fused, rows) \
  BLUR_ENTRY(blur_fused_##name, BLUR_FUSED_THREADS, blocks, alone, fused) \
  BLUR_ENTRY(blur_rows_##name, BLUR_ROWS_THREADS, 4, alone, rows)
#define BLUR_ONE(name, blocks, P) BLUR_PIXELS(name, blocks, true, (blur_fused<P, Any>), (blur_rows<P>))
#define BLUR_SAMPLE(T) \
  BLUR_PIXELS(T##_c12, FUSED_BLOCKS_C12(T), false, fused_c12<T>, rows_c12<T>) \
  using T##_c3 = Plain<T, 3>; \
  BLUR_ONE(T##_c3, FUSED_BLOCKS(T), T##_c3) \
  using T##_c4 = Plain<T, 4>; \
  BLUR_ONE(T##_c4, FUSED_BLOCKS(T), T##_c4)

// Planes of one channel and of two in one launch, as in NV12.
template <class T>
__device__ __forceinline__ void fused_c12(const BlurArgs& args, const BlurPlane& plane, const Block& block) {
  if (plane.channels == 1)
    blur_fused<Plain<T, 1>, Any>(args, plane, block);
  else
    blur_fused<Plain<T, 2>, Any>(args, plane, block);
}
template <class T>
__device__ __forceinline__ void rows_c12(const BlurArgs& args, const BlurPlane& plane, const Block& block) {
  if (plane.channels == 1)
    blur_rows<Plain<T, 1>>(args, plane, block);
  else
    blur_rows<Plain<T, 2>>(args, plane, block);
}

// BLUR_SPECIAL_0 is what planes of kind 0 go through, blur_fused with its pixels and radii; BLUR_SPECIAL_1 the same for
// kind 1, if there are any. BLUR_ALONE says whether there is but one plane.
#ifdef BLUR_SPECIAL_0
__device__ __forceinline__ void blur_kinds(const BlurArgs& args, const BlurPlane& plane, const Block& block) {
#ifdef BLUR_SPECIAL_1
  if (plane.kind == 1) return blur_fused<BLUR_SPECIAL_1>(args, plane, block);
#endif
  blur_fused<BLUR_SPECIAL_0>(args, plane, block);
}
BLUR_ENTRY(blur_special, BLUR_FUSED_THREADS, 4, BLUR_ALONE, blur_kinds)
#else
BLUR_SAMPLE(u8)
BLUR_SAMPLE(u16)
BLUR_ONE(yuv422, FUSED_BLOCKS_YUV422, Yuv422)
BLUR_ONE(ten, FUSED_BLOCKS(u16), Ten)
BLUR_ENTRY(blur_columns, BLUR_COLUMNS_THREADS, COLUMNS_BLOCKS, false, columns)
extern "C" __global__ void __launch_bounds__(BLUR_ALPHA_THREADS) blur_multiply(const AlphaArgs args) { multiply(args); }
extern "C" __global__ void __launch_bounds__(BLUR_ALPHA_THREADS) blur_finish(const AlphaArgs args) { finish(args); }
#endif
