// Coordinates NCCL communicators with pauses: their registrations of a saver's memory, and their own memory. NCCL is
// the program's library, found at run time; none of its headers is needed.
#pragma once

#include "memsaver/core/macros_off.hpp"

#include "memsaver/driver/entry_point.hpp"
#include "memsaver/saver/registrations.hpp"

#include <cstddef>
#include <memory>
#include <string>

struct ncclComm;          // ncclComm_t points to it
struct ncclWindow_vidmem; // ncclWindow_t points to it

namespace memsaver::inline v0_3 {

namespace detail {

/// The part of NCCL's binary interface that is used here. tests/static/nccl_abi_test.cpp checks it against NCCL's
/// header, where available.
namespace nccl {

using Result = int; // ncclResult_t
inline constexpr Result success = 0;
inline constexpr Result in_progress = 7;
inline constexpr int suspend_memory = 0x01;
inline constexpr int first_with_suspend = 22907; // 2.29.7 in NCCL's version encoding

} // namespace nccl

/// The entry points of libnccl.so.2; null if the loaded version lacks them.
struct NcclLibrary {
    using Result = nccl::Result;

    void* handle = nullptr;

    Result (*get_version)(int*) = entry("ncclGetVersion");
    const char* (*get_error_string)(Result) = entry("ncclGetErrorString");
    const char* (*get_last_error)(ncclComm*) = entry("ncclGetLastError");
    Result (*comm_get_async_error)(ncclComm*, Result*) = entry("ncclCommGetAsyncError");
    Result (*comm_device)(const ncclComm*, int*) = entry("ncclCommCuDevice");
    Result (*comm_register)(ncclComm*, void*, std::size_t, void**) = entry("ncclCommRegister");
    Result (*comm_deregister)(ncclComm*, void*) = entry("ncclCommDeregister");
    Result (*comm_window_register)(ncclComm*, void*, std::size_t, ncclWindow_vidmem**,
                                   int) = entry("ncclCommWindowRegister");
    Result (*comm_window_deregister)(ncclComm*, ncclWindow_vidmem*) = entry("ncclCommWindowDeregister");
    Result (*comm_suspend)(ncclComm*, int) = entry("ncclCommSuspend");
    Result (*comm_resume)(ncclComm*) = entry("ncclCommResume");
    int version = 0;

    /// Finds the library that the process has loaded; communicators cannot be used with another copy. Throws
    /// Unavailable.
    [[nodiscard]] static NcclLibrary load();
    [[nodiscard]] EntryPoint entry(const char* name) const noexcept { return {handle, name}; }
    [[nodiscard]] bool can_suspend() const noexcept {
        return version >= nccl::first_with_suspend && comm_suspend != nullptr && comm_resume != nullptr;
    }
};

/// Converts NCCL's version number to text: 22907 is "2.29.7", 2804 is "2.8.4".
[[nodiscard]] std::string nccl_version_text(int version);

class NcclState; // nccl.ipp

} // namespace detail

/// Whether a communicator is suspended when its tags are paused.
enum class NcclSuspend : unsigned char {
    where_possible, ///< if NCCL is 2.29.7 or newer; otherwise its memory stays on the device, which an event reports
    required,       ///< Unavailable with an older NCCL
    never,          ///< it keeps its memory; its registrations are still renewed
};

/// Options of an NcclComm, written as `{.who = "trainer", .tags = {"weights"}, .timeout = std::chrono::seconds{30}}`.
struct NcclOptions {
    /// The name of the communicator in error texts.
    std::string who = "an NCCL communicator";
    /// The communicator is suspended before a pause of any of these tags, and resumed after a resume of any of them.
    Tags tags = Tags::all();
    NcclSuspend suspend = NcclSuspend::where_possible;
    /// How long a call on a nonblocking communicator may take before it fails with NotIdle. None: no limit. The call
    /// stays in progress: the next operation, such as Registrations::renew, waits for it and goes on from there. A
    /// blocking communicator waits for its peers inside NCCL, and only ncclCommAbort can end that wait.
    TimeLimit timeout{};
};

/// Keeps a buffer registered with a communicator (ncclCommRegister) for its lifetime. Move-only. Must end before its
/// memory is freed and before its communicator is destroyed.
using NcclBuffer = Registration;

/// Keeps a window registered (ncclCommWindowRegister) for its lifetime. Move-only. Same lifetime rules as NcclBuffer.
class [[nodiscard]] NcclWindow {
public:
    NcclWindow() = default;
    NcclWindow(std::shared_ptr<ncclWindow_vidmem*> window, Registration registration) noexcept
        : window_{std::move(window)}, registration_{std::move(registration)} {}

