// SPDX-License-Identifier: MPL-2.0
// Launches of kernels on the CPU by the names they have in an image. Include after kernels/blur.cu.
#ifndef BLUR_BY_NAME_H
#define BLUR_BY_NAME_H
#include <cstring>
#include <map>
#include <string>

struct ByName {
  void (*blur)(BlurArgs);
  void (*alpha)(AlphaArgs);
};

inline const std::map<std::string, ByName> BY_NAME = {
#define BLUR_NAME(name) {#name, {name, nullptr}}
#define BLUR_NAMES(pixels) BLUR_NAME(blur_fused_##pixels), BLUR_NAME(blur_rows_##pixels)
#ifdef BLUR_SPECIAL_0
    BLUR_NAME(blur_special),
#else
    BLUR_NAMES(u8_c12), BLUR_NAMES(u8_c3), BLUR_NAMES(u8_c4), BLUR_NAMES(yuv422),
    BLUR_NAMES(u16_c12), BLUR_NAMES(u16_c3), BLUR_NAMES(u16_c4), BLUR_NAMES(ten),
    BLUR_NAME(blur_columns),
    {"blur_multiply", {nullptr, blur_multiply}},
    {"blur_finish", {nullptr, blur_finish}},
#endif
};

// Runs a kernel to its end; false if there is none of this name.
inline bool launch_by_name(
    const std::string& name, unsigned blocks, unsigned threads, std::size_t shared, const void* parameter) {
  const auto found = BY_NAME.find(name);
  if (found == BY_NAME.end()) return false;
  if (found->second.blur) {
    BlurArgs args;
    std::memcpy(&args, parameter, sizeof args);
    blur_launch(found->second.blur, blocks, threads, shared, args);
  } else {
    AlphaArgs args;
    std::memcpy(&args, parameter, sizeof args);
    blur_launch(found->second.alpha, blocks, threads, shared, args);
  }
  return true;
}

// The bytes of a kernel's parameter.
inline std::size_t parameter_bytes(const std::string& name) {
  return BY_NAME.at(name).blur ? sizeof(BlurArgs) : sizeof(AlphaArgs);
}

// Gives every address in a parameter its place in this process.
template <class Place> void relocate(const std::string& name, void* parameter, Place place) {
  if (BY_NAME.at(name).blur) {
    auto& args = *static_cast<BlurArgs*>(parameter);
    for (BlurPlane& plane : args.planes) {
      plane.src = place(plane.src);
      plane.dst = place(plane.dst);
      plane.scratch = place(plane.scratch);
    }
  } else {
    auto& args = *static_cast<AlphaArgs*>(parameter);
    args.src = place(args.src);
    args.dst = place(args.dst);
    args.product = place(args.product);
    args.alpha_src = place(args.alpha_src);
  }
}
#endif
