// SPDX-License-Identifier: MPL-2.0
// Soft covers: mixes a cover into a picture by weights, and makes estimates of what the picture shows without its objects.
// abi.h has the parameters and their contract, docs/ARITHMETIC.md the formulas.
#ifndef BLUR_SOFT_H
#define BLUR_SOFT_H
#include "cover.cuh"
#include "warp.cuh"

// Samples, or rows, from a first to a last one, exclusive.
struct SoftSpan {
  u32 begin, end;

  // The part of it in a span.
  __device__ __forceinline__ SoftSpan within(const u32 (&span)[2]) const {
    return {begin > span[0] ? begin : span[0], end < span[1] ? end : span[1]};
  }
  __device__ __forceinline__ SoftSpan until(u32 last) const { return {begin, end < last ? end : last}; }
  __device__ __forceinline__ bool is_empty() const { return begin >= end; }
};

// Luma samples, from the first ones to the last ones.
struct LumaRange {
  u32 first[2], last[2];
};

// The luma samples that a sample stands for: the last one of a row or column stands for all that are left; the rows are those of
// its field.
__device__ __forceinline__ LumaRange luma_of(const SoftGrid& grid, u32 x, u32 y) {
  const u32 at[2] = {x, y};
  LumaRange luma;
#pragma unroll
  for (int axis = 0; axis < 2; axis++) {
    const u32 first = grid.luma[axis] + (at[axis] << grid.unit_log2[axis]), end = first + (1u << grid.unit_log2[axis]);
    const u32 size = grid.size[axis], fields = axis ? grid.fields : 1;
    luma.first[axis] = first < size ? first : size - 1;
    luma.last[axis] = (at[axis] + 1 < grid.count[axis] && end < size ? end : size) - 1;
    luma.last[axis] -= (luma.last[axis] - luma.first[axis]) & (fields - 1);
  }
  return luma;
}

// The nodes that samples of some columns and rows are between, from the first ones to the last ones.
struct NodeRange {
  u32 first[2], last[2];

  __device__ __forceinline__ NodeRange(const SoftGrid& grid, const SoftSpan& columns, const SoftSpan& rows) {
    const u32 begin[2] = {columns.begin, rows.begin}, end[2] = {columns.end, rows.end};
#pragma unroll
    for (int axis = 0; axis < 2; axis++) {
      const u32 unit = grid.unit_log2[axis], last_node = grid.node_count[axis] - 1;
      const u32 last_luma = grid.luma[axis] + (end[axis] << unit) - (axis ? grid.fields : 1);
      first[axis] = (grid.luma[axis] + (begin[axis] << unit)) >> grid.node_log2;
      last[axis] = (last_luma >> grid.node_log2) + 1;
      // The last sample stands for all that are left.
      if (first[axis] > last_node) first[axis] = last_node;
      if (last[axis] > last_node || end[axis] >= grid.count[axis]) last[axis] = last_node;
    }
  }
  __device__ __forceinline__ u32 first_node(const SoftGrid& grid) const {
    return grid.nodes[first[1] * grid.node_count[0] + first[0]];
  }
  // Whether some node differs from the first one, in every `columns`th column from `x` on.
  __device__ __forceinline__ bool differ(const SoftGrid& grid, u32 x, u32 columns) const {
    const u32 weight = first_node(grid);
    u32 differs = 0;
#pragma unroll 1
    for (u32 row = first[1]; row <= last[1]; row += 4)
#pragma unroll 1
      for (u32 column = first[0] + x; column <= last[0]; column += columns)
        // Four at a time are on their way.
#pragma unroll
        for (u32 i = 0; i < 4; i++)
          differs |= grid.nodes[(row + i < last[1] ? row + i : last[1]) * grid.node_count[0] + column] ^ weight;
    return differs != 0;
  }
};

// The four nodes around luma samples.
struct FourNodes {
  u32 upper[2], lower[2];

