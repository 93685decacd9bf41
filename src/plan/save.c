/* Plans as bytes: save and load; scaled_save.c has what a plan with scales has more. Load trusts nothing in the bytes:
 * it checks lengths against the bytes that are there before it allocates anything, then the checksum, and then the plan
 * itself by plan_check.
 *
 * The form, in the byte order of the machine (a mark tells which), without padding:
 *
 *   "WEFTPLAN"  u32 order mark  u32 version  u64 length of all
 *   u64 counts, one a section
 *   rank, world, digest, scratch, bound, stated, bucket, in_place, machine; kind and algorithm as
 *   texts of 32 bytes, filled up with zeros
 *   the sections: tensors, bufs, parts, steps, runs, spots, shapes, deps, names, and the layouts, each
 *   different one once, in the text form, closed by a zero; a tensor names its two by number
 *   u64 hash of all bytes before it
 *
 * The functions code_*() state the form of each struct once, for both directions. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/hash.h"
#include "base/text.h"
#include "layout/layout.h"
#include "plan/plan.h"
#include "plan/scaled.h"

#define MAGIC "WEFTPLAN"
#define FORMAT UINT32_C(2)
#define ORDER_MARK UINT32_C(0x01020304)

enum section { TENSORS, BUFS, PARTS, STEPS, RUNS, SPOTS, SHAPES, DEPS, NAMES, LAYOUT_TEXT, SECTIONS };
/* The count of layouts comes after those of the sections; their bytes are in LAYOUT_TEXT. */
enum { LAYOUTS = SECTIONS, COUNTS };
enum { WORD = PLAN_WORD, PREFIX = 24, FIXED = 73 + 2 * WORD, HEAD = PREFIX + 8 * COUNTS + FIXED, TAIL = 8 };

static const struct {
    const char *what;
    size_t bytes; /* of one element in the saved form */
} sections[SECTIONS] = {
    [TENSORS] = {"tensors", 21},
    [BUFS] = {"buffers", 18},
    [PARTS] = {"parts", 29},
    [STEPS] = {"steps", 43},
    [RUNS] = {"runs", sizeof(struct plan_run)},
    [SPOTS] = {"spots", sizeof(struct plan_spot)},
    [SHAPES] = {"extents", sizeof(int64_t)},
    [DEPS] = {"deps", sizeof(uint32_t)},
    [NAMES] = {"bytes of names", 1},
    [LAYOUT_TEXT] = {"bytes of layouts", 1},
};

/* Where the next byte is read or written. The function that makes a cursor has checked that there is room. */
struct cursor {
    unsigned char *out; /* one of the two is NULL */
    const unsigned char *in;
};

static void code(struct cursor *c, void *value, size_t n)
{
    if (n == 0)
        return;
    if (c->in) {
        memcpy(value, c->in, n);
        c->in += n;
    } else {
        memcpy(c->out, value, n);
        c->out += n;
    }
}
#define code_field(c, x) code((c), &(x), sizeof(x))

static void code_fixed(struct cursor *c, weft_plan *p, char *kind, char *algorithm)
{
    code_field(c, p->rank);
    code_field(c, p->world);
    code_field(c, p->digest);
    code_field(c, p->scratch);
    code_field(c, p->bound);
    code_field(c, p->stated);
    code_field(c, p->bucket);
    code_field(c, p->in_place);
    code_field(c, p->machine.ranks_per_host);
    code_field(c, p->machine.latency_ns);
    code_field(c, p->machine.bytes_per_us);
    code_field(c, p->machine.ranks);
    code(c, kind, WORD);
    code(c, algorithm, WORD);
}

static void code_tensor(struct cursor *c, struct plan_tensor *t, uint32_t layouts[2])
{
    code_field(c, layouts[0]);
    code_field(c, layouts[1]);
    code_field(c, t->name);
    code_field(c, t->src_buf);
    code_field(c, t->dst_buf);
    code_field(c, t->ndim);
}

static void code_buf(struct cursor *c, struct plan_buf *b)
{
    code_field(c, b->space);
    code_field(c, b->dtype);
    code_field(c, b->tensor);
    code_field(c, b->shape);
    code_field(c, b->offset);
}

static void code_part(struct cursor *c, struct plan_part *part)
{
    code_field(c, part->buf);
    code_field(c, part->runs);
    code_field(c, part->spots);
    code_field(c, part->wire);
    code_field(c, part->offset);
    code_field(c, part->count);
}

static void code_step(struct cursor *c, struct plan_step *s)
{
    code_field(c, s->kind);
    code_field(c, s->op);
    code_field(c, s->via);
    code_field(c, s->peer);
    code_field(c, s->stage);
    code_field(c, s->part);
    code_field(c, s->nparts);
    code_field(c, s->dep);
    code_field(c, s->ndeps);
    code_field(c, s->div);
    code_field(c, s->bytes);
}

