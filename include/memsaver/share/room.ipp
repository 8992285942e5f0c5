// Definitions of room.hpp.
#pragma once

#include "memsaver/share/room.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <tuple>

namespace memsaver::inline v0_3 {

namespace detail {

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
    send_(link, message);
}

inline void ShareRoom::join(Link link, const ShareFacts& facts, Clock::time_point now) {
    members_.push_back({link, facts, now});
    send(link, Kind::welcome, 0);
}

inline void ShareRoom::leave(Link link) {
    std::erase_if(members_, [&](const Member& each) { return each.link == link; });
    std::erase_if(wants_, [&](const Want& each) { return each.link == link; });
    for (Want& each : wants_) std::erase(each.asked, link); // another one may get its number
    if (asked_ == link) answered();
}

inline void ShareRoom::hear(Link link, const ShareMessage& message, Clock::time_point now) {
    Member* const member = find(link);
    if (member == nullptr) return;
    const auto less = [&](std::uint64_t& of) { of -= std::min(of, message.bytes); };
    switch (message.kind) {
    case Kind::facts: member->facts = message.facts; break;
    case Kind::want: want(*member, message), member->active = now; break;
    case Kind::cancel:
        std::erase_if(wants_, [&](const Want& each) { return each.link == link && each.id == message.id; });
        break;
    case Kind::took:
        less(member->facts.granted);
        member->facts.held += message.bytes;
        member->active = now;
        break;
    case Kind::unused: less(member->facts.granted); break;
    case Kind::freed: less(member->facts.held); break;
    case Kind::gave:
        if (asked_ == link) answered();
        break;
    case Kind::list: list(link, message.id); break;
    default: break; // what only a leader says
    }
}

inline void ShareRoom::want(Member& member, const ShareMessage& message) {
    const auto behind = std::find_if(wants_.begin(), wants_.end(),
                                     [&](const Want& each) { return each.priority < member.facts.priority; });
    wants_.insert(behind,
                  {member.link, message.id, message.bytes, message.within, member.facts.priority, {member.link}});
    send(member.link, Kind::waits, message.id);
}

inline void ShareRoom::list(Link link, std::uint64_t id) const {
    ShareMessage row;
    row.kind = Kind::row;
    row.id = id;
    for (const Member& each : members_) {
        row.facts = each.facts;
        send_(link, row);
    }
    send(link, Kind::end, id);
}

inline void ShareRoom::look(Clock::time_point now) {
    if (asked_until_ && now >= *asked_until_) answered();
    serve(now);
}

inline ShareRoom::Member* ShareRoom::lender(const Want& want) noexcept {
    Member* best = nullptr;
    for (Member& each : members_) {
        const bool asked = std::find(want.asked.begin(), want.asked.end(), each.link) != want.asked.end();
        if (asked || each.facts.lends == 0 || each.facts.held <= each.facts.floor) continue;
        if (best == nullptr ||
            std::tuple{each.facts.priority, each.active} < std::tuple{best->facts.priority, best->active})
            best = &each;
    }
    return best;
}

inline bool ShareRoom::ask_for(Want& want, std::uint64_t missing, Clock::time_point now) {
    if (asked_ >= 0) return true; // the answer may be enough
    if (Member* const from = lender(want)) {
        want.asked.push_back(from->link);
        asked_ = from->link;
        asked_until_ = now + answer_within_;
        send(from->link, Kind::lend, want.id, std::min(missing, from->facts.held - from->facts.floor));
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
    if (wants_.empty()) return;
    std::uint64_t free = free_bytes_();
    for (const Member& each : members_) free -= std::min(free, each.facts.granted);
    bool behind = false; // of one that waits: what is free is for that one
    std::erase_if(wants_, [&](Want& want) {
        const bool granted = !behind && want.bytes <= free;
        const bool waits =
            !granted && want.within != only_free &&
            (behind ? want.within != 0 || asked_ >= 0 || now < gathered_ : ask_for(want, want.bytes - free, now));
        behind = behind || waits;
        if (waits) return false;
        if (granted) {
            free -= want.bytes;
            find(want.link)->facts.granted += want.bytes;
        }
        send(want.link, granted ? Kind::grant : Kind::deny, want.id, want.bytes);
        return true;
    });
}

} // namespace detail

} // namespace memsaver::inline v0_3
