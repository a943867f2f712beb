// SPDX-License-Identifier: MPL-2.0
// A driver for machines without one: as much of libcuda as the CUDA engine uses, with the kernels themselves compiled
// for the CPU through kernels/shim.h. Controlled by tests/cuda_without_gpu.rs and tests/special.rs.
//
// Nothing is done before somebody asks whether it is done, so whoever does not wait for the device sees old bytes. Any
// function can be told to fail, at once or after some calls. What is allocated is counted.
#include "../../kernels/blur.cu"
#include "../kernels/by_name.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

namespace {

enum Status { SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, WRONG_CONTEXT = 201, NO_CONTEXT = 201, NOT_FOUND = 500, NOT_READY = 600 };

using Clock = std::chrono::steady_clock;
struct Work {
  std::function<int()> run;
  // The memory it clears, if it is that.
  void* clears;
};
struct Stream {
  void* context;
  std::vector<Work> queue;
};
struct Event {
  Clock::time_point time;
  Stream* stream = nullptr;
  bool asked = false;
};

// The calls after the next `after`, `times` of them, fail.
struct Fault {
  int after, times, status;
};

struct State {
  std::mutex mutex;
  std::map<std::string, Fault> faults;
  // What there is: contexts retained, devices and their capability, the driver's version.
  int retained = 0, devices = 1, major = 9, minor = 0, version = 13000;
  std::set<void*> device_memory, pinned_memory;
  std::map<const char*, std::size_t> pinned_bytes;
  int streams = 0, events = 0, modules = 0, allocations = 0, at_work = 0;
} state;

thread_local std::vector<void*> contexts;

// A fault set on this function, or the status that it would have otherwise.
int answer(const char* function, bool needs_context = false) {
  const auto fault = state.faults.find(function);
  if (fault != state.faults.end() && fault->second.after-- <= 0 && fault->second.times-- > 0) return fault->second.status;
  return needs_context && contexts.empty() ? NO_CONTEXT : SUCCESS;
}

#define ENTER(needs_context) \
  std::lock_guard<std::mutex> lock(state.mutex); \
  if (const int status = answer(__func__, needs_context)) return status

int enqueue(Stream* stream, std::function<int()> run, void* clears = nullptr) {
  if (stream->context != contexts.back()) return WRONG_CONTEXT;
  stream->queue.push_back({std::move(run), clears});
  state.at_work += !clears;
  return SUCCESS;
}

int work_off(Stream* stream) {
  int status = SUCCESS;
  // Work may have another stream worked off.
  std::vector<Work> queue;
  queue.swap(stream->queue);
  for (auto& work : queue) {
    state.at_work -= !work.clears;
    // What is freed by now need not be cleared.
    if (status == SUCCESS && (!work.clears || state.device_memory.count(work.clears))) status = work.run();
  }
  return status;
}

using Kernel = std::string;

int allocate(std::set<void*>& memory, void** to, std::size_t bytes) {
  *to = std::malloc(bytes);
  if (!*to) return OUT_OF_MEMORY;
  std::memset(*to, 0xc3, bytes);
  state.allocations++;
  memory.insert(*to);
  return SUCCESS;
}

// Freeing waits for all that is queued, as the driver does. The engine does not rely on it: a copy or a kernel that is
// still queued then is somebody's mistake.
int release(std::set<void*>& memory, void* pointer) {
  if (!memory.erase(pointer)) return INVALID_VALUE;
  if (state.at_work) {
    std::fprintf(stderr, "memory was freed while work that may use it was queued\n");
    std::abort();
  }
  std::free(pointer);
  return SUCCESS;
}

}  // namespace

