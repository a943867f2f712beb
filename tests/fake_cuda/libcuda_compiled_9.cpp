// SPDX-License-Identifier: MPL-2.0
// The fake CUDA driver: the compiled kernel for radii from 57 to 63.
#define COMPILED_TILES 9
#include "compiled.h"
