// The saver: tags, their memory, several devices, and being disabled.
#include "support/machines.hpp"

namespace saver_memory_saver_test {
using namespace test;

TEST_CASE_FIXTURE(OnSaver, "pointers find their tag while other tags are made") {
    constexpr std::size_t count = 200;
    std::vector<unsigned char*> blocks(count);
    std::atomic<std::size_t> made{0};
    std::atomic<int> wrong{0};
    std::thread reader{[&] {
        for (std::size_t known = 0; known < count; known = made.load()) {
            for (std::size_t i = 0; i < known; ++i) {
                const std::string text = text_of<Misuse>([&] { saver.deallocate(blocks[i] + 1); });
                if (!contains(text, "tag \"" + std::to_string(i) + '"')) ++wrong;
            }
        }
    }};
    for (std::size_t i = 0; i < count; ++i) {
        void* const block = saver.arena(std::to_string(i), Discard{}, {.capacity = 2_MiB}).allocate(1000);
        blocks[i] = static_cast<unsigned char*>(block);
        made = i + 1;
    }
    reader.join();
    CHECK(wrong == 0);
}

TEST_CASE("a tag on two devices has one policy, and each device one driver") {
    const Checked first{host_machine, 0};
    const Checked second{nasty_machine, 1};
    const Checked twin{host_machine, 1};
    MemorySaver saver{first.driver};
    const Arena here = saver.arena("weights", Zero{});
    const Arena there = saver.arena("weights", Zero{}, second.driver);
    CHECK(!(here == there));
    CHECK(saver.arena("weights", Zero{}, second.driver) == there);
    CHECK_THROWS_AS((void)saver.arena("weights", Discard{}, second.driver), Misuse);
    CHECK_THROWS_AS((void)saver.arena("weights", Zero{}, twin.driver), Misuse);
    (void)here.allocate(4_MiB);
    void* const block = there.allocate(8_MiB);
    write_pattern(second.driver, block, 8_MiB, 2);
    CHECK(saver.pause("weights").tags.size() == 2);
    CHECK(first.driver.handle_bytes() + second.driver.handle_bytes() == 0);
    CHECK(saver.resume("weights").mapped_bytes == 12_MiB);
    CHECK(all_are(second.driver, block, 8_MiB, 0));
    check_books(saver, first.driver);
    check_books(saver, second.driver);
}
} // namespace saver_memory_saver_test
