// SPDX-License-Identifier: MPL-2.0
// The exact separable Gaussian on CUDA cores: one plane, 8- or 16-bit samples, 1 to 4 interleaved channels.
//
// README.md beside this says how the kernels work, shared.h what a launch needs. Sums are integers modulo 2^32, so
// their order is free, and every kernel here gives the bytes of the arithmetic contract.
#include "shared.h"
#include "shim.h"

using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;

// N words that are loaded and stored as one.
template <int N> struct alignas(4 * N) Words {
  u32 word[N];
};

#ifdef BLUR_ON_CPU
#define SHARED_MEMORY blur_shared
#else
extern __shared__ Words<4> blur_shared[];
#define SHARED_MEMORY reinterpret_cast<u8*>(blur_shared)
#endif

template <class T> __device__ __forceinline__ T* at(const void* base, u64 byte) {
  return reinterpret_cast<T*>(const_cast<u8*>(static_cast<const u8*>(base)) + byte);
}

__device__ __forceinline__ int clamp(int value, int low, int high) {
  return value < low ? low : value > high ? high : value;
}

// Four bytes of the eight in (high, low), chosen by the four nibbles of the selector.
__device__ __forceinline__ u32 permute(u32 low, u32 high, u32 selector) {
#ifdef __CUDA_ARCH__
  u32 result;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(result) : "r"(low), "r"(high), "r"(selector));
  return result;
#else
  const u64 bytes = static_cast<u64>(high) << 32 | low;
  u32 result = 0;
  for (int i = 0; i < 4; i++) result |= static_cast<u32>(bytes >> (selector >> 4 * i & 7) * 8 & 255) << 8 * i;
  return result;
#endif
}

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

// The radius along rows (0) and down columns (1). A special build is for one pair of radii, BLUR_RADIUS_ROWS and
// BLUR_RADIUS_COLUMNS, one BLUR_SAMPLE_TYPE and one BLUR_CHANNEL_COUNT, and holds one fused kernel: it unrolls what the
// general build loops over, and leaves out the multiplications with taps beyond the ends of a window.
#ifdef BLUR_RADIUS_ROWS
constexpr bool SPECIAL = true;
#define RADIUS(args, axis) ((axis) == 0 ? BLUR_RADIUS_ROWS : BLUR_RADIUS_COLUMNS)
#else
constexpr bool SPECIAL = false;
#define RADIUS(args, axis) static_cast<int>(args.radius[axis])
#endif

// The weight at a signed distance from the centre.
__device__ __forceinline__ u32 tap(const BlurArgs& args, int axis, int distance) {
  const int radius = RADIUS(args, axis), i = distance < 0 ? -distance : distance;
  if (i > radius) return 0;
  return radius == 0 ? 65536 : args.taps[axis][i];
}

// What four neighbouring pixels, a group, are made of.
template <class T, int C> struct Shape {
  static constexpr int STRIP = C == 1   ? BLUR_STRIP_PIXELS_C1
                               : C == 2 ? BLUR_STRIP_PIXELS_C2
                               : C == 3 ? BLUR_STRIP_PIXELS_C3
                                        : BLUR_STRIP_PIXELS_C4;
  static constexpr int GROUPS = STRIP / 4;
  static constexpr int SAMPLES = STRIP * C;
  // A source group as it lies in memory, in bytes and words.
  static constexpr int BYTES = 4 * C * sizeof(T);
  static constexpr int WORDS = C * sizeof(T);
  // The widest load that a group starts aligned for.
  static constexpr int VECTOR = WORDS % 4 == 0 ? 4 : WORDS % 2 == 0 ? 2 : 1;
  // Four samples of one channel.
  using Planar = Words<sizeof(T)>;
};

// Source rows in shared memory, channels apart: row, channel, group. See `stage` in shared.h.
template <class T, int C> struct Stage {
  using Planar = typename Shape<T, C>::Planar;
  Planar* groups;
  int plane, row;

  __device__ __forceinline__ Stage(u8* memory, u32 radius) {
    groups = at<Planar>(memory, 0);
    plane = Shape<T, C>::GROUPS + static_cast<int>((radius + 3) / 4 * 2);
    row = (C * plane + 15) / 32 * 32 + 16;
  }
};

