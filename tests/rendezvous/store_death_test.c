/* What is left of a job that died, in a folder and elsewhere, and what its survivors can do. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rendezvous/deadline.h"
#include "rendezvous/store.h"
#include "stores.h"
#include "support/suite.h"

/* ---- a folder with leftovers ---- */

static void write_text(const char *dir, const char *name, const char *text)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
}

static void remove_all(const char *dir)
{
    char command[512];
    snprintf(command, sizeof command, "rm -rf '%s'/*", dir);
    assert_int_equal(system(command), 0);
}

static void value_body(struct stores_rank *r)
{
    size_t n;
    char got[32];
    STORES_CHECK(r, !stores_open(r));
    if (r->broken)
        return;
    if (r->rank == 0)
        STORES_CHECK(r, store_wait(r->s, "who", 0) == WEFT_ETIMEOUT && !store_set(r->s, "who", "new", 3, LONG));
    STORES_CHECK(r, !store_get(r->s, "who", got, sizeof got, &n, LONG) && n == 3 && !memcmp(got, "new", 3));
    store_close(r->s, LONG);
}

static void killed_body(struct stores_rank *r)
{
    STORES_CHECK(r, !stores_open(r));
    if (r->broken)
        return;
    STORES_CHECK(r, !store_set(r->s, "who", "old", 3, LONG));
    r->code = 1;
    kill(getpid(), SIGKILL);
}

/* All ranks were killed: the next job sees nothing of them and clears them away. */
static void next_job_clears_a_killed_one_away(void **state)
{
    (void)state;
    struct stores_place p;
    stores_begin(&p, STORES_FILE);
    for (int round = 0; round < 3; round++) {
        struct stores_rank *ranks = stores_crew(&p, 3, killed_body);
        stores_run(ranks, 3, true);
        assert_int_equal(stores_names(p.dir), 1); /* their room */
        for (int i = 0; i < 3; i++) {
            assert_int_equal(ranks[i].code, 1);
            ranks[i].body = value_body;
        }
        stores_run(ranks, 3, true);
        assert_int_equal(stores_names(p.dir), 0);
        stores_free(ranks, 3);
    }
    stores_end(&p);
}

/* One of three was killed: the others, when they close, leave nothing. */
static void one_killed_body(struct stores_rank *r)
{
    STORES_CHECK(r, !stores_open(r));
    if (r->broken)
        return;
    if (r->rank == 1)
        kill(getpid(), SIGKILL);
    while (!((struct stores_rank *)r->arg)->code)
        usleep(1000);
    store_close(r->s, LONG);
}

static void survivors_of_a_killed_rank_leave_nothing(void **state)
{
    (void)state;
    struct stores_place p;
    pid_t pids[3];
    stores_begin(&p, STORES_FILE);
    struct stores_rank *ranks = stores_crew(&p, 3, one_killed_body);
    fflush(NULL);
    for (int i = 0; i < 3; i++) {
        ranks[i].arg = &ranks[1];
        if ((pids[i] = fork()) == 0) {
            ranks[i].body(&ranks[i]);
            _exit(0);
        }
    }
    waitpid(pids[1], NULL, 0);
    ranks[1].code = 1;
    waitpid(pids[0], NULL, 0);
    waitpid(pids[2], NULL, 0);
    for (int i = 0; i < 3; i++)
        if (ranks[i].broken)
            fail_msg("%s", ranks[i].text);
    stores_free(ranks, 3);
    stores_end(&p);
}

/* Killed while they were still looking for each other: hello and lead are left, which name processes that are gone; or
 * processes of another machine; or are no cards at all. */
static void leftover_cards_are_ignored(void **state)
{
    (void)state;
    static const char id[] = "00112233445566778899aabbccddeeff";
    struct stores_place p;
    char room[128], text[400];
    stores_begin(&p, STORES_FILE);
    for (int round = 0; round < 3; round++) {
        snprintf(room, sizeof room, "%s/weft.g-0011223344556677", p.dir);
        assert_int_equal(mkdir(room, 0700), 0);
        const char *who = round == 0 ? "1999999999 77 1 boot-of-elsewhere other" : "4 99 1 - here";
        snprintf(text, sizeof text, round < 2 ? "weft-1 %s 2 %s -\n" : "nonsense", id, who);
        write_text(p.dir, "weft.hello.1", text);
        write_text(room, "here.1", text);
        write_text(room, "admit.1", text);
        write_text(room, "all", text);
        write_text(room, "v-who", "old");
        snprintf(text, sizeof text, round < 2 ? "weft-1 %s 2 %s weft.g-0011223344556677\n" : "%.0s%.0s", id, who);
        write_text(p.dir, "weft.lead", text);
        struct stores_rank *ranks = stores_crew(&p, 2, value_body);
        stores_run(ranks, 2, false);
        stores_free(ranks, 2);
        assert_int_equal(stores_names(p.dir), 1); /* the room of those who cannot be judged stays */
        remove_all(p.dir);
    }
    stores_end(&p);
}

