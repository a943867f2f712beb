// SPDX-License-Identifier: MPL-2.0
// Loads tiles of source rows into shared memory: deinterleaved, widened, and with the plane's edge replicated.
#ifndef BLUR_TILE_LOADER_H
#define BLUR_TILE_LOADER_H
#include "pixels.cuh"

// Sizes of a strip and of a group, which is four neighbouring pixels.
template <class P> struct TileTraits {
  // Width of a strip in pixels, in groups and in samples.
  static constexpr int STRIP = P::C == 1   ? BLUR_STRIP_PIXELS_C1
                               : P::C == 2 ? BLUR_STRIP_PIXELS_C2
                               : P::C == 3 ? BLUR_STRIP_PIXELS_C3
                                           : BLUR_STRIP_PIXELS_C4;
  static constexpr int GROUPS = STRIP / 4;
  static constexpr int SAMPLES = STRIP * P::C;
  // 32-bit words of a source group: four pixels of BYTES bytes.
  static constexpr int WORDS = P::BYTES;
  // Words of the widest load that every group of an aligned row is aligned for.
  static constexpr int VECTOR = WORDS % 4 == 0 ? 4 : WORDS % 2 == 0 ? 2 : 1;
  // Four staged samples of one channel.
  using Planar = Words<sizeof(typename P::T)>;
};

// Pixels that are staged on each side of a strip for a halo of `halo` pixels: whole groups.
__device__ __forceinline__ int staged_halo(int halo) { return (halo + 3) / 4 * 4; }

// Source rows in shared memory, indexed by row, channel and group. In packed 4:2:2 the first two channels together hold
// luma, twice as many groups as each of the two chroma channels.
template <class P> struct StagedRows {
  using Planar = typename TileTraits<P>::Planar;
  Planar* groups;
  // `halo` is in pixels. `channel_groups` is the number of groups of one channel in a row, and so the distance from one
  // channel to the next; `row_stride` is the distance from one row to the next, in groups.
  int halo, channel_groups, row_stride;

  // The row stride is 16 groups more than a multiple of 32, so that two half warps that read neighbouring rows use
  // different banks. src/cuda/kernels/geometry.rs has the same size.
  __device__ __forceinline__ StagedRows(u8* memory, int filter_halo) {
    groups = offset_ptr<Planar>(memory, 0);
    halo = staged_halo(filter_halo);
    channel_groups = TileTraits<P>::GROUPS + halo / 2;
    row_stride = (P::C * channel_groups + 15) / 32 * 32 + 16;
  }
};

