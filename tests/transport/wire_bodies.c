#define _GNU_SOURCE
#include "wire_bodies.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "support/random.h"
#include "support/share.h"
#include "support/values.h"

/* ---- mail: all of it, unchanged, in order for each peer ---- */

struct mail_count {
    int got[WIRE_RANKS], sent[WIRE_RANKS];
};

static size_t mail_size(int from, int to, int number)
{
    struct random rng = {wire_seed(from, to, 99, (uint64_t)number)};
    return random_once_in(&rng, 8) ? (random_once_in(&rng, 2) ? WIRE_MAIL : 5) : (size_t)random_in(&rng, 5, 300);
}

static void mail_write(unsigned char *b, size_t n, int from, int to, int number)
{
    wire_fill(b, n, wire_seed(from, to, 98, (uint64_t)number));
    b[0] = 'm';
    memcpy(b + 1, &number, sizeof number);
}

static void mail_take(struct wire_rank *r, int peer, const unsigned char *b, size_t n)
{
    struct mail_count *c = r->arg;
    unsigned char expected[WIRE_MAIL];
    int number = c->got[peer]++;
    WIRE_CHECK(r, n == mail_size(peer, r->rank, number));
    mail_write(expected, n, peer, r->rank, number);
    WIRE_CHECK(r, !memcmp(b, expected, n));
}

void wire_mail_body(struct wire_rank *r)
{
    struct mail_count c = {{0}, {0}};
    struct random rng = {(uint64_t)r->rank + 1};
    unsigned char b[WIRE_MAIL];
    int each = (int)test_share(1500, 20000);
    r->arg = &c;
    r->on_mail = mail_take;
    for (int left = each * (r->size - 1); left > 0;) {
        int to = (int)random_in(&rng, 0, r->size - 1);
        if (to == r->rank || c.sent[to] == each)
            continue;
        size_t n = mail_size(r->rank, to, c.sent[to]);
        mail_write(b, n, r->rank, to, c.sent[to]++);
        WIRE_OK(r, r->w->ops->mail(r->w, to, b, n));
        memset(b, 0xee, sizeof b); /* it was copied */
        left--;
        if (random_once_in(&rng, 16))
            wire_pump(r);
    }
    for (int i = 0; i < r->size; i++)
        if (i != r->rank)
            WIRE_UNTIL(r, c.got[i] == each);
    wire_barrier(r);
    r->arg = NULL;
    r->on_mail = NULL;
    WIRE_CHECK(r, r->w->ops->mail(r->w, 0, b, 0) == WEFT_EINVAL);
    WIRE_CHECK(r, r->w->ops->mail(r->w, 0, b, WIRE_MAIL + 1) == WEFT_EINVAL);
    WIRE_CHECK(r, r->w->ops->mail(r->w, r->size, b, 1) == WEFT_EINVAL);
}

/* ---- messages of all sizes round a ring ---- */

void wire_sizes_body(struct wire_rank *r)
{
    static const size_t sizes[] = {0, 1, 7, 8, 63, 4096, 8191, 8192, 40000, 65536, 1000003, 64 << 20};
    int to = (r->rank + 1) % r->size, from = (r->rank + r->size - 1) % r->size;
    const struct wire_ops *o = r->w->ops;
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        size_t n = sizes[k];
        unsigned char *out = malloc(n + 1), *in = malloc(n + 1);
        struct wire_message *send = NULL, *recv = NULL;
        WIRE_CHECK(r, out && in);
        WIRE_OK(r, o->make(r->w, to, k, out, n, true, &send));
        WIRE_OK(r, o->make(r->w, from, k, in, n, false, &recv));
        WIRE_CHECK(r, o->test(send) == 1 && o->test(recv) == 1); /* nothing is under way */
        for (uint64_t run = 0; run < (n > 1 << 20 ? (uint64_t)test_share(1, 3) : 3); run++) {
            wire_fill(out, n, wire_seed(r->rank, to, k, run));
            in[n] = 0x5a;
            WIRE_OK(r, o->start(recv));
            WIRE_OK(r, o->start(send));
            WIRE_UNTIL(r, o->test(recv) != 0);
            WIRE_CHECK(r, o->test(recv) == 1);
            WIRE_CHECK(r, wire_differs(in, n, wire_seed(from, r->rank, k, run)) == n && in[n] == 0x5a);
            WIRE_UNTIL(r, o->test(send) != 0);
            WIRE_CHECK(r, o->test(send) == 1);
        }
        o->drop(send);
        o->drop(recv);
        free(out);
        free(in);
    }
    wire_barrier(r);
}