// Moves source rows into the stage. Each warp takes every (warps)th row; a lane loads one group at a time. Up to AHEAD
// groups per lane and row are loaded into registers by `load` and stored by `store`, so that work can go on in
// between.
//
// A group that reaches over the plane's edge is loaded from the nearest place inside and its pixels are shifted, which
// repeats the edge pixel. `store` moves directly what that leaves: groups that do not start on a word there, planes
// less than a group wide, rows of more than 32 * AHEAD groups.
template <class T, int C, int ROWS, int THREADS> struct Loader {
  using S = Shape<T, C>;
  static constexpr int WARPS = THREADS / 32, ROWS_EACH = ROWS / WARPS;
  static constexpr int AHEAD = C == 1 ? 3 : C == 2 ? 2 : 1;

  const BlurArgs& args;
  const Stage<T, C> stage;
  u32 held[ROWS_EACH][AHEAD][S::WORDS];
  int last_row, last_group, first_pixel, lane, warp;
  bool words, ragged, vectors, simple;

  // `end` is the row after the last that counts; below it the last row is repeated.
  __device__ __forceinline__ Loader(const BlurArgs& args, const Stage<T, C>& stage, int strip, int end)
      : args(args), stage(stage) {
    const int width = static_cast<int>(args.width);
    last_row = (end < static_cast<int>(args.height) ? end : static_cast<int>(args.height)) - 1;
    last_group = width - 4;
    first_pixel = strip * S::STRIP - static_cast<int>((RADIUS(args, 0) + 3u) / 4 * 4);
    lane = threadIdx.x % 32;
    warp = threadIdx.x / 32;
    const u64 alignment = reinterpret_cast<u64>(args.src) | args.src_pitch;
    words = alignment % 4 == 0 && width >= 4;
    vectors = alignment % (4 * S::VECTOR) == 0;
    ragged = width * C * static_cast<int>(sizeof(T)) % 4 != 0;
    simple = words && stage.plane <= 32 * AHEAD && (!ragged || first_pixel + 4 * stage.plane <= width);
  }

  __device__ __forceinline__ const u8* source_row(int y) const {
    return args.src + static_cast<u64>(clamp(y, 0, last_row)) * args.src_pitch;
  }

  // Whether load_group can load it.
  __device__ __forceinline__ bool whole(int group) const {
    return words && (!ragged || first_pixel + 4 * group <= last_group);
  }

  __device__ __forceinline__ void load_group(const u8* row, int group, u32 (&out)[S::WORDS]) const {
    const int x = clamp(first_pixel + 4 * group, 0, last_group);
    const u8* source = row + x * (C * static_cast<int>(sizeof(T)));
    if (vectors && x % 4 == 0) {
#pragma unroll
      for (int i = 0; i < S::WORDS / S::VECTOR; i++) {
        const auto vector = *at<const Words<S::VECTOR>>(source, i * sizeof(Words<S::VECTOR>));
#pragma unroll
        for (int k = 0; k < S::VECTOR; k++) out[i * S::VECTOR + k] = vector.word[k];
      }
    } else {
#pragma unroll
      for (int i = 0; i < S::WORDS; i++) out[i] = *at<const u32>(source, i * 4);
    }
  }

  // Sample by sample, with the edge pixels repeated. Rare, and so left small.
  __device__ __forceinline__ void put_any(const u8* source, int row, int group) const {
    auto* to = at<T>(stage.groups + row * stage.row + group, 0);
#pragma unroll 4
    for (int i = 0; i < 4 * C; i++) {
      const int pixel = i / C, channel = i % C;
      const int x = clamp(first_pixel + 4 * group + pixel, 0, static_cast<int>(args.width) - 1);
      const u8* sample = source + (x * C + channel) * static_cast<int>(sizeof(T));
      u32 value = sample[0];
      if (sizeof(T) == 2) value = (value | sample[1] << 8) << (16 - args.depth);
      to[channel * stage.plane * 4 + pixel] = static_cast<T>(value);
    }
  }

  // Puts a group's channels apart, widens 16-bit samples to all of their bits, and shifts a group from over the edge.
  __device__ __forceinline__ void put(int row, int group, const u32 (&in)[S::WORDS]) const {
    const int x = first_pixel + 4 * group, shift = clamp(x - clamp(x, 0, last_group), -3, 3);
    auto* to = stage.groups + row * stage.row + group;
    if constexpr (sizeof(T) == 1) {
      // 0x5410 puts (0, 1) and (4, 5) together in order.
      const u32 order = shift < 0 ? 0x5410u << -4 * shift : 0x55555410u >> 4 * shift;
#pragma unroll
      for (int c = 0; c < C; c++) {
        const int a = c, b = C + c, d = 2 * C + c, e = 3 * C + c;  // byte numbers of the four samples
        const u32 low = permute(in[a / 4], in[b / 4], a % 4 | (4 + b % 4) << 4);
        const u32 high = permute(in[d / 4], in[e / 4], d % 4 | (4 + e % 4) << 4);
        to[c * stage.plane] = {{permute(low, high, order & 0xffff)}};
      }
    } else {
      // Two nibbles a sample; the identity is 0x76543210.
      const u64 beyond = shift < 0 ? 0x7654321010101010ull >> (32 + 8 * shift) : 0x7676767676543210ull >> 8 * shift;
      const u32 order = static_cast<u32>(beyond), up = 16 - args.depth, mask = (0xffffu << up & 0xffff) * 0x10001;
#pragma unroll
      for (int c = 0; c < C; c++) {
        const int a = c, b = C + c, d = 2 * C + c, e = 3 * C + c;  // sample numbers
        const u32 low = permute(in[a / 2], in[b / 2], (a % 2 ? 0x32 : 0x10) | (b % 2 ? 0x7600 : 0x5400)) << up & mask;
        const u32 high = permute(in[d / 2], in[e / 2], (d % 2 ? 0x32 : 0x10) | (e % 2 ? 0x7600 : 0x5400)) << up & mask;
        to[c * stage.plane] = {{permute(low, high, order), permute(low, high, order >> 16)}};
      }
    }
  }

  __device__ __forceinline__ void load(int y) {
#pragma unroll
    for (int r = 0; r < ROWS_EACH; r++) {
      const u8* source = source_row(y + warp + r * WARPS);
#pragma unroll
      for (int k = 0; k < AHEAD; k++) {
        const int group = lane + 32 * k;
        if (group < stage.plane && whole(group)) load_group(source, group, held[r][k]);
      }
    }
  }

  // `y` is what `load` was called with.
  __device__ __forceinline__ void store(int y) const {
#pragma unroll
    for (int r = 0; r < ROWS_EACH; r++)
#pragma unroll
      for (int k = 0; k < AHEAD; k++) {
        const int group = lane + 32 * k;
        if (group < stage.plane && whole(group)) put(warp + r * WARPS, group, held[r][k]);
      }
    if (simple) return;
#pragma unroll 1
    for (int r = warp; r < ROWS; r += WARPS) {
      const u8* source = source_row(y + r);
#pragma unroll 1
      for (int group = lane; group < stage.plane; group += 32) {
        if (group < 32 * AHEAD && whole(group)) continue;
        if (whole(group)) {
          u32 direct[S::WORDS];
          load_group(source, group, direct);
          put(r, group, direct);
        } else {
          put_any(source, r, group);
        }
      }
    }
  }
};

