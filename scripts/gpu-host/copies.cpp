// Counts a program's copies between host and device through CUPTI, and prints their number and bytes by direction at exit.
// Start the program with CUDA_INJECTION64_PATH set to this library.
#include <cupti.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace {
// The first fields of CUPTI's record of a copy, which all its versions share.
struct Copy {
  uint32_t kind;
  uint8_t direction, from, to, flags;
  uint64_t bytes;
};
std::atomic<uint64_t> counts[16], bytes[16];

void give(uint8_t** buffer, size_t* size, size_t* most) {
  *size = 1 << 20;
  *buffer = static_cast<uint8_t*>(std::aligned_alloc(64, *size));
  *most = 0;
}

void take(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t valid) {
  CUpti_Activity* record = nullptr;
  while (cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS) {
    if (record->kind != CUPTI_ACTIVITY_KIND_MEMCPY) continue;
    const auto* copy = reinterpret_cast<const Copy*>(record);
    counts[copy->direction % 16]++;
    bytes[copy->direction % 16] += copy->bytes;
  }
  std::free(buffer);
}

void print() {
  cuptiActivityFlushAll(1);
  const struct { int direction; const char* name; } all[] = {
      {CUPTI_ACTIVITY_MEMCPY_KIND_HTOD, "host to device"}, {CUPTI_ACTIVITY_MEMCPY_KIND_DTOH, "device to host"},
      {CUPTI_ACTIVITY_MEMCPY_KIND_DTOD, "device to device"}, {CUPTI_ACTIVITY_MEMCPY_KIND_HTOA, "host to array"},
      {CUPTI_ACTIVITY_MEMCPY_KIND_ATOH, "array to host"}};
  for (const auto& [direction, name] : all)
    std::fprintf(stderr, "copies, %s: %llu, %llu bytes\n", name, (unsigned long long)counts[direction].load(),
                 (unsigned long long)bytes[direction].load());
}
}  // namespace

extern "C" int InitializeInjection() {
  if (cuptiActivityRegisterCallbacks(give, take) != CUPTI_SUCCESS) return 0;
  if (cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMCPY) != CUPTI_SUCCESS) return 0;
  std::atexit(print);
  return 1;
}
