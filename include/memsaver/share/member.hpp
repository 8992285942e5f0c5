// A member of a share: its connection to the leader, its grants, and what it lends. The leader is a member too.
#pragma once

#include "memsaver/core/error.hpp"
#include "memsaver/core/lists.hpp"
#include "memsaver/core/pointers.hpp"
#include "memsaver/core/vector.hpp"
#include "memsaver/driver/any_driver.hpp"
#include "memsaver/driver/fork_check.hpp"
#include "memsaver/driver/system.hpp"
#include "memsaver/share/folder.hpp"
#include "memsaver/share/keeper.hpp"
#include "memsaver/share/room.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

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
                    std::chrono::nanoseconds answer_within, std::chrono::nanoseconds linger)
        : inner_{std::move(inner)}, folder_{std::move(folder)}, answer_within_{answer_within}, linger_{linger},
          process_{ShareFd::opened([] { return static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)); })},
          wake_{ShareFd::pipe()}, facts_{facts} {
        if (!wake_) unavailable({"Share: cannot make a pipe: ", to_string(system_status(errno))}, system_status(errno));
        if (!process_)
            unavailable({"Share: pidfd_open failed: ", to_string(system_status(errno)), " (Linux 5.3 has it)"},
                        system_status(errno));
        thread_ = started([this] { run(); });
    }
    ShareMemberCore& operator=(ShareMemberCore&&) = delete;
    ~ShareMemberCore() {
        {
            const std::lock_guard lock{mutex_};
            stop_ = true;
            lend_changed_.notify_all();
        }
        wake();
        thread_.join();
        if (lender_.joinable()) lender_.join();
    }

    [[nodiscard]] const AnyDriver& inner() const noexcept { return inner_; }
    [[nodiscard]] const ShareFolder& folder() const noexcept { return folder_; }
    /// Keeps what this process publishes and attaches.
    [[nodiscard]] Keeper& keeper() noexcept { return keeper_; }

    /// Asks for `bytes` in one go; `within` as in ShareRoom. Ok once they are granted: to the process, any thread of
    /// which may use them.
    /// `alone`: what is returned if nobody answers.
    Status ask(std::uint64_t bytes, std::int64_t within, const Status& alone = no_room) noexcept {
        if (bytes > ShareMessage::most_bytes) return no_room;
        try {
            std::unique_lock lock{mutex_};
            Asked asked{{.kind = Kind::want, .bytes = bytes, .within = within}};
            // Who does not mean to wait is answered once those that lend have been asked, one after the other.
            std::optional<Clock::time_point> until;
            constexpr int in_turn = 4;
            if (within == ShareRoom::only_free) until = Clock::now() + in_turn * answer_within_;
            if (within == 0)
                until = Clock::now() +
                        std::max<std::chrono::nanoseconds>(in_turn * answer_within_, ShareRoom::gives_within);
            if (within > 0 && within < std::chrono::nanoseconds{std::chrono::hours{24 * 365}}.count())
                until = Clock::now() + std::chrono::nanoseconds{within};
            if (answered(lock, asked, until)) return asked.state == Asked::State::granted ? Status{} : no_room;
            tell(Kind::cancel, 0, asked.message.id);
            return silent_ ? alone : no_room;
        } catch (...) {
            return no_host_memory;
        }
    }
    /// Covers the creation of `bytes`: with what has been granted before, or with what is free. Without a leader that
    /// answers, with nothing: the device says whether there is room. With `as_pages`: is set instead if the room came
    /// as pages of exactly so many bytes, which `take_pages` returns.
    Status cover(std::uint64_t bytes, bool* as_pages) noexcept {
        {
            const std::lock_guard lock{mutex_};
            if (use_grant(bytes)) return {};
        }
        for (int tries = 100; tries > 0; --tries) { // another thread may use the grant, or it went back meanwhile
            Status status = ask(bytes, ShareRoom::only_free, {});
            if (!status.ok()) { // what was passed here, and has other sizes, may be what is lacking
                std::uint64_t turned = 0;
                {
                    const std::lock_guard lock{mutex_};
                    turned = turn_all();
                }
                if (turned != 0) status = turned < bytes ? ask(bytes - turned, ShareRoom::only_free, {}) : Status{};
                if (!status.ok()) return status;
            }
            const std::lock_guard lock{mutex_};
            if (as_pages != nullptr && facts_.granted < bytes) *as_pages = passed_with(bytes) != nullptr;
            if ((as_pages != nullptr && *as_pages) || use_grant(bytes)) return {};
            if (welcome_ && !silent_) continue;
            facts_.granted -= std::min(facts_.granted, bytes); // nothing, without a leader
            return {};
        }
        return no_room;
    }
    /// What was covered has been created, or not.
    void created(std::uint64_t bytes, bool yes) noexcept {
        const std::lock_guard lock{mutex_};
        if (yes) facts_.held += bytes;
        tell(yes ? Kind::took : Kind::unused, bytes);
    }
    /// `pages`: a descriptor of what was freed, if `passes` said so; goes to who lacks room, else to the driver.
    void freed(std::uint64_t bytes, ShareFd pages = {}, bool as_left = false) noexcept {
        const std::lock_guard lock{mutex_};
        facts_.held -= std::min(facts_.held, bytes);
        const ShareMessage message{.kind = Kind::pass,
                                   .as_left = as_left ? 1U : 0U,
                                   .bytes = bytes,
                                   .within = linger_.count(),
                                   .facts = facts_};
        if (pages && link_) (void)send_message(link_.get(), message, pages.get());
        pages.reset(); // what others are told to be free must not be held here
        tell(Kind::freed, bytes);
    }
    /// What it has, apart from pages that were passed to it and are not used yet.
    [[nodiscard]] std::uint64_t held() noexcept {
        const std::lock_guard lock{mutex_};
        return facts_.held - std::min(facts_.held, passed_bytes());
    }

    /// Whether pages of `bytes` that are about to be released are to be passed on: this member was asked for so many,
    /// now or a moment ago, or they are to linger. `as_left`: need not be cleared.
    [[nodiscard]] bool passes(std::uint64_t bytes, bool& as_left) noexcept {
        std::unique_lock lock{mutex_};
        if (bytes > passing_ || (lending_ == 0 && Clock::now() > passing_until_)) {
            as_left = facts_.trusted != 0;
            if (linger_.count() == 0) return false;
            if (Clock::now() > heard_at_ + answers_for) (void)lingering(lock);
            return link_ && !silent_;
        }
        passing_ -= bytes;
        as_left = facts_.trusted != 0 && passing_to_.trusted != 0;
        return true;
    }
    /// Pages of exactly `bytes` that were passed to this member, if there are any.
    [[nodiscard]] ShareFd take_pages(std::uint64_t bytes) noexcept {
        const std::lock_guard lock{mutex_};
        Passed* const found = passed_with(bytes);
        if (found == nullptr) return {};
        ShareFd pages = std::move(found->pages);
        passed_.erase(found);
        granted_at_ = Clock::now();
        tell(Kind::took); // is active
        return pages;
    }
    /// They cannot be used: they are the driver's, and may be created anew.
    void turned(std::uint64_t bytes, ShareFd pages) noexcept {
        const std::lock_guard lock{mutex_};
        turn(bytes, pages);
    }

    /// What is free beside what the device says: pages that linger, and those that were passed to this member and are
    /// not used yet.
    [[nodiscard]] std::uint64_t spare() noexcept {
        std::unique_lock lock{mutex_};
        const std::uint64_t bytes = lingering(lock);
        return bytes + passed_bytes();
    }
    /// All members; only this one if no leader answers.
    [[nodiscard]] Vector<ShareFacts> list() {
        std::unique_lock lock{mutex_};
        Asked asked{{.kind = Kind::list}};
        if (answered(lock, asked, std::nullopt)) return std::move(asked.rows);
        return {facts_};
    }

    /// Adds memory that can be lent, until `stop_lending` with the returned number.
    std::uint64_t start_lending(Lend lend, Idle idle) {
        const std::lock_guard lock{mutex_};
        const std::uint64_t number = next_id_++;
        lenders_.push_back({number, std::move(lend), std::move(idle)});
        try {
            if (!lender_.joinable()) lender_ = started([this] { lend_out(); });
        } catch (...) {
            lenders_.pop_back();
            throw;
        }
        facts_.lends = 1;
        tell(Kind::facts);
        return number;
    }
    /// Waits for a lending that runs.
    void stop_lending(std::uint64_t number) noexcept {
        std::unique_lock lock{mutex_};
        erase_in(lenders_, [&](const Lender& each) { return each.number == number; });
        facts_.lends = lenders_.empty() ? 0 : 1;
        tell(Kind::facts);
        if (std::this_thread::get_id() != lender_.get_id()) changed_.wait(lock, [&] { return lending_ != number; });
    }
    /// Whether this is the thread that lends.
    [[nodiscard]] bool lends_here() noexcept {
        const std::lock_guard lock{mutex_};
        return lender_.get_id() == std::this_thread::get_id();
    }

    /// Waits until a leader has answered, or for a while. Throws Unavailable if members of another version are there,
    /// or nobody can lead.
    void meet() {
        std::unique_lock lock{mutex_};
        (void)changed_.wait_for(lock, answer_within_,
                                [&] { return welcome_ || other_device_ || turned_away_ >= enough_turns; });
        if (other_device_)
            misuse({"Share: the members that meet in ", folder_.path(),
                    " share another device (ShareOptions::folder is for one device)"});
        if (turned_away_ >= enough_turns)
            unavailable({"Share: the members that meet in ", folder_.path(), " use another version of memsaver"});
        if (cannot_lead_ != 0) folder_.refuse("cannot lead in", system_status(cannot_lead_));
    }

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
    /// What a leader has beside its membership: the lock, the socket, and its members' connections.
    class Leading {
    public:
        /// `process`: this one's. `before`: that of the last leader, if it may still be ending; what it had is free
        /// then. `pages`: of this member.
        Leading(ShareFd lock, ShareFd listener, int process, ShareFd before, std::uint64_t pages,
                const AnyDriver& driver, std::chrono::nanoseconds answer_within)
            : process_{process}, pages_{pages}, before_{std::move(before)}, lock_{std::move(lock)},
              listener_{std::move(listener)}, room_{[this](int link, const ShareMessage& message, int descriptor) {
                                                        return send(link, message, descriptor);
                                                    },
                                                    [this, driver]() -> std::optional<std::uint64_t> {
                                                        DeviceMemory memory;
                                                        lost_ = !driver.memory(memory).ok();
                                                        return lost_ ? std::nullopt : std::optional{memory.free_bytes};
                                                    },
                                                    answer_within, Clock::now()} {}

        /// Whether this process cannot tell what is free, as when the device was lost to it.
        [[nodiscard]] bool lost() const noexcept { return lost_; }
        [[nodiscard]] std::optional<Clock::time_point> next() const noexcept {
            const auto next = room_.next();
            return full_until_ && (!next || *full_until_ < *next) ? full_until_ : next;
        }

        void add_to(Vector<pollfd>& polled) const {
            if (!full_until_) polled.push_back({listener_.get(), POLLIN, 0});
            if (before_) polled.push_back({before_.get(), POLLIN, 0});
            for (const Client& each : clients_) {
                if (!each.ended) polled.push_back({each.socket.get(), POLLIN, 0});
                if (each.process) polled.push_back({each.process.get(), POLLIN, 0});
            }
        }

        /// Hears what members have said, and sees who has ended.
        void work() {
            full_until_.reset();
            if (before_ && has_ended(before_.get())) before_.reset();
            for (;;) {
                ShareFd taken = ShareFd::opened(
                    [&] { return ::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK); });
                if (!taken && errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
                    full_until_ = Clock::now() + std::chrono::milliseconds{100}; // no descriptor for it
                if (!taken) break;
                clients_.push_back({std::move(taken), {}});
            }
            // Again until nobody has said anything: what came before a question is heard before its answer.
            constexpr int passes = 8; // no more of them where members never fall silent
            bool heard = true;
            for (int pass = 0; heard && pass < passes; ++pass) {
                heard = false;
                for (std::size_t i = 0; i < clients_.size(); ++i)
                    while (!clients_[i].ended && !clients_[i].left && hear(clients_[i])) heard = true;
            }
            for (Client& each : clients_) // somebody else has its end of the connection
                if (!heard && !each.ended && each.process && has_ended(each.process.get())) end(each);
            for (const auto& [link, id] : std::exchange(lists_, {})) room_.list(link, id, Clock::now());
            for (Client& each : clients_)
                if (each.left) end(each);
            // What a process had is free exactly when it has ended, which is some time after its connection has.
            erase_in(clients_, [](const Client& each) {
                return each.ended && (each.left || !each.process || has_ended(each.process.get()) ||
                                      Clock::now() > each.ended_at + dies_within);
            });
            room_.look(Clock::now());
        }

    private:
        struct Client {
            ShareFd socket;
            ShareFd process{}; // fires when the process has ended
            bool joined = false;
            bool ended = false; // the connection
            Clock::time_point ended_at{};
            bool left = false; // or is about to, and the process goes on
        };

        /// A process whose connection has ended lives on if it lives for so long: it has another one.
        static constexpr std::chrono::seconds dies_within{10};

        static bool has_ended(int process) noexcept {
            pollfd polled{process, POLLIN, 0};
            return ::poll(&polled, 1, 0) == 1;
        }

        /// False if there is nothing more to hear now.
        bool hear(Client& client) {
            ShareMessage message;
            ShareFd descriptor;
            const ShareReceived got = receive_message(client.socket.get(), message, descriptor);
            if (got == ShareReceived::nothing) return false;
            try {
                return hear(client, got, message, descriptor);
            } catch (...) { // the message is lost: the member comes back, and says all that matters again
                client.left = true;
                throw;
            }
        }
        bool hear(Client& client, ShareReceived got, ShareMessage& message, ShareFd& descriptor) {
            if (got == ShareReceived::message && message.kind == Kind::list) { // also of who looks on, and stays out
                lists_.emplace_back(client.socket.get(), message.id);
                return true;
            }
            const bool hello = got == ShareReceived::message && message.kind == Kind::hello;
            if (got == ShareReceived::message && message.kind == Kind::leave) client.left = true;
            if (got == ShareReceived::ended || client.left || hello == client.joined) { // the last: of no member
                end(client);
                return false;
            }
            if (!hello) {
                room_.hear(client.socket.get(), message, Clock::now(), std::move(descriptor));
                return true;
            }
            if (message.facts.pages != 0 && message.facts.of_other_device(pages_)) { // 0: it does not say
                message.kind = Kind::deny;
                (void)send(client.socket.get(), message, -1);
                end(client);
                return false;
            }
            // Without a descriptor, because this process can have no more, all that it has counts as gone with its
            // connection.
            if (descriptor && ::syscall(SYS_pidfd_send_signal, descriptor.get(), 0, nullptr, 0) != 0 &&
                errno == EBADF) {
                end(client); // is none of a process
                return false;
            }
            client.joined = true;
            client.process = std::move(descriptor);
            room_.join(client.socket.get(), message.facts, Clock::now());
            return true;
        }

        bool send(int link, const ShareMessage& message, int descriptor) noexcept {
            const bool sent = send_message(link, message, message.kind == Kind::welcome ? process_ : descriptor);
            for (Client& each : clients_) // it is gone, or has not read for long: it comes back when it can
                if (!sent && descriptor < 0 && !each.ended && each.socket.get() == link) each.left = true;
            return sent;
        }

        void end(Client& client) {
            if (std::exchange(client.ended, true)) return;
            client.ended_at = Clock::now();
            if (client.joined) room_.leave(client.socket.get());
        }

        int process_;
        std::uint64_t pages_;
        ShareFd before_;
        ShareFd lock_;
        ShareFd listener_;
        std::optional<Clock::time_point> full_until_; // the process has no more descriptors
        Vector<Client> clients_;
        Vector<std::pair<int, std::uint64_t>> lists_; // to be answered once all is heard: links and numbers
        bool lost_ = false;
        ShareRoom room_;
    };

    // --- the thread for messages ---

    void run() noexcept {
        // The table of descriptors grows now, in the background: with many threads that takes the kernel 5 to 25 ms,
        // which the first attach of a publication would wait for.
        constexpr int descriptors = 1000;
        if (const int high = ::fcntl(wake_.get(), F_DUPFD_CLOEXEC, descriptors); high >= 0) (void)::close(high);
        Vector<pollfd> polled;
        constexpr std::chrono::seconds look_again{1}; // nothing wakes it if the program has closed all descriptors
        unsigned tries = 0;                           // without a leader, in a row
        for (;;) {
            try {
                connect();
                polled.clear();
                polled.push_back({wake_.get(), POLLIN, 0});
                Clock::time_point until = Clock::now() + look_again;
                const auto sooner = [&](std::optional<Clock::time_point> other) {
                    if (other && *other < until) until = *other;
                };
                {
                    const std::lock_guard lock{mutex_};
                    if (stop_) break;
                    if (turned_away_ >= enough_turns) // a process of another version leads: not all the time
                        sooner(Clock::now() + std::chrono::milliseconds{100});
                    else if (link_)
                        polled.push_back({link_.get(), POLLIN, 0});
                    if (facts_.granted != 0 || !passed_.empty()) sooner(granted_at_ + grant_lasts);
                    if (giving_id_ != 0) sooner(giving_at_ + says_so());
                    tries = link_ ? 0 : tries + 1;
                }
                constexpr unsigned quick = 100; // a leader that was killed has its lock for a few milliseconds more
                if (tries != 0) sooner(Clock::now() + std::chrono::milliseconds{tries < quick ? 1 : 100});
                if (leading_) {
                    leading_->add_to(polled);
                    sooner(leading_->next());
                }
                const auto left = std::max(std::chrono::nanoseconds{0}, std::chrono::nanoseconds{until - Clock::now()});
                const timespec time{static_cast<time_t>(left.count() / 1'000'000'000),
                                    static_cast<long>(left.count() % 1'000'000'000)};
                if (::ppoll(polled.data(), polled.size(), &time, nullptr) < 0)
                    (void)::usleep(10'000); // the process may have fewer descriptors than there are: not all the time
                std::uint64_t woken = 0;
                (void)!::read(wake_.get(), &woken, sizeof woken);
                if (leading_) leading_->work();
                if (leading_ && leading_->lost()) leading_.reset();
                hear();
            } catch (...) { // no host memory: a connection that cannot be kept up ends, and comes back
                const std::lock_guard lock{mutex_};
                if (stop_) break;
                lose_leader();
            }
        }
        leading_.reset(); // lets the lock go: another member leads
        const std::lock_guard lock{mutex_};
        lose_leader();
    }
    void connect() {
        {
            const std::lock_guard lock{mutex_};
            if (link_ || stop_) return;
        }
        ShareFd made = folder_.connect();
        if (DeviceMemory memory; !made && !leading_ && inner_.memory(memory).ok()) {
            ShareFd lock = folder_.lead();
            ShareFd listener = lock ? folder_.listen() : ShareFd{};
            const int error = listener ? 0 : errno;
            if (listener)
                leading_ = UniquePtr<Leading>::make(std::move(lock), std::move(listener), process_.get(),
                                                    std::move(leader_process_), facts_.pages, inner_, answer_within_);
            made = folder_.connect();
            const std::lock_guard guard{mutex_};
            cannot_lead_ = error == EAGAIN ? 0 : error;
        }
        if (!made) return;
        const std::lock_guard lock{mutex_};
        cannot_lead_ = 0;
        if (!send_message(made.get(), {.kind = Kind::hello, .facts = facts_}, process_.get())) return;
        link_ = std::move(made);
        for (Asked* const each : asked_) {
            if (each->state == Asked::State::granted || each->state == Asked::State::denied) continue; // is answered
            each->state = Asked::State::sent;
            each->rows.clear();
            tell(each->message);
        }
    }
    void hear() {
        const std::lock_guard lock{mutex_};
        return_grant(Clock::now());
        if (giving_id_ != 0 && Clock::now() >= giving_at_ + says_so()) {
            tell(Kind::giving, 0, giving_id_);
            giving_at_ = Clock::now();
        }
        if (const std::uint64_t bytes = keeper_.published_bytes(); std::exchange(facts_.published, bytes) != bytes)
            tell(Kind::facts);
        ShareMessage message;
        ShareFd descriptor;
        while (link_) {
            const ShareReceived got = receive_message(link_.get(), message, descriptor);
            if (got == ShareReceived::nothing) return;
            if (got == ShareReceived::ended) {
                if (!welcome_) turned_away_ += 1;
                return lose_leader();
            }
            silent_ = false;
            heard_at_ = Clock::now();
            Asked** const found = first_in(asked_, [&](const Asked* each) { return each->message.id == message.id; });
            Asked* const asked = found == nullptr ? nullptr : *found;
            switch (message.kind) {
            case Kind::welcome:
                welcome_ = true;
                leader_process_ = std::move(descriptor);
                turned_away_ = 0;
                break;
            case Kind::waits:
                if (asked != nullptr) asked->state = Asked::State::waits;
                break;
            case Kind::grant:
                if (asked == nullptr) { // no longer wanted
                    tell(Kind::unused, message.bytes);
                } else {
                    asked->state = Asked::State::granted;
                    facts_.granted += message.bytes;
                    granted_at_ = Clock::now();
                }
                break;
            case Kind::page:
                passed_.push_back({message.bytes, std::move(descriptor)});
                facts_.held += message.bytes;
                granted_at_ = Clock::now();
                if (passed_.back().pages) break;
                turn(message.bytes, passed_.back().pages); // this process may have no more descriptors
                passed_.pop_back();
                break;
            case Kind::deny:
                if (asked != nullptr) asked->state = Asked::State::denied;
                if (!welcome_ && message.facts.pages == facts_.pages) other_device_ = true; // the answer to `hello`
                break;
            case Kind::row:
                if (asked != nullptr) asked->rows.push_back(message.facts);
                break;
            case Kind::end:
                if (asked == nullptr) break;
                asked->state = Asked::State::granted;
                asked->message.bytes = message.bytes;
                break;
            case Kind::lend:
                passing_ = message.facts.pages == facts_.pages ? static_cast<std::uint64_t>(message.within) : 0;
                passing_to_ = message.facts;
                passing_until_ = Clock::now() + passes_for;
                if (lenders_.empty()) {
                    tell(Kind::gave, 0, message.id);
                } else {
                    wanted_ = message;
                    giving_id_ = message.id;
                    giving_at_ = Clock::now();
                    lend_changed_.notify_all();
                }
                break;
            default: break;
            }
            changed_.notify_all();
        }
    }

    // --- lending ---

    void lend_out() noexcept {
        std::unique_lock lock{mutex_};
        const auto each_lender = [&](auto act) { // until it returns false; lenders may come and go meanwhile
            std::uint64_t last = 0;
            for (bool more = true; more;) {
                const Lender* const next = first_in(lenders_, [&](const Lender& each) { return each.number > last; });
                if (next == nullptr) break;
                last = lending_ = next->number;
                try {
                    const Lender lender = *next;
                    lock.unlock();
                    more = act(lender);
                    lock.lock();
                } catch (...) { // a hook that refuses: the next one may give
                    if (!lock.owns_lock()) lock.lock();
                }
                lending_ = 0;
                changed_.notify_all();
            }
        };
        for (;;) {
            lend_changed_.wait(lock, [&] { return stop_ || wanted_.id != 0; });
            if (stop_) return;
            const ShareMessage asked = std::exchange(wanted_, {});
            if (const std::uint64_t known = asked.facts.idle; known != 0) { // how long, as far as the leader knows
                std::uint64_t least = known;
                each_lender([&](const Lender& each) {
                    least = std::min(least, static_cast<std::uint64_t>(each.idle().count()));
                    return true;
                });
                constexpr std::uint64_t as_known = 1'000'000; // who is used all the time can be asked too
                if (least + as_known < known) {
                    passing_ = 0;
                    answer(Kind::recent, 0, asked.id, least);
                    continue;
                }
            }
            std::uint64_t given = 0;
            each_lender([&](const Lender& each) {
                std::unique_lock now{mutex_};
                const std::uint64_t at_most = facts_.held - std::min(facts_.held, facts_.floor);
                now.unlock();
                if (given < asked.bytes) given += each.lend(asked.bytes - given, at_most);
                return given < asked.bytes;
            });
            if (given >= asked.bytes) passing_ = 0;
            passing_until_ = Clock::now() + passes_for;
            answer(Kind::gave, given, asked.id);
        }
    }
    void wake() const noexcept {
        const std::uint64_t one = 1;
        (void)!::write(wake_.get(), &one, sizeof one);
    }
    struct Passed { // pages that were passed to this member, and are not used yet
        std::uint64_t bytes;
        ShareFd pages;
    };
    // These require the mutex.
    /// Asks the leader how many bytes linger; 0 if it does not answer.
    std::uint64_t lingering(std::unique_lock<std::mutex>& lock) noexcept {
        try {
            Asked asked{{.kind = Kind::list}}; // the answer comes after all that this member has passed was heard
            return link_ && answered(lock, asked, std::nullopt) ? asked.message.bytes : 0;
        } catch (...) {
            return 0;
        }
    }
    [[nodiscard]] Passed* passed_with(std::uint64_t bytes) noexcept {
        return first_in(passed_, [&](const Passed& each) { return each.bytes == bytes; });
    }
    [[nodiscard]] std::uint64_t passed_bytes() const noexcept {
        std::uint64_t bytes = 0;
        for (const Passed& each : passed_) bytes += each.bytes;
        return bytes;
    }
    /// Uses what has been granted, and passed pages, which are in the way if they have other sizes. False if it is
    /// less.
    bool use_grant(std::uint64_t bytes) noexcept {
        if (facts_.granted + passed_bytes() < bytes) return false;
        for (; facts_.granted < bytes; passed_.pop_back()) turn(passed_.back().bytes, passed_.back().pages);
        facts_.granted -= bytes;
        granted_at_ = Clock::now();
        return true;
    }
    void turn(std::uint64_t bytes, ShareFd& pages) noexcept {
        facts_.held -= std::min(facts_.held, bytes);
        facts_.granted += bytes;
        tell(Kind::turned, bytes); // before the device has it: nobody else is granted it
        pages.reset();
    }
    std::uint64_t turn_all() noexcept {
        const std::uint64_t bytes = passed_bytes();
        for (Passed& each : passed_) turn(each.bytes, each.pages);
        passed_.clear();
        return bytes;
    }
    void tell(ShareMessage message, std::uint64_t idle = 0) noexcept {
        message.facts = facts_;
        message.facts.idle = idle;
        // The next leader is told all that matters. The thread for messages sees the end.
        if (link_ && !send_message(link_.get(), message)) (void)::shutdown(link_.get(), SHUT_RDWR);
    }
    void tell(Kind kind, std::uint64_t bytes = 0, std::uint64_t id = 0, std::uint64_t idle = 0) noexcept {
        tell({.kind = kind, .id = id, .bytes = bytes}, idle);
    }
    /// The answer to a question for room.
    void answer(Kind kind, std::uint64_t bytes, std::uint64_t id, std::uint64_t idle = 0) noexcept {
        if (giving_id_ == id) giving_id_ = 0;
        tell(kind, bytes, id, idle);
    }
    [[nodiscard]] std::chrono::nanoseconds says_so() const noexcept {
        return std::min<std::chrono::nanoseconds>(answer_within_ / 2, ShareRoom::says_so);
    }
    void lose_leader() noexcept {
        if (link_) tell(Kind::leave);
        welcome_ = silent_ = false;
        link_.reset();
        wanted_ = {};
        passing_ = 0;
        changed_.notify_all();
    }
    /// Returns what was granted and not used for a while.
    void return_grant(Clock::time_point now) noexcept {
        if (now < granted_at_ + grant_lasts) return;
        (void)turn_all();
        if (facts_.granted != 0) tell(Kind::unused, std::exchange(facts_.granted, 0));
    }
    /// Sends a question, and waits for its answer until the time. False if there is no answer.
    bool answered(std::unique_lock<std::mutex>& lock, Asked& asked, std::optional<Clock::time_point> until) {
        if (silent_) return false;
        asked.message.id = next_id_++;
        asked_.push_back(&asked);
        tell(asked.message);
        const auto over = [&] { return asked.state == Asked::State::granted || asked.state == Asked::State::denied; };
        // As long as the caller likes, and as long as a leader may take to say that it waits, now and again.
        auto since = Clock::now(); // it has said nothing
        for (auto next = since + says_so(); !over();) {
            const bool ends = until && *until < next;
            if (changed_.wait_until(lock, ends ? *until : next) == std::cv_status::no_timeout || over()) continue;
            const auto now = Clock::now();
            if (asked.state != Asked::State::sent) since = now;
            silent_ = silent_ || (!ends && now >= since + answer_within_);
            if (ends || silent_) break;
            asked.state = Asked::State::sent;
            tell(Kind::still, 0, asked.message.id);
            next = now + says_so();
        }
        erase_in(asked_, [&](const Asked* each) { return each == &asked; });
        return over();
    }

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
