/* SPDX-License-Identifier: MIT */
/* Fills and clears the cache of rules. All of it happens inside dl_iterate_phdr: the loader cannot unload the module
 * whose tables are read, and only one thread at a time writes. */
#include "base/stack_rule.h"
#include "base/stack_cfi.h"
#include <link.h>
#include <string.h>

_Atomic uint64_t lochi_stack_rules[LOCHI_STACK_SETS][LOCHI_STACK_WAYS];

/* The loader's counts of modules loaded and unloaded when the cache was last cleared. The loader's lock guards them;
 * they are atomic for ThreadSanitizer, which does not see that lock. */
static atomic_ullong rule_adds, rule_subs;

typedef struct rule_search {
    uintptr_t address;
    lochi_stack_rule rule;
    bool has_cleared, has_looked, is_entered;
} rule_search;

/* Clears the cache if modules were loaded or unloaded. Returns whether it did. */
static bool rule_clear_old(const struct dl_phdr_info *module)
{
    const unsigned long long adds = atomic_exchange_explicit(&rule_adds, module->dlpi_adds, memory_order_relaxed);
    const unsigned long long subs = atomic_exchange_explicit(&rule_subs, module->dlpi_subs, memory_order_relaxed);
    if (module->dlpi_adds == adds && module->dlpi_subs == subs) return false;
    for (unsigned set = 0; set < LOCHI_STACK_SETS; set++)
        for (unsigned way = 0; way < LOCHI_STACK_WAYS; way++)
            if (atomic_load_explicit(&lochi_stack_rules[set][way], memory_order_relaxed))
                atomic_store_explicit(&lochi_stack_rules[set][way], 0, memory_order_relaxed);
    return true;
}

/* Enters a rule. A full set gives up an entry that the address chooses. */
static void rule_enter(uintptr_t address, lochi_stack_rule rule)
{
    if (address >> LOCHI_STACK_ADDRESS_BITS) return;
    _Atomic uint64_t *set = lochi_stack_rules[lochi_stack_set_of(address)];
    unsigned way = 0;
    while (way < LOCHI_STACK_WAYS && atomic_load_explicit(&set[way], memory_order_relaxed))
        way++;
    if (way == LOCHI_STACK_WAYS) way = (unsigned)(address >> 4) % LOCHI_STACK_WAYS;
    atomic_store_explicit(&set[way], (uint64_t)(address >> 12) << 29 | rule, memory_order_relaxed);
}

static const ElfW(Phdr) * rule_find_segment(const struct dl_phdr_info *module, uintptr_t address)
{
    for (unsigned i = 0; i < module->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &module->dlpi_phdr[i];
        if (segment->p_type == PT_LOAD && address - (module->dlpi_addr + segment->p_vaddr) < segment->p_memsz)
            return segment;
    }
    return NULL;
}

/* Reads the rule of an address from the tables of its module. A module without tables has code with frame pointers, or
 * the walk ends. */
static lochi_stack_rule rule_read_module(const struct dl_phdr_info *module, uintptr_t address)
{
    for (unsigned i = 0; i < module->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &module->dlpi_phdr[i];
        if (segment->p_type != PT_GNU_EH_FRAME) continue;
        const uintptr_t header = module->dlpi_addr + segment->p_vaddr;
        const ElfW(Phdr) *around = rule_find_segment(module, header);
        if (!around || !(around->p_flags & PF_R)) return LOCHI_STACK_FRAME_POINTER;
        const uint8_t *start = (const uint8_t *)(module->dlpi_addr + around->p_vaddr);
        const lochi_stack_rule rule =
            lochi_stack_cfi_read((const uint8_t *)header, start, start + around->p_filesz, address);
        return rule == LOCHI_STACK_UNKNOWN ? LOCHI_STACK_FRAME_POINTER : rule;
    }
    return LOCHI_STACK_FRAME_POINTER;
}

static int rule_visit(struct dl_phdr_info *module, size_t bytes, void *user)
{
    (void)bytes;
    rule_search *search = user;
    if (!search->has_looked) {
        search->has_cleared = rule_clear_old(module);
        search->has_looked = true;
        if (!search->address) return 1;
    }
    const ElfW(Phdr) *segment = rule_find_segment(module, search->address - 1);
    if (!segment) return 0;
    if (segment->p_flags & PF_X) search->rule = rule_read_module(module, search->address);
    rule_enter(search->address, search->rule);
    search->is_entered = true;
    return 1;
}

lochi_stack_rule lochi_stack_rule_read(uintptr_t address, bool *has_cleared)
{
    rule_search search = {.address = address, .rule = LOCHI_STACK_UNKNOWN};
    if (address > 1) dl_iterate_phdr(rule_visit, &search);
    /* Not in a module: code that was made at run time. If a module is loaded there meanwhile, the next look at the
     * counts removes the entry. */
    if (!search.is_entered) rule_enter(address, search.rule);
    *has_cleared = search.has_cleared;
    return search.rule;
}

bool lochi_stack_rule_renew(void)
{
    rule_search search = {0};
    dl_iterate_phdr(rule_visit, &search);
    return search.has_cleared;
}
