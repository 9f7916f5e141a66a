/* SPDX-License-Identifier: MIT */
/** @file npy.hpp
 *  Tensors in NumPy's .npy files.
 */
#include <loch/cpp/require.hpp>
#if LOCH_CPP && !defined(LOCH_CPP_NPY_HPP)
#define LOCH_CPP_NPY_HPP

#include <loch/cpp/tensor.hpp>
#include <loch/npy.h>

namespace loch
{

/** The functions of npy.h. */
namespace npy
{

/** Writes a tensor to a file. An existing file is replaced only when the new one is complete. */
inline void save(const tensor &from, const text &path, const options<loch_npy_save_options> &how = nullptr)
{
    check(loch_npy_save(from.need(), path.get(), how.get()));
}
/** Loads a tensor from a file: into host memory, or mapped. */
inline tensor load(const text &path, const options<loch_npy_load_options> &how = nullptr)
{
    loch_tensor *made = nullptr;
    check(loch_npy_load(path.get(), how.get(), &made));
    return tensor::take(made);
}
/** Loads a tensor from a file to a place. */
inline tensor load(const text &path, const place &where)
{
    auto how = sized<loch_npy_load_options>();
    const detail::tensor_memory memory(where);
    how.memory = memory.get();
    return load(path, how);
}

} // namespace npy

} // namespace loch

#endif
