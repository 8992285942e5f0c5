// The tags of a saver by name, each with its policy and its arenas. Does not pause or resume them.
#pragma once

#include "memsaver/arena/arena_core.hpp"
#include "memsaver/core/function_ref.hpp"
#include "memsaver/core/tags.hpp"
#include "memsaver/driver/host_cells.hpp"
#include "memsaver/saver/directory.hpp"
#include "memsaver/saver/options.hpp"
#include "memsaver/saver/plain_memory.hpp"
#include "memsaver/saver/residents.hpp"

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace memsaver::inline v0_3 {

namespace detail {

/// A request for a tag on a device.
struct WantedTag {
    std::string_view tag;
    std::optional<AnyPolicy> policy{};        ///< empty: the tag's policy, or the default for new tags
    std::optional<AnyDriver> driver{};        ///< empty: the saver's
    std::optional<ArenaOptions> options{};    ///< empty: any options match
    std::optional<AnyPolicy> of_new_graphs{}; ///< the policy of a new tag if nothing else specifies one
};

/// Thread-safe; its lock is held only briefly. Results are shared pointers: tags may be dropped meanwhile.
class TagTable {
public:
    /// One tag on one device.
    struct Member {
        std::uint64_t serial; ///< increases in the order in which members were made
        std::string tag;
        AnyDriver driver;
        AnyPolicy policy;
        std::shared_ptr<ArenaCore> arena;
        std::shared_ptr<Resident> resident{}; ///< the tag's; set when the member is added
        std::atomic<bool> unended{false};     ///< it is closed, and ending it failed: `retry_ends` tries again
    };
    using Members = std::vector<std::shared_ptr<Member>>;

    /// Both must outlive it.
    TagTable(const AnyDriver& driver, const SaverOptions& options) noexcept
        : driver_{driver}, options_{options}, margin_{options.margin} {}

    TagTable(const TagTable&) = delete;
    TagTable& operator=(const TagTable&) = delete;
    ~TagTable() = default;

    /// Returns the requested member; makes it if it does not exist. For a new one, calls `made(core)`; if that throws,
    /// ends it again. Other threads that want it wait meanwhile.
    std::shared_ptr<Member> get(const WantedTag& wanted, FunctionRef<void(ArenaCore&)> made);

    /// Returns the arena for plain memory on the saver's device.
    [[nodiscard]] std::shared_ptr<ArenaCore> outside();
    /// Returns the same arena if somebody asked for it, or null.
    [[nodiscard]] std::shared_ptr<ArenaCore> known_outside();
    /// Returns the owner of an arena of this saver.
    [[nodiscard]] std::shared_ptr<ArenaCore> owner_of(ArenaCore& arena);
    [[nodiscard]] Directory& directory() noexcept { return directory_; }

    /// Returns the arena that contains a pointer, or null.
    [[nodiscard]] std::shared_ptr<ArenaCore> find(const void* pointer) const noexcept {
        return directory_.find(reinterpret_cast<Address>(pointer));
    }

    /// Throws Misuse, beginning with `what`, after `close`, and for an unknown name; the message suggests similar
    /// names.
    void require(const char* what, const Tags& tags);
    /// Returns the names of these tags, each once, in the order in which the tags were made.
    [[nodiscard]] std::vector<std::string> names(const Tags& tags);
    /// Returns the arenas of these tags, each once: in the caller's order if tags were named, otherwise in the order in
    /// which they were made. A tag dropped in the meantime has none.
    [[nodiscard]] Members members(const Tags& tags);
    /// Returns whether no memory of a tag is paused. True for a dropped tag.
    [[nodiscard]] bool all_resident(const std::string& tag) noexcept;
    /// Returns whether any memory of the tag is active.
    [[nodiscard]] bool any_resident(const std::string& tag) noexcept;
    /// Returns the residency records of these tags, each once, in the order of `members`. Throws as `require` does.
    [[nodiscard]] ResidentList residents(const char* what, const Tags& tags);
    [[nodiscard]] static ResidentList residents_of(const Members& members);
    /// Returns the residency bookkeeping of all tags.
    [[nodiscard]] Residents& residents() noexcept { return residents_; }
    [[nodiscard]] std::size_t host_bytes() const noexcept { return host_budget_->taken_bytes(); }
    /// Returns the residency record of an arena's tag; null if the tag was dropped.
    [[nodiscard]] std::shared_ptr<Resident> resident_of(const ArenaCore& arena);
    /// Closes an arena, calls `closed()`, and removes the member; when a tag's last arena is removed, its name becomes
    /// unknown. If anything throws, the member stays: the next call retries.
    void end(const std::shared_ptr<Member>& member, FunctionRef<void()> closed);
    /// Retries that for members that could not be ended. Returns the physical bytes released, of all devices or of one.
    std::size_t retry_ends(std::optional<int> device = {}) noexcept;

    /// Returns whether the program never named a policy for the tag; true at most once per tag.
    [[nodiscard]] bool policy_unsaid(const std::string& tag);

    void set_margin(std::size_t bytes);
    /// Returns the bytes that a tag's allocations and resumes leave free; for an unknown tag, the saver's margin.
    [[nodiscard]] std::size_t margin_of(const std::string& tag) noexcept;
    void set_capacity(const Members& members, std::size_t bytes);

    /// Returns the saver's driver and those of its tags, one per device, whatever options others have.
    [[nodiscard]] std::vector<AnyDriver> drivers();
    [[nodiscard]] bool several_devices() const noexcept { return several_devices_.load(std::memory_order_relaxed); }

    /// Throws Misuse, beginning with `what`, after `close`.
    void require_open(const char* what) { require(what, Tags::all()); }

    /// Closes the table: afterwards everything except `find` and the lists throws Misuse.
    void close();

private:
    struct Tag {
        std::string name;
        AnyPolicy policy;
        bool said; ///< the program named the policy, or was warned that it did not
        std::shared_ptr<Resident> resident;
        Members members{};
        std::size_t capacity = 0; ///< last value of set_capacity, for arenas made later; 0: none
        std::thread::id maker{};  ///< the thread that makes a member of it; it may have none yet
        int making = 0;           ///< that member's device
    };
    [[nodiscard]] bool enabled() const noexcept { return options_.enabled; } // never changes

    // Called with the lock held:

    /// Returns the place of a name in the list of tags.
    [[nodiscard]] std::size_t place_of(std::string_view name) const noexcept;
    /// Returns the tag, or null.
    [[nodiscard]] Tag* tag_named(std::string_view name) const noexcept;
    /// Forgets a tag that has no members and no maker.
    void forget_unused(Tag& tag) noexcept;
    void require_locked(const char* what, const Tags& tags) const;
    [[nodiscard]] Members members_locked(const Tags& tags) const;
    [[nodiscard]] Members::iterator member_at(std::uint64_t serial) noexcept;
    void look_for_devices() noexcept;
    [[noreturn, gnu::cold]] static void refuse_closed(Bits what);
    /// Returns the message for an unknown tag, with similar names.
    [[nodiscard]] std::string unknown_locked(std::string_view name) const;
    /// Returns the requested member if it exists; throws Misuse if the request conflicts with the tag.
    [[nodiscard]] std::shared_ptr<Member> find_locked(const WantedTag& wanted, const AnyDriver& driver);
    /// Returns the policy of a new member. Throws Misuse if the program must say one.
    [[nodiscard]] AnyPolicy policy_locked(const WantedTag& wanted) const;
    /// Waits until no other thread makes the tag, or until it has a member on this device that is not the one being
    /// made.
    void await_maker(std::unique_lock<std::mutex>& lock, std::string_view tag, int device);
    void add(const std::shared_ptr<Member>& member, Tag& tag);
    void remove(const Member& member) noexcept;
    /// Sets the saver's margin, unless the arena was made with one of its own.
    static void set_margin(const Member& member, std::size_t bytes) noexcept;
    /// Throws Misuse for a requested option that differs from the tag's. Options with default values are not considered
    /// requested. `member`: the one on the wanted device, or null: then only the options that apply to all devices.
    void require_same(const Resident& resident, const Member* member, const ArenaOptions& asked);

    [[nodiscard]] std::shared_ptr<ArenaCore> make_arena(const std::string& tag, const AnyDriver& driver,
                                                        AnyPolicy policy, const ArenaOptions& options);
    std::shared_ptr<Member> make(const WantedTag& wanted, const AnyDriver& driver, AnyPolicy policy);

    Residents residents_; // its lock is taken after this table's
    Directory directory_; // declared before the arenas that it refers to, so that it is destroyed later
    std::shared_ptr<HostBudget> host_budget_ = std::make_shared<HostBudget>();
    const AnyDriver& driver_;
    const SaverOptions& options_;
    std::mutex mutex_; // guards the members below
    std::size_t margin_;
    bool closed_ = false;
    std::atomic<int> unended_{0}; ///< members that `retry_ends` tries again
    std::atomic<bool> several_devices_{false};
    std::vector<std::unique_ptr<Tag>> tags_; // by name
    Members members_;                        // all, in the order in which they were made
    std::uint64_t last_serial_ = 0;
    std::condition_variable made_;       // a tag has no maker any more
    std::shared_ptr<ArenaCore> outside_; // made by the first call of `outside`
};

} // namespace detail

} // namespace memsaver::inline v0_3

#ifndef MEMSAVER_COMPILED
#include "memsaver/saver/tag_table.ipp"
#endif
