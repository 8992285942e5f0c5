// NCCL's communicators around pauses: what they hold of a saver's memory, and their own memory. NCCL is that of the
// program, found at run time; no header of it is needed.
#pragma once

#include "memsaver/saver/registrations.hpp"

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>

struct ncclComm;          // ncclComm_t points to it
struct ncclWindow_vidmem; // ncclWindow_t points to it

namespace memsaver::inline v0_2 {

namespace detail {

/// What NCCL fixes of its binary interface, as far as it is called here; tests/static/nccl_abi_test.cpp holds it
/// against its header, where there is one.
namespace nccl {

using Result = int; // ncclResult_t
inline constexpr Result success = 0;
inline constexpr Result in_progress = 7;
inline constexpr int suspend_memory = 0x01;
inline constexpr int first_with_suspend = 22907; // 2.29.7, as NCCL numbers its versions

using GetVersion = Result (*)(int*);
using GetErrorString = const char* (*)(Result);
using GetLastError = const char* (*)(ncclComm*);
using CommGetAsyncError = Result (*)(ncclComm*, Result*);
using CommCuDevice = Result (*)(const ncclComm*, int*);
using CommRegister = Result (*)(ncclComm*, void*, std::size_t, void**);
using CommDeregister = Result (*)(ncclComm*, void*);
using CommWindowRegister = Result (*)(ncclComm*, void*, std::size_t, ncclWindow_vidmem**, int);
using CommWindowDeregister = Result (*)(ncclComm*, ncclWindow_vidmem*);
using CommSuspend = Result (*)(ncclComm*, int);
using CommResume = Result (*)(ncclComm*);

} // namespace nccl

/// The entry points of libnccl.so.2; those that a version does not have are null.
struct NcclLibrary {
    nccl::GetVersion get_version = nullptr;
    nccl::GetErrorString get_error_string = nullptr;
    nccl::GetLastError get_last_error = nullptr;
    nccl::CommGetAsyncError comm_get_async_error = nullptr;
    nccl::CommCuDevice comm_device = nullptr;
    nccl::CommRegister comm_register = nullptr;
    nccl::CommDeregister comm_deregister = nullptr;
    nccl::CommWindowRegister comm_window_register = nullptr;
    nccl::CommWindowDeregister comm_window_deregister = nullptr;
    nccl::CommSuspend comm_suspend = nullptr;
    nccl::CommResume comm_resume = nullptr;
    int version = 0;

    /// The one that the process has: communicators are of no use to another. Throws Unavailable.
    [[nodiscard]] static NcclLibrary load();
    [[nodiscard]] bool can_suspend() const noexcept {
        return version >= nccl::first_with_suspend && comm_suspend != nullptr && comm_resume != nullptr;
    }
};

/// 22907 is "2.29.7", and 2804 "2.8.4".
[[nodiscard]] std::string nccl_version_text(int version);

class NcclState; // nccl.ipp

} // namespace detail

/// Whether a communicator is suspended with tags.
enum class NcclSuspend : unsigned char {
    where_possible, ///< where NCCL is 2.29.7 or newer; else its own memory stays on the device, and an event says so
    required,       ///< older ones are Unavailable
    never,          ///< it keeps its memory; what it has registered is renewed all the same
};

/// Written as `{.who = "trainer", .tags = {"weights"}, .timeout = std::chrono::seconds{30}}`.
struct NcclOptions {
    /// What the communicator is called in the text of errors.
    std::string who = "an NCCL communicator";
    /// It is suspended before a pause of any of these tags, and resumed after a resume of any of them.
    Tags tags = Tags::all();
    NcclSuspend suspend = NcclSuspend::where_possible;
    /// How long a call of a communicator that does not block may take, after which it is NotIdle. None: as long as it
    /// takes. A communicator that blocks waits for its peers inside NCCL, and nobody can end that but ncclCommAbort.
    std::optional<std::chrono::nanoseconds> timeout{};
};

/// A buffer that a communicator has registered (ncclCommRegister), for as long as it lives. Move-only. Must end before
/// its memory, and before its communicator is destroyed.
using NcclBuffer = Registration;

/// A window (ncclCommWindowRegister), for as long as it lives. Move-only. As NcclBuffer.
class [[nodiscard]] NcclWindow {
public:
    NcclWindow() = default;
    NcclWindow(std::shared_ptr<ncclWindow_vidmem*> window, Registration registration) noexcept
        : window_{std::move(window)}, registration_{std::move(registration)} {}

