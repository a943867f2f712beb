// SPDX-License-Identifier: MPL-2.0
// Runs the CUDA kernels on the CPU for tests/kernels.rs. Reads jobs from standard input, writes each one's destination
// plane to standard output. Planes lie in blocks of exactly their size, so that a sanitizer sees every step beyond.
#include "../../kernels/blur.cu"

#include <cstdio>
#include <cstdlib>
#include <vector>

using Kernel = void (*)(BlurArgs);

// By kind, sample bytes and channels. A special build has one kernel, in place of all.
#ifdef BLUR_RADIUS_ROWS
static Kernel kernel(unsigned, unsigned, unsigned) { return blur_special; }
#else
static const Kernel KERNELS[3][2][4] = {
    {{blur_fused_u8_c1, blur_fused_u8_c2, blur_fused_u8_c3, blur_fused_u8_c4},
     {blur_fused_u16_c1, blur_fused_u16_c2, blur_fused_u16_c3, blur_fused_u16_c4}},
    {{blur_rows_u8_c1, blur_rows_u8_c2, blur_rows_u8_c3, blur_rows_u8_c4},
     {blur_rows_u16_c1, blur_rows_u16_c2, blur_rows_u16_c3, blur_rows_u16_c4}},
    {{blur_columns_u8, blur_columns_u8, blur_columns_u8, blur_columns_u8},
     {blur_columns_u16, blur_columns_u16, blur_columns_u16, blur_columns_u16}},
};
static Kernel kernel(unsigned kind, unsigned bytes, unsigned channels) { return KERNELS[kind][bytes - 1][channels - 1]; }
#endif

struct Launch {
  unsigned kernel, grid_x, grid_y, threads, shared;
  BlurArgs args;
};

template <class T> static bool read(T* to, std::size_t count) { return std::fread(to, sizeof(T), count, stdin) == count; }

int main() {
  struct {
    unsigned launches, sample_bytes, channels, src, dst, scratch;
  } job;
  while (read(&job, 1)) {
    std::vector<Launch> launches(job.launches);
    std::vector<unsigned char> src(job.src), dst(job.dst);
    for (Launch& launch : launches)
      if (!read(&launch.kernel, 5) || !read(&launch.args, 1)) return 1;
    if (!read(src.data(), job.src) || !read(dst.data(), job.dst)) return 1;
    // The kernels take a scratch that starts on 16 bytes, as this one does.
    std::vector<unsigned char> scratch(job.scratch, 0xa5);
    for (Launch& l : launches) {
      l.args.src = src.data();
      l.args.dst = dst.data();
      l.args.scratch = scratch.data();
      blur_launch(kernel(l.kernel, job.sample_bytes, job.channels), l.grid_x, l.grid_y, l.threads, l.shared, l.args);
    }
    std::fwrite(dst.data(), 1, job.dst, stdout);
    std::fflush(stdout);
  }
}
