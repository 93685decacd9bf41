/* What is left of memory to a process in control groups: made-up systems, in a folder, with version 1, version 2, both,
 * groups in groups and containers; and a real group with a limit, where this process may make one. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/processes.h"
#include "support/share.h"
#include "support/suite.h"
#include "transport/transport.h"
#include "weft.h"

#define MIB (UINT64_C(1) << 20)
#define NO_LIMIT_1 "9223372036854771712\n" /* of version 1 */

static char root[64];

static int begin(void **state)
{
    (void)state;
    strcpy(root, "/tmp/weft-afford-XXXXXX");
    return mkdtemp(root) ? 0 : 1;
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *where)
{
    (void)st, (void)kind, (void)where;
    return remove(path);
}

static int end(void **state)
{
    (void)state;
    return nftw(root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* A file of the system that is made up, with the folders above it. */
static void put(const char *path, const char *text)
{
    char whole[512];
    snprintf(whole, sizeof whole, "%s%s", root, path);
    for (char *slash = strchr(whole + strlen(root) + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        assert_true(!mkdir(whole, 0700) || errno == EEXIST);
        *slash = '/';
    }
    FILE *f = fopen(whole, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static void put_number(const char *group, const char *name, uint64_t n)
{
    char path[400], text[32];
    snprintf(path, sizeof path, "%s/%s", group, name);
    snprintf(text, sizeof text, "%llu\n", (unsigned long long)n);
    put(path, text);
}

static void machine(uint64_t mib)
{
    char text[128];
    snprintf(text, sizeof text, "MemTotal: 99999999 kB\nMemAvailable: %llu kB\nSwapFree: 0 kB\n",
             (unsigned long long)mib * 1024);
    put("/proc/meminfo", text);
}

static void group_2(const char *group, const char *max, uint64_t used_mib)
{
    char path[400];
    snprintf(path, sizeof path, "%s/memory.max", group);
    put(path, max);
    put_number(group, "memory.current", used_mib * MIB);
}

static void group_1(const char *group, uint64_t max_mib, uint64_t used_mib)
{
    if (max_mib)
        put_number(group, "memory.limit_in_bytes", max_mib * MIB);
    else {
        char path[400];
        snprintf(path, sizeof path, "%s/memory.limit_in_bytes", group);
        put(path, NO_LIMIT_1);
    }
    put_number(group, "memory.usage_in_bytes", used_mib * MIB);
    put_number(group, "memory.use_hierarchy", 1);
}

static void left_is(uint64_t mib)
{
    assert_int_equal(transport_afford_left(root) / MIB, mib);
}

#define MOUNT_2 "30 20 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
#define MOUNT_1 "37 33 0:34 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"
#define OTHERS \
    "1 0 8:1 / / rw - ext4 /dev/sda1 rw,memory\n35 33 0:32 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"

static void without_groups_the_machine_decides(void **state)
{
    (void)state;
    assert_true(transport_afford_left(root) == UINT64_MAX); /* nothing is known */
    machine(1000);
    left_is(1000);
    put("/proc/self/cgroup", "0::/\n");
    put("/proc/self/mountinfo", OTHERS);
    left_is(1000);
    put("/proc/self/mountinfo", "nonsense\n\n - cgroup2\n1 2 - cgroup2 x y\n");
    put("/proc/self/cgroup", "nonsense\n:\n0:\n\n");
    left_is(1000);
}

static void every_group_above_counts_in_version_2(void **state)
{
    (void)state;
    machine(8000);
    put("/proc/self/cgroup", "0::/user.slice/job.scope/step\n");
    put("/proc/self/mountinfo", OTHERS MOUNT_2);
    group_2("/sys/fs/cgroup/user.slice/job.scope/step", "max\n", 10);
    group_2("/sys/fs/cgroup/user.slice/job.scope", "524288000\n", 100); /* 500 MiB */
    group_2("/sys/fs/cgroup/user.slice", "max\n", 3000);
    left_is(400);
    group_2("/sys/fs/cgroup/user.slice", "3261071360\n", 3000); /* 3110 MiB, of which others have much */
    left_is(110);
    group_2("/sys/fs/cgroup/user.slice/job.scope/step", "10485760\n", 20); /* more than it may */
    left_is(0);
    group_2("/sys/fs/cgroup/user.slice/job.scope/step", "max\n", 20);
    put("/sys/fs/cgroup/user.slice/memory.stat", "anon 1\nfile 9\nactive_file 524288000\ninactive_file 524288000\n");
    left_is(400); /* the page cache of the slice can be had */
    machine(200);
    left_is(200);
}

static void every_group_above_counts_in_version_1(void **state)
{
    (void)state;
    machine(8000);
    put("/proc/self/cgroup", "9:cpu,cpuacct:/other\n4:hugetlb,memory:/slurm/uid_0/job_7/step_0\n0::/\n");
    put("/proc/self/mountinfo", OTHERS MOUNT_1);
    group_1("/sys/fs/cgroup/memory", 0, 5000);
    group_1("/sys/fs/cgroup/memory/slurm", 0, 4000);
    group_1("/sys/fs/cgroup/memory/slurm/uid_0", 0, 3000);
    group_1("/sys/fs/cgroup/memory/slurm/uid_0/job_7", 150, 20);
    group_1("/sys/fs/cgroup/memory/slurm/uid_0/job_7/step_0", 0, 10);
    left_is(130);
    group_1("/sys/fs/cgroup/memory/slurm/uid_0/job_7/step_0", 60, 10);
    left_is(50);
    put("/sys/fs/cgroup/memory/slurm/uid_0/job_7/step_0/memory.stat",
        "active_file 7\ntotal_active_file 1048576\ntotal_inactive_file 2097152\n");
    left_is(53);
    /* A group above that does not count what is below it. */
    group_1("/sys/fs/cgroup/memory/slurm/uid_0", 3010, 3000);
    left_is(10);
    put("/sys/fs/cgroup/memory/slurm/uid_0/memory.use_hierarchy", "0\n");
    left_is(53);
}

static void both_versions_count(void **state)
{
    (void)state;
    machine(8000);
    put("/proc/self/cgroup", "4:memory:/a\n1:name=systemd:/x\n0::/b\n");
    put("/proc/self/mountinfo",
        OTHERS MOUNT_1 "43 33 0:40 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n");
    group_1("/sys/fs/cgroup/memory/a", 300, 100);
    left_is(200); /* version 2 is mounted, without the memory */
    group_2("/sys/fs/cgroup/unified/b", "104857600\n", 50);
    left_is(50);
}

/* What a container sees. */
static void container_sees_its_own_part(void **state)
{
    (void)state;
    machine(8000);
    /* Its mount begins at its group, and its path is told from the top (no namespace). */
    put("/proc/self/cgroup", "4:memory:/docker/0123/inner\n");
    put("/proc/self/mountinfo", "37 33 0:34 /docker/0123 /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n");
    group_1("/sys/fs/cgroup/memory", 500, 100);
    group_1("/sys/fs/cgroup/memory/inner", 0, 50);
    left_is(400);
    group_1("/sys/fs/cgroup/memory/inner", 80, 50);
    left_is(30);
    /* Only a part of a name is the same: not its group, and it is taken to be at the mount point. */
    put("/proc/self/cgroup", "4:memory:/docker/01234\n");
    left_is(400);
    /* A namespace: both begin at the group. */
    put("/proc/self/cgroup", "0::/\n");
    put("/proc/self/mountinfo", MOUNT_2);
    group_2("/sys/fs/cgroup", "209715200\n", 60);
    left_is(140);
    /* A process that has been moved out of the namespace's part, and a mount from outside. */
    put("/proc/self/cgroup", "0::/../other\n");
    left_is(140);
    put("/proc/self/mountinfo", "30 20 0:26 /../.. /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
    put("/proc/self/cgroup", "0::/\n");
    left_is(140);
    /* A mount point with a space in it. */
    put("/proc/self/mountinfo", "30 20 0:26 / /my\\040groups rw - cgroup2 cgroup2 rw\n");
    group_2("/my groups", "73400320\n", 50);
    left_is(20);
}

/* ---- a real group ---- */

static bool write_text(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    bool fine = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    if (fd >= 0)
        close(fd);
    return fine;
}

/* Makes a group below this process's own, of either version, with a limit of 150 MiB. */
static bool make_group(char group[512])
{
    static const struct {
        const char *mount, *limit;
    } kinds[] = {{"/sys/fs/cgroup/memory", "memory.limit_in_bytes"}, {"/sys/fs/cgroup", "memory.max"}};
    char path[600], line[400], own[400] = "";
    for (size_t i = 0; i < 2; i++) {
        FILE *f = fopen("/proc/self/cgroup", "r");
        while (f && fgets(line, sizeof line, f)) {
            char *at = i ? strstr(line, "0::") : strstr(line, ":memory:");
            if (at)
                snprintf(own, sizeof own, "%s", at + (i ? 3 : 8));
        }
        if (f)
            fclose(f);
        own[strcspn(own, "\n")] = 0;
        snprintf(group, 512, "%s%s/weft-test-%ld", kinds[i].mount, own, (long)getpid());
        snprintf(path, sizeof path, "%s/%s", group, kinds[i].limit);
        if (mkdir(group, 0700))
            continue;
        if (write_text(path, "157286400"))
            return true;
        rmdir(group);
    }
    return false;
}

static int ask_for_more(void *group)
{
    char path[600];
    weft_comm *c;
    void *memory;
    snprintf(path, sizeof path, "%s/cgroup.procs", (const char *)group);
    if (!write_text(path, "0") || transport_afford_left("") > 150 * MIB)
        return 1;
    if (weft_comm_open("self:", NULL, &c))
        return 2;
    int err = weft_comm_alloc(c, 400 * MIB, WEFT_MEMORY_HOST, 0, &memory);
    if (err != WEFT_ENOMEM)
        return 3;
    if (weft_comm_alloc(c, 20 * MIB, WEFT_MEMORY_HOST, 0, &memory))
        return 4;
    weft_comm_close(c);
    return 0;
}

static void limit_of_a_real_group_is_seen(void **state)
{
    (void)state;
    char group[512];
    if (!make_group(group)) {
        print_message("skip: this process may not make a control group with a limit\n");
        skip();
    }
    int code = 0;
    for (int i = (int)test_share(1, 10); i > 0 && !code; i--)
        code = process_do(ask_for_more, group);
    for (int i = 0; rmdir(group) && errno == EBUSY && i < 1000; i++) /* until the kernel has taken the child out */
        usleep(1000);
    assert_int_equal(code, 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(without_groups_the_machine_decides, begin, end),
        cmocka_unit_test_setup_teardown(every_group_above_counts_in_version_2, begin, end),
        cmocka_unit_test_setup_teardown(every_group_above_counts_in_version_1, begin, end),
        cmocka_unit_test_setup_teardown(both_versions_count, begin, end),
        cmocka_unit_test_setup_teardown(container_sees_its_own_part, begin, end),
        cmocka_unit_test(limit_of_a_real_group_is_seen),
    };
    return SUITE_MAIN(argc, argv, SUITE_ONCE(tests));
}
