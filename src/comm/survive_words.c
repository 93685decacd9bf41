/* The words of the agreement in the memory of a host. Each rank has a block, which it alone writes and all ranks of its
 * host read. The block outlives the rank, so that a list which was agreed on can be read after the rank has left.
 *
 * A set of words changes as one: its version is odd while it is written. All accesses are seq_cst, so there is one
 * order of them: a reader that finds the same even version before and after has read between two changes. A rank that
 * dies while it writes leaves an odd version, and what it wrote is not read. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "comm/survive_state.h"
#include "transport/hosts/hosts.h"

struct words {
    _Atomic uint64_t version;
    _Atomic uint64_t numbers[2];
    _Atomic uint64_t sets[];
};

struct survive_block {
    _Atomic uint64_t asked;   /* the agreement that the rank is in */
    _Atomic uint64_t words[]; /* two struct words: of a leader (one set), and of this rank itself (two sets) */
};

static size_t span(const struct survivors *s, size_t sets)
{
    return sizeof(struct words) / sizeof(uint64_t) + sets * s->words;
}

static struct words *of_leader(struct survive_block *b)
{
    return (struct words *)(void *)b->words;
}

static struct words *of_rank(const struct survivors *s, struct survive_block *b)
{
    return (struct words *)(void *)(b->words + span(s, 1));
}

static void write_set(const struct survivors *s, struct words *w, size_t i, const uint64_t *set)
{
    for (size_t k = 0; k < s->words; k++)
        atomic_store_explicit(&w->sets[i * s->words + k], set[k], memory_order_seq_cst);
}

static void read_set(const struct survivors *s, const struct words *w, size_t i, uint64_t *set)
{
    for (size_t k = 0; k < s->words; k++)
        set[k] = atomic_load_explicit(&w->sets[i * s->words + k], memory_order_seq_cst);
}

static uint64_t version_of(const struct words *w)
{
    return atomic_load_explicit(&w->version, memory_order_seq_cst);
}

static void begin(struct words *w, uint64_t a, uint64_t b)
{
    atomic_store_explicit(&w->version, version_of(w) + 1, memory_order_seq_cst);
    atomic_store_explicit(&w->numbers[0], a, memory_order_seq_cst);
    atomic_store_explicit(&w->numbers[1], b, memory_order_seq_cst);
}

static void end(struct words *w)
{
    atomic_store_explicit(&w->version, version_of(w) + 1, memory_order_seq_cst);
}

/* ---- writing ---- */

int survive_words_open(struct survivors *s)
{
    weft_comm *c = s->comm;
    uint64_t place;
    if (s->block)
        return 0;
    s->block = c->transport->alloc(c->link, sizeof *s->block + (span(s, 1) + span(s, 2)) * sizeof(uint64_t), &place);
    if (!s->block)
        return error_set(WEFT_ENOMEM, "weft_comm_survivors: no memory for a list of %d ranks", c->size);
    atomic_store_explicit(&c->group->ranks[c->rank].survive, place + 1, memory_order_seq_cst);
    return 0;
}

void survive_words_ask(struct survivors *s)
{
    atomic_store_explicit(&s->block->asked, s->agreement, memory_order_seq_cst);
}

void survive_words_hold(struct survivors *s)
{
    struct words *w = of_rank(s, s->block);
    begin(w, s->promised, s->accepted);
    write_set(s, w, 0, s->accepted_list);
    write_set(s, w, 1, s->dead);
    end(w);
}

void survive_words_lead(struct survivors *s)
{
    struct words *w = of_leader(s->block);
    begin(w, s->view.ballot, s->view.phase);
    write_set(s, w, 0, s->view.list);
    end(w);
}

/* ---- reading ---- */

/* The block of a rank of this host; NULL: it has none. */
static struct survive_block *block_of(const struct survivors *s, int rank)
{
    weft_comm *c = s->comm;
    if (transport_elsewhere(c->link, rank))
        return NULL;
    uint64_t place = atomic_load_explicit(&c->group->ranks[rank].survive, memory_order_seq_cst);
    return place ? c->transport->reach(c->link, rank, place - 1) : NULL;
}

uint64_t survive_words_asked(const struct survivors *s, int rank)
{
    const struct survive_block *b = block_of(s, rank);
    return b ? atomic_load_explicit(&b->asked, memory_order_seq_cst) : 0;
}

void survive_words_look(struct survivors *s)
{
    uint64_t *list = malloc(s->words * sizeof *list);
    bool moved = false;
    for (int r = 0; r < s->comm->size && list; r++) {
        struct survive_block *b = r == s->comm->rank ? NULL : block_of(s, r);
        if (!b)
            continue;
        uint64_t asked = atomic_load_explicit(&b->asked, memory_order_seq_cst);
        s->newest = asked > s->newest ? asked : s->newest;
        const struct words *w = of_leader(b);
        uint64_t version = version_of(w);
        uint64_t ballot = atomic_load_explicit(&w->numbers[0], memory_order_seq_cst);
        uint64_t phase = atomic_load_explicit(&w->numbers[1], memory_order_seq_cst);
        if (version % 2 || !survive_state_newer(s, ballot, phase))
            continue;
        read_set(s, w, 0, list);
        if (version_of(w) == version)
            survive_state_view(s, ballot, phase, list), moved = true;
    }
    if (moved)
        survive_words_lead(s);
    free(list);
}

void survive_words_collect(struct survivors *s, int rank)
{
    struct survive_peer *p = &s->peers[rank];
    struct survive_block *b = block_of(s, rank);
    const struct words *w = b ? of_rank(s, b) : NULL;
    uint64_t version = w ? version_of(w) : 0;
    if (version % 2 || version == p->seen)
        return;
    uint64_t *sets = malloc(2 * s->words * sizeof *sets);
    if (!sets)
        return;
    uint64_t promised = atomic_load_explicit(&w->numbers[0], memory_order_seq_cst);
    uint64_t accepted = atomic_load_explicit(&w->numbers[1], memory_order_seq_cst);
    read_set(s, w, 0, sets);
    read_set(s, w, 1, sets + s->words);
    if (version_of(w) == version) {
        p->seen = version;
        p->promised = promised;
        p->accepted = accepted;
        survive_state_best(s, accepted, sets);
        for (size_t k = 0; k < s->words; k++)
            s->dead[k] |= sets[s->words + k];
        survive_put(s->dead, s->comm->rank, false);
    }
    free(sets);
}
