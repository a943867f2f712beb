// SPDX-License-Identifier: MPL-2.0
// The fake CUDA driver: a kernel as NVRTC compiles it, with the definitions that src/cuda/kernels/tensor_direct.rs makes for four
// channels of 8 bits and radii that need COMPILED_TILES tiles. In a namespace, because the prebuilt kernels and those for other
// radii have templates of the same names.
#include "../kernels/on_cpu.h"

#define BLUR_PART 1
#define BLUR_PART_direct_u8_c4 1
#define BLUR_TENSOR_DIRECT_TILES COMPILED_TILES
#define BLUR_TENSOR_DIRECT_RESIDENT 2
#define COMPILED_JOIN(name, tiles) name##tiles
#define COMPILED_NAME(name, tiles) COMPILED_JOIN(name, tiles)
#define blur_tensor_direct_u8_c4_long COMPILED_NAME(blur_tensor_direct_u8_c4_long_, COMPILED_TILES)
namespace COMPILED_NAME(compiled_, COMPILED_TILES) {
#include "../../kernels/blur.cu"
}