  __device__ __forceinline__ FourNodes(const SoftGrid& grid, u32 luma_x, u32 luma_y) {
    const u32 columns = grid.node_count[0], column = luma_x >> grid.node_log2, row = luma_y >> grid.node_log2;
    const u32 next = column + 1 < columns ? 1 : 0, below = row + 1 < grid.node_count[1] ? columns : 0;
    const u8* const first = grid.nodes + row * columns + column;
    upper[0] = first[0];
    upper[1] = first[next];
    lower[0] = first[below];
    lower[1] = first[below + next];
  }
};

// The weight of a sample, times the square of the luma samples between nodes: the largest of the luma samples that it stands for.
__device__ __forceinline__ u32 weight_of(const SoftGrid& grid, u32 x, u32 y) {
  const u32 side = 1u << grid.node_log2, within = side - 1;
  const LumaRange luma = luma_of(grid, x, y);
  u32 largest = 0;
#pragma unroll 1
  for (u32 top = luma.first[1]; top <= luma.last[1];) {
    const u32 end = luma.last[1] < (top | within) ? luma.last[1] : top | within;
    // The last row of the field there.
    const u32 bottom = end - ((end - top) & (grid.fields - 1));
#pragma unroll 1
    for (u32 left = luma.first[0]; left <= luma.last[0];) {
      const u32 right = luma.last[0] < (left | within) ? luma.last[0] : left | within;
      const FourNodes nodes(grid, left, top);
      // Between four nodes the largest is at a corner of the luma samples.
#pragma unroll
      for (int i = 0; i < 4; i++) {
        const u32 across = (i / 2 ? right : left) & within, down = (i % 2 ? bottom : top) & within;
        const u32 above = nodes.upper[0] * (side - across) + nodes.upper[1] * across;
        const u32 below = nodes.lower[0] * (side - across) + nodes.lower[1] * across, weight = above * (side - down) + below * down;
        largest = largest > weight ? largest : weight;
      }
      left = right + 1;
    }
    top = bottom + grid.fields;
  }
  return largest;
}

// The number of rows, from one on, whose luma samples are between the same two rows of nodes; 0 if those of the first one are not.
__device__ __forceinline__ u32 linear_rows(const SoftGrid& grid, u32 y) {
  const LumaRange luma = luma_of(grid, 0, y);
  const u32 end = luma.first[1] | ((1u << grid.node_log2) - 1);
  if (luma.last[1] > end) return 0;
  const u32 rows = ((end - luma.last[1]) >> grid.unit_log2[1]) + 1;
  // The last row of the field stands for all that are left.
  return y + rows < grid.count[1] ? rows : y + 1 < grid.count[1] ? grid.count[1] - 1 - y : 1;
}

// Whether the luma samples of a column are between two columns of nodes.
__device__ __forceinline__ bool is_linear_column(const SoftGrid& grid, u32 x) {
  const LumaRange luma = luma_of(grid, x, 0);
  return luma.first[0] >> grid.node_log2 == luma.last[0] >> grid.node_log2;
}

// The weights of a column in some rows, times the square of the luma samples between nodes. They are linear at the first and at the
// last of its luma columns, and the larger one counts.
struct WeightLines {
  u32 weight[2], step[2];

