// The codec for devices whose memory the host can address: small, and run on the calling thread. Made for tests.
#pragma once

#include "memsaver/backup/codec.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace memsaver::inline v0_3::detail {

/// Stores only words that differ from the word before: for each 64 words, one whose bits say which they are, and these.
class HostCodec final : public Codec {
public:
    explicit HostCodec(AnyDriver driver) : driver_{std::move(driver)} {}

    Status measure(std::size_t bytes, std::size_t /*chunks*/, Sizes& sizes) const noexcept override {
        sizes = {bytes + (bytes / 512 + 1) * 8, 0};
        return {};
    }
    Status encode(const Place& place, std::span<const Range> plain, std::span<Range> coded,
                  std::span<std::uint32_t> sums) const noexcept override {
        if (const Status status = pass(driver_, place); !status.ok()) return status;
        for (std::size_t i = 0; i < plain.size(); ++i) {
            coded[i].bytes = encode(here(plain[i].address), plain[i].bytes / 8, here(coded[i].address)) * 8;
            sums[i] = checksum(here(coded[i].address), coded[i].bytes);
        }
        return {};
    }
    Status decode(const Place& place, std::span<const Range> coded, std::span<const std::uint32_t> expected,
                  std::span<std::uint32_t> sums, std::span<const Range> plain) const noexcept override {
        if (const Status status = pass(driver_, place); !status.ok()) return status;
        for (std::size_t i = 0; i < coded.size(); ++i) sums[i] = checksum(here(coded[i].address), coded[i].bytes);
        if (!std::equal(sums.begin(), sums.end(), expected.begin())) return {};
        Status status;
        for (std::size_t i = 0; i < coded.size() && status.ok(); ++i)
            status = decode(here(coded[i].address), coded[i].bytes, here(plain[i].address), plain[i].bytes);
        return status;
    }
    Status decode_here(std::span<const std::byte> coded, std::uint32_t sum, std::span<std::byte> plain,
                       bool& damaged) const noexcept override {
        const auto* const words = reinterpret_cast<const std::uint64_t*>(coded.data());
        damaged = checksum(words, coded.size()) != sum;
        if (damaged) return {};
        return decode(words, coded.size(), reinterpret_cast<std::uint64_t*>(plain.data()), plain.size());
    }

    /// Differs for chunks that differ in one half of a word: each step maps different sums to different sums.
    static std::uint32_t checksum(const std::uint64_t* words, std::size_t bytes) noexcept {
        auto sum = static_cast<std::uint32_t>(bytes);
        for (std::size_t i = 0; i < bytes / 4; ++i) {
            sum = (sum ^ static_cast<std::uint32_t>(words[i / 2] >> (i % 2 * 32))) * 0x9E3779B1U;
            sum ^= sum >> 16U;
        }
        return sum;
    }

private:
    static std::uint64_t* here(Address address) noexcept {
        return reinterpret_cast<std::uint64_t*>(address); // NOLINT(performance-no-int-to-ptr): the host can address it
    }
    /// Returns the number of coded words.
    static std::size_t encode(const std::uint64_t* plain, std::size_t words, std::uint64_t* coded) noexcept {
        std::uint64_t last = 0;
        std::size_t count = 0;
        for (std::size_t begin = 0; begin < words; begin += 64) {
            std::uint64_t& fresh = coded[count++];
            fresh = 0;
            for (std::size_t i = begin; i < std::min(words, begin + 64); ++i) {
                if (plain[i] == last) continue;
                fresh |= std::uint64_t{1} << (i - begin);
                coded[count++] = last = plain[i];
            }
        }
        return count;
    }
    static Status decode(const std::uint64_t* coded, std::size_t coded_bytes, std::uint64_t* plain,
                         std::size_t plain_bytes) noexcept {
        const std::uint64_t* const end = coded + coded_bytes / 8;
        std::uint64_t last = 0;
        std::uint64_t fresh = 0;
        for (std::size_t i = 0; i < plain_bytes / 8; ++i, fresh >>= 1U) {
            if (i % 64 == 0 && coded != end) fresh = *coded++;
            if ((fresh & 1U) != 0 && coded != end) last = *coded++;
            plain[i] = last;
        }
        return coded == end ? Status{} : Status{StatusKind::other, 0, "the bytes cannot be decompressed"};
    }

    AnyDriver driver_;
};

} // namespace memsaver::inline v0_3::detail
