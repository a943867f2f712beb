// SPDX-License-Identifier: MPL-2.0
// The entry points for the levels of the wide form and for alpha. Included by blur.cu, after what they call.
#ifndef BLUR_ENTRIES_H
#define BLUR_ENTRIES_H

// The kernels of a level, for the families of interleaved samples. Planes of one and of two channels share launches.
#define BLUR_LEVEL_ENTRIES(name, T, call) \
  extern "C" __global__ void __launch_bounds__(BLUR_LEVEL_THREADS, LEVEL_MIN_BLOCKS) \
  blur_decimate_##name(const LevelArgs args) { \
    const LevelBlock block(args); \
    const LevelPlane& plane = args.planes[block.plane]; \
    call(decimate, T); \
  } \
  extern "C" __global__ void __launch_bounds__(BLUR_LEVEL_THREADS, LEVEL_MIN_BLOCKS) \
  blur_interpolate_##name(const LevelArgs args) { \
    const LevelBlock block(args); \
    const LevelPlane& plane = args.planes[block.plane]; \
    call(interpolate, T); \
  }
// From sm_100 on the compiler needs more registers for the same code and would spill.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000
#define LEVEL_MIN_BLOCKS 2
#else
#define LEVEL_MIN_BLOCKS 3
#endif
#define LEVEL_C12(step, T)                         \
  if (plane.channels == 1)                         \
    step<T, 1>(args, plane, block, SHARED_MEMORY); \
  else                                             \
    step<T, 2>(args, plane, block, SHARED_MEMORY)
#define LEVEL_C3(step, T) step<T, 3>(args, plane, block, SHARED_MEMORY)
#define LEVEL_C4(step, T) step<T, 4>(args, plane, block, SHARED_MEMORY)
// Bytes have faster kernels where there are tensor cores.
#if !defined(BLUR_HAS_TENSOR_CORES) || defined(BLUR_ON_CPU)
BLUR_LEVEL_ENTRIES(u8_c12, u8, LEVEL_C12)
BLUR_LEVEL_ENTRIES(u8_c3, u8, LEVEL_C3)
BLUR_LEVEL_ENTRIES(u8_c4, u8, LEVEL_C4)
#endif
BLUR_LEVEL_ENTRIES(u16_c12, u16, LEVEL_C12)
BLUR_LEVEL_ENTRIES(u16_c3, u16, LEVEL_C3)
BLUR_LEVEL_ENTRIES(u16_c4, u16, LEVEL_C4)
extern "C" __global__ void __launch_bounds__(BLUR_AXIS_THREADS, 8) blur_axis(const AxisArgs args) { axis_step(args); }

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

extern "C" __global__ void __launch_bounds__(BLUR_ALPHA_THREADS) blur_premultiply(const AlphaArgs args) {
  premultiply(args);
}
extern "C" __global__ void __launch_bounds__(BLUR_ALPHA_THREADS) blur_unpremultiply(const AlphaArgs args) {
  unpremultiply(args);
}

#ifdef BLUR_HAS_TENSOR_CORES
#define TENSOR_BOUNDS(step) __launch_bounds__(32 * BLUR_TENSOR_##step##_WARPS, TENSOR_##step##_RESIDENT)

// Planes of three and of four channels: one to a launch, and a kernel for each factor.
#define BLUR_TENSOR_ENTRIES(C, S) \
  extern "C" __global__ void TENSOR_BOUNDS(DECIMATE) blur_tensor_decimate_u8_c##C##_s##S(const TensorArgs args) { \
    let_next_kernel_start(); \
    wait_for_previous_kernel(); \
    decimate_plane<C, S>(args.planes[0]); \
  } \
  extern "C" __global__ void TENSOR_BOUNDS(INTERPOLATE) \
  blur_tensor_interpolate_u8_c##C##_s##S(const TensorArgs args) { \
    let_next_kernel_start(); \
    interpolate_plane<C, S, false>(args.planes[0]); \
  }
BLUR_TENSOR_ENTRIES(3, 2)
BLUR_TENSOR_ENTRIES(3, 4)
BLUR_TENSOR_ENTRIES(4, 2)
BLUR_TENSOR_ENTRIES(4, 4)

// Planes of one and of two channels, several to a launch, each with its own factor.
extern "C" __global__ void TENSOR_BOUNDS(DECIMATE) blur_tensor_decimate_u8_c12(const TensorArgs args) {
  let_next_kernel_start();
  wait_for_previous_kernel();
  const TensorPlane& plane = tensor_plane(args);
  if (plane.channels == 1) {
    if (plane.factor == 4) decimate_plane<1, 4>(plane);
    else decimate_plane<1, 2>(plane);
  } else {
    if (plane.factor == 4) decimate_plane<2, 4>(plane);
    else decimate_plane<2, 2>(plane);
  }
}
extern "C" __global__ void TENSOR_BOUNDS(INTERPOLATE) blur_tensor_interpolate_u8_c12(const TensorArgs args) {
  let_next_kernel_start();
  const TensorPlane& plane = tensor_plane(args);
  if (plane.channels == 1) {
    if (plane.factor == 4) interpolate_plane<1, 4, false>(plane);
    else interpolate_plane<1, 2, false>(plane);
  } else {
    if (plane.factor == 4) interpolate_plane<2, 4, false>(plane);
    else interpolate_plane<2, 2, false>(plane);
  }
}

// Small planes of any number of channels, several to a launch. Levels below the first have the factor 4.
extern "C" __global__ void TENSOR_BOUNDS(DECIMATE) blur_tensor_decimate_small(const TensorArgs args) {
  let_next_kernel_start();
  wait_for_previous_kernel();
  const TensorPlane& plane = tensor_plane(args);
  if (channel_group(plane.channels) == 1) decimate_small_plane<1>(plane);
  else decimate_small_plane<2>(plane);
}
extern "C" __global__ void TENSOR_BOUNDS(INTERPOLATE) blur_tensor_interpolate_small(const TensorArgs args) {
  let_next_kernel_start();
  const TensorPlane& plane = tensor_plane(args);
  if (channel_group(plane.channels) == 1) interpolate_plane<1, 4, true>(plane);
  else interpolate_plane<2, 4, true>(plane);
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
