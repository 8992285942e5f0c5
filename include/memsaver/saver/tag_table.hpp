// The tags of a saver by name, each with its policy and its arenas. Does not pause or resume them.
#pragma once

#include "memsaver/arena/arena_core.hpp"
#include "memsaver/core/tags.hpp"
#include "memsaver/driver/host_memory.hpp"
#include "memsaver/saver/directory.hpp"
#include "memsaver/saver/options.hpp"
#include "memsaver/saver/plain_arena.hpp"
#include "memsaver/saver/residents.hpp"

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace memsaver::inline v0_2 {

namespace detail {

/// A tag on a device that is wanted.
struct WantedTag {
    std::string_view tag;
    std::optional<AnyPolicy> policy{};        ///< none: the tag's own, or that of new tags
    std::optional<AnyDriver> driver{};        ///< none: the saver's
    std::optional<ArenaOptions> options{};    ///< none: whatever it has
    std::optional<AnyPolicy> of_new_graphs{}; ///< what a new tag has if nobody said what it should be
};

/// Thread safe; its lock is held for a look only. What it answers is in shared hands: tags may be dropped meanwhile.
class TagTable {
public:
    /// One tag on one device.
    struct Member {
        std::uint64_t serial; ///< in the order in which they were made
        std::string tag;
        AnyDriver driver;
        AnyPolicy policy;
        std::shared_ptr<ArenaBase> arena;
        ArenaCore* core;   ///< the same; null when switched off
        PlainArena* plain; ///< the same; null when switched on
        ArenaOptions options;
        bool own_margin;                      ///< not the saver's
        std::shared_ptr<Resident> resident{}; ///< the tag's, from when it can be seen
    };
    using Members = std::vector<std::shared_ptr<Member>>;

    TagTable(AnyDriver driver, SaverOptions options);

    TagTable(const TagTable&) = delete;
    TagTable& operator=(const TagTable&) = delete;
    ~TagTable() = default;

    /// What is wanted, made if there is none. `made(core)` is called for a new one before anybody sees it; where it
    /// throws, nothing is left. Waits while another thread makes the same tag.
    std::shared_ptr<Member> get(const WantedTag& wanted, const std::function<void(ArenaCore&)>& made);

    /// Plain memory of the saver's own device.
    [[nodiscard]] std::shared_ptr<ArenaBase> outside();
    [[nodiscard]] ArenaUsage outside_usage() { return outside_->usage(); }

    /// A graph is gone. Needs no memory; no lock is held while an arena is told.
    void let_go(std::uint64_t graph) noexcept;

    /// The arena that has a pointer, or null.
    [[nodiscard]] std::shared_ptr<ArenaBase> find(const void* pointer) const noexcept {
        return directory_.find(reinterpret_cast<Address>(pointer));
    }

    /// Throws Misuse, beginning with `what`, after `close`, and for a name that no tag has; it says which are near.
    void require(const char* what, const Tags& tags);
    /// The names of these tags, each once, in the order in which they were made.
    [[nodiscard]] std::vector<std::string> names(const Tags& tags);
    /// Their arenas, each once: in the caller's order of names, otherwise as they were made. Of lists that nobody wrote
    /// down, those are left out that hold nothing, or that `of_interest`, if there is one, says no to. A tag that has
    /// been dropped meanwhile has none.
    [[nodiscard]] Members members(const Tags& tags, bool (*of_interest)(Member&) = nullptr);
    /// Whether nothing of a tag is away. True of one that has been dropped.
    [[nodiscard]] bool all_there(const std::string& tag) noexcept;
    /// Whether any of it is mapped and in use.
    [[nodiscard]] bool any_there(const std::string& tag) noexcept;
    /// To be called once an arena may hold memory; costs a load for one that is known to.
    void note_use(const ArenaBase& arena) noexcept {
        if (!arena.listed.load()) list(arena);
    }
    /// Who uses these tags, each once. Throws as `require`.
    [[nodiscard]] ResidentList residents(const char* what, const Tags& tags);
    /// The books of that.
    [[nodiscard]] Residents& residents() noexcept { return residents_; }
    /// Of an arena's tag; null where it has been dropped.
    [[nodiscard]] std::shared_ptr<Resident> resident_of(const ArenaBase& arena);
    /// Forgets an arena: the tag is unknown again once it has none.
    void remove(const Member& member) noexcept;
    /// Forgets where its addresses are, for they may soon be somebody else's.
    void forget_addresses(const Member& member) noexcept { directory_.remove(*member.arena); }

    /// Whether nobody ever said what becomes of the tag's bytes; true once for each tag.
    [[nodiscard]] bool policy_unsaid(const std::string& tag);

    void set_margin(std::size_t bytes);
    /// What a tag's allocations and resumes leave free; of no tag: the saver's.
    [[nodiscard]] std::size_t margin_of(const std::string& tag) noexcept;
    void set_capacity(const Members& members, std::size_t bytes);

    /// The saver's own, and those that its tags live on: one for each device, whatever options others have.
    [[nodiscard]] std::vector<AnyDriver> drivers();
    [[nodiscard]] bool several_devices() const noexcept { return several_devices_.load(std::memory_order_relaxed); }

    /// Throws Misuse, beginning with `what`, after `close`.
    void require_open(const char* what) { require(what, Tags::all()); }

    /// From here on everything but `find` and the lists is Misuse.
    void close();
    [[nodiscard]] Status close_outside() noexcept { return outside_->close(); }

    /// Tags that could not be made, nor given back; `close` of each tries again.
    [[nodiscard]] Members leftovers();
    /// Tries again to give them back, waiting for the device if there are any.
    void retry_leftovers() noexcept;

private:
    struct Tag {
        AnyPolicy policy;
        bool said; ///< the program named the policy, or has been told that it did not
        Members members;
        std::shared_ptr<Resident> resident;
        std::size_t capacity = 0; ///< as set_capacity said last, for arenas to come; 0: none
    };
    struct Making {
        std::thread::id thread;
        std::shared_ptr<Member> member; ///< once it is made
    };

    void list(const ArenaBase& arena) noexcept;

    // With the lock held:

    /// Takes those off the list that hold nothing.
    void clean_list() noexcept;
    [[nodiscard]] Members::iterator member_at(std::uint64_t serial) noexcept;
    void require_open_locked(const std::string& what) const;
    /// That no tag has this name, and which are near.
    [[nodiscard]] std::string unknown_locked(std::string_view name) const;
    /// What is wanted, if it is there; throws Misuse if it cannot be.
    [[nodiscard]] std::shared_ptr<Member> find_locked(const WantedTag& wanted, const AnyDriver& driver);
    void add_locked(const std::shared_ptr<Member>& member, bool said);
    static void set_margin(Member& member, std::size_t bytes);
    static void set_capacity(Member& member, std::size_t bytes);
    /// Throws Misuse for an option that is asked for, and that the tag has not. What is left as it is by default is not
    /// asked for.
    void require_same(const Member& member, const ArenaOptions& asked);
    /// The same for what a tag has on all of its devices alike.
    void require_same(const Resident& resident, const ArenaOptions& asked);

    /// Gives back what making a tag took. Without the lock held.
    void undo(std::shared_ptr<Member> member) noexcept;
    std::shared_ptr<Member> make(const WantedTag& wanted, const AnyDriver& driver, AnyPolicy policy);

    Residents residents_; // whose lock is taken after this one's
    Directory directory_; // declared before the arenas that it knows, so that it dies later
    std::shared_ptr<HostBudget> host_budget_ = std::make_shared<HostBudget>();
    std::mutex mutex_; // guards what follows
    SaverOptions options_;
    bool closed_ = false;
    std::vector<AnyDriver> drivers_;
    std::atomic<bool> several_devices_{false};
    std::map<std::string, Tag, std::less<>> tags_;
    Members members_; // all, as they were made
    Members listed_;  // those that may hold memory, or paused memory; it has room for all
    Members leftovers_;
    std::uint64_t last_serial_ = 0;
    std::map<std::string, Making, std::less<>> making_; // tags that some thread is about to add
    std::condition_variable made_;
    std::shared_ptr<PlainArena> outside_;
};

} // namespace detail

} // namespace memsaver::inline v0_2

#ifndef MEMSAVER_COMPILED
#include "memsaver/saver/tag_table.ipp"
#endif
