/* SPDX-License-Identifier: MIT */
/* Attributes of memory: the merge of two sets. */
#include "base/fail.h"
#include <loch/attributes.h>

loch_status loch_attributes_merge(loch_attributes a, loch_attributes b, loch_attributes *out)
{
    if (!out) return LOCH_FAIL(INVALID, "merged attributes need an out pointer");
    if (a.scope && b.scope && a.scope != b.scope)
        return LOCH_FAIL(INVALID, "scopes %d and %d cannot be merged", (int)a.scope, (int)b.scope);
    *out = (loch_attributes){a.bits | b.bits, a.scope ? a.scope : b.scope};
    return LOCH_OK;
}
