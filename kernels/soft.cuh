// SPDX-License-Identifier: MPL-2.0
// Soft covers: mixes a cover into a picture by weights, and makes estimates of what the picture shows without its objects.
// abi.h has the parameters and their contract, docs/ARITHMETIC.md the formulas.
#ifndef BLUR_SOFT_H
#define BLUR_SOFT_H
#include "cover.cuh"

// Luma samples, from the first ones to the last ones.
struct LumaRange {
  u32 first[2], last[2];
};

// The luma samples that samples of a row stand for, from x to end - 1: the last one of a row or column stands for all that
// are left; the rows are those of its field.
__device__ __forceinline__ LumaRange luma_of(const SoftGrid& grid, u32 x, u32 end, u32 y) {
  const u32 across = grid.unit_log2[0], down = grid.unit_log2[1] - (grid.fields - 1);
  const u32 width = grid.size[0], height = grid.size[1];
  const u32 left = x << across, right = end << across;
  const u32 top = grid.luma[1] + grid.fields * (y << down), below = grid.luma[1] + grid.fields * ((y + 1) << down);
  const u32 bottom = y + 1 < grid.count[1] && below < height ? below : height;
  return {
      {left < width ? left : width - 1, top < height ? top : height - 1},
      {(end < grid.count[0] && right < width ? right : width) - 1, bottom - 1},
  };
}

// The nodes that luma samples are between, from the first ones to the last ones.
struct NodeRange {
  u32 first[2], last[2];

  __device__ __forceinline__ NodeRange(const SoftGrid& grid, const LumaRange& luma) {
#pragma unroll
    for (int axis = 0; axis < 2; axis++) {
      first[axis] = luma.first[axis] >> grid.node_log2;
      last[axis] = (luma.last[axis] >> grid.node_log2) + 1;
      last[axis] = last[axis] < grid.node_count[axis] ? last[axis] : grid.node_count[axis] - 1;
    }
  }
  __device__ __forceinline__ u32 first_node(const SoftGrid& grid) const {
    return grid.nodes[first[1] * grid.node_count[0] + first[0]];
  }
  // Whether some node differs from the first one, of those in every `columns`th column from `x` on of every `rows`th row from `y` on.
  __device__ __forceinline__ bool differ(const SoftGrid& grid, u32 x, u32 columns, u32 y, u32 rows) const {
    const u32 weight = first_node(grid);
    u32 differs = 0;
#pragma unroll 1
    for (y += first[1]; y <= last[1]; y += rows)
#pragma unroll 2
      for (u32 column = first[0] + x; column <= last[0]; column += columns)
        differs |= grid.nodes[y * grid.node_count[0] + column] ^ weight;
    return differs != 0;
  }
};

// The nodes that samples of some columns and rows are between.
__device__ __forceinline__ NodeRange nodes_of(const SoftGrid& grid, u32 x_begin, u32 x_end, u32 y_begin, u32 y_end) {
  LumaRange luma = luma_of(grid, x_begin, x_end, y_begin);
  luma.last[1] = luma_of(grid, x_begin, x_end, y_end - 1).last[1];
  return NodeRange(grid, luma);
}

// The weights of samples in a column: of each the largest of the luma samples that it stands for.
struct WeightColumn {
  // The luma samples that it stands for are in these columns, from the first to the last.
  u32 columns[2];
  // The cell of nodes of the values below; none at first.
  u32 cell[2] = {~0u, ~0u};
  // At both columns, between the nodes above and between those below, times the luma samples between nodes.
  u32 above[2], below[2];

  __device__ __forceinline__ WeightColumn(const SoftGrid& grid, u32 x) {
    const LumaRange luma = luma_of(grid, x, x + 1, 0);
    columns[0] = luma.first[0];
    columns[1] = luma.last[0];
  }

  // That of the sample in a row.
  __device__ __forceinline__ u32 at(const SoftGrid& grid, u32 y) {
    const LumaRange luma = luma_of(grid, 0, 1, y);
    const u32 log2 = grid.node_log2, side = 1u << log2, within = side - 1;
    u32 largest = 0;
#pragma unroll 1
    for (u32 top = luma.first[1]; top <= luma.last[1];) {
      const u32 end = luma.last[1] < (top | within) ? luma.last[1] : top | within;
      // The last row of the field there.
      const u32 bottom = end - ((end - top) & (grid.fields - 1));
#pragma unroll 1
      for (u32 left = columns[0]; left <= columns[1];) {
        const u32 right = columns[1] < (left | within) ? columns[1] : left | within;
        load(grid, left, right, top >> log2);
        // Between four nodes the largest is at a corner of the luma samples.
#pragma unroll
        for (int i = 0; i < 4; i++) {
          const u32 down = (i / 2 ? bottom : top) & within, weight = above[i % 2] * (side - down) + below[i % 2] * down;
          largest = largest > weight ? largest : weight;
        }
        left = right + 1;
      }
      top = bottom + grid.fields;
    }
    return (largest + side * side / 2) >> 2 * log2;
  }