/* ---- many messages of random sizes between all pairs, started in random orders in each run ---- */

#define CROWD_TAGS 16

struct crowd_item {
    struct wire_message *m;
    unsigned char *memory;
    size_t bytes;
    uint64_t tag;
    int peer;
    bool send, open;
};

static size_t crowd_size(int from, int to, uint64_t tag)
{
    struct random rng = {wire_seed(from, to, tag, 1000000)};
    size_t top = (size_t)1 << random_in(&rng, 0, random_once_in(&rng, 8) ? 18 : 12);
    return (size_t)random_in(&rng, 0, (int64_t)top);
}

static int crowd_make(struct wire_rank *r, struct crowd_item *items)
{
    int n = 0;
    for (int peer = 0; peer < r->size; peer++)
        for (uint64_t k = 0; peer != r->rank && k < 2 * CROWD_TAGS; k++) {
            struct crowd_item *i = &items[n];
            bool send = k % 2;
            uint64_t tag = (k / 2) * (r->w->tags / CROWD_TAGS) + 100; /* from all of the tags that there are */
            size_t bytes = send ? crowd_size(r->rank, peer, tag) : crowd_size(peer, r->rank, tag);
            *i = (struct crowd_item){NULL, malloc(bytes + 1), bytes, tag, peer, send, false};
            if (!i->memory || r->w->ops->make(r->w, peer, tag, i->memory, bytes, send, &i->m))
                return -1;
            n++;
        }
    return n;
}

static void crowd_run(struct wire_rank *r, struct crowd_item *items, int n, uint64_t run, struct random *rng)
{
    int order[2 * CROWD_TAGS * WIRE_RANKS];
    const struct wire_ops *o = r->w->ops;
    for (int i = 0; i < n; i++) {
        int j = (int)random_in(rng, 0, i);
        order[i] = order[j];
        order[j] = i;
    }
    for (int i = 0; i < n; i++) {
        struct crowd_item *c = &items[order[i]];
        if (c->send)
            wire_fill(c->memory, c->bytes, wire_seed(r->rank, c->peer, c->tag, run));
        WIRE_OK(r, o->start(c->m));
        c->open = true;
        if (random_once_in(rng, 4))
            wire_pump(r);
    }
    for (int i = 0; i < n; i++) {
        struct crowd_item *c = &items[order[i]];
        WIRE_UNTIL(r, o->test(c->m) != 0);
        WIRE_CHECK(r, o->test(c->m) == 1);
        if (!c->send)
            WIRE_CHECK(r, wire_differs(c->memory, c->bytes, wire_seed(c->peer, r->rank, c->tag, run)) == c->bytes);
    }
}

void wire_crowd_body(struct wire_rank *r)
{
    static struct crowd_item items[2 * CROWD_TAGS * WIRE_RANKS];
    struct random rng = {(uint64_t)r->rank * 77 + 5};
    int n = crowd_make(r, items);
    WIRE_CHECK(r, n >= 0);
    uint64_t runs = (uint64_t)test_share(320, 3200); /* 10,000 messages between two ranks */
    ;
    for (uint64_t run = 0; run < runs && !r->failed[0]; run++)
        crowd_run(r, items, n, run, &rng);
    wire_barrier(r);
    for (int i = 0; i < n; i++) {
        r->w->ops->drop(items[i].m);
        free(items[i].memory);
    }
}

/* ---- a sender runs ahead of its receiver, but not far ---- */

#define AHEAD_RUNS 200

static void ahead_go(struct wire_rank *r, int peer, const unsigned char *bytes, size_t n)
{
    (void)peer, (void)bytes, (void)n;
    *(bool *)r->arg = true;
}

static void ahead_send(struct wire_rank *r, struct wire_message *m, uint64_t *value)
{
    const struct wire_ops *o = r->w->ops;
    int sent = 0;
    int64_t end = clock_now() + 100 * MS;
    WIRE_OK(r, o->start(m));
    while (clock_now() < end) { /* the receiver has not been told to begin */
        wire_pump(r);
        int done = o->test(m);
        WIRE_CHECK(r, done >= 0);
        if (done) {
            ++*value;
            sent++;
            WIRE_OK(r, o->start(m));
        }
    }
    WIRE_CHECK(r, sent < WIRE_AHEAD);
    WIRE_OK(r, o->mail(r->w, 1, "!", 1));
    for (; sent < AHEAD_RUNS; sent++) {
        WIRE_UNTIL(r, o->test(m) != 0);
        WIRE_CHECK(r, o->test(m) == 1);
        ++*value;
        if (sent + 1 < AHEAD_RUNS)
            WIRE_OK(r, o->start(m));
    }
}

