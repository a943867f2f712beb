// SPDX-License-Identifier: MPL-2.0
// Rows of pixels as operands of tensor-core products: a ring in shared memory that a warp fills ahead of its computation.
#ifndef BLUR_TENSOR_LOADER_H
#define BLUR_TENSOR_LOADER_H
#include "tensor.cuh"

// How a warp loads 8 rows of a window: four lanes a row, LANE_PIXELS neighbouring pixels at a time. A sample of more than
// eight bits is two channels: its low bytes, then its high bytes.
template <int PIXEL_BYTES, int LANE_PIXELS, int WINDOW_PIXELS, int RING_DEPTH> struct RowTile {
  static constexpr int BYTES = PIXEL_BYTES, C = BYTES, PIXELS = LANE_PIXELS, DEPTH = RING_DEPTH;
  // Loads of a lane per row.
  static constexpr int LOADS = WINDOW_PIXELS / (4 * PIXELS);
  // A load is one copy of 4, 8 or 16 bytes; three of them if a pixel has three bytes, and two if it has eight.
  static constexpr int COPIES = BYTES == 3 ? 3 : BYTES == 8 ? 2 : 1, COPY = PIXELS * BYTES / COPIES;
  static constexpr int LOAD_WORDS = PIXELS * BYTES / 4, LOAD_CHANNEL_WORDS = PIXELS / 4;
  // Words of 4 pixels of one channel in a lane's window of a row.
  static constexpr int WINDOW_WORDS = LOADS * LOAD_CHANNEL_WORDS;
  // Shared memory of a warp: a ring of steps of 8 rows. A lane reads only what it has copied itself, so no barrier is
  // needed.
  static constexpr bool SHARES_COPIES = false;
  // Samples of two bytes are widened to 16 bits. In packed 4:2:2 the first two channels are luma: two words of four
  // neighbours each. Pixels of WordSamples have eight channels.
  static constexpr bool IS_WIDENED = false, IS_YUV422 = false, IS_YUV422_PART = false, IS_WORD = false;
  static constexpr int STEP_BYTES = LOADS * PIXELS * BYTES * 32, RING_BYTES = DEPTH * STEP_BYTES;
  // Where a lane's copies are in a step.
  static constexpr int COPY_STRIDE = 32 * COPY, LOAD_STRIDE = COPIES * COPY_STRIDE;
  static __device__ constexpr int lane_offset(int lane) { return lane * COPY; }
};

// Samples of two bytes, two in a word, to and from 16 bits. The mask drops the bits of a sample's word that are not its own, and
// those that cross from one half of the word into the other, which are at most 16 - depth.
struct WideSamples {
  u32 depth, shift, mask;

  __device__ __forceinline__ explicit WideSamples(const TensorPlane& plane)
      : depth(plane.depth), shift(16 - depth - plane.shift), mask((0xffffu << (16 - depth) & 0xffff) * 0x10001) {}
  // Half of the bits of a 32-bit sum that a sample loses.
  __device__ __forceinline__ u32 half() const { return 1u << (31 - depth); }
  __device__ __forceinline__ u32 widen(u32 samples) const { return samples << shift & mask; }
  __device__ __forceinline__ u32 narrow(u32 values) const { return (values & mask) >> shift; }
};