  // Loads the nodes around luma columns that are between the same ones.
  __device__ __forceinline__ void load(const SoftGrid& grid, u32 left, u32 right, u32 row) {
    const u32 log2 = grid.node_log2, side = 1u << log2, column = left >> log2;
    if (cell[0] == column && cell[1] == row) return;
    cell[0] = column;
    cell[1] = row;
    const u32 next = column + 1 < grid.node_count[0] ? column + 1 : column;
    const u8* upper = grid.nodes + row * grid.node_count[0];
    const u8* lower = row + 1 < grid.node_count[1] ? upper + grid.node_count[0] : upper;
#pragma unroll
    for (int i = 0; i < 2; i++) {
      const u32 across = (i ? right : left) & (side - 1);
      above[i] = upper[column] * (side - across) + upper[next] * across;
      below[i] = lower[column] * (side - across) + lower[next] * across;
    }
  }
};

// A cell: the mean of its samples, and in the upper half how much it counts.
__device__ __forceinline__ u32 cell_value(u32 cell) { return cell & 0xffff; }
__device__ __forceinline__ u32 cell_weight(u32 cell) { return cell >> 16; }

// Computes one cell of the first level.
__device__ __forceinline__ void soft_cell(const SoftGrid& grid, u8* shared) {
  const u32 cell = blockIdx.x - grid.first_block, lane = threadIdx.x, channels = grid.channels;
  const u32 place[2] = {cell % grid.cell_count[0], cell / grid.cell_count[0]};
  u32 begin[2], end[2];
#pragma unroll
  for (int axis = 0; axis < 2; axis++) {
    const int luma = static_cast<int>(place[axis] * grid.side);
    begin[axis] = samples_before(grid, axis, luma);
    end[axis] = samples_before(grid, axis, luma + static_cast<int>(grid.side));
  }
  const u32 count = (end[0] - begin[0]) * (end[1] - begin[1]);
  u32 mean = 0, counts = 0;
  if (count > 0) {
    const NodeRange nodes = nodes_of(grid, begin[0], end[0], begin[1], end[1]);
    const u32 weight = nodes.first_node(grid);
    const bool is_same = !__syncthreads_or(nodes.differ(grid, lane % 8, 8, lane / 8, 4));
    const u32 first_byte = begin[0] * channels, bytes = (end[0] - begin[0]) * channels;
    const u8* const src = grid.src + begin[1] * grid.src_pitch + first_byte;
    const bool has_words = grid.depth == 8 && grid.pixel_step == channels && channels != 3 && bytes % 16 == 0 &&
                           bytes <= 512 && misalignment(src, 16) == 0 && grid.src_pitch % 16 == 0;
    // The whole block takes one of these branches.
    if (is_same && weight == 255) {
      // Of what counts nothing, the first sample is read.
      if (lane < channels) mean = load_channel(grid, grid.src + begin[1] * grid.src_pitch, begin[0], lane);
    } else if (is_same && has_words) {
      u32 of_bytes[4] = {0, 0, 0, 0};
      // The bytes of a word that are of the first channel.
      const u32 first = channels == 1 ? 0x01010101 : channels == 2 ? 0x00010001 : 1;
      // A warp takes as many rows at a time as it has lanes for groups of 16 bytes.
      const u32 across = bytes / 16, down = 32 / across, row = lane / across, rows = row < down ? end[1] - begin[1] : 0;
#pragma unroll 2
      for (u32 y = row; y < rows; y += down) {
        const Words<4> four = *offset_ptr<const Words<4>>(src, y * grid.src_pitch + (lane - row * across) * 16);
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
          for (u32 c = 0; c < 4; c++)
            if (c < channels) of_bytes[c] = dot4(of_bytes[c], first << 8 * c, four.word[i]);
      }
      u32* words = offset_ptr<u32>(shared, 0);
#pragma unroll
      for (u32 c = 0; c < 4; c++)
        if (c < channels) words[c * BLUR_SOFT_CELL_THREADS + lane] = of_bytes[c];
      __syncthreads();
      u32 sum = 0;
      if (lane < channels) {
#pragma unroll
        for (u32 i = 0; i < BLUR_SOFT_CELL_THREADS; i += 4) {
          const Words<4> four = *offset_ptr<const Words<4>>(words, (lane * BLUR_SOFT_CELL_THREADS + i) * sizeof(u32));
          sum += four.word[0] + four.word[1] + four.word[2] + four.word[3];
        }
      }
      // What all samples count is left out of the quotient.
      mean = (2 * sum + count) / (2 * count);
      counts = 4 * (255 - weight) < 255 ? 4 * (255 - weight) : 255;
    } else {
      // Sums of each lane: those of the channels, and behind them what is left.
      u64* sums = offset_ptr<u64>(shared, lane * sizeof(u64));
#pragma unroll 1
      for (u32 c = 0; c <= channels; c++) sums[c * BLUR_SOFT_CELL_THREADS] = 0;
#pragma unroll 1
      for (u32 x = begin[0] + lane % 8; x < end[0]; x += 8) {
        WeightColumn weights(grid, x);
#pragma unroll 1
        for (u32 y = begin[1] + lane / 8; y < end[1]; y += 4) {
          const u32 left = 255 - (is_same ? weight : weights.at(grid, y));
          const u8* row = grid.src + y * grid.src_pitch;
          sums[channels * BLUR_SOFT_CELL_THREADS] += left;
#pragma unroll 1
          for (u32 c = 0; c < channels; c++)
            sums[c * BLUR_SOFT_CELL_THREADS] += u64{left} * (load_channel(grid, row, x, c) & ((1u << grid.depth) - 1));
        }
      }
      __syncthreads();
      const u64* lanes = offset_ptr<u64>(shared, 0);
      u64 sum = 0, all = 0;
      if (lane < channels) {
#pragma unroll 4
        for (u32 i = 0; i < BLUR_SOFT_CELL_THREADS; i++) {
          sum += lanes[lane * BLUR_SOFT_CELL_THREADS + i];
          all += lanes[channels * BLUR_SOFT_CELL_THREADS + i];
        }
        mean = all > 0 ? static_cast<u32>((2 * sum + all) / (2 * all))
                       : load_channel(grid, grid.src + begin[1] * grid.src_pitch, begin[0], lane);
        const u32 quarters = (static_cast<u32>(4 * all) + count - 1) / count;
        counts = quarters < 255 ? quarters : 255;
      }
    }
  }
  if (lane < channels) offset_ptr<u32>(grid.cells, 0)[cell * channels + lane] = counts << 16 | mean;
}

