/* The algebra of values. A value is identified by its terms, not by numbers: two hashes of the multiset of terms (sums
 * over the terms, which do not depend on order and grouping) and one hash of the order in which they are folded.
 *
 * Folding is associative here: an open fold that goes into a fold of the same op is merged into it. A division closes a
 * fold. A fold of another op goes in as one term. A fold of one term is that term.
 *
 * Dtypes: a value is exact until it is cast to the dtype of finished values (the narrower side), then to the
 * destination's. Any other cast that can lose something is refused. */
#include "base/dtype.h"
#include "base/hash.h"
#include "plan/verify/verify.h"

enum { SEED_ATOM = 3, SEED_CHILD = 5, SEED_CLOSED = 7, SEED_FIRST = 11, SEED_OPEN = 13 };

struct verify_value verify_value_term(const uint64_t id[2], int dtype)
{
    return (struct verify_value){
        .set = {id[0], id[1]}, .order = id[0], .count = 1, .kind = VERIFY_TERM, .dtype = (uint8_t)dtype};
}

struct verify_value verify_value_identity(int op, int dtype)
{
    return (struct verify_value){.set = {(uint64_t)op, (uint64_t)op},
                                 .order = (uint64_t)op,
                                 .kind = VERIFY_IDENTITY,
                                 .op = (uint8_t)op,
                                 .dtype = (uint8_t)dtype};
}

static uint64_t atom(const struct verify_value *x, int i)
{
    uint64_t h = hash_u64(SEED_ATOM + 16 * (uint64_t)i, x->kind);
    if (x->kind == VERIFY_OPEN)
        h = hash_u64(hash_u64(h, x->op), (uint64_t)x->count);
    return hash_u64(h, x->set[i]);
}

static uint64_t atom_order(const struct verify_value *x)
{
    return hash_u64(hash_u64(SEED_ATOM, (uint64_t)(x->kind << 8 | x->op)), x->order);
}

void verify_value_fold_start(struct verify_fold *f, int op)
{
    *f = (struct verify_fold){.op = op};
}

void verify_value_fold_add(struct verify_fold *f, const struct verify_value *x)
{
    bool same = x->kind == VERIFY_OPEN && x->op == f->op;
    if (f->inputs++ == 0) {
        f->first = *x;
        f->order = same ? x->order : hash_u64(SEED_FIRST, atom_order(x));
    } else {
        f->order = hash_u64(f->order, same ? hash_u64(SEED_OPEN, x->order) : atom_order(x));
    }
    for (int i = 0; i < 2; i++)
        f->set[i] += same ? x->set[i] : hash_u64(SEED_CHILD, atom(x, i));
    f->count += same ? x->count : 1;
}

struct verify_value verify_value_fold_end(const struct verify_fold *f, int64_t div, int acc)
{
    if (f->inputs == 1 && div <= 1)
        return f->first;
    struct verify_value x = {.set = {f->set[0], f->set[1]},
                             .order = f->order,
                             .count = f->count,
                             .kind = VERIFY_OPEN,
                             .op = (uint8_t)f->op,
                             .dtype = (uint8_t)acc};
    if (div <= 1)
        return x;
    struct verify_value closed = {.kind = VERIFY_CLOSED, .dtype = (uint8_t)acc, .count = 1};
    for (int i = 0; i < 2; i++)
        closed.set[i] = hash_u64(hash_u64(SEED_CLOSED, (uint64_t)div), atom(&x, i));
    closed.order = hash_u64(hash_u64(SEED_CLOSED, (uint64_t)div), x.order);
    return closed;
}

bool verify_value_same_terms(const struct verify_value *a, const struct verify_value *b)
{
    return a->kind == b->kind && a->set[0] == b->set[0] && a->set[1] == b->set[1] &&
           (a->kind != VERIFY_OPEN || (a->op == b->op && a->count == b->count));
}

/* How many bits of an integer a dtype keeps; for integer dtypes, the bits without the sign. */
static int digits(int dtype)
{
    switch (dtype) {
    case WEFT_BOOL: return 1;
    case WEFT_F8E8M0: return 0; /* it has no zero */
    case WEFT_F8E5M2:
    case WEFT_F8E5M2SAT: return 3;
    case WEFT_F8E4M3:
    case WEFT_F8E4M3SAT: return 4;
    case WEFT_BF16: return 8;
    case WEFT_F16: return 11;
    case WEFT_F32: return 24;
    case WEFT_F64: return 53;
    default: return 8 * (int)weft_dtype_size(dtype) - dtype_is_signed(dtype);
    }
}

/* Can `to` hold every value of `from`? */
static bool lossless(int from, int to)
{
    if (from == to)
        return true;
    if (to == WEFT_BOOL || dtype_is_complex(from) != dtype_is_complex(to) || (from == WEFT_F8E8M0 && to == WEFT_F16))
        return false;
    if (dtype_is_complex(from))
        return weft_dtype_size(to) > weft_dtype_size(from);
    if (dtype_is_float(from)) /* f16 and bf16 differ in range: neither holds the other, and sizes say so */
        return dtype_is_float(to) && weft_dtype_size(to) > weft_dtype_size(from);
    return digits(from) <= digits(to) && (dtype_is_signed(to) || !dtype_is_signed(from));
}

/* Is the cast lossless, and does every later cast give the same result as without it? (Integers wrap, but floats
 * saturate.) */
static bool keeps(int from, int to)
{
    return lossless(from, to) && dtype_is_float(from) == dtype_is_float(to);
}

static bool invertible(int from, int to)
{
    bool ints = !dtype_is_float(from) && !dtype_is_float(to) && from != WEFT_BOOL && to != WEFT_BOOL &&
                !dtype_is_complex(from) && !dtype_is_complex(to);
    return lossless(from, to) || (ints && weft_dtype_size(to) >= weft_dtype_size(from));
}

static int base(const struct verify_value *x, const struct verify_tensor *t)
{
    return x->kind == VERIFY_TERM ? t->src->dtype : t->acc;
}

bool verify_value_cast(struct verify_value *x, const struct verify_tensor *t, int dtype)
{
    int from = base(x, t), dst = t->dst->dtype;
    if (x->kind == VERIFY_IDENTITY)
        return dtype == x->dtype;
    if (x->form == VERIFY_EXACT && !keeps(from, dtype)) {
        if (dtype == t->fin)
            x->form = VERIFY_ROUNDED;
        else if (dtype == dst && keeps(from, t->fin))
            x->form = VERIFY_FINAL;
        else
            return false;
    } else if (x->form == VERIFY_ROUNDED && !keeps(t->fin, dtype)) {
        if (dtype != dst)
            return false;
        x->form = VERIFY_FINAL;
    } else if (x->form == VERIFY_FINAL && dtype != dst) {
        if (dtype != t->fin || !invertible(t->fin, dst))
            return false;
        x->form = keeps(from, t->fin) ? VERIFY_EXACT : VERIFY_ROUNDED;
    }
    x->dtype = (uint8_t)dtype;
    return true;
}

bool verify_value_delivered(const struct verify_value *x, const struct verify_tensor *t,
                            const struct verify_value *expected)
{
    return verify_value_same_terms(x, expected) && x->dtype == t->dst->dtype &&
           (x->form != VERIFY_EXACT || keeps(base(x, t), t->fin));
}
