// Memory that something else knows by its pages: a network card, a communicator, another process. What a pause makes of
// that. Does not know what registering is.
#pragma once

#include "memsaver/saver/memory_saver.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

namespace memsaver::inline v0_2 {

namespace detail {
class RegistrationBook; // registrations.ipp
} // namespace detail

/// What a pause makes of memory that is registered.
enum class OnPause : unsigned char {
    /// The pause (exchange, eviction) throws Misuse that says who has registered what, and nothing happens.
    refuse,
    /// It is deregistered before the pause, and registered again once the memory is back.
    renew,
};

/// Written as `{.who = "mlx5_0", .on_pause = OnPause::renew, .on_register = ..., .on_deregister = ...}`.
struct RegistrationOptions {
    /// Who knows the memory, for the text of errors.
    std::string who{};
    OnPause on_pause = OnPause::refuse;
    /// Registers. Called by `add`, and again whenever the memory is back. Wanted for `OnPause::renew`; empty for
    /// `refuse` where the program has registered the memory already.
    std::function<void()> on_register{};
    /// Undoes that: before a pause, and where the registration ends. What it throws a pause throws, and the memory
    /// stays.
    std::function<void()> on_deregister{};
};

/// Written as `{.barrier = [&](const PauseEvent&) { MPI_Barrier(all); }}`.
struct RegistrationsOptions {
    /// Called before a pause deregisters anything, once the devices' work has passed: where others may still read or
    /// write the memory by themselves, they have to be waited for. What it throws the pause throws, and nothing
    /// happens.
    std::function<void(const PauseEvent&)> barrier{};
};

/// Keeps a registration for as long as it lives. Move-only. Must end before the memory is given up.
class [[nodiscard]] Registration {
public:
    Registration() = default;
    Registration(std::shared_ptr<detail::RegistrationBook> book, std::uint64_t key) noexcept
        : book_{std::move(book)}, key_{key} {}
    Registration(Registration&& other) noexcept = default;
    Registration& operator=(Registration&& other) noexcept;
    /// As `end`; what fails is told to the saver's event sink. In a forked child it does nothing.
    ~Registration();

    /// Whether it is registered now: not while its memory, or what it goes with, is away, nor after that, until
    /// registering has succeeded.
    [[nodiscard]] bool registered() const;
    /// Deregisters what is registered. Throws what `on_deregister` throws; it is registered then, and `end` may be
    /// called again. Afterwards, and of one that was moved from, does nothing.
    void end();

private:
    friend class Registrations; // for what goes with it

    std::shared_ptr<detail::RegistrationBook> book_;
    std::uint64_t key_ = 0;
};

/// What is registered of a saver's memory. A pause takes pages away whoever knows them: a network card then writes into
/// pages that are nobody's or somebody else's, a communicator reads what was there. This makes it an error, or has it
/// done in the right order:
///
/// 1. before a pause, of the tags concerned: Misuse if something is registered that says `refuse`; else the devices'
///    work is waited for, for as long as it takes whatever the pause's timeout, `barrier` is called, and what is
///    registered is deregistered, what came last first;
/// 2. the pause; if it fails, what is still here is registered again;
/// 3. after a resume, what is back is registered again, what came first first. The resume has then succeeded, whatever
///    fails: it throws the first failure, and `renew` or the next resume tries again.
///
/// The functions run on the thread that pauses or resumes, one at a time; they may add and end registrations, but not
/// pause. A `drop` or `close` of the saver, `TaggedArena`s, and a pause of a saver that is switched off do not ask
/// here. Streamed resumes register once the bytes have come. An eviction may deregister a tag that then stays, for a
/// moment: memory that one thread registers while another uses it belongs in tags that are not evictable. Thread safe.
/// Lives as long as the last of its registrations, but asks no pause any more once it is gone.
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

    /// `bytes` at `pointer`, which may point into a block, are registered from here on; calls `on_register`, if there
    /// is one. Throws Misuse for what is not in live blocks of the saver, is away or being paused, or lacks a function;
    /// and what `on_register` throws, and then nothing is registered.
    ///
    /// `with`: one that this one cannot be without, such as the communicator that knows the memory. It goes before that
    /// one does, whatever its own tag, and comes once both that one and its memory are here. Misuse if that one has
    /// ended, or is away.
    Registration add(const void* pointer, std::size_t bytes, RegistrationOptions options,
                     const Registration* with = nullptr);

    /// Something that is not memory but goes and comes with these tags, such as a communicator: it is there already, so
    /// `on_register` is called after a resume of any of them, and never by `add`; `on_deregister` only before a pause
    /// of any of them, and not at the end. Throws Misuse if it lacks a function.
    Registration add(Tags tags, RegistrationOptions options);

    /// Registers what could not be registered so far though its memory is here. Tries all of them, then throws the
    /// first failure.
    void renew();

    /// What the saver and its event sink are known by, for adapters.
    [[nodiscard]] const std::shared_ptr<detail::SaverCore>& saver() const noexcept;

private:
    std::shared_ptr<detail::RegistrationBook> book_;
    Hook hooks_;
};

} // namespace memsaver::inline v0_2

#ifndef MEMSAVER_COMPILED
#include "memsaver/saver/registrations.ipp"
#endif
