// Definitions of room.hpp.
#pragma once

#include "memsaver/share/room.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace memsaver::inline v0_3::detail {

inline ShareRoom::Member* ShareRoom::find(Link link) noexcept {
    const auto found =
        std::find_if(members_.begin(), members_.end(), [&](const Member& each) { return each.link == link; });
    return found == members_.end() ? nullptr : &*found;
}

inline void ShareRoom::send(Link link, Kind kind, std::uint64_t id, std::uint64_t bytes) const {
    ShareMessage message;
    message.kind = kind;
    message.id = id;
    message.bytes = bytes;
    (void)send_(link, message, -1);
}

inline void ShareRoom::join(Link link, const ShareFacts& facts, Clock::time_point now) {
    members_.push_back({link, facts, now});
    send(link, Kind::welcome, 0);
}

inline void ShareRoom::leave(Link link) {
    erase_in(members_, [&](const Member& each) { return each.link == link; });
    erase_in(wants_, [&](const Want& each) { return each.link == link; });
    for (Want& each : wants_)
        erase_in(each.asked, [&](Link asked) { return asked == link; }); // another one may get its number
    if (asked_ == link) answered();
}

inline void ShareRoom::hear(Link link, const ShareMessage& message, Clock::time_point now, ShareFd descriptor) {
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
    case Kind::freed: less(member->facts.held); break;
    case Kind::pass:
        less(member->facts.held);
        for (Page& each : pages_)
            if (each.message.within == 0) each.until = std::max(each.until, now + pages_wait);
        if (descriptor) { // else the driver has them already
            const std::chrono::nanoseconds lingers{
                std::clamp<std::int64_t>(message.within, 0, std::chrono::nanoseconds{longest}.count())};
            pages_.push_back(
                {message, std::move(descriptor), now + std::max<std::chrono::nanoseconds>(pages_wait, lingers)});
        }
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

inline void ShareRoom::want(Member& member, const ShareMessage& message, Clock::time_point now) {
    const auto behind = std::find_if(wants_.begin(), wants_.end(),
                                     [&](const Want& each) { return each.priority < member.facts.priority; });
    wants_.insert(behind,
                  {member.link, message.id, message.bytes, message.within, member.facts.priority, {member.link}, now});
    send(member.link, Kind::waits, message.id);
}

inline void ShareRoom::list(Link link, std::uint64_t id, Clock::time_point now) const {
    ShareMessage row;
    row.kind = Kind::row;
    row.id = id;
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

inline void ShareRoom::look(Clock::time_point now) {
    if (asked_until_ && now >= *asked_until_) answered();
    serve(now);
}

inline ShareRoom::Member* ShareRoom::lender(const Want& want, bool& rivals) noexcept {
    const auto rank = [](const Member& of) { return std::pair{of.facts.lends == 0, of.facts.priority}; };
    Member* best = nullptr;
    for (Member& each : members_) {
        const bool asked = std::find(want.asked.begin(), want.asked.end(), each.link) != want.asked.end();
        const bool idle = each.facts.lends == 0 && want.within == 0; // could only pass what it releases later
        if (asked || idle || each.facts.held <= each.facts.floor) continue;
        const bool equal = best != nullptr && rank(each) == rank(*best);
        const bool before = best == nullptr || rank(each) < rank(*best);
        rivals = equal || (rivals && !before);
        if (before || (equal && each.active < best->active)) best = &each;
    }
    return best;
}

inline bool ShareRoom::ask_for(Want& want, std::uint64_t missing, Clock::time_point now) {
    if (asked_ >= 0) return true; // the answer may be enough
    bool rivals = false;
    if (Member* const from = lender(want, rivals)) {
        want.asked.push_back(from->link);
        asked_ = from->link;
        asked_at_ = now;
        asked_until_ = now + answer_within_;
        ShareMessage message;
        message.kind = Kind::lend;
        message.id = ++asked_id_;
        message.bytes = std::min(missing, from->facts.held - from->facts.floor);
        message.within = static_cast<std::int64_t>(want.bytes - std::min(want.bytes, page_bytes()));
        message.facts = find(want.link)->facts;
        // Believed once in a while: several that are all in use would pass the question round for ever.
        message.facts.idle = rivals && now - from->recent >= ask_again ? idle(*from, now) : 0;
        (void)send_(from->link, message, -1);
        return true;
    }
    if (want.within != 0) { // what others hold may become idle without anybody's telling
        want.asked = {want.link};
        asked_until_ = now + ask_again;
    } else if (now < gathered_) {
        asked_until_ = gathered_;
    } else {
        return false;
    }
    return true;
}

inline void ShareRoom::serve(Clock::time_point now) {
    if (wants_.empty()) return drop_pages(now, true);
    const std::uint64_t pages = page_bytes();
    const std::optional<std::uint64_t> unused = free_bytes_();
    if (!unused) return;
    std::uint64_t free = *unused + pages;
    for (const Member& each : members_) free -= std::min(free, each.facts.granted);
    bool behind = false; // of one that waits: what is free is for that one
    erase_in(wants_, [&](Want& want) {
        const bool asks = std::find(want.asked.begin(), want.asked.end(), asked_) != want.asked.end();
        const bool more = asks && !pages_.empty() && pages < want.bytes && want.within != only_free; // are coming
        if (want.within != only_free && now - want.heard > silent_after) return false; // it may be stopped
        const bool granted = !behind && want.bytes <= free && !more;
        const bool waits =
            !granted && want.within != only_free &&
            (behind ? want.within != 0 || asked_ >= 0 || now < gathered_ : ask_for(want, want.bytes - free, now));
        behind = behind || waits;
        if (waits) return false;
        if (granted) {
            Member& to = *find(want.link);
            const std::uint64_t passed =
                pass_pages(to, want, static_cast<std::int64_t>(free) - static_cast<std::int64_t>(page_bytes()));
            free -= want.bytes;
            want.bytes -= passed;
            to.facts.granted += want.bytes;
            drop_pages(now, true);
        }
        send(want.link, granted ? Kind::grant : Kind::deny, want.id, want.bytes);
        return true;
    });
    if (asked_ < 0) drop_pages(now, false); // nobody is about to make them enough
}

inline void ShareRoom::drop_pages(Clock::time_point now, bool need_not) {
    erase_in(pages_, [&](const Page& each) { return now >= each.until || (need_not && each.message.within == 0); });
}

inline std::uint64_t ShareRoom::pass_pages(Member& to, const Want& want, std::int64_t free) {
    std::uint64_t passed = 0;
    erase_in(pages_, [&](Page& each) {
        ShareMessage message = each.message;
        const bool fits = message.facts.pages == to.facts.pages && message.bytes <= want.bytes - passed &&
                          (want.within != only_free || message.bytes == want.bytes) && // for one handle
                          (message.as_left == 0 || to.facts.trusted != 0);
        message.kind = Kind::page;
        const bool sent = fits && send_(to.link, message, each.descriptor.get());
        passed += sent ? message.bytes : 0;
        return sent;
    });
    to.facts.held += passed;
    const auto rest = static_cast<std::int64_t>(want.bytes - passed);
    for (; free < rest && !pages_.empty(); pages_.pop_back())
        free += static_cast<std::int64_t>(pages_.back().message.bytes);
    return passed;
}

} // namespace memsaver::inline v0_3::detail
