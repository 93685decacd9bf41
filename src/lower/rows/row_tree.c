/* Binomial trees between one root and many: log2 stages. Members are numbered from the root on; member v's parent is v
 * without its highest bit. The root may be outside the mesh. */
#include "base/dtype.h"
#include "base/error.h"
#include "base/math.h"
#include "lower/rows/rows.h"

/* The tree's members: the root, then the mesh's ranks in order, without the root. */
struct tree {
    const weft_layout *mesh;
    int root;
    int64_t at;   /* the root's position in the mesh, or -1 */
    int64_t size; /* members */
    int64_t me;   /* -1: this rank is not a member */
};

static void tree_open(const weft_layout *mesh, int root, int rank, struct tree *t)
{
    *t = (struct tree){.mesh = mesh, .root = root, .at = mesh_index(mesh, root)};
    t->size = mesh->mesh + (t->at < 0);
    int64_t i = mesh_index(mesh, rank);
    t->me = rank == root ? 0 : i < 0 ? -1 : i + (t->at < 0 || i < t->at);
}

static int tree_rank(const struct tree *t, int64_t v)
{
    if (v == 0)
        return t->root;
    return mesh_rank(t->mesh, v - (t->at < 0 || v - 1 < t->at));
}

static int levels(int64_t v) /* bits of v */
{
    int n = 0;
    for (; v; v >>= 1)
        n++;
    return n;
}

int row_tree_broadcast(const struct job *j, const struct recognised *r)
{
    struct tree t;
    struct slice b;
    (void)r;
    tree_open(j->dst, mesh_rank(j->src, 0), j->d->rank, &t);
    if (t.me < 0)
        return 0;
    int rc = slice_whole(j, t.me == 0, 0, 1, &b);
    int mine = levels(t.me); /* received at stage mine - 1, sent on from stage mine */
    if (!rc && t.me == 0 && j->di >= 0)
        rc = slice_copy_dst(&b, 0);
    if (!rc && t.me > 0) {
        int parent = tree_rank(&t, t.me - ((int64_t)1 << (mine - 1)));
        rc = slice_recv_on(&b, mine - 1, parent, j->wire);
    }
    for (int s = mine; !rc && t.me + ((int64_t)1 << s) < t.size; s++)
        rc = slice_send(&b, s, tree_rank(&t, t.me + ((int64_t)1 << s)), j->wire);
    return rc;
}

/* Stage s of the reduction is the broadcast's stage (last - s) in the opposite direction. A root outside the mesh has
 * no term of its own. */
int row_tree_reduce(const struct job *j, const struct recognised *r)
{
    struct tree t;
    (void)r;
    tree_open(j->src, mesh_rank(j->dst, 0), j->d->rank, &t);
    if (t.me < 0)
        return 0;
    int mine = levels(t.me), last = levels(t.size - 1) - 1, acc = dtype_acc(j->src->dtype);
    int64_t terms = j->src->mesh, div = row_div(j, terms);
    struct slice sum;
    int rc = slice_whole(j, j->si >= 0, 0, 1, &sum);
    bool have = j->si >= 0, folded = false;
    for (int s = last; s >= mine && !rc; s--) {
        int64_t child = t.me + ((int64_t)1 << s);
        if (child >= t.size)
            continue;
        struct slice in[2] = {sum, sum};
        bool leaf = child + ((int64_t)1 << (s + 1)) >= t.size; /* it has no children: it sends its own term */
        int wire = leaf ? j->src->dtype : acc;
        rc = slice_whole(j, false, 0, 1, &in[1]);
        if (!rc)
            rc = slice_recv_temp(&in[1], last - s, tree_rank(&t, child), wire);
        bool end = t.me == 0 && s == 0; /* child 1 comes last at the root */
        if (!rc && !have && !end) {
            sum = in[1];
            have = true;
            folded = !leaf;
            continue;
        }
        if (!rc)
            rc = slice_fold(have ? in : in + 1, have ? 2 : 1, last - s, end, false, end ? div : 0, &sum);
        have = folded = true;
    }
    if (rc || t.me == 0)
        return rc;
    int parent = tree_rank(&t, t.me - ((int64_t)1 << (mine - 1)));
    return slice_send(&sum, last - (mine - 1), parent, folded ? acc : j->src->dtype);
}