// The row taps, one Words<4> for each four source samples of the window, which starts up(radius, 4) pixels before the
// first output. Element k of 16-bit samples: the four taps themselves. Of 8-bit samples: two pairs (t[i], t[i+1]) at
// even i and the two pairs (t[i-1], t[i]), for outputs at even and at odd positions.
template <class T> __device__ __forceinline__ void expand_row_taps(const BlurArgs& args, Words<4>* to, int threads) {
  const int reach = static_cast<int>((RADIUS(args, 0) + 3u) / 4 * 4);
#pragma unroll 1
  for (int k = threadIdx.x; k <= reach / 2; k += threads) {
    const int i = 4 * k - reach;
    if constexpr (sizeof(T) == 1) {
      // A lone tap of 65536 becomes 0 here; rows_pass knows it.
      u32 t[5];
#pragma unroll
      for (int n = 0; n < 5; n++) t[n] = tap(args, 0, i - 1 + n) & 0xffff;
      to[k] = {{t[1] | t[2] << 16, t[0] | t[1] << 16, t[3] | t[4] << 16, t[2] | t[3] << 16}};
    } else {
      to[k] = {{tap(args, 0, i), tap(args, 0, i + 1), tap(args, 0, i + 2), tap(args, 0, i + 3)}};
    }
  }
}

