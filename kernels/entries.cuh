// SPDX-License-Identifier: MPL-2.0
// The entry points of the prebuilt kernels, by part. Included by blur.cu, after what they call.
//
// An image has the kernels of one part; parts.txt lists the parts and their kernels. scripts/build-kernels compiles one by
// defining BLUR_PART and BLUR_PART_<part> as 1. Without BLUR_PART all kernels are compiled.
#ifndef BLUR_ENTRIES_H
#define BLUR_ENTRIES_H

// For #if, which takes a name that is not defined as 0.
#define BLUR_HAS_PART(part) (!BLUR_PART || BLUR_PART_##part)

// Planes of one and of two channels in one launch, as in NV12.
template <class SAMPLE> struct OneOrTwoChannels {
  using T = SAMPLE;
};
template <class T, class R> struct TileBlur<OneOrTwoChannels<T>, R> {
  static __device__ __forceinline__ void fused(const BlurArgs& args, const BlurPlane& plane, const Block& block) {
    if (plane.channels == 1)
      TileBlur<Interleaved<T, 1>, R>::fused(args, plane, block);
    else
      TileBlur<Interleaved<T, 2>, R>::fused(args, plane, block);
  }
  static __device__ __forceinline__ void rows(const BlurArgs& args, const BlurPlane& plane, const Block& block) {
    if (plane.channels == 1)
      TileBlur<Interleaved<T, 1>, R>::rows(args, plane, block);
    else
      TileBlur<Interleaved<T, 2>, R>::rows(args, plane, block);
  }
};

// The pixel layout of each name in BLUR_FAMILIES.
namespace family {
using u8_c12 = OneOrTwoChannels<u8>;
using u8_c3 = Interleaved<u8, 3>;
using u8_c4 = Interleaved<u8, 4>;
using u16_c12 = OneOrTwoChannels<u16>;
using u16_c3 = Interleaved<u16, 3>;
using u16_c4 = Interleaved<u16, 4>;
using yuv422 = Yuv422;
using packed1010102 = Packed1010102;
}  // namespace family

// Whether a launch of the family has a single plane.
template <class FAMILY> constexpr bool SINGLE_PLANE = true;
template <class T> constexpr bool SINGLE_PLANE<OneOrTwoChannels<T>> = false;

// Blocks that have to fit on a multiprocessor, which limits the registers of a thread. The portable PTX uses smaller
// numbers, because ptxas needs more registers for it on older and on newer chips and would spill.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 750
template <class FAMILY> constexpr int FUSED_MIN_BLOCKS = sizeof(typename FAMILY::T) == 1 ? 5 : 4;
template <> constexpr int FUSED_MIN_BLOCKS<Yuv422> = 4;
template <class T>
constexpr int FUSED_MIN_BLOCKS<OneOrTwoChannels<T>> = __CUDA_ARCH__ >= 1200 ? 3 : sizeof(T) == 1 ? 5 : 4;
#define COLUMNS_MIN_BLOCKS 2
#else
template <class FAMILY> constexpr int FUSED_MIN_BLOCKS = 3;
#define COLUMNS_MIN_BLOCKS 1
#endif
#define ROWS_MIN_BLOCKS 4

#define BLUR_FUSED_FAMILY_ENTRY(name) \
  BLUR_ENTRY(blur_fused_##name, BLUR_FUSED_THREADS, FUSED_MIN_BLOCKS<family::name>, SINGLE_PLANE<family::name>, \
             (TileBlur<family::name, RuntimeRadius>::fused))
#define BLUR_ROWS_FAMILY_ENTRY(name) \
  BLUR_ENTRY(blur_rows_##name, BLUR_ROWS_THREADS, ROWS_MIN_BLOCKS, SINGLE_PLANE<family::name>, \
             (TileBlur<family::name, RuntimeRadius>::rows))
