#define _GNU_SOURCE
#include "values.h"

#include <stdio.h>
#include <string.h>

static _Thread_local struct {
    int64_t wrong;
    int tensor; /* -1: there is one only */
    char first[300], text[360];
} values;

void values_begin(void)
{
    values.wrong = 0;
    values.tensor = -1;
}

void values_tensor(int number)
{
    values.tensor = number;
}

/* The coordinates of a row-major index, as " (3, 2)". */
static void coordinates(char *out, size_t cap, int64_t index, int ndim, const int64_t *extents)
{
    int64_t at[16];
    size_t n = 0;
    out[0] = 0;
    if (ndim < 2 || ndim > 16)
        return;
    for (int d = ndim - 1; d >= 0; d--) {
        at[d] = index % extents[d];
        index /= extents[d];
    }
    for (int d = 0; d < ndim && n < cap; d++)
        n += (size_t)snprintf(out + n, cap - n, "%s%lld%s", d ? ", " : " (", (long long)at[d], d + 1 < ndim ? "" : ")");
}

void values_slot_differs(int64_t slot, int64_t index, int ndim, const int64_t *extents, long double expected,
                         long double found)
{
    if (values.wrong++)
        return;
    char where[120];
    size_t n = 0, cap = sizeof values.first;
    char *out = values.first;
    if (values.tensor >= 0)
        n += (size_t)snprintf(out, cap, "tensor %d, ", values.tensor);
    if (index >= 0) {
        coordinates(where, sizeof where, index, ndim, extents);
        n += (size_t)snprintf(out + n, cap - n, "element %lld%s", (long long)index, where);
    } else {
        n += (size_t)snprintf(out + n, cap - n, "the edge");
    }
    if (slot >= 0)
        n += (size_t)snprintf(out + n, cap - n, " in slot %lld", (long long)slot);
    snprintf(out + n, cap - n, ": expected %.19Lg, found %.19Lg", expected, found);
}

void values_differ(int64_t index, int ndim, const int64_t *extents, long double expected, long double found)
{
    values_slot_differs(-1, index, ndim, extents, expected, found);
}

int64_t values_bytes(const void *found, size_t n, int expected)
{
    const unsigned char *is = found;
    values_begin();
    if (n && is[0] == expected && !memcmp(is, is + 1, n - 1)) /* each is like the one before it */
        return 0;
    for (size_t i = 0; i < n; i++)
        VALUES_CHECK(i, is[i], expected);
    return values.wrong;
}

int64_t values_memory(const void *found, const void *expected, size_t n)
{
    const unsigned char *is = found, *should = expected;
    values_begin();
    if (n && !memcmp(is, should, n))
        return 0;
    for (size_t i = 0; i < n; i++)
        VALUES_CHECK(i, is[i], should[i]);
    return values.wrong;
}

int64_t values_wrong(void)
{
    return values.wrong;
}

const char *values_text(void)
{
    if (!values.wrong)
        return "";
    snprintf(values.text, sizeof values.text, "%s; %lld %s wrong", values.first, (long long)values.wrong,
             values.wrong == 1 ? "is" : "are");
    return values.text;
}
