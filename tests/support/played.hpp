// The player's model: tags, blocks, the current content of each and the content after a resume. Pure bookkeeping,
// except that it writes and compares bytes of a host machine.
#pragma once

#include "memsaver/backup/backup.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <unistd.h>
#include <vector>

namespace test {
using namespace memsaver;
using namespace memsaver::detail;

/// The content of a block, now or after a pause.
enum class Holds : unsigned char { written, zero, lost };

struct PlayedTag {
    std::string name;
    Holds becomes; ///< the content after a pause of what was written
    AnyPolicy policy = Discard{};
};

struct PlayedBlock {
    std::size_t tag = 0;
    std::size_t bytes = 0;
    Holds holds = Holds::written;
    std::uint64_t seed = 0;      ///< of the written content
    bool flat = false;           ///< the content is one repeated byte, as the device writes it
    bool late = false;           ///< the device may not have written it yet
    bool workspace = false;      ///< belongs to a pool; the program must not free it
    std::optional<Holds> away{}; ///< if paused: its content after a resume

    void pause(Holds becomes) {
        if (!away) away = becomes;
    }
    void resume() {
        if (away && *away != Holds::written) holds = *away;
        away.reset();
    }
    /// Returns whether a backup holds the block's bytes.
    [[nodiscard]] bool kept() const { return away == Holds::written && holds == Holds::written; }

    [[nodiscard]] unsigned char byte_at(std::size_t i) const {
        return static_cast<unsigned char>((seed * 131 + (flat ? 0 : i / 256)) * 2654435761U >> 24U);
    }
    /// Writes the content with the CPU.
    void write(unsigned char* at) const {
        for (std::size_t i = 0; i < bytes; i += 256)
            std::memset(at + i, byte_at(i), std::min<std::size_t>(256, bytes - i));
    }
    /// Returns whether the first `count` bytes are as expected; of written content, compares only the ends of each 256
    /// bytes.
    [[nodiscard]] bool same(const unsigned char* at, std::size_t count) const {
        if (holds == Holds::lost) return true;
        if (holds == Holds::zero) return std::all_of(at, at + count, [](unsigned char byte) { return byte == 0; });
        for (std::size_t i = 0; i < count; i += 256) {
            if (at[i] != byte_at(i) || at[std::min<std::size_t>(i + 256, count) - 1] != byte_at(i)) return false;
        }
        return true;
    }
};

/// A file with the content of blocks for some seeds. Unlinked, so that it vanishes with the process.
struct PlayedFile {
    static constexpr std::uint64_t first_seed = 1'000'000'000;
    static constexpr std::size_t seeds = 3;
    static constexpr std::size_t bytes_each = 5_MiB + 4093;
    /// Returns the offset of a seed's bytes, which is never page-aligned.
    static constexpr std::size_t offset_of(std::uint64_t seed) {
        return 7 + static_cast<std::size_t>(seed - first_seed) * bytes_each;
    }

    PlayedFile() {
        std::ofstream out{path, std::ios::binary};
        out << "header,";
        std::vector<unsigned char> bytes(bytes_each);
        for (std::size_t i = 0; i < seeds; ++i) {
            const PlayedBlock block{.bytes = bytes_each, .seed = first_seed + i};
            block.write(bytes.data());
            out.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
        }
    }
    ~PlayedFile() {
        if (::getpid() == owner) (void)::unlink(path.c_str()); // not in a child that ends by `exit`
    }

    const pid_t owner = ::getpid();

    std::string path =
        (std::filesystem::temp_directory_path() / ("memsaver_played_" + std::to_string(::getpid()))).string();
};

struct PlayedBlocks : std::map<Address, PlayedBlock> {
    /// Returns false if the block overlaps another one. Paused blocks count: they keep their addresses.
    bool add(Address address, const PlayedBlock& block) {
        const auto after = lower_bound(address);
        if (after != end() && address + block.bytes > after->first) return false;
        if (after != begin() && std::prev(after)->first + std::prev(after)->second.bytes > address) return false;
        emplace(address, block);
        return true;
    }
    [[nodiscard]] std::size_t bytes() const {
        std::size_t sum = 0;
        for (const auto& [address, block] : *this) sum += block.bytes;
        return sum;
    }
    /// One of them, or the end if there is none. `Choices`: see Player.
    template <class Choices>
    iterator any(Choices& choices) {
        return empty() ? end() : std::next(begin(), static_cast<std::ptrdiff_t>(choices.below(size())));
    }
    [[nodiscard]] bool any_paused(std::size_t tag) const {
        return std::any_of(begin(), end(), [&](const auto& at) { return at.second.tag == tag && at.second.away; });
    }
};
} // namespace test
