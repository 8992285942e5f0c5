// What every driver must do, as one suite for anybody's: run it on a driver of your own. Independent of the machine and
// of the test framework.
#pragma once

#include "memsaver/driver/any_driver.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace memsaver::inline v0_3 {

namespace detail {

/// One run of the contract. Takes what it needs from the driver, and gives all of it back.
class DriverContract {
public:
    explicit DriverContract(AnyDriver driver) : driver_{std::move(driver)} {}

    [[nodiscard]] std::vector<std::string> run() {
        identify();
        if (!ok("granularity", driver_.granularity(unit_)) || !must("the granularity is a power of two", is_power())) {
            return std::move(broken_);
        }
        streams();
        pages();
        features();
        host_pages();
        files();
        return std::move(broken_);
    }

private:
    /// Notes a broken rule. Returns whether it holds.
    bool must(const char* rule, bool holds) {
        if (!holds) broken_.emplace_back(rule);
        return holds;
    }
    bool ok(const char* call, const Status& status) {
        if (!status.ok()) broken_.push_back(std::string{call} + " failed: " + to_string(status));
        return status.ok();
    }
    /// A call of a feature: `unsupported` exactly if the machine says that it does not have it.
    bool as_told(const char* call, bool has, const Status& status) {
        const bool lacks = status.kind == StatusKind::unsupported;
        if (has && lacks) broken_.push_back(std::string{call} + " is unsupported, but features() has it");
        if (!has && !lacks) broken_.push_back(std::string{call} + " is supported, but features() does not have it");
        return has && ok(call, status);
    }
    [[nodiscard]] bool is_power() const noexcept { return unit_ != 0 && (unit_ & (unit_ - 1)) == 0; }

    void identify() {
        must("name() is not empty", !driver_.name().empty());
        must("a driver equals itself", driver_ == AnyDriver{driver_});
        must("features() do not change", driver_.features() == driver_.features());
        must("neighbours() do not change", driver_.neighbours() == driver_.neighbours());
        std::string one;
        std::string again;
        if (driver_.identity(one).ok()) {
            ok("identity, again,", driver_.identity(again));
            must("the identity does not change", one == again);
            must("the identity is not empty", !one.empty());
        }
    }

    void streams() {
        StreamRef stream;
        StreamRef other;
        EventRef event;
        if (!ok("open_stream", driver_.open_stream(stream)) || !ok("open_stream", driver_.open_stream(other))) return;
        must("streams are different", !(stream == other) && !(stream == StreamRef{}));
        if (ok("open_event", driver_.open_event(stream, event))) {
            bool yes = true;
            ok("capturing", driver_.capturing(stream, yes));
            must("a new stream is not being captured", !yes);
            ok("record", driver_.record(event, stream));
            ok("follow", driver_.follow(other, event));
            ok("wait", driver_.wait(event));
            yes = false;
            ok("query", driver_.query(event, yes));
            must("an event that was waited for has passed", yes);
            ok("record_device", driver_.record_device(event));
            ok("wait", driver_.wait(event));
            ok("record, again,", driver_.record(event, other));
            yes = false;
            if (as_told("owns_event", driver_.features().event_owners, driver_.owns_event(event, yes)))
                must("a machine owns the events that it opened", yes);
            yes = false;
            if (as_told("owns_stream", driver_.features().stream_owners, driver_.owns_stream(stream, yes)))
                must("a machine owns the streams that it opened", yes);
            ok("drain", driver_.drain());
            ok("close_event", driver_.close_event(event));
        }
        ok("close_stream", driver_.close_stream(other));
        ok("close_stream", driver_.close_stream(stream));
    }

