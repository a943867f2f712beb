// SPDX-License-Identifier: MPL-2.0
// What the host and the kernels agree on: tile geometry, the kernel parameter, launch formulas.
//
// Every `#define NAME number` below is read by the build script; one per line, plain decimal numbers.
#ifndef BLUR_SHARED_H
#define BLUR_SHARED_H

// Largest radius on either axis.
#define BLUR_RADIUS_MAX 400
// Length of one axis of BlurArgs::taps.
#define BLUR_TAPS 404
// Size of BlurArgs in bytes.
#define BLUR_ARGS_BYTES 1712

// A block covers a strip this many pixels wide, by channels. Four neighbouring pixels are a group.
#define BLUR_STRIP_PIXELS_C1 256
#define BLUR_STRIP_PIXELS_C2 128
#define BLUR_STRIP_PIXELS_C3 64
#define BLUR_STRIP_PIXELS_C4 64

// blur_fused_*: threads, rows per step, output rows that one thread makes at a time.
#define BLUR_FUSED_THREADS 128
#define BLUR_FUSED_STEP 16
#define BLUR_FUSED_THREAD_ROWS 8

// blur_rows_*: threads, rows per block.
#define BLUR_ROWS_THREADS 128
#define BLUR_ROWS_STEP 8

// blur_columns_*: threads, strip width in samples, rows per block, output rows of one thread, rows loaded at a time.
#define BLUR_COLUMNS_THREADS 256
#define BLUR_COLUMNS_STRIP_SAMPLES 256
#define BLUR_COLUMNS_STEP 64
#define BLUR_COLUMNS_THREAD_ROWS 16
#define BLUR_COLUMNS_CHUNK 16

// The one parameter of every kernel, by value. One plane.
//
// The blur reads all of the source plane that it needs and writes rows row_begin .. row_end of the destination and
// nothing else; a frame that goes through in bands is one launch per band. row_begin < row_end <= height.
struct BlurArgs {
  // Top left sample of the whole plane, any alignment. The rows kernel does not use dst, the columns kernel not src,
  // the fused kernel not scratch.
  const unsigned char* src;
  unsigned char* dst;
  // The 16-bit intermediate of the whole plane, 16-byte aligned.
  unsigned char* scratch;
  // Bytes from one row to the next. Alignment of src and dst only decides the speed: 16 bytes is best, 4 is good.
  unsigned long long src_pitch;
  unsigned long long dst_pitch;
  // See below.
  unsigned long long scratch_pitch;
  // Pixels and rows of the plane, 1 to 16384.
  unsigned width;
  unsigned height;
  // Bits per sample: 8 for the u8 kernels; 8 to 16, in the low bits, for the u16 kernels.
  unsigned depth;
  // Samples per pixel. Only the columns kernel, which is the same for all, reads it.
  unsigned channels;
  unsigned row_begin;
  unsigned row_end;
  // Fused kernel: output rows of one block. Any number from 1 on; a multiple of BLUR_FUSED_STEP wastes nothing.
  unsigned segment_rows;
  // Taps to each side of the centre, along rows and down columns, 0 to BLUR_RADIUS_MAX.
  unsigned radius[2];
  unsigned reserved[3];
  // taps[axis][i]: the Q16 weight at distance i, modulo 65536; 0 beyond the radius. A radius of 0 has the single tap
  // 65536, which is stored as 0 and known by the radius.
  unsigned short taps[2][BLUR_TAPS];
};
static_assert(sizeof(BlurArgs) == BLUR_ARGS_BYTES, "BlurArgs is mirrored on the host");

// Entry points: blur_fused_{u8,u16}_c{1..4}, blur_rows_{u8,u16}_c{1..4}, blur_columns_{u8,u16}.
//
// Below, up(x, m) is x rounded up to a multiple of m; STRIP is BLUR_STRIP_PIXELS_C<channels>; bytes is 1 or 2 per
// sample; n = row_end - row_begin; grids are (x, y, 1), blocks (threads, 1, 1).
//
//   groups(r)    = (STRIP + 2 * up(r, 4)) / 4            groups of four pixels in a staged row
//   stage(r)     = (((channels * groups(r) + 15) / 32) * 32 + 16) * 4 * bytes, whole division
//                                                        bytes of a staged row: half a warp more than whole warps, so
//                                                        that half warps on neighbouring rows meet different banks
//   row_taps(r)  = 16 * (up(r, 4) / 2 + 1)               bytes of the expanded row taps
//
// blur_fused: rows, then columns, in one launch.
//   grid    (ceil(width / STRIP), ceil(n / segment_rows)), block BLUR_FUSED_THREADS
//   segment_rows that measured well: n * grid.x / (4 * multiprocessors), to the nearest multiple of 16, within 16 .. 96
//   ring    = up(2 * radius[1], BLUR_FUSED_STEP) + BLUR_FUSED_STEP rows of STRIP * channels * 2 bytes
//   shared  = ring + row_taps(radius[0]) + 4 * (8 + up(2 * radius[1] + 8, 4)) + BLUR_FUSED_STEP * stage(radius[0])
//
// blur_rows: rows row_begin .. row_end of the source to the same rows of the scratch.
//   grid    (ceil(width / STRIP), ceil(n / BLUR_ROWS_STEP)), block BLUR_ROWS_THREADS
//   shared  = row_taps(radius[0]) + BLUR_ROWS_STEP * stage(radius[0])
//
// blur_columns: scratch to destination. Reads scratch rows row_begin - radius[1] .. row_end + radius[1] within the
// plane; these must have been through blur_rows.
//   grid    (ceil(width * channels / BLUR_COLUMNS_STRIP_SAMPLES), ceil(n / BLUR_COLUMNS_STEP)),
//   block   BLUR_COLUMNS_THREADS
//   shared  = 2 * BLUR_COLUMNS_CHUNK * BLUR_COLUMNS_STRIP_SAMPLES * 2 + 4 * (16 + up(2 * radius[1] + 16, 16))
//
// scratch_pitch = up(width, STRIP) * channels * 2; the scratch takes scratch_pitch * height bytes.
//
// Shared memory is all dynamic. Above 48 KiB the function attribute for the larger maximum has to be set first.
#endif