// Images with tensor-core kernels have those of the direct form instead of the fused ones.
#if BLUR_HAS_PART(fused_u8_c12)
BLUR_FUSED_FAMILY_ENTRY(u8_c12)
#endif
#if BLUR_HAS_PART(fused_u8_c3)
BLUR_FUSED_FAMILY_ENTRY(u8_c3)
#endif
#if BLUR_HAS_PART(fused_u8_c4)
BLUR_FUSED_FAMILY_ENTRY(u8_c4)
#endif
#if BLUR_HAS_PART(rows_u8)
BLUR_ROWS_FAMILY_ENTRY(u8_c12)
BLUR_ROWS_FAMILY_ENTRY(u8_c3)
BLUR_ROWS_FAMILY_ENTRY(u8_c4)
#endif
#if BLUR_HAS_PART(fused_u16_c12)
BLUR_FUSED_FAMILY_ENTRY(u16_c12)
#endif
#if BLUR_HAS_PART(rows_u16_c12)
BLUR_ROWS_FAMILY_ENTRY(u16_c12)
#endif
#if BLUR_HAS_PART(fused_u16_c3)
BLUR_FUSED_FAMILY_ENTRY(u16_c3)
#endif
#if BLUR_HAS_PART(rows_u16_c3)
BLUR_ROWS_FAMILY_ENTRY(u16_c3)
#endif
#if BLUR_HAS_PART(fused_u16_c4)
BLUR_FUSED_FAMILY_ENTRY(u16_c4)
#endif
#if BLUR_HAS_PART(rows_u16_c4)
BLUR_ROWS_FAMILY_ENTRY(u16_c4)
#endif
#if BLUR_HAS_PART(fused_yuv422)
BLUR_FUSED_FAMILY_ENTRY(yuv422)
#endif
#if BLUR_HAS_PART(rows_yuv422)
BLUR_ROWS_FAMILY_ENTRY(yuv422)
#endif
#if BLUR_HAS_PART(fused_packed1010102)
BLUR_FUSED_FAMILY_ENTRY(packed1010102)
#endif
#if BLUR_HAS_PART(rows_packed1010102)
BLUR_ROWS_FAMILY_ENTRY(packed1010102)
#endif
#if BLUR_HAS_PART(columns)
BLUR_ENTRY(blur_columns, BLUR_COLUMNS_THREADS, COLUMNS_MIN_BLOCKS, false, columns_tile)
#endif

// The levels of the wide form.
#define BLUR_LEVEL_ENTRY(name, Args, RESIDENT, call) \
  extern "C" __global__ void __launch_bounds__(32 * BLUR_LEVEL_WARPS, RESIDENT) name(const Args args) { \
    let_next_kernel_start(); \
    wait_for_previous_kernel(); \
    call; \
  }
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
#define LEVEL_ROWS_RESIDENT 8
#define LEVEL_INTERPOLATE_RESIDENT 7
#define LEVEL_COLUMNS_RESIDENT 10
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 750
#define LEVEL_ROWS_RESIDENT 6
#define LEVEL_INTERPOLATE_RESIDENT 6
#define LEVEL_COLUMNS_RESIDENT 8
#else
#define LEVEL_ROWS_RESIDENT 3
#define LEVEL_INTERPOLATE_RESIDENT 4
#define LEVEL_COLUMNS_RESIDENT 3
#endif
#if BLUR_HAS_PART(level)
BLUR_LEVEL_ENTRY(blur_decimate_rows, LevelRowsArgs, LEVEL_ROWS_RESIDENT, level_rows<false>(args, SHARED_MEMORY))
BLUR_LEVEL_ENTRY(blur_interpolate_rows, LevelRowsArgs, LEVEL_INTERPOLATE_RESIDENT, level_rows<true>(args, SHARED_MEMORY))
BLUR_LEVEL_ENTRY(blur_decimate_columns, LevelColumnsArgs, LEVEL_COLUMNS_RESIDENT, level_columns<false>(args))
BLUR_LEVEL_ENTRY(blur_interpolate_columns, LevelColumnsArgs, LEVEL_COLUMNS_RESIDENT, level_columns<true>(args))
#endif

