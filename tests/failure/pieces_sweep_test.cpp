// Transfers of several pieces by several threads: any call fails, also while another thread is working. The n-th call
// varies from run to run, so points are sampled, from seeds.
#include "failure/operations.hpp"
#include "memsaver/backup/verified.hpp"
#include "support/random.hpp"

namespace failure_pieces_sweep_test {
using namespace test;

constexpr unsigned threads = 4;

/// Rings of two buffers for each of two threads, and more pieces than buffers: each thread copies several.
std::vector<SweptPolicy> by_rings() {
    HostBackup pageable{.storage = Storage::pageable, .threads = threads, .ring_bytes = 8_MiB};
    FileBackup file{.directory = quick_directory(), .threads = threads, .ring_bytes = 8_MiB};
    FileBackup file_given_back = file;
    file_given_back.retain = false;
    HostBackup checked = pageable;
    checked.refresh = Refresh::once;
    checked.check = true;
    return {{"pageable", pageable, Becomes::kept},
            {"file", file, Becomes::kept},
            {"file, given back", file_given_back, Becomes::kept},
            {"pageable, once, checked", checked, Becomes::kept},
            {"file, verified", Verified<FileBackup>{file}, Becomes::kept}};
}

/// Cells that threads pin while they copy.
std::vector<SweptPolicy> by_cells() {
    return {{"pinned", HostBackup{.threads = threads}, Becomes::kept},
            {"pinned, given back", HostBackup{.retain = false, .threads = threads}, Becomes::kept},
            {"pinned, verified", Verified<HostBackup>{{.threads = threads}}, Becomes::kept}};
}

/// Blocks of odd sizes, so that pieces contain parts of several blocks and blocks span several pieces.
Operation::Act with_blocks(std::vector<std::size_t> sizes, Operation::Act then) {
    return [sizes = std::move(sizes), then = std::move(then)](Populated& world) {
        for (const std::size_t bytes : sizes) world.allocate("swept", bytes);
        then(world);
    };
}

/// Runs `seeds` samples of each operation under each policy.
void sample(std::vector<Operation> operations, const std::vector<SweptPolicy>& policies, const Setting& setting,
            const char* what, std::uint64_t seeds) {
    constexpr StatusKind kinds[] = {StatusKind::other, StatusKind::out_of_memory, StatusKind::out_of_host_memory,
                                    StatusKind::gone};
    for (const Operation& operation : operations) {
        const std::string name = name_of(operation.name, what);
        Points points{name};
        const std::uint64_t first = sampling().of(name).first(4);
        for (std::size_t how = 0; how < policies.size(); ++how) {
            if (how % sampling().stride(4) != first) continue;
            const std::uint64_t calls = run_point(operation, policies[how], {.nth = never}, setting, points);
            for (std::uint64_t seed = 1; calls != 0 && seed <= seeds; ++seed) {
                CAPTURE(seed);
                Random random{1 + seed + 1000 * how};
                Setting chosen = setting;
                chosen.nasty = random.below(2) == 0;
                const Failure failure{.nth = 1 + random.below(calls),
                                      .lasting = random.below(2) == 0 ? Lasting::once : Lasting::onwards,
                                      .kind = kinds[random.below(std::size(kinds))]};
                (void)run_point(operation, policies[how], failure, chosen, points);
            }
        }
    }
}

/// Returns some of the pausing and resuming operations, with these blocks added.
std::vector<Operation> with(const std::vector<std::size_t>& sizes) {
    std::vector<Operation> some = only(repeatable(), {"pause: the first", "pause: a later one, of the same bytes",
                                                      "prepare", "resume", "backup_view"});
    for (Operation& operation : some) operation.prepare = with_blocks(sizes, operation.prepare);
    return some;
}

TEST_CASE("pieces: through rings") {
    sample(with({2'500'000, 1'000'001, 3'400'000}), by_rings(), {.capacity = 64_MiB},
           "in several pieces, by several threads", 8);
}

TEST_CASE("pieces: cells that are pinned during the copies") {
    // More than a cell of 64 MiB; host pages begin a little before a cell boundary, so that there are three cells.
    sample(with({66'000'000, 5'000'000}), by_cells(), {.capacity = 192_MiB}, "in several cells, by several threads", 2);
}
} // namespace failure_pieces_sweep_test
