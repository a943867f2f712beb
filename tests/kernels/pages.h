// SPDX-License-Identifier: MPL-2.0
// Pages of memory from the system: addresses without memory, which all or some of them get afterwards.
#ifndef BLUR_PAGES_H
#define BLUR_PAGES_H
#include <cstddef>

#ifdef _WIN32
#define WIN32_LEAN_AND_MEAN
#define NOMINMAX
#include <windows.h>
// A name in the kernels.
#undef near

// Null if the system refuses.
inline void* reserve_pages(std::size_t bytes) { return VirtualAlloc(nullptr, bytes, MEM_RESERVE, PAGE_NOACCESS); }
inline bool commit_pages(void* pages, std::size_t bytes) {
  return VirtualAlloc(pages, bytes, MEM_COMMIT, PAGE_READWRITE) != nullptr;
}
// Takes what reserve_pages returned.
inline void release_pages(void* pages, std::size_t) { VirtualFree(pages, 0, MEM_RELEASE); }
#else
#include <sys/mman.h>

inline void* reserve_pages(std::size_t bytes) {
  void* pages = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return pages == MAP_FAILED ? nullptr : pages;
}
inline bool commit_pages(void* pages, std::size_t bytes) { return mprotect(pages, bytes, PROT_READ | PROT_WRITE) == 0; }
inline void release_pages(void* pages, std::size_t bytes) { munmap(pages, bytes); }
#endif
#endif
