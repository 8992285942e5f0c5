// The folder in which the members of a share meet.
#pragma once

#include "memsaver/core/error.hpp"
#include "memsaver/driver/system.hpp"
#include "memsaver/share/message.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

namespace memsaver::inline v0_3::detail {

/// The address of a socket in the folder. Names it through the folder's descriptor, because the paths of sockets end at
/// 107 bytes.
inline sockaddr_un address_in_folder(int folder, const char* name) noexcept {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    (void)std::snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/%s", folder, name);
    return address;
}

/// `<runtime dir>/memsaver/<device>`, or the folder that the program names; the runtime dir is XDG_RUNTIME_DIR, else
/// /tmp/memsaver-UID. Its rights are the security of the share: it is made with mode 0700, and refused if another user
/// owns it or has any right in it.
class ShareFolder {
public:
    /// `folder`: empty for the usual one. Throws Unavailable with the folder and the reason.
    ShareFolder(const std::string& identity, const std::string& folder) {
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
            for (const char each : identity) path_ += each == '/' ? '_' : each;
        }
        make(path_);
        folder_ =
            ShareFd::opened([&] { return ::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC); });
        if (!folder_) must(path_, system_status(errno));
        // who cleans /tmp passes by what is locked: systemd-tmpfiles(8)
        (void)::flock(folder_.get(), LOCK_SH | LOCK_NB);
    }

    [[nodiscard]] const std::string& path() const noexcept { return path_; }

    /// Takes the leader's lock. It ends with the descriptor, or with the process. Invalid, with errno, if it cannot be
    /// had: EAGAIN if somebody has it.
    [[nodiscard]] ShareFd lead() const {
        ShareFd file = ShareFd::opened(
            [&] { return ::openat(folder_.get(), "leader.lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600); });
        if (!file) return file;
        const Status status = SystemLocks::lock(file.get(), F_WRLCK);
        if (status.ok() && SystemLocks::is_named(file.get(), folder_.get(), "leader.lock")) return file;
        file.reset();
        errno = status.ok() || status.code == EACCES ? EAGAIN : status.code; // removed: as if somebody had it
        return file;
    }
    /// A socket of this name, by default the leader's, for who has its lock; in place of any that was there. Nobody
    /// sees it before it can be connected to. Invalid, with errno, if it cannot be made.
    [[nodiscard]] ShareFd listen(const char* name = "leader") const {
        ShareFd made = new_socket();
        if (!made) return {};
        const std::string early = "." + std::to_string(::getpid()) + name;
        (void)::unlinkat(folder_.get(), early.c_str(), 0); // of a process that was killed in the middle
        const sockaddr_un address = address_in_folder(folder_.get(), early.c_str());
        constexpr int most = 128;
        if (::bind(made.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
            ::listen(made.get(), most) == 0 && ::renameat(folder_.get(), early.c_str(), folder_.get(), name) == 0)
            return made;
        made.reset(); // keeps errno
        const int error = errno;
        remove(early.c_str());
        errno = error;
        return {};
    }
    /// Invalid, with errno, if nobody is there: ECONNREFUSED if the process of the socket has ended.
    [[nodiscard]] ShareFd connect(const char* name = "leader") const {
        ShareFd made = new_socket();
        const sockaddr_un address = address_in_folder(folder_.get(), name);
        if (made && ::connect(made.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
            made.reset(); // keeps errno
        return made;
    }
    /// The names that begin so.
    [[nodiscard]] std::vector<std::string> names(std::string_view prefix) const {
        std::vector<std::string> found;
        const Status status = SystemLocks::each_name(folder_.get(), [&](const char* name) {
            if (std::string_view{name}.starts_with(prefix)) found.emplace_back(name);
        });
        if (!status.ok()) refuse("cannot read", status);
        return found;
    }
    void remove(const char* name) const noexcept { (void)::unlinkat(folder_.get(), name, 0); }
    /// One of many locks, by number, if nobody has it. Ends with the descriptor, or with the process. Throws
    /// Unavailable if it cannot be asked for.
    [[nodiscard]] ShareFd lock(std::uint64_t number) const {
        ShareFd file = ShareFd::opened([&] {
            return ::openat(folder_.get(), "publishing.lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
        });
        const Status status = file ? SystemLocks::lock(file.get(), F_WRLCK, false, static_cast<off_t>(number >> 2), 1)
                                   : system_status(errno);
        if (!status.ok() && (!file || (status.code != EAGAIN && status.code != EACCES)))
            refuse("cannot lock a file in", status);
        return status.ok() ? std::move(file) : ShareFd{};
    }
    /// Throws Unavailable: "Share: cannot read the folder /tmp/...: EMFILE".
    [[noreturn]] void refuse(const char* what, const Status& status) const {
        unavailable({"Share: ", what, " the folder ", path_, ": ", to_string(status)}, status);
    }

private:
    static ShareFd new_socket() {
        return ShareFd::opened([] { return ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); });
    }

    std::string path_;
    ShareFd folder_;
};

} // namespace memsaver::inline v0_3::detail
