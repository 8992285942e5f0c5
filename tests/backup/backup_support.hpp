// Shared by the tests of policies that keep bytes: the policies by name, and access to the process's own pages and
// files.
#pragma once

#include "support/machines.hpp"

namespace test {

inline std::string directory() { return std::filesystem::temp_directory_path().string(); }
/// In memory if possible.
inline std::string quick_directory() {
    return std::filesystem::is_directory("/dev/shm") ? std::string{"/dev/shm"} : directory();
}

struct NamedPolicy {
    std::string name;
    AnyPolicy policy;
};

/// Small sizes: a ring has two buffers per thread.
struct Small {
    std::string directory = test::directory();
    unsigned threads = 2;
};

inline HostBackup pageable(const Small& small = {}) {
    return {.storage = Storage::pageable, .threads = small.threads, .ring_bytes = small.threads * 4_MiB};
}
inline FileBackup in_file(const Small& small = {}) {
    return {.directory = small.directory, .threads = small.threads, .ring_bytes = small.threads * 4_MiB};
}

/// Returns why Compressed cannot be tested here; empty if it can.
const std::string& no_codec();

/// Whether there is no codec; prints why.
bool no_codec_here();

/// Returns every compressing policy with small sizes; none if there is no codec.
std::vector<NamedPolicy> coded_keepers(const Small& small = {});

/// Practically always by kernel: hardly any copy takes less than a nanosecond.
inline constexpr KernelCopyOptions by_kernel{.after = std::chrono::nanoseconds{1}, .least_bytes = 1};

/// Returns every policy that keeps bytes, with small sizes.
std::vector<NamedPolicy> keepers(const Small& small = {});

/// Returns the flags of the process's mapping that contains an address, as in /proc/self/smaps.
std::string mapping_flags(const void* at);

/// Filled blocks.
template <class D>
struct Blocks {
    Blocks(const D& driver, const Arena& arena, const std::vector<std::size_t>& sizes) : driver_{driver} {
        for (const std::size_t bytes : sizes) add(arena, bytes);
    }
    void add(const Arena& arena, std::size_t bytes) { blocks_.emplace_back(driver_, arena, bytes); }
    void write(std::uint64_t seed) {
        for (Filled<D>& block : blocks_) block.write(++seed * 1000);
    }
    [[nodiscard]] bool whole(std::size_t i) const { return blocks_[i].whole(); }
    [[nodiscard]] bool whole() const {
        return std::all_of(blocks_.begin(), blocks_.end(), [](const Filled<D>& block) { return block.whole(); });
    }
    void drop(std::size_t i) { blocks_.erase(blocks_.begin() + static_cast<std::ptrdiff_t>(i)); }
    [[nodiscard]] void* at(std::size_t i) const { return blocks_[i].data(); }

private:
    D driver_;
    std::vector<Filled<D>> blocks_;
};

/// Records which files a driver writes to.
template <class D>
struct FileWatch {
    explicit FileWatch(const FaultyDriver<D>& driver) : driver_{driver} {
        driver_.on_call([seen = seen_](const CallRecord& call) {
            if (call.call != Call::write_file) return;
            const std::lock_guard lock{seen->mutex};
            seen->last = call.file.descriptor;
        });
    }
    ~FileWatch() { driver_.on_call({}); }

    [[nodiscard]] int descriptor() const {
        const std::lock_guard lock{seen_->mutex};
        return seen_->last;
    }
    [[nodiscard]] struct stat status() const {
        struct stat status {};
        REQUIRE(::fstat(descriptor(), &status) == 0);
        return status;
    }
    /// Returns the file's size on disk.
    [[nodiscard]] std::size_t disk_bytes() const { return static_cast<std::size_t>(status().st_blocks) * 512; }

private:
    struct Seen {
        std::mutex mutex;
        int last = -1;
    };
    FaultyDriver<D> driver_;
    std::shared_ptr<Seen> seen_ = std::make_shared<Seen>();
};
} // namespace test
