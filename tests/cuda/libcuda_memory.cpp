// SPDX-License-Identifier: MPL-2.0
// The driver's stand-in: memory and copies. Work that is queued uses memory of the context it is queued in, or of one
// to which access was enabled; the driver itself also copies from and to other contexts' memory.
#include "libcuda.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace stand_in {

std::pair<const char* const, Block>* block_of(const void* address, std::size_t bytes) {
  const auto* begin = static_cast<const char*>(address);
  auto after = state.blocks.upper_bound(begin);
  if (after == state.blocks.begin()) return nullptr;
  auto& found = *std::prev(after);
  return begin + bytes <= found.first + found.second.bytes ? &found : nullptr;
}

bool reaches(Context* context, const Block& block) {
  return block.pinned || block.context == context || context->peers.count(block.context);
}

static int allocate(const void** to, std::size_t bytes, bool pinned) {
  void* block = bytes ? std::aligned_alloc(512, bytes) : nullptr;
  if (!block) return bytes ? OUT_OF_MEMORY : INVALID_VALUE;
  std::memset(block, 0xc3, bytes);
  state.allocations++;
  state.blocks[static_cast<char*>(block)] = {bytes, current.back(), pinned};
  *to = block;
  return SUCCESS;
}

// Freeing waits for all that is queued, as the driver does. The engine does not rely on it: a copy or a kernel that is
// still queued then is somebody's mistake. What is freed by now need not be cleared.
static void free_block(const char* begin) {
  const std::size_t bytes = state.blocks.at(begin).bytes;
  for (Stream* stream : state.all_streams)
    for (Work& work : stream->queue)
      for (const Range& range : work.uses)
        if (range.begin < begin + bytes && begin < range.begin + range.bytes) {
          if (!work.clears) {
            std::fprintf(stderr, "memory was freed while work that uses it was queued\n");
            std::abort();
          }
          work.run = [] { return SUCCESS; };
        }
  const bool own = !state.blocks.at(begin).registered;
  state.blocks.erase(begin);
  if (own) std::free(const_cast<char*>(begin));
}

static int release(const void* pointer, bool pinned, bool registered = false) {
  const auto found = state.blocks.find(static_cast<const char*>(pointer));
  if (found == state.blocks.end() || found->second.pinned != pinned || found->second.registered != registered)
    return INVALID_VALUE;
  free_block(found->first);
  return SUCCESS;
}

void release_all(Context* context) {
  const auto blocks = state.blocks;
  for (const auto& [begin, block] : blocks)
    if (block.context == context) free_block(begin);
}

// Whether these bytes are where a copy is said to find them.
static int check(const void* address, std::size_t bytes, bool on_device, Context* context) {
  const auto* found = block_of(address);
  const bool device_memory = found && !found->second.pinned;
  if (device_memory != on_device || (found && !block_of(address, bytes))) return INVALID_VALUE;
  return !on_device || reaches(context, found->second) ? SUCCESS : ILLEGAL_ADDRESS;
}

struct Side {
  const void* address;
  std::size_t pitch;
  bool on_device;
};

static std::size_t span(const Side& side, std::size_t bytes, std::size_t rows) { return (rows - 1) * side.pitch + bytes; }

// Queues a copy of rows.
static int copy(const Side& to, const Side& from, std::size_t bytes, std::size_t rows, Stream* stream) {
  if (!bytes || !rows) return SUCCESS;
  std::vector<Range> uses;
  for (const Side* side : {&to, &from}) {
    const std::size_t all = span(*side, bytes, rows);
    if (const int status = check(side->address, all, side->on_device, current.back())) return status;
    uses.push_back({static_cast<const char*>(side->address), all});
  }
  return enqueue(stream, {[=] {
    char* out = static_cast<char*>(const_cast<void*>(to.address));
    const char* in = static_cast<const char*>(from.address);
    for (std::size_t row = 0; row < rows; row++) std::memcpy(out + row * to.pitch, in + row * from.pitch, bytes);
    if (to.on_device && !from.on_device) state.to_device += bytes * rows;
    if (from.on_device && !to.on_device) state.to_host += bytes * rows;
    return SUCCESS;
  }, uses});
}

// Queues it and waits for it.
template <class Queue> int at_once(Queue queue) {
  const int status = queue();
  return status == SUCCESS ? work_off(named(nullptr)) : status;
}

template <class Value>
int set(char* to, std::size_t pitch, Value value, std::size_t width, std::size_t rows, Stream* stream) {
  if (!width || !rows) return SUCCESS;
  const std::size_t bytes = span({to, pitch}, width * sizeof value, rows);
  if (const int status = check(to, bytes, true, current.back())) return status;
  return enqueue(stream, {[=] {
    for (std::size_t row = 0; row < rows; row++)
      for (std::size_t x = 0; x < width; x++) std::memcpy(to + row * pitch + x * sizeof value, &value, sizeof value);
    return SUCCESS;
  }, {{to, bytes}}, true});
}

}  // namespace stand_in