static void *hold(void *arg)
{
    stores_open(arg);
    return NULL;
}

static bool appears(const char *dir, const char *name)
{
    char path[512];
    struct stat st;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    for (int64_t until = deadline_now() + LONG; stat(path, &st);) {
        if (deadline_now() > until)
            return false;
        usleep(1000);
    }
    return (st.st_mode & 0777) == 0600;
}

/* A rank that is waiting is not pushed aside: the second is refused, and told by whom. */
static void second_holder_of_a_rank_is_refused(void **state)
{
    (void)state;
    static const char *const names[] = {"weft.lead", "weft.hello.1"};
    for (int rank = 0; rank < 2; rank++) {
        struct stores_place p;
        pthread_t thread;
        char who[64];
        stores_begin(&p, STORES_FILE);
        struct stores_rank *ranks = stores_crew(&p, 2, NULL);
        struct stores_rank second = ranks[rank];
        assert_int_equal(pthread_create(&thread, NULL, hold, &ranks[rank]), 0);
        assert_true(appears(p.dir, names[rank]));
        assert_int_equal(stores_open(&second), WEFT_EBUSY);
        snprintf(who, sizeof who, "rank %d is taken by process %ld", rank, (long)getpid());
        assert_non_null(strstr(second.text, who));
        assert_int_equal(stores_open(&ranks[1 - rank]), 0);
        pthread_join(thread, NULL);
        assert_int_equal(ranks[rank].code, 0);
        store_close(ranks[0].s, 0);
        store_close(ranks[1].s, 0);
        stores_free(ranks, 2);
        stores_end(&p);
    }
}

/* Somebody removes the folder under the ranks' feet. */
static void removed_folder_is_reported(void **state)
{
    (void)state;
    struct stores_place p;
    stores_begin(&p, STORES_FILE);
    struct stores_rank *r = stores_crew(&p, 1, NULL);
    assert_int_equal(stores_open(r), 0);
    remove_all(p.dir);
    assert_int_equal(store_set(r->s, "k", "v", 1, LONG), WEFT_ETRANSPORT);
    assert_int_equal(store_wait(r->s, "k", LONG), WEFT_ETRANSPORT);
    store_close(r->s, 0);
    stores_free(r, 1);
    stores_end(&p);
}

/* ---- children ---- */

struct parent {
    _Atomic pid_t child;
};

/* Rank 0, which serves, dies and leaves a child behind that does nothing. */
static void parent_body(struct stores_rank *r)
{
    struct parent *p = r->arg;
    STORES_CHECK(r, !stores_open(r));
    if (r->broken)
        return;
    if (fork() == 0) {
        alarm(120); /* should the test end before */
        atomic_store(&p->child, getpid());
        for (;;)
            pause();
    }
    while (!atomic_load(&p->child)) /* has begun */
        usleep(1000);
    kill(getpid(), SIGKILL);
}

/* The next job can be served at the same port. */
static void port_of_a_dead_server_is_free_though_its_child_lives(void **state)
{
    (void)state;
    if (!stores_sodium())
        skip();
    struct stores_place p;
    struct parent *parent = ranks_shared(sizeof *parent);
    stores_begin(&p, STORES_RANK);
    struct stores_rank *r = stores_crew(&p, 1, parent_body);
    r->arg = parent;
    stores_run(r, 1, true);
    r->timeout_ns = 10 * SECOND;
    int err = stores_open(r);
    kill(atomic_load(&parent->child), SIGKILL);
    if (err)
        fail_msg("%s", r->text);
    store_close(r->s, 0);
    munmap(parent, sizeof *parent);
    stores_free(r, 1);
    stores_end(&p);
}

/* ---- survivors ---- */

#define CREW 4

struct fate {
    int victim; /* dies when all have opened */
    _Atomic int ready;
};

/* The victim is gone; the others meet again and go on. */
static void survivor_body(struct stores_rank *r)
{
    struct fate *f = r->arg;
    int survivors[CREW], n = 0, me = 0, got;
    STORES_CHECK(r, !stores_open(r));
    atomic_fetch_add(&f->ready, 1);
    if (r->broken)
        return;
    while (atomic_load(&f->ready) < r->size)
        usleep(1000);
    if (r->rank == f->victim)
        kill(getpid(), SIGKILL);
    for (int i = 0; i < r->size; i++) {
        if (i == r->rank)
            me = n;
        if (i != f->victim)
            survivors[n++] = i;
    }
    bool served = !strncmp(r->url, "tcp::", 5);
    if (served && f->victim == 0)
        STORES_CHECK(r, store_wait(r->s, "never", LONG) == WEFT_ETRANSPORT &&
                            strstr(weft_errmsg(), "rank 0, which served it, has ended"));
    struct store *none;
    if (me == 0) /* with a list of which another one has not heard yet */
        STORES_CHECK(r, store_again(r->s, survivors, n - 1, 50 * MS, &none) == WEFT_ETIMEOUT);
    for (int round = 0; round < 2 && !r->broken; round++) {
        struct store *next;
        struct store_parts all;
        STORES_CHECK(r, !store_again(r->s, survivors, n, LONG, &next));
        if (r->broken)
            return;
        STORES_CHECK(r, next->rank == me && next->size == n);
        STORES_CHECK(r, !store_gather(next, "again", &r->rank, sizeof r->rank, LONG, &all));
        for (int i = 0; i < n && !r->broken; i++) {
            memcpy(&got, all.bytes + all.at[i], sizeof got);
            STORES_CHECK(r, got == survivors[i]);
        }
        if (!r->broken)
            store_parts_free(&all);
        store_close(next, LONG);
    }
    store_close(r->s, LONG);
}

