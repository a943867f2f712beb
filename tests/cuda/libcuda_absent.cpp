// SPDX-License-Identifier: MPL-2.0
// The driver's stand-in: what it lacks. GStreamer's CUDA library does not load without these names, but gets on without
// what they do.
#define ABSENT(name) \
  extern "C" int name() { return 801; }

// OpenGL and EGL.
ABSENT(cuGLGetDevices_v2)
ABSENT(cuGraphicsEGLRegisterImage)
ABSENT(cuGraphicsGLRegisterBuffer)
ABSENT(cuGraphicsGLRegisterImage)
ABSENT(cuGraphicsMapResources)
ABSENT(cuGraphicsResourceGetMappedEglFrame)
ABSENT(cuGraphicsResourceGetMappedPointer_v2)
ABSENT(cuGraphicsResourceSetMapFlags_v2)
ABSENT(cuGraphicsSubResourceGetMappedArray)
ABSENT(cuGraphicsUnmapResources)
ABSENT(cuGraphicsUnregisterResource)

// Textures, which its kernels for other formats and sizes read from.
ABSENT(cuTexObjectCreate)
ABSENT(cuTexObjectDestroy)

// Since GStreamer 1.24: memory of other processes.
ABSENT(cuIpcCloseMemHandle)
ABSENT(cuIpcGetEventHandle)
ABSENT(cuIpcGetMemHandle)
ABSENT(cuIpcOpenEventHandle)
ABSENT(cuIpcOpenMemHandle)

// Since GStreamer 1.26.
ABSENT(cuCtxGetLimit)
ABSENT(cuCtxSetLimit)
