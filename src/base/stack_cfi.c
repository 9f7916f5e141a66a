/* SPDX-License-Identifier: MIT */
/* Unwind tables. The header is a sorted table of functions; each has a description (FDE) with a common part (CIE), and
 * both hold instructions that build the rule of each address from the rules of the addresses before it. Only three
 * rules matter to the walk: those of the caller's frame, of the frame pointer and of the return address. */
#include "base/stack_cfi.h"
#include <stdbool.h>
#include <string.h>

#if defined __x86_64__

#define CFI_FP 6 /* numbers of registers in the tables */
#define CFI_SP 7
#define CFI_PC 16
#define CFI_STATES 8 /* nested remembered states */

/* Encodings of addresses (DW_EH_PE). */
enum {
    CFI_ABSOLUTE = 0x00,
    CFI_UDATA2 = 0x02,
    CFI_UDATA4 = 0x03,
    CFI_UDATA8 = 0x04,
    CFI_SDATA4 = 0x0b,
    CFI_SDATA8 = 0x0c
};
enum { CFI_PC_RELATIVE = 0x10, CFI_HEADER_RELATIVE = 0x30, CFI_INDIRECT = 0x80, CFI_OMITTED = 0xff };

typedef struct cfi_reader {
    const uint8_t *at, *end;
    bool is_bad; /* something was cut short or is not known; all reads give 0 from then on */
} cfi_reader;

static uint64_t cfi_fixed(cfi_reader *reader, unsigned bytes)
{
    uint64_t value = 0;
    if (reader->is_bad || (size_t)(reader->end - reader->at) < bytes) {
        reader->is_bad = true;
        return 0;
    }
    memcpy(&value, reader->at, bytes);
    reader->at += bytes;
    return value;
}

static uint64_t cfi_unsigned(cfi_reader *reader)
{
    uint64_t value = 0;
    for (unsigned shift = 0;; shift += 7) {
        const uint64_t byte = cfi_fixed(reader, 1);
        if (shift < 64) value |= (byte & 0x7f) << shift;
        if (!(byte & 0x80)) return value;
    }
}

static int64_t cfi_signed(cfi_reader *reader)
{
    uint64_t value = 0, byte;
    unsigned shift = 0;
    do {
        byte = cfi_fixed(reader, 1);
        if (shift < 64) value |= (byte & 0x7f) << shift;
        shift += 7;
    } while (byte & 0x80);
    if (byte & 0x40 && shift < 64) value |= ~(uint64_t)0 << shift;
    return (int64_t)value;
}

static void cfi_skip(cfi_reader *reader, uint64_t bytes)
{
    if (reader->is_bad || (size_t)(reader->end - reader->at) < bytes)
        reader->is_bad = true;
    else
        reader->at += bytes;
}

/* Reads an encoded address. `header` is what header-relative ones are relative to. */
static uintptr_t cfi_address(cfi_reader *reader, unsigned encoding, const uint8_t *header)
{
    const uintptr_t place = (uintptr_t)reader->at;
    uint64_t value = 0;
    switch (encoding & 0x0f) {
    case CFI_ABSOLUTE:
    case CFI_UDATA8:
    case CFI_SDATA8: value = cfi_fixed(reader, 8); break;
    case CFI_UDATA4: value = cfi_fixed(reader, 4); break;
    case CFI_SDATA4: value = (uint64_t)(int64_t)(int32_t)cfi_fixed(reader, 4); break;
    case CFI_UDATA2: value = cfi_fixed(reader, 2); break;
    default: reader->is_bad = true;
    }
    switch (encoding & 0xf0) {
    case 0: break;
    case CFI_PC_RELATIVE: value += place; break;
    case CFI_HEADER_RELATIVE: value += (uintptr_t)header; break;
    default: reader->is_bad = true;
    }
    return (uintptr_t)value;
}

/* --- the description of a function --- */

typedef struct cfi_function {
    uint64_t code_step;
    int64_t data_step;
    unsigned encoding; /* of addresses in the FDE */
    bool has_augmentation, is_signal;
    cfi_reader first, own; /* instructions of the CIE, then of the FDE */
    uintptr_t start, bytes;
} cfi_function;

/* Reads the length of an entry, and makes `entry` end with it. */
static void cfi_enter(cfi_reader *entry)
{
    uint64_t length = cfi_fixed(entry, 4);
    if (length == 0xffffffff) length = cfi_fixed(entry, 8);
    if (!length || (size_t)(entry->end - entry->at) < length)
        entry->is_bad = true;
    else
        entry->end = entry->at + length;
}

