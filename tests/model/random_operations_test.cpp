// Random operations compared with a simple model, and what a thousand cycles leave behind.
#include "backup/backup_support.hpp"
#include "backup/file_source_support.hpp"
#include "model/process_memory.hpp"
#include "support/handles.hpp"
#include "support/machines.hpp"
#include "support/model.hpp"
#include "support/sampling.hpp"

namespace model_random_operations_test {
using namespace test;

constexpr std::size_t looked_at = 16_KiB; // at each end of a block

/// Returns a directory for files: in memory if possible, because every freed block costs a file call.
std::string quick_directory() {
    return std::filesystem::is_directory("/dev/shm") ? std::string{"/dev/shm"} : directory();
}

std::size_t random_bytes(Random& random) {
    switch (random.below(10)) {
    case 0: return 1 + random.below(256);
    case 1:
    case 2:
    case 3: return 1 + random.below(64_KiB);
    case 4:
    case 5:
    case 6: return 1 + random.below(1_MiB);
    case 7:
    case 8: return 1 + random.below(6_MiB);
    default: return 2_MiB * (1 + random.below(8));
    }
}

/// A file with the first and last bytes of blocks for some seeds.
struct SourceBytes {
    static constexpr std::size_t seeds = 20;
    static constexpr std::size_t offset_of(std::uint64_t seed) {
        return 1001 + static_cast<std::size_t>(seed) * 20'000;
    }

    SourceBytes() {
        std::vector<unsigned char> bytes = pattern(all, 77);
        for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
            const std::vector<unsigned char> each = pattern(looked_at, seed);
            std::copy(each.begin(), each.end(), bytes.begin() + static_cast<std::ptrdiff_t>(offset_of(seed)));
        }
        path = files.put("source", bytes);
    }
    static const SourceBytes& get() {
        static const SourceBytes source;
        return source;
    }

    ModelFiles files;
    std::size_t all = 3'000'001;
    std::string path;
};

struct Player {
    explicit Player(std::uint64_t seed, const MachineDriver& driver) : random_{seed}, driver_{driver} {
        (void)saver_.arena("zero", Zero{});
        (void)saver_.arena("discard", Discard{.poison = static_cast<unsigned char>(0xDD)});
        (void)saver_.arena("plain");
        (void)saver_.arena("host", HostBackup{.threads = 2});
        (void)saver_.arena("apart", HostBackup{.threads = 2}, ArenaOptions{.single_handle = true});
        (void)saver_.arena("file", in_file({.directory = quick_directory()}));
        if (no_codec().empty()) {
            (void)saver_.arena("packed", coded_keepers().front().policy);
        } else {
            (void)saver_.arena("packed", HostBackup{.threads = 2});
        }
        (void)saver_.arena("source", FileSource{.threads = 2, .ring_bytes = 8_MiB});
        for (const char* tag : {"zero", "host", "apart", "source"})
            ranges_.push_back(saver_.arena(tag).elastic(steps * step_bytes, {.granularity = step_bytes}));
        REQUIRE(driver_.open_stream(stream_).ok());
    }
    ~Player() { CHECK(driver_.close_stream(stream_).ok()); }

    void step() {
        const std::size_t what = random_.below(100);
        if (what < 38) {
            allocate();
        } else if (what < 42) {
            commit();
        } else if (what < 46) {
            rewrite();
        } else if (what < 80) {
            deallocate();
        } else if (what < 87) {
            pause();
        } else if (what < 96) {
            random_.below(3) == 0 ? exchange() : resume();
        } else if (what < 98) {
            (void)saver_.trim();
        } else {
            const std::string tag = any_tag();
            const bool kept = keeps(tag);
            if (kept) saver_.prepare(tag);
            if (!kept) CHECK_THROWS_AS(saver_.prepare(tag), Misuse);
        }
    }

