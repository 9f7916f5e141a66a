/* SPDX-License-Identifier: MIT */
/* Hand-overs in several threads at a time: each thread has a process of its own on the other side, and all of them give
 * memory of one pool. */
#include "handover_partner.h"
#include "worker.h"

#define THREADS 3
#define ROUNDS 40

typedef struct worker {
    loch_allocator *pool;
    partner p;
    uint64_t seed;
    size_t failures;
} worker;

static loch_status give_one(worker *w, uint64_t seed)
{
    const loch_handover_peer peer = partner_peer(&w->p);
    const partner_note note = {.seed = seed};
    const loch_handover_send_options options = {.size = sizeof options, .note = &note, .note_bytes = sizeof note};
    loch_buffer *buffer;
    loch_status status = loch_buffer_create(w->pool, 20000 + seed % 50000, NULL, &buffer);
    if (status == LOCH_OK) status = partner_put(buffer, 0, loch_buffer_get_bytes(buffer), seed);
    if (status == LOCH_OK) status = loch_handover_send(&peer, &buffer, 1, NULL, &options, NULL);
    loch_buffer_release(buffer);
    return status;
}

static void *run(void *user)
{
    worker *w = user;
    for (size_t i = 0; i < ROUNDS; i++) {
        const partner_command take = {
            .verb = PARTNER_TAKE, .slot = i % PARTNER_SLOTS, .way = i % 3 ? LOCH_HANDOVER_AUTO : LOCH_HANDOVER_COPIED};
        const partner_command drop = {.verb = PARTNER_DROP, .slot = i % PARTNER_SLOTS};
        partner_answer answer = {.status = LOCH_OK};
        if (i >= PARTNER_SLOTS) {
            w->failures += write(w->p.commands, &drop, sizeof drop) != (ssize_t)sizeof drop;
            w->failures += read(w->p.commands, &answer, sizeof answer) != (ssize_t)sizeof answer;
        }
        w->failures += write(w->p.commands, &take, sizeof take) != (ssize_t)sizeof take;
        w->failures += give_one(w, w->seed + i) != LOCH_OK;
        w->failures += read(w->p.commands, &answer, sizeof answer) != (ssize_t)sizeof answer;
        w->failures += answer.status != LOCH_OK || !answer.is_right;
    }
    return NULL;
}

static void threads_give_at_the_same_time(void **state)
{
    (void)state;
    loch_device *cpu;
    worker workers[THREADS];
    CHECK_OK(loch_device_open("cpu", &cpu));
    loch_allocator *pool = partner_pool(cpu, 0, LOCH_SHARE_FD);
    for (size_t i = 0; i < THREADS; i++)
        workers[i] = (worker){.pool = pool, .p = partner_start("cpu"), .seed = 100000 * i};
    TEST_THREADS_RUN(run, workers);
    for (size_t i = 0; i < THREADS; i++) {
        assert_int_equal(workers[i].failures, 0);
        partner_stop(&workers[i].p);
    }
    partner_end_pool(pool);
    loch_device_release(cpu);
}

int main(int count, char **arguments)
{
    partner_main(count, arguments);
    const struct CMUnitTest tests[] = {cmocka_unit_test(threads_give_at_the_same_time)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
