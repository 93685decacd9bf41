/* The 1-D halo: what goes to the left comes from the right, absent neighbours are absent, and rounds go on until all
 * ranks have what they need. */
#define _GNU_SOURCE
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "exchange_flow.h"
#include "support/conformance.h"
#include "support/suite.h"
#include "weft/halo.h"

static const int sizes[] = {1, 2, 3, 4, 5, 8};
#define SIZES (int)(sizeof sizes / sizeof *sizes)
#define EACH_SIZE(i, first)             \
    for (int i = first; i < SIZES; i++) \
        if (conformance_takes(sizes[i]))

static size_t bytes_of(int rank, int way, int round)
{
    static const size_t all[] = {8, 1, 0, 4096, 100000, 1 << 20};
    return all[(rank + way + round) % 6];
}

static weft_message make(int rank, int way, int round)
{
    weft_message m = {.bytes = bytes_of(rank, way, round)};
    m.payload = m.bytes ? malloc(m.bytes) : NULL;
    flow_fill(m.payload, m.bytes, flow_hash(9, rank, way, round, 0), (uint64_t)rank);
    return m;
}

/* What `peer` sent that way, with the rank and the way in its metadata; NULL where there is no peer. */
static void check(struct ranks_rank *r, weft_message *m, int peer, int way, int round)
{
    int meta[2] = {peer, way};
    RANKS_CHECK(r, (m != NULL) == (peer >= 0));
    if (!m)
        return;
    RANKS_CHECK(r, m->from == peer && m->round == (uint64_t)round && m->bytes == bytes_of(peer, way, round));
    RANKS_CHECK(r, m->meta_bytes == sizeof meta && !memcmp(m->meta, meta, sizeof meta));
    RANKS_CHECK(r, flow_same(m->payload, m->bytes, flow_hash(9, peer, way, round, 0), (uint64_t)peer));
    weft_message_free(m);
}

static void round_trips(struct ranks_rank *r)
{
    bool periodic = *(bool *)r->arg;
    int left = r->rank > 0 ? r->rank - 1 : periodic ? r->size - 1 : -1;
    int right = r->rank < r->size - 1 ? r->rank + 1 : periodic ? 0 : -1;
    weft_halo *h;
    RANKS_OK(r, weft_halo_open(r->comm, periodic, NULL, &h));
    for (int round = 0; round < 12; round++) {
        weft_message *from_left, *from_right, to_left = make(r->rank, 0, round), to_right = make(r->rank, 1, round);
        int meta[2][2] = {{r->rank, 0}, {r->rank, 1}};
        to_left.meta = meta[0];
        to_right.meta = meta[1];
        to_left.meta_bytes = to_right.meta_bytes = sizeof meta[0];
        if (round % 2) {
            RANKS_OK(r, weft_halo_start(h, &to_left, &to_right, false));
            RANKS_CHECK(r, weft_halo_start(h, &to_left, &to_right, false) == WEFT_EBUSY);
            RANKS_OK(r, weft_exchange_wait(weft_halo_rounds(h), WEFT_FOREVER));
            RANKS_OK(r, weft_halo_take(h, &from_left, &from_right));
        } else {
            RANKS_OK(r, weft_halo_exchange(h, &to_left, &to_right, &from_left, &from_right));
        }
        check(r, from_left, left, 1, round);
        check(r, from_right, right, 0, round);
        RANKS_CHECK(r, weft_halo_take(h, &from_left, &from_right) == WEFT_EINVAL);
        free(to_left.payload);
        free(to_right.payload);
    }
    weft_message *from_left, *from_right; /* nothing to send is an empty message, not an absent one */
    RANKS_OK(r, weft_halo_exchange(h, NULL, NULL, &from_left, &from_right));
    RANKS_CHECK(r, (from_left != NULL) == (left >= 0) && (!from_left || (!from_left->bytes && !from_left->meta_bytes)));
    RANKS_CHECK(r, (from_right != NULL) == (right >= 0));
    weft_message_free(from_left);
    weft_message_free(from_right);
    weft_halo_close(h);
}

static void messages_go_left_and_right_and_absent_neighbours_get_none(void **state)
{
    (void)state;
    EACH_SIZE(i, 0)
    for (int periodic = 0; periodic < 2; periodic++) {
        bool *arg = ranks_shared(sizeof *arg);
        *arg = periodic;
        ranks_run(sizes[i], NULL, round_trips, arg, NULL);
        munmap(arg, sizeof *arg);
    }
}

/* Rank r has r + 1 values. What came from the left goes on to the right, and the other way, until each rank has seen
 * `back` values before its own, or all that there are. */
struct look {
    int back;
    int rounds[RANKS_MAX];
};

