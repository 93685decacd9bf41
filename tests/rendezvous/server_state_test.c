/* The state of a store's server without a server: which client is answered when, and what is kept. */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "rendezvous/server_state.h"
#include "support/suite.h"

enum { MOST = 8 };
#define MS INT64_C(1000000)

/* Clients 0 .. MOST-1, and what they were last answered. */
static struct {
    struct server_client client; /* first */
    int answers, code;
    int64_t number;
    size_t bytes;
    char text[300];
} they[MOST];
static struct server_state state;

static void note(struct server_state *d, struct server_client *c, const struct frame_reply *r)
{
    (void)d;
    for (int i = 0; i < MOST; i++) {
        if (&they[i].client != c)
            continue;
        they[i].answers++;
        they[i].code = r->code;
        they[i].number = r->number;
        they[i].bytes = r->bytes;
        snprintf(they[i].text, sizeof they[i].text, "%.*s", (int)(r->bytes < 299 ? r->bytes : 299),
                 (const char *)r->value);
    }
}

static int begin(void **unused)
{
    (void)unused;
    memset(they, 0, sizeof they);
    state = (struct server_state){.served_by = -1, .answer = note};
    return 0;
}

/* When all have left nothing is kept. */
static int end(void **unused)
{
    (void)unused;
    for (int i = 0; i < MOST; i++)
        server_state_leave(&state, &they[i].client);
    bool empty = !state.sessions && !state.clients && !state.bytes && !state.forming.used;
    empty &= server_state_expire(&state, INT64_C(1) << 60) == INT64_MAX && !server_state_next(&state);
    server_state_end(&state);
    return empty ? 0 : 1;
}

static bool ask(int i, enum frame_op op, const char *key, int64_t number, const void *value, size_t bytes, int64_t now)
{
    struct frame_request r = {
        .op = op, .wait_ms = 100, .number = number, .key = key, .key_len = strlen(key), .value = value, .bytes = bytes};
    return server_state_ask(&state, &they[i].client, &r, now);
}

static void join(int i, const char *name, int rank, int size)
{
    assert_true(ask(i, FRAME_JOIN, name, (int64_t)rank | (int64_t)size << 32, NULL, 0, 0));
}

/* The k-th joins of all ranks belong together, also when one rank is ahead. */
static void stores_of_one_name_form_in_order(void **unused)
{
    (void)unused;
    join(0, "name", 0, 2);
    join(1, "name", 0, 2);
    join(2, "other", 1, 2);
    assert_int_equal(they[0].answers + they[1].answers + they[2].answers, 0);
    join(3, "name", 1, 2);
    assert_true(they[0].answers == 1 && they[3].answers == 1 && they[1].answers == 0);
    assert_ptr_equal(they[0].client.session, they[3].client.session);
    join(4, "name", 1, 2);
    assert_true(they[1].answers == 1 && they[4].answers == 1 && they[2].answers == 0);
    assert_ptr_equal(they[1].client.session, they[4].client.session);
    /* A key of one is not a key of the other. */
    assert_true(ask(0, FRAME_SET, "k", 0, "v", 1, 0));
    assert_true(ask(1, FRAME_GET, "k", 0, NULL, 0, 0));
    assert_int_equal(they[1].answers, 1);
    assert_true(ask(3, FRAME_GET, "k", 0, NULL, 0, 0));
    assert_string_equal(they[3].text, "v");
    /* One that goes before all have come is waited for again. */
    server_state_leave(&state, &they[2].client);
    join(2, "other", 1, 2);
    join(5, "other", 0, 2);
    assert_true(they[2].answers == 1 && they[5].answers == 1);
}

static void all(int n)
{
    for (int i = 0; i < n; i++)
        join(i, "", i, n);
    for (int i = 0; i < n; i++)
        assert_true(they[i].answers == 1 && !they[i].code);
}

/* Those that wait are woken by their own key alone, and one that has gone or given up is not. */
static void waiting_clients_are_woken_by_their_key(void **unused)
{
    (void)unused;
    all(6);
    for (int i = 1; i < 5; i++)
        assert_true(ask(i, FRAME_GET, i < 4 ? "a" : "b", 0, NULL, 0, i * MS));
    assert_false(ask(1, FRAME_SET, "x", 0, "", 0, 0)); /* one request at a time */
    server_state_leave(&state, &they[3].client);
    assert_true(server_state_expire(&state, 101 * MS) > 101 * MS);
    assert_true(they[1].answers == 2 && they[1].code == WEFT_ETIMEOUT && they[2].answers == 1);
    assert_true(ask(0, FRAME_SET, "a", 0, "value", 5, 0));
    assert_true(they[2].answers == 2 && they[2].code == 0 && they[1].answers == 2 && they[4].answers == 1);
    assert_string_equal(they[2].text, "value");
    assert_true(server_state_expire(&state, 200 * MS) == INT64_MAX);
    assert_true(they[4].answers == 2 && they[4].code == WEFT_ETIMEOUT);
}

