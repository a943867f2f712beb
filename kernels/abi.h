// SPDX-License-Identifier: MPL-2.0
// The interface between the host code and the kernels: pixel families, tile sizes, kernel parameters, entry points.
//
// build.rs translates this file to Rust and therefore expects a simple form: constants as `#define BLUR_NAME number`
// with a decimal number, BLUR_FAMILIES on one line, and structs with one field per line; it ignores conditions. The comment
// before a constant, a struct or a field becomes its documentation in Rust.
#ifndef BLUR_ABI_H
#define BLUR_ABI_H

// The host's JIT compiles one kernel of the direct form on tensor cores with
//
// - BLUR_TENSOR_DIRECT_TILES: tiles of its window, 2 to 9. Its largest radius is 8 for each tile but one, and 63 at most.
// - BLUR_TENSOR_DIRECT_RESIDENT: blocks that a multiprocessor should hold.
// - BLUR_TENSOR_DIRECT_CHANNELS: channels of its planes, for families of one and of two.
// - BLUR_TENSOR_DIRECT_ALPHA: TensorPlane::alpha of its plane, for pixels of four bytes that have alpha or 10, 10, 10 and 2 bits.
//
// Its parameter has far taps, which are the last field, so that the host can pass the same bytes to prebuilt kernels. In the
// emulation on a CPU, where both kinds are in one program, all kernels have them.
#if defined(BLUR_TENSOR_DIRECT_TILES) || defined(BLUR_ON_CPU)
#define BLUR_FAR_TAPS 1
#endif

// Pixel families: how the samples of a pixel lie in memory. A family is in the names of its tensor-core kernels.
//
// - `u8_c12`, `u16_c12`: one or two interleaved samples per pixel; up to BLUR_PLANES planes per launch.
// - `u8_c3`, `u8_c4`, `u16_c4`: three or four interleaved samples per pixel; one plane per launch.
// - `yuv422`: packed 4:2:2 of 8 bits; one plane per launch.
// - `packed1010102`: 32-bit words of three 10-bit samples and one 2-bit sample; one plane per launch.
#define BLUR_FAMILIES(X) X(u8_c12) X(u8_c3) X(u8_c4) X(u16_c12) X(u16_c4) X(yuv422) X(packed1010102)

// Largest radius on either axis.
#define BLUR_RADIUS_MAX 400
// Length of RowsArgs::taps and ColumnsArgs::taps for a slot: BLUR_RADIUS_MAX + 1, rounded up to a multiple of four.
#define BLUR_TAPS 404
// Largest number of planes, or of rectangles of planes, in one launch.
#define BLUR_PLANES 8
// Filter slots: sets of radii and taps that the planes of one launch choose from.
#define BLUR_FILTER_SLOTS 2
// Size of AlphaArgs in bytes.
#define BLUR_ALPHA_ARGS_BYTES 144
// Size of RowsArgs in bytes.
#define BLUR_ROWS_ARGS_BYTES 3304
// Size of ColumnsArgs in bytes.
#define BLUR_COLUMNS_ARGS_BYTES 2552

