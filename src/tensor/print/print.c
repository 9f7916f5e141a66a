/* SPDX-License-Identifier: MIT */
/* Prints tensors as text. First copies the elements that are shown into one small block. An axis that is shortened
 * shows only its two ends, so a tensor with n such axes needs 2^n copies, whatever its size. Then the block is scanned
 * for the column widths, and written directly to the output. Lines are wrapped as NumPy wraps them. */
#include <loch/print.h>
#include "kit/cancel.h"
#include "base/checked.h"
#include "base/fail.h"
#include "base/heap.h"
#include "kit/sized.h"
#include "kit/text.h"
#include "device/ranges.h"
#include "tensor/print/words.h"
#include <errno.h>

/* --- output --- */

typedef struct print_sink {
    FILE *file; /* NULL: into `text` */
    bool has_failed;
    char *text;
    size_t bytes, length; /* size of `text`; length of the whole text so far */
} print_sink;

static void print_put(print_sink *sink, const char *from, size_t count)
{
    if (sink->file) {
        if (!sink->has_failed && fwrite(from, 1, count, sink->file) != count) sink->has_failed = true;
    } else if (sink->length < sink->bytes) {
        const size_t room = sink->bytes - sink->length;
        memcpy(sink->text + sink->length, from, count < room ? count : room);
    }
    sink->length += count;
}

static void print_put_repeated(print_sink *sink, char what, size_t count)
{
    char run[64];
    memset(run, what, sizeof run);
    for (; count > sizeof run; count -= sizeof run)
        print_put(sink, run, sizeof run);
    print_put(sink, run, count);
}

/* --- choosing elements --- */

/* The checked options of a text, and the part of the tensor that it shows. */
typedef struct print_job {
    loch_print_options options;
    size_t dimensions;
    int64_t shown[LOCH_DIMENSIONS_MAX];  /* sizes of that part */
    bool is_cut[LOCH_DIMENSIONS_MAX];    /* the axis shows only `edge` elements of each end */
    size_t pitches[LOCH_DIMENSIONS_MAX]; /* bytes from one index to the next in `block` */
    char *block;                         /* the shown part, contiguous; owned */
    size_t elements, bytes;              /* of the block */
    lochi_words words;
    size_t separator_bytes;
    size_t trimmed_bytes;                     /* length of the separator without white space at its end */
    int64_t separator_length, trimmed_length; /* in characters */
    print_sink *sink;
} print_job;

static bool print_is_space(char character)
{
    return character == ' ' || (character >= '\t' && character <= '\r') || (character >= 0x1c && character <= 0x1f);
}

/* Counts the characters of UTF-8 text: the bytes that are not continuation bytes. */
static int64_t print_count_characters(const char *text, size_t bytes)
{
    int64_t count = 0;
    for (size_t i = 0; i < bytes; i++)
        count += ((unsigned char)text[i] & 0xc0) != 0x80;
    return count;
}

static void print_measure_separator(print_job *job)
{
    const char *separator = job->options.separator;
    job->separator_bytes = job->trimmed_bytes = strlen(separator);
    while (job->trimmed_bytes && print_is_space(separator[job->trimmed_bytes - 1]))
        job->trimmed_bytes--;
    job->separator_length = print_count_characters(separator, job->separator_bytes);
    job->trimmed_length = print_count_characters(separator, job->trimmed_bytes);
}

static loch_status print_read_options(const loch_print_options *given, print_job *job)
{
    loch_print_options *options = &job->options;
    *options = (loch_print_options){.size = sizeof *options};
    LOCH_TRY_RETURN(lochi_sized_read("options for printing", given, options, sizeof *options));
    if (options->precision < -1)
        return LOCH_FAIL(INVALID, "precision %d is not valid: use -1 for no digits, 0 for the default",
                         options->precision);
    if ((unsigned)options->notation > LOCH_NOTATION_SCIENTIFIC)
        return LOCH_FAIL(INVALID, "%d is not a loch_notation value", (int)options->notation);
    options->precision = options->precision == 0 ? 8 : options->precision < 0 ? 0 : options->precision;
    if (!options->threshold) options->threshold = 1000;
    if (!options->edge) options->edge = 3;
    if (!options->width) options->width = 75;
    if (options->width > INT32_MAX) options->width = INT32_MAX;
    if (!options->separator) options->separator = " ";
    print_measure_separator(job);
    return LOCH_OK;
}

