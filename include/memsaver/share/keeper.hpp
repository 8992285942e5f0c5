// Who keeps published pages: their descriptors, and a socket in the share's folder at which others get them. Knows
// nothing about devices: a descriptor alone keeps pages, also after their maker was killed.
#pragma once

#include "memsaver/core/error.hpp"
#include "memsaver/core/lists.hpp"
#include "memsaver/core/vector.hpp"
#include "memsaver/driver/system.hpp"
#include "memsaver/driver/system_limits.hpp"
#include "memsaver/share/folder.hpp"
#include "memsaver/share/message.hpp"

#include <poll.h>
#include <pthread.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

namespace memsaver::inline v0_3::detail {

inline std::uint64_t random_number() noexcept {
    std::uint64_t number = 0;
    while (::getrandom(&number, sizeof number, 0) != sizeof number) {
    }
    return number;
}

/// A thread of a share, on which no signal of the process is handled: its handlers and `sigwait` are the program's
/// threads' affair. Throws Unavailable if the process can have no more.
template <class Run>
std::thread started(Run run) {
    struct NoSignals { // the new thread has the mask of the one that makes it
        NoSignals() noexcept {
            sigset_t all;
            sigfillset(&all);
            (void)::pthread_sigmask(SIG_SETMASK, &all, &before);
        }
        NoSignals& operator=(NoSignals&&) = delete;
        ~NoSignals() { (void)::pthread_sigmask(SIG_SETMASK, &before, nullptr); }
        sigset_t before{};
    };
    try {
        const NoSignals meanwhile;
        return std::thread{std::move(run)};
    } catch (const std::system_error&) {
        unavailable({"Share: ", to_string(SystemLimits::no_thread)}, SystemLimits::no_thread);
    }
}

/// What a publication is, as keepers know it.
struct PublicationFacts {
    std::array<char, 128> name{};
    std::array<char, 64> version{};
    std::uint64_t id = 0;          ///< random
    std::uint64_t hash = 0;        ///< of its named bytes
    std::uint64_t bytes = 0;       ///< of device memory
    std::uint64_t descriptors = 0; ///< the manifest's, then those of the pages
    std::int64_t made = 0;         ///< nanoseconds since 1970: without a version, the latest is meant
};

/// A publication that is kept as long as this lives.
struct Publication {
    PublicationFacts facts;
    Vector<ShareFd> descriptors;
};

/// Keeps publications, and gives them to who asks. There is no list of them anywhere: who wants one asks each keeper in
/// the folder. A keeper that does not answer in time, because it is stopped, is passed by; it hears of a withdrawal
/// once it goes on. Thread-safe.
class Keeper {
public:
    using Kept = std::shared_ptr<const Publication>;

    /// Called with what is kept from now on, or no longer (false). Must not throw, nor call the keeper.
    using Changed = std::function<void(const Publication&, bool)>;

    /// `takes_all`: gets every new publication, not only those of its own process.
    Keeper(const ShareFolder& folder, std::chrono::nanoseconds answer_within, bool takes_all = false,
           Changed changed = {})
        : folder_{folder}, answer_within_{answer_within}, takes_all_{takes_all}, changed_{std::move(changed)} {}
    Keeper& operator=(Keeper&&) = delete;
    ~Keeper() {
        if (!thread_.joinable()) return;
        folder_.remove(name_.c_str());
        const std::uint64_t one = 1;
        (void)!::write(stop_.get(), &one, sizeof one);
        thread_.join();
    }