#if BLUR_HAS_PART(cover)
extern "C" __global__ void __launch_bounds__(BLUR_COVER_THREADS) blur_cover(const CoverArgs args) {
  const CoverRect& rect = item_of_block(args.rects);
  wait_for_previous_kernel();
  cover_rect(rect);
}
extern "C" __global__ void __launch_bounds__(BLUR_MOSAIC_THREADS) blur_mosaic_sums(const MosaicArgs args) {
  mosaic_sums(item_of_block(args.grids), SHARED_MEMORY);
}
extern "C" __global__ void __launch_bounds__(BLUR_MOSAIC_THREADS) blur_mosaic_write(const MosaicArgs args) {
  mosaic_write(item_of_block(args.grids), SHARED_MEMORY);
}
#endif

#if BLUR_HAS_PART(soft)
extern "C" __global__ void __launch_bounds__(BLUR_SOFT_THREADS, 4) blur_soft_cells(const SoftArgs args) {
  const SoftGrid& grid = item_of_block(args.grids);
  let_next_kernel_start();
  wait_for_previous_kernel();
  soft_cell(grid);
}
extern "C" __global__ void __launch_bounds__(BLUR_SOFT_SPREAD_THREADS) blur_soft_spread(const SoftArgs args) {
  const SoftGrid& grid = item_of_block(args.grids);
  let_next_kernel_start();
  wait_for_previous_kernel();
  soft_spread(grid, SHARED_MEMORY);
}
extern "C" __global__ void __launch_bounds__(BLUR_SOFT_THREADS) blur_soft_mix(const SoftArgs args) {
  const SoftGrid& grid = item_of_block(args.grids);
  let_next_kernel_start();
  wait_for_previous_kernel();
  soft_mix(grid);
}
#endif

#if BLUR_HAS_PART(alpha)
extern "C" __global__ void __launch_bounds__(BLUR_ALPHA_THREADS) blur_premultiply(const AlphaArgs args) {
  premultiply(args);
}
extern "C" __global__ void __launch_bounds__(BLUR_ALPHA_THREADS) blur_unpremultiply(const AlphaArgs args) {
  unpremultiply(args);
}
#endif

// Included only by the parts that use them, because an image has all constants of its source, used or not.
#if defined(BLUR_HAS_TENSOR_CORES) && (BLUR_HAS_PART(tensor_c12) || BLUR_HAS_PART(tensor_c3) || \
                                       BLUR_HAS_PART(tensor_c4) || BLUR_HAS_PART(tensor_small) || \
                                       BLUR_HAS_PART(tensor_u16_c12) || BLUR_HAS_PART(tensor_packed1010102) || \
                                       BLUR_HAS_PART(tensor_u16_c4) || BLUR_HAS_PART(tensor_yuv422))
#include "tensor_blur.cuh"
#include "tensor_decimate.cuh"
#include "tensor_interpolate.cuh"

#define TENSOR_BOUNDS(step) __launch_bounds__(32 * BLUR_TENSOR_##step##_WARPS, TENSOR_##step##_RESIDENT)
// Where a pixel has four samples of 16 bits.
template <class P> constexpr int TENSOR_FEWER = P::C * sizeof(typename P::T) == 8;

// Planes of three and of four channels: one to a launch, and a kernel for each factor.
#define BLUR_TENSOR_ENTRIES(NAME, S) \
  extern "C" __global__ void __launch_bounds__( \
      32 * BLUR_TENSOR_DECIMATE_WARPS, TENSOR_DECIMATE_RESIDENT - 2 * TENSOR_FEWER<family::NAME>) \
  blur_tensor_decimate_##NAME##_s##S(const TensorArgs args) { \
    let_next_kernel_start(); \
    wait_for_previous_kernel(); \
    decimate_plane<family::NAME, S>(args.planes[0]); \
  } \
  extern "C" __global__ void __launch_bounds__( \
      32 * BLUR_TENSOR_INTERPOLATE_WARPS, TENSOR_INTERPOLATE_RESIDENT - TENSOR_FEWER<family::NAME>) \
  blur_tensor_interpolate_##NAME##_s##S(const TensorArgs args) { \
    let_next_kernel_start(); \
    interpolate_plane<family::NAME, S, S, false>(args.planes[0]); \
  }
