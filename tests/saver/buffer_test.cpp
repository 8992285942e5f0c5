// Buffer: typed, owning, move-only.
#include "support/machines.hpp"

namespace saver_buffer_test {
using namespace test;

static_assert(!std::is_copy_constructible_v<Buffer<float>> && std::is_nothrow_move_constructible_v<Buffer<float>> &&
              std::is_nothrow_move_assignable_v<Buffer<float>> && std::is_nothrow_destructible_v<Buffer<float>>);

TEST_CASE_FIXTURE(OnSaver, "a buffer owns its elements" * on_machines) {
    const Arena arena = saver.arena("tag");
    Buffer<float> buffer{arena, 1000};
    CHECK((buffer.size() == 1000 && buffer.size_bytes() == 4000 && !buffer.empty()));
    CHECK(arena.usage().used_bytes == 4000);
    float* const data = buffer.data();
    Buffer<float> moved{std::move(buffer)};
    CHECK(moved.data() == data);
    CHECK(buffer.data() == nullptr); // NOLINT(bugprone-use-after-move): that is what is tested
    Buffer<float> other{arena, 10U};
    other = std::move(moved);
    CHECK(other.data() == data);
    CHECK(arena.usage().blocks == 1);
    Buffer<float>& self = other;
    other = std::move(self);
    CHECK(other.data() == data);
    other.reset();
    CHECK(other.empty());
    CHECK(arena.usage().blocks == 0);
    other = Buffer<float>{arena, std::int64_t{5}};
    for (int i = 0; i < 2; ++i) other.reset(StreamRef{});
    CHECK(arena.usage().blocks == 0);
    const Buffer<double> nothing;
    CHECK((nothing.data() == nullptr && nothing.size_bytes() == 0));
}

TEST_CASE_FIXTURE(OnMachine, "a buffer outlives region, saver and close" * on_machines) {
    Told told;
    {
        Buffer<float> kept;
        Buffer<float> closed;
        {
            MemorySaver saver{machine.driver, {.events = told.sink()}};
            const auto region = saver.region("kept");
            kept = Buffer<float>{region, 1 << 20};
            write_pattern(machine.driver, kept.data(), kept.size_bytes(), 1);
        }
        CHECK(has_pattern(machine.driver, kept.data(), kept.size_bytes(), 1));
        {
            MemorySaver saver{machine.driver, {.events = told.sink()}};
            closed = Buffer<float>{saver.arena("closed"), 100};
            saver.close();
        }
        CHECK(!closed.empty());
    }
    CHECK(told.all().empty());
}
} // namespace saver_buffer_test