  // The same weight in all rows.
  __device__ __forceinline__ void set(u32 scaled) {
    weight[0] = weight[1] = scaled;
    step[0] = step[1] = 0;
  }
  // Those of rows between the same rows of nodes, in a column between the same columns of nodes.
  __device__ __forceinline__ void set_linear(const SoftGrid& grid, u32 x, u32 y) {
    const LumaRange luma = luma_of(grid, x, y);
    const FourNodes nodes(grid, luma.first[0], luma.first[1]);
    const u32 side = 1u << grid.node_log2;
#pragma unroll
    for (int i = 0; i < 2; i++) {
      const u32 across = (i ? luma.last[0] : luma.first[0]) & (side - 1);
      const u32 above = nodes.upper[0] * (side - across) + nodes.upper[1] * across;
      const u32 below = nodes.lower[0] * (side - across) + nodes.lower[1] * across;
      // Of the luma rows of a sample the last one has the largest weight if weights increase.
      const u32 down = (above < below ? luma.last[1] : luma.first[1]) & (side - 1);
      weight[i] = above * (side - down) + below * down;
      step[i] = (below - above) << grid.unit_log2[1];
    }
  }
  // Those of as many rows as are linear, of some from a row on, and their number.
  __device__ __forceinline__ u32 set_rows(const SoftGrid& grid, bool is_linear, u32 x, u32 y, u32 count) {
    const u32 linear = is_linear ? linear_rows(grid, y) : 0;
    if (linear > 0) set_linear(grid, x, y);
    else set(weight_of(grid, x, y));
    return linear == 0 ? 1 : count < linear ? count : linear;
  }
  // The weight in this row; then it is the next row's turn.
  __device__ __forceinline__ u32 next(const SoftGrid& grid) {
    const u32 log2 = 2 * grid.node_log2, largest = weight[0] > weight[1] ? weight[0] : weight[1];
    weight[0] += step[0];
    weight[1] += step[1];
    return (largest + (1u << log2 >> 1)) >> log2;
  }
};

// A cell: the mean of its samples, and in the upper half how much it counts.
__device__ __forceinline__ u32 cell_value(u32 cell) { return cell & 0xffff; }
__device__ __forceinline__ u32 cell_weight(u32 cell) { return cell >> 16; }

// Value `index` of four.
__device__ __forceinline__ u32 of_four(const u32 (&values)[4], u32 index) {
  u32 value = values[0];
#pragma unroll
  for (u32 i = 1; i < 4; i++) value = index == i ? +values[i] : value;
  return value;
}

// A quotient below 2^16. The compiler's division of 64-bit numbers would need more registers than all the rest.
__device__ __forceinline__ u32 quotient(u64 dividend, u32 divisor) {
  u32 result = 0;
#pragma unroll 1
  for (u32 bit = 16; bit-- > 0;) {
    const u64 part = u64{divisor} << bit;
    if (dividend < part) continue;
    dividend -= part;
    result |= 1u << bit;
  }
  return result;
}

// The samples of a cell: what the weights leave, in all, and times the samples of the channel that has the number of the lane.
struct CellSums {
  u32 all = 0;
  u64 of_channel = 0;

  // Adds all samples. A lane takes a column, or a part of it, as many as are side by side in a warp. They have the same weight if it is
  // below 256.
  __device__ __forceinline__ CellSums(const SoftGrid& grid, const SoftSpan& columns, const SoftSpan& rows, u32 weight) {
    const u32 lane = threadIdx.x % 32, width = columns.end - columns.begin, height = rows.end - rows.begin;
    const u32 lanes = width < 32 ? width : 32, parts = 32 / lanes, part = lane / lanes, part_rows = (height + parts - 1) / parts;
    const SoftSpan own = SoftSpan{rows.begin + part * part_rows, rows.begin + (part + 1) * part_rows}.until(rows.end);
    const u32 channels = grid.channels;
#pragma unroll 1
    for (u32 pass = 0; pass < width; pass += lanes) {
      const u32 x = columns.begin + pass + lane % lanes;
      // A column has at most 128 rows: their sums do not overflow.
      u32 left_of_column = 0, sums[4] = {0, 0, 0, 0};
#pragma unroll 1
      for (u32 y = own.begin; part < parts && x < columns.end && y < own.end;) {
        u32 count = own.end - y;
        WeightLines weights;
        if (weight < 256) weights.set(weight << 2 * grid.node_log2);
        else count = weights.set_rows(grid, is_linear_column(grid, x), x, y, count);
#pragma unroll 1
        for (; count > 0; count--, y++) {
          const u32 left = 255 - weights.next(grid);
          left_of_column += left;
#pragma unroll
          for (u32 c = 0; c < 4; c++)
            if (c < channels) sums[c] += left * load_channel(grid.layout[c], grid.word_bytes, grid.src + y * grid.src_pitch, x);
        }
      }
      all += warp_sum(left_of_column);
#pragma unroll
      for (u32 c = 0; c < 4; c++) {
        const u64 sum = c < channels ? warp_sum(u64{sums[c]}) : 0;
        of_channel += lane == c ? sum : 0;
      }
    }
  }
};