// Planes of one and of two channels: several to a launch, each with its own factors.
#define BLUR_TENSOR_PLANES(CALL, T) \
  if (plane.factor_across == 4) CALL(T, 4, 4); \
  else if (plane.factor_across == 1) CALL(T, 1, 2); \
  else if (plane.factor_down == 4) CALL(T, 2, 4); \
  else CALL(T, 2, 2);
template <class T, int ACROSS, int DOWN> __device__ __forceinline__ void decimate_one_or_two(const TensorPlane& plane) {
  if (plane.channels == 1) decimate_plane<Interleaved<T, 1>, ACROSS, DOWN>(plane);
  else decimate_plane<Interleaved<T, 2>, ACROSS, DOWN>(plane);
}
template <class T, int ACROSS, int DOWN> __device__ __forceinline__ void interpolate_one_or_two(const TensorPlane& plane) {
  if (plane.channels == 1) interpolate_plane<Interleaved<T, 1>, ACROSS, DOWN, false>(plane);
  else interpolate_plane<Interleaved<T, 2>, ACROSS, DOWN, false>(plane);
}
#define DECIMATE_PLANES(T, ACROSS, DOWN) decimate_one_or_two<T, ACROSS, DOWN>(plane)
#define INTERPOLATE_PLANES(T, ACROSS, DOWN) interpolate_one_or_two<T, ACROSS, DOWN>(plane)
#define BLUR_TENSOR_PLANES_ENTRIES(NAME, T) \
  extern "C" __global__ void TENSOR_BOUNDS(DECIMATE) blur_tensor_decimate_##NAME(const TensorArgs args) { \
    let_next_kernel_start(); \
    wait_for_previous_kernel(); \
    const TensorPlane& plane = tensor_plane(args); \
    BLUR_TENSOR_PLANES(DECIMATE_PLANES, T) \
  } \
  extern "C" __global__ void TENSOR_BOUNDS(INTERPOLATE) blur_tensor_interpolate_##NAME(const TensorArgs args) { \
    let_next_kernel_start(); \
    const TensorPlane& plane = tensor_plane(args); \
    BLUR_TENSOR_PLANES(INTERPOLATE_PLANES, T) \
  }
#if BLUR_HAS_PART(tensor_c12)
BLUR_TENSOR_PLANES_ENTRIES(u8_c12, u8)
#endif
#if BLUR_HAS_PART(tensor_c3)
BLUR_TENSOR_ENTRIES(u8_c3, 2)
BLUR_TENSOR_ENTRIES(u8_c3, 4)
#endif
#if BLUR_HAS_PART(tensor_c4)
BLUR_TENSOR_ENTRIES(u8_c4, 2)
BLUR_TENSOR_ENTRIES(u8_c4, 4)
#endif
#if BLUR_HAS_PART(tensor_u16_c12)
BLUR_TENSOR_PLANES_ENTRIES(u16_c12, u16)
#endif
#if BLUR_HAS_PART(tensor_u16_c4)
BLUR_TENSOR_ENTRIES(u16_c4, 2)
BLUR_TENSOR_ENTRIES(u16_c4, 4)
#endif
#if BLUR_HAS_PART(tensor_packed1010102)
BLUR_TENSOR_ENTRIES(packed1010102, 2)
BLUR_TENSOR_ENTRIES(packed1010102, 4)
#endif

#if BLUR_HAS_PART(tensor_yuv422)
// Packed 4:2:2: luma and chroma as planes of their own. One launch decimates both; the interpolations have a launch each, chroma
// before luma. Chroma has half of σ along rows.
#define BLUR_TENSOR_YUV422(CALL) \
  if (plane.channels == 1) { \
    if (plane.factor_down == 4) CALL(1, 4, 4); \
    else CALL(1, 2, 2); \
  } else { \
    if (plane.factor_down == 2) CALL(2, 1, 2); \
    else if (plane.factor_across == 2) CALL(2, 2, 4); \
    else CALL(2, 4, 4); \
  }
