// A driver around another one that fails when told to, counts and logs its calls, shows them to an observer, and keeps
// books of what was taken and not given back.
// Knows the driver concepts; not what calls it.
#pragma once

#include "memsaver/driver/concepts.hpp"
#include "memsaver/testing/call_log.hpp"
#include "memsaver/testing/failure.hpp"
#include "memsaver/testing/ledger.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace memsaver::inline v0_1 {

/// Wraps any driver for tests: `FaultyDriver driver{HostDriver{1_GiB}}`. Copies share everything: the driver inside,
/// plans, counts and books; two are equal if one is a copy of the other. Satisfies the concepts that `D` satisfies.
/// Every method may be called from any thread; no lock is held while the observer or the driver inside is at work.
///
/// A call that fails on purpose is not forwarded: nothing has happened, and its outputs are untouched. Misuse is
/// written down in `violations()` and forwarded all the same.
template <Driver D>
class FaultyDriver {
public:
    /// Sees each call before it is made. May block, plan failures (this call counts as the next) and call drivers;
    /// if it throws, the call fails and is not forwarded.
    using Observer = std::function<void(const CallRecord&)>;

    explicit FaultyDriver(D driver) : state_{std::make_shared<State>(std::move(driver))} {}
    FaultyDriver(const FaultyDriver&) noexcept = default; // no moves: a handle that was moved from would be hollow
    FaultyDriver& operator=(const FaultyDriver&) noexcept = default;
    ~FaultyDriver() = default;

    friend bool operator==(const FaultyDriver& a, const FaultyDriver& b) noexcept { return a.state_ == b.state_; }

    /// The driver inside. Calls made to it directly are not counted and not in the books.
    [[nodiscard]] const D& inner() const noexcept { return state_->inner; }

    // --- Failing on purpose, and watching ---

    /// Plans a failure, besides those planned already. Throws Misuse if it could never be seen, std::bad_alloc.
    void fail(const Failure& failure) const {
        const std::lock_guard lock{state_->mutex};
        state_->plan.add(failure);
    }
    /// Forgets all planned failures.
    void heal() const noexcept {
        const std::lock_guard lock{state_->mutex};
        state_->plan.clear();
    }
    /// How many calls failed on purpose so far.
    [[nodiscard]] std::uint64_t injected() const noexcept { return read(&State::plan, &FailurePlan::injected); }

    /// Shows every later call to `observer`, in the place of an earlier one; an empty function ends that, though calls
    /// that are under way may still be in it. An observer that holds a copy of this driver keeps it alive until then.
    void on_call(Observer observer) const {
        auto shared = observer ? std::make_shared<const Observer>(std::move(observer)) : nullptr;
        const std::lock_guard lock{state_->mutex};
        state_->observer.swap(shared);
    }

    // --- What happened ---

    /// Calls of a kind so far, failed ones too, and those that are under way.
    [[nodiscard]] std::uint64_t calls(Call call) const noexcept {
        return read(&State::log, [&](const CallLog& log) { return log.count(call); });
    }
    [[nodiscard]] std::uint64_t calls() const noexcept { return read(&State::log, &CallLog::total); }
    /// The latest calls, a line each, for the text of a test that failed.
    [[nodiscard]] std::string log() const { return read(&State::log, &CallLog::text); }

    [[nodiscard]] Outstanding outstanding() const noexcept { return read(&State::ledger, &Ledger::outstanding); }
    [[nodiscard]] bool everything_given_back() const noexcept { return outstanding() == Outstanding{}; }
    /// What is still held, by name; empty if everything was given back.
    [[nodiscard]] std::string leaks() const { return read(&State::ledger, &Ledger::held_text); }
    /// Bytes of handles that were created and not released; of mappings; of address ranges; of plain allocations.
    [[nodiscard]] std::size_t handle_bytes() const noexcept { return read(&State::ledger, &Ledger::handle_bytes); }
    [[nodiscard]] std::size_t mapped_bytes() const noexcept { return read(&State::ledger, &Ledger::mapped_bytes); }
    [[nodiscard]] std::size_t reserved_bytes() const noexcept { return read(&State::ledger, &Ledger::reserved_bytes); }
    [[nodiscard]] std::size_t plain_bytes() const noexcept { return read(&State::ledger, &Ledger::plain_bytes); }

