// Operations over all policies, chosen by a fuzzer's bytes, with some failing driver calls.
#pragma once

#include "support/player.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

namespace test {

/// The fuzzer's bytes, one for each choice; 0 once they are used up.
class Bytes {
public:
    explicit Bytes(std::span<const std::uint8_t> data) : data_{data} {}
    std::size_t below(std::size_t end) { return at_ < data_.size() ? data_[at_++] % end : 0; }
    [[nodiscard]] bool left() const { return at_ < data_.size(); }

private:
    std::span<const std::uint8_t> data_;
    std::size_t at_ = 0;
};

/// Throws if the library and the model disagree.
inline void play(std::span<const std::uint8_t> input) {
    Bytes bytes{input};
    Player<Bytes> player{bytes};
    while (bytes.left()) player.step();
    player.end();
}
} // namespace test
