// SPDX-License-Identifier: MPL-2.0
// The constant taps of the wide Gaussian as tensor-core operands. They depend on the factor alone, so the compiler
// makes the tables and the module holds them: nothing is uploaded and no lane computes its operands.
#ifndef BLUR_TENSOR_TAPS_H
#define BLUR_TENSOR_TAPS_H
#include "pixels.cuh"

// A function that is evaluated when the kernels are compiled.
#ifdef BLUR_ON_CPU
#define OPERAND_FUNCTION constexpr
#else
#define OPERAND_FUNCTION __host__ __device__ constexpr
#endif

// Tap `at` of the decimation by s, a Gaussian of 0.75 s with radius 3 s.
template <int S> OPERAND_FUNCTION u32 decimation_tap(int at) {
  // Local, because device code cannot use a host array.
  constexpr u16 by4[25] = {3,    10,   34,   97,   249,  573,  1179, 2173, 3583, 5286, 6979, 8244, 8716,
                           8244, 6979, 5286, 3583, 2173, 1179, 573,  249,  97,   34,   10,   3};
  constexpr u16 by2[13] = {6, 67, 498, 2359, 7166, 13957, 17430, 13957, 7166, 2359, 498, 67, 6};
  return at < 0 || at > 6 * S ? 0u : S == 4 ? by4[at] : by2[at];
}

// The interpolation by s: the tap of small sample x / s - 3 + at for phase x % s.
template <int S> OPERAND_FUNCTION u32 interpolation_tap(int phase, int at) {
  constexpr u16 by4[4][7] = {{12, 996, 14331, 34859, 14331, 996, 11},
                             {0, 387, 8693, 32978, 21145, 2291, 42},
                             {0, 135, 4718, 27915, 27915, 4718, 135},
                             {0, 42, 2291, 21145, 32978, 8693, 387}};
  constexpr u16 by2[2][7] = {{12, 996, 14331, 34859, 14331, 996, 11}, {0, 135, 4718, 27915, 27915, 4718, 135}};
  return at < 0 || at > 6 ? 0u : S == 4 ? by4[phase][at] : by2[phase][at];
}

// The order in which a lane's word holds the 16 values of a block: t = lane % 4, e = byte of the word.
enum class OperandOrder {
  words,   // 4 t + e: a lane has loaded four neighbours
  octets,  // 32 values in two words, 8 t + 4 word + e: a lane has loaded eight neighbours
  pairs,   // 2 t, 2 t + 1, 2 t + 8, 2 t + 9: a lane has computed two neighbours in each of two blocks of 8
};

// Position of byte e of operand word `half` of lane t among the 32 values of a k step.
OPERAND_FUNCTION int operand_position(OperandOrder order, int half, int t, int e) {
  return order == OperandOrder::octets  ? 8 * t + 4 * half + e
         : order == OperandOrder::words ? 16 * half + 4 * t + e
                                     : 16 * half + 8 * (e / 2) + 2 * t + e % 2;
}

// N operands of four words a lane, in the order in which lanes load them.
template <int N> struct alignas(16) OperandTable {
  u32 word[N][32][4];
};

// A operand of a decimation: rows 0..7 are the low bytes of the taps of 8 outputs, rows 8..15 the high bytes. The
// window of the 8 outputs has 16 s values and starts 2 s before the first tap, which aligns it to 16 values.
template <int S> OPERAND_FUNCTION OperandTable<S / 2> decimation_table(OperandOrder order) {
  OperandTable<S / 2> table{};
  for (int step = 0; step < S / 2; step++)
    for (int lane = 0; lane < 32; lane++)
      for (int i = 0; i < 4; i++)
        for (int e = 0; e < 4; e++) {
          const int at = 32 * step + operand_position(order, i / 2, lane % 4, e) - 2 * S - S * (lane / 4);
          const u32 tap = decimation_tap<S>(at);
          table.word[step][lane][i] |= (tap >> 8 * (i % 2) & 255) << 8 * e;
        }
  return table;
}

// A operands of an interpolation to 16 bits, 16 outputs each: low bytes of outputs 0..7 and 8..15, high bytes of both.
// Their 16 small values are in the order `order`. If `interleaved`, operand rows 2 i, 2 i + 1 of the first and then of
// the second half are outputs 4 i .. 4 i + 3, so that a lane gets four neighbours when the result becomes a B operand.
template <int S, int N> OPERAND_FUNCTION OperandTable<N> interpolation_table(OperandOrder order, bool interleaved) {
  OperandTable<N> table{};
  for (int sixteen = 0; sixteen < N; sixteen++)
    for (int lane = 0; lane < 32; lane++)
      for (int i = 0; i < 4; i++)
        for (int e = 0; e < 4; e++) {
          const int row = lane / 4, half = i % 2;
          const int out = 16 * sixteen + (interleaved ? row / 2 * 4 + 2 * half + row % 2 : 8 * half + row);
          const u32 tap = interpolation_tap<S>(out % S, operand_position(order, 0, lane % 4, e) - out / S);
          table.word[sixteen][lane][i] |= (tap >> 8 * (i / 2) & 255) << 8 * e;
        }
  return table;
}

