// SPDX-License-Identifier: MPL-2.0
// The fake CUDA driver's memory and copies. It is stricter than the real driver in one point: enqueued work may access
// device memory only of its own context or of a peer to which access was enabled, whereas the real driver also copies
// from and to memory of other contexts.
#include "libcuda.h"

#include "../kernels/pages.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

namespace fake_driver {

std::pair<const char* const, Block>* find_block(const void* address, std::size_t bytes) {
  const auto* begin = static_cast<const char*>(address);
  auto after = state.blocks.upper_bound(begin);
  if (after == state.blocks.begin()) return nullptr;
  auto& found = *std::prev(after);
  return begin + bytes <= found.first + found.second.bytes ? &found : nullptr;
}

bool can_access(Context* context, const Block& block) {
  return block.pinned || block.context == context || context->peers.count(block.context);
}

// In front of device memory is a gap without memory. A plane of which only a part has memory may begin there: in the memory
// of another allocation its address would be taken for a use of that.
static constexpr std::size_t GAP = std::size_t(256) << 20;

static void* map_behind_gap(std::size_t bytes) {
  void* gap = reserve_pages(GAP + bytes);
  if (!gap) return nullptr;
  void* block = static_cast<char*>(gap) + GAP;
  if (commit_pages(block, bytes)) return block;
  release_pages(gap, GAP + bytes);
  return nullptr;
}

static constexpr std::align_val_t PINNED_ALIGNMENT{512};

static int allocate(const void** to, std::size_t bytes, bool pinned) {
  void* block = !bytes ? nullptr : pinned ? ::operator new(bytes, PINNED_ALIGNMENT, std::nothrow) : map_behind_gap(bytes);
  if (!block) return bytes ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_VALUE;
  std::memset(block, 0xc3, bytes);
  state.allocations++;
  state.blocks[static_cast<char*>(block)] = {bytes, current.back(), pinned};
  *to = block;
  return CUDA_SUCCESS;
}

// The real driver's free waits for all enqueued work. The engine does not rely on that, so a copy or kernel that is
// still queued on the freed memory is a bug in the caller and aborts the process. A queued memset is dropped: nobody
// can observe its result.
static void free_block(const char* begin) {
  const auto [bytes, context, pinned, registered] = state.blocks.at(begin);
  for (Stream* stream : state.all_streams)
    for (Work& work : stream->queue)
      for (const Range& range : work.uses)
        if (range.begin < begin + bytes && begin < range.begin + range.bytes) {
          if (!work.is_memset) {
            std::fprintf(stderr, "fake CUDA driver: memory was freed while queued work uses it\n");
            std::abort();
          }
          work.run = [] { return CUDA_SUCCESS; };
        }
  state.blocks.erase(begin);
  char* block = const_cast<char*>(begin);
  if (!pinned) release_pages(block - GAP, GAP + bytes);
  else if (!registered) ::operator delete(block, PINNED_ALIGNMENT);
}

static int release(const void* pointer, bool pinned, bool registered = false) {
  const auto found = state.blocks.find(static_cast<const char*>(pointer));
  if (found == state.blocks.end() || found->second.pinned != pinned || found->second.registered != registered)
    return CUDA_ERROR_INVALID_VALUE;
  free_block(found->first);
  return CUDA_SUCCESS;
}

void free_blocks(Context* context) {
  const auto blocks = state.blocks;
  for (const auto& [begin, block] : blocks)
    if (block.context == context) free_block(begin);
}

// CUDA_SUCCESS if the bytes lie in one block, on the side that the copy names, and the context can access them.
static int check(const void* address, std::size_t bytes, bool on_device, Context* context) {
  const auto* found = find_block(address);
  const bool device_memory = found && !found->second.pinned;
  if (device_memory != on_device || (found && !find_block(address, bytes))) return CUDA_ERROR_INVALID_VALUE;
  return !on_device || can_access(context, found->second) ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_ADDRESS;
}

// The source or the destination of a copy: an address, the distance of rows in bytes, and the memory's side.
struct Side {
  const void* address;
  std::size_t pitch;
  bool on_device;
};

// The bytes from the first to the last byte of the rows.
static std::size_t span(const Side& side, std::size_t bytes, std::size_t rows) {
  return (rows - 1) * side.pitch + bytes;
}

// Enqueues a copy of `rows` rows of `bytes` bytes.
static int copy(const Side& to, const Side& from, std::size_t bytes, std::size_t rows, Stream* stream) {
  if (!bytes || !rows) return CUDA_SUCCESS;
  std::vector<Range> uses;
  for (const Side* side : {&to, &from}) {
    const std::size_t all = span(*side, bytes, rows);
    if (const int status = check(side->address, all, side->on_device, current.back())) return status;
    uses.push_back({static_cast<const char*>(side->address), all});
  }
  // The driver copies pageable memory before it returns.
  std::vector<char> pageable;
  if (!from.on_device && !find_block(from.address)) {
    const char* begin = static_cast<const char*>(from.address);
    pageable.assign(begin, begin + span(from, bytes, rows));
    uses.pop_back();
  }
  return enqueue(stream, {[=] {
    char* out = static_cast<char*>(const_cast<void*>(to.address));
    const char* in = pageable.empty() ? static_cast<const char*>(from.address) : pageable.data();
    for (std::size_t row = 0; row < rows; row++) std::memcpy(out + row * to.pitch, in + row * from.pitch, bytes);
    if (to.on_device && !from.on_device) state.to_device += bytes * rows;
    if (from.on_device && !to.on_device) state.to_host += bytes * rows;
    return CUDA_SUCCESS;
  }, uses});
}

// Enqueues on the default stream and waits: the synchronous form of a call.
template <class Enqueue> int synchronously(Enqueue enqueue_work) {
  const int status = enqueue_work();
  return status == CUDA_SUCCESS ? execute(resolve(nullptr)) : status;
}

template <class Value>
int set(char* to, std::size_t pitch, Value value, std::size_t width, std::size_t rows, Stream* stream) {
  if (!width || !rows) return CUDA_SUCCESS;
  const std::size_t bytes = span({to, pitch}, width * sizeof value, rows);
  if (const int status = check(to, bytes, true, current.back())) return status;
  return enqueue(stream, {[=] {
    for (std::size_t row = 0; row < rows; row++)
      for (std::size_t x = 0; x < width; x++) std::memcpy(to + row * pitch + x * sizeof value, &value, sizeof value);
    return CUDA_SUCCESS;
  }, {{to, bytes}}, true});
}

}  // namespace fake_driver