// Column taps, zeros on both ends: element ROWS + k weighs ring row k of a thread's window in its output row 0.
template <int ROWS, int CHUNK>
__device__ __forceinline__ void expand_column_taps(const BlurArgs& args, u32* to, int threads) {
  const int radius = RADIUS(args, 1), length = ROWS + (2 * radius + ROWS + CHUNK - 1) / CHUNK * CHUNK;
#pragma unroll 1
  for (int k = threadIdx.x; k < length; k += threads) to[k] = tap(args, 1, k - ROWS - radius);
}

// One item of the rows pass: four output pixels of all channels in LINES rows, which are `stage.row` apart. `to` takes
// the pixels of the first `lines` rows as they lie in the plane, 16 bits a sample, rows `pitch` bytes apart.
template <class T, int C, int LINES>
__device__ __forceinline__ void rows_pass(
    const Stage<T, C>& stage, int row, int group, const Words<4>* taps, u32 radius, u8* to, u64 pitch, int lines) {
  constexpr int PLANES = C * LINES;
  [[maybe_unused]] constexpr int UNROLL = SPECIAL ? 64 : sizeof(T) == 1 ? 2 : 1;
  const auto* source = stage.groups + row * stage.row + group;
  auto plane_at = [&](int p) { return p / C * stage.row + p % C * stage.plane; };
  u32 sum[PLANES][4];
#pragma unroll
  for (int p = 0; p < PLANES; p++)
#pragma unroll
    for (int i = 0; i < 4; i++) sum[p][i] = sizeof(T) == 1 ? 128 : 32768;

  const int reach = static_cast<int>((radius + 3) / 4 * 4), steps = static_cast<int>((radius + 3) / 4 * 2 + 1);
  // Whether any of `count` samples of the window, from `first` on, has a tap for output i.
  auto counts = [&](int first, int count, int i) {
    const int centre = i + reach, r = static_cast<int>(radius);
    return !SPECIAL || (first + count > centre - r && first <= centre + r);
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

#pragma unroll
  for (int line = 0; line < LINES; line++) {
    // 8-bit samples leave 24 bits in a sum, 16-bit samples 32; the intermediate is the upper 16 of them.
    u32 mid[2 * C];
#pragma unroll
    for (int m = 0; m < 2 * C; m++) {
      const int a = 2 * m, b = a + 1;
      mid[m] = permute(sum[line * C + a % C][a / C], sum[line * C + b % C][b / C], sizeof(T) == 1 ? 0x6521 : 0x7632);
    }
    constexpr int N = C % 2 == 0 ? 4 : 2;
#pragma unroll
    for (int m = 0; m < 2 * C; m += N) {
      Words<N> vector;
#pragma unroll
      for (int k = 0; k < N; k++) vector.word[k] = mid[m + k];
      if (line < lines) *at<Words<N>>(to, line * pitch + m * 4) = vector;
    }
  }
}

// All items of ROWS staged rows. `row_to(row)` says where the strip's first pixel of a row goes.
template <class T, int C, int ROWS, int THREADS>
__device__ __forceinline__ void all_rows(
    const Stage<T, C>& stage, const Words<4>* taps, u32 radius, u8* to, u64 pitch) {
  using S = Shape<T, C>;
  constexpr int LINES = C == 1 ? 4 : C == 2 ? 2 : 1, ITEMS = S::GROUPS * ROWS / LINES;
  static_assert(ITEMS % THREADS == 0, "no thread is idle");
#pragma unroll 1
  for (int item = threadIdx.x; item < ITEMS; item += THREADS) {
    const int row = item / S::GROUPS * LINES, group = item % S::GROUPS;
    rows_pass<T, C, LINES>(stage, row, group, taps, radius, to + row * pitch + group * (8 * C), pitch, LINES);
  }
}

// Adds rows k .. k+3 of a thread's window of the intermediate, four samples wide, to its ROWS output rows. `taps` are
// the expanded ones that belong to row k. With k known when compiled (UNROLLED) each tap comes from the parameter.
template <bool UNROLLED, int ROWS>
__device__ __forceinline__ void add_four_rows(
    const BlurArgs& args, u32 (&sum)[ROWS][4], const u8* from, u32 pitch, const u32* taps, int k) {
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
      const int distance = k + row - n - RADIUS(args, 1);
      if (UNROLLED && (distance < -RADIUS(args, 1) || distance > RADIUS(args, 1))) continue;
      const u32 w = UNROLLED ? tap(args, 1, distance) : weight[ROWS + row - n];
#pragma unroll
      for (int i = 0; i < 4; i++) sum[n][i] += w * mid[i];
    }
  }
}