// Adds the samples of 16 bytes to the sums of their channels, of which there are 1, 2 or 4.
__device__ __forceinline__ void add_words(const SoftGrid& grid, const Words<4>& words, u32 (&sums)[4]) {
  const u32 channels = grid.channels, shift = grid.layout[0].shift, mask = (1u << grid.layout[0].bits) - 1;
  // The bytes of a word that are of the first channel.
  const u32 first = channels == 1 ? 0x01010101 : channels == 2 ? 0x00010001 : 1;
#pragma unroll
  for (u32 i = 0; i < 4; i++) {
    if (grid.word_bytes == 1) {
#pragma unroll
      for (u32 c = 0; c < 4; c++)
        if (c < channels) sums[c] = dot4(sums[c], first << 8 * c, words.word[i]);
    } else {
      const u32 low = words.word[i] >> shift & mask, high = words.word[i] >> 16 >> shift & mask;
      const bool is_second = channels == 4 && i % 2 == 1;
      sums[0] += is_second ? 0 : low + (channels == 1 ? high : 0);
      sums[1] += is_second || channels == 1 ? 0 : high;
      sums[2] += is_second ? low : 0;
      sums[3] += is_second ? high : 0;
    }
  }
}

// Whether the grid's samples lie one after the other in a row, each in its own word.
__device__ __forceinline__ bool is_dense_grid(const SoftGrid& grid) {
  return grid.word_bytes < 4 && grid.layout[0].step == grid.channels * grid.word_bytes;
}

