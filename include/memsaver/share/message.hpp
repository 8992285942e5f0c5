// What members of a share say to each other: messages of one size over a local socket, and the descriptors of a share.
#pragma once

#include "memsaver/core/form.hpp"
#include "memsaver/core/function_ref.hpp"
#include "memsaver/core/status.hpp"
#include "memsaver/driver/system.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
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
        pass, ///< with a descriptor of pages: they have `bytes`, and are no longer its own. They stay for `within` (ns)
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
    static constexpr std::uint32_t this_version = 6;
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
    [[nodiscard]] bool sound(std::size_t received) const noexcept;
};

/// An open descriptor of a share. A forked child closes those of all shares at once: what it would keep are its
/// parent's locks, sockets and pages. One that the program has closed behind the share's back is -1 from then on.
class ShareFd {
public:
    ShareFd() noexcept = default;
    /// What `open` returns. It does not wait, and no child is forked meanwhile: one would keep the descriptor. Invalid,
    /// with errno, if it is negative. Closes it and throws std::bad_alloc if there is no memory.
    static ShareFd opened(FunctionRef<int()> open);
    /// Likewise for calls of a driver, which may wait for locks that other threads hold while they wait for a fork: one
    /// waits for a second at most.
    static ShareFd exported(FunctionRef<int()> open);
    ShareFd(ShareFd&& other) noexcept : file_{std::exchange(other.file_, {})}, forks_{other.forks_} {}
    ShareFd& operator=(ShareFd&& other) noexcept {
        std::swap(file_, other.file_);
        std::swap(forks_, other.forks_);
        return *this;
    }
    ~ShareFd() { reset(); }

    [[nodiscard]] int get() const noexcept { return SystemFiles::number_of(file_); }
    [[nodiscard]] explicit operator bool() const noexcept { return file_.descriptor >= 0; }
    void reset() noexcept;

private:
    friend class ShareFds;

    FileRef file_;
    unsigned forks_ = 0; // how often the process had been forked: in a child, the number may be another file's
};

/// What a receive came to.
enum class ShareReceived { message, nothing, ended };

/// Sends without waiting. False if the other end is gone, or does not read.
bool send_message(int socket, const ShareMessage& message, int descriptor = -1) noexcept;
/// Receives without waiting. `descriptor`: what came with it, if it is one. A message that cannot be understood ends
/// the connection like one that is closed.
ShareReceived receive_message(int socket, ShareMessage& message, ShareFd& descriptor);

} // namespace memsaver::inline v0_3::detail

#include "memsaver/share/message.ipp"