template <int ROWS> __device__ __forceinline__ void start_sums(u32 (&sum)[ROWS][4], u32 depth) {
#pragma unroll
  for (int n = 0; n < ROWS; n++)
#pragma unroll
    for (int i = 0; i < 4; i++) sum[n][i] = 1u << (31 - depth);
}

// Writes four samples of up to ROWS rows from `y` on, to column `sample`, both within the plane's bounds.
template <class T, int ROWS>
__device__ __forceinline__ void write_out(
    const BlurArgs& args, u32 (&sum)[ROWS][4], int y, int y_end, int sample, int samples) {
  constexpr int BYTES = 4 * sizeof(T);
  const bool words = (reinterpret_cast<u64>(args.dst) | args.dst_pitch) % BYTES == 0 && sample + 4 <= samples;
  u8* to = args.dst + static_cast<u64>(y) * args.dst_pitch + sample * static_cast<int>(sizeof(T));
  const u32 down = 32 - args.depth;
  const int bytes = (samples - sample < 4 ? samples - sample : 4) * static_cast<int>(sizeof(T));
  const int rows = y_end - y;
  u32 out[ROWS][sizeof(T)];
#pragma unroll
  for (int n = 0; n < ROWS; n++) {
    if constexpr (sizeof(T) == 1) {
      out[n][0] = permute(permute(sum[n][0], sum[n][1], 0x73), permute(sum[n][2], sum[n][3], 0x73), 0x5410);
    } else {
      out[n][0] = sum[n][0] >> down | sum[n][1] >> down << 16;
      out[n][1] = sum[n][2] >> down | sum[n][3] >> down << 16;
    }
  }
  if (words) {
#pragma unroll
    for (int n = 0; n < ROWS; n++) {
      Words<sizeof(T)> vector;
#pragma unroll
      for (int k = 0; k < static_cast<int>(sizeof(T)); k++) vector.word[k] = out[n][k];
      if (n < rows) *at<Words<sizeof(T)>>(to, 0) = vector;
      to += args.dst_pitch;
    }
    return;
  }
#pragma unroll 1
  for (int i = 0; i < bytes; i++) {
    u8* line = to + i;
#pragma unroll
    for (int n = 0; n < ROWS; n++) {
      if (n < rows) *line = static_cast<u8>(permute(out[n][0], out[n][sizeof(T) - 1], i));
      line += args.dst_pitch;
    }
  }
}

