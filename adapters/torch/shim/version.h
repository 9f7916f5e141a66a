// SPDX-License-Identifier: MIT
// The version of the PyTorch headers that the shim is compiled against. Structs of PyTorch grow in the middle, so a
// shim serves one minor version only.
#pragma once

#include <torch/headeronly/version.h>

#define LOCH_TORCH_AT_LEAST(minor) (TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= (minor))
#if !LOCH_TORCH_AT_LEAST(11)
#error "the shim needs the headers of PyTorch 2.11 or later"
#endif
