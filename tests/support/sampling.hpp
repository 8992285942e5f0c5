// How much of a sweep a run tries. Trying every injected failure takes minutes, so that a run tries every k-th one,
// from an offset; cmake/run_tests.cmake and .ci/run take the offset from the commit, so that each commit tries others.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

namespace test {

struct Sampling {
    std::uint64_t step = 32;  ///< MEMSAVER_SWEEP_STEP; 1: all
    std::uint64_t offset = 0; ///< MEMSAVER_SWEEP_OFFSET

    [[nodiscard]] bool all() const noexcept { return step == 1; }
    [[nodiscard]] bool takes(std::uint64_t index) const noexcept { return (index + offset) % step == 0; }
    /// The first of every `most`-th, at most, as an index from 0.
    [[nodiscard]] std::uint64_t first(std::uint64_t most) const noexcept { return offset % stride(most); }
    [[nodiscard]] std::uint64_t stride(std::uint64_t most) const noexcept { return step < most ? step : most; }
    /// The same of an operation, so that small ones do not all try their first points.
    [[nodiscard]] Sampling of(std::string_view operation) const noexcept {
        std::uint64_t hash = 14'695'981'039'346'656'037U;
        for (const char letter : operation) hash = (hash ^ static_cast<unsigned char>(letter)) * 1'099'511'628'211U;
        return {step, (offset + hash) % step};
    }
    /// "one point in 32" and how to repeat it
    [[nodiscard]] std::string text() const {
        if (all()) return "all points";
        return "sampled: one point in " + std::to_string(step) +
               " (all: MEMSAVER_SWEEP_STEP=1; these: MEMSAVER_SWEEP_STEP=" + std::to_string(step) +
               " MEMSAVER_SWEEP_OFFSET=" + std::to_string(offset) + ")";
    }
};

/// As the environment says.
inline const Sampling& sampling() {
    static const Sampling chosen = [] {
        const auto number = [](const char* name, std::uint64_t otherwise) {
            const char* const text = std::getenv(name);
            return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
        };
        const std::uint64_t step = number("MEMSAVER_SWEEP_STEP", Sampling{}.step);
        return Sampling{step == 0 ? 1 : step, number("MEMSAVER_SWEEP_OFFSET", 0)};
    }();
    return chosen;
}

/// The number of checks that have failed in this program. Defined in main.cpp.
std::uint64_t failed_checks() noexcept;
} // namespace test