extern "C" {

// The controls.
void fake_reset() {
  std::lock_guard<std::mutex> lock(state.mutex);
  state.faults.clear();
  state.devices = 1, state.major = 9, state.minor = 0, state.version = 13000;
}
void fake_fail(const char* function, int after, int times, int status) {
  std::lock_guard<std::mutex> lock(state.mutex);
  state.faults[function] = {after, times, status};
}
void fake_machine(int devices, int major, int minor, int version) {
  std::lock_guard<std::mutex> lock(state.mutex);
  state.devices = devices, state.major = major, state.minor = minor, state.version = version;
}
// Device blocks, pinned blocks, streams and events that are there; contexts retained, modules loaded and blocks allocated
// so far; and contexts left current on this thread.
void fake_counts(int* counts) {
  std::lock_guard<std::mutex> lock(state.mutex);
  const int now[] = {static_cast<int>(state.device_memory.size()), static_cast<int>(state.pinned_memory.size()),
                     state.streams, state.events, state.retained, state.modules, state.allocations,
                     static_cast<int>(contexts.size())};
  std::memcpy(counts, now, sizeof now);
}

int cuDriverGetVersion(int* version) {
  ENTER(false);
  *version = state.version;
  return SUCCESS;
}
int cuInit(unsigned) {
  ENTER(false);
  return SUCCESS;
}
int cuDeviceGetCount(int* count) {
  ENTER(false);
  *count = state.devices;
  return SUCCESS;
}
int cuDeviceGet(int* device, int ordinal) {
  ENTER(false);
  *device = ordinal;
  return SUCCESS;
}
int cuDeviceGetName(char* name, int length, int) {
  ENTER(false);
  std::strncpy(name, "Stand-in", length);
  return SUCCESS;
}
int cuDeviceGetAttribute(int* value, int attribute, int) {
  ENTER(false);
  const std::map<int, int> attributes = {{16, 4}, {75, state.major}, {76, state.minor}, {97, 227 << 10}};
  *value = attributes.at(attribute);
  return SUCCESS;
}
int cuDevicePrimaryCtxRetain(void** context, int device) {
  ENTER(false);
  state.retained++;
  *context = reinterpret_cast<void*>(0x1000ull + device);
  return SUCCESS;
}
int cuCtxPushCurrent_v2(void* context) {
  ENTER(false);
  contexts.push_back(context);
  return SUCCESS;
}
int cuCtxPopCurrent_v2(void** context) {
  ENTER(true);
  contexts.pop_back();
  *context = nullptr;
  return SUCCESS;
}
int cuMemGetInfo_v2(std::size_t* free, std::size_t* total) {
  ENTER(true);
  *free = *total = 1 << 30;
  return SUCCESS;
}

int cuStreamCreate(Stream** stream, unsigned) {
  ENTER(true);
  state.streams++;
  *stream = new Stream{contexts.back(), {}};
  return SUCCESS;
}
int cuStreamSynchronize(Stream* stream) {
  ENTER(true);
  return work_off(stream);
}
int cuStreamWaitEvent(Stream* stream, Event* event, unsigned) {
  ENTER(true);
  return enqueue(stream, [event] { return event->stream ? work_off(event->stream) : SUCCESS; });
}
int cuStreamDestroy_v2(Stream* stream) {
  ENTER(true);
  state.streams--;
  delete stream;
  return SUCCESS;
}
int cuEventCreate(Event** event, unsigned) {
  ENTER(true);
  state.events++;
  *event = new Event;
  return SUCCESS;
}
int cuEventRecord(Event* event, Stream* stream) {
  ENTER(true);
  event->stream = stream;
  event->asked = false;
  return enqueue(stream, [event] {
    event->time = Clock::now();
    return SUCCESS;
  });
}
// Not ready when first asked, so that nobody gets away without waiting.
int cuEventQuery(Event* event) {
  ENTER(true);
  if (!event->asked) {
    event->asked = true;
    return NOT_READY;
  }
  return work_off(event->stream);
}
int cuEventElapsedTime(float* milliseconds, Event* begin, Event* end) {
  ENTER(true);
  *milliseconds = std::chrono::duration<float, std::milli>(end->time - begin->time).count();
  return SUCCESS;
}
int cuEventDestroy_v2(Event* event) {
  ENTER(true);
  state.events--;
  delete event;
  return SUCCESS;
}

int cuMemAlloc_v2(void** pointer, std::size_t bytes) {
  ENTER(true);
  return allocate(state.device_memory, pointer, bytes);
}
int cuMemFree_v2(void* pointer) {
  ENTER(true);
  return release(state.device_memory, pointer);
}
int cuMemHostAlloc(void** pointer, std::size_t bytes, unsigned) {
  ENTER(true);
  const int status = allocate(state.pinned_memory, pointer, bytes);
  if (status == SUCCESS) state.pinned_bytes[static_cast<char*>(*pointer)] = bytes;
  return status;
}
int cuMemFreeHost(void* pointer) {
  ENTER(true);
  state.pinned_bytes.erase(static_cast<char*>(pointer));
  return release(state.pinned_memory, pointer);
}
int cuMemsetD8Async(void* pointer, unsigned char value, std::size_t bytes, Stream* stream) {
  ENTER(true);
  return enqueue(stream, [=] {
    std::memset(pointer, value, bytes);
    return SUCCESS;
  }, pointer);
}
static int copy(void* to, const void* from, std::size_t bytes, Stream* stream) {
  return enqueue(stream, [=] {
    std::memcpy(to, from, bytes);
    return SUCCESS;
  });
}
int cuMemcpyHtoDAsync_v2(void* to, const void* from, std::size_t bytes, Stream* stream) {
  ENTER(true);
  return copy(to, from, bytes, stream);
}
int cuMemcpyDtoHAsync_v2(void* to, const void* from, std::size_t bytes, Stream* stream) {
  ENTER(true);
  return copy(to, from, bytes, stream);
}

// Rows, as CUDA_MEMCPY2D has them.
struct Copy2D {
  std::size_t src_x, src_y;
  int src_type;
  const void* src_host;
  const char* src_device;
  void* src_array;
  std::size_t src_pitch, dst_x, dst_y;
  int dst_type;
  void* dst_host;
  char* dst_device;
  void* dst_array;
  std::size_t dst_pitch, bytes, rows;
};
int cuMemcpy2DAsync_v2(const Copy2D* given, Stream* stream) {
  ENTER(true);
  const Copy2D copy = *given;
  return enqueue(stream, [copy] {
    const char* from = copy.src_type == 1 ? static_cast<const char*>(copy.src_host) : copy.src_device;
    char* to = copy.dst_type == 1 ? static_cast<char*>(copy.dst_host) : copy.dst_device;
    for (std::size_t row = 0; row < copy.rows; row++)
      std::memcpy(to + row * copy.dst_pitch, from + row * copy.src_pitch, copy.bytes);
    return SUCCESS;
  });
}
// What kind of memory an address is in: 1 for pinned memory, 0 for what it does not know.
int cuPointerGetAttributes(unsigned count, const int* attributes, unsigned** values, const char* address) {
  ENTER(true);
  if (count != 1 || attributes[0] != 2) return INVALID_VALUE;
  *values[0] = 0;
  for (const auto& [block, bytes] : state.pinned_bytes)
    if (address >= block && address < block + bytes) {
      *values[0] = 1;
    }
  return SUCCESS;
}

// An image of the compiler's stand-in, "SPECIAL target kernel ", has one kernel, which does what that general one does.
int cuModuleLoadData(std::string** module, const char* image) {
  ENTER(true);
  state.modules++;
  *module = new std::string;
  const std::string start(image, 8);
  if (start == "SPECIAL ") {
    const std::string rest(image + 8);
    const auto name = rest.find(' ') + 1;
    **module = rest.substr(name, rest.find(' ', name) - name);
  }
  return SUCCESS;
}
int cuModuleGetFunction(const Kernel** function, const std::string* module, const char* name) {
  ENTER(true);
  const auto kernel = BY_NAME.find(std::strcmp(name, "blur_special") ? name : *module);
  if (kernel == BY_NAME.end()) return NOT_FOUND;
  *function = &kernel->first;
  return SUCCESS;
}
int cuFuncSetAttribute(const Kernel*, int, int) {
  ENTER(true);
  return SUCCESS;
}
int cuLaunchKernel(const Kernel* kernel, unsigned blocks, unsigned, unsigned, unsigned threads, unsigned, unsigned,
                   unsigned shared, Stream* stream, void** parameters, void**) {
  ENTER(true);
  const char* parameter = static_cast<const char*>(parameters[0]);
  const std::vector<char> copy(parameter, parameter + parameter_bytes(*kernel));
  return enqueue(stream, [=] {
    return launch_by_name(*kernel, blocks, threads, shared, copy.data()) ? SUCCESS : NOT_FOUND;
  });
}

int cuGetErrorName(int status, const char** name) {
  const std::map<int, const char*> names = {{2, "CUDA_ERROR_OUT_OF_MEMORY"}, {100, "CUDA_ERROR_NO_DEVICE"},
                                            {700, "CUDA_ERROR_ILLEGAL_ADDRESS"}, {719, "CUDA_ERROR_LAUNCH_FAILED"}};
  const auto found = names.find(status);
  *name = found == names.end() ? "CUDA_ERROR_UNKNOWN" : found->second;
  return SUCCESS;
}
int cuGetErrorString(int, const char** text) {
  *text = "as the stand-in was told";
  return SUCCESS;
}
}
