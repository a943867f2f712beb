// SPDX-License-Identifier: MPL-2.0
// Covers regions of a frame in place: copies blurred bytes or repeats a pattern in rectangles, and colours the cells of
// a mosaic with their means. abi.h has the parameters and their contract.
#ifndef BLUR_COVER_H
#define BLUR_COVER_H
#include "launch.cuh"
#include "pixels.cuh"
#include "warp.cuh"

__device__ __forceinline__ u32 misalignment(const u8* address, u32 alignment) {
  return static_cast<u32>(reinterpret_cast<u64>(address) & (alignment - 1));
}

// Each thread writes an aligned group of bytes, or the part of it that is in the rectangle.
__device__ __forceinline__ void cover_rect(const CoverRect& rect) {
  const u32 index = (blockIdx.x - rect.first_block) * BLUR_COVER_THREADS + threadIdx.x;
  const u32 row = index / rect.groups, group = index % rect.groups * BLUR_COVER_GROUP;
  if (row >= rect.rows) return;
  u8* dst = rect.dst + row * rect.dst_pitch;
  const u32 skew = misalignment(dst, BLUR_COVER_GROUP);
  const u32 begin = group < skew ? 0 : group - skew;
  const u32 end = group + BLUR_COVER_GROUP - skew < rect.bytes ? group + BLUR_COVER_GROUP - skew : rect.bytes;
  if (begin >= end) return;
  dst += begin;
  const bool is_whole = end - begin == BLUR_COVER_GROUP;
  if (rect.period == 0) {
    const u8* src = rect.src + row * rect.src_pitch + begin;
    if (is_whole && misalignment(src, BLUR_COVER_GROUP) == 0) {
      *offset_ptr<Words<4>>(dst, 0) = *offset_ptr<const Words<4>>(src, 0);
    } else if (is_whole && misalignment(src, 4) == 0) {
      Words<4> words;
#pragma unroll
      for (int i = 0; i < 4; i++) words.word[i] = offset_ptr<const Words<1>>(src, 4 * i)->word[0];
      *offset_ptr<Words<4>>(dst, 0) = words;
    } else {
#pragma unroll 1
      for (u32 i = 0; i < end - begin; i++) dst[i] = src[i];
    }
    return;
  }
  u32 phase = begin % rect.period, word = 0;
#pragma unroll 1
  for (u32 i = 0; i < end - begin; i++) {
    const u32 byte = static_cast<u32>(rect.pattern >> 8 * phase) & 255;
    phase = phase + 1 == rect.period ? 0 : phase + 1;
    word = word >> 8 | byte << 24;
    if (!is_whole)
      dst[i] = static_cast<u8>(byte);
    else if (i % 4 == 3)
      offset_ptr<Words<1>>(dst, i - 3)->word[0] = word;
  }
}

// The number of samples of an axis that begin before a luma sample.
template <class Plane> __device__ __forceinline__ u32 samples_before(const Plane& plane, int axis, int luma) {
  const int beyond = luma - static_cast<int>(plane.luma[axis]);
  if (beyond <= 0) return 0;
  const u32 shift = plane.unit_log2[axis], samples = (static_cast<u32>(beyond) + (1u << shift) - 1) >> shift;
  return samples < plane.count[axis] ? samples : plane.count[axis];
}

// Walks the samples of a rectangle row by row. Neighbouring lanes of a warp take the channels of one sample, the lanes after them
// the next samples.
struct LaneSamples {
  u32 x, y, left, right, column_step, row_step;

  // Base-2 logarithm of the lanes that take one sample: 1, 2 or 4.
  static __device__ __forceinline__ u32 lanes_log2(u32 channels) { return channels > 2 ? 2 : channels - 1; }

  // Begins at sample `first`. The rectangle has at least one column.
  __device__ __forceinline__ LaneSamples(u32 left, u32 right, u32 top, u32 first, u32 lanes_log2) : left(left), right(right) {
    const u32 width = right - left, own = first + (threadIdx.x >> lanes_log2), step = 32u >> lanes_log2;
    x = left + own % width;
    y = top + own / width;
    column_step = step % width;
    row_step = step / width;
  }
  __device__ __forceinline__ void next() {
    x += column_step;
    y += row_step;
    if (x >= right) {
      x -= right - left;
      y++;
    }
  }
};

// The part of a cell that a block, which is one warp, processes.
struct CellPart {
  // The index of the cell's first sum, of all parts and channels.
  u64 sums;
  // The number of the part. The columns and rows of the cell, from `begin` to `end`, exclusive, and the number of its samples.
  u32 part, begin[2], end[2], count;
  // The channel of this lane (of three channels, every fourth lane has none), and the lanes that take one sample.
  u32 channel, lanes_log2;

