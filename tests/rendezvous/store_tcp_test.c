/* A tcp: store among those who mean no good: wrong tokens, recorded handshakes, frames that are cut, changed, repeated
 * or too long, connections that say nothing or too much. Each costs itself; the store serves on. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rendezvous/address.h"
#include "rendezvous/deadline.h"
#include "rendezvous/frame.h"
#include "rendezvous/server.h"
#include "stores.h"
#include "support/random.h"
#include "support/share.h"
#include "support/suite.h"

static struct stores_place place;
static struct address at;

static int begin(void **state)
{
    (void)state;
    if (!stores_sodium())
        return 0;
    stores_begin(&place, STORES_SERVED);
    return address_parse(place.url + 4, &at);
}

/* The store still does what it should. */
static void serves(void)
{
    struct stores_rank *r = stores_crew(&place, 1, NULL);
    size_t n;
    char got[8];
    r->name = "probe";
    assert_int_equal(stores_open(r), 0);
    assert_int_equal(store_set(r->s, "k", "fine", 4, LONG), 0);
    assert_int_equal(store_get(r->s, "k", got, sizeof got, &n, LONG), 0);
    assert_int_equal(n, 4);
    store_close(r->s, 0);
    stores_free(r, 1);
}

static int end(void **state)
{
    (void)state;
    if (!place.server)
        return 0;
    serves();
    stores_end(&place);
    place.server = NULL;
    return 0;
}

/* ---- a client made by hand ---- */

struct hand {
    int fd;
    struct frame_end end;
    unsigned char hello[FRAME_HELLO], proof[FRAME_PROOF], message[FRAME_MESSAGE_MAX],
        frame[FRAME_LENGTH + FRAME_FRAME_MAX];
};

static void put(int fd, const void *bytes, size_t n)
{
    for (size_t sent = 0; sent < n;) {
        ssize_t more = send(fd, (const char *)bytes + sent, n - sent, MSG_NOSIGNAL);
        if (more < 0)
            return; /* the server has closed: the test looks at that */
        sent += (size_t)more;
    }
}

/* Whether n bytes came before the other end closed. */
static bool take(int fd, void *bytes, size_t n)
{
    for (size_t got = 0; got < n;) {
        ssize_t more = recv(fd, (char *)bytes + got, n - got, 0);
        if (more <= 0)
            return false;
        got += (size_t)more;
    }
    return true;
}

static int dial(void)
{
    int fd = -1;
    assert_int_equal(address_connect(&at, deadline_now() + LONG, &fd), 0);
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
    struct timeval limit = {.tv_sec = 60};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    return fd;
}

/* The handshake; the server's decision. */
static int shake(struct hand *h, const char *token)
{
    unsigned char key[SODIUM_KEY], answer[FRAME_HELLO], decision[FRAME_DECISION];
    h->fd = dial();
    frame_token_key(sodium_find(), token, key);
    frame_begin(&h->end, sodium_find(), false, key, FRAME_CHACHA, h->hello);
    put(h->fd, h->hello, sizeof h->hello);
    assert_true(take(h->fd, answer, sizeof answer));
    assert_true(frame_meet(&h->end, answer));
    frame_prove(&h->end, h->proof);
    put(h->fd, h->proof, sizeof h->proof);
    assert_true(take(h->fd, decision, sizeof decision));
    if (!decision[0])
        assert_true(frame_believe(&h->end, decision + 1));
    return decision[0];
}

static size_t frame_of(struct hand *h, enum frame_op op, const char *key, int64_t number, const char *value)
{
    struct frame_request q = {.op = op, .key = key, .key_len = strlen(key), .number = number, .wait_ms = 1000};
    q.value = (const unsigned char *)value;
    q.bytes = strlen(value);
    return frame_seal(&h->end, h->message, frame_put_request(h->message, &q), h->frame);
}

