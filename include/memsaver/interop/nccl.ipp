// Definitions of nccl.hpp.
#pragma once

#include "memsaver/core/error.hpp"
#include "memsaver/core/event.hpp"
#include "memsaver/core/lists.hpp"
#include "memsaver/core/vector.hpp"
#include "memsaver/interop/nccl.hpp"
#include "memsaver/saver/saver_core.hpp"

#include <dlfcn.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

namespace memsaver::inline v0_3 {

namespace detail {

MEMSAVER_INLINE NcclLibrary NcclLibrary::load() {
    const char* const named = std::getenv("MEMSAVER_NCCL"); // NOLINT(concurrency-mt-unsafe): only read
    const bool by_name = named != nullptr && *named != '\0';
    const char* const file = by_name ? named : "libnccl.so.2";
    void* handle = nullptr;
    if (!by_name && ::dlsym(RTLD_DEFAULT, "ncclGetVersion") != nullptr) handle = ::dlopen(nullptr, RTLD_NOW);
    if (handle == nullptr) handle = ::dlopen(file, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (handle == nullptr) {
        const char* const why = ::dlerror();
        unavailable({"NCCL could not be loaded (", why != nullptr ? why : file,
                     "): link it, load it first, or set MEMSAVER_NCCL to the file that the process has loaded"});
    }
    NcclLibrary library{handle};
    ::dlclose(handle); // the library stays loaded
    if (library.get_version == nullptr || library.comm_get_async_error == nullptr ||
        library.get_version(&library.version) != nccl::success) {
        unavailable({file, " is not NCCL 2.4 or newer"});
    }
    return library;
}

MEMSAVER_INLINE std::string nccl_version_text(int version) {
    const int unit = version < 10'000 ? 1'000 : 10'000;
    return std::to_string(version / unit) + '.' + std::to_string(version % unit / 100) + '.' +
           std::to_string(version % 100);
}

/// A communicator, shared by the callbacks of its registrations.
class NcclState {
public:
    NcclState(NcclLibrary library, ncclComm* comm, NcclOptions options, Vector<AnyDriver> drivers)
        : library_{library}, comm_{comm}, options_{std::move(options)}, drivers_{std::move(drivers)} {
        require_enumerator("NcclOptions::suspend", options_.suspend, 3);
        if (library_.comm_device != nullptr) (void)library_.comm_device(comm_, &device_);
    }

    [[nodiscard]] const NcclLibrary& library() const noexcept { return library_; }
    [[nodiscard]] ncclComm* comm() const noexcept { return comm_; }
    [[nodiscard]] const std::string& who() const noexcept { return options_.who; }
    [[nodiscard]] bool suspends() const noexcept {
        return options_.suspend != NcclSuspend::never && library_.can_suspend();
    }
    [[nodiscard]] bool suspended() const noexcept { return suspended_.load(); }

    void abandon() noexcept { gone_.store(true); }
    [[nodiscard]] bool gone() const noexcept { return gone_.load(); }
    /// Makes one call, `call()`, which writes to `result`, on a communicator that must not be suspended. A no-op on an
    /// abandoned communicator. Throws DriverError if the communicator has failed, or if the call fails, and NotIdle
    /// after the timeout. A call that timed out is still in progress: the next call waits for it first. Once it has
    /// completed, the same call is not made again, and `undo()` is called before the communicator is suspended.
    template <class Call>
    void call(const char* name, const std::shared_ptr<void>& result, const Call& call,
              std::function<nccl::Result()> undo = {}) {
        if (gone()) return;
        const std::lock_guard lock{mutex_}; // NCCL does not allow concurrent calls
        if (has_completed(name, result)) return;
        require_resumed(name);
        make({name, result, std::move(undo)}, call);
    }
    /// Throws DriverError if the communicator has failed.
    void require_healthy(const char* before) {
        nccl::Result error = nccl::success;
        const nccl::Result asked = library_.comm_get_async_error(comm_, &error);
        if (asked != nccl::success) raise(asked, std::string{"ncclCommGetAsyncError before "} + before + " failed");
        if (error == nccl::success) return;
        if (error == nccl::in_progress) return finish(error, "an earlier call");
        raise(error, std::string{"before "} + before + ": the communicator has failed",
              "; call ncclCommAbort and NcclComm::abandon to exclude it from pauses");
    }
    void suspend() {
        if (gone()) return;
        const std::lock_guard lock{mutex_};
        require_healthy("pause");
        if (has_completed(suspend_call, nullptr) || suspended_.load()) return;
        for (; !completed_.empty(); completed_.pop_back()) { // the saver does not know that these are registered
            if (const auto& undo = completed_.back().undo) finish(on_its_device(undo), "undoing a late call");
        }
        if (!suspends()) return;
        make({suspend_call}, [&] { return library_.comm_suspend(comm_, nccl::suspend_memory); });
        suspended_.store(true);
    }
    void resume() {
        if (gone()) return;
        const std::lock_guard lock{mutex_};
        if (has_completed(resume_call, nullptr) || !suspended_.load()) return;
        resume_now();
    }

private:
    static constexpr const char* suspend_call = "ncclCommSuspend";
    static constexpr const char* resume_call = "ncclCommResume";

    [[noreturn]] void raise(nccl::Result result, const std::string& what, const char* advice = "") const {
        const char* const name = library_.get_error_string != nullptr ? library_.get_error_string(result) : nullptr;
        const char* const more = library_.get_last_error != nullptr ? library_.get_last_error(comm_) : nullptr;
        throw DriverError{what + " (NCCL " + nccl_version_text(library_.version) + ", communicator \"" + options_.who +
                              "\"): " + (name != nullptr ? name : "failed") + " (" + std::to_string(result) + ')' +
                              (more != nullptr && *more != '\0' ? std::string{": "} + more : std::string{}) + advice,
                          {StatusKind::other, result, "NCCL"}};
    }
    /// Runs `call` with the communicator's device current, as NCCL requires. The thread that pauses or resumes may have
    /// no current device, or another one.
    template <class Call>
    nccl::Result on_its_device(const Call& call) const {
        for (const AnyDriver& driver : drivers_) {
            if (device_ >= 0 && driver.device() != device_) continue;
            nccl::Result answer = nccl::success;
            const Status status = driver.with_context([&] { answer = call(); });
            if (status.kind == StatusKind::unsupported) break;
            check(status, "make the device of a communicator current");
            return answer;
        }
        return call();
    }
    struct Pending {
        std::string name;
        std::shared_ptr<void> result{}; ///< NCCL may still write to it
        std::function<nccl::Result()> undo{};
    };

    template <class Call>
    void make(Pending pending, const Call& call) {
        require_healthy(pending.name.c_str());
        completed_.reserve(completed_.size() + 1);
        const nccl::Result answer = on_its_device(call);
        if (answer != nccl::in_progress) return finish(answer, pending.name.c_str());
        pending_ = std::move(pending);
        finish_pending();
    }
    /// Waits until the pending call has completed; it is pending no more unless it times out.
    void finish_pending() {
        try {
            finish(nccl::in_progress, pending_->name.c_str());
        } catch (const DriverError&) {
            pending_.reset();
            throw;
        }
        pending_.reset();
    }
    /// Waits for a call that timed out before, if there is one. Returns whether this call has completed late. If the
    /// other one was a suspend and this one is not, its pause was refused: the communicator is resumed.
    bool has_completed(const char* name, const std::shared_ptr<void>& result) {
        if (pending_) {
            Pending late = *pending_;
            finish_pending();
            const bool suspend = late.name == suspend_call;
            if (suspend || late.name == resume_call) {
                suspended_.store(suspend);
                if (suspend && name != late.name) resume_now();
                return name == late.name;
            }
            completed_.push_back(std::move(late)); // `make` reserved the element
        }
        Pending* const found =
            first_in(completed_, [&](const Pending& each) { return each.name == name && each.result == result; });
        if (found == nullptr) return false;
        completed_.erase(found);
        return true;
    }
    /// Checks the result of a call; waits for a call that is still in progress.
    void finish(nccl::Result result, const char* call) {
        const auto since = std::chrono::steady_clock::now();
        while (result == nccl::in_progress) {
            nccl::Result error = nccl::success;
            const nccl::Result asked = library_.comm_get_async_error(comm_, &error);
            result = asked != nccl::success ? asked : error;
            if (result != nccl::in_progress) break;
            if (options_.timeout && std::chrono::steady_clock::now() - since > *options_.timeout) {
                not_idle({call, " of communicator ", in_quotes(options_.who),
                          " did not complete within the timeout; check that every rank makes the same call"});
            }
            std::this_thread::sleep_for(std::chrono::microseconds{50});
        }
        if (result != nccl::success) raise(result, std::string{call} + " failed");
    }
    /// Throws Misuse while the communicator is suspended, because NCCL must not be called then.
    void require_resumed(const char* call) const {
        if (!suspended_.load()) return;
        misuse({call, ": the communicator ", in_quotes(options_.who),
                " is suspended, or could not be resumed; resume its tags first, or call Registrations::renew"});
    }
    void resume_now() {
        make({resume_call}, [&] { return library_.comm_resume(comm_); });
        suspended_.store(false);
    }

    NcclLibrary library_;
    ncclComm* comm_;
    NcclOptions options_;
    Vector<AnyDriver> drivers_;
    int device_ = -1; // unknown
    std::atomic<bool> suspended_{false};
    std::atomic<bool> gone_{false};
    std::mutex mutex_; // guards the calls and the members below
    std::optional<Pending> pending_;
    Vector<Pending> completed_; // after they had timed out, so that nobody has used their results
};

/// What `add()` registers as `*handle`, and `remove()` deregisters, around pauses. The state may keep `remove`, which
/// must therefore not own it.
template <class Handle, class Add, class Remove>
RegistrationOptions renewed(const std::shared_ptr<NcclState>& state, const std::shared_ptr<Handle>& handle,
                            const char* add_call, const Add& add, const char* remove_call, const Remove& remove) {
    RegistrationOptions options;
    options.who = state->who();
    options.on_pause = OnPause::renew;
    options.on_register = [=] { state->call(add_call, handle, add, remove); };
    options.on_deregister = [=] {
        state->call(remove_call, handle, remove);
        *handle = nullptr;
    };
    return options;
}

} // namespace detail

MEMSAVER_INLINE NcclComm::NcclComm(Registrations& registrations, ncclComm* comm, NcclOptions options)
    : registrations_{registrations} {
    if (comm == nullptr) detail::misuse({"NcclComm: the communicator is null"});
    detail::NcclLibrary library = detail::NcclLibrary::load();
    detail::translated([&] {
        const NcclSuspend suspend = options.suspend;
        const std::string too_old = "NCCL " + detail::nccl_version_text(library.version) +
                                    " cannot suspend communicators; 2.29.7 or newer is required";
        if (suspend == NcclSuspend::required && !library.can_suspend()) detail::unavailable({too_old});
        RegistrationOptions own;
        own.who = options.who;
        own.on_pause = OnPause::renew;
        const Tags tags = options.tags;
        state_ =
            std::make_shared<detail::NcclState>(library, comm, std::move(options), registrations.saver()->drivers());
        own.on_register = [state = state_] { state->resume(); };
        own.on_deregister = [state = state_] { state->suspend(); };
        (void)(goes_with_tags_ = registrations.add(tags, std::move(own))); // nvcc takes it for ignored
        if (suspend == NcclSuspend::never || library.can_suspend()) return;
        const detail::SaverCore& core = *registrations.saver();
        detail::tell(
            core.events(), EventKind::fell_back, "", core.driver().device(),
            {too_old, ": the memory of communicator ", detail::in_quotes(state_->who()), " stays on the device"});
    });
}

MEMSAVER_INLINE const Registration* NcclComm::dependency() const noexcept {
    return state_->suspends() ? &goes_with_tags_ : nullptr;
}

MEMSAVER_INLINE NcclBuffer NcclComm::buffer(void* pointer, std::size_t bytes) {
    const detail::NcclLibrary& library = state_->library();
    if (library.comm_register == nullptr || library.comm_deregister == nullptr) {
        detail::unavailable({"NCCL ", detail::nccl_version_text(library.version),
                             " has no ncclCommRegister; 2.19 or newer is required"});
    }
    return detail::translated([&] {
        const auto handle = std::make_shared<void*>(nullptr);
        RegistrationOptions options = detail::renewed(
            state_, handle, "ncclCommRegister",
            [state = state_.get(), handle, pointer, bytes] {
                return state->library().comm_register(state->comm(), pointer, bytes, handle.get());
            },
            "ncclCommDeregister",
            [state = state_.get(), handle] { return state->library().comm_deregister(state->comm(), *handle); });
        return registrations_.add(pointer, bytes, std::move(options), dependency());
    });
}

MEMSAVER_INLINE NcclWindow NcclComm::window(void* pointer, std::size_t bytes, int flags) {
    const detail::NcclLibrary& library = state_->library();
    if (library.comm_window_register == nullptr || library.comm_window_deregister == nullptr) {
        detail::unavailable({"NCCL ", detail::nccl_version_text(library.version),
                             " has no ncclCommWindowRegister; 2.27 or newer is required"});
    }
    return detail::translated([&] {
        const auto window = std::make_shared<ncclWindow_vidmem*>(nullptr);
        RegistrationOptions options = detail::renewed(
            state_, window, "ncclCommWindowRegister",
            [state = state_.get(), window, pointer, bytes, flags] {
                return state->library().comm_window_register(state->comm(), pointer, bytes, window.get(), flags);
            },
            "ncclCommWindowDeregister",
            [state = state_.get(), window] { return state->library().comm_window_deregister(state->comm(), *window); });
        return NcclWindow{window, registrations_.add(pointer, bytes, std::move(options), dependency())};
    });
}

MEMSAVER_INLINE void NcclComm::abandon() noexcept { state_->abandon(); }
MEMSAVER_INLINE bool NcclComm::suspends() const noexcept { return state_->suspends(); }
MEMSAVER_INLINE bool NcclComm::suspended() const { return state_->suspended(); }
MEMSAVER_INLINE int NcclComm::version() const noexcept { return state_->library().version; }

} // namespace memsaver::inline v0_3
