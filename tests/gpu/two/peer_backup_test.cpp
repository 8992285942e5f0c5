// Backups in another GPU's memory: restored bit by bit, and not on this GPU during the pause.
#include "gpu/gpu_support.hpp"
#include "support/machines.hpp"

namespace gpu_two_peer_backup_test {
using namespace test;

TEST_CASE("two GPUs: PeerBackup keeps bytes on the other one") {
    const Checked machine{cuda_machine};
    const Checked peer{cuda_machine, 1};
    const std::size_t bytes = 300_MiB + 17;
    MemorySaver saver{machine.driver};
    void* const block = saver.arena("parked", PeerBackup{peer.driver}).allocate(bytes);
    for (std::uint64_t round = 1; round <= 3; ++round) {
        write_pattern(machine.driver, block, bytes, round);
        const std::size_t before = machine.free_bytes();
        const Report paused = saver.pause("parked");
        CHECK(paused.saved_bytes == align_up(bytes, 256));                       // block sizes are multiples of 256
        if (round > 1) CHECK(machine.free_bytes() >= before + 300_MiB - 16_MiB); // the first round enables peer access
        CHECK(peer.driver.handle_bytes() >= bytes);
        saver.resume("parked");
        CHECK(has_pattern(machine.driver, block, bytes, round));
    }
    saver.pause("parked");
    const auto fresh = pattern(1_MiB, 77);
    saver.write_backup(static_cast<char*>(block) + 5, fresh.data(), fresh.size());
    saver.resume("parked");
    CHECK(has_pattern(machine.driver, static_cast<char*>(block) + 5, fresh.size(), 77));
}
} // namespace gpu_two_peer_backup_test