    /// Checks everything that the model knows.
    void check_all() {
        for (const auto& [address, block] : model_.blocks()) check_bytes(address, block);
        check_books(saver_, driver_);
        for (const ArenaUsage& row : saver_.usage()) CHECK(row.used_bytes == model_.live_bytes(row.tag));
        for (const Elastic& range : ranges_) CHECK(range.committed_bytes() == committed_bytes(range));
    }
    void end() {
        coming_ = {};
        gates_.clear();
        while (!model_.blocks().empty()) deallocate();
        (void)saver_.resume();
        (void)saver_.trim();
        CHECK(driver_.handle_bytes() == 0);
    }

private:
    static constexpr const char* tags[] = {"zero", "discard", "plain", "host", "apart", "file", "packed", "source"};
    static constexpr std::size_t steps = 8; // of each elastic range
    static constexpr std::size_t step_bytes = 2_MiB;
    std::string any_tag() { return tags[random_.below(std::size(tags))]; }
    static void* pointer(Address address) { return reinterpret_cast<void*>(address); }

    void allocate() {
        if (live_bytes() > 100_MiB) return;
        const std::string tag = any_tag();
        const std::size_t bytes = random_bytes(random_);
        const std::size_t alignment = random_.below(4) == 0 ? std::size_t{256} << random_.below(14) : 256;
        const Address address = address_of(saver_.arena(tag).allocate(bytes, alignment));
        REQUIRE(address % alignment == 0);
        ModelBlock block{tag, bytes, alignment, false, {Content::Kind::pattern, random_.next()}};
        write(address, block);
        REQUIRE(model_.add(address, block)); // overlaps no other block
    }
    void deallocate() {
        const auto block = model_.any(random_);
        if (block == model_.blocks().end()) return;
        check_bytes(block->first, block->second);
        if (block->second.elastic) return release(block);
        switch (random_.below(4)) {
        case 0: saver_.deallocate(pointer(block->first)); break;
        case 1: saver_.deallocate(pointer(block->first), stream_); break;
        default: saver_.deallocate(pointer(block->first), already_idle); break;
        }
        model_.remove(block);
    }
    /// Commits some steps of a range; committed steps keep their memory and bytes.
    void commit() {
        Elastic& range = ranges_[random_.below(ranges_.size())];
        const std::size_t first = random_.below(steps);
        const std::size_t end = std::min(steps, first + 1 + random_.below(3));
        const auto at = [&](std::size_t n) { return address_of(range.data()) + n * step_bytes; };
        const auto act = [&] { range.commit(first * step_bytes + 1, (end - first) * step_bytes - 2); };
        for (std::size_t n = 0; n < steps; ++n) {
            const auto known = model_.blocks().find(at(n));
            if (known == model_.blocks().end() || !known->second.paused) continue;
            CHECK_THROWS_AS(act(), Misuse);
            return;
        }
        if (live_bytes() > 100_MiB) return;
        const std::size_t before = row_of(saver_, range.arena().tag()).mapped_bytes;
        std::size_t fresh = 0;
        act();
        for (std::size_t n = first; n < end; ++n) {
            ModelBlock block{.tag = range.arena().tag(),
                             .bytes = step_bytes,
                             .content = {Content::Kind::pattern, random_.next()},
                             .elastic = true};
            if (model_.blocks().count(at(n)) != 0) continue;
            fresh += step_bytes;
            write(at(n), block);
            REQUIRE(model_.add(at(n), block));
        }
        CHECK(row_of(saver_, range.arena().tag()).mapped_bytes <= before + fresh); // waiting blocks may be released
    }
    void release(Model::Blocks::iterator block) {
        const Address at = block->first;
        const auto range = std::find_if(ranges_.begin(), ranges_.end(), [&](const Elastic& each) {
            return at >= address_of(each.data()) && at < address_of(each.data()) + each.capacity();
        });
        REQUIRE(range != ranges_.end());
        const Order orders[] = {Order{}, after(stream_), already_idle};
        range->release(at - address_of(range->data()), step_bytes, orders[random_.below(3)]);
        model_.remove(block);
    }
    std::size_t committed_bytes(const Elastic& range) {
        const Address begin = address_of(range.data());
        std::size_t bytes = 0;
        for (auto at = model_.blocks().lower_bound(begin); at != model_.blocks().end(); ++at) {
            if (at->first < begin + range.capacity()) bytes += at->second.bytes;
        }
        return bytes;
    }