static void look_back(struct ranks_rank *r)
{
    struct look *look = r->arg;
    weft_halo *h;
    weft_exchange_opts o = {.size = sizeof o, .vote = true};
    int mine[RANKS_MAX], have = 0, at_edge = 0, wanted = 0;
    weft_message *left = NULL, *right = NULL;
    for (int i = 0; i <= r->rank; i++)
        mine[i] = 100 * r->rank + i;
    for (int p = 0; p < r->rank; p++)
        wanted += p + 1;
    wanted = wanted < look->back ? wanted : look->back;
    RANKS_OK(r, weft_halo_open(r->comm, false, &o, &h));
    weft_message own = {.payload = mine, .bytes = (size_t)(r->rank + 1) * sizeof *mine};
    do {
        weft_message *to_right = left ? left : &own, *to_left = right ? right : &own, *from_left, *from_right;
        RANKS_OK(r, weft_halo_start(h, to_left, to_right, have >= wanted));
        RANKS_OK(r, weft_exchange_wait(weft_halo_rounds(h), WEFT_FOREVER));
        RANKS_OK(r, weft_halo_take(h, &from_left, &from_right));
        RANKS_CHECK(r, (from_left != NULL) == (r->rank > 0));
        weft_message_free(left);
        weft_message_free(right);
        left = from_left;
        right = from_right;
        look->rounds[r->rank]++;
        int from = r->rank - look->rounds[r->rank];
        if (left && from >= 0) { /* what began that many ranks away */
            RANKS_CHECK(r, left->bytes == (size_t)(from + 1) * sizeof(int) && *(int *)left->payload == 100 * from);
            have += from + 1;
        }
        at_edge += !left || from < 0;
    } while (!weft_exchange_over(weft_halo_rounds(h)));
    RANKS_CHECK(r, have >= wanted);
    weft_message_free(left);
    weft_message_free(right);
    weft_halo_close(h);
    (void)at_edge;
}

static void rounds_go_on_until_all_ranks_have_enough(void **state)
{
    (void)state;
    static const int backs[] = {0, 1, 5, 1000};
    EACH_SIZE(i, 0)
    for (int b = 0; b < 4; b++) {
        struct look *look = ranks_shared(sizeof *look);
        look->back = backs[b];
        ranks_run(sizes[i], NULL, look_back, look, NULL);
        for (int r = 1; r < sizes[i]; r++)
            assert_int_equal(look->rounds[r], look->rounds[0]);
        munmap(look, sizeof *look);
    }
}

/* ---- starts that are refused ---- */

struct hook {
    int asked;
    char room[64];
};

/* Has memory only when it is asked for the second time. */
static void *not_yet(void *arg, int from, const void *meta, size_t meta_bytes, size_t bytes)
{
    struct hook *h = arg;
    (void)from, (void)meta, (void)meta_bytes, (void)bytes;
    return h->asked++ % 2 ? h->room : NULL;
}

static void refused_starts(struct ranks_rank *r)
{
    struct hook hook = {0};
    weft_exchange_opts o = {.size = sizeof o, .budget = 1 << 20, .buffer = not_yet, .arg = &hook};
    weft_message *left, *right, small = {.meta = "s", .meta_bytes = 1, .payload = (char[]){"p"}, .bytes = 1},
                                large = small;
    weft_halo *h;
    void *meta = calloc(1, 2 << 20);
    RANKS_CHECK(r, meta);
    large.meta = meta;
    large.meta_bytes = 2 << 20;
    RANKS_OK(r, weft_halo_open(r->comm, true, &o, &h));
    for (int round = 0; round < 3; round++) {
        weft_message bad = {.meta_bytes = 1}, empty = {.meta = "e", .meta_bytes = 1};
        RANKS_CHECK(r, weft_halo_start(h, &small, &bad, false) == WEFT_EINVAL);
        RANKS_CHECK(r, weft_halo_start(h, &small, r->size > 1 ? &large : &small, false) == WEFT_ENOMEM);
        RANKS_OK(r, weft_halo_start(h, &small, &empty, false));
        RANKS_OK(r, weft_exchange_wait(weft_halo_rounds(h), WEFT_FOREVER));
        RANKS_OK(r, weft_halo_take(h, &left, &right));
        RANKS_CHECK(r, left && left->meta_bytes == 1 && *(const char *)left->meta == 'e' && !left->bytes);
        RANKS_CHECK(r, right && right->bytes == 1 && *(const char *)right->payload == 'p');
        weft_message_free(left);
        weft_message_free(right);
    }
    weft_halo_close(h);
    free(meta);
}

static void refused_start_leaves_the_round_as_it_was(void **state)
{
    (void)state;
    EACH_SIZE(i, 0)
    ranks_run(sizes[i], NULL, refused_starts, NULL, NULL);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_go_left_and_right_and_absent_neighbours_get_none),
        cmocka_unit_test(rounds_go_on_until_all_ranks_have_enough),
        cmocka_unit_test(refused_start_leaves_the_round_as_it_was),
    };
    return SUITE_MAIN(argc, argv, SUITE_AT(&conformance_everywhere, tests));
}