/* All sections between the tensors and the layouts. */
static void code_arrays(struct cursor *c, weft_plan *p)
{
    for (size_t i = 0; i < p->nbufs; i++)
        code_buf(c, &p->bufs[i]);
    for (size_t i = 0; i < p->nparts; i++)
        code_part(c, &p->parts[i]);
    for (size_t i = 0; i < p->nsteps; i++)
        code_step(c, &p->steps[i]);
    code(c, p->runs, p->nruns * sizeof *p->runs);
    code(c, p->spots, p->nspots * sizeof *p->spots);
    code(c, p->shapes, p->nshapes * sizeof *p->shapes);
    code(c, p->deps, p->ndeps * sizeof *p->deps);
    code(c, p->names, p->nnames);
}

/* ---- save ---- */

/* The different layouts of a plan, numbered in the order in which its tensors name them. */
struct pool {
    const weft_layout **layouts;
    uint32_t n;
    uint32_t *of;    /* two for each tensor: the numbers of its source and its destination */
    uint32_t *table; /* open addressing by the layouts' hashes; PLAN_NONE: free */
    size_t mask;
};

static void pool_free(struct pool *pool)
{
    free(pool->layouts);
    free(pool->of);
    free(pool->table);
}

static uint32_t pool_number(struct pool *pool, const weft_layout *l)
{
    for (size_t i = hash_mix(l->hash) & pool->mask;; i = (i + 1) & pool->mask) {
        uint32_t k = pool->table[i];
        if (k == PLAN_NONE) {
            pool->table[i] = pool->n;
            pool->layouts[pool->n] = l;
            return pool->n++;
        }
        if (weft_layout_equal(pool->layouts[k], l))
            return k;
    }
}

static int pool_fill(struct pool *pool, const weft_plan *p)
{
    size_t sides = 2 * p->ntensors, cap = 4;
    while (cap < 2 * sides)
        cap *= 2;
    pool->layouts = malloc((sides + 1) * sizeof *pool->layouts);
    pool->of = malloc((sides + 1) * sizeof *pool->of);
    pool->table = malloc(cap * sizeof *pool->table);
    pool->mask = cap - 1;
    if (!pool->layouts || !pool->of || !pool->table)
        return error_nomem();
    for (size_t i = 0; i < cap; i++)
        pool->table[i] = PLAN_NONE;
    for (size_t i = 0; i < p->ntensors; i++) {
        pool->of[2 * i] = pool_number(pool, p->tensors[i].src);
        pool->of[2 * i + 1] = pool_number(pool, p->tensors[i].dst);
    }
    return 0;
}

static int pool_text_bytes(const struct pool *pool, size_t *bytes)
{
    *bytes = 0;
    for (uint32_t k = 0; k < pool->n; k++) {
        size_t len;
        int err = weft_layout_format(pool->layouts[k], NULL, 0, &len);
        if (err)
            return err;
        *bytes += len + 1;
    }
    return 0;
}

static int write_layouts(struct cursor *c, const struct pool *pool, size_t bytes)
{
    for (uint32_t k = 0; k < pool->n; k++) {
        size_t len;
        int err = weft_layout_format(pool->layouts[k], (char *)c->out, bytes, &len);
        if (err)
            return err;
        c->out += len + 1;
        bytes -= len + 1;
    }
    return 0;
}

static void write_head(struct cursor *c, const weft_plan *p, const uint64_t counts[COUNTS], uint64_t total)
{
    char magic[8], kind[WORD] = {0}, algorithm[WORD] = {0};
    uint32_t mark = ORDER_MARK, version = FORMAT;
    weft_plan copy = *p;
    memcpy(magic, MAGIC, sizeof magic);
    memcpy(kind, p->kind, strlen(p->kind));
    memcpy(algorithm, p->algorithm, strlen(p->algorithm));
    code_field(c, magic);
    code_field(c, mark);
    code_field(c, version);
    code_field(c, total);
    code(c, (void *)counts, COUNTS * sizeof *counts);
    code_fixed(c, &copy, kind, algorithm);
}

static int write_all(const weft_plan *p, const struct pool *pool, const uint64_t counts[COUNTS], unsigned char *buf,
                     size_t total)
{
    struct cursor c = {.out = buf};
    write_head(&c, p, counts, total);
    for (size_t i = 0; i < p->ntensors; i++)
        code_tensor(&c, &p->tensors[i], &pool->of[2 * i]);
    code_arrays(&c, (weft_plan *)p); /* writing: the plan is only read */
    int err = write_layouts(&c, pool, counts[LAYOUT_TEXT]);
    if (err)
        return err;
    uint64_t sum = hash_bytes(FORMAT, buf, total - TAIL);
    code_field(&c, sum);
    return 0;
}

