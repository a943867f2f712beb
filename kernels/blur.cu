// SPDX-License-Identifier: MPL-2.0
// The kernels of the exact separable Gaussian, by part.
//
// README.md in this folder describes the algorithms, abi.h the entry points and their contract, docs/ARITHMETIC.md the
// result. Sums are integers modulo 2^32 and therefore do not depend on their order, so all kernels give the same bytes.
//
// An image has the kernels of one part; parts.txt lists the parts and their kernels. scripts/build-kernels compiles one by
// defining BLUR_PART and BLUR_PART_<part> as 1. Without BLUR_PART all kernels are compiled. The host's JIT compiles one
// kernel of a part `direct_<family>` for BLUR_TENSOR_DIRECT_TILES.
#include "launch.cuh"
#include "warp.cuh"

// For #if, which takes a name that is not defined as 0.
#define BLUR_HAS_PART(part) (!BLUR_PART || BLUR_PART_##part)

#ifdef BLUR_ON_CPU
#define SHARED_MEMORY blur_shared
#else
#define SHARED_MEMORY reinterpret_cast<u8*>(blur_shared)
#endif

// Blocks that have to fit on a multiprocessor, which limits the registers of a thread. The portable PTX uses smaller
// numbers, because ptxas needs more registers for it on older and on newer chips and would spill.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ == BLUR_BOUNDING_ARCH && __CUDA_ARCH__ >= 800
#define LEVEL_ROWS_RESIDENT 8
#define LEVEL_INTERPOLATE_RESIDENT 7
#define LEVEL_COLUMNS_RESIDENT 10
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ == BLUR_BOUNDING_ARCH && __CUDA_ARCH__ >= 750
#define LEVEL_ROWS_RESIDENT 6
#define LEVEL_INTERPOLATE_RESIDENT 6
#define LEVEL_COLUMNS_RESIDENT 8
#else
#define LEVEL_ROWS_RESIDENT 3
#define LEVEL_INTERPOLATE_RESIDENT 4
#define LEVEL_COLUMNS_RESIDENT 3
#endif
#define BLUR_AXIS_ENTRY(name, Args, WARPS, RESIDENT, call) \
  extern "C" __global__ void __launch_bounds__(32 * WARPS, RESIDENT) name(const Args args) { \
    let_next_kernel_start(); \
    wait_for_previous_kernel(); \
    call; \
  }
#if BLUR_HAS_PART(axis) || BLUR_HAS_PART(level)
#include "axis.cuh"
#endif
#if BLUR_HAS_PART(axis)
// These numbers suit all.
BLUR_AXIS_ENTRY(blur_rows, RowsArgs, BLUR_ROWS_WARPS, 8, filter_rows<RowsStep::DIRECT>(args, SHARED_MEMORY))
BLUR_AXIS_ENTRY(blur_columns, ColumnsArgs, BLUR_COLUMNS_WARPS, 4, direct_columns(args, SHARED_MEMORY))
#endif
#if BLUR_HAS_PART(level)
BLUR_AXIS_ENTRY(blur_decimate_rows, RowsArgs, BLUR_LEVEL_WARPS, LEVEL_ROWS_RESIDENT,
                filter_rows<RowsStep::DECIMATE>(args, SHARED_MEMORY))
BLUR_AXIS_ENTRY(blur_interpolate_rows, RowsArgs, BLUR_LEVEL_WARPS, LEVEL_INTERPOLATE_RESIDENT,
                filter_rows<RowsStep::INTERPOLATE>(args, SHARED_MEMORY))
BLUR_AXIS_ENTRY(blur_decimate_columns, ColumnsArgs, BLUR_LEVEL_WARPS, LEVEL_COLUMNS_RESIDENT, level_columns<false>(args))
BLUR_AXIS_ENTRY(blur_interpolate_columns, ColumnsArgs, BLUR_LEVEL_WARPS, LEVEL_COLUMNS_RESIDENT, level_columns<true>(args))
#endif

#if BLUR_HAS_PART(cover)
#include "cover.cuh"

extern "C" __global__ void __launch_bounds__(BLUR_COVER_THREADS) blur_cover(const CoverArgs args) {
  const CoverRect& rect = item_of_block(args.rects);
  wait_for_previous_kernel();
  cover_rect(rect);
}
extern "C" __global__ void __launch_bounds__(BLUR_MOSAIC_THREADS) blur_mosaic_sums(const MosaicArgs args) {
  const MosaicGrid& grid = item_of_block(args.grids);
  let_next_kernel_start();
  wait_for_previous_kernel();
  mosaic_sums(args.planes[grid.plane], grid);
}
extern "C" __global__ void __launch_bounds__(BLUR_MOSAIC_THREADS) blur_mosaic_write(const MosaicArgs args) {
  const MosaicGrid& grid = item_of_block(args.grids);
  let_next_kernel_start();
  wait_for_previous_kernel();
  mosaic_write(args.planes[grid.plane], grid);
}
#endif

#if BLUR_HAS_PART(soft)
#include "soft.cuh"

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
#include "alpha.cuh"

extern "C" __global__ void __launch_bounds__(BLUR_ALPHA_THREADS) blur_premultiply(const AlphaArgs args) {
  premultiply(args);
}
extern "C" __global__ void __launch_bounds__(BLUR_ALPHA_THREADS) blur_unpremultiply(const AlphaArgs args) {
  unpremultiply(args);
}
#endif

// The pixel layout of each name in BLUR_FAMILIES of which a launch has one plane.
namespace family {
using u8_c3 = Interleaved<u8, 3>;
using u8_c4 = Interleaved<u8, 4>;
using u16_c4 = Interleaved<u16, 4>;
using yuv422 = Yuv422;
using packed1010102 = Packed1010102;
}  // namespace family

// Tensor cores multiply bytes from sm_75 on.
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 750
#define BLUR_HAS_TENSOR_CORES
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

// The direct form, by radius. The host's JIT compiles one kernel, for as many tiles as a radius needs. It has the name of the
// prebuilt one for long radii.
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
#ifdef BLUR_TENSOR_DIRECT_TILES
#define BLUR_TENSOR_DIRECT_ENTRIES(NAME, CALL, T, SHORT, MEDIUM, LONG) \
  BLUR_TENSOR_DIRECT_ENTRY(NAME##_long, BLUR_TENSOR_DIRECT_RESIDENT, CALL(T, 8 * (BLUR_TENSOR_DIRECT_TILES - 1)))
#else
#define BLUR_TENSOR_DIRECT_ENTRIES(NAME, CALL, T, SHORT, MEDIUM, LONG) \
  BLUR_TENSOR_DIRECT_ENTRY(NAME##_short, TENSOR_DIRECT_##SHORT, CALL(T, BLUR_TENSOR_DIRECT_RADIUS_SHORT)) \
  BLUR_TENSOR_DIRECT_ENTRY(NAME##_medium, TENSOR_DIRECT_##MEDIUM, CALL(T, BLUR_TENSOR_DIRECT_RADIUS_MEDIUM)) \
  BLUR_TENSOR_DIRECT_ENTRY(NAME##_long, TENSOR_DIRECT_##LONG, CALL(T, BLUR_TENSOR_RADIUS_MAX))
#endif
#if BLUR_HAS_PART(direct_u8_c12)
BLUR_TENSOR_DIRECT_ENTRIES(u8_c12, DIRECT_PLANES, u8, SHORT_RESIDENT_C12, MEDIUM_RESIDENT_C12, LONG_RESIDENT)
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
