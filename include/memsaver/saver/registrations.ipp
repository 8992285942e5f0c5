// Definitions of registrations.hpp.
#pragma once

#include "memsaver/arena/arena.hpp"
#include "memsaver/core/error.hpp"
#include "memsaver/core/finally.hpp"
#include "memsaver/core/lists.hpp"
#include "memsaver/core/sizes.hpp"
#include "memsaver/core/vector.hpp"
#include "memsaver/saver/registrations.hpp"
#include "memsaver/saver/saver_core.hpp"
#include "memsaver/saver/saver_state.hpp"

#include <algorithm>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace memsaver::inline v0_3 {

namespace detail {

struct RegistrationEntry {
    Tags tags; ///< the tags whose pauses deregister it
    RegistrationOptions options;
    BytesAt memory{};                        ///< null: the entry is not memory
    std::weak_ptr<ArenaCore> arena{};        ///< the arena of the memory
    std::weak_ptr<RegistrationEntry> with{}; ///< an older entry that this one depends on
    bool registered = true;
    bool called = false; ///< one of its functions is running, on the thread that holds the lock
    bool ended = false;  ///< by its own function: it leaves the list once that returns or throws

    [[nodiscard]] bool here(SaverCore& saver) const {
        if (memory.pointer == nullptr) return true;
        const std::shared_ptr<RegistrationEntry> first = with.lock();
        if (first != nullptr && !first->ended && !first->registered) return false;
        const std::shared_ptr<ArenaCore> its = arena.lock();
        return its != nullptr && saver.here(*its, memory.pointer, memory.bytes);
    }
    [[nodiscard]] bool depends_on(const std::vector<std::string>& names) const {
        if (tags.kind() == Tags::Kind::all) return true; // even if the saver has no tags
        return any_in(names, [&](const std::string& name) { return depends_on(name); });
    }
    [[nodiscard]] bool depends_on(const std::string& name) const {
        if (tags.kind() == Tags::Kind::all) return true;
        if (const std::shared_ptr<RegistrationEntry> first = with.lock(); first != nullptr && first->depends_on(name))
            return true;
        return any_in(tags.names(), [&](const std::string& each) {
            return tags.kind() == Tags::Kind::under ? name.compare(0, each.size(), each) == 0 : name == each;
        });
    }
    [[nodiscard]] std::string text() const {
        const std::string of = options.who.empty() ? std::string{"an unnamed component"} : '"' + options.who + '"';
        if (memory.pointer == nullptr) return of;
        return text_of({in_bytes(memory.bytes), " at ", in_hex(memory.pointer), " by ", of});
    }
};

/// Does everything under its lock, including calls of the program's functions: communicators need a fixed order, and a
/// registration must not end while it is being made. The lock is recursive.
class RegistrationBook {
public:
    RegistrationBook(std::shared_ptr<SaverCore> saver, RegistrationsOptions options)
        : saver_{std::move(saver)}, options_{std::move(options)} {}

    [[nodiscard]] const std::shared_ptr<SaverCore>& saver() const noexcept { return saver_; }

    using Entry = RegistrationEntry;
    using EntryPtr = std::shared_ptr<Entry>;

