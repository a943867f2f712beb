// SPDX-License-Identifier: MPL-2.0
// What a block does first: it finds its item of the launch. And programmatic dependent launch: a kernel starts while the one ahead
// of it in the stream is still running, and waits for it before it accesses memory. No effect in images for less than sm_90.
#ifndef BLUR_LAUNCH_H
#define BLUR_LAUNCH_H
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

// The item of a launch that this block belongs to: the last one that begins at this block or before. The first one begins
// at block 0, unused ones beyond every block.
template <class Item, int COUNT> __device__ __forceinline__ const Item& item_of_block(const Item (&items)[COUNT]) {
  int low = 0, high = COUNT;
#pragma unroll 1
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    const bool begins_later = items[middle].first_block > blockIdx.x;
    low = begins_later ? low : middle;
    high = begins_later ? middle : high;
  }
  return items[low];
}
#endif
