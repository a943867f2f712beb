// SPDX-License-Identifier: MPL-2.0
// The fake CUDA driver: the compiled kernel for radii from 17 to 24.
#define COMPILED_TILES 4
#include "compiled.h"