static bool cfi_read_common(cfi_reader entry, cfi_function *function)
{
    cfi_enter(&entry);
    if (cfi_fixed(&entry, 4) != 0) return false;
    const unsigned version = (unsigned)cfi_fixed(&entry, 1);
    if (version != 1 && version != 3 && version != 4) return false;
    char letters[8] = "";
    for (size_t i = 0; i < sizeof letters && !entry.is_bad; i++) {
        letters[i] = (char)cfi_fixed(&entry, 1);
        if (!letters[i]) break;
    }
    if (entry.is_bad || letters[sizeof letters - 1]) return false;
    if (version == 4) cfi_skip(&entry, 2);
    function->code_step = cfi_unsigned(&entry);
    function->data_step = cfi_signed(&entry);
    if ((version == 1 ? cfi_fixed(&entry, 1) : cfi_unsigned(&entry)) != CFI_PC) return false;
    function->encoding = CFI_ABSOLUTE;
    function->has_augmentation = letters[0] == 'z';
    if (letters[0] && !function->has_augmentation) return false;
    const uint64_t bytes = function->has_augmentation ? cfi_unsigned(&entry) : 0;
    function->first = entry;
    cfi_skip(&function->first, bytes);
    for (size_t i = 1; function->has_augmentation && letters[i]; i++) {
        if (letters[i] == 'R')
            function->encoding = (unsigned)cfi_fixed(&entry, 1);
        else if (letters[i] == 'L')
            cfi_skip(&entry, 1);
        else if (letters[i] == 'P')
            cfi_address(&entry, (unsigned)cfi_fixed(&entry, 1) & ~(unsigned)CFI_INDIRECT, entry.at);
        else if (letters[i] == 'S')
            function->is_signal = true;
        else
            return false;
    }
    return !entry.is_bad && !function->first.is_bad;
}

/* Reads the description at `entry`. `start` is where the tables may begin. */
static bool cfi_read_function(cfi_reader entry, const uint8_t *start, cfi_function *function)
{
    const uint8_t *limit = entry.end;
    *function = (cfi_function){0};
    cfi_enter(&entry);
    const uint8_t *place = entry.at;
    const uint64_t back = cfi_fixed(&entry, 4);
    if (entry.is_bad || !back || back > (size_t)(place - start)) return false;
    if (!cfi_read_common((cfi_reader){place - back, limit, false}, function)) return false;
    function->start = cfi_address(&entry, function->encoding, entry.at);
    function->bytes = cfi_address(&entry, function->encoding & 0x0f, entry.at);
    if (function->has_augmentation) cfi_skip(&entry, cfi_unsigned(&entry));
    function->own = entry;
    return !entry.is_bad;
}

/* --- the instructions --- */

typedef enum cfi_kind { CFI_SAME, CFI_AT_CFA, CFI_AT_FP, CFI_OTHER } cfi_kind;

typedef struct cfi_state {
    unsigned from;   /* LOCHI_STACK_FROM_SP, ... */
    int64_t offset;  /* of the CFA */
    cfi_kind fp, pc; /* where the register is saved */
    int64_t fp_offset, pc_offset;
} cfi_state;

typedef struct cfi_machine {
    cfi_state now, initial, kept[CFI_STATES];
    unsigned kept_count;
    uintptr_t address;
} cfi_machine;

static void cfi_save(cfi_state *state, uint64_t reg, cfi_kind kind, int64_t offset)
{
    if (reg == CFI_FP) {
        state->fp = kind;
        state->fp_offset = offset;
    } else if (reg == CFI_PC) {
        state->pc = kind;
        state->pc_offset = offset;
    }
}

static void cfi_restore(cfi_machine *machine, uint64_t reg)
{
    if (reg == CFI_FP) cfi_save(&machine->now, reg, machine->initial.fp, machine->initial.fp_offset);
    if (reg == CFI_PC) cfi_save(&machine->now, reg, machine->initial.pc, machine->initial.pc_offset);
}

static void cfi_define(cfi_state *state, uint64_t reg, int64_t offset)
{
    state->from = reg == CFI_SP ? LOCHI_STACK_FROM_SP : reg == CFI_FP ? LOCHI_STACK_FROM_FP : LOCHI_STACK_END;
    state->offset = offset;
}

/* Multiplies an operand by the step of offsets. Damaged tables may overflow; the result is refused by cfi_pack. */
static int64_t cfi_scale(uint64_t operand, const cfi_function *function)
{
    return (int64_t)(operand * (uint64_t)function->data_step);
}

