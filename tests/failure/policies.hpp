// The subjects of a sweep: a small machine, and every policy with small sizes. Independent of the operations.
#pragma once

#include "backup/backup_support.hpp"
#include "support/host_calls.hpp"

namespace test {

/// A small host machine that maps host pages lazily, because a sweep maps and unmaps them more often than anything else
/// and hardly touches them. The pages begin a little before a boundary of the cells in which they are pinned, so that
/// small backups have several cells.
struct ThriftyMachine : DeviceAround {
    using DeviceAround::DeviceAround;

    Status map_host(std::size_t bytes, void*& pages) noexcept override {
        constexpr std::size_t cell = HostCells::cell_bytes;
        constexpr std::uintptr_t first = 0x2000'0000'0000; // far from the addresses that the system chooses
        constexpr std::size_t before = 16_KiB;
        static std::atomic<std::size_t> last{0};
        const std::uintptr_t place = first + (last++ % 16'384 + 1) * 4 * cell - before;
        // If the address is in use, the system chooses one.
        void* const made = ::mmap(reinterpret_cast<void*>(place), bytes, // NOLINT(performance-no-int-to-ptr)
                                  PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (made == MAP_FAILED) return {StatusKind::out_of_host_memory, errno, "mmap"};
        pages = made;
        return {};
    }
    Status unmap_host(void* pages, std::size_t bytes) noexcept override {
        return ::munmap(pages, bytes) == 0 ? Status{} : Status{StatusKind::other, errno, "munmap"};
    }
    Status populate_host(void*, std::size_t) noexcept override { return {}; }
    Status host_available(std::size_t& bytes) noexcept override {
        bytes = 8_GiB;
        return {};
    }
};

using ThriftyHost = HostWith<ThriftyMachine>;
using FailingDriver = FaultyDriver<ThriftyHost>;

/// From here on, every device call returns that the device is lost, and no device work runs. Calls on host pages and
/// files keep working.
inline void lose(const FailingDriver& driver) {
    REQUIRE(driver.inner().drain().ok());
    for (std::size_t i = 0; i < call_kinds; ++i) {
        const auto call = static_cast<Call>(i);
        if (test::is_of_the_host(call)) continue;
        driver.fail({.call = call, .lasting = Lasting::onwards, .kind = StatusKind::gone});
    }
}

/// The content of a block after a pause and a resume.
enum class Becomes : unsigned char { kept, zero, poison, unknown };

struct SweptPolicy {
    std::string name;
    AnyPolicy policy;
    Becomes becomes;
    /// Bytes are saved to another device. A simulated loss would leave copies running in pages that are released.
    bool elsewhere = false;
};

/// The poison of the policies here; differs from that of fresh pages.
inline constexpr unsigned char poison = 0x5A;

/// A device beside the swept ones that holds backups.
inline const HostDriver& quiet_peer() {
    static const HostDriver peer{1_GiB, {.device = 7}};
    return peer;
}

/// Returns every policy, with small sizes.
inline std::vector<SweptPolicy> every_policy(unsigned threads) {
    const Small small{quick_directory(), threads};
    std::vector<SweptPolicy> all{{"discard", Discard{}, Becomes::unknown},
                                 {"discard, poisoned", Discard{.poison = poison}, Becomes::poison},
                                 {"zero", Zero{}, Becomes::zero}};
    for (auto& [name, policy] : keepers(small)) {
        // Sweeps only some of the combined policies, because every point of every one takes minutes.
        if (name.find("compressed") != std::string::npos && name != "pinned, compressed" && name != "file, compressed")
            continue;
        if (name == "source, given back") continue;
        all.push_back({name, policy, Becomes::kept});
    }
    all.push_back({"peer, given back", PeerBackup{.peer = quiet_peer(), .retain = false}, Becomes::kept, true});
    return all;
}

/// Returns the policies with these names: by default one of each kind, for operations that depend little on the policy.
inline std::vector<SweptPolicy> some_policies(unsigned threads, std::initializer_list<std::string_view> names = {
                                                                    "zero", "pinned", "pageable, given back",
                                                                    "file, once", "pinned, verified"}) {
    std::vector<SweptPolicy> some;
    for (SweptPolicy& each : every_policy(threads)) {
        if (std::find(names.begin(), names.end(), each.name) != names.end()) some.push_back(std::move(each));
    }
    const auto coded = [](std::string_view name) { return name.find("compressed") != std::string_view::npos; };
    const auto missing = no_codec().empty() ? 0 : std::count_if(names.begin(), names.end(), coded);
    REQUIRE(some.size() + static_cast<std::size_t>(missing) == names.size());
    return some;
}

/// Stands for an engine's thread pool.
struct ThreadPool final : Executor {
    enum class Way : unsigned char { at_once, never, refuses };
    explicit ThreadPool(Way way) : way_{way} {}
    void submit(std::function<void()> task) override {
        if (way_ == Way::refuses) throw OutOfHostMemory{"no thread to be had"};
        if (way_ == Way::at_once) task();
    }

private:
    Way way_;
};

/// Returns policies that compare the bytes that they do not save, and policies whose copies run on an engine's threads.
inline std::vector<SweptPolicy> checked_and_executed() {
    const Small small{quick_directory(), 1};
    const HostBackup pinned_once{.refresh = Refresh::once, .check = true, .threads = 1};
    HostBackup pageable_once = pageable(small);
    pageable_once.refresh = Refresh::once;
    pageable_once.check = true;
    FileBackup file_once = in_file(small);
    file_once.refresh = Refresh::once;
    file_once.check = true;
    HostBackup never = pageable(small);
    never.executor = std::make_shared<ThreadPool>(ThreadPool::Way::never);
    FileBackup refuses = in_file(small);
    refuses.executor = std::make_shared<ThreadPool>(ThreadPool::Way::refuses);
    const HostBackup at_once{.threads = 2, .executor = std::make_shared<ThreadPool>(ThreadPool::Way::at_once)};
    return {{"pinned, once, checked", pinned_once, Becomes::kept},
            {"pageable, once, checked", pageable_once, Becomes::kept},
            {"file, once, checked", file_once, Becomes::kept},
            {"pinned, by an executor", at_once, Becomes::kept},
            {"pageable, by an executor that never comes to it", never, Becomes::kept},
            {"file, by an executor that refuses", refuses, Becomes::kept}};
}

/// Returns the bytes of a block, computed once for each size and seed.
inline const std::vector<unsigned char>& expected_bytes(std::size_t bytes, std::uint64_t seed) {
    static std::map<std::pair<std::size_t, std::uint64_t>, std::vector<unsigned char>> made;
    auto& found = made[{bytes, seed}];
    if (found.empty()) found = pattern(bytes, seed);
    return found;
}
} // namespace test