    /// Begins to answer, if it did not before. Throws Unavailable.
    void open() {
        const std::lock_guard lock{mutex_};
        if (thread_.joinable()) return;
        std::array<char, 32> name{};
        (void)std::snprintf(name.data(), name.size(), "%s-%016llx", takes_all_ ? "keeper" : "keeps",
                            static_cast<unsigned long long>(random_number()));
        stop_ = ShareFd::pipe();
        ShareFd made = stop_ ? folder_.listen(name.data()) : ShareFd{};
        if (!made) folder_.refuse("cannot make a socket in", system_status(errno));
        listener_ = std::move(made);
        try {
            thread_ = started([this] { run(); });
        } catch (...) { // others would wait for its answer
            listener_.reset();
            folder_.remove(name.data());
            throw;
        }
        name_ = name.data();
    }
    /// Keeps a publication until it is withdrawn. `own`: this process publishes it.
    void keep(const Kept& kept, bool own = false) {
        open();
        const std::lock_guard lock{mutex_};
        add(kept, own);
    }
    /// Keeps a publication of another process, unless it was withdrawn since this keeper was open and had `heard()`.
    void keep_got(const Kept& kept, std::uint64_t heard) {
        const auto same = [&](const PublicationFacts& each) { return each.id == kept->facts.id; };
        for (bool published = true; published;) {
            {
                const std::lock_guard lock{mutex_};
                if (std::exchange(heard, heard_) == heard_) return add(kept, false);
            }
            const Vector<PublicationFacts> rows = list(); // it may have been that, or another one
            published = any_in(rows, same);
        }
    }
    /// Whether it keeps this publication: nobody has withdrawn it.
    [[nodiscard]] bool keeps(const Publication& publication) const {
        const std::lock_guard lock{mutex_};
        return kept_with(publication.facts.id) != nullptr;
    }
    /// Of how many withdrawals it has heard.
    [[nodiscard]] std::uint64_t heard() const {
        const std::lock_guard lock{mutex_};
        return heard_;
    }
    /// Device memory of what this process has published and nobody has withdrawn.
    [[nodiscard]] std::uint64_t published_bytes() const {
        const std::lock_guard lock{mutex_};
        std::uint64_t bytes = 0;
        for (const Kept& each : own_) bytes += each->facts.bytes;
        return bytes;
    }

    /// What is published, each once, of all keepers of the folder. Adds those that do not answer to `silent`.
    [[nodiscard]] Vector<PublicationFacts> list(Vector<std::string>* silent = nullptr) const {
        Vector<PublicationFacts> rows;
        {
            const std::lock_guard lock{mutex_};
            for (const Kept& each : kept_) rows.push_back(each->facts);
        }
        const auto add = [&](const PublicationFacts& row) {
            if (!any_in(rows, [&](const PublicationFacts& each) { return each.id == row.id; })) rows.push_back(row);
        };
        (void)ask_all({.kind = Message::Kind::list}, add, silent);
        return rows;
    }
    /// Gets a publication from whoever keeps it, one after the other but for those that were `silent`; null if nobody
    /// has it any more. Throws Unavailable if this process cannot have so many descriptors.
    [[nodiscard]] Kept get(std::uint64_t id, const Vector<std::string>& silent = {}) const {
        {
            const std::lock_guard lock{mutex_};
            if (const Kept* const known = kept_with(id)) return *known;
        }
        Kept got;
        bool missed = false;
        each_keeper("keep", silent, [&](Link& link) {
            Publication publication;
            if (link.send(Message::Kind::get, {.id = id}) && link.receive_all(publication))
                got = std::make_shared<const Publication>(std::move(publication));
            missed = missed || link.missed();
            return got != nullptr;
        });
        if (got == nullptr && missed)
            unavailable({"Share: this process cannot have the descriptors of a publication (ulimit -n)"},
                        system_status(EMFILE));
        return got;
    }
    /// Gives it to all keepers that take every publication. Not ok if one of them has not taken it.
    Status offer(const Publication& publication) const noexcept {
        Status status;
        try {
            each_keeper("keeper", {}, [&](Link& link) {
                Message end;
                const bool taken = link.send(Message::Kind::take, publication.facts) && link.send_all(publication) &&
                                   link.receive(end);
                if (!taken) status = {StatusKind::other, 0, "a memsaver-keeper has not taken it"};
                return false;
            });
        } catch (...) {
            return {StatusKind::other, 0, "this process cannot reach them"};
        }
        return status;
    }
    /// Asks all keepers to give up all versions of a name, or the publication with this number. Those who have its
    /// pages mapped keep them. Throws Unavailable if one of them cannot even be told later.
    void withdraw(std::string_view name, std::uint64_t id = 0) const {
        Message question{.kind = Message::Kind::withdraw};
        question.facts.id = id;
        std::copy(name.begin(), name.end(), question.facts.name.begin());
        const auto no_rows = [](const PublicationFacts&) {};
        bool told = true;
        // who gets it from one that has not heard of it is open by the second one
        for (int round = 0; round < 2; ++round) told = ask_all(question, no_rows, nullptr) && told;
        if (!told) unavailable({"Share: a process that may keep the publication is stopped, and can be told no more"});
    }

private:
    using Clock = std::chrono::steady_clock;

