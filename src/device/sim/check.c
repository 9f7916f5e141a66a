/* SPDX-License-Identifier: MIT */
/* The checker: finds memory that two streams use without order between them.
 *
 * Every object has a shadow: a sorted list of cells. A cell is an interval with its last write and the reads since that
 * write. A use is ordered after an earlier use if the stream's vector contains the earlier use's epoch. A write
 * replaces everything in its interval: a later use that is ordered after the write is ordered after the replaced uses
 * too, and uses without order were just reported. For the same reason a read replaces the reads that it is ordered
 * after. Shadows belong to objects, not to addresses, so uses through aliases are compared. If host memory for a shadow
 * runs out, the shadow is dropped: that may hide a mistake but reports no false one.
 *
 * Sets of reads are counted and shared by the cells into which a wider read was split. */
#include "device/sim/check.h"
#include "base/heap.h"
#include "base/logging.h"
#include "device/ranges.h"
#include "device/sim/fail.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK_CELLS_FEW 32 /* as many cells are built on the stack */

/* --- findings --- */

#define CHECK_NAMES 256 /* different names of work that reports can tell */

static char check_names[CHECK_NAMES][LOCHI_SIM_NAME_BYTES]; /* by hash; guarded by the lock; entry 0 is for others */

/* Returns the number of a name of work, the same one for equal names; 0 if there are too many names. */
static uint32_t check_name(const char *name)
{
    lochi_lock_assert_held(&lochi_sim_all.lock);
    uint32_t hash = 5381;
    for (const char *at = name; *at; at++)
        hash = hash * 33 + (unsigned char)*at;
    for (uint32_t i = 0; i < 8; i++) {
        const uint32_t place = 1 + (hash + i) % (CHECK_NAMES - 1);
        if (!check_names[place][0]) memcpy(check_names[place], name, strnlen(name, LOCHI_SIM_NAME_BYTES - 1));
        if (!strcmp(check_names[place], name)) return place;
    }
    return 0;
}

static const char *check_name_of(const lochi_sim_access *access)
{
    return access->name ? check_names[access->name] : "work";
}

/* Writes what to do about a finding. */
static void check_advise(const loch_sim_violation *violation, char *text, size_t bytes)
{
    const unsigned long long stream = violation->stream, other = violation->other_stream;
    switch (violation->kind) {
    case LOCH_SIM_UNORDERED:
        snprintf(text, bytes,
                 "record an event on stream %llu behind the first and let stream %llu wait for it; if the first used a "
                 "block that was freed since, call loch_allocator_record_use for stream %llu before the free",
                 other, stream, other);
        break;
    case LOCH_SIM_GONE_IN_USE:
        snprintf(text, bytes, "wait for stream %llu first, or use an allocator and loch_allocator_record_use", other);
        break;
    case LOCH_SIM_OVERLAP: snprintf(text, bytes, "use loch_copy_on, or copy through another block"); break;
    }
}

/* Counts a finding, and keeps and logs the first ones. A strict device refuses the call. The lock stays held: what is
 * called here takes locks of higher ranks only. */
static void check_report(lochi_sim *sim, const loch_sim_violation *violation)
{
    lochi_lock_assert_held(&lochi_sim_all.lock);
    if (!sim->is_checked) return;
    const size_t number = sim->violations_count++;
    if (number < LOCHI_SIM_VIOLATIONS) sim->violations[number] = *violation;
    if (number >= LOCHI_SIM_VIOLATIONS && !sim->is_strict) return;
    char block[160], advice[256], sentence[LOCHI_SIM_SENTENCE_BYTES];
    lochi_ranges_describe(violation->address, block, sizeof block);
    check_advise(violation, advice, sizeof advice);
    snprintf(sentence, sizeof sentence, "%s%s%s%s; %s", violation->text, *block ? " (" : "", block, *block ? ")" : "",
             advice);
    LOCHI_LOG(ERROR, "%s", sentence);
    if (number == LOCHI_SIM_VIOLATIONS - 1)
        LOCHI_LOG(ERROR, "this was finding %d of the device; later ones are counted only", LOCHI_SIM_VIOLATIONS);
    if (sim->is_strict && !*sim->refusal) memcpy(sim->refusal, sentence, sizeof sim->refusal);
}

