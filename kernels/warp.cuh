// SPDX-License-Identifier: MPL-2.0
// Warp instructions that the tensor-core kernels need: mma, cp.async, shared memory by address. On the CPU a warp's 32
// threads exchange operands through memory, and an asynchronous copy happens when it is waited for, so that a missing
// wait shows.
#ifndef BLUR_WARP_H
#define BLUR_WARP_H
#include "launch.cuh"
#include "pixels.cuh"

#ifdef BLUR_ON_CPU
using Shared = u8*;  // address in shared memory

struct WarpExchange {
  BlurBarrier barrier{32};
  // Each twice, in turn: a thread that writes the next one cannot disturb one that still reads. Rows of A and columns of B.
  u8 a[2][16][32], b[2][8][32];
  u64 values[2][32];
};
inline WarpExchange warp_exchange[8];

inline void warp_sync() { warp_exchange[threadIdx.x / 32].barrier.arrive_and_wait(); }
inline Shared shared_memory() { return blur_shared; }

// The sum over the lanes of what `of` makes of each one's number and value.
template <class Of> inline u64 sum_of_lanes(u64 value, Of of) {
  WarpExchange& warp = warp_exchange[threadIdx.x / 32];
  const unsigned turn = blur_thread->products++ % 2;
  warp.values[turn][threadIdx.x % 32] = value;
  warp.barrier.arrive_and_wait();
  u64 sum = 0;
  for (u32 lane = 0; lane < 32; lane++) sum += of(lane, warp.values[turn][lane]);
  return sum;
}

// D = A * B + C for the fragments of mma.m16n8k32 and mma.m16n8k16, which are described below.
template <unsigned K>
void mma_on_cpu(int (&d)[4], const u32 (&a)[K / 8], const u32 (&b)[K / 16], const int (&c)[4]) {
  WarpExchange& warp = warp_exchange[threadIdx.x / 32];
  const unsigned g = threadIdx.x % 32 / 4, t = threadIdx.x % 4, turn = blur_thread->products++ % 2;
  for (unsigned i = 0; i < K / 8; i++) std::memcpy(&warp.a[turn][g + i % 2 * 8][4 * t + i / 2 * 16], &a[i], sizeof a[i]);
  for (unsigned i = 0; i < K / 16; i++) std::memcpy(&warp.b[turn][g][4 * t + i * 16], &b[i], sizeof b[i]);
  warp.barrier.arrive_and_wait();
  for (unsigned i = 0; i < 4; i++) {
    const u8 *row = warp.a[turn][g + i / 2 * 8], *column = warp.b[turn][2 * t + i % 2];
    u32 sum = static_cast<u32>(c[i]);
    for (unsigned k = 0; k < K; k++) sum += u32{row[k]} * column[k];
    d[i] = static_cast<int>(sum);
  }
}
#else
using Shared = u32;
extern __shared__ Words<4> blur_shared[];
__device__ __forceinline__ void warp_sync() { asm volatile("bar.warp.sync 0xffffffff;" ::: "memory"); }
__device__ __forceinline__ Shared shared_memory() { return static_cast<u32>(__cvta_generic_to_shared(blur_shared)); }
#endif

// The inverse, to one unit in the last place.
__device__ __forceinline__ float approximate_inverse(float value) {
#ifdef BLUR_ON_CPU
  return 1 / value;
#else
  float inverse;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(value));
  return inverse;
#endif
}

// The lanes, as bits, in which the condition holds. All lanes of the warp take part, here and below.
__device__ __forceinline__ u32 warp_ballot(bool condition) {
#ifdef BLUR_ON_CPU
  return static_cast<u32>(sum_of_lanes(condition, [](u32 lane, u64 holds) { return holds << lane; }));
#else
  u32 lanes;
  asm volatile("{ .reg .pred p; setp.ne.u32 p, %1, 0; vote.sync.ballot.b32 %0, p, 0xffffffff; }"
               : "=r"(lanes)
               : "r"(static_cast<u32>(condition)));
  return lanes;
#endif
}
// The value of the lane whose number differs in these bits.
__device__ __forceinline__ u32 warp_xor(u32 value, u32 bits) {
#ifdef BLUR_ON_CPU
  const u32 from = threadIdx.x % 32 ^ bits;
  return static_cast<u32>(sum_of_lanes(value, [&](u32 lane, u64 of_lane) { return lane == from ? of_lane : 0; }));
#else
  u32 other;
  asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 31, 0xffffffff;" : "=r"(other) : "r"(value), "r"(bits));
  return other;
#endif
}
// The sum of the values of all lanes whose numbers are equal modulo `stride`, a power of two: of all lanes with 1.
__device__ __forceinline__ u32 warp_sum(u32 value, u32 stride = 1) {
#pragma unroll
  for (u32 distance = 16; distance > 0; distance /= 2) {
    if (distance < stride) break;
    value += warp_xor(value, distance);
  }
  return value;
}
// The same for values below 2^59.
__device__ __forceinline__ u64 warp_sum(u64 value, u32 stride = 1) {
  // Sums of 32 numbers of 27 bits do not overflow.
  const u32 low = static_cast<u32>(value) & 0x7ffffff, high = static_cast<u32>(value >> 27);
  return (static_cast<u64>(warp_sum(high, stride)) << 27) + warp_sum(low, stride);
}