/* A buffer that is too small is left as it was: half a plan is of no use. */
int save_steps(const weft_plan *p, void *buf, size_t cap, size_t *len)
{
    if (strlen(p->kind) >= WORD || strlen(p->algorithm) >= WORD)
        return error_set(WEFT_EINVAL, "plan: kind \"%s\" or algorithm \"%s\" is too long", p->kind, p->algorithm);
    struct pool pool = {0};
    size_t text, total = HEAD + TAIL;
    int err = pool_fill(&pool, p);
    if (!err)
        err = pool_text_bytes(&pool, &text);
    if (err)
        goto out;
    const uint64_t counts[COUNTS] = {
        [TENSORS] = p->ntensors, [BUFS] = p->nbufs,    [PARTS] = p->nparts,   [STEPS] = p->nsteps,
        [RUNS] = p->nruns,       [SPOTS] = p->nspots,  [SHAPES] = p->nshapes, [DEPS] = p->ndeps,
        [NAMES] = p->nnames,     [LAYOUT_TEXT] = text, [LAYOUTS] = pool.n,
    };
    for (int s = 0; s < SECTIONS; s++)
        total += counts[s] * sections[s].bytes;
    if (cap >= total)
        err = write_all(p, &pool, counts, buf, total);
    if (!err)
        *len = total;
out:
    pool_free(&pool);
    return err;
}

int weft_plan_save(const weft_plan *p, void *buf, size_t cap, size_t *len)
{
    if (!p || !len || (cap && !buf))
        return error_set(WEFT_EINVAL, "plan: a NULL argument");
    return p->scales ? scaled_save(p, buf, cap, len) : save_steps(p, buf, cap, len);
}

/* ---- load ---- */

static int read_prefix(struct cursor *c, size_t len)
{
    char magic[8];
    uint32_t mark, version;
    uint64_t total, sum;
    const unsigned char *buf = c->in;
    if (len < HEAD + TAIL)
        return error_set(WEFT_EINVAL, "plan: truncated: %zu bytes, a plan has at least %d", len, HEAD + TAIL);
    code_field(c, magic);
    code_field(c, mark);
    code_field(c, version);
    code_field(c, total);
    if (memcmp(magic, MAGIC, sizeof magic) != 0)
        return error_set(WEFT_EINVAL, "plan: this is not a saved plan: it does not start with \"" MAGIC "\"");
    if (mark != ORDER_MARK)
        return error_set(WEFT_EINVAL, "plan: saved on a machine of another byte order");
    if (version != FORMAT)
        return error_set(WEFT_EINVAL, "plan: format version %" PRIu32 ", this library reads %" PRIu32, version, FORMAT);
    if (total != len)
        return error_set(WEFT_EINVAL, "plan: %s: %zu bytes, header says %" PRIu64,
                         total > len ? "truncated" : "too long", len, total);
    memcpy(&sum, buf + len - TAIL, sizeof sum);
    if (sum != hash_bytes(FORMAT, buf, len - TAIL))
        return error_set(WEFT_EINVAL, "plan: damaged: its checksum is wrong");
    return 0;
}

static int read_counts(struct cursor *c, size_t len, uint64_t counts[COUNTS])
{
    size_t left = len - HEAD - TAIL;
    code(c, counts, COUNTS * sizeof *counts);
    for (int s = 0; s < SECTIONS; s++) {
        if (counts[s] > left / sections[s].bytes)
            return error_set(WEFT_EINVAL, "plan: %" PRIu64 " %s do not fit into the %zu bytes that are left", counts[s],
                             sections[s].what, left);
        left -= counts[s] * sections[s].bytes;
    }
    if (left)
        return error_set(WEFT_EINVAL, "plan: %zu bytes are not used by anything", left);
    if (counts[LAYOUTS] > counts[LAYOUT_TEXT])
        return error_set(WEFT_EINVAL, "plan: %" PRIu64 " layouts do not fit into %" PRIu64 " bytes", counts[LAYOUTS],
                         counts[LAYOUT_TEXT]);
    return 0;
}

/* format: has a place for the word. */
__attribute__((format(printf, 1, 0))) static int wrong_word(const char *format, const char *word)
{
    char shown[4 * WORD + 1];
    struct text t = text_start(shown, sizeof shown);
    text_escaped(&t, word);
    return error_set(WEFT_EINVAL, format, shown);
}

static int read_fixed(struct cursor *c, weft_plan *p)
{
    char kind[WORD + 1] = {0}, algorithm[WORD + 1] = {0};
    code_fixed(c, p, kind, algorithm);
    p->machine.size = sizeof p->machine;
    p->kind = plan_kind_text(kind, strlen(kind));
    if (!p->kind)
        return wrong_word("plan: kind \"%s\" is unknown", kind);
    if (!plan_is_word(algorithm))
        return wrong_word("plan: \"%s\" cannot be the name of an algorithm", algorithm);
    memcpy(p->word, algorithm, strlen(algorithm) + 1);
    p->algorithm = p->word;
    return 0;
}

