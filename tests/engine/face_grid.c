#define _GNU_SOURCE
#include "face_grid.h"

#include <unistd.h>

#include "base/hash.h"
#include "engine/exec.h"
#include "support/values.h"

static int64_t faces_value(int64_t global, int64_t salt)
{
    return (int64_t)(hash_mix((uint64_t)global * 31 + (uint64_t)salt) % 1000) + 1;
}

int faces_make(struct mine *m, struct ranks_rank *r)
{
    m->at = grid_rank(&m->of->grid, r->rank);
    size_t bytes = (size_t)m->at.slots * sizeof *m->buffer;
    weft_lower_opts opts = {.size = sizeof opts, .world = r->size, .in_place = !m->of->apart};
    void *memory[2] = {NULL, NULL};
    int err = weft_comm_alloc(r->comm, bytes, WEFT_MEMORY_HOST, 0, &memory[0]);
    if (!err)
        err = weft_comm_alloc(r->comm, bytes, WEFT_MEMORY_HOST, 0, &memory[1]);
    m->buffer = memory[0];
    m->dense = memory[1];
    if (!err)
        err = grid_layouts(&m->of->grid, "i64", &m->own, &m->all);
    if (!err)
        err = weft_lower(&(weft_move){"h", m->own, m->all}, 1, r->rank, &opts, &m->plan);
    if (err)
        return err;
    grid_view(&m->of->grid, &m->at, m->buffer, sizeof *m->buffer, &m->view);
    m->src = m->of->apart ? (weft_view){.data = m->dense, .bytes = bytes} : m->view.own;
    return weft_bind(m->plan, r->comm, &m->src, &m->view.all, NULL, &m->exec);
}

void faces_drop(struct mine *m, struct ranks_rank *r)
{
    weft_exec_close(m->exec);
    weft_plan_free(m->plan);
    weft_layout_free(m->own);
    weft_layout_free(m->all);
    weft_comm_free(r->comm, m->buffer);
    weft_comm_free(r->comm, m->dense);
}

void faces_fill(struct mine *m, int64_t salt)
{
    bool own;
    for (int64_t i = 0, k = 0; i < m->at.slots; i++) {
        int64_t global = grid_slot(&m->of->grid, &m->at, i, &own);
        m->buffer[i] = -7;
        if (own)
            *(m->of->apart ? &m->dense[k++] : &m->buffer[i]) = faces_value(global, salt);
    }
}

int64_t faces_wrong(const struct mine *m, int64_t salt)
{
    bool own;
    values_begin();
    for (int64_t i = 0; i < m->at.slots; i++) {
        int64_t global = grid_slot(&m->of->grid, &m->at, i, &own);
        grid_check(&m->of->grid, i, global, global == EDGE ? -7 : faces_value(global, salt), m->buffer[i]);
    }
    return values_wrong();
}

void faces_check(struct ranks_rank *r, const struct mine *m, int64_t salt)
{
    if (faces_wrong(m, salt))
        ranks_note(r, __FILE__, __LINE__, "%s, salt %d", m->of->what, (int)salt);
}

void faces_run(struct ranks_rank *r, struct mine *m, int64_t run)
{
    bool late = run > 3 && r->rank == run % 2;
    faces_fill(m, run);
    if (run == 3)
        RANKS_OK(r, weft_exec_rebind(m->exec, &m->src, &m->view.all));
    if (late)
        ranks_meet(r);
    RANKS_OK(r, weft_exec_start(m->exec));
    if (run > 3 && !late)
        ranks_meet(r);
    RANKS_OK(r, weft_exec_wait(m->exec, WEFT_FOREVER));
    faces_check(r, m, run);
}

void faces_deserted(struct ranks_rank *r)
{
    struct mine m = {.of = r->arg};
    RANKS_OK(r, faces_make(&m, r));
    faces_fill(&m, 0);
    RANKS_OK(r, weft_exec_start(m.exec));
    if (r->rank == 1)
        _exit(0);
    RANKS_OK(r, weft_exec_wait(m.exec, WEFT_FOREVER));
    faces_check(r, &m, 0);
    RANKS_OK(r, weft_exec_start(m.exec));
    RANKS_CHECK(r, weft_exec_wait(m.exec, WEFT_FOREVER) == WEFT_EPEER);
    RANKS_CHECK(r, strstr(weft_errmsg(), "rank 1") != NULL);
    faces_drop(&m, r);
}
