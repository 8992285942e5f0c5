// A device and a folder for a test of several processes.
#pragma once

#include "memsaver/memsaver.hpp"
#include "memsaver/share/share.hpp"
#include "process/process_support.hpp"
#include "support/bytes.hpp"

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <doctest/doctest.h>
#include <fcntl.h>
#include <filesystem>
#include <string>
#include <sys/socket.h>
#include <sys/un.h>
#include <thread>
#include <unistd.h>

namespace share_support {
using namespace memsaver;
using namespace std::chrono_literals;

inline constexpr std::size_t page = 64_KiB;

/// A machine and a folder of the test's own.
struct Place {
    Place() {
        char name[] = "/tmp/memsaver-share-XXXXXX";
        REQUIRE(::mkdtemp(name) != nullptr);
        folder = name;
        machine = "share-" + std::string{name}.substr(20);
    }
    ~Place() {
        std::filesystem::remove_all(folder);
        // The last one removes the machine; children of a test may need a moment to end.
        const std::string pages = "/dev/shm/memsaver-" + std::to_string(::geteuid()) + '/' + machine;
        for (int tries = 0; tries < 500 && std::filesystem::exists(pages); ++tries) {
            (void)device();
            std::this_thread::sleep_for(10ms);
        }
    }

    [[nodiscard]] HostDriver device() const { return HostDriver{64 * page, {.machine = machine, .granularity = page}}; }
    /// Members may take longer to answer than by default: machines that run tests are busy.
    [[nodiscard]] Share join(ShareOptions options) const { return join(std::move(options), device()); }
    [[nodiscard]] Share join(ShareOptions options, const AnyDriver& device) const {
        options.folder = folder;
        if (options.answer_within == ShareOptions{}.answer_within) options.answer_within = 3s;
        return Share{device, options};
    }

    std::string folder;
    std::string machine;
};

/// A saver, and the share that it is of.
struct Member : MemorySaver<> {
    Member(const Place& place, ShareOptions options) : Member{place.join(std::move(options))} {}
    explicit Member(Share joined) : MemorySaver<>{joined.driver()}, share{std::move(joined)} {}
    [[nodiscard]] Lending lend() { return share.lend(*this); }

    const Share share;
};

/// What most cases begin with, as TEST_CASE_FIXTURE.
struct OnPlace {
    const Place place{};
};

/// The same with what members of the share see of its folder.
struct InFolder : OnPlace {
    const detail::ShareFolder folder{"", place.folder};
};

inline bool all_are(const void* block, int value, std::size_t bytes) {
    return test::filled_with(block, bytes, static_cast<unsigned char>(value));
}

/// A block in a tag that others may have while it is idle.
inline void* fill(MemorySaver<>& saver, const char* tag, std::size_t bytes, int value) {
    void* const block = saver.arena(tag, HostBackup{}, ArenaOptions{.evictable = true}).allocate(bytes);
    std::memset(block, value, bytes);
    return block;
}

/// Of the place's device.
inline std::size_t free_bytes(const Place& place) { return test::memory_of(place.device()).free_bytes; }

inline std::size_t held_by_all(const Share& share) {
    std::size_t bytes = 0;
    for (const ShareMember& each : share.members()) bytes += each.held_bytes;
    return bytes;
}

/// Stops a child in the middle of no call of the simulated device: it would have the lock that others wait for.
inline void stop(const Place& place, const process_test::Child& child) {
    const std::string name = "/dev/shm/memsaver-" + std::to_string(::geteuid()) + '/' + place.machine + "/lock";
    const int file = ::open(name.c_str(), O_RDWR | O_CLOEXEC);
    REQUIRE(file >= 0);
    REQUIRE(detail::SystemLocks::lock(file, F_WRLCK, true).ok());
    child.stop();
    (void)::close(file);
}

/// Of an open descriptor, or invalid if it is negative.
inline detail::ShareFd owned(int descriptor) {
    return detail::ShareFd::opened([=] { return descriptor; });
}

/// Whether a socket is bound to a name in a share's folder, or connected to one.
inline bool is_of_a_share(int socket) {
    for (const auto name_of : {&::getsockname, &::getpeername}) {
        sockaddr_un address{};
        socklen_t size = sizeof address - 1;
        if (name_of(socket, reinterpret_cast<sockaddr*>(&address), &size) == 0 &&
            std::string{address.sun_path}.starts_with("/proc/self/fd/"))
            return true;
    }
    return false;
}

/// Whether this process has a share's socket, or anything in the place's folder, open: for a forked child. Drivers have
/// sockets of their own.
inline bool has_share_descriptors(const Place& place) {
    for (const auto& [descriptor, target] : process_test::descriptors()) {
        if (descriptor > STDERR_FILENO && (is_of_a_share(descriptor) || target.starts_with(place.folder))) return true;
    }
    return false;
}

/// Waits until it holds.
template <class F>
bool soon(F holds) {
    for (int tries = 0; tries < 4000; ++tries, std::this_thread::sleep_for(5ms))
        if (holds()) return true;
    return false;
}

/// A publication as a member would make it, of nothing yet.
inline std::shared_ptr<detail::Publication> publication_of(const char* name, std::uint64_t id = 0) {
    auto made = std::make_shared<detail::Publication>();
    std::strncpy(made->facts.name.data(), name, made->facts.name.size() - 1);
    made->facts.id = id;
    return made;
}

/// The next connection to a socket.
inline detail::ShareFd accepted(const detail::ShareFd& listener, int flags = SOCK_CLOEXEC | SOCK_NONBLOCK) {
    detail::ShareFd link;
    CHECK(soon([&] {
        link = owned(::accept4(listener.get(), nullptr, nullptr, flags));
        return static_cast<bool>(link);
    }));
    return link;
}
} // namespace share_support
