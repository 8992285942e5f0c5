// Names of address ranges, and a SIGSEGV handler that writes the name of the faulting range to stderr before the fault
// is handled as usual. Independent of pages and tags.
#pragma once

#include "memsaver/core/handles.hpp"

#include <pthread.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstring>
#include <mutex>
#include <new>
#include <utility>

namespace memsaver::inline v0_3::detail {

/// Gives a range of addresses a name for the lifetime of this object. Signal handlers are per process, so this is the
/// library's only state that no saver owns: one list for the ranges of all machines, which grows to the maximum number
/// of ranges named at once. The handler is installed while any range has a name.
///
/// The handler does only what is async-signal-safe: it reads the list, takes no lock, and calls write and sigaction. It
/// passes every fault on to the previously installed handler, with the signal mask and stack that that handler
/// requested. If there was none, the fault ends the process as usual, at the faulting instruction. The handler is
/// uninstalled only if no other handler has been installed since, because that one may call it.
class FaultName {
public:
    FaultName() = default;
    /// Names the range. A name that is too long is truncated. Without memory for it the range has no name.
    FaultName(Address address, std::size_t bytes, const char* name) noexcept {
        watch_forks(); // not at the start of the program: a file that only includes the library generates no code
        const std::lock_guard lock{shared_.mutex};
        entry_ = shared_.first.load();
        while (entry_ != nullptr && entry_->end.load() != 0) entry_ = entry_->next;
        const bool fresh = entry_ == nullptr;
        if (fresh) entry_ = new (std::nothrow) Entry;
        if (entry_ == nullptr) return;
        std::strncpy(entry_->name.data(), name, entry_->name.size() - 1); // the last byte stays 0
        entry_->begin.store(address);
        entry_->end.store(address + bytes);
        if (fresh) {
            entry_->next = shared_.first.load();
            shared_.first.store(entry_);
        }
        if (++shared_.named == 1) install();
    }
    FaultName(FaultName&& other) noexcept : entry_{std::exchange(other.entry_, nullptr)} {}
    FaultName& operator=(FaultName&& other) noexcept {
        std::swap(entry_, other.entry_);
        return *this;
    }
    ~FaultName() {
        if (entry_ == nullptr) return;
        const std::lock_guard lock{shared_.mutex};
        entry_->end.store(0);
        if (--shared_.named == 0) uninstall();
    }

    /// Returns the name; null if there is none.
    [[nodiscard]] const char* text() const noexcept { return entry_ == nullptr ? nullptr : entry_->name.data(); }

private:
    struct Entry {
        std::atomic<Address> begin{0};
        std::atomic<Address> end{0}; // 0 while the entry is unused
        std::array<char, 160> name{};
        Entry* next = nullptr; // list link; never changes
    };
    struct Shared {
        std::atomic<Entry*> first{nullptr};
        std::atomic<bool> watched{false};
        std::mutex mutex{}; // guards the members below
        std::size_t named = 0;
        bool installed = false;
        struct sigaction previous {}; // changes only while the handler is not installed
    };

    static Shared shared_;

    /// Keeps the list whole for a forked child, which has only the thread that forked: no other holds the lock then.
    static void watch_forks() noexcept {
        if (shared_.watched.load() || shared_.watched.exchange(true)) return;
        const auto unlock = [] { shared_.mutex.unlock(); };
        if (::pthread_atfork([] { shared_.mutex.lock(); }, unlock, unlock) != 0) shared_.watched.store(false);
    }
    static void install() noexcept {
        if (shared_.installed) return; // another handler was installed over it: installing twice could create a cycle
        if (::sigaction(SIGSEGV, nullptr, &shared_.previous) != 0) return;
        struct sigaction ours = shared_.previous;
        const bool handled =
            (ours.sa_flags & SA_SIGINFO) != 0 || (ours.sa_handler != SIG_DFL && ours.sa_handler != SIG_IGN);
        ours.sa_flags = handled ? ours.sa_flags & ~static_cast<int>(SA_RESETHAND) : SA_ONSTACK;
        ours.sa_flags |= SA_SIGINFO;
        ours.sa_sigaction = on_fault;
        shared_.installed = ::sigaction(SIGSEGV, &ours, nullptr) == 0;
    }
    static void uninstall() noexcept {
        struct sigaction now {};
        if (!shared_.installed || ::sigaction(SIGSEGV, nullptr, &now) != 0) return;
        if ((now.sa_flags & SA_SIGINFO) == 0 || now.sa_sigaction != on_fault) return;
        shared_.installed = ::sigaction(SIGSEGV, &shared_.previous, nullptr) != 0;
    }
    static void report(Address address) noexcept {
        const Entry* entry = shared_.first.load();
        while (entry != nullptr && (address < entry->begin.load() || entry->end.load() <= address)) entry = entry->next;
        if (entry == nullptr) return;
        std::array<char, 512> line{};
        std::size_t size = 0;
        const auto put = [&](const char* text) {
            for (; *text != '\0' && size < line.size(); ++text) line[size++] = *text;
        };
        std::array<char, 2 * sizeof(Address) + 1> digits{};
        std::size_t at = digits.size() - 1;
        for (Address rest = address; rest != 0; rest >>= 4U) digits[--at] = "0123456789abcdef"[rest & 0xFU];
        put("memsaver: ");
        put(entry->name.data());
        put(": 0x");
        put(&digits[at]);
        put(" was accessed, but has no memory: it is paused (resume the tag first), written although published, "
            "elastic and not committed, or not in a block\n");
        for (std::size_t done = 0; done < size;) {
            const ssize_t written = ::write(STDERR_FILENO, &line[done], size - done);
            if (written < 0 && errno == EINTR) continue;
            if (written <= 0) return;
            done += static_cast<std::size_t>(written);
        }
    }
    static void on_fault(int signal, siginfo_t* info, void* context) {
        const int saved = errno;
        if (info->si_code > 0)
            report(reinterpret_cast<Address>(info->si_addr)); // otherwise another process or thread sent
                                                              // the signal
        errno = saved;
        hand_on(signal, info, context);
    }
    static void hand_on(int signal, siginfo_t* info, void* context) {
        const struct sigaction& to = shared_.previous;
        const bool asked = (to.sa_flags & SA_SIGINFO) != 0;
        const bool ignored = !asked && to.sa_handler == SIG_IGN;
        const bool handled = asked || (to.sa_handler != SIG_DFL && !ignored);
        const bool sent = info->si_code <= 0;
        if (ignored && sent) return;
        if (!handled || (to.sa_flags & static_cast<int>(SA_RESETHAND)) != 0) {
            struct sigaction none {};
            none.sa_handler = SIG_DFL;
            (void)::sigaction(signal, &none, nullptr);
        }
        if (asked) {
            to.sa_sigaction(signal, info, context);
        } else if (handled) {
            to.sa_handler(signal);
        } else if (sent) {
            (void)::raise(signal); // delivered when the handler returns; a fault recurs without it
        }
    }

    Entry* entry_ = nullptr;
};

// Inline in both forms: a program may contain both, and the linker accepts strong and inline functions, not variables.
inline constinit FaultName::Shared FaultName::shared_{};

} // namespace memsaver::inline v0_3::detail
