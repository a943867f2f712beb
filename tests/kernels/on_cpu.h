// SPDX-License-Identifier: MPL-2.0
// CUDA threads on the CPU: what nvcc predefines for device code, launches, and the state of a thread that the emulated
// instructions of kernels/warp.cuh use. Include it before a kernel source.
//
// On x86-64 the threads of a block are coroutines of one thread of the system, which switch at barriers: many times as
// fast as a thread of the system each, which other processors have. To the thread sanitizer, which looks for accesses that no
// barrier orders, each coroutine is a thread, and a switch orders nothing.
#ifndef BLUR_ON_CPU
#define BLUR_ON_CPU 1
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <new>
#include <vector>

#define __device__
#define __global__
#define __forceinline__ inline
#define __launch_bounds__(...)

struct BlurIndex {
  unsigned x;
};

// An asynchronous copy of `size` bytes, of which those behind the first `bytes` become zero.
struct AsyncCopy {
  unsigned char* to;
  const unsigned char* from;
  int size, bytes;
};

struct BlurBarrier;

// The state of a CUDA thread.
struct BlurThread {
  BlurIndex index;
  BlurIndex block{};
  BlurBarrier* barrier = nullptr;
  unsigned char* shared = nullptr;
  unsigned products = 0;  // of matrices, so far
  std::vector<AsyncCopy> open_copies;
  std::deque<std::vector<AsyncCopy>> copies;
};
inline thread_local BlurThread* blur_thread;
#define threadIdx (blur_thread->index)
#define blockIdx (blur_thread->block)
#define blur_shared (blur_thread->shared)

#ifndef __x86_64__
#include <barrier>
#include <thread>

struct BlurBarrier : std::barrier<> {
  using std::barrier<>::barrier;
};

// Runs `body` in every thread and returns when all have ended.
template <class Body> void run_blur_threads(unsigned threads, Body body) {
  std::vector<std::thread> pool;
  for (unsigned i = 0; i < threads; i++)
    pool.emplace_back([&, i] {
      BlurThread own{{i}};
      blur_thread = &own;
      body();
    });
  for (std::thread& thread : pool) thread.join();
}
#else
#include "pages.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif
#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
// What all coroutines use as the one thread of the system that they are.
#define BLUR_UNCHECKED __attribute__((no_sanitize_thread, noinline))
#else
#define BLUR_UNCHECKED
#endif

// Stores the registers that a function preserves on the stack and the stack's address in `*from`, and continues where
// `to` was stored. Its caller stores the others that functions of Windows preserve, because sysv_abi functions do not.
extern "C" __attribute__((naked, noinline, sysv_abi)) BLUR_UNCHECKED inline void blur_switch(void** from, void* to) {
  asm(R"(
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
  )");
}

// A coroutine. The next launch uses its stack again.
struct BlurCoroutine {
  static constexpr std::size_t STACK_BYTES = 256 << 10;
  BlurThread thread;
  void* stack = reserve_pages(STACK_BYTES);
  void* position;       // in the stack, where it waits
#ifdef __SANITIZE_THREAD__
  void* fiber = __tsan_create_fiber(0);
#endif
  BlurCoroutine* next;  // in the ring of those that have not ended

  BlurCoroutine() {
    if (!stack || !commit_pages(stack, STACK_BYTES)) std::abort();
  }
  BlurCoroutine(const BlurCoroutine&) = delete;
  ~BlurCoroutine() { release_pages(stack, STACK_BYTES); }
};

// The coroutines of one thread.
struct BlurScheduler {
  std::deque<BlurCoroutine> all;
  BlurCoroutine* running = nullptr;
  void* caller = nullptr;
  void* caller_fiber = nullptr;
  const void* caller_stack = nullptr;
  std::size_t caller_stack_bytes = 0;
  void (*body)(void*) = nullptr;
  void* argument = nullptr;

  // Continues `to`, or the caller without it. Returns when somebody continues what has called this, unless that has ended.
  BLUR_UNCHECKED void resume(BlurCoroutine* to, void** from, [[maybe_unused]] bool has_ended = false) {
    running = to;
    blur_thread = to ? &to->thread : nullptr;
#ifdef __SANITIZE_ADDRESS__
    void* kept = nullptr;
    __sanitizer_start_switch_fiber(
        has_ended ? nullptr : &kept, to ? to->stack : caller_stack, to ? BlurCoroutine::STACK_BYTES : caller_stack_bytes);
#endif
#ifdef __SANITIZE_THREAD__
    __tsan_switch_to_fiber(to ? to->fiber : caller_fiber, __tsan_switch_to_fiber_no_sync);
#endif
    blur_switch(from, to ? to->position : caller);
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_finish_switch_fiber(kept, nullptr, nullptr);
#endif
  }

