/* Structs of the interface that start with their size, each as an older program, as a program of this version and as a
 * newer program passes it. The rule stands at the top of weft.h and in base/sized.h. */
#define _GNU_SOURCE
#include <ctype.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/sized.h"
#include "support/suite.h"
#include "weft/bus.h"
#include "weft/checkpoint.h"
#include "weft/log.h"

#define BEYOND 64 /* bytes that a newer program's struct has and this library's has not */
#define ROOM 1024
#define JUNK 0xA5 /* as a number negative, as a pointer not to be followed */

/* A struct grows at its end. With padding there, a new field could begin in bytes that older programs never set. */
#define ENDS_WITH(type, field)                                                            \
    _Static_assert(sizeof(type) == offsetof(type, field) + sizeof(((type *)NULL)->field), \
                   #type " ends with padding, or a field was added: its last one stands here")
ENDS_WITH(weft_layout_desc, scale);
ENDS_WITH(weft_machine, cores);
ENDS_WITH(weft_lower_opts, machine);
ENDS_WITH(weft_stats, memory);
ENDS_WITH(weft_collective, to);
ENDS_WITH(weft_comm_opts, communicator);
ENDS_WITH(weft_bind_opts, check);
ENDS_WITH(weft_exec_info, checked);
ENDS_WITH(weft_metric, nbuckets);
ENDS_WITH(weft_log_record, text);
ENDS_WITH(weft_exchange_opts, arg);
ENDS_WITH(weft_exchange_info, memory);
ENDS_WITH(weft_checkpoint_opts, arg);
ENDS_WITH(weft_checkpoint_info, bytes_out);
ENDS_WITH(weft_bus_opts, metrics);
ENDS_WITH(weft_publish_opts, threads);
ENDS_WITH(weft_subscribe_opts, threads);
ENDS_WITH(weft_view, reserved);
ENDS_WITH(weft_buffer, reserved);

/* ---- what the calls need ---- */

static weft_comm *comm;
static weft_layout *layout;
static weft_plan *plan;
static weft_exec *exec;
static weft_exchange *exchange;
static float source[4], destination[4];
static char folder[] = "/tmp/weft_sized_XXXXXX", file_in[64], file_out[64];

static int open_all(void **state)
{
    static const char header[] = "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}";
    const uint64_t length = sizeof header - 1;
    weft_view from = WEFT_VIEW(source, sizeof source), to = WEFT_VIEW(destination, sizeof destination);
    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(file_in, sizeof file_in, "%s/in.safetensors", folder);
    snprintf(file_out, sizeof file_out, "%s/out.safetensors", folder);
    FILE *f = fopen(file_in, "wb");
    assert_non_null(f);
    assert_true(fwrite(&length, sizeof length, 1, f) == 1 && fwrite(header, length, 1, f) == 1 &&
                fwrite(source, 8, 1, f) == 1);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(weft_comm_open("self:", NULL, &comm), 0);
    assert_int_equal(weft_layout_parse("f32[4] @x1", &layout), 0);
    assert_int_equal(weft_lower(&(weft_move){"t", layout, layout}, 1, 0, NULL, &plan), 0);
    assert_int_equal(weft_bind(plan, comm, &from, &to, NULL, &exec), 0);
    assert_int_equal(weft_exchange_open(comm, NULL, 0, NULL, 0, NULL, &exchange), 0);
    return 0;
}

static int close_all(void **state)
{
    (void)state;
    weft_exchange_close(exchange);
    weft_exec_close(exec);
    weft_plan_free(plan);
    weft_layout_free(layout);
    weft_comm_close(comm);
    unlink(file_in);
    unlink(file_out);
    rmdir(folder);
    return 0;
}

/* ---- inputs ---- */

static int call_layout(const void *s)
{
    weft_layout *l = NULL;
    int err = weft_layout_create(s, &l);
    weft_layout_free(l);
    return err;
}

static int call_lower(const void *s)
{
    weft_plan *p = NULL;
    int err = weft_lower(&(weft_move){"t", layout, layout}, 1, 0, s, &p);
    weft_plan_free(p);
    return err;
}

static int call_machine(const void *s)
{
    return call_lower(&(weft_lower_opts){.size = sizeof(weft_lower_opts), .machine = s});
}

static int call_collective(const void *s)
{
    weft_layout *a = NULL, *b = NULL;
    int err = weft_collective_layouts(s, &a, &b);
    weft_layout_free(a);
    weft_layout_free(b);
    return err;
}

static int call_lower_collective(const void *s)
{
    weft_plan *p = NULL;
    int err = weft_lower_collective(s, 0, NULL, &p);
    weft_plan_free(p);
    return err;
}

static int call_comm(const void *s)
{
    weft_comm *c = NULL;
    int err = weft_comm_open("self:", s, &c);
    weft_comm_close(c);
    return err;
}

static int call_bind(const void *s)
{
    weft_exec *x = NULL;
    weft_view from = WEFT_VIEW(source, sizeof source), to = WEFT_VIEW(destination, sizeof destination);
    int err = weft_bind(plan, comm, &from, &to, s, &x);
    weft_exec_close(x);
    return err;
}

static int call_exchange(const void *s)
{
    weft_exchange *x = NULL;
    int err = weft_exchange_open(comm, NULL, 0, NULL, 0, s, &x);
    weft_exchange_close(x);
    return err;
}

static int call_checkpoint(const void *s)
{
    unlink(file_out);
    return weft_checkpoint_reshard(file_in, file_out, "tp1", s, NULL);
}

static const weft_dim dims[] = {{.extent = 4, .splits = {{"x", 0}}, .nsplits = 1}};
static const weft_axis axes[] = {{"x", 2}};
static const weft_layout_desc desc = {
    .size = sizeof desc, .dtype = WEFT_F32, .ndim = 1, .naxes = 1, .dims = dims, .axes = axes};
static const weft_collective collective = {
    .size = sizeof collective, .kind = "allgather", .dtype = WEFT_F32, .count = 4, .n = 2};
static const weft_machine machine = WEFT_MACHINE_INIT;
static const weft_lower_opts lower_opts = WEFT_LOWER_OPTS_INIT;
static const weft_comm_opts comm_opts = WEFT_COMM_OPTS_INIT;
static const weft_bind_opts bind_opts = WEFT_BIND_OPTS_INIT;
static const weft_exchange_opts exchange_opts = WEFT_EXCHANGE_OPTS_INIT;
static const weft_checkpoint_opts checkpoint_opts = WEFT_CHECKPOINT_OPTS_INIT;

static const struct input {
    const char *type;
    int (*call)(const void *s);
    const void *good;
    size_t bytes;
    size_t least; /* a struct this long has all that the call needs */
} inputs[] = {
    {"weft_layout_desc", call_layout, &desc, sizeof desc, offsetof(weft_layout_desc, ranks)},
    {"weft_machine", call_machine, &machine, sizeof machine, sizeof(size_t)},
    {"weft_lower_opts", call_lower, &lower_opts, sizeof lower_opts, sizeof(size_t)},
    {"weft_collective", call_collective, &collective, sizeof collective, offsetof(weft_collective, root)},
    {"weft_collective", call_lower_collective, &collective, sizeof collective, offsetof(weft_collective, root)},
    {"weft_comm_opts", call_comm, &comm_opts, sizeof comm_opts, sizeof(size_t)},
    {"weft_bind_opts", call_bind, &bind_opts, sizeof bind_opts, sizeof(size_t)},
    {"weft_exchange_opts", call_exchange, &exchange_opts, sizeof exchange_opts, sizeof(size_t)},
    {"weft_checkpoint_opts", call_checkpoint, &checkpoint_opts, sizeof checkpoint_opts, sizeof(size_t)},
};
#define INPUTS (sizeof inputs / sizeof *inputs)

/* The caller's struct, at the end of an allocation, so that a sanitizer sees a read beyond it. What it has of `good`,
 * and zeros behind that. */
static char *caller(const struct input *in, size_t size)
{
    char *s = calloc(1, size > sizeof size ? size : sizeof size);
    assert_non_null(s);
    memcpy(s, in->good, size < in->bytes ? size : in->bytes);
    memcpy(s, &size, sizeof size);
    return s;
}

static void expect(const struct input *in, const char *s, int code, const char *words)
{
    int err = in->call(s);
    size_t size;
    memcpy(&size, s, sizeof size);
    if (err != code || (words && !strstr(weft_errmsg(), words)))
        fail_msg("%s of size %zu: %d, %s; expected %d, %s", in->type, size, err, weft_errmsg(), code,
                 words ? words : "");
}

static void init_name(const char *type, char *out)
{
    for (; *type; type++)
        *out++ = (char)toupper((unsigned char)*type);
    memcpy(out, "_INIT", 6);
}

static void missing_fields_have_their_defaults(void **state)
{
    (void)state;
    for (const struct input *in = inputs; in < inputs + INPUTS; in++)
        for (size_t size = in->least; size < in->bytes; size++) {
            char *s = caller(in, size), behind[ROOM];
            expect(in, s, 0, NULL);
            memset(behind, JUNK, sizeof behind); /* in the memory behind it there is anything */
            memcpy(behind, s, size);
            expect(in, behind, 0, NULL);
            free(s);
        }
}

static void same_size_is_accepted(void **state)
{
    (void)state;
    for (const struct input *in = inputs; in < inputs + INPUTS; in++) {
        char *s = caller(in, in->bytes);
        expect(in, s, 0, NULL);
        free(s);
    }
}

static void zeros_beyond_are_accepted(void **state)
{
    (void)state;
    for (const struct input *in = inputs; in < inputs + INPUTS; in++)
        for (size_t more = 1; more <= BEYOND; more++) {
            char *s = caller(in, in->bytes + more);
            expect(in, s, 0, NULL);
            free(s);
        }
}

static void unknown_fields_are_refused(void **state)
{
    (void)state;
    for (const struct input *in = inputs; in < inputs + INPUTS; in++)
        for (size_t at = 0; at < BEYOND; at++) {
            char *s = caller(in, in->bytes + BEYOND), words[80];
            s[in->bytes + at] = 1;
            snprintf(words, sizeof words, "byte %zu is not zero", in->bytes + at);
            expect(in, s, WEFT_EINVAL, words);
            assert_non_null(strstr(weft_errmsg(), in->type));
            free(s);
        }
}

static const size_t impossible[] = {0, 1, 7, SIZED_MOST + 1, SIZE_MAX};
#define IMPOSSIBLE (sizeof impossible / sizeof *impossible)

static void impossible_sizes_name_the_initialiser(void **state)
{
    (void)state;
    for (const struct input *in = inputs; in < inputs + INPUTS; in++)
        for (size_t i = 0; i < IMPOSSIBLE; i++) {
            char s[ROOM] = {0}, init[64];
            memcpy(s, in->good, in->bytes);
            memcpy(s, &impossible[i], sizeof *impossible);
            init_name(in->type, init);
            expect(in, s, WEFT_EINVAL, init);
        }
}

/* ---- outputs ---- */

static int ask_layout(void *s)
{
    return weft_layout_describe(layout, s);
}

static int ask_machine(void *s)
{
    return weft_comm_machine(comm, s);
}

static int ask_stats(void *s)
{
    return weft_plan_stats(plan, s);
}

static int ask_exec(void *s)
{
    return weft_exec_stats(exec, s);
}

static int ask_exchange(void *s)
{
    return weft_exchange_stats(exchange, s);
}

static int ask_checkpoint(void *s)
{
    unlink(file_out);
    return weft_checkpoint_reshard(file_in, file_out, "tp1", NULL, s);
}

static const struct output {
    const char *type;
    int (*call)(void *s);
    size_t bytes;
} outputs[] = {
    {"weft_layout_desc", ask_layout, sizeof(weft_layout_desc)},
    {"weft_machine", ask_machine, sizeof(weft_machine)},
    {"weft_stats", ask_stats, sizeof(weft_stats)},
    {"weft_exec_info", ask_exec, sizeof(weft_exec_info)},
    {"weft_exchange_info", ask_exchange, sizeof(weft_exchange_info)},
    {"weft_checkpoint_info", ask_checkpoint, sizeof(weft_checkpoint_info)},
};
#define OUTPUTS (sizeof outputs / sizeof *outputs)

static void outputs_end_at_the_callers_size(void **state)
{
    (void)state;
    for (const struct output *out = outputs; out < outputs + OUTPUTS; out++) {
        char whole[ROOM] = {0};
        memcpy(whole, &out->bytes, sizeof out->bytes);
        assert_int_equal(out->call(whole), 0);
        for (size_t size = sizeof(size_t); size <= out->bytes + BEYOND; size++) {
            unsigned char s[ROOM], canary[ROOM];
            size_t known = size < out->bytes ? size : out->bytes;
            memset(s, JUNK, sizeof s);
            memset(canary, JUNK, sizeof canary);
            memcpy(s, &size, sizeof size);
            if (out->call(s))
                fail_msg("%s of size %zu: %s", out->type, size, weft_errmsg());
            if (memcmp(s, &size, sizeof size))
                fail_msg("%s of size %zu: the size has changed", out->type, size);
            if (memcmp(s + sizeof size, whole + sizeof size, known - sizeof size))
                fail_msg("%s of size %zu: its fields are others than those of the whole struct", out->type, size);
            for (size_t i = known; i < size; i++)
                if (s[i])
                    fail_msg("%s of size %zu: byte %zu, of no field here, is not zero", out->type, size, i);
            if (memcmp(s + size, canary + size, sizeof s - size))
                fail_msg("%s of size %zu: something was written behind it", out->type, size);
        }
    }
}

static void outputs_of_impossible_sizes_are_left_alone(void **state)
{
    (void)state;
    for (const struct output *out = outputs; out < outputs + OUTPUTS; out++)
        for (size_t i = 0; i < IMPOSSIBLE; i++) {
            unsigned char s[ROOM], before[ROOM];
            char init[64];
            memset(s, JUNK, sizeof s);
            memcpy(s, &impossible[i], sizeof *impossible);
            memcpy(before, s, sizeof s);
            init_name(out->type, init);
            assert_int_equal(out->call(s), WEFT_EINVAL);
            assert_non_null(strstr(weft_errmsg(), init));
            assert_memory_equal(s, before, sizeof s);
        }
}

/* ---- the initialisers ---- */

static void initialisers_set_the_size_and_nothing_else(void **state)
{
    (void)state;
    static const weft_layout_desc layout_desc = WEFT_LAYOUT_DESC_INIT;
    static const weft_collective coll = WEFT_COLLECTIVE_INIT;
    static const weft_stats stats = WEFT_STATS_INIT;
    static const weft_exec_info exec_info = WEFT_EXEC_INFO_INIT;
    static const weft_exchange_info exchange_info = WEFT_EXCHANGE_INFO_INIT;
    static const weft_checkpoint_info checkpoint_info = WEFT_CHECKPOINT_INFO_INIT;
    const struct {
        const void *at;
        size_t bytes;
    } all[] = {{&layout_desc, sizeof layout_desc},
               {&coll, sizeof coll},
               {&stats, sizeof stats},
               {&exec_info, sizeof exec_info},
               {&exchange_info, sizeof exchange_info},
               {&checkpoint_info, sizeof checkpoint_info},
               {&machine, sizeof machine},
               {&lower_opts, sizeof lower_opts},
               {&comm_opts, sizeof comm_opts},
               {&bind_opts, sizeof bind_opts},
               {&exchange_opts, sizeof exchange_opts},
               {&checkpoint_opts, sizeof checkpoint_opts}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const char *s = all[i].at;
        assert_memory_equal(s, &all[i].bytes, sizeof(size_t));
        for (size_t k = sizeof(size_t); k < all[i].bytes; k++)
            assert_int_equal(s[k], 0);
    }
    weft_view view = WEFT_VIEW_INIT, of = WEFT_VIEW(source, sizeof source);
    weft_buffer buffer = WEFT_BUFFER_INIT, named = WEFT_BUFFER("b", WEFT_I8, 3);
    assert_true(!view.data && !view.bytes && !view.strides && !view.memory && !view.device && !view.reserved[1]);
    assert_true(of.data == source && of.bytes == sizeof source && !of.strides && !of.memory && !of.reserved[0]);
    assert_true(!buffer.name && !buffer.count && !buffer.align && !buffer.memory && !buffer.reserved[1]);
    assert_true(!strcmp(named.name, "b") && named.dtype == WEFT_I8 && named.count == 3 && !named.reserved[0]);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(missing_fields_have_their_defaults),
        cmocka_unit_test(same_size_is_accepted),
        cmocka_unit_test(zeros_beyond_are_accepted),
        cmocka_unit_test(unknown_fields_are_refused),
        cmocka_unit_test(impossible_sizes_name_the_initialiser),
        cmocka_unit_test(outputs_end_at_the_callers_size),
        cmocka_unit_test(outputs_of_impossible_sizes_are_left_alone),
        cmocka_unit_test(initialisers_set_the_size_and_nothing_else),
    };
    return SUITE_MAIN(argc, argv, SUITE_FIXTURE(tests, open_all, close_all));
}
