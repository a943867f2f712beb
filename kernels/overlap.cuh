// SPDX-License-Identifier: MPL-2.0
// Programmatic dependent launch: a kernel starts while the one ahead of it in the stream is still running, and waits for
// it before it accesses memory. No effect in images for less than sm_90.
#ifndef BLUR_OVERLAP_H
#define BLUR_OVERLAP_H
#include "compat.cuh"

// Returns once the kernels ahead in the stream are complete and their writes visible. No effect where the launch does not
// ask for it.
__device__ __forceinline__ void wait_for_previous_kernel() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
// Allows the next kernel of the stream to start once all blocks of this one have called this or ended.
__device__ __forceinline__ void let_next_kernel_start() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
#endif