/* Reads an expression. Returns whether it is "frame pointer + offset", and reads the word there if `is_deref`. */
static bool cfi_expression(cfi_reader *reader, bool is_deref, int64_t *offset)
{
    const uint64_t length = cfi_unsigned(reader);
    cfi_reader body = *reader;
    cfi_skip(reader, length);
    if (reader->is_bad) return false;
    body.end = body.at + length;
    const bool is_register = cfi_fixed(&body, 1) == 0x70 + CFI_FP; /* DW_OP_breg6 */
    *offset = cfi_signed(&body);
    const bool has_deref = body.at < body.end && cfi_fixed(&body, 1) == 0x06; /* DW_OP_deref */
    return is_register && has_deref == is_deref && body.at == body.end && !body.is_bad;
}

/* Runs one of the instructions without an operand in their first byte, except those that change the address. */
static void cfi_run_other(cfi_machine *machine, cfi_reader *reader, const cfi_function *function, unsigned code)
{
    cfi_state *now = &machine->now;
    uint64_t reg;
    int64_t offset = 0;
    bool is_from_fp;
    switch (code) {
    case 0x00: break; /* nop */
    case 0x05:        /* offset_extended */
        reg = cfi_unsigned(reader);
        cfi_save(now, reg, CFI_AT_CFA, cfi_scale(cfi_unsigned(reader), function));
        break;
    case 0x06: cfi_restore(machine, cfi_unsigned(reader)); break;        /* restore_extended */
    case 0x07: cfi_save(now, cfi_unsigned(reader), CFI_OTHER, 0); break; /* undefined */
    case 0x08: cfi_save(now, cfi_unsigned(reader), CFI_SAME, 0); break;  /* same_value */
    case 0x09:                                                           /* register */
        cfi_save(now, cfi_unsigned(reader), CFI_OTHER, 0);
        cfi_unsigned(reader);
        break;
    case 0x0a: /* remember_state */
        if (machine->kept_count == CFI_STATES)
            reader->is_bad = true;
        else
            machine->kept[machine->kept_count++] = *now;
        break;
    case 0x0b: /* restore_state */
        if (!machine->kept_count)
            reader->is_bad = true;
        else
            *now = machine->kept[--machine->kept_count];
        break;
    case 0x0c: /* def_cfa */
        reg = cfi_unsigned(reader);
        cfi_define(now, reg, (int64_t)cfi_unsigned(reader));
        break;
    case 0x0d: cfi_define(now, cfi_unsigned(reader), now->offset); break; /* def_cfa_register */
    case 0x0e: now->offset = (int64_t)cfi_unsigned(reader); break;        /* def_cfa_offset */
    case 0x0f:                                                            /* def_cfa_expression */
        now->from = cfi_expression(reader, true, &now->offset) ? LOCHI_STACK_REALIGNED : LOCHI_STACK_END;
        break;
    case 0x10: /* expression */
        reg = cfi_unsigned(reader);
        is_from_fp = cfi_expression(reader, false, &offset);
        cfi_save(now, reg, is_from_fp ? CFI_AT_FP : CFI_OTHER, offset);
        break;
    case 0x11: /* offset_extended_sf */
        reg = cfi_unsigned(reader);
        cfi_save(now, reg, CFI_AT_CFA, cfi_scale((uint64_t)cfi_signed(reader), function));
        break;
    case 0x12: /* def_cfa_sf */
        reg = cfi_unsigned(reader);
        cfi_define(now, reg, cfi_scale((uint64_t)cfi_signed(reader), function));
        break;
    case 0x13: now->offset = cfi_scale((uint64_t)cfi_signed(reader), function); break; /* def_cfa_offset_sf */
    case 0x14:                                                                         /* val_offset */
    case 0x15:                                                                         /* val_offset_sf */
        cfi_save(now, cfi_unsigned(reader), CFI_OTHER, 0);
        cfi_unsigned(reader);
        break;
    case 0x16: /* val_expression */
        cfi_save(now, cfi_unsigned(reader), CFI_OTHER, 0);
        cfi_skip(reader, cfi_unsigned(reader));
        break;
    case 0x2e: cfi_unsigned(reader); break; /* GNU_args_size */
    default: reader->is_bad = true;
    }
}

/* Runs instructions until they describe an address behind `target`. Returns false if they are damaged. */
static bool cfi_run(cfi_machine *machine, cfi_reader reader, const cfi_function *function, uintptr_t target)
{
    while (!reader.is_bad && reader.at < reader.end) {
        const unsigned code = (unsigned)cfi_fixed(&reader, 1), operand = code & 0x3f;
        uintptr_t next = machine->address;
        switch (code & 0xc0) {
        case 0x40: next += operand * function->code_step; break; /* advance_loc */
        case 0x80:                                               /* offset */
            cfi_save(&machine->now, operand, CFI_AT_CFA, cfi_scale(cfi_unsigned(&reader), function));
            continue;
        case 0xc0: cfi_restore(machine, operand); continue; /* restore */
        default:
            if (code == 0x01) /* set_loc */
                next = cfi_address(&reader, function->encoding, reader.at);
            else if (code >= 0x02 && code <= 0x04) /* advance_loc1, 2, 4 */
                next += cfi_fixed(&reader, 1u << (code - 2)) * function->code_step;
            else
                cfi_run_other(machine, &reader, function, code);
        }
        if (next > target) return !reader.is_bad;
        machine->address = next;
    }
    return !reader.is_bad;
}