loch_status lochi_sim_check_refuse(lochi_sim *sim)
{
    lochi_lock_assert_held(&lochi_sim_all.lock);
    if (!*sim->refusal) return LOCH_OK;
    const loch_status status = SIM_FAIL(INVALID, "%s", sim->refusal);
    sim->refusal[0] = '\0';
    return status;
}

void lochi_sim_check_forgive(lochi_sim *sim)
{
    lochi_lock_assert_held(&lochi_sim_all.lock);
    sim->refusal[0] = '\0';
}

void lochi_sim_check_gone(lochi_sim *sim, const lochi_sim_span *span, const lochi_sim_op *op, const char *how)
{
    lochi_lock_assert_held(&lochi_sim_all.lock);
    loch_sim_violation violation = {.kind = LOCH_SIM_GONE_IN_USE,
                                    .address = (void *)span->node.key,
                                    .bytes = span->bytes,
                                    .other_stream = op->stream};
    snprintf(violation.text, sizeof violation.text, "%zu bytes at %p were %s while %s on stream %llu still used them",
             span->bytes, (void *)span->node.key, how, op->name, (unsigned long long)op->stream);
    check_report(sim, &violation);
}

static void check_report_overlap(lochi_sim_stream *stream, const lochi_sim_op *op, const lochi_sim_use *to,
                                 const lochi_sim_use *from)
{
    const size_t start = to->offset > from->offset ? to->offset : from->offset;
    const size_t to_end = to->offset + to->bytes, from_end = from->offset + from->bytes;
    loch_sim_violation violation = {.kind = LOCH_SIM_OVERLAP,
                                    .address = (const char *)to->span->node.key + start,
                                    .bytes = (to_end < from_end ? to_end : from_end) - start,
                                    .stream = stream->number,
                                    .other_stream = stream->number};
    snprintf(violation.text, sizeof violation.text,
             "a copy of %zu bytes from %p to %p on stream %llu overlaps itself, which CUDA does not define", op->bytes,
             op->from, op->to, (unsigned long long)stream->number);
    check_report(stream->device, &violation);
}

static int check_compare_uses(const void *left, const void *right)
{
    const lochi_sim_use *a = *(const lochi_sim_use *const *)left, *b = *(const lochi_sim_use *const *)right;
    if (a->span->object != b->span->object) return (uintptr_t)a->span->object < (uintptr_t)b->span->object ? -1 : 1;
    return a->offset < b->offset ? -1 : a->offset > b->offset;
}

/* Walks the uses in order of offset. A use overlaps an earlier use of the other kind if it starts before the
 * furthest end of those. */
void lochi_sim_check_overlap(lochi_sim_stream *stream, const lochi_sim_op *op)
{
    lochi_lock_assert_held(&lochi_sim_all.lock);
    const lochi_sim_use *few[CHECK_CELLS_FEW], **uses = few, *furthest[2] = {NULL, NULL};
    if (op->uses_count > CHECK_CELLS_FEW) uses = lochi_alloc_array(op->uses_count, sizeof *uses);
    if (!uses) return; /* may hide a mistake, but reports no false one */
    for (size_t i = 0; i < op->uses_count; i++)
        uses[i] = &op->uses[i];
    qsort(uses, op->uses_count, sizeof *uses, check_compare_uses);
    for (size_t i = 0; i < op->uses_count; i++) {
        const lochi_sim_use *use = uses[i], *other = furthest[!use->is_write], **own = &furthest[use->is_write];
        if (other && other->span->object == use->span->object && other->offset + other->bytes > use->offset) {
            check_report_overlap(stream, op, use->is_write ? use : other, use->is_write ? other : use);
            break;
        }
        if (!*own || (*own)->span->object != use->span->object ||
            (*own)->offset + (*own)->bytes < use->offset + use->bytes)
            *own = use;
    }
    if (uses != few) lochi_free(uses);
}

