/* SPDX-License-Identifier: MIT */
/** @file library.hpp
 *  Handles of vendor libraries that are loaded at run time: cuBLAS and NCCL.
 */
#include <loch/cpp/require.hpp>
#if LOCH_CPP && !defined(LOCH_CPP_LIBRARY_HPP)
#define LOCH_CPP_LIBRARY_HPP

#include <loch/cpp/stream.hpp>
#include <loch/library.h>

namespace loch
{

namespace detail
{

template <> struct calls<loch_cublas> {
    static constexpr const char *name = "cublas";
    static void release(loch_cublas *raw) noexcept { loch_cublas_destroy(raw); }
};

template <> struct calls<loch_nccl> {
    static constexpr const char *name = "nccl";
};

/* The methods of cuBLAS handles, owned or of a context. */
template <class Handle> class cublas_calls : public Handle
{
  public:
    cublas_calls() noexcept = default;
    explicit cublas_calls(loch_cublas *raw) noexcept : Handle(raw) {}

    /** Returns the cublasHandle_t. Borrowed. Makes the CUDA context of the device current in the calling thread. */
    void *native() const
    {
        void *found = nullptr;
        check(loch_cublas_get_native(this->need(), &found));
        return found;
    }
};

} // namespace detail

/** Loads a library once for the process. Returns its version number. */
inline int load(loch_library library)
{
    int version = 0;
    check(loch_library_load(library, &version));
    return version;
}
/** Finds a function of a library by name, as a function of type Function: find<int(int *)>(LOCH_LIBRARY_NCCL,
 *  "ncclGetVersion"). */
template <class Function> Function *find(loch_library library, const text &symbol)
{
    void *found = nullptr;
    check(loch_library_find(library, symbol.get(), &found));
    return reinterpret_cast<Function *>(found);
}

/** A cuBLAS handle on one device. Can be moved but not copied. One thread at a time. */
class cublas : public detail::cublas_calls<detail::owned<loch_cublas>>
{
  public:
    /** Makes an empty handle. */
    cublas() noexcept = default;
    /** Creates a handle that works on a stream; nullptr for the default stream. */
    explicit cublas(const device &of, stream_ref on = nullptr)
    {
        check(loch_cublas_create(of.get(), on.get(), slot()));
    }
    cublas(cublas &&) noexcept = default;
    cublas &operator=(cublas &&) noexcept = default;
};

/** The cuBLAS handle of a context: borrowed. */
using cublas_ref = detail::cublas_calls<detail::borrowed<loch_cublas>>;

/** The NCCL communicators of an engine: borrowed. */
class nccl_ref : public detail::borrowed<loch_nccl>
{
  public:
    nccl_ref() noexcept = default;
    explicit nccl_ref(loch_nccl *raw) noexcept : borrowed(raw) {}

    /** Returns the ncclComm_t of a rank. Borrowed. Makes the CUDA context of its device current in the thread. */
    void *native(std::size_t rank) const
    {
        void *found = nullptr;
        check(loch_nccl_get_native(need(), rank, &found));
        return found;
    }
};

} // namespace loch

#endif