    void pages() {
        DeviceMemory before;
        ok("memory", driver_.memory(before));
        must("no more memory is free than there is", before.free_bytes <= before.total_bytes);
        Address at = 0;
        if (!ok("reserve", driver_.reserve(4 * unit_, 2 * unit_, at))) return;
        must("addresses are aligned as they were asked for", at % (2 * unit_) == 0);
        driver_.name_addresses(at, 4 * unit_, "contract");
        PageHandle first;
        PageHandle second;
        if (ok("create", driver_.create(unit_, first))) {
            if (ok("create", driver_.create(2 * unit_, second))) {
                mapped(at, first, second);
                ok("release", driver_.release(second));
            }
            PageHandle more{77};
            const Status status = driver_.create(too_much(before), more);
            must("more than the device has is out of memory", status.kind == StatusKind::out_of_memory);
            must("a failed call leaves its outputs as they were", more == PageHandle{77});
            ok("release", driver_.release(first));
        }
        ok("unreserve", driver_.unreserve(at, 4 * unit_));
    }
    [[nodiscard]] std::size_t too_much(const DeviceMemory& memory) const noexcept {
        return (memory.total_bytes / unit_ + 1) * 2 * unit_;
    }
    void mapped(Address at, PageHandle first, PageHandle second) {
        if (!ok("map", driver_.map(at, unit_, first))) return;
        if (ok("map", driver_.map(at + unit_, 2 * unit_, second))) {
            ok("allow_access to read", driver_.allow_access(at, 3 * unit_, Rights::read));
            if (ok("allow_access", driver_.allow_access(at, 3 * unit_))) copies(at);
            ok("drain", driver_.drain());
            ok("unmap of two mappings at once", driver_.unmap(at, 3 * unit_));
            if (ok("map, again,", driver_.map(at, unit_, first))) { // the bytes are the pages', not the addresses'
                if (ok("allow_access", driver_.allow_access(at, unit_)))
                    must("pages keep their bytes while they are mapped nowhere", read(at, {}) == 7);
                ok("unmap", driver_.unmap(at, unit_));
            }
        } else {
            ok("unmap", driver_.unmap(at, unit_));
        }
    }
    [[nodiscard]] int read(Address at, StreamRef stream) {
        unsigned char byte = 0;
        if (!ok("copy_to_host", driver_.copy_to_host(&byte, at, 1, stream)) || !ok("drain", driver_.drain())) return -1;
        return byte;
    }
    void copies(Address at) {
        StreamRef stream;
        if (!ok("open_stream", driver_.open_stream(stream))) return;
        const std::size_t middle = unit_ - 3; // across the border of two mappings
        const std::vector<unsigned char> sent{1, 2, 3, 4, 5, 6};
        std::vector<unsigned char> got(sent.size());
        ok("fill", driver_.fill(at, 7, 3 * unit_, stream));
        ok("copy_to_device", driver_.copy_to_device(at + middle, sent.data(), sent.size(), stream));
        ok("copy_to_host", driver_.copy_to_host(got.data(), at + middle, got.size(), stream));
        ok("drain", driver_.drain());
        must("bytes that went to the device come back, across mappings", got == sent);
        must("a fill fills up to its end", read(at + 3 * unit_ - 1, stream) == 7);
        ok("close_stream", driver_.close_stream(stream));
    }

    void features() {
        const Features has = driver_.features();
        StreamRef stream;
        if (!ok("open_stream", driver_.open_stream(stream))) return;
        EventRef event;
        if (!ok("open_event", driver_.open_event(stream, event))) {
            ok("close_stream", driver_.close_stream(stream));
            return;
        }
        StreamRef out;
        StreamRef in;
        if (as_told("lane", has.lanes, driver_.lane(Direction::out, out))) {
            ok("lane", driver_.lane(Direction::in, in));
            must("the lanes are two streams", !(in == out));
            ok("lane, again,", driver_.lane(Direction::out, in));
            must("a lane is the same for all", in == out);
        }
        bool ran = false;
        if (as_told("with_context", has.context, driver_.with_context([&] { ran = true; })))
            must("with_context runs the work", ran);
        Address plain = 0;
        if (as_told("allocate_plain", has.plain, driver_.allocate_plain(unit_, plain))) {
            ok("fill", driver_.fill(plain, 9, unit_, stream));
            must("plain memory holds bytes", read(plain, stream) == 9);
            ok("free_plain", driver_.free_plain(plain));
        }
        std::size_t bytes = 0;
        if (as_told("pool_memory", has.pools, driver_.pool_memory({}, bytes)))
            ok("trim_pool", driver_.trim_pool({}, bytes));
        as_told("follow_outside", has.gates, driver_.follow_outside(stream, event));
        captures(stream, has.captures);
        if (!has.peers) as_told("reach_peer", false, driver_.reach_peer(0, unit_));
        if (!has.peers) as_told("copy_peer", false, driver_.copy_peer(0, 0, 0, stream));
        if (!has.batch_copies) as_told("copy_many", false, driver_.copy_many(Direction::out, nullptr, 0, stream));
        static constexpr KernelCode nothing{"nothing", "", [](const std::array<std::uint64_t, 3>&) {}};
        if (!has.kernels) as_told("run_kernel", false, driver_.run_kernel({.code = &nothing}, stream));
        if (!has.kernel_copies) as_told("copy_by_kernel", false, driver_.copy_by_kernel(0, 0, 0, stream));
        PageHandle taken;
        if (has.takes) {
            const Status status = driver_.take(unit_, taken, bytes);
            must("take gives no more than it was asked for", !status.ok() || bytes <= unit_);
            if (status.ok()) ok("release", driver_.release(taken));
        } else {
            as_told("take", false, driver_.take(unit_, taken, bytes));
        }
        if (!has.asks) as_told("ask_for_room", false, driver_.ask_for_room(unit_, 0));
        exports(has.exports);
        ok("close_event", driver_.close_event(event));
        ok("close_stream", driver_.close_stream(stream));
    }
    void captures(StreamRef stream, bool has) {
        if (!as_told("begin_capture", has, driver_.begin_capture(stream, CaptureMode::relaxed))) return;
        bool yes = false;
        ok("capturing", driver_.capturing(stream, yes));
        must("a stream that is being captured says so", yes);
        GraphRef graph;
        if (!ok("end_capture", driver_.end_capture(stream, graph))) return;
        ok("launch", driver_.launch(graph, stream));
        if (ok("begin_capture", driver_.begin_capture(stream, CaptureMode::relaxed)))
            ok("update_graph", driver_.update_graph(stream, graph));
        ok("drain", driver_.drain());
        ok("close_graph", driver_.close_graph(graph));
    }
    void exports(bool has) {
        PageHandle pages{77};
        int descriptor = -77;
        if (!has) {
            as_told("export_pages", has, driver_.export_pages({}, descriptor));
            as_told("import_pages", has, driver_.import_pages(-1, pages));
        }
        Address at = 0;
        if (!as_told("create_shared", has, driver_.create_shared(unit_, pages))) return;
        const bool reserved = ok("reserve", driver_.reserve(unit_, unit_, at));
        if (reserved && map_all(at, pages)) {
            ok("fill", driver_.fill(at, 9, unit_, {}));
            ok("drain", driver_.drain());
            ok("unmap", driver_.unmap(at, unit_));
        }
        const bool exported = ok("export_pages", driver_.export_pages(pages, descriptor));
        ok("release", driver_.release(pages));
        if (exported) {
            must("an exported descriptor is closed on exec", (::fcntl(descriptor, F_GETFD) & FD_CLOEXEC) != 0);
            imports(reserved ? at : 0, descriptor);
        }
        PageHandle none{77};
        must("what is no descriptor is not imported", !driver_.import_pages(-1, none).ok());
        must("a failed import leaves its output as it was", none == PageHandle{77});
        if (reserved) ok("unreserve", driver_.unreserve(at, unit_));
    }
    /// Closes the descriptor.
    void imports(Address at, int descriptor) {
        PageHandle pages;
        const bool imported = ok("import_pages", driver_.import_pages(descriptor, pages));
        must("an exported descriptor is the caller's to close", ::close(descriptor) == 0);
        if (!imported) return;
        if (at != 0 && map_all(at, pages)) {
            must("exported pages keep their bytes, even if they are released meanwhile", read(at, {}) == 9);
            ok("unmap", driver_.unmap(at, unit_));
        }
        ok("release", driver_.release(pages));
    }
    bool map_all(Address at, PageHandle pages) {
        if (!ok("map", driver_.map(at, unit_, pages))) return false;
        if (ok("allow_access", driver_.allow_access(at, unit_))) return true;
        ok("unmap", driver_.unmap(at, unit_));
        return false;
    }