// The estimates of the first level are behind its cells.
__device__ __forceinline__ u32* soft_estimates(const SoftGrid& grid) {
  return offset_ptr<u32>(grid.cells, 0) + grid.cell_count[0] * grid.cell_count[1] * grid.channels;
}

// A level of the cells of a channel.
struct SoftLevel {
  u32* cells;
  u32 columns, rows;
  // Words from one cell to the next.
  u32 step;

  __device__ __forceinline__ u32& at(u32 x, u32 y) const { return cells[(y * columns + x) * step]; }

  // Calls `cell` for each of them, in some thread of the first `count` warps, of which this is one of the first if `warp` is less.
  template <class Cell> __device__ __forceinline__ void for_each(u32 warp, u32 count, Cell cell) const {
#pragma unroll 1
    for (u32 y = warp; y < rows; y += count)
#pragma unroll 1
      for (u32 x = threadIdx.x % 32; x < columns; x += 32) cell(x, y);
  }
};

// Makes estimates of a part of the cells of one channel. Each block makes all other levels for itself, in shared memory.
__device__ __forceinline__ void soft_spread(const SoftGrid& grid, u8* shared) {
  constexpr u32 WARPS = BLUR_SOFT_SPREAD_THREADS / 32;
  const u32 index = blockIdx.x - grid.first_block, warp = threadIdx.x / 32;
  const u32 channel = index / BLUR_SOFT_SPREAD_BLOCKS, part = index % BLUR_SOFT_SPREAD_BLOCKS;
  const SoftLevel first = {offset_ptr<u32>(grid.cells, 0) + channel, grid.cell_count[0], grid.cell_count[1], grid.channels};
  SoftLevel level = first;
  u32 number = 0;
#pragma unroll 1
  while (level.columns > 1 || level.rows > 1) {
    const SoftLevel finer = level;
    level.cells = number == 0 ? offset_ptr<u32>(shared, 0) : finer.cells + finer.columns * finer.rows;
    level.columns = (finer.columns + 1) / 2;
    level.rows = (finer.rows + 1) / 2;
    level.step = 1;
    number++;
    level.for_each(warp, WARPS, [&](u32 x, u32 y) {
      u32 cells[4], weights = 0, sum = 0;
#pragma unroll
      for (u32 j = 0; j < 4; j++) {
        const u32 column = 2 * x + j % 2, row = 2 * y + j / 2;
        cells[j] = column < finer.columns && row < finer.rows ? finer.at(column, row) : 0;
        weights += cell_weight(cells[j]);
        sum += cell_weight(cells[j]) * cell_value(cells[j]);
      }
      // Where no cell counts, the value is that of the first one.
      const u32 mean = weights > 0 ? (2 * sum + weights) / (2 * weights) : cell_value(cells[0]);
      level.at(x, y) = (weights < 255 ? weights : 255) << 16 | mean;
    });
    __syncthreads();
  }
  // The estimate of a cell: what it does not count is bilinear between those of the level above; the last one has none.
  u32* const estimates = soft_estimates(grid) + channel;
  if (number == 0 && part == 0 && threadIdx.x == 0) *estimates = cell_value(*first.cells);
  if (number > 0 && threadIdx.x == 0) *level.cells = cell_value(*level.cells);
  __syncthreads();
#pragma unroll 1
  while (number-- > 0) {
    const SoftLevel coarser = level;
    level = first;
    if (number > 0) {
      level.columns = (first.columns + (1u << number) - 1) >> number;
      level.rows = (first.rows + (1u << number) - 1) >> number;
      level.cells = coarser.cells - level.columns * level.rows;
      level.step = 1;
    }
    const u32 first_warp = number > 0 ? warp : part * WARPS + warp, warps = number > 0 ? WARPS : WARPS * BLUR_SOFT_SPREAD_BLOCKS;
    level.for_each(first_warp, warps, [&](u32 x, u32 y) {
      // A cell lies a quarter beside the centre of the one above it: the next one on that side counts a quarter.
      const u32 columns[2] = {x / 2, x % 2 ? (x / 2 + 1 < coarser.columns ? x / 2 + 1 : x / 2) : x > 0 ? x / 2 - 1 : 0};
      const u32 rows[2] = {y / 2, y % 2 ? (y / 2 + 1 < coarser.rows ? y / 2 + 1 : y / 2) : y > 0 ? y / 2 - 1 : 0};
      u32 sum = 8;
#pragma unroll
      for (int j = 0; j < 4; j++) sum += (j % 2 ? 1 : 3) * (j / 2 ? 1 : 3) * coarser.at(columns[j % 2], rows[j / 2]);
      const u32 cell = level.at(x, y), estimate = sum / 16;
      u32& to = number > 0 ? level.at(x, y) : estimates[(y * level.columns + x) * level.step];
      to = (cell_weight(cell) * cell_value(cell) + (255 - cell_weight(cell)) * estimate + 127) / 255;
    });
    __syncthreads();
  }
}