    /// Misuse, a line each: unmapping, releasing, closing or freeing what is not held; mapping a released handle, a
    /// part of one, over a live mapping or outside a reservation; unreserving with live mappings or with another size;
    /// copying or filling where nothing is mapped or no access was allowed. The first hundred.
    [[nodiscard]] std::vector<std::string> violations() const { return read(&State::ledger, &Ledger::violations); }

    // --- The driver ---

    [[nodiscard]] int device() const noexcept { return inner().device(); }
    [[nodiscard]] std::string name() const { return inner().name(); }

    Status granularity(std::size_t& bytes) const noexcept {
        return call({.call = Call::granularity}, [&](CallRecord&) { return inner().granularity(bytes); });
    }
    Status memory(DeviceMemory& memory) const noexcept {
        return call({.call = Call::memory}, [&](CallRecord&) { return inner().memory(memory); });
    }
    Status reserve(std::size_t bytes, std::size_t alignment, Address& address) const noexcept {
        return call({.call = Call::reserve, .bytes = bytes}, [&](CallRecord& made) {
            const Status status = inner().reserve(bytes, alignment, address);
            if (status.ok()) made.address = address;
            return status;
        });
    }
    Status unreserve(Address address, std::size_t bytes) const noexcept {
        return call({.call = Call::unreserve, .address = address, .bytes = bytes},
                    [&](CallRecord&) { return inner().unreserve(address, bytes); });
    }
    Status create(std::size_t bytes, PageHandle& handle) const noexcept {
        return call({.call = Call::create, .bytes = bytes}, [&](CallRecord& made) {
            const Status status = inner().create(bytes, handle);
            if (status.ok()) made.handle = handle;
            return status;
        });
    }
    Status release(PageHandle handle) const noexcept {
        return call({.call = Call::release, .handle = handle}, [&](CallRecord&) { return inner().release(handle); });
    }
    Status map(Address address, std::size_t bytes, PageHandle handle) const noexcept {
        return call({.call = Call::map, .address = address, .bytes = bytes, .handle = handle},
                    [&](CallRecord&) { return inner().map(address, bytes, handle); });
    }
    Status unmap(Address address, std::size_t bytes) const noexcept {
        return call({.call = Call::unmap, .address = address, .bytes = bytes},
                    [&](CallRecord&) { return inner().unmap(address, bytes); });
    }
    Status allow_access(Address address, std::size_t bytes) const noexcept {
        return call({.call = Call::allow_access, .address = address, .bytes = bytes},
                    [&](CallRecord&) { return inner().allow_access(address, bytes); });
    }

    Status open_stream(StreamRef& stream) const noexcept {
        return call({.call = Call::open_stream}, [&](CallRecord& made) {
            const Status status = inner().open_stream(stream);
            if (status.ok()) made.stream = stream;
            return status;
        });
    }
    Status close_stream(StreamRef stream) const noexcept {
        return call({.call = Call::close_stream, .stream = stream},
                    [&](CallRecord&) { return inner().close_stream(stream); });
    }
    Status open_event(StreamRef near, EventRef& event) const noexcept {
        return call({.call = Call::open_event, .stream = near}, [&](CallRecord& made) {
            const Status status = inner().open_event(near, event);
            if (status.ok()) made.event = event;
            return status;
        });
    }
    Status close_event(EventRef event) const noexcept {
        return call({.call = Call::close_event, .event = event},
                    [&](CallRecord&) { return inner().close_event(event); });
    }
    Status record(EventRef event, StreamRef stream) const noexcept {
        return call({.call = Call::record, .stream = stream, .event = event},
                    [&](CallRecord&) { return inner().record(event, stream); });
    }
    Status record_device(EventRef event) const noexcept {
        return call({.call = Call::record_device, .event = event},
                    [&](CallRecord&) { return inner().record_device(event); });
    }
    Status follow(StreamRef stream, EventRef event) const noexcept {
        return call({.call = Call::follow, .stream = stream, .event = event},
                    [&](CallRecord&) { return inner().follow(stream, event); });
    }
    Status query(EventRef event, bool& passed) const noexcept {
        return call({.call = Call::query, .event = event}, [&](CallRecord&) { return inner().query(event, passed); });
    }
    Status wait(EventRef event) const noexcept {
        return call({.call = Call::wait, .event = event}, [&](CallRecord&) { return inner().wait(event); });
    }
    Status drain() const noexcept {
        return call({.call = Call::drain}, [&](CallRecord&) { return inner().drain(); });
    }
    Status capturing(StreamRef stream, bool& yes) const noexcept {
        return call({.call = Call::capturing, .stream = stream},
                    [&](CallRecord&) { return inner().capturing(stream, yes); });
    }