// A operand of an axis that is not decimated: 16 outputs are the 16 values.
OPERAND_FUNCTION OperandTable<1> identity_table(OperandOrder order) {
  OperandTable<1> table{};
  for (int lane = 0; lane < 32; lane++)
    for (int i = 0; i < 2; i++)
      for (int e = 0; e < 4; e++)
        table.word[0][lane][i] |= (operand_position(order, 0, lane % 4, e) == 8 * i + lane / 4 ? 1u : 0u) << 8 * e;
  return table;
}

// B operands of the interpolation of rows: an operand is [pair of blocks] low, high of the first block of 8 outputs,
// then of the second. Their outputs alternate, two at a time, so that a lane gets neighbours: 4 of 16 in the order
// `words`, 8 of 32 in the order `octets`.
template <int S> OPERAND_FUNCTION OperandTable<S / 2> interpolate_rows_table(
    OperandOrder order, OperandOrder small_order = OperandOrder::pairs) {
  OperandTable<S / 2> table{};
  for (int pair = 0; pair < S / 2; pair++)
    for (int lane = 0; lane < 32; lane++)
      for (int i = 0; i < 4; i++)
        for (int e = 0; e < 4; e++) {
          const int n = lane / 4, block = 2 * pair + i / 2;
          const int out =
              order == OperandOrder::octets ? n / 2 * 8 + 2 * block + n % 2 : 16 * pair + n / 2 * 4 + i / 2 * 2 + n % 2;
          const u32 tap = interpolation_tap<S>(out % S, operand_position(small_order, 0, lane % 4, e) - out / S);
          table.word[pair][lane][i] |= (tap >> 8 * (i % 2) & 255) << 8 * e;
        }
  return table;
}

#ifdef BLUR_ON_CPU
#define OPERAND_TABLE static const
#else
#define OPERAND_TABLE __device__ const
#endif
OPERAND_TABLE OperandTable<2> decimation_4_words = decimation_table<4>(OperandOrder::words);
OPERAND_TABLE OperandTable<2> decimation_4_octets = decimation_table<4>(OperandOrder::octets);
OPERAND_TABLE OperandTable<2> decimation_4_pairs = decimation_table<4>(OperandOrder::pairs);
OPERAND_TABLE OperandTable<1> decimation_2_words = decimation_table<2>(OperandOrder::words);
OPERAND_TABLE OperandTable<1> decimation_2_pairs = decimation_table<2>(OperandOrder::pairs);
OPERAND_TABLE OperandTable<1> interpolate_columns_4 = interpolation_table<4, 1>(OperandOrder::words, false);
OPERAND_TABLE OperandTable<1> interpolate_columns_2 = interpolation_table<2, 1>(OperandOrder::words, false);
OPERAND_TABLE OperandTable<1> interpolate_columns_4_interleaved = interpolation_table<4, 1>(OperandOrder::words, true);
OPERAND_TABLE OperandTable<2> interpolate_small_rows_4 = interpolation_table<4, 2>(OperandOrder::pairs, false);
OPERAND_TABLE OperandTable<2> interpolate_rows_4_words = interpolate_rows_table<4>(OperandOrder::words);
OPERAND_TABLE OperandTable<2> interpolate_rows_4_octets = interpolate_rows_table<4>(OperandOrder::octets);
OPERAND_TABLE OperandTable<1> interpolate_rows_2_words = interpolate_rows_table<2>(OperandOrder::words);
OPERAND_TABLE OperandTable<1> identity_words = identity_table(OperandOrder::words);
OPERAND_TABLE OperandTable<1> identity_pairs = identity_table(OperandOrder::pairs);
OPERAND_TABLE OperandTable<2> interpolate_columns_4_transposed =
    interpolate_rows_table<4>(OperandOrder::words, OperandOrder::words);

// Products along rows: of a decimation those of a window, of an interpolation those of pairs of blocks.
OPERAND_FUNCTION int row_products(int factor) { return factor == 4 ? 2 : 1; }
template <int S>
__device__ __forceinline__ const OperandTable<row_products(S)>& decimation_operands(OperandOrder order) {
  if constexpr (S == 1) {
    return order == OperandOrder::words ? identity_words : identity_pairs;
  } else if constexpr (S == 4) {
    return order == OperandOrder::words    ? decimation_4_words
           : order == OperandOrder::octets ? decimation_4_octets
                                        : decimation_4_pairs;
  } else {
    return order == OperandOrder::words ? decimation_2_words : decimation_2_pairs;
  }
}
// TO_SMALL: to a small plane, that is a level below the first, whose factor is 4 down columns; S = 1 has operands for these.
template <int S, bool TO_SMALL>
__device__ __forceinline__ const OperandTable<S == 2 ? 1 : 2>& interpolate_rows_operands(OperandOrder order) {
  if constexpr (S == 1) {
    return interpolate_columns_4_transposed;
  } else if constexpr (TO_SMALL) {
    return interpolate_small_rows_4;
  } else if constexpr (S == 4) {
    return order == OperandOrder::octets ? interpolate_rows_4_octets : interpolate_rows_4_words;
  } else {
    return interpolate_rows_2_words;
  }
}
template <int S, bool TO_SMALL> __device__ __forceinline__ const OperandTable<1>& interpolate_columns_operands() {
  if constexpr (TO_SMALL) return interpolate_columns_4_interleaved;
  else if constexpr (S == 4) return interpolate_columns_4;
  else return interpolate_columns_2;
}
#endif
