// SPDX-License-Identifier: MPL-2.0
// The fake CUDA driver's state and the functions its source files share: contexts, streams, blocks of memory, faults.
#ifndef FAKE_LIBCUDA_H
#define FAKE_LIBCUDA_H
#include "cuda_names.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace fake_driver {

struct Stream;

struct Context {
  int device;
  bool primary;
  // The stream that a null handle stands for.
  Stream* default_stream;
  // Contexts whose device memory this one may access (cuCtxEnablePeerAccess).
  std::set<Context*> peers;
};

struct Range {
  const char* begin;
  std::size_t bytes;
};

// One copy, memset, kernel launch, event record or wait in a stream's queue.
struct Work {
  std::function<int()> run;
  // The memory it reads and writes.
  std::vector<Range> uses;
  // A memset: memory may be freed before it has run, because its result is unobservable then.
  bool is_memset = false;
};

struct Stream {
  Context* context;
  // Created without CU_STREAM_NON_BLOCKING: synchronises with its context's default stream.
  bool blocking;
  std::deque<Work> queue;
  // Number of items ever enqueued, and ever executed.
  std::uint64_t enqueued = 0, executed = 0;
};

struct Block {
  std::size_t bytes;
  Context* context;
  bool pinned;
  // The host's own allocation, registered by cuMemHostRegister; the driver does not free it.
  bool registered = false;
};

// The next `after` calls succeed; the `times` calls that follow return `status`. With `loses_device`, the first of them also
// makes every later call that needs a context fail.
struct Fault {
  int after, times, status;
  bool loses_device = false;
};

// The calls of a function since the last reset, and how many of them returned an injected fault.
struct Calls {
  int all = 0, failed = 0;
};

struct State {
  std::mutex mutex;
  // By function name.
  std::map<std::string, Fault> faults;
  std::map<std::string, Calls> calls;
  // What calls that need a context return since the device was lost; CUDA_SUCCESS before.
  int lost = CUDA_SUCCESS;
  // The devices, all alike, and the CUDA version of the driver (major * 1000 + minor * 10).
  int devices = 1, major = 9, minor = 0, version = 13000;
  // The primary context of each device, by ordinal, and the number of calls that retained one.
  std::map<int, Context*> primary;
  int retained = 0;
  // Every live context, primary ones included.
  std::set<Context*> contexts;
  // The streams that cuStreamCreate made; and with them the default streams.
  std::set<Stream*> streams, all_streams;
  // By address.
  std::map<const char*, Block> blocks;
  // Live events, and those that have a time; modules loaded and blocks allocated so far.
  int events = 0, timed_events = 0, modules = 0, allocations = 0;
  // What cuEventElapsedTime reports, in milliseconds; NaN for the time measured.
  float elapsed = NAN;
  // Bytes copied so far.
  std::size_t to_device = 0, to_host = 0;
};
inline State state;
// The context stack of this thread.
inline thread_local std::vector<Context*> current;
// Whether calls by this thread are neither counted nor fail.
inline thread_local bool is_exempt = false;

// The status of the fault injected into this function, if it is due; else CUDA_ERROR_INVALID_CONTEXT if the function
// needs a current context and there is none; else CUDA_SUCCESS.
int entry_status(const char* function, bool needs_context);

// The first line of every driver function: takes the lock and returns the entry status unless it is CUDA_SUCCESS.
#define ENTER(needs_context) \
  std::lock_guard<std::mutex> lock(state.mutex); \
  if (const int status = entry_status(__func__, needs_context)) return status

// Appends work to a stream of the current context; null is its default stream.
int enqueue(Stream* stream, Work work);
// Executes the stream's queue up to and including item number `up_to`. Returns the first error; once an item has
// failed, those after it are discarded.
int execute(Stream* stream, std::uint64_t up_to = UINT64_MAX);
// The stream itself, or the current context's default stream for null.
Stream* resolve(Stream* stream);
Stream* new_stream(Context* context, bool blocking);
void delete_stream(Stream* stream);

// The block that holds all of these bytes, with its first address; null if none does.
std::pair<const char* const, Block>* find_block(const void* address, std::size_t bytes = 1);
// Whether work of this context may access the block.
bool can_access(Context* context, const Block& block);
// Frees every block of a context.
void free_blocks(Context* context);

}  // namespace fake_driver
#endif
