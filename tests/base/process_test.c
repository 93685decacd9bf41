/* Whether a process runs, ends or has ended, as other processes see it. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/process.h"
#include "support/suite.h"

/* The state of the first thread of this process, as /proc says it: 'Z' when it has ended. */
static char first_state(void)
{
    char path[64], state = 0;
    snprintf(path, sizeof path, "/proc/self/task/%ld/stat", (long)getpid());
    FILE *f = fopen(path, "r");
    if (f && fscanf(f, "%*d (%*[^)]) %c", &state) != 1)
        state = 0;
    if (f)
        fclose(f);
    return state;
}

static void *outlive(void *arg)
{
    while (first_state() != 'Z')
        usleep(1000);
    if (write(*(int *)arg, "", 1) == 1)
        for (;;)
            pause();
    return NULL;
}

/* A child that says when it is as the test wants it. */
static pid_t begin(bool first_ends)
{
    static int ready[2];
    pthread_t thread;
    char byte;
    assert_int_equal(pipe(ready), 0);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        alarm(120);
        if (first_ends && !pthread_create(&thread, NULL, outlive, &ready[1]))
            pthread_exit(NULL);
        if (!first_ends && write(ready[1], "", 1) == 1)
            for (;;)
                pause();
        _exit(1);
    }
    close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    return pid;
}

static void process_that_runs_is_not_ending(void **state)
{
    (void)state;
    for (int first_ends = 0; first_ends < 2; first_ends++) { /* its other threads run on */
        pid_t pid = begin(first_ends);
        bool zombie = true, ending = process_ending(pid);
        uint64_t start = process_start(pid, &zombie);
        kill(pid, SIGKILL);
        assert_int_equal(waitpid(pid, NULL, 0), pid);
        assert_false(ending);
        assert_true(start && !zombie);
    }
}

static void process_that_has_ended_is_ending(void **state)
{
    (void)state;
    siginfo_t info;
    pid_t pid = begin(false);
    kill(pid, SIGKILL);
    assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
    assert_true(process_ending(pid));
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_true(process_ending(pid));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(process_that_runs_is_not_ending),
        cmocka_unit_test(process_that_has_ended_is_ending),
    };
    return SUITE_MAIN(argc, argv, SUITE_ONCE(tests));
}