// Radius of the filters of a level, in samples of the small plane, and the samples that the small plane has beyond each
// end of the plane.
#define BLUR_LEVEL_RADIUS 3
// Taps of the interpolation, per phase.
#define BLUR_PHASE_TAPS 7
// Taps of a level: 25 of the decimation, or 7 for each of four phases.
#define BLUR_LEVEL_TAPS 28
// Words of the pairs of taps of a decimation by four, and one.
#define BLUR_LEVEL_TAP_WORDS 14
// Kernels of levels: warps per block.
#define BLUR_LEVEL_WARPS 4
// Kernels of levels, rows: pixels of the larger plane that a warp loads, for a strip of 224, or 192 of packed 4:2:2.
#define BLUR_LEVEL_WINDOW 256
// Kernels of levels, rows: rows that a warp processes.
#define BLUR_LEVEL_WARP_ROWS 2
// Kernels of levels, columns: rows that a thread decimates to. It interpolates four, which begin at a multiple of four.
#define BLUR_LEVEL_DECIMATE_ROWS 2
// Rows kernel: warps per block, of a row each.
#define BLUR_ROWS_WARPS 2
// Rows kernel: pixels of a strip.
#define BLUR_ROWS_STRIP 256
// Columns kernel: warps per block.
#define BLUR_COLUMNS_WARPS 4
// Columns kernel: rows that a thread computes.
#define BLUR_COLUMNS_ROWS 8
// Columns kernel, and kernels of levels, columns: samples of a row that a warp processes, four a thread.
#define BLUR_COLUMNS_SAMPLES 128
// Size of TensorArgs in bytes, with far taps.
#define BLUR_TENSOR_ARGS_BYTES 1504
// Tensor-core kernels of the direct form: largest radius of each, the last one with BLUR_TENSOR_RADIUS_MAX.
#define BLUR_TENSOR_DIRECT_RADIUS_SHORT 8
#define BLUR_TENSOR_DIRECT_RADIUS_MEDIUM 16
// Tensor-core kernels: largest radius of the small plane's blur, of the kernel for short radii and of that for long
// ones, which is also the largest of the direct form.
#define BLUR_TENSOR_RADIUS_SHORT 16
#define BLUR_TENSOR_RADIUS_MAX 31
// Length of one axis of TensorArgs::taps and of TensorArgs::far_taps. The largest radius of kernels of the direct form that are
// compiled at run time is one less than twice this.
#define BLUR_TENSOR_TAPS 32
// Tensor-core kernels: small planes after their blur are stored in blocks of this many rows.
#define BLUR_TENSOR_ROWS 4
// Tensor-core kernels: warps per block, of the direct form, the decimation, the blur and the interpolation.
#define BLUR_TENSOR_DIRECT_WARPS 4
#define BLUR_TENSOR_DECIMATE_WARPS 2
#define BLUR_TENSOR_BLUR_WARPS 4
#define BLUR_TENSOR_INTERPOLATE_WARPS 4
// Tensor-core kernels: steps that a warp loads ahead of its computation. Of the direct form; for pixels of eight bytes, and in
// kernels that are compiled at run time, whose windows can be long; for packed 4:2:2, whose taps take more of the 64 KiB of shared
// memory that a block has on sm_75; of the decimation and of the interpolation.
#define BLUR_TENSOR_DIRECT_DEPTH 4
#define BLUR_TENSOR_DIRECT_DEPTH_SHORT 2
#define BLUR_TENSOR_DIRECT_DEPTH_YUV422 3
#define BLUR_TENSOR_DECIMATE_DEPTH 4
#define BLUR_TENSOR_INTERPOLATE_DEPTH 4
// Tensor-core kernels of the direct form: tiles of 16 columns of pixels that a warp computes, of pixels of one and of two
// bytes. Larger ones have one.
#define BLUR_TENSOR_DIRECT_ACROSS_1 4
#define BLUR_TENSOR_DIRECT_ACROSS_2 2
// Tensor-core decimation: blocks of 8 columns of the small plane that a warp computes, by samples per pixel, and below
// the first level. Even, since two blocks fill a word of the small plane.
#define BLUR_TENSOR_COLUMNS_C1 4
#define BLUR_TENSOR_COLUMNS_C2 2
#define BLUR_TENSOR_COLUMNS_C3 2
#define BLUR_TENSOR_COLUMNS_C4 2
#define BLUR_TENSOR_COLUMNS_SMALL 2

// Premultiply and unpremultiply kernels: threads per block, one pixel each.
#define BLUR_ALPHA_THREADS 256

// Size of CoverArgs in bytes.
#define BLUR_COVER_ARGS_BYTES 3840
// Largest number of rectangles in one launch of the cover kernel.
#define BLUR_COVER_RECTS 60
// Cover kernel: threads per block.
#define BLUR_COVER_THREADS 128
// Cover kernel: bytes of an aligned group of the destination, of which a thread writes one.
#define BLUR_COVER_GROUP 16
// Size of MosaicArgs in bytes; a launch takes no more than 4096.
#define BLUR_MOSAIC_ARGS_BYTES 4096
// Largest number of planes, and of grids, in one launch of the mosaic kernels.
#define BLUR_MOSAIC_PLANES 8
#define BLUR_MOSAIC_GRIDS 72
// Mosaic kernels: threads per block.
#define BLUR_MOSAIC_THREADS 32