  __device__ __forceinline__ CellPart(const MosaicPlane& plane, const MosaicGrid& grid) {
    const u32 index = blockIdx.x - grid.first_block, cell = index / grid.parts;
    part = index % grid.parts;
    sums = static_cast<u64>(cell) * grid.parts * plane.channels;
    const u32 place[2] = {cell % grid.cells_across, cell / grid.cells_across};
#pragma unroll
    for (int axis = 0; axis < 2; axis++) {
      const int luma = grid.origin[axis] + static_cast<int>(place[axis] * grid.side);
      begin[axis] = samples_before(plane, axis, luma);
      end[axis] = samples_before(plane, axis, luma + static_cast<int>(grid.side));
    }
    count = (end[0] - begin[0]) * (end[1] - begin[1]);
    lanes_log2 = LaneSamples::lanes_log2(plane.channels);
    channel = threadIdx.x & ((1u << lanes_log2) - 1);
  }

  // The first sample of part `number`, if this many samples are divided into `parts`. A part ends where the next one begins.
  __device__ __forceinline__ u32 begin_of(u32 samples, u32 parts, u32 number) const {
    const u32 of_part = (samples + parts - 1) / parts;
    return number * of_part < samples ? number * of_part : samples;
  }
};

// Adds up a lane's samples of a part. WORD_BYTES is a constant so that the compiler issues the loads of several samples before it
// uses the first one.
template <u32 WORD_BYTES>
__device__ __forceinline__ u64 sum_of_samples(const MosaicPlane& plane, const MosaicGrid& grid, const CellPart& cell) {
  const u32 first = cell.begin_of(cell.count, grid.parts, cell.part), last = cell.begin_of(cell.count, grid.parts, cell.part + 1);
  const StoredChannel channel = plane.layout[cell.channel];
  LaneSamples samples(cell.begin[0], cell.end[0], cell.begin[1], first, cell.lanes_log2);
  u64 sum = 0;
#pragma unroll 4
  for (u32 i = first + (threadIdx.x >> cell.lanes_log2); i < last; i += 32u >> cell.lanes_log2) {
    sum += load_channel(channel, WORD_BYTES, plane.rows + samples.y * plane.pitch, samples.x);
    samples.next();
  }
  return sum;
}

__device__ __forceinline__ void mosaic_sums(const MosaicPlane& plane, const MosaicGrid& grid) {
  const CellPart cell(plane, grid);
  // Cells between two samples of a subsampled plane have none. The whole warp leaves.
  if (cell.count == 0) return;
  const bool has_channel = cell.channel < plane.channels;
  u64 sum = 0;
  if (has_channel) {
    sum = plane.word_bytes == 1   ? sum_of_samples<1>(plane, grid, cell)
          : plane.word_bytes == 2 ? sum_of_samples<2>(plane, grid, cell)
                                  : sum_of_samples<4>(plane, grid, cell);
  }
  sum = warp_sum(sum, 1u << cell.lanes_log2);
  if (has_channel && threadIdx.x >> cell.lanes_log2 == 0)
    offset_ptr<u64>(grid.sums, 0)[cell.sums + cell.part * plane.channels + cell.channel] = sum;
}

__device__ __forceinline__ void mosaic_write(const MosaicPlane& plane, const MosaicGrid& grid) {
  const CellPart cell(plane, grid);
  if (cell.count == 0) return;
  const u32 lane = threadIdx.x, lanes_log2 = cell.lanes_log2;
  const bool has_channel = cell.channel < plane.channels;
  const StoredChannel channel = plane.layout[cell.channel];
  u64 sum = 0;
#pragma unroll 2
  for (u32 part = lane >> lanes_log2; has_channel && part < grid.parts; part += 32u >> lanes_log2)
    sum += offset_ptr<const u64>(grid.sums, 0)[cell.sums + part * plane.channels + cell.channel];
  sum = warp_sum(sum, 1u << lanes_log2);
  const u32 mean = static_cast<u32>((2 * sum + cell.count) / (2 * static_cast<u64>(cell.count)));
  u32 word = has_channel ? (mean & ((1u << channel.bits) - 1)) << channel.shift : 0;
  bool stores = has_channel;
  if (plane.word_bytes == 4) {
    // The channels of a pixel fill its word, which one lane stores.
    word |= warp_xor(word, 1);
    word |= warp_xor(word, 2);
    stores = cell.channel == 0;
  }
  const u32 left = cell.begin[0] > grid.covered[0][0] ? cell.begin[0] : grid.covered[0][0];
  // Luma beyond an odd width has the colour of the last pixel's cell.
  const bool is_last = cell.end[0] == plane.count[0] || cell.end[0] > grid.covered[0][1];
  const u32 right = is_last ? grid.covered[0][1] : cell.end[0];
  const u32 top = cell.begin[1] > grid.covered[1][0] ? cell.begin[1] : grid.covered[1][0];
  const u32 bottom = cell.end[1] < grid.covered[1][1] ? cell.end[1] : grid.covered[1][1];
  if (!stores || left >= right || top >= bottom) return;
  const u32 count = (right - left) * (bottom - top), last = cell.begin_of(count, grid.parts, cell.part + 1);
  const u32 first = cell.begin_of(count, grid.parts, cell.part);
  LaneSamples samples(left, right, top, first, lanes_log2);
#pragma unroll 1
  for (u32 i = first + (lane >> lanes_log2); i < last; i += 32u >> lanes_log2) {
    store_word(plane.rows + samples.y * plane.pitch + channel.offset + samples.x * channel.step, plane.word_bytes, word);
    samples.next();
  }
}
#endif