using namespace fake_driver;

extern "C" {

int cuMemGetInfo_v2(std::size_t* free, std::size_t* total) {
  ENTER(true);
  *free = *total = 1 << 30;
  return CUDA_SUCCESS;
}
int cuMemAlloc_v2(const void** pointer, std::size_t bytes) {
  ENTER(true);
  return allocate(pointer, bytes, false);
}
int cuMemAllocPitch_v2(const void** pointer, std::size_t* pitch, std::size_t bytes, std::size_t rows, unsigned) {
  ENTER(true);
  *pitch = (bytes + 511) / 512 * 512;
  return allocate(pointer, *pitch * rows, false);
}
int cuMemFree_v2(const void* pointer) {
  ENTER(true);
  return release(pointer, false);
}
int cuMemHostAlloc(const void** pointer, std::size_t bytes, unsigned) {
  ENTER(true);
  return allocate(pointer, bytes, true);
}
int cuMemAllocHost_v2(const void** pointer, std::size_t bytes) {
  ENTER(true);
  return allocate(pointer, bytes, true);
}
int cuMemFreeHost(const void* pointer) {
  ENTER(true);
  return release(pointer, true);
}

int cuMemHostRegister_v2(void* pointer, std::size_t bytes, unsigned) {
  ENTER(true);
  if (!bytes || find_block(pointer) || find_block(static_cast<char*>(pointer) + bytes - 1))
    return CUDA_ERROR_INVALID_VALUE;
  state.blocks[static_cast<char*>(pointer)] = {bytes, current.back(), true, true};
  return CUDA_SUCCESS;
}
int cuMemHostUnregister(const void* pointer) {
  ENTER(true);
  return release(pointer, true, true);
}

int cuMemsetD8Async(char* to, unsigned char value, std::size_t bytes, Stream* stream) {
  ENTER(true);
  return set(to, bytes, value, bytes, 1, stream);
}
#define SET_2D(bits, Value) \
  int cuMemsetD2D##bits##Async( \
      char* to, std::size_t pitch, Value value, std::size_t width, std::size_t rows, Stream* stream) { \
    ENTER(true); \
    return set(to, pitch, value, width, rows, stream); \
  } \
  int cuMemsetD2D##bits##_v2(char* to, std::size_t pitch, Value value, std::size_t width, std::size_t rows) { \
    ENTER(true); \
    return synchronously([=] { return set(to, pitch, value, width, rows, nullptr); }); \
  }
SET_2D(8, unsigned char)
SET_2D(16, unsigned short)
SET_2D(32, unsigned)