// The cells along an axis that a sample lies between the centres of, and how much the second one counts.
struct CellPlace {
  u32 near[2], of_next;
  // Of the first one, from 1 on, which is in front of the first column or row.
  u32 number;

  __device__ __forceinline__ CellPlace(const SoftGrid& grid, int axis, u32 sample) {
    const u32 shift = grid.side_log2 + 1, parts = 1u << shift;
    const int luma = static_cast<int>((sample << grid.unit_log2[axis]) + grid.luma[axis]);
    // Half luma samples beyond the centre of the first cell, from -parts on.
    const int distance = 2 * luma + (1 << grid.unit_log2[axis]) - static_cast<int>(grid.side);
    const u32 beyond = static_cast<u32>(distance) + parts;
    number = (beyond >> shift) + 1;
    const int cell = static_cast<int>(number) - 2, last = static_cast<int>(grid.cell_count[axis]) - 1;
    of_next = beyond & (parts - 1);
    near[0] = static_cast<u32>(clamp(cell, 0, last));
    near[1] = static_cast<u32>(clamp(cell + 1, 0, last));
  }
};

// (weight · cover + (255 - weight) · sample + 127) / 255; below 2^24.
__device__ __forceinline__ u32 mixed(u32 sample, u32 cover, u32 weight) {
  return (weight * cover + (255 - weight) * sample + 127) / 255;
}

