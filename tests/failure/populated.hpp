// The subject of the sweeps: a saver with several tags, one of which the operations act on. Knows the expected bytes of
// each block, and the invariants that must hold whatever call failed. Independent of the operations.
#pragma once

#include "failure/policies.hpp"
#include "graph/graph_support.hpp"
#include "support/countdown.hpp"

namespace test {

/// The configuration of a world, besides its policy.
struct Setting {
    const char* name = ""; ///< for messages, if it is not the default one
    bool nasty = false;    ///< work runs late, and fresh pages contain garbage
    bool enabled = true;   ///< of the saver
    /// Whether "swept" is also on a device that does not fail: the saver's own, or another one.
    enum class Well : unsigned char { none, own, other } well = Well::none;
    std::size_t capacity = 4_MiB; ///< of a device
    bool single_handle = false;   ///< of "swept"
    bool evicts = false;          ///< the saver's allocations and resumes evict
    /// After a failed operation. What could not be given back then goes with `close`, or with the last owner.
    enum class Then : unsigned char { retries, closes, ends } then = Then::retries;
};

/// A saver whose tag "swept" has the policy under test and is the target of operations. "beside" is active, "away" is
/// paused, and both keep their bytes; a plain block belongs to no tag. Calls to `driver` fail, calls to `well` do not.
struct Populated {
    struct Block {
        void* at = nullptr;
        std::size_t bytes = 0;
        std::uint64_t seed = 0;
        Becomes content = Becomes::kept;
        bool kept = true; ///< whether its policy keeps its bytes while paused
        int device = 0;
    };
    using Blocks = std::vector<Block>;
    using Names = std::initializer_list<TagName>;
    struct Tag {
        Becomes becomes = Becomes::kept;
        Blocks blocks{};
    };

