// The saver: tags, their memory, several devices, and being disabled.
#include "support/machines.hpp"

namespace saver_memory_saver_test {
using namespace test;

TEST_CASE_FIXTURE(OnSaver, "pointers find their tag from its first byte to its last" * on_machines) {
    std::vector<std::pair<std::string, unsigned char*>> blocks; // each uses all of its tag's capacity
    for (const char* tag : {"a", "b", "c"}) {
        void* const block = saver.arena(tag, Discard{}, {.capacity = 4_MiB}).allocate(4_MiB);
        blocks.emplace_back("tag \"" + std::string{tag} + '"', static_cast<unsigned char*>(block));
    }
    const auto refusal = [&](void* pointer) { return text_of<Misuse>([&] { saver.deallocate(pointer); }); };
    for (const auto& [tag, block] : blocks) {
        CHECK(contains(refusal(block + 1), tag));
        CHECK(contains(refusal(block + 4_MiB - 1), tag));
        CHECK(!contains(refusal(block - 1), tag));
    }
    CHECK_THROWS_AS(saver.deallocate(reinterpret_cast<void*>(~Address{0})), Misuse);
    saver.deallocate(nullptr);
    saver.deallocate(nullptr, already_idle);
    for (const auto& [tag, block] : blocks) saver.deallocate(block);
}

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

TEST_CASE_FIXTURE(OnSaver, "a reserve is taken once, and not again after a pause or a trim" * on_machines) {
    const Arena arena = saver.arena("reserved", Discard{}, ArenaOptions{.reserve = 64_MiB});
    CHECK(machine.driver.handle_bytes() == 64_MiB);
    (void)saver.pause();
    (void)saver.arena("reserved");
    { auto region = saver.region("reserved"); }
    CHECK(machine.driver.handle_bytes() == 0);
    (void)saver.resume();
    (void)saver.trim();
    (void)saver.arena("reserved");
    CHECK(machine.driver.handle_bytes() == 0);
}

TEST_CASE_FIXTURE(OnMachine, "switched off: the same program on plain memory" * on_machines) {
    MemorySaver saver{machine.driver, {.enabled = false}};
    CHECK(!saver.enabled());
    int hooks = 0;
    const Hook hook = saver.before_pause([&](PauseEvent&) { ++hooks; });
    Buffer<float> buffer;
    {
        const auto region = saver.region("kv");
        buffer = Buffer<float>{region, 1 << 20};
        void* const block = saver.allocate(1_MiB);
        saver.deallocate(block);
    }
    write_pattern(machine.driver, buffer.data(), buffer.size_bytes(), 1);
    {
        const Use use = saver.use("kv");
        CHECK(row_of(saver, "kv").users == 1);
        CHECK(saver.pause("kv").released_bytes == 0);
        CHECK(use.lost().empty());
    }
    CHECK(saver.reclaim(1_MiB).bytes() == 0);
    CHECK(has_pattern(machine.driver, buffer.data(), buffer.size_bytes(), 1));
    CHECK(saver.resume().mapped_bytes == 0);
    CHECK(saver.trim().released_bytes == 0);
    CHECK(saver.bytes_to_resume("kv") == 0);
    CHECK_THROWS_AS(saver.invalidate("kv"), Misuse); // its policy keeps no bytes
    CHECK(hooks == 0);
    CHECK_THROWS_AS((void)saver.pause("nobody"), Misuse); // misuse is still detected
    CHECK_THROWS_AS((void)saver.arena("kv", Zero{}), Misuse);
    CHECK_THROWS_AS((void)saver.arena("kv").allocate(0), Misuse);
    CHECK(row_of(saver, "kv").state == "plain");
    CHECK(row_of(saver, "kv").mapped_bytes == 4_MiB);
    check_books(saver, machine.driver);
    CHECK(machine.driver.outstanding().reservations == 0);
    saver.close();
    CHECK(machine.driver.plain_bytes() == 0);
    CHECK_THROWS_AS((void)saver.pause(), Misuse);
    CHECK_THROWS_AS((void)saver.arena("kv"), Misuse);
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