// A block walks down its strip BLUR_FUSED_STEP rows at a time. The ring holds the intermediate of the rows that the
// next output rows reach.
template <class T, int C> __device__ __forceinline__ void blur_fused(const BlurArgs& args) {
  using S = Shape<T, C>;
  constexpr int THREADS = BLUR_FUSED_THREADS, STEP = BLUR_FUSED_STEP, ROWS = BLUR_FUSED_THREAD_ROWS;
  constexpr u32 PITCH = S::SAMPLES * 2;
  constexpr int ACROSS = S::SAMPLES / 4;
  [[maybe_unused]] constexpr int COLUMN_UNROLL = SPECIAL ? 16 : 1;
  static_assert(ACROSS * (STEP / ROWS) <= THREADS, "one step's output rows are one item per thread");
  const int radius = RADIUS(args, 1), reach = static_cast<int>((RADIUS(args, 0) + 3u) / 4 * 4);
  const int lag = (2 * radius + STEP - 1) / STEP, ring_rows = (lag + 1) * STEP;

  u8* ring = SHARED_MEMORY;
  auto* row_taps = at<Words<4>>(ring, ring_rows * PITCH);
  auto* column_taps = at<u32>(row_taps, (reach / 2 + 1) * 16);
  const int column_taps_length = ROWS + (2 * radius + ROWS + 3) / 4 * 4;
  const Stage<T, C> stage(at<u8>(column_taps, column_taps_length * 4), RADIUS(args, 0));
  expand_row_taps<T>(args, row_taps, THREADS);
  expand_column_taps<ROWS, 4>(args, column_taps, THREADS);

  const int y_begin = static_cast<int>(args.row_begin + blockIdx.y * args.segment_rows);
  const int y_end = y_begin + static_cast<int>(args.segment_rows) < static_cast<int>(args.row_end)
                        ? y_begin + static_cast<int>(args.segment_rows)
                        : static_cast<int>(args.row_end);
  const int samples = static_cast<int>(args.width) * C;
  const int across = threadIdx.x % ACROSS, down = threadIdx.x / ACROSS * ROWS;
  const int sample = static_cast<int>(blockIdx.x) * S::SAMPLES + across * 4;

  Loader<T, C, STEP, THREADS> loader(args, stage, blockIdx.x, y_end + radius);
  int fill = 0;
  // In each turn the next step's rows are on their way while this step's are worked on; the first turn has no work.
#pragma unroll 1
  for (int y = y_begin - (lag + 1) * STEP; y < y_end; y += STEP) {
    const int y_next = y + (lag + 1) * STEP - radius;
    const bool more = y + STEP < y_end;
    if (more) loader.load(y_next);
    if (y >= y_begin - lag * STEP) {
      all_rows<T, C, STEP, THREADS>(stage, row_taps, RADIUS(args, 0), ring + fill * PITCH, PITCH);
      __syncthreads();
      fill = fill + STEP == ring_rows ? 0 : fill + STEP;
    }
    // The oldest row of the ring is now at `fill`.
    if (y >= y_begin && down < STEP && sample < samples && y + down < y_end) {
      u32 sum[ROWS][4];
      start_sums(sum, args.depth);
      int row = fill + down;
      if (row >= ring_rows) row -= ring_rows;
      const u8* column = ring + across * 8;
#pragma unroll COLUMN_UNROLL
      for (int k = 0; k < 2 * radius + ROWS; k += 4) {
        add_four_rows<SPECIAL>(args, sum, column + row * PITCH, PITCH, column_taps + k, k);
        row = row + 4 == ring_rows ? 0 : row + 4;
      }
      write_out<T>(args, sum, y + down, y_end, sample, samples);
    }
    if (more) loader.store(y_next);
    __syncthreads();
  }
}

template <class T, int C> __device__ __forceinline__ void blur_rows(const BlurArgs& args) {
  using S = Shape<T, C>;
  constexpr int THREADS = BLUR_ROWS_THREADS, STEP = BLUR_ROWS_STEP;
  const int reach = static_cast<int>((RADIUS(args, 0) + 3u) / 4 * 4);
  auto* row_taps = at<Words<4>>(SHARED_MEMORY, 0);
  const Stage<T, C> stage(at<u8>(row_taps, (reach / 2 + 1) * 16), RADIUS(args, 0));
  const int y = static_cast<int>(args.row_begin + blockIdx.y * STEP);
  Loader<T, C, STEP, THREADS> loader(args, stage, blockIdx.x, args.row_end);
  loader.load(y);
  expand_row_taps<T>(args, row_taps, THREADS);
  loader.store(y);
  __syncthreads();

  constexpr int LINES = C == 1 ? 4 : C == 2 ? 2 : 1;
  static_assert(S::GROUPS * STEP / LINES == THREADS, "one item per thread");
  const int row = threadIdx.x / S::GROUPS * LINES, group = threadIdx.x % S::GROUPS;
  u8* to = args.scratch + (y + row) * args.scratch_pitch + (blockIdx.x * S::GROUPS + group) * (8 * C);
  rows_pass<T, C, LINES>(stage, row, group, row_taps, RADIUS(args, 0), to, args.scratch_pitch,
                         static_cast<int>(args.row_end) - y - row);
}