#ifndef BLUR_ON_CPU
// 8 x 16 times 16 x 8 bytes, the product of sm_75: row g of A, column g of B, columns 2 t and 2 t + 1 of row g of D.
template <bool ORDERED> __device__ __forceinline__ void mma_8816(int& d0, int& d1, u32 a, u32 b, int c0, int c1) {
  if constexpr (ORDERED)
    asm volatile("mma.sync.aligned.m8n8k16.row.col.s32.u8.u8.s32 {%0,%1},{%2},{%3},{%4,%5};"
                 : "=r"(d0), "=r"(d1)
                 : "r"(a), "r"(b), "r"(c0), "r"(c1));
  else
    asm("mma.sync.aligned.m8n8k16.row.col.s32.u8.u8.s32 {%0,%1},{%2},{%3},{%4,%5};"
        : "=r"(d0), "=r"(d1)
        : "r"(a), "r"(b), "r"(c0), "r"(c1));
}
#endif

// D = A * B + C, 16 x 32 times 32 x 8 bytes, without sign. Lane (g, t) = (lane / 4, lane % 4) holds
//   A: rows g, g + 8 of k = 4 t .. 4 t + 3, then of k = 16 + 4 t ..;  B: column g of the same k;
//   D: row g of columns 2 t and 2 t + 1, then row g + 8.
// ORDERED products stay in program order: where the compiler would otherwise move one past the next step's loads and run out of
// registers.
template <bool ORDERED = false> __device__ __forceinline__ void mma32(
    int (&d)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1, int c0, int c1, int c2, int c3) {
#ifdef BLUR_ON_CPU
  mma_on_cpu<32>(d, {a0, a1, a2, a3}, {b0, b1}, {c0, c1, c2, c3});
#elif __CUDA_ARCH__ < 800
  mma_8816<ORDERED>(d[0], d[1], a0, b0, c0, c1);
  mma_8816<ORDERED>(d[2], d[3], a1, b0, c2, c3);
  mma_8816<ORDERED>(d[0], d[1], a2, b1, d[0], d[1]);
  mma_8816<ORDERED>(d[2], d[3], a3, b1, d[2], d[3]);
#else
  if constexpr (ORDERED)
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.u8.u8.s32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%10,%11,%12,%13};"
                 : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1), "r"(c0), "r"(c1), "r"(c2), "r"(c3));
  else
    asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.u8.s32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%10,%11,%12,%13};"
        : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1), "r"(c0), "r"(c1), "r"(c2), "r"(c3));
#endif
}
// The same with k = 16: a0, a1 are rows g, g + 8, b0 is column g of k = 4 t .. 4 t + 3.
__device__ __forceinline__ void mma16(int (&d)[4], u32 a0, u32 a1, u32 b0, int c0, int c1, int c2, int c3) {
#ifdef BLUR_ON_CPU
  mma_on_cpu<16>(d, {a0, a1}, {b0}, {c0, c1, c2, c3});
#elif __CUDA_ARCH__ < 800
  mma_8816<false>(d[0], d[1], a0, b0, c0, c1);
  mma_8816<false>(d[2], d[3], a1, b0, c2, c3);
#else
  asm("mma.sync.aligned.m16n8k16.row.col.s32.u8.u8.s32 {%0,%1,%2,%3},{%4,%5},{%6},{%7,%8,%9,%10};"
      : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
      : "r"(a0), "r"(a1), "r"(b0), "r"(c0), "r"(c1), "r"(c2), "r"(c3));
#endif
}

// The same value, which the compiler does not know to be the same: what depends on it is computed where it is used, and
// takes no registers in the rest of a loop.
__device__ __forceinline__ int recomputed(int value) {
#ifndef BLUR_ON_CPU
  asm volatile("mov.b32 %0, %0;" : "+r"(value));
#endif
  return value;
}

template <int N> __device__ __forceinline__ void shared_load(u32 (&words)[N], Shared at) {
#ifdef BLUR_ON_CPU
  if (reinterpret_cast<u64>(at) % (4 * N)) std::abort();
  std::memcpy(words, at, sizeof words);
#else
  if constexpr (N == 4)
    asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"(at)
                 : "memory");
  else if constexpr (N == 2)
    asm volatile("ld.shared.v2.u32 {%0,%1}, [%2];" : "=r"(words[0]), "=r"(words[1]) : "r"(at) : "memory");
  else asm volatile("ld.shared.u32 %0, [%1];" : "=r"(words[0]) : "r"(at) : "memory");
