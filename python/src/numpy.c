/* SPDX-License-Identifier: MIT */
/* Memory of NumPy's arrays from a Loch pool (NEP 49).
 *
 * NumPy takes a capsule named "mem_handler" with a table of four functions. Every array keeps a reference on the
 * capsule that its memory came from, so the pool ends with the last array and not with the handler's replacement.
 *
 * The functions are called from any thread, with or without the interpreter's lock. They call no function of Python.
 * No header of NumPy is needed: the layout of the table and the places of the functions in NumPy's C interface have not
 * changed since NumPy 1.22. */
#include "doors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Places in the table behind numpy's _ARRAY_API. */
#define API_SET_HANDLER 304

#define HANDLER_NAME "mem_handler"

/* NumPy's PyDataMem_Handler, version 1. */
typedef struct numpy_functions {
    void *context;
    void *(*malloc)(void *context, size_t bytes);
    void *(*calloc)(void *context, size_t count, size_t bytes);
    void *(*realloc)(void *context, void *address, size_t bytes);
    void (*free)(void *context, void *address, size_t bytes);
} numpy_functions;

typedef struct numpy_handler {
    char name[127];
    uint8_t version;
    numpy_functions functions;
    /* Behind what NumPy reads. */
    loch_allocator *pool;
    loch_tag tag;
} numpy_handler;

/* --- the functions that NumPy calls --- */

static void *numpy_alloc(const numpy_handler *handler, size_t bytes, uint32_t flags)
{
    const loch_request request = {
        .size = sizeof request, .bytes = bytes ? bytes : 1, .tag = handler->tag, .flags = flags};
    void *block;
    return loch_allocator_alloc(handler->pool, &request, &block) == LOCH_OK ? block : NULL;
}

static void *numpy_malloc(void *context, size_t bytes)
{
    return numpy_alloc(context, bytes, 0);
}

static void *numpy_calloc(void *context, size_t count, size_t bytes)
{
    size_t product;
    if (__builtin_mul_overflow(count, bytes, &product)) return NULL;
    return numpy_alloc(context, product, LOCH_ALLOC_ZEROED);
}

static void *numpy_realloc(void *context, void *address, size_t bytes)
{
    const numpy_handler *handler = context;
    if (!address) return numpy_alloc(handler, bytes, 0);
    void *block;
    const loch_status status = loch_allocator_realloc(handler->pool, address, bytes ? bytes : 1, NULL, &block);
    return status == LOCH_OK ? block : NULL;
}

/* NumPy cannot receive a failure here, so a failure is reported on stderr. */
static void numpy_free(void *context, void *address, size_t bytes)
{
    (void)bytes; /* NumPy passes 1 for an empty array, whatever it asked for */
    const numpy_handler *handler = context;
    if (loch_free(handler->pool, address) != LOCH_OK)
        fprintf(stderr, "Loch could not free an array's memory at %p: %s\n", address, loch_error_get()->sentence);
}

/* --- the handler as a capsule --- */

static void numpy_destroy(numpy_handler *handler)
{
    if (!handler) return;
    loch_allocator_release(handler->pool);
    free(handler);
}

/* Runs when the last array of the handler is gone. */
static void numpy_end_capsule(PyObject *capsule)
{
    numpy_destroy(PyCapsule_GetPointer(capsule, HANDLER_NAME));
}

/* Creates a handler and takes over the reference of its pool, also on failure. */
static numpy_handler *numpy_create(loch_allocator *pool)
{
    numpy_handler *handler = calloc(1, sizeof *handler);
    if (!handler) {
        loch_allocator_release(pool);
        PyErr_NoMemory();
        return NULL;
    }
    memcpy(handler->name, "loch", sizeof "loch");
    handler->version = 1;
    handler->functions = (numpy_functions){handler, numpy_malloc, numpy_calloc, numpy_realloc, numpy_free};
    handler->pool = pool;
    return handler;
}

/* --- the functions of the module --- */

PyDoc_STRVAR(doc_handler, "numpy_handler(pool, /)\n--\n\n"
                          "Creates a memory handler for NumPy on a pool whose memory the host can read.");

static PyObject *numpy_make_handler(PyObject *module, PyObject *argument)
{
    loch_allocator *pool;
    (void)module;
    if (lochpy_read_pool(argument, &pool) != 0) return NULL;
    if (!pool || !loch_attributes_has(loch_allocator_get_attributes(pool), LOCH_ATTRIBUTE_ON_HOST)) {
        loch_allocator_release(pool);
        return lochpy_raise_text(LOCH_E_INVALID, "NumPy needs a pool whose memory the host can read");
    }
    numpy_handler *handler = numpy_create(pool);
    if (!handler) return NULL;
    if (lochpy_check(loch_tag_create("numpy", &handler->tag)) != 0) {
        numpy_destroy(handler);
        return NULL;
    }
    PyObject *capsule = PyCapsule_New(handler, HANDLER_NAME, numpy_end_capsule);
    if (!capsule) numpy_destroy(handler);
    return capsule;
}

PyDoc_STRVAR(doc_set,
             "numpy_set(api, handler, /)\n--\n\n"
             "Makes NumPy use a handler in this context; None for NumPy's own. Returns the handler before it.");

static PyObject *numpy_set(PyObject *module, PyObject *args)
{
    PyObject *api, *handler;
    (void)module;
    if (!PyArg_ParseTuple(args, "OO:numpy_set", &api, &handler)) return NULL;
    if (handler != Py_None && !PyCapsule_IsValid(handler, HANDLER_NAME))
        return PyErr_Format(PyExc_TypeError, "a memory handler is a capsule named \"" HANDLER_NAME "\"");
    void **table = PyCapsule_GetPointer(api, NULL);
    if (!table) return NULL;
    PyObject *(*set)(PyObject *);
    memcpy(&set, &table[API_SET_HANDLER], sizeof set); /* a table of functions as objects */
    return set(handler == Py_None ? NULL : handler);
}

static PyMethodDef numpy_methods[] = {
    LOCHPY_ONE("numpy_handler", numpy_make_handler, doc_handler),
    LOCHPY_VARIABLE("numpy_set", numpy_set, doc_set),
    {NULL, NULL, 0, NULL},
};

int lochpy_add_numpy(PyObject *module)
{
    return PyModule_AddFunctions(module, numpy_methods);
}
