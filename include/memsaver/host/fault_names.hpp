// Names of address ranges, and a SIGSEGV handler that writes the name of the faulting range to stderr before the fault
// is handled as usual. Independent of pages and tags.
#pragma once

#include "memsaver/core/form.hpp"
#include "memsaver/core/handles.hpp"

#include <csignal>

#include <atomic>
#include <cstddef>
#include <utility>

namespace memsaver::inline v0_3 {

namespace detail {

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
    FaultName(Address address, std::size_t bytes, const char* name) noexcept;
    FaultName(FaultName&& other) noexcept : entry_{std::exchange(other.entry_, nullptr)} {}
    FaultName& operator=(FaultName&& other) noexcept {
        std::swap(entry_, other.entry_);
        return *this;
    }
    ~FaultName();

    /// Returns the name; null if there is none.
    [[nodiscard]] const char* text() const noexcept;

private:
    struct Entry;
    struct Shared;

    static Shared shared_;

    /// Keeps the list whole for a forked child, which has only the thread that forked: no other holds the lock then.
    static void watch_forks() noexcept;
    static void install() noexcept;
    static void uninstall() noexcept;
    static void report(Address address) noexcept;
    static void on_fault(int signal, siginfo_t* info, void* context);
    static void hand_on(int signal, siginfo_t* info, void* context);

    Entry* entry_ = nullptr;
};

} // namespace detail

} // namespace memsaver::inline v0_3

#ifndef MEMSAVER_COMPILED
#include "memsaver/host/fault_names.ipp"
#endif
