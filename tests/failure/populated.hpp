// What the sweeps are done to: a small machine, every policy, and a saver with several tags, one of which the
// operations are about. Knows what each block is to hold, and so what must be true whatever failed. Does not know the
// operations.
#pragma once

#include "backup/backup_support.hpp"
#include "graph/graph_support.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <sys/mman.h>

namespace test {

/// A host machine whose host pages come when they are touched and not before, in small: a sweep takes and gives them
/// back more often than anything else, and hardly touches them.
class ThriftyHost : public HostDriver {
public:
    using HostDriver::HostDriver;

    Status map_host(std::size_t bytes, void*& pages) const noexcept {
        void* const made = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (made == MAP_FAILED) return {StatusKind::out_of_host_memory, errno, "mmap"};
        pages = made;
        return {};
    }
    Status unmap_host(void* pages, std::size_t bytes) const noexcept {
        return ::munmap(pages, bytes) == 0 ? Status{} : Status{StatusKind::other, errno, "munmap"};
    }
    Status populate_host(void*, std::size_t) const noexcept { return {}; }
    Status host_available(std::size_t& bytes) const noexcept {
        bytes = 8_GiB;
        return {};
    }
};

using FailingDriver = FaultyDriver<ThriftyHost>;

/// What a pause and a resume leave of a block's bytes.
enum class Becomes : unsigned char { kept, zero, poison, unknown };

struct SweptPolicy {
    std::string name;
    AnyBackup<FailingDriver> policy;
    Becomes becomes;
};

/// The poison of the policies here; not that of fresh pages.
inline constexpr unsigned char poison = 0x5A;

/// Every policy, in small, with files in memory where there is such a place.
inline std::vector<SweptPolicy> every_policy(unsigned threads) {
    const char* const in_memory = "/dev/shm";
    const Small small{std::filesystem::is_directory(in_memory) ? in_memory : directory(), threads};
    std::vector<SweptPolicy> all{{"discard", Discard{}, Becomes::unknown},
                                 {"discard, poisoned", Discard{.poison = poison}, Becomes::poison},
                                 {"zero", Zero{}, Becomes::zero}};
    for (auto& [name, policy] : keepers<FailingDriver>(small)) all.push_back({name, policy, Becomes::kept});
    return all;
}

/// The bytes of a block: made once for each size and seed.
inline const std::vector<unsigned char>& expected_bytes(std::size_t bytes, std::uint64_t seed) {
    static std::map<std::pair<std::size_t, std::uint64_t>, std::vector<unsigned char>> made;
    auto& found = made[{bytes, seed}];
    if (found.empty()) found = pattern(bytes, seed);
    return found;
}

/// A saver whose tag "swept" has the policy in question and is what operations are about; "beside" is active, "away" is
/// paused, and both keep their bytes; a plain block lies outside of all tags.
class Populated {
public:
    struct Block {
        void* at = nullptr;
        std::size_t bytes = 0;
        std::uint64_t seed = 0;
        Becomes content = Becomes::kept;
        bool kept = true; ///< whether its policy keeps its bytes while they are away
    };
    using Blocks = std::vector<Block>;
    struct Tag {
        Becomes becomes = Becomes::kept;
        Blocks blocks{};
    };