/* The code of the reply; 1: the connection is over. */
static int reply(struct hand *h)
{
    unsigned char length[FRAME_LENGTH];
    struct frame_reply r;
    if (!take(h->fd, length, sizeof length))
        return 1;
    size_t n = frame_length(length);
    assert_true(n > 0 && take(h->fd, h->frame, n) && frame_open(&h->end, h->frame, n));
    assert_true(frame_take_reply(h->frame, n - SODIUM_TAG, &r));
    return r.code;
}

static int tell(struct hand *h, enum frame_op op, const char *key, int64_t number, const char *value)
{
    put(h->fd, h->frame, frame_of(h, op, key, number, value));
    return reply(h);
}

#define ALONE ((int64_t)1 << 32) /* rank 0 of 1 */

static struct hand *inside(const char *name)
{
    struct hand *h = malloc(sizeof *h);
    assert_non_null(h);
    assert_int_equal(shake(h, TOKEN), 0);
    assert_int_equal(tell(h, FRAME_JOIN, name, ALONE, ""), 0);
    return h;
}

static bool closed(int fd)
{
    char byte;
    return recv(fd, &byte, 1, 0) <= 0;
}

static void leave(struct hand *h)
{
    close(h->fd);
    free(h);
}

/* ---- tokens ---- */

static void wrong_tokens_are_refused(void **state)
{
    (void)state;
    if (!place.server)
        skip();
    struct stores_rank *r = stores_crew(&place, 1, NULL);
    r->token = "0123456789abcdef-a-token-of-others";
    assert_int_equal(stores_open(r), WEFT_ETRANSPORT);
    assert_non_null(strstr(r->text, "another token"));
    r->token = NULL;
    assert_int_equal(stores_open(r), WEFT_EINVAL);
    assert_non_null(strstr(r->text, "WEFT_TOKEN_FILE"));
    r->token = "short";
    assert_int_equal(stores_open(r), WEFT_EINVAL);
    stores_free(r, 1);
}

/* What listens there is a store of another job, or no store. */
static void *answer(void *arg)
{
    int listener = *(int *)arg;
    static const char words[] = "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    char hello[FRAME_HELLO];
    struct pollfd p = {.fd = listener, .events = POLLIN};
    poll(&p, 1, 60000);
    int fd = accept(listener, NULL, NULL);
    take(fd, hello, sizeof hello);
    put(fd, words, sizeof words - 1);
    close(fd);
    return NULL;
}

static void address_without_a_store_is_reported(void **state)
{
    (void)state;
    if (!place.server)
        skip();
    struct address a = {.host = "127.0.0.1"};
    int fd;
    pthread_t thread;
    struct stores_rank *r = stores_crew(&place, 2, NULL);
    assert_int_equal(address_listen(&a, &fd), 0);
    char url[64];
    snprintf(url, sizeof url, "tcp:127.0.0.1:%d", a.port);
    r[1].url = url;
    assert_int_equal(pthread_create(&thread, NULL, answer, &fd), 0);
    assert_int_equal(stores_open(&r[1]), WEFT_ETRANSPORT);
    assert_non_null(strstr(r[1].text, "not a store of weft, or has another version of weft"));
    pthread_join(thread, NULL);
    /* It listens and says nothing: the deadline holds. */
    r[1].timeout_ns = 200 * MS;
    assert_int_equal(stores_open(&r[1]), WEFT_ETIMEOUT);
    close(fd);
    /* Nobody listens. */
    assert_int_equal(stores_open(&r[1]), WEFT_ETIMEOUT);
    assert_non_null(strstr(r[1].text, "no store there in time"));
    stores_free(r, 2);
}

/* A client of the version before, whose hello is shorter, is told the server's version before its time is over. */
static void other_versions_are_told(void **state)
{
    (void)state;
    if (!place.server)
        skip();
    static const char *const first[] = {"weft-st5", "weft-st7", "GET / HT"};
    unsigned char hello[FRAME_HELLO], more;
    for (int i = 0; i < 3; i++) {
        int64_t began = deadline_now();
        int fd = dial();
        put(fd, first[i], FRAME_MAGIC_SIZE); /* the rest may be under way */
        assert_int_equal(take(fd, hello, sizeof hello), i < 2);
        if (i < 2)
            assert_memory_equal(hello, FRAME_MAGIC, FRAME_MAGIC_SIZE);
        for (size_t k = FRAME_MAGIC_SIZE; i < 2 && k < sizeof hello; k++)
            assert_int_equal(hello[k], 0);
        assert_false(take(fd, &more, 1));
        assert_true(deadline_now() - began < SERVER_PROVE_NS);
        close(fd);
    }
}

