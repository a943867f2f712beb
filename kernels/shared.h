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
// Planes in one launch, and pairs of radii among them.
#define BLUR_PLANES 4
#define BLUR_KINDS 2
// Sizes of BlurArgs and AlphaArgs in bytes.
#define BLUR_ARGS_BYTES 3648
#define BLUR_ALPHA_ARGS_BYTES 128

// A block covers a strip this many pixels wide, by channels; four channels: yuv422 and ten too. Four neighbouring
// pixels are a group.
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

// blur_multiply and blur_finish: threads; each makes one pixel.
#define BLUR_ALPHA_THREADS 256

// One plane. `pixels` below are what repeats along a row: of packed 4:2:2 those are pairs of pixels, four bytes.
//
// The blur reads all of the source plane that it needs and writes rows row_begin .. row_end of the destination and
// nothing else; a frame that goes through in bands is one launch per band. row_begin < row_end <= height.
struct BlurPlane {
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
  // Samples per pixel.
  unsigned channels;
  // Bits per sample, and the place of the lowest of them in its 16-bit word. 8 and 0 for the u8 kernels.
  unsigned depth;
  unsigned low;
  // Packed 4:2:2 alone. Bit 0: where the first luma byte is. Bit 1: the last pair has but one pixel.
  unsigned luma;
  // Which radii and taps.
  unsigned kind;
  unsigned row_begin;
  unsigned row_end;
  // The launch's blocks from first_block on are this plane's, `strips` of them side by side.
  unsigned first_block;
  unsigned strips;
  // Whether a pixel is a word of 10, 10, 10 and 2 bits.
  unsigned ten;
};

// The one parameter of every kernel that blurs, by value.
struct BlurArgs {
  // A plane's blocks come before those of the next; what is not used has a first_block that no block has.
  BlurPlane planes[BLUR_PLANES];
  // Fused kernel: output rows of one block. Any number from 1 on; a multiple of BLUR_FUSED_STEP wastes nothing.
  unsigned segment_rows;
  unsigned reserved[3];
  // Taps to each side of the centre, along rows and down columns, 0 to BLUR_RADIUS_MAX. Packed 4:2:2 takes kind 0 for
  // luma and for all columns, kind 1 for chroma along rows.
  unsigned radius[BLUR_KINDS][2];
  // taps[kind][axis][i]: the Q16 weight at distance i, modulo 65536; 0 beyond the radius. A radius of 0 has the single
  // tap 65536, which is stored as 0 and known by the radius.
  unsigned short taps[BLUR_KINDS][2][BLUR_TAPS];
};
static_assert(sizeof(BlurArgs) == BLUR_ARGS_BYTES, "BlurArgs is mirrored on the host");

// The parameter of blur_multiply and blur_finish, by value. One plane of `width` pixels and `height` rows.
//
// blur_multiply makes of the source a plane of 16-bit samples in which colour is multiplied by alpha: product, with the
// alpha as the last channel if alpha_src says that it lies in a plane of its own. blur_finish makes the destination of
// the blurred product; without one (product is null) it only puts back what is to be kept of the source.
struct AlphaArgs {
  const unsigned char* src;
  unsigned char* dst;
  // 16 bits a sample, `channels` samples a pixel, one more if alpha_src is set; rows product_pitch apart.
  unsigned char* product;
  // The plane of alpha, of the source's depth, or null if alpha is channel alpha_channel of the source.
  const unsigned char* alpha_src;
  unsigned long long src_pitch;
  unsigned long long dst_pitch;
  unsigned long long product_pitch;
  unsigned long long alpha_pitch;
  unsigned width;
  unsigned height;
  unsigned channels;
  unsigned depth;
  unsigned low;
  // Whether a pixel is a word of 10, 10, 10 and 2 bits.
  unsigned ten;
  // The channel of the source that is alpha; `channels` if none is.
  unsigned alpha_channel;
  // Bit c: the destination's channel c is the source's.
  unsigned keep;
  // The plane of alpha: its size, and by how many bits a place in it is a place of this plane.
  unsigned alpha_width;
  unsigned alpha_height;
  unsigned alpha_shift[2];
  unsigned reserved[4];
};
static_assert(sizeof(AlphaArgs) == BLUR_ALPHA_ARGS_BYTES, "AlphaArgs is mirrored on the host");

// Entry points, by what pixels are: {u8,u16}_c12 are planes of one or two channels, up to BLUR_PLANES in a launch;
// {u8,u16}_c3, _c4, yuv422 (packed 4:2:2 of 8 bits) and ten (words of 10, 10, 10 and 2 bits) take one plane.
//   blur_fused_*, blur_rows_*                    all of these
//   blur_columns                                 whatever the pixels
//   blur_multiply, blur_finish                   before and after, where alpha weighs colour or channels are kept
//
// Below, up(x, m) is x rounded up to a multiple of m; STRIP is BLUR_STRIP_PIXELS_C<channels>; bytes is 1 or 2 per
// sample (ten: 2); n = row_end - row_begin; grids are (x, 1, 1), blocks (threads, 1, 1). A launch of several planes
// takes the sum of their blocks and the most of their shared memory.
//
//   r, of yuv422 = max(ceil(radius[0][0] / 2), radius[1][0]), else the plane's radius along rows
//   groups       = (STRIP + 2 * up(r, 4)) / 4            groups of four pixels in a staged row
//   stage        = (((channels * groups + 15) / 32) * 32 + 16) * 4 * bytes, whole division
//                                                        bytes of a staged row: half a warp more than whole warps, so
//                                                        that half warps on neighbouring rows meet different banks
//   row_taps     = 16 * (up(radius, 4) / 2 + 1)          bytes of the expanded row taps; yuv422: of both kinds together
//
// blur_fused: rows, then columns, in one launch.
//   blocks  strips = ceil(width / STRIP) across, ceil(n / segment_rows) down, threads BLUR_FUSED_THREADS
//   segment_rows that measured well: the sum of n * strips / (4 * multiprocessors), to the nearest multiple of 16,
//           within 16 .. 96
//   ring    = up(2 * column radius, BLUR_FUSED_STEP) + BLUR_FUSED_STEP rows of STRIP * channels * 2 bytes
//   shared  = ring + row_taps + 4 * (8 + up(2 * column radius + 8, 4)) + BLUR_FUSED_STEP * stage
//
// blur_rows: rows row_begin .. row_end of the source to the same rows of the scratch.
//   blocks  strips = ceil(width / STRIP) across, ceil(n / BLUR_ROWS_STEP) down, threads BLUR_ROWS_THREADS
//   shared  = row_taps + BLUR_ROWS_STEP * stage
//
// blur_columns: scratch to destination. Reads scratch rows row_begin - radius .. row_end + radius within the plane;
// these must have been through blur_rows.
//   blocks  strips = ceil(width * channels / BLUR_COLUMNS_STRIP_SAMPLES) across, ceil(n / BLUR_COLUMNS_STEP) down,
//           threads BLUR_COLUMNS_THREADS
//   shared  = 2 * BLUR_COLUMNS_CHUNK * BLUR_COLUMNS_STRIP_SAMPLES * 2 + 4 * (16 + up(2 * column radius + 16, 16))
//
// blur_multiply, blur_finish: ceil(width / BLUR_ALPHA_THREADS) * height blocks of BLUR_ALPHA_THREADS, no shared memory.
//
// scratch_pitch = up(width, STRIP) * channels * 2; the scratch takes scratch_pitch * height bytes.
//
// Shared memory is all dynamic. Above 48 KiB the function attribute for the larger maximum has to be set first.
#endif
