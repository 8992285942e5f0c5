// Who keeps published pages: their descriptors, and a socket in the share's folder at which others get them. Knows
// nothing about devices: a descriptor alone keeps pages, also after their maker was killed.
#pragma once

#include "memsaver/core/form.hpp"
#include "memsaver/core/vector.hpp"
#include "memsaver/share/folder.hpp"
#include "memsaver/share/message.hpp"

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

namespace memsaver::inline v0_3::detail {

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
    Keeper(const Keeper&) = delete;
    Keeper& operator=(const Keeper&) = delete;
    ~Keeper();

    /// Begins to answer, if it did not before. Throws Unavailable.
    void open();
    /// Keeps a publication until it is withdrawn. `own`: this process publishes it.
    void keep(const Kept& kept, bool own = false);
    /// Keeps a publication of another process, unless it was withdrawn since this keeper was open and had `heard()`.
    void keep_got(const Kept& kept, std::uint64_t heard);
    /// Whether it keeps this publication: nobody has withdrawn it.
    [[nodiscard]] bool keeps(const Publication& publication) const;
    /// Of how many withdrawals it has heard.
    [[nodiscard]] std::uint64_t heard() const;
    /// Device memory of what this process has published and nobody has withdrawn.
    [[nodiscard]] std::uint64_t published_bytes() const;

    /// What is published, each once, of all keepers of the folder. Adds those that do not answer to `silent`.
    [[nodiscard]] Vector<PublicationFacts> list(Vector<std::string>* silent = nullptr) const;
    /// Gets a publication from whoever keeps it, one after the other but for those that were `silent`; null if nobody
    /// has it any more. Throws Unavailable if this process cannot have so many descriptors.
    [[nodiscard]] Kept get(std::uint64_t id, const Vector<std::string>& silent = {}) const;
    /// Gives it to all keepers that take every publication. Not ok if one of them has not taken it.
    Status offer(const Publication& publication) const noexcept;
    /// Asks all keepers to give up all versions of a name. Those who have its pages mapped keep them.
    void withdraw(std::string_view name) const;

private:
    using Clock = std::chrono::steady_clock;
    struct Message;
    class Link;

    void run() noexcept;
    void answer(Link& link);
    /// Requires the mutex.
    void add(const Kept& kept, bool own);
    /// A connection to a keeper; invalid if that is gone. Throws Unavailable if this process can have no more.
    [[nodiscard]] ShareFd reach(const std::string& name) const;
    /// Calls `ask(link)` for a connection to each keeper until it returns true.
    void each_keeper(std::string_view prefix, const Vector<std::string>& but, FunctionRef<bool(Link&)> ask) const;
    /// Asks all keepers at once. Calls `act` for each row of their answers. Adds those that do not answer to `silent`.
    void ask_all(const Message& question, FunctionRef<void(const PublicationFacts&)> act,
                 Vector<std::string>* silent) const;

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

#include "memsaver/share/keeper.ipp"
