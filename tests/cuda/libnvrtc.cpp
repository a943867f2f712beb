// SPDX-License-Identifier: MPL-2.0
// A compiler for machines without NVRTC: takes its time, fails when told to, and makes images that the stand-in for the
// driver (libcuda.cpp) understands. Controlled by tests/special.rs.
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <unistd.h>

namespace {

struct Program {
  std::string image;
};

int number(const char* variable, int otherwise) {
  const char* text = std::getenv(variable);
  return text ? std::atoi(text) : otherwise;
}

int compiles = 0, thread = 0;
const std::string LOG = "as the stand-in was told";

}  // namespace

extern "C" {

int fake_compiles() { return compiles; }
int fake_thread() { return thread; }

int nvrtcVersion(int* major, int* minor) {
  *major = number("FAKE_NVRTC_VERSION", 1208) / 100;
  *minor = number("FAKE_NVRTC_VERSION", 1208) % 100;
  return 0;
}
const char* nvrtcGetErrorString(int) { return "NVRTC_ERROR_COMPILATION"; }
int nvrtcGetNumSupportedArchs(int* count) {
  *count = 3;
  return 0;
}
int nvrtcGetSupportedArchs(int* architectures) {
  architectures[0] = 75;
  architectures[1] = 80;
  architectures[2] = number("FAKE_NVRTC_NEWEST", 90);
  return 0;
}
int nvrtcCreateProgram(Program** program, const char* source, const char*, int headers, const char** contents,
                       const char** names) {
  *program = new Program;
  return std::strstr(source, "blur_special") && headers == 2 && !std::strcmp(names[0], "shared.h") &&
                 std::strstr(contents[0], "BlurArgs")
             ? 0
             : 5;
}
int nvrtcDestroyProgram(Program** program) {
  delete *program;
  return 0;
}
int nvrtcCompileProgram(Program* program, int count, const char** options) {
  compiles++;
  thread = gettid();
  std::this_thread::sleep_for(std::chrono::milliseconds(number("FAKE_NVRTC_MS", 20)));
  std::string target, sample, channels;
  for (int i = 0; i < count; i++) {
    const std::string option = options[i];
    const auto value = option.substr(option.find('=') + 1);
    if (option.starts_with("--gpu-architecture=")) target = value;
    if (option.starts_with("-DBLUR_SAMPLE_TYPE=")) sample = value;
    if (option.starts_with("-DBLUR_CHANNEL_COUNT=")) channels = value;
  }
  program->image = "SPECIAL " + target + " blur_fused_" + sample + "_c" + channels + " ";
  return number("FAKE_NVRTC_STATUS", 0);
}
int nvrtcGetProgramLogSize(Program*, std::size_t* size) {
  *size = LOG.size() + 1;
  return 0;
}
int nvrtcGetProgramLog(Program*, char* log) {
  std::strcpy(log, LOG.c_str());
  return 0;
}
static int size(Program* program, std::size_t* size, const char* target) {
  *size = program->image.size();
  return program->image.find(target) == std::string::npos ? 9 : 0;
}
int nvrtcGetCUBINSize(Program* program, std::size_t* bytes) { return size(program, bytes, " sm_"); }
int nvrtcGetPTXSize(Program* program, std::size_t* bytes) { return size(program, bytes, " compute_"); }
int nvrtcGetCUBIN(Program* program, char* image) {
  std::memcpy(image, program->image.data(), program->image.size());
  return 0;
}
int nvrtcGetPTX(Program* program, char* image) { return nvrtcGetCUBIN(program, image); }
}