// Computes a cell of the first level in each warp.
__device__ __forceinline__ void soft_cell(const SoftGrid& grid) {
  const u32 lane = threadIdx.x % 32, channels = grid.channels, bytes = channels * grid.word_bytes;
  const u32 cell = (blockIdx.x - grid.first_block) * (BLUR_SOFT_THREADS / 32) + threadIdx.x / 32;
  const u32 place[2] = {cell % grid.cell_count[0], cell / grid.cell_count[0]};
  // The whole warp leaves, and takes the same branches below.
  if (place[1] >= grid.cell_count[1]) return;
  SoftSpan spans[2];
#pragma unroll
  for (int axis = 0; axis < 2; axis++) {
    const int luma = static_cast<int>(place[axis] * grid.side);
    spans[axis] = {samples_before(grid, axis, luma), samples_before(grid, axis, luma + static_cast<int>(grid.side))};
  }
  const u32 width = spans[0].end - spans[0].begin, height = spans[1].end - spans[1].begin, count = width * height;
  const bool is_dense = is_dense_grid(grid);
  // Lanes with 16 bytes each for a row of a whole cell: a power of two, as its side is.
  const int lanes_log2 = static_cast<int>(grid.side_log2 - grid.unit_log2[0] + channels / 2 + grid.word_bytes / 2) - 4;
  const u8* const src = grid.src + spans[1].begin * grid.src_pitch;
  const u8* const dense = src + spans[0].begin * bytes;
  const bool has_words = is_dense && channels != 3 && width == grid.side >> grid.unit_log2[0] && lanes_log2 >= 0 && lanes_log2 <= 5 &&
                         (reinterpret_cast<u64>(dense) | grid.src_pitch) % 16 == 0;
  u32 mean = 0, counts = 0;
  if (count > 0) {
    // A warp takes as many rows at a time as it has lanes for. The first ones are on their way while the nodes are.
    const u32 row = has_words ? lane >> lanes_log2 : 0, step = has_words ? 32u >> lanes_log2 : 1, rows = has_words ? height : 0;
    const u8* const own = dense + (lane - (row << (has_words ? lanes_log2 : 0))) * 16;
    Words<4> words[2] = {};
#pragma unroll
    for (u32 i = 0; i < 2; i++)
      if (row + i * step < rows) words[i] = *offset_ptr<const Words<4>>(own, (row + i * step) * grid.src_pitch);
    const NodeRange nodes(grid, spans[0], spans[1]);
    const u32 weight = warp_ballot(nodes.differ(grid, lane, 32)) != 0 ? 256 : nodes.first_node(grid);
    if (weight == 255) {
      // Of what counts nothing, the first sample is read.
      if (lane < channels) mean = load_channel(grid.layout[lane], grid.word_bytes, src, spans[0].begin);
    } else if (weight < 255 && has_words) {
      u32 sums[4] = {0, 0, 0, 0};
#pragma unroll 1
      for (u32 y = row;;) {
        add_words(grid, words[0], sums);
        add_words(grid, words[1], sums);
        y += 2 * step;
        if (y >= rows) break;
        words[0] = *offset_ptr<const Words<4>>(own, y * grid.src_pitch);
        words[1] = {};
        if (y + step < rows) words[1] = *offset_ptr<const Words<4>>(own, (y + step) * grid.src_pitch);
      }
#pragma unroll
      for (u32 c = 0; c < 4; c++)
        if (c < channels) sums[c] = warp_sum(sums[c]);
      // What all samples count is left out of the quotient.
      mean = (2 * of_four(sums, lane) + count) / (2 * count);
      counts = 4 * (255 - weight) < 255 ? 4 * (255 - weight) : 255;
    } else {
      const CellSums sums(grid, spans[0], spans[1], weight);
      const u32 all = sums.all;
      if (lane < channels)
        mean = all > 0 ? quotient(2 * sums.of_channel + all, 2 * all)
                       : load_channel(grid.layout[lane], grid.word_bytes, src, spans[0].begin);
      const u32 quarters = (4 * all + count - 1) / count;
      counts = quarters < 255 ? quarters : 255;
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

  __device__ __forceinline__ CellPlace(const SoftGrid& grid, int axis, u32 sample) {
    const u32 shift = grid.side_log2 + 1, parts = 1u << shift;
    const int luma = static_cast<int>((sample << grid.unit_log2[axis]) + grid.luma[axis]);
    // Half luma samples beyond the centre of the first cell, from -parts on.
    const int distance = 2 * luma + (1 << grid.unit_log2[axis]) - static_cast<int>(grid.side);
    const u32 beyond = static_cast<u32>(distance) + parts;
    const int cell = static_cast<int>(beyond >> shift) - 1, last = static_cast<int>(grid.cell_count[axis]) - 1;
    of_next = beyond & (parts - 1);
    near[0] = static_cast<u32>(clamp(cell, 0, last));
    near[1] = static_cast<u32>(clamp(cell + 1, 0, last));
  }
  // The number of samples, from this one on, that lie between the same centres.
  __device__ __forceinline__ u32 samples(const SoftGrid& grid, int axis) const {
    return (((2u << grid.side_log2) - 1 - of_next) >> (grid.unit_log2[axis] + 1)) + 1;
  }
};

// (weight · cover + (255 - weight) · sample + 127) / 255; below 2^24.
__device__ __forceinline__ u32 mixed(u32 sample, u32 cover, u32 weight) {
  return (weight * cover + (255 - weight) * sample + 127) / 255;
}

// Estimates at samples of a channel in a column, in rows between the same centres of cells: they are linear.
struct EstimateLine {
  u32 value, step;

  __device__ __forceinline__ void set(const SoftGrid& grid, u32 x, u32 c, const CellPlace& rows) {
    const u32 parts = 2u << grid.side_log2;
    const CellPlace columns(grid, 0, x);
    const u32* const cells = soft_estimates(grid) + c;
    u32 of_row[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
      const u32 row = rows.near[i] * grid.cell_count[0];
      of_row[i] = cells[(row + columns.near[0]) * grid.channels] * (parts - columns.of_next) +
                  cells[(row + columns.near[1]) * grid.channels] * columns.of_next;
    }
    value = of_row[0] * (parts - rows.of_next) + of_row[1] * rows.of_next + parts * parts / 2;
    step = (of_row[1] - of_row[0]) * (2u << grid.unit_log2[1]);
  }
  // The estimate in this row; then it is the next row's turn.
  __device__ __forceinline__ u32 next(const SoftGrid& grid) {
    const u32 estimate = value >> (2 * grid.side_log2 + 2);
    value += step;
    return estimate;
  }
};

// The pixel of a sample among those of all channels of a row.
__device__ __forceinline__ u32 pixel_of(const SoftGrid& grid, u32 sample) {
  return grid.channels == 3 ? sample / 3 : sample >> grid.channels / 2;
}

// The nodes that samples of all channels of some rows are between.
__device__ __forceinline__ NodeRange nodes_around(const SoftGrid& grid, const SoftSpan& samples, const SoftSpan& rows) {
  return NodeRange(grid, {pixel_of(grid, samples.begin), pixel_of(grid, samples.end - 1) + 1}, rows);
}

// Samples of a row, of all channels in turn, that a lane mixes at a time: one, or four whose words have addresses that words have in
// all rows and whose weights are linear.
template <int COUNT> struct SoftGroup {
  u32 first;
  // Of each of them.
  u32 x[COUNT], c[COUNT];

  __device__ __forceinline__ SoftGroup(const SoftGrid& grid, u32 first) : first(first) {
    u32 pixel = pixel_of(grid, first), channel = first - pixel * grid.channels;
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
      x[i] = pixel;
      c[i] = channel;
      const bool is_last = ++channel == grid.channels;
      pixel += is_last;
      channel = is_last ? 0 : channel;
    }
  }
  // The words of it in a row.
  __device__ __forceinline__ Words<2> load(const SoftGrid& grid, const u8* row) const {
    if constexpr (COUNT == 1) {
      const StoredChannel& channel = grid.layout[c[0]];
      return {{load_word(row + channel.offset + x[0] * channel.step, grid.word_bytes), 0}};
    }
    if (grid.word_bytes == 1) return {{offset_ptr<const Words<1>>(row, first)->word[0], 0}};
    return *offset_ptr<const Words<2>>(row, 2 * first);
  }
  // What is stored in each of them, of their words.
  __device__ __forceinline__ void samples(const SoftGrid& grid, const Words<2>& words, u32 (&to)[COUNT]) const {
#pragma unroll
    for (u32 i = 0; i < COUNT; i++) {
      const u32 byte = words.word[0] >> 8 * i & 255, pair = words.word[i / 2] >> 16 * (i % 2) & 0xffff;
      to[i] = COUNT == 1 ? words.word[0] : grid.word_bytes == 1 ? byte : pair;
    }
  }
  __device__ __forceinline__ void store(const SoftGrid& grid, u8* row, const u32 (&samples)[COUNT]) const {
    if constexpr (COUNT == 1) {
      store_channel(grid.layout[c[0]], grid.word_bytes, row, x[0], samples[0]);
    } else {
      const u32 pairs[2] = {byte_perm(samples[0], samples[1], 0x5410), byte_perm(samples[2], samples[3], 0x5410)};
      if (grid.word_bytes == 1) offset_ptr<Words<1>>(row, first)->word[0] = byte_perm(pairs[0], pairs[1], 0x6420);
      else *offset_ptr<Words<2>>(row, 2 * first) = {{pairs[0], pairs[1]}};
    }
  }

  // Mixes it in some rows; they have the same weight if it is below 256.
  __device__ __forceinline__ void mix(const SoftGrid& grid, const SoftSpan& rows, u32 weight) const {
    // Whether none of the samples counts.
    const bool is_covered = weight == 255 && grid.kept == 0, has_cover = grid.cover != nullptr;
    const StoredChannel& channel = grid.layout[COUNT == 1 ? c[0] : 0];
    const u32 mask = (1u << channel.bits) - 1, shift = channel.shift;
    const u8* src = grid.src + rows.begin * grid.src_pitch;
    const u8* cover = has_cover ? grid.cover + rows.begin * grid.cover_pitch : src;
    u8* dst = grid.dst + rows.begin * grid.dst_pitch;
    // The words of the next row are on their way while those of a row are mixed.
    Words<2> next_samples = {}, next_covers = {};
    if (!is_covered) next_samples = load(grid, src);
    if (has_cover) next_covers = load(grid, cover);
#pragma unroll 1
    for (u32 y = rows.begin; y < rows.end;) {
      // Rows in which weights and estimates are linear.
      u32 count = rows.end - y;
      WeightLines weights[COUNT];
      EstimateLine estimates[COUNT];
      if (!has_cover) {
        const CellPlace place(grid, 1, y);
        const u32 most = place.samples(grid, 1);
        count = count < most ? count : most;
#pragma unroll
        for (int i = 0; i < COUNT; i++) estimates[i].set(grid, x[i], c[i], place);
      }
      if (weight == 256 && COUNT == 1) {
        count = weights[0].set_rows(grid, is_linear_column(grid, x[0]), x[0], y, count);
      } else if (weight == 256) {
        const u32 most = linear_rows(grid, y);
        count = count < most ? count : most;
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
          if (i > 0 && x[i] == x[i - 1]) weights[i] = weights[i - 1];
          else weights[i].set_linear(grid, x[i], y);
        }
      } else {
#pragma unroll
        for (int i = 0; i < COUNT; i++) weights[i].set(weight << 2 * grid.node_log2);
      }
#pragma unroll
      for (int i = 0; i < COUNT; i++)
        if (grid.kept >> c[i] & 1) weights[i].set(0);
#pragma unroll 1
      for (; count > 0; count--) {
        const Words<2> sample_words = next_samples, cover_words = next_covers;
        u32 values[COUNT] = {}, covers[COUNT] = {};
        if (++y < rows.end) {
          if (!is_covered) next_samples = load(grid, src + grid.src_pitch);
          if (has_cover) next_covers = load(grid, cover + grid.cover_pitch);
        }
        if (has_cover) {
          samples(grid, cover_words, covers);
#pragma unroll
          for (int i = 0; i < COUNT; i++) covers[i] = covers[i] >> shift & mask;
          cover += grid.cover_pitch;
        } else {
#pragma unroll
          for (int i = 0; i < COUNT; i++) covers[i] = estimates[i].next(grid);
        }
        if (is_covered) {
#pragma unroll
          for (int i = 0; i < COUNT; i++) values[i] = covers[i] << shift;
        } else {
          samples(grid, sample_words, values);
#pragma unroll
          for (int i = 0; i < COUNT; i++) {
            const u32 of_cover = weights[i].next(grid), value = mixed(values[i] >> shift & mask, covers[i], of_cover) << shift;
            // A sample that is not mixed keeps its padding.
            values[i] = of_cover > 0 ? value : values[i];
          }
        }
        store(grid, dst, values);
        src += grid.src_pitch;
        dst += grid.dst_pitch;
      }
    }
  }
};

