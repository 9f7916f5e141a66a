/* SPDX-License-Identifier: MIT */
/** @file dlpack.hpp
 *  DLPack: tensors to and from other libraries of the process, without a copy.
 */
#include <loch/cpp/require.hpp>
#if LOCH_CPP && !defined(LOCH_CPP_DLPACK_HPP)
#define LOCH_CPP_DLPACK_HPP

#include <loch/cpp/tensor.hpp>
#include <loch/dlpack.h>

namespace loch
{

namespace detail
{

/* The part of the structures that is needed to call a deleter. The layout is fixed by DLPack; the header of DLPack
 * itself need not be there. */
struct dlpack_versioned_head {
    std::uint32_t version[2];
    void *context;
    void (*deleter)(DLManagedTensorVersioned *);
};
struct dlpack_legacy_head {
    void *data;
    std::int32_t device[2];
    std::int32_t dimensions;
    std::uint32_t type;
    std::int64_t *shape, *strides;
    std::uint64_t offset;
    void *context;
    void (*deleter)(DLManagedTensor *);
};

template <> struct calls<DLManagedTensorVersioned> {
    static constexpr const char *name = "dlpack";
    static void release(DLManagedTensorVersioned *raw) noexcept
    {
        auto *deleter = reinterpret_cast<const dlpack_versioned_head *>(raw)->deleter;
        if (deleter) deleter(raw);
    }
};
template <> struct calls<DLManagedTensor> {
    static constexpr const char *name = "dlpack_legacy";
    static void release(DLManagedTensor *raw) noexcept
    {
        auto *deleter = reinterpret_cast<const dlpack_legacy_head *>(raw)->deleter;
        if (deleter) deleter(raw);
    }
};

} // namespace detail

/** A DLPack structure of version 1 with one owner. Its deleter is called at the end, unless release() has given it to
 *  another library. Can be moved but not copied. */
class dlpack : public detail::owned<DLManagedTensorVersioned>
{
  public:
    /** Makes an empty handle. */
    dlpack() noexcept = default;
    /** Exports a tensor. The structure keeps its buffer alive. */
    explicit dlpack(const tensor &of, const options<loch_dlpack_export> &how = nullptr)
    {
        check(loch_tensor_to_dlpack(of.need(), how.get(), slot()));
    }
    dlpack(dlpack &&) noexcept = default;
    dlpack &operator=(dlpack &&) noexcept = default;
    /** Takes over a structure of another library. */
    static dlpack take(DLManagedTensorVersioned *raw) noexcept
    {
        dlpack made;
        *made.slot() = raw;
        return made;
    }
    /** Imports the structure as a tensor that shares its memory. The handle is empty then; on failure it keeps the
     *  structure. */
    tensor to_tensor(const options<loch_dlpack_import> &how = nullptr)
    {
        loch_tensor *made = nullptr;
        check(loch_tensor_from_dlpack(need(), how.get(), &made));
        static_cast<void>(release());
        return tensor::take(made);
    }
};

/** A DLPack structure without a version, with one owner. Its deleter is called at the end, unless release() has given
 *  it to another library. Can be moved but not copied. */
class dlpack_legacy : public detail::owned<DLManagedTensor>
{
  public:
    /** Makes an empty handle. */
    dlpack_legacy() noexcept = default;
    /** Exports a tensor. The structure keeps its buffer alive. */
    explicit dlpack_legacy(const tensor &of, const options<loch_dlpack_export> &how = nullptr)
    {
        check(loch_tensor_to_dlpack_legacy(of.need(), how.get(), slot()));
    }
    dlpack_legacy(dlpack_legacy &&) noexcept = default;
    dlpack_legacy &operator=(dlpack_legacy &&) noexcept = default;
    /** Takes over a structure of another library. */
    static dlpack_legacy take(DLManagedTensor *raw) noexcept
    {
        dlpack_legacy made;
        *made.slot() = raw;
        return made;
    }
    /** Imports the structure as a tensor that shares its memory. The handle is empty then; on failure it keeps the
     *  structure. */
    tensor to_tensor(const options<loch_dlpack_import> &how = nullptr)
    {
        loch_tensor *made = nullptr;
        check(loch_tensor_from_dlpack_legacy(need(), how.get(), &made));
        static_cast<void>(release());
        return tensor::take(made);
    }
};

} // namespace loch

#endif