using namespace stand_in;

extern "C" {

int cuMemGetInfo_v2(std::size_t* free, std::size_t* total) {
  ENTER(true);
  *free = *total = 1 << 30;
  return SUCCESS;
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
  if (!bytes || block_of(pointer) || block_of(static_cast<char*>(pointer) + bytes - 1)) return INVALID_VALUE;
  state.blocks[static_cast<char*>(pointer)] = {bytes, current.back(), true, true};
  return SUCCESS;
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
  int cuMemsetD2D##bits##Async(char* to, std::size_t pitch, Value value, std::size_t width, std::size_t rows, Stream* stream) { \
    ENTER(true); \
    return set(to, pitch, value, width, rows, stream); \
  } \
  int cuMemsetD2D##bits##_v2(char* to, std::size_t pitch, Value value, std::size_t width, std::size_t rows) { \
    ENTER(true); \
    return at_once([=] { return set(to, pitch, value, width, rows, nullptr); }); \
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
    return at_once([=] { return copy({to, bytes, to_device}, {from, bytes, from_device}, bytes, 1, nullptr); }); \
  }
COPY(HtoD, true, false)
COPY(DtoH, false, true)
COPY(DtoD, true, true)

// Rows, as CUDA_MEMCPY2D has them.
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
  const auto side = [](int type, const char* host, const char* device, std::size_t x, std::size_t y, std::size_t pitch) {
    return Side{(type == 1 ? host : device) + y * pitch + x, pitch, type == 2};
  };
  for (int type : {c->src_type, c->dst_type})
    if (type != 1 && type != 2) return NOT_SUPPORTED;
  const std::size_t least_pitch = c->rows > 1 ? c->bytes : 0;
  if (c->src_pitch < least_pitch || c->dst_pitch < least_pitch) return INVALID_VALUE;
  return copy(side(c->dst_type, c->dst_host, c->dst_device, c->dst_x, c->dst_y, c->dst_pitch),
              side(c->src_type, c->src_host, c->src_device, c->src_x, c->src_y, c->src_pitch), c->bytes, c->rows, stream);
}
int cuMemcpy2DAsync_v2(const Copy2D* rows, Stream* stream) {
  ENTER(true);
  return copy(rows, stream);
}
int cuMemcpy2D_v2(const Copy2D* rows) {
  ENTER(true);
  return at_once([=] { return copy(rows, nullptr); });
}
// Between contexts; the stream is of the one that is current.
int cuMemcpyPeerAsync(
    void* to, Context* to_context, const void* from, Context* from_context, std::size_t bytes, Stream* stream) {
  ENTER(true);
  if (const int status = check(to, bytes, true, to_context)) return status;
  if (const int status = check(from, bytes, true, from_context)) return status;
  const std::vector<Range> uses = {{static_cast<char*>(to), bytes}, {static_cast<const char*>(from), bytes}};
  return enqueue(stream, {[=] {
    std::memcpy(to, from, bytes);
    return SUCCESS;
  }, uses});
}

static int attribute(void* value, int attribute, const std::pair<const char* const, Block>& found) {
  const auto& [begin, block] = found;
  switch (attribute) {
    case 1: *static_cast<Context**>(value) = block.context; return SUCCESS;
    // The type of memory: 1 for the host's, 2 for a device's.
    case 2: *static_cast<unsigned*>(value) = block.pinned ? 1 : 2; return SUCCESS;
    case 9: *static_cast<int*>(value) = block.context->device; return SUCCESS;
    case 11: *static_cast<const char**>(value) = begin; return SUCCESS;
    case 12: *static_cast<std::size_t*>(value) = block.bytes; return SUCCESS;
    default: return INVALID_VALUE;
  }
}
int cuPointerGetAttribute(void* value, int asked, const void* address) {
  ENTER(false);
  const auto* found = block_of(address);
  return found ? attribute(value, asked, *found) : INVALID_VALUE;
}
// No error for an address it does not know, of which all is null, and the device -2.
int cuPointerGetAttributes(unsigned count, const int* asked, void** values, const void* address) {
  ENTER(true);
  const auto* found = block_of(address);
  for (unsigned i = 0; i < count; i++) {
    if (found) {
      if (const int status = attribute(values[i], asked[i], *found)) return status;
    } else if (asked[i] == 2 || asked[i] == 9) {
      *static_cast<int*>(values[i]) = asked[i] == 2 ? 0 : -2;
    } else {
      *static_cast<void**>(values[i]) = nullptr;
    }
  }
  return SUCCESS;
}
}
