// SPDX-License-Identifier: MPL-2.0
// Declares what nvcc and NVRTC predefine for clang without CUDA headers, which compiles the portable PTX. A C++20 compiler,
// which compiles the kernels for the CPU, finds it in tests/kernels/on_cpu.h.
#ifndef BLUR_COMPAT_H
#define BLUR_COMPAT_H

#if defined(__CUDA__) && !defined(__NVCC__) && !defined(__CUDACC_RTC__)
#define BLUR_CLANG_CUDA
#define __host__ __attribute__((host))
#define __device__ __attribute__((device))
#define __global__ __attribute__((global))
#define __shared__ __attribute__((shared))
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...) __attribute__((launch_bounds(__VA_ARGS__)))
#define __syncthreads() __nvvm_bar_sync(0)
#define __cvta_generic_to_shared(address) \
  (reinterpret_cast<unsigned long long>((__attribute__((address_space(3))) void*)(address)))
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
// The architecture by whose need of registers a kernel's blocks per multiprocessor are bounded. PTX has to fit all of them, and
// takes more registers than code of NVRTC does.
#define BLUR_BOUNDING_ARCH 9999
#elif defined(__CUDA_ARCH__)
#define BLUR_BOUNDING_ARCH __CUDA_ARCH__
#endif
#endif