    /// Rewrites a block where its bytes are: in memory, from a file, or in the backup.
    void rewrite() {
        const auto found = model_.any(random_);
        if (found == model_.blocks().end() || !keeps(found->second.tag)) return;
        const Address address = found->first;
        ModelBlock& block = found->second;
        const std::size_t bytes = std::min(block.bytes, looked_at);
        const Address ends[] = {address, address + block.bytes - bytes};
        const bool known = block.content.kind == Content::Kind::pattern;
        if (block.paused && !known) return;
        block.content = {Content::Kind::pattern, random_.next()};
        if (block.tag == "source" && !block.paused && random_.below(3) != 0) {
            block.content.seed = 1 + random_.below(SourceBytes::seeds);
            const std::size_t count = std::min(block.bytes, SourceBytes::get().all);
            saver_.load(pointer(address), count, SourceBytes::get().path); // loads new bytes for both ends
            for (const Address end : ends)
                saver_.load(pointer(end), bytes, SourceBytes::get().path, SourceBytes::offset_of(block.content.seed));
            return check_bytes(address, block);
        }
        const std::vector<unsigned char> fresh = pattern(bytes, block.content.seed);
        for (const Address end : ends) {
            if (block.paused) {
                saver_.write_backup(pointer(end), fresh.data(), bytes);
            } else {
                write_pattern(driver_, pointer(end), bytes, block.content.seed);
                saver_.invalidate(pointer(end), bytes);
            }
        }
    }

    void pause() {
        if (random_.below(4) == 0) {
            (void)saver_.pause();
            for (const char* tag : tags) model_.pause(tag);
            CHECK(driver_.handle_bytes() == 0);
            return;
        }
        const std::string tag = any_tag();
        (void)saver_.pause(tag);
        model_.pause(tag);
        CHECK(row_of(saver_, tag).mapped_bytes == 0);
    }
    void exchange() {
        const std::string in = any_tag();
        const std::string out = any_tag();
        if (in == out) return;
        const std::size_t need = saver_.bytes_to_resume(in);
        const std::size_t before = driver_.handle_bytes();
        const Report report = saver_.exchange(out, in);
        CHECK(report.mapped_bytes == need);
        CHECK(report.handed_bytes <= need);
        CHECK(driver_.handle_bytes() + report.released_bytes + report.handed_bytes == before + need);
        CHECK(row_of(saver_, out).mapped_bytes == 0);
        model_.pause(out);
        resumed(in);
    }
    void resume() {
        const std::string tag = any_tag();
        const bool all = random_.below(4) == 0;
        const std::size_t need = all ? saver_.bytes_to_resume() : saver_.bytes_to_resume(tag);
        if (random_.below(2) == 0) {
            CHECK((all ? saver_.resume() : saver_.resume(tag)).mapped_bytes == need);
        } else { // each block is waited for when it is checked; the arrival ends later, or is ended
            ResumeAsyncOptions options;
            const auto wanted = model_.any(random_);
            const bool concerned = wanted != model_.blocks().end() && (all || wanted->second.tag == tag);
            if (concerned) options.first.push_back({pointer(wanted->first), wanted->second.bytes});
            const Tags tags_of = all ? Tags::all() : Tags{tag};
            const bool gated = concerned && random_.below(2) == 0;
            if (gated) gates_.push_back(saver_.gate(pointer(wanted->first), wanted->second.bytes));
            if (gates_.size() > 20) gates_.erase(gates_.begin());
            const auto rows = saver_.usage();
            const bool joins = std::any_of(rows.begin(), rows.end(), // the report then includes the other's bytes
                                           [](const ArenaUsage& row) { return row.state == "arriving"; });
            coming_ = saver_.resume_async(tags_of, options);
            for (const Gate& gate : gates_) gate.before(stream_); // also of freed blocks
            if (gated) check_behind_gates(wanted->first, wanted->second);
            CHECK(saver_.bytes_to_resume(tags_of) == 0);
            for (const auto& [address, block] : model_.blocks()) {
                if (all || block.tag == tag) coming_.wait(pointer(address), block.bytes);
            }
            if (random_.below(2) == 0) {
                if (!joins) CHECK(coming_.report().mapped_bytes == need);
                coming_ = {};
            }
        }
        resumed(all ? "" : tag);
    }
    /// Marks one tag, or all, as resumed.
    void resumed(const std::string& tag) {
        for (const char* other : tags) {
            if (!tag.empty() && other != tag) continue;
            if (!keeps(other)) model_.resume(other, tag_becomes(other));
            for (auto& [address, block] : model_.blocks()) {
                if (block.tag == other) block.paused = false; // the content is as before, if it was known
            }
        }
        for (auto& [address, block] : model_.blocks()) {
            if (block.paused || block.content.kind != Content::Kind::anything) continue;
            block.content = {Content::Kind::pattern, random_.next()};
            write(address, block);
        }
    }
    static Content::Kind tag_becomes(const std::string& tag) {
        return tag == "zero" ? Content::Kind::zero : Content::Kind::anything;
    }

