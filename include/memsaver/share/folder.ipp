// Definitions of folder.hpp.
#pragma once

#include "memsaver/core/error.hpp"
#include "memsaver/driver/system.hpp"
#include "memsaver/share/folder.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

namespace memsaver::inline v0_3::detail {

inline ShareFolder::ShareFolder(const std::string& identity, const std::string& folder) {
    const auto must = [](const std::string& path, const Status& status) {
        if (!status.ok()) unavailable({"Share: cannot use the folder ", path, ": ", to_string(status)}, status);
    };
    const auto make = [&](const std::string& path) { must(path, SystemLocks::own_folder(path.c_str())); };
    if (!folder.empty()) {
        path_ = folder;
    } else {
        const char* const runtime = std::getenv("XDG_RUNTIME_DIR"); // NOLINT(concurrency-mt-unsafe)
        const bool given = runtime != nullptr && runtime[0] == '/';
        path_ = given ? std::string{runtime} : "/tmp/memsaver-" + std::to_string(::geteuid());
        if (!given) make(path_);
        path_ += "/memsaver";
        make(path_);
        path_ += '/';
        for (const char each : identity) {
            const bool plain = (each >= 'a' && each <= 'z') || (each >= 'A' && each <= 'Z') ||
                               (each >= '0' && each <= '9') || each == '-' || each == '.';
            path_ += plain ? each : '_';
        }
    }
    make(path_);
    folder_ = ShareFd::opened([&] { return ::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC); });
    if (!folder_) must(path_, system_status(errno));
    (void)::flock(folder_.get(), LOCK_SH | LOCK_NB); // who cleans /tmp passes by what is locked: systemd-tmpfiles(8)
}

inline void ShareFolder::refuse(const char* what, const Status& status) const {
    unavailable({"Share: ", what, " the folder ", path_, ": ", to_string(status)}, status);
}

inline ShareFd ShareFolder::lead() const {
    ShareFd file = ShareFd::opened(
        [&] { return ::openat(folder_.get(), "leader.lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600); });
    if (!file || (SystemLocks::lock(file.get(), F_WRLCK).ok() &&
                  SystemLocks::is_named(file.get(), folder_.get(), "leader.lock")))
        return file;
    file.reset();
    errno = EAGAIN;
    return file;
}

/// The address of a socket in the folder. Names it through the folder's descriptor, because the paths of sockets end at
/// 107 bytes.
inline sockaddr_un address_in_folder(int folder, const char* name) noexcept {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    (void)std::snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/%s", folder, name);
    return address;
}

inline ShareFd ShareFolder::listen(const char* name) const {
    ShareFd made = ShareFd::opened([&] { return ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); });
    if (!made) return {};
    const std::string early = "." + std::to_string(::getpid()) + name;
    (void)::unlinkat(folder_.get(), early.c_str(), 0); // of a process that was killed in the middle
    const sockaddr_un address = address_in_folder(folder_.get(), early.c_str());
    constexpr int most = 128;
    if (::bind(made.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
        ::listen(made.get(), most) == 0 && ::renameat(folder_.get(), early.c_str(), folder_.get(), name) == 0)
        return made;
    const int error = errno;
    remove(early.c_str());
    made.reset();
    errno = error;
    return made;
}

inline ShareFd ShareFolder::connect(const char* name) const {
    ShareFd made = ShareFd::opened([&] { return ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); });
    if (!made) return {};
    const sockaddr_un address = address_in_folder(folder_.get(), name);
    if (::connect(made.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return made;
    const int error = errno; // closing asks what the descriptor is
    made.reset();
    errno = error;
    return {};
}

inline std::vector<std::string> ShareFolder::names(std::string_view prefix) const {
    std::vector<std::string> found;
    const Status status = SystemLocks::each_name(folder_.get(), [&](const char* name) {
        if (std::string_view{name}.starts_with(prefix)) found.emplace_back(name);
    });
    if (!status.ok()) refuse("cannot read", status);
    return found;
}

inline void ShareFolder::remove(const char* name) const noexcept { (void)::unlinkat(folder_.get(), name, 0); }

inline ShareFd ShareFolder::lock(std::uint64_t number) const {
    ShareFd file = ShareFd::opened(
        [&] { return ::openat(folder_.get(), "publishing.lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600); });
    struct flock lock {};
    lock.l_type = F_WRLCK;
    lock.l_start = static_cast<off_t>(number >> 2);
    lock.l_len = 1;
    const bool locked = file && ::fcntl(file.get(), F_OFD_SETLK, &lock) == 0;
    if (!locked && (!file || (errno != EAGAIN && errno != EACCES)))
        refuse("cannot lock a file in", system_status(errno));
    return locked ? std::move(file) : ShareFd{};
}

} // namespace memsaver::inline v0_3::detail
