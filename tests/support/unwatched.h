/* For functions of tests that compute where an element is, or what is expected there, from memory that their thread
 * alone has: sanitizers do not watch them. Watched, they take most of the time of a test, and there is nothing to find.
 * Accesses to memory that weft moves are in functions without this, or in the library. */
#ifndef WEFT_TESTS_UNWATCHED_H
#define WEFT_TESTS_UNWATCHED_H
#define UNWATCHED __attribute__((no_sanitize("address", "undefined", "thread")))
#endif