    Populated(const SweptPolicy& how, bool nasty, const std::function<void(Populated&)>& prepare)
        : policy{how}, driver{ThriftyHost{16_MiB, {.granularity = 64_KiB, .poison = nasty, .late = nasty}}},
          saver{std::in_place, driver, SaverOptions{.margin = 1_MiB}} {
        REQUIRE(driver.open_stream(stream).ok());
        (void)saver->arena("swept", policy.policy);
        (void)saver->arena("beside", HostBackup{.threads = 1});
        (void)saver->arena("away", HostBackup{.storage = Storage::pageable, .threads = 1, .ring_bytes = 4_MiB});
        tags["swept"].becomes = policy.becomes;
        // Small ones share an extent; large ones span several that are neighbours, at odd places.
        for (const std::size_t bytes :
             {std::size_t{1000}, std::size_t{6912}, std::size_t{150'001}, std::size_t{70'000}}) {
            allocate("swept", bytes);
        }
        allocate("beside", 70'000);
        allocate("away", 100'000);
        pause("away");
        {
            const auto out = saver->outside();
            plain = saver->allocate(5000);
        }
        write(plain, 5000, 9);
        prepare(*this);
    }
    Populated(const Populated&) = delete;
    Populated& operator=(const Populated&) = delete;
    ~Populated() = default;

    // --- what operations are made of; the model follows once they have succeeded ---

    void* allocate(const std::string& tag, std::size_t bytes) {
        return add(tag, saver->arena(tag).allocate(bytes), bytes);
    }
    /// Notes a block, and gives it bytes.
    void* add(const std::string& tag, void* at, std::size_t bytes) {
        Blocks& blocks = tags[tag].blocks;
        blocks.push_back({at, bytes, ++seeds_, Becomes::kept, tags[tag].becomes == Becomes::kept});
        write(at, bytes, blocks.back().seed);
        return at;
    }
    /// Gives up the n-th block of "swept", unless an earlier try did.
    template <class... Order>
    void deallocate(std::size_t n, Order... order) {
        Block& block = tags["swept"].blocks[n];
        if (block.at == nullptr) return;
        saver->deallocate(block.at, order...);
        block.at = nullptr;
    }
    void pause(const std::vector<std::string>& names, const PauseOptions<FailingDriver>& options = {},
               std::optional<Becomes> once = {}) {
        if (once) { // where it fails, there is no saying which extents have gone
            for (const std::string& name : names) {
                for (Block& block : tags[name].blocks) block.kept = false;
            }
        }
        (void)saver->pause(names, options);
        for (const std::string& name : names) {
            Tag& tag = tags[name];
            for (Block& block : tag.blocks) {
                const Becomes becomes = once.value_or(tag.becomes);
                if (becomes != Becomes::kept) block.content = becomes;
            }
        }
    }
    void pause(const char* tag) { pause(std::vector<std::string>{tag}); }
    void pause_all() { pause({"swept", "beside", "away"}); }
    void resume(const std::vector<std::string>& names) { (void)saver->resume(names); }
    void resume(const char* tag) { (void)saver->resume(tag); }

    /// Fresh bytes in every block of a tag; its memory is active.
    void rewrite(const std::string& tag) {
        for (Block& block : tags[tag].blocks) {
            if (block.at == nullptr) continue;
            block.seed = ++seeds_;
            block.content = Becomes::kept;
            block.kept = tags[tag].becomes == Becomes::kept;
            write(block.at, block.bytes, block.seed);
        }
        saver->invalidate(tag);
    }

    // --- what must hold ---

    [[nodiscard]] bool closed() { return row_of(*saver, "beside").state == "closed"; }

    /// The books are those of the machine, and nothing was misused.
    void check_books_are_true() {
        for (const std::string& text : driver.violations()) {
            // A lost device holds no pins; this one only says that it is lost.
            if (lost && contains(text, "pinned")) continue;
            FAIL_CHECK(text);
        }
        for (const std::string& text : driver.inner().violations()) FAIL_CHECK(text);
        if (!saver) return;
        std::size_t mapped = 0;
        for (const ArenaUsage& row : saver->usage()) {
            mapped += row.mapped_bytes;
            CHECK(row.held_bytes <= row.mapped_bytes);
            const auto tag = tags.find(row.tag);
            if (tag == tags.end() || row.state == "closed" || !counted) continue;
            std::size_t used = 0;
            std::size_t blocks = 0;
            for (const Block& block : tag->second.blocks) {
                used += block.at == nullptr ? 0 : block.bytes;
                blocks += block.at == nullptr ? 0 : 1;
            }
            CHECK(row.used_bytes == used);
            CHECK(row.blocks == blocks);
        }
        if (alone) mapped += alone->usage().mapped_bytes;
        CHECK(mapped == driver.handle_bytes() + driver.plain_bytes());
    }

    /// A tag's bytes are where its state says. In between there is nothing to say before it has been repeated.
    void check_bytes(const std::string& name) {
        const auto tag = tags.find(name);
        if (tag == tags.end()) return;
        const std::string state = row_of(*saver, name).state;
        for (const Block& block : tag->second.blocks) {
            if (block.at == nullptr) continue;
            CAPTURE(name);
            CAPTURE(state);
            CAPTURE(block.bytes);
            if (state == "active") CHECK(holds(block));
            if (state == "paused" && block.kept) {
                const BackupView view = saver->backup_view(block.at, block.bytes);
                CHECK(same(view.data(), expected_bytes(block.bytes, block.seed)));
            }
        }
    }
    /// The tags that the operation is not about are as they were, bytes and all.
    void check_others() {
        CHECK(row_of(*saver, "beside").state == "active");
        CHECK(row_of(*saver, "away").state == "paused");
        check_bytes("beside");
        check_bytes("away");
        CHECK(same(plain, expected_bytes(5000, 9)));
    }

    /// Everything comes back, and can go and come once more with fresh bytes.
    void check_usable() {
        CHECK_NOTHROW((void)saver->resume());
        for (const auto& [name, tag] : tags) {
            const std::string state = row_of(*saver, name).state;
            CAPTURE(state);
            CHECK((state == "active" || state == "empty"));
            check_bytes(name);
        }
        for (const auto& [name, tag] : tags) rewrite(name);
        CHECK_NOTHROW((void)saver->pause());
        CHECK(driver.handle_bytes() == 0);
        for (const auto& [name, tag] : tags) {
            CHECK(row_of(*saver, name).held_bytes == 0);
            check_bytes(name);
        }
        CHECK_NOTHROW((void)saver->resume());
        for (const auto& [name, tag] : tags) {
            if (tag.becomes == Becomes::kept) check_bytes(name);
        }
        CHECK(same(plain, expected_bytes(5000, 9)));
        check_books_are_true();
    }

    /// After the end of the saver, with no call failing any more: what is left is what a call that fails gives back
    /// nothing by, where nobody was left who could repeat it. Each may be left by its own kind of call alone.
    void check_nothing_left() {
        REQUIRE(driver.close_stream(stream).ok());
        const Outstanding left = driver.outstanding();
        const auto failed = [&](Call call) { return driver.injected(call); };
        INFO(driver.leaks());
        CHECK(left.events <= failed(Call::close_event));
        CHECK(left.streams <= failed(Call::close_stream));
        CHECK(left.graphs <= failed(Call::close_graph));
        CHECK(left.files <= failed(Call::close_file));
        CHECK(left.pins <= failed(Call::unpin_host));
        CHECK(left.host_pages <= failed(Call::unmap_host) + failed(Call::unpin_host)); // pinned pages stay
        if (!died) {
            CHECK(left.reservations + left.handles + left.mappings + left.plain == 0);
            CHECK(left.pins + left.host_pages == 0);
        }
        CHECK(left.mappings <= failed(Call::unmap));
        CHECK(left.handles <= failed(Call::release) + left.mappings);
        CHECK(left.reservations <= failed(Call::unreserve) + left.mappings);
        CHECK(left.plain <= failed(Call::free_plain));
        check_books_are_true();
        if (driver.injected() == 0) CHECK(driver.everything_given_back());
    }

    SweptPolicy policy;
    FailingDriver driver;
    StreamRef stream;
    std::optional<MemorySaver<FailingDriver>> saver;
    std::map<std::string, Tag> tags{};
    void* plain = nullptr;
    bool counted = true; ///< whether the model knows all blocks
    bool lost = false;   ///< the device, if only for one call
    bool died = false;   ///< the saver, while calls failed: nobody was left to repeat them

    // For operations that make more than blocks.
    Graph graph{};
    Graph another{};
    void* filled = nullptr;   ///< what `graph` fills
    void* refilled = nullptr; ///< what `another` fills
    std::optional<WorkspacePool> pool{};
    std::optional<Buffer<unsigned char>> buffer{};
    Arena handle{};
    std::optional<TaggedArena<FailingDriver, HostBackup>> alone{};
    std::optional<Ballast<ThriftyHost>> ballast{};

private:
    static bool same(const void* at, const std::vector<unsigned char>& bytes) {
        return std::memcmp(at, bytes.data(), bytes.size()) == 0;
    }
    static bool holds(const Block& block) {
        const auto* const at = static_cast<const unsigned char*>(block.at);
        switch (block.content) {
        case Becomes::kept: return same(at, expected_bytes(block.bytes, block.seed));
        case Becomes::zero:
        case Becomes::poison: {
            const unsigned char byte = block.content == Becomes::zero ? 0 : poison;
            return at[0] == byte && std::memcmp(at, at + 1, block.bytes - 1) == 0;
        }
        case Becomes::unknown: break;
        }
        return true;
    }
    /// The processor may touch a host machine's memory, as work that is over by then.
    static void write(void* at, std::size_t bytes, std::uint64_t seed) {
        std::memcpy(at, expected_bytes(bytes, seed).data(), bytes);
    }

    std::uint64_t seeds_ = 100;
};

} // namespace test
