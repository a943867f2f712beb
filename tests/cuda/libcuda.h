// SPDX-License-Identifier: MPL-2.0
// What the files of the driver's stand-in share: its state, contexts, streams and blocks of memory.
#ifndef STAND_IN_LIBCUDA_H
#define STAND_IN_LIBCUDA_H
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

namespace stand_in {

enum Status {
  SUCCESS = 0,
  INVALID_VALUE = 1,
  OUT_OF_MEMORY = 2,
  INVALID_DEVICE = 101,
  NO_CONTEXT = 201,
  WRONG_CONTEXT = 201,
  PEERS_UNSUPPORTED = 217,
  INVALID_HANDLE = 400,
  NOT_FOUND = 500,
  NOT_READY = 600,
  ILLEGAL_ADDRESS = 700,
  ALREADY_PEERS = 704,
  NOT_PEERS = 705,
  NOT_SUPPORTED = 801,
};

struct Stream;

struct Context {
  int device;
  bool primary;
  // The stream of work that names none.
  Stream* unnamed;
  // Contexts whose memory may be used from this one.
  std::set<Context*> peers;
};

// A stretch of memory that work uses.
struct Range {
  const char* begin;
  std::size_t bytes;
};

struct Work {
  std::function<int()> run;
  std::vector<Range> uses;
  // It only clears what it uses.
  bool clears = false;
};

struct Stream {
  Context* context;
  // In step with the unnamed stream of its context.
  bool blocking;
  std::deque<Work> queue;
  // Pieces of work queued and taken from the queue, ever.
  std::uint64_t queued = 0, taken = 0;
};

struct Block {
  std::size_t bytes;
  Context* context;
  bool pinned;
  // Somebody else's memory.
  bool registered = false;
};

// The calls after the next `after`, `times` of them, fail.
struct Fault {
  int after, times, status;
};

struct State {
  std::mutex mutex;
  std::map<std::string, Fault> faults;
  // What there is: primary contexts retained, devices and their capability, the driver's version.
  int retained = 0, devices = 1, major = 9, minor = 0, version = 13000;
  std::map<int, Context*> primary;
  std::set<Context*> contexts;
  // The named ones, and with them the unnamed.
  std::set<Stream*> streams, all_streams;
  std::map<const char*, Block> blocks;
  int events = 0, modules = 0, allocations = 0;
  // What the time between any two events is said to be, in milliseconds; NaN for what it is.
  float elapsed = NAN;
  // Bytes copied so far.
  std::size_t to_device = 0, to_host = 0;
};
inline State state;
inline thread_local std::vector<Context*> current;

// A fault set on this function, or the status that it would have otherwise.
int answer(const char* function, bool needs_context);

// Begins every function of the driver.
#define ENTER(needs_context) \
  std::lock_guard<std::mutex> lock(state.mutex); \
  if (const int status = answer(__func__, needs_context)) return status

// Puts work at the end of a stream, null for the unnamed one, of the context that is current.
int enqueue(Stream* stream, Work work);
// Does what is in the stream's queue, up to its piece of work of this number.
int work_off(Stream* stream, std::uint64_t up_to = UINT64_MAX);
// The same for the stream that null stands for too.
Stream* named(Stream* stream);
Stream* new_stream(Context* context, bool blocking);
void delete_stream(Stream* stream);

// The block that all of these bytes are in, and where it begins.
std::pair<const char* const, Block>* block_of(const void* address, std::size_t bytes = 1);
// Whether work of this context may use device memory there.
bool reaches(Context* context, const Block& block);
// Frees what a context has left.
void release_all(Context* context);

}  // namespace stand_in
#endif
