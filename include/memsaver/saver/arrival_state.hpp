// The state behind an Arrival: its tags and the bytes of each that are in flight.
#pragma once

#include "memsaver/arena/arriving.hpp"
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

namespace memsaver::inline v0_3 {

namespace detail {

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

    explicit ArrivalState(std::shared_ptr<SaverCore> saver) : saver_{std::move(saver)} {}

    // --- by its creator ---

    /// Sets the parts. `told`: the tags that after-hooks receive at the end.
    void begin(std::vector<Part> parts, std::vector<std::string> told = {}) noexcept;

    // --- any thread ---

    void before(StreamRef stream, const void* pointer, std::size_t bytes);
    void before(StreamRef stream);
    void wait(const void* pointer, std::size_t bytes);
    void wait();
    [[nodiscard]] bool done();
    [[nodiscard]] Report report();
    void end() noexcept;

private:
    void require_open(const char* what) const;
    /// Returns whether its tag was dropped.
    [[nodiscard]] static bool gone(const Part& part) noexcept;
    void refuse_captured(const Part& part, StreamRef stream) const;
    /// Returns the part that contains these bytes. Throws Misuse if there is none.
    const Part& part_of(const char* what, const void* pointer, std::size_t bytes) const;
    /// Returns the transfer that restores its bytes now: its own, or a newer one if they were paused and resumed again.
    /// Null: the bytes are resident.
    [[nodiscard]] static std::shared_ptr<Arriving> coming_now(const Part& part);
    /// Throws Misuse if its memory was paused again since it was resumed, and `here` returns that it is not resident.
    static void require_stayed(const char* what, const Part& part, FunctionRef<bool()> here);
    void finish();

    std::shared_ptr<SaverCore> saver_; // declared first, so that it is destroyed last
    std::vector<Part> parts_;
    std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
    std::atomic<bool> reported_{false}; // the outcome was reported to the program
    std::mutex mutex_;                  // guards the members below
    bool ended_ = false;
    std::chrono::nanoseconds elapsed_{0};
    ResumeEvent event_;
};

} // namespace detail

} // namespace memsaver::inline v0_3
