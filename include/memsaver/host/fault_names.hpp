// Whose addresses a fault was at: names of ranges, and the handler of SIGSEGV that writes one to stderr before the
// fault takes its course. Knows neither pages nor tags.
#pragma once

#include "memsaver/core/form.hpp"
#include "memsaver/core/handles.hpp"

#include <csignal>

#include <atomic>
#include <cstddef>
#include <utility>

namespace memsaver::inline v0_2 {

namespace detail {

/// The name of a range of addresses for as long as this lives. Handlers of signals are the process's, so this is the
/// library's one piece of state that no saver owns: ranges of all machines stand in one list, which only grows, by what
/// is needed at once. The handler is there while any range has a name.
///
/// The handler keeps to what is safe in one: it reads the list, takes no lock, and calls write and sigaction. What it
/// found when it was installed it hands every fault on to, under the mask and on the stack that were asked for; where
/// that was nothing, the fault ends the process as ever, at the instruction that it was at. It is taken away again only
/// where nobody has installed another one since; that one may know it.
class FaultName {
public:
    FaultName() = default;
    /// Of a text that is too long, the beginning. Without memory for it the range has no name.
    FaultName(Address address, std::size_t bytes, const char* name) noexcept;
    FaultName(FaultName&& other) noexcept : entry_{std::exchange(other.entry_, nullptr)} {}
    FaultName& operator=(FaultName&& other) noexcept {
        std::swap(entry_, other.entry_);
        return *this;
    }
    ~FaultName();

    /// The name, or null: there is none.
    [[nodiscard]] const char* text() const noexcept;

private:
    struct Entry;
    struct Shared;

    static Shared shared_;

    static void install() noexcept;
    static void uninstall() noexcept;
    static void tell(Address address) noexcept;
    static void on_fault(int signal, siginfo_t* info, void* context);
    static void hand_on(int signal, siginfo_t* info, void* context);

    Entry* entry_ = nullptr;
};

} // namespace detail

} // namespace memsaver::inline v0_2

#ifndef MEMSAVER_COMPILED
#include "memsaver/host/fault_names.ipp"
#endif