// Size of SoftArgs in bytes.
#define BLUR_SOFT_ARGS_BYTES 3200
// Largest number of grids in one launch of the kernels of soft covers.
#define BLUR_SOFT_GRIDS 16
// Cells and mix kernels: threads per block. A block computes as many cells as it has warps.
#define BLUR_SOFT_THREADS 128
// Mix kernel: samples of a row, of all channels in turn, that a warp mixes, and rows.
#define BLUR_SOFT_TILE 128
#define BLUR_SOFT_ROWS 8
// Spread kernel: threads per block, and blocks for each channel.
#define BLUR_SOFT_SPREAD_THREADS 512
#define BLUR_SOFT_SPREAD_BLOCKS 16

// How a channel is stored in a row: a sample is some bits of a little-endian word of 1, 2 or 4 bytes, the same for all channels of a
// plane. With 4 the samples of a pixel share a word, else none do.
struct StoredChannel {
  // First byte of the first sample's word, in the row.
  unsigned short offset;
  // Bytes from one sample's word to the next.
  unsigned short step;
  // Position of the sample's lowest bit in its word.
  unsigned short shift;
  // Bits of a sample, up to 16.
  unsigned short bits;
};

// Parameter of `blur_premultiply` and `blur_unpremultiply`, passed by value. It describes one plane.
struct AlphaArgs {
  // First sample of the source plane, at any alignment.
  const unsigned char* src;
  // First sample of the destination plane, at any alignment; unused by `blur_premultiply`.
  unsigned char* dst;
  // First sample of the premultiplied plane, aligned to 2 bytes: 16-bit samples, `channels` of them per pixel and one
  // more, the alpha, if `alpha_src` is set. Null if `blur_unpremultiply` only copies channels.
  unsigned char* premultiplied;
  // First sample of a separate alpha plane, whose one channel is stored like the first one of the source; null if alpha is a
  // channel of the source.
  const unsigned char* alpha_src;
  // Bytes from one source row to the next.
  unsigned long long src_pitch;
  // Bytes from one destination row to the next.
  unsigned long long dst_pitch;
  // Bytes from one row of the premultiplied plane to the next, a multiple of 2.
  unsigned long long premultiplied_pitch;
  // Bytes from one row of the alpha plane to the next.
  unsigned long long alpha_pitch;
  // Pixels per row of the source.
  unsigned width;
  // Rows of the source.
  unsigned height;
  // Samples per pixel of the source.
  unsigned channels;
  // How each is stored, in the source and in the destination.
  StoredChannel layout[4];
  // Bytes of a sample's word.
  unsigned word_bytes;
  // Index of the source channel that holds alpha; `channels` if none does.
  unsigned alpha_channel;
  // Bit `c` is set if `blur_unpremultiply` copies channel `c` from the source to the destination.
  unsigned passthrough_mask;
  // Samples per row of the alpha plane.
  unsigned alpha_width;
  // Rows of the alpha plane.
  unsigned alpha_height;
  // Base-2 logarithm of the alpha plane's resolution over this plane's: along rows, down columns.
  unsigned alpha_subsampling[2];
  // Padding.
  unsigned reserved[2];
};
static_assert(sizeof(AlphaArgs) == BLUR_ALPHA_ARGS_BYTES, "the host passes BLUR_ALPHA_ARGS_BYTES bytes");