/* ---- recorded bytes ---- */

static void replayed_frames_are_refused(void **state)
{
    (void)state;
    if (!place.server)
        skip();
    struct hand *h = inside("replay");
    unsigned char recorded[256], answered[FRAME_HELLO], decision[FRAME_DECISION];
    size_t n = frame_of(h, FRAME_SET, "n", 0, "v");
    memcpy(recorded, h->frame, n);
    put(h->fd, recorded, n);
    assert_int_equal(reply(h), 0);
    /* The same frame again, on the same connection. */
    put(h->fd, recorded, n);
    assert_true(closed(h->fd));
    /* The same handshake again, on another. */
    int fd = dial();
    put(fd, h->hello, sizeof h->hello);
    assert_true(take(fd, answered, sizeof answered));
    put(fd, h->proof, sizeof h->proof);
    assert_true(take(fd, decision, sizeof decision));
    assert_int_equal(decision[0], 1);
    for (int i = 1; i < FRAME_DECISION; i++)
        assert_int_equal(decision[i], 0);
    assert_true(closed(fd));
    close(fd);
    /* The server's own proof sent back to it. */
    fd = dial();
    put(fd, h->hello, sizeof h->hello);
    assert_true(take(fd, answered, sizeof answered));
    put(fd, answered + FRAME_MAGIC_SIZE, FRAME_PROOF);
    assert_true(take(fd, decision, sizeof decision));
    assert_int_equal(decision[0], 1);
    close(fd);
    leave(h);
}

/* ---- frames ---- */

static void damaged_frames_are_refused(void **state)
{
    (void)state;
    if (!place.server)
        skip();
    /* A bit that is changed anywhere. */
    struct random rnd = (struct random){5};
    for (int64_t i = 0; i < test_share(20, 400); i++) {
        struct hand *h = inside("bits");
        size_t n = frame_of(h, FRAME_SET, "key", 0, "value"), bit = (size_t)random_in(&rnd, 0, (int64_t)n * 8 - 1);
        h->frame[bit / 8] ^= (unsigned char)(1 << bit % 8);
        put(h->fd, h->frame, n);
        shutdown(h->fd, SHUT_WR); /* a length may have become longer */
        assert_true(closed(h->fd));
        leave(h);
    }
    /* Lengths that no frame has. */
    static const uint32_t lengths[] = {0, 1, FRAME_HEAD + SODIUM_TAG - 1, FRAME_FRAME_MAX + 1, INT32_MAX, UINT32_MAX};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        struct hand *h = inside("lengths");
        put(h->fd, &lengths[i], FRAME_LENGTH);
        assert_true(closed(h->fd));
        leave(h);
    }
    /* A frame that ends in the middle. */
    struct hand *h = inside("cut");
    put(h->fd, h->frame, frame_of(h, FRAME_SET, "key", 0, "value") - 1);
    shutdown(h->fd, SHUT_WR);
    assert_true(closed(h->fd));
    leave(h);
    /* One left out. */
    h = inside("gap");
    frame_of(h, FRAME_SET, "key", 0, "value");
    put(h->fd, h->frame, frame_of(h, FRAME_SET, "key", 0, "value"));
    assert_true(closed(h->fd));
    leave(h);
}