static loch_status print_choose(loch_tensor *tensor, print_job *job)
{
    const int64_t *shape = loch_tensor_get_shape(tensor);
    const bool is_short = loch_tensor_get_elements(tensor) > job->options.threshold;
    const uint64_t edge = job->options.edge;
    size_t pitch = loch_dtype_bytes(loch_tensor_get_dtype(tensor));
    job->elements = 1;
    job->dimensions = loch_tensor_get_dimensions(tensor);
    for (size_t i = job->dimensions; i-- > 0;) {
        const uint64_t size = (uint64_t)shape[i];
        job->is_cut[i] = is_short && edge < size && edge < size - edge;
        job->shown[i] = job->is_cut[i] ? (int64_t)(2 * edge) : shape[i];
        job->pitches[i] = pitch;
        if (!lochi_mul(pitch, (size_t)job->shown[i], &pitch) ||
            !lochi_mul(job->elements, (size_t)job->shown[i], &job->elements))
            return LOCH_FAIL(OVERFLOW, "the elements to print do not fit the address space");
    }
    job->bytes = pitch;
    return LOCH_OK;
}

/* --- copying elements --- */

/* Narrows both views to one end of an axis. Consumes both views and returns new ones. */
static loch_status print_narrow(loch_tensor **from, loch_tensor **to, int axis, int64_t edge, bool is_tail)
{
    loch_tensor *narrow_from = NULL, *narrow_to = NULL;
    loch_status status;
    LOCH_TRY(loch_tensor_slice(*from, axis, is_tail ? -edge : 0, is_tail ? LOCH_OPEN : edge, 1, &narrow_from), end);
    LOCH_TRY(loch_tensor_slice(*to, axis, is_tail ? edge : 0, is_tail ? LOCH_OPEN : edge, 1, &narrow_to), end);
    loch_tensor_release(*from);
    loch_tensor_release(*to);
    *from = loch_tensor_take(&narrow_from);
    *to = loch_tensor_take(&narrow_to);
end:
    loch_tensor_release(narrow_from);
    loch_tensor_release(narrow_to);
    return status;
}

/* Copies one corner. `corner` has one bit for each shortened axis, set for its tail. */
static loch_status print_fetch_corner(const print_job *job, loch_tensor *tensor, loch_tensor *block, uint32_t corner)
{
    const loch_tensor_copy_options how = {.size = sizeof how, .stream = job->options.stream, .wait = LOCH_WAIT_END};
    loch_tensor *from = loch_tensor_retain(tensor), *to = loch_tensor_retain(block);
    loch_status status = LOCH_OK;
    for (size_t i = 0; i < job->dimensions; i++) {
        if (!job->is_cut[i]) continue;
        LOCH_TRY(print_narrow(&from, &to, (int)i, (int64_t)job->options.edge, corner & 1), end);
        corner >>= 1;
    }
    LOCH_TRY(loch_tensor_copy(to, from, &how), end);
end:
    loch_tensor_release(from);
    loch_tensor_release(to);
    return status;
}

static loch_status print_fetch(print_job *job, loch_tensor *tensor)
{
    loch_tensor *block = NULL;
    loch_status status;
    lochi_host_scope scope;
    const loch_dtype dtype = loch_tensor_get_dtype(tensor);
    job->block = lochi_zalloc(job->bytes); /* a simulated device without memory leaves the zeros */
    if (!job->block) return LOCH_FAIL(HOST_MEMORY, "no host memory for %zu elements to print", job->elements);
    lochi_ranges_begin_host(&scope, job->block, job->bytes);
    LOCH_TRY(loch_tensor_wrap(dtype, job->dimensions, job->shown, job->block, NULL, &block), end);
    uint32_t corners = 1;
    for (size_t i = 0; i < job->dimensions; i++)
        corners <<= job->is_cut[i];
    for (uint32_t corner = 0; corner < corners; corner++)
        LOCH_TRY(print_fetch_corner(job, tensor, block, corner), end);
end:
    loch_tensor_release(block);
    lochi_ranges_end_host(&scope);
    return status;
}