    struct Message {
        enum class Kind : std::uint32_t {
            list,        ///< asks for a `row` each, then `end`
            get,         ///< asks for the descriptors of `facts.id`, then `end`
            take,        ///< gives `facts`; the descriptors follow, then `end`
            withdraw,    ///< asks to give up `facts.id`, or all of this name; the answer is `end`
            row,         ///< `facts`
            descriptors, ///< `count` come with it
            end
        };
        std::array<char, 8> mark{'m', 'e', 'm', 'k', 'e', 'e', 'p', '1'};
        Kind kind = Kind::end;
        std::uint32_t count = 0;
        PublicationFacts facts{};
    };
    /// One end of a connection, which ends at a time.
    class Link {
    public:
        Link(ShareFd socket, Clock::time_point until) : socket_{std::move(socket)}, until_{until} {}

        bool send(Message::Kind kind, const PublicationFacts& facts = {}, const ShareFd* descriptors = nullptr,
                  std::size_t count = 0) {
            Message message{.kind = kind, .count = static_cast<std::uint32_t>(count), .facts = facts};
            std::array<int, most_sent> sent{};
            for (std::size_t i = 0; i < count; ++i) sent[i] = descriptors[i].get();
            for (;;) {
                if (send_with_descriptors(socket_.get(), {&message, sizeof message}, sent.data(), count) ==
                    static_cast<ssize_t>(sizeof message))
                    return true;
                // The system limits how many descriptors may be in flight; the other end takes them out.
                const bool full = errno == EAGAIN || errno == ETOOMANYREFS;
                if (errno == ETOOMANYREFS) (void)::usleep(1000);
                if (errno != EINTR && !(full && wait(POLLOUT))) return false;
            }
        }

        bool send_all(const Publication& publication) {
            const Vector<ShareFd>& all = publication.descriptors;
            for (std::size_t i = 0; i < all.size(); i += most_sent)
                if (!send(Message::Kind::descriptors, publication.facts, &all[i], std::min(most_sent, all.size() - i)))
                    return false;
            return send(Message::Kind::end);
        }

        /// Adds descriptors that came with the message to `all`. False if there will be none: the time has passed, or
        /// the connection has ended.
        bool receive(Message& message, Vector<ShareFd>* all = nullptr) {
            alignas(cmsghdr) std::array<char, CMSG_SPACE(most_sent * sizeof(int))> control{};
            Vector<ShareFd> came;
            int flags = 0;
            ssize_t got = -1;
            while ((got = receive_with_descriptors(socket_.get(), {&message, sizeof message}, control.data(),
                                                   control.size(), came, flags)) < 0) {
                if (errno != EINTR && !(errno == EAGAIN && wait(POLLIN))) return false;
            }
            const Message wanted;
            if (got != sizeof message || message.mark != wanted.mark || message.facts.name.back() != '\0' ||
                message.facts.version.back() != '\0')
                return false;
            // Some do not arrive if this process may have no more.
            missed_ = missed_ || (flags & MSG_CTRUNC) != 0 || came.size() < message.count;
            if (all != nullptr)
                for (ShareFd& each : came) all->push_back(std::move(each));
            return true;
        }

