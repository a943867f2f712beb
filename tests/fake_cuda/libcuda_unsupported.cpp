// SPDX-License-Identifier: MPL-2.0
// Driver functions that the fake CUDA driver does not implement. GStreamer's CUDA library does not load unless these
// symbols exist, but the tested code does not depend on them: each reports CUDA_ERROR_NOT_SUPPORTED.
#include "cuda_names.h"

#define UNSUPPORTED(name) \
  extern "C" int name() { return CUDA_ERROR_NOT_SUPPORTED; }

// OpenGL and EGL.
UNSUPPORTED(cuGLGetDevices_v2)
UNSUPPORTED(cuGraphicsEGLRegisterImage)
UNSUPPORTED(cuGraphicsGLRegisterBuffer)
UNSUPPORTED(cuGraphicsGLRegisterImage)
UNSUPPORTED(cuGraphicsMapResources)
UNSUPPORTED(cuGraphicsResourceGetMappedEglFrame)
UNSUPPORTED(cuGraphicsResourceGetMappedPointer_v2)
UNSUPPORTED(cuGraphicsResourceSetMapFlags_v2)
UNSUPPORTED(cuGraphicsSubResourceGetMappedArray)
UNSUPPORTED(cuGraphicsUnmapResources)
UNSUPPORTED(cuGraphicsUnregisterResource)

// Direct3D, on Windows.
UNSUPPORTED(cuD3D11GetDevice)
UNSUPPORTED(cuD3D11GetDevices)
UNSUPPORTED(cuGraphicsD3D11RegisterResource)

// Textures, which GStreamer's conversion and scaling kernels read.
UNSUPPORTED(cuTexObjectCreate)
UNSUPPORTED(cuTexObjectDestroy)

// Memory shared between processes (GStreamer 1.24 and later).
UNSUPPORTED(cuIpcCloseMemHandle)
UNSUPPORTED(cuIpcGetEventHandle)
UNSUPPORTED(cuIpcGetMemHandle)
UNSUPPORTED(cuIpcOpenEventHandle)
UNSUPPORTED(cuIpcOpenMemHandle)

// Context limits (GStreamer 1.26 and later).
UNSUPPORTED(cuCtxGetLimit)
UNSUPPORTED(cuCtxSetLimit)
