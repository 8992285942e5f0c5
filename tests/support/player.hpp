// Plays operations on a saver with a tag for each policy, some of whose driver calls fail, beside a simple model of
// what must hold. Where the operations come from is the caller's: random numbers, or a fuzzer's bytes. Knows no test
// framework.
#pragma once

#include "memsaver/backup/verified.hpp"
#include "memsaver/memsaver.hpp"
#include "memsaver/testing/testing.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <filesystem>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace test {

using namespace memsaver;

/// What the model knows does not hold.
struct Broken : std::logic_error {
    using std::logic_error::logic_error;
};
inline void hold(bool condition, const std::string& what) {
    if (!condition) throw Broken{what};
}

/// `Choices` answers `below(end)`: a number from 0 to `end` - 1.
template <class Choices>
class FailingPlayer {
public:
    using Driver = FaultyDriver<HostDriver>;

    explicit FailingPlayer(Choices& choices) : choices_{choices}, saver_{std::in_place, driver_} {
        const std::string directory = std::filesystem::temp_directory_path().string();
        const HostBackup pageable{.storage = Storage::pageable, .retain = false, .threads = 1, .ring_bytes = 4_MiB};
        const FileBackup file{.directory = directory, .threads = 1, .ring_bytes = 4_MiB};
        add("poison", Discard{.poison = static_cast<unsigned char>(0xDD)}, Content::lost);
        add("zero", Zero{}, Content::zero);
        add("pinned", HostBackup{.threads = 1}, Content::kept);
        add("once", HostBackup{.refresh = Refresh::once, .threads = 1}, Content::kept);
        add("pageable", pageable, Content::kept);
        add("file", file, Content::kept);
        add("verified", Verified<HostBackup>{{.threads = 1}}, Content::kept);
        hold(driver_.open_stream(stream_).ok(), "a stream opens");
    }

    void step() {
        switch (choices_.below(16)) {
        case 0:
        case 1:
        case 2:
        case 3: return allocate();
        case 4:
        case 5: return deallocate();
        case 6:
        case 7: return pause();
        case 8:
        case 9:
        case 10: return resume();
        case 11: return trim();
        case 12: return rewrite();
        case 13: return prepare();
        case 14: return look();
        default: return check_all();
        }
    }

    /// Everything that the model knows holds.
    void check_all() {
        std::size_t mapped = 0;
        for (const ArenaUsage& row : saver_->usage()) {
            mapped += row.mapped_bytes;
            std::size_t live = 0;
            bool away = false;
            for (const auto& [address, block] : blocks_) {
                if (tags_[block.tag].name != row.tag) continue;
                live += block.bytes;
                away = away || block.paused;
            }
            hold(row.used_bytes == live, "used bytes are those of the live blocks of " + row.tag);
            hold(!away || row.paused_bytes != 0, "what is away is shown as away in " + row.tag);
        }
        hold(mapped == driver_.handle_bytes(), "mapped bytes are those of the handles");
        for (const auto& [address, block] : blocks_) check_bytes(address, block);
        for (const std::string& text : driver_.violations()) hold(false, text);
        for (const std::string& text : driver_.inner().violations()) hold(false, text);
    }

    /// Everything goes back.
    void end() {
        repeat([&] { (void)saver_->resume(); });
        for (auto& [address, block] : blocks_) came_back(block);
        check_all();
        while (!blocks_.empty()) {
            saver_->deallocate(pointer(blocks_.begin()->first), already_idle);
            blocks_.erase(blocks_.begin());
        }
        (void)saver_->trim();
        hold(driver_.handle_bytes() == 0, "a trim gives everything back");
        saver_->close();
        saver_.reset();
        hold(driver_.close_stream(stream_).ok(), "a stream closes");
        hold(driver_.inner().counts().held_bytes == 0, "no memory is held after the end");
        // What failed to close in a destructor is the driver's: nobody can close it twice.
        Outstanding left = driver_.outstanding();
        hold(left.events + left.streams + left.files + left.host_pages + left.pins <= 2 * driver_.injected(),
             "nothing leaks but what could not be closed: " + driver_.leaks());
        left.events = left.streams = left.files = left.host_pages = left.pins = 0;
        hold(left == Outstanding{}, "nothing leaks: " + driver_.leaks());
    }

    [[nodiscard]] std::uint64_t injected() const { return driver_.injected(); }

private:
    enum class Content : unsigned char { kept, zero, lost };
    struct Tag {
        std::string name;
        Content becomes; ///< what a pause leaves of the bytes
    };
    struct LiveOne {
        std::size_t tag = 0;
        std::size_t bytes = 0;
        std::uint64_t seed = 0; ///< of its pattern
        Content content = Content::kept;
        bool paused = false;
        bool by_lost = false; ///< paused by a policy, for this once, that drops bytes
    };
    using Blocks = std::map<Address, LiveOne>;

