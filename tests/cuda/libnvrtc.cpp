// SPDX-License-Identifier: MPL-2.0
// A compiler for machines without NVRTC: takes its time, fails when told to, and makes images that the stand-in for the
// driver (libcuda.cpp) understands. Controlled by tests/special.rs.
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>
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
  return std::strstr(source, "blur_special") && headers == 5 && !std::strcmp(names[0], "shared.h") &&
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
  std::string target, pixels;
  for (int i = 0; i < count; i++) {
    const std::string option = options[i];
    const auto value = option.substr(option.find('=') + 1);
    if (option.starts_with("--gpu-architecture=")) target = value;
    // "Plain<u8,4>,Fixed<…>" or "Yuv422,Fixed<…>".
    if (option.starts_with("-DBLUR_SPECIAL_0=")) pixels = value.substr(0, value.find(",Fixed"));
  }
  const std::map<std::string, std::string> names = {
      {"Plain<u8,1>", "u8_c12"},   {"Plain<u8,2>", "u8_c12"},   {"Plain<u8,3>", "u8_c3"},   {"Plain<u8,4>", "u8_c4"},
      {"Plain<u16,1>", "u16_c12"}, {"Plain<u16,2>", "u16_c12"}, {"Plain<u16,3>", "u16_c3"}, {"Plain<u16,4>", "u16_c4"},
      {"Yuv422", "yuv422"},        {"Ten", "ten"}};
  const auto name = names.find(pixels);
  if (name == names.end()) return 6;
  program->image = "SPECIAL " + target + " blur_fused_" + name->second + " ";
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