// Samples of a plane as 16-bit ones, which the kernels for rows write or read: those of all channels, or of the luma or of the
// chroma of packed 4:2:2. Of a level they are as wide as the small plane, of the direct form as the plane.
struct RowsPart {
  // First sample, aligned to 16 bytes. Null if these samples are not processed, which is for packed 4:2:2 alone.
  unsigned char* samples;
  // Bytes from one row of them to the next, a multiple of 16.
  unsigned long long pitch;
  // Base-2 logarithm of the factor along rows, 0, 1 or 2; 0 in the direct form.
  unsigned factor_log2;
  // First pixel of them to write, a multiple of 16.
  unsigned begin;
  // End of their pixels, exclusive, that are written, or that an interpolation reads.
  unsigned end;
  // Direct form: filter slot, an index into RowsArgs::radius and RowsArgs::taps.
  unsigned slot;
};

// A rectangle of a plane whose rows are blurred, decimated or interpolated. "Larger" is the plane as it is stored.
struct RowsPlane {
  // First sample of the larger plane, at any alignment; 16 bytes is best.
  unsigned char* larger;
  // Bytes from one of its rows to the next.
  unsigned long long pitch;
  // Its 16-bit samples; with `pairs` those of the first channel and those of the others.
  RowsPart parts[2];
  // Pixels per row of the larger plane.
  unsigned width;
  // Bytes of a pixel.
  unsigned pixel_bytes;
  // Bytes of a sample's word, which is aligned in the row.
  unsigned word_bytes;
  // 1 if a sample of the channels behind the first is of a pair of pixels, as in packed 4:2:2, else 0.
  unsigned pairs;
  // Number of channels, 1 to 4.
  unsigned channels;
  // How each is stored.
  StoredChannel layout[4];
  // Direct form: pixels that are loaded on each side of a strip, a multiple of 16 and no less than the radius of any part in
  // pixels.
  unsigned lead;
  // Interpolation: first pixel to write, a multiple of 8 times the largest factor.
  unsigned column_begin;
  // Interpolation: end of the pixels to write, exclusive: a multiple of the same number, or all.
  unsigned column_end;
  // First row to process, less than `row_end`.
  unsigned row_begin;
  // End of the rows to process, exclusive.
  unsigned row_end;
  // Number of the first strip.
  unsigned first_strip;
  // Number of strips.
  unsigned strips;
  // Index in the launch of this entry's first block.
  unsigned first_block;
  // Padding.
  unsigned reserved;
};

// Parameter of `blur_rows`, `blur_decimate_rows` and `blur_interpolate_rows`, passed by value.
struct RowsArgs {
  // The planes in the order of their blocks. The `first_block` of an unused entry is larger than any block index.
  RowsPlane planes[BLUR_PLANES];
  // Interpolation, by factor, 2 and 4: BLUR_PHASE_TAPS for each phase. Q16, with sum 65536.
  unsigned level_taps[2][BLUR_LEVEL_TAPS];
  // Decimation, by factor, 2 and 4: the 6 * factor + 1 taps in pairs. A word has the low bytes of two taps, then their high
  // bytes.
  unsigned tap_bytes[2][BLUR_LEVEL_TAP_WORDS];
  // Direct form, by slot: taps on each side of the centre along rows, 0 to BLUR_RADIUS_MAX.
  unsigned radius[BLUR_FILTER_SLOTS];
  // `taps[slot][i]`: the Q16 tap at distance `i` from the centre, modulo 65536; 0 beyond the radius. The single tap of radius 0
  // is 65536, which is stored as 0 and recognised by the radius.
  unsigned short taps[BLUR_FILTER_SLOTS][BLUR_TAPS];
};
static_assert(sizeof(RowsArgs) == BLUR_ROWS_ARGS_BYTES, "the host passes BLUR_ROWS_ARGS_BYTES bytes");

