// How the libraries behave in processes that fork and cancel threads. One that hangs or crashes ends by a signal.
#pragma once

#include "../../process/process_support.hpp"
#include "loaded.hpp"

#include <pthread.h>

#include <atomic>
#include <functional>
#include <thread>

namespace test {

/// How a program gets memory of a region through a library: allocate(bytes) returns null if it gets none.
struct Allocating {
    Interface tms;
    std::function<void*(std::size_t)> allocate;
    std::function<void(void*)> free;

    void use(const char* tag) const {
        void* const block = allocate(1 << 20);
        (void)tms.pause(tag);
        (void)tms.resume(tag);
        free(block);
    }
};

/// A child, such as a data loader's worker, destroys tensors of its parent: they stay the parent's.
inline void check_forks(const Allocating& how) {
    how.tms.enter("parent");
    constexpr std::size_t bytes = 4 << 20;
    auto* const block = static_cast<unsigned char*>(how.allocate(bytes));
    REQUIRE(block != nullptr);
    block[bytes - 1] = 7;
    std::atomic<bool> stop{false};
    std::thread threads[2];
    for (const char* tag : {"one", "two"}) {
        threads[tag[0] == 'o' ? 0 : 1] = std::thread{[&, tag] {
            how.tms.enter(tag);
            while (!stop) how.use(tag);
        }};
    }
    for (int i = 0; i < 50; ++i) {
        CHECK(process_test::within_seconds(60, [&] {
            how.free(block);
            how.tms.enter("a tag that the parent does not have");
            how.tms.enter("parent");
            return how.allocate(1 << 20) == nullptr && how.tms.pause("parent") != 0;
        }));
    }
    stop = true;
    for (std::thread& thread : threads) thread.join();
    CHECK(how.tms.pause("parent") == 0);
    CHECK(how.tms.resume("parent") == 0);
    CHECK(block[bytes - 1] == 7);
    how.free(block);
    how.tms.leave();
}

/// A thread that is cancelled inside a call ends after it, and leaves no lock taken.
inline void check_cancellation(const Allocating& how) {
    for (int i = 0; i < 20; ++i) {
        pthread_t thread{};
        const auto body = [](void* context) -> void* {
            const auto& given = *static_cast<const Allocating*>(context);
            given.tms.enter("cancelled");
            for (;;) {
                given.use("cancelled");
                ::pthread_testcancel();
            }
        };
        REQUIRE(::pthread_create(&thread, nullptr, body, const_cast<Allocating*>(&how)) == 0);
        (void)::usleep(static_cast<useconds_t>(1000 + 777 * i));
        CHECK(::pthread_cancel(thread) == 0);
        void* result = nullptr;
        CHECK(::pthread_join(thread, &result) == 0);
        CHECK(result == PTHREAD_CANCELED);
    }
    how.tms.enter("cancelled");
    how.use("cancelled");
    how.tms.leave();
}
} // namespace test
