/* SPDX-License-Identifier: MIT */
/* A machine for pickles of protocol 2 to 5 that knows data alone. A pickle is a program for a stack: opcodes push
 * values, mark places, and gather what lies above a mark into a list or a dictionary. Opcodes that import or call
 * something end the reading with a sentence.
 *
 * Values on the stack and in the memo have 16 bytes. When a dictionary gets its items, those with known keys are copied
 * into its record; nothing else of it stays. */
#include "torch_pickle.h"
#include "kit/fail.h"
#include <stdlib.h>
#include <string.h>

#define SHAPE_SHIFT 30
#define SHAPE_INDEX ((1u << SHAPE_SHIFT) - 1)
#define PROGRESS_BYTES ((size_t)4 << 20)

enum shape { SHAPE_DICT, SHAPE_RECORD, SHAPE_LIST, SHAPE_FRAME }; /* a DICT has no items yet */

enum kind { KIND_OTHER, KIND_NUMBER, KIND_TEXT, KIND_PAIR, KIND_OBJECT };

typedef struct value {
    uint64_t number; /* of a text: its offset in the file */
    uint32_t length; /* of a text; of a pair: the second number */
    uint8_t kind;
    uint8_t name; /* of a text: a torch_name */
} value;

typedef struct machine {
    const insight_source *source;
    loch_recording *recording;
    torch_pickle *pickle;
    size_t at;          /* next byte */
    size_t opcode_at;   /* place of the present opcode */
    lochi_array stack;  /* of value */
    lochi_array marks;  /* of uint32_t: heights of the stack */
    lochi_array memo;   /* of value */
    lochi_array text;   /* a frame that is being written */
    loch_status status; /* the first failure; ends the loop */
} machine;

/* --- failures --- */

