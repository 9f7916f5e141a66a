/* SPDX-License-Identifier: MIT */
/* Files that NumPy 2.4 wrote: the elements are -2, 1, 4, ... in the order of the file, and True for every third of
 * bools. Made by a program, not to be changed by hand. */
#ifndef LOCH_TEST_NPY_CASES_H
#define LOCH_TEST_NPY_CASES_H

#include <loch/tensor.h>
#include <stdbool.h>

#define SHAPE(...)                                                                                                     \
    sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), (const int64_t[])                                              \
    {                                                                                                                  \
        __VA_ARGS__                                                                                                    \
    }

typedef struct npy_case {
    loch_dtype dtype;
    size_t dimensions;
    const int64_t *shape;
    bool is_columns;
    const char *dict;    /* blanks and a line end follow up to `header_bytes` */
    size_t header_bytes; /* all that stands before the data */
    size_t data_bytes;
    const char *data;
} npy_case;

static const npy_case npy_cases[] = {
    {LOCH_F64, SHAPE(2, 3), false, "{'descr': '<f8', 'fortran_order': False, 'shape': (2, 3), }", 128, 48,
     "\x00\x00\x00\x00\x00\x00\x00\xc0\x00\x00\x00\x00\x00\x00\xf0\x3f\x00\x00\x00\x00\x00\x00\x10\x40\x00\x00\x00\x00"
     "\x00\x00\x1c\x40\x00\x00\x00\x00\x00\x00\x24\x40\x00\x00\x00\x00\x00\x00\x2a\x40"},
    {LOCH_F32, SHAPE(2, 3), false, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }", 128, 24,
     "\x00\x00\x00\xc0\x00\x00\x80\x3f\x00\x00\x80\x40\x00\x00\xe0\x40\x00\x00\x20\x41\x00\x00\x50\x41"},
    {LOCH_F16, SHAPE(2, 3), false, "{'descr': '<f2', 'fortran_order': False, 'shape': (2, 3), }", 128, 12,
     "\x00\xc0\x00\x3c\x00\x44\x00\x47\x00\x49\x80\x4a"},
    {LOCH_I8, SHAPE(2, 3), false, "{'descr': '|i1', 'fortran_order': False, 'shape': (2, 3), }", 128, 6,
     "\xfe\x01\x04\x07\x0a\x0d"},
    {LOCH_I16, SHAPE(2, 3), false, "{'descr': '<i2', 'fortran_order': False, 'shape': (2, 3), }", 128, 12,
     "\xfe\xff\x01\x00\x04\x00\x07\x00\x0a\x00\x0d\x00"},
    {LOCH_I32, SHAPE(2, 3), false, "{'descr': '<i4', 'fortran_order': False, 'shape': (2, 3), }", 128, 24,
     "\xfe\xff\xff\xff\x01\x00\x00\x00\x04\x00\x00\x00\x07\x00\x00\x00\x0a\x00\x00\x00\x0d\x00\x00\x00"},
    {LOCH_I64, SHAPE(2, 3), false, "{'descr': '<i8', 'fortran_order': False, 'shape': (2, 3), }", 128, 48,
     "\xfe\xff\xff\xff\xff\xff\xff\xff\x01\x00\x00\x00\x00\x00\x00\x00\x04\x00\x00\x00\x00\x00\x00\x00\x07\x00\x00\x00"
     "\x00\x00\x00\x00\x0a\x00\x00\x00\x00\x00\x00\x00\x0d\x00\x00\x00\x00\x00\x00\x00"},
    {LOCH_U8, SHAPE(2, 3), false, "{'descr': '|u1', 'fortran_order': False, 'shape': (2, 3), }", 128, 6,
     "\xfe\x01\x04\x07\x0a\x0d"},
    {LOCH_U16, SHAPE(2, 3), false, "{'descr': '<u2', 'fortran_order': False, 'shape': (2, 3), }", 128, 12,
     "\xfe\xff\x01\x00\x04\x00\x07\x00\x0a\x00\x0d\x00"},
    {LOCH_U32, SHAPE(2, 3), false, "{'descr': '<u4', 'fortran_order': False, 'shape': (2, 3), }", 128, 24,
     "\xfe\xff\xff\xff\x01\x00\x00\x00\x04\x00\x00\x00\x07\x00\x00\x00\x0a\x00\x00\x00\x0d\x00\x00\x00"},
    {LOCH_U64, SHAPE(2, 3), false, "{'descr': '<u8', 'fortran_order': False, 'shape': (2, 3), }", 128, 48,
     "\xfe\xff\xff\xff\xff\xff\xff\xff\x01\x00\x00\x00\x00\x00\x00\x00\x04\x00\x00\x00\x00\x00\x00\x00\x07\x00\x00\x00"
     "\x00\x00\x00\x00\x0a\x00\x00\x00\x00\x00\x00\x00\x0d\x00\x00\x00\x00\x00\x00\x00"},
    {LOCH_BOOL, SHAPE(2, 3), false, "{'descr': '|b1', 'fortran_order': False, 'shape': (2, 3), }", 128, 6,
     "\x01\x00\x00\x01\x00\x00"},
    {LOCH_I32, LOCH_SCALAR, false, "{'descr': '<i4', 'fortran_order': False, 'shape': (), }", 128, 4,
     "\xfe\xff\xff\xff"},
    {LOCH_I32, SHAPE(0), false, "{'descr': '<i4', 'fortran_order': False, 'shape': (0,), }", 128, 0, ""},
    {LOCH_F32, SHAPE(3, 0, 2), false, "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 0, 2), }", 128, 0, ""},
    {LOCH_I32, SHAPE(2, 3), true, "{'descr': '<i4', 'fortran_order': True, 'shape': (2, 3), }", 128, 24,
     "\xfe\xff\xff\xff\x01\x00\x00\x00\x04\x00\x00\x00\x07\x00\x00\x00\x0a\x00\x00\x00\x0d\x00\x00\x00"},
    {LOCH_I16, SHAPE(2, 3, 2), true, "{'descr': '<i2', 'fortran_order': True, 'shape': (2, 3, 2), }", 128, 24,
     "\xfe\xff\x01\x00\x04\x00\x07\x00\x0a\x00\x0d\x00\x10\x00\x13\x00\x16\x00\x19\x00\x1c\x00\x1f\x00"},
    {LOCH_I16, SHAPE(1, 5), false, "{'descr': '<i2', 'fortran_order': False, 'shape': (1, 5), }", 128, 10,
     "\xfe\xff\x01\x00\x04\x00\x07\x00\x0a\x00"},
    {LOCH_U8, SHAPE(11), false, "{'descr': '|u1', 'fortran_order': False, 'shape': (11,), }", 128, 11,
     "\xfe\x01\x04\x07\x0a\x0d\x10\x13\x16\x19\x1c"},
    {LOCH_U8, SHAPE(1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1), false,
     "{'descr': '|u1', 'fortran_order': False, 'shape': (1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1), }", 192, 1,
     "\xfe"},
    {LOCH_I16, SHAPE(2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 3), true,
     "{'descr': '<i2', 'fortran_order': True, 'shape': (2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 3), }", 192, 12,
     "\xfe\xff\x01\x00\x04\x00\x07\x00\x0a\x00\x0d\x00"},
    {LOCH_F64, SHAPE(2, 2), false, "{'descr': '>f8', 'fortran_order': False, 'shape': (2, 2), }", 128, 32,
     "\xc0\x00\x00\x00\x00\x00\x00\x00\x3f\xf0\x00\x00\x00\x00\x00\x00\x40\x10\x00\x00\x00\x00\x00\x00\x40\x1c\x00\x00"
     "\x00\x00\x00\x00"},
    {LOCH_F32, SHAPE(2, 2), false, "{'descr': '>f4', 'fortran_order': False, 'shape': (2, 2), }", 128, 16,
     "\xc0\x00\x00\x00\x3f\x80\x00\x00\x40\x80\x00\x00\x40\xe0\x00\x00"},
    {LOCH_F16, SHAPE(2, 2), false, "{'descr': '>f2', 'fortran_order': False, 'shape': (2, 2), }", 128, 8,
     "\xc0\x00\x3c\x00\x44\x00\x47\x00"},
    {LOCH_I16, SHAPE(2, 2), false, "{'descr': '>i2', 'fortran_order': False, 'shape': (2, 2), }", 128, 8,
     "\xff\xfe\x00\x01\x00\x04\x00\x07"},
    {LOCH_I32, SHAPE(2, 2), false, "{'descr': '>i4', 'fortran_order': False, 'shape': (2, 2), }", 128, 16,
     "\xff\xff\xff\xfe\x00\x00\x00\x01\x00\x00\x00\x04\x00\x00\x00\x07"},
    {LOCH_I64, SHAPE(2, 2), false, "{'descr': '>i8', 'fortran_order': False, 'shape': (2, 2), }", 128, 32,
     "\xff\xff\xff\xff\xff\xff\xff\xfe\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x04\x00\x00\x00\x00"
     "\x00\x00\x00\x07"},
    {LOCH_U16, SHAPE(2, 2), false, "{'descr': '>u2', 'fortran_order': False, 'shape': (2, 2), }", 128, 8,
     "\xff\xfe\x00\x01\x00\x04\x00\x07"},
    {LOCH_U32, SHAPE(2, 2), false, "{'descr': '>u4', 'fortran_order': False, 'shape': (2, 2), }", 128, 16,
     "\xff\xff\xff\xfe\x00\x00\x00\x01\x00\x00\x00\x04\x00\x00\x00\x07"},
    {LOCH_U64, SHAPE(2, 2), false, "{'descr': '>u8', 'fortran_order': False, 'shape': (2, 2), }", 128, 32,
     "\xff\xff\xff\xff\xff\xff\xff\xfe\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x04\x00\x00\x00\x00"
     "\x00\x00\x00\x07"},
};

#endif
