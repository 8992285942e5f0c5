// Definitions of message.hpp.
#pragma once

#include "memsaver/share/message.hpp"

#include "memsaver/core/lists.hpp"
#include "memsaver/core/vector.hpp"

#include <pthread.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <mutex>
#include <new>
#include <type_traits>

namespace memsaver::inline v0_3::detail {

static_assert(std::is_trivially_copyable_v<ShareMessage>);

/// The descriptors of all shares of this process. The one thing in the library that is process-wide: only a fork
/// handler runs before a child can hold them.
class ShareFds {
public:
    static ShareFds& all() {
        static ShareFds& fds = *new ShareFds; // never destroyed: a share may end later than any other object
        return fds;
    }
    /// While it is held, no child is forked.
    [[nodiscard]] std::unique_lock<std::mutex> hold() { return std::unique_lock{mutex_}; }
    /// While it is held, a fork waits for a second.
    [[nodiscard]] std::unique_lock<std::mutex> delay_forks() { return std::unique_lock{exporting_}; }
    /// Before they are opened: what `add` needs for so many.
    void reserve(std::size_t count, const std::unique_lock<std::mutex>& /*held*/) {
        if (fds_.capacity() - fds_.size() < count) fds_.reserve(2 * fds_.size() + count);
    }
    [[nodiscard]] ShareFd add(int descriptor, const std::unique_lock<std::mutex>& /*held*/) noexcept {
        ShareFd added;
        if (descriptor < 0 || !SystemFiles::opened(descriptor, false, added.file_).ok()) return added;
        fds_.push_back(added.file_);
        added.forks_ = forks_;
        return added;
    }
    void close(const FileRef& file, unsigned forks) noexcept {
        const std::lock_guard lock{mutex_};
        if (forks != forks_) return; // closed in this child
        erase_in(fds_, [&](const FileRef& each) { return each == file; });
        (void)SystemFiles::close_file(file);
    }

private:
    ShareFds() {
        (void)::pthread_atfork([] { all().before_fork(); },
                               [] {
                                   if (all().delayed_) all().exporting_.unlock();
                                   all().mutex_.unlock();
                               },
                               [] { all().in_child(); });
    }
    void before_fork() {
        constexpr int tries = 5000;
        bool delayed = false;
        for (int i = 0; i < tries && !(delayed = exporting_.try_lock()); ++i) (void)::usleep(200);
        mutex_.lock();
        delayed_ = delayed;
    }
    void in_child() {
        if (delayed_)
            exporting_.unlock();
        else
            new (&exporting_) std::mutex; // its holder is not in this process
        for (const FileRef& each : fds_) (void)SystemFiles::close_file(each);
        fds_.clear();
        forks_ += 1;
        mutex_.unlock();
    }

    std::mutex exporting_; // before the other one
    bool delayed_ = false; // whether the thread that forks has it
    std::mutex mutex_;
    Vector<FileRef> fds_;
    unsigned forks_ = 0;
};

inline ShareFd ShareFd::opened(FunctionRef<int()> open) {
    ShareFds& all = ShareFds::all();
    const auto held = all.hold();
    all.reserve(1, held);
    return all.add(open(), held);
}

inline ShareFd ShareFd::exported(FunctionRef<int()> open) {
    const auto delayed = ShareFds::all().delay_forks();
    const int descriptor = open();
    return opened([=] { return descriptor; });
}

inline void ShareFd::reset() noexcept {
    if (file_.descriptor >= 0) ShareFds::all().close(std::exchange(file_, {}), forks_);
}

inline bool ShareMessage::sound(std::size_t received) const noexcept {
    const ShareMessage wanted;
    return received == sizeof *this && mark == wanted.mark && version == this_version && size == sizeof *this &&
           kind <= Kind::end && facts.name.back() == '\0' && bytes <= most_bytes && facts.held <= most_bytes &&
           facts.granted <= most_bytes;
}

/// How many descriptors go with a message at most; the kernel's limit is 253.
inline constexpr std::size_t most_sent = 128;

/// Sends a message with descriptors. Returns sendmsg's result.
inline ssize_t send_with_descriptors(int socket, iovec data, const int* descriptors, std::size_t count,
                                     int flags = MSG_DONTWAIT) noexcept {
    alignas(cmsghdr) std::array<char, CMSG_SPACE(most_sent * sizeof(int))> control{};
    msghdr header{};
    header.msg_iov = &data;
    header.msg_iovlen = 1;
    if (count != 0) {
        header.msg_control = control.data();
        header.msg_controllen = CMSG_SPACE(count * sizeof(int));
        cmsghdr* const part = CMSG_FIRSTHDR(&header);
        part->cmsg_level = SOL_SOCKET;
        part->cmsg_type = SCM_RIGHTS;
        part->cmsg_len = CMSG_LEN(count * sizeof(int));
        std::memcpy(CMSG_DATA(part), descriptors, count * sizeof(int));
    }
    return ::sendmsg(socket, &header, flags | MSG_NOSIGNAL);
}

inline bool send_message(int socket, const ShareMessage& message, int descriptor) noexcept {
    ssize_t sent = 0;
    do {
        sent = send_with_descriptors(socket, {const_cast<ShareMessage*>(&message), sizeof message}, &descriptor,
                                     descriptor >= 0 ? 1 : 0);
    } while (sent < 0 && errno == EINTR);
    return sent == static_cast<ssize_t>(sizeof message);
}

/// Receives a message without waiting, with all descriptors that came with it. Returns recvmsg's result, and its flags.
inline ssize_t receive_with_descriptors(int socket, iovec data, void* control, std::size_t control_bytes,
                                        Vector<ShareFd>& came, int& flags) {
    msghdr header{};
    header.msg_iov = &data;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = control_bytes;
    const std::size_t most = control_bytes / sizeof(int);
    came.reserve(came.size() + most); // else some would be nobody's
    ShareFds& all = ShareFds::all();
    const auto held = all.hold();
    all.reserve(most, held);
    const ssize_t got = ::recvmsg(socket, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    flags = header.msg_flags;
    for (cmsghdr* part = got < 0 ? nullptr : CMSG_FIRSTHDR(&header); part != nullptr;
         part = CMSG_NXTHDR(&header, part)) {
        if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
        const std::size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (std::size_t i = 0; i < count; ++i) {
            int each = -1;
            std::memcpy(&each, CMSG_DATA(part) + i * sizeof each, sizeof each);
            came.push_back(all.add(each, held));
        }
    }
    return got;
}

inline ShareReceived receive_message(int socket, ShareMessage& message, ShareFd& descriptor) {
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))]{}; // has room for two
    Vector<ShareFd> came;
    int flags = 0;
    ssize_t got = 0;
    do {
        got = receive_with_descriptors(socket, {&message, sizeof message}, control, sizeof control, came, flags);
    } while (got < 0 && errno == EINTR);
    if (got < 0 && errno == EAGAIN) return ShareReceived::nothing;
    descriptor.reset();
    if (came.size() == 1) descriptor = std::move(came.front());
    const bool sound = got > 0 && (flags & MSG_TRUNC) == 0 && message.sound(static_cast<std::size_t>(got));
    return sound ? ShareReceived::message : ShareReceived::ended;
}

} // namespace memsaver::inline v0_3::detail