/* What is sealed well and says what it may not. */
static void forbidden_messages_are_refused(void **state)
{
    (void)state;
    if (!place.server)
        skip();
    static const struct {
        enum frame_op op;
        const char *key;
        int64_t number;
        const char *value;
    } bad[] = {
        {(enum frame_op)0, "k", 0, ""},
        {FRAME_DIRECTORY_GET, "k", 0, ""},
        {(enum frame_op)(FRAME_DIRECTORY_WATCH + 1), "k", 0, ""},
        {(enum frame_op)255, "k", 0, ""},
        {FRAME_SET, "", 0, "v"},
        {FRAME_SET, "a b", 0, "v"},
        {FRAME_GET, "k", 0, "v"},
        {FRAME_GET, "k\n", 0, ""},
        {FRAME_GET, "a,b", 0, ""},
        {FRAME_JOIN, "again", ALONE, ""},
        {FRAME_LEAVE, "", 0, "v"},
        {FRAME_GATHER, "k", 1, ""},
        {FRAME_GATHER, "k", -1, ""},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct hand *h = inside("bad");
        assert_int_equal(tell(h, bad[i].op, bad[i].key, bad[i].number, bad[i].value), 1);
        leave(h);
    }
    static const int64_t joins[] = {0, -1, 1, ALONE | 1, (int64_t)(STORE_RANKS_MAX + 1) << 32, INT64_MIN};
    for (size_t i = 0; i < sizeof joins / sizeof *joins; i++) {
        struct hand *h = malloc(sizeof *h);
        assert_non_null(h);
        assert_int_equal(shake(h, TOKEN), 0);
        assert_int_equal(tell(h, FRAME_JOIN, "joins", joins[i], ""), 1);
        leave(h);
    }
    struct hand *h = malloc(sizeof *h); /* nothing before JOIN */
    assert_non_null(h);
    assert_int_equal(shake(h, TOKEN), 0);
    assert_int_equal(tell(h, FRAME_SET, "k", 0, "v"), 1);
    leave(h);
    /* Two requests at once: the second is heard after the first. */
    h = inside("two");
    unsigned char both[512];
    size_t n = frame_of(h, FRAME_SET, "n", 0, "v");
    memcpy(both, h->frame, n);
    size_t m = frame_of(h, FRAME_SET, "n", 0, "v");
    memcpy(both + n, h->frame, m);
    put(h->fd, both, n + m);
    assert_int_equal(reply(h), 0);
    assert_int_equal(reply(h), 0);
    leave(h);
}

static void random_bytes_are_refused(void **state)
{
    (void)state;
    if (!place.server)
        skip();
    struct random rnd = (struct random){17};
    for (int64_t i = 0; i < test_share(200, 5000); i++) {
        unsigned char bytes[512];
        size_t n = (size_t)random_in(&rnd, 0, sizeof bytes);
        for (size_t k = 0; k < n; k++)
            bytes[k] = (unsigned char)random_in(&rnd, 0, 255);
        if (i % 2 && n > FRAME_MAGIC_SIZE)
            memcpy(bytes, FRAME_MAGIC, FRAME_MAGIC_SIZE);
        int fd = dial();
        put(fd, bytes, n);
        shutdown(fd, SHUT_WR);
        while (!closed(fd))
            ;
        close(fd);
    }
}

/* ---- crowds ---- */

static void room_for_files(rlim_t want)
{
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    if (limit.rlim_cur < want && limit.rlim_max >= want) {
        limit.rlim_cur = want;
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    }
    if (limit.rlim_cur < want) {
        printf("skip: only %llu files may be open\n", (unsigned long long)limit.rlim_cur);
        skip();
    }
}

/* 1,000 who have the token, all inside at once. */
static void a_thousand_clients_are_served(void **state)
{
    (void)state;
    if (!place.server)
        skip();
    enum { N = 1000 };
    static struct hand *all[N];
    room_for_files(2 * N + 100);
    for (int i = 0; i < N; i++) {
        char name[32];
        snprintf(name, sizeof name, "crowd-%d", i % 10);
        all[i] = inside(name);
    }
    for (int i = 0; i < N; i++)
        assert_int_equal(tell(all[i], FRAME_SET, "mine", 0, "v"), 0);
    for (int i = 0; i < N; i++) {
        assert_int_equal(tell(all[i], FRAME_GET, "mine", 0, ""), 0);
        leave(all[i]);
    }
}

/* 2,000 connections that say nothing, and some that say a byte: a rank that comes behind them gets in, those inside
 * notice nothing, and the crowd is sent away. */
