// Who gets the room of a device next, and who is asked for it: what the leader of a share decides. Knows nothing about
// sockets, threads or drivers.
#pragma once

#include "memsaver/core/lists.hpp"
#include "memsaver/core/vector.hpp"
#include "memsaver/share/message.hpp"

#include <algorithm>
#include <chrono>
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
    void join(Link link, const ShareFacts& facts, Clock::time_point now) {
        members_.push_back({link, facts, now});
        send(link, Kind::welcome, 0);
    }
    void leave(Link link) {
        erase_in(members_, [&](const Member& each) { return each.link == link; });
        erase_in(wants_, [&](const Want& each) { return each.link == link; });
        arrived(link);
        for (Want& each : wants_)
            erase_in(each.asked, [&](Link asked) { return asked == link; }); // another one may get its number
        if (asked_ == link) answered();
    }
    /// Anything that a member says after `hello`. `descriptor`: what came with it.
    void hear(Link link, const ShareMessage& message, Clock::time_point now, ShareFd descriptor = {}) {
        Member* const member = find(link);
        if (member == nullptr) return;
        const auto less = [&](std::uint64_t& of) { of -= std::min(of, message.bytes); };
        switch (message.kind) {
        case Kind::facts: { // but for what is on its way to the member, which this side has counted
            const std::uint64_t held = member->facts.held;
            const std::uint64_t granted = member->facts.granted;
            if (message.facts.lends > member->facts.lends) { // it was busy until now
                member->active = now;
                for (Want& each : wants_)
                    if (each.link != link) erase_in(each.asked, [&](Link asked) { return asked == link; });
            }
            member->facts = message.facts;
            member->facts.held = held;
            member->facts.granted = granted;
            break;
        }
        case Kind::want: want(*member, message, now), member->active = now; break;
        case Kind::cancel:
            erase_in(wants_, [&](const Want& each) { return each.link == link && each.id == message.id; });
            break;
        case Kind::still:
            for (Want& each : wants_) {
                if (each.link != link || each.id != message.id) continue;
                each.heard = now;
                send(link, Kind::waits, message.id);
            }
            break;
        case Kind::took:
            less(member->facts.granted);
            member->facts.held += message.bytes;
            member->active = now;
            break;
        case Kind::unused: less(member->facts.granted); break;
        case Kind::pass: // the giver has it, too, until it says `freed`
            for (Page& each : pages_)
                if (each.message.within == 0) each.until = std::max(each.until, now + pages_wait);
            if (descriptor) { // else the driver has them already
                const std::chrono::nanoseconds lingers{
                    std::clamp<std::int64_t>(message.within, 0, std::chrono::nanoseconds{longest}.count())};
                pages_.push_back({message, std::move(descriptor),
                                  now + std::max<std::chrono::nanoseconds>(pages_wait, lingers), link});
            }
            break;
        case Kind::freed:
            less(member->facts.held);
            arrived(link);
            break;
        case Kind::turned:
            less(member->facts.held);
            member->facts.granted += message.bytes;
            break;
        case Kind::giving:
            if (asked_ == link && message.id == asked_id_)
                asked_until_ = std::max(*asked_until_, std::min(now + answer_within_, asked_at_ + gives_within));
            break;
        case Kind::gave:
        case Kind::recent:
            if (asked_ != link || message.id != asked_id_) break;
            answered();
            if (message.kind == Kind::gave) break;
            member->active = now - std::chrono::nanoseconds{std::min(message.facts.idle, idle(*member, now))};
            member->recent = now;
            for (Want& each : wants_)
                if (each.link != link && each.asked.back() == link) each.asked.pop_back(); // may ask it again
            break;
        default: break; // what only a leader says
        }
    }
    /// Sends who is there, a row each, and what lingers. `link`: of a member or not.
    void list(Link link, std::uint64_t id, Clock::time_point now) const {
        ShareMessage row{.kind = Kind::row, .id = id};
        for (const Member& each : members_) {
            row.facts = each.facts;
            row.facts.idle = idle(each, now);
            for (const Want& want : wants_)
                if (want.link == each.link && want.within != only_free) row.facts.waiting += want.bytes;
            (void)send_(link, row, -1);
        }
        std::uint64_t lingering = 0;
        for (const Page& each : pages_) lingering += each.message.within != 0 ? each.message.bytes : 0;
        send(link, Kind::end, id, lingering);
    }
    /// Passes by who has not answered in time, and serves who waits.
    void look(Clock::time_point now) {
        if (asked_until_ && now >= *asked_until_) answered();
        serve(now);
    }
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
        Link from;               // who still has a descriptor of it, too; -1: nobody
    };
    struct Want {
        Link link;
        std::uint64_t id;
        std::uint64_t bytes;
        std::int64_t within;
        std::int32_t priority;
        Vector<Link> asked;      // itself first
        Clock::time_point heard; // when its member last said that it waits
    };

    Member* find(Link link) noexcept {
        return first_in(members_, [&](const Member& each) { return each.link == link; });
    }
    [[nodiscard]] static std::uint64_t idle(const Member& of, Clock::time_point now) noexcept {
        return static_cast<std::uint64_t>(std::chrono::nanoseconds{now - of.active}.count());
    }
    [[nodiscard]] std::uint64_t page_bytes() const noexcept {
        std::uint64_t bytes = 0;
        for (const Page& each : pages_) bytes += each.from < 0 ? each.message.bytes : 0;
        return bytes;
    }
    void arrived(Link from) noexcept {
        for (Page& each : pages_)
            if (each.from == from) each.from = -1;
    }
    void want(Member& member, const ShareMessage& message, Clock::time_point now) {
        const auto behind = std::find_if(wants_.begin(), wants_.end(),
                                         [&](const Want& each) { return each.priority < member.facts.priority; });
        wants_.insert(
            behind,
            {member.link, message.id, message.bytes, message.within, member.facts.priority, {member.link}, now});
        send(member.link, Kind::waits, message.id);
    }
    void send(Link link, Kind kind, std::uint64_t id, std::uint64_t bytes = 0) const {
        (void)send_(link, {.kind = kind, .id = id, .bytes = bytes}, -1);
    }
    /// Whom to ask next for a want; null if nobody is left. `rivals`: whether only idleness has decided.
    Member* lender(const Want& want, bool& rivals) noexcept {
        const auto rank = [](const Member& of) { return std::pair{of.facts.lends == 0, of.facts.priority}; };
        Member* best = nullptr;
        for (Member& each : members_) {
            const bool asked = is_in(want.asked, each.link);
            const bool idle = each.facts.lends == 0 && want.within == 0; // could only pass what it releases later
            if (asked || idle || each.facts.held <= each.facts.floor) continue;
            const bool equal = best != nullptr && rank(each) == rank(*best);
            const bool before = best == nullptr || rank(each) < rank(*best);
            rivals = equal || (rivals && !before);
            if (before || (equal && each.active < best->active)) best = &each;
        }
        return best;
    }
    /// Asks somebody for what the first want lacks. False if nobody has more to give, and it does not wait for others.
    bool ask_for(Want& want, std::uint64_t missing, Clock::time_point now) {
        if (asked_ >= 0) return true; // the answer may be enough
        bool rivals = false;
        if (Member* const from = lender(want, rivals)) {
            want.asked.push_back(from->link);
            asked_ = from->link;
            asked_at_ = now;
            asked_until_ = now + answer_within_;
            ShareMessage message{.kind = Kind::lend,
                                 .id = ++asked_id_,
                                 .bytes = std::min(missing, from->facts.held - from->facts.floor),
                                 .within = static_cast<std::int64_t>(want.bytes - std::min(want.bytes, page_bytes())),
                                 .facts = find(want.link)->facts};
            // Believed once in a while: several that are all in use would pass the question round for ever.
            message.facts.idle = rivals && now - from->recent >= ask_again ? idle(*from, now) : 0;
            (void)send_(from->link, message, -1);
            return true;
        }
        if (want.within != 0) {   // what others hold may become idle without anybody's telling
            want.asked.resize(1); // itself
            asked_until_ = now + ask_again;
        } else if (now < gathered_) {
            asked_until_ = gathered_;
        } else {
            return false;
        }
        return true;
    }
    void serve(Clock::time_point now) {
        if (wants_.empty()) return drop_pages(now, true);
        const std::uint64_t pages = page_bytes();
        const std::optional<std::uint64_t> unused = free_bytes_();
        if (!unused) return;
        std::uint64_t free = *unused + pages;
        for (const Member& each : members_) free -= std::min(free, each.facts.granted);
        for (Want& each : wants_) each.asked.reserve(members_.size()); // nothing may throw while wants are shifted
        Link first = -1; // that waits: what is free, and all pages, are for that one
        erase_in(wants_, [&](Want& want) {
            const bool asks = is_in(want.asked, asked_);
            const bool more = asks && !pages_.empty() && pages < want.bytes && want.within != only_free; // are coming
            if (want.within != only_free && now - want.heard > silent_after) return false; // it may be stopped
            // A member is not in its own way, and who is asked for room has what it needs to give some.
            const bool behind = first >= 0 && (want.within != only_free || (want.link != first && want.link != asked_));
            const std::uint64_t there = first < 0 ? free : free - std::min(free, page_bytes());
            const bool granted = !behind && want.bytes <= there && !more;
            const bool waits =
                !granted && want.within != only_free &&
                (behind ? want.within != 0 || asked_ >= 0 || now < gathered_ : ask_for(want, want.bytes - free, now));
            if (waits) {
                first = first < 0 ? want.link : first;
                return false;
            }
            if (granted) {
                Member& to = *find(want.link);
                const std::uint64_t passed =
                    first >= 0 ? 0
                               : pass_pages(to, want,
                                            static_cast<std::int64_t>(free) - static_cast<std::int64_t>(page_bytes()));
                free -= want.bytes;
                want.bytes -= passed;
                to.facts.granted += want.bytes;
                if (first < 0) drop_pages(now, true);
            }
            send(want.link, granted ? Kind::grant : Kind::deny, want.id, want.bytes);
            return true;
        });
        if (asked_ < 0) drop_pages(now, false); // nobody is about to make them enough
    }
    /// Sends a member pages that it can use for its want, and gives the driver those that hold the rest of it. `free`:
    /// of the driver's memory. Returns how many bytes it sent.
    std::uint64_t pass_pages(Member& to, const Want& want, std::int64_t free) {
        std::uint64_t passed = 0;
        erase_in(pages_, [&](Page& each) {
            ShareMessage message = each.message;
            const bool fits = each.from < 0 && message.facts.pages == to.facts.pages &&
                              message.bytes <= want.bytes - passed &&
                              (want.within != only_free || message.bytes == want.bytes) && // for one handle
                              (message.as_left == 0 || to.facts.trusted != 0);
            message.kind = Kind::page;
            const bool sent = fits && send_(to.link, message, each.descriptor.get());
            passed += sent ? message.bytes : 0;
            return sent;
        });
        to.facts.held += passed;
        const auto rest = static_cast<std::int64_t>(want.bytes - passed);
        for (auto each = pages_.end(); free < rest && each != pages_.begin();) {
            if ((--each)->from >= 0) continue;
            free += static_cast<std::int64_t>(each->message.bytes);
            pages_.erase(each);
        }
        return passed;
    }
    /// Gives the driver the pages whose time is over, and those that wait for more of them and need not.
    void drop_pages(Clock::time_point now, bool need_not) {
        erase_in(pages_, [&](const Page& each) { return now >= each.until || (need_not && each.message.within == 0); });
    }
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