// Pixels of four bytes as four samples of 16 bits, and four sums of 32 bits as such a pixel. A pixel is a word of 10, 10, 10 and
// 2 bits; or four bytes, of which one is alpha. Then the samples are colour times alpha, and alpha, and the pixel has colour
// divided by alpha.
struct WordSamples {
  // See TensorPlane::alpha.
#ifdef BLUR_TENSOR_DIRECT_ALPHA
// Without alpha, a shift that is not executed is too large.
#pragma nv_diag_suppress 63
  static constexpr u32 alpha = BLUR_TENSOR_DIRECT_ALPHA;
  __device__ __forceinline__ explicit WordSamples(const TensorPlane&) {}
#else
  u32 alpha;
  __device__ __forceinline__ explicit WordSamples(const TensorPlane& plane) : alpha(plane.alpha) {}
#endif
  // Two in a word; that of alpha, or of two bits, is the last one, and its lower byte is 0.
  __device__ __forceinline__ void widen(u32 (&samples)[2], u32 pixel) const {
    if (alpha) {
      pixel = pixel >> 8 * alpha % 32 | pixel << (32 - 8 * alpha) % 32;
      const u32 a = pixel >> 24;
      samples[0] = byte_perm(pixel, 0, 0x4140) * a;
      samples[1] = (pixel >> 16 & 255) * a | (pixel & 0xff000000);
    } else {
      samples[0] = (pixel << 6 & 0xffc0) | (pixel << 12 & 0xffc00000);
      samples[1] = (pixel >> 14 & 0xffc0) | (pixel & 0xc0000000);
    }
  }
  // Half of the bits that the last sum loses, where the others lose `others`.
  __device__ __forceinline__ int half_of_last(int others) const { return alpha ? others : HALF_OF_30_BITS; }
  // `source` gives the pixel of the source, whose colour stays where the blurred alpha is 0.
  template <class Source> __device__ __forceinline__ u32 narrow(const u32* sums, Source source) const {
    if (!alpha) return sums[0] >> 22 | sums[1] >> 22 << 10 | sums[2] >> 22 << 20 | sums[3] >> 30 << 30;
    const u32 a = sums[3] >> 16;
    if (a == 0) return source() & ~(255u << 8 * (alpha - 1));
    // At most the quotient, and at least one less.
    const float inverse = approximate_inverse(static_cast<float>(a)) * (1 - 1.0f / (1 << 21));
    u32 colour[3];
#pragma unroll
    for (int c = 0; c < 3; c++) {
      const u32 dividend = (sums[c] >> 8 & 0xffff00) + a / 2;
      const u32 quotient = static_cast<u32>(static_cast<float>(dividend) * inverse);
      const u32 exact = quotient + (dividend - quotient * a >= a);
      colour[c] = exact < 255 ? exact : 255;
    }
    const u32 rounded = a + 128 < 65536 ? (a + 128) >> 8 : 255;
    const u32 pixel = colour[0] | colour[1] << 8 | colour[2] << 16 | rounded << 24;
    return pixel << 8 * alpha % 32 | pixel >> (32 - 8 * alpha) % 32;
  }
};

// Four sums of each channel of four pixels, in the order of memory, as the BYTES words of these pixels P.
template <class P> struct PixelPacker {
  static constexpr bool IS_WIDE = sizeof(typename P::T) == 2;
  // What a lane's pixels have beside the luma of packed 4:2:2.
  using Others = u32[P::IS_YUV422_PART && P::C == 1 ? 4 : 1];
  WideSamples wide;
  WordSamples word;
  u32 yuv422;

  __device__ __forceinline__ explicit PixelPacker(const TensorPlane& plane)
      : wide(plane), word(plane), yuv422(plane.yuv422) {}
  // Half of the bits that a sum of channel c loses.
  __device__ __forceinline__ int half(int c) const {
    const int half = IS_WIDE ? static_cast<int>(wide.half()) : HALF_OF_24_BITS;
    return P::IS_PACKED1010102 && c == 3 ? word.half_of_last(half) : half;
  }
  // `source` gives pixel i of the four, see WordSamples::narrow(). `order` is that of the bytes of a word.
  template <class Source> __device__ __forceinline__ void pack(
      u32 (&out)[P::BYTES], const u32 (&sums)[4 * P::C], Source source, u32 order = 0x5410) const {
#pragma unroll
    for (int i = 0; i < (P::IS_YUV422_PART ? P::C : P::BYTES); i++) {
      if constexpr (P::IS_PACKED1010102) {
        out[i] = word.narrow(sums + 4 * i, [&] { return source(i); });
      } else if constexpr (IS_WIDE) {
        // A sample is the upper bits of the upper half of its sum; one of 8 bits, below, the upper byte.
        out[i] = wide.narrow(upper_halves(sums[2 * i], sums[2 * i + 1]));
      } else {
        const u32* four = sums + 4 * i;
        out[i] = byte_perm(byte_perm(four[0], four[1], 0x73), byte_perm(four[2], four[3], 0x73), order);
      }
    }
  }
  // The first P::C words, of four samples a channel, as every second byte of four pixels of packed 4:2:2. Between those of luma
  // are the bytes of `others`, of the lane's four pixels of this number; between those of chroma, which luma replaces, is 0.
  __device__ __forceinline__ void spread(u32 (&pixels)[P::BYTES], const Others& others, int four) const {
    const bool is_first = (P::C == 1) != (yuv422 & 1);
#pragma unroll
    for (int i = P::C - 1; i >= 0; i--)
#pragma unroll
      for (int two = 1; two >= 0; two--)
        pixels[2 * i + two] = byte_perm(
            pixels[i], P::C == 1 ? others[2 * four + two] : 0, is_first ? 0x7150 + 0x0202 * two : 0x1604 + 0x2020 * two);
  }
};