static void flood_of_silent_connections_is_survived(void **state)
{
    (void)state;
    if (!place.server)
        skip();
    enum { N = 2000 };
    static int fds[N];
    room_for_files(2 * N + 100);
    struct hand *h = inside("before");
    for (int i = 0; i < N; i++) {
        fds[i] = dial();
        if (i % 3 == 0)
            put(fds[i], FRAME_MAGIC, 1);
    }
    assert_int_equal(tell(h, FRAME_SET, "k", 0, "v"), 0);
    serves(); /* within its time, of which it takes two seconds */
    assert_int_equal(tell(h, FRAME_GET, "k", 0, ""), 0);
    for (int i = 0; i < N; i++) { /* all: the last ones when their 5 s are over */
        assert_true(closed(fds[i]));
        close(fds[i]);
    }
    leave(h);
}

/* Who waits when the server ends is told so, at once. */
static void *wait_for_ever(void *arg)
{
    struct stores_rank *r = arg;
    r->code = store_wait(r->s, "never", LONG);
    snprintf(r->text, sizeof r->text, "%s", weft_errmsg());
    return NULL;
}

static void clients_hear_that_the_server_ends(void **state)
{
    (void)state;
    if (!place.server)
        skip();
    struct stores_place p;
    pthread_t thread;
    stores_begin(&p, STORES_SERVED);
    struct stores_rank *r = stores_crew(&p, 1, NULL);
    assert_int_equal(stores_open(r), 0);
    assert_int_equal(pthread_create(&thread, NULL, wait_for_ever, r), 0);
    server_stop(p.server, 0);
    pthread_join(thread, NULL);
    assert_int_equal(r->code, WEFT_ETRANSPORT);
    assert_non_null(strstr(r->text, "the store is gone"));
    assert_int_equal(store_set(r->s, "k", "v", 1, LONG), WEFT_ETRANSPORT); /* and it stays so */
    store_close(r->s, 0);
    stores_free(r, 1);
}

/* ---- the limits of what is held ---- */

static void full_store_says_so(void **state)
{
    (void)state;
    if (!place.server)
        skip();
    struct stores_rank *r = stores_crew(&place, 1, NULL);
    static unsigned char value[STORE_VALUE_MAX];
    char key[64];
    int err = 0, n = 0;
    r->name = "full";
    assert_int_equal(stores_open(r), 0);
    for (; !err && n < 5000; n++) {
        snprintf(key, sizeof key, "big/%d", n);
        err = store_set(r->s, key, value, sizeof value, LONG);
    }
    assert_int_equal(err, WEFT_ENOMEM);
    assert_non_null(strstr(weft_errmsg(), "256 MiB"));
    assert_true(n > 4000 && n <= 4096);                                       /* 256 MiB of 64 KiB, less the keys */
    assert_int_equal(store_set(r->s, "big/0", value, sizeof value, LONG), 0); /* in the place of what is there */
    store_close(r->s, 0);
    stores_free(r, 1);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(wrong_tokens_are_refused, begin, end),
        cmocka_unit_test_setup_teardown(address_without_a_store_is_reported, begin, end),
        cmocka_unit_test_setup_teardown(other_versions_are_told, begin, end),
        cmocka_unit_test_setup_teardown(replayed_frames_are_refused, begin, end),
        cmocka_unit_test_setup_teardown(damaged_frames_are_refused, begin, end),
        cmocka_unit_test_setup_teardown(forbidden_messages_are_refused, begin, end),
        cmocka_unit_test_setup_teardown(random_bytes_are_refused, begin, end),
        cmocka_unit_test_setup_teardown(a_thousand_clients_are_served, begin, end),
        cmocka_unit_test_setup_teardown(flood_of_silent_connections_is_survived, begin, end),
        cmocka_unit_test_setup_teardown(clients_hear_that_the_server_ends, begin, end),
        cmocka_unit_test_setup_teardown(full_store_says_so, begin, end),
    };
    return SUITE_MAIN(argc, argv, SUITE_ONCE(tests));
}