// A rectangle of a plane of 16-bit samples whose columns are blurred, decimated or interpolated.
struct ColumnsPlane {
  // First sample that is read, aligned to 16 bytes. The direct form and a decimation also read the samples behind a row that
  // complete its last four.
  const unsigned char* src;
  // First sample that is written; aligned to 16 bytes for a level, where the last four samples of a row are written together. It
  // must not overlap the source.
  unsigned char* dst;
  // Bytes from one source row to the next, a multiple of 16.
  unsigned long long src_pitch;
  // Bytes from one destination row to the next; a multiple of 16 for a level.
  unsigned long long dst_pitch;
  // Rows of the source.
  unsigned src_rows;
  // First sample of a row to write, a multiple of 4.
  unsigned sample_begin;
  // End of the samples to write, exclusive.
  unsigned sample_end;
  // First row to write, less than `row_end`.
  unsigned row_begin;
  // End of the rows to write, exclusive.
  unsigned row_end;
  // Base-2 logarithm of the factor, 1 or 2; unused by the direct form.
  unsigned factor_log2;
  // Bits that sums are rounded to. A level leaves the lower ones of a sample unspecified.
  unsigned depth;
  // Direct form: filter slot, an index into ColumnsArgs::radius and ColumnsArgs::taps.
  unsigned slot;
  // Direct form: bytes of a sample's word in the destination, 1 or 2; 4 for words of 10, 10, 10 and 2 bits.
  unsigned word_bytes;
  // Direct form: bytes from one sample of the destination to the next; 1 if `word_bytes` is 4.
  unsigned step;
  // Direct form: position of a sample's lowest bit in a word of two bytes.
  unsigned shift;
  // Number of blocks side by side.
  unsigned strips;
  // Index in the launch of this entry's first block.
  unsigned first_block;
  // Padding.
  unsigned reserved;
};

// Parameter of `blur_columns`, `blur_decimate_columns` and `blur_interpolate_columns`, passed by value.
struct ColumnsArgs {
  // The planes in the order of their blocks. The `first_block` of an unused entry is larger than any block index.
  ColumnsPlane planes[BLUR_PLANES];
  // By factor, 2 and 4. Decimation: its 6 * factor + 1 taps. Interpolation: see RowsArgs::level_taps.
  unsigned level_taps[2][BLUR_LEVEL_TAPS];
  // Direct form: as in RowsArgs, down columns.
  unsigned radius[BLUR_FILTER_SLOTS];
  // The same.
  unsigned short taps[BLUR_FILTER_SLOTS][BLUR_TAPS];
};
static_assert(sizeof(ColumnsArgs) == BLUR_COLUMNS_ARGS_BYTES, "the host passes BLUR_COLUMNS_ARGS_BYTES bytes");

// A rectangle of a plane of the direct form or of one level, for the tensor-core kernels. "Larger" is the plane that is
// decimated or interpolated to. The direct form has only that one, and neither small planes nor a factor. The blur of a small
// plane has that plane as the larger one, with factors of 1.
struct TensorPlane {
  // First sample of the larger plane that is read, at any alignment; 16 bytes is best. Below the first level the
  // `decimated` plane of the level above.
  const unsigned char* src;
  // First sample of the larger plane that is written, at any alignment; 16 bytes is best. Below the first level the
  // `blurred` plane of the level above.
  unsigned char* dst;
  // The small plane that is decimated to, aligned to 16 bytes.
  unsigned char* decimated;
  // The small plane after its blur, aligned to 16 bytes.
  unsigned char* blurred;
  // Bytes from one row of `src` to the next; unused below the first level.
  unsigned long long src_pitch;
  // Bytes from one row of `dst` to the next; unused below the first level.
  unsigned long long dst_pitch;
  // Pixels per row of the larger plane.
  unsigned width;
  // Rows of the larger plane.
  unsigned height;
  // Samples per pixel, 1 to 4.
  unsigned channels;
  // Bits per sample of the larger plane.
  unsigned depth;
  // Position of a sample's lowest bit in its 16-bit word; 0 if `depth` is 8.
  unsigned shift;
  // Packed 4:2:2 only. Bit 0: byte offset of the first luma sample. Bit 1: the last pair of a row has only one pixel. In the wide
  // form luma and chroma are planes of their own, of one and of two channels;
  // luma is written into the pixels of `dst`, chroma before it into its bytes of them and 0 into those of luma.
  unsigned yuv422;
  // Factor along rows: 1, 2 or 4.
  unsigned factor_across;
  // Factor down columns, 2 or 4: the same, or more where chroma is subsampled along rows alone. 4 below the first level; 1 in the
  // blur of a small plane.
  unsigned factor_down;
  // Filter slot: index into TensorArgs::taps.
  unsigned slot;
  // First row of the output to write. Of small planes after their blur a multiple of BLUR_TENSOR_ROWS.
  unsigned row_begin;
  // End of the rows to write, exclusive. Of small planes after their blur a multiple of BLUR_TENSOR_ROWS, or all rows.
  unsigned row_end;
  // First pixel of a row to write, less than `column_end`: a multiple of 16; of an interpolation of 8 times the factor, or of
  // 16 if that is 1; of the direct form of 64, or of 32 pairs.
  unsigned column_begin;
  // End of the pixels to write, exclusive: a multiple of the same number, or all.
  unsigned column_end;
  // Direct form, decimation and blur: rows of the output that a warp computes, a multiple of 8 or of 16.
  unsigned segment_rows;
  // Index in the launch of this entry's first block.
  unsigned first_block;
  // Number of this entry's blocks.
  unsigned blocks;
  // 0, or 1 more than the channel that is alpha of pixels of four bytes, whose colour is blurred multiplied by it. For kernels of
  // `packed1010102`, whose pixels are 10, 10, 10 and 2 bits if it is 0. `depth` is 16 then, and an interpolation reads `src`.
  unsigned alpha;
};