#define DECIMATE_YUV422(C, ACROSS, DOWN) decimate_plane<Yuv422Part<C>, ACROSS, DOWN>(plane)
#define INTERPOLATE_YUV422(C, ACROSS, DOWN) interpolate_plane<Yuv422Part<C>, ACROSS, DOWN, false>(plane)
extern "C" __global__ void TENSOR_BOUNDS(DECIMATE) blur_tensor_decimate_yuv422(const TensorArgs args) {
  let_next_kernel_start();
  wait_for_previous_kernel();
  const TensorPlane& plane = tensor_plane(args);
  BLUR_TENSOR_YUV422(DECIMATE_YUV422)
}
extern "C" __global__ void TENSOR_BOUNDS(INTERPOLATE) blur_tensor_interpolate_yuv422(const TensorArgs args) {
  let_next_kernel_start();
  const TensorPlane& plane = tensor_plane(args);
  BLUR_TENSOR_YUV422(INTERPOLATE_YUV422)
}
#endif

#if BLUR_HAS_PART(tensor_small)
// Small planes of any number of channels, several to a launch. Levels below the first have the factor 4 down columns, and 4 or 1
// along rows.
extern "C" __global__ void TENSOR_BOUNDS(DECIMATE) blur_tensor_decimate_small(const TensorArgs args) {
  let_next_kernel_start();
  wait_for_previous_kernel();
  const TensorPlane& plane = tensor_plane(args);
  if (channel_group(plane.channels) == 1 && plane.factor_across == 4) decimate_small_plane<1, 4>(plane);
  else if (channel_group(plane.channels) == 1) decimate_small_plane<1, 1>(plane);
  else if (plane.factor_across == 4) decimate_small_plane<2, 4>(plane);
  else decimate_small_plane<2, 1>(plane);
}
extern "C" __global__ void TENSOR_BOUNDS(INTERPOLATE) blur_tensor_interpolate_small(const TensorArgs args) {
  let_next_kernel_start();
  const TensorPlane& plane = tensor_plane(args);
  if (channel_group(plane.channels) == 1 && plane.factor_across == 4)
    interpolate_plane<Interleaved<u8, 1>, 4, 4, true>(plane);
  else if (channel_group(plane.channels) == 1) interpolate_plane<Interleaved<u8, 1>, 1, 4, true>(plane);
  else if (plane.factor_across == 4) interpolate_plane<Interleaved<u8, 2>, 4, 4, true>(plane);
  else interpolate_plane<Interleaved<u8, 2>, 1, 4, true>(plane);
}

// The blur of small planes, by radius: the tiles of 16 columns and rows that an output tile is computed from.
#define BLUR_TENSOR_BLUR_ENTRY(NAME, RESIDENT, TILES) \
  extern "C" __global__ void __launch_bounds__(32 * BLUR_TENSOR_BLUR_WARPS, RESIDENT) NAME(const TensorArgs args) { \
    let_next_kernel_start(); \
    const TensorPlane& plane = tensor_plane(args); \
    if (channel_group(plane.channels) == 1) blur_small_plane<1, TILES>(plane, args); \
    else blur_small_plane<2, TILES>(plane, args); \
  }
BLUR_TENSOR_BLUR_ENTRY(blur_tensor_blur_short, TENSOR_BLUR_SHORT_RESIDENT, blur_tiles(BLUR_TENSOR_RADIUS_SHORT))
BLUR_TENSOR_BLUR_ENTRY(blur_tensor_blur_long, TENSOR_BLUR_LONG_RESIDENT, blur_tiles(BLUR_TENSOR_RADIUS_MAX))
#endif
#endif

