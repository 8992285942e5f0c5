// The state behind an Arrival: its tags and the bytes of each that are in flight.
#pragma once

#include "memsaver/arena/arena.hpp"
#include "memsaver/core/vector.hpp"
#include "memsaver/saver/saver_core.hpp"
#include "memsaver/saver/saver_state.hpp"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace memsaver::inline v0_3::detail {

/// Implements Arrival; see there. Thread-safe after `begin`.
class ArrivalState {
public:
    using Member = TagTable::Member;
    using Arriving = ArenaCore::Arriving;
    struct Part {
        std::shared_ptr<Member> member;
        std::shared_ptr<Arriving> arriving{};  ///< null: nothing of it is in flight
        std::optional<std::uint64_t> pauses{}; ///< its arena's pause count when the restore began; empty: a save
    };

    /// Returns the part that contains these bytes. Throws Misuse, beginning with `what`, if there is none.
    static const Part& part_of(const char* what, SaverState& saver, const Vector<Part>& parts, const void* pointer,
                               std::size_t bytes) {
        for (const Part& part : parts) {
            if (bytes != 0 && saver.holds(*part.member->arena, pointer, bytes)) return part;
        }
        std::string names;
        for (const Part& part : parts) names += (names.empty() ? "\"" : ", \"") + part.member->tag + '"';
        misuse({what, ": ", in_bytes(bytes), " at ", in_hex(pointer), " are not in live blocks of the tags concerned (",
                names, ")"});
    }

    explicit ArrivalState(std::shared_ptr<SaverCore> saver) : saver_{std::move(saver)} {}

    // --- by its creator ---

    /// Sets the parts. `told`: the tags that after-hooks receive at the end.
    void begin(Vector<Part> parts, std::vector<std::string> told = {}) noexcept {
        parts_ = std::move(parts);
        event_.tags = std::move(told);
    }

    // --- any thread ---