    template <class Policy>
    void add(const char* name, Policy policy, Content becomes) {
        (void)saver_->arena(name, std::move(policy));
        tags_.push_back({name, becomes});
    }
    static unsigned char* pointer(Address address) { return reinterpret_cast<unsigned char*>(address); }

    /// Runs `act`, perhaps with a failure planned; answers whether it succeeded. Only failures make it throw.
    template <class Act>
    bool attempt(Act&& act) {
        const bool failing = choices_.below(3) == 0;
        const std::uint64_t before = driver_.injected();
        if (failing) {
            constexpr StatusKind kinds[] = {StatusKind::other, StatusKind::out_of_memory,
                                            StatusKind::out_of_host_memory};
            driver_.fail({.nth = 1 + choices_.below(24),
                          .lasting = choices_.below(2) == 0 ? Lasting::once : Lasting::onwards,
                          .kind = kinds[choices_.below(3)]});
        }
        try {
            act();
            driver_.heal();
            return true;
        } catch (const Misuse& error) {
            throw Broken{std::string{"a misuse that was none: "} + error.what()};
        } catch (const Error& error) {
            driver_.heal();
            hold(driver_.injected() != before, std::string{"failed although no call did: "} + error.what());
            return false;
        }
    }
    /// Runs `act` until it succeeds: once failures stop, it goes on where it stopped.
    template <class Act>
    static void repeat(Act&& act) {
        try {
            act();
        } catch (const Error& error) {
            throw Broken{std::string{"failed although failures have stopped: "} + error.what()};
        }
    }

