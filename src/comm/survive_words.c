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

#define CROWD 64

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
    _Atomic uint64_t *newest = &s->comm->group->agreement;
    atomic_store_explicit(&s->block->asked, s->agreement, memory_order_seq_cst);
    uint64_t was = atomic_load_explicit(newest, memory_order_seq_cst);
    while (was < s->agreement && !atomic_compare_exchange_weak_explicit(newest, &was, s->agreement,
                                                                        memory_order_seq_cst, memory_order_seq_cst)) {
    }
}

void survive_words_hold(struct survivors *s)
{
    struct words *w = of_rank(s, s->block);
    begin(w, s->promised, s->accepted);
    write_set(s, w, 0, s->accepted_list);
    write_set(s, w, 1, s->dead);
    end(w);
}

static void pass_on(struct survivors *s)
{
    struct words *w = of_leader(s->block);
    begin(w, s->view.ballot, s->view.phase);
    write_set(s, w, 0, s->view.list);
    end(w);
}

/* Most ranks wait for words that few ranks write. So they look at the words of the rank that has announced some last.
 */
void survive_words_lead(struct survivors *s)
{
    _Atomic uint64_t *words = &s->comm->group->words;
    pass_on(s);
    uint64_t was = atomic_load_explicit(words, memory_order_seq_cst), now;
    do /* after the words themselves */
        now = ((was >> SURVIVE_RANK_BITS) + 1) << SURVIVE_RANK_BITS | (uint64_t)s->comm->rank;
    while (!atomic_compare_exchange_weak_explicit(words, &was, now, memory_order_seq_cst, memory_order_seq_cst));
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

/* Takes the leader's word that the rank has published, if it is newer than the one in view. list: working memory. */
static bool read_word(struct survivors *s, int rank, uint64_t *list)
{
    struct survive_block *b = rank == s->comm->rank ? NULL : block_of(s, rank);
    if (!b)
        return false;
    const struct words *w = of_leader(b);
    uint64_t version = version_of(w);
    uint64_t ballot = atomic_load_explicit(&w->numbers[0], memory_order_seq_cst);
    uint64_t phase = atomic_load_explicit(&w->numbers[1], memory_order_seq_cst);
    if (version % 2 || !survive_state_newer(s, ballot, phase))
        return false;
    read_set(s, w, 0, list);
    if (version_of(w) != version)
        return false;
    survive_state_view(s, ballot, phase, list);
    return true;
}

/* Of several words that were announced at the same time only the last is found. So ranks look at all blocks now and
 * then, seldom if there are many ranks: each block is in another page, and a page table for each costs more than the
 * look. */
void survive_words_look(struct survivors *s, int64_t now)
{
    const weft_comm *c = s->comm;
    uint64_t words = atomic_load_explicit(&c->group->words, memory_order_seq_cst); /* before the words themselves */
    uint64_t agreement = atomic_load_explicit(&c->group->agreement, memory_order_seq_cst);
    s->newest = agreement > s->newest ? agreement : s->newest;
    bool all = now - s->words_at >= c->beat_ns * (1 + c->size / CROWD);
    if (words == s->words_seen && !all)
        return;
    uint64_t *list = malloc(s->words * sizeof *list);
    if (!list)
        return;
    bool moved = words && read_word(s, (int)(words & ((UINT64_C(1) << SURVIVE_RANK_BITS) - 1)), list);
    for (int r = 0; r < c->size && all; r++)
        moved |= read_word(s, r, list);
    s->words_seen = words;
    s->words_at = all ? now : s->words_at;
    if (moved)
        pass_on(s); /* the rank that wrote it first has announced it */
    free(list);
}

void survive_words_collect(struct survivors *s, int rank)
{
    struct survive_peer *p = &s->peers[s->comm->group->ranks[rank].number - 1];
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
        survive_state_dead(s, 0, sets + s->words, s->words);
    }
    free(sets);
}
