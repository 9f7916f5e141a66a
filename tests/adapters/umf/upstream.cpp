/* SPDX-License-Identifier: MIT */
/* UMF's own fixtures for pools, of its source tree, instantiated with Loch's pool: on each kind of provider that a
 * machine without special devices has, with each kind of options. tests/adapters/umf/run-upstream builds this file
 * inside a checkout of UMF. */
#include "loch_umf.h"

#include <umf/providers/provider_file_memory.h>
#include <umf/providers/provider_fixed_memory.h>
#include <umf/providers/provider_os_memory.h>

#include "ipcFixtures.hpp"
#include "pool.hpp"
#include "poolFixtures.hpp"
#include "provider.hpp"
#include "provider_null.h"
#include "provider_trace.h"

#include <cstdlib>
#include <memory>
#include <vector>

using umf_test::test;

namespace
{

const umf_memory_pool_ops_t *ops()
{
    return loch_umf_pool_ops();
}

void *os_params()
{
    umf_os_memory_provider_params_handle_t params = nullptr;
    EXPECT_EQ(umfOsMemoryProviderParamsCreate(&params), UMF_RESULT_SUCCESS);
    return params;
}

void *os_shared_params()
{
    void *params = os_params();
    EXPECT_EQ(umfOsMemoryProviderParamsSetVisibility(static_cast<umf_os_memory_provider_params_handle_t>(params),
                                                     UMF_MEM_MAP_SHARED),
              UMF_RESULT_SUCCESS);
    return params;
}

void *os_forbidden_params()
{
    void *params = os_params();
    EXPECT_EQ(umfOsMemoryProviderParamsSetProtection(static_cast<umf_os_memory_provider_params_handle_t>(params),
                                                     UMF_PROTECTION_NONE),
              UMF_RESULT_SUCCESS);
    return params;
}

umf_result_t os_params_destroy(void *params)
{
    return umfOsMemoryProviderParamsDestroy(static_cast<umf_os_memory_provider_params_handle_t>(params));
}

void *fixed_params()
{
    constexpr size_t bytes = size_t(1) << 30;
    static std::unique_ptr<void, decltype(&std::free)> memory(std::malloc(bytes), std::free);
    umf_fixed_memory_provider_params_handle_t params = nullptr;
    EXPECT_EQ(umfFixedMemoryProviderParamsCreate(memory.get(), bytes, &params), UMF_RESULT_SUCCESS);
    return params;
}

umf_result_t fixed_params_destroy(void *params)
{
    return umfFixedMemoryProviderParamsDestroy(static_cast<umf_fixed_memory_provider_params_handle_t>(params));
}

void *file_params()
{
    static const char path[] = "loch_umf_file";
    umf_file_memory_provider_params_handle_t params = nullptr;
    EXPECT_EQ(umfFileMemoryProviderParamsCreate(path, &params), UMF_RESULT_SUCCESS);
    return params;
}

void *file_shared_params()
{
    void *params = file_params();
    EXPECT_EQ(umfFileMemoryProviderParamsSetVisibility(static_cast<umf_file_memory_provider_params_handle_t>(params),
                                                       UMF_MEM_MAP_SHARED),
              UMF_RESULT_SUCCESS);
    return params;
}

umf_result_t file_params_destroy(void *params)
{
    return umfFileMemoryProviderParamsDestroy(static_cast<umf_file_memory_provider_params_handle_t>(params));
}

/* --- options of the pool --- */

const loch_pool_options wiping_options = [] {
    loch_pool_options options = {};
    options.size = sizeof options;
    options.wipe = LOCH_POOL_WIPE_FREED;
    return options;
}();

const loch_pool_options whole_options = [] {
    loch_pool_options options = {};
    options.size = sizeof options;
    options.preset = LOCH_POOL_NO_SPLIT;
    return options;
}();

template <loch_umf_source source, const loch_pool_options *pool> void *loch_params()
{
    static loch_umf_options options = {};
    options.size = sizeof options;
    options.source = source;
    options.pool = pool;
    return &options;
}

umf_result_t loch_params_destroy(void *)
{
    return UMF_RESULT_SUCCESS;
}

/* A provider that aligns to 8 bytes and refuses larger alignments, as UMF's CUDA provider does. */
struct unaligned_provider : public umf_test::provider_ba_global {
    umf_result_t alloc(size_t size, size_t align, void **ptr) noexcept
    {
        return align > 256 ? UMF_RESULT_ERROR_NOT_SUPPORTED : provider_ba_global::alloc(size, align, ptr);
    }
    umf_result_t get_name(const char **name) noexcept
    {
        *name = "unaligned";
        return UMF_RESULT_SUCCESS;
    }
};

umf_memory_provider_ops_t UNALIGNED_OPS = umf_test::providerMakeCOps<unaligned_provider, void>();

const auto params = ::testing::Values(
    poolCreateExtParams{ops(), nullptr, nullptr, umfOsMemoryProviderOps(), os_params, os_params_destroy},
    poolCreateExtParams{ops(), nullptr, nullptr, umfFixedMemoryProviderOps(), fixed_params, fixed_params_destroy},
    poolCreateExtParams{ops(), nullptr, nullptr, umfFileMemoryProviderOps(), file_params, file_params_destroy},
    poolCreateExtParams{ops(), nullptr, nullptr, &umf_test::BA_GLOBAL_PROVIDER_OPS, nullptr, nullptr},
    poolCreateExtParams{ops(), nullptr, nullptr, &UNALIGNED_OPS, nullptr, nullptr},
    poolCreateExtParams{ops(), loch_params<LOCH_UMF_PROVIDER, &wiping_options>, loch_params_destroy,
                        umfOsMemoryProviderOps(), os_params, os_params_destroy},
    poolCreateExtParams{ops(), loch_params<LOCH_UMF_PROVIDER, &whole_options>, loch_params_destroy,
                        umfOsMemoryProviderOps(), os_params, os_params_destroy},
    poolCreateExtParams{ops(), loch_params<LOCH_UMF_DEVICE, nullptr>, loch_params_destroy, &UMF_NULL_PROVIDER_OPS,
                        nullptr, nullptr});

INSTANTIATE_TEST_SUITE_P(lochPoolTest, umfPoolTest, params, poolCreateExtParamsNameGen);

INSTANTIATE_TEST_SUITE_P(lochMultiPoolTest, umfMultiPoolTest,
                         ::testing::Values(poolCreateExtParams{ops(), nullptr, nullptr, umfOsMemoryProviderOps(),
                                                               os_params, os_params_destroy},
                                           poolCreateExtParams{ops(), nullptr, nullptr,
                                                               &umf_test::BA_GLOBAL_PROVIDER_OPS, nullptr, nullptr}),
                         poolCreateExtParamsNameGen);

/* --- a provider that gives memory ten times and then no more. All freed memory comes back from the pool --- */

void *ten_times()
{
    static int times = 10;
    return &times;
}

INSTANTIATE_TEST_SUITE_P(lochMemTest, umfMemTest,
                         ::testing::Values(std::make_tuple(poolCreateExtParams{ops(), nullptr, nullptr,
                                                                               &umf_test::MOCK_OUT_OF_MEM_PROVIDER_OPS,
                                                                               ten_times, nullptr},
                                                           100)));

/* --- IPC --- */

HostMemoryAccessor host;

INSTANTIATE_TEST_SUITE_P(lochIpcTest, umfIpcTest,
                         ::testing::Values(ipcTestParams{ops(), nullptr, nullptr, umfOsMemoryProviderOps(),
                                                         os_shared_params, os_params_destroy, &host},
                                           ipcTestParams{ops(), nullptr, nullptr, umfFileMemoryProviderOps(),
                                                         file_shared_params, file_params_destroy, &host}),
                         ipcTestParamsNameGen);

/* --- what UMF tests for each of its pools --- */

/* The pool keeps its records outside of the memory of the provider, which may be a GPU's. */
TEST_F(test, lochPoolDoesNotTouchMemory)
{
    auto pool = poolCreateExtUnique(
        {ops(), nullptr, nullptr, umfOsMemoryProviderOps(), os_forbidden_params, os_params_destroy});
    std::vector<void *> blocks;
    for (size_t i = 0; i < 1024; i++) {
        blocks.push_back(umfPoolMalloc(pool.get(), 16 + 37 * i));
        ASSERT_NE(blocks.back(), nullptr);
    }
    for (void *block : blocks)
        ASSERT_EQ(umfPoolFree(pool.get(), block), UMF_RESULT_SUCCESS);
}

TEST_F(test, lochPoolNullParams)
{
    auto provider = umf_test::wrapProviderUnique(nullProviderCreate());
    umf_memory_pool_handle_t pool = nullptr;
    ASSERT_EQ(umfPoolCreate(ops(), provider.get(), nullptr, 0, &pool), UMF_RESULT_SUCCESS);
    const char *name = nullptr;
    ASSERT_EQ(umfPoolGetName(pool, &name), UMF_RESULT_SUCCESS);
    EXPECT_STREQ(name, "loch");
    EXPECT_EQ(umfPoolDestroy(pool), UMF_RESULT_SUCCESS);
}

TEST_F(test, lochPoolCustomName)
{
    auto provider = umf_test::wrapProviderUnique(nullProviderCreate());
    loch_umf_options options = {};
    options.size = sizeof options;
    options.name = "custom_loch";
    umf_memory_pool_handle_t pool = nullptr;
    ASSERT_EQ(umfPoolCreate(ops(), provider.get(), &options, 0, &pool), UMF_RESULT_SUCCESS);
    const char *name = nullptr;
    ASSERT_EQ(umfPoolGetName(pool, &name), UMF_RESULT_SUCCESS);
    EXPECT_STREQ(name, "custom_loch");
    EXPECT_EQ(umfPoolDestroy(pool), UMF_RESULT_SUCCESS);
}

} // namespace
