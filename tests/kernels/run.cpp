// SPDX-License-Identifier: MPL-2.0
// Runs the CUDA kernels on the CPU for tests/kernels.rs. Reads jobs from standard input, writes each one's destination
// planes to standard output. Planes lie in blocks of exactly their size, so that a sanitizer sees every step beyond.
#include "../../kernels/blur.cu"
#include "by_name.h"

#include <cstdio>
#include <vector>

template <class T> static bool read(T* to, std::size_t count) { return std::fread(to, sizeof(T), count, stdin) == count; }

struct Launch {
  unsigned blocks, threads, shared;
  std::vector<char> name, parameter;
};

int main() {
  unsigned counts[2];  // blocks of memory, launches
  while (read(counts, 2)) {
    std::vector<std::vector<unsigned char>> blocks(counts[0]);
    std::vector<bool> output(counts[0]);
    for (unsigned i = 0; i < counts[0]; i++) {
      unsigned size[2];  // bytes, whether it is a destination
      if (!read(size, 2)) return 1;
      blocks[i].resize(size[0]);
      output[i] = size[1];
      if (!read(blocks[i].data(), size[0])) return 1;
    }
    // An address is the number of a block, from 1 on, in its upper bits and a place in it.
    auto place = [&](const unsigned char* address) -> unsigned char* {
      const u64 number = reinterpret_cast<u64>(address);
      return number >> 40 ? blocks[(number >> 40) - 1].data() + (number & 0xffffffffff) : nullptr;
    };
    std::vector<Launch> launches(counts[1]);
    for (Launch& launch : launches) {
      unsigned sizes[2];  // of the name with its NUL, of the parameter
      if (!read(&launch.blocks, 3) || !read(sizes, 2)) return 1;
      launch.name.resize(sizes[0]);
      launch.parameter.resize(sizes[1]);
      if (!read(launch.name.data(), sizes[0]) || !read(launch.parameter.data(), sizes[1])) return 1;
    }
    for (Launch& launch : launches) {
      relocate(launch.name.data(), launch.parameter.data(), place);
      if (!launch_by_name(launch.name.data(), launch.blocks, launch.threads, launch.shared, launch.parameter.data()))
        return 2;
    }
    for (unsigned i = 0; i < counts[0]; i++)
      if (output[i]) std::fwrite(blocks[i].data(), 1, blocks[i].size(), stdout);
    std::fflush(stdout);
  }
}
