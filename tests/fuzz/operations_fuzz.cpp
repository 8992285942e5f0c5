// Operations over all policies, chosen by libFuzzer, with some failing driver calls.
#include "support/player.hpp"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iostream>

namespace {

/// The fuzzer's bytes, one for each choice; 0 once they are used up.
class Bytes {
public:
    Bytes(const std::uint8_t* data, std::size_t size) : data_{data}, size_{size} {}
    std::size_t below(std::size_t end) { return at_ < size_ ? data_[at_++] % end : 0; }
    [[nodiscard]] bool left() const { return at_ < size_; }

private:
    const std::uint8_t* data_;
    std::size_t size_;
    std::size_t at_ = 0;
};

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    Bytes bytes{data, size};
    try {
        test::FailingPlayer<Bytes> player{bytes};
        while (bytes.left()) player.step();
        player.end();
    } catch (const std::exception& error) {
        std::cerr << "broken: " << error.what() << '\n';
        std::abort(); // signals a finding to the fuzzer
    }
    return 0;
}