    Populated(const SweptPolicy& how, const Setting& where, const std::function<void(Populated&)>& prepare)
        : policy{how}, setting{where}, driver{machine(where, 0)}, well{where.well != Setting::Well::none
                                                                           ? std::optional{machine(where, 1)}
                                                                           : std::nullopt},
          saver{std::in_place, where.well == Setting::Well::own ? *well : driver, saver_options(where)} {
        REQUIRE(driver.open_stream(stream).ok());
        if (where.well != Setting::Well::own) (void)swept_on(driver); // in the order in which operations visit them
        if (well) {
            tags["swept"].becomes = policy.becomes;
            add("swept", swept_on(*well).allocate(50'000), 50'000, 1);
        }
        (void)swept_on(driver);
        (void)saver->arena("beside", HostBackup{.threads = 1});
        (void)saver->arena("away", HostBackup{.storage = Storage::pageable, .threads = 1, .ring_bytes = 4_MiB});
        tags["swept"].becomes = policy.becomes;
        // Small ones share an extent; large ones span several adjacent ones, at odd offsets.
        for (const std::size_t bytes :
             {std::size_t{1000}, std::size_t{6912}, std::size_t{37'501}, std::size_t{17'500}}) {
            allocate("swept", bytes);
        }
        allocate("beside", 17'500);
        allocate("away", 25'000);
        pause("away");
        {
            const auto out = saver->outside();
            plain = saver->allocate(5000);
        }
        write(plain, 5000, 9);
        prepare(*this);
    }
    ~Populated() = default;

    // --- Building blocks of operations; the model is updated once they have succeeded ---

    /// Returns the tag that operations act on, on one of its devices.
    [[nodiscard]] Arena swept_on(const FailingDriver& device) {
        return saver->arena("swept", policy.policy, device, {.single_handle = setting.single_handle});
    }
    void* allocate(const std::string& tag, std::size_t bytes) {
        const Arena arena = tag == "swept" ? swept_on(driver) : saver->arena(tag);
        return add(tag, arena.allocate(bytes), bytes, arena.device());
    }
    /// Adds a block to the model, and writes its bytes.
    void* add(const std::string& tag, void* at, std::size_t bytes, int device = 0) {
        const Unmetered own;
        Blocks& blocks = tags[tag].blocks;
        blocks.push_back({at, bytes, ++seeds_, Becomes::kept, tags[tag].becomes == Becomes::kept, device});
        write(at, bytes, blocks.back().seed);
        return at;
    }
    /// Frees the n-th block of "swept", unless an earlier attempt did.
    template <class... Order>
    void deallocate(std::size_t n, Order... order) {
        Block& block = tags["swept"].blocks[n];
        if (block.at == nullptr) return;
        saver->deallocate(block.at, order...);
        block.at = nullptr;
    }
    void pause(Names names, const PauseOptions& options = {}, std::optional<Becomes> once = {}) {
        if (once) { // after a failure, it is unknown which extents were released
            for (const TagName name : names) {
                for (Block& block : tag_of(name).blocks) block.kept = false;
            }
        }
        (void)saver->pause(names, options);
        for (const TagName name : names) {
            Tag& tag = tag_of(name);
            for (Block& block : tag.blocks) {
                const Becomes becomes = setting.enabled ? once.value_or(tag.becomes) : Becomes::kept;
                if (becomes != Becomes::kept) block.content = becomes;
            }
        }
    }
    /// After a failure, it is unknown which extents of a tag that drops its bytes were released.
    void exchange(Names out, Names in) {
        (void)saver->exchange(out, in);
        for (const TagName name : out) {
            Tag& tag = tag_of(name);
            for (Block& block : tag.blocks) {
                if (setting.enabled && tag.becomes != Becomes::kept) block.content = tag.becomes;
            }
        }
    }
    void pause(const char* tag) { pause(Names{tag}); }
    void pause_all() { pause({"swept", "beside", "away"}); }
    void resume(Names names) { (void)saver->resume(names); }
    void resume(const char* tag) { (void)saver->resume(tag); }

    /// Writes new bytes to every block of a tag. Precondition: its memory is active.
    void rewrite(const std::string& tag) {
        for (Block& block : tags[tag].blocks) {
            if (block.at == nullptr) continue;
            block.seed = ++seeds_;
            block.content = Becomes::kept;
            block.kept = tags[tag].becomes == Becomes::kept;
            write(block.at, block.bytes, block.seed);
        }
        invalidate(tag);
    }
    /// Misuse for policies that keep no bytes.
    void invalidate(const std::string& tag) {
        if (tags[tag].becomes == Becomes::kept) return saver->invalidate(tag);
        const Unmetered own;
        CHECK_THROWS_AS(saver->invalidate(tag), Misuse);
    }
    void prepare_tag(const std::string& tag) {
        if (tags[tag].becomes == Becomes::kept) return saver->prepare(tag);
        const Unmetered own;
        CHECK_THROWS_AS(saver->prepare(tag), Misuse);
    }

    // --- Invariants ---

    [[nodiscard]] bool closed() {
        return !succeeds<Misuse>([&] { (void)saver->bytes_to_resume("beside"); });
    }
    /// Returns a tag's state on one device, or the state that it has on all devices.
    [[nodiscard]] std::string state_on(const std::string& tag, std::optional<int> device = {}) {
        const Unmetered own;
        std::string state;
        for (const ArenaUsage& row : saver->usage()) {
            if (row.tag != tag || (device && row.device != *device)) continue;
            if (!state.empty() && state != row.state) return state + " and " + row.state;
            state = row.state;
        }
        return state;
    }
    /// Returns whether a tag is in a state; in a disabled saver no tag has one.
    [[nodiscard]] bool is(const std::string& state, const std::string& tag = "swept") {
        return state_on(tag) == (setting.enabled ? state : "plain");
    }
    /// Returns the physical bytes of all tags that can be paused.
    [[nodiscard]] std::size_t tags_bytes() {
        std::size_t bytes = 0;
        if (!setting.enabled) return bytes;
        for (const ArenaUsage& row : saver->usage()) bytes += tags.count(row.tag) != 0 ? row.mapped_bytes : 0;
        return bytes;
    }

    /// Checks that usage matches the machine and that no call was invalid.
    void check_books_are_true() {
        // A lost device holds no pins and no pages; these errors only report the loss.
        const auto of_loss = [&](const std::string& text) {
            return lost && (contains(text, "pinned") || contains(text, "unreserve"));
        };
        for (const auto& texts : {driver.violations(), driver.inner().violations()}) {
            for (const std::string& text : texts) {
                if (!of_loss(text)) FAIL_CHECK(text);
            }
        }
        if (well) {
            for (const std::string& text : well->violations()) FAIL_CHECK(text);
            for (const std::string& text : well->inner().violations()) FAIL_CHECK(text);
        }
        if (!saver) return;
        std::size_t mapped = 0;
        const bool over = closed();
        std::map<std::pair<std::string, int>, std::pair<std::size_t, std::size_t>> sums; // bytes and blocks in use
        for (const ArenaUsage& row : saver->usage()) {
            mapped += row.mapped_bytes;
            CHECK(row.held_bytes <= row.mapped_bytes);
            const auto tag = tags.find(row.tag);
            if (tag == tags.end() || over || !counted || row.state == "closed" || row.state == "dropped") continue;
            sums[{row.tag, row.device}].first +=
                row.used_bytes; // there may be another row, left by a failed attempt to make it
            sums[{row.tag, row.device}].second += row.blocks;
        }
        for (const auto& [whose, sum] : sums) {
            std::size_t used = 0;
            std::size_t blocks = 0;
            for (const Block& block : tags[whose.first].blocks) {
                const bool here = block.at != nullptr && block.device == whose.second;
                used += here ? block.bytes : 0;
                blocks += here ? 1 : 0;
            }
            CHECK(sum.first == used);
            CHECK(sum.second == blocks);
        }
        const std::size_t there = well ? well->handle_bytes() + well->plain_bytes() : 0;
        if (!lost || setting.enabled) // plain memory of a lost device is gone, and no longer counted
            CHECK(mapped == driver.handle_bytes() + driver.plain_bytes() + there);
    }

    /// Checks a tag's bytes according to its state. In an intermediate state, checks nothing until the operation has
    /// been repeated.
    void check_bytes(const std::string& name) {
        const auto tag = tags.find(name);
        if (tag == tags.end()) return;
        std::map<int, std::string> states;
        for (const Block& block : tag->second.blocks) {
            if (block.at == nullptr) continue;
            std::string& state = states[block.device];
            if (state.empty()) state = state_on(name, block.device);
            const bool there = !lost || (well && block.device == well->device()); // a lost device's bytes are gone
            CAPTURE(name);
            CAPTURE(state);
            CAPTURE(block.bytes);
            if ((state == "active" || state == "plain") && there) CHECK(holds(block));
            if (state == "paused" && block.kept) {
                const BackupView view = saver->backup_view(block.at, block.bytes);
                CHECK(same(view.data(), expected_bytes(block.bytes, block.seed)));
            }
        }
    }
    /// Checks that the tags other than "swept" are unchanged, including their bytes.
    void check_others() {
        CHECK(is("active", "beside"));
        CHECK(is("paused", "away"));
        check_bytes("beside");
        check_bytes("away");
        CHECK(same(plain, expected_bytes(5000, 9)));
    }

    /// Resumes everything, and checks that it can be paused and resumed again with new bytes.
    void check_usable() {
        CHECK_NOTHROW((void)saver->resume());
        for (const auto& [name, tag] : tags) {
            CHECK(!contains(state_on(name), "paused"));
            check_bytes(name);
        }
        for (const auto& [name, tag] : tags) rewrite(name);
        CHECK_NOTHROW((void)saver->pause());
        CHECK(tags_bytes() == 0);
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

    /// After the end of the saver, with no more failing calls: checks that only resources are left whose closing call
    /// failed, if nothing was left to retry it. Only a failed call of its own kind may leave a resource.
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
        if (!died && !lost) CHECK(left.reservations + left.handles + left.mappings + left.plain + left.pins == 0);
        if (!died) CHECK(left.host_pages == 0); // also on a lost device
        CHECK(left.mappings <= failed(Call::unmap));
        if (failed(Call::unmap) == 0) CHECK(left.mappings == 0);
        CHECK(left.handles <= failed(Call::release) + left.mappings);
        CHECK(left.reservations <= failed(Call::unreserve) + left.mappings);
        CHECK(left.plain <= failed(Call::free_plain));
        check_books_are_true();
        if (driver.injected() == 0) CHECK(driver.everything_given_back());
        if (well) CHECK_MESSAGE(well->everything_given_back(), well->leaks());
    }

    SweptPolicy policy;
    Setting setting;
    FailingDriver driver;
    std::optional<FailingDriver> well;
    StreamRef stream;
    std::optional<MemorySaver<FailingDriver>> saver;
    std::map<std::string, Tag> tags{};
    void* plain = nullptr;
    bool counted = true; ///< whether the model knows all blocks
    bool lost = false;   ///< the device, if only for one call
    bool died = false;   ///< the saver was destroyed while calls failed: nothing was left to retry them

    // For operations that make more than blocks.
    Graph graph{};
    Graph another{};
    void* filled = nullptr;   ///< the block that `graph` fills
    void* refilled = nullptr; ///< the block that `another` fills
    std::optional<WorkspacePool> pool{};
    std::optional<Buffer<unsigned char>> buffer{};
    Arena handle{};
    Arrival coming{};
    Elastic elastic{};
    std::vector<Hook> hooks{};
    std::optional<Registrations> registrations{}; ///< of memory of "swept"
    std::vector<Registration> registered{};       ///< of each block
    int begun = 0;                                ///< number of hooks run before an operation
    int ended = 0;                                ///< and after one
    std::optional<Ballast<ThriftyHost>> ballast{};

    /// Returns whether a block's bytes are as expected. Precondition: its memory is active.
    static bool holds(const Block& block) {
        switch (block.content) {
        case Becomes::kept: return same(block.at, expected_bytes(block.bytes, block.seed));
        case Becomes::zero:
        case Becomes::poison: return filled_with(block.at, block.bytes, block.content == Becomes::zero ? 0 : poison);
        case Becomes::unknown: break;
        }
        return true;
    }
    static bool same(const void* at, const std::vector<unsigned char>& bytes) {
        return std::memcmp(at, bytes.data(), bytes.size()) == 0;
    }

private:
    /// The CPU writes a host machine's memory directly, like completed device work.
    static void write(void* at, std::size_t bytes, std::uint64_t seed) {
        std::memcpy(at, expected_bytes(bytes, seed).data(), bytes);
    }

    static FailingDriver machine(const Setting& where, int device) {
        const std::size_t granularity = where.capacity > 64_MiB ? 2_MiB : 16_KiB;
        return FailingDriver{
            ThriftyHost{where.capacity,
                        {.device = device, .granularity = granularity, .poison = where.nasty, .late = where.nasty}}};
    }
    static SaverOptions saver_options(const Setting& where) {
        SaverOptions options{.enabled = where.enabled, .margin = 256_KiB, .evict_for_allocations = where.evicts};
        options.on_no_room = [](const NoRoom& need) { // no memory can be freed
            CHECK(need.device >= 0);
            return false;
        };
        return options;
    }

    Tag& tag_of(TagName name) { return tags[name.text()]; }

    std::uint64_t seeds_ = 100;
};
} // namespace test
