/* SPDX-License-Identifier: MIT */
/** @file tensor.hpp
 *  Tensors for C++17: all of libloch_tensor, and what loch/loch.hpp has.
 *
 *      loch::tensor a = loch::tensor::full({2, 3}, 1.5f);
 *      std::cout << a.transpose(0, 1).to(loch::device("sim:1GiB")) << '\n';
 */
#ifndef LOCH_TENSOR_HPP
#define LOCH_TENSOR_HPP

#include <loch/loch.hpp>

#if LOCH_CPP
#include <loch/tensor.h>

#include <loch/cpp/dtype.hpp>
#include <loch/cpp/sizes.hpp>
#include <loch/cpp/tensor.hpp>
#include <loch/cpp/mapping.hpp>
#include <loch/cpp/npy.hpp>
#include <loch/cpp/dlpack.hpp>
#endif

#endif
