/* The names of drivers, ways and orders, and their bits. */
#include "engine/toggle.h"

#include <limits.h>
#include <string.h>

#include "base/error.h"
#include "engine/driver.h"
#include "engine/way.h"

static const char *const extras[TOGGLE_EXTRAS] = {"weave"};

/* The i-th of all names. Sets *bit to its bit; 0: it cannot be switched off. */
static const char *name_of(int i, uint64_t *bit)
{
    for (int k = 0; driver_at(k); k++, i--)
        if (!i) {
            *bit = driver_at(k)->basic ? 0 : driver_bit(driver_at(k));
            return driver_at(k)->name;
        }
    for (int k = 0; way_table[k]; k++, i--)
        if (!i) {
            *bit = way_table[k]->basic ? 0 : way_table_bit(way_table[k]);
            return way_table[k]->name;
        }
    *bit = i >= 0 && i < TOGGLE_EXTRAS ? toggle_extra((enum toggle_extra)i) : 0;
    return *bit ? extras[i] : NULL;
}

const char *toggle_name(int i)
{
    uint64_t bit;
    const char *name;
    for (int k = 0; i >= 0 && (name = name_of(k, &bit)); k++)
        if (bit && !i--)
            return name;
    return NULL;
}

const char *weft_way_name(size_t i)
{
    return i < INT_MAX ? toggle_name((int)i) : NULL;
}

static int unknown(const char *name, size_t length)
{
    char known[400] = "";
    size_t len = 0;
    for (int i = 0; toggle_name(i) && len + 40 < sizeof known; i++) {
        const char *next = toggle_name(i);
        len += strlen(strcat(strcat(known + len, i ? ", " : ""), next));
    }
    return error_set(WEFT_EINVAL, "WEFT_WAYS: there is no driver or way '%.*s': write -NAME,... with NAME one of %s",
                     (int)(length < 40 ? length : 40), name, known);
}

int toggle_parse(const char *text, uint64_t *off)
{
    *off = 0;
    while (text && *text) {
        size_t length = strcspn(text, ",");
        const char *name;
        uint64_t bit = 0;
        int i = 0;
        if (*text != '-')
            return unknown(text, length);
        while ((name = name_of(i, &bit)) && (strlen(name) != length - 1 || strncmp(name, text + 1, length - 1) != 0))
            i++;
        if (!name)
            return unknown(text + 1, length - 1);
        if (!bit)
            return error_set(WEFT_EINVAL, "WEFT_WAYS: %s cannot be switched off: some runs or messages have no other",
                             name);
        *off |= bit;
        text += length + (text[length] == ',');
    }
    return 0;
}

bool toggle_is_off(uint64_t off, const char *name)
{
    const char *other;
    uint64_t bit;
    for (int i = 0; (other = name_of(i, &bit)); i++)
        if (!strcmp(other, name))
            return off & bit;
    return false;
}
