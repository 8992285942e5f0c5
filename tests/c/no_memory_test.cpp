// What the C interface keeps beside the C++ library (regions, hooks, handles, PyTorch's blocks) when the 1st, 2nd, ...
// allocation of a call fails: the call says so, changes nothing, and works when it is repeated. Returns 0 on success.
#include "../support/failing_operators.hpp"

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memsaver/c.h>
#include <new>

namespace {

int failures = 0;

void check(int line, bool holds, const char* what) {
    if (holds) return;
    ++failures;
    std::fprintf(stderr, "no_memory_test.cpp:%d: %s (last error: %s)\n", line, what, memsaver_last_error());
}

#define CHECK(condition) check(__LINE__, condition, #condition)

/// Calls `act` with each of its allocations failing until it succeeds; calls `unchanged` after each failure.
void sweep(
    int line, const char* what, const std::function<memsaver_result()>& act,
    const std::function<void()>& unchanged = [] {}) {
    for (long nth = 0; nth < 1000; ++nth) {
        test::countdown = nth;
        const memsaver_result result = act();
        test::countdown = -1;
        if (result == MEMSAVER_OK) return;
        check(line, result == MEMSAVER_OUT_OF_HOST_MEMORY, what);
        unchanged();
    }
    check(line, false, "never succeeded");
}

#define SWEEP(...) sweep(__LINE__, #__VA_ARGS__, __VA_ARGS__)

int nothing(void*, const memsaver_hook_event*) { return 0; }

std::size_t blocks(memsaver_saver* saver) {
    memsaver_usage usage = MEMSAVER_USAGE_INIT;
    CHECK(memsaver_get_usage(saver, nullptr, 0, &usage) == MEMSAVER_OK);
    return usage.blocks;
}

/// A share and what is made with it.
void in_a_share() {
    char folder[] = "/tmp/memsaver-no-memory-XXXXXX"; // its last part is the machine's name too
    CHECK(mkdtemp(folder) != nullptr);
    memsaver_options options = MEMSAVER_OPTIONS_INIT;
    options.driver = MEMSAVER_DRIVER_HOST;
    options.host_capacity = std::size_t{64} << 20U;
    options.host_machine = folder + 5;
    memsaver_share_options member = MEMSAVER_SHARE_OPTIONS_INIT;
    member.folder = folder;
    member.answer_within_ns = 3'000'000'000;
    SWEEP([&] { return memsaver_join_share(&options, &member, &options.share); },
          [&] { CHECK(options.share == nullptr); });
    memsaver_saver* saver = nullptr;
    SWEEP([&] { return memsaver_create(&options, &saver); }, [&] { CHECK(saver == nullptr); });
    memsaver_lending* lending = nullptr;
    SWEEP([&] { return memsaver_lend(options.share, saver, &lending); }, [&] { CHECK(lending == nullptr); });
    memsaver_end_lending(lending);
    char* text = nullptr;
    SWEEP([&] { return memsaver_get_members_json(options.share, &text); }, [&] { CHECK(text == nullptr); });
    memsaver_free_text(text);
    void* block = nullptr;
    CHECK(memsaver_allocate(saver, "weights", 4096, 0, &block) == MEMSAVER_OK);
    const char* const name = "w";
    const void* const data = block;
    const std::size_t bytes = 4096;
    memsaver_publish_options names = MEMSAVER_PUBLISH_OPTIONS_INIT;
    names.names = &name;
    names.data = &data;
    names.bytes = &bytes;
    names.count = 1;
    SWEEP([&] { return memsaver_publish(options.share, "model", saver, "weights", &names, nullptr); },
          [&] { *static_cast<char*>(block) = 1; }); // still writable
    memsaver_attached* attached = nullptr;
    SWEEP([&] { return memsaver_attach(options.share, "model", saver, nullptr, &attached); },
          [&] { CHECK(attached == nullptr); });
    memsaver_attached_range range = MEMSAVER_ATTACHED_RANGE_INIT;
    SWEEP([&] { return memsaver_attached_at(attached, "w", &range); });
    CHECK(range.bytes == bytes && *static_cast<const char*>(range.data) == 1);
    SWEEP([&] { return memsaver_attached_verify(attached); });
    memsaver_release_attached(attached);
    SWEEP([&] { // one that failed may have been heard
        const memsaver_result result = memsaver_withdraw(options.share, "model");
        return result == MEMSAVER_UNAVAILABLE ? MEMSAVER_OK : result;
    });
    memsaver_destroy(saver);
    memsaver_leave_share(options.share);
    std::filesystem::remove_all(folder);
}

} // namespace