  // Lets the next coroutine run until it waits. If there is none, nobody can arrive at the barrier any more.
  BLUR_UNCHECKED void yield() {
    if (running->next == running) std::abort();
    resume(running->next, &running->position);
  }

  // Where a coroutine starts.
  BLUR_UNCHECKED static void start();

  template <class Body> BLUR_UNCHECKED void run(unsigned threads, Body& body_of_all) {
    while (all.size() < threads) all.emplace_back();
    body = [](void* pointer) { (*static_cast<Body*>(pointer))(); };
    argument = &body_of_all;
    for (unsigned i = 0; i < threads; i++) {
      BlurCoroutine& coroutine = all[i];
      coroutine.thread = {{i}};
      coroutine.next = &all[(i + 1) % threads];
      // Six registers, and the address that blur_switch returns to; a function starts 8 bytes off a multiple of 16. On
      // Windows it may write to the 32 bytes above its return address.
      auto* top = reinterpret_cast<void**>(static_cast<char*>(coroutine.stack) + BlurCoroutine::STACK_BYTES) - 6;
#ifdef __SANITIZE_ADDRESS__
      // The frames of a coroutine that has ended, which never returned.
      __asan_unpoison_memory_region(top - 510, 512 * sizeof *top);
#endif
      *top = reinterpret_cast<void*>(&BlurScheduler::start);
      coroutine.position = top - 6;
    }
#ifdef __SANITIZE_THREAD__
    caller_fiber = __tsan_get_current_fiber();
    __tsan_release(&body);
#endif
    resume(&all[0], &caller);
#ifdef __SANITIZE_THREAD__
    __tsan_acquire(&caller);
#endif
  }
};
inline thread_local BlurScheduler blur_scheduler;

inline void BlurScheduler::start() {
  BlurScheduler& scheduler = blur_scheduler;
#ifdef __SANITIZE_ADDRESS__
  const bool is_first = scheduler.running == &scheduler.all[0];
  __sanitizer_finish_switch_fiber(
      nullptr, is_first ? &scheduler.caller_stack : nullptr, is_first ? &scheduler.caller_stack_bytes : nullptr);
#endif
#ifdef __SANITIZE_THREAD__
  __tsan_acquire(&scheduler.body);
#endif
  scheduler.body(scheduler.argument);
#ifdef __SANITIZE_THREAD__
  __tsan_release(&scheduler.caller);
#endif
  BlurCoroutine* const ended = scheduler.running;
  BlurCoroutine* before = ended;
  while (before->next != ended) before = before->next;
  before->next = ended->next;
  scheduler.resume(before == ended ? nullptr : ended->next, &ended->position, true);
}

template <class Body> void run_blur_threads(unsigned threads, Body body) { blur_scheduler.run(threads, body); }

struct BlurBarrier {
  const unsigned threads;
  std::atomic<unsigned> arrived = 0, generation = 0;

  explicit BlurBarrier(unsigned threads) : threads(threads) {}
  void arrive_and_wait() {
    const unsigned own = generation;
    if (++arrived == threads) {
      arrived = 0;
      generation++;
    }
    while (generation == own) blur_scheduler.yield();
  }
};
#endif

inline void __syncthreads() { blur_thread->barrier->arrive_and_wait(); }

// Runs a kernel's blocks one after the other. The allocation of shared memory has exactly the requested size, so that a
// sanitizer sees an access beyond it, and every block finds it filled with 0xa5, so that a use of uninitialised shared
// memory changes the result.
template <class Args>
void blur_launch(void (*kernel)(Args), unsigned blocks, unsigned threads, std::size_t shared, Args args) {
  const std::align_val_t alignment{16};
  BlurBarrier barrier(threads);
  auto* memory = static_cast<unsigned char*>(::operator new(shared, alignment));
  run_blur_threads(threads, [&] {
    blur_thread->barrier = &barrier;
    blur_shared = memory;
    for (unsigned block = 0; block < blocks; block++) {
      blockIdx.x = block;
      for (std::size_t byte = threadIdx.x; byte < shared; byte += threads) memory[byte] = 0xa5;
      __syncthreads();
      kernel(args);
      __syncthreads();
    }
  });
  ::operator delete(memory, alignment);
}
#endif
