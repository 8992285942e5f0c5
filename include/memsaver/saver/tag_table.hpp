// The arenas of a saver by tag and device. Does not pause or resume them.
#pragma once

#include "memsaver/arena/arena.hpp"
#include "memsaver/arena/tag_names.hpp"
#include "memsaver/driver/system_fork.hpp"
#include "memsaver/saver/directory.hpp"
#include "memsaver/saver/plain_arena.hpp"
#include "memsaver/saver/saver_options.hpp"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace memsaver::inline v0_1 {

/// Arenas are made on demand and live as long as the table. Thread safe.
template <Driver D>
class TagTable {
public:
    using Names = std::vector<std::string>;

    struct Tag {
        std::string name;
        D driver;
        AnyBackup<D> policy;
        ArenaOptions options;
        ArenaBase* arena;
        ArenaCore<D>* core; // null when switched off
    };

    TagTable(D driver, SaverOptions options)
        : options_{std::move(options)}, drivers_{driver}, outside_{std::make_unique<PlainArena<D>>(
                                                              std::move(driver), "outside", options_.events,
                                                              options_.margin)} {}

    TagTable(const TagTable&) = delete;
    TagTable& operator=(const TagTable&) = delete;
    ~TagTable() {
        if (!fork_mark_.forked()) return; // else they are the parent's
        for (auto& core : cores_) (void)core.release();
        for (auto& plain : plain_) (void)plain.release();
        (void)outside_.release();
    }

    /// A tag on a device, made if there is none, and not told to take its reserve so far. No policy: the tag's own, or
    /// that of new tags, which is Discard if not said otherwise.
    const Tag& tag_on(std::string_view tag, const std::optional<AnyBackup<D>>& policy, const D& driver,
                      const std::optional<ArenaOptions>& options, const std::optional<AnyBackup<D>>& of_new_tags) {
        fork_mark_.require_parent("use the saver");
        const std::lock_guard lock{mutex_};
        require_open("arena", {std::string{tag}});
        if (tag.empty()) throw Misuse{"tag \"\": a tag needs a name"};
        const Tag* known = nullptr;
        for (const Tag& entry : tags_) {
            if (entry.name != tag) continue;
            known = &entry;
            if (policy && !(*policy == entry.policy)) {
                throw Misuse{"tag \"" + entry.name + "\" has the policy \"" + std::string{entry.policy.name()} +
                             "\" already; it cannot also have \"" + std::string{policy->name()} +
                             "\" (or other options of it)"};
            }
            if (entry.driver.device() != driver.device()) continue;
            if (!(entry.driver == driver)) {
                throw Misuse{"tag \"" + entry.name + "\" lives on " + entry.driver.name() +
                             " with other options already"};
            }
            if (options) require_same(entry, *options);
            return entry;
        }
        return make_tag(tag,
                        policy             ? *policy
                        : known != nullptr ? known->policy
                        : of_new_tags      ? *of_new_tags
                                           : AnyBackup<D>{Discard{}},
                        driver, options.value_or(ArenaOptions{}));
    }

    [[nodiscard]] bool forked() const noexcept { return fork_mark_.forked(); }

    /// Plain memory of the saver's own device.
    PlainArena<D>& outside() {
        fork_mark_.require_parent("use the saver");
        const std::lock_guard lock{mutex_};
        require_open("outside", {});
        return *outside_;
    }

    /// A graph is gone. Needs no memory; no lock is held while an arena is told.
    void let_go(std::uint64_t graph) noexcept {
        if (fork_mark_.forked()) return;
        for (std::size_t i = 0;; ++i) {
            ArenaBase* arena = nullptr;
            {
                const std::lock_guard lock{mutex_};
                if (i < tags_.size()) arena = tags_[i].arena;
            }
            if (arena == nullptr) break;
            arena->let_go(graph);
        }
        outside_->let_go(graph);
    }

    [[nodiscard]] ArenaUsage outside_usage() { return outside_->usage(); }

    /// The arena that has a pointer, or null.
    [[nodiscard]] ArenaBase* find(const void* pointer) {
        if (ArenaBase* arena = directory_.find(reinterpret_cast<Address>(pointer))) return arena;
        for (PlainArena<D>* const plain : plain_arenas()) {
            if (plain->contains(pointer)) return plain;
        }
        return nullptr;
    }

    /// The arenas of these tags, each once, in the order in which they were made; throws Misuse, beginning with `what`,
    /// for an unknown tag.
    std::vector<ArenaCore<D>*> select(const char* what, const Names& tags, Names& names) {
        fork_mark_.require_parent(what);
        const std::lock_guard lock{mutex_};
        require_open(what, tags);
        for (const std::string& tag : tags) {
            if (std::none_of(tags_.begin(), tags_.end(), [&](const Tag& entry) { return entry.name == tag; })) {
                throw Misuse{std::string{what} + ": unknown tag \"" + tag + '"'};
            }
        }
        std::vector<ArenaCore<D>*> cores;
        for (const Tag& entry : tags_) {
            if (!tags.empty() && std::find(tags.begin(), tags.end(), entry.name) == tags.end()) continue;
            if (entry.core != nullptr) cores.push_back(entry.core);
            if (std::find(names.begin(), names.end(), entry.name) == names.end()) names.push_back(entry.name);
        }
        return cores;
    }
    /// The saver's own, and those that its tags live on: one for each device, whatever options others have.
    [[nodiscard]] std::vector<D> drivers() {
        fork_mark_.require_parent("use the saver");
        const std::lock_guard lock{mutex_};
        return drivers_;
    }
    [[nodiscard]] bool several_devices() const noexcept { return several_devices_.load(); }