/* Replies that are large are made when the caller asks for them, one by one. */
static void large_replies_wait_for_the_caller(void **unused)
{
    (void)unused;
    static unsigned char large[STORE_VALUE_MAX];
    all(5);
    for (int i = 1; i < 4; i++)
        assert_true(ask(i, FRAME_GET, "large", 0, NULL, 0, 0));
    assert_true(ask(0, FRAME_SET, "large", 0, large, sizeof large, 0));
    assert_true(they[0].answers == 2 && they[1].answers + they[2].answers + they[3].answers == 3);
    assert_true(ask(4, FRAME_GET, "large", 0, NULL, 0, 0));
    server_state_leave(&state, &they[2].client); /* one that goes meanwhile */
    assert_true(server_state_expire(&state, 1000 * MS) == INT64_MAX);
    for (int i = 0; i < 3; i++)
        assert_true(server_state_next(&state));
    assert_false(server_state_next(&state));
    assert_true(they[1].bytes == sizeof large && they[3].bytes == sizeof large && they[4].bytes == sizeof large);
}

/* A gather is answered once, when the last part is there; what is no part does not count. */
static void gather_waits_for_all_parts(void **unused)
{
    (void)unused;
    static const char *const none[] = {"p/3", "p/00", "p/01", "p/", "p", "p/1x", "q/2", "p/0/2", "p/99999", "p/999999"};
    char key[16];
    all(3);
    assert_true(ask(0, FRAME_GATHER, "p", 0, NULL, 0, 0));
    for (int r = 0; r < 2; r++) {
        snprintf(key, sizeof key, "p/%d", r);
        for (int twice = 0; twice < 2; twice++)
            assert_true(ask(1, FRAME_SET, key, 0, "ab", 2, 0));
    }
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        assert_true(ask(1, FRAME_SET, none[i], 0, "ab", 2, 0));
    assert_false(server_state_next(&state));
    assert_true(ask(1, FRAME_SET, "p/2", 0, "abc", 3, 0));
    assert_int_equal(they[0].answers, 1);
    assert_true(server_state_next(&state));
    assert_true(they[0].answers == 2 && they[0].number == 3 && they[0].bytes == 3 * 4 + 7);
    /* From another rank on, and after a part has changed. */
    assert_true(ask(0, FRAME_GATHER, "p", 1, NULL, 0, 0) && server_state_next(&state));
    assert_true(they[0].number == 2 && they[0].bytes == 2 * 4 + 5);
    assert_true(ask(1, FRAME_SET, "p/0", 0, "abcdefgh", 8, 0));
    assert_true(ask(0, FRAME_GATHER, "p", 0, NULL, 0, 0) && server_state_next(&state));
    assert_int_equal(they[0].bytes, 3 * 4 + 13);
    /* More clients than ranks have asked: what was packed is packed again. */
    for (int i = 0; i < 5; i++) {
        assert_true(ask(i % 3, FRAME_GATHER, "p", 0, NULL, 0, 0) && server_state_next(&state));
        assert_int_equal(they[i % 3].bytes, 3 * 4 + 13);
    }
}

static void late_replies_say_what_is_missing(void **unused)
{
    (void)unused;
    join(0, "name", 1, 4);
    join(1, "name", 2, 4);
    server_state_expire(&state, 100 * MS);
    assert_string_equal(they[0].text, "ranks 0, 3 did not come in time");
    server_state_leave(&state, &they[0].client);
    server_state_leave(&state, &they[1].client);
    memset(they, 0, sizeof they);
    all(3);
    assert_true(ask(1, FRAME_SET, "p/1", 0, "", 0, 0));
    assert_true(ask(0, FRAME_GATHER, "p", 0, NULL, 0, 0) && ask(2, FRAME_GATHER, "empty", 0, NULL, 0, 0));
    server_state_expire(&state, 100 * MS);
    assert_string_equal(they[0].text, "'p' of ranks 0, 2 did not come in time");
    assert_string_equal(they[2].text, "'empty' of ranks 0, 1, 2 did not come in time");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(stores_of_one_name_form_in_order, begin, end),
        cmocka_unit_test_setup_teardown(waiting_clients_are_woken_by_their_key, begin, end),
        cmocka_unit_test_setup_teardown(large_replies_wait_for_the_caller, begin, end),
        cmocka_unit_test_setup_teardown(gather_waits_for_all_parts, begin, end),
        cmocka_unit_test_setup_teardown(late_replies_say_what_is_missing, begin, end),
    };
    return SUITE_MAIN(argc, argv, SUITE_ONCE(tests));
}
