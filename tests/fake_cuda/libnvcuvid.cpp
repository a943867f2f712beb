// SPDX-License-Identifier: MPL-2.0
// A fake of NVIDIA's decoder library that decodes nothing. GStreamer 1.22 registers cudaupload and cudadownload only if
// a decoder or encoder library can be loaded.
#include "cuda_names.h"

#define UNSUPPORTED(name) \
  extern "C" int name() { return CUDA_ERROR_NOT_SUPPORTED; }

UNSUPPORTED(cuvidCreateDecoder)
UNSUPPORTED(cuvidCreateVideoParser)
UNSUPPORTED(cuvidCtxLock)
UNSUPPORTED(cuvidCtxLockCreate)
UNSUPPORTED(cuvidCtxLockDestroy)
UNSUPPORTED(cuvidCtxUnlock)
UNSUPPORTED(cuvidDecodePicture)
UNSUPPORTED(cuvidDestroyDecoder)
UNSUPPORTED(cuvidDestroyVideoParser)
UNSUPPORTED(cuvidGetDecoderCaps)
UNSUPPORTED(cuvidMapVideoFrame)
UNSUPPORTED(cuvidMapVideoFrame64)
UNSUPPORTED(cuvidParseVideoData)
UNSUPPORTED(cuvidUnmapVideoFrame)
UNSUPPORTED(cuvidUnmapVideoFrame64)
