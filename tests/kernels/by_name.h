// SPDX-License-Identifier: MPL-2.0
// Launches kernels on the CPU by the names of their entry points. Include it after kernels/blur.cu.
#ifndef BLUR_BY_NAME_H
#define BLUR_BY_NAME_H
#include <cstring>
#include <map>
#include <string>

// Exactly one of them is set: entry points differ in the type of their parameter.
struct ByName {
  void (*alpha)(AlphaArgs) = nullptr;
  void (*rows)(RowsArgs) = nullptr;
  void (*columns)(ColumnsArgs) = nullptr;
  void (*tensor)(TensorArgs) = nullptr;
  void (*cover)(CoverArgs) = nullptr;
  void (*mosaic)(MosaicArgs) = nullptr;
  void (*soft)(SoftArgs) = nullptr;
};

inline const std::map<std::string, ByName> BY_NAME = {
#define BLUR_TENSOR_NAMES(pixels) \
    {"blur_tensor_decimate_" #pixels, {.tensor = blur_tensor_decimate_##pixels}}, \
    {"blur_tensor_interpolate_" #pixels, {.tensor = blur_tensor_interpolate_##pixels}},
#ifdef BLUR_TENSOR_DIRECT_TILES
#define BLUR_COMPILED_NAME(family) {"blur_tensor_direct_" #family "_long", {.tensor = blur_tensor_direct_##family##_long}},
#define BLUR_COMPILED_NAME_OF(family) BLUR_COMPILED_NAME(family)
    BLUR_COMPILED_NAME_OF(BLUR_COMPILED_FAMILY)
#else
    {"blur_rows", {.rows = blur_rows}},
    {"blur_columns", {.columns = blur_columns}},
#endif
#if !BLUR_PART
    {"blur_decimate_rows", {.rows = blur_decimate_rows}},
    {"blur_interpolate_rows", {.rows = blur_interpolate_rows}},
    {"blur_decimate_columns", {.columns = blur_decimate_columns}},
    {"blur_interpolate_columns", {.columns = blur_interpolate_columns}},
    BLUR_TENSOR_NAMES(u8_c12) BLUR_TENSOR_NAMES(u8_c3_s4) BLUR_TENSOR_NAMES(u8_c3_s2)
    BLUR_TENSOR_NAMES(u8_c4_s4) BLUR_TENSOR_NAMES(u8_c4_s2) BLUR_TENSOR_NAMES(small)
    BLUR_TENSOR_NAMES(u16_c12) BLUR_TENSOR_NAMES(packed1010102_s4) BLUR_TENSOR_NAMES(packed1010102_s2) BLUR_TENSOR_NAMES(yuv422)
    BLUR_TENSOR_NAMES(u16_c4_s4) BLUR_TENSOR_NAMES(u16_c4_s2)
#define BLUR_DIRECT_NAMES(family) \
    {"blur_tensor_direct_" #family "_short", {.tensor = blur_tensor_direct_##family##_short}}, \
    {"blur_tensor_direct_" #family "_medium", {.tensor = blur_tensor_direct_##family##_medium}}, \
    {"blur_tensor_direct_" #family "_long", {.tensor = blur_tensor_direct_##family##_long}},
    BLUR_DIRECT_NAMES(u8_c12) BLUR_DIRECT_NAMES(u8_c3) BLUR_DIRECT_NAMES(u8_c4)
    BLUR_DIRECT_NAMES(u16_c12) BLUR_DIRECT_NAMES(u16_c4) BLUR_DIRECT_NAMES(yuv422) BLUR_DIRECT_NAMES(packed1010102)
    {"blur_tensor_blur_short", {.tensor = blur_tensor_blur_short}},
    {"blur_tensor_blur_long", {.tensor = blur_tensor_blur_long}},
    {"blur_premultiply", {.alpha = blur_premultiply}},
    {"blur_unpremultiply", {.alpha = blur_unpremultiply}},
    {"blur_cover", {.cover = blur_cover}},
    {"blur_mosaic_sums", {.mosaic = blur_mosaic_sums}},
    {"blur_mosaic_write", {.mosaic = blur_mosaic_write}},
    {"blur_soft_cells", {.soft = blur_soft_cells}},
    {"blur_soft_spread", {.soft = blur_soft_spread}},
    {"blur_soft_mix", {.soft = blur_soft_mix}},
#ifdef BLUR_COMPILED_KERNEL
    BLUR_COMPILED_KERNEL
#endif
#endif
};

// Calls `use` with the kernel and its parameter, of the kernel's type.
template <class Use> void with_parameter(const ByName& found, void* parameter, Use use) {
  if (found.alpha) use(found.alpha, static_cast<AlphaArgs*>(parameter));
  if (found.rows) use(found.rows, static_cast<RowsArgs*>(parameter));
  if (found.columns) use(found.columns, static_cast<ColumnsArgs*>(parameter));
  if (found.tensor) use(found.tensor, static_cast<TensorArgs*>(parameter));
  if (found.cover) use(found.cover, static_cast<CoverArgs*>(parameter));
  if (found.mosaic) use(found.mosaic, static_cast<MosaicArgs*>(parameter));
  if (found.soft) use(found.soft, static_cast<SoftArgs*>(parameter));
}

// Runs a kernel and returns when it has ended; false if no kernel has this name.
inline bool launch_by_name(
    const std::string& name, unsigned blocks, unsigned threads, std::size_t shared, void* parameter) {
  const auto found = BY_NAME.find(name);
  if (found == BY_NAME.end()) return false;
  with_parameter(found->second, parameter, [&](auto kernel, auto* args) { blur_launch(kernel, blocks, threads, shared, *args);
  });
  return true;
}

// Size of a kernel's parameter in bytes.
inline std::size_t parameter_bytes(const std::string& name) {
  std::size_t bytes = 0;
  with_parameter(BY_NAME.at(name), nullptr, [&](auto, auto* args) { bytes = sizeof *args; });
  return bytes;
}

// Replaces every address in a kernel's parameter by `translate(address)`.
template <class Translate> void relocate_planes(RowsArgs& args, Translate translate) {
  for (RowsPlane& plane : args.planes) {
    plane.larger = translate(plane.larger);
    for (RowsPart& part : plane.parts) part.samples = translate(part.samples);
  }
}
template <class Translate> void relocate_planes(ColumnsArgs& args, Translate translate) {
  for (ColumnsPlane& plane : args.planes) {
    plane.src = translate(plane.src);
    plane.dst = translate(plane.dst);
  }
}
template <class Translate> void relocate_planes(TensorArgs& args, Translate translate) {
  for (TensorPlane& plane : args.planes) {
    plane.src = translate(plane.src);
    plane.dst = translate(plane.dst);
    plane.decimated = translate(plane.decimated);
    plane.blurred = translate(plane.blurred);
  }
}
template <class Translate> void relocate_planes(AlphaArgs& args, Translate translate) {
  args.src = translate(args.src);
  args.dst = translate(args.dst);
  args.premultiplied = translate(args.premultiplied);
  args.alpha_src = translate(args.alpha_src);
}
template <class Translate> void relocate_planes(CoverArgs& args, Translate translate) {
  for (CoverRect& rect : args.rects) {
    rect.src = translate(rect.src);
    rect.dst = translate(rect.dst);
  }
}
template <class Translate> void relocate_planes(MosaicArgs& args, Translate translate) {
  for (MosaicPlane& plane : args.planes) plane.rows = translate(plane.rows);
  for (MosaicGrid& grid : args.grids) grid.sums = translate(grid.sums);
}
template <class Translate> void relocate_planes(SoftArgs& args, Translate translate) {
  for (SoftGrid& grid : args.grids) {
    grid.src = translate(grid.src);
    grid.dst = translate(grid.dst);
    grid.cover = translate(grid.cover);
    grid.cells = translate(grid.cells);
    grid.nodes = translate(grid.nodes);
  }
}
template <class Translate> void relocate(const std::string& name, void* parameter, Translate translate) {
  with_parameter(BY_NAME.at(name), parameter, [&](auto, auto* args) { relocate_planes(*args, translate); });
}
#endif
