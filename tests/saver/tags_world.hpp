// A machine with memory for three tags of 12 MiB that keep their bytes: for uses and evictions.
#pragma once

#include "support/machines.hpp"

namespace test {

inline constexpr std::size_t each = 12_MiB;

struct TagsWorld {
    /// `paused`: tags that there are at first.
    explicit TagsWorld(const std::vector<std::string>& paused, SaverOptions options = {}, std::size_t bytes = 40_MiB)
        : driver{HostDriver{bytes}}, saver{std::in_place, driver, std::move(options)} {
        for (const std::string& name : paused) add(name, HostBackup{.threads = 1});
    }
    ~TagsWorld() {
        saver.reset();
        check_given_back(driver);
    }

    /// Allocates a tag's block and fills it.
    void fill(const std::string& tag, const ArenaOptions& options = {.evictable = true}, std::size_t bytes = each,
              const AnyPolicy& policy = HostBackup{.threads = 1}) {
        blocks[tag] = saver->arena(tag, policy, options).allocate(bytes);
        seeds[tag] = blocks.size();
        write_pattern(driver, blocks[tag], std::min(bytes, each), seeds[tag]);
    }
    void fill(std::initializer_list<const char*> tags) {
        for (const char* tag : tags) fill(tag);
    }
    /// The same, and pauses it.
    void add(const std::string& tag, const AnyPolicy& policy, const ArenaOptions& options = {}) {
        fill(tag, options, each, policy);
        (void)saver->pause(tag, {.order = already_idle});
    }
    void use_each(std::initializer_list<const char*> tags) {
        for (const char* tag : tags) (void)saver->use(tag);
    }

    [[nodiscard]] bool whole(const std::string& tag) { return has_pattern(driver, blocks[tag], each, seeds[tag]); }
    [[nodiscard]] bool here(const std::string& tag) { return row_of(*saver, tag).state == "active"; }
    [[nodiscard]] std::string states(std::initializer_list<const char*> tags) {
        std::string text;
        for (const char* tag : tags) text += here(tag) ? '1' : '0';
        return text;
    }
    [[nodiscard]] ResidencyUsage counts() { return saver->usage().residency(); }
    [[nodiscard]] std::uint64_t evictions() { return counts().evictions; }

    MachineDriver driver;
    std::optional<MemorySaver<MachineDriver>> saver;
    std::map<std::string, void*> blocks;
    std::map<std::string, std::uint64_t> seeds;
};
} // namespace test