// The pixel of the source nearest to (x, y).
__device__ __forceinline__ u32 source_word(const TensorPlane& plane, int x, int y) {
  const u64 row = static_cast<u32>(clamp(y, 0, static_cast<int>(plane.height) - 1));
  return load_unaligned(plane.src + row * plane.src_pitch + 4 * clamp(x, 0, static_cast<int>(plane.width) - 1));
}

// Byte i of four words: the i-th word.
template <int N> __device__ __forceinline__ void transpose_bytes(
    u32 (&out)[N], int first, u32 word0, u32 word1, u32 word2, u32 word3) {
  const u32 even01 = byte_perm(word0, word1, 0x5140), even23 = byte_perm(word2, word3, 0x5140);
  const u32 odd01 = byte_perm(word0, word1, 0x7362), odd23 = byte_perm(word2, word3, 0x7362);
  out[first] = byte_perm(even01, even23, 0x5410);
  out[first + 1] = byte_perm(even01, even23, 0x7632);
  out[first + 2] = byte_perm(odd01, odd23, 0x5410);
  out[first + 3] = byte_perm(odd01, odd23, 0x7632);
}

// The source rows of a warp, 8 at a time, through a ring in shared memory.
template <class RowTile> struct RowLoader {
  using Tile = RowTile;
  static constexpr int C = Tile::C, BYTES = Tile::BYTES;
  using Window = u32[Tile::WINDOW_WORDS][C];  // words of four pixels of a channel
  const u8* src;
  u64 pitch;
  int width, last_row;
  WideSamples wide;
  WordSamples word;
  u32 yuv422;
  Shared ring;  // the lane's part

  __device__ __forceinline__ RowLoader(const TensorPlane& plane, Shared ring)
      : src(plane.src), pitch(plane.src_pitch), width(static_cast<int>(plane.width)),
        last_row(static_cast<int>(plane.height) - 1), wide(plane), word(plane),
        yuv422(plane.yuv422), ring(ring + Tile::lane_offset(threadIdx.x % 32)) {}

  // The row nearest to `y` inside the plane.
  __device__ __forceinline__ const u8* row(int y) const {
    return src + static_cast<u64>(static_cast<u32>(clamp(y, 0, last_row))) * pitch;
  }

  // The load's position, moved inside the plane.
  __device__ __forceinline__ int loaded_x(int x) const {
    return clamp(x, 0, (width - 1) / Tile::PIXELS * Tile::PIXELS);
  }

  // Starts to copy 8 rows to byte `slot` of the ring: row `y` for this lane, from pixel `x0` on. The window is inside the
  // plane, whose rows are aligned.
  __device__ __forceinline__ void load_inside(int x0, int y, int slot) const {
    const u8* from = row(y) + x0 * BYTES;
    const Shared to = ring + slot;
#pragma unroll
    for (int i = 0; i < Tile::LOADS; i++)
#pragma unroll
      for (int k = 0; k < Tile::COPIES; k++)
        copy_async_cached<Tile::COPY>(
            to + i * Tile::LOAD_STRIDE + k * Tile::COPY_STRIDE, from + i * 4 * Tile::PIXELS * BYTES + k * Tile::COPY);
    copy_commit();
  }

  // The same for any alignment and for windows that extend beyond the plane, whose pixels repeat_edges() replaces.
  __device__ __forceinline__ void load_checked(int x0, int y, int slot) const {
    const u8* row = this->row(y);
    const Shared to = ring + slot;
    const u64 alignment = reinterpret_cast<u64>(src) | pitch;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
    // Each copy waits for the one before it anyway.
    [[maybe_unused]] constexpr int UNROLL = BYTES == 3 ? Tile::LOADS : 1;
#else
    [[maybe_unused]] constexpr int UNROLL = Tile::LOADS;
#endif
    if (alignment % Tile::COPY == 0) {
#pragma unroll UNROLL
      for (int i = 0; i < Tile::LOADS; i++) {
        const int x = loaded_x(x0 + i * 4 * Tile::PIXELS), bytes = (width - x) * BYTES;
#pragma unroll
        for (int k = 0; k < Tile::COPIES; k++) {
          const int left = bytes - k * Tile::COPY;
          copy_async_cached<Tile::COPY>(
              to + i * Tile::LOAD_STRIDE + k * Tile::COPY_STRIDE, row + x * BYTES + (left > 0 ? k * Tile::COPY : 0),
              clamp(left, 0, Tile::COPY));
        }
      }
    } else {
#pragma unroll 1
      for (int i = 0; i < Tile::LOADS; i++) {
        const int x = loaded_x(x0 + i * 4 * Tile::PIXELS), bytes = (width - x) * BYTES;
#pragma unroll 1
        for (int word = 0; word < Tile::LOAD_WORDS; word++) {
          const int copy = 4 * word / Tile::COPY, left = bytes - 4 * word;
          const u8* from = row + x * BYTES + (left > 0 ? 4 * word : 0);
          const Shared at = to + i * Tile::LOAD_STRIDE + copy * Tile::COPY_STRIDE + (4 * word - copy * Tile::COPY);
          if (alignment % 4 == 0) {
            copy_async_cached<4>(at, from, clamp(left, 0, 4));
          } else {
            u32 value[1] = {0};
#pragma unroll
            for (int e = 0; e < 4; e++)
              if (e < left) value[0] |= static_cast<u32>(from[e]) << 8 * e;
            shared_store<1>(at, value);
          }
        }
      }
    }
    copy_commit();
  }

  // Reads the oldest copied rows.
  __device__ __forceinline__ void read(Window& words, int slot) const {
    copy_wait<Tile::DEPTH - 1>();
    if constexpr (Tile::SHARES_COPIES) warp_sync();
    const Shared from = ring + slot;
#pragma unroll
    for (int i = 0; i < Tile::LOADS; i++) {
      u32 raw[Tile::LOAD_WORDS];
#pragma unroll
      for (int k = 0; k < Tile::COPIES; k++) {
        u32 part[Tile::COPY / 4];
        shared_load(part, from + i * Tile::LOAD_STRIDE + k * Tile::COPY_STRIDE);
#pragma unroll
        for (int word = 0; word < Tile::COPY / 4; word++)
          raw[k * Tile::COPY / 4 + word] = Tile::IS_WIDENED ? wide.widen(part[word]) : part[word];
      }
      const int first = i * Tile::LOAD_CHANNEL_WORDS;
#pragma unroll
      for (int k = 0; k < Tile::LOAD_CHANNEL_WORDS; k++) deinterleave(words[first + k], raw, k * BYTES);
    }
  }

  // Four pixels from word `first` on: a word a channel.
  __device__ __forceinline__ void deinterleave(u32 (&out)[C], const u32 (&raw)[Tile::LOAD_WORDS], int first) const {
    if constexpr (Tile::IS_YUV422) {
      const u32 luma = 0x6420 + (yuv422 & 1) * 0x1111, chroma = 0x6420 + 0x7531 - luma;
      const u32 chroma01 = byte_perm(raw[first], raw[first + 1], chroma),
                chroma23 = byte_perm(raw[first + 2], raw[first + 3], chroma);
      out[0] = byte_perm(raw[first], raw[first + 1], luma);
      out[1] = byte_perm(raw[first + 2], raw[first + 3], luma);
      out[2] = low_bytes(chroma01, chroma23);
      out[3] = high_bytes(chroma01, chroma23);
    } else if constexpr (Tile::IS_YUV422_PART) {
      const u32 luma = 0x6420 + (yuv422 & 1) * 0x1111, own = C == 1 ? luma : 0x6420 + 0x7531 - luma;
      out[0] = byte_perm(raw[first], raw[first + 1], own);
      if constexpr (C == 2) {
        const u32 others = byte_perm(raw[first + 2], raw[first + 3], own);
        out[1] = high_bytes(out[0], others);
        out[0] = low_bytes(out[0], others);
      }
    } else if constexpr (Tile::IS_WORD) {
      u32 samples[4][2];
#pragma unroll
      for (int i = 0; i < 4; i++) word.widen(samples[i], raw[first + i]);
#pragma unroll
      for (int two = 0; two < 2; two++)
        transpose_bytes(out, 4 * two, samples[0][two], samples[1][two], samples[2][two], samples[3][two]);
    } else if constexpr (C == 4) {
      transpose_bytes(out, 0, raw[first], raw[first + 1], raw[first + 2], raw[first + 3]);
    } else if constexpr (C == 8) {
      transpose_bytes(out, 0, raw[first], raw[first + 2], raw[first + 4], raw[first + 6]);
      transpose_bytes(out, 4, raw[first + 1], raw[first + 3], raw[first + 5], raw[first + 7]);
    } else if constexpr (C == 1) {
      out[0] = raw[first];
    } else if constexpr (C == 2) {
      out[0] = low_bytes(raw[first], raw[first + 1]);
      out[1] = high_bytes(raw[first], raw[first + 1]);
    } else {
#pragma unroll
      for (int c = 0; c < C; c++) {
        const int s1 = C + c, s2 = 2 * C + c, s3 = 3 * C + c;  // byte numbers of the channel's samples, after c itself
        const u32 low = byte_perm(raw[first + c / 4], raw[first + s1 / 4], c % 4 | (4 + s1 % 4) << 4);
        const u32 high = byte_perm(raw[first + s2 / 4], raw[first + s3 / 4], s2 % 4 | (4 + s3 % 4) << 4);
        out[c] = byte_perm(low, high, 0x5410);
      }
    }
  }

  // Replaces the pixels of a window that lie beyond the plane by the edge pixel.
  __device__ __forceinline__ void repeat_edges(Window& words, int x0) const {
#pragma unroll
    for (int i = 0; i < Tile::LOADS; i++)
      repeat_edge(words, i * Tile::LOAD_CHANNEL_WORDS, x0 + i * 4 * Tile::PIXELS);
  }

  // Replaces a load's pixels beyond the plane by the edge pixel, which the load contains.
  __device__ __forceinline__ void repeat_edge(Window& words, int first, int x) const {
    const int from = loaded_x(x);
    const u32 selector = edge_selector(x, width, from);
#pragma unroll
    for (int c = Tile::IS_YUV422 ? 2 : 0; c < C; c++) {
      if constexpr (Tile::LOAD_CHANNEL_WORDS == 2) select(words[first][c], words[first + 1][c], selector);
      else words[first][c] = byte_perm(words[first][c], 0, selector & 0xffff);
    }
    // In a row of odd width the last pair holds one luma sample.
    if constexpr (Tile::IS_YUV422)
      select(words[first][0], words[first][1], edge_selector(2 * x, 2 * width - static_cast<int>(yuv422 >> 1), 2 * from));
  }

  // Nibble i: the number of the loaded sample, of up to eight, that becomes sample i. The samples from `x` on are needed
  // and those from `from` on are loaded, of `count` in a row.
  __device__ __forceinline__ static u32 edge_selector(int x, int count, int from) {
    const int inside = x < 0 ? 0 : clamp(count - x, 0, 8);
    const u32 edge = x < 0 ? 0 : static_cast<u32>(count - 1 - from);
    const u32 keep = inside == 8 ? 0xffffffff : (1u << 4 * inside) - 1;
    // `edge` exceeds 7 only where all samples are kept.
    return (0x76543210 & keep) | ((edge & 7) * 0x11111111 & ~keep);
  }
  __device__ __forceinline__ static void select(u32& left, u32& right, u32 selector) {
    const u32 all[2] = {left, right};
    left = byte_perm(all[0], all[1], selector & 0xffff);
    right = byte_perm(all[0], all[1], selector >> 16);
  }
};
#endif