    /// `with`: see Registrations::add; or null.
    EntryPtr add_memory(const void* pointer, std::size_t bytes, RegistrationOptions options, const EntryPtr& with) {
        check_options(options, options.on_pause == OnPause::renew, "a registration");
        const auto lock = lock_in("register");
        const std::shared_ptr<ArenaCore> arena = saver_->holder("register", pointer, bytes);
        auto entry = new_shared<Entry>(Entry{arena->tag(), std::move(options), {pointer, bytes}, arena});
        std::string away = text_of({"tag ", in_quotes(arena->tag()), " is paused or being paused"});
        if (with != nullptr) {
            entry->with = with;
            away += ", or " + with->text() + ", on which it depends, is not registered";
        }
        if (going(*entry) || !entry->here(*saver_))
            misuse_of(arena->tag(), {"register ", entry->text(), ": ", away, "; resume it first"});
        entries_.push_back(entry);
        try {
            if (entry->options.on_register) call(*entry, "registering", entry->options.on_register);
        } catch (...) {
            remove(*entry);
            throw;
        }
        return entry;
    }
    EntryPtr add_tags(Tags tags, RegistrationOptions options) {
        check_options(options, true, "a registration of tags");
        if (options.on_pause == OnPause::refuse) misuse({"a registration of tags cannot use OnPause::refuse"});
        const auto lock = lock_in("register");
        return entries_.emplace_back(new_shared<Entry>(Entry{std::move(tags), std::move(options)}));
    }
    [[nodiscard]] bool registered(const Entry& entry) {
        const auto lock = lock_in("registered");
        return entry.registered;
    }
    void end(const EntryPtr& entry) {
        if (saver_->forked()) return; // checked before the lock, which a thread of the parent may have held
        const std::lock_guard lock{mutex_};
        if (entry->called) {
            entry->ended = true;
            return;
        }
        if (entry->memory.pointer != nullptr) deregister(*entry);
        entry->registered = false;
        remove(*entry);
    }
    void end_quietly(const EntryPtr& entry) noexcept {
        if (saver_->forked()) return;
        try {
            return end(entry);
        } catch (const std::exception& error) {
            tell(saver_->events(), EventKind::ignored, "", saver_->driver().device(), {error.what()});
        } catch (...) { // not a std::exception: there is no text to report
        }
        const std::lock_guard lock{mutex_};
        remove(*entry);
    }