    void host_pages() {
        constexpr std::size_t huge = std::size_t{2} << 20U;
        void* pages = nullptr;
        std::size_t available = 0;
        ok("host_available", driver_.host_available(available));
        if (!ok("map_host", driver_.map_host(huge, pages))) return;
        must("host pages begin at a multiple of 2 MiB", reinterpret_cast<std::uintptr_t>(pages) % huge == 0);
        if (ok("populate_host", driver_.populate_host(pages, huge))) {
            std::memset(pages, 1, huge);
            if (ok("pin_host", driver_.pin_host(pages, huge))) ok("unpin_host", driver_.unpin_host(pages));
        }
        ok("unmap_host", driver_.unmap_host(pages, huge));
    }

    void files() {
        constexpr std::size_t bytes = 4096;
        void* pages = nullptr;
        FileRef file;
        if (!ok("map_host", driver_.map_host(2 * bytes, pages))) return;
        auto* const sent = static_cast<unsigned char*>(pages);
        if (ok("populate_host", driver_.populate_host(pages, 2 * bytes)) &&
            ok("open_file", driver_.open_file("/tmp", file))) {
            std::memset(sent, 5, bytes);
            ok("allocate_file", driver_.allocate_file(file, 0, 2 * bytes));
            ok("write_file", driver_.write_file(file, sent, bytes, bytes));
            ok("read_file", driver_.read_file(file, sent + bytes, bytes, bytes));
            must("a file holds what was written", std::memcmp(sent, sent + bytes, bytes) == 0);
            FileFacts facts;
            ok("file_facts", driver_.file_facts(file, facts));
            must("a file is as long as what was written", facts.bytes == 2 * bytes);
            bool cached = false;
            ok("file_cached", driver_.file_cached(file, bytes, 0, cached));
            ok("punch_file", driver_.punch_file(file, 0, bytes));
            ok("close_file", driver_.close_file(file));
        }
        ok("unmap_host", driver_.unmap_host(pages, 2 * bytes));
        FileRef none;
        must("a source that does not exist fails",
             !driver_.open_source("/tmp/memsaver-has-no-such-file", false, none).ok() && none == FileRef{});
    }

    AnyDriver driver_;
    std::size_t unit_ = 0;
    std::vector<std::string> broken_;
};

} // namespace detail

/// Runs the contract of a driver and returns the rules that it breaks, one line each; none if it is one that savers can
/// use. Compares `features()` with what the calls answer. Takes a few pages and a few MiB of the host, and gives them
/// back; so wrap the driver in a FaultyDriver to see that nothing is left. No stream may be being captured meanwhile.
[[nodiscard]] inline std::vector<std::string> check_driver_contract(const AnyDriver& driver) {
    return detail::DriverContract{driver}.run();
}

} // namespace memsaver::inline v0_3