// Each warp mixes a tile, and each lane of it four samples, of all channels in turn, in some rows.
__device__ __forceinline__ void soft_mix(const SoftGrid& grid) {
  constexpr u32 WARPS = BLUR_SOFT_THREADS / 32, TILE = BLUR_SOFT_TILE, ROWS = BLUR_SOFT_ROWS;
  const u32 tile = blockIdx.x - grid.first_block, down = tile / grid.tiles, across = tile - down * grid.tiles;
  const u32 lane = threadIdx.x % 32, channels = grid.channels, bytes = grid.word_bytes;
  const u32 covered[2] = {grid.covered[0][0] * channels, grid.covered[0][1] * channels};
  const u32 left = (covered[0] / TILE + across) * TILE;
  const u32 top = (grid.covered[1][0] / ROWS + down * WARPS + threadIdx.x / 32) * ROWS;
  const SoftSpan all = SoftSpan{left, left + TILE}.within(covered), rows = SoftSpan{top, top + ROWS}.within(grid.covered[1]);
  // The whole warp leaves.
  if (rows.is_empty()) return;
  const u64 skew = reinterpret_cast<u64>(grid.src) | reinterpret_cast<u64>(grid.dst) | reinterpret_cast<u64>(grid.cover) |
                   grid.src_pitch | grid.dst_pitch | grid.cover_pitch;
  const bool is_dense = is_dense_grid(grid);
  // Most tiles have the same weight everywhere, and it is 0 or 255.
  const NodeRange nodes = nodes_around(grid, all, rows);
  const u32 weight = warp_ballot(nodes.differ(grid, lane, 32)) != 0 ? 256 : nodes.first_node(grid);
  if (weight == 0 && grid.src == grid.dst) return;
  if (is_dense && skew % 16 == 0 && all.end - all.begin == TILE && (weight == 0 || (weight == 255 && grid.cover && grid.kept == 0))) {
    const u8* from = grid.src + rows.begin * grid.src_pitch + bytes * left;
    u64 pitch = grid.src_pitch;
    if (weight > 0) {
      from = grid.cover + rows.begin * grid.cover_pitch + bytes * left;
      pitch = grid.cover_pitch;
    }
    u8* const to = grid.dst + rows.begin * grid.dst_pitch + bytes * left;
    // A warp copies as many rows at a time as it has lanes for groups of 16 bytes.
    const u32 lanes = bytes * TILE / 16, step = 32 / lanes, column = lane % lanes * 16, count = rows.end - rows.begin;
    Words<4> words[ROWS / 2] = {};
    const u32 first = lane / lanes;
#pragma unroll
    for (u32 i = 0; i < ROWS / 2; i++)
      if (first + i * step < count) words[i] = *offset_ptr<const Words<4>>(from, (first + i * step) * pitch + column);
#pragma unroll
    for (u32 i = 0; i < ROWS / 2; i++)
      // By word, so that the array is in registers.
      if (const auto& word = words[i].word; first + i * step < count)
        *offset_ptr<Words<4>>(to, (first + i * step) * grid.dst_pitch + column) = {{word[0], word[1], word[2], word[3]}};
    return;
  }
  const SoftSpan samples = SoftSpan{left + lane * 4, left + lane * 4 + 4}.within(covered);
  if (samples.is_empty()) return;
  // The last sample of a row or column may stand for more luma samples than are between nodes.
  const bool is_linear = grid.unit_log2[0] <= grid.node_log2 && grid.unit_log2[1] <= grid.node_log2 &&
                         is_linear_column(grid, pixel_of(grid, samples.end - 1)) && linear_rows(grid, rows.end - 1) > 0;
  const bool has_words = is_dense && is_linear && skew % (4 * bytes) == 0 && samples.end - samples.begin == 4;
  if (has_words) {
    SoftGroup<4>(grid, samples.begin).mix(grid, rows, weight);
  } else {
#pragma unroll 1
    for (u32 i = samples.begin; i < samples.end; i++) SoftGroup<1>(grid, i).mix(grid, rows, weight);
  }
}
#endif
