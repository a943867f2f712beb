// SPDX-License-Identifier: MPL-2.0
// Source rows on their way into shared memory.
#ifndef BLUR_STAGE_H
#define BLUR_STAGE_H
#include "pixels.h"

// What four neighbouring pixels, a group, are made of.
template <class P> struct Shape {
  static constexpr int STRIP = P::C == 1   ? BLUR_STRIP_PIXELS_C1
                               : P::C == 2 ? BLUR_STRIP_PIXELS_C2
                               : P::C == 3 ? BLUR_STRIP_PIXELS_C3
                                           : BLUR_STRIP_PIXELS_C4;
  static constexpr int GROUPS = STRIP / 4;
  static constexpr int SAMPLES = STRIP * P::C;
  // Words that a source group is in memory.
  static constexpr int WORDS = P::BYTES;
  // The widest load that a group starts aligned for.
  static constexpr int VECTOR = WORDS % 4 == 0 ? 4 : WORDS % 2 == 0 ? 2 : 1;
  // Four samples of one channel.
  using Planar = Words<sizeof(typename P::T)>;
};

// Pixels before a strip that are staged with it, for `reach` that count.
__device__ __forceinline__ int staged_reach(int reach) { return (reach + 3) / 4 * 4; }

// Source rows in shared memory, channels apart: row, channel, group. See `stage` in shared.h. Of packed 4:2:2 the first
// two channels together are luma, twice as many groups as there are of each chroma.
template <class P> struct Stage {
  using Planar = typename Shape<P>::Planar;
  Planar* groups;
  int reach, plane, row;

  __device__ __forceinline__ Stage(u8* memory, int counts) {
    groups = at<Planar>(memory, 0);
    reach = staged_reach(counts);
    plane = Shape<P>::GROUPS + reach / 2;
    row = (P::C * plane + 15) / 32 * 32 + 16;
  }
};

