// The expected state of an arena, without pages: blocks, and which of them are paused. Pure bookkeeping.
#pragma once

#include "memsaver/memsaver.hpp"

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <string>

namespace test {
using namespace memsaver;
using namespace memsaver::detail;

/// Small, fast, and the same on every platform.
struct Random {
    explicit Random(std::uint64_t seed) : state_{seed * 0x9E3779B97F4A7C15U + 0x1234567U} {}
    std::uint64_t next() {
        state_ ^= state_ << 13U;
        state_ ^= state_ >> 7U;
        state_ ^= state_ << 17U;
        return state_;
    }
    /// Returns a number from 0 to `end` - 1.
    std::size_t below(std::size_t end) { return static_cast<std::size_t>(next() % end); }

private:
    std::uint64_t state_;
};

struct ModelBlock {
    std::string tag;
    std::size_t bytes = 0;
    bool paused = false;
    bool elastic = false; ///< a step of an elastic range
};

struct Model {
    using Blocks = std::map<Address, ModelBlock>;

    /// Returns false if the block overlaps another one. Paused blocks count: they keep their addresses.
    bool add(Address address, ModelBlock block) {
        const auto after = blocks_.lower_bound(address);
        if (after != blocks_.end() && after->first < address + block.bytes) return false;
        if (after != blocks_.begin()) {
            const auto before = std::prev(after);
            if (before->first + before->second.bytes > address) return false;
        }
        blocks_.emplace(address, std::move(block));
        return true;
    }
    void remove(Blocks::iterator block) { blocks_.erase(block); }
    /// Pauses a tag's active blocks.
    void pause(const std::string& tag) {
        for (auto& [address, block] : blocks_) block.paused = block.paused || block.tag == tag;
    }
    void resume(const std::string& tag) {
        for (auto& [address, block] : blocks_) block.paused = block.paused && block.tag != tag;
    }
    Blocks::iterator any(Random& random) {
        return blocks_.empty() ? blocks_.end()
                               : std::next(blocks_.begin(), static_cast<std::ptrdiff_t>(random.below(blocks_.size())));
    }

    [[nodiscard]] Blocks& blocks() { return blocks_; }

private:
    Blocks blocks_;
};
} // namespace test
