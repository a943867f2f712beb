// SPDX-License-Identifier: MPL-2.0
// The fake CUDA driver: a kernel as NVRTC compiles it, with the definitions that src/cuda/kernels/tensor_direct.rs makes for
// radii from 57 to 63 of four channels of 8 bits. In a namespace, because the prebuilt kernels have templates of the same names.
#include "../kernels/on_cpu.h"

#define BLUR_PART 1
#define BLUR_PART_direct_u8_c4 1
#define BLUR_TENSOR_DIRECT_TILES 9
#define BLUR_TENSOR_DIRECT_RESIDENT 2
#define blur_tensor_direct_u8_c4_long blur_tensor_direct_u8_c4_long_9
namespace compiled {
#include "../../kernels/blur.cu"
}