    void before(StreamRef stream, const void* pointer, std::size_t bytes) {
        saver_->boundary("before", [&] {
            require_open("before");
            const Part& part = part_of("before", saver_->state(), parts_, pointer, bytes);
            refuse_captured(part, stream);
            require_stayed("before", part, [&] { return saver_->here(*part.member->arena, pointer, bytes); });
            if (const auto coming = coming_now(part)) coming->follow(stream, {as_address(pointer), bytes});
        });
    }
    void before(StreamRef stream) {
        saver_->boundary("before", [&] {
            require_open("before");
            for (const Part& part : parts_) {
                if (coming_now(part)) refuse_captured(part, stream);
                if (!gone(part)) require_stayed("before", part, [&] { return part.member->arena->all_resident(); });
            }
            for (const Part& part : parts_) {
                if (gone(part)) continue;
                if (const auto coming = coming_now(part)) coming->follow(stream, {0, ~std::size_t{0}});
            }
        });
    }
    void wait(const void* pointer, std::size_t bytes) {
        saver_->boundary("wait for bytes", [&] {
            require_open("wait for bytes");
            const Part& part = part_of("wait", saver_->state(), parts_, pointer, bytes);
            if (const auto coming = coming_now(part)) coming->wait_for({as_address(pointer), bytes});
            require_stayed("wait", part, [&] { return saver_->here(*part.member->arena, pointer, bytes); });
        });
    }
    void wait() {
        saver_->boundary("wait for bytes", [&] {
            require_open("wait for bytes");
            finish();
            for (const Part& part : parts_) {
                if (gone(part)) continue;
                const auto coming = coming_now(part);
                if (coming == part.arriving) continue;
                try {
                    coming->end();
                } catch (const Misuse&) {
                    if (!gone(part)) throw;
                }
            }
        });
    }
    [[nodiscard]] bool done() {
        return saver_->boundary("query whether bytes have arrived", [&] {
            return all_in(parts_, [](const Part& part) { return part.arriving == nullptr || part.arriving->done(); });
        });
    }
    [[nodiscard]] Report report() {
        return saver_->boundary("report", [&] {
            finish();
            const std::lock_guard lock{mutex_};
            return event_.report;
        });
    }
    void end() noexcept {
        if (saver_->forked() || reported_.load()) return;
        try {
            translated([&] { finish(); });
        } catch (const std::exception& error) {
            const auto* const known = dynamic_cast<const Error*>(&error);
            tell(saver_->events(), EventKind::ignored, known != nullptr ? known->tag() : std::string{},
                 saver_->driver().device(), {error.what()});
        } catch (...) { // a hook may throw anything
            tell(saver_->events(), EventKind::ignored, "", saver_->driver().device(),
                 {"at the end of an Arrival, a hook threw an object that is not a std::exception"});
        }
    }

private:
    void require_open(const char* what) const {
        const bool all_gone = all_in(parts_, gone);
        for (const Part& part : parts_) {
            if (!all_gone && gone(part)) continue;
            try {
                part.member->arena->require_open(what);
            } catch (const Misuse&) {
                if (all_gone || !gone(part)) throw; // else dropped meanwhile
            }
        }
    }
    /// Returns whether its tag was dropped.
    [[nodiscard]] static bool gone(const Part& part) noexcept {
        return part.member->arena->dropped.load() && part.member->arena->closed();
    }
    void refuse_captured(const Part& part, StreamRef stream) const {
        if (!saver_->enabled() || !being_captured(part.member->driver, stream)) return;
        misuse({"before: the stream is being captured, and replays of the graph would not wait; call it for the stream "
                "that launches the graph, or use a gate"});
    }
    /// Returns the transfer that restores its bytes now: its own, or a newer one if they were paused and resumed again.
    /// Null: the bytes are resident.
    [[nodiscard]] static std::shared_ptr<Arriving> coming_now(const Part& part) {
        ArenaCore& core = *part.member->arena;
        if (part.pauses && core.pauses() != *part.pauses) {
            if (auto newer = core.arriving(); newer != nullptr && newer->brings_back()) return newer;
        }
        return part.arriving;
    }
    /// Throws Misuse if its memory was paused again since it was resumed, and `here` returns that it is not resident.
    static void require_stayed(const char* what, const Part& part, FunctionRef<bool()> here) {
        ArenaCore& core = *part.member->arena;
        if (!part.pauses || core.pauses() == *part.pauses || here() || core.on_its_way()) return;
        misuse({what, ": tag ", in_quotes(part.member->tag),
                " has been paused since; to prevent this, hold a use of it with .await_bytes = false"});
    }
    void finish() {
        std::exception_ptr first;
        for (const Part& part : parts_) {
            if (!part.arriving || part.member->arena->closed()) continue; // dropped: its bytes are no longer needed
            try {
                part.arriving->end();
            } catch (...) {
                if (!first && !gone(part)) first = std::current_exception(); // else dropped meanwhile
            }
        }
        reported_ = true;
        if (first) std::rethrow_exception(first);
        ResumeEvent event;
        {
            const std::lock_guard lock{mutex_};
            if (ended_) return;
            event = event_;
            event.report = report_of(parts_.size());
            for (const Part& part : parts_) {
                if (part.arriving && !part.member->arena->closed()) event.report.add(part.arriving->row());
            }
            event.report.elapsed = std::chrono::steady_clock::now() - start_;
            event_.report = event.report;
            ended_ = true;
        }
        for (const Part& part : parts_) { // leave out tags paused since: a later resume, if any, reports them
            ArenaCore& core = *part.member->arena;
            if (core.closed() || core.pauses() != part.pauses || !core.all_resident())
                std::erase(event.tags, part.member->tag);
        }
        if (event.tags.empty()) return;
        saver_->state().run_last_hooks(HookKind::after_resume, event);
        const std::lock_guard lock{mutex_};
        event.report.elapsed = event_.report.elapsed; // a hook may have changed it
        event_.report = std::move(event.report);
    }

    std::shared_ptr<SaverCore> saver_; // declared first, so that it is destroyed last
    Vector<Part> parts_;
    std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
    std::atomic<bool> reported_{false}; // the outcome was reported to the program
    std::mutex mutex_;                  // guards the members below
    bool ended_ = false;
    ResumeEvent event_;
};

} // namespace memsaver::inline v0_3::detail
