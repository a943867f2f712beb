// SPDX-License-Identifier: MPL-2.0
// NVIDIA's decoder library, of a device that decodes nothing: GStreamer 1.22 has cudaupload and cudadownload only where
// there is one, or an encoder.
#define ABSENT(name) \
  extern "C" int name() { return 801; }

ABSENT(cuvidCreateDecoder)
ABSENT(cuvidCreateVideoParser)
ABSENT(cuvidCtxLock)
ABSENT(cuvidCtxLockCreate)
ABSENT(cuvidCtxLockDestroy)
ABSENT(cuvidCtxUnlock)
ABSENT(cuvidDecodePicture)
ABSENT(cuvidDestroyDecoder)
ABSENT(cuvidDestroyVideoParser)
ABSENT(cuvidGetDecoderCaps)
ABSENT(cuvidMapVideoFrame)
ABSENT(cuvidMapVideoFrame64)
ABSENT(cuvidParseVideoData)
ABSENT(cuvidUnmapVideoFrame)
ABSENT(cuvidUnmapVideoFrame64)