    /// The window now, an ncclWindow_t: another one after each resume, so ask before each use; null while it is away
    /// or its communicator is suspended.
    [[nodiscard]] ncclWindow_vidmem* get() const noexcept { return window_ == nullptr ? nullptr : *window_; }
    /// See Registration::registered.
    [[nodiscard]] bool registered() const { return registration_.registered(); }
    /// See Registration::end.
    void end() { registration_.end(); }

private:
    std::shared_ptr<ncclWindow_vidmem*> window_; // outlives the registration
    Registration registration_;
};

/// A communicator whose buffers and memory go and come with a saver's tags.
///
///     Registrations registrations{saver, {.barrier = ...}};
///     NcclComm comm{registrations, nccl_comm, {.who = "rollout"}};
///     NcclWindow window = comm.window(weights, bytes);
///     saver.pause("weights");   // waits for the device, barrier; deregisters; suspends; gives the pages back
///     saver.resume("weights");  // takes pages, brings bytes; resumes; registers again
///
/// All of it is collective: every rank makes its NcclComms, buffers and windows in the same order, and pauses and
/// resumes the same tags in the same order; a rank that does not come leaves the others waiting inside NCCL. So agree
/// before you pause, and after a failure agree on what comes next (examples/cluster shows how). NCCL allows no call on
/// a suspended communicator, which is why all its buffers and windows are deregistered before it is suspended, those of
/// other tags too; each is registered again once the communicator is resumed and its memory is here. Memory that NCCL
/// knows belongs in tags that are not evictable: evictions are not agreed on. Blocks behind a single handle
/// (ArenaOptions::single_handle) are registered whole by NCCL versions that look at one handle.
///
/// Before anything else a pause asks the communicator for an error: one that has failed is DriverError, and nothing is
/// paused; abort it, call `abandon`, and pause. Thread safe as NCCL is: nobody else uses the communicator meanwhile. It
/// must not be destroyed before this and its buffers and windows have ended or `abandon` was called; ending this
/// neither suspends nor resumes it. Must end before its Registrations.
class NcclComm {
public:
    /// Throws Unavailable where the process has no NCCL (with what was tried: link it, or name the file of the one that
    /// is loaded in the environment's MEMSAVER_NCCL), or one that is too old for `NcclSuspend::required`; Misuse for
    /// null.
    NcclComm(Registrations& registrations, ncclComm* comm, NcclOptions options = {});

    /// ncclCommRegister (NCCL 2.19), renewed around pauses. Throws as Registrations::add; Unavailable where NCCL is too
    /// old; DriverError with NCCL's text where it refuses, and for a communicator that has failed.
    NcclBuffer buffer(void* pointer, std::size_t bytes);
    /// ncclCommWindowRegister (NCCL 2.27), renewed around pauses; collective. `flags` as NCCL's; 1 is
    /// NCCL_WIN_COLL_SYMMETRIC. NCCL wants multiples of 4 KiB. Throws as `buffer`.
    NcclWindow window(void* pointer, std::size_t bytes, int flags = 1);

    /// The communicator has been aborted or destroyed: NCCL is not called with it any more, and what it had registered
    /// is in no pause's way.
    void abandon() noexcept;

    /// Whether pauses suspend it.
    [[nodiscard]] bool suspends() const noexcept;
    /// Whether it is suspended now.
    [[nodiscard]] bool suspended() const;
    /// NCCL's version as NCCL numbers it: 22907 is 2.29.7.
    [[nodiscard]] int version() const noexcept;

private:
    /// What its buffers and windows go and come with; null where it is not suspended.
    [[nodiscard]] const Registration* goes_with() const noexcept;

    Registrations& registrations_;
    std::shared_ptr<detail::NcclState> state_;
    Registration goes_with_tags_;
};

} // namespace memsaver::inline v0_2

#ifndef MEMSAVER_COMPILED
#include "memsaver/interop/nccl.ipp"
#endif