/* --- writing --- */

/* A line of elements that is being written. White space at the end of a word is held back, because a wrapped line ends
 * without it. */
typedef struct print_line {
    const print_job *job;
    int64_t indent;   /* of all lines of this row */
    int64_t limit;    /* column that words must not reach */
    int64_t length;   /* so far, including held-back white space */
    size_t held_back; /* spaces */
    bool has_words;
} print_line;

static void print_wrap(print_line *line)
{
    const print_job *job = line->job;
    if (job->trimmed_bytes) {
        print_put_repeated(job->sink, ' ', line->held_back);
        print_put(job->sink, job->options.separator, job->trimmed_bytes);
    }
    print_put(job->sink, "\n", 1);
    print_put_repeated(job->sink, ' ', (size_t)line->indent);
    line->length = line->indent;
}

static void print_word(print_line *line, const char *text, size_t length)
{
    const print_job *job = line->job;
    if (line->has_words) {
        line->length += job->separator_length;
        if (line->length + (int64_t)length > line->limit && line->length > line->indent) {
            print_wrap(line);
        } else {
            print_put_repeated(job->sink, ' ', line->held_back);
            print_put(job->sink, job->options.separator, job->separator_bytes);
        }
    }
    line->has_words = true;
    line->length += (int64_t)length;
    size_t kept = length;
    while (kept && text[kept - 1] == ' ')
        kept--;
    line->held_back = length - kept;
    print_put(job->sink, text, kept);
}

/* Writes the last axis with its brackets. */
static void print_row(const print_job *job, const char *at)
{
    const size_t axis = job->dimensions - 1, count = (size_t)job->shown[axis];
    const int64_t behind = job->trimmed_length > 1 ? job->trimmed_length : 1; /* at least a bracket */
    print_line line = {.job = job, .indent = (int64_t)axis + 1, .length = (int64_t)axis + 1};
    line.limit = (int64_t)job->options.width - (int64_t)axis - behind;
    char text[LOCHI_WORD_MAX];
    for (size_t i = 0; i < count; i++, at += job->pitches[axis]) {
        if (job->is_cut[axis] && i == job->options.edge) print_word(&line, "...", 3);
        print_word(&line, text, lochi_words_write(&job->words, at, text));
    }
    print_put_repeated(job->sink, ' ', line.held_back);
}

/* Writes the break between two rows, planes and so on. */
static void print_break(const print_job *job, size_t axis)
{
    print_put(job->sink, job->options.separator, job->trimmed_bytes);
    print_put_repeated(job->sink, '\n', job->dimensions - axis - 1);
    print_put_repeated(job->sink, ' ', axis + 1);
}

static void print_axis(const print_job *job, size_t axis, const char *at) // NOLINT(misc-no-recursion)
{
    const size_t count = (size_t)job->shown[axis];
    print_put(job->sink, "[", 1);
    if (axis + 1 == job->dimensions) {
        print_row(job, at);
    } else {
        for (size_t i = 0; i < count; i++, at += job->pitches[axis]) {
            if (i) print_break(job, axis);
            if (job->is_cut[axis] && i == job->options.edge) {
                print_put(job->sink, "...", 3);
                print_break(job, axis);
            }
            print_axis(job, axis + 1, at);
        }
    }
    print_put(job->sink, "]", 1);
}

static void print_all(print_job *job)
{
    if (!job->elements) {
        print_put(job->sink, "[]", 2);
    } else if (!job->dimensions) {
        char text[LOCHI_WORD_MAX];
        print_put(job->sink, text, lochi_words_write(&job->words, job->block, text));
    } else {
        print_axis(job, 0, job->block);
    }
}