// Copies ROWS source rows to StagedRows. Warp w copies rows w, w + WARPS, and so on; a lane copies one group at a time.
// `load` reads the first PREFETCH groups per lane and row into registers and `store` writes them to shared memory, so
// that the kernel can compute between the two while the loads are outstanding.
//
// A group that extends beyond the plane's left or right edge is loaded from the nearest position inside and its samples
// are shifted, which replicates the edge pixel. `store` alone copies the groups for which this is impossible: those
// whose load would not be word-aligned, those of planes narrower than a group, and those after the first 32 * PREFETCH
// of a row.
template <class P, int ROWS, int THREADS> struct TileLoader {
  using Traits = TileTraits<P>;
  using T = typename P::T;
  static constexpr int C = P::C;
  static constexpr int WARPS = THREADS / 32, WARP_ROWS = ROWS / WARPS;
  static constexpr int PREFETCH = C == 1 ? 3 : C == 2 ? 2 : 1;

  const BlurPlane& plane;
  const StagedRows<P> staged;
  const u8* src;
  u64 pitch;
  u32 regs[WARP_ROWS][PREFETCH][Traits::WORDS];
  int width, last_row, last_group, first_pixel, lane, warp;
  bool word_aligned, partial_tail, vector_aligned, fast_path;

  // Source rows from `row_end` on are replaced by the row before it.
  __device__ __forceinline__ TileLoader(const BlurPlane& plane, const StagedRows<P>& staged, int strip, int row_end)
      : plane(plane), staged(staged), src(plane.src), pitch(plane.src_pitch) {
    width = static_cast<int>(plane.width);
    last_row = (row_end < static_cast<int>(plane.height) ? row_end : static_cast<int>(plane.height)) - 1;
    last_group = width - 4;
    first_pixel = static_cast<int>(plane.column_begin) + strip * Traits::STRIP - staged.halo;
    lane = threadIdx.x % 32;
    warp = threadIdx.x / 32;
    const u64 alignment = reinterpret_cast<u64>(src) | pitch;
    word_aligned = alignment % 4 == 0 && width >= 4;
    vector_aligned = alignment % (4 * Traits::VECTOR) == 0;
    partial_tail = width * P::BYTES % 4 != 0;
    fast_path = word_aligned && staged.channel_groups <= 32 * PREFETCH &&
                (!partial_tail || first_pixel + 4 * staged.channel_groups <= width);
  }

  __device__ __forceinline__ const u8* source_row(int y) const {
    return src + static_cast<u64>(clamp(y, 0, last_row)) * pitch;
  }

  // Whether load_group can load this group. In rows that end within a word, the position nearest to a group beyond the
  // right edge is not word-aligned.
  __device__ __forceinline__ bool is_loadable(int group) const {
    return word_aligned && (!partial_tail || first_pixel + 4 * group <= last_group);
  }

  __device__ __forceinline__ void load_group(const u8* row, int group, u32 (&out)[Traits::WORDS]) const {
    const int x = clamp(first_pixel + 4 * group, 0, last_group);
    const u8* source = row + x * P::BYTES;
    if (vector_aligned && x % 4 == 0) {
#pragma unroll
      for (int i = 0; i < Traits::WORDS / Traits::VECTOR; i++) {
        const auto vector = *offset_ptr<const Words<Traits::VECTOR>>(source, i * sizeof(Words<Traits::VECTOR>));
#pragma unroll
        for (int k = 0; k < Traits::VECTOR; k++) out[i * Traits::VECTOR + k] = vector.word[k];
      }
    } else {
#pragma unroll
      for (int i = 0; i < Traits::WORDS; i++) out[i] = *offset_ptr<const u32>(source, i * 4);
    }
  }

  // Copies a group sample by sample, with the edge pixels replicated. Few groups need it, so it is kept small.
  __device__ __forceinline__ void store_group_edge(const u8* source, int row, int group) const {
    auto* to = offset_ptr<T>(staged.groups + row * staged.row_stride + group * (P::IS_YUV422 ? 2 : 1), 0);
#pragma unroll 4
    for (int i = 0; i < 4 * C; i++) {
      const int pixel = i / C, channel = i % C;
      const int x = clamp(first_pixel + 4 * group + pixel, 0, width - 1);
      if constexpr (P::IS_YUV422) {
        const int first = static_cast<int>(plane.yuv422 & 1);
        const int last = 2 * width - 1 - static_cast<int>(plane.yuv422 >> 1);
        if (channel < 2) {
          const int luma = clamp(2 * (first_pixel + 4 * group + pixel) + channel, 0, last);
          to[2 * pixel + channel] = source[2 * luma + first];
        } else {
          u8* chroma = to - 4 * group + channel * staged.channel_groups * 4;
          chroma[pixel] = source[4 * x + 2 * (channel - 2) + 1 - first];
        }
      } else {
        u32 value;
        if constexpr (P::IS_PACKED1010102) {
          value = packed1010102_sample(load_unaligned(source + 4 * x), channel);
        } else {
          const u8* sample = source + (x * C + channel) * static_cast<int>(sizeof(T));
          value = sample[0];
          if (sizeof(T) == 2) value = widen_sample(value | sample[1] << 8, plane.depth, plane.shift);
        }
        to[channel * staged.channel_groups * 4 + pixel] = static_cast<T>(value);
      }
    }
  }

  // Deinterleaves a loaded group, widens 16-bit samples, and shifts the samples of a group from beyond the edge.
  __device__ __forceinline__ void store_group(int row, int group, const u32 (&in)[Traits::WORDS]) const {
    const int x = first_pixel + 4 * group, edge_shift = clamp(x - clamp(x, 0, last_group), -3, 3);
    auto* to = staged.groups + row * staged.row_stride + group;
    if constexpr (sizeof(T) == 1) {
      // The selector 0x5410 concatenates bytes 0 and 1 of the first operand and of the second.
      const u32 selector = edge_shift < 0 ? 0x5410u << -4 * edge_shift : 0x55555410u >> 4 * edge_shift;
      if constexpr (P::IS_YUV422) store_luma(x, to + group, in);
#pragma unroll
      for (int c = P::IS_YUV422 ? 2 : 0; c < C; c++) {
        u32 low, high;
        if constexpr (P::IS_YUV422) {
          const u32 chroma = (2 * (c - 2) + 1 - (plane.yuv422 & 1)) * 0x11 + 0x40;
          low = byte_perm(in[0], in[1], chroma);
          high = byte_perm(in[2], in[3], chroma);
        } else {
          const int s0 = c, s1 = C + c, s2 = 2 * C + c, s3 = 3 * C + c;  // byte numbers of the channel's samples
          low = byte_perm(in[s0 / 4], in[s1 / 4], s0 % 4 | (4 + s1 % 4) << 4);
          high = byte_perm(in[s2 / 4], in[s3 / 4], s2 % 4 | (4 + s3 % 4) << 4);
        }
        to[c * staged.channel_groups] = {{byte_perm(low, high, selector & 0xffff)}};
      }
    } else {
      // Two nibbles per sample; the identity is 0x76543210.
      const u64 shifted =
          edge_shift < 0 ? 0x7654321010101010ull >> (32 + 8 * edge_shift) : 0x7676767676543210ull >> 8 * edge_shift;
      const u32 selector = static_cast<u32>(shifted), widen = 16 - plane.depth - plane.shift;
      const u32 mask = (0xffffu << (16 - plane.depth) & 0xffff) * 0x10001;
#pragma unroll
      for (int c = 0; c < C; c++) {
        u32 low, high;
        if constexpr (P::IS_PACKED1010102) {
          low = packed1010102_sample(in[0], c) | packed1010102_sample(in[1], c) << 16;
          high = packed1010102_sample(in[2], c) | packed1010102_sample(in[3], c) << 16;
        } else {
          const int s0 = c, s1 = C + c, s2 = 2 * C + c, s3 = 3 * C + c;  // numbers of the channel's samples
          low = byte_perm(in[s0 / 2], in[s1 / 2], (s0 % 2 ? 0x32 : 0x10) | (s1 % 2 ? 0x7600 : 0x5400)) << widen & mask;
          high = byte_perm(in[s2 / 2], in[s3 / 2], (s2 % 2 ? 0x32 : 0x10) | (s3 % 2 ? 0x7600 : 0x5400)) << widen & mask;
        }
        to[c * staged.channel_groups] = {{byte_perm(low, high, selector), byte_perm(low, high, selector >> 16)}};
      }
    }
  }

  // Stores the eight luma samples of a packed 4:2:2 group whose first pair of pixels belongs at x.
  __device__ __forceinline__ void store_luma(int x, typename Traits::Planar* to, const u32 (&in)[Traits::WORDS]) const {
    const int loaded_x = clamp(x, 0, last_group), edge_shift = clamp(x - loaded_x, -4, 4);
    // Nibble i of the selector: the number, among the eight loaded samples, of the i-th stored one. If the plane's last
    // pair has only one pixel, its second sample is not part of the picture and the seventh is repeated instead.
    const bool odd_width = plane.yuv422 & 2 && loaded_x == last_group;
    const u64 replicated = odd_width ? 0x6666666666543210ull : 0x7777777776543210ull;
    const u32 selector = edge_shift <= -4   ? 0
                         : edge_shift < 0   ? 0x76543210u << -8 * edge_shift
                                            : static_cast<u32>(replicated >> 8 * edge_shift);
    const u32 luma = 0x6420 + (plane.yuv422 & 1) * 0x1111;
    const u32 first = byte_perm(in[0], in[1], luma), second = byte_perm(in[2], in[3], luma);
    to[0] = {{byte_perm(first, second, selector & 0xffff)}};
    to[1] = {{byte_perm(first, second, selector >> 16)}};
  }

  // Starts to load the source rows from y on, which may lie beyond the plane.
  __device__ __forceinline__ void load(int y) {
#pragma unroll
    for (int r = 0; r < WARP_ROWS; r++) {
      const u8* source = source_row(y + warp + r * WARPS);
#pragma unroll
      for (int k = 0; k < PREFETCH; k++) {
        const int group = lane + 32 * k;
        if (group < staged.channel_groups && is_loadable(group)) load_group(source, group, regs[r][k]);
      }
    }
  }

  // Stores the rows that load(y) has loaded, and copies their remaining groups.
  __device__ __forceinline__ void store(int y) const {
#pragma unroll
    for (int r = 0; r < WARP_ROWS; r++)
#pragma unroll
      for (int k = 0; k < PREFETCH; k++) {
        const int group = lane + 32 * k;
        if (group < staged.channel_groups && is_loadable(group)) store_group(warp + r * WARPS, group, regs[r][k]);
      }
    if (fast_path) return;
#pragma unroll 1
    for (int r = warp; r < ROWS; r += WARPS) {
      const u8* source = source_row(y + r);
#pragma unroll 1
      for (int group = lane; group < staged.channel_groups; group += 32) {
        if (group < 32 * PREFETCH && is_loadable(group)) continue;
        if (is_loadable(group)) {
          u32 direct[Traits::WORDS];
          load_group(source, group, direct);
          store_group(r, group, direct);
        } else {
          store_group_edge(source, r, group);
        }
      }
    }
  }
};
#endif