/* An array for n elements, zeroed; NULL with n = 0 is no error. */
static bool take(void *array, size_t *n, uint64_t count, size_t size)
{
    void *v = count ? calloc((size_t)count, size) : NULL;
    memcpy(array, &v, sizeof v);
    *n = v ? (size_t)count : 0;
    return v || !count;
}

static int take_arrays(weft_plan *p, const uint64_t counts[COUNTS])
{
    bool ok = take(&p->tensors, &p->ntensors, counts[TENSORS], sizeof *p->tensors) &&
              take(&p->bufs, &p->nbufs, counts[BUFS], sizeof *p->bufs) &&
              take(&p->parts, &p->nparts, counts[PARTS], sizeof *p->parts) &&
              take(&p->steps, &p->nsteps, counts[STEPS], sizeof *p->steps) &&
              take(&p->runs, &p->nruns, counts[RUNS], sizeof *p->runs) &&
              take(&p->spots, &p->nspots, counts[SPOTS], sizeof *p->spots) &&
              take(&p->shapes, &p->nshapes, counts[SHAPES], sizeof *p->shapes) &&
              take(&p->deps, &p->ndeps, counts[DEPS], sizeof *p->deps) && take(&p->names, &p->nnames, counts[NAMES], 1);
    return ok ? 0 : error_nomem();
}

/* Parses n layouts from the bytes at text; out has room for them. *made says how many there are to free. */
static int read_layouts(const char *text, size_t bytes, size_t n, weft_layout **out, size_t *made)
{
    for (*made = 0; *made < n; ++*made) {
        const char *end = memchr(text, 0, bytes);
        if (!end)
            return error_set(WEFT_EINVAL, "plan: layout %zu is cut off", *made);
        int err = weft_layout_parse(text, &out[*made]);
        if (err)
            return err;
        bytes -= (size_t)(end + 1 - text);
        text = end + 1;
    }
    return bytes ? error_set(WEFT_EINVAL, "plan: %zu bytes after the last layout", bytes) : 0;
}

static int read_tensors(struct cursor *c, weft_plan *p, weft_layout **layouts, size_t n)
{
    for (size_t i = 0; i < p->ntensors; i++) {
        uint32_t of[2] = {0};
        code_tensor(c, &p->tensors[i], of);
        if (of[0] >= n || of[1] >= n)
            return error_set(WEFT_EINVAL, "plan: tensor %zu has layouts %" PRIu32 " and %" PRIu32 ", there are %zu", i,
                             of[0], of[1], n);
        p->tensors[i].src = layout_hold(layouts[of[0]]);
        p->tensors[i].dst = layout_hold(layouts[of[1]]);
    }
    return 0;
}

/* Reads all sections: the tensors last, since they need the layouts. */
static int read_sections(struct cursor *c, weft_plan *p, const uint64_t counts[COUNTS])
{
    weft_layout **layouts = malloc((size_t)counts[LAYOUTS] * sizeof *layouts + 1);
    size_t made = 0;
    int err = layouts ? take_arrays(p, counts) : error_nomem();
    if (err)
        goto out;
    struct cursor tensors = *c;
    c->in += p->ntensors * sections[TENSORS].bytes;
    code_arrays(c, p);
    err = read_layouts((const char *)c->in, (size_t)counts[LAYOUT_TEXT], (size_t)counts[LAYOUTS], layouts, &made);
    if (!err)
        err = read_tensors(&tensors, p, layouts, made);
out:
    for (size_t i = 0; i < made; i++)
        weft_layout_free(layouts[i]);
    free(layouts);
    return err;
}

int save_load_steps(const void *buf, size_t len, weft_plan **out)
{
    struct cursor c = {.in = buf};
    uint64_t counts[COUNTS] = {0};
    int err = read_prefix(&c, len);
    if (!err)
        err = read_counts(&c, len, counts);
    if (err)
        return err;
    weft_plan *p = calloc(1, sizeof *p);
    if (!p)
        return error_nomem();
    err = read_fixed(&c, p);
    if (!err)
        err = read_sections(&c, p, counts);
    if (!err)
        err = plan_check(p);
    if (err)
        weft_plan_free(p);
    else
        *out = p;
    return err;
}

int weft_plan_load(const void *buf, size_t len, weft_plan **out)
{
    if (!buf || !out)
        return error_set(WEFT_EINVAL, "plan: a NULL argument");
    return scaled_save_is(buf, len) ? scaled_save_load(buf, len, out) : save_load_steps(buf, len, out);
}
