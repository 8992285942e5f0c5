// Definitions of message.hpp.
#pragma once

#include "memsaver/share/message.hpp"

#include <pthread.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <mutex>
#include <type_traits>
#include <vector>

namespace memsaver::inline v0_3 {

namespace detail {

static_assert(std::is_trivially_copyable_v<ShareMessage>);

/// The descriptors of all shares of this process. The one thing in the library that is process-wide: only a fork
/// handler runs before a child can hold them.
class ShareFds {
public:
    static ShareFds& all() {
        static ShareFds fds;
        return fds;
    }
    void add(int descriptor) {
        const std::lock_guard lock{mutex_};
        fds_.push_back(descriptor);
    }
    void close(int descriptor) noexcept {
        const std::lock_guard lock{mutex_};
        std::erase(fds_, descriptor);
        (void)::close(descriptor);
    }

private:
    ShareFds() {
        (void)::pthread_atfork([] { all().mutex_.lock(); }, [] { all().mutex_.unlock(); },
                               [] {
                                   for (int& each : all().fds_) (void)::close(std::exchange(each, -1));
                                   all().fds_.clear();
                                   all().mutex_.unlock();
                               });
    }
    std::mutex mutex_;
    std::vector<int> fds_;
};

inline ShareFd::ShareFd(int descriptor) : descriptor_{descriptor} {
    if (descriptor < 0) return;
    try {
        ShareFds::all().add(descriptor);
    } catch (...) {
        (void)::close(descriptor);
        throw;
    }
}

inline void ShareFd::reset() noexcept {
    if (descriptor_ >= 0) ShareFds::all().close(std::exchange(descriptor_, -1));
}

inline bool ShareMessage::sound(std::size_t received) const noexcept {
    const ShareMessage wanted;
    return received == sizeof *this && mark == wanted.mark && version == this_version && size == sizeof *this &&
           kind <= Kind::end && facts.name.back() == '\0';
}

inline bool send_message(int socket, const ShareMessage& message, int descriptor) noexcept {
    iovec data{const_cast<ShareMessage*>(&message), sizeof message};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))]{};
    msghdr header{};
    header.msg_iov = &data;
    header.msg_iovlen = 1;
    if (descriptor >= 0) {
        header.msg_control = control;
        header.msg_controllen = sizeof control;
        cmsghdr* const part = CMSG_FIRSTHDR(&header);
        part->cmsg_level = SOL_SOCKET;
        part->cmsg_type = SCM_RIGHTS;
        part->cmsg_len = CMSG_LEN(sizeof descriptor);
        std::memcpy(CMSG_DATA(part), &descriptor, sizeof descriptor);
    }
    ssize_t sent = 0;
    do {
        sent = ::sendmsg(socket, &header, MSG_DONTWAIT | MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    return sent == static_cast<ssize_t>(sizeof message);
}

inline ShareReceived receive_message(int socket, ShareMessage& message, ShareFd& descriptor) {
    iovec data{&message, sizeof message};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))]{};
    msghdr header{};
    header.msg_iov = &data;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = sizeof control;
    ssize_t got = 0;
    do {
        got = ::recvmsg(socket, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    } while (got < 0 && errno == EINTR);
    if (got < 0 && errno == EAGAIN) return ShareReceived::nothing;
    descriptor.reset();
    for (cmsghdr* part = got < 0 ? nullptr : CMSG_FIRSTHDR(&header); part != nullptr;
         part = CMSG_NXTHDR(&header, part)) {
        if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
        int sent = -1;
        std::memcpy(&sent, CMSG_DATA(part), sizeof sent);
        descriptor = ShareFd{sent};
    }
    const bool sound = got > 0 && (header.msg_flags & MSG_TRUNC) == 0 && message.sound(static_cast<std::size_t>(got));
    return sound ? ShareReceived::message : ShareReceived::ended;
}

} // namespace detail

} // namespace memsaver::inline v0_3
