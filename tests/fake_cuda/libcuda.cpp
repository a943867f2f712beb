// SPDX-License-Identifier: MPL-2.0
// A fake CUDA driver, for tests on machines without a GPU: the part of libcuda that the CUDA engine and GStreamer's CUDA
// library use, with the kernels compiled for the CPU through tests/kernels/on_cpu.h. README.md explains it.
//
// This file has the controls, devices, contexts, streams, events, modules and launches; memory and copies are in
// libcuda_memory.cpp.
#include "libcuda.h"

#include "../kernels/on_cpu.h"
#include "../../kernels/blur.cu"
// In libcuda_compiled_*.cpp.
extern "C" void blur_tensor_direct_u8_c4_long_4(TensorArgs args);
extern "C" void blur_tensor_direct_u8_c4_long_6(TensorArgs args);
extern "C" void blur_tensor_direct_u8_c4_long_9(TensorArgs args);
#define BLUR_COMPILED_KERNEL \
    {"blur_tensor_direct_u8_c4_long_4", {.tensor = blur_tensor_direct_u8_c4_long_4}}, \
    {"blur_tensor_direct_u8_c4_long_6", {.tensor = blur_tensor_direct_u8_c4_long_6}}, \
    {"blur_tensor_direct_u8_c4_long_9", {.tensor = blur_tensor_direct_u8_c4_long_9}},
#include "../kernels/by_name.h"

#include <algorithm>
#include <chrono>
#include <cstring>

namespace fake_driver {

// The fault injected into this call, else CUDA_SUCCESS.
static int injected_status(const char* function, bool needs_context) {
  const auto found = state.faults.find(function);
  if (found != state.faults.end()) {
    Fault& fault = found->second;
    if (fault.after-- <= 0 && fault.times-- > 0) {
      if (fault.loses_device) state.lost = fault.status;
      return fault.status;
    }
  }
  return needs_context ? state.lost : CUDA_SUCCESS;
}

int entry_status(const char* function, bool needs_context) {
  if (!is_exempt) {
    Calls& calls = state.calls[function];
    calls.all++;
    if (const int status = injected_status(function, needs_context)) {
      calls.failed++;
      return status;
    }
  }
  return needs_context && current.empty() ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
}

Stream* resolve(Stream* stream) { return stream ? stream : current.back()->default_stream; }

// Makes `stream` wait for everything that is enqueued in `other` now.
static void wait_for(Stream* stream, Stream* other) {
  if (other->queue.empty()) return;
  const auto up_to = other->enqueued;
  stream->queue.push_back({[=] { return state.all_streams.count(other) ? execute(other, up_to) : CUDA_SUCCESS; }});
  stream->enqueued++;
}

int enqueue(Stream* given, Work work) {
  Stream* stream = resolve(given);
  if (!state.all_streams.count(stream)) return CUDA_ERROR_INVALID_HANDLE;
  if (stream->context != current.back()) return CUDA_ERROR_INVALID_CONTEXT;
  Stream* default_stream = stream->context->default_stream;
  if (stream != default_stream && stream->blocking) wait_for(stream, default_stream);
  if (stream == default_stream)
    for (Stream* other : state.streams)
      if (other->context == stream->context && other->blocking) wait_for(stream, other);
  stream->queue.push_back(std::move(work));
  stream->enqueued++;
  return CUDA_SUCCESS;
}

int execute(Stream* stream, std::uint64_t up_to) {
  int status = CUDA_SUCCESS;
  // An item may execute other streams, and those this one again, up to an earlier item: the condition is checked anew
  // for each item.
  while (stream->executed < up_to && !stream->queue.empty()) {
    const Work work = std::move(stream->queue.front());
    stream->queue.pop_front();
    stream->executed++;
    if (status == CUDA_SUCCESS) status = work.run();
  }
  return status;
}

Stream* new_stream(Context* context, bool blocking) {
  Stream* stream = new Stream{context, blocking};
  state.all_streams.insert(stream);
  return stream;
}

// Destroying a stream completes its work, as in the real driver.
void delete_stream(Stream* stream) {
  execute(stream);
  state.streams.erase(stream);
  state.all_streams.erase(stream);
  delete stream;
}

static Context* new_context(int device, bool primary) {
  Context* context = new Context{device, primary};
  context->default_stream = new_stream(context, true);
  state.contexts.insert(context);
  return context;
}

}  // namespace fake_driver

