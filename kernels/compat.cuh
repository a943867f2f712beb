// SPDX-License-Identifier: MPL-2.0
// Declares what nvcc and NVRTC predefine for the two other compilers of blur.cu: clang without CUDA headers (the
// portable PTX), and any C++20 compiler (the kernels on the CPU, where one CPU thread runs each thread of a block).
#ifndef BLUR_COMPAT_H
#define BLUR_COMPAT_H

#if defined(__NVCC__) || defined(__CUDACC_RTC__)
// Everything is predefined.
#elif defined(__CUDA__)
#define __device__ __attribute__((device))
#define __global__ __attribute__((global))
#define __shared__ __attribute__((shared))
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...) __attribute__((launch_bounds(__VA_ARGS__)))
#define __syncthreads() __nvvm_bar_sync(0)
struct BlurThreadIndex {
  struct X {
    __device__ operator unsigned() const { return __nvvm_read_ptx_sreg_tid_x(); }
  };
  X x;
};
struct BlurBlockIndex {
  struct X {
    __device__ operator unsigned() const { return __nvvm_read_ptx_sreg_ctaid_x(); }
  };
  X x;
};
#define threadIdx (BlurThreadIndex())
#define blockIdx (BlurBlockIndex())
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

// Runs a kernel's blocks one after the other. The allocation of shared memory has exactly the requested size, so that a
// sanitizer sees an access beyond it, and every block finds it filled with 0xa5, so that a use of uninitialised shared
// memory changes the result.
template <class Args>
void blur_launch(void (*kernel)(Args), unsigned blocks, unsigned threads, std::size_t shared, Args args) {
  const std::align_val_t alignment{16};
  std::barrier<> barrier(threads);
  auto* memory = static_cast<unsigned char*>(::operator new(shared, alignment));
  std::vector<std::thread> pool;
  for (unsigned thread = 0; thread < threads; thread++)
    pool.emplace_back([&, thread] {
      threadIdx.x = thread;
      blur_barrier = &barrier;
      blur_shared = memory;
      for (unsigned block = 0; block < blocks; block++) {
        blockIdx.x = block;
        for (std::size_t byte = thread; byte < shared; byte += threads) memory[byte] = 0xa5;
        __syncthreads();
        kernel(args);
        __syncthreads();
      }
    });
  for (auto& thread : pool) thread.join();
  ::operator delete(memory, alignment);
}
#endif
#endif