void wire_ahead_body(struct wire_rank *r)
{
    const struct wire_ops *o = r->w->ops;
    struct wire_message *m = NULL;
    uint64_t value = 0;
    bool go = false;
    r->arg = &go;
    r->on_mail = ahead_go;
    if (r->rank < 2)
        WIRE_OK(r, o->make(r->w, 1 - r->rank, 3, &value, sizeof value, r->rank == 0, &m));
    if (r->rank == 0)
        ahead_send(r, m, &value);
    if (r->rank == 1) {
        WIRE_UNTIL(r, go);
        for (uint64_t i = 0; i < AHEAD_RUNS; i++) {
            WIRE_OK(r, o->start(m));
            WIRE_UNTIL(r, o->test(m) != 0);
            WIRE_CHECK(r, o->test(m) == 1 && value == i);
        }
    }
    wire_barrier(r);
    o->drop(m);
    r->arg = NULL;
    r->on_mail = NULL;
}

/* ---- a tag is used again, first by the receiver, whose next message is started before the sender has dropped its
 * last; either may make the next one before it drops the last ---- */

static void remake_one(struct wire_rank *r, bool over, size_t bytes, void *memory, struct wire_message **m)
{
    const struct wire_ops *o = r->w->ops;
    struct wire_message *last = *m;
    if (!over)
        o->drop(last);
    WIRE_OK(r, o->make(r->w, 1 - r->rank, 3, memory, bytes, r->rank == 0, m));
    if (over)
        o->drop(last);
}

/* Some messages of chosen sizes, then some of random ones, which are started up to three times as often as a sender may
 * run ahead. */
void wire_remake_body(struct wire_rank *r)
{
    enum { CHOSEN = 12, ALL = 100 };
    static const size_t chosen[CHOSEN] = {100000, 8, 100000, 300000, 300000, 8, 8, 300000, 100000, 8, 8, 100000};
    struct random both = {4711}, own = {(uint64_t)r->rank};
    const struct wire_ops *o = r->w->ops;
    unsigned char *memory = malloc(300000);
    struct wire_message *m = NULL;
    WIRE_CHECK(r, memory);
    for (uint64_t k = 0; k < ALL; k++) {
        bool over = k < CHOSEN ? k & (r->rank ? 4 : 2) : random_once_in(&own, 2);
        size_t bytes = random_once_in(&both, 3) ? 100000 : 8;
        uint64_t last = (uint64_t)random_in(&both, 0, 3 * WIRE_AHEAD);
        if (random_once_in(&both, 2)) /* the next start would need a grant */
            last = (uint64_t)random_in(&both, 1, 3) * WIRE_AHEAD - 2;
        bool late = k >= CHOSEN && random_once_in(&both, 3); /* the sender starts first */
        if (k < CHOSEN) {
            bytes = chosen[k];
            last = k;
        }
        if (r->rank == 1) {
            remake_one(r, over, bytes, memory, &m);
            WIRE_CHECK(r, !r->failed[0]);
            if (!late)
                WIRE_OK(r, o->start(m));
        }
        wire_barrier(r); /* mail comes behind what was there to say of the message */
        if (r->rank == 0)
            remake_one(r, over, bytes, memory, &m);
        WIRE_CHECK(r, !r->failed[0]);
        if (late && r->rank == 0) {
            wire_fill(memory, bytes, wire_seed(0, 1, k, 0));
            WIRE_OK(r, o->start(m));
        }
        if (late)
            wire_barrier(r);
        if (late && r->rank == 1)
            WIRE_OK(r, o->start(m));
        for (uint64_t run = 0; run <= last && r->rank < 2; run++) {
            bool starts = run || (!late && r->rank == 0);
            if (starts && r->rank == 0)
                wire_fill(memory, bytes, wire_seed(0, 1, k, run));
            if (starts)
                WIRE_OK(r, o->start(m));
            WIRE_UNTIL(r, o->test(m) != 0);
            WIRE_CHECK(r, o->test(m) == 1);
            WIRE_CHECK(r, wire_differs(memory, bytes, wire_seed(0, 1, k, run)) == bytes);
        }
    }
    wire_barrier(r);
    o->drop(m);
    free(memory);
}

