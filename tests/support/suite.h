/* cmocka, with what its header needs before it. */
#ifndef WEFT_TESTS_SUITE_H
#define WEFT_TESTS_SUITE_H
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#endif
