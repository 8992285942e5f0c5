// DeviceAround: a machine that makes every call on another one.
#pragma once

#include "memsaver/driver/any_driver.hpp"
#include "memsaver/driver/calls.hpp"

#include <concepts>
#include <cstddef>
#include <string>
#include <type_traits>
#include <utility>

namespace memsaver::inline v0_3 {

/// Forwards every call to an inner machine. Derive from it to change a few calls, by overriding them; or to see or fail
/// all of them, by overriding `around`. Whatever the inner machine has, it has. It is not equal to the inner machine.
class DeviceAround : public Device {
    /// Returns a function that makes a call on the inner machine. `made` says what the types of the arguments do not.
    template <class... P>
    auto pass(Status (Device::*call)(P...) noexcept, CallRecord made) noexcept {
        return [this, call, made](P... arguments) mutable noexcept {
            (note<P>(made, arguments, false), ...);
            return around(made, [&] {
                const Status status = (inner_.machine().*call)(arguments...);
                if (status.ok()) (note<P>(made, arguments, true), ...);
                return status;
            });
        };
    }
    /// Notes an argument whose type says what it is: before the call, or, if it is a `result`, after it.
    template <class P, class T>
    static void note(CallRecord& made, const T& argument, bool result) noexcept {
        if (result != std::is_reference_v<P>) return;
        if constexpr (std::same_as<P, Address&>) made.address = argument; // of the others, `made` has the right one
        if constexpr (std::same_as<T, PageHandle>) made.handle = argument;
        if constexpr (std::same_as<T, StreamRef>) made.stream = argument;
        if constexpr (std::same_as<T, EventRef>) made.event = argument;
        if constexpr (std::same_as<T, GraphRef>) made.graph = argument;
        if constexpr (std::same_as<T, FileRef>) made.file = argument;
        if constexpr (std::same_as<T, void*> || std::same_as<T, const void*>) made.host = argument;
    }

public:
    explicit DeviceAround(AnyDriver inner) : inner_{std::move(inner)} {}

    /// The machine that it stands around.
    [[nodiscard]] const AnyDriver& inner() const noexcept { return inner_; }

    [[nodiscard]] int device() const noexcept override { return inner_.device(); }
    [[nodiscard]] std::string name() const override { return inner_.name(); }
    [[nodiscard]] Features features() const noexcept override { return inner_.features(); }
    Status identity(std::string& text) const noexcept override { return inner_.identity(text); }
    [[nodiscard]] int numa_node() const noexcept override { return inner_.numa_node(); }
    [[nodiscard]] Neighbours* neighbours() noexcept override { return inner_.neighbours(); }
    [[nodiscard]] std::string holders() const override { return inner_.holders(); }
    Status with_context(detail::FunctionRef<void()> work) noexcept override { return inner_.with_context(work); }
    void name_addresses(Address address, std::size_t bytes, const char* name) noexcept override {
        inner_.name_addresses(address, bytes, name);
    }

    Status owns_event(EventRef event, bool& yes) noexcept override {
        return pass(&Device::owns_event, {.call = Call::owns_stream})(event, yes);
    }
    Status take(std::size_t at_most, PageHandle& pages, std::size_t& got) noexcept override {
        CallRecord made{.call = Call::take};
        return around(made, [&] {
            const Status status = inner_.take(at_most, pages, got);
            if (status.ok()) made.handle = pages, made.bytes = got;
            return status;
        });
    }
    Status copy_many(Direction direction, const CopyPart* parts, std::size_t count,
                     StreamRef stream) noexcept override {
        std::size_t all = 0;
        for (std::size_t i = 0; i < count; ++i) all += parts[i].bytes;
        CallRecord made{.call = Call::copy_many,
                        .bytes = all,
                        .stream = stream,
                        .parts = parts,
                        .count = count,
                        .direction = direction};
        return around(made, [&] { return inner_.copy_many(direction, parts, count, stream); });
    }

#define MEMSAVER_FORWARD(name, parameters, arguments, ...)                                                             \
    Status name parameters noexcept override {                                                                         \
        return pass(&Device::name, {.call = Call::name, __VA_ARGS__}) arguments;                                       \
    }
#define MEMSAVER_ABOVE(name, ...)
    MEMSAVER_MACHINE_CALLS(MEMSAVER_FORWARD, MEMSAVER_ABOVE)
    MEMSAVER_SYSTEM_CALLS(MEMSAVER_FORWARD)
#undef MEMSAVER_ABOVE
#undef MEMSAVER_FORWARD

protected:
    /// Every call of the enumeration Call passes through here. `made` holds the arguments; `forward` makes the call on
    /// the inner machine and, if it succeeds, adds what it gave to `made`. Returns what the call returns.
    virtual Status around(CallRecord&, detail::FunctionRef<Status()> forward) noexcept { return forward(); }

private:
    AnyDriver inner_;
};

} // namespace memsaver::inline v0_3