#define COPY(name, to_device, from_device) \
  int cuMemcpy##name##Async_v2(void* to, const void* from, std::size_t bytes, Stream* stream) { \
    ENTER(true); \
    return copy({to, bytes, to_device}, {from, bytes, from_device}, bytes, 1, stream); \
  } \
  int cuMemcpy##name##_v2(void* to, const void* from, std::size_t bytes) { \
    ENTER(true); \
    return synchronously([=] { return copy({to, bytes, to_device}, {from, bytes, from_device}, bytes, 1, nullptr); }); \
  }
COPY(HtoD, true, false)
COPY(DtoH, false, true)
COPY(DtoD, true, true)

// The fields of CUDA_MEMCPY2D, in its order.
struct Copy2D {
  std::size_t src_x, src_y;
  int src_type;
  const char* src_host;
  const char* src_device;
  void* src_array;
  std::size_t src_pitch, dst_x, dst_y;
  int dst_type;
  const char* dst_host;
  const char* dst_device;
  void* dst_array;
  std::size_t dst_pitch, bytes, rows;
};
static int copy(const Copy2D* c, Stream* stream) {
  const auto side = [](int type, const char* host, const char* device, std::size_t x, std::size_t y,
                       std::size_t pitch) {
    return Side{(type == CU_MEMORYTYPE_HOST ? host : device) + y * pitch + x, pitch, type == CU_MEMORYTYPE_DEVICE};
  };
  for (int type : {c->src_type, c->dst_type})
    if (type != CU_MEMORYTYPE_HOST && type != CU_MEMORYTYPE_DEVICE) return CUDA_ERROR_NOT_SUPPORTED;
  // A pitch counts for a single row too, unless it is 0.
  for (std::size_t pitch : {c->src_pitch, c->dst_pitch})
    if (pitch < c->bytes && (pitch || c->rows > 1)) return CUDA_ERROR_INVALID_VALUE;
  const Side to = side(c->dst_type, c->dst_host, c->dst_device, c->dst_x, c->dst_y, c->dst_pitch);
  const Side from = side(c->src_type, c->src_host, c->src_device, c->src_x, c->src_y, c->src_pitch);
  return copy(to, from, c->bytes, c->rows, stream);
}
int cuMemcpy2DAsync_v2(const Copy2D* rows, Stream* stream) {
  ENTER(true);
  return copy(rows, stream);
}
int cuMemcpy2D_v2(const Copy2D* rows) {
  ENTER(true);
  return synchronously([=] { return copy(rows, nullptr); });
}
// Copies between two contexts, on a stream of the current one.
int cuMemcpyPeerAsync(
    void* to, Context* to_context, const void* from, Context* from_context, std::size_t bytes, Stream* stream) {
  ENTER(true);
  if (const int status = check(to, bytes, true, to_context)) return status;
  if (const int status = check(from, bytes, true, from_context)) return status;
  const std::vector<Range> uses = {{static_cast<char*>(to), bytes}, {static_cast<const char*>(from), bytes}};
  return enqueue(stream, {[=] {
    std::memcpy(to, from, bytes);
    return CUDA_SUCCESS;
  }, uses});
}

static int attribute(void* value, int attribute, const std::pair<const char* const, Block>& found) {
  const auto& [begin, block] = found;
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT: *static_cast<Context**>(value) = block.context; return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      *static_cast<unsigned*>(value) = block.pinned ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: *static_cast<int*>(value) = block.context->device; return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR: *static_cast<const char**>(value) = begin; return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE: *static_cast<std::size_t*>(value) = block.bytes; return CUDA_SUCCESS;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
}
int cuPointerGetAttribute(void* value, int wanted, const void* address) {
  ENTER(false);
  const auto* found = find_block(address);
  return found ? attribute(value, wanted, *found) : CUDA_ERROR_INVALID_VALUE;
}
// An unknown address is no error: its device is CU_DEVICE_INVALID and every other attribute is zero.
int cuPointerGetAttributes(unsigned count, const int* wanted, void** values, const void* address) {
  ENTER(true);
  const auto* found = find_block(address);
  for (unsigned i = 0; i < count; i++) {
    if (found) {
      if (const int status = attribute(values[i], wanted[i], *found)) return status;
    } else if (wanted[i] == CU_POINTER_ATTRIBUTE_MEMORY_TYPE) {
      *static_cast<unsigned*>(values[i]) = 0;
    } else if (wanted[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL) {
      *static_cast<int*>(values[i]) = CU_DEVICE_INVALID;
    } else {
      *static_cast<void**>(values[i]) = nullptr;
    }
  }
  return CUDA_SUCCESS;
}
}
