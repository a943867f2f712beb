// SPDX-License-Identifier: MPL-2.0
// One axis of a decimation or of an interpolation, for every pixel layout and factor: for what has no kernel in
// level.cuh. A thread computes four neighbours along the row, so that a loaded sample serves up to four sums.
#ifndef BLUR_AXIS_H
#define BLUR_AXIS_H
#include "pixels.cuh"

enum class SampleKind { bytes, words, packed1010102 };

__device__ __forceinline__ SampleKind sample_kind(const SampleStorage& storage) {
  return storage.channel_bytes == 0 ? SampleKind::packed1010102
         : storage.depth == 8       ? SampleKind::bytes
                                    : SampleKind::words;
}

// Channel c of a pixel, widened to 16 bits.
__device__ __forceinline__ u32 load_channel(SampleKind kind, const SampleStorage& storage, const u8* pixel, u32 c) {
  if (kind == SampleKind::packed1010102) return packed1010102_sample(load_unaligned(pixel), static_cast<int>(c));
  const u8* sample = pixel + c * storage.channel_bytes;
  if (kind == SampleKind::bytes) return sample[0] << 8;
  return widen_sample(sample[0] | sample[1] << 8, storage.depth, storage.shift);
}

__device__ __forceinline__ u32 channel_depth(const SampleStorage& storage, u32 c) {
  return storage.channel_bytes == 0 && c == 3 ? 2 : storage.depth;
}
// Half of a step of the output, so that dropping the low bits rounds half up.
__device__ __forceinline__ u32 start_of_sum(const SampleStorage& storage, u32 c) {
  return 1u << (31 - channel_depth(storage, c));
}

// Stores a sum to channel c. The samples of a packed word are collected in `word`, and stored with the last one.
__device__ __forceinline__ void store_channel(const SampleStorage& storage, u8* pixel, u32 c, u32 sum, u32& word) {
  const u32 value = sum >> (32 - channel_depth(storage, c));
  u8* sample = pixel + c * storage.channel_bytes;
  if (storage.channel_bytes == 0) {
    word |= value << 10 * c;
    if (c == 3)
      for (int i = 0; i < 4; i++) pixel[i] = static_cast<u8>(word >> 8 * i);
  } else if (storage.depth == 8) {
    sample[0] = static_cast<u8>(value);
  } else {
    const u32 stored = value << storage.shift;
    sample[0] = static_cast<u8>(stored);
    sample[1] = static_cast<u8>(stored >> 8);
  }
}

// The taps' window of output `position`: its first sample and its length. Sample i of the small plane is at (i -
// LEVEL_RADIUS) * S, and its window starts LEVEL_RADIUS * S before that; the samples of a small plane count its margin.
template <int S, bool INTERPOLATE> struct AxisWindow {
  static constexpr int TAPS = INTERPOLATE ? BLUR_PHASE_TAPS : 2 * BLUR_LEVEL_RADIUS * S + 1;
  __device__ __forceinline__ static int first(u32 position) {
    return INTERPOLATE ? static_cast<int>(position / S) : static_cast<int>(position * S) - 2 * BLUR_LEVEL_RADIUS * S;
  }
};

// Rows: four pixels from pixel `x` on, which is a multiple of four, from the window that they share.
template <int S, bool INTERPOLATE, SampleKind FROM>
__device__ __forceinline__ void axis_rows(const AxisArgs& args, u32 x, u32 y) {
  using Window = AxisWindow<S, INTERPOLATE>;
  constexpr int LAST_SHIFT = INTERPOLATE ? 3 / S : 3 * S, SAMPLES = Window::TAPS + LAST_SHIFT;
  const SampleStorage &from = args.src_storage, &to = args.dst_storage;
  const int first = Window::first(x), last = static_cast<int>(args.src_count) - 1;
  const u8* line = args.src + y * args.src_pitch;
  u8* out = args.dst + y * args.dst_pitch + static_cast<u64>(x) * to.pixel_bytes;
  u32 words[4] = {};
#pragma unroll 1
  for (u32 c = 0; c < args.channels; c++) {
    u32 sums[4];
#pragma unroll
    for (int j = 0; j < 4; j++) sums[j] = start_of_sum(to, c);
    // Not unrolled as a whole: the compiler would load the whole window first and run out of registers.
#pragma unroll 1
    for (int block = 0; block < SAMPLES; block += 8)
#pragma unroll
      for (int i = block; i < block + (SAMPLES < 8 ? SAMPLES : 8); i++) {
        const u32 sample =
            load_channel(FROM, from, line + static_cast<u32>(clamp(first + i, 0, last)) * from.pixel_bytes, c);
#pragma unroll
        for (int j = 0; j < 4; j++) {
          const int k = i - (INTERPOLATE ? j / S : j * S), phase = INTERPOLATE ? j % S : 0;
          if (k >= 0 && k < Window::TAPS) sums[j] += args.taps[phase * BLUR_PHASE_TAPS + k] * sample;
        }
      }
#pragma unroll
    for (int j = 0; j < 4; j++)
      if (x + j < args.column_end) store_channel(to, out + j * to.pixel_bytes, c, sums[j], words[j]);
  }
}

