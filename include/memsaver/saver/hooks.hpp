// Functions of the program that run before and after an operation. Do not know what the operation is.
#pragma once

#include "memsaver/core/form.hpp"
#include "memsaver/core/report.hpp"

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace memsaver::inline v0_2 {

/// What a hook around a pause is told.
struct PauseEvent {
    std::vector<std::string> tags; ///< the tags concerned
    Report report;                 ///< what was done; empty before
};

/// What a hook around a resume is told.
struct ResumeEvent {
    std::vector<std::string> tags;
    Report report;
};

/// Keeps a hook in force. Move-only; the hook ends with it, or with the saver. A hook that is running when its handle
/// dies runs to its end.
class Hook {
public:
    Hook() = default;
    explicit Hook(std::function<void()> end) : end_{std::move(end)} {}
    /// Several in one: they end together.
    Hook(Hook first, Hook second);
    Hook(Hook&& other) noexcept : end_{std::exchange(other.end_, nullptr)} {}
    Hook& operator=(Hook&& other) noexcept;
    ~Hook();

private:
    std::function<void()> end_;
};

} // namespace memsaver::inline v0_2

#ifndef MEMSAVER_COMPILED
#include "memsaver/saver/hooks.ipp"
#endif