/* --- sets of reads --- */

static void check_reads_release(lochi_sim_reads *reads)
{
    if (reads && !--reads->references) lochi_free(reads);
}

static bool check_is_behind(const lochi_sim_stream *stream, const lochi_sim_access *earlier)
{
    return stream->seen.epochs[earlier->slot] >= earlier->epoch;
}

/* Returns the set of reads after `access` was added; NULL without host memory. Consumes a reference on `old`. */
static lochi_sim_reads *check_reads_add(lochi_sim_reads *old, const lochi_sim_stream *stream,
                                        const lochi_sim_access *access)
{
    const size_t count = old ? old->count : 0;
    if (old && old->references == 1 && count == 1 && check_is_behind(stream, &old->items[0])) {
        old->items[0] = *access;
        return old;
    }
    lochi_sim_reads *reads = lochi_alloc(sizeof *reads + (count + 1) * sizeof *reads->items);
    if (reads) {
        *reads = (lochi_sim_reads){.references = 1};
        for (size_t i = 0; i < count; i++)
            if (!check_is_behind(stream, &old->items[i])) reads->items[reads->count++] = old->items[i];
        reads->items[reads->count++] = *access;
    }
    check_reads_release(old);
    return reads;
}

/* --- shadows --- */

void lochi_sim_shadow_drop(lochi_sim_shadow *shadow)
{
    lochi_lock_assert_held(&lochi_sim_all.lock);
    for (size_t i = 0; i < shadow->count; i++)
        check_reads_release(shadow->cells[i].reads);
    lochi_free(shadow->cells);
    *shadow = (lochi_sim_shadow){.count = 0};
}