// Columns: four samples of the row from sample `s` on, which is a multiple of four: all of a packed word.
template <int S, bool INTERPOLATE> __device__ __forceinline__ void axis_columns(const AxisArgs& args, u32 s, u32 y) {
  using Window = AxisWindow<S, INTERPOLATE>;
  const SampleStorage &from = args.src_storage, &to = args.dst_storage;
  const u32 samples = args.column_end * args.channels;
  const u32* taps = args.taps + (INTERPOLATE ? y % S * BLUR_PHASE_TAPS : 0);
  const int first = Window::first(y), last = static_cast<int>(args.src_count) - 1;
  u32 pixel[4], channel[4], sums[4];
#pragma unroll
  for (int j = 0; j < 4; j++) {
    const u32 sample = s + j < samples ? s + j : samples - 1;
    pixel[j] = sample / args.channels;
    channel[j] = sample - pixel[j] * args.channels;
    sums[j] = start_of_sum(to, channel[j]);
  }
  auto row = [&](int k) { return args.src + static_cast<u32>(clamp(first + k, 0, last)) * args.src_pitch; };
  const bool is_dense = from.depth == 16 && from.pixel_bytes == 2 * args.channels && s + 4 <= samples;
  if (is_dense && (reinterpret_cast<u64>(args.src) | args.src_pitch) % 8 == 0) {
#pragma unroll 5
    for (int k = 0; k < Window::TAPS; k++) {
      const auto four = *offset_ptr<const Words<2>>(row(k), s * 2);
#pragma unroll
      for (int j = 0; j < 4; j++) sums[j] += taps[k] * (four.word[j / 2] >> 16 * (j % 2) & 0xffff);
    }
  } else {
    const SampleKind kind = sample_kind(from);
#pragma unroll 1
    for (int k = 0; k < Window::TAPS; k++)
#pragma unroll
      for (int j = 0; j < 4; j++)
        sums[j] +=
            taps[k] * load_channel(kind, from, row(k) + static_cast<u64>(pixel[j]) * from.pixel_bytes, channel[j]);
  }
  u8* out = args.dst + y * args.dst_pitch;
  u32 word = 0;
#pragma unroll
  for (int j = 0; j < 4; j++)
    if (s + j < samples)
      store_channel(to, out + static_cast<u64>(pixel[j]) * to.pixel_bytes, channel[j], sums[j], word);
}

template <int S, bool INTERPOLATE> __device__ __forceinline__ void axis_outputs(const AxisArgs& args) {
  const u32 unit = args.axis == 0 ? 1 : args.channels, begin = args.column_begin * unit, end = args.column_end * unit;
  const u32 blocks_per_row = (end - begin + 4 * BLUR_AXIS_THREADS - 1) / (4 * BLUR_AXIS_THREADS);
  const u32 strip = blockIdx.x / blocks_per_row;
  const u32 x = begin + 4 * ((blockIdx.x - strip * blocks_per_row) * BLUR_AXIS_THREADS + threadIdx.x),
            y = args.row_begin + strip;
  if (x >= end || y >= args.row_end) return;
  const SampleKind kind = sample_kind(args.src_storage);
  if (args.axis == 1) axis_columns<S, INTERPOLATE>(args, x, y);
  // The source of an interpolation is a small plane.
  else if (INTERPOLATE || kind == SampleKind::words) axis_rows<S, INTERPOLATE, SampleKind::words>(args, x, y);
  else if (kind == SampleKind::bytes) axis_rows<S, INTERPOLATE, SampleKind::bytes>(args, x, y);
  else axis_rows<S, INTERPOLATE, SampleKind::packed1010102>(args, x, y);
}

__device__ __forceinline__ void axis_step(const AxisArgs& args) {
  if (args.factor == 4) {
    if (args.interpolate) axis_outputs<4, true>(args);
    else axis_outputs<4, false>(args);
  } else {
    if (args.interpolate) axis_outputs<2, true>(args);
    else axis_outputs<2, false>(args);
  }
}
#endif
