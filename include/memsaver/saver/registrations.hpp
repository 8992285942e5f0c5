// Coordinates pauses with memory that is registered elsewhere: with a network card, a communicator, another process.
// Knows nothing about how registering works.
#pragma once

#include "memsaver/saver/memory_saver.hpp"

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>

namespace memsaver::inline v0_3 {

/// How a pause treats registered memory.
enum class OnPause : unsigned char {
    /// The pause (exchange, eviction) throws Misuse that names the holder of the registration and the memory; nothing
    /// happens.
    refuse,
    /// The memory is deregistered before the pause and registered again after it is resumed.
    renew,
};

/// Written as `{.who = "mlx5_0", .on_pause = OnPause::renew, .on_register = ..., .on_deregister = ...}`.
struct RegistrationOptions {
    /// The holder of the registration, for error messages.
    std::string who{};
    OnPause on_pause = OnPause::refuse;
    /// Registers the memory. Called by `add`, and again whenever the memory is resumed. Required for `OnPause::renew`;
    /// leave empty with `refuse` if the program has already registered the memory.
    std::function<void()> on_register{};
    /// Deregisters the memory: before a pause, and when the registration ends. If it throws, the pause rethrows and the
    /// memory stays resident.
    std::function<void()> on_deregister{};
};

/// Written as `{.barrier = [&](const PauseEvent&) { MPI_Barrier(all); }}`.
struct RegistrationsOptions {
    /// Called before a pause deregisters anything, after the devices' work has completed. It must wait for peers that
    /// may still read or write the memory on their own. If it throws, the pause rethrows and nothing happens.
    std::function<void(const PauseEvent&)> barrier{};
};

/// Owns a registration. Move-only. Must end before the memory is freed.
class [[nodiscard]] Registration {
public:
    Registration() = default;
    Registration(std::shared_ptr<detail::RegistrationBook> book,
                 std::shared_ptr<detail::RegistrationEntry> entry) noexcept
        : book_{std::move(book)}, entry_{std::move(entry)} {}
    Registration(Registration&& other) noexcept = default;
    Registration& operator=(Registration&& other) noexcept {
        Registration taken{std::move(other)}; // what this had ends with it
        book_.swap(taken.book_);
        entry_.swap(taken.entry_);
        return *this;
    }
    /// Ends the registration as `end` does; failures are reported to the saver's event sink. A no-op in a forked child.
    ~Registration();

    /// Returns whether it is registered now. False while its memory, or the registration it depends on, is paused or
    /// deregistered, and afterwards until registering has succeeded.
    [[nodiscard]] bool registered() const;
    /// Deregisters and ends the registration. Throws what `on_deregister` throws; it is then still registered, and
    /// `end` may be called again. A no-op if it has already ended or was moved from.
    void end();

private:
    friend class Registrations; // for `add` with a registration that depends on it

    std::shared_ptr<detail::RegistrationBook> book_;
    std::shared_ptr<detail::RegistrationEntry> entry_;
};

/// The registrations of a saver's memory. A pause releases pages without asking those that know them: afterwards a
/// network card would write to pages that are free or belong to someone else, and a communicator would read stale data.
/// This class makes such a pause an error, or deregisters and registers in the right order:
///
/// 1. Before a pause of the tags concerned: throws Misuse if any registration of theirs says `refuse`. Otherwise waits
///    for the devices' work (without limit, regardless of the pause's timeout), calls `barrier`, and deregisters in
///    reverse order of registration.
/// 2. The pause. If it fails, memory that is still resident is registered again.
/// 3. After a resume, resumed memory is registered again in order of registration. The resume itself has then
///    succeeded, even if registering fails: it throws the first failure, and `renew` or the next resume retries.
///
/// The functions run on the thread that pauses or resumes, one at a time; they may add and end registrations, their
/// own included, but not pause, use or reclaim. Registrations are not consulted by `drop` and `close` of the saver,
/// or by pauses of a saver that is switched off. Streamed resumes register once the bytes have arrived.
/// An eviction may briefly deregister a tag that then stays resident, so memory that one thread registers while another
/// uses it belongs in tags that are not evictable. Thread-safe. The registrations may outlive this object, but pauses
/// do not consult them once it is destroyed.
class Registrations {
public:
    /// Throws Misuse after the saver's `close`.
    template <class D>
    explicit Registrations(const MemorySaver<D>& saver, RegistrationsOptions options = {})
        : Registrations{saver.core(), std::move(options)} {}
    explicit Registrations(std::shared_ptr<detail::SaverCore> saver, RegistrationsOptions options = {});
    Registrations(const Registrations&) = delete;
    Registrations& operator=(const Registrations&) = delete;
    ~Registrations() = default;

    /// Registers `bytes` bytes at `pointer`, which may point into a block; calls `on_register` if there is one. Throws
    /// Misuse if the range is not inside live blocks of the saver, is paused or being paused, or a required function is
    /// missing. Throws what `on_register` throws; then nothing is registered.
    ///
    /// `with`: a registration that this one depends on, such as the communicator that knows the memory. This one is
    /// deregistered before that one, whatever its own tag, and registered again once both that one and its memory are
    /// available. Throws Misuse if `with` has ended or is deregistered.
    Registration add(const void* pointer, std::size_t bytes, RegistrationOptions options,
                     const Registration* with = nullptr);

    /// Registers an object that is not memory but is destroyed and recreated with these tags, such as a communicator.
    /// It exists already, so `add` never calls `on_register`: only a resume of any of the tags does. `on_deregister` is
    /// called only before a pause of any of them, not when the registration ends. Throws Misuse if a function is
    /// missing.
    Registration add(Tags tags, RegistrationOptions options);

    /// Retries registrations that failed although their memory is resident. Tries all of them, then throws the first
    /// failure.
    void renew();

    /// Returns the saver's shared state, which has the event sink; for adapters.
    [[nodiscard]] const std::shared_ptr<detail::SaverCore>& saver() const noexcept;

private:
    std::shared_ptr<detail::RegistrationBook> book_;
    Hook hooks_;
};

} // namespace memsaver::inline v0_3

#ifndef MEMSAVER_COMPILED
#include "memsaver/saver/registrations.ipp"
#endif