int main() {
    memsaver_options options = MEMSAVER_OPTIONS_INIT;
    options.driver = MEMSAVER_DRIVER_HOST;
    options.host_capacity = std::size_t{64} << 20U;
    memsaver_saver* saver = nullptr;
    CHECK(memsaver_create(&options, &saver) == MEMSAVER_OK);
    memsaver_arena* arena = nullptr;
    SWEEP([&] { return memsaver_get_arena(saver, "tag", nullptr, &arena); }, [&] { CHECK(arena == nullptr); });

    // Regions: one that was not opened cannot be closed.
    const auto no_region = [&] { CHECK(memsaver_pop_region(saver) == MEMSAVER_MISUSE); };
    no_region();
    SWEEP([&] { return memsaver_push_region(saver, "tag"); }, no_region);
    SWEEP([&] { return memsaver_push_outside(saver); });
    void* block = nullptr;
    SWEEP([&] { return memsaver_allocate(saver, "tag", 4096, 0, &block); }, [&] { CHECK(block == nullptr); });
    SWEEP([&] { return memsaver_deallocate(saver, block); });
    CHECK(memsaver_pop_region(saver) == MEMSAVER_OK);
    CHECK(memsaver_pop_region(saver) == MEMSAVER_OK);
    no_region();

    // Hooks, whose handle the saver or the program has.
    memsaver_hook* hook = nullptr;
    SWEEP([&] { return memsaver_add_hook(saver, MEMSAVER_BEFORE_PAUSE, nothing, nullptr, nullptr); });
    SWEEP([&] { return memsaver_add_hook(saver, MEMSAVER_AFTER_PAUSE, nothing, nullptr, &hook); },
          [&] { CHECK(hook == nullptr); });
    memsaver_remove_hook(hook);

    // PyTorch's blocks: one that is not recorded is not allocated.
    SWEEP([&] { return memsaver_torch_push(arena); }, [] { CHECK(memsaver_torch_pop() == MEMSAVER_MISUSE); });
    const std::size_t before = blocks(saver);
    void* torch = nullptr;
    SWEEP(
        [&] {
            torch = memsaver_torch_allocate(4096, 0, nullptr);
            return torch != nullptr ? MEMSAVER_OK : MEMSAVER_OUT_OF_HOST_MEMORY;
        },
        [&] { CHECK(blocks(saver) == before); });
    CHECK(blocks(saver) == before + 1);
    test::countdown = 0; // a free reports nothing
    memsaver_torch_free(torch, 4096, 0, nullptr);
    test::countdown = -1;
    CHECK(memsaver_pause(saver, nullptr, 0, nullptr, nullptr) == MEMSAVER_OK);
    CHECK(memsaver_resume(saver, nullptr, 0, nullptr, nullptr) == MEMSAVER_OK);
    CHECK(memsaver_torch_pop() == MEMSAVER_OK);

    // Uses and their lists.
    const char* const tag = "tag";
    memsaver_use* use = nullptr;
    SWEEP([&] { return memsaver_begin_use(saver, &tag, 1, nullptr, &use); }, [&] { CHECK(use == nullptr); });
    memsaver_end_use(use);
    memsaver_elastic* elastic = nullptr;
    SWEEP([&] { return memsaver_make_elastic(arena, std::size_t{8} << 20U, nullptr, &elastic); },
          [&] { CHECK(elastic == nullptr); });
    memsaver_end_elastic(elastic);
    char* text = nullptr;
    SWEEP([&] { return memsaver_get_usage_json(saver, &text); }, [&] { CHECK(text == nullptr); });
    memsaver_free_text(text);

    memsaver_release_arena(arena);
    SWEEP([&] { return memsaver_close(saver); });
    memsaver_destroy(saver);
    in_a_share();
    return failures != 0 ? 1 : 0;
}