static const char *opcode_name(uint8_t opcode)
{
    static const struct {
        uint8_t opcode;
        const char *name;
    } names[] = {
        {'c', "GLOBAL"},       {0x93, "STACK_GLOBAL"},
        {'R', "REDUCE"},       {'b', "BUILD"},
        {'i', "INST"},         {'o', "OBJ"},
        {0x81, "NEWOBJ"},      {'P', "PERSID"},
        {0x92, "NEWOBJ_EX"},   {'Q', "BINPERSID"},
        {0x82, "EXT1"},        {0x83, "EXT2"},
        {0x84, "EXT4"},        {'I', "INT"},
        {'L', "LONG"},         {'F', "FLOAT"},
        {'S', "STRING"},       {'V', "UNICODE"},
        {'p', "PUT"},          {'g', "GET"},
        {0x97, "NEXT_BUFFER"}, {0x98, "READONLY_BUFFER"},
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (names[i].opcode == opcode) return names[i].name;
    return "unknown";
}

static void machine_fail(machine *run, const char *what)
{
    if (run->status != LOCH_OK) return;
    run->status = LOCH_FAIL(INVALID, "%s: byte %zu: %s", run->source->path, run->opcode_at, what);
}

static void machine_fail_memory(machine *run)
{
    if (run->status == LOCH_OK) run->status = lochi_insight_no_memory(run->source->path);
}

static void machine_refuse(machine *run, uint8_t opcode)
{
    if (run->status != LOCH_OK) return;
    const bool is_code = opcode && strchr("cRbioPQ\x81\x82\x83\x84\x92\x93", opcode);
    run->status = LOCH_FAIL(INVALID, "%s: byte %zu: opcode 0x%02x (%s) %s", run->source->path, run->opcode_at, opcode,
                            opcode_name(opcode),
                            is_code ? "asks for code to be run; a memory snapshot needs none, and none is run"
                                    : "is not one that a memory snapshot consists of");
}

/* --- the file --- */

/* Returns the next `count` bytes; NULL and a failure if the file ends before. */
static const uint8_t *machine_bytes(machine *run, uint64_t count)
{
    if (count > run->source->bytes - run->at) {
        machine_fail(run, "the file ends in the middle");
        return NULL;
    }
    const uint8_t *bytes = run->source->data + run->at;
    run->at += (size_t)count;
    return bytes;
}

/* Reads a number of `count` bytes, at most 8, the lowest first. */
static uint64_t machine_number(machine *run, unsigned count)
{
    const uint8_t *bytes = machine_bytes(run, count);
    uint64_t number = 0;
    for (unsigned i = 0; bytes && i < count; i++)
        number |= (uint64_t)bytes[i] << (8 * i);
    return number;
}

/* --- the stack --- */

static void machine_push(machine *run, value pushed)
{
    if ((run->stack.count + 1) * sizeof pushed <= run->stack.capacity_bytes) { /* nearly always */
        ((value *)run->stack.data)[run->stack.count++] = pushed;
        return;
    }
    if (run->stack.count >= UINT32_MAX - 1 || !lochi_array_append(&run->stack, &pushed, 1, sizeof pushed))
        machine_fail_memory(run);
}

static void machine_push_number(machine *run, uint64_t number)
{
    machine_push(run, (value){.number = number, .kind = KIND_NUMBER});
}

static value *machine_stack(machine *run)
{
    return run->stack.data;
}

/* Returns the height of the stack at the last mark. Values below it belong to opcodes outside. */
static size_t machine_floor(const machine *run)
{
    return run->marks.count ? ((const uint32_t *)run->marks.data)[run->marks.count - 1] : 0;
}

/* Says whether `count` values lie above the last mark. */
static bool machine_has(machine *run, size_t count)
{
    if (run->stack.count >= machine_floor(run) + count) return true;
    machine_fail(run, "the stack has too few values");
    return false;
}

/* Takes the last mark away. Returns the height of the stack there; SIZE_MAX and a failure if there is no mark. */
static size_t machine_unmark(machine *run)
{
    if (!run->marks.count) {
        machine_fail(run, "there is no mark");
        return SIZE_MAX;
    }
    const size_t height = machine_floor(run);
    run->marks.count--;
    return height;
}

/* --- numbers and texts --- */

/* A LONG: a signed number of any length. Numbers that have no room in 64 bits become KIND_OTHER. */
static void machine_push_long(machine *run, uint64_t length)
{
    const uint8_t *bytes = machine_bytes(run, length);
    if (!bytes) return;
    const uint8_t sign = length && bytes[length - 1] >= 0x80 ? 0xff : 0;
    uint64_t number = sign ? UINT64_MAX : 0;
    for (uint64_t i = 0; i < length; i++) {
        if (i < 8)
            number = (number & ~((uint64_t)0xff << (8 * i))) | (uint64_t)bytes[i] << (8 * i);
        else if (bytes[i] != sign) {
            machine_push(run, (value){.kind = KIND_OTHER});
            return;
        }
    }
    machine_push_number(run, number);
}

static void machine_push_float(machine *run)
{
    const uint8_t *bytes = machine_bytes(run, 8);
    uint64_t bits = 0;
    double number;
    if (!bytes) return;
    for (int i = 0; i < 8; i++)
        bits = bits << 8 | bytes[i];
    memcpy(&number, &bits, sizeof number);
    if (number >= 0 && number < 9e18)
        machine_push_number(run, (uint64_t)number);
    else
        machine_push(run, (value){.kind = KIND_OTHER});
}

static torch_name name_of(const char *text, size_t length)
{
    static const struct {
        const char *text;
        uint8_t length, name;
    } names[] = {
#define NAME(text, name) {text, sizeof text - 1, name}
        NAME("action", TORCH_KEY_ACTION),
        NAME("addr", TORCH_KEY_ADDRESS),
        NAME("address", TORCH_KEY_ADDRESS),
        NAME("device_free", TORCH_KEY_ADDRESS),
        NAME("size", TORCH_KEY_SIZE),
        NAME("total_size", TORCH_KEY_SIZE),
        NAME("requested_size", TORCH_KEY_REQUESTED),
        NAME("stream", TORCH_KEY_STREAM),
        NAME("time_us", TORCH_KEY_TIME),
        NAME("frames", TORCH_KEY_FRAMES),
        NAME("user_metadata", TORCH_KEY_METADATA),
        NAME("category", TORCH_KEY_CATEGORY),
        NAME("compile_context", TORCH_KEY_CONTEXT),
        NAME("segment_pool_id", TORCH_KEY_POOL),
        NAME("pool_id", TORCH_KEY_POOL),
        NAME("device", TORCH_KEY_DEVICE),
        NAME("state", TORCH_KEY_STATE),
        NAME("blocks", TORCH_KEY_BLOCKS),
        NAME("segments", TORCH_KEY_SEGMENTS),
        NAME("device_traces", TORCH_KEY_TRACES),
        NAME("name", TORCH_KEY_NAME),
        NAME("filename", TORCH_KEY_FILE),
        NAME("line", TORCH_KEY_LINE),
        NAME("alloc", TORCH_ALLOC),
        NAME("free_requested", TORCH_FREE_REQUESTED),
        NAME("free_completed", TORCH_FREE_COMPLETED),
        NAME("segment_alloc", TORCH_SEGMENT_ALLOC),
        NAME("segment_free", TORCH_SEGMENT_FREE),
        NAME("segment_map", TORCH_SEGMENT_MAP),
        NAME("segment_unmap", TORCH_SEGMENT_UNMAP),
        NAME("snapshot", TORCH_SNAPSHOT),
        NAME("oom", TORCH_OOM),
        NAME("active_allocated", TORCH_ACTIVE),
        NAME("active_pending_free", TORCH_PENDING),
        NAME("active_awaiting_free", TORCH_PENDING),
        NAME("inactive", TORCH_INACTIVE),
#undef NAME
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (names[i].length == length && !memcmp(names[i].text, text, length)) return (torch_name)names[i].name;
    return TORCH_UNKNOWN;
}

static void machine_push_text(machine *run, uint64_t length)
{
    const size_t offset = run->at;
    const char *text = (const char *)machine_bytes(run, length);
    if (!text) return;
    if (length > UINT32_MAX) {
        machine_fail(run, "a text has 4 GiB or more");
        return;
    }
    machine_push(run, (value){.number = offset,
                              .length = (uint32_t)length,
                              .kind = KIND_TEXT,
                              .name = (uint8_t)name_of(text, (size_t)length)});
}

/* --- objects --- */

static uint32_t *pickle_objects(const torch_pickle *pickle)
{
    return pickle->objects.data;
}

/* Pushes a new object. */
static void machine_push_object(machine *run, enum shape shape, size_t index)
{
    const uint32_t object = (uint32_t)shape << SHAPE_SHIFT | (uint32_t)index;
    const size_t number = run->pickle->objects.count;
    if (index > SHAPE_INDEX || number >= UINT32_MAX - 1 ||
        !lochi_array_append(&run->pickle->objects, &object, 1, sizeof object))
        machine_fail_memory(run);
    else
        machine_push(run, (value){.number = number, .kind = KIND_OBJECT});
}

static void machine_push_list(machine *run)
{
    const torch_list list = {.first = LOCH_RECORDING_NONE, .last = LOCH_RECORDING_NONE};
    if (!lochi_array_append(&run->pickle->lists, &list, 1, sizeof list))
        machine_fail_memory(run);
    else
        machine_push_object(run, SHAPE_LIST, run->pickle->lists.count - 1);
}

/* Appends the values from height `from` on to the list that `target` is; appending to another thing does nothing. */
static void machine_append(machine *run, value target, size_t from)
{
    torch_pickle *pickle = run->pickle;
    torch_list *list =
        target.kind == KIND_OBJECT ? lochi_insight_torch_pickle_get_list(pickle, (uint32_t)target.number) : NULL;
    const size_t count = run->stack.count - from, start = pickle->items.count;
    const value *values = machine_stack(run) + from;
    run->stack.count = from;
    if (!list || !count) return;
    const torch_chunk chunk = {(uint32_t)start, (uint32_t)count, LOCH_RECORDING_NONE};
    const size_t number = pickle->chunks.count;
    if (start + count >= UINT32_MAX || list->count + count >= UINT32_MAX ||
        !lochi_array_reserve(&pickle->items, start + count, sizeof(uint32_t)) ||
        !lochi_array_append(&pickle->chunks, &chunk, 1, sizeof chunk)) {
        machine_fail_memory(run);
        return;
    }
    uint32_t *items = pickle->items.data;
    for (size_t i = 0; i < count; i++)
        items[start + i] = values[i].kind == KIND_OBJECT ? (uint32_t)values[i].number : TORCH_NO_OBJECT;
    pickle->items.count += count;
    if (list->last == LOCH_RECORDING_NONE)
        list->first = (uint32_t)number;
    else
        ((torch_chunk *)pickle->chunks.data)[list->last].next = (uint32_t)number;
    list->last = (uint32_t)number;
    list->count += (uint32_t)count;
}

/* Stores a text in the recording. Returns its offset there; 0 for what is no text. */
static uint32_t machine_intern(machine *run, const value *text)
{
    if (text->kind != KIND_TEXT) return 0;
    const uint32_t offset =
        lochi_insight_recording_add_text(run->recording, (const char *)run->source->data + text->number, text->length);
    if (offset != LOCH_RECORDING_NONE) return offset;
    machine_fail_memory(run);
    return 0;
}

/* Returns the text of a private pool; 0 for the common pool. */
static uint32_t machine_intern_pool(machine *run, const value *pair)
{
    char name[48];
    if (pair->kind != KIND_PAIR || (!pair->number && !pair->length)) return 0;
    const int length = snprintf(name, sizeof name, "pool %llu:%u", (unsigned long long)pair->number, pair->length);
    const uint32_t offset = lochi_insight_recording_add_text(run->recording, name, (size_t)length);
    if (offset != LOCH_RECORDING_NONE) return offset;
    machine_fail_memory(run);
    return 0;
}

static bool text_equals(const machine *run, const value *text, const char *other)
{
    return text->length == strlen(other) && !memcmp(run->source->data + text->number, other, text->length);
}

/* Copies one item of a dictionary into its record. */
static void record_set(machine *run, torch_record *record, uint8_t key, const value *item)
{
    const uint32_t object = item->kind == KIND_OBJECT ? (uint32_t)item->number : LOCH_RECORDING_NONE;
    const bool is_number = item->kind == KIND_NUMBER;
    switch ((torch_name)key) {
    case TORCH_KEY_ADDRESS:
        if (!is_number) break;
        record->address = item->number;
        record->has |= TORCH_HAS_ADDRESS;
        break;
    case TORCH_KEY_SIZE:
        if (!is_number) break;
        record->size = item->number;
        record->has |= TORCH_HAS_SIZE;
        break;
    case TORCH_KEY_TIME:
    case TORCH_KEY_REQUESTED:
        if (!is_number) break;
        record->time = item->number;
        record->has |= TORCH_HAS_TIME;
        break;
    case TORCH_KEY_STREAM: record->stream = is_number ? item->number : 0; break;
    case TORCH_KEY_DEVICE: record->device = is_number && item->number < UINT16_MAX ? (uint16_t)item->number : 0; break;
    case TORCH_KEY_LINE: record->line = is_number && item->number < UINT32_MAX ? (uint32_t)item->number : 0; break;
    case TORCH_KEY_ACTION:
    case TORCH_KEY_STATE: record->word = item->kind == KIND_TEXT ? item->name : TORCH_UNKNOWN; break;
    case TORCH_KEY_FRAMES:
    case TORCH_KEY_TRACES: record->frames = object; break;
    case TORCH_KEY_BLOCKS:
    case TORCH_KEY_SEGMENTS: record->items = object; break;
    case TORCH_KEY_POOL: record->other = machine_intern_pool(run, item); break;
    case TORCH_KEY_METADATA:
    case TORCH_KEY_CATEGORY:
        if (item->kind == KIND_TEXT && item->length) record->tag = machine_intern(run, item);
        break;
    case TORCH_KEY_CONTEXT: /* what the program says itself goes first */
        if (item->kind == KIND_TEXT && !record->tag && item->length && !text_equals(run, item, "N/A"))
            record->tag = machine_intern(run, item);
        break;
    case TORCH_KEY_NAME: record->tag = machine_intern(run, item); break;
    case TORCH_KEY_FILE: record->other = machine_intern(run, item); break;
    default: break;
    }
}

/* Stores the text of a frame: "function at file:line", or "function" if the file is not known. `text` is room for it.
 * Returns its offset; LOCH_RECORDING_NONE if there is no memory. */
static uint32_t frame_intern(loch_recording *recording, lochi_array *text, const char *function, size_t function_length,
                             const char *file, size_t file_length, uint32_t line)
{
    char number[32];
    const bool is_unknown =
        !file_length ||
        (!line && ((file_length == 2 && !memcmp(file, "??", 2)) || (file_length == 4 && !memcmp(file, "none", 4))));
    text->count = 0;
    bool is_good = lochi_array_append(text, function, function_length, 1);
    if (!is_unknown) {
        const size_t digits = (size_t)snprintf(number, sizeof number, ":%u", line);
        is_good = is_good && lochi_array_append(text, " at ", 4, 1) && lochi_array_append(text, file, file_length, 1) &&
                  lochi_array_append(text, number, digits, 1);
    }
    const uint32_t offset =
        is_good ? lochi_insight_recording_add_text(recording, text->data, text->count) : LOCH_RECORDING_NONE;
    return offset > SHAPE_INDEX ? LOCH_RECORDING_NONE : offset;
}

/* Makes the dictionary a frame if it is one: function, file and line, in one batch. */
static bool machine_set_frame(machine *run, uint32_t object, const value *items, size_t count)
{
    const value *function = NULL, *file = NULL, *line = NULL;
    for (size_t i = 0; i + 1 < count; i += 2) {
        if (items[i].kind != KIND_TEXT) continue;
        if (items[i].name == TORCH_KEY_NAME && items[i + 1].kind == KIND_TEXT)
            function = &items[i + 1];
        else if (items[i].name == TORCH_KEY_FILE && items[i + 1].kind == KIND_TEXT)
            file = &items[i + 1];
        else if (items[i].name == TORCH_KEY_LINE && items[i + 1].kind == KIND_NUMBER)
            line = &items[i + 1];
        else if (items[i].name == TORCH_KEY_ACTION || items[i].name == TORCH_KEY_BLOCKS)
            return false;
    }
    if (!function || !file || !line) return false;
    const char *text = (const char *)run->source->data;
    const uint32_t offset = frame_intern(run->recording, &run->text, text + function->number, function->length,
                                         text + file->number, file->length, (uint32_t)line->number);
    if (offset == LOCH_RECORDING_NONE)
        machine_fail_memory(run);
    else
        pickle_objects(run->pickle)[object] = (uint32_t)SHAPE_FRAME << SHAPE_SHIFT | offset;
    return true;
}

/* Sets the pairs from height `from` on as items of the dictionary that `target` is. */
static void machine_set(machine *run, value target, size_t from)
{
    torch_pickle *pickle = run->pickle;
    const size_t count = run->stack.count - from;
    const value *items = machine_stack(run) + from;
    run->stack.count = from;
    if (count % 2) {
        machine_fail(run, "a dictionary has a key without a value");
        return;
    }
    if (target.kind != KIND_OBJECT) return;
    const uint32_t object = (uint32_t)target.number;
    uint32_t *shape = pickle_objects(pickle) + object;
    if (*shape >> SHAPE_SHIFT == SHAPE_DICT) {
        if (machine_set_frame(run, object, items, count)) return;
        bool is_known = false;
        for (size_t i = 0; i < count && !is_known; i += 2)
            is_known = items[i].kind == KIND_TEXT && items[i].name && items[i].name < TORCH_ALLOC;
        if (!is_known) return;
        const torch_record record = {.frames = LOCH_RECORDING_NONE, .items = LOCH_RECORDING_NONE};
        if (pickle->records.count > SHAPE_INDEX || !lochi_array_append(&pickle->records, &record, 1, sizeof record)) {
            machine_fail_memory(run);
            return;
        }
        *shape = (uint32_t)SHAPE_RECORD << SHAPE_SHIFT | (uint32_t)(pickle->records.count - 1);
    }
    torch_record *record = lochi_insight_torch_pickle_get_record(pickle, object);
    for (size_t i = 0; record && i < count; i += 2)
        if (items[i].kind == KIND_TEXT) record_set(run, record, items[i].name, &items[i + 1]);
}

/* A tuple: two numbers are kept, others are not. */
static void machine_push_tuple(machine *run, size_t from)
{
    const value *items = machine_stack(run) + from;
    const size_t count = run->stack.count - from;
    value tuple = {.kind = KIND_OTHER};
    if (count == 2 && items[0].kind == KIND_NUMBER && items[1].kind == KIND_NUMBER && items[1].number < UINT32_MAX)
        tuple = (value){.number = items[0].number, .length = (uint32_t)items[1].number, .kind = KIND_PAIR};
    if (count && items[0].kind == KIND_OBJECT) { /* a tuple of frames or of entries is as good as a list */
        machine_push_list(run);
        if (run->status != LOCH_OK) return;
        tuple = machine_stack(run)[--run->stack.count];
        machine_append(run, tuple, from);
    }
    run->stack.count = from;
    machine_push(run, tuple);
}

/* --- the memo --- */

static void machine_put(machine *run, uint64_t number)
{
    if (!machine_has(run, 1)) return;
    if (number > run->source->bytes) { /* every number of the memo costs a byte at least */
        machine_fail(run, "the memo has no such place");
        return;
    }
    if ((number + 1) * sizeof(value) > run->memo.capacity_bytes &&
        !lochi_array_reserve(&run->memo, (size_t)number + 1, sizeof(value))) {
        machine_fail_memory(run);
        return;
    }
    ((value *)run->memo.data)[number] = machine_stack(run)[run->stack.count - 1];
    if (number >= run->memo.count) run->memo.count = (size_t)number + 1;
}

static void machine_get(machine *run, uint64_t number)
{
    if (run->status != LOCH_OK) return;
    if (number >= run->memo.count)
        machine_fail(run, "the memo has no such value");
    else
        machine_push(run, ((const value *)run->memo.data)[number]);
}

/* --- opcodes --- */

static void machine_mark(machine *run)
{
    const uint32_t height = (uint32_t)run->stack.count;
    if (!lochi_array_append(&run->marks, &height, 1, sizeof height)) machine_fail_memory(run);
}

/* Gathers what lies above the mark, and gives it to the value below. */
static void machine_gather(machine *run, void (*give)(machine *, value, size_t))
{
    const size_t from = machine_unmark(run);
    if (from == SIZE_MAX) return;
    if (from < machine_floor(run) + 1)
        machine_fail(run, "there is nothing below the mark");
    else
        give(run, machine_stack(run)[from - 1], from);
}

/* Gives the last `count` values to the value below. */
static void machine_give(machine *run, size_t count, void (*give)(machine *, value, size_t))
{
    if (!machine_has(run, count + 1)) return;
    const size_t from = run->stack.count - count;
    give(run, machine_stack(run)[from - 1], from);
}

/* Makes a new list or dictionary of what lies above the mark. */
static void machine_collect(machine *run, bool is_list)
{
    const size_t from = machine_unmark(run);
    if (from == SIZE_MAX) return;
    if (is_list)
        machine_push_list(run);
    else
        machine_push_object(run, SHAPE_DICT, 0);
    if (run->status != LOCH_OK) return;
    const value made = machine_stack(run)[--run->stack.count];
    if (is_list)
        machine_append(run, made, from);
    else
        machine_set(run, made, from);
    machine_push(run, made);
}

static void machine_tuple(machine *run, size_t count)
{
    if (machine_has(run, count)) machine_push_tuple(run, run->stack.count - count);
}

static void machine_pop(machine *run)
{
    if (run->marks.count && run->stack.count == machine_floor(run))
        run->marks.count--; /* takes the mark */
    else if (machine_has(run, 1))
        run->stack.count--;
}

static void machine_skip(machine *run, uint64_t length)
{
    if (machine_bytes(run, length)) machine_push(run, (value){.kind = KIND_OTHER});
}

static void machine_drop_to_mark(machine *run, bool has_result)
{
    const size_t from = machine_unmark(run);
    if (from == SIZE_MAX) return;
    run->stack.count = from;
    if (has_result) machine_push(run, (value){.kind = KIND_OTHER});
}

/* Runs one opcode. Returns false at STOP. */
static bool machine_step(machine *run, uint8_t opcode)
{
    switch (opcode) {
    case 0x80: /* PROTO */
        if (machine_number(run, 1) > 5) machine_fail(run, "pickles of this protocol are not known; known are 2 to 5");
        break;
    case 0x95: (void)machine_number(run, 8); break; /* FRAME */
    case '.': return false;                         /* STOP */
    case '(': machine_mark(run); break;
    case '0': machine_pop(run); break;
    case '1': machine_drop_to_mark(run, false); break; /* POP_MARK */
    case '2':                                          /* DUP */
        if (machine_has(run, 1)) machine_push(run, machine_stack(run)[run->stack.count - 1]);
        break;
    case 'N': machine_push(run, (value){.kind = KIND_OTHER}); break;
    case 0x88: machine_push_number(run, 1); break;                                                 /* NEWTRUE */
    case 0x89: machine_push_number(run, 0); break;                                                 /* NEWFALSE */
    case 'J': machine_push_number(run, (uint64_t)(int64_t)(int32_t)machine_number(run, 4)); break; /* BININT */
    case 'K': machine_push_number(run, machine_number(run, 1)); break;
    case 'M': machine_push_number(run, machine_number(run, 2)); break;
    case 0x8a: machine_push_long(run, machine_number(run, 1)); break; /* LONG1 */
    case 0x8b: machine_push_long(run, machine_number(run, 4)); break; /* LONG4 */
    case 'G': machine_push_float(run); break;
    case 0x8c: /* SHORT_BINUNICODE */
    case 'U': machine_push_text(run, machine_number(run, 1)); break;
    case 'X': /* BINUNICODE */
    case 'T': machine_push_text(run, machine_number(run, 4)); break;
    case 0x8d: machine_push_text(run, machine_number(run, 8)); break; /* BINUNICODE8 */
    case 'C': machine_skip(run, machine_number(run, 1)); break;       /* bytes */
    case 'B': machine_skip(run, machine_number(run, 4)); break;
    case 0x8e:
    case 0x96: machine_skip(run, machine_number(run, 8)); break;
    case ']': machine_push_list(run); break;
    case '}': machine_push_object(run, SHAPE_DICT, 0); break;
    case 0x8f: machine_push(run, (value){.kind = KIND_OTHER}); break; /* EMPTY_SET */
    case 0x90: machine_gather(run, machine_append); break;            /* ADDITEMS: to a set, which is not kept */
    case 0x91: machine_drop_to_mark(run, true); break;                /* FROZENSET */
    case 'a': machine_give(run, 1, machine_append); break;
    case 'e': machine_gather(run, machine_append); break;
    case 's': machine_give(run, 2, machine_set); break;
    case 'u': machine_gather(run, machine_set); break;
    case 'l': machine_collect(run, true); break;
    case 'd': machine_collect(run, false); break;
    case ')': machine_tuple(run, 0); break;
    case 0x85: machine_tuple(run, 1); break;
    case 0x86: machine_tuple(run, 2); break;
    case 0x87: machine_tuple(run, 3); break;
    case 't': { /* TUPLE */
        const size_t from = machine_unmark(run);
        if (from != SIZE_MAX) machine_push_tuple(run, from);
        break;
    }
    case 0x94: machine_put(run, run->memo.count); break; /* MEMOIZE */
    case 'q': machine_put(run, machine_number(run, 1)); break;
    case 'r': machine_put(run, machine_number(run, 4)); break;
    case 'h': machine_get(run, machine_number(run, 1)); break;
    case 'j': machine_get(run, machine_number(run, 4)); break;
    default: machine_refuse(run, opcode); break;
    }
    return true;
}

loch_status lochi_insight_torch_pickle_read(const insight_source *source, const loch_recording_options *options,
                                            loch_recording *recording, torch_pickle *pickle)
{
    machine run = {.source = source, .recording = recording, .pickle = pickle};
    size_t reported = 0;
    bool has_more = true;
    *pickle = (torch_pickle){.root = LOCH_RECORDING_NONE};
    if (!lochi_array_reserve(&run.stack, 1, sizeof(value))) machine_fail_memory(&run);
    while (has_more && run.status == LOCH_OK) {
        run.opcode_at = run.at;
        const uint8_t *opcode = machine_bytes(&run, 1);
        if (opcode) has_more = machine_step(&run, *opcode);
        if (run.at - reported < PROGRESS_BYTES) continue;
        reported = run.at;
        const loch_status status = lochi_insight_progress(options, run.at / 2, source->bytes); /* half of the work */
        if (run.status == LOCH_OK) run.status = status;
    }
    if (run.status == LOCH_OK && machine_has(&run, 1)) {
        const value root = machine_stack(&run)[run.stack.count - 1];
        if (root.kind == KIND_OBJECT) pickle->root = (uint32_t)root.number;
    }
    lochi_array_free(&run.stack);
    lochi_array_free(&run.marks);
    lochi_array_free(&run.memo);
    lochi_array_free(&run.text);
    return run.status;
}

void lochi_insight_torch_pickle_free(torch_pickle *pickle)
{
    lochi_array_free(&pickle->objects);
    lochi_array_free(&pickle->records);
    lochi_array_free(&pickle->lists);
    lochi_array_free(&pickle->chunks);
    lochi_array_free(&pickle->items);
    for (size_t i = 0; i < sizeof pickle->room / sizeof *pickle->room; i++)
        lochi_array_free(&pickle->room[i]);
}

/* --- looking --- */

torch_record *lochi_insight_torch_pickle_get_record(const torch_pickle *pickle, uint32_t object)
{
    if (object >= pickle->objects.count) return NULL;
    const uint32_t shape = pickle_objects(pickle)[object];
    return shape >> SHAPE_SHIFT == SHAPE_RECORD ? (torch_record *)pickle->records.data + (shape & SHAPE_INDEX) : NULL;
}

torch_list *lochi_insight_torch_pickle_get_list(const torch_pickle *pickle, uint32_t object)
{
    if (object >= pickle->objects.count) return NULL;
    const uint32_t shape = pickle_objects(pickle)[object];
    return shape >> SHAPE_SHIFT == SHAPE_LIST ? (torch_list *)pickle->lists.data + (shape & SHAPE_INDEX) : NULL;
}

uint32_t lochi_insight_torch_list_next(const torch_pickle *pickle, torch_cursor *cursor)
{
    while (cursor->chunk != LOCH_RECORDING_NONE) {
        const torch_chunk *chunk = (const torch_chunk *)pickle->chunks.data + cursor->chunk;
        if (cursor->at < chunk->count) return ((const uint32_t *)pickle->items.data)[chunk->start + cursor->at++];
        *cursor = (torch_cursor){chunk->next, 0};
    }
    return LOCH_RECORDING_NONE;
}

/* Returns the text of a frame; LOCH_RECORDING_NONE if there is no memory. What is no frame is "". */
static uint32_t pickle_get_frame(torch_pickle *pickle, loch_recording *recording, uint32_t object)
{
    if (object >= pickle->objects.count) return 0;
    const uint32_t shape = pickle_objects(pickle)[object];
    if (shape >> SHAPE_SHIFT == SHAPE_FRAME) return shape & SHAPE_INDEX;
    const torch_record *record = lochi_insight_torch_pickle_get_record(pickle, object);
    if (!record) return 0;
    /* The items came one by one. The texts are copied, because adding one may move them. */
    const char *all = recording->text.data;
    const size_t lengths[2] = {strlen(all + record->tag), strlen(all + record->other)};
    lochi_array *copy = &pickle->room[0];
    copy->count = 0;
    if (!lochi_array_reserve(copy, 1, 1) || !lochi_array_append(copy, all + record->tag, lengths[0], 1) ||
        !lochi_array_append(copy, all + record->other, lengths[1], 1))
        return LOCH_RECORDING_NONE;
    return frame_intern(recording, &pickle->room[1], copy->data, lengths[0], (const char *)copy->data + lengths[0],
                        lengths[1], record->line);
}

uint32_t lochi_insight_torch_pickle_get_stack(torch_pickle *pickle, loch_recording *recording, uint32_t frames,
                                              bool *is_good)
{
    torch_list *list = lochi_insight_torch_pickle_get_list(pickle, frames);
    if (!list || !list->count) return LOCH_RECORDING_NONE;
    if (list->stack) return list->stack - 1;
    lochi_array *offsets = &pickle->room[2];
    offsets->count = 0;
    torch_cursor cursor = torch_list_start(list);
    bool is_complete = true;
    for (uint32_t object;
         is_complete && (object = lochi_insight_torch_list_next(pickle, &cursor)) != LOCH_RECORDING_NONE;) {
        const uint32_t frame = pickle_get_frame(pickle, recording, object);
        is_complete = frame != LOCH_RECORDING_NONE && lochi_array_append(offsets, &frame, 1, sizeof frame);
    }
    uint32_t stack = LOCH_RECORDING_NONE;
    if (is_complete) stack = lochi_insight_recording_add_stack(recording, offsets->data, offsets->count);
    if (stack == LOCH_RECORDING_NONE)
        *is_good = false;
    else
        list->stack = stack + 1;
    return stack;
}