    /// Returns the current ncclWindow_t. It changes with each resume, so call this before each use. Null while the
    /// memory is paused or the communicator is suspended.
    [[nodiscard]] ncclWindow_vidmem* get() const noexcept { return window_ == nullptr ? nullptr : *window_; }
    /// See Registration::registered.
    [[nodiscard]] bool registered() const { return registration_.registered(); }
    /// See Registration::end.
    void end() { registration_.end(); }

private:
    std::shared_ptr<ncclWindow_vidmem*> window_; // outlives the registration
    Registration registration_;
};

/// Suspends and resumes a communicator, and renews its buffers and windows, with a saver's tags.
///
///     Registrations registrations{saver, {.barrier = ...}};
///     NcclComm comm{registrations, nccl_comm, {.who = "rollout"}};
///     NcclWindow window = comm.window(weights, bytes);
///     saver.pause("weights");   // waits for the device, barrier; deregisters; suspends; releases the pages
///     saver.resume("weights");  // maps pages, restores bytes; resumes; registers again
///
/// All of this is collective: every rank must make its NcclComms, buffers and windows in the same order, and must pause
/// and resume the same tags in the same order; if one rank does not take part, the others wait inside NCCL. Ranks must
/// therefore agree before they pause, and agree on how to continue after a failure (see examples/cluster). NCCL allows
/// no call on a suspended communicator. All its buffers and windows are therefore deregistered before it is suspended,
/// those of other tags too, and each is registered again once the communicator is resumed and its memory is resident.
/// Memory registered with NCCL belongs in tags that are not evictable, because ranks do not agree on evictions. NCCL
/// versions that look at a single handle register a whole block only if the block has one handle
/// (ArenaOptions::single_handle).
///
/// A pause first queries the communicator for an error. If the communicator has failed, the pause throws DriverError
/// and nothing is paused; abort the communicator, call `abandon`, and pause again. Thread-safe to the extent that NCCL
/// is: nothing else may use the communicator during these calls. The communicator must not be destroyed until this
/// object and its buffers and windows have ended, or `abandon` was called. The destructor neither suspends nor resumes
/// it. Must end before its Registrations.
class NcclComm {
public:
    /// Throws Unavailable if the process has no NCCL (the text lists what was tried; link NCCL, or set the environment
    /// variable MEMSAVER_NCCL to the file of the loaded library), or if NCCL is too old for `NcclSuspend::required`.
    /// Throws Misuse for null.
    NcclComm(Registrations& registrations, ncclComm* comm, NcclOptions options = {});

    /// Registers a buffer (ncclCommRegister, NCCL 2.19), and renews the registration around pauses. Throws as
    /// Registrations::add; Unavailable if NCCL is too old; DriverError with NCCL's text if NCCL reports an error, or if
    /// the communicator has failed.
    NcclBuffer buffer(void* pointer, std::size_t bytes);
    /// Registers a window (ncclCommWindowRegister, NCCL 2.27), and renews it around pauses. Collective. `flags` are
    /// NCCL's; 1 is NCCL_WIN_COLL_SYMMETRIC. NCCL requires multiples of 4 KiB. Throws as `buffer`.
    NcclWindow window(void* pointer, std::size_t bytes, int flags = 1);

    /// Declares the communicator aborted or destroyed: NCCL is no longer called with it, and its registrations no
    /// longer prevent pauses.
    void abandon() noexcept;

    /// Returns whether pauses suspend the communicator.
    [[nodiscard]] bool suspends() const noexcept;
    /// Returns whether the communicator is suspended now.
    [[nodiscard]] bool suspended() const;
    /// NCCL's version in NCCL's encoding: 22907 is 2.29.7.
    [[nodiscard]] int version() const noexcept;

private:
    /// The registration that its buffers and windows depend on; null if the communicator is not suspended with tags.
    [[nodiscard]] const Registration* dependency() const noexcept;

    Registrations& registrations_;
    std::shared_ptr<detail::NcclState> state_;
    Registration goes_with_tags_;
};

} // namespace memsaver::inline v0_3

#ifndef MEMSAVER_COMPILED
#include "memsaver/interop/nccl.ipp"
#endif

#include "memsaver/core/macros_on.hpp"
