// Share: several processes on one device, which give each other room.
#pragma once

#include "memsaver/core/macros_off.hpp"

#include "memsaver/core/error.hpp"
#include "memsaver/core/form.hpp"
#include "memsaver/core/sizes.hpp"
#include "memsaver/driver/any_driver.hpp"
#include "memsaver/saver/saver.hpp"
#include "memsaver/share/publication.hpp"
#include "memsaver/share/shared_device.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

namespace memsaver::inline v0_3 {

/// What a process is in a share.
struct ShareOptions {
    /// For the tables of the others; at most 63 bytes.
    std::string name{};
    /// Who lacks room at a higher priority gets it first; who has some at a lower priority is asked for it first.
    int priority = 0;
    /// Device memory that others do not get from this process, except for what it does not use. Tags are lent whole:
    /// one that reaches below the floor stays.
    std::size_t floor = 0;
    /// The most device memory that this process takes; 0: no limit.
    std::size_t ceiling = 0;
    /// Pages pass between this process and members that say so too as they were left: neither has secrets from the
    /// other. Other pages are cleared before they are passed on.
    bool trusted = false;
    /// How long released pages stay with the share if nobody waits for them, at most an hour: a member that takes pages
    /// of their size gets them without the driver. For processes that take turns. They are free memory for all members;
    /// other processes do not get them. A leader that is stopped keeps what it has until it goes on. Pages are cleared
    /// when they are released unless `trusted`.
    std::chrono::milliseconds linger{0};
    /// How long another process may take to answer. One that does not, because it hangs or is stopped, is passed by.
    std::chrono::milliseconds answer_within{500};
    /// Where the members meet: a folder of this user with mode 0700, made if it is not there. Empty: one for each
    /// device, `memsaver/<device>` in XDG_RUNTIME_DIR, else in /tmp/memsaver-UID. Containers meet in a folder that both
    /// mount. It is for one device.
    std::string folder{};
};

/// A member of a share. Bytes of device memory.
struct ShareMember {
    std::string name;
    long process = 0; ///< its number, as it sees it itself: another one in other containers
    int priority = 0;
    std::size_t floor = 0;
    std::size_t ceiling = 0;
    std::size_t held_bytes = 0;
    bool lends = false;
    std::size_t published_bytes = 0; ///< of what it has published, and nobody has withdrawn
    std::size_t waiting_bytes = 0;   ///< that it lacks, and waits for

    /// "rollout (process 4711): 12.0 GiB held, priority 1, floor 8.00 GiB, ceiling 60.0 GiB, lends"
    friend std::ostream& operator<<(std::ostream& out, const ShareMember& member) {
        out << (member.name.empty() ? "(no name)" : member.name) << " (process " << member.process
            << "): " << format_bytes(member.held_bytes) << " held, priority " << member.priority;
        if (member.floor != 0) out << ", floor " << format_bytes(member.floor);
        if (member.ceiling != 0) out << ", ceiling " << format_bytes(member.ceiling);
        if (member.lends) out << ", lends";
        if (member.published_bytes != 0) out << ", " << format_bytes(member.published_bytes) << " published";
        if (member.waiting_bytes != 0) out << ", waits for " << format_bytes(member.waiting_bytes);
        return out;
    }
};

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

struct EndLending {
    void operator()(ShareMemberCore* member) const noexcept {
        if (!member->forked()) member->stop_lending(number);
    }
    std::shared_ptr<ShareMemberCore> keeps{};
    std::uint64_t number = 0;
};

} // namespace detail

/// Lends a saver's memory as long as it lives. The destructor waits for a lending that runs.
class [[nodiscard]] Lending {
public:
    Lending() noexcept = default;

private:
    friend class Share;
    Lending(const std::shared_ptr<detail::ShareMemberCore>& member, std::uint64_t number) noexcept
        : lent_{member.get(), detail::EndLending{member, number}} {}

    std::unique_ptr<detail::ShareMemberCore, detail::EndLending> lent_;
};

/// This process's membership of those that share a device. There is no daemon: the members meet in a folder, and one of
/// them, whoever has the lock in it, decides who gets room. It keeps nothing that its successor could not ask for.
///
/// Savers on `driver()` take memory only as far as it is free and nobody with a higher priority, or the same and
/// earlier, waits for it. If a saver has no room, after it has released its own unused memory, the members that lend
/// are asked for theirs: lowest priority first, then the one that has been idle for longest, none below its floor.
/// `resume` with `room_within` waits for what is freed later.
///
/// What holds is an agreement of those that take part: other processes take what they like. A process that ends, in
/// whatever way, leaves nothing behind; one that is stopped is passed by. Without anybody who answers, a saver goes on
/// alone. In a forked child a share is not usable, and keeps nothing of its parent's.
///
/// A handle (a move copies). Thread-safe. The membership ends with the last copy and the last saver on its driver.
class Share {
public:
    Share(const Share&) = default;
    Share& operator=(const Share&) = default;
    ~Share() = default;
    /// Joins the share of the driver's device. Throws Misuse for options that cannot be and if members of another
    /// device meet in the folder, and Unavailable if the device has no identity, the folder cannot be used or the
    /// members use another version.
    explicit Share(const AnyDriver& driver, const ShareOptions& options = {})
        : member_{detail::translated([&] { return detail::join_share(driver, options); })},
          driver_{std::make_shared<detail::SharedDevice>(member_, options.ceiling)} {}

