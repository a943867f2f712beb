// SPDX-License-Identifier: MPL-2.0
// A driver for machines without one: as much of libcuda as the CUDA engine and GStreamer's CUDA library use, with the
// kernels themselves compiled for the CPU through kernels/shim.h. Controlled by tests/cuda_without_gpu.rs,
// tests/cuda_memory.rs and tests/special.rs. Memory and copies are in libcuda_memory.cpp.
//
// Nothing is done before somebody asks whether it is done, so whoever does not wait for the device sees old bytes. Any
// function can be told to fail, at once or after some calls. What is allocated is counted.
#include "libcuda.h"

#include "../../kernels/blur.cu"
#include "../kernels/by_name.h"

#include <chrono>
#include <cstring>

namespace stand_in {

int answer(const char* function, bool needs_context) {
  const auto fault = state.faults.find(function);
  if (fault != state.faults.end() && fault->second.after-- <= 0 && fault->second.times-- > 0) return fault->second.status;
  return needs_context && current.empty() ? NO_CONTEXT : SUCCESS;
}

Stream* named(Stream* stream) { return stream ? stream : current.back()->unnamed; }

// Work of one stream that waits for what is queued in another by now.
static void wait_for(Stream* stream, Stream* other) {
  if (other->queue.empty()) return;
  const auto up_to = other->queued;
  stream->queue.push_back({[=] { return state.all_streams.count(other) ? work_off(other, up_to) : SUCCESS; }});
  stream->queued++;
}

int enqueue(Stream* given, Work work) {
  Stream* stream = named(given);
  if (!state.all_streams.count(stream)) return INVALID_HANDLE;
  if (stream->context != current.back()) return WRONG_CONTEXT;
  Stream* unnamed = stream->context->unnamed;
  if (stream != unnamed && stream->blocking) wait_for(stream, unnamed);
  if (stream == unnamed)
    for (Stream* other : state.streams)
      if (other->context == stream->context && other->blocking) wait_for(stream, other);
  stream->queue.push_back(std::move(work));
  stream->queued++;
  return SUCCESS;
}

int work_off(Stream* stream, std::uint64_t up_to) {
  int status = SUCCESS;
  // Work may have other streams worked off, and those this one, up to a place before it.
  while (stream->taken < up_to && !stream->queue.empty()) {
    const Work work = std::move(stream->queue.front());
    stream->queue.pop_front();
    stream->taken++;
    if (status == SUCCESS) status = work.run();
  }
  return status;
}

Stream* new_stream(Context* context, bool blocking) {
  Stream* stream = new Stream{context, blocking};
  state.all_streams.insert(stream);
  return stream;
}

// The driver lets the stream's work end first.
void delete_stream(Stream* stream) {
  work_off(stream);
  state.streams.erase(stream);
  state.all_streams.erase(stream);
  delete stream;
}

static Context* new_context(int device, bool primary) {
  Context* context = new Context{device, primary};
  context->unnamed = new_stream(context, true);
  state.contexts.insert(context);
  return context;
}

}  // namespace stand_in

using namespace stand_in;

namespace {

using Clock = std::chrono::steady_clock;
struct Event {
  Context* context;
  Clock::time_point time;
  // Where it was last recorded.
  Stream* stream = nullptr;
  std::uint64_t place = 0;
  bool asked = false;
};

int work_off(const Event* event) {
  return state.all_streams.count(event->stream) ? stand_in::work_off(event->stream, event->place) : SUCCESS;
}

using Kernel = std::string;

bool is_device(int device) { return device >= 0 && device < state.devices; }

}  // namespace