/* Returns the first cell that ends after `offset`. */
static size_t check_first(const lochi_sim_shadow *shadow, size_t offset)
{
    size_t low = 0, high = shadow->count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (shadow->cells[middle].end > offset)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

static bool check_is_same(const lochi_sim_access *a, const lochi_sim_access *b)
{
    return a->epoch == b->epoch && (!a->epoch || a->slot == b->slot);
}

/* New cells for part of a shadow, in order. Equal neighbours are merged. */
typedef struct check_list {
    lochi_sim_cell *cells;
    size_t count;
} check_list;

static void check_append(check_list *list, size_t start, size_t end, const lochi_sim_access *write,
                         lochi_sim_reads *reads)
{
    lochi_sim_cell *last = list->count ? &list->cells[list->count - 1] : NULL;
    if (last && last->end == start && last->reads == reads && check_is_same(&last->write, write)) {
        last->end = end;
        check_reads_release(reads);
        return;
    }
    list->cells[list->count++] = (lochi_sim_cell){.start = start, .end = end, .write = *write, .reads = reads};
}

static lochi_sim_reads *check_retain(lochi_sim_reads *reads)
{
    if (reads) reads->references++;
    return reads;
}

/* Replaces the cells [first, first + count) by those of the list. The list already owns their references. */
static bool check_splice(lochi_sim_shadow *shadow, size_t first, size_t count, const check_list *list)
{
    const size_t total = shadow->count - count + list->count;
    if (!shadow->cells || total > shadow->capacity) {
        const size_t capacity = total + total / 2 + 4;
        lochi_sim_cell *cells = lochi_realloc(shadow->cells, capacity * sizeof *cells);
        if (!cells) return false;
        shadow->cells = cells;
        shadow->capacity = capacity;
    }
    memmove(&shadow->cells[first + list->count], &shadow->cells[first + count],
            (shadow->count - first - count) * sizeof *shadow->cells);
    memcpy(&shadow->cells[first], list->cells, list->count * sizeof *list->cells);
    shadow->count = total;
    return true;
}

/* Builds the cells of [start, end) after a write. */
static bool check_build_write(check_list *list, lochi_sim_cell *old, size_t count, size_t start, size_t end,
                              const lochi_sim_access *access)
{
    if (count && old[0].start < start)
        check_append(list, old[0].start, start, &old[0].write, check_retain(old[0].reads));
    check_append(list, start, end, access, NULL);
    if (count && old[count - 1].end > end)
        check_append(list, end, old[count - 1].end, &old[count - 1].write, check_retain(old[count - 1].reads));
    for (size_t i = 0; i < count; i++)
        check_reads_release(old[i].reads);
    return true;
}

/* Adds the read to one set. Cells that shared a set share the new set too. */
static lochi_sim_reads *check_share(lochi_sim_reads *old, lochi_sim_reads **last_old, lochi_sim_reads **last_new,
                                    const lochi_sim_stream *stream, const lochi_sim_access *access)
{
    if (*last_new && old == *last_old) {
        check_reads_release(old);
        return check_retain(*last_new);
    }
    *last_old = old;
    *last_new = check_reads_add(old, stream, access);
    return *last_new;
}

/* Builds the cells of [start, end) after a read. Consumes the references of the old cells, also on failure. */
static bool check_build_read(check_list *list, lochi_sim_cell *old, size_t count, size_t start, size_t end,
                             const lochi_sim_access *access, const lochi_sim_stream *stream)
{
    static const lochi_sim_access none = {.epoch = 0};
    lochi_sim_reads *last_old = NULL, *last_new = NULL;
    bool is_good = true;
    size_t at = start;
    for (size_t i = 0; i <= count; i++) {
        const size_t gap_end = i < count ? old[i].start : end;
        if (is_good && at < gap_end) {
            lochi_sim_reads *reads = check_share(NULL, &last_old, &last_new, stream, access);
            is_good = reads != NULL;
            if (is_good) check_append(list, at, gap_end, &none, reads);
        }
        if (i == count) break;
        lochi_sim_cell *cell = &old[i];
        if (!is_good) {
            check_reads_release(cell->reads);
            continue;
        }
        const size_t from = cell->start > start ? cell->start : start, to = cell->end < end ? cell->end : end;
        lochi_sim_reads *before = cell->start < start ? check_retain(cell->reads) : NULL;
        lochi_sim_reads *behind = cell->end > end ? check_retain(cell->reads) : NULL;
        if (cell->start < start) check_append(list, cell->start, start, &cell->write, before);
        lochi_sim_reads *reads = check_share(cell->reads, &last_old, &last_new, stream, access);
        is_good = reads != NULL;
        if (is_good) check_append(list, from, to, &cell->write, reads);
        if (cell->end > end) check_append(list, end, cell->end, &cell->write, behind);
        at = to;
    }
    return is_good;
}

static void check_enter(lochi_sim_object *object, const lochi_sim_stream *stream, const lochi_sim_use *use,
                        const lochi_sim_access *access, size_t first, size_t count)
{
    lochi_lock_assert_held(&lochi_sim_all.lock);
    lochi_sim_cell few[CHECK_CELLS_FEW];
    const size_t start = use->offset, end = use->offset + use->bytes;
    lochi_sim_shadow *shadow = &object->shadow;
    lochi_sim_cell *old = shadow->cells ? &shadow->cells[first] : NULL;
    const size_t most = use->is_write ? 3 : 2 * count + 3;
    check_list list = {.cells = most <= CHECK_CELLS_FEW ? few : lochi_alloc_array(most, sizeof *list.cells)};
    if (!list.cells) {
        lochi_sim_shadow_drop(shadow);
        return;
    }
    bool is_good = use->is_write ? check_build_write(&list, old, count, start, end, access)
                                 : check_build_read(&list, old, count, start, end, access, stream);
    if (is_good) is_good = check_splice(shadow, first, count, &list);
    if (!is_good) {
        for (size_t i = 0; i < list.count; i++)
            check_reads_release(list.cells[i].reads);
        for (size_t i = 0; i < count; i++)
            old[i].reads = NULL; /* the build consumed their references */
        lochi_sim_shadow_drop(shadow);
    }
    if (list.cells != few) lochi_free(list.cells);
}

/* --- uses --- */

/* Returns an earlier use in a cell that the stream is not ordered after, and what it did; NULL if there is none. */
static const lochi_sim_access *check_conflict(const lochi_sim_cell *cell, const lochi_sim_stream *stream, bool is_write,
                                              const char **what)
{
    *what = "wrote";
    if (cell->write.epoch && !check_is_behind(stream, &cell->write)) return &cell->write;
    *what = "read";
    for (size_t i = 0; is_write && cell->reads && i < cell->reads->count; i++)
        if (!check_is_behind(stream, &cell->reads->items[i])) return &cell->reads->items[i];
    return NULL;
}

/* A finding that grows while neighbouring memory has the same fault. */
typedef struct check_finding {
    loch_sim_violation violation; /* without bytes: none yet */
    bool is_write;
} check_finding;

static void check_finish(lochi_sim *sim, check_finding *finding)
{
    if (finding->violation.bytes) check_report(sim, &finding->violation);
    finding->violation.bytes = 0;
}

static void check_find(const lochi_sim_stream *stream, const lochi_sim_op *op, const lochi_sim_use *use,
                       const lochi_sim_cell *cell, check_finding *finding)
{
    const char *what;
    loch_sim_violation *violation = &finding->violation;
    const lochi_sim_access *earlier = check_conflict(cell, stream, use->is_write, &what);
    if (!earlier) return;
    const size_t start = use->offset, end = use->offset + use->bytes;
    const size_t from = cell->start > start ? cell->start : start, to = cell->end < end ? cell->end : end;
    const char *address = (const char *)use->span->node.key + from;
    if (violation->bytes && violation->other_stream == earlier->stream && finding->is_write == use->is_write &&
        (const char *)violation->address + violation->bytes == address) {
        violation->bytes += to - from;
        return;
    }
    check_finish(stream->device, finding);
    *finding = (check_finding){.violation = {.kind = LOCH_SIM_UNORDERED,
                                             .address = address,
                                             .bytes = to - from,
                                             .stream = stream->number,
                                             .other_stream = earlier->stream},
                               .is_write = use->is_write};
    snprintf(violation->text, sizeof violation->text,
             "%s on stream %llu %s %p without order behind %s on stream %llu, which %s it", op->name,
             (unsigned long long)stream->number, use->is_write ? "writes" : "reads", (const void *)address,
             check_name_of(earlier), (unsigned long long)earlier->stream, what);
}

/* Checks one use against earlier uses of its object, and stores it. */
static void check_use(lochi_sim_stream *stream, const lochi_sim_op *op, const lochi_sim_use *use,
                      const lochi_sim_access *access, check_finding *finding)
{
    lochi_sim_object *object = use->span->object;
    const size_t end = use->offset + use->bytes, first = check_first(&object->shadow, use->offset);
    size_t behind = first;
    for (; behind < object->shadow.count && object->shadow.cells[behind].start < end; behind++)
        check_find(stream, op, use, &object->shadow.cells[behind], finding);
    check_enter(object, stream, use, access, first, behind - first);
}

void lochi_sim_check_uses(lochi_sim_stream *stream, const lochi_sim_op *op, const lochi_sim_use *uses, size_t count,
                          uint64_t epoch)
{
    lochi_lock_assert_held(&lochi_sim_all.lock);
    if (!stream->device->is_checked || !count) return;
    check_finding finding = {.is_write = false};
    const lochi_sim_access access = {
        .epoch = epoch, .stream = stream->number, .slot = (uint32_t)stream->slot, .name = check_name(op->name)};
    for (size_t i = 0; i < count; i++)
        check_use(stream, op, &uses[i], &access, &finding);
    check_finish(stream->device, &finding);
}
