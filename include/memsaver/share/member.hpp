// A member of a share: its connection to the leader, its grants, and what it lends. The leader is a member too.
#pragma once

#include "memsaver/core/form.hpp"
#include "memsaver/core/pointers.hpp"
#include "memsaver/core/vector.hpp"
#include "memsaver/driver/any_driver.hpp"
#include "memsaver/driver/fork_check.hpp"
#include "memsaver/share/folder.hpp"
#include "memsaver/share/keeper.hpp"
#include "memsaver/share/room.hpp"

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

namespace memsaver::inline v0_3::detail {

/// Has a thread for messages, and one for lending once it lends. The thread for messages finds the leader, or becomes
/// it: whoever gets the leader's lock. Without a leader that answers, a member acts alone.
class ShareMemberCore {
public:
    /// Releases so many bytes of device memory, and not more than the second number; returns how many it released. May
    /// throw.
    using Lend = std::function<std::size_t(std::size_t, std::size_t)>;
    /// For how long none of it has been used. May throw.
    using Idle = std::function<std::chrono::nanoseconds()>;

    static constexpr Status no_room{StatusKind::out_of_memory, 0, "no member of the share gives so much"};
    static constexpr Status no_host_memory{StatusKind::out_of_host_memory, 0, "no host memory"};
    /// A grant of which nothing is used for so long goes back.
    static constexpr std::chrono::milliseconds grant_lasts{100};
    /// A leader that still wants pages says so again within this time.
    static constexpr std::chrono::milliseconds passes_for = 4 * ShareRoom::ask_again;

    /// Pages are to linger with a leader that has said something within this time: one that is stopped would keep them.
    static constexpr std::chrono::milliseconds answers_for{10};

    /// `linger`: how long what is released stays with the leader if nobody waits for it.
    ShareMemberCore(AnyDriver inner, ShareFolder folder, const ShareFacts& facts,
                    std::chrono::nanoseconds answer_within, std::chrono::nanoseconds linger);
    ShareMemberCore(const ShareMemberCore&) = delete;
    ShareMemberCore& operator=(const ShareMemberCore&) = delete;
    ~ShareMemberCore();

    [[nodiscard]] const AnyDriver& inner() const noexcept { return inner_; }
    [[nodiscard]] const ShareFolder& folder() const noexcept { return folder_; }
    /// Keeps what this process publishes and attaches.
    [[nodiscard]] Keeper& keeper() noexcept { return keeper_; }

    /// Asks for `bytes` in one go; `within` as in ShareRoom. Ok once they are granted.
    /// `alone`: what is returned if nobody answers.
    Status ask(std::uint64_t bytes, std::int64_t within, const Status& alone = no_room) noexcept;
    /// Covers the creation of `bytes`: with what has been granted before, or with what is free. Without a leader that
    /// answers, with nothing: the device says whether there is room. With `as_pages`: is set instead if the room came
    /// as pages of exactly so many bytes, which `take_pages` returns.
    Status cover(std::uint64_t bytes, bool* as_pages) noexcept;
    /// What was covered has been created, or not.
    void created(std::uint64_t bytes, bool yes) noexcept;
    /// `pages`: a descriptor of what was freed, if `passes` said so; goes to who lacks room, else to the driver.
    void freed(std::uint64_t bytes, ShareFd pages = {}, bool as_left = false) noexcept;
    /// What it has, apart from pages that were passed to it and are not used yet.
    [[nodiscard]] std::uint64_t held() noexcept;

    /// Whether pages of `bytes` that are about to be released are to be passed on: this member was asked for so many,
    /// now or a moment ago, or they are to linger. `as_left`: need not be cleared.
    [[nodiscard]] bool passes(std::uint64_t bytes, bool& as_left) noexcept;
    /// Pages of exactly `bytes` that were passed to this member, if there are any.
    [[nodiscard]] ShareFd take_pages(std::uint64_t bytes) noexcept;
    /// They cannot be used: they are the driver's, and may be created anew.
    void turned(std::uint64_t bytes, ShareFd pages) noexcept;

    /// What is free beside what the device says: pages that linger, and those that were passed to this member and are
    /// not used yet.
    [[nodiscard]] std::uint64_t spare() noexcept;
    /// All members; only this one if no leader answers.
    [[nodiscard]] Vector<ShareFacts> list();

    /// Adds memory that can be lent, until `stop_lending` with the returned number.
    std::uint64_t start_lending(Lend lend, Idle idle);
    /// Waits for a lending that runs.
    void stop_lending(std::uint64_t number) noexcept;
    /// Whether this is the thread that lends.
    [[nodiscard]] bool lends_here() noexcept;