/* ---- sizes that differ are told to the receiver, in both directions ---- */

void wire_mismatch_body(struct wire_rank *r)
{
    static const size_t sent[] = {100, 50, 300000, 100, 90000}, expected[] = {50, 100, 100, 300000, 80000};
    const struct wire_ops *o = r->w->ops;
    unsigned char *memory = calloc(1, 300000);
    WIRE_CHECK(r, memory);
    for (size_t k = 0; r->rank < 2 && k < sizeof sent / sizeof *sent; k++) {
        struct wire_message *m = NULL;
        WIRE_OK(r, o->make(r->w, 1 - r->rank, k, memory, r->rank ? expected[k] : sent[k], r->rank == 0, &m));
        WIRE_OK(r, o->start(m));
        WIRE_UNTIL(r, o->test(m) != 0);
        WIRE_CHECK(r, o->test(m) == (r->rank ? WEFT_EMISMATCH : 1));
        if (r->rank)
            WIRE_CHECK(r, strstr(weft_errmsg(), "rank 0"));
        o->drop(m);
    }
    wire_barrier(r);
    free(memory);
}

/* ---- more than 2^31 bytes ---- */

void wire_huge_body(struct wire_rank *r)
{
    size_t n = ((size_t)1 << 31) + ((size_t)1 << 30) + 12345;
    const struct wire_ops *o = r->w->ops;
    struct wire_message *m = NULL;
    unsigned char *memory =
        r->rank < 2 ? mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) : NULL;
    WIRE_CHECK(r, memory != MAP_FAILED);
    if (r->rank == 0)
        for (size_t i = 0; i < n; i += 4096)
            memory[i] = wire_byte(7, i / 4096);
    if (r->rank < 2) {
        WIRE_OK(r, o->make(r->w, 1 - r->rank, 5, memory, n, r->rank == 0, &m));
        WIRE_OK(r, o->start(m));
        WIRE_UNTIL(r, o->test(m) != 0);
        WIRE_CHECK(r, o->test(m) == 1);
        values_begin();
        for (size_t i = 0; i < n; i += 4096)
            VALUES_CHECK(i, memory[i], wire_byte(7, i / 4096));
        WIRE_CHECK(r, !values_wrong());
        munmap(memory, n);
    }
    wire_barrier(r);
    o->drop(m);
}

/* ---- sleeping on the wire: rank 0 and the others pass a mail to and fro, asleep between ---- */

static void sleep_take(struct wire_rank *r, int peer, const unsigned char *bytes, size_t n)
{
    (void)bytes, (void)n;
    ((int *)r->arg)[peer]++;
}

static void sleep_until(struct wire_rank *r, const int *count, int value)
{
    for (int64_t end = clock_now() + PATIENCE; *count < value;) {
        struct pollfd p = {.fd = r->w->fd, .events = POLLIN};
        if (clock_now() >= end)
            wire_note(r, __FILE__, __LINE__, "asleep: mail number %d did not come, %d did", value, *count);
        if (r->failed[0])
            return;
        if (wire_pump(r) || !r->w->ops->arm(r->w))
            continue;
        WIRE_CHECK(r, poll(&p, 1, (int)(PATIENCE / MS)) == 1); /* nobody else wakes it */
    }
}

void wire_sleep_body(struct wire_rank *r)
{
    int got[WIRE_RANKS] = {0};
    r->arg = got;
    r->on_mail = sleep_take;
    WIRE_CHECK(r, r->w->fd >= 0);
    for (int round = 1; round <= 200 && !r->failed[0]; round++)
        for (int peer = 1; peer < r->size && !r->failed[0]; peer++) {
            if (r->rank == 0) {
                WIRE_OK(r, r->w->ops->mail(r->w, peer, "?", 1));
                sleep_until(r, &got[peer], round);
            } else if (r->rank == peer) {
                sleep_until(r, &got[0], round);
                WIRE_OK(r, r->w->ops->mail(r->w, 0, "!", 1));
            }
        }
    wire_barrier(r);
    r->arg = NULL;
    r->on_mail = NULL;
}
