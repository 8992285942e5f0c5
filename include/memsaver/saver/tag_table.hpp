// The tags of a saver by name, each with its policy and its arenas. Does not pause or resume them.
#pragma once

#include "memsaver/arena/arena.hpp"
#include "memsaver/backup/discard.hpp"
#include "memsaver/core/function_ref.hpp"
#include "memsaver/core/lists.hpp"
#include "memsaver/core/pointers.hpp"
#include "memsaver/core/ranges.hpp"
#include "memsaver/core/tags.hpp"
#include "memsaver/core/vector.hpp"
#include "memsaver/driver/host_cells.hpp"
#include "memsaver/saver/directory.hpp"
#include "memsaver/saver/options.hpp"
#include "memsaver/saver/plain_memory.hpp"
#include "memsaver/saver/residents.hpp"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace memsaver::inline v0_3::detail {

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
        std::shared_ptr<Resident> resident{}; ///< the tag's; set when the member is added; null outside of every tag
        std::atomic<bool> unended{false};     ///< it is closed, and ending it failed: `retry_ends` tries again
    };
    using Members = Vector<std::shared_ptr<Member>>;

    /// Both must outlive it.
    TagTable(const AnyDriver& driver, const SaverOptions& options)
        : driver_{driver}, options_{options}, margin_{options.margin} {}

    /// Returns the requested member; makes it if it does not exist. For a new one, calls `made(core)`; if that throws,
    /// ends it again. Other threads that want it wait meanwhile.
    std::shared_ptr<Member> get(const WantedTag& wanted, FunctionRef<void(ArenaCore&)> made) {
        retry_ends();
        std::shared_ptr<Member> member; // destroyed without the lock, if it cannot be added
        std::exception_ptr failure;
        std::unique_lock lock{mutex_};
        const AnyDriver& driver = wanted.driver ? *wanted.driver : driver_;
        await_maker(lock, wanted.tag, driver.device());
        if (auto known = find_locked(wanted, driver)) return known;
        AnyPolicy policy = policy_locked(wanted);
        Tag* tag = tag_named(wanted.tag);
        if (tag == nullptr) {
            const bool said = wanted.policy || wanted.of_new_graphs || options_.default_policy;
            auto fresh = UniquePtr<Tag>::make(Tag{std::string{wanted.tag}, policy, said, new_shared<Resident>()});
            tag = fresh.get();
            tags_.insert(tags_.begin() + static_cast<std::ptrdiff_t>(place_of(wanted.tag)), std::move(fresh));
        }
        tag->maker = std::this_thread::get_id(); // so it stays
        tag->making = driver.device();
        lock.unlock(); // opening a policy and reserving memory takes time
        try {
            member = make(wanted, driver, std::move(policy));
            add(member, *tag);
            if (enabled()) made(*member->arena);
        } catch (...) {
            failure = std::current_exception();
            try {
                if (member != nullptr && member->serial != 0) end(member, [] {});
            } catch (const std::exception&) { // it stays, as after a drop that failed
                if (!member->arena->closed()) residents_.set_dropped(*member->arena, false);
            }
        }
        lock.lock();
        tag->maker = {};
        forget_unused(*tag);
        made_.notify_all();
        if (failure) std::rethrow_exception(failure);
        return member;
    }

    /// Returns the arena for plain memory on the saver's device.
    [[nodiscard]] std::shared_ptr<ArenaCore> outside() {
        const std::lock_guard lock{mutex_};
        if (closed_) refuse_closed({"outside"});
        if (outside_ == nullptr) {
            ArenaOptions options;
            options.margin = margin_;
            options.events = options_.events;
            const AnyPolicy none{Discard{}};
            std::shared_ptr<ArenaCore> arena = make_arena("outside", driver_, none, options);
            outside_.reset(new Member{0, arena->tag(), driver_, none, std::move(arena)});
        }
        return outside_->arena;
    }
    [[nodiscard]] Directory& directory() noexcept { return directory_; }

    /// Returns the arena that contains a pointer, or null.
    [[nodiscard]] std::shared_ptr<ArenaCore> find(const void* pointer) const noexcept {
        return directory_.find(reinterpret_cast<Address>(pointer));
    }

    /// Throws Misuse, beginning with `what`, after `close`, and for an unknown name; the message suggests similar
    /// names.
    void require(const char* what, const Tags& tags) {
        const std::lock_guard lock{mutex_};
        require_locked(what, tags);
    }
    /// Returns the names of these tags, each once, in the order in which the tags were made.
    [[nodiscard]] std::vector<std::string> names(const Tags& tags) {
        ResidentList residents = residents_of(members(tags));
        sort_by(residents, [](const auto& resident) { return resident->serial; });
        std::vector<std::string> all;
        for (const auto& resident : residents) all.push_back(resident->tag);
        return all;
    }
    /// Returns the arenas of these tags, each once: in the caller's order if tags were named, otherwise in the order in
    /// which they were made. A tag dropped in the meantime has none. `outside`: of all, also that of plain memory
    /// outside of every tag, if somebody asked for it: it may have elastic memory.
    [[nodiscard]] Members members(const Tags& tags, bool outside = false) {
        const std::lock_guard lock{mutex_};
        Members members = members_locked(tags);
        if (outside && tags.kind() == Tags::Kind::all && outside_ != nullptr) members.push_back(outside_);
        return members;
    }
    /// Returns whether no memory of a tag is paused. True for a dropped tag.
    [[nodiscard]] bool all_resident(const std::string& tag) noexcept {
        const std::lock_guard lock{mutex_};
        const Tag* const found = tag_named(tag);
        return found == nullptr ||
               all_in(found->members, [](const auto& member) { return member->arena->all_resident(); });
    }
    /// Returns whether any memory of the tag is active.
    [[nodiscard]] bool any_resident(const std::string& tag) noexcept {
        const std::lock_guard lock{mutex_};
        const Tag* const found = tag_named(tag);
        return found != nullptr &&
               any_in(found->members, [](const auto& member) { return member->arena->any_resident(); });
    }
    /// Returns the residency records of these tags, each once, in the order of `members`. Throws as `require` does.
    [[nodiscard]] ResidentList residents(const char* what, const Tags& tags) {
        const std::lock_guard lock{mutex_};
        require_locked(what, tags);
        return residents_of(members_locked(tags));
    }
    [[nodiscard]] static ResidentList residents_of(const Members& members) {
        ResidentList all;
        Vector<const void*> seen;
        for (const auto& member : members) {
            if (add_once(seen, member->resident.get())) all.push_back(member->resident);
        }
        return all;
    }
    /// Returns the residency bookkeeping of all tags.
    [[nodiscard]] Residents& residents() noexcept { return residents_; }
    [[nodiscard]] std::size_t host_bytes() const noexcept { return host_budget_->taken_bytes(); }
    /// Returns the residency record of an arena's tag; null if the tag was dropped.
    [[nodiscard]] std::shared_ptr<Resident> resident_of(const ArenaCore& arena) {
        const std::lock_guard lock{mutex_};
        const auto member = member_at(arena.arena_serial);
        if (member == members_.end() || (*member)->arena.get() != &arena) return nullptr;
        return (*member)->resident;
    }
    /// Closes an arena, calls `closed()`, and removes the member; when a tag's last arena is removed, its name becomes
    /// unknown. If anything throws, the member stays: the next call retries.
    void end(const std::shared_ptr<Member>& member, FunctionRef<void()> closed) {
        ArenaCore& arena = *member->arena;
        arena.dropped.store(true); // threads waiting for its turn then have nothing to do
        try {
            arena.close([&] { directory_.remove(arena); }); // its addresses may soon be reused
            if (enabled() && !arena.idle_for_pause()) {
                throw DeviceLost{"drop: the device is lost, and the tag's memory on it cannot be released",
                                 {StatusKind::gone, 0, "lost"}};
            }
            closed();
        } catch (...) {
            if (arena.closed() && !member->unended.exchange(true)) ++unended_;
            throw;
        }
        if (member->unended.exchange(false)) --unended_;
        remove(*member);
    }
    /// Retries that for members that could not be ended. Returns the physical bytes released, of all devices or of one.
    std::size_t retry_ends(std::optional<int> device = {}) noexcept {
        std::size_t released = 0;
        if (!enabled() || unended_.load() == 0) return released; // plain memory is freed by those who end a tag
        try {
            for (const auto& member : members(Tags::all())) {
                if (device && member->arena->device() != *device) continue;
                if (!member->unended.exchange(false)) continue; // nor one that another thread is ending
                --unended_;
                const std::size_t before = member->arena->mapped_bytes();
                try {
                    end(member, [] {});
                } catch (...) { // the next call tries again
                }
                released += before - std::min(before, member->arena->mapped_bytes());
            }
        } catch (...) { // likewise
        }
        return released;
    }

    /// Returns whether the program never named a policy for the tag; true at most once per tag.
    [[nodiscard]] bool policy_unsaid(const std::string& tag) {
        const std::lock_guard lock{mutex_};
        Tag* const known = tag_named(tag);
        return known != nullptr && !std::exchange(known->said, true);
    }

    void set_margin(std::size_t bytes) {
        const std::lock_guard lock{mutex_};
        margin_ = bytes;
        if (outside_ != nullptr) outside_->arena->set_margin(bytes);
        for (const auto& member : members_) {
            set_margin(*member, bytes);
        }
    }
    /// Returns the bytes that a tag's allocations and resumes leave free; for an unknown tag, the saver's margin.
    [[nodiscard]] std::size_t margin_of(const std::string& tag) noexcept {
        const std::lock_guard lock{mutex_};
        const Tag* const found = tag_named(tag);
        if (found == nullptr) return margin_;
        std::size_t margin = 0; // members without a margin of their own have the saver's
        for (const auto& member : found->members) margin = std::max(margin, member->arena->margin());
        return margin;
    }
    void set_capacity(const Members& members, std::size_t bytes) {
        const std::lock_guard lock{mutex_};
        for (const auto& member : members) {
            member->arena->set_capacity(bytes);
            if (Tag* const tag = tag_named(member->tag)) tag->capacity = bytes;
        }
    }

    /// Returns the saver's driver and those of its tags, one per device, whatever options others have.
    [[nodiscard]] Vector<AnyDriver> drivers() {
        const std::lock_guard lock{mutex_};
        Vector<AnyDriver> all{driver_};
        for (const auto& member : members_) add_device(all, member->driver);
        return all;
    }
    /// Returns the drivers of these tags, one per device.
    [[nodiscard]] Vector<AnyDriver> drivers_of(const Tags& tags) {
        Vector<AnyDriver> all;
        for (const auto& member : members(tags)) add_device(all, member->driver);
        return all;
    }
    [[nodiscard]] bool several_devices() const noexcept { return several_devices_.load(std::memory_order_relaxed); }

    /// Throws Misuse, beginning with `what`, after `close`.
    void require_open(const char* what) { require(what, Tags::all()); }

    /// Closes the table: afterwards everything except `find` and the lists throws Misuse.
    void close() {
        const std::lock_guard lock{mutex_};
        closed_ = true;
    }

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

    static void add_device(Vector<AnyDriver>& all, const AnyDriver& driver) {
        if (!any_in(all, [&](const AnyDriver& known) { return known.device() == driver.device(); }))
            all.push_back(driver);
    }

    // Called with the lock held:

    /// Returns the place of a name in the list of tags.
    [[nodiscard]] std::size_t place_of(std::string_view name) const noexcept {
        const auto at =
            std::partition_point(tags_.begin(), tags_.end(), [&](const auto& tag) { return tag->name < name; });
        return static_cast<std::size_t>(at - tags_.begin());
    }
    /// Returns the tag, or null.
    [[nodiscard]] Tag* tag_named(std::string_view name) const noexcept {
        const std::size_t at = place_of(name);
        return at != tags_.size() && tags_[at]->name == name ? tags_[at].get() : nullptr;
    }
    /// Forgets a tag that has no members and no maker.
    void forget_unused(Tag& tag) noexcept {
        if (tag.members.empty() && tag.maker == std::thread::id{})
            tags_.erase(tags_.begin() + static_cast<std::ptrdiff_t>(place_of(tag.name)));
    }
    void require_locked(const char* what, const Tags& tags) const {
        if (closed_ && tags.kind() == Tags::Kind::all) refuse_closed({what});
        if (closed_) refuse_closed({what, " of ", quoted_tags(tags)});
        if (tags.kind() != Tags::Kind::named) return;
        for (const std::string& name : tags.names()) {
            if (const Tag* const tag = tag_named(name); tag != nullptr && !tag->members.empty()) continue;
            misuse_of(name, {what, ": ", unknown_locked(name)});
        }
    }
    [[nodiscard]] Members members_locked(const Tags& tags) const {
        Members chosen;
        if (tags.kind() == Tags::Kind::named) {
            Vector<const void*> seen;
            for (const std::string& name : tags.names()) {
                const Tag* const tag = tag_named(name);
                if (tag == nullptr || !add_once(seen, tag)) continue;
                chosen.append(tag->members.begin(), tag->members.end());
            }
            return chosen;
        }
        for (const auto& member : members_) {
            if (tags.kind() == Tags::Kind::all || member->tag.starts_with(tags[0])) chosen.push_back(member);
        }
        return chosen;
    }
    [[nodiscard]] Members::iterator member_at(std::uint64_t serial) noexcept {
        const auto at =
            std::lower_bound(members_.begin(), members_.end(), serial,
                             [](const auto& member, std::uint64_t wanted) { return member->serial < wanted; });
        return at != members_.end() && (*at)->serial == serial ? at : members_.end();
    }
    void look_for_devices() noexcept {
        const bool several =
            any_in(members_, [&](const auto& member) { return member->driver.device() != driver_.device(); });
        several_devices_.store(several);
    }
    [[noreturn, gnu::cold]] static void refuse_closed(Bits what) {
        misuse({text_of(what), ": the saver has been closed"});
    }
    /// Returns the message for an unknown tag, with similar names.
    [[nodiscard]] std::string unknown_locked(std::string_view name) const {
        std::vector<std::string> known;
        for (const auto& tag : tags_) known.push_back(tag->name);
        return text_of({"unknown tag ", in_quotes(name), did_you_mean(name, known)});
    }
    /// Returns the requested member if it exists; throws Misuse if the request conflicts with the tag.
    [[nodiscard]] std::shared_ptr<Member> find_locked(const WantedTag& wanted, const AnyDriver& driver) {
        Tag* const known = tag_named(wanted.tag);
        if (known == nullptr) return nullptr;
        if (wanted.policy && !(*wanted.policy == known->policy)) {
            misuse({"tag ", in_quotes(known->name), " has ", difference(known->policy, *wanted.policy),
                    "; a tag keeps its policy until it is dropped"});
        }
        if (wanted.policy) known->said = true;
        std::shared_ptr<Member> there;
        for (const auto& member : known->members) {
            if (member->driver.device() == driver.device()) there = member;
        }
        if (there != nullptr && !(there->driver == driver)) {
            misuse({"tag ", in_quotes(known->name), " already exists on ", there->driver.name(),
                    " with other driver options"});
        }
        if (wanted.options) require_same(*known->resident, there.get(), *wanted.options);
        return there;
    }
    /// Returns the policy of a new member. Throws Misuse if the program must say one.
    [[nodiscard]] AnyPolicy policy_locked(const WantedTag& wanted) const {
        if (wanted.policy) return *wanted.policy;
        if (const Tag* const known = tag_named(wanted.tag)) return known->policy;
        if (options_.new_tags == NewTags::with_policy) {
            const std::string unknown = unknown_locked(wanted.tag);
            misuse({unknown, unknown.back() == '?' ? "" : ";",
                    " a new tag of this saver needs a policy (NewTags::with_policy)"});
        }
        if (options_.default_policy) return *options_.default_policy;
        return wanted.of_new_graphs ? *wanted.of_new_graphs : AnyPolicy{Discard{}};
    }
    /// Waits until no other thread makes the tag, or until it has a member on this device that is not the one being
    /// made.
    void await_maker(std::unique_lock<std::mutex>& lock, std::string_view name, int device) {
        for (;; made_.wait(lock)) {
            if (closed_) refuse_closed({"arena of tag ", in_quotes(name)});
            if (name.empty()) misuse({"tag \"\": a tag needs a name"});
            const Tag* const tag = tag_named(name);
            if (tag == nullptr || tag->maker == std::thread::id{}) return;
            if (tag->making != device &&
                any_in(tag->members, [&](const auto& member) { return member->driver.device() == device; }))
                return;
            if (tag->maker == std::this_thread::get_id())
                misuse({"tag ", in_quotes(name), " is requested by the thread that is still creating it"});
        }
    }
    void add(const std::shared_ptr<Member>& member, Tag& tag) {
        const ArenaOptions& options = member->arena->options();
        const std::lock_guard lock{mutex_};
        if (closed_) refuse_closed({"arena of tag ", in_quotes(member->tag)});
        if (members_.size() == members_.capacity()) members_.reserve(2 * members_.size() + 8);
        tag.members.reserve(tag.members.size() + 1);
        if (tag.members.empty() && tag.resident->serial != 0) // dropped meanwhile: others may still look at that one
            tag.resident = new_shared<Resident>();
        Resident& resident = *tag.resident;
        if (tag.members.empty()) {
            resident.tag = member->tag;
            resident.serial = last_serial_ + 1;
            resident.evictable = options.evictable;
            resident.priority = options.priority;
        }
        residents_.add(resident, *member->arena); // the last call that may throw
        member->resident = tag.resident;
        member->serial = member->arena->arena_serial = ++last_serial_;
        tag.members.push_back(member);
        members_.push_back(member);
        set_margin(*member, margin_);
        if (tag.capacity != 0 && member->arena->capacity() == 0) member->arena->set_capacity(tag.capacity);
        look_for_devices();
    }
    void remove(const Member& member) noexcept {
        std::shared_ptr<Member> last; // destroyed after the lock is released
        const std::lock_guard lock{mutex_};
        const auto at = member_at(member.serial);
        if (at == members_.end()) return;
        last = std::move(*at);
        members_.erase(at);
        residents_.remove(*last->resident, *last->arena);
        Tag& tag = *tag_named(last->tag);
        erase_in(tag.members, [&](const auto& other) { return other == last; });
        forget_unused(tag);
        look_for_devices();
    }
    /// Sets the saver's margin, unless the arena was made with one of its own.
    static void set_margin(const Member& member, std::size_t bytes) noexcept {
        if (member.arena->options().margin == 0) member.arena->set_margin(bytes);
    }
    /// Throws Misuse for a requested option that differs from the tag's. Options with default values are not considered
    /// requested. `member`: the one on the wanted device, or null: then only the options that apply to all devices.
    void require_same(const Resident& resident, const Member* member, const ArenaOptions& asked) {
        const auto refuse = [&](Bits why) {
            misuse({"tag ", in_quotes(resident.tag), " already exists, ", text_of(why)});
        };
        const auto compare = [&](const char* what, std::size_t has, std::size_t wanted, const char* has_if_0) {
            if (wanted == 0 || wanted == has) return;
            refuse({"with another ", what, ": ", has == 0 ? Bit{has_if_0} : in_bytes(has), ", not ", in_bytes(wanted)});
        };
        if (member != nullptr) {
            const ArenaOptions& made_with = member->arena->options();
            compare("capacity", member->arena->capacity(), asked.capacity, "none of its own");
            compare("reserve", made_with.reserve, asked.reserve, "none");
            compare("margin", member->arena->margin(), asked.margin, "none");
            if (asked.single_handle && !made_with.single_handle) refuse({"without a single handle for every block"});
            if (asked.events) refuse({"and its event sink can be set only when it is made"}); // two cannot be compared
            if (asked.host_budget && asked.host_budget != made_with.host_budget) refuse({"with another host budget"});
        }
        ArenaUsage is;
        residents_.fill(resident, is);
        if (asked.evictable && !is.evictable) refuse({"and is not evictable; call set_evictable"});
        if (asked.priority != 0 && asked.priority != is.priority)
            refuse({"with priority ", in_digits(is.priority), ", not ", in_digits(asked.priority)});
    }

    /// Returns an arena that a forked child does not destroy, because it belongs to the parent.
    [[nodiscard]] std::shared_ptr<ArenaCore> make_arena(const std::string& tag, const AnyDriver& driver,
                                                        AnyPolicy policy, const ArenaOptions& options) {
        auto core = UniquePtr<ArenaCore>::make(
            driver, tag, std::move(policy), options,
            [this](Range segment, std::shared_ptr<ArenaCore> arena) { directory_.add(segment, std::move(arena)); });
        return {core.release(), [](ArenaCore* arena) {
                    if (!arena->forked()) delete arena;
                }};
    }
    std::shared_ptr<Member> make(const WantedTag& wanted, const AnyDriver& driver, AnyPolicy policy) {
        ArenaOptions options = wanted.options.value_or(ArenaOptions{});
        if (!options.events) options.events = options_.events; // which never changes
        if (!options.host_budget) options.host_budget = host_budget_;
        std::string tag{wanted.tag};
        // Paged memory of a saver that is switched off is never saved.
        std::shared_ptr<ArenaCore> arena = make_arena(tag, driver, enabled() ? policy : AnyPolicy{Discard{}}, options);
        return std::shared_ptr<Member>{new Member{0, std::move(tag), driver, std::move(policy), std::move(arena)}};
    }

    Residents residents_; // its lock is taken after this table's
    Directory directory_; // declared before the arenas that it refers to, so that it is destroyed later
    std::shared_ptr<HostBudget> host_budget_ = new_shared<HostBudget>();
    const AnyDriver& driver_;
    const SaverOptions& options_;
    std::mutex mutex_; // guards the members below
    std::size_t margin_;
    bool closed_ = false;
    std::atomic<int> unended_{0}; ///< members that `retry_ends` tries again
    std::atomic<bool> several_devices_{false};
    Vector<UniquePtr<Tag>> tags_; // by name
    Members members_;             // all, in the order in which they were made
    std::uint64_t last_serial_ = 0;
    std::condition_variable made_;    // a tag has no maker any more
    std::shared_ptr<Member> outside_; // made by the first call of `outside`
};

} // namespace memsaver::inline v0_3::detail
