// Checks of the programs in C: a failure is counted, and printed with the last error.
#include <memsaver/c.h>

#include <stdio.h>

#define MIB ((size_t)1 << 20)

static int failures = 0;

static void check(const char* file, int line, int holds, const char* what) {
    if (holds) return;
    ++failures;
    fprintf(stderr, "%s:%d: %s (last error: %s)\n", file, line, what, memsaver_last_error());
}

#define CHECK(condition) check(__FILE__, __LINE__, (condition), #condition)
#define OK(call) CHECK((call) == MEMSAVER_OK)