// Moves source rows into the stage. Each warp takes every (warps)th row; a lane loads one group at a time. Up to AHEAD
// groups per lane and row are loaded into registers by `load` and stored by `store`, so that work can go on in
// between.
//
// A group that reaches over the plane's edge is loaded from the nearest place inside and its pixels are shifted, which
// repeats the edge pixel. `store` moves directly what that leaves: groups that do not start on a word there, planes
// less than a group wide, rows of more than 32 * AHEAD groups.
template <class P, int ROWS, int THREADS> struct Loader {
  using S = Shape<P>;
  using T = typename P::T;
  static constexpr int C = P::C;
  static constexpr int WARPS = THREADS / 32, ROWS_EACH = ROWS / WARPS;
  static constexpr int AHEAD = C == 1 ? 3 : C == 2 ? 2 : 1;

  const BlurPlane& plane;
  const Stage<P> stage;
  const u8* src;
  u64 pitch;
  u32 held[ROWS_EACH][AHEAD][S::WORDS];
  int width, last_row, last_group, first_pixel, lane, warp;
  bool words, ragged, vectors, simple;

  // `end` is the row after the last that counts; below it the last row is repeated.
  __device__ __forceinline__ Loader(const BlurPlane& plane, const Stage<P>& stage, int strip, int end)
      : plane(plane), stage(stage), src(plane.src), pitch(plane.src_pitch) {
    width = static_cast<int>(plane.width);
    last_row = (end < static_cast<int>(plane.height) ? end : static_cast<int>(plane.height)) - 1;
    last_group = width - 4;
    first_pixel = strip * S::STRIP - stage.reach;
    lane = threadIdx.x % 32;
    warp = threadIdx.x / 32;
    const u64 alignment = reinterpret_cast<u64>(src) | pitch;
    words = alignment % 4 == 0 && width >= 4;
    vectors = alignment % (4 * S::VECTOR) == 0;
    ragged = width * P::BYTES % 4 != 0;
    simple = words && stage.plane <= 32 * AHEAD && (!ragged || first_pixel + 4 * stage.plane <= width);
  }

  __device__ __forceinline__ const u8* source_row(int y) const {
    return src + static_cast<u64>(clamp(y, 0, last_row)) * pitch;
  }

  // Whether load_group can load it.
  __device__ __forceinline__ bool whole(int group) const {
    return words && (!ragged || first_pixel + 4 * group <= last_group);
  }

  __device__ __forceinline__ void load_group(const u8* row, int group, u32 (&out)[S::WORDS]) const {
    const int x = clamp(first_pixel + 4 * group, 0, last_group);
    const u8* source = row + x * P::BYTES;
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
    auto* to = at<T>(stage.groups + row * stage.row + group * (P::IS_YUV422 ? 2 : 1), 0);
#pragma unroll 4
    for (int i = 0; i < 4 * C; i++) {
      const int pixel = i / C, channel = i % C;
      const int x = clamp(first_pixel + 4 * group + pixel, 0, width - 1);
      if constexpr (P::IS_YUV422) {
        const int first = static_cast<int>(plane.luma & 1), last = 2 * width - 1 - static_cast<int>(plane.luma >> 1);
        if (channel < 2) {
          const int luma = clamp(2 * (first_pixel + 4 * group + pixel) + channel, 0, last);
          to[2 * pixel + channel] = source[2 * luma + first];
        } else {
          u8* chroma = to - 4 * group + channel * stage.plane * 4;
          chroma[pixel] = source[4 * x + 2 * (channel - 2) + 1 - first];
        }
      } else {
        u32 value;
        if constexpr (P::IS_TEN) {
          value = ten_sample(load_word(source + 4 * x), channel);
        } else {
          const u8* sample = source + (x * C + channel) * static_cast<int>(sizeof(T));
          value = sample[0];
          if (sizeof(T) == 2) value = wide_sample(value | sample[1] << 8, plane.depth, plane.low);
        }
        to[channel * stage.plane * 4 + pixel] = static_cast<T>(value);
      }
    }
  }

  // Puts a group's channels apart, widens 16-bit samples to all of their bits, and shifts a group from over the edge.
  __device__ __forceinline__ void put(int row, int group, const u32 (&in)[S::WORDS]) const {
    const int x = first_pixel + 4 * group, shift = clamp(x - clamp(x, 0, last_group), -3, 3);
    auto* to = stage.groups + row * stage.row + group;
    if constexpr (sizeof(T) == 1) {
      // 0x5410 puts (0, 1) and (4, 5) together in order.
      const u32 order = shift < 0 ? 0x5410u << -4 * shift : 0x55555410u >> 4 * shift;
      if constexpr (P::IS_YUV422) put_luma(x, to + group, in);
#pragma unroll
      for (int c = P::IS_YUV422 ? 2 : 0; c < C; c++) {
        u32 low, high;
        if constexpr (P::IS_YUV422) {
          const u32 chroma = (2 * (c - 2) + 1 - (plane.luma & 1)) * 0x11 + 0x40;
          low = permute(in[0], in[1], chroma);
          high = permute(in[2], in[3], chroma);
        } else {
          const int a = c, b = C + c, d = 2 * C + c, e = 3 * C + c;  // byte numbers of the four samples
          low = permute(in[a / 4], in[b / 4], a % 4 | (4 + b % 4) << 4);
          high = permute(in[d / 4], in[e / 4], d % 4 | (4 + e % 4) << 4);
        }
        to[c * stage.plane] = {{permute(low, high, order & 0xffff)}};
      }
    } else {
      // Two nibbles a sample; the identity is 0x76543210.
      const u64 beyond = shift < 0 ? 0x7654321010101010ull >> (32 + 8 * shift) : 0x7676767676543210ull >> 8 * shift;
      const u32 order = static_cast<u32>(beyond), up = 16 - plane.depth - plane.low;
      const u32 mask = (0xffffu << (16 - plane.depth) & 0xffff) * 0x10001;
#pragma unroll
      for (int c = 0; c < C; c++) {
        u32 low, high;
        if constexpr (P::IS_TEN) {
          low = ten_sample(in[0], c) | ten_sample(in[1], c) << 16;
          high = ten_sample(in[2], c) | ten_sample(in[3], c) << 16;
        } else {
          const int a = c, b = C + c, d = 2 * C + c, e = 3 * C + c;  // sample numbers
          low = permute(in[a / 2], in[b / 2], (a % 2 ? 0x32 : 0x10) | (b % 2 ? 0x7600 : 0x5400)) << up & mask;
          high = permute(in[d / 2], in[e / 2], (d % 2 ? 0x32 : 0x10) | (e % 2 ? 0x7600 : 0x5400)) << up & mask;
        }
        to[c * stage.plane] = {{permute(low, high, order), permute(low, high, order >> 16)}};
      }
    }
  }

  // The eight luma samples of a group of packed 4:2:2 whose first pair belongs at x.
  __device__ __forceinline__ void put_luma(int x, typename S::Planar* to, const u32 (&in)[S::WORDS]) const {
    const int inside = clamp(x, 0, last_group), over = clamp(x - inside, -4, 4);
    // Nibble i of `order`: which of the eight loaded samples is the i-th. In the row's last group none comes after the
    // last of the picture.
    const bool odd = plane.luma & 2 && inside == last_group;
    const u64 beyond = odd ? 0x6666666666543210ull : 0x7777777776543210ull;
    const u32 order = over <= -4   ? 0
                      : over < 0   ? 0x76543210u << -8 * over
                                   : static_cast<u32>(beyond >> 8 * over);
    const u32 bytes = 0x6420 + (plane.luma & 1) * 0x1111;
    const u32 first = permute(in[0], in[1], bytes), second = permute(in[2], in[3], bytes);
    to[0] = {{permute(first, second, order & 0xffff)}};
    to[1] = {{permute(first, second, order >> 16)}};
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
#endif
