// Counts a program's copies between host and device and its allocations of pinned memory through CUPTI, and prints their number and
// bytes at exit.
// Start the program with CUDA_INJECTION64_PATH set to this library.
#include <cupti.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>

namespace {
// The first fields of CUPTI's record of a copy, which all its versions share.
struct Copy {
  uint32_t kind;
  uint8_t direction, from, to, flags;
  uint64_t bytes;
};
std::atomic<uint64_t> counts[16], bytes[16], pinned, pinned_bytes;

void note(void*, CUpti_CallbackDomain, CUpti_CallbackId id, const void* data) {
  const auto* call = static_cast<const CUpti_CallbackData*>(data);
  if (call->callbackSite != CUPTI_API_EXIT) return;
  pinned++;
  pinned_bytes += id == CUPTI_DRIVER_TRACE_CBID_cuMemHostAlloc
                      ? static_cast<const cuMemHostAlloc_params*>(call->functionParams)->bytesize
                      : static_cast<const cuMemAllocHost_v2_params*>(call->functionParams)->bytesize;
}

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
  std::fprintf(stderr, "pinned: %llu blocks, %llu bytes\n", (unsigned long long)pinned.load(), (unsigned long long)pinned_bytes.load());
}
}  // namespace

extern "C" int InitializeInjection() {
  if (cuptiActivityRegisterCallbacks(give, take) != CUPTI_SUCCESS) return 0;
  if (cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMCPY) != CUPTI_SUCCESS) return 0;
  CUpti_SubscriberHandle subscriber;
  if (cuptiSubscribe(&subscriber, note, nullptr) != CUPTI_SUCCESS) return 0;
  for (auto id : {CUPTI_DRIVER_TRACE_CBID_cuMemHostAlloc, CUPTI_DRIVER_TRACE_CBID_cuMemAllocHost_v2})
    cuptiEnableCallback(1, subscriber, CUPTI_CB_DOMAIN_DRIVER_API, id);
  std::atexit(print);
  return 1;
}
