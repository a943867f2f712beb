// SPDX-License-Identifier: MPL-2.0
// What nvcc and NVRTC give by themselves, for the two other compilers of blur.cu: clang without CUDA headers, and any
// C++20 compiler, for which one thread stands for each thread of a block.
#ifndef BLUR_SHIM_H
#define BLUR_SHIM_H

#if defined(__NVCC__) || defined(__CUDACC_RTC__)
// Nothing is missing.
#elif defined(__CUDA__)
#define __device__ __attribute__((device))
#define __global__ __attribute__((global))
#define __shared__ __attribute__((shared))
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...) __attribute__((launch_bounds(__VA_ARGS__)))
#define __syncthreads() __nvvm_bar_sync(0)
struct BlurIndex {
  struct X {
    __device__ operator unsigned() const { return __nvvm_read_ptx_sreg_tid_x(); }
  };
  X x;
};
struct BlurBlock {
  struct X {
    __device__ operator unsigned() const { return __nvvm_read_ptx_sreg_ctaid_x(); }
  };
  X x;
};
#define threadIdx (BlurIndex())
#define blockIdx (BlurBlock())
#else
#include <barrier>
#include <cstddef>
#include <new>
#include <thread>
#include <vector>
#define BLUR_ON_CPU 1
#define __device__
#define __global__
#define __forceinline__ inline
#define __launch_bounds__(...)
struct BlurIndex {
  unsigned x;
};
inline thread_local BlurIndex threadIdx, blockIdx;
inline thread_local std::barrier<>* blur_barrier;
inline thread_local unsigned char* blur_shared;
inline void __syncthreads() { blur_barrier->arrive_and_wait(); }

// Runs the blocks one after the other. Shared memory is exactly as large as asked for and starts out as rubbish.
template <class Args>
void blur_launch(void (*kernel)(Args), unsigned blocks, unsigned threads, std::size_t shared, Args args) {
  const std::align_val_t alignment{16};
  std::barrier<> barrier(threads);
  auto* memory = static_cast<unsigned char*>(::operator new(shared, alignment));
  std::vector<std::thread> block;
  for (unsigned thread = 0; thread < threads; thread++)
    block.emplace_back([&, thread] {
      threadIdx.x = thread;
      blur_barrier = &barrier;
      blur_shared = memory;
      for (unsigned i = 0; i < blocks; i++) {
        blockIdx.x = i;
        for (std::size_t at = thread; at < shared; at += threads) memory[at] = 0xa5;
        __syncthreads();
        kernel(args);
        __syncthreads();
      }
    });
  for (auto& thread : block) thread.join();
  ::operator delete(memory, alignment);
}
#endif
#endif