using namespace fake_driver;

namespace {

using Clock = std::chrono::steady_clock;
struct Event {
  Context* context;
  bool has_time;
  Clock::time_point time;
  // The stream of the last record, and the number of its item there.
  Stream* stream = nullptr;
  std::uint64_t position = 0;
  // Whether cuEventQuery has been called since the last record.
  bool queried = false;
};

int execute(const Event* event) {
  return state.all_streams.count(event->stream) ? fake_driver::execute(event->stream, event->position) : CUDA_SUCCESS;
}

using Kernel = std::string;

// CUlaunchConfig.
struct LaunchConfig {
  unsigned grid[3], block[3], shared;
  Stream* stream;
  void* attributes;
  unsigned attribute_count;
};

// PTX that is compiled.
struct Link {
  std::string image;
};

// A loaded image.
struct Module {
  std::string image;

  // Whether the image has a kernel: a section of a CUBIN, or an entry of PTX or of an image of the fake NVRTC.
  bool has(const std::string& kernel) const {
    return image.find(".text." + kernel + '\0') != std::string::npos ||
           image.find(".entry " + kernel + '(') != std::string::npos;
  }
};

template <class T> T read_at(const char* bytes, std::size_t offset) {
  T value;
  std::memcpy(&value, bytes + offset, sizeof value);
  return value;
}

// The bytes of a CUBIN: a 64-bit ELF file ends with its last section, section header or program header.
std::size_t elf_bytes(const char* elf) {
  const auto sections = read_at<std::uint64_t>(elf, 0x28), programs = read_at<std::uint64_t>(elf, 0x20);
  const auto count = read_at<std::uint16_t>(elf, 0x3c);
  std::size_t end = std::max<std::size_t>(sections + 64 * count, programs + 56 * read_at<std::uint16_t>(elf, 0x38));
  for (std::size_t i = 0; i < count; i++) {
    const char* header = elf + sections + 64 * i;
    const bool has_bytes = read_at<std::uint32_t>(header, 4) != 8;
    if (has_bytes) end = std::max<std::size_t>(end, read_at<std::uint64_t>(header, 24) + read_at<std::uint64_t>(header, 32));
  }
  return end;
}

bool is_device(int device) { return device >= 0 && device < state.devices; }

}  // namespace