// Parameter of the tensor-core kernels, passed by value.
struct TensorArgs {
  // Index in the launch of the block after each entry's last one, by which a block finds its entry; of the last and of unused
  // entries larger than any block index. Apart from the entries, so that a block reads one line of the parameter.
  unsigned block_end[BLUR_PLANES];
  // The planes in the order of their blocks.
  TensorPlane planes[BLUR_PLANES];
  // `taps[slot][axis][i]`: the Q16 tap of the direct form, or of the small plane's blur, at distance `i` from the centre,
  // along rows (axis 0) and down columns (axis 1); 0 beyond the radius. Packed 4:2:2 has those of luma in slot 0 and those of
  // chroma in slot 1.
  unsigned short taps[BLUR_FILTER_SLOTS][2][BLUR_TENSOR_TAPS];
#if BLUR_FAR_TAPS
  // The same at distance `BLUR_TENSOR_TAPS + i`.
  unsigned short far_taps[BLUR_FILTER_SLOTS][2][BLUR_TENSOR_TAPS];
#endif
};
#if BLUR_FAR_TAPS
static_assert(sizeof(TensorArgs) == BLUR_TENSOR_ARGS_BYTES, "the host passes BLUR_TENSOR_ARGS_BYTES bytes");
#endif

// Entry points. Grids and blocks have one dimension. All shared memory is dynamic; before a launch with more than 48
// KiB of it, the host raises the function's limit. src/cuda/kernels/{axis,tensor_direct,tensor_wide}.rs compute the number of
// blocks, the shared memory, the strips, and the size and pitch of what is between two launches. A launch of several planes takes
// the sum of their blocks and the largest of their shared memory sizes.
//
// blur_tensor_direct_<family>_{short,medium,long}: rows, then columns, in one launch on tensor cores, for radii from 1 to the
//   kernel's largest on both axes (if it is compiled at run time, that of BLUR_TENSOR_DIRECT_TILES); `yuv422` if the radius of
//   chroma along rows is at most half of that, rounded up. Reads whole windows: from as many rows above row_begin as its
//   largest radius, rounded up to a multiple of 8, to 15 more than that below row_end, as far as the plane goes. Rows beyond the
//   radius are multiplied by 0. Writes dst. A warp computes segment_rows rows of one strip.
//
// One axis at a time, for planes of any layout:
//
// blur_rows: the rows of the direct form. Reads rows row_begin .. row_end of the larger plane and writes 16-bit samples of them. A
//   warp processes a row of one strip; strips are of the whole row.
//
// blur_columns: its columns. Reads these samples from one column radius above row_begin to one below row_end, as far as the plane
//   goes, and writes the plane. A thread computes BLUR_COLUMNS_ROWS rows of four samples.
//
// blur_decimate_rows: the rows of a level, from the larger plane to 16-bit samples as wide as the small plane. A block
//   processes BLUR_LEVEL_WARPS times BLUR_LEVEL_WARP_ROWS rows of one strip; strips are of the whole row.
//
// blur_decimate_columns: its columns, from these samples, or from the small plane of the level above, to the small plane. A
//   thread computes BLUR_LEVEL_DECIMATE_ROWS rows.
//
// blur_interpolate_columns: the columns of a level, from the small plane to samples as high as the larger plane.
//
// blur_interpolate_rows: its rows, to the larger plane. Strips begin at the rectangle. With a factor of one the rows
//   passes only unpack and pack samples.
//
// blur_tensor_decimate_<pixels>, blur_tensor_blur_{short,long}, blur_tensor_interpolate_<pixels>: the same steps, and
//   the blur of the small plane, by radius, on tensor cores, for the families of <pixels>; `small` for the
//   levels below the first, whose factor is 4, or 1 along rows. tensor.cuh has the layout of their small planes.
//
// blur_premultiply: reads src (and alpha_src) and writes every pixel of the premultiplied plane, widened to 16 bits:
//   colour times alpha, and alpha.
//
// blur_unpremultiply: writes dst. A channel in passthrough_mask is copied from src. Every other channel is computed
//   from the blurred premultiplied plane: colour divided by alpha, or src's colour where the blurred alpha is 0. If
//   premultiplied is null, the channels that are not in passthrough_mask stay as they are in dst.