    void before_pause(const PauseEvent& event) {
        std::unique_lock lock{mutex_};
        going_.reserve(going_.size() + event.tags.size());
        for (const std::string& tag : event.tags) going_.push_back({std::this_thread::get_id(), tag});
        Vector<Entry*> refusing;
        bool any = false;
        for (const EntryPtr& entry : entries_) {
            if (!entry->registered || !entry->depends_on(event.tags)) continue;
            any = true;
            if (entry->options.on_pause == OnPause::refuse) refusing.push_back(entry.get());
        }
        if (!refusing.empty()) {
            const Entry& first = *refusing.front();
            const std::string* const asked = // its own tag, or that of the entry it needs
                first_in(event.tags, [&](const std::string& tag) { return first.depends_on(tag); });
            const bool one = refusing.size() == 1;
            misuse({"tag ", in_quotes(*asked), " cannot be paused: ", first.text(),
                    one ? "" : text_of({" and ", in_digits(refusing.size() - 1), " more"}),
                    one ? " is registered" : " are registered", "; end the registration first, or use OnPause::renew"});
        }
        if (!any) return;
        lock.unlock(); // the device's work may wait for other threads; none can register these tags
        for (const AnyDriver& driver : saver_->state().tags_.drivers_of(Tags{event.tags})) {
            const Status status = driver.drain(); // a lost device has no work
            if (status.kind != StatusKind::gone) check(status, "wait for the device before memory is deregistered");
        }
        lock.lock();
        if (options_.barrier) options_.barrier(event);
        for (Vector<EntryPtr> left = entries_; !left.empty(); left.pop_back()) { // a function may end others
            Entry& last = *left.back();
            if (!last.ended && last.depends_on(event.tags)) deregister(last);
        }
    }
    void after_pause(const PauseEvent& event) {
        const std::lock_guard lock{mutex_};
        if (ended(event.tags)) renew(&event.tags); // a resume ran after the release and left registering to this
    }
    void after_failed_pause(const PauseEvent& event) {
        const std::lock_guard lock{mutex_};
        ended(event.tags);
        renew(&event.tags);
    }
    void after_resume(const ResumeEvent& event) {
        const std::lock_guard lock{mutex_};
        for (Going& row : going_) row.resumed |= is_in(event.tags, row.tag);
        renew(&event.tags);
    }
    /// Registers again what is resident of these tags; null: of all tags. Tries all, then throws the first failure.
    void renew(const std::vector<std::string>* tags) {
        const auto lock = lock_in("renew");
        std::exception_ptr first;
        for (const EntryPtr& entry : Vector<EntryPtr>{entries_}) { // a function may end others
            if (entry->ended || entry->registered || (tags != nullptr && !entry->depends_on(*tags)) || going(*entry))
                continue;
            if (entry->called) continue; // it renews from its own function
            try {
                if (!here(*entry, tags)) continue;
                call(*entry, "registering again", entry->options.on_register);
                entry->registered = true;
                if (entry->ended && entry->memory.pointer != nullptr) deregister(*entry);
            } catch (...) {
                if (!first) first = std::current_exception();
            }
        }
        if (first) std::rethrow_exception(first);
    }

private:
    /// For calls of the program: in a forked child the lock may be held for ever.
    [[nodiscard]] std::unique_lock<std::recursive_mutex> lock_in(const char* call) {
        saver_->state().fork_->require_parent(call);
        return std::unique_lock{mutex_};
    }
    static void check_options(const RegistrationOptions& options, bool wanted, const char* what) {
        require_enumerator("RegistrationOptions::on_pause", options.on_pause, 2);
        const bool both = options.on_register && options.on_deregister;
        if (!both && wanted) {
            misuse({what, " for ", in_quotes(options.who),
                    " needs on_register and on_deregister, which resumes and pauses call"});
        }
        if (options.on_register && !options.on_deregister)
            misuse({what, " for ", in_quotes(options.who), " has on_register, but no on_deregister"});
    }
    void deregister(Entry& entry) {
        if (!entry.registered || entry.called) return;
        if (entry.options.on_deregister) call(entry, "deregistering", entry.options.on_deregister);
        entry.registered = false;
    }
    /// Calls a function of the program; errors name the entry. If the function ended the registration, ends it now.
    void call(Entry& entry, const char* what, const std::function<void()>& function) {
        entry.called = true;
        const Finally returned{[&] {
            entry.called = false;
            if (entry.ended) remove(entry);
        }};
        const std::vector<std::string> any;
        const Running::Entry mark{saver_->state().running_, Running::Kind::hook, &any}; // whoever pauses wants the lock
        try {
            function();
        } catch (Error& error) {
            error.append(std::string{" ("} + what + " " + entry.text() + ')');
            throw;
        }
    }
    void remove(Entry& entry) noexcept {
        entry.ended = true;
        erase_in(entries_, [&](const EntryPtr& each) { return each.get() == &entry; });
    }
    /// Returns whether a pause of one of its tags has begun and not ended.
    [[nodiscard]] bool going(const Entry& entry) const {
        return any_in(going_, [&](const Going& row) { return entry.depends_on(row.tag); });
    }
    /// Records that this thread's pause of these tags has ended. Returns whether any of them was resumed in the
    /// meantime.
    bool ended(const std::vector<std::string>& tags) noexcept {
        bool resumed = false;
        for (const std::string& tag : tags) {
            for (auto row = going_.end(); row != going_.begin();) { // the newest first: pauses nest
                --row;
                if (row->thread != std::this_thread::get_id() || row->tag != tag) continue;
                resumed |= row->resumed;
                going_.erase(row);
                break;
            }
        }
        return resumed;
    }
    /// Returns whether at least one of these tags is fully resident, or there are none.
    [[nodiscard]] bool any_is_there(const Tags& tags) const {
        TagTable::Members members = saver_->state().tags_.members(tags);
        if (tags.kind() != Tags::Kind::named) { // those that hold nothing do not count
            erase_in(members, [](const auto& member) {
                return member->arena->idle_for_pause() && (member->arena->closed() || member->arena->nothing_paused());
            });
        }
        return members.empty() ||
               any_in(members, [&](const auto& member) { return saver_->state().tags_.all_resident(member->tag); });
    }
    /// Returns whether it can be registered again, after `tags` were resumed or stayed resident.
    [[nodiscard]] bool here(const Entry& entry, const std::vector<std::string>* tags) const {
        if (entry.memory.pointer != nullptr) return entry.here(*saver_);
        if (tags == nullptr) return any_is_there(entry.tags);
        return tags->empty() || any_in(*tags, [&](const std::string& tag) {
                   return entry.depends_on(tag) && saver_->state().tags_.all_resident(tag);
               });
    }