static loch_status print_run(loch_tensor *tensor, const loch_print_options *options, print_sink *sink)
{
    print_job job = {.sink = sink};
    loch_status status;
    LOCH_TRY(print_read_options(options, &job), end);
    LOCH_TRY(print_choose(tensor, &job), end);
    if (job.elements) {
        LOCH_TRY(print_fetch(&job, tensor), end);
        job.words = lochi_words_fit(loch_tensor_get_dtype(tensor), job.block, job.elements, job.options.precision,
                                    job.options.notation, !job.dimensions);
    }
    print_all(&job);
end:
    lochi_free(job.block);
    return status;
}

/* --- the calls --- */

static loch_status print_check(const loch_tensor *tensor, const char *text, size_t bytes)
{
    if (!tensor) return LOCH_FAIL(INVALID, "the tensor to print is NULL");
    if (!text && bytes) return LOCH_FAIL(INVALID, "the text to print into is NULL, but its size is %zu bytes", bytes);
    return LOCH_OK;
}

loch_status loch_tensor_print(loch_tensor *tensor, const loch_print_options *options, char *text, size_t bytes,
                              size_t *length)
{
    if (length) *length = 0;
    LOCH_TRY_RETURN(print_check(tensor, text, bytes));
    print_sink sink = {.text = text, .bytes = bytes ? bytes - 1 : 0};
    if (bytes) *text = '\0';
    LOCH_TRY_RETURN(print_run(tensor, options, &sink));
    if (bytes) text[sink.length < sink.bytes ? sink.length : sink.bytes] = '\0';
    if (length) *length = sink.length;
    return LOCH_OK;
}

loch_status loch_tensor_print_to(loch_tensor *tensor, const loch_print_options *options, FILE *file)
{
    LOCHI_NOT_CANCELLED;
    LOCH_TRY_RETURN(print_check(tensor, NULL, 0));
    if (!file) return LOCH_FAIL(INVALID, "the file to print to is NULL");
    print_sink sink = {.file = file};
    flockfile(file); /* keeps lines of other threads from mixing with ours */
    loch_status status = print_run(tensor, options, &sink);
    if (status == LOCH_OK) {
        print_put(&sink, "\n", 1);
        if (sink.has_failed || fflush(file))
            status = LOCH_FAIL(IO, "the tensor cannot be printed: %s", strerror(errno));
    }
    funlockfile(file);
    return status;
}

static void print_list(lochi_text *out, const int64_t *numbers, size_t count)
{
    lochi_text_write(out, "[");
    for (size_t i = 0; i < count; i++)
        lochi_text_write(out, "%s%lld", i ? ", " : "", (long long)numbers[i]);
    lochi_text_write(out, "]");
}

loch_status loch_tensor_describe(loch_tensor *tensor, char *text, size_t bytes, size_t *length)
{
    if (length) *length = 0;
    LOCH_TRY_RETURN(print_check(tensor, text, bytes));
    const size_t dimensions = loch_tensor_get_dimensions(tensor);
    const char *name = loch_tensor_get_name(tensor);
    const loch_device *device = loch_tensor_get_device(tensor);
    lochi_text out = lochi_text_begin(text, bytes);
    if (*name) lochi_text_write(&out, "%s: ", name);
    lochi_text_write(&out, "%s", loch_dtype_name(loch_tensor_get_dtype(tensor)));
    print_list(&out, loch_tensor_get_shape(tensor), dimensions);
    if (!loch_tensor_is_contiguous(tensor)) {
        lochi_text_write(&out, " strides ");
        print_list(&out, loch_tensor_get_strides(tensor), dimensions);
    }
    const bool is_pinned = device && loch_tensor_is_on_host(tensor) && !loch_device_can(device, LOCH_CAN_HOST_ACCESS);
    lochi_text_write(&out, ", %zu bytes on %s", loch_tensor_get_bytes(tensor),
                     device && !is_pinned ? loch_device_get_name(device) : "the host");
    if (is_pinned)
        lochi_text_write(&out, ", %s for %s",
                         loch_memory_kind_name(loch_buffer_get_kind(loch_tensor_get_buffer(tensor))),
                         loch_device_get_name(device));
    if (length) *length = out.length;
    return LOCH_OK;
}