// Bytes that the cover kernel writes: the same range in each of some rows.
struct CoverRect {
  // The first byte that is written, at any alignment. Alignment affects only the speed.
  unsigned char* dst;
  // The first byte that is copied, at any alignment; best with the alignment of `dst` modulo 16. Null for a pattern.
  const unsigned char* src;
  // Bytes from one row that is written to the next.
  unsigned long long dst_pitch;
  // Bytes from one row that is read to the next.
  unsigned long long src_pitch;
  // Up to eight bytes that are repeated from the first byte of each row on, the first one in the lowest bits.
  unsigned long long pattern;
  // Bytes of the pattern; 0 to copy.
  unsigned period;
  // Bytes of a row, at least 1.
  unsigned bytes;
  // Number of rows, at least 1.
  unsigned rows;
  // Aligned groups of BLUR_COVER_GROUP bytes that a row touches at most, wherever it begins.
  unsigned groups;
  // Index in the launch of this rectangle's first block.
  unsigned first_block;
  // Padding.
  unsigned reserved;
};

// Parameter of `blur_cover`, passed by value.
struct CoverArgs {
  // In the order of their blocks. The `first_block` of an unused entry is larger than any block index. Where rectangles
  // overlap, they have the same bytes; what is read is not written.
  CoverRect rects[BLUR_COVER_RECTS];
};
static_assert(sizeof(CoverArgs) == BLUR_COVER_ARGS_BYTES, "the host passes BLUR_COVER_ARGS_BYTES bytes");

// One field of a plane, of which mosaics are made: the channels whose samples stand for the same luma samples.
struct MosaicPlane {
  // First sample of the field, at any alignment.
  unsigned char* rows;
  // Bytes from one row of the field to the next.
  unsigned long long pitch;
  // How each channel is stored.
  StoredChannel layout[4];
  // Bytes of a sample's word; with 4 the channels are all those of a pixel.
  unsigned word_bytes;
  // Number of channels, 1 to 4.
  unsigned channels;
  // Samples of a channel in a row, and rows of the field, that the picture has.
  unsigned count[2];
  // Base-2 logarithm of the luma samples from one sample to the next, along rows and down columns.
  unsigned unit_log2[2];
  // The first luma sample that the first sample stands for.
  unsigned luma[2];
};