#endif
}
template <int N> __device__ __forceinline__ void shared_store(Shared at, const u32 (&words)[N]) {
#ifdef BLUR_ON_CPU
  std::memcpy(at, words, sizeof words);
#else
  if constexpr (N == 4)
    asm volatile("st.shared.v4.u32 [%4], {%0,%1,%2,%3};" ::"r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3]),
                 "r"(at)
                 : "memory");
  else if constexpr (N == 2)
    asm volatile("st.shared.v2.u32 [%2], {%0,%1};" ::"r"(words[0]), "r"(words[1]), "r"(at) : "memory");
  else asm volatile("st.shared.u32 [%1], %0;" ::"r"(words[0]), "r"(at) : "memory");
#endif
}
#ifndef BLUR_ON_CPU
// A copy as below by a multiprocessor that has no asynchronous ones.
template <int SIZE> __device__ __forceinline__ void copy_now(Shared to, const u8* from, int bytes) {
  u32 words[SIZE / 4] = {};
  if (bytes >= SIZE) {
    const auto whole = *offset_ptr<const Words<SIZE / 4>>(from, 0);
#pragma unroll
    for (int i = 0; i < SIZE / 4; i++) words[i] = whole.word[i];
  } else {
#pragma unroll
    for (int i = 0; i < SIZE; i++)
      if (i < bytes) words[i / 4] |= static_cast<u32>(from[i]) << i % 4 * 8;
  }
  shared_store(to, words);
}
#endif
// Starts a copy of SIZE bytes (4, 8 or 16, and aligned to that) to shared memory, where a multiprocessor can.
template <int SIZE> __device__ __forceinline__ void copy_async(Shared to, const u8* from) {
#if defined(BLUR_ON_CPU)
  blur_thread->open_copies.push_back({to, from, SIZE, SIZE});
#elif __CUDA_ARCH__ < 800
  copy_now<SIZE>(to, from, SIZE);
#else
  // 16 bytes bypass the L1 cache on their way.
  if constexpr (SIZE == 16) asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
  else asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(to), "l"(from), "n"(SIZE) : "memory");
#endif
}
// Like copy_async, for sources that other warps of a multiprocessor read too. It reads only the first `bytes` bytes and fills the
// rest with zeros.
template <int SIZE>
__device__ __forceinline__ void copy_async_cached(Shared to, const u8* from, int bytes = SIZE) {
#if defined(BLUR_ON_CPU)
  blur_thread->open_copies.push_back({to, from, SIZE, bytes});
#elif __CUDA_ARCH__ < 800
  copy_now<SIZE>(to, from, bytes);
#else
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to), "l"(from), "n"(SIZE), "r"(bytes) : "memory");
#endif
}
// Ends a group of copies, which may be empty.
__device__ __forceinline__ void copy_commit() {
#ifdef BLUR_ON_CPU
  blur_thread->copies.push_back(std::move(blur_thread->open_copies));
  blur_thread->open_copies.clear();
#elif __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
// Waits until at most N of this thread's groups are incomplete.
template <int N> __device__ __forceinline__ void copy_wait() {
#ifdef BLUR_ON_CPU
  auto& groups = blur_thread->copies;
  for (; groups.size() > N; groups.pop_front())
    for (const AsyncCopy& copy : groups.front()) {
      if (reinterpret_cast<u64>(copy.to) % copy.size || reinterpret_cast<u64>(copy.from) % copy.size) std::abort();
      std::memset(copy.to, 0, copy.size);
      std::memcpy(copy.to, copy.from, copy.bytes);
    }
#elif __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
#endif
}

__device__ __forceinline__ u32 shared_load_u16(Shared at) {
#ifdef BLUR_ON_CPU
  u16 value;
  std::memcpy(&value, at, 2);
  return value;
#else
  u16 value;
  asm volatile("ld.shared.u16 %0, [%1];" : "=h"(value) : "r"(at) : "memory");
  return value;
#endif
}
__device__ __forceinline__ void shared_store_u16(Shared at, u32 value) {
#ifdef BLUR_ON_CPU
  const u16 narrow = static_cast<u16>(value);
  std::memcpy(at, &narrow, 2);
#else
  asm volatile("st.shared.u16 [%1], %0;" ::"h"(static_cast<u16>(value)), "r"(at) : "memory");
#endif
}

// Stores N words that nothing on the device reads soon, but for chroma that luma is written into.
template <int N> __device__ __forceinline__ void store_streaming(u8* to, const u32* words) {
#ifdef BLUR_ON_CPU
  if (reinterpret_cast<u64>(to) % (4 * N)) std::abort();
  std::memcpy(to, words, 4 * N);
#else
  if constexpr (N == 4)
    asm volatile("st.global.cs.v4.u32 [%0], {%1,%2,%3,%4};" ::"l"(to), "r"(words[0]), "r"(words[1]), "r"(words[2]),
                 "r"(words[3])
                 : "memory");
  else if constexpr (N == 2)
    asm volatile("st.global.cs.v2.u32 [%0], {%1,%2};" ::"l"(to), "r"(words[0]), "r"(words[1]) : "memory");
  else asm volatile("st.global.cs.u32 [%0], %1;" ::"l"(to), "r"(words[0]) : "memory");
#endif
}
#endif
