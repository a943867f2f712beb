// SPDX-License-Identifier: MPL-2.0
// Soft covers: mixes a cover into a picture by weights, and makes estimates of what the picture shows without its objects.
// abi.h has the parameters and their contract, docs/ARITHMETIC.md the formulas.
#ifndef BLUR_SOFT_H
#define BLUR_SOFT_H
#include "cover.cuh"

// The weight of a luma sample, bilinear between the nodes.
__device__ __forceinline__ u32 luma_weight(const SoftGrid& grid, u32 x, u32 y) {
  const u32 log2 = grid.node_log2, side = 1u << log2;
  const u32 column = x >> log2, row = y >> log2;
  const u8* above = grid.nodes + row * grid.node_count[0] + column;
  const u8* below = row + 1 < grid.node_count[1] ? above + grid.node_count[0] : above;
  const u32 next = column + 1 < grid.node_count[0];
  const u32 corners[4] = {above[0], above[next], below[0], below[next]};
  const u32 right = x & (side - 1), down = y & (side - 1);
  const u32 top = corners[0] * (side - right) + corners[1] * right;
  const u32 bottom = corners[2] * (side - right) + corners[3] * right;
  return (top * (side - down) + bottom * down + side * side / 2) >> 2 * log2;
}

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

// Whether the weight is the same at all these luma samples, as far as their nodes tell; returns it.
__device__ __forceinline__ bool is_uniform(const SoftGrid& grid, const LumaRange& luma, u32& weight) {
  u32 first[2], last[2];
#pragma unroll
  for (int axis = 0; axis < 2; axis++) {
    first[axis] = luma.first[axis] >> grid.node_log2;
    last[axis] = (luma.last[axis] >> grid.node_log2) + 1;
    last[axis] = last[axis] < grid.node_count[axis] ? last[axis] : grid.node_count[axis] - 1;
  }
  weight = grid.nodes[first[1] * grid.node_count[0] + first[0]];
  u32 differs = 0;
#pragma unroll 1
  for (u32 row = first[1]; row <= last[1]; row++)
#pragma unroll 1
    for (u32 column = first[0]; column <= last[0]; column++)
      differs |= grid.nodes[row * grid.node_count[0] + column] ^ weight;
  return differs == 0;
}

// The weight of a sample: the largest of the luma samples that it stands for.
__device__ __forceinline__ u32 sample_weight(const SoftGrid& grid, u32 x, u32 y) {
  const LumaRange luma = luma_of(grid, x, x + 1, y);
  u32 weight = 0;
#pragma unroll 1
  for (u32 row = luma.first[1]; row <= luma.last[1]; row += grid.fields)
#pragma unroll 1
    for (u32 column = luma.first[0]; column <= luma.last[0]; column++) {
      const u32 of_luma = luma_weight(grid, column, row);
      weight = weight > of_luma ? weight : of_luma;
    }
  return weight;
}

// A cell: the mean of its samples, and in the upper half how much it counts.
__device__ __forceinline__ u32 cell_value(u32 cell) { return cell & 0xffff; }
__device__ __forceinline__ u32 cell_weight(u32 cell) { return cell >> 16; }

