// SPDX-License-Identifier: MPL-2.0
// Runs the CUDA kernels on the CPU for tests/kernels.rs. Reads jobs from standard input and writes the output buffers
// of each to standard output. Every buffer is an allocation of exactly its size, so a sanitizer sees any access beyond
// it.
//
// A job, all numbers 32-bit: the number of buffers and of launches; for each buffer its size in bytes, whether it is an
// output (1 or 0), and its content; for each launch the number of blocks, threads per block and bytes of shared memory,
// the sizes in bytes of the kernel's name (with its NUL) and of its parameter, the name and the parameter.
#include "on_cpu.h"
#include "../../kernels/blur.cu"
#include "by_name.h"

#include <cstdio>
#include <vector>

template <class T> static bool read(T* to, std::size_t count) {
  return std::fread(to, sizeof(T), count, stdin) == count;
}

struct Launch {
  unsigned blocks, threads, shared;
  std::vector<char> name, parameter;
};

int main() {
  unsigned counts[2];  // buffers, launches
  while (read(counts, 2)) {
    std::vector<std::vector<unsigned char>> buffers(counts[0]);
    std::vector<bool> output(counts[0]);
    for (unsigned i = 0; i < counts[0]; i++) {
      unsigned header[2];  // size in bytes, is output
      if (!read(header, 2)) return 1;
      buffers[i].resize(header[0]);
      output[i] = header[1];
      if (!read(buffers[i].data(), header[0])) return 1;
    }
    // An address in a parameter is a buffer's number, counted from 1, times 2^40, plus 2^39 and an offset into the buffer: a
    // plane of which only a part has memory begins in front of its buffer.
    auto translate = [&](const unsigned char* address) -> unsigned char* {
      const u64 number = reinterpret_cast<u64>(address);
      return number >> 40 ? buffers[(number >> 40) - 1].data() + (number & 0xffffffffff) - (u64{1} << 39) : nullptr;
    };
    std::vector<Launch> launches(counts[1]);
    for (Launch& launch : launches) {
      unsigned sizes[2];  // name, parameter
      if (!read(&launch.blocks, 3) || !read(sizes, 2)) return 1;
      launch.name.resize(sizes[0]);
      launch.parameter.resize(sizes[1]);
      if (!read(launch.name.data(), sizes[0]) || !read(launch.parameter.data(), sizes[1])) return 1;
    }
    for (Launch& launch : launches) {
      relocate(launch.name.data(), launch.parameter.data(), translate);
      if (!launch_by_name(launch.name.data(), launch.blocks, launch.threads, launch.shared, launch.parameter.data()))
        return 2;
    }
    for (unsigned i = 0; i < counts[0]; i++)
      if (output[i]) std::fwrite(buffers[i].data(), 1, buffers[i].size(), stdout);
    std::fflush(stdout);
  }
}