// Estimates at samples of a channel in a column, bilinear between the centres of the cells.
struct EstimateColumn {
  // At the rows of cells around, times the parts of a column; and the number of the first of these rows, 0 for none.
  u32 above, below, number = 0;

  __device__ __forceinline__ u32 at(const SoftGrid& grid, u32 x, u32 c, const CellPlace& rows) {
    const u32 shift = grid.side_log2 + 1, parts = 1u << shift;
    if (number != rows.number) {
      number = rows.number;
      const CellPlace columns(grid, 0, x);
      const u32* cells = soft_estimates(grid) + c;
      const u32 first = columns.near[0] * grid.channels, second = columns.near[1] * grid.channels;
      const u32* row = cells + rows.near[0] * grid.cell_count[0] * grid.channels;
      above = row[first] * (parts - columns.of_next) + row[second] * columns.of_next;
      row = cells + rows.near[1] * grid.cell_count[0] * grid.channels;
      below = row[first] * (parts - columns.of_next) + row[second] * columns.of_next;
    }
    return (above * (parts - rows.of_next) + below * rows.of_next + parts * parts / 2) >> 2 * shift;
  }
};

// Samples, or rows, from a first to a last one, exclusive.
struct SoftSpan {
  u32 begin, end;

  // The part of it in a span.
  __device__ __forceinline__ SoftSpan within(const u32 (&span)[2]) const {
    return {begin > span[0] ? begin : span[0], end < span[1] ? end : span[1]};
  }
  __device__ __forceinline__ bool is_empty() const { return begin >= end; }
};

// The pixel of a sample among those of all channels of a row.
__device__ __forceinline__ u32 pixel_of(const SoftGrid& grid, u32 sample) {
  return grid.channels == 3 ? sample / 3 : sample >> grid.channels / 2;
}

// The nodes that samples of all channels of some rows are between.
__device__ __forceinline__ NodeRange nodes_around(const SoftGrid& grid, const SoftSpan& samples, const SoftSpan& rows) {
  return nodes_of(grid, pixel_of(grid, samples.begin), pixel_of(grid, samples.end - 1) + 1, rows.begin, rows.end);
}

// Stores channel c of a sample as it is.
__device__ __forceinline__ void store_stored(const SoftGrid& grid, u8* row, u32 x, u32 c, u32 value) {
  const u32 index = grid.first + c * grid.channel_step + x * grid.pixel_step;
  if (grid.packed1010102) {
    const u32 mask = (c == 3 ? 3u : 1023u) << 10 * c, word = (load_unaligned(row + 4 * x) & ~mask) | value << 10 * c;
#pragma unroll
    for (u32 byte = 0; byte < 4; byte++) row[4 * x + byte] = static_cast<u8>(word >> 8 * byte);
  } else if (grid.depth == 8) {
    row[index] = static_cast<u8>(value);
  } else {
    row[2 * index] = static_cast<u8>(value);
    row[2 * index + 1] = static_cast<u8>(value >> 8);
  }
}