extern "C" {

// The controls.
void fake_reset() {
  std::lock_guard<std::mutex> lock(state.mutex);
  state.faults.clear();
  state.devices = 1, state.major = 9, state.minor = 0, state.version = 13000;
  state.elapsed = NAN;
}
void fake_elapsed(float milliseconds) {
  std::lock_guard<std::mutex> lock(state.mutex);
  state.elapsed = milliseconds;
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
  int pinned = 0;
  for (const auto& [begin, block] : state.blocks) pinned += block.pinned;
  const int now[] = {static_cast<int>(state.blocks.size()) - pinned, pinned, static_cast<int>(state.streams.size()),
                     state.events, state.retained, state.modules, state.allocations, static_cast<int>(current.size())};
  std::memcpy(counts, now, sizeof now);
}
// Contexts that there are besides the primary ones.
int fake_contexts() {
  std::lock_guard<std::mutex> lock(state.mutex);
  return static_cast<int>(state.contexts.size() - state.primary.size());
}
// Bytes that were copied between host and device so far.
void fake_copied_bytes(std::size_t* to_device, std::size_t* to_host) {
  std::lock_guard<std::mutex> lock(state.mutex);
  *to_device = state.to_device, *to_host = state.to_host;
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
  if (!is_device(ordinal)) return INVALID_DEVICE;
  *device = ordinal;
  return SUCCESS;
}
int cuDeviceGetName(char* name, int length, int) {
  ENTER(false);
  std::strncpy(name, "Stand-in", length);
  return SUCCESS;
}
int cuDeviceGetUuid(char* uuid, int device) {
  ENTER(false);
  std::memset(uuid, device + 1, 16);
  return SUCCESS;
}
// Alignment of textures 14, multiprocessors 16, one address space 41, capability 75 and 76, shared memory 97, memory by
// pages 102 and pools of memory 115.
int cuDeviceGetAttribute(int* value, int attribute, int device) {
  ENTER(false);
  const std::map<int, int> attributes = {{14, 512}, {16, 4}, {41, 1}, {75, state.major}, {76, state.minor},
                                         {97, 227 << 10}, {102, 0}, {115, 0}};
  const auto found = attributes.find(attribute);
  if (found == attributes.end()) return INVALID_VALUE;
  *value = found->second;
  return is_device(device) ? SUCCESS : INVALID_DEVICE;
}
int cuDeviceCanAccessPeer(int* can, int device, int peer) {
  ENTER(false);
  *can = device != peer;
  return is_device(device) && is_device(peer) ? SUCCESS : INVALID_DEVICE;
}

int cuDevicePrimaryCtxRetain(Context** context, int device) {
  ENTER(false);
  if (!is_device(device)) return INVALID_DEVICE;
  state.retained++;
  Context*& primary = state.primary[device];
  if (!primary) primary = new_context(device, true);
  *context = primary;
  return SUCCESS;
}
int cuCtxCreate_v2(Context** context, unsigned, int device) {
  ENTER(false);
  if (!is_device(device)) return INVALID_DEVICE;
  *context = new_context(device, false);
  current.push_back(*context);
  return SUCCESS;
}
// With all that is in it.
int cuCtxDestroy_v2(Context* context) {
  ENTER(false);
  if (!state.contexts.count(context) || context->primary) return WRONG_CONTEXT;
  for (Stream* stream : std::set<Stream*>(state.all_streams))
    if (stream->context == context) delete_stream(stream);
  release_all(context);
  for (Context* other : state.contexts) other->peers.erase(context);
  state.contexts.erase(context);
  if (!current.empty() && current.back() == context) current.pop_back();
  delete context;
  return SUCCESS;
}
int cuCtxPushCurrent_v2(Context* context) {
  ENTER(false);
  if (!state.contexts.count(context)) return WRONG_CONTEXT;
  current.push_back(context);
  return SUCCESS;
}
int cuCtxPopCurrent_v2(Context** context) {
  ENTER(true);
  if (context) *context = current.back();
  current.pop_back();
  return SUCCESS;
}
int cuCtxGetCurrent(Context** context) {
  ENTER(false);
  *context = current.empty() ? nullptr : current.back();
  return SUCCESS;
}
int cuCtxSetCurrent(Context* context) {
  ENTER(false);
  if (context && !state.contexts.count(context)) return WRONG_CONTEXT;
  if (!current.empty()) current.pop_back();
  if (context) current.push_back(context);
  return SUCCESS;
}
int cuCtxGetDevice(int* device) {
  ENTER(true);
  *device = current.back()->device;
  return SUCCESS;
}
int cuCtxSynchronize() {
  ENTER(true);
  int status = SUCCESS;
  for (Stream* stream : state.all_streams)
    if (stream->context == current.back() && status == SUCCESS) status = work_off(stream);
  return status;
}
int cuCtxEnablePeerAccess(Context* peer, unsigned) {
  ENTER(true);
  if (!state.contexts.count(peer)) return WRONG_CONTEXT;
  if (peer->device == current.back()->device) return PEERS_UNSUPPORTED;
  return current.back()->peers.insert(peer).second ? SUCCESS : ALREADY_PEERS;
}
int cuCtxDisablePeerAccess(Context* peer) {
  ENTER(true);
  return current.back()->peers.erase(peer) ? SUCCESS : NOT_PEERS;
}

int cuStreamCreate(Stream** stream, unsigned flags) {
  ENTER(true);
  const bool blocking = !(flags & 1);
  *stream = new_stream(current.back(), blocking);
  state.streams.insert(*stream);
  return SUCCESS;
}
int cuStreamSynchronize(Stream* given) {
  ENTER(true);
  Stream* stream = named(given);
  if (!state.all_streams.count(stream)) return INVALID_HANDLE;
  // Whoever waits for the unnamed stream waits for those in step with it.
  if (!given) enqueue(stream, {[] { return SUCCESS; }});
  return work_off(stream);
}
int cuStreamWaitEvent(Stream* stream, const Event* given, unsigned) {
  ENTER(true);
  return enqueue(stream, {[event = *given] { return work_off(&event); }});
}
int cuStreamDestroy_v2(Stream* stream) {
  ENTER(true);
  if (!state.streams.count(stream)) return INVALID_HANDLE;
  delete_stream(stream);
  return SUCCESS;
}
// The name that GStreamer 1.22 asks for.
int cuStreamDestroy(Stream* stream) { return cuStreamDestroy_v2(stream); }

int cuEventCreate(Event** event, unsigned) {
  ENTER(true);
  state.events++;
  *event = new Event{current.back()};
  return SUCCESS;
}
int cuEventRecord(Event* event, Stream* stream) {
  ENTER(true);
  if (event->context != current.back()) return INVALID_HANDLE;
  const int status = enqueue(stream, {[event] {
    event->time = Clock::now();
    return SUCCESS;
  }});
  if (status != SUCCESS) return status;
  event->stream = named(stream);
  event->place = event->stream->queued;
  event->asked = false;
  return SUCCESS;
}
// Not ready when first asked, so that nobody gets away without waiting.
int cuEventQuery(Event* event) {
  ENTER(true);
  if (!event->asked) {
    event->asked = true;
    return NOT_READY;
  }
  return work_off(event);
}
int cuEventSynchronize(Event* event) {
  ENTER(true);
  return work_off(event);
}
int cuEventElapsedTime(float* milliseconds, Event* begin, Event* end) {
  ENTER(true);
  *milliseconds = std::isnan(state.elapsed)
                      ? std::chrono::duration<float, std::milli>(end->time - begin->time).count()
                      : state.elapsed;
  return SUCCESS;
}
int cuEventDestroy_v2(Event* event) {
  ENTER(true);
  // It may be on its way still.
  work_off(event);
  state.events--;
  delete event;
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
int cuModuleUnload(std::string* module) {
  ENTER(true);
  delete module;
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
  std::vector<char> copy(parameter, parameter + parameter_bytes(*kernel));
  std::vector<Range> uses;
  relocate(*kernel, copy.data(), [&](auto address) {
    if (address) uses.push_back({reinterpret_cast<const char*>(address), 1});
    return address;
  });
  return enqueue(stream, {[=, context = current.back()] {
    // An address that the kernel does not use may be in no block.
    for (const Range& range : uses) {
      const auto* found = block_of(range.begin);
      if (found && !reaches(context, found->second)) return ILLEGAL_ADDRESS;
    }
    return launch_by_name(*kernel, blocks, threads, shared, copy.data()) ? SUCCESS : NOT_FOUND;
  }, uses});
}

int cuGetErrorName(int status, const char** name) {
  const std::map<int, const char*> names = {{1, "CUDA_ERROR_INVALID_VALUE"}, {2, "CUDA_ERROR_OUT_OF_MEMORY"},
                                            {100, "CUDA_ERROR_NO_DEVICE"}, {101, "CUDA_ERROR_INVALID_DEVICE"},
                                            {201, "CUDA_ERROR_INVALID_CONTEXT"}, {400, "CUDA_ERROR_INVALID_HANDLE"},
                                            {700, "CUDA_ERROR_ILLEGAL_ADDRESS"}, {719, "CUDA_ERROR_LAUNCH_FAILED"},
                                            {801, "CUDA_ERROR_NOT_SUPPORTED"}};
  const auto found = names.find(status);
  *name = found == names.end() ? "CUDA_ERROR_UNKNOWN" : found->second;
  return SUCCESS;
}
int cuGetErrorString(int, const char** text) {
  *text = "as the stand-in was told";
  return SUCCESS;
}
}