    static bool keeps(const std::string& tag) {
        return tag == "host" || tag == "apart" || tag == "file" || tag == "packed" || tag == "source";
    }

    [[nodiscard]] std::size_t live_bytes() {
        std::size_t sum = 0;
        for (const char* tag : tags) sum += model_.live_bytes(tag);
        return sum;
    }
    void write(Address address, const ModelBlock& block) {
        const std::size_t bytes = std::min(block.bytes, looked_at);
        write_pattern(driver_, pointer(address), bytes, block.content.seed);
        write_pattern(driver_, pointer(address + block.bytes - bytes), bytes, block.content.seed);
    }
    /// Checks the end of a block that may be in flight, as seen by stream work that waits at its gate.
    void check_behind_gates(Address address, const ModelBlock& block) {
        if (!keeps(block.tag) || block.content.kind != Content::Kind::pattern) return;
        std::vector<unsigned char> seen(std::min(block.bytes, looked_at));
        EventRef event;
        REQUIRE(driver_.open_event(stream_, event).ok());
        REQUIRE(driver_.copy_to_host(seen.data(), address + block.bytes - seen.size(), seen.size(), stream_).ok());
        REQUIRE(driver_.record(event, stream_).ok());
        REQUIRE(driver_.wait(event).ok());
        REQUIRE(driver_.close_event(event).ok());
        REQUIRE(seen == pattern(seen.size(), block.content.seed));
    }
    void check_bytes(Address address, const ModelBlock& block) {
        if (!block.paused && block.tag == "apart") REQUIRE(handles_.behind_one(pointer(address), block.bytes));
        if (block.paused || block.content.kind == Content::Kind::anything) return;
        const std::size_t bytes = std::min(block.bytes, looked_at);
        const Address end = address + block.bytes - bytes;
        if (block.content.kind == Content::Kind::zero) {
            REQUIRE(all_are(driver_, pointer(address), bytes, 0));
            REQUIRE(all_are(driver_, pointer(end), bytes, 0));
            return;
        }
        REQUIRE(has_pattern(driver_, pointer(end), bytes, block.content.seed));
        if (block.bytes >= 2 * bytes) REQUIRE(has_pattern(driver_, pointer(address), bytes, block.content.seed));
    }

    Random random_;
    MachineDriver driver_;
    Handles<MachineDriver> handles_{driver_};
    MemorySaver<MachineDriver> saver_{driver_};
    StreamRef stream_;
    std::vector<Gate> gates_;
    std::vector<Elastic> ranges_;
    Model model_;
    Arrival coming_;
};

TEST_CASE("random operations" * on_machines) {
    for (std::uint64_t seed = 1 + sampling().first(3); seed <= 3; seed += sampling().stride(3)) {
        CAPTURE(seed);
        MESSAGE("seed " << seed);
        const Checked machine;
        Player player{seed, machine.driver};
        for (int i = 0; i < 1100; ++i) {
            player.step();
            if (i % 100 == 99) player.check_all();
        }
        player.check_all();
        player.end();
    }
}

