// Shared by the tests of policies that keep bytes: the policies by name, recorded events, and access to the process's
// own pages and files.
#pragma once

#include "memsaver/backup/compressed.hpp"
#include "memsaver/backup/verified.hpp"
#include "support/bytes.hpp"
#include "support/machines.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>
#include <vector>

#include <sys/stat.h>

namespace test {

inline std::string directory() { return std::filesystem::temp_directory_path().string(); }

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
inline const std::string& no_codec() {
    static const std::string why = on_cuda() ? NvcompLibrary::load().problem : Lz4Library::load().problem;
    return why;
}

/// Whether there is no codec; prints why.
inline bool no_codec_here() {
    if (!no_codec().empty()) MESSAGE("skipped: Compressed: " << no_codec());
    return !no_codec().empty();
}

/// Compressed with small sizes: two pieces of two chunks.
template <class P>
Compressed<P> compressed(P policy) {
    return {.policy = std::move(policy), .piece_bytes = 2_MiB, .pieces = 2};
}

/// Returns every compressing policy with small sizes; none if there is no codec.
inline std::vector<NamedPolicy> coded_keepers(const Small& small = {}) {
    if (!no_codec().empty()) {
        MESSAGE("skipped: Compressed: " << no_codec());
        return {};
    }
    const unsigned threads = small.threads;
    return {
        {"pinned, compressed", compressed(HostBackup{.threads = threads})},
        {"pinned, given back, compressed", compressed(HostBackup{.retain = false, .threads = threads})},
        {"pinned, once, compressed", compressed(HostBackup{.refresh = Refresh::once, .threads = threads})},
        {"file, compressed", compressed(in_file(small))},
        {"pinned, compressed, verified", Verified<Compressed<HostBackup>>{compressed(HostBackup{.threads = threads})}},
        {"file, verified, compressed", compressed(Verified<FileBackup>{in_file(small)})}};
}

/// Practically always by kernel: hardly any copy takes less than a nanosecond.
inline constexpr KernelCopyOptions by_kernel{.after = std::chrono::nanoseconds{1}, .least_bytes = 1};

/// Returns every policy that keeps bytes, with small sizes.
inline std::vector<NamedPolicy> keepers(const Small& small = {}) {
    const unsigned threads = small.threads;
    HostBackup pageable_once = pageable(small);
    pageable_once.refresh = Refresh::once;
    HostBackup pageable_given_back = pageable(small);
    pageable_given_back.retain = false;
    FileBackup file_once = in_file(small);
    file_once.refresh = Refresh::once;
    FileBackup file_given_back = in_file(small);
    file_given_back.retain = false;
    std::vector<NamedPolicy> all{
        {"pinned", HostBackup{.threads = threads}},
        {"pinned, given back", HostBackup{.retain = false, .threads = threads}},
        {"pinned, by kernel", HostBackup{.threads = threads, .kernel_copies = by_kernel}},
        {"pinned, once", HostBackup{.refresh = Refresh::once, .threads = threads}},
        {"pageable", pageable(small)},
        {"pageable, given back", pageable_given_back},
        {"pageable, once", pageable_once},
        {"file", in_file(small)},
        {"file, given back", file_given_back},
        {"file, once", file_once},
        {"source", FileSource{.threads = threads, .ring_bytes = threads * 4_MiB}},
        {"source, given back", FileSource{.threads = threads, .ring_bytes = threads * 4_MiB, .retain = false}},
        {"pinned, verified", Verified<HostBackup>{{.threads = threads}}},
        {"pageable, verified", Verified<HostBackup>{pageable(small)}},
        {"file, verified", Verified<FileBackup>{in_file(small)}}};
    for (NamedPolicy& coded : coded_keepers(small)) all.push_back(std::move(coded));
    return all;
}

/// Records events from any thread.
class Told {
public:
    [[nodiscard]] EventSink sink() {
        return [events = events_](const Event& event) {
            const std::lock_guard lock{events->mutex};
            events->list.push_back(event);
        };
    }
    [[nodiscard]] std::vector<Event> of(EventKind kind) const {
        const std::lock_guard lock{events_->mutex};
        std::vector<Event> some;
        for (const Event& event : events_->list) {
            if (event.kind == kind) some.push_back(event);
        }
        return some;
    }
    void clear() {
        const std::lock_guard lock{events_->mutex};
        events_->list.clear();
    }

private:
    struct Events {
        std::mutex mutex;
        std::vector<Event> list;
    };
    std::shared_ptr<Events> events_ = std::make_shared<Events>();
};

/// Returns the flags of the process's mapping that contains an address, as in /proc/self/smaps.
inline std::string mapping_flags(const void* at) {
    std::ifstream smaps{"/proc/self/smaps"};
    bool here = false;
    for (std::string line; std::getline(smaps, line);) {
        std::uintptr_t begin = 0;
        std::uintptr_t end = 0;
        char dash = 0;
        std::istringstream text{line};
        if (text >> std::hex >> begin >> dash >> end && dash == '-') {
            here = begin <= reinterpret_cast<std::uintptr_t>(at) && reinterpret_cast<std::uintptr_t>(at) < end;
        } else if (here && line.rfind("VmFlags:", 0) == 0) {
            return line + ' ';
        }
    }
    return {};
}

/// Records which files a driver writes to.
template <class D>
class FileWatch {
public:
    explicit FileWatch(const FaultyDriver<D>& driver) : driver_{driver} {
        driver_.on_call([seen = seen_](const CallRecord& call) {
            if (call.call != Call::write_file) return;
            const std::lock_guard lock{seen->mutex};
            seen->last = call.file.descriptor;
        });
    }
    FileWatch(const FileWatch&) = delete;
    FileWatch& operator=(const FileWatch&) = delete;
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
