// Records which handles a driver maps, from its calls, to check whether one of them covers a whole block.
#pragma once

#include "memsaver/memsaver.hpp"
#include "memsaver/testing/testing.hpp"

#include <cstddef>
#include <iterator>
#include <map>
#include <mutex>

namespace test {

/// Replaces the driver's observer as long as it lives.
template <class Driver>
struct Handles {
    explicit Handles(const Driver& driver) : driver_{driver} {
        driver.on_call([this](const memsaver::CallRecord& call) {
            const std::lock_guard lock{mutex_};
            if (call.call == memsaver::Call::map) live_[call.address] = call.address + call.bytes;
            if (call.call == memsaver::Call::unmap)
                live_.erase(live_.lower_bound(call.address), live_.lower_bound(call.address + call.bytes));
        });
    }
    ~Handles() { driver_.on_call({}); }

    [[nodiscard]] std::size_t count() const {
        const std::lock_guard lock{mutex_};
        return live_.size();
    }
    /// Returns whether one handle covers all of the bytes.
    [[nodiscard]] bool behind_one(const void* pointer, std::size_t bytes) const {
        const std::lock_guard lock{mutex_};
        const auto begin = reinterpret_cast<memsaver::Address>(pointer);
        const auto it = live_.upper_bound(begin);
        return it != live_.begin() && begin + bytes <= std::prev(it)->second;
    }

    /// Returns the bytes of the handles that contain any of these blocks: by address, each with its `bytes`.
    template <class Blocks>
    [[nodiscard]] std::size_t held_by(const Blocks& blocks) const {
        const std::lock_guard lock{mutex_};
        std::size_t bytes = 0;
        for (const auto& [begin, end] : live_) {
            const auto after = blocks.lower_bound(end);
            if (after == blocks.begin()) continue;
            const auto& [address, block] = *std::prev(after);
            if (address + block.bytes > begin) bytes += end - begin;
        }
        return bytes;
    }

private:
    const Driver& driver_;
    mutable std::mutex mutex_;
    std::map<memsaver::Address, memsaver::Address> live_; // begin and end
};
} // namespace test
