// SPDX-License-Identifier: MPL-2.0
// A fake NVRTC, for tests on machines without it. A compilation waits or fails if told to, and yields an image that the
// fake CUDA driver (libcuda.cpp) loads. tests/jit.rs controls it through environment variables: FAKE_NVRTC_WAITS (if it is
// set, every compilation waits for a call of fake_finish), FAKE_NVRTC_STATUS (the nvrtcResult of a compilation),
// FAKE_NVRTC_VERSION (major * 100 + minor), FAKE_NVRTC_NEWEST (the newest architecture it supports) and FAKE_NVRTC_FAIL
// (the function whose calls fail).
#include "cuda_names.h"

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <thread>

namespace {

struct Program {
  std::string image;
};

int environment_number(const char* variable, int otherwise) {
  const char* text = std::getenv(variable);
  return text ? std::atoi(text) : otherwise;
}

// Tells threads apart.
int this_thread() { return static_cast<int>(std::hash<std::thread::id>()(std::this_thread::get_id())); }

// Compilations so far, those that have ended and those that may end, and the thread of the last one.
std::atomic<int> compilations = 0, finished = 0, allowed = 0, compile_thread = 0;
// Only reached if a test fails: it waits for the compiler, which waits for the test.
const auto LONGEST_WAIT = std::chrono::minutes(2);
const std::string LOG = "log of the fake NVRTC";

bool is_failing(const char* function) {
  const char* failing = std::getenv("FAKE_NVRTC_FAIL");
  return failing && !std::strcmp(failing, function);
}

// The first line of every function: returns an error if its calls fail.
#define ENTER() \
  if (is_failing(__func__)) return NVRTC_ERROR_INVALID_INPUT

}  // namespace

extern "C" {

int fake_compilations() { return compilations; }
int fake_finished() { return finished; }
void fake_finish() { allowed++; }
int fake_compile_thread() { return compile_thread; }
int fake_this_thread() { return this_thread(); }

int nvrtcVersion(int* major, int* minor) {
  ENTER();
  *major = environment_number("FAKE_NVRTC_VERSION", 1208) / 100;
  *minor = environment_number("FAKE_NVRTC_VERSION", 1208) % 100;
  return NVRTC_SUCCESS;
}
const char* nvrtcGetErrorString(int) { return "NVRTC_ERROR_COMPILATION"; }
int nvrtcGetNumSupportedArchs(int* count) {
  ENTER();
  *count = 3;
  return NVRTC_SUCCESS;
}
int nvrtcGetSupportedArchs(int* architectures) {
  ENTER();
  architectures[0] = 75;
  architectures[1] = 80;
  architectures[2] = environment_number("FAKE_NVRTC_NEWEST", 90);
  return NVRTC_SUCCESS;
}
int nvrtcCreateProgram(Program** program, const char* source, const char*, int headers, const char** contents,
                       const char** names) {
  ENTER();
  *program = new Program;
  return std::strstr(source, "blur_rows") && headers == 10 && !std::strcmp(names[0], "abi.h") &&
                 std::strstr(contents[0], "RowsArgs")
             ? NVRTC_SUCCESS
             : NVRTC_ERROR_INVALID_INPUT;
}
int nvrtcDestroyProgram(Program** program) {
  ENTER();
  delete *program;
  return NVRTC_SUCCESS;
}
int nvrtcCompileProgram(Program* program, int count, const char** options) {
  ENTER();
  compile_thread = this_thread();
  const int number = ++compilations;
  const auto begun = std::chrono::steady_clock::now();
  while (std::getenv("FAKE_NVRTC_WAITS") && allowed < number && std::chrono::steady_clock::now() < begun + LONGEST_WAIT)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  finished++;
  std::string target, family, tiles;
  for (int i = 0; i < count; i++) {
    const std::string option = options[i], value = option.substr(option.find('=') + 1);
    if (option.starts_with("--gpu-architecture=")) target = value;
    if (option.starts_with("-DBLUR_PART_direct_")) family = option.substr(19, option.find('=') - 19);
    if (option.starts_with("-DBLUR_TENSOR_DIRECT_TILES=")) tiles = value;
  }
  if (family.empty()) return NVRTC_ERROR_COMPILATION;
  program->image = "FAKEJIT " + target + " .entry blur_tensor_direct_" + family + "_long( tiles " + tiles;
  return environment_number("FAKE_NVRTC_STATUS", NVRTC_SUCCESS);
}
int nvrtcGetProgramLogSize(Program*, std::size_t* size) {
  ENTER();
  *size = LOG.size() + 1;
  return NVRTC_SUCCESS;
}
int nvrtcGetProgramLog(Program*, char* log) {
  ENTER();
  std::strcpy(log, LOG.c_str());
  return NVRTC_SUCCESS;
}
// The image's size, if it was compiled for this kind of target.
static int image_size(Program* program, std::size_t* size, const char* target) {
  *size = program->image.size();
  return program->image.find(target) == std::string::npos ? NVRTC_ERROR_INVALID_PROGRAM : NVRTC_SUCCESS;
}
int nvrtcGetCUBINSize(Program* program, std::size_t* bytes) {
  ENTER();
  return image_size(program, bytes, " sm_");
}
int nvrtcGetPTXSize(Program* program, std::size_t* bytes) {
  ENTER();
  return image_size(program, bytes, " compute_");
}
int nvrtcGetCUBIN(Program* program, char* image) {
  ENTER();
  std::memcpy(image, program->image.data(), program->image.size());
  return NVRTC_SUCCESS;
}
int nvrtcGetPTX(Program* program, char* image) {
  ENTER();
  return nvrtcGetCUBIN(program, image);
}
}
