// What members of a share say to each other: messages of one size over a local socket, and the descriptors of a share.
#pragma once

#include "memsaver/core/function_ref.hpp"
#include "memsaver/core/lists.hpp"
#include "memsaver/core/vector.hpp"
#include "memsaver/driver/system.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <new>
#include <type_traits>
#include <utility>

namespace memsaver::inline v0_3::detail {

/// What a member says of itself.
struct ShareFacts {
    std::array<char, 64> name{};
    std::int64_t process = 0; ///< its number, as it sees it itself: for display only
    std::int32_t priority = 0;
    std::uint32_t lends = 0; ///< whether it can be asked for memory
    std::uint64_t floor = 0;
    std::uint64_t ceiling = 0;
    std::uint64_t held = 0;      ///< device memory that it has
    std::uint64_t granted = 0;   ///< and may take
    std::uint64_t published = 0; ///< device memory of what it has published
    std::uint64_t waiting = 0;   ///< for so much; the leader knows
    std::uint64_t trusted = 0;   ///< takes pages as they were left, and gives them so
    std::uint64_t idle = 0;      ///< nanoseconds since it took memory or used some, as far as who says it knows
    std::uint64_t pages = 0;     ///< what its pages are like: only members with the same number pass pages on

    /// Whether such pages are of another device: the last bit is not of the device.
    [[nodiscard]] bool of_other_device(std::uint64_t other) const noexcept { return (pages ^ other) > 1; }
};

struct ShareMessage {
    enum class Kind : std::uint32_t {
        // A member to the leader.
        hello,  ///< `facts`, with a descriptor of its process
        facts,  ///< new `facts`
        want,   ///< `bytes` in one go; `within`: see ShareRoom::want
        cancel, ///< no longer waits for want `id`
        still,  ///< asks for `waits` again, if want `id` is still in the queue: whether the leader lives
        took,   ///< `bytes` that had been granted were created
        unused, ///< `bytes` that had been granted will not be
        freed,  ///< `bytes` were released
        pass,   ///< with a descriptor of pages of `bytes`, before they are `freed`. They stay for `within` (ns)
        turned, ///< pages of `bytes` that were passed to it went to the driver: it may take as much instead
        giving, ///< the answer to `lend` `id` takes longer: it is releasing
        gave,   ///< the answer to `lend`: released what it could
        recent, ///< or: has given nothing yet, because it has been idle for `facts.idle` only
        list,   ///< asks for the members; also of who is none
        leave,  ///< the connection ends, and not because the process does
        // The leader to a member.
        welcome, ///< with a descriptor of the leader's process
        waits,   ///< want `id` is in the queue
        grant,   ///< of want `id`
        deny,    ///< want `id`: nobody has more to give; with a member's own facts: it is of another device
        lend, ///< asks for `bytes`, for a want of which `within` may be passed pages; `facts`: of the one that waits,
              ///< with the `idle` of the one that is asked, or 0 if no other one could be asked rather
        page, ///< with a descriptor: `bytes` that are the member's from now on. The rest of a want is granted
        row,  ///< a member's `facts`, in answer to `list` `id`
        end   ///< after the last row; `bytes`: of pages that linger
    };
    static constexpr std::uint32_t this_version = 7;
    /// More than any device has: sums of a few do not overflow.
    static constexpr std::uint64_t most_bytes = std::uint64_t{1} << 60U;

    std::array<char, 8> mark{'m', 'e', 'm', 's', 'h', 'a', 'r', 'e'};
    std::uint32_t version = this_version;
    std::uint32_t size = sizeof(ShareMessage);
    Kind kind = Kind::hello;
    std::uint32_t as_left = 0; ///< of passed pages: they were not cleared
    std::uint64_t id = 0;
    std::uint64_t bytes = 0;
    std::int64_t within = 0;
    ShareFacts facts{};

    /// Whether it can be understood: from a member, of this version, of this size, with numbers that can be.
    [[nodiscard]] bool sound(std::size_t received) const noexcept {
        const ShareMessage wanted;
        return received == sizeof *this && mark == wanted.mark && version == this_version && size == sizeof *this &&
               kind <= Kind::end && facts.name.back() == '\0' && bytes <= most_bytes && facts.held <= most_bytes &&
               facts.granted <= most_bytes;
    }
};

static_assert(std::is_trivially_copyable_v<ShareMessage>);

/// An open descriptor of a share. A forked child closes those of all shares at once: what it would keep are its
/// parent's locks, sockets and pages. One that the program has closed behind the share's back is -1 from then on.
class ShareFd {
public:
    ShareFd() noexcept = default;
    /// What `open` returns. It does not wait, and no child is forked meanwhile: one would keep the descriptor. Invalid,
    /// with errno, if it is negative. Closes it and throws std::bad_alloc if there is no memory.
    static inline ShareFd opened(FunctionRef<int()> open);
    /// Likewise for calls of a driver, which may wait for locks that other threads hold while they wait for a fork: one
    /// waits for a second at most.
    static inline ShareFd exported(FunctionRef<int()> open);
    /// A pipe, of which this is both ends: wakes who polls it. Not an eventfd: all of those are one file to who asks
    /// whether a number still is the share's.
    static inline ShareFd pipe();
    ShareFd(ShareFd&& other) noexcept : file_{std::exchange(other.file_, {})}, forks_{other.forks_} {}
    ShareFd& operator=(ShareFd&& other) noexcept {
        std::swap(file_, other.file_);
        std::swap(forks_, other.forks_);
        return *this;
    }
    ~ShareFd() { reset(); }

    [[nodiscard]] int get() const noexcept { return SystemFiles::number_of(file_); }
    [[nodiscard]] explicit operator bool() const noexcept { return file_.descriptor >= 0; }
    /// Keeps errno.
    inline void reset() noexcept;

private:
    friend class ShareFds;

    FileRef file_;
    unsigned forks_ = 0; // how often the process had been forked: in a child, the number may be another file's
};

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
    try {
        return opened([=] { return descriptor; });
    } catch (...) {
        if (descriptor >= 0) (void)::close(descriptor);
        throw;
    }
}

inline ShareFd ShareFd::pipe() {
    return opened([] {
        std::array<int, 2> ends{};
        if (::pipe2(ends.data(), O_CLOEXEC) != 0) return -1;
        std::array<char, 32> name{};
        (void)std::snprintf(name.data(), name.size(), "/proc/self/fd/%d", ends[0]);
        const int both = ::open(name.data(), O_RDWR | O_CLOEXEC | O_NONBLOCK);
        const int error = errno;
        for (const int end : ends) (void)::close(end);
        errno = error;
        return both;
    });
}

inline void ShareFd::reset() noexcept {
    const int error = errno; // closing asks what the descriptor is
    if (file_.descriptor >= 0) ShareFds::all().close(std::exchange(file_, {}), forks_);
    errno = error;
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

/// Sends without waiting. False if the other end is gone, or does not read.
inline bool send_message(int socket, const ShareMessage& message, int descriptor = -1) noexcept {
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

/// What a receive came to.
enum class ShareReceived { message, nothing, ended };

/// Receives without waiting. `descriptor`: what came with it, if it is one. A message that cannot be understood ends
/// the connection like one that is closed.
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