// Computes one cell of the first level.
__device__ __forceinline__ void soft_cell(const SoftGrid& grid, u8* shared) {
  const u32 cell = blockIdx.x - grid.first_block, lane = threadIdx.x;
  const u32 place[2] = {cell % grid.cell_count[0], cell / grid.cell_count[0]};
  u32 begin[2], end[2];
#pragma unroll
  for (int axis = 0; axis < 2; axis++) {
    const int luma = static_cast<int>(place[axis] * grid.side);
    begin[axis] = samples_before(grid, axis, luma);
    end[axis] = samples_before(grid, axis, luma + static_cast<int>(grid.side));
  }
  u64 sums[4] = {0, 0, 0, 0}, rest = 0;
  // A warp takes 8 columns of 4 rows at a time.
  u32 weight = 0;
  const bool has_samples = begin[0] < end[0] && begin[1] < end[1];
  const u32 last_row = end[1] - 1;
  LumaRange luma = luma_of(grid, begin[0], end[0], begin[1]);
  luma.last[1] = luma_of(grid, begin[0], end[0], last_row).last[1];
  const bool is_same = has_samples && is_uniform(grid, luma, weight);
  // Of what counts nothing, nothing is read.
  const u32 rows_end = is_same && weight == 255 ? begin[1] : end[1];
#pragma unroll 1
  for (u32 y = begin[1] + lane / 8; y < rows_end; y += 4) {
    const u8* row = grid.src + y * grid.src_pitch;
#pragma unroll 1
    for (u32 x = begin[0] + lane % 8; x < end[0]; x += 8) {
      const u32 left = 255 - (is_same ? weight : sample_weight(grid, x, y));
      rest += left;
#pragma unroll
      for (u32 c = 0; c < 4; c++)
        if (c < grid.channels) sums[c] += u64{left} * (load_channel(grid, row, x, c) & ((1u << grid.depth) - 1));
    }
  }
  u64* lanes = offset_ptr<u64>(shared, 0);
#pragma unroll
  for (u32 c = 0; c < 4; c++)
    if (c < grid.channels) lanes[c * BLUR_SOFT_CELL_THREADS + lane] = sums[c];
  lanes[grid.channels * BLUR_SOFT_CELL_THREADS + lane] = rest;
  __syncthreads();
#pragma unroll 1
  for (u32 stride = BLUR_SOFT_CELL_THREADS / 2; stride > 0; stride /= 2) {
    if (lane < stride) {
#pragma unroll 1
      for (u32 i = lane; i < (grid.channels + 1) * BLUR_SOFT_CELL_THREADS; i += BLUR_SOFT_CELL_THREADS)
        lanes[i] += lanes[i + stride];
    }
    __syncthreads();
  }
  if (lane >= grid.channels) return;
  const u64 sum = lanes[lane * BLUR_SOFT_CELL_THREADS], all = lanes[grid.channels * BLUR_SOFT_CELL_THREADS];
  const u32 count = (end[0] - begin[0]) * (end[1] - begin[1]);
  u32 mean = 0, counts = 0;
  if (all > 0) {
    // 32 bits hold all but the sums of large cells of more than 8 bits.
    const u64 twice = 2 * sum + all;
    mean = twice >> 32 ? static_cast<u32>(twice / (2 * all)) : static_cast<u32>(twice) / static_cast<u32>(2 * all);
    const u32 quarters = (static_cast<u32>(4 * all) + count - 1) / count;
    counts = quarters < 255 ? quarters : 255;
  } else if (count > 0) {
    mean = load_channel(grid, grid.src + begin[1] * grid.src_pitch, begin[0], lane);
  }
  offset_ptr<u32>(grid.cells, 0)[cell * grid.channels + lane] = counts << 16 | mean;
}

// A level of the cells of a grid.
struct SoftLevel {
  u32* cells;
  u32 columns, rows;

  // That with this number; 0 is the first.
  __device__ __forceinline__ SoftLevel(const SoftGrid& grid, u32 number) {
    cells = offset_ptr<u32>(grid.cells, 0);
    columns = grid.cell_count[0];
    rows = grid.cell_count[1];
#pragma unroll 1
    for (u32 i = 0; i < number; i++) {
      cells += columns * rows * grid.channels;
      columns = (columns + 1) / 2;
      rows = (rows + 1) / 2;
    }
  }
  __device__ __forceinline__ u32& at(const SoftGrid& grid, u32 x, u32 y, u32 channel) const {
    return cells[(y * columns + x) * grid.channels + channel];
  }
};

// The cells of a level that a thread computes: those in every 32nd column of every 32nd row.
struct SoftPlace {
  static constexpr u32 ROWS = BLUR_SOFT_SPREAD_THREADS / 32;
  u32 x = threadIdx.x % 32, y = threadIdx.x / 32;

  __device__ __forceinline__ explicit SoftPlace(const SoftLevel& level) { skip(level); }
  __device__ __forceinline__ void next(const SoftLevel& level) {
    x += 32;
    skip(level);
  }
  // Goes on to the next row behind the last column.
  __device__ __forceinline__ void skip(const SoftLevel& level) {
    if (x < level.columns) return;
    // Beyond a narrow level a thread has none.
    y = threadIdx.x % 32 < level.columns ? y + ROWS : level.rows;
    x = threadIdx.x % 32;
  }
};