/* --- one address --- */

/* Packs the rules of a state into one word. */
static lochi_stack_rule cfi_pack(const cfi_state *state)
{
    const int64_t most = (int64_t)8 << LOCHI_STACK_OFFSET_BITS;
    if (state->from == LOCHI_STACK_END || state->pc != CFI_AT_CFA || state->pc_offset != -8) return LOCHI_STACK_LAST;
    if (state->offset % 8 || state->offset <= -most || state->offset >= most) return LOCHI_STACK_LAST;
    const int64_t words = (state->from == LOCHI_STACK_REALIGNED ? -state->offset : state->offset) / 8;
    if (words < 0) return LOCHI_STACK_LAST;
    if (state->from == LOCHI_STACK_REALIGNED)
        return state->fp == CFI_AT_FP && !state->fp_offset ? LOCHI_STACK_RULE(state->from, words, 0) : LOCHI_STACK_LAST;
    if (state->fp == CFI_SAME) return LOCHI_STACK_RULE(state->from, words, 0);
    if (state->fp != CFI_AT_CFA || state->fp_offset % 8 || state->fp_offset >= 0 ||
        state->fp_offset <= -((int64_t)8 << LOCHI_STACK_SAVED_BITS))
        return LOCHI_STACK_LAST;
    return LOCHI_STACK_RULE(state->from, words, -state->fp_offset / 8);
}

/* Finds the description of the function that has `target`, by the sorted table of the header. */
static const uint8_t *cfi_find(const uint8_t *header, const uint8_t *end, uintptr_t target)
{
    cfi_reader reader = {header, end, false};
    if (cfi_fixed(&reader, 1) != 1) return NULL;
    const unsigned frame_encoding = (unsigned)cfi_fixed(&reader, 1);
    const unsigned count_encoding = (unsigned)cfi_fixed(&reader, 1);
    const unsigned table_encoding = (unsigned)cfi_fixed(&reader, 1);
    if (count_encoding == CFI_OMITTED || table_encoding != (CFI_HEADER_RELATIVE | CFI_SDATA4)) return NULL;
    if (frame_encoding != CFI_OMITTED) cfi_address(&reader, frame_encoding, header);
    const size_t count = (size_t)cfi_address(&reader, count_encoding, header);
    if (reader.is_bad || count > (size_t)(end - reader.at) / 8) return NULL;
    int32_t pair[2];              /* of a function: start and description, both relative to the header */
    size_t low = 0, high = count; /* the function is the last that starts at `target` or before */
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        memcpy(pair, reader.at + middle * 8, sizeof pair);
        if ((uintptr_t)header + (uintptr_t)(intptr_t)pair[0] <= target)
            low = middle + 1;
        else
            high = middle;
    }
    if (!low) return NULL;
    memcpy(pair, reader.at + (low - 1) * 8, sizeof pair);
    return (const uint8_t *)((uintptr_t)header + (uintptr_t)(intptr_t)pair[1]);
}

lochi_stack_rule lochi_stack_cfi_read(const uint8_t *header, const uint8_t *start, const uint8_t *end,
                                      uintptr_t address)
{
    const uintptr_t target = address - 1; /* in the call: the next instruction may be of another function */
    const uint8_t *entry = cfi_find(header, end, target);
    if (!entry || entry < start || entry >= end) return LOCHI_STACK_UNKNOWN;
    cfi_function function;
    if (!cfi_read_function((cfi_reader){entry, end, false}, start, &function)) return LOCHI_STACK_LAST;
    if (target - function.start >= function.bytes) return LOCHI_STACK_UNKNOWN;
    if (function.is_signal) return LOCHI_STACK_LAST;
    cfi_machine machine = {.now = {.from = LOCHI_STACK_END, .pc = CFI_OTHER}, .address = function.start};
    if (!cfi_run(&machine, function.first, &function, target)) return LOCHI_STACK_LAST;
    machine.initial = machine.now;
    machine.address = function.start;
    if (!cfi_run(&machine, function.own, &function, target)) return LOCHI_STACK_LAST;
    return cfi_pack(&machine.now);
}

#else

lochi_stack_rule lochi_stack_cfi_read(const uint8_t *header, const uint8_t *start, const uint8_t *end,
                                      uintptr_t address)
{
    (void)header, (void)start, (void)end, (void)address;
    return LOCHI_STACK_UNKNOWN;
}

#endif
