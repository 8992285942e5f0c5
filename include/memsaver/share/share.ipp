// Definitions of share.hpp.
#pragma once

#include "memsaver/core/error.hpp"
#include "memsaver/core/option_checks.hpp"
#include "memsaver/core/sizes.hpp"
#include "memsaver/share/share.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace memsaver::inline v0_3 {

namespace detail {

inline std::shared_ptr<ShareMemberCore> join_share(const AnyDriver& driver, const ShareOptions& options) {
    ShareFacts facts;
    if (options.name.size() >= facts.name.size() || options.name.find('\0') != std::string::npos)
        refuse_option("ShareOptions::name", '"' + options.name + '"', "texts of at most 63 bytes");
    if (options.ceiling != 0 && options.ceiling < options.floor)
        refuse_option("ShareOptions::ceiling", format_bytes(options.ceiling),
                      "0, or at least the floor, " + format_bytes(options.floor));
    constexpr std::chrono::milliseconds longest = std::chrono::hours{24};
    if (options.answer_within.count() <= 0)
        refuse_option("ShareOptions::answer_within", std::to_string(options.answer_within.count()) + " ms",
                      "times of at least 1 ms");
    if (options.linger.count() < 0 || options.linger > ShareRoom::longest)
        refuse_option("ShareOptions::linger", std::to_string(options.linger.count()) + " ms",
                      "times from 0 to an hour");
    std::copy(options.name.begin(), options.name.end(), facts.name.begin());
    facts.process = ::getpid();
    facts.priority = options.priority;
    facts.floor = options.floor;
    facts.ceiling = options.ceiling;
    facts.trusted = options.trusted ? 1 : 0;
    std::string identity;
    const Status status = driver.identity(identity);
    if (status.kind == StatusKind::unsupported)
        unavailable({"Share: ", driver.name(),
                     " is a device of this process alone, without an identity that others could know it by"
                     " (HostDriverOptions::machine names one)"},
                    status);
    check(status, "identify the device");
    facts.pages = (xxh64(identity.data(), identity.size()) | 1U) ^ (driver.features().rdma ? 1U : 0U);
    const auto leave = [](ShareMemberCore* member) { // a forked child has no threads to end, and locks in any state
        if (member->forked()) return;
        if (!member->lends_here()) return delete member;
        try { // a hook has ended the lending, and nobody else has kept what it lends: the thread cannot wait for itself
            started([member] { delete member; }).detach();
        } catch (...) { // it stays a member
        }
    };
    std::shared_ptr<ShareMemberCore> member{new ShareMemberCore{driver, ShareFolder{identity, options.folder}, facts,
                                                                std::min(options.answer_within, longest),
                                                                options.linger},
                                            leave};
    member->meet();
    return member;
}

} // namespace detail

inline Share::Share(const AnyDriver& driver, const ShareOptions& options)
    : member_{detail::translated([&] { return detail::join_share(driver, options); })},
      driver_{std::make_shared<detail::SharedDevice>(member_, options.ceiling)} {}

inline void Share::require_own(const AnyDriver& driver, const char* what) const {
    member_->require_parent(what);
    if (!(driver == driver_)) detail::misuse({"Share::", what, ": the saver is not on the driver of this share"});
}

inline std::uint64_t Share::publish(std::string_view name, const std::shared_ptr<detail::SaverCore>& saver,
                                    const std::string& tag, const PublishOptions& options) const {
    return detail::translated(
        [&] { return detail::publish_tag(*saver, driver_, member_->folder(), member_->keeper(), name, tag, options); });
}

inline Attached Share::attach(std::string_view name, const std::shared_ptr<detail::SaverCore>& saver,
                              const AttachOptions& options) const {
    return detail::translated([&] {
        return Attached{detail::attach_tag(*saver, driver_, member_->inner(), member_->keeper(), name, options)};
    });
}

inline void Share::withdraw(std::string_view name) const {
    member_->require_parent("Share::withdraw");
    detail::translated([&] { detail::withdraw_name(member_->keeper(), name); });
}

inline Lending Share::lend(detail::ShareMemberCore::Lend lend, detail::ShareMemberCore::Idle idle) const {
    return detail::translated([&] {
        return Lending{member_, member_->start_lending(std::move(lend), std::move(idle))};
    });
}

inline std::chrono::nanoseconds Share::idle(const std::shared_ptr<detail::SaverCore>& saver) {
    std::chrono::nanoseconds least = std::chrono::hours{24 * 365};
    if (saver == nullptr) return least;
    for (const ArenaUsage& row : saver->usage()) {
        if (row.users != 0) return {};
        if (row.age.count() != 0) least = std::min(least, row.age);
    }
    return least;
}

inline std::vector<ShareMember> Share::members() const {
    member_->require_parent("Share::members");
    return detail::translated([&] {
        std::vector<ShareMember> rows;
        for (const detail::ShareFacts& each : member_->list())
            rows.push_back({each.name.data(), static_cast<long>(each.process), each.priority, each.floor, each.ceiling,
                            each.held, each.lends != 0, each.published, each.waiting});
        return rows;
    });
}

inline Lending::Lending(Lending&& other) noexcept
    : member_{std::move(other.member_)}, number_{std::exchange(other.number_, 0)} {}

inline Lending& Lending::operator=(Lending&& other) noexcept {
    if (this == &other) return *this;
    const Lending ending{std::move(*this)};
    member_ = std::move(other.member_);
    number_ = std::exchange(other.number_, 0);
    return *this;
}

inline Lending::~Lending() {
    if (member_ != nullptr && !member_->forked()) member_->stop_lending(number_);
}

inline std::ostream& operator<<(std::ostream& out, const ShareMember& member) {
    out << (member.name.empty() ? "(no name)" : member.name) << " (process " << member.process
        << "): " << format_bytes(member.held_bytes) << " held, priority " << member.priority;
    if (member.floor != 0) out << ", floor " << format_bytes(member.floor);
    if (member.ceiling != 0) out << ", ceiling " << format_bytes(member.ceiling);
    if (member.lends) out << ", lends";
    if (member.published_bytes != 0) out << ", " << format_bytes(member.published_bytes) << " published";
    if (member.waiting_bytes != 0) out << ", waits for " << format_bytes(member.waiting_bytes);
    return out;
}

} // namespace memsaver::inline v0_3
