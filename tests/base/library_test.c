/* Libraries of the system that are opened when needed: the first file that is installed is taken, and all calls or
 * none count. */
#include "base/library.h"

#include "support/suite.h"

static const char *const files[] = {"libweft-none.so.7", "libm.so.6"};

static void calls_are_found(void **state)
{
    double (*root)(double) = NULL, (*up)(double) = NULL;
    const struct library_call calls[] = {{"sqrt", &root}, {"ceil", &up}, {0}};
    (void)state;
    assert_true(library_open(files, 2, calls));
    assert_true(root(9) + up(0.5) > 3.9 && root(9) + up(0.5) < 4.1);
}

static void a_library_without_a_call_is_refused(void **state)
{
    double (*root)(double) = NULL, (*none)(double) = NULL;
    const struct library_call calls[] = {{"sqrt", &root}, {"weft_none", &none}, {0}};
    (void)state;
    assert_false(library_open(files, 2, calls));
    assert_null(none);
}

static void a_library_that_is_not_installed_is_refused(void **state)
{
    const struct library_call calls[] = {{0}};
    (void)state;
    assert_false(library_open(files, 1, calls));
    assert_true(library_open(files, 2, calls));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_are_found),
        cmocka_unit_test(a_library_without_a_call_is_refused),
        cmocka_unit_test(a_library_that_is_not_installed_is_refused),
    };
    return SUITE_MAIN(argc, argv, SUITE_ONCE(tests));
}