// Each thread mixes a run of samples, of all channels in turn, in each of some rows; a block does a tile.
__device__ __forceinline__ void soft_mix(const SoftGrid& grid) {
  constexpr u32 WARPS = BLUR_SOFT_THREADS / 32, RUN = BLUR_SOFT_RUN, ROWS = BLUR_SOFT_ROWS;
  const u32 tile = blockIdx.x - grid.first_block, down = tile / grid.tiles, across = tile - down * grid.tiles;
  const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, channels = grid.channels;
  const u32 covered[2] = {grid.covered[0][0] * channels, grid.covered[0][1] * channels};
  const u32 left = (covered[0] / RUN + across * 32) * RUN, top = (grid.covered[1][0] / ROWS + down * WARPS) * ROWS;
  const SoftSpan of_thread = {left + lane * RUN, left + lane * RUN + RUN};
  const SoftSpan samples = of_thread.within(covered);
  const SoftSpan rows = SoftSpan{top + warp * ROWS, top + warp * ROWS + ROWS}.within(grid.covered[1]);
  // Most tiles, and most runs of the others, have the same weight everywhere, and it is 0 or 255.
  const SoftSpan all = SoftSpan{left, left + 32 * RUN}.within(covered);
  const NodeRange of_tile = nodes_around(grid, all, SoftSpan{top, top + WARPS * ROWS}.within(grid.covered[1]));
  u32 weight = of_tile.first_node(grid);
  bool is_same = !__syncthreads_or(of_tile.differ(grid, lane, 32, warp, WARPS));
  if (samples.is_empty() || rows.is_empty()) return;
  if (!is_same) {
    const NodeRange nodes = nodes_around(grid, samples, rows);
    weight = nodes.first_node(grid);
    is_same = !nodes.differ(grid, 0, 1, 0, 1);
  }
  if (is_same && weight == 0 && grid.src == grid.dst) return;
  const u32 skew = misalignment(grid.src, 8) | misalignment(grid.dst, 8) | misalignment(grid.cover, 8) |
                   static_cast<u32>((grid.src_pitch | grid.dst_pitch | grid.cover_pitch) & 7);
  const bool is_dense = is_same && grid.pixel_step == channels && samples.end - samples.begin == RUN &&
                        !grid.packed1010102 && skew % (grid.depth == 8 ? 4 : 8) == 0;
  if (is_dense && (weight == 0 || (weight == 255 && grid.cover && grid.kept == 0))) {
    const u64 pitch = weight == 0 ? grid.src_pitch : grid.cover_pitch, bytes = grid.depth == 8 ? 1 : 2;
    const u8* from = (weight == 0 ? grid.src : grid.cover) + rows.begin * pitch + bytes * samples.begin;
    u8* to = grid.dst + rows.begin * grid.dst_pitch + bytes * samples.begin;
    Words<2> words[ROWS] = {};
#pragma unroll
    for (u32 i = 0; i < ROWS; i++) {
      if (rows.begin + i >= rows.end) continue;
      if (grid.depth == 8) words[i].word[0] = offset_ptr<const Words<1>>(from, i * pitch)->word[0];
      else words[i] = *offset_ptr<const Words<2>>(from, i * pitch);
    }
#pragma unroll
    for (u32 i = 0; i < ROWS; i++) {
      if (rows.begin + i >= rows.end) continue;
      if (grid.depth == 8) offset_ptr<Words<1>>(to, i * grid.dst_pitch)->word[0] = words[i].word[0];
      else *offset_ptr<Words<2>>(to, i * grid.dst_pitch) = words[i];
    }
    return;
  }
  u32 x = pixel_of(grid, samples.begin), c = samples.begin - x * channels;
  if (is_dense && weight == 255 && !grid.cover && grid.kept == 0 && grid.depth == 8) {
    EstimateColumn estimates[RUN];
    u8* to = grid.dst + rows.begin * grid.dst_pitch + samples.begin;
#pragma unroll 1
    for (u32 y = rows.begin; y < rows.end; y++, to += grid.dst_pitch) {
      const CellPlace place(grid, 1, y);
      u32 word = 0, pixel = x, channel = c;
#pragma unroll
      for (u32 i = 0; i < RUN; i++) {
        word |= estimates[i].at(grid, pixel, channel, place) << 8 * i;
        const bool is_last = channel + 1 == channels;
        pixel += is_last;
        channel = is_last ? 0 : channel + 1;
      }
      offset_ptr<Words<1>>(to, 0)->word[0] = word;
    }
    return;
  }
  const u32 mask = (1u << grid.depth) - 1;
#pragma unroll 1
  for (u32 i = samples.begin; i < samples.end; i++) {
    WeightColumn weights(grid, x);
    EstimateColumn estimates;
    const bool is_kept = grid.kept >> c & 1;
#pragma unroll 1
    for (u32 y = rows.begin; y < rows.end; y++) {
      const u32 of_sample = is_kept ? 0 : is_same ? weight : weights.at(grid, y);
      u32 sample = load_stored(grid, grid.src + y * grid.src_pitch, x, c);
      // A sample that is not mixed keeps its padding.
      if (of_sample > 0) {
        u32 cover = 0;
        if (grid.cover) cover = load_stored(grid, grid.cover + y * grid.cover_pitch, x, c) >> grid.shift & mask;
        else cover = estimates.at(grid, x, c, CellPlace(grid, 1, y));
        sample = mixed(sample >> grid.shift & mask, cover, of_sample) << grid.shift;
      }
      store_stored(grid, grid.dst + y * grid.dst_pitch, x, c, sample);
    }
    const bool is_last = ++c == channels;
    x += is_last;
    c = is_last ? 0 : c;
  }
}
#endif