    void allocate() {
        constexpr std::size_t sizes[] = {1, 256, 6912, 100'000, 1_MiB, 2_MiB + 1, 5_MiB};
        LiveOne block;
        block.tag = choices_.below(tags_.size());
        block.bytes = sizes[choices_.below(std::size(sizes))];
        if (live_bytes() + block.bytes > 48_MiB) return;
        const std::size_t alignment = choices_.below(4) == 0 ? 4096 : 256;
        void* memory = nullptr;
        const auto act = [&] { memory = saver_->arena(tags_[block.tag].name).allocate(block.bytes, alignment); };
        if (!attempt(act)) {
            if (choices_.below(2) == 0) return;
            repeat(act);
        }
        const auto address = reinterpret_cast<Address>(memory);
        hold(address % alignment == 0, "blocks are aligned");
        const auto after = blocks_.lower_bound(address);
        hold(after == blocks_.end() || address + block.bytes <= after->first, "blocks do not overlap");
        hold(after == blocks_.begin() || std::prev(after)->first + std::prev(after)->second.bytes <= address,
             "blocks do not overlap");
        block.seed = ++seeds_;
        write(address, block);
        blocks_.emplace(address, block);
    }

    void deallocate() {
        const auto block = any();
        if (block == blocks_.end()) return;
        check_bytes(block->first, block->second);
        const std::size_t how = choices_.below(3);
        const auto act = [&] {
            switch (how) {
            case 0: return saver_->deallocate(pointer(block->first));
            case 1: return saver_->deallocate(pointer(block->first), stream_);
            default: return saver_->deallocate(pointer(block->first), already_idle);
            }
        };
        if (!attempt(act)) {
            check_bytes(block->first, block->second); // still the program's
            repeat(act);
        }
        blocks_.erase(block);
    }

    void pause() {
        const std::vector<std::size_t> chosen = some_tags();
        const std::vector<std::string> names = names_of(chosen);
        std::optional<Content> once;
        PauseOptions<Driver> options;
        if (choices_.below(6) == 0) {
            once = Content::lost;
            options.bytes = Discard{};
        }
        const auto act = [&] { (void)saver_->pause(names, options); };
        const bool done = attempt(act);
        const bool again = done || choices_.below(2) == 0;
        if (!done && again) repeat(act);
        for (auto& [address, block] : blocks_) {
            if (block.paused || !contains(chosen, block.tag)) continue;
            const Content becomes = once.value_or(tags_[block.tag].becomes);
            if (again) {
                block.paused = true;
                block.by_lost = becomes == Content::lost;
            } else if (becomes != Content::kept) {
                block.content = Content::lost; // parts of it may be away: unknown until it is written again
            }
        }
        if (again) return;
        repeat([&] { (void)saver_->resume(names); }); // the other way out of a pause that failed
        for (auto& [address, block] : blocks_) {
            if (contains(chosen, block.tag)) came_back(block);
        }
    }

    void resume() {
        const std::vector<std::size_t> chosen = some_tags();
        const std::vector<std::string> names = names_of(chosen);
        const auto act = [&] { (void)saver_->resume(names); };
        if (!attempt(act)) repeat(act);
        for (auto& [address, block] : blocks_) {
            if (!contains(chosen, block.tag)) continue;
            came_back(block);
            check_bytes(address, block);
        }
    }

    void trim() {
        const auto act = [&] { (void)saver_->trim(); };
        if (!attempt(act)) repeat(act);
    }

    /// The program changes bytes, and says so.
    void rewrite() {
        const auto block = any();
        if (block == blocks_.end() || block->second.paused) return;
        block->second.seed = ++seeds_;
        block->second.content = Content::kept;
        write(block->first, block->second);
        const auto act = [&] { saver_->invalidate(tags_[block->second.tag].name); };
        if (!attempt(act)) repeat(act);
    }

    void prepare() {
        const std::string& name = tags_[choices_.below(tags_.size())].name;
        (void)attempt([&] { saver_->prepare(name); });
    }

    /// Kept bytes can be read while they are away.
    void look() {
        const auto block = any();
        if (block == blocks_.end() || !block->second.paused || block->second.by_lost) return;
        if (tags_[block->second.tag].becomes != Content::kept || block->second.content != Content::kept) return;
        BackupView view;
        const auto act = [&] { view = saver_->backup_view(pointer(block->first), block->second.bytes); };
        if (!attempt(act)) repeat(act);
        const auto* bytes = reinterpret_cast<const unsigned char*>(view.data());
        hold(same(bytes, block->second), "a view shows the kept bytes");
    }

    void came_back(LiveOne& block) {
        if (!block.paused) return;
        block.paused = false;
        if (block.by_lost) block.content = Content::lost;
        if (!block.by_lost && tags_[block.tag].becomes == Content::zero) block.content = Content::zero;
        block.by_lost = false;
    }
    void check_bytes(Address address, const LiveOne& block) const {
        if (block.paused || block.content == Content::lost) return;
        if (block.content == Content::kept)
            return hold(same(pointer(address), block), "bytes are as they were written");
        hold(std::all_of(pointer(address), pointer(address) + block.bytes, [](unsigned char b) { return b == 0; }),
             "bytes are zero");
    }
    static unsigned char byte_at(const LiveOne& block, std::size_t i) {
        return static_cast<unsigned char>((block.seed * 131 + i / 256) * 2654435761U >> 24U);
    }
    static void write(Address address, const LiveOne& block) {
        for (std::size_t i = 0; i < block.bytes; i += 256) {
            std::memset(pointer(address) + i, byte_at(block, i), std::min<std::size_t>(256, block.bytes - i));
        }
    }
    static bool same(const unsigned char* bytes, const LiveOne& block) {
        for (std::size_t i = 0; i < block.bytes; i += 256) {
            const unsigned char expected = byte_at(block, i);
            const std::size_t end = std::min<std::size_t>(i + 256, block.bytes);
            if (bytes[i] != expected || bytes[end - 1] != expected) return false;
        }
        return true;
    }

    std::vector<std::size_t> some_tags() {
        if (choices_.below(4) == 0) { // all
            std::vector<std::size_t> all;
            for (std::size_t i = 0; i < tags_.size(); ++i) all.push_back(i);
            return all;
        }
        std::vector<std::size_t> chosen{choices_.below(tags_.size())};
        if (choices_.below(3) == 0) chosen.push_back(choices_.below(tags_.size()));
        return chosen;
    }
    [[nodiscard]] std::vector<std::string> names_of(const std::vector<std::size_t>& chosen) const {
        std::vector<std::string> names;
        for (const std::size_t i : chosen) names.push_back(tags_[i].name);
        return names;
    }
    static bool contains(const std::vector<std::size_t>& chosen, std::size_t tag) {
        return std::find(chosen.begin(), chosen.end(), tag) != chosen.end();
    }
    typename Blocks::iterator any() {
        if (blocks_.empty()) return blocks_.end();
        return std::next(blocks_.begin(), static_cast<std::ptrdiff_t>(choices_.below(blocks_.size())));
    }
    [[nodiscard]] std::size_t live_bytes() const {
        std::size_t sum = 0;
        for (const auto& [address, block] : blocks_) sum += block.bytes;
        return sum;
    }

    Choices& choices_;
    Driver driver_{HostDriver{256_MiB, {.poison = true}}};
    std::optional<MemorySaver<Driver>> saver_;
    StreamRef stream_;
    std::vector<Tag> tags_;
    Blocks blocks_;
    std::uint64_t seeds_ = 0;
};

} // namespace test
