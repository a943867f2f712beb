// SPDX-License-Identifier: MPL-2.0
// Covers regions of a frame in place: copies blurred bytes or repeats a pattern in rectangles, and colours the cells of
// a mosaic with their means. abi.h has the parameters and their contract.
#ifndef BLUR_COVER_H
#define BLUR_COVER_H
#include "launch.cuh"
#include "pixels.cuh"

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
template <class Grid> __device__ __forceinline__ u32 samples_before(const Grid& grid, int axis, int luma) {
  const int beyond = luma - static_cast<int>(grid.luma[axis]);
  if (beyond <= 0) return 0;
  const u32 shift = grid.unit_log2[axis], samples = (static_cast<u32>(beyond) + (1u << shift) - 1) >> shift;
  return samples < grid.count[axis] ? samples : grid.count[axis];
}

// What a block processes: a part of the rows of one cell.
struct CellPart {
  // The index of the cell's first sum, of all parts and channels.
  u64 sums;
  u32 part;
  // The samples of the cell, columns and rows of the field, from `begin` to `end`; its rows in each part.
  u32 begin[2], end[2], part_rows;

  __device__ __forceinline__ explicit CellPart(const MosaicGrid& grid) {
    const u32 index = blockIdx.x - grid.first_block, cell = index / grid.parts;
    part = index % grid.parts;
    sums = static_cast<u64>(cell) * grid.parts * grid.channels;
    const u32 place[2] = {cell % grid.cells_across, cell / grid.cells_across};
#pragma unroll
    for (int axis = 0; axis < 2; axis++) {
      const int luma = grid.origin[axis] + static_cast<int>(place[axis] * grid.side);
      begin[axis] = samples_before(grid, axis, luma);
      end[axis] = samples_before(grid, axis, luma + static_cast<int>(grid.side));
    }
    part_rows = (end[1] - begin[1] + grid.parts - 1) / grid.parts;
  }

  // The rows of this part.
  __device__ __forceinline__ u32 row_begin() const {
    const u32 row = begin[1] + part * part_rows;
    return row < end[1] ? row : end[1];
  }
  __device__ __forceinline__ u32 row_end() const {
    const u32 row = begin[1] + (part + 1) * part_rows;
    return row < end[1] ? row : end[1];
  }
};

__device__ __forceinline__ void mosaic_sums(const MosaicGrid& grid, u8* shared) {
  const CellPart cell(grid);
  u64* lanes = offset_ptr<u64>(shared, 0);
  const u32 row_begin = cell.row_begin(), row_end = cell.row_end();
#pragma unroll 1
  for (u32 c = 0; c < grid.channels; c++) {
    const StoredChannel channel = grid.layout[c];
    u64 sum = 0;
#pragma unroll 1
    for (u32 y = row_begin; y < row_end; y++) {
      const u8* row = grid.plane + y * grid.pitch;
#pragma unroll 1
      for (u32 x = cell.begin[0] + threadIdx.x; x < cell.end[0]; x += BLUR_MOSAIC_THREADS)
        sum += load_channel(channel, grid.word_bytes, row, x);
    }
    lanes[c * BLUR_MOSAIC_THREADS + threadIdx.x] = sum;
  }
  __syncthreads();
  const u32 c = threadIdx.x;
  if (c >= grid.channels) return;
  u64 sum = 0;
#pragma unroll 1
  for (int lane = 0; lane < BLUR_MOSAIC_THREADS; lane++) sum += lanes[c * BLUR_MOSAIC_THREADS + lane];
  offset_ptr<u64>(grid.sums, 0)[cell.sums + cell.part * grid.channels + c] = sum;
}

__device__ __forceinline__ void mosaic_write(const MosaicGrid& grid, u8* shared) {
  const CellPart cell(grid);
  u32* means = offset_ptr<u32>(shared, 0);
  const u64 count = static_cast<u64>(cell.end[0] - cell.begin[0]) * (cell.end[1] - cell.begin[1]);
  // Cells between two samples of a subsampled plane have none. The whole block leaves.
  if (count == 0) return;
  const u32 lane = threadIdx.x;
  if (lane < grid.channels) {
    u64 sum = 0;
#pragma unroll 1
    for (u32 part = 0; part < grid.parts; part++)
      sum += offset_ptr<const u64>(grid.sums, 0)[cell.sums + part * grid.channels + lane];
    means[lane] = static_cast<u32>((2 * sum + count) / (2 * count));
  }
  __syncthreads();
  const u32 left = cell.begin[0] > grid.covered[0][0] ? cell.begin[0] : grid.covered[0][0];
  // Luma beyond an odd width has the colour of the last pixel's cell.
  const bool is_last = cell.end[0] == grid.count[0] || cell.end[0] > grid.covered[0][1];
  const u32 right = is_last ? grid.covered[0][1] : cell.end[0];
  u32 y = cell.row_begin(), bottom = cell.row_end();
  if (y < grid.covered[1][0]) y = grid.covered[1][0];
  if (bottom > grid.covered[1][1]) bottom = grid.covered[1][1];
#pragma unroll 1
  for (; y < bottom; y++) {
    u8* row = grid.plane + y * grid.pitch;
#pragma unroll 1
    for (u32 x = left + lane; x < right; x += BLUR_MOSAIC_THREADS)
#pragma unroll 1
      for (u32 c = 0; c < grid.channels; c++) {
        const StoredChannel& channel = grid.layout[c];
        store_channel(channel, grid.word_bytes, row, x, (means[c] & ((1u << channel.bits) - 1)) << channel.shift);
      }
  }
}
#endif