// The direct form, by radius.
#if defined(BLUR_HAS_TENSOR_CORES) && \
    (BLUR_HAS_PART(direct_u8_c12) || BLUR_HAS_PART(direct_u8_c3) || BLUR_HAS_PART(direct_u8_c4) || \
     BLUR_HAS_PART(direct_u16_c12) || BLUR_HAS_PART(direct_u16_c4) || \
     BLUR_HAS_PART(direct_yuv422) || BLUR_HAS_PART(direct_packed1010102))
#include "tensor_direct.cuh"

#define BLUR_TENSOR_DIRECT_ENTRY(NAME, RESIDENT, CALL) \
  extern "C" __global__ void __launch_bounds__(32 * BLUR_TENSOR_DIRECT_WARPS, RESIDENT) \
  blur_tensor_direct_##NAME(const TensorArgs args) { \
    let_next_kernel_start(); \
    CALL; \
  }
#define DIRECT_PLANE(T, MAX) (direct_plane<T, direct_tiles(MAX)>(args.planes[0], args))
#define DIRECT_PLANES(T, MAX) (direct_planes<T, direct_tiles(MAX)>(args))
#define BLUR_TENSOR_DIRECT_ENTRIES(NAME, CALL, T, SHORT, MEDIUM, LONG) \
  BLUR_TENSOR_DIRECT_ENTRY(NAME##_short, TENSOR_DIRECT_##SHORT, CALL(T, BLUR_TENSOR_DIRECT_RADIUS_SHORT)) \
  BLUR_TENSOR_DIRECT_ENTRY(NAME##_medium, TENSOR_DIRECT_##MEDIUM, CALL(T, BLUR_TENSOR_DIRECT_RADIUS_MEDIUM)) \
  BLUR_TENSOR_DIRECT_ENTRY(NAME##_long, TENSOR_DIRECT_##LONG, CALL(T, BLUR_TENSOR_RADIUS_MAX))
#if BLUR_HAS_PART(direct_u8_c12)
BLUR_TENSOR_DIRECT_ENTRIES(u8_c12, DIRECT_PLANES, u8, SHORT_RESIDENT, MEDIUM_RESIDENT_C12, LONG_RESIDENT)
#endif
#if BLUR_HAS_PART(direct_u8_c3)
BLUR_TENSOR_DIRECT_ENTRIES(
    u8_c3, DIRECT_PLANE, family::u8_c3, SHORT_RESIDENT, MEDIUM_RESIDENT_C3, LONG_RESIDENT_C3)
#endif
#if BLUR_HAS_PART(direct_u8_c4)
BLUR_TENSOR_DIRECT_ENTRIES(u8_c4, DIRECT_PLANE, family::u8_c4, SHORT_RESIDENT, MEDIUM_RESIDENT_C4, LONG_RESIDENT)
#endif
#if BLUR_HAS_PART(direct_u16_c12)
BLUR_TENSOR_DIRECT_ENTRIES(u16_c12, DIRECT_PLANES, u16, SHORT_RESIDENT_U16, MEDIUM_RESIDENT_U16, LONG_RESIDENT_U16)
#endif
#if BLUR_HAS_PART(direct_u16_c4)
BLUR_TENSOR_DIRECT_ENTRIES(
    u16_c4, DIRECT_PLANE, family::u16_c4, SHORT_RESIDENT, MEDIUM_RESIDENT_U16_C4, LONG_RESIDENT)
#endif
#if BLUR_HAS_PART(direct_yuv422)
BLUR_TENSOR_DIRECT_ENTRIES(
    yuv422, DIRECT_PLANE, family::yuv422, SHORT_RESIDENT, MEDIUM_RESIDENT_YUV422, LONG_RESIDENT)
#endif
#if BLUR_HAS_PART(direct_packed1010102)
BLUR_TENSOR_DIRECT_ENTRIES(
    packed1010102, DIRECT_PLANE, family::packed1010102, SHORT_RESIDENT_PACKED, MEDIUM_RESIDENT_U16_C4, LONG_RESIDENT)
#endif
#endif
#endif
