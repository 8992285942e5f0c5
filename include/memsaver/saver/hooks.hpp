// Functions of the program that run before and after an operation. Knows nothing about the operation.
#pragma once

#include "memsaver/core/pointers.hpp"
#include "memsaver/core/report.hpp"

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace memsaver::inline v0_3 {

/// The argument of hooks around a pause or a resume. Each hook gets a copy, of which only rows are kept that
/// an after-hook adds to the report.
struct PauseEvent {
    std::vector<std::string> tags; ///< the tags concerned
    Report report;                 ///< what was done; empty before the operation
};
using ResumeEvent = PauseEvent;

namespace detail {
enum class HookKind : unsigned char {
    before_pause,
    after_pause,
    after_failed_pause,
    before_resume,
    after_resume,
    on_reclaim, ///< of an elastic range
};
} // namespace detail

/// Owns a registered hook. Move-only; the hook is removed when this handle is destroyed or the saver ends. A hook that
/// is running at that moment runs to completion.
class Hook {
public:
    Hook() = default;
    explicit Hook(std::function<void()> end) : end_{std::move(end)} {}
    /// Combines two hooks, which are removed together.
    Hook(Hook first, Hook second)
        : end_{[both = detail::new_shared<std::pair<Hook, Hook>>(std::move(first), std::move(second))]() mutable {
              both.reset();
          }} {}
    Hook(Hook&& other) noexcept : end_{std::exchange(other.end_, nullptr)} {}
    // Not by value, here and in other handles: of `handle = {}` in a template clang 14 does not end the parameter.
    Hook& operator=(Hook&& other) noexcept {
        Hook taken{std::move(other)}; // what this had ends with it
        end_.swap(taken.end_);
        return *this;
    }
    ~Hook() {
        if (end_) end_();
    }

private:
    std::function<void()> end_;
};

} // namespace memsaver::inline v0_3
