/* SPDX-License-Identifier: MIT */
/* A program outside the tree that uses libloch_engine: an engine on the host, with a context. */
#include <loch/engine.h>
#include <loch/loch.h>

int main(void)
{
    const loch_engine_device host = {.size = sizeof host, .name = "cpu"};
    const loch_engine_options options = {.size = sizeof options, .devices = &host, .devices_count = 1};
    loch_engine *engine = NULL;
    loch_context *context = NULL;
    LOCH_CHECK(loch_engine_open(&options, &engine));
    LOCH_CHECK(loch_context_open(engine, NULL, &context));
    LOCH_CHECK(loch_context_close(context));
    LOCH_CHECK(loch_engine_close(engine, LOCH_WORKERS_DRAIN, NULL, NULL, NULL));
    return 0;
}