// Makes estimates of the cells of one channel.
__device__ __forceinline__ void soft_spread(const SoftGrid& grid) {
  const u32 channel = blockIdx.x - grid.first_block;
  u32 number = 0;
#pragma unroll 1
  for (;; number++) {
    const SoftLevel finer(grid, number);
    if (finer.columns == 1 && finer.rows == 1) break;
    const SoftLevel coarser(grid, number + 1);
#pragma unroll 1
    for (SoftPlace place(coarser); place.y < coarser.rows; place.next(coarser)) {
      const u32 x = place.x, y = place.y;
      u32 weights = 0, sum = 0;
#pragma unroll
      for (u32 j = 0; j < 4; j++) {
        const u32 column = 2 * x + j % 2, row = 2 * y + j / 2;
        if (column >= finer.columns || row >= finer.rows) continue;
        const u32 cell = finer.at(grid, column, row, channel);
        weights += cell_weight(cell);
        sum += cell_weight(cell) * cell_value(cell);
      }
      // Where no cell counts, the value is that of the first one.
      const u32 mean = weights > 0 ? (2 * sum + weights) / (2 * weights)
                                   : cell_value(finer.at(grid, 2 * x, 2 * y, channel));
      coarser.at(grid, x, y, channel) = (weights < 255 ? weights : 255) << 16 | mean;
    }
    __syncthreads();
  }
  const SoftLevel last(grid, number);
  if (threadIdx.x == 0) last.cells[channel] = cell_value(last.cells[channel]);
  __syncthreads();
#pragma unroll 1
  while (number > 0) {
    const SoftLevel coarser(grid, number--);
    const SoftLevel finer(grid, number);
#pragma unroll 1
    for (SoftPlace place(finer); place.y < finer.rows; place.next(finer)) {
      const u32 x = place.x, y = place.y;
      // A cell lies a quarter beside the centre of the one above it: the next one on that side counts a quarter.
      const u32 columns[2] = {x / 2, x % 2 ? (x / 2 + 1 < coarser.columns ? x / 2 + 1 : x / 2) : x > 0 ? x / 2 - 1 : 0};
      const u32 rows[2] = {y / 2, y % 2 ? (y / 2 + 1 < coarser.rows ? y / 2 + 1 : y / 2) : y > 0 ? y / 2 - 1 : 0};
      u32 sum = 8;
#pragma unroll
      for (int j = 0; j < 4; j++)
        sum += (j % 2 ? 1 : 3) * (j / 2 ? 1 : 3) * coarser.at(grid, columns[j % 2], rows[j / 2], channel);
      u32& cell = finer.at(grid, x, y, channel);
      cell = (cell_weight(cell) * cell_value(cell) + (255 - cell_weight(cell)) * (sum / 16) + 127) / 255;
    }
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
};

// The estimate at a sample, bilinear between the centres of the cells.
__device__ __forceinline__ u32 estimate(const SoftGrid& grid, u32 x, u32 y, u32 channel) {
  const CellPlace columns(grid, 0, x), rows(grid, 1, y);
  const SoftLevel cells(grid, 0);
  const u32 shift = grid.side_log2 + 1, parts = 1u << shift;
  u32 sums[2];
#pragma unroll
  for (int i = 0; i < 2; i++)
    sums[i] = cells.at(grid, columns.near[0], rows.near[i], channel) * (parts - columns.of_next) +
              cells.at(grid, columns.near[1], rows.near[i], channel) * columns.of_next;
  return (sums[0] * (parts - rows.of_next) + sums[1] * rows.of_next + parts * parts / 2) >> 2 * shift;
}

// (weight · cover + (255 - weight) · sample + 127) / 255; below 2^24.
__device__ __forceinline__ u32 mixed(u32 sample, u32 cover, u32 weight) {
  return (weight * cover + (255 - weight) * sample + 127) / 255;
}

// Estimates at samples of a row that lie between the same two centres of cells.
struct EstimateRun {
  // At the centres, of every channel.
  u32 left[4], right[4], of_next, shift, step;

  // Of samples from pixel x on.
  __device__ __forceinline__ EstimateRun(const SoftGrid& grid, u32 x, u32 y) {
    const CellPlace columns(grid, 0, x), rows(grid, 1, y);
    const SoftLevel cells(grid, 0);
    of_next = columns.of_next;
    shift = grid.side_log2 + 1;
    step = 2u << grid.unit_log2[0];
    const u32 parts = 1u << shift;
#pragma unroll
    for (u32 c = 0; c < 4; c++) {
      left[c] = right[c] = 0;
      if (c >= grid.channels) continue;
      left[c] = cells.at(grid, columns.near[0], rows.near[0], c) * (parts - rows.of_next) +
                cells.at(grid, columns.near[0], rows.near[1], c) * rows.of_next;
      right[c] = cells.at(grid, columns.near[1], rows.near[0], c) * (parts - rows.of_next) +
                 cells.at(grid, columns.near[1], rows.near[1], c) * rows.of_next;
    }
  }
  // The estimate of a channel `pixels` pixels behind the first one.
  __device__ __forceinline__ u32 at(u32 pixels, u32 c) const {
    const u32 parts = 1u << shift, next = of_next + pixels * step;
    const u32 first = c == 0 ? left[0] : c == 1 ? left[1] : c == 2 ? left[2] : left[3];
    const u32 second = c == 0 ? right[0] : c == 1 ? right[1] : c == 2 ? right[2] : right[3];
    return (first * (parts - next) + second * next + parts * parts / 2) >> 2 * shift;
  }
};

// Mixes a run of interleaved bytes that all have this weight.
__device__ __forceinline__ void mix_bytes(
    const SoftGrid& grid, const u8* src, u8* dst, const u8* cover, u32 x, u32 c, u32 y, u32 weight) {
  if (weight == 255 && cover) {
    *offset_ptr<Words<4>>(dst, 0) = *offset_ptr<const Words<4>>(cover, 0);
    return;
  }
  const Words<4> samples = *offset_ptr<const Words<4>>(src, 0);
  Words<4> covers = {}, result = {};
  if (cover) covers = *offset_ptr<const Words<4>>(cover, 0);
  const u32 channels = grid.channels;
#pragma unroll
  for (u32 half = 0; half < 2; half++) {
    constexpr u32 COUNT = BLUR_SOFT_SAMPLES / 2;
    if (!cover) {
      const EstimateRun run(grid, x, y);
      const bool is_one = run.of_next + (c + COUNT - 1) / channels * run.step < 1u << run.shift;
      const u32 first = x;
#pragma unroll
      for (u32 i = 0; i < COUNT; i++) {
        const u32 with = is_one ? run.at(x - first, c) : estimate(grid, x, y, c);
        covers.word[half * COUNT / 4 + i / 4] |= with << i % 4 * 8;
        if (++c == channels) {
          c = 0;
          x++;
        }
      }
    }
#pragma unroll
    for (u32 i = half * COUNT; i < (half + 1) * COUNT; i++) {
      const u32 shift = i % 4 * 8;
      result.word[i / 4] |= mixed(samples.word[i / 4] >> shift & 255, covers.word[i / 4] >> shift & 255, weight) << shift;
    }
  }
  *offset_ptr<Words<4>>(dst, 0) = result;
}

// Each thread mixes a run of samples of a row, of all channels in turn.
__device__ __forceinline__ void soft_mix(const SoftGrid& grid) {
  const u32 index = (blockIdx.x - grid.first_block) * BLUR_SOFT_THREADS + threadIdx.x, channels = grid.channels;
  const u32 y = grid.covered[1][0] + index / grid.groups;
  if (y >= grid.covered[1][1]) return;
  u32 begin = grid.covered[0][0] * channels, end = grid.covered[0][1] * channels;
  const u32 first = begin / BLUR_SOFT_SAMPLES * BLUR_SOFT_SAMPLES + index % grid.groups * BLUR_SOFT_SAMPLES;
  const bool is_whole = first >= begin && first + BLUR_SOFT_SAMPLES <= end;
  begin = first > begin ? first : begin;
  end = first + BLUR_SOFT_SAMPLES < end ? first + BLUR_SOFT_SAMPLES : end;
  const u8* src = grid.src + y * grid.src_pitch;
  u8* dst = grid.dst + y * grid.dst_pitch;
  const u8* cover = grid.cover ? grid.cover + y * grid.cover_pitch : nullptr;
  // Most samples have the weight of their neighbours.
  u32 x = begin / channels, c = begin % channels, weight = 0;
  const bool is_same = is_uniform(grid, luma_of(grid, x, (end - 1) / channels + 1, y), weight);
  if (is_same && weight == 0 && src == dst) return;
  const bool is_dense = grid.depth == 8 && grid.pixel_step == channels && is_whole && grid.kept == 0;
  const bool is_aligned = misalignment(src, 16) == 0 && misalignment(dst, 16) == 0 && misalignment(cover, 16) == 0;
  if (is_same && is_dense && is_aligned) {
    if (weight == 0) *offset_ptr<Words<4>>(dst, first) = *offset_ptr<const Words<4>>(src, first);
    else mix_bytes(grid, src + first, dst + first, cover ? cover + first : nullptr, x, c, y, weight);
    return;
  }
  bool is_known = is_same;
  u32 word = 0;
  const u32 mask = (1u << grid.depth) - 1;
#pragma unroll 1
  for (u32 i = begin; i < end; i++) {
    if (!is_known) weight = sample_weight(grid, x, y);
    is_known = true;
    const u32 of_sample = grid.kept >> c & 1 ? 0 : weight;
    const u32 at = grid.first + x * grid.pixel_step + c * grid.channel_step;
    u32 result = load_channel(grid, src, x, c);
    if (of_sample) {
      const u32 with = cover ? load_channel(grid, cover, x, c) : estimate(grid, x, y, c);
      result = mixed(result & mask, with & mask, of_sample);
    }
    if (grid.packed1010102) {
      word = (c == 0 ? 0 : word) | result << 10 * c;
      if (c == 3)
        for (int byte = 0; byte < 4; byte++) dst[4 * x + byte] = static_cast<u8>(word >> 8 * byte);
    } else if (grid.depth == 8) {
      dst[at] = static_cast<u8>(result);
    } else {
      // A sample that is not mixed keeps its padding.
      const u32 bits = of_sample ? result << grid.shift : src[2 * at] | src[2 * at + 1] << 8;
      dst[2 * at] = static_cast<u8>(bits);
      dst[2 * at + 1] = static_cast<u8>(bits >> 8);
    }
    if (++c == channels) {
      c = 0;
      x++;
      is_known = is_same;
    }
  }
}
#endif