    std::shared_ptr<SaverCore> saver_;
    RegistrationsOptions options_;
    std::recursive_mutex mutex_;
    Vector<EntryPtr> entries_; // in order of registration

    /// A tag of a pause in progress. One row per pause, removed only by that pause: all of its hooks run on one thread.
    /// The later hooks may run even if `before_pause` did not.
    struct Going {
        std::thread::id thread;
        std::string tag;
        bool resumed = false; ///< in the meantime, by another thread
    };
    Vector<Going> going_;
};

} // namespace detail

// --- Registration ---

MEMSAVER_INLINE Registration::~Registration() {
    const std::shared_ptr<detail::RegistrationEntry> entry = std::move(entry_);
    if (const std::shared_ptr<detail::RegistrationBook> book = std::move(book_)) book->end_quietly(entry);
}

MEMSAVER_INLINE bool Registration::registered() const { return book_ != nullptr && book_->registered(*entry_); }

MEMSAVER_INLINE void Registration::end() {
    if (book_ == nullptr) return;
    const std::shared_ptr<detail::RegistrationBook> book = book_; // a function of the program may end this object too
    const std::shared_ptr<detail::RegistrationEntry> entry = entry_;
    book->end(entry);
    if (entry_ != entry) return; // that function gave this object another registration
    book_.reset();
    entry_.reset();
}

// --- Registrations ---

MEMSAVER_INLINE Registrations::Registrations(std::shared_ptr<detail::SaverCore> saver, RegistrationsOptions options) {
    detail::translated([&] {
        book_ = detail::new_shared<detail::RegistrationBook>(std::move(saver), std::move(options));
        using Book = detail::RegistrationBook;
        const auto add_hook = [&](detail::HookKind kind, void (Book::*run)(const PauseEvent&)) {
            Hook hook = book_->saver()->add_hook(kind, [book = book_, run](PauseEvent& event) { (*book.*run)(event); });
            hooks_ = Hook{std::move(hooks_), std::move(hook)};
        };
        add_hook(detail::HookKind::before_pause, &Book::before_pause);
        add_hook(detail::HookKind::after_pause, &Book::after_pause);
        add_hook(detail::HookKind::after_failed_pause, &Book::after_failed_pause);
        add_hook(detail::HookKind::after_resume, &Book::after_resume);
    });
}

MEMSAVER_INLINE Registration Registrations::add(const void* pointer, std::size_t bytes, RegistrationOptions options,
                                                const Registration* with) {
    return detail::translated([&] {
        if (with != nullptr && with->book_ != book_)
            detail::misuse({"a registration cannot depend on one that has ended or belongs to another Registrations"});
        const auto first = with != nullptr ? with->entry_ : nullptr;
        return Registration{book_, book_->add_memory(pointer, bytes, std::move(options), first)};
    });
}

MEMSAVER_INLINE Registration Registrations::add(Tags tags, RegistrationOptions options) {
    return detail::translated([&] {
        return Registration{book_, book_->add_tags(std::move(tags), std::move(options))};
    });
}

MEMSAVER_INLINE void Registrations::renew() {
    detail::translated([book = book_] { book->renew(nullptr); });
}

MEMSAVER_INLINE const std::shared_ptr<detail::SaverCore>& Registrations::saver() const noexcept {
    return book_->saver();
}

} // namespace memsaver::inline v0_3