    Status copy_to_host(void* host, Address from, std::size_t bytes, StreamRef stream) const noexcept {
        return call({.call = Call::copy_to_host, .address = from, .bytes = bytes, .stream = stream},
                    [&](CallRecord&) { return inner().copy_to_host(host, from, bytes, stream); });
    }
    Status copy_to_device(Address to, const void* host, std::size_t bytes, StreamRef stream) const noexcept {
        return call({.call = Call::copy_to_device, .address = to, .bytes = bytes, .stream = stream},
                    [&](CallRecord&) { return inner().copy_to_device(to, host, bytes, stream); });
    }
    Status fill(Address to, unsigned char byte, std::size_t bytes, StreamRef stream) const noexcept {
        return call({.call = Call::fill, .address = to, .bytes = bytes, .stream = stream},
                    [&](CallRecord&) { return inner().fill(to, byte, bytes, stream); });
    }

    Status allocate_plain(std::size_t bytes, Address& address) const noexcept requires Plain<D> {
        return call({.call = Call::allocate_plain, .bytes = bytes}, [&](CallRecord& made) {
            const Status status = inner().allocate_plain(bytes, address);
            if (status.ok()) made.address = address;
            return status;
        });
    }
    Status free_plain(Address address) const noexcept requires Plain<D> {
        return call({.call = Call::free_plain, .address = address},
                    [&](CallRecord&) { return inner().free_plain(address); });
    }

    Status begin_capture(StreamRef stream, CaptureMode mode) const noexcept requires Captures<D> {
        return call({.call = Call::begin_capture, .stream = stream},
                    [&](CallRecord&) { return inner().begin_capture(stream, mode); });
    }
    Status end_capture(StreamRef stream, GraphRef& graph) const noexcept requires Captures<D> {
        return call({.call = Call::end_capture, .stream = stream}, [&](CallRecord& made) {
            const Status status = inner().end_capture(stream, graph);
            if (status.ok()) made.graph = graph;
            return status;
        });
    }
    Status launch(GraphRef graph, StreamRef stream) const noexcept requires Captures<D> {
        return call({.call = Call::launch, .stream = stream, .graph = graph},
                    [&](CallRecord&) { return inner().launch(graph, stream); });
    }
    Status close_graph(GraphRef graph) const noexcept requires Captures<D> {
        return call({.call = Call::close_graph, .graph = graph},
                    [&](CallRecord&) { return inner().close_graph(graph); });
    }

private:
    struct State {
        explicit State(D driver) : inner{std::move(driver)} {}

        const D inner;
        std::mutex mutex; // over everything below
        CallLog log;
        FailurePlan plan;
        Ledger ledger;
        std::shared_ptr<const Observer> observer;
    };

    /// What `get` gives for a part of the state while nobody else touches it.
    template <class Part, class Get>
    auto read(Part State::*part, Get get) const {
        const std::lock_guard lock{state_->mutex};
        return std::invoke(get, std::as_const(*state_).*part);
    }

    /// Every call goes through here. `make` forwards it and fills in what the driver gave.
    template <class Make>
    Status call(CallRecord made, Make make) const noexcept {
        State& state = *state_;
        try {
            std::shared_ptr<const Observer> observer;
            {
                const std::lock_guard lock{state.mutex};
                made.number = state.log.begin(made.call);
                observer = state.observer;
            }
            if (observer) (*observer)(made);
            Ledger::Entries entries;
            {
                const std::lock_guard lock{state.mutex};
                if (const std::optional<Status> failure = state.plan.next(made.call)) {
                    made.status = *failure;
                    made.injected = true;
                    state.log.end(made);
                    return made.status;
                }
                entries = state.ledger.begin(made);
            }
            made.status = make(made);
            const std::lock_guard lock{state.mutex};
            state.ledger.end(made, std::move(entries));
            state.log.end(made);
            return made.status;
        } catch (const std::bad_alloc&) {
            return {StatusKind::out_of_host_memory, Failure::injected_code, "no host memory for the books"};
        } catch (...) {
            return {StatusKind::other, Failure::injected_code, "the observer threw"};
        }
    }

    std::shared_ptr<State> state_;
};

} // namespace memsaver::inline v0_1