        /// Receives a publication. False if it is not all here.
        bool receive_all(Publication& publication) {
            Message message;
            for (;;) {
                if (!receive(message, &publication.descriptors)) return false;
                if (message.kind != Message::Kind::descriptors) break;
                publication.facts = message.facts;
            }
            return message.kind == Message::Kind::end && !publication.descriptors.empty() && !missed_ &&
                   publication.descriptors.size() == publication.facts.descriptors;
        }

        /// Whether descriptors did not arrive.
        [[nodiscard]] bool missed() const noexcept { return missed_; }

        [[nodiscard]] pollfd polled() const noexcept { return {socket_.get(), POLLIN, 0}; }
        [[nodiscard]] int milliseconds_left() const noexcept {
            const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until_ - Clock::now()).count();
            return static_cast<int>(std::clamp<long>(left, 0, 1'000'000));
        }

    private:
        [[nodiscard]] bool wait(short what) const noexcept {
            const int left = milliseconds_left();
            pollfd polled{socket_.get(), what, 0};
            return left > 0 && (::poll(&polled, 1, left) > 0 || errno == EINTR); // asks again
        }

        ShareFd socket_;
        Clock::time_point until_;
        bool missed_ = false;
    };

    void run() noexcept {
        Vector<Link> links; // that have asked for nothing yet: one that is stopped keeps nobody waiting
        Vector<pollfd> polled;
        constexpr int look_again = 1'000; // the program may have closed all descriptors
        for (;;) {
            try {
                polled = {{stop_.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}};
                for (const Link& each : links) polled.push_back(each.polled());
                if (::poll(polled.data(), polled.size(),
                           links.empty() ? look_again : links.front().milliseconds_left()) < 0) {
                    (void)::usleep(10'000); // the process may have fewer descriptors than there are
                    std::uint64_t one = 0;
                    polled[0].revents = ::read(stop_.get(), &one, sizeof one) > 0 ? POLLIN : 0;
                }
                if (polled[0].revents != 0 || stop_.get() < 0) return;
                for (std::size_t i = links.size(); i-- > 0;) {
                    if (polled[i + 2].revents == 0 && links[i].milliseconds_left() != 0) continue;
                    Link link = std::move(links[i]);
                    links.erase(links.begin() + static_cast<std::ptrdiff_t>(i));
                    if (polled[i + 2].revents != 0) answer(link);
                }
                if (polled[1].revents == 0) continue;
                ShareFd taken = ShareFd::opened(
                    [&] { return ::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK); });
                if (taken)
                    links.emplace_back(std::move(taken), Clock::now() + answer_within_);
                else if (errno != EAGAIN)
                    (void)::usleep(10'000); // no descriptor for it
            } catch (...) {                 // no host memory: the other ends see it, and ask somebody else
                links.clear();
            }
        }
    }
    void answer(Link& link) {
        using Kind = Message::Kind;
        Message asked;
        if (!link.receive(asked)) return;
        Vector<Kept> kept;
        {
            const std::lock_guard lock{mutex_};
            if (asked.kind == Kind::withdraw) {
                heard_ += 1;
                const auto withdrawn = [&](const Kept& each) {
                    const PublicationFacts& facts = each->facts;
                    return asked.facts.id != 0 ? facts.id == asked.facts.id : facts.name == asked.facts.name;
                };
                erase_in(own_, withdrawn);
                erase_in(kept_, [&](const Kept& each) {
                    const bool gone = withdrawn(each);
                    if (gone && changed_) changed_(*each, false);
                    return gone;
                });
            }
            kept = kept_;
        }
        if (asked.kind == Kind::list) {
            for (const Kept& each : kept)
                if (!link.send(Kind::row, each->facts)) return;
        } else if (asked.kind == Kind::get) {
            for (const Kept& each : kept)
                if (each->facts.id == asked.facts.id) return (void)link.send_all(*each);
        } else if (asked.kind == Kind::take && takes_all_) {
            Publication publication;
            if (!link.receive_all(publication)) return;
            keep(std::make_shared<const Publication>(std::move(publication)));
        }
        (void)link.send(Kind::end);
    }
    // These two require the mutex.
    [[nodiscard]] const Kept* kept_with(std::uint64_t id) const {
        return first_in(kept_, [&](const Kept& each) { return each->facts.id == id; });
    }
    void add(const Kept& kept, bool own) {
        if (kept_with(kept->facts.id) != nullptr) return;
        kept_.reserve(kept_.size() + 1); // all or nothing
        if (own) own_.push_back(kept);
        kept_.push_back(kept);
        if (changed_) changed_(*kept, true);
    }
    /// A connection to a keeper; invalid if that is gone. Throws Unavailable if this process can have no more.
    [[nodiscard]] ShareFd reach(const std::string& name) const {
        ShareFd made = folder_.connect(name.c_str());
        if (made) return made;
        if (errno == ECONNREFUSED) folder_.remove(name.c_str()); // its process was killed
        if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)
            folder_.refuse("cannot connect to who keeps publications in", system_status(errno));
        return made;
    }
    /// Calls `ask(link)` for a connection to each keeper until it returns true.
    void each_keeper(std::string_view prefix, const Vector<std::string>& but, FunctionRef<bool(Link&)> ask) const {
        for (const std::string& name : folder_.names(prefix)) {
            ShareFd made = is_in(but, name) ? ShareFd{} : reach(name);
            if (!made) continue;
            Link link{std::move(made), Clock::now() + answer_within_};
            if (ask(link)) return;
        }
    }
    /// Asks all keepers at once. Calls `act` for each row of their answers. Adds those that do not answer to `silent`.
    /// False if the question cannot wait for one that does not: too many do.
    bool ask_all(const Message& question, FunctionRef<void(const PublicationFacts&)> act,
                 Vector<std::string>* silent) const {
        struct Asked {
            std::string name;
            Link link;
        };
        Vector<Asked> asked;
        Vector<pollfd> polled;
        bool all_asked = true;
        const auto hear_all = [&] {
            while (!asked.empty()) {
                polled.clear();
                for (const Asked& each : asked) polled.push_back(each.link.polled());
                (void)::poll(polled.data(), polled.size(), asked.front().link.milliseconds_left());
                for (std::size_t i = asked.size(); i-- > 0;) {
                    Message answer;
                    Link& link = asked[i].link;
                    if (polled[i].revents == 0 && link.milliseconds_left() != 0) continue;
                    const bool answers = polled[i].revents != 0 && link.receive(answer);
                    if (answers && answer.kind == Message::Kind::row) {
                        act(answer.facts);
                        continue;
                    }
                    if (!answers && silent != nullptr) silent->push_back(asked[i].name);
                    asked.erase(asked.begin() + static_cast<std::ptrdiff_t>(i));
                }
            }
        };
        for (const std::string& name : folder_.names("keep")) {
            ShareFd made;
            try {
                made = reach(name);
            } catch (const Unavailable&) { // as many at once as this process can have descriptors
                if (asked.empty()) throw;
                hear_all();
                made = reach(name);
            }
            if (!made && errno == EAGAIN) {
                all_asked = false;
                if (silent != nullptr) silent->push_back(name);
            }
            if (!made) continue;
            Link link{std::move(made), Clock::now() + answer_within_};
            (void)link.send(question.kind, question.facts);
            asked.push_back({name, std::move(link)});
        }
        hear_all();
        return all_asked;
    }

    const ShareFolder& folder_;
    const std::chrono::nanoseconds answer_within_;
    const bool takes_all_;
    const Changed changed_;
    mutable std::mutex mutex_;
    Vector<Kept> kept_;
    Vector<Kept> own_; // of these
    std::uint64_t heard_ = 0;
    std::string name_; // of its socket
    ShareFd listener_;
    ShareFd stop_;
    std::thread thread_;
};

} // namespace memsaver::inline v0_3::detail