// Threads go 64 across and 4 down; each makes four samples of 16 rows. The block's window comes through shared memory
// in chunks of 16 rows, two in turn.
template <class T> __device__ __forceinline__ void blur_columns(const BlurArgs& args) {
  constexpr int THREADS = BLUR_COLUMNS_THREADS, STEP = BLUR_COLUMNS_STEP, ROWS = BLUR_COLUMNS_THREAD_ROWS;
  constexpr int CHUNK = BLUR_COLUMNS_CHUNK, ACROSS = BLUR_COLUMNS_STRIP_SAMPLES / 4;
  constexpr u32 PITCH = BLUR_COLUMNS_STRIP_SAMPLES * 2;
  static_assert(ACROSS * STEP / ROWS == THREADS && CHUNK == ROWS, "threads cover the block, windows start on chunks");
  const int radius = RADIUS(args, 1);
  u8* chunks = SHARED_MEMORY;
  auto* taps = at<u32>(chunks, 2 * CHUNK * PITCH);
  expand_column_taps<ROWS, CHUNK>(args, taps, THREADS);

  const int y_begin = static_cast<int>(args.row_begin + blockIdx.y * STEP);
  const int y_end = y_begin + STEP < static_cast<int>(args.row_end) ? y_begin + STEP : static_cast<int>(args.row_end);
  const int samples = static_cast<int>(args.width * args.channels);
  const int across = threadIdx.x % ACROSS, down = threadIdx.x / ACROSS;
  const int sample = static_cast<int>(blockIdx.x) * BLUR_COLUMNS_STRIP_SAMPLES + across * 4;

  // A thread loads 16 bytes, of every 8th row. What lies beyond the scratch is not used: any bytes do.
  constexpr int LOADS = CHUNK * PITCH / 16 / THREADS, ROWS_APART = CHUNK / LOADS;
  const int load_row = threadIdx.x / (PITCH / 16), load_byte = threadIdx.x % (PITCH / 16) * 16;
  const u64 strip_byte = static_cast<u64>(blockIdx.x) * PITCH + load_byte;
  const u64 column_byte = strip_byte < args.scratch_pitch ? strip_byte : 0;
  const int last_row = clamp(y_end + radius, 1, static_cast<int>(args.height)) - 1;
  u32 held[LOADS][4];
  auto load = [&](int chunk) {
#pragma unroll
    for (int i = 0; i < LOADS; i++) {
      const int y = clamp(y_begin - radius + chunk * CHUNK + load_row + i * ROWS_APART, 0, last_row);
      const auto vector = *at<const Words<4>>(args.scratch, static_cast<u64>(y) * args.scratch_pitch + column_byte);
#pragma unroll
      for (int k = 0; k < 4; k++) held[i][k] = vector.word[k];
    }
  };

  u32 sum[ROWS][4];
  start_sums(sum, args.depth);
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
        add_four_rows<false>(args, sum, slot + k * PITCH + across * 8, PITCH, taps + mine * CHUNK + k, 0);
    }
  }
  if (sample < samples) write_out<T>(args, sum, y_begin + down * ROWS, y_end, sample, samples);
}

// Blocks per multiprocessor that the fused kernels leave registers for. The portable PTX takes fewer: what becomes of
// it on older and on later chips needs more registers, and would spill.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 750
#define FUSED_BLOCKS(T) (sizeof(T) == 1 ? 5 : 4)
#else
#define FUSED_BLOCKS(T) 3
#endif
#define BLUR_ENTRY(name, threads, blocks, call) \
  extern "C" __global__ void __launch_bounds__(threads, blocks) name(const BlurArgs args) { call(args); }
#define BLUR_CHANNELS(T, c) \
  BLUR_ENTRY(blur_fused_##T##_c##c, BLUR_FUSED_THREADS, FUSED_BLOCKS(T), (blur_fused<T, c>)) \
  BLUR_ENTRY(blur_rows_##T##_c##c, BLUR_ROWS_THREADS, 4, (blur_rows<T, c>))
#define BLUR_SAMPLE(T) \
  BLUR_CHANNELS(T, 1) \
  BLUR_CHANNELS(T, 2) \
  BLUR_CHANNELS(T, 3) \
  BLUR_CHANNELS(T, 4) \
  BLUR_ENTRY(blur_columns_##T, BLUR_COLUMNS_THREADS, 2, blur_columns<T>)

#ifdef BLUR_RADIUS_ROWS
BLUR_ENTRY(blur_special, BLUR_FUSED_THREADS, 4, (blur_fused<BLUR_SAMPLE_TYPE, BLUR_CHANNEL_COUNT>))
#else
BLUR_SAMPLE(u8)
BLUR_SAMPLE(u16)
#endif