    /// Waits until a leader has answered, or for a while. Throws Unavailable if members of another version are there,
    /// or nobody can lead.
    void meet();

    [[nodiscard]] bool forked() const noexcept { return fork_.forked(); }
    void require_parent(const char* what) const { fork_.require_parent(what); }

private:
    using Clock = std::chrono::steady_clock;
    using Kind = ShareMessage::Kind;
    /// More connections than there are leaders that are killed in a row before they have answered.
    static constexpr unsigned enough_turns = 20;
    struct Asked { // a call that waits for an answer
        ShareMessage message;
        enum class State : unsigned char { sent, waits, granted, denied } state = State::sent;
        Vector<ShareFacts> rows{};
    };
    class Leading;

    void run() noexcept;
    void connect();
    void hear();
    void lend_out() noexcept;
    void wake() const noexcept;
    struct Passed { // pages that were passed to this member, and are not used yet
        std::uint64_t bytes;
        ShareFd pages;
    };
    // These require the mutex.
    /// Asks the leader how many bytes linger; 0 if it does not answer.
    std::uint64_t lingering(std::unique_lock<std::mutex>& lock) noexcept;
    [[nodiscard]] std::uint64_t passed_bytes() const noexcept;
    /// Uses what has been granted, and passed pages, which are in the way if they have other sizes. False if it is
    /// less.
    bool use_grant(std::uint64_t bytes) noexcept;
    void turn(std::uint64_t bytes, ShareFd& pages) noexcept;
    std::uint64_t turn_all() noexcept;
    void tell(ShareMessage message, std::uint64_t idle = 0) noexcept;
    void tell(Kind kind, std::uint64_t bytes = 0, std::uint64_t id = 0, std::uint64_t idle = 0) noexcept;
    /// The answer to a question for room.
    void answer(Kind kind, std::uint64_t bytes, std::uint64_t id, std::uint64_t idle = 0) noexcept;
    [[nodiscard]] std::chrono::nanoseconds says_so() const noexcept {
        return std::min<std::chrono::nanoseconds>(answer_within_ / 2, ShareRoom::says_so);
    }
    void lose_leader() noexcept;
    /// Returns what was granted and not used for a while.
    void return_grant(Clock::time_point now) noexcept;
    /// Sends a question, and waits for its answer until the time. False if there is no answer.
    bool answered(std::unique_lock<std::mutex>& lock, Asked& asked, std::optional<Clock::time_point> until);

    const AnyDriver inner_;
    const ShareFolder folder_;
    const std::chrono::nanoseconds answer_within_;
    const std::chrono::nanoseconds linger_;
    ShareFd process_; // for the leader
    ShareFd wake_;
    Keeper keeper_{folder_, answer_within_, false, [this](const Publication&, bool) { wake(); }};
    ForkCheck fork_;

    std::mutex mutex_;
    std::condition_variable changed_;
    ShareFacts facts_;
    ShareFd link_; // to the leader
    bool welcome_ = false;
    bool silent_ = false;       // the leader has not answered, and has said nothing since
    bool other_device_ = false; // of the leader
    int cannot_lead_ = 0;       // errno: nobody leads, and this process cannot
    unsigned turned_away_ = 0;  // connections that were ended before a welcome, in a row
    bool stop_ = false;
    std::uint64_t next_id_ = 1;
    Vector<Asked*> asked_;
    Clock::time_point heard_at_{};   // when the leader last said something
    Clock::time_point granted_at_{}; // when it was last granted something, or used some of it
    Vector<Passed> passed_;

    struct Lender {
        std::uint64_t number;
        Lend lend;
        Idle idle;
    };
    Vector<Lender> lenders_;
    std::uint64_t lending_ = 0;     // the lender that runs
    ShareMessage wanted_;           // what the leader asks for; no id: nothing
    std::uint64_t giving_id_ = 0;   // of a question that is not answered yet
    Clock::time_point giving_at_{}; // when the leader last heard that
    std::uint64_t passing_ = 0;     // how many bytes of released pages are passed on
    ShareFacts passing_to_{};
    Clock::time_point passing_until_{};
    std::condition_variable lend_changed_;

    ShareFd leader_process_;     // of the last leader
    UniquePtr<Leading> leading_; // both of the thread for messages
    std::thread thread_;
    std::thread lender_;
};

} // namespace memsaver::inline v0_3::detail

#include "memsaver/share/member.ipp"
