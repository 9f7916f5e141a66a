/* SPDX-License-Identifier: MIT */
/* cuBLAS reads matrices column by column. So y = x w^T, row by row, is y^T = w x^T for it: w is given as it is and
 * transposed, x as it is. */
#include "cuda.h"
#include <stdlib.h>

enum { OP_N = 0, OP_T = 1, TYPE_F32 = 0, TYPE_F16 = 2, COMPUTE_F32 = 68, ALGORITHM_DEFAULT = -1 }; /* of cublas_api.h */
enum { WORKSPACE_BYTES = 32 << 20 }; /* what cuBLAS itself takes on Hopper */

typedef int gemm_function(void *handle, int transpose_a, int transpose_b, int m, int n, int k, const void *alpha,
                          const void *a, int a_type, int lda, const void *b, int b_type, int ldb, const void *beta,
                          void *c, int c_type, int ldc, int compute, int algorithm);
typedef int set_workspace_function(void *handle, void *workspace, size_t bytes);

struct cuda_product {
    loch_cublas *cublas;
    loch_buffer *workspace;
    void *handle; /* cublasHandle_t */
    gemm_function *gemm;
    int type;
};

static loch_status open_product(cuda_product *product, loch_allocator *pool, loch_stream *stream)
{
    /* ISO C has no conversion from an object to a function; POSIX says that it works. */
    set_workspace_function *set_workspace;
    LOCH_RETURN(loch_cublas_create(loch_stream_get_device(stream), stream, &product->cublas));
    LOCH_RETURN(loch_library_find(LOCH_LIBRARY_CUBLAS, "cublasGemmEx", (void **)&product->gemm));
    LOCH_RETURN(loch_library_find(LOCH_LIBRARY_CUBLAS, "cublasSetWorkspace_v2", (void **)&set_workspace));
    LOCH_RETURN(loch_buffer_create(pool, WORKSPACE_BYTES,
                                   &(loch_request){.size = sizeof(loch_request), .alignment = 256, .stream = stream},
                                   &product->workspace));
    LOCH_RETURN(loch_cublas_get_native(product->cublas, &product->handle));
    const int code = set_workspace(product->handle, loch_buffer_get_address(product->workspace), WORKSPACE_BYTES);
    return code ? loch_error_set(LOCH_E_DRIVER, "cublasSetWorkspace", code, "cuBLAS refuses a workspace") : LOCH_OK;
}

loch_status cuda_product_open(loch_allocator *pool, loch_stream *stream, loch_dtype dtype, cuda_product **out)
{
    *out = NULL;
    cuda_product *product = calloc(1, sizeof *product);
    if (!product) return loch_error_set(LOCH_E_HOST_MEMORY, NULL, 0, "no memory for products");
    product->type = dtype == LOCH_F16 ? TYPE_F16 : TYPE_F32;
    const loch_status status = open_product(product, pool, stream);
    if (status == LOCH_OK)
        *out = product;
    else
        cuda_product_close(product);
    return status;
}

void cuda_product_close(cuda_product *product)
{
    if (!product) return;
    loch_cublas_destroy(product->cublas);
    loch_buffer_release(product->workspace);
    free(product);
}

loch_status cuda_product_begin(cuda_product *product)
{
    return loch_cublas_get_native(product->cublas, &product->handle);
}

loch_status cuda_product_run(const cuda_product *product, const void *x, loch_tensor *w, size_t rows, void *y)
{
    const float one = 1, zero = 0;
    const int outputs = (int)loch_tensor_get_size(w, 0), inputs = (int)loch_tensor_get_size(w, 1), type = product->type;
    void *weights;
    LOCH_RETURN(loch_tensor_get_address(w, &weights));
    const int code = product->gemm(product->handle, OP_T, OP_N, outputs, (int)rows, inputs, &one, weights, type, inputs,
                                   x, type, inputs, &zero, y, type, outputs, COMPUTE_F32, ALGORITHM_DEFAULT);
    return code ? loch_error_set(LOCH_E_DRIVER, "cublasGemmEx", code, "a product of %zu by %d by %d failed", rows,
                                 inputs, outputs)
                : LOCH_OK;
}