    [[nodiscard]] std::vector<Tag> snapshot() {
        fork_mark_.require_parent("use the saver");
        const std::lock_guard lock{mutex_};
        return {tags_.begin(), tags_.end()};
    }
    [[nodiscard]] std::vector<PlainArena<D>*> plain_arenas() {
        fork_mark_.require_parent("use the saver");
        const std::lock_guard lock{mutex_};
        std::vector<PlainArena<D>*> all;
        for (const auto& plain : plain_) all.push_back(plain.get());
        all.push_back(outside_.get());
        return all;
    }

    /// The shared blocks behind what is paused: a row for each device that has any.
    [[nodiscard]] std::vector<ArenaUsage> quarantine_usage() {
        const std::lock_guard lock{mutex_};
        std::vector<ArenaUsage> rows;
        for (const auto& blocks : quarantines_) {
            ArenaUsage row;
            row.tag = "quarantine";
            row.device = blocks->driver().device();
            row.policy = "shared, read-only";
            row.state = "active";
            row.mapped_bytes = blocks->bytes();
            if (row.mapped_bytes != 0) rows.push_back(std::move(row));
        }
        return rows;
    }

    /// Throws Misuse, beginning with `what`, after `close`.
    void require_open(const char* what) {
        fork_mark_.require_parent(what);
        const std::lock_guard lock{mutex_};
        require_open(what, {});
    }

    /// From here on everything but `find` and the lists is Misuse.
    void close() {
        fork_mark_.require_parent("use the saver");
        const std::lock_guard lock{mutex_};
        closed_ = true;
    }

private:
    /// With the lock held.
    void require_open(const char* what, const Names& tags) const {
        if (!closed_) return;
        throw Misuse{what + (tags.empty() ? "" : " of " + quoted_tags(tags)) + ": the saver has been closed"};
    }
    /// Throws Misuse for an option that is asked for, and that the tag has not. What is left as it is by default is not
    /// asked for.
    static void require_same(const Tag& entry, const ArenaOptions& asked) {
        const auto refuse = [&](const std::string& why) {
            throw Misuse{"tag \"" + entry.name + "\" exists already, " + why};
        };
        const auto compare = [&](const char* what, std::size_t has, std::size_t wanted, const char* has_if_0) {
            if (wanted == 0 || wanted == has) return;
            refuse(std::string{"with another "} + what + ": " + (has == 0 ? has_if_0 : format_bytes(has)) + ", not " +
                   format_bytes(wanted));
        };
        compare("capacity", entry.options.capacity, asked.capacity, "twice the device's memory");
        compare("reserve", entry.options.reserve, asked.reserve, "none");
        compare("margin", entry.options.margin, asked.margin, "none");
        if (asked.events) refuse("and an event sink can be named only when it is made"); // two cannot be compared
        if (asked.host_budget && asked.host_budget != entry.options.host_budget) refuse("with another host budget");
    }

    const Tag& make_tag(std::string_view tag, AnyBackup<D> policy, const D& driver, ArenaOptions options) {
        if (options.margin == 0) options.margin = options_.margin;
        if (!options.events) options.events = options_.events;
        if (!options.host_budget) options.host_budget = host_budget_;
        Tag entry{std::string{tag}, driver, std::move(policy), options, nullptr, nullptr};
        drivers_.reserve(drivers_.size() + 1);
        if (options_.enabled) {
            auto core =
                std::make_unique<ArenaCore<D>>(driver, entry.name, entry.policy, options, quarantine_on(driver));
            entry.arena = entry.core = core.get();
            cores_.reserve(cores_.size() + 1); // what the directory names must not die
            tags_.push_back(std::move(entry)); // later entries do not move it
            try {
                directory_.add(core->addresses(), *core);
            } catch (...) {
                tags_.pop_back();
                throw;
            }
            cores_.push_back(std::move(core));
        } else {
            auto plain = std::make_unique<PlainArena<D>>(driver, entry.name, options.events, options.margin);
            entry.arena = plain.get();
            plain_.reserve(plain_.size() + 1);
            tags_.push_back(std::move(entry));
            plain_.push_back(std::move(plain));
        }
        const auto same = [&](const D& known) { return known.device() == driver.device(); };
        if (std::none_of(drivers_.begin(), drivers_.end(), same)) drivers_.push_back(driver);
        several_devices_.store(drivers_.size() > 1);
        return tags_.back();
    }

    std::shared_ptr<QuarantineBlocks<D>> quarantine_on(const D& driver) {
        if (!options_.quarantine) return {};
        for (const auto& blocks : quarantines_) {
            if (blocks->driver().device() == driver.device()) return blocks;
        }
        quarantines_.push_back(std::make_shared<QuarantineBlocks<D>>(driver, *options_.quarantine));
        return quarantines_.back();
    }

    SaverOptions options_;
    std::shared_ptr<HostBudget> host_budget_ = std::make_shared<HostBudget>();
    ForkMark fork_mark_; // asked before any lock
    Directory directory_;
    std::mutex mutex_; // guards what follows
    bool closed_ = false;
    std::vector<D> drivers_;
    std::atomic<bool> several_devices_{false};
    std::deque<Tag> tags_;
    std::vector<std::shared_ptr<QuarantineBlocks<D>>> quarantines_; // one for each device
    std::vector<std::unique_ptr<ArenaCore<D>>> cores_;
    std::vector<std::unique_ptr<PlainArena<D>>> plain_;
    std::unique_ptr<PlainArena<D>> outside_;
};

} // namespace memsaver::inline v0_1