static void survivors_meet_again_and_go_on(void **state)
{
    (void)state;
    struct fate *f = ranks_shared(sizeof *f);
    for (int kind = 0; kind < STORES_KINDS; kind++) {
        for (int victim = 0; victim < CREW && (kind == STORES_FILE || stores_sodium()); victim += CREW - 1) {
            struct stores_place p;
            stores_begin(&p, (enum stores_kind)kind);
            struct stores_rank *ranks = stores_crew(&p, CREW, survivor_body);
            *f = (struct fate){.victim = victim};
            for (int i = 0; i < CREW; i++)
                ranks[i].arg = f;
            stores_run(ranks, CREW, true);
            stores_free(ranks, CREW);
            stores_end(&p);
        }
    }
    munmap(f, sizeof *f);
}

/* More ranks than can serve next: rank 0 dies, which served, and the ranks after it; the lowest one that is left has no
 * spare socket, and the next one serves. The lists of those that are left are the same for all. */
enum { MANY = 80, VICTIMS = 4 };

static void many_body(struct stores_rank *r)
{
    struct fate *f = r->arg;
    int survivors[MANY], n = 0, mine = r->rank;
    struct store *next = NULL;
    struct store_parts all = {.bytes = NULL};
    STORES_CHECK(r, !stores_open(r));
    atomic_fetch_add(&f->ready, 1);
    if (r->broken)
        return;
    while (atomic_load(&f->ready) < r->size)
        usleep(1000);
    if (r->rank < VICTIMS)
        kill(getpid(), SIGKILL);
    for (int i = VICTIMS; i < r->size; i++)
        survivors[n++] = i;
    STORES_CHECK(r, store_wait(r->s, "never", LONG) == WEFT_ETRANSPORT);
    STORES_CHECK(r, !store_again(r->s, survivors, n, LONG, &next));
    if (r->broken)
        return;
    STORES_CHECK(r, !store_gather(next, "mine", &mine, sizeof mine, LONG, &all));
    for (int i = 0; i < n && !r->broken; i++) {
        memcpy(&mine, all.bytes + all.at[i], sizeof mine);
        STORES_CHECK(r, mine == survivors[i]);
    }
    store_parts_free(&all);
    store_close(next, LONG);
    store_close(r->s, 0);
}

static void survivors_of_many_ranks_meet_again(void **state)
{
    (void)state;
    if (!stores_sodium())
        skip();
    struct fate *f = ranks_shared(sizeof *f);
    struct stores_place p;
    stores_begin(&p, STORES_RANK);
    struct stores_rank *ranks = stores_crew(&p, MANY, many_body);
    for (int i = 0; i < MANY; i++)
        ranks[i].arg = f;
    stores_run(ranks, MANY, true);
    stores_free(ranks, MANY);
    stores_end(&p);
    munmap(f, sizeof *f);
}

/* A list that is none. */
static void bad_lists_of_survivors_are_refused(void **state)
{
    (void)state;
    struct stores_place p;
    struct store *next;
    stores_begin(&p, STORES_FILE);
    struct stores_rank *r = stores_crew(&p, 1, NULL);
    assert_int_equal(stores_open(r), 0);
    assert_int_equal(store_again(r->s, (int[]){1}, 1, LONG, &next), WEFT_EINVAL);
    assert_int_equal(store_again(r->s, (int[]){0, 0}, 2, LONG, &next), WEFT_EINVAL);
    assert_int_equal(store_again(r->s, NULL, 0, LONG, &next), WEFT_EINVAL);
    store_close(r->s, 0);
    store_close(NULL, 0);
    stores_free(r, 1);
    stores_end(&p);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(next_job_clears_a_killed_one_away),
        cmocka_unit_test(survivors_of_a_killed_rank_leave_nothing),
        cmocka_unit_test(leftover_cards_are_ignored),
        cmocka_unit_test(second_holder_of_a_rank_is_refused),
        cmocka_unit_test(removed_folder_is_reported),
        cmocka_unit_test(port_of_a_dead_server_is_free_though_its_child_lives),
        cmocka_unit_test(survivors_meet_again_and_go_on),
        cmocka_unit_test(survivors_of_many_ranks_meet_again),
        cmocka_unit_test(bad_lists_of_survivors_are_refused),
    };
    return SUITE_MAIN(argc, argv, SUITE_ONCE(tests));
}