    /// The device as this member may use it: a driver like any other.
    [[nodiscard]] const AnyDriver& driver() const noexcept { return driver_; }

    /// Lets others have what is idle in a saver on `driver()`: its unused memory, elastic memory whose owners give
    /// some, and tags that `use` or `.evictable` put at the library's disposal, while they are not in use. That is
    /// `reclaim`, called on a thread of the share; hooks run there. Throws Misuse if the saver is on another driver,
    /// and Unavailable if the process can have no more threads.
    template <class D>
    Lending lend(MemorySaver<D>& saver) const {
        require_own(saver.driver(), "lend");
        const std::weak_ptr<detail::SaverCore> weak = saver.core();
        return detail::translated([&] {
            const std::uint64_t number = member_->start_lending(
                [weak](std::size_t bytes, std::size_t at_most) {
                    const auto core = weak.lock();
                    return core == nullptr ? 0 : core->reclaim(bytes, {.at_most = at_most}).bytes();
                },
                [weak] { return idle(weak.lock()); });
            return Lending{member_, number};
        });
    }

    /// The members, this one too.
    [[nodiscard]] std::vector<ShareMember> members() const {
        member_->require_parent("Share::members");
        return detail::translated([&] {
            std::vector<ShareMember> rows;
            for (const detail::ShareFacts& each : member_->list())
                rows.push_back({each.name.data(), static_cast<long>(each.process), each.priority, each.floor,
                                each.ceiling, each.held, each.lends != 0, each.published, each.waiting});
            return rows;
        });
    }

    /// Publishes a tag of a saver on `driver()`: other processes may map it for reading, with `attach`, by the names in
    /// `options`. The pages live as long as this process or any that has attached them is a member, or a
    /// `memsaver-keeper` runs, whoever is killed.
    ///
    /// Waits for the device and copies the `copied` ranges. The tag's pages become read-only where they are, except for
    /// handles in which `copied` ranges lie, which this process may go on writing; free space in them reads as zero for
    /// others. New blocks of the tag come from other pages. A pause and a resume of the tag here bring back pages of
    /// this process alone; the published ones stay as they are.
    ///
    /// Returns the hash of the names and their bytes. Throws Misuse if a live block of the tag has no name, a range is
    /// not in live blocks, the tag is paused, or this name and version are published already or by another process at
    /// this moment; Unavailable if the device cannot give pages to other processes. After a failure nothing has
    /// changed.
    template <class D>
    std::uint64_t publish(std::string_view name, MemorySaver<D>& saver, TagName tag,
                          const PublishOptions& options = {}) const {
        require_own(saver.driver(), "publish");
        return detail::translated([&] {
            return detail::publish_tag(*saver.core(), driver_, member_->folder(), member_->keeper(), name, tag.text(),
                                       options);
        });
    }

    /// Maps a publication, as a tag of a saver on `driver()` named like it; `copied` ranges are copied to memory of
    /// this process. The tag's pause takes the mapping away, and its resume brings it back; copies are kept as by
    /// HostBackup. This process keeps the publication from now on. Throws Unavailable if it is not published, or only
    /// in other versions, or with another hash; Misuse if the saver has such a tag.
    template <class D>
    [[nodiscard]] Attached attach(std::string_view name, MemorySaver<D>& saver,
                                  const AttachOptions& options = {}) const {
        require_own(saver.driver(), "attach");
        return detail::translated([&] {
            return Attached{
                detail::attach_tag(*saver.core(), driver_, member_->inner(), member_->keeper(), name, options)};
        });
    }

    /// Ends a publication, in all its versions: nobody can attach it any more. Those who have attached it go on; its
    /// pages are freed with the last of them. Throws Unavailable if there is none, or a process that is stopped cannot
    /// be told: it may still give it to others.
    void withdraw(std::string_view name) const {
        member_->require_parent("Share::withdraw");
        detail::translated([&] { detail::withdraw_name(member_->keeper(), name); });
    }

private:
    void require_own(const AnyDriver& driver, const char* what) const {
        member_->require_parent(what);
        if (!(driver == driver_)) detail::misuse({"Share::", what, ": the saver is not on the driver of this share"});
    }
    /// For how long no tag of a saver has been used.
    static std::chrono::nanoseconds idle(const std::shared_ptr<detail::SaverCore>& saver) {
        std::chrono::nanoseconds least = std::chrono::hours{24 * 365};
        if (saver == nullptr) return least;
        for (const ArenaUsage& row : saver->usage()) {
            if (row.users != 0) return {};
            if (row.age.count() != 0) least = std::min(least, row.age);
        }
        return least;
    }

    std::shared_ptr<detail::ShareMemberCore> member_;
    AnyDriver driver_;
};

} // namespace memsaver::inline v0_3

#include "memsaver/core/macros_on.hpp"
