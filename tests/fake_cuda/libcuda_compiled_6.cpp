// SPDX-License-Identifier: MPL-2.0
// The fake CUDA driver: the compiled kernel for radii from 33 to 40.
#define COMPILED_TILES 6
#include "compiled.h"
