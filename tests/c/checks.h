// Checks of the programs in C: a failure is counted, and printed with the last error.
#include <memsaver/c.h>

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)

// A structure: the defaults of its macro, then the fields that a test sets.
#pragma GCC diagnostic ignored "-Woverride-init"
#undef MEMSAVER_INIT
#define MEMSAVER_INIT(type, ...) sizeof(type), __VA_ARGS__
#define MADE(type, init, ...) (&(memsaver_##type){init, __VA_ARGS__})
#define POLICY(...) MADE(policy, MEMSAVER_POLICY_INIT, __VA_ARGS__)
#define OPTIONS(...) MADE(options, MEMSAVER_OPTIONS_INIT, __VA_ARGS__)
#define ARENA(...) MADE(arena_options, MEMSAVER_ARENA_OPTIONS_INIT, __VA_ARGS__)

static int failures = 0;

static inline void fail(const char* file, int line, const char* what) {
    __atomic_add_fetch(&failures, 1, __ATOMIC_RELAXED);
    fprintf(stderr, "%s:%d: %s (last error: %s)\n", file, line, what, memsaver_last_error());
}

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) fail(__FILE__, __LINE__, #condition);                                                        \
    } while (0)

static inline void is(const char* file, int line, const char* call, memsaver_result result, memsaver_result wanted) {
    if (result == wanted) return;
    fail(file, line, call);
    fprintf(stderr, "    is %s and not %s\n", memsaver_result_name(result), memsaver_result_name(wanted));
}

#define IS(wanted, call) is(__FILE__, __LINE__, #call, call, wanted)
#define OK(call) IS(MEMSAVER_OK, call)

/// Expects a failure whose message contains `text`.
static inline void fails(const char* file, int line, const char* call, memsaver_result result, memsaver_result wanted,
                         const char* text) {
    is(file, line, call, result, wanted);
    if (strstr(memsaver_last_error(), text) != NULL) return;
    fail(file, line, call);
    fprintf(stderr, "    does not say \"%s\"\n", text);
}

#define FAILS(wanted, call, text) fails(__FILE__, __LINE__, #call, call, wanted, text)
#define MISUSE(call, text) FAILS(MEMSAVER_MISUSE, call, text)

/// Expects a misuse whose message names the call's function and says what is null.
static inline int refused(const char* file, int line, const char* call, memsaver_result result) {
    fails(file, line, call, result, MEMSAVER_MISUSE, " is null");
    const size_t name = strcspn(call, "(");
    if (strncmp(memsaver_last_error(), call, name) == 0 && memsaver_last_error()[name] == ':') return 1;
    fails(file, line, call, MEMSAVER_MISUSE, MEMSAVER_MISUSE, "its own name");
    return 0;
}

/// Calls a function with something null. For tables of calls.
#define NIL(function, ...) refused(__FILE__, __LINE__, "memsaver_" #function "(", memsaver_##function(__VA_ARGS__))

/// Expects `act` to end within a minute in a child, without a failure or a signal.
static inline void in_child(const char* name, void (*act)(void*), void* context) {
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        alarm(60);
        failures = 0;
        act(context);
        _exit(failures != 0);
    }
    int status = -1;
    if (waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0) return;
    ++failures;
    fprintf(stderr, "%s: %s\n", name, WIFSIGNALED(status) ? strsignal(WTERMSIG(status)) : "failed");
}
