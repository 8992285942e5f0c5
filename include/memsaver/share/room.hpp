// Who gets the room of a device next, and who is asked for it: what the leader of a share decides. Knows nothing about
// sockets, threads or drivers.
#pragma once

#include "memsaver/core/form.hpp"
#include "memsaver/core/vector.hpp"
#include "memsaver/share/message.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>

namespace memsaver::inline v0_3::detail {

/// The members of a share, who waits for room, and who was asked for some.
///
/// Who waits at the highest priority, and there longest, is served first; those behind get nothing of what it still
/// needs. If less is free than it needs, members that lend are asked, one after the other: lowest priority first, then
/// the one that has been idle for longest: has asked for nothing, taken and used nothing, and has lent; never below its
/// floor. One that has used its memory since it took some says so when it is asked, and is asked again after those that
/// have not. After all have been asked, a want that can wait does so until memory is freed or somebody begins to lend,
/// and asks them again from time to time. A grant is for all bytes of a want. Granted bytes are set aside until they
/// are taken, or said to be unused.
///
/// Who gives room may pass the pages themselves: when it is asked, and for a want that waits also later, when its owner
/// releases some. They wait here for the rest, count as free, and go with the next grant to whoever that is, or to the
/// driver if nobody can have them as they are, or no more come for a while. They are better than free memory, which the
/// driver may still have to clear: a want takes as many as are coming. Those that are to linger stay without a want,
/// until a grant needs what they hold.
class ShareRoom {
public:
    using Clock = std::chrono::steady_clock;
    /// A connection to a member.
    using Link = int;
    using Kind = ShareMessage::Kind;

    /// `within` of a want, besides a number of nanoseconds. `only_free`: what is free now; nobody is asked.
    static constexpr std::int64_t without_limit = -1;
    static constexpr std::int64_t only_free = -2;

    /// How long a want waits before it asks the same members again.
    static constexpr std::chrono::milliseconds ask_again{50};
    /// How long a member that says that it is giving room may take.
    static constexpr std::chrono::seconds gives_within{10};
    /// How often one that waits, or is giving, says so at least.
    static constexpr std::chrono::milliseconds says_so{200};
    /// One that waits, and has not said so for so long, may be stopped: it is passed by.
    static constexpr std::chrono::seconds silent_after{2};
    /// How long pages wait for more of them.
    static constexpr std::chrono::milliseconds pages_wait{100};
    /// How long they linger at most.
    static constexpr std::chrono::milliseconds longest = std::chrono::hours{1};
    /// How long a new leader waits for members to come before it says that nobody has more to give.
    static constexpr std::chrono::milliseconds gathers{50};

    /// `send` tells a member something, with a descriptor or -1; it does not call this object. False if it could not.
    /// `free_bytes` asks the device; nothing if it does not say, and another leader must answer. `answer_within`: how
    /// long a member that was asked for room may take before the next one is asked.
    ShareRoom(std::function<bool(Link, const ShareMessage&, int)> send,
              std::function<std::optional<std::uint64_t>()> free_bytes, std::chrono::nanoseconds answer_within,
              Clock::time_point now)
        : send_{std::move(send)}, free_bytes_{std::move(free_bytes)}, answer_within_{answer_within},
          gathered_{now + gathers}, asked_id_{static_cast<std::uint64_t>(now.time_since_epoch().count())} {}

    // Nobody is answered before the next look: what another member has said earlier is heard first, although it came
    // over another connection.
    void join(Link link, const ShareFacts& facts, Clock::time_point now);
    void leave(Link link);
    /// Anything that a member says after `hello`. `descriptor`: what came with it.
    void hear(Link link, const ShareMessage& message, Clock::time_point now, ShareFd descriptor = {});
    /// Sends who is there, a row each, and what lingers. `link`: of a member or not.
    void list(Link link, std::uint64_t id, Clock::time_point now) const;
    /// Passes by who has not answered in time, and serves who waits.
    void look(Clock::time_point now);
    /// When to look again, if nothing is heard before.
    [[nodiscard]] std::optional<Clock::time_point> next() const noexcept {
        std::optional<Clock::time_point> next = asked_until_;
        if (asked_ >= 0) return next; // pages wait for the answer
        for (const Page& each : pages_)
            if (!next || each.until < *next) next = each.until;
        return next;
    }

private:
    struct Member {
        Link link;
        ShareFacts facts;
        Clock::time_point active; // when it last wanted or took memory, used some before it was asked, or began to lend
        Clock::time_point recent{}; // when it last said so
    };
    struct Page { // on its way from one member to another
        ShareMessage message;
        ShareFd descriptor;
        Clock::time_point until; // when it goes to the driver
    };
    struct Want {
        Link link;
        std::uint64_t id;
        std::uint64_t bytes;
        std::int64_t within;
        std::int32_t priority;
        Vector<Link> asked;      // and itself
        Clock::time_point heard; // when its member last said that it waits
    };

    Member* find(Link link) noexcept;
    [[nodiscard]] static std::uint64_t idle(const Member& of, Clock::time_point now) noexcept {
        return static_cast<std::uint64_t>(std::chrono::nanoseconds{now - of.active}.count());
    }
    [[nodiscard]] std::uint64_t page_bytes() const noexcept {
        std::uint64_t bytes = 0;
        for (const Page& each : pages_) bytes += each.message.bytes;
        return bytes;
    }
    void want(Member& member, const ShareMessage& message, Clock::time_point now);
    void send(Link link, Kind kind, std::uint64_t id, std::uint64_t bytes = 0) const;
    /// Whom to ask next for a want; null if nobody is left. `rivals`: whether only idleness has decided.
    Member* lender(const Want& want, bool& rivals) noexcept;
    /// Asks somebody for what the first want lacks. False if nobody has more to give, and it does not wait for others.
    bool ask_for(Want& want, std::uint64_t missing, Clock::time_point now);
    void serve(Clock::time_point now);
    /// Sends a member pages that it can use for its want, and gives the driver those that hold the rest of it. `free`:
    /// of the driver's memory. Returns how many bytes it sent.
    std::uint64_t pass_pages(Member& to, const Want& want, std::int64_t free);
    /// Gives the driver the pages whose time is over, and those that wait for more of them and need not.
    void drop_pages(Clock::time_point now, bool need_not);
    void answered() noexcept { asked_ = -1, asked_until_.reset(); }

    std::function<bool(Link, const ShareMessage&, int)> send_;
    std::function<std::optional<std::uint64_t>()> free_bytes_;
    std::chrono::nanoseconds answer_within_;
    Clock::time_point gathered_;
    Vector<Member> members_;
    Vector<Want> wants_; // in the order in which they are served
    Vector<Page> pages_;
    Link asked_ = -1;        // who has been asked for room and has not answered
    std::uint64_t asked_id_; // the number of that question; of no other leader's either
    Clock::time_point asked_at_{};
    std::optional<Clock::time_point> asked_until_;
};

} // namespace memsaver::inline v0_3::detail

#include "memsaver/share/room.ipp"