extern "C" {

// Controls, called by the tests. None of them fails.
// Clears all faults and the calls by name, and restores the devices, the version and the event times.
void fake_reset() {
  std::lock_guard<std::mutex> lock(state.mutex);
  state.faults.clear(), state.calls.clear();
  state.lost = CUDA_SUCCESS;
  state.devices = 1, state.major = 9, state.minor = 0, state.version = 13000;
  state.elapsed = NAN;
}
// Sets what cuEventElapsedTime reports for any two events.
void fake_set_elapsed(float milliseconds) {
  std::lock_guard<std::mutex> lock(state.mutex);
  state.elapsed = milliseconds;
}
// Injects a fault: the next `after` calls of `function` succeed, the `times` calls after them return `status`.
void fake_fail(const char* function, int after, int times, int status) {
  std::lock_guard<std::mutex> lock(state.mutex);
  state.faults[function] = {after, times, status};
}
// Injects a fault that is the device's last: the next `after` calls of `function` succeed; the call after them, and every
// later call of a function that needs a context, return `status`.
void fake_lose(const char* function, int after, int status) {
  std::lock_guard<std::mutex> lock(state.mutex);
  state.faults[function] = {after, 1, status, true};
}
// Reports every function that was called since the last reset: its name, its calls, and how many returned a fault.
void fake_calls(void (*report)(void* context, const char* function, int calls, int failed), void* context) {
  std::lock_guard<std::mutex> lock(state.mutex);
  for (const auto& [function, calls] : state.calls) report(context, function.c_str(), calls.all, calls.failed);
}
// Exempts the calling thread: its calls are neither counted nor fail.
void fake_exempt(int exempt) { is_exempt = exempt; }
// Sets the number of devices, their compute capability and the driver's CUDA version (major * 1000 + minor * 10).
void fake_set_devices(int devices, int major, int minor, int version) {
  std::lock_guard<std::mutex> lock(state.mutex);
  state.devices = devices, state.major = major, state.minor = minor, state.version = version;
}
// Writes nine counters: live device blocks, pinned blocks, streams and events; primary contexts retained, modules
// loaded and blocks allocated so far; the depth of this thread's context stack; and live events that have a time.
void fake_counts(int* counts) {
  std::lock_guard<std::mutex> lock(state.mutex);
  int pinned = 0;
  for (const auto& [begin, block] : state.blocks) pinned += block.pinned;
  const int now[] = {static_cast<int>(state.blocks.size()) - pinned, pinned, static_cast<int>(state.streams.size()),
                     state.events, state.retained, state.modules, state.allocations, static_cast<int>(current.size()),
                     state.timed_events};
  std::memcpy(counts, now, sizeof now);
}
// The number of live contexts other than primary ones.
int fake_context_count() {
  std::lock_guard<std::mutex> lock(state.mutex);
  return static_cast<int>(state.contexts.size() - state.primary.size());
}
// Bytes copied from host to device and from device to host so far.
void fake_copied_bytes(std::size_t* to_device, std::size_t* to_host) {
  std::lock_guard<std::mutex> lock(state.mutex);
  *to_device = state.to_device, *to_host = state.to_host;
}

int cuDriverGetVersion(int* version) {
  ENTER(false);
  *version = state.version;
  return CUDA_SUCCESS;
}
int cuInit(unsigned) {
  ENTER(false);
  return CUDA_SUCCESS;
}
int cuDeviceGetCount(int* count) {
  ENTER(false);
  *count = state.devices;
  return CUDA_SUCCESS;
}
int cuDeviceGet(int* device, int ordinal) {
  ENTER(false);
  if (!is_device(ordinal)) return CUDA_ERROR_INVALID_DEVICE;
  *device = ordinal;
  return CUDA_SUCCESS;
}
int cuDeviceGetName(char* name, int length, int) {
  ENTER(false);
  std::strncpy(name, "Fake GPU", length);
  return CUDA_SUCCESS;
}
int cuDeviceGetUuid(char* uuid, int device) {
  ENTER(false);
  std::memset(uuid, device + 1, 16);
  return CUDA_SUCCESS;
}
int cuDeviceGetAttribute(int* value, int attribute, int device) {
  ENTER(false);
  const std::map<int, int> attributes = {
      {CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, 512},
      {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 4},
      {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1},
      {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, state.major},
      {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, state.minor},
      {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 227 << 10},
      {CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0},
      {CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 0},
  };
  const auto found = attributes.find(attribute);
  if (found == attributes.end()) return CUDA_ERROR_INVALID_VALUE;
  *value = found->second;
  return is_device(device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}
int cuDeviceCanAccessPeer(int* can, int device, int peer) {
  ENTER(false);
  *can = device != peer;
  return is_device(device) && is_device(peer) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

int cuDevicePrimaryCtxRetain(Context** context, int device) {
  ENTER(false);
  if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  state.retained++;
  Context*& primary = state.primary[device];
  if (!primary) primary = new_context(device, true);
  *context = primary;
  return CUDA_SUCCESS;
}
int cuCtxCreate_v2(Context** context, unsigned, int device) {
  ENTER(false);
  if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  *context = new_context(device, false);
  current.push_back(*context);
  return CUDA_SUCCESS;
}
// Destroys the context's streams and memory too. Primary contexts are refused, as in the real driver.
int cuCtxDestroy_v2(Context* context) {
  ENTER(false);
  if (!state.contexts.count(context) || context->primary) return CUDA_ERROR_INVALID_CONTEXT;
  for (Stream* stream : std::set<Stream*>(state.all_streams))
    if (stream->context == context) delete_stream(stream);
  free_blocks(context);
  for (Context* other : state.contexts) other->peers.erase(context);
  state.contexts.erase(context);
  if (!current.empty() && current.back() == context) current.pop_back();
  delete context;
  return CUDA_SUCCESS;
}
int cuCtxPushCurrent_v2(Context* context) {
  ENTER(false);
  if (!state.contexts.count(context)) return CUDA_ERROR_INVALID_CONTEXT;
  current.push_back(context);
  return CUDA_SUCCESS;
}
// A thread leaves the context of a lost device too.
int cuCtxPopCurrent_v2(Context** context) {
  ENTER(false);
  if (current.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  if (context) *context = current.back();
  current.pop_back();
  return CUDA_SUCCESS;
}
int cuCtxGetCurrent(Context** context) {
  ENTER(false);
  *context = current.empty() ? nullptr : current.back();
  return CUDA_SUCCESS;
}
int cuCtxSetCurrent(Context* context) {
  ENTER(false);
  if (context && !state.contexts.count(context)) return CUDA_ERROR_INVALID_CONTEXT;
  if (!current.empty()) current.pop_back();
  if (context) current.push_back(context);
  return CUDA_SUCCESS;
}
int cuCtxGetDevice(int* device) {
  ENTER(true);
  *device = current.back()->device;
  return CUDA_SUCCESS;
}
int cuCtxSynchronize() {
  ENTER(true);
  int status = CUDA_SUCCESS;
  for (Stream* stream : state.all_streams)
    if (stream->context == current.back() && status == CUDA_SUCCESS) status = execute(stream);
  return status;
}
int cuCtxEnablePeerAccess(Context* peer, unsigned) {
  ENTER(true);
  if (!state.contexts.count(peer)) return CUDA_ERROR_INVALID_CONTEXT;
  if (peer->device == current.back()->device) return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
  return current.back()->peers.insert(peer).second ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
}
int cuCtxDisablePeerAccess(Context* peer) {
  ENTER(true);
  return current.back()->peers.erase(peer) ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
}

int cuStreamCreate(Stream** stream, unsigned flags) {
  ENTER(true);
  const bool blocking = !(flags & CU_STREAM_NON_BLOCKING);
  *stream = new_stream(current.back(), blocking);
  state.streams.insert(*stream);
  return CUDA_SUCCESS;
}
int cuStreamSynchronize(Stream* given) {
  ENTER(true);
  Stream* stream = resolve(given);
  if (!state.all_streams.count(stream)) return CUDA_ERROR_INVALID_HANDLE;
  // Waiting for the default stream waits for the blocking streams of its context too.
  if (!given) enqueue(stream, {[] { return CUDA_SUCCESS; }});
  return execute(stream);
}
int cuStreamWaitEvent(Stream* stream, const Event* given, unsigned) {
  ENTER(true);
  return enqueue(stream, {[event = *given] { return execute(&event); }});
}
int cuStreamDestroy_v2(Stream* stream) {
  ENTER(true);
  if (!state.streams.count(stream)) return CUDA_ERROR_INVALID_HANDLE;
  delete_stream(stream);
  return CUDA_SUCCESS;
}
// GStreamer 1.22 loads the name without a version.
int cuStreamDestroy(Stream* stream) { return cuStreamDestroy_v2(stream); }

int cuEventCreate(Event** event, unsigned flags) {
  ENTER(true);
  constexpr unsigned CU_EVENT_DISABLE_TIMING = 2;
  *event = new Event{current.back(), (flags & CU_EVENT_DISABLE_TIMING) == 0};
  state.events++, state.timed_events += (*event)->has_time;
  return CUDA_SUCCESS;
}
int cuEventRecord(Event* event, Stream* stream) {
  ENTER(true);
  if (event->context != current.back()) return CUDA_ERROR_INVALID_HANDLE;
  const int status = enqueue(stream, {[event] {
    event->time = Clock::now();
    return CUDA_SUCCESS;
  }});
  if (status != CUDA_SUCCESS) return status;
  event->stream = resolve(stream);
  event->position = event->stream->enqueued;
  event->queried = false;
  return CUDA_SUCCESS;
}
// The first query after a record reports CUDA_ERROR_NOT_READY, so that code that does not wait fails its test.
int cuEventQuery(Event* event) {
  ENTER(true);
  if (!event->queried) {
    event->queried = true;
    return CUDA_ERROR_NOT_READY;
  }
  return execute(event);
}
int cuEventSynchronize(Event* event) {
  ENTER(true);
  return execute(event);
}
int cuEventElapsedTime(float* milliseconds, Event* begin, Event* end) {
  ENTER(true);
  for (const Event* event : {begin, end})
    if (!event->has_time || event->stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *milliseconds = std::isnan(state.elapsed)
                      ? std::chrono::duration<float, std::milli>(end->time - begin->time).count()
                      : state.elapsed;
  return CUDA_SUCCESS;
}
int cuEventDestroy_v2(Event* event) {
  ENTER(true);
  // The record may still be queued; it writes to the event.
  execute(event);
  state.events--, state.timed_events -= event->has_time;
  delete event;
  return CUDA_SUCCESS;
}

// PTX is not compiled: the image is its text.
int cuLinkCreate_v2(unsigned, int*, void**, Link** link) {
  ENTER(true);
  *link = new Link;
  return CUDA_SUCCESS;
}
int cuLinkAddData_v2(Link* link, int, const char* ptx, std::size_t bytes, const char*, unsigned, int*, void**) {
  ENTER(true);
  if (bytes == 0 || ptx[bytes - 1] != 0) return CUDA_ERROR_INVALID_VALUE;
  link->image.assign(ptx, bytes);
  return CUDA_SUCCESS;
}
int cuLinkComplete(Link* link, const char** image, std::size_t* bytes) {
  ENTER(true);
  *image = link->image.data();
  *bytes = link->image.size();
  return CUDA_SUCCESS;
}
int cuLinkDestroy(Link* link) {
  ENTER(true);
  delete link;
  return CUDA_SUCCESS;
}

// An image has the kernels that it names; its code is not run.
int cuModuleLoadData(Module** module, const char* image) {
  ENTER(true);
  state.modules++;
  *module = new Module;
  if (std::strncmp(image, "\177ELF", 4) == 0) {
    (*module)->image.assign(image, elf_bytes(image));
  } else {
    (*module)->image = image;
  }
  return CUDA_SUCCESS;
}
int cuModuleGetFunction(const Kernel** function, const Module* module, const char* name) {
  ENTER(true);
  // Of an image of the fake NVRTC for so many tiles.
  const auto tiles = module->image.find(" tiles ");
  const auto kernel =
      BY_NAME.find(tiles == std::string::npos ? name : name + std::string("_") + module->image.substr(tiles + 7));
  if (kernel == BY_NAME.end() || !module->has(name)) return CUDA_ERROR_NOT_FOUND;
  *function = &kernel->first;
  return CUDA_SUCCESS;
}
int cuModuleUnload(Module* module) {
  ENTER(true);
  delete module;
  return CUDA_SUCCESS;
}
int cuFuncSetAttribute(const Kernel*, int, int) {
  ENTER(true);
  return CUDA_SUCCESS;
}
int cuLaunchKernel(const Kernel* kernel, unsigned blocks, unsigned, unsigned, unsigned threads, unsigned, unsigned,
                   unsigned shared, Stream* stream, void** parameters, void**) {
  ENTER(true);
  const char* parameter = static_cast<const char*>(parameters[0]);
  std::vector<char> copy(parameter, parameter + parameter_bytes(*kernel));
  std::vector<Range> uses;
  relocate(*kernel, copy.data(), [&](auto address) {
    if (address) uses.push_back({reinterpret_cast<const char*>(address), 1});
    return address;
  });
  return enqueue(stream, {[=, context = current.back()]() mutable {
    // Arguments that the kernel does not read may hold addresses outside every block.
    for (const Range& range : uses) {
      const auto* found = find_block(range.begin);
      if (found && !can_access(context, found->second)) return CUDA_ERROR_ILLEGAL_ADDRESS;
    }
    return launch_by_name(*kernel, blocks, threads, shared, copy.data()) ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
  }, uses});
}
// The kernels of this driver run one after the other, so no attribute changes anything.
int cuLaunchKernelEx(const LaunchConfig* config, const Kernel* kernel, void** parameters, void** extra) {
  return cuLaunchKernel(kernel, config->grid[0], 1, 1, config->block[0], 1, 1, config->shared, config->stream, parameters, extra);
}

int cuGetErrorName(int status, const char** name) {
#define NAME(status) {status, #status}
  const std::map<int, const char*> names = {
      NAME(CUDA_ERROR_INVALID_VALUE), NAME(CUDA_ERROR_OUT_OF_MEMORY), NAME(CUDA_ERROR_NO_DEVICE),
      NAME(CUDA_ERROR_INVALID_DEVICE), NAME(CUDA_ERROR_INVALID_CONTEXT), NAME(CUDA_ERROR_INVALID_HANDLE),
      NAME(CUDA_ERROR_ILLEGAL_ADDRESS), NAME(CUDA_ERROR_LAUNCH_FAILED), NAME(CUDA_ERROR_NOT_SUPPORTED),
  };
#undef NAME
  const auto found = names.find(status);
  *name = found == names.end() ? "CUDA_ERROR_UNKNOWN" : found->second;
  return CUDA_SUCCESS;
}
int cuGetErrorString(int, const char** text) {
  *text = "error of the fake CUDA driver";
  return CUDA_SUCCESS;
}
}
