// SPDX-License-Identifier: MPL-2.0
// Launches kernels on the CPU by the names of their entry points. Include it after kernels/blur.cu.
#ifndef BLUR_BY_NAME_H
#define BLUR_BY_NAME_H
#include <cstring>
#include <map>
#include <string>

// Exactly one of the two is set: entry points differ in the type of their parameter.
struct ByName {
  void (*blur)(BlurArgs);
  void (*alpha)(AlphaArgs);
};

inline const std::map<std::string, ByName> BY_NAME = {
#define BLUR_NAME(name) {#name, {name, nullptr}},
#define BLUR_FAMILY_NAMES(family) BLUR_NAME(blur_fused_##family) BLUR_NAME(blur_rows_##family)
#ifdef BLUR_SPECIALISED_0
    BLUR_NAME(blur_specialised)
#else
    BLUR_FAMILIES(BLUR_FAMILY_NAMES)
    BLUR_NAME(blur_columns)
    {"blur_premultiply", {nullptr, blur_premultiply}},
    {"blur_unpremultiply", {nullptr, blur_unpremultiply}},
#endif
};

// Runs a kernel and returns when it has ended; false if no kernel has this name.
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

// Size of a kernel's parameter in bytes.
inline std::size_t parameter_bytes(const std::string& name) {
  return BY_NAME.at(name).blur ? sizeof(BlurArgs) : sizeof(AlphaArgs);
}

// Replaces every address in a kernel's parameter by `translate(address)`.
template <class Translate> void relocate(const std::string& name, void* parameter, Translate translate) {
  if (BY_NAME.at(name).blur) {
    auto& args = *static_cast<BlurArgs*>(parameter);
    for (BlurPlane& plane : args.planes) {
      plane.src = translate(plane.src);
      plane.dst = translate(plane.dst);
      plane.workspace = translate(plane.workspace);
    }
  } else {
    auto& args = *static_cast<AlphaArgs*>(parameter);
    args.src = translate(args.src);
    args.dst = translate(args.dst);
    args.premultiplied = translate(args.premultiplied);
    args.alpha_src = translate(args.alpha_src);
  }
}
#endif