// The cells of a mosaic in a plane. A cell is a square of luma samples; a sample belongs to the cell of the first luma sample that
// it stands for.
struct MosaicGrid {
  // 64-bit sums by cell, part and channel, aligned to 8 bytes.
  unsigned char* sums;
  // The first luma sample of the first cell, which may be outside of the picture.
  int origin[2];
  // The side of a cell, in luma samples.
  unsigned side;
  // Cells side by side.
  unsigned cells_across;
  // The samples that are written, columns and rows of the field: first and end, exclusive. The end of the columns may be
  // one sample beyond `count`.
  unsigned covered[2][2];
  // Parts of the samples of a cell, each of which is a block.
  unsigned short parts;
  // Index of the plane in the launch.
  unsigned short plane;
  // Index in the launch of the block of this grid's first cell.
  unsigned first_block;
};

// Parameter of `blur_mosaic_sums` and `blur_mosaic_write`, passed by value.
struct MosaicArgs {
  // Those that the grids name.
  MosaicPlane planes[BLUR_MOSAIC_PLANES];
  // In the order of their blocks. The `first_block` of an unused entry is larger than any block index. Those of one launch
  // of `blur_mosaic_write` cover no sample twice.
  MosaicGrid grids[BLUR_MOSAIC_GRIDS];
};
static_assert(sizeof(MosaicArgs) == BLUR_MOSAIC_ARGS_BYTES, "the host passes BLUR_MOSAIC_ARGS_BYTES bytes");

// Samples of one field of a plane that are mixed with a cover by weights, or whose means are computed: the channels whose
// samples stand for the same luma samples. docs/ARITHMETIC.md has the formulas.
struct SoftGrid {
  // First sample of the field that is read, at any alignment.
  const unsigned char* src;
  // First sample of the field that is written, at any alignment; it may be `src`.
  unsigned char* dst;
  // First sample of the field of what is mixed in, at any alignment; null for estimates of the cells.
  const unsigned char* cover;
  // 32-bit cells by row, column and channel, aligned to 4 bytes; behind them as many estimates.
  unsigned char* cells;
  // Weights at the nodes, by row.
  const unsigned char* nodes;
  // Bytes from one row of the field to the next.
  unsigned long long src_pitch;
  unsigned long long dst_pitch;
  unsigned long long cover_pitch;
  // How each channel is stored.
  StoredChannel layout[4];
  // Bytes of a sample's word.
  unsigned word_bytes;
  // Number of channels, 1 to 4.
  unsigned channels;
  // Bit c: channel c of the grid keeps its value.
  unsigned kept;
  // Samples of a channel in a row, and rows of the field, that the picture has.
  unsigned count[2];
  // Base-2 logarithm of the luma samples from one sample to the next, along rows and down columns.
  unsigned unit_log2[2];
  // The first luma sample that the first sample stands for.
  unsigned luma[2];
  // Fields that the rows of the picture alternate between.
  unsigned fields;
  // Width and height of the picture, in luma samples.
  unsigned size[2];
  // Columns of nodes, and rows of them.
  unsigned node_count[2];
  // Base-2 logarithm of the luma samples from one node to the next.
  unsigned node_log2;
  // The side of a cell, in luma samples: two to the power of `side_log2`.
  unsigned side;
  unsigned side_log2;
  // Columns of cells, and rows of them.
  unsigned cell_count[2];
  // The samples that are written, columns and rows of the field: first and end, exclusive. The end of the columns may be
  // one sample beyond `count`.
  unsigned covered[2][2];
  // Tiles beside each other: a block mixes one, of a run of each lane of a warp, and the rows of all its warps.
  unsigned tiles;
  // Index in the launch of the block of this grid's first cell, channel or tile.
  unsigned first_block;
  // Padding.
  unsigned reserved;
};

// Parameter of `blur_soft_cells`, `blur_soft_spread` and `blur_soft_mix`, passed by value.
struct SoftArgs {
  // In the order of their blocks. The `first_block` of an unused entry is larger than any block index. Those of one launch
  // of `blur_soft_mix` write no sample twice.
  SoftGrid grids[BLUR_SOFT_GRIDS];
};
static_assert(sizeof(SoftArgs) == BLUR_SOFT_ARGS_BYTES, "the host passes BLUR_SOFT_ARGS_BYTES bytes");
#endif