// A thousand cycles with random allocation and freeing in between, also while paused. Mapped memory and the memory of
// the process have bounds independent of the number of cycles. The bounds are wide: blocks do not move, and most of
// them here are smaller than a granule, which each may hold open. The slack covers the growth step (at most 32 MiB at
// this size) and the memory that chunks of small blocks hold open.
TEST_CASE("a thousand cycles leave nothing behind" * on_quick) {
    constexpr std::size_t slack = 48_MiB;
    const Checked machine;
    const std::size_t free_before = machine.free_bytes();
    Random random{7};
    MESSAGE("seed 7");
    double sum = 0;
    std::size_t most_used = 0;
    std::size_t most_mapped = 0;
    {
        MemorySaver saver{machine.driver};
        const Arena arena = saver.arena("tag");
        std::vector<std::pair<void*, std::size_t>> blocks;
        std::size_t used = 0;
        const auto churn = [&](std::size_t count) {
            for (std::size_t i = 0; i < count; ++i) {
                const std::size_t bytes = random.below(8) == 0 ? 1 + random.below(16_MiB) : 1 + random.below(1_MiB);
                if (used + bytes <= 160_MiB && random.below(5) < 3) {
                    blocks.emplace_back(arena.allocate(bytes), bytes);
                    used += bytes;
                    most_used = std::max(most_used, used);
                } else if (!blocks.empty()) {
                    std::swap(blocks[random.below(blocks.size())], blocks.back());
                    arena.deallocate(blocks.back().first);
                    used -= blocks.back().second;
                    blocks.pop_back();
                }
            }
        };
        while (used < 100_MiB) churn(1);
        std::optional<ProcessMemory> warm;
        for (int cycle = 0; cycle < 1000; ++cycle) {
            if (cycle == 500) warm.emplace(); // the number of blocks has reached its maximum
            churn(6);
            (void)saver.pause("tag");
            churn(4);
            (void)saver.resume("tag");
            (void)saver.trim();
            const ArenaUsage row = arena.usage();
            CHECK(row.used_bytes == used);
            CHECK(row.mapped_bytes == machine.driver.handle_bytes());
            most_mapped = std::max(most_mapped, row.mapped_bytes);
            sum += static_cast<double>(row.mapped_bytes) / static_cast<double>(used);
            REQUIRE(machine.driver.outstanding().handles <= 64);
        }
        warm->check_not_grown(256_KiB);
        MESSAGE("most used " << format_bytes(most_used) << ", most mapped " << format_bytes(most_mapped)
                             << ", on average " << sum / 1000 << " mapped for each byte used");
        CHECK(most_mapped <= 2 * most_used + slack); // fragmentation_test.cpp: 1.1 for typical sizes of programs
        for (const auto& [pointer, bytes] : blocks) arena.deallocate(pointer);
        (void)saver.trim();
        CHECK(machine.driver.handle_bytes() == 0);
    }
    CHECK(about(machine.free_bytes(), free_before));
}

// The same blocks, and a few new ones each time: the backup of freed blocks must be freed too, wherever it was.
TEST_CASE("many cycles that keep bytes leave nothing behind" * on_quick) {
    const auto known = keepers({.directory = quick_directory(), .threads = 1});
    for (std::size_t which = sampling().first(3); which < known.size(); which += sampling().stride(3)) {
        const auto& keeper = known[which];
        CAPTURE(keeper.name);
        const Checked machine;
        MemorySaver saver{machine.driver};
        const Arena arena = saver.arena("tag", keeper.policy);
        void* const stays = arena.allocate(100'000);
        write_pattern(machine.driver, stays, 100'000, 1);
        std::optional<ProcessMemory> warm;
        std::size_t host_bytes = 0;
        Random random{11};
        for (int cycle = 0; cycle < 130; ++cycle) {
            if (cycle == 100) {
                warm.emplace();
                host_bytes = machine.driver.host_bytes();
            }
            std::vector<void*> blocks;
            for (int i = 0; i < 20; ++i) blocks.push_back(arena.allocate(1 + random.below(60'000)));
            (void)saver.pause();
            for (std::size_t i = 0; i < 10; ++i) arena.deallocate(blocks[i], already_idle);
            (void)saver.resume();
            for (std::size_t i = 10; i < 20; ++i) arena.deallocate(blocks[i], already_idle);
        }
        warm->check_not_grown(32_KiB);
        CHECK(machine.driver.host_bytes() <= host_bytes);
        CHECK(has_pattern(machine.driver, stays, 100'000, 1));
        CHECK(arena.usage().blocks == 1);
        arena.deallocate(stays);
    }
}
} // namespace model_random_operations_test
