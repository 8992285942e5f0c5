// What is behind an Arrival: the tags concerned, and what of each is on its way.
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

namespace memsaver::inline v0_2 {

namespace detail {

/// See Arrival for what each method promises. Thread safe once it has begun.
class ArrivalState {
public:
    using Member = TagTable::Member;
    using Arriving = ArenaCore::Arriving;
    struct Part {
        std::shared_ptr<Member> member;
        std::shared_ptr<Arriving> arriving{};  ///< none: nothing of it is on its way
        std::optional<std::uint64_t> pauses{}; ///< of its arena, when it began to come back; none: it is being saved
    };

    explicit ArrivalState(std::shared_ptr<SaverCore> saver) : saver_{std::move(saver)} {}

    // --- by who makes it ---

    /// What is to be done. `told`: the tags that hooks are told of at the end.
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
    /// Its tag has been dropped.
    [[nodiscard]] static bool gone(const Part& part) noexcept;
    static void refuse_captured(const Part& part, StreamRef stream);
    /// The part that has these bytes. Throws Misuse.
    const Part& part_of(const char* what, const void* pointer, std::size_t bytes) const;
    /// What brings its bytes: its own, or, where they have gone and come again since, another's. None: they are here.
    [[nodiscard]] static std::shared_ptr<Arriving> coming_now(const Part& part);
    /// Misuse if memory of it that came back has gone since, and `here` says that it is not back.
    static void require_stayed(const char* what, const Part& part, FunctionRef<bool()> here);
    void finish();

    std::shared_ptr<SaverCore> saver_; // declared first, so that it dies last
    std::vector<Part> parts_;
    std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
    std::atomic<bool> told_{false}; // somebody knows how it went
    std::mutex mutex_;              // guards what follows
    bool ended_ = false;
    std::chrono::nanoseconds elapsed_{0};
    ResumeEvent event_;
};

} // namespace detail

} // namespace memsaver::inline v0_2
